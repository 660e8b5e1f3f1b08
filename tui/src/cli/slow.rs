//! `pfp-top slow`: the slow calls that a process has kept.

mod follow;

pub(super) use self::follow::BETWEEN_POLLS;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde::Serialize;

use super::missing::missing;
use super::output::{check_new, print, write_file};
use super::target::{LIVE, TargetArgs};
use pfp_model::slow::{self, Cause};
use pfp_read::local_time::time_of_day;
use pfp_read::snapshot::{Point, SlowCall, Snapshot};
use pfp_read::source;
use pfp_read::units;

/// Which slow calls to print.
#[derive(Args, Clone, Debug)]
pub struct SlowArgs {
    /// A snapshot file or a recording, whose calls are all printed; without it, a running process.
    #[arg(value_name = "FILE", conflicts_with_all = LIVE)]
    file: Option<PathBuf>,
    #[command(flatten)]
    target: TargetArgs,
    /// Print JSON, with the records of each call.
    #[arg(long)]
    json: bool,
    /// Write to this file instead of standard output.
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Replace the file if it exists.
    #[arg(long)]
    force: bool,
    /// Print the kept calls, then each new call, until the process ends.
    #[arg(short, long, conflicts_with_all = ["file", "json", "output"])]
    follow: bool,
    /// Run this shell command for a new call. The last argument is a snapshot file with the call and
    /// the records around it; the file is deleted when the command ends. The command starts at most
    /// once in 10 s, and never twice at the same time; other calls are skipped.
    #[arg(long, value_name = "COMMAND", requires = "follow")]
    exec: Option<String>,
}

/// A slow call with what its numbers mean.
#[derive(Serialize)]
struct PrintedCall {
    name: String,
    thread: String,
    cause: &'static str,
    chain: Vec<String>,
    #[serde(flatten)]
    call: SlowCall,
}

#[derive(Serialize)]
struct Printed<'a> {
    process: &'a str,
    pid: u32,
    ticks_per_second: f64,
    points: &'a [Point],
    /// Number of slow calls that were not kept.
    dropped: u64,
    calls: Vec<PrintedCall>,
}

pub(super) fn run(asked: &SlowArgs) -> Result<u8> {
    if let Some(output) = &asked.output {
        check_new(output, asked.force)?;
    }
    if asked.follow {
        return follow::follow(asked);
    }
    let (text, status) = match asked.json {
        true => {
            let (calls, snapshot, status) = newest_first(asked, printed)?;
            let printed = Printed {
                process: &snapshot.process.name,
                pid: snapshot.process.pid,
                ticks_per_second: snapshot.clock.ticks_per_second,
                points: &snapshot.points,
                dropped: snapshot.slow_dropped,
                calls,
            };
            (serde_json::to_string(&printed)? + "\n", status)
        }
        false => {
            let (lines, snapshot, status) = newest_first(asked, line)?;
            (as_text(&lines, &snapshot), status)
        }
    };
    match &asked.output {
        Some(output) => write_file(output, asked.force, |out| out.write_all(text.as_bytes()))?,
        None => drop(print(&text)?),
    }
    Ok(status)
}

/// Applies `of` to each slow call, newest first. Also returns the last snapshot and the exit status.
fn newest_first<T>(
    asked: &SlowArgs,
    of: impl Fn(&SlowCall, &Snapshot) -> T,
) -> Result<(Vec<T>, Snapshot, u8)> {
    let mut source = match &asked.file {
        Some(file) => source::open(file)?,
        None => asked.target.resolve()?,
    };
    let mut calls = BTreeMap::new();
    let snapshot = slow::each(source.as_mut(), |call, snapshot| {
        let (lane, number) = call.key();
        calls.insert((call.unix_ms, number, lane), of(call, snapshot));
    })?;
    Ok((calls.into_values().rev().collect(), snapshot, missing(source.as_ref())))
}

fn printed(call: &SlowCall, snapshot: &Snapshot) -> PrintedCall {
    let found = slow::explain(call, snapshot.clock.ticks_per_second);
    PrintedCall {
        name: slow::name(call.point, snapshot),
        thread: slow::thread(call, snapshot),
        cause: word(found.cause),
        chain: found.chain.iter().map(|point| slow::name(*point, snapshot)).collect(),
        call: call.clone(),
    }
}

/// The cause for scripts.
fn word(cause: Cause) -> &'static str {
    match cause {
        Cause::Ran => "ran",
        Cause::Waited => "waited",
        Cause::Preempted => "preempted",
        Cause::Faulted => "faulted",
        Cause::OffCpu => "off-cpu",
    }
}

fn as_text(lines: &[String], snapshot: &Snapshot) -> String {
    if lines.is_empty() {
        let has_limit = snapshot.points.iter().any(|point| point.limit.is_some());
        return match has_limit {
            true => "no slow call was kept so far\n".into(),
            false => "no point has a limit: pfp-top watch NAME --over 5ms sets one\n".into(),
        };
    }
    let mut text = heading() + &lines.concat();
    if snapshot.slow_dropped > 0 {
        text += &format!("{} more were slow and not kept\n", snapshot.slow_dropped);
    }
    text
}

fn heading() -> String {
    format!(
        "{:>4}  {:<8}  {:>8}  {:>8}  {:<24}  {:<16}  Why\n",
        "Nr", "When", "Time", "CPU", "Point", "Thread"
    )
}

fn line(call: &SlowCall, snapshot: &Snapshot) -> String {
    let time = |ticks: u64| units::duration(ticks as f64 / snapshot.clock.ticks_per_second);
    let why = match call.why.as_str() {
        "" => slow::words(call, snapshot),
        why => why.to_owned(),
    };
    let (name, thread) = (slow::name(call.point, snapshot), slow::thread(call, snapshot));
    format!(
        "{:>4}  {:<8}  {:>8}  {:>8}  {name:<24}  {thread:<16}  {why}\n",
        call.number,
        time_of_day(call.unix_ms.saturating_mul(1_000_000)),
        time(call.span),
        time(call.inclusive),
    )
}
