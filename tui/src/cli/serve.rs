//! `pfp-top serve`: the figures of local processes over HTTP, for Prometheus.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::arguments::interval;
use super::output::print;
use super::target::TargetArgs;
use crate::interrupt::Interrupt;
use pfp_export::serve::{Pool, STAYS, Scope, http};
use pfp_model::filter::Filter;
use pfp_read::source::{Candidate, Discovery, ProcessGroup, Refusal, Selector};
use pfp_read::text::warn;
use pfp_remote::newcomers;

/// Which processes to serve, and where.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    #[command(flatten)]
    pooled: Pooled,
    /// The address to listen on; port 0 picks a free port and prints it.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9464")]
    listen: SocketAddr,
    /// Accept requests from other machines; required for an address that they can reach.
    #[arg(long)]
    allow_remote: bool,
    /// Minimum time between two polls of a process; requests in between get the same figures.
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
}

/// The processes to export, and in how much detail. `push` has the same options.
#[derive(Args, Clone, Debug)]
pub(super) struct Pooled {
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// Export each thread separately, for up to N threads per process; the rest are summed.
    #[arg(
        long,
        value_name = "N",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "64",
        value_parser = clap::value_parser!(u32).range(1..=4096)
    )]
    per_thread: Option<u32>,
    /// Only the points that pass this filter: a part of the name, a regular expression,
    /// `thread:NAME` or `file:NAME`, as `/` on the screen.
    #[arg(long, value_name = "FILTER", default_value = "", value_parser = Filter::new, hide_default_value = true)]
    filter: Filter,
    /// Omit the histograms (most of the output); means are kept.
    #[arg(long)]
    no_histograms: bool,
    /// Sample what the threads wait for, with at most 0.4 % of a CPU.
    #[arg(long)]
    waits: bool,
}

impl Pooled {
    /// The pool of these processes. Processes that are named must exist now; without names,
    /// processes may come and go.
    pub(super) fn pool(&self, interval: Duration, stays: Duration) -> Result<Pool> {
        let members = match self.target.pid.as_slice() {
            [] => Selector::All(self.target.name.clone().unwrap_or_default()),
            named => Selector::Named(named.to_vec()),
        };
        let scope = Scope {
            group: ProcessGroup { members, sum: false },
            interval,
            lanes_apart: self.per_thread,
            filter: self.filter.clone(),
            histograms: !self.no_histograms,
            waits: self.waits,
            stays,
        };
        let finder = match self.target.via.is_here() {
            true => newcomers(),
            false => self.target.finder()?,
        };
        let (pool, discovery) = Pool::new(scope, finder)?;
        if pool.is_empty() && !self.target.pid.is_empty() {
            return Err(none_named(&discovery, &self.target).into());
        }
        Ok(pool)
    }
}

pub(super) fn run(serve: &ServeArgs) -> Result<u8> {
    if serve.pooled.target.sum {
        bail!("--sum applies to the screen only; sum in the query instead: sum by (point) (...)");
    }
    let is_local = serve.listen.ip().to_canonical().is_loopback();
    if !is_local && !serve.allow_remote {
        bail!(
            "expected an address of this machine alone, such as 127.0.0.1:9464, found {}: other \
             machines could read the names and figures of these processes. To permit that, pass \
             --allow-remote",
            serve.listen
        );
    }
    let interrupt = Interrupt::install()?;
    let pool = serve.pooled.pool(serve.interval, STAYS)?;
    let listener = TcpListener::bind(serve.listen)
        .with_context(|| format!("cannot listen on {}: choose another --listen", serve.listen))?;
    let address = listener.local_addr()?;
    if !is_local {
        warn(&format!(
            "anyone who can reach {address} can read the names and figures of these processes (no \
             password, no encryption)"
        ));
    }
    print(&format!("serving http://{address}/metrics\n"))?;
    http::serve(listener, pool, is_local, move || interrupt.wait())?;
    // The server runs until a signal ends it.
    Ok(0)
}

/// Why all of the named processes are missing.
fn none_named(discovery: &Discovery, target: &TargetArgs) -> Refusal {
    let all = &discovery.candidates;
    let is_named = |it: &&Candidate| target.pid.iter().any(|which| which.admits(it, all));
    match all.iter().find(is_named) {
        Some(ended) => Refusal::NoTarget(format!(
            "{} [{}] has ended; `pfp-top -p {}` shows its last figures",
            ended.name, ended.pid, ended.pid
        )),
        None => discovery.why_none(&target.wanted()),
    }
}
