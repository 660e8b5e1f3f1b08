//! Keeps slow calls: copies what explains a call that reaches its point's limit to a
//! [box](pfp_shm_layout::black_box) of the segment.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pfp_shm_layout::black_box::{BOXES, BlackBox, BoxFacts, Enclosing};
use pfp_shm_layout::calls::UNKNOWN;
use pfp_shm_layout::control::Limit;
use pfp_shm_layout::geometry::{BLOCK, BOX_BLOCKS};

use super::copies::by_leader;
use super::process::Process;
use super::region::{Begun, CONTEXT, RegionPart, not_below_zero};
use super::thread::Thread;
use super::{current, process};
use crate::clock::calibrate;
use crate::point::Point;

/// Number of calls that are kept in a second. A further call is kept only if it takes at least
/// twice as long as each call that was kept in that second.
const PER_SECOND: u64 = 8;
/// Number of boxes that have the slowest calls. The others have the newest.
const SLOWEST: usize = BOXES / 2;
/// Maximum number of boxes that a thread tries to claim while others do.
const CLAIM_ATTEMPTS: usize = 4;

/// A call that may be kept.
pub(super) struct Call {
    pub(super) point: &'static Point,
    pub(super) begun: Begun,
    pub(super) part: RegionPart,
    /// Ticks from begin to end.
    pub(super) elapsed: u64,
    /// Number of regions around it.
    pub(super) around: u64,
}

/// Whether a call of these ticks, by the clock and on a CPU, reaches a limit.
pub(super) fn is_reached(limit: Limit, elapsed: u64, on_cpu: u64) -> bool {
    let ticks = if limit.is_cpu() { on_cpu } else { elapsed };
    ticks as f64 >= limit.ns() as f64 * calibrate::ticks_per_second() / 1e9
}

/// Limits how many calls the process keeps in a second.
#[derive(Debug, Default)]
pub(super) struct KeptLately {
    /// The counter when the second began.
    since: AtomicU64,
    /// Slow calls since then, kept or not.
    count: AtomicU64,
    /// Ticks of the slowest call that was kept since then.
    slowest: AtomicU64,
}

impl KeptLately {
    /// Whether one more call may be kept.
    fn admits(&self, now: u64, span: u64) -> bool {
        let second = calibrate::ticks_per_second() as u64;
        // The end of another thread's call may be a little earlier.
        if (now.wrapping_sub(self.since.load(Relaxed)) as i64).unsigned_abs() > second {
            self.since.store(now, Relaxed);
            self.count.store(0, Relaxed);
            self.slowest.store(0, Relaxed);
        }
        let is_one_of_few = self.count.fetch_add(1, Relaxed) < PER_SECOND;
        let slowest = self.slowest.load(Relaxed);
        let is_admitted = is_one_of_few || span / 2 >= slowest;
        if is_admitted {
            self.slowest.fetch_max(span, Relaxed);
        }
        is_admitted
    }
}

/// Keeps a call, unless too many are kept. `why` is the reason of a program that asks to keep it.
#[cold]
pub(super) fn keep(thread: &Thread, call: &Call, why: Option<&str>) {
    let Some(process) = process::current().filter(|_| thread.is_alive()) else { return };
    let point = call.point.tuple_of().map_or(call.point, |(metered, _)| metered.point());
    process.segment.entry(point.index()).inspect(|entry| entry.add_slow_call());
    let end = call.begun.start.wrapping_add(call.elapsed);
    if why.is_some() || process.kept_lately.admits(end, call.elapsed) {
        let claimed = || claim(process, thread.kernel_id());
        // If a signal handler jumps out of this, the thread gives the box up later.
        thread.busy(|| claimed().map(|claimed| fill(process, thread, claimed, call, why)));
    }
}

/// Gives up the box that the thread has claimed, if it has jumped out of its write.
pub(super) fn give_up(process: &Process, thread: &Thread) {
    let blocks = process.segment.counters().boxes.iter().map(|block| block.load(Relaxed));
    let boxes = blocks.filter_map(|block| process.segment.black_box(block));
    boxes.for_each(|it| it.give_up(thread.kernel_id()));
}

/// Keeps the innermost open region of the calling thread, as it is now.
pub(crate) fn keep_open(why: &str) {
    by_leader!(keep(why));
    let is_ready = |thread: &&Thread| thread.is_alive() && thread.has_room();
    let Some(thread) = current::thread().filter(is_ready) else { return };
    let Some(around) = thread.open_levels().checked_sub(1) else { return };
    let region = thread.region_at(around);
    let Some(point) = region.point() else { return };
    let (reading, ()) = thread.read_clock(None, || ());
    // A signal handler that has interrupted a begin or an end may call this. Then that reads the
    // clock again.
    thread.clock.disturb();
    let begun = region.begun(reading.off, reading.switches);
    let part = thread.part(&begun, reading);
    // A region that a lap has begun may start after the present stamp.
    let elapsed = not_below_zero(reading.now.wrapping_sub(begun.start));
    keep(thread, &Call { point, begun, part, elapsed, around }, Some(why));
}

