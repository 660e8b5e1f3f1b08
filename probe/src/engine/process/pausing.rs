//! Switching all points off and on again.

use std::sync::atomic::{
    Ordering::{Relaxed, SeqCst},
    fence,
};

use pfp_shm_layout::control::{self, Change};

use super::current;
use crate::engine::common::PAUSED;
use crate::engine::copies::by_leader;
use crate::engine::registry;
use crate::point::Point;

/// If `pause`, switches off every point that is on. Otherwise, switches on again the points that a
/// pause has switched off. Points that other threads register in the meantime are included.
pub(crate) fn pause(pause: bool) {
    by_leader!(pause(pause));
    PAUSED.store(pause, Relaxed);
    as_asked(|pause| {
        registry::all().filter(is_paused_with_all).for_each(|point| pause_one(point, pause));
    });
}

/// Switches off or on a point that was just added to the list, in case [`pause`] had already walked
/// the list.
pub(crate) fn pause_latecomer(point: &'static Point) {
    if is_paused_with_all(&point) {
        as_asked(|pause| pause_one(point, pause));
    }
}

/// Calls `pause` with the last request. Repeats this if another thread requests the opposite in
/// between, because that thread may finish before this one.
fn as_asked(pause: impl Fn(bool)) {
    /// Maximum number of repetitions. It is rare that another thread requests the opposite in
    /// between.
    const TURNS: u32 = 64;
    for _ in 0..TURNS {
        // Pairs with itself in another thread: if one thread calls `pause` while another one calls
        // `pause_latecomer`, either the first finds the point in the list, or the second finds the
        // request.
        fence(SeqCst);
        let asked = PAUSED.load(Relaxed);
        pause(asked);
        fence(SeqCst);
        if PAUSED.load(Relaxed) == asked {
            return;
        }
    }
}

/// Switches a registered point off, or on again if a pause switched it off.
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
    } else if control::apply(word, Change::Disable).enabled() {
        was_paused.store(true, Relaxed);
    }
}

/// Whether [`pause`] switches the point itself. Tuples follow their metered point, and the
/// calibration's point stays on.
fn is_paused_with_all(point: &&'static Point) -> bool {
    point.number() != Some(0) && !point.is_tuple()
}

/// False while [`pause`] has switched everything off.
pub(crate) fn is_enabled() -> bool {
    by_leader!(is_enabled());
    !PAUSED.load(Relaxed)
}
