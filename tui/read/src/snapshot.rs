//! The snapshot: an immutable picture of one process, taken at one moment.
//!
//! It is plain data, and everything that the model, the views, the exports and the files know about
//! a process. A [`crate::source`] makes it; it contains no shared memory. Its serde form *is* the
//! snapshot file: versioned JSON, see [`FORMAT`] and [`VERSION`].
//!
//! All times are **ticks** of the process's clock (time-stamp-counter cycles)
//! unless the name ends in another unit; [`Clock::ticks_per_second`] converts.

mod cell;
mod loss;
mod record;
mod slow;
pub mod state;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::cell::{
    Allocs, AmountTuple, Bucket, Cell, FigureChanges, Heap, HeapSamples, SIZES, Stats, sizes_of,
    total,
};
pub use self::loss::{Loss, Losses};
pub use self::record::{Drained, Record};
pub use self::slow::{EnclosingRegion, KernelCounts, Limit, SlowCall};
pub use self::state::{End, ProcessState};
use crate::waits::WaitsReport;

/// The name of the file format, the value of [`Snapshot::format`].
pub const FORMAT: &str = "pfp-snapshot";
/// The version of the file format. It increases when an older reader would misread the file; new
/// fields with defaults do not increase it.
pub const VERSION: u32 = 1;

/// A snapshot of one process, or of several shown as one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Always [`FORMAT`].
    pub format: String,
    /// [`VERSION`] in every snapshot that this program writes.
    pub version: u32,
    /// Time of the snapshot, nanoseconds since the Unix epoch.
    pub taken_unix_ns: u64,
    /// Ticks of the process's clock since its segment was created.
    pub elapsed_ticks: u64,
    /// The watched process.
    pub process: Process,
    /// If the snapshot combines several processes: the age of each when its figures were read, in
    /// ticks, in the order of [`Process::members`]. Otherwise empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ages: Vec<u64>,
    /// The process's clock, and how reliable it is.
    pub clock: Clock,
    /// The points, in the order of their ids.
    pub points: Vec<Point>,
    /// The lanes, in the order of their ids.
    pub lanes: Vec<Lane>,
    /// The statistics of each (point, lane) pair that has any, ordered by point, then lane.
    /// Successive snapshots share unchanged cells.
    pub cells: Vec<Arc<Cell>>,
    /// The measurements by point, caller and lane, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edges: Vec<Edge>,
    /// The last finished measurements of every lane, oldest first per lane.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<Record>,
    /// Counts of what was lost, refused or repaired.
    pub losses: Losses,
    /// What the threads waited for in the last seconds. `None` if that was not sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Arc<WaitsReport>>,
    /// The slow calls that the process has kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slow: Vec<Arc<SlowCall>>,
    /// Number of slow calls that were not kept, because too many were slow or no box was free.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub slow_dropped: u64,
    /// The process's memory that is not freed yet. `None` if no allocator counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heap: Option<Heap>,
    /// The kernel's figures of the process. `None` if they were not read. Not in files.
    #[serde(skip)]
    pub usage: Option<Usage>,
}

/// The kernel's figures of a running process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time of all its threads since it started, nanoseconds.
    pub cpu_ns: u64,
    /// Memory in use, bytes.
    pub memory_bytes: u64,
    /// Number of all its threads, measuring or not.
    pub threads: u32,
    /// Number of CPUs that it may run on.
    pub cpus: u32,
}

impl Snapshot {
    /// The places (other machines, containers or users) whose newer figures are overdue.
    pub fn late_places(&self) -> Vec<BadPlace> {
        let mut places: Vec<BadPlace> = Vec::new();
        for member in &self.process.members {
            let Some(since) = member.late_since_unix_ns else { continue };
            let name = member.place().unwrap_or(&member.name).to_owned();
            let age = Duration::from_nanos(self.taken_unix_ns.saturating_sub(since));
            if places.iter().all(|place| place.name != name) {
                places.push(BadPlace { name, age, why: None });
            }
        }
        places
    }

