//! The parts of the first line, for the screen and the text export: the watched process and its
//! clock.

use std::borrow::Cow;
use std::time::Duration;

use crate::{Basis, Model};
use pfp_read::snapshot::state::{self, signal_name};
use pfp_read::snapshot::{ClockKind, End, Process, ProcessState, Snapshot};
use pfp_read::text;
use pfp_read::units;

/// The common clock rate of several machines, to which their figures are converted.
const NANOSECONDS: f64 = 1e9;

/// The parts of the first line about the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headline {
    /// `my_app[4711]`
    pub process: String,
    /// `up 00:12:31`
    pub uptime: String,
    /// `8 threads`: the running threads that have measured.
    pub threads: String,
    /// `rseq tsc 2.60GHz`; without the rate if figures are in nanoseconds.
    pub clock: String,
    /// `core 3.65GHz`; empty if it was not measured.
    pub core: String,
    /// `overhead 23.0ns`
    pub overhead: String,
    /// Whether to warn that no figure excludes time off the CPU.
    pub wall_clock: bool,
}

impl Headline {
    /// The parts for this snapshot's process, with this number of threads.
    pub fn of(snapshot: &Snapshot, threads: usize) -> Self {
        let clock = &snapshot.clock;
        let rate = clock.ticks_per_second;
        Self {
            process: process(&snapshot.process),
            uptime: format!("up {}", units::uptime(snapshot.elapsed_ticks as f64 / rate)),
            threads: text::counted(threads, "thread"),
            clock: if clock.system_clock {
                // The fallback clock.
                format!("{} no tsc", clock_word(clock.kind))
            } else if rate == NANOSECONDS {
                clock_word(clock.kind).into()
            } else {
                format!("{} tsc {}", clock_word(clock.kind), units::hertz(rate))
            },
            core: clock.core_hz.map_or(String::new(), |hz| format!("core {}", units::hertz(hz))),
            overhead: format!("overhead {}", units::duration(clock.overhead_pair as f64 / rate)),
            wall_clock: clock.kind == ClockKind::Wall,
        }
    }
}

/// `my_app[4711]`, or `3 processes, 1 ended`.
pub fn process(process: &Process) -> String {
    if process.members.is_empty() {
        return process.to_string();
    }
    let ended = process.members.iter().filter(|m| m.state != ProcessState::Running).count();
    match ended {
        0 => process.name.clone(),
        _ => format!("{}, {ended} ended", process.name),
    }
}

/// The poll interval and the smoothing: `every 1 s, smoothed 5 s`. For a single snapshot or an
/// ended process, the text states that figures are over a whole life.
pub fn rhythm(model: &Model, interval: Duration) -> String {
    let seconds = interval.as_secs_f64();
    match model.basis() {
        Basis::Life => "averages over its lifetime".into(),
        Basis::Interval if model.has_ended() => "averages over its lifetime".into(),
        Basis::Interval => match model.tau_seconds() {
            0.0 => format!("every {seconds} s"),
            tau => format!("every {seconds} s, smoothed {tau} s"),
        },
    }
}

/// The clock source in a word.
pub fn clock_word(kind: ClockKind) -> &'static str {
    match kind {
        ClockKind::Rseq => "rseq",
        ClockKind::Perf => "perf",
        ClockKind::Cputime => "cputime",
        ClockKind::Wall => "wall",
    }
}

/// How the process ended, in words.
pub fn ended_words(process: &Process) -> String {
    match process.ended() {
        None => "the process runs".into(),
        Some(how) if how == state::IN_ORDER => "the process has ended".into(),
        Some(how) => format!("the process {how}"),
    }
}

/// How the process ended, for the first line. `None` while it runs.
pub fn ended_word(state: ProcessState, end: Option<&End>) -> Option<Cow<'static, str>> {
    Some(match (state, end) {
        (ProcessState::Running, _) => return None,
        (ProcessState::Crashed, _) => "CRASHED".into(),
        (ProcessState::Ended, _) => "ENDED, CAUSE UNKNOWN".into(),
        (ProcessState::Exited, Some(End::ReplacedBy(name))) => format!("REPLACED BY {name}").into(),
        (ProcessState::Exited, Some(End::Signal(signal))) => {
            format!("ENDED BY {}", signal_name(*signal)).into()
        }
        (ProcessState::Exited, _) => "EXITED".into(),
    })
}
