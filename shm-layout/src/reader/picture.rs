//! A picture: all that a segment holds, at one moment, as plain data.

use super::reading::CellReading;
use crate::layout::amounts::Amounts;
use crate::layout::control::Control;
use crate::layout::header::ClockKind;
use crate::layout::lane::{LaneCounters, LanePicture};
use crate::sync::{AtomicU64, Ordering};

/// All that a segment holds, at one moment, except the rings.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// Number of this poll; the first one is 1.
    pub poll: u64,
    /// Whether the process has made an orderly exit.
    pub exited: bool,
    /// Name that the program chose for itself; may be empty.
    pub name: String,
    /// The clock of the process.
    pub clock: ClockPicture,
    /// The memory that is not freed yet.
    pub heap: HeapPicture,
    /// Slow calls that were kept in a box.
    pub calls_kept: u64,
    /// The points, by number.
    pub points: Vec<PointPicture>,
    /// The lanes that have ever been used, by number; the overflow lane last.
    pub lanes: Vec<LaneReading>,
    /// The cells, in the order in which they were first read: a cell keeps its index as long as the
    /// reader lives. For a metered point, the list also has one sum on each lane. The cells in that
    /// sum, the point's own and its tuples', are in the list as [parts](CellReading::is_part).
    pub cells: Vec<CellReading>,
    /// Counts of what was refused or lost.
    pub losses: Losses,
}

impl Picture {
    /// Slow calls that were not kept in a box.
    #[must_use]
    pub fn calls_dropped(&self) -> u64 {
        let all = self.points.iter().fold(0_u64, |all, it| all + u64::from(it.slow_calls));
        all.saturating_sub(self.calls_kept)
    }
}

/// Memory that was allocated in the process and is not freed yet, estimated by samples. Zeros if no
/// allocator counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapPicture {
    /// Bytes now.
    pub live_bytes: u64,
    /// Samples now.
    pub live_samples: u64,
    /// Most bytes so far.
    pub peak_bytes: u64,
}

/// The clock of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClockPicture {
    /// The source that finds a thread's time off the CPU.
    pub kind: ClockKind,
    /// Ticks per second, as calibrated.
    pub ticks_per_second: f64,
    /// Ticks per second as CPUID reports them.
    pub reported_ticks_per_second: Option<f64>,
    /// The core's true clock in hertz.
    pub core_hz: Option<f64>,
    /// Whether the processor reports that its counter has a constant rate.
    pub invariant: bool,
    /// Whether times are read from the system's clock instead of that counter.
    pub system_clock: bool,
    /// Calibrated ticks that measuring adds inside a region.
    pub overhead_inside: u64,
    /// Calibrated ticks of a begin and end pair.
    pub overhead_pair: u64,
}

/// A point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointPicture {
    /// Its number.
    pub id: u32,
    /// Its name, as written by the process: may be any text.
    pub name: String,
    /// Its source file.
    pub file: String,
    /// The line, 0 if unknown.
    pub line: u32,
    /// Whether the point measures the time of a device or spans of the clock, and not of a CPU.
    pub device: bool,
    /// Whether the point measures spans of the clock, which do not belong to a thread.
    pub wall: bool,
    /// Its control word.
    pub control: Control,
    /// When it was last reset, in nanoseconds of CLOCK_MONOTONIC_RAW; `None` if it never was, or if
    /// the time is not known. A process that resets a point may write any time.
    pub reset_ns: Option<u64>,
    /// Its slow calls, kept or dropped, modulo 2^32.
    pub slow_calls: u32,
    /// The names of the amounts of a metered point.
    pub amounts: Vec<String>,
    /// Set if the point is a tuple of a metered point. The readings of the metered point include
    /// the tuple's measurements.
    pub tuple: Option<AmountTuple>,
}

/// A tuple of amounts of a metered point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AmountTuple {
    /// Number of the metered point.
    pub of: u32,
    /// The amounts of each measurement, in the order of their names.
    pub each: Amounts,
}

/// A lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneReading {
    /// Its number.
    pub id: u32,
    /// Whether it is the overflow lane.
    pub overflow: bool,
    /// Its entry in the directory.
    pub lane: LanePicture,
    /// Records ever written to its ring.
    pub written: u64,
    /// Times its thread was found to have been off the CPU.
    pub switches: u64,
    /// Errors on the lane.
    pub errors: LaneErrors,
}

/// Errors that a lane's threads counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneErrors {
    /// Ends that matched no open region, or not the innermost one.
    pub mismatched_ends: u64,
    /// Begins refused because too many regions were open.
    pub begins_refused: u64,
    /// Clock readings at which the counter had decreased, stood still or jumped, or the clock
    /// source had missed a context switch.
    pub clock_anomalies: u64,
    /// Measurements without a record.
    pub records_missed: u64,
}

impl LaneErrors {
    pub(super) fn of(counters: &LaneCounters) -> Self {
        let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
        Self {
            mismatched_ends: get(&counters.mismatched),
            begins_refused: get(&counters.refused),
            clock_anomalies: get(&counters.anomalies),
            records_missed: get(&counters.unrecorded),
        }
    }
}

/// Counts of what the process has refused, repaired or lost since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Points that found no entry.
    pub points_refused: u64,
    /// Requests for space that could not be backed by memory.
    pub space_refused: u64,
    /// Threads that found no lane.
    pub lanes_overflowed: u64,
    /// Ends that matched no open region, or not the innermost one.
    pub mismatched_ends: u64,
    /// Begins refused because too many regions were open.
    pub begins_refused: u64,
    /// Clock readings at which the counter had decreased, stood still or jumped, or the clock
    /// source had missed a context switch.
    pub clock_anomalies: u64,
    /// Records that the rings have overwritten.
    pub records_lost: u64,
    /// Cells that could not be copied whole in this poll.
    pub cells_busy: u64,
    /// Begins that could not be measured: memory ran out, or a signal handler ran while its thread
    /// made the segment, claimed its lane or entered the point.
    pub begins_missed: u64,
    /// Measurements without a record: memory for the ring ran out, or the thread has no ring. All
    /// figures include them.
    pub records_missed: u64,
}

impl Losses {
    /// Adds the counts of a lane's threads, which may have any value.
    pub(super) fn add(&mut self, errors: &LaneErrors) {
        for (sum, more) in [
            (&mut self.mismatched_ends, errors.mismatched_ends),
            (&mut self.begins_refused, errors.begins_refused),
            (&mut self.clock_anomalies, errors.clock_anomalies),
            (&mut self.records_missed, errors.records_missed),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}
