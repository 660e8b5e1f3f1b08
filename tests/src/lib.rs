//! Whole-program tests of pfp over real processes.
//!
//! A test in `tests/` starts a **target**, a program that uses the probe
//! (`src/bin/target`), reads its segment as a viewer would, and compares what it
//! reads with what the target found out by other means: its own counters, the
//! kernel's CPU time, a wall clock.
//!
//! ```text
//!  test ---- starts, answers ----> target            target: the target, from outside
//!   |   <--- lines of text ------   |                script: the target, from inside
//!   |                               | probe
//!   +---- watch <--- segment <------+                watch:  the segment, and its figures
//! ```
//!
//! Each test has a folder of its own, where its targets and viewers meet (`place`), and
//! terminals for viewers in it (`screen`).
//!
//! A target can also be run instruction by instruction (`stepper`), be interrupted at one of
//! its instructions (`breakpoint`), and tell what it has done when it cannot speak any more
//! (`witness`). A GPU is a library that stands in
//! for its driver (`stand_in`).
//!
//! Programs in C are built by `c`, and are targets like any other. What scrapes the
//! viewer's figures is started by `prometheus`; what they are pushed to is `collector`.
//!
//! A hypervisor may take a processor away from a thread that is on it. What that adds to
//! the error of a figure is measured as well (`stolen`), and allowed beside its bound.
//!
//! No test waits for a time to pass: it waits for a line or for a condition, with
//! a deadline so far away that only a hang reaches it.

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

/// How often a test tries: `ordinary` among all the others, `full` with the feature
/// `torture`, whose figures RELIABILITY.md states.
pub const fn size(ordinary: u64, full: u64) -> u64 {
    if cfg!(feature = "torture") { full } else { ordinary }
}

/// Does something with each item, all at the same time, since most of it waits.
pub fn together<T: Send>(items: impl IntoIterator<Item = T>, work: impl Fn(T) + Sync) {
    let work = &work;
    std::thread::scope(|scope| {
        for item in items {
            scope.spawn(move || work(item));
        }
    });
}

/// What gzip makes of what pfp has compressed.
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

/// What a test measured, for whoever runs it with `PFP_TEST_FIGURES=1`.
pub fn figure(text: &str) {
    if std::env::var_os("PFP_TEST_FIGURES").is_some() {
        let _ = writeln!(std::io::stderr(), "\nFIGURE {text}");
    }
}
