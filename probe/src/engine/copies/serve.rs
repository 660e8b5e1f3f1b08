//! The leader's side: bodies of the functions in the table.

use std::ffi::{OsStr, c_void};
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use pfp_shm_layout::amounts::{Amounts, MAX_AMOUNTS};
use pfp_shm_layout::failure;

use super::{Declaration, RawText, Sink};
use crate::MeteredPoint;
use crate::clock::counter;
use crate::engine::context::{self as contexts, Handle};
use crate::engine::figures::Histogram;
use crate::engine::guard::Guard;
use crate::engine::measure::{self, HAND, SCOPE};
use crate::engine::process::memory;
use crate::engine::state::{Name, State};
use crate::engine::{current, program};
use crate::point::Point;
use crate::snapshot::Existing;
use crate::stats::FIGURES;

/// Makes the leader's point for a follower's point. Null if memory runs out.
///
/// # Safety
///
/// Everything that the declaration points to lives as long as the process.
pub(super) unsafe extern "C" fn declare(declaration: &Declaration) -> *const c_void {
    // SAFETY: by the caller's promise, the text lives as long as the process.
    let text = |bytes: RawText| text(unsafe { bytes.bytes::<'static>() });
    let &Declaration { control, name, file, line, number, .. } = declaration;
    let &Declaration { starts_on, fenced, counts_allocs, device, wall, .. } = declaration;
    let state = match number {
        Declaration::NAMED => State::named(Name::Literal(text(name)), 0, text(file), line),
        number => State::named(Name::Number, number, text(file), line),
    };
    let other = AtomicPtr::new(control.cast_mut().cast());
    let point =
        Point { state: State { starts_on, fenced, counts_allocs, device, wall, other, ..state } };
    let amounts = declaration.amounts.map(text);
    let kept = match amounts.iter().take_while(|name| !name.is_empty()).count() {
        0 => keep(point),
        count => keep_metered(point, amounts, count),
    };
    kept.map_or(ptr::null(), ptr::from_ref).cast()
}

#[inline(never)]
fn keep_metered(
    point: Point,
    names: [&'static str; MAX_AMOUNTS],
    count: usize,
) -> Option<&'static Point> {
    let names = keep(names)?;
    keep(MeteredPoint::of(point, &names[..count])).map(MeteredPoint::itself)
}

pub(super) fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap_or_default()
}

/// Stores a value, which is never freed. Calls no allocator, because a signal handler may declare a
/// point.
fn keep<T>(value: T) -> Option<&'static T> {
    const { assert!(align_of::<T>() <= LINE && size_of::<T>() <= CHUNK - LINE) };
    let place = room_for(size_of::<T>())?.cast::<T>();
    // SAFETY: `room_for` returned aligned memory of this size to this call alone.
    unsafe {
        place.write(value);
        Some(&*place)
    }
}

const LINE: usize = 64;
/// Size and alignment of a chunk of memory for values. Each value is smaller.
const CHUNK: usize = 1 << 16;

fn room_for(bytes: usize) -> Option<*mut u8> {
    /// Address of the first free byte. A multiple of [`CHUNK`] if no byte is free.
    static FREE: AtomicUsize = AtomicUsize::new(0);
    /// Number of attempts, because other threads may use up the chunk that this thread maps.
    const CHUNK_ATTEMPTS: usize = 16;
    let bytes = bytes.next_multiple_of(LINE);
    let take = |at: usize| (at + bytes <= at.next_multiple_of(CHUNK)).then_some(at + bytes);
    for _ in 0..CHUNK_ATTEMPTS {
        // Pairs with the exchange below, which makes the address of mapped bytes visible.
        let full = match FREE.fetch_update(Acquire, Relaxed, take) {
            Ok(at) => return Some(ptr::with_exposed_provenance_mut(at)),
            Err(full) => full,
        };
        // Maps two chunks, so that one whole chunk is aligned. The first line of that chunk stays
        // unused, because its address would mean that no byte is free. If another thread has mapped
        // a chunk in the meantime, the chunk of this call stays unused.
        let start = memory::pages(2 * CHUNK)?.expose_provenance().next_multiple_of(CHUNK) + LINE;
        // Pairs with the exchange above.
        let _ = FREE.compare_exchange(full, start, Release, Relaxed);
    }
    None
}

/// [`counter::stamp`], which has Rust's calling convention, as a C function.
pub(super) extern "C" fn stamp() -> u64 {
    counter::stamp()
}

/// The leader's point, from the pointer that a follower holds.
///
/// # Safety
///
/// The pointer is null, or was returned by [`declare`].
#[inline(always)]
pub(super) unsafe fn point(point: *const c_void) -> Option<&'static Point> {
    // SAFETY: by the caller's promise, the pointer is null, or leads to a point that is never
    // freed.
    unsafe { point.cast::<Point>().as_ref() }
}

/// Calls `work` with a point, if it has amounts.
pub(super) fn metered(point: &'static Point, work: impl FnOnce(&'static MeteredPoint)) {
    if let Some(metered) = point.metered() {
        work(metered);
    }
}

#[inline(always)]
pub(super) fn begin(
    point: &'static Point,
    by_hand: bool,
    [inside, pair]: [u64; 2],
    amounts: Option<&Amounts>,
) -> u64 {
    let control = point.control();
    let tag = match amounts.and_then(|amounts| Some((point.metered()?, amounts))) {
        _ if !control.enabled() => 0,
        Some((metered, amounts)) => tag_of(metered.begin_with(*amounts)),
        None if by_hand => measure::begin::<HAND>(point, control),
        None => measure::begin::<SCOPE>(point, control),
    };
    charge(tag, inside, pair);
    tag
}

