//! Spans of the wall clock. Any thread may end a span.

use std::cell::UnsafeCell;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use pfp::past;
use pfp::table::mix;

use crate::names::{Measured, Named};

/// Number of slots for open spans; a power of two.
const SPANS: usize = 1 << 13;
/// Number of slots that are probed for a key. If all of them are taken, the span is not measured
/// and counts as refused.
const REACH: usize = 64;

const FREE: u64 = 0;
const BUSY: u64 = 1;

/// The name of an open span, its amount, and the clock reading at its begin.
type SpanStart = (&'static Named, u64, u64);

struct Span {
    /// Key of the open span, or `FREE` or `BUSY`.
    key: AtomicU64,
    begun: UnsafeCell<Option<SpanStart>>,
}

// SAFETY: only the thread that has exchanged the key for `BUSY` accesses `begun`.
unsafe impl Sync for Span {}

static ALL: [Span; SPANS] =
    [const { Span { key: AtomicU64::new(FREE), begun: UnsafeCell::new(None) } }; SPANS];

fn places(key: u64) -> impl Iterator<Item = &'static Span> {
    (0..REACH).map(move |step| &ALL[(mix(key) as usize).wrapping_add(step) % SPANS])
}

/// Hashes several words into a key. Bit 1 is set, so a key never equals `FREE` or `BUSY`.
pub(crate) fn key(words: &[u64]) -> u64 {
    words.iter().fold(0u64, |key, &word| mix(key.rotate_left(7) ^ word)) | 2
}

/// Begins a span, with an amount if the name has one. Returns false if there is no free slot.
pub(crate) fn begin(key: u64, named: &'static Named, amount: u64) -> bool {
    let taken = places(key).find(|span| {
        // Acquire pairs with the release in `end`: the previous owner is done with `begun`.
        span.key.load(Relaxed) == FREE
            && span.key.compare_exchange(FREE, BUSY, Acquire, Relaxed).is_ok()
    });
    let Some(span) = taken else {
        pfp::c::count_refusal();
        return false;
    };
    // SAFETY: this thread has exchanged the key for `BUSY`, so no other thread accesses `begun`.
    unsafe { *span.begun.get() = Some((named, amount, pfp::ticks())) };
    // Release publishes `begun` to the thread that calls `end`.
    span.key.store(key, Release);
    true
}

/// Ends the span that was begun with this key. Returns false if there is none.
pub(crate) fn end(key: u64) -> bool {
    let now = pfp::ticks();
    let found = places(key).find(|span| {
        // Acquire pairs with the release in `begin`.
        span.key.load(Relaxed) == key
            && span.key.compare_exchange(key, BUSY, Acquire, Relaxed).is_ok()
    });
    let Some(span) = found else { return false };
    // SAFETY: this thread has exchanged the key for `BUSY`, so no other thread accesses `begun`.
    let begun = unsafe { (*span.begun.get()).take() };
    // Release hands the slot to the next `begin`.
    span.key.store(FREE, Release);
    if let Some((named, amount, start)) = begun {
        record(named, amount, start, now);
    }
    true
}

/// Records a finished span. Its length is 0 if it ended on a CPU whose counter is behind the
/// counter of the CPU on which it began.
pub(crate) fn record(named: &'static Named, amount: u64, start: u64, end: u64) {
    let elapsed = (end.wrapping_sub(start) as i64).max(0) as u64;
    match &named.measured {
        Measured::Point(point) => past::record_wall(point, start, elapsed),
        Measured::MeteredPoint(metered) => past::record_wall_with(metered, start, elapsed, amount),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::names::{Domain, RegionKind, Text, named};

    #[test]
    fn any_thread_ends_a_span_and_only_once() {
        crate::get_ready();
        let span = named(Domain::of("test", "spans"), Text::of(b"span"), RegionKind::Span).unwrap();
        let Measured::Point(point) = &span.measured else { unreachable!("it has no amount") };
        let keys: Vec<u64> = (0..500).map(|number| key(&[7, number])).collect();
        assert!(keys.iter().all(|&key| begin(key, span, 0)));
        thread::scope(|scope| {
            for half in keys.chunks(250) {
                scope.spawn(|| assert!(half.iter().all(|&key| end(key))));
            }
        });
        assert!(!keys.iter().any(|&key| end(key)) && !end(key(&[8])));
        let stats = point.stats().expect("it has measured");
        assert_eq!((stats.count, stats.off_cpu, stats.switches), (500, 0, 0));
    }
}
