//! Functions of the program as a whole, for the public API.

use std::io;
use std::path::Path;

use super::calibrate::calibrate as measure_costs;
use super::copies::by_leader;
use super::overhead::Costs;
use super::prepare;
use super::process::{self, failed};
use super::thread::lane;
use crate::InitError;
use crate::clock::calibrate;
use crate::snapshot;
pub(crate) use crate::snapshot::Existing;

pub(crate) use super::process::name::set_name;
pub(crate) use super::process::pausing::{is_enabled, pause};
pub(crate) use super::registry::listed;

/// Implements [`crate::init`].
pub(crate) fn init() -> Result<(), InitError> {
    match try_init() {
        0 => Ok(()),
        why => Err(failed::error(why)),
    }
}

/// Makes the process if needed. Returns 0, or the reason why it cannot be made.
pub(super) fn try_init() -> u64 {
    by_leader!(try_init());
    prepare::process().map_or_else(failed::why_none, |_| 0)
}

/// Implements [`crate::ticks_per_second`].
pub(crate) fn ticks_per_second() -> f64 {
    by_leader!(ticks_per_second());
    match prepare::process() {
        Some(process) => process.refine_rate(),
        None => calibrate::refine(),
    }
    calibrate::ticks_per_second()
}

/// Names the calling thread's lane.
pub(crate) fn register_thread(name: &str) {
    by_leader!(register_thread(name));
    if let (Some(thread), Some(process)) = (prepare::thread(), process::current()) {
        lane::register(thread, process, name);
    }
}

/// Implements [`crate::snapshot_to`] and [`crate::snapshot_over`].
pub(crate) fn write_snapshot(path: &Path, existing: Existing) -> io::Result<()> {
    by_leader!(write_snapshot(path, matches!(existing, Existing::Replace)));
    snapshot::write(prepare::process().ok_or_else(snapshot::unsupported)?, path, existing)
}

/// Implements [`crate::show`].
pub(crate) fn show(out: &mut impl io::Write) -> io::Result<()> {
    by_leader!(show_to(out));
    snapshot::show(prepare::process().ok_or_else(snapshot::unsupported)?, out)
}

/// Implements [`crate::calibrate`].
pub(crate) fn calibrate(pairs: u32) -> Option<crate::Overhead> {
    by_leader!(overhead(pairs));
    prepare::process()?;
    let Costs { inside, pair, lap } = measure_costs(pairs)?;
    Some(crate::Overhead { inside, pair, lap })
}
