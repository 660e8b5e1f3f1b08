//! Whole-program tests of pfp over real processes.
//!
//! A test in `tests/` starts a **target**, a program that uses the probe (`src/bin/target`), reads
//! its segment as a viewer would, and compares the figures with those that the target computed by
//! other means: its own counters, the kernel's CPU time, a wall clock.
//!
//! ```text
//!  test ---- starts, answers ----> target            target: the target, from outside
//!   |   <--- lines of text ------   |                script: the target, from inside
//!   |                               | probe
//!   +---- watch <--- segment <------+                watch:  the segment, and its figures
//! ```
//!
//! Each test has a folder of its own for its targets and viewers (`place`), and terminals for
//! viewers in it (`screen`).
//!
//! A test can also run a target instruction by instruction (`stepper`), interrupt it at one of its
//! instructions (`breakpoint`), and read its progress after it was killed (`witness`). A library
//! replaces the driver of a GPU (`stand_in`).
//!
//! `c` builds programs in C, which are targets like any other. `prometheus` starts a server that
//! scrapes the viewer's figures; `collector` receives pushed figures.
//!
//! A hypervisor may take a processor away from a running thread. `stolen` measures how much that
//! adds to the error of a figure, and the tests add it to the figure's bound.
//!
//! No test waits for a time to pass: it waits for a line or for a condition, with a deadline so far
//! away that only a hang reaches it.

#[cfg(target_arch = "x86_64")]
pub mod breakpoint;
pub mod c;
pub mod cells;
pub mod changes;
pub mod collector;
pub mod faults;
pub mod fuzz;
pub mod hostile;
pub mod measured;
pub mod os;
pub mod other;
pub mod own;
pub mod place;
pub mod prometheus;
pub mod pty;
pub mod python;
pub mod random;
pub mod screen;
pub mod script;
pub mod stand_in;
pub mod stepper;
pub mod stolen;
pub mod strict;
pub mod target;
pub mod tools;
pub mod watch;
pub mod witness;

use std::io::Write;
use std::process::{Command, Stdio};

pub use tools::{lacks, lacks_namespaces, skipped, well};

/// The number of repetitions of a test: `ordinary` in a normal run, `full` with the feature
/// `torture`, whose results RELIABILITY.md states.
pub const fn size(ordinary: u64, full: u64) -> u64 {
    if cfg!(feature = "torture") { full } else { ordinary }
}

/// Processes all items at the same time, since most of the work is waiting.
pub fn together<T: Send>(items: impl IntoIterator<Item = T>, work: impl Fn(T) + Sync) {
    let work = &work;
    std::thread::scope(|scope| {
        for item in items {
            scope.spawn(move || work(item));
        }
    });
}

/// The output of gzip for data that pfp has compressed.
pub fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = Command::new("gzip")
        .arg("-dc")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("gzip starts");
    let mut input = gzip.stdin.take().expect("it was piped");
    std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(bytes).expect("gzip reads"));
        let output = gzip.wait_with_output().expect("gzip ends");
        assert!(output.status.success());
        output.stdout
    })
}

/// Prints a figure that a test measured, if `PFP_TEST_FIGURES=1` is set.
pub fn figure(text: &str) {
    if std::env::var_os("PFP_TEST_FIGURES").is_some() {
        let _ = writeln!(std::io::stderr(), "\nFIGURE {text}");
    }
}
