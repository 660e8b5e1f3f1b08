//! Calibration: measures the overhead that is subtracted from all figures.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::guard::Guard;
use super::measure::{SCOPE, flags_of};
use super::overhead::{Beyond, CALIBRATING, Costs, overhead};
use super::region::FENCED;
use super::thread::Thread;
use super::{cold, copies, current, process, slow};
use crate::Point;
use crate::alloc;
use crate::clock::counter::stamp;

/// Pairs of a begin and an end that the automatic calibration runs.
const CALIBRATION_PAIRS: u32 = 512;

/// Calibrates the overhead, and subtracts it from all figures from now on; see
/// [`crate::calibrate`].
pub(crate) fn calibrate(pairs: u32) -> Option<Costs> {
    alone(|| calibrate_alone(&super::numeric::POINTS[0], pairs))?
}

/// Calibrates the overhead once a segment exists, and whenever the clock has changed.
pub(super) fn calibrate_again() {
    calibrate(CALIBRATION_PAIRS);
}

/// Runs work that stores zeros as the overhead while it measures. Only one thread may do this at a
/// time, because a second thread would take the zeros for the real overhead. `None` if another
/// thread is doing such work.
fn alone<R>(work: impl FnOnce() -> R) -> Option<R> {
    cold::section(|| {
        let _lease = CALIBRATING.acquire_exclusive().ok()?;
        Some(work())
    })
}

fn calibrate_alone(point: &'static Point, pairs: u32) -> Option<Costs> {
    // The first pair registers the point and claims a lane.
    drop(Guard::begin(point));
    // If the point were off or had flags, a pair would have another cost.
    if !point.control().enabled() || flags_of(point.control()) != 0 {
        return None;
    }
    let thread = recording()?;
    let before = overhead().replace(Costs::NONE);
    let mut least = Costs::UNKNOWN;
    for _ in 0..(pairs as usize).div_ceil(BATCH).max(1) {
        let switches = thread.clock.switches();
        let costs = batch(point, thread);
        if thread.clock.switches() == switches {
            // A batch's cost is its typical cost, and the lowest cost of several batches counts:
            // the cost on an otherwise idle machine.
            least = least.least(costs);
        }
    }
    if least.inside == u64::MAX {
        least = before;
    }
    // The overhead of a pair is at least 1, so that each region changes the covered ticks.
    least.pair = least.pair.max(least.inside).max(1);
    least.lap = least.lap.max(least.inside);
    overhead().replace(least);
    let fenced = || drop(Guard::of(slow::push(thread, point, FENCED)));
    calibrate_beyond(thread, fenced, &overhead().fence);
    if alloc::of_this_thread().is_some() {
        let begin = || slow::begin_counting::<SCOPE>(thread, point, point.control());
        calibrate_beyond(thread, || drop(Guard::of(begin())), &overhead().allocs);
    }
    if let Some(process) = process::current() {
        process.segment.counters().overhead_inside.store(least.inside, Relaxed);
        process.segment.counters().overhead_pair.store(least.pair, Relaxed);
    }
    Some(least)
}

/// The calling thread, if it has a ring and has written a record to it.
fn recording() -> Option<&'static Thread> {
    current::thread().filter(|thread| !thread.overflows() && thread.written() > 0)
}

/// Measures what `region` costs in addition to a scope, and stores this cost in `beyond`.
fn calibrate_beyond(thread: &Thread, mut region: impl FnMut(), beyond: &Beyond) {
    /// Number of batches. Several are needed, because the first ones run cold code.
    const BATCHES: usize = 8;
    let costs = overhead().replace(Costs::NONE);
    beyond.inside.store(0, Relaxed);
    beyond.pair.store(0, Relaxed);
    let mut least = None;
    for _ in 0..BATCHES {
        let switches = thread.clock.switches();
        let (all, inside) = timed(thread, &mut region);
        if thread.clock.switches() == switches {
            let (known, pair) = least.unwrap_or((u64::MAX, u64::MAX));
            least = Some((known.min(inside), pair.min(all / BATCH as u64)));
        }
    }
    overhead().replace(costs);
    let (inside, pair) = least.unwrap_or((costs.inside, costs.pair));
    beyond.inside.store(inside.saturating_sub(costs.inside), Relaxed);
    beyond.pair.store(pair.saturating_sub(costs.pair), Relaxed);
}

