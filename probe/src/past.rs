//! Records of measurements that ended earlier, points with wall-clock time, and begins and ends
//! that return their times.

pub use crate::engine::elsewhere::Past;
use crate::engine::{by_hand, elsewhere};
use crate::{MeteredPoint, Point};

/// Number that the records of wall-clock time contain in place of a context's number.
const NUMBER: u32 = 2;

/// A point with wall-clock time, which does not count as CPU time.
#[must_use]
pub const fn wall_point(name: &'static str, file: &'static str, line: u32) -> Point {
    Point::at(name, file, line).of_the_clock()
}

/// A point whose regions carry amounts, made from a point that has a name, a file and a line.
#[must_use]
pub const fn metered(point: Point, names: &'static [&'static str]) -> MeteredPoint {
    MeteredPoint::of(point, names)
}

/// Like [`Point::begin`]. Returns the stamp at which the region began, in ticks, if it is known.
#[must_use]
pub fn begin(point: &'static Point) -> Option<u64> {
    by_hand::begin_returning_stamp(point)
}

/// Like [`Point::end`]. Returns the stamp at which the region ended, in ticks, if it is known.
#[must_use]
pub fn end(point: &'static Point) -> Option<u64> {
    by_hand::end_returning_stamp(point)
}

/// Records a measurement of a [`wall_point`], which began at `start` and took `elapsed` ticks.
pub fn record_wall(point: &'static Point, start: u64, elapsed: u64) {
    elsewhere::record_of_a_device(point, start, elapsed, NUMBER);
}

/// Like [`record_wall`], for a point that [`metered`] has made from a [`wall_point`], with its
/// first amount.
pub fn record_wall_with(metered: &'static MeteredPoint, start: u64, elapsed: u64, amount: u64) {
    elsewhere::record_with(metered, (start, elapsed, NUMBER), &[amount, 0, 0, 0]);
}

/// Records past time of the calling thread that no region of this point has measured. With
/// `is_inside`, the thread's innermost open region encloses the time, and counts its on-CPU part as
/// child ticks.
pub fn record(point: &'static Point, past: &Past, is_inside: bool) {
    elsewhere::record_past(point, past, is_inside);
}
