//! hotpath: `#[hotpath::measure]` on a function, and the guard that `#[hotpath::main]` builds, with
//! its defaults: a worker thread that sweeps the threads' queues into histograms every 50 ms, and
//! the server that `hotpath console` reads live. The page "Profiling modes" of <https://hotpath.rs>
//! recommends `HotpathGuardBuilder` for programs that decide when profiling begins, like this one.
//!
//! The environment variable `HOTPATH_FOCUS` (page "Configuration") selects the functions to
//! measure. The case that is switched off selects no function. The variable is read once, when the
//! program starts. hotpath can also be compiled out: without its feature `hotpath`, "all macros are
//! noop".

use std::sync::Once;

use hotpath::HotpathGuardBuilder;
use pfp_bench::case;

use crate::nothing;
use crate::row::{Row, Subject};

/// Name of the case that is switched off.
pub(crate) const OFF: &str = "hotpath, off";

pub(crate) fn row() -> Row {
    Row {
        name: "hotpath, `#[measure]`",
        packages: &["hotpath"],
        on: Subject::Here(case!("hotpath", 1, start, region())),
        off: Some(Subject::Here(case!(OFF, 1, start, region()))),
        switch: "`HOTPATH_FOCUS` at the start, or compiled out",
        records: "inclusive wall-clock time, count, histogram, last calls; read live over HTTP, or \
                  reported at the end",
    }
}

/// Selects the functions to measure, before other threads can read the environment.
pub(crate) fn before_any_thread(off: bool) {
    if off {
        // SAFETY: `main` calls this first, so no other thread exists yet.
        unsafe { std::env::set_var("HOTPATH_FOCUS", "no function") };
        // Only the case that is switched on needs the port.
        // SAFETY: `main` calls this first, so no other thread exists yet.
        unsafe { std::env::set_var("HOTPATH_METRICS_SERVER_OFF", "1") };
    }
}

fn start() {
    static START: Once = Once::new();
    // Never dropped, because that would print a report.
    START.call_once(|| std::mem::forget(HotpathGuardBuilder::new("main").build()));
}

#[hotpath::measure]
#[inline(always)]
fn region() {
    nothing();
}
