//! Points by number, as in the original PFP component.
//!
//! Numbers are `0..NUMERIC`. Point 0 is the calibration's point, and is on from the start. All
//! other points by number are off until they are enabled.

use super::copies::by_leader;
use super::process;
use crate::{NUMERIC, Point};

pub(crate) static POINTS: [Point; NUMERIC as usize] = {
    let mut points = [const { Point::numeric(0) }; NUMERIC as usize];
    let mut number = 1;
    while number < NUMERIC {
        points[number as usize] = Point::numeric(number);
        number += 1;
    }
    points
};

/// The point of all numbers beyond the range.
static NO_SUCH_POINT: Point = Point::never();

/// The point of a number. `None` beyond the range, which is counted as a refusal.
#[inline]
pub(crate) fn point(id: u32) -> Option<&'static Point> {
    let point = POINTS.get(id as usize);
    if point.is_none() {
        refuse();
    }
    point
}

#[cold]
pub(super) fn refuse() {
    by_leader!(refuse_point());
    if let Some(process) = process::current() {
        let refused = &process.segment.counters().points_refused;
        refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// The point of a number; beyond the range a point that is never on.
#[inline]
pub(crate) fn point_or_none(id: u32) -> &'static Point {
    point(id).unwrap_or(&NO_SUCH_POINT)
}