    /// A copy without cells, edges and records. These take nearly all of the memory.
    pub fn without_measurements(&self) -> Self {
        Self {
            cells: Vec::new(),
            edges: Vec::new(),
            records: Vec::new(),
            format: self.format.clone(),
            version: self.version,
            taken_unix_ns: self.taken_unix_ns,
            elapsed_ticks: self.elapsed_ticks,
            process: self.process.clone(),
            ages: self.ages.clone(),
            clock: self.clock.clone(),
            points: self.points.clone(),
            lanes: self.lanes.clone(),
            losses: self.losses.clone(),
            waits: self.waits.clone(),
            slow: self.slow.clone(),
            slow_dropped: self.slow_dropped,
            heap: self.heap,
            usage: self.usage,
        }
    }

    /// A point by its id.
    pub fn point(&self, id: u32) -> Option<&Point> {
        let place = self.points.binary_search_by_key(&id, |point| point.id).ok()?;
        Some(&self.points[place])
    }

    /// A lane by its id.
    pub fn lane(&self, id: u32) -> Option<&Lane> {
        let place = self.lanes.binary_search_by_key(&id, |lane| lane.id).ok()?;
        Some(&self.lanes[place])
    }

    /// A cell by its point and lane.
    pub fn cell(&self, point: u32, lane: u32) -> Option<&Arc<Cell>> {
        let place = self.cells.binary_search_by_key(&(point, lane), |cell| cell.key()).ok()?;
        Some(&self.cells[place])
    }

    /// The cells of a point.
    pub fn cells_of(&self, point: u32) -> &[Arc<Cell>] {
        let first = self.cells.partition_point(|cell| cell.point < point);
        let len = self.cells[first..].partition_point(|cell| cell.point == point);
        &self.cells[first..first + len]
    }

    /// The edges to a point.
    pub fn edges_of(&self, point: u32) -> &[Edge] {
        let first = self.edges.partition_point(|edge| edge.point < point);
        let len = self.edges[first..].partition_point(|edge| edge.point == point);
        &self.edges[first..first + len]
    }

    /// The segment id and the age of each of several processes; empty if ages are unknown.
    pub fn aged(&self) -> impl Iterator<Item = (&str, u64)> {
        let members = self.process.members.iter();
        members.map(|member| member.segment_id.as_str()).zip(self.ages.iter().copied())
    }

    /// Whether any process of the snapshot runs.
    pub fn runs(&self) -> bool {
        let is_running = |process: &Process| process.state == ProcessState::Running;
        let members = &self.process.members;
        is_running(&self.process) && (members.is_empty() || members.iter().any(is_running))
    }

    /// The snapshot's process or, if it combines several, each of them.
    pub fn processes(&self) -> &[Process] {
        match self.process.members.as_slice() {
            [] => std::slice::from_ref(&self.process),
            members => members,
        }
    }

    /// One of several processes, by its index in [`Process::members`].
    pub fn member(&self, place: Option<u32>) -> Option<&Process> {
        self.process.members.get(place? as usize)
    }

    /// Whether [`Process::members`] contains this process, by its segment id.
    pub fn knows(&self, member: &Process) -> bool {
        self.process.members.iter().any(|known| known.segment_id == member.segment_id)
    }
}

/// A place (another machine, container or user) that sends no new figures: they are overdue, or the
/// connection to the place is down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPlace {
    /// The place's name, as in `node1`.
    pub name: String,
    /// How long figures have been overdue or the connection has been down.
    pub age: Duration,
    /// Why the connection is down. `None` if figures are only overdue, or if the reason is unknown.
    pub why: Option<String>,
}

