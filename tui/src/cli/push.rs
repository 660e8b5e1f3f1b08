//! `pfp-top push`: the figures of local processes for an OpenTelemetry collector.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use pfp_export::push::Uri;

use super::arguments::interval;
use super::output::{next_moment, print};
use super::serve::Pooled;
use crate::interrupt::Interrupt;
use pfp_export::push::{self, Pause, Pushed, Pusher};
use pfp_export::serve::Pool;
use pfp_read::text::warn;

/// Maximum time between two polls. It is short because the reset of a point discards what the point
/// has measured since the last poll.
const LOOK: Duration = Duration::from_secs(1);
/// The time for the last push after the user has asked to end.
const FAREWELL: Duration = Duration::from_secs(5);

/// Which processes to push, and where to.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Pushes all processes unless some are named. Stops when the named processes have \
                  ended, after -n pushes, or on Ctrl-C, always after a last push. The exit status \
                  is 0 if the collector accepted that one."
)]
pub struct PushArgs {
    #[command(flatten)]
    pooled: Pooled,
    /// URL at which the collector accepts metrics (OTLP over HTTP); the default path is
    /// /v1/metrics.
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
        value_name = "URL",
        default_value = push::ENDPOINT,
        value_parser = push::endpoint
    )]
    endpoint: Uri,
    /// Time between two pushes: 10s, 1m.
    #[arg(short, long, value_name = "TIME", default_value = "10s", value_parser = interval)]
    interval: Duration,
    /// Exit after N pushes.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    updates: Option<u64>,
    /// Compress the requests.
    #[arg(long)]
    gzip: bool,
    /// Maximum time of a request.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = interval)]
    timeout: Duration,
}

pub(super) fn run(push: &PushArgs) -> Result<u8> {
    let target = &push.pooled.target;
    if target.sum {
        bail!("--sum applies to the screen only; sum where the figures are stored");
    }
    let interrupt = Interrupt::install_without_time_limit()?;
    // Ended processes stay in the pool until their figures are sent.
    let mut pool = push.pooled.pool(Duration::ZERO, Duration::MAX)?;
    let pusher = Pusher::new(push.endpoint.clone(), push.gzip, push.timeout);
    print(&format!("pushing to {} every {}s\n", push.endpoint, push.interval.as_secs_f64()))?;
    let (mut reporter, mut pause) = (PushReporter::new(&push.endpoint), Pause::default());
    let start = Instant::now();
    let (mut due, mut pushes) = (start, 0);
    loop {
        look(&mut pool);
        let is_over = !target.pid.is_empty() && pool.has_ended();
        // The last figures are sent at once, unless the collector asked for a pause.
        if is_over && pause == Pause::default() {
            due = Instant::now();
        }
        if due <= Instant::now() {
            let pushed = pusher.push(&pool.subjects(), None, || !interrupt.raised());
            let now = Instant::now();
            let requested = pushed.again.as_ref().map(|(_, requested)| *requested);
            let next = requested.and_then(|requested| pause.after_failure(requested));
            reporter.report(&pushed, next);
            due = match next {
                Some(pause) => now + pause,
                None => {
                    pause.end();
                    pushes += 1;
                    let grid = next_moment(start, push.interval);
                    requested.flatten().map_or(grid, |requested| grid.max(now + requested))
                }
            };
            if pushed.is_done() {
                pool.forget_ended();
            }
            let is_last = is_over || push.updates.is_some_and(|wanted| pushes >= wanted);
            if next.is_none() && is_last {
                return reporter.end();
            }
        }
        let left = due.saturating_duration_since(Instant::now());
        if !interrupt.sleep(left.min(LOOK)) {
            look(&mut pool);
            let until = Instant::now() + FAREWELL;
            reporter.report(&pusher.push(&pool.subjects(), Some(until), || true), None);
            return reporter.end();
        }
    }
}

/// Polls the processes. After an error, the last figures stay until a poll succeeds.
fn look(pool: &mut Pool) {
    if let Err(error) = pool.poll() {
        warn(&format!("{error:#}"));
    }
}

/// Reports the progress to the user, each message once until it changes.
struct PushReporter {
    endpoint: String,
    /// Why the last push was not accepted completely.
    failure: Option<String>,
    said: Option<String>,
    failed: u64,
}

impl PushReporter {
    fn new(endpoint: &Uri) -> Self {
        Self { endpoint: endpoint.to_string(), failure: None, said: None, failed: 0 }
    }

    fn report(&mut self, pushed: &Pushed, next: Option<Duration>) {
        if let Some((why, _)) = &pushed.again {
            self.failed += 1;
            self.failure = Some(why.clone());
            let then = match next {
                Some(pause) => format!("trying again in {:.0} s", pause.as_secs_f64()),
                None => "its figures will be in the next push".into(),
            };
            if self.said.as_ref() != Some(why) {
                warn(&format!("{}: {why}; {then}", self.endpoint));
                self.said = Some(why.clone());
            }
            return;
        }
        if self.failed > 0 && pushed.taken > 0 {
            warn(&format!(
                "{}: accepted again, after {} failed pushes",
                self.endpoint, self.failed
            ));
            (self.failed, self.said) = (0, None);
        }
        self.failure = pushed.refused.clone().filter(|_| pushed.is_lost);
        if let Some(why) = &pushed.refused
            && self.said.as_ref() != Some(why)
        {
            let kept = if pushed.is_lost { "refused" } else { "accepted in part" };
            warn(&format!("{}: {kept}: {why}", self.endpoint));
        }
        self.said.clone_from(&pushed.refused);
    }

    /// The exit status, which depends on the last push.
    fn end(self) -> Result<u8> {
        match self.failure {
            None => Ok(0),
            Some(why) => bail!("{} did not accept the last figures: {why}", self.endpoint),
        }
    }
}
