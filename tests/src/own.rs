//! A test that uses points itself, and reads its own segment.

use pfp_shm_layout::cell::Sums;
use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::find;

use crate::watch::{self, Watch};

/// Reads what this process measures. Its beacon is where any program's is.
///
/// # Panics
///
/// If the probe cannot work here.
#[must_use]
pub fn watch() -> Watch {
    assert!(pfp::init(), "there is room for a segment");
    let directory = Directory::for_this_process().expect("the probe has just used it");
    let found = find::find(&directory).expect("the directory can be read").entries;
    let me = std::process::id();
    let own = found.iter().find(|entry| entry.info.process.pid == me);
    Watch::open(own.expect("the beacon of this process is there"))
}

/// The figures of one of this process's points, by its name.
#[must_use]
pub fn figures(name: &str) -> Sums {
    watch::named(watch().poll(), name)
}
