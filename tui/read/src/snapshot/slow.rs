//! Slow calls that a process has kept.

use std::fmt;

use pfp_shm_layout::control;
use serde::{Deserialize, Serialize};

use super::Record;
use crate::units;

/// The time from which on a process keeps a call of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Nanoseconds, with two digits.
    pub ns: u64,
    /// Whether it is a limit of the time on a CPU, and not of the time by the clock.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cpu: bool,
}

impl Limit {
    /// The limit that a segment stores for this time: rounded down to two digits. `None` below 1 us
    /// and above 99 s.
    pub fn stored(ns: u64, cpu: bool) -> Option<Self> {
        control::Limit::new(ns, cpu).map(Self::from)
    }
}

impl From<control::Limit> for Limit {
    fn from(limit: control::Limit) -> Self {
        Self { ns: limit.ns(), cpu: limit.is_cpu() }
    }
}

/// `5.00ms`, or `5.00ms on a CPU`.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on_cpu = if self.cpu { " on a CPU" } else { "" };
        write!(f, "{}{on_cpu}", units::duration(self.ns as f64 / 1e9))
    }
}

/// A call that a process has kept, because it reached its point's limit or the program asked for
/// it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SlowCall {
    /// Its number among the calls that the process has kept, from 1.
    pub number: u64,
    /// Id of the point.
    pub point: u32,
    /// Id of the lane.
    pub lane: u32,
    /// Kernel id of the thread.
    pub tid: u32,
    /// The context on the thread; 0 for the thread's own.
    pub context: u32,
    /// Number of regions around it, modulo 256.
    pub depth: u32,
    /// When it was kept, milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// Begin: ticks since the segment was created.
    pub start: u64,
    /// Ticks from begin to end, or until it was kept; time off the CPU included.
    pub span: u64,
    /// Ticks on a CPU, nested regions included.
    pub inclusive: u64,
    /// Ticks on a CPU, without nested regions.
    pub exclusive: u64,
    /// Ticks off the CPU.
    pub off_cpu: u64,
    /// Times that the thread was off the CPU.
    pub switches: u64,
    /// The limit. `None` if the program asked to keep the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Why the program asked to keep the call; empty if it did not.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The kernel's counts of the thread during the call. `None` if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<KernelCounts>,
    /// What the thread waited for in more than half of its time off the CPU, as in `lock JOBS, held by
    /// worker-1 in flush`. `None` if there is no such reason, if no viewer sampled the waits during the
    /// call, or if the call was in a context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_for: Option<String>,
    /// The innermost regions around it, at most 48, outermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub enclosing: Vec<EnclosingRegion>,
    /// The last records of its thread, oldest first, up to the end of the call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<Record>,
    /// The records of other threads in the time of the call, if a viewer read their rings in time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Record>,
}

/// What the kernel counted of a thread during a call, and shortly before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelCounts {
    /// Times that the thread gave up the CPU to wait.
    pub waits: u64,
    /// Times that another thread took the CPU.
    pub preemptions: u64,
    /// Page faults that needed no disk.
    pub minor_faults: u64,
    /// Page faults that waited for a disk.
    pub major_faults: u64,
    /// Ticks from the begin of the counts to the begin of the call.
    pub before: u64,
}

/// A region around a slow call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnclosingRegion {
    /// Id of the point.
    pub point: u32,
    /// Begin: ticks since the segment was created.
    pub start: u64,
}

impl SlowCall {
    /// The order of a snapshot's slow calls: by lane, then number. Of several processes, each numbers
    /// its own calls.
    pub fn key(&self) -> (u32, u64) {
        (self.lane, self.number)
    }

    /// The call in a snapshot that begins `ticks` later. `None` if the call began before.
    pub fn after(&self, ticks: u64) -> Option<Self> {
        let start = self.start.checked_sub(ticks)?;
        let mut call = Self { start, ..self.clone() };
        for region in &mut call.enclosing {
            region.start = region.start.saturating_sub(ticks);
        }
        call.records.retain_mut(|record| record.move_after(ticks));
        call.others.retain_mut(|record| record.move_after(ticks));
        Some(call)
    }

    /// When it ended, or was kept: ticks since the segment was created.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.span)
    }
}
