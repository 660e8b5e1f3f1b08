//! `pfp-top demo`: starts a demo program as a child, watches it, and ends it.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::options::ShowArgs;
use super::show;
use pfp_read::snapshot::{Clock, ClockKind};
use pfp_read::source::{self, Source};

/// Maximum time until the demo program has a segment.
const START: Duration = Duration::from_secs(10);
/// Maximum time until the program of a trial run has a segment. It is shorter than [`START`], since
/// the doctor tries out setups that may be broken.
const TRIAL: Duration = Duration::from_secs(3);
/// How long the program runs before tables are printed.
const WARM_UP: Duration = Duration::from_secs(1);

/// The time that the program has to end by itself before it is killed.
const END: Duration = Duration::from_secs(2);

/// The demo program. It ends when its standard input ends, even if the viewer dies without dropping
/// this.
struct Workload(Child);

impl Drop for Workload {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let start = Instant::now();
        while start.elapsed() < END {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn run(how: &ShowArgs) -> Result<u8> {
    let (_workload, source) = watched(&[], START)?;
    if how.is_headless() {
        std::thread::sleep(WARM_UP);
    }
    show::one(how, source)
}

/// Checks that a program can be measured and watched here, and returns its clock.
pub(super) fn try_out() -> Result<ClockKind> {
    let (_workload, mut source) = watched(&["--trial"], TRIAL)?;
    Ok(source.poll()?.clock.kind)
}

/// The clock of a trial program, and the rate of its counter in ticks per second, measured against
/// CLOCK_MONOTONIC_RAW over `stretch`.
pub(super) fn rates(stretch: Duration) -> Result<(Clock, f64)> {
    let (_workload, mut source) = watched(&["--trial"], TRIAL)?;
    // A poll reads the counter between two readings of the clock. Use the try with the smallest gap
    // between them.
    let mut moment = || -> Result<(f64, f64, Clock)> {
        let mut best: Option<(f64, f64, f64, Clock)> = None;
        for _ in 0..16 {
            let before = raw_seconds();
            let snapshot = source.poll()?;
            let width = raw_seconds() - before;
            if best.as_ref().is_none_or(|best| width < best.0) {
                let ticks = snapshot.elapsed_ticks as f64;
                best = Some((width, before + width / 2.0, ticks, snapshot.clock));
            }
        }
        let (_, at, ticks, clock) = best.context("nothing was polled")?;
        Ok((at, ticks, clock))
    };
    let first = moment()?;
    std::thread::sleep(stretch);
    let (at, ticks, clock) = moment()?;
    Ok((clock, (ticks - first.1) / (at - first.0)))
}

/// CLOCK_MONOTONIC_RAW: the machine's own rate, without adjustment.
fn raw_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live `timespec` of our own, valid for the kernel's write.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Starts the program, and waits until it can be watched.
fn watched(options: &[&str], timeout: Duration) -> Result<(Workload, Box<dyn Source>)> {
    let program = std::env::current_exe().context("this program cannot find itself")?;
    let child = Command::new(program)
        .arg("demo-workload")
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        // Its output would overwrite the screen.
        .stderr(Stdio::null())
        .spawn()
        .context("the demo's program cannot be started")?;
    let mut workload = Workload(child);
    let start = Instant::now();
    while start.elapsed() < timeout {
        let found = source::discover()?.candidates;
        if let Some(candidate) = found.iter().find(|c| c.pid == workload.0.id()) {
            return Ok((workload, source::attach(candidate)?));
        }
        if let Some(status) = workload.0.try_wait()? {
            bail!("the demo's program ended before it could be watched ({status})");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("the demo's program did not show up within {} s", timeout.as_secs())
}
