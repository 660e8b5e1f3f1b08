//! `pfp-top demo`: a program made to be watched, started as a child, watched,
//! and ended again.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Show;
use super::commands::{is_headless, show_source};
use crate::snapshot::ClockKind;
use crate::source::{self, Candidate};

/// How long the program may take to show its segment.
const START: Duration = Duration::from_secs(10);
/// How long it may take when it is only tried out, where something may be wrong.
const TRIAL: Duration = Duration::from_secs(3);
/// How long it works before a single table is made of it.
const WARM_UP: Duration = Duration::from_secs(1);

/// How long it may take to end in order.
const END: Duration = Duration::from_secs(2);

/// The child. It ends in order when its standard input does, so also if the
/// viewer dies without dropping this.
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

pub(super) fn run(show: &Show) -> Result<u8> {
    let mut workload = start()?;
    let candidate = find(&mut workload.0, START)?;
    if is_headless(show) {
        std::thread::sleep(WARM_UP);
    }
    show_source(show, source::attach(&candidate)?)
}

/// Tries out whether a program can be measured and watched here, and by which
/// clock it is.
pub(super) fn try_out() -> Result<ClockKind> {
    let mut workload = start()?;
    let candidate = find(&mut workload.0, TRIAL)?;
    Ok(source::attach(&candidate)?.poll()?.clock.kind)
}

fn start() -> Result<Workload> {
    let program = std::env::current_exe().context("this program cannot find itself")?;
    let child = Command::new(program)
        .arg("demo-workload")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        // Anything it wrote would stand across the screen.
        .stderr(Stdio::null())
        .spawn()
        .context("the demo's program cannot be started")?;
    Ok(Workload(child))
}

/// Waits until the child can be watched.
fn find(child: &mut Child, patience: Duration) -> Result<Candidate> {
    let start = Instant::now();
    while start.elapsed() < patience {
        let found = source::discover()?.candidates;
        if let Some(candidate) = found.into_iter().find(|c| c.pid == child.id()) {
            return Ok(candidate);
        }
        if let Some(status) = child.try_wait()? {
            bail!("the demo's program ended before it could be watched ({status})");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("the demo's program did not show up within {} s", patience.as_secs())
}
