//! hotpath: `#[hotpath::measure]` on a function, and the guard that
//! `#[hotpath::main]` builds, with its defaults: a worker thread that sweeps the
//! threads' queues every 50 ms into histograms, and the server that `hotpath
//! console` reads live. hotpath.rs, "Profiling modes", names `HotpathGuardBuilder`
//! for programs that want to say when profiling begins, as this one does.
//!
//! Off is `HOTPATH_FOCUS` (hotpath.rs, "Configuration"), which names the functions
//! that are measured, and here names none. It is read once, when the program
//! starts. Otherwise hotpath is taken out at compile time: without its feature
//! `hotpath` "all macros are noop".

use std::sync::Once;

use hotpath::HotpathGuardBuilder;
use pfp_bench::case;

use crate::nothing;
use crate::row::{Row, Subject};

/// What the case is called in which it is off.
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

/// Says what is measured, before there is a thread that could read it.
pub(crate) fn before_any_thread(off: bool) {
    if off {
        // SAFETY: `main` calls this first of all.
        unsafe { std::env::set_var("HOTPATH_FOCUS", "no function") };
        // The port is for the case in which it is on.
        // SAFETY: as above.
        unsafe { std::env::set_var("HOTPATH_METRICS_SERVER_OFF", "1") };
    }
}

fn start() {
    static START: Once = Once::new();
    // Its end would print a report.
    START.call_once(|| std::mem::forget(HotpathGuardBuilder::new("main").build()));
}

#[hotpath::measure]
#[inline(always)]
fn region() {
    nothing();
}