pub(super) fn lap(tag: u64, next: &'static Point, inside: u64) -> u64 {
    let mut guard = Guard::of(tag);
    guard.lap_to(next);
    let tag = tag_of(guard);
    charge(tag, inside, inside);
    tag
}

fn tag_of(guard: Guard) -> u64 {
    ManuallyDrop::new(guard).tag()
}

/// Subtracts a follower's extra cost from its region, and from the enclosing region.
#[inline(always)]
fn charge(tag: u64, inside: u64, pair: u64) {
    if tag != 0
        && let Some(thread) = current::near()
    {
        let region = thread.region(tag);
        region.delay(inside);
        region.set_covered(region.covered().wrapping_add(pair));
        thread.cover(pair);
    }
}

pub(super) fn write_name(point: &'static Point, to: &Sink) {
    if let Some(name) = point.name_in_the_table() {
        to.write(name.as_bytes());
    }
}

pub(super) fn read_stats(
    point: &'static Point,
    figures: &mut [u64; FIGURES],
    buckets: Option<&Sink>,
) -> bool {
    let histogram = if buckets.is_some() { Histogram::Read } else { Histogram::LeftOut };
    let Some(mut stats) = point.stats_with(histogram) else { return false };
    let mut places = figures.iter_mut();
    stats.each_figure(|figure| {
        if let Some(place) = places.next() {
            *place = figure;
        }
        figure
    });
    let mut words = stats.histogram.iter().flat_map(|it| [it.low, it.width, it.count]);
    buckets.is_none_or(|to| words.all(|word| to.write(&word.to_ne_bytes())))
}

pub(super) fn read_sums(point: &'static Point, sums: &mut [[u64; 2]; MAX_AMOUNTS]) {
    if let Some(metered) = point.metered() {
        *sums = metered.sums_in_order().map(|sum| [sum as u64, (sum >> 64) as u64]);
    }
}

/// The handle of a context, from the pointer that a follower holds.
///
/// # Safety
///
/// The pointer was returned by [`Handle::into_raw`], and the follower does not drop the handle
/// during the call.
pub(super) unsafe fn context(it: *const c_void) -> ManuallyDrop<Handle> {
    // SAFETY: by the caller's promise, the handle exists during the call. `ManuallyDrop` does not
    // drop it.
    ManuallyDrop::new(unsafe { Handle::from_raw(it.cast()) })
}

/// Drops a handle that its follower no longer uses.
pub(super) fn drop_context(it: &Handle) {
    // SAFETY: a handle is a pointer, and the follower does not use its handle again.
    drop(unsafe { ptr::read(it) });
}

/// Switches from one context to another; null is the thread's own.
///
/// # Safety
///
/// Each pointer is null, or fulfils the requirements of [`context`].
pub(super) unsafe fn switch(prev: *const c_void, next: *const c_void) -> u32 {
    // SAFETY: the pointer is not null, so by the caller's promise it fulfils the requirements of
    // `context`.
    let [prev, next] = [prev, next].map(|it| (!it.is_null()).then(|| unsafe { context(it) }));
    contexts::switch(prev.as_deref(), next.as_deref()) as u32
}

pub(super) fn calibrate(pairs: u32, costs: &mut [u64; 3]) -> bool {
    let found = program::calibrate(pairs);
    if let Some(found) = found {
        *costs = [found.inside, found.pair, found.lap];
    }
    found.is_some()
}

pub(super) fn snapshot(path: &[u8], replaces: bool) -> i32 {
    let existing = if replaces { Existing::Replace } else { Existing::Keep };
    errno_of(&program::write_snapshot(OsStr::from_bytes(path).as_ref(), existing))
}

pub(super) fn show(mut to: &Sink) -> i32 {
    errno_of(&program::show(&mut to))
}

fn errno_of(result: &io::Result<()>) -> i32 {
    let Err(error) = result else { return 0 };
    match (failure::errno_of(error), error.kind()) {
        (0, io::ErrorKind::Unsupported) => libc::EOPNOTSUPP,
        (0, io::ErrorKind::InvalidData) => libc::EBADMSG,
        (0, _) => libc::ENOMEM,
        (errno, _) => errno,
    }
}

impl Write for &Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let is_written = Sink::write(self, bytes);
        is_written.then_some(bytes.len()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn what_is_kept_stays_as_it_is() {
        let keep_many = |of: u64| {
            let kept = (0..200).filter_map(|at| Some((keep([of, at, of, at, of])?, at)));
            let kept: Vec<_> = kept.collect();
            assert_eq!(kept.len(), 200);
            assert!(kept.iter().all(|(kept, at)| **kept == [of, *at, of, *at, of]));
            kept
        };
        thread::scope(|threads| {
            let all = [1, 2, 3].map(|of| threads.spawn(move || (of, keep_many(of))));
            for (of, kept) in all.map(|thread| thread.join().expect("it ends")) {
                assert!(kept.iter().all(|(kept, _)| kept[0] == of && kept[4] == of));
            }
        });
        // Values that fill several chunks.
        assert!(
            (0..40).all(|at| keep([at; CHUNK / 64]).is_some_and(|kept| *kept == [at; CHUNK / 64]))
        );
    }
}
