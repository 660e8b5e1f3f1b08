//! Switching all points off and on again.

use std::sync::atomic::{
    Ordering::{Relaxed, SeqCst},
    fence,
};

use pfp_shm_layout::control::{self, Change, Control};

use super::current;
use crate::engine::common::paused;
use crate::engine::copies;
use crate::engine::registry;
use crate::engine::state::Kind;
use crate::point::Point;

/// Switches off every point that is on, or back on those that it switched off; points that are
/// registered meanwhile wait too.
pub(crate) fn pause(pause: bool) {
    if !copies::pause(pause) {
        pause_here(pause);
    }
}

/// Pauses the points of this copy of pfp, or lets them go on.
pub(in crate::engine) extern "C" fn pause_here(pause: bool) {
    paused().store(pause, Relaxed);
    // Meets `pause_latecomer`: the point is in the list, or finds this.
    fence(SeqCst);
    registry::all().filter(is_paused_with_all).for_each(|point| pause_one(point, pause));
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
        pause_one(point, was_paused);
        // It may have gone through the list before this was done.
        fence(SeqCst);
        if paused().load(Relaxed) == was_paused {
            return;
        }
    }
}

/// Switches a registered point off, or on again if this had switched it off.
fn pause_one(point: &'static Point, pause: bool) {
    let Some(word) = point.known_word() else { return };
    let was_paused = &point.state.paused;
    if !pause {
        if was_paused.swap(false, Relaxed) {
            control::apply(word, Change::Enable);
            if let Some(process) = current() {
                process.segment.wake();
            }
        }
    } else if Control(word.load(Relaxed)).enabled() {
        was_paused.store(true, Relaxed);
        control::apply(word, Change::Disable);
    }
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
