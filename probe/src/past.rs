//! Measurements that are over when they are recorded, points of the wall clock, and begins and
//! ends that say when they were.

pub use crate::engine::elsewhere::Past;
use crate::engine::{by_hand, elsewhere};
use crate::{MeteredPoint, Point};

/// Stands in records where a device's have the number of its timer.
const NUMBER: u32 = 2;

/// A point whose time is the clock's and no CPU's.
#[must_use]
pub const fn wall_point(name: &'static str, file: &'static str, line: u32) -> Point {
    Point::at(name, file, line).of_the_clock()
}

/// A point whose regions carry amounts, made of a point that has a name and a place.
#[must_use]
pub const fn metered(point: Point, names: &'static [&'static str]) -> MeteredPoint {
    MeteredPoint::of(point, names)
}

/// [`Point::begin`], which says when the region began, in ticks, if that is known.
#[must_use]
pub fn begin(point: &'static Point) -> Option<u64> {
    by_hand::begin_told(point)
}

/// [`Point::end`], which says when the region ended, in ticks, if that is known.
#[must_use]
pub fn end(point: &'static Point) -> Option<u64> {
    by_hand::end_told(point)
}

/// Records `elapsed` ticks from `start` on for a [`wall_point`].
pub fn record_wall(point: &'static Point, start: u64, elapsed: u64) {
    elsewhere::record_of_a_device(point, start, elapsed, NUMBER);
}

/// [`record_wall`] for a point that [`metered`] has made of a [`wall_point`], with its first amount.
pub fn record_wall_with(metered: &'static MeteredPoint, start: u64, elapsed: u64, amount: u64) {
    elsewhere::record_with(metered, (start, elapsed, NUMBER), &[amount, 0, 0, 0]);
}

/// Records what the calling thread has spent outside its regions, once it is over. The region
/// that is open around it has it as a child, if `is_inside`.
pub fn record(point: &'static Point, past: &Past, is_inside: bool) {
    elsewhere::record_past(point, past, is_inside);
}
