//! A test that uses points itself, and reads its own segment.

use pfp_shm_layout::cell::Sums;
use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::find;

use crate::watch::{self, Watch};

/// Makes the segment before any test begins: a test waits no longer than a millisecond
/// for another one that makes it, and measures nothing meanwhile.
#[macro_export]
macro_rules! measures_from_the_start {
    () => {
        #[used]
        #[unsafe(link_section = ".init_array")]
        static START: extern "C" fn() = $crate::own::start;
    };
}

/// What `measures_from_the_start!` runs.
pub extern "C" fn start() {
    pfp::init().ok();
}

/// Reads what this process measures. Its beacon is where any program's is.
///
/// # Panics
///
/// If the probe cannot work here.
#[must_use]
pub fn watch() -> Watch {
    pfp::init().expect("there is room for a segment");
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