/// The watched process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// The name that the program gave itself, or else the executable's file name.
    pub name: String,
    /// Path of the executable.
    pub exe: String,
    /// Process id, in the process's own pid namespace.
    pub pid: u32,
    /// Random id of the segment, 32 hex digits.
    pub segment_id: String,
    /// Boot id of the machine on which it ran, 32 hex digits.
    pub boot_id: String,
    /// Host name of the machine on which it ran, as the process read it.
    pub host: String,
    /// Creation of the segment, nanoseconds since the Unix epoch.
    pub started_unix_ns: u64,
    /// Whether the process ran when the snapshot was taken.
    pub state: ProcessState,
    /// Whether a signal had stopped the process when the snapshot was taken.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stopped: bool,
    /// How it ended, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
    /// The time of the process's last figures, nanoseconds since the Unix epoch, if newer ones are
    /// overdue. Only set for one of several processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_since_unix_ns: Option<u64>,
    /// If this process combines several processes: those processes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Process>,
}

/// `my_app[4711]`
impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}[{}]", self.name, self.pid)
    }
}

impl Process {
    /// The process's place, if the viewer watches several places: the name ends in `@` and the
    /// place.
    pub fn place(&self) -> Option<&str> {
        self.name.rsplit_once('@').map(|(_, place)| place)
    }

    /// Marks a process as dead whose state is still "running". `end` says how the process ended.
    pub fn died(&mut self, end: Option<End>) {
        if self.state == ProcessState::Running {
            self.state = ProcessState::of_dead(false, end.as_ref());
            self.end = end;
            self.stopped = false;
        }
    }

    /// The word for the process's state, or `stopped` if a signal has stopped the process.
    pub fn state_word(&self) -> &'static str {
        if self.stopped { "stopped" } else { self.state.word() }
    }

    /// How it ended, in words that follow its name. `None` while it runs.
    pub fn ended(&self) -> Option<Cow<'static, str>> {
        state::ended(self.state, self.end.as_ref())
    }
}

/// The process's clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// The clock source in use.
    pub kind: ClockKind,
    /// Ticks per second, as calibrated.
    pub ticks_per_second: f64,
    /// Ticks per second by CPUID. `None` if CPUID does not report them.
    #[serde(default)]
    pub reported_ticks_per_second: Option<f64>,
    /// The true frequency of the core, hertz, measured once with dependent adds. `None` if it was
    /// not measured.
    #[serde(default)]
    pub core_hz: Option<f64>,
    /// Whether the processor reports that the counter always runs at one rate.
    pub invariant: bool,
    /// Whether the fallback clock is used, because the counter is not reliable.
    #[serde(default)]
    pub system_clock: bool,
    /// Calibrated cost of measuring inside a region, ticks; already subtracted.
    pub overhead_inside: u64,
    /// Calibrated cost of a whole pair of begin and end, ticks.
    pub overhead_pair: u64,
}

/// How time off the CPU is excluded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClockKind {
    /// A switch is detected by the thread's restartable-sequence area.
    #[default]
    Rseq,
    /// A switch is detected by a self-monitoring perf event.
    Perf,
    /// The thread's CPU time is read at every begin and end.
    Cputime,
    /// Nothing is excluded: figures are wall-clock time.
    Wall,
}

/// One profile point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Numeric id; 0 is the calibration point.
    pub id: u32,
    /// Name of the point, with unprintable characters replaced; empty if it has none.
    pub name: String,
    /// The name that the program reports, if `name` depends on the program's object files, which
    /// are read later.
    #[serde(skip)]
    pub reported: Option<String>,
    /// Source file, empty where unknown.
    pub file: String,
    /// Line in it, 0 where unknown.
    pub line: u32,
    /// Whether the point's times are not CPU time: a device, such as a GPU, or the wall clock
    /// measured them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub device: bool,
    /// Whether the point's times were measured by the wall clock, in spans that belong to no
    /// thread.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wall: bool,
    /// Whether the point measures, or why not.
    pub state: PointState,
    /// Alpha of the EWMA, in (0, 1]. `None` while the EWMA is off.
    pub alpha: Option<f64>,
    /// Number of resets of the point.
    pub resets: u32,
    /// Begin of the point's figures, in ticks since the segment was created: the point's last reset
    /// or, for one of several processes, the start of the process if that is later. A sum begins
    /// with the earliest of its parts. `None` if the figures began with the segment or at an
    /// unknown time: see [`Point::begin_ticks`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ticks: Option<u64>,
    /// Whether the point's begins and ends wait until the instructions before them have finished.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fenced: bool,
    /// Whether the point's regions count what they allocate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counts_allocs: bool,
    /// The time from which on its calls are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Number of its slow calls, kept or not; also those that the program asked to keep. In one
    /// process, it is modulo 2^32. A reset leaves it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub slow_calls: u64,
    /// Whether the point's state was left by a viewer that was killed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left_over: bool,
    /// Index of its process in [`Process::members`]. `None` if there is only one process, or if the
    /// point is summed over processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    /// Id of the point in its own process, if the snapshot combines several processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// The names of its amounts, if its regions have amounts: at most [`AMOUNTS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub amounts: Vec<String>,
}

