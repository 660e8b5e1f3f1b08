//! Statistics as C sees them.

use std::mem::MaybeUninit;

use probe::Point;

use crate::status::Status;

/// `pfpStats_t` of `pfp.h`, which documents the fields.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Stats {
    c_total: u64,
    n_count: u64,
    c_min: u64,
    c_max: u64,
    alpha: f32,
    enabled: i32,
    c_average: f64,
    c_mean: f64,
    c_deviation: f64,
    c_last: u64,
    c_inclusive: u64,
    c_off_cpu: u64,
    n_switches: u64,
    reserved: [u64; 4],
}

// Size of the struct in C.
const _: () = assert!(size_of::<Stats>() == 128);

/// Fills the caller's `to` with a point's statistics, or with zeros if the point has no
/// measurement.
pub(crate) fn fill(point: &'static Point, to: Option<&mut MaybeUninit<Stats>>) -> Status {
    let Some(to) = to else { return Status::Null };
    let stats = probe::c::stats(point).unwrap_or_default();
    to.write(Stats {
        c_total: stats.exclusive,
        n_count: stats.count,
        c_min: stats.min,
        c_max: stats.max,
        alpha: point.alpha().unwrap_or(0.0) as f32,
        enabled: i32::from(point.is_enabled()),
        c_average: stats.average,
        c_mean: stats.mean_ticks(),
        c_deviation: stats.variance().sqrt(),
        c_last: stats.last,
        c_inclusive: stats.inclusive,
        c_off_cpu: stats.off_cpu,
        n_switches: stats.switches,
        reserved: [0; 4],
    });
    Status::Ok
}