/// Claims a box without a call or, if each has a call, the box of the oldest call that is not among
/// the slowest. `None` if no box has memory, if a thread writes to a box and all other calls are
/// among the slowest, or if other threads claim the chosen box at each attempt.
fn claim(process: &Process, tid: u32) -> Option<&BlackBox> {
    for _ in 0..CLAIM_ATTEMPTS {
        let (found, state) = choose(process)?;
        if found.claim(state, tid) {
            return Some(found);
        }
    }
    None
}

fn choose(process: &Process) -> Option<(&BlackBox, u64)> {
    let blocks = &process.segment.counters().boxes;
    let mut contents = [None; BOXES];
    let mut is_one_claimed = false;
    for (content, block) in contents.iter_mut().zip(blocks) {
        let block = match block.load(Relaxed) {
            0 => new_box(process, block),
            block => Some(block),
        };
        let found = block.and_then(|block| process.segment.black_box(block));
        let Some(found) = found else { continue };
        let Some((state, number, span)) = found.content() else {
            // The span of a box that is being written is not known, so the slowest calls are not.
            is_one_claimed = true;
            continue;
        };
        if number == 0 {
            return Some((found, state));
        }
        *content = Some((found, state, number, span));
    }
    let all = || contents.iter().flatten();
    let is_slowest = |span: u64| all().filter(|other| other.3 > span).count() < SLOWEST;
    let newest = all().filter(|(.., span)| !is_slowest(*span));
    let oldest = newest.min_by_key(|(_, _, number, _)| *number);
    // If many calls have equal spans, or few boxes have memory, each call is among the slowest. Then
    // the oldest is replaced.
    let oldest = oldest
        .or_else(|| all().filter(|_| !is_one_claimed).min_by_key(|(_, _, number, _)| *number));
    oldest.map(|(found, state, ..)| (*found, *state))
}

/// Takes the blocks of a box. `None` if memory runs out.
fn new_box(process: &Process, word: &AtomicU64) -> Option<u64> {
    let block = match process.spare_box.swap(0, Relaxed) {
        0 => process.take_blocks(BOX_BLOCKS)?,
        block => block,
    };
    let offset = process.segment.block_offset(block)?;
    if process.back(offset, BOX_BLOCKS as usize * BLOCK).is_none() {
        process.spare_box.store(block, Relaxed);
        return None;
    }
    match word.compare_exchange(0, block, Relaxed, Relaxed) {
        Ok(_) => Some(block),
        Err(others) => {
            process.spare_box.store(block, Relaxed);
            Some(others)
        }
    }
}

fn fill(process: &Process, thread: &Thread, claimed: &BlackBox, call: &Call, why: Option<&str>) {
    let Call { point, begun, part, elapsed, around } = call;
    let context = thread.place() & CONTEXT;
    // A context may have run on other threads, too.
    let usage = thread.usage_since(begun.start, *elapsed).filter(|_| context == 0);
    let ([waits, preemptions, minor_faults, major_faults], before) = usage.unwrap_or_default();
    let facts = BoxFacts {
        point: point.index() as u64,
        lane: thread.lane_number(),
        tid: u64::from(thread.kernel_id()),
        context,
        start: begun.start,
        span: *elapsed,
        inclusive: part.span(),
        exclusive: part.own(),
        off_cpu: part.off,
        switches: part.switches,
        control: if why.is_some() { 0 } else { point.control().0 },
        is_usage_known: u64::from(usage.is_some()),
        waits,
        preemptions,
        minor_faults,
        major_faults,
        before,
        unix_ms: calibrate::unix_ns() / 1_000_000,
        depth: *around,
    };
    let enclosing = (0..*around as usize).map(|level| {
        let region = thread.region_at(level as u64);
        let point = region.point().map_or(UNKNOWN, |point| point.index() as u32);
        Enclosing { point, start: region.start() }
    });
    let number = process.segment.counters().calls_kept.fetch_add(1, Relaxed).wrapping_add(1);
    let written = thread.written();
    let ring = thread.ring().unwrap_or_default();
    let first = written.saturating_sub(ring.len() as u64);
    let records = (first as usize..written as usize).map(|number| &ring[number % ring.len()]);
    claimed.publish(number, facts, why.unwrap_or_default(), enclosing, records);
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_ends_gives_up_its_box() {
        static POINT: Point = Point::new("boxed");
        let claims = || {
            drop(POINT.measure());
            let thread = current::thread().expect("it has measured");
            let process = process::current().expect("it has measured");
            let claimed = claim(process, thread.kernel_id()).expect("there is memory");
            assert_eq!(claimed.content(), None);
            claimed
        };
        let claimed = std::thread::spawn(claims).join().expect("it ends well");
        assert_eq!(claimed.content().map(|(state, number, _)| (state, number)), Some((0, 0)));
    }
}
