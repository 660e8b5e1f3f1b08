//! What the environment says, read once for a program: forked children inherit it.

use std::ptr;
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Release},
};

use pfp_shm_layout::environment::variable;
use pfp_shm_layout::segment::Config;

use super::names::Names;
use crate::snapshot;

/// The variables `PFP_*` of the program, but for those that name folders.
#[derive(Debug)]
pub(crate) struct Settings {
    /// How large the segment is.
    pub(super) config: Config,
    /// The rung of the clock.
    pub(super) clock: Option<String>,
    /// Whether points named in the source measure from the start.
    pub(super) on_by_default: bool,
    /// Which do in any case, by name.
    pub(super) enabled_names: Names,
    /// Where the last figures go when a process ends in order.
    pub(super) snapshot: Option<snapshot::Asked>,
}

static SETTINGS: AtomicPtr<Settings> = AtomicPtr::new(ptr::null_mut());

/// The settings, read if nobody has done so yet.
pub(super) fn get() -> &'static Settings {
    // Meets the exchange below. SAFETY: null, or settings that are never freed.
    if let Some(known) = unsafe { SETTINGS.load(Acquire).as_ref() } {
        return known;
    }
    let new = Box::into_raw(Box::new(read()));
    match SETTINGS.compare_exchange(ptr::null_mut(), new, Release, Acquire) {
        // SAFETY: made above, and never freed from here on.
        Ok(_) => unsafe { &*new },
        Err(known) => {
            // SAFETY: made above, and nobody has seen it.
            drop(unsafe { Box::from_raw(new) });
            // SAFETY: never freed.
            unsafe { &*known }
        }
    }
}

fn read() -> Settings {
    let text = |name| variable(name).and_then(|value| value.to_str());
    let number = |name| text(name)?.parse::<u32>().ok();
    let standard = Config::default();
    Settings {
        config: Config {
            points: number(c"PFP_POINTS").unwrap_or(standard.points),
            lanes: number(c"PFP_LANES").unwrap_or(standard.lanes),
            blocks: number(c"PFP_MEMORY_MB").map_or(standard.blocks, |mb| mb.saturating_mul(64)),
            ..standard
        },
        clock: text(c"PFP_CLOCK").map(str::to_owned),
        on_by_default: variable(c"PFP_DEFAULT").is_none_or(|value| value != "off"),
        enabled_names: Names::new(text(c"PFP_ENABLE").unwrap_or_default()),
        snapshot: variable(c"PFP_SNAPSHOT").and_then(snapshot::Asked::new),
    }
}