/// The domain of OpenMP parallel regions.
pub const OPENMP: &str = "openmp";

impl Point {
    /// The domain of a point that comes from an annotation for another tool: the tool's system and
    /// the program's domain, as in `nvtx:app`, or only the system, as in `openmp`. The domain is
    /// stored in place of the file, with line 0.
    pub fn domain(&self) -> Option<&str> {
        let of_system = |system: &str| {
            let rest = self.file.strip_prefix(system);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '/']))
        };
        if self.line == 0 && of_system(OPENMP) {
            // The path of the object that contains the region follows; it is not part of the
            // domain.
            return Some(OPENMP);
        }
        (self.line == 0 && ["nvtx", "itt", "kokkos"].into_iter().any(of_system))
            .then_some(self.file.as_str())
    }

    /// Name of the point, or its id as in `#5` if the point has no name.
    pub fn shown_name(&self) -> String {
        match self.name.as_str() {
            "" => format!("#{}", self.number.unwrap_or(self.id)),
            name => name.to_owned(),
        }
    }

    /// The point's file and line, or its domain; empty if unknown.
    pub fn place(&self) -> String {
        match self.line {
            0 => self.file.clone(),
            line => format!("{}:{line}", self.file),
        }
    }

    /// Whether a flag of the point is set.
    pub fn has(&self, flag: PointFlag) -> bool {
        match flag {
            PointFlag::Fenced => self.fenced,
            PointFlag::CountsAllocs => self.counts_allocs,
        }
    }

    /// Sets or clears a flag of the point.
    pub fn set(&mut self, flag: PointFlag, on: bool) {
        match flag {
            PointFlag::Fenced => self.fenced = on,
            PointFlag::CountsAllocs => self.counts_allocs = on,
        }
    }

    /// Begin of its figures, in ticks since the segment was created. `None` after a reset at an
    /// unknown time.
    pub fn begin_ticks(&self) -> Option<u64> {
        self.since_ticks.or((self.resets == 0).then_some(0))
    }
}

/// A property of a point that is on or off, and that a viewer can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PointFlag {
    /// The point's begins and ends wait until the instructions before them have finished.
    Fenced,
    /// The point's regions count what they allocate.
    CountsAllocs,
}

impl PointFlag {
    /// All flags.
    pub const ALL: [Self; 2] = [Self::Fenced, Self::CountsAllocs];
}

/// Maximum number of amounts of a point.
pub const AMOUNTS: usize = pfp_shm_layout::amounts::MAX_AMOUNTS;

/// Whether a point measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PointState {
    /// The point measures.
    #[default]
    On,
    /// The point is switched off.
    Off,
    /// The point was switched off because it was begun twice without an end; see the documentation
    /// of the numeric interface. Toggling makes the point valid again.
    InvalidBeginBegin,
}

impl PointState {
    /// The state in a word, for tables and exports.
    pub fn word(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::InvalidBeginBegin => "invalid",
        }
    }
}

