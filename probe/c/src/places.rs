//! All points by name and place.
//!
//! A scope may be met for the first time in a signal handler, which may have
//! interrupted the host's allocator, so nothing here takes a lock or allocates: the
//! points are in lists that grow by one exchange, in memory of our own.
//!
//! Texts are read and written byte by byte, as what a checker for data races that
//! follows the C library's copies knows nothing of.

use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU8, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use probe::Point;

use crate::arena;

/// Lists; a power of two.
const LISTS: usize = 1 << 10;
/// Names that are kept; far more than a segment has points.
const MAX_POINTS: usize = 1 << 17;

/// A point and where it stands.
struct Place {
    hash: u64,
    name: &'static [AtomicU8],
    file: &'static [AtomicU8],
    line: u32,
    point: Point,
    next: AtomicPtr<Place>,
}

static PLACES: [AtomicPtr<Place>; LISTS] = [const { AtomicPtr::new(ptr::null_mut()) }; LISTS];

/// Number of places, about.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The point of a name and place; none if there are too many, or no memory. What is
/// not UTF-8 in the texts is replaced.
pub(crate) fn point(name: &[u8], file: &[u8], line: u32) -> Option<&'static Point> {
    let hash = hash(name, file, line);
    let list = &PLACES[hash as usize % LISTS];
    let mut first = list.load(Acquire);
    if let Some(known) = find(first, ptr::null(), hash, name, file, line) {
        return Some(&known.point);
    }
    if COUNT.load(Relaxed) >= MAX_POINTS {
        return None;
    }
    let (kept_name, name_text) = keep(name)?;
    let (kept_file, file_text) = keep(file)?;
    let new = arena::keep(Place {
        hash,
        name: kept_name,
        file: kept_file,
        line,
        point: Point::at(name_text, file_text, line),
        next: AtomicPtr::new(first),
    })?;
    loop {
        let link = ptr::from_ref(new).cast_mut();
        // Meets `Acquire` above and in `find`: the place is filled.
        let Err(found) = list.compare_exchange(first, link, Release, Acquire) else {
            COUNT.fetch_add(1, Relaxed);
            return Some(&new.point);
        };
        // Somebody else, or a signal handler, was faster, maybe with the same one.
        if let Some(known) = find(found, first, hash, name, file, line) {
            return Some(&known.point);
        }
        new.next.store(found, Relaxed);
        first = found;
    }
}

/// Looks for a place in a list, up to a link that was seen before.
fn find(
    first: *const Place,
    seen: *const Place,
    hash: u64,
    name: &[u8],
    file: &[u8],
    line: u32,
) -> Option<&'static Place> {
    let mut at = first;
    while at != seen {
        // SAFETY: null, or a place, which is never given back.
        let place = unsafe { at.as_ref() }?;
        if place.hash == hash
            && place.line == line
            && text(name).eq(bytes(place.name))
            && text(file).eq(bytes(place.file))
        {
            return Some(place);
        }
        at = place.next.load(Acquire);
    }
    None
}

fn hash(name: &[u8], file: &[u8], line: u32) -> u64 {
    let all = text(name).chain([0]).chain(text(file)).chain(line.to_ne_bytes());
    // FNV-1a.
    let hash = all.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    hash ^ hash >> 32
}

/// The bytes of a text, with what is not UTF-8 in it replaced.
pub(crate) fn text(bytes: &[u8]) -> impl Iterator<Item = u8> {
    bytes.utf8_chunks().flat_map(|chunk| {
        let replacement = if chunk.invalid().is_empty() { "" } else { "\u{fffd}" };
        chunk.valid().bytes().chain(replacement.bytes())
    })
}

fn bytes(kept: &[AtomicU8]) -> impl Iterator<Item = u8> {
    kept.iter().map(|byte| byte.load(Relaxed))
}

/// Keeps a text; the same in two forms.
pub(crate) fn keep(bytes: &[u8]) -> Option<(&'static [AtomicU8], &'static str)> {
    let kept = arena::keep_bytes(text(bytes).count())?;
    for (to, byte) in kept.iter().zip(text(bytes)) {
        to.store(byte, Relaxed);
    }
    // SAFETY: bytes of both types are alike, and nobody changes them any more.
    let kept_text = unsafe { std::slice::from_raw_parts(kept.as_ptr().cast::<u8>(), kept.len()) };
    // SAFETY: filled just now, with text.
    Some((kept, unsafe { std::str::from_utf8_unchecked(kept_text) }))
}
