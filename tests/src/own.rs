//! Support for tests that measure in their own process and read its segment.

use pfp_shm_layout::cell::Sums;
use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::find;

use crate::watch::{self, Watch};

/// Creates the segment before any test begins. Otherwise, while one test creates it, another test
/// waits for at most a millisecond and then measures nothing.
#[macro_export]
macro_rules! measures_from_the_start {
    () => {
        #[used]
        #[unsafe(link_section = ".init_array")]
        static START: extern "C" fn() = $crate::own::start;
    };
}

/// The function behind `measures_from_the_start!`.
pub extern "C" fn start() {
    pfp::init().ok();
}

/// Reads this process' own segment. Its beacon is in the default directory.
///
/// # Panics
///
/// Panics if the probe cannot work on this system.
#[must_use]
pub fn watch() -> Watch {
    pfp::init().expect("there is room for a segment");
    let directory = Directory::for_this_process().expect("the probe has just used it");
    let found = find::find(&directory).expect("the directory can be read").entries;
    let me = std::process::id();
    let own = found.iter().find(|entry| entry.info.process.pid == me);
    Watch::open(own.expect("the beacon of this process is there"))
}

/// The figures of the point with this name in this process.
#[must_use]
pub fn figures(name: &str) -> Sums {
    watch::named(watch().poll(), name)
}