/// One lane: a thread's part of the segment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Lane {
    /// Number of the lane.
    pub id: u32,
    /// The use of the lane.
    pub kind: LaneKind,
    /// Kernel thread id of the owner, 0 for none.
    pub tid: u32,
    /// The thread's name.
    pub name: String,
    /// Records ever written to its ring.
    pub records_written: u64,
    /// Times the clock noticed that the thread had been off the CPU.
    pub switches: u64,
    /// Index of its process in [`Process::members`]. `None` if there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    /// The clock of its process, if there are several processes. `None` if there is one: the clock
    /// is [`Snapshot::clock`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockKind>,
    /// The lane's open regions, outermost first. After the lane's thread or process ended, the
    /// regions that were open at that time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<Open>,
    /// Number of measurements that no edge counts, because the lane had no room for another edge.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unplaced: u64,
    /// CPU time of the lane's thread, as the kernel counts it, nanoseconds. `None` if the time was
    /// not read. Not in files.
    #[serde(skip)]
    pub cpu_ns: Option<u64>,
    /// Errors that its threads counted.
    #[serde(
        default,
        skip_serializing_if = "Losses::is_nothing",
        serialize_with = "loss::serialize_lane",
        deserialize_with = "loss::deserialize_lane"
    )]
    pub amiss: Losses,
}

/// A region that is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// Id of the point.
    pub point: u32,
    /// Begin, in ticks since the segment was created.
    pub start: u64,
    /// Ticks on a CPU since the begin, including regions inside. `None` if unknown, for instance
    /// after the thread has run another context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_cpu: Option<u64>,
}

/// The measurements of one point on one lane that have the same caller, since the point's last
/// reset. The edges of a point may count fewer measurements than its cells: measurements in a
/// context that another thread has begun, on the overflow lane, or on a lane without room for
/// another edge have no edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// Id of the point that was called.
    pub point: u32,
    /// Id of the caller. `None` for an outermost call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<u32>,
    /// Id of the lane.
    pub lane: u32,
    /// Finished measurements.
    pub count: u64,
    /// Exclusive ticks.
    pub exclusive: u64,
    /// Inclusive ticks; recursion counted once.
    pub inclusive: u64,
    /// Allocations, without nested regions that count theirs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub allocs: u64,
    /// Allocated bytes, without nested regions that count theirs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub alloc_bytes: u64,
    /// Allocated bytes with nested regions; recursion counted once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub alloc_bytes_inclusive: u64,
}

/// Number of figures of an edge.
const EDGE_FIGURES: usize = 6;

impl Edge {
    /// The order of a snapshot's edges.
    pub fn key(&self) -> (u32, Option<u32>, u32) {
        (self.point, self.caller, self.lane)
    }

    /// All figures, in a fixed order.
    pub fn figures(&self) -> [u64; EDGE_FIGURES] {
        let Self { count, exclusive, inclusive, allocs, alloc_bytes, .. } = *self;
        [count, exclusive, inclusive, allocs, alloc_bytes, self.alloc_bytes_inclusive]
    }

    /// This edge with other figures, in the order of [`Self::figures`].
    #[must_use]
    pub fn with_figures(&self, figures: [u64; EDGE_FIGURES]) -> Self {
        let [count, exclusive, inclusive, allocs, alloc_bytes, alloc_bytes_inclusive] = figures;
        let Self { point, caller, lane, .. } = *self;
        Self {
            point,
            caller,
            lane,
            count,
            exclusive,
            inclusive,
            allocs,
            alloc_bytes,
            alloc_bytes_inclusive,
        }
    }

    /// Adds the measurements of another edge.
    pub fn add(&mut self, other: &Self) {
        *self = self.combined(other, u64::saturating_add);
    }

    /// Combines each figure with the same one of another edge.
    #[must_use]
    pub fn combined(&self, other: &Self, with: fn(u64, u64) -> u64) -> Self {
        let (own, others) = (self.figures(), other.figures());
        self.with_figures(std::array::from_fn(|at| with(own[at], others[at])))
    }

    /// Whether it has measurements or allocations.
    pub fn has_figures(&self) -> bool {
        self.count > 0 || self.allocs > 0 || self.alloc_bytes_inclusive > 0
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The use of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LaneKind {
    /// A running thread owns the lane.
    #[default]
    Live,
    /// The lane's thread has ended; the next new thread may take the lane.
    Ended,
    /// All threads that found no lane of their own share the lane.
    Overflow,
}
