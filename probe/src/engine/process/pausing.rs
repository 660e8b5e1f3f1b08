//! Switching all points off and on again.

use std::sync::atomic::{
    AtomicBool,
    Ordering::{Relaxed, SeqCst},
    fence,
};

use super::points;
use crate::Point;
use crate::engine::copies;
use crate::engine::point::Kind;

/// Switches off every point that is on, or back on those that it switched off; points that are
/// registered meanwhile wait too.
pub(crate) fn pause(pause: bool) {
    copies::pause(pause);
}

/// Pauses the points of this copy of pfp, or lets them go on.
pub(in crate::engine) extern "C" fn pause_here(pause: bool) {
    paused().store(pause, Relaxed);
    // Meets `pause_latecomer`: the point is in the list, or finds this.
    fence(SeqCst);
    points().filter(is_paused_with_all).for_each(|point| point.pause(pause));
}

/// Switches a point off or on that has just come into the list, if [`pause`] has gone
/// through that since it was entered into the table.
pub(crate) fn pause_latecomer(point: &'static Point) {
    /// Another one while this one is followed is rare, and a second one rarer.
    const TURNS: u32 = 64;
    if !is_paused_with_all(&point) {
        return;
    }
    for _ in 0..TURNS {
        // Meets `pause`.
        fence(SeqCst);
        let was_paused = paused().load(Relaxed);
        point.pause(was_paused);
        // It may have gone through the list before this was done.
        fence(SeqCst);
        if paused().load(Relaxed) == was_paused {
            return;
        }
    }
}

/// Whether [`pause`] has switched everything off.
pub(super) fn paused() -> &'static AtomicBool {
    &copies::common().paused
}

/// Whether a point is switched off with all others: variants follow their whole, and the calibration
/// is nobody's region.
fn is_paused_with_all(point: &&'static Point) -> bool {
    point.number() != Some(0) && !matches!(point.kind(), Kind::Variant { .. })
}

/// Whether [`pause`] has not switched everything off.
pub(crate) fn is_enabled() -> bool {
    !paused().load(Relaxed)
}