/// Measures what the hooks of a function cost in addition to a scope, and subtracts that cost from
/// now on. `call` calls an empty function that is measured as point 0. False if the measurement
/// failed; then hooks count like a scope.
///
/// The first calibration takes so little time that the machine may have been slow during all of it.
/// So the caller repeats it later with `again`, which measures a single batch. That batch replaces
/// the known cost only if its pair of hooks, entry and exit, cost less.
pub(crate) fn calibrate_hooks(call: fn(), again: bool) -> bool {
    let costs = [&overhead().hooks_inside, &overhead().hooks_pair];
    match copies::followed() {
        Some(leader) => leader.measure_call(call, again, costs),
        None => calibrate_call(call, again, costs),
    }
}

/// Measures what a call that begins and ends a region of point 0 costs beyond a scope: inside the
/// region, and in total. See [`calibrate_hooks`].
pub(super) fn calibrate_call(call: impl Fn(), again: bool, costs: [&AtomicU64; 2]) -> bool {
    alone(|| calibrate_call_alone(&super::numeric::POINTS[0], call, again, costs)).unwrap_or(false)
}

fn calibrate_call_alone(
    point: &'static Point,
    call: impl Fn(),
    again: bool,
    [of_inside, of_pair]: [&AtomicU64; 2],
) -> bool {
    drop(Guard::begin(point));
    let Some(thread) = recording() else { return false };
    if !point.control().enabled() {
        return false;
    }
    // During the first measurement the inside cost is 0, because subtracting it could make a figure
    // negative, which would count as zero. With `again`, only the cost of the pair is used.
    let scope_inside = if again { overhead().inside() } else { overhead().inside.swap(0, Relaxed) };
    let mut least = None;
    for _ in 0..if again { 1 } else { HOOK_BATCHES } {
        let (switches, written) = (thread.clock.switches(), thread.written());
        let (all, own) = timed(thread, &call);
        if thread.clock.switches() == switches && thread.written() == written + BATCH as u64 {
            let (inside, pair) = least.unwrap_or((u64::MAX, u64::MAX));
            least = Some((inside.min(own), pair.min(all / BATCH as u64)));
        }
    }
    overhead().inside.store(scope_inside, Relaxed);
    let Some((inside, pair)) = least else { return false };
    if !again {
        of_inside.store(inside.saturating_sub(scope_inside), Relaxed);
    } else if pair >= overhead().pair() + of_pair.load(Relaxed) {
        return true;
    }
    // A pair of hooks costs at least as much as a scope.
    overhead().pair.fetch_min(pair, Relaxed);
    of_pair.store(pair.saturating_sub(overhead().pair()), Relaxed);
    true
}

/// Number of batches in a calibration of hooks.
const HOOK_BATCHES: usize = 32;

/// Number of regions in a batch.
const BATCH: usize = 32;

/// The current cost of empty regions.
fn batch(point: &'static Point, thread: &Thread) -> Costs {
    let (all, inside) = timed(thread, || drop(Guard::begin(point)));
    let mut guard = Guard::begin(point);
    let (_, lap) = timed(thread, || guard.lap(point));
    Costs { inside, pair: all / BATCH as u64, lap }
}

/// Runs `region` [`BATCH`] times. Returns the ticks of the whole batch, and the typical exclusive
/// ticks of one region.
#[inline(always)]
fn timed(thread: &Thread, mut region: impl FnMut()) -> (u64, u64) {
    let mut own = [0; BATCH];
    let start = stamp();
    for own in &mut own {
        region();
        *own = thread.last_exclusive();
    }
    // A counter that ran backwards gives 0.
    let all = (stamp().wrapping_sub(start) as i64).max(0) as u64;
    (all, typical(own))
}

/// The mean of the measurements without the largest eighth, which interrupts may have made large.
///
/// Some counters advance in steps as long as a region takes: 26 ticks on an AMD Zen 5. A median is
/// then wrong by up to half a step, in every region.
fn typical(mut measured: [u64; BATCH]) -> u64 {
    measured.sort_unstable();
    let kept = &measured[..BATCH - BATCH / 8];
    (kept.iter().sum::<u64>() + kept.len() as u64 / 2) / kept.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typical_lies_between_the_steps_of_a_coarse_counter() {
        const STEP: u64 = 26;
        // Regions of each length that begin at each phase of the counter.
        for length in 1..4 * STEP {
            let measured = std::array::from_fn(|at| {
                let begin = at as u64 * 7 % STEP;
                (begin + length) / STEP * STEP - begin / STEP * STEP
            });
            let off = typical(measured).abs_diff(length);
            assert!(off <= STEP / 4, "{length}: {}", typical(measured));
        }
    }

    #[test]
    fn interrupts_are_not_typical() {
        let mut measured = [40; BATCH];
        measured[3] = 9000;
        measured[20] = u64::from(u32::MAX);
        assert_eq!(typical(measured), 40);
    }
}
