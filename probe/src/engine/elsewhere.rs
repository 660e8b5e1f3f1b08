//! Measurements of time that was not in a region: a device's, the clock's, or time that is over.

use pfp_shm_layout::amounts::Amounts;
use pfp_shm_layout::calls::ELSEWHERE;
use pfp_shm_layout::cell::Measurement;
use pfp_shm_layout::histogram::LIMIT;
use pfp_shm_layout::ring::What;

use super::copies::by_leader;
use super::door::{self, Target};
use super::finish::finish_with;
use super::process;
use super::regions::Sum;
use crate::engine::metered::MeteredPoint;
use crate::point::Point;

/// What a thread has spent, all in ticks.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Past {
    /// When it began.
    pub start: u64,
    /// How long it went on.
    pub span: u64,
    /// All that is recorded, by the clock: more than the span, if there was something before.
    pub ticks: u64,
    /// How much of this the thread was on a CPU.
    pub on_cpu: u64,
}

/// Records `ticks` from `start` on that a device or the clock has measured, for a point of its
/// own. The record has a number of the timer's where others have a context, since the thread
/// was elsewhere.
pub(crate) fn record_of_a_device(point: &'static Point, start: u64, ticks: u64, number: u32) {
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
    by_leader!(record_of_a_device(point, start, ticks, number));
    let exclusive = ticks.min(LIMIT - 1);
    let thread = match door::ready(point) {
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
            // A signal handler that interrupts the recording of another one.
            thread
        }
        Target::Late(thread) => thread,
        Target::Missing => return process::miss(),
    };
    let Some(cell) = thread.shared_cell(point) else { return process::miss() };
    let measured = Measurement { exclusive, inclusive: exclusive, away: None };
    thread.record_shared(&cell, measured, amounts);
}

/// Records what the calling thread has spent outside its regions, once it is over. The region
/// that is open around it has it as a child, if `is_inside`.
pub(crate) fn record_past(point: &'static Point, past: &Past, is_inside: bool) {
    by_leader!(record_past(point, past, is_inside));
    let thread = match door::ready(point) {
        Target::Off => return,
        Target::Cell(thread, _) | Target::Late(thread) => thread,
        Target::Missing => return process::miss(),
    };
    let own = past.on_cpu.min(past.ticks);
    if is_inside {
        thread.cover(own);
    }
    thread.add_to_total(point.offset(), own);
    let sum = Sum { own, inclusive: own, off: past.ticks - own, switches: 0 };
    finish_with(thread, point, sum, (past.start, past.span), None);
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// One that comes while its thread records something else is recorded beside that.
    #[test]
    fn what_a_device_has_measured_is_recorded_in_a_handler_too() {
        static DEVICE: Point = Point::new("device").of_the_clock();
        let _one = crate::engine::oracle::one_at_a_time();
        record_of_a_device(&DEVICE, 0, 5, 1);
        let thread = door::thread().expect("there is a lane");
        thread.busy(|| record_of_a_device(&DEVICE, 0, 7, 1));
        let stats = DEVICE.stats().expect("it has measured");
        assert_eq!((stats.count, stats.exclusive, stats.min, stats.max), (2, 12, 5, 7));
    }
}
