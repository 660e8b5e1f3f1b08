//! Points by number, in the manner of the original PFP component.
//!
//! Numbers are `0..NUMERIC`; 0 is the calibration's own. All of them are off
//! until they are enabled. A number beyond the range does nothing and is
//! counted as a refused point.

use std::time::Duration;

use crate::engine::{ending, process};
use crate::point::{NUMERIC, Point};
use crate::stats::Stats;
use crate::{AlphaError, SetError};

pub(crate) static POINTS: [Point; NUMERIC as usize] = {
    let mut points = [const { Point::numeric(0) }; NUMERIC as usize];
    let mut number = 1;
    while number < NUMERIC {
        points[number as usize] = Point::numeric(number);
        number += 1;
    }
    points
};

#[inline]
pub(crate) fn point(id: u32) -> Option<&'static Point> {
    let point = POINTS.get(id as usize);
    if point.is_none() {
        refuse();
    }
    point
}

#[cold]
fn refuse() {
    if let Some(process) = process::current() {
        let refused = &process.segment.ledger().points_refused;
        refused.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Begins the region of a numbered point. Regions of different points may be nested, 32
/// deep; see [`Point::begin`].
///
/// A begin after a begin without an end switches the point off as invalid; the
/// viewer says so, and enabling it makes it valid.
#[inline]
pub fn begin(id: u32) {
    if let Some(point) = point(id) {
        ending::begin(point, true);
    }
}

/// Ends the region of a numbered point. Without a begin it does nothing, so
/// that a loop may start with an end. With `latch`, what was measured is kept
/// and added to the point's next measurement.
#[inline]
pub fn end(id: u32, latch: bool) {
    if let Some(point) = point(id) {
        ending::end(point, latch);
    }
}

/// Switches a numbered point on.
pub fn enable(id: u32) {
    if let Some(point) = point(id) {
        point.enable();
    }
}

/// Switches a numbered point off.
pub fn disable(id: u32) {
    if let Some(point) = point(id) {
        point.disable();
    }
}

/// Starts a numbered point's statistics afresh.
pub fn reset(id: u32) {
    if let Some(point) = point(id) {
        point.reset();
    }
}

/// Sets the weight of a numbered point's exponential average; see
/// [`Point::set_alpha`].
///
/// # Errors
///
/// There is no such number, or `alpha` is not in (0, 1].
pub fn set_alpha(id: u32, alpha: f64) -> Result<(), SetError> {
    Ok(point(id).ok_or(SetError::NoSuchPoint { id })?.set_alpha(alpha)?)
}

/// Sets the weight of a numbered point's exponential average by the period of
/// its region and the time constant; see [`Point::set_average`].
///
/// # Errors
///
/// There is no such number, or `period / tau` is not in (0, 1].
pub fn set_average(id: u32, period: Duration, tau: Duration) -> Result<(), SetError> {
    Ok(point(id).ok_or(SetError::NoSuchPoint { id })?.set_average(period, tau)?)
}

/// Gives a numbered point a name, of which 1024 bytes are kept. Each name takes its
/// room for good, unless the point has it already: names are not for what changes all
/// the time.
pub fn set_name(id: u32, name: &str) {
    let Some(point) = point(id) else { return };
    if point.register()
        && let Some(process) = process::current()
    {
        process.segment.rename_point(point.index(), name);
    }
}

/// A numbered point's statistics since its last reset, over all threads; none
/// if there is no such number or it has not measured yet.
#[must_use]
pub fn stats(id: u32) -> Option<Stats> {
    point(id)?.stats()
}

impl From<AlphaError> for SetError {
    fn from(error: AlphaError) -> Self {
        Self::Alpha(error)
    }
}
