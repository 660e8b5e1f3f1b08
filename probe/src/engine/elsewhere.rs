//! Measurements without a region: time of a device, spans of wall-clock time, and a thread's time
//! that is recorded after it has passed.

use pfp_shm_layout::amounts::Amounts;
use pfp_shm_layout::calls::ELSEWHERE;
use pfp_shm_layout::cell::Measurement;
use pfp_shm_layout::histogram::LIMIT;
use pfp_shm_layout::ring::What;

use super::copies::by_leader;
use super::finish::finish_with;
use super::prepare::{self, Target};
use super::process;
use super::regions::PartSum;
use crate::engine::metered::MeteredPoint;
use crate::point::Point;

/// A span of past time on a thread. All fields are in ticks.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Past {
    /// The counter when the time began.
    pub start: u64,
    /// Ticks from the begin of the time to its end.
    pub span: u64,
    /// The wall-clock ticks to record. They exceed `span` if they include earlier time that was not
    /// recorded yet.
    pub ticks: u64,
    /// The part of `ticks` in which the thread was on a CPU.
    pub on_cpu: u64,
}

/// Records `ticks` of a device's time or of wall-clock time. The recorded time began at `start`.
/// The record has the timer's `number` in place of a context, because the time did not pass on the
/// thread.
pub(crate) fn record_of_a_device(point: &'static Point, start: u64, ticks: u64, number: u32) {
    by_leader!(record_of_a_device(point, start, ticks, number));
    record(point, (start, ticks, number), None);
}

/// [`record_of_a_device`] for a point with amounts.
pub(crate) fn record_with(
    metered: &'static MeteredPoint,
    (start, ticks, number): (u64, u64, u32),
    amounts: &Amounts,
) {
    by_leader!(record_with(metered.point(), start, ticks, number, amounts));
    match metered.tuple(amounts) {
        Some(tuple) => record(tuple, (start, ticks, number), None),
        None => record(metered.point(), (start, ticks, number), Some(amounts)),
    }
}

fn record(
    point: &'static Point,
    (start, ticks, number): (u64, u64, u32),
    amounts: Option<&Amounts>,
) {
    let exclusive = ticks.min(LIMIT - 1);
    let thread = match prepare::target(point) {
        Target::Off => return,
        Target::Cell(thread, entry) => {
            let measured = Measurement { exclusive, inclusive: exclusive, away: None };
            let recorded = thread.busy(|| {
                let what = What::new(point.index() as u32, 0, ELSEWHERE, number);
                thread.record_counted(entry, measured, (start, exclusive, what), amounts);
            });
            if recorded.is_some() {
                return;
            }
            // This is a signal handler that interrupts another recording.
            thread
        }
        Target::Late(thread) => thread,
        Target::Missing => return process::miss(),
    };
    let Some(cell) = thread.shared_cell(point) else { return process::miss() };
    let measured = Measurement { exclusive, inclusive: exclusive, away: None };
    thread.record_shared(&cell, measured, amounts);
}

/// Records past time of the calling thread that no region of this point has measured. With
/// `is_inside`, the thread's innermost open region encloses the time, and counts its on-CPU part as
/// child ticks.
pub(crate) fn record_past(point: &'static Point, past: &Past, is_inside: bool) {
    by_leader!(record_past(point, past, is_inside));
    let thread = match prepare::target(point) {
        Target::Off => return,
        Target::Cell(thread, _) | Target::Late(thread) => thread,
        Target::Missing => return process::miss(),
    };
    let own = past.on_cpu.min(past.ticks);
    if is_inside {
        thread.cover(own);
    }
    thread.add_to_total(point.offset(), own);
    let sum = PartSum { own, inclusive: own, off: past.ticks - own, switches: 0 };
    finish_with(thread, point, sum, (past.start, past.span), None);
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// If a handler interrupts a recording on its thread, the handler's measurement goes to a
    /// shared cell.
    #[test]
    fn what_a_device_has_measured_is_recorded_in_a_handler_too() {
        static DEVICE: Point = Point::new("device").of_the_clock();
        let _one = crate::engine::oracle::one_at_a_time();
        record_of_a_device(&DEVICE, 0, 5, 1);
        let thread = prepare::thread().expect("there is a lane");
        thread.busy(|| record_of_a_device(&DEVICE, 0, 7, 1));
        let stats = DEVICE.stats().expect("it has measured");
        assert_eq!((stats.count, stats.exclusive, stats.min, stats.max), (2, 12, 5, 7));
    }
}
