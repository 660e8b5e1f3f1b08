//! Writes snapshot files, as `pfp-top snapshot` does. docs/snapshot-format.md describes them.
//!
//! The code has no serializer from another crate, so that a program that links pfp does not also
//! link one, and so that a lack of memory is an error and does not abort the program.

mod json;
mod show;

pub(crate) use show::show;

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

use pfp_shm_layout::allocs::HeapSamples;
use pfp_shm_layout::amounts::Amounts;
pub(crate) use pfp_shm_layout::atomic_file::Existing;
use pfp_shm_layout::atomic_file::WholeFile;
use pfp_shm_layout::black_box::BoxPicture;
use pfp_shm_layout::calls;
use pfp_shm_layout::cell::Sums;
use pfp_shm_layout::control::{Control, Limit};
use pfp_shm_layout::header::{ClockKind, Facts, FormatError};
use pfp_shm_layout::heap::{self, Grow, NoMemory};
use pfp_shm_layout::lane::LaneState;
use pfp_shm_layout::reader::{
    Call, CellReading, HeapPicture, LaneCalls, LaneReading, Picture, PointPicture, Reader,
};
use pfp_shm_layout::ring::Record;
use pfp_shm_layout::segment::Segment;

use crate::clock::calibrate;
use crate::engine::cold;
use crate::engine::process::Process;

use json::Json;

/// Maximum number of polls, which are repeated while some cells change during their copy.
const POLLS: u64 = 8;

/// The error of a program without a segment.
pub(crate) fn unsupported() -> io::Error {
    // A text would allocate memory.
    io::ErrorKind::Unsupported.into()
}

/// A reader of the process's own segment, which has polled once.
fn polled(process: &Process) -> io::Result<Reader<&Segment>> {
    let segment = &process.segment;
    let facts = segment.facts().map_err(|error| match error {
        FormatError::NoMemory => NoMemory.into(),
        // Another process has written over the header.
        _ => io::Error::from(io::ErrorKind::InvalidData),
    })?;
    let mut reader = Reader::try_new(segment, facts)?;
    // A thread that was pre-empted in the middle of a change may have completed it by now.
    while reader.try_poll()?.losses.cells_busy > 0 && reader.picture().poll < POLLS {}
    Ok(reader)
}

/// Writes the last figures of a process that exits. Errors are ignored, since the exit must not
/// change.
pub(crate) fn write_at_exit(process: &Process, path: &Path) {
    let _ = write(process, path, Existing::Keep);
}

/// A file that refuses writes in a child process. A child that is forked during the write inherits
/// the file, and must not write to it.
struct OwnFile<'a> {
    process: &'a Process,
    file: &'a mut WholeFile,
}

impl OwnFile<'_> {
    fn check(&self) -> io::Result<()> {
        if self.process.is_current() { Ok(()) } else { Err(unsupported()) }
    }
}

impl Write for OwnFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.check()?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.check()?;
        self.file.flush()
    }
}

/// Number of bytes that are written at once.
const AT_ONCE: usize = 1 << 16;

/// Collects bytes and writes many at once.
struct Buffered<W> {
    out: W,
    bytes: Vec<u8>,
}

impl<W: Write> Buffered<W> {
    fn new(out: W) -> Result<Self, NoMemory> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(AT_ONCE)?;
        Ok(Self { out, bytes })
    }
}

impl<W: Write> Write for Buffered<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() == AT_ONCE {
            self.out.write_all(&self.bytes)?;
            self.bytes.clear();
        }
        // Fills the buffer up to its capacity, so that it never grows.
        let len = bytes.len().min(AT_ONCE - self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.bytes)?;
        self.bytes.clear();
        self.out.flush()
    }
}

pub(crate) fn write(process: &Process, path: &Path, existing: Existing) -> io::Result<()> {
    // Signals are not blocked, because the write may take long. This is safe, because handlers must
    // not write snapshots.
    cold::uncancelled(|| write_uncancelled(process, path, existing))
}

fn write_uncancelled(process: &Process, path: &Path, existing: Existing) -> io::Result<()> {
    let mut file = WholeFile::create(path, existing)?;
    process.refine_rate();
    let reader = polled(process)?;
    let facts = reader.facts();
    let picture = reader.picture();
    let taken_unix_ns = calibrate::unix_ns();
    let elapsed_ticks = ticks_until(calibrate::shared_ns(), facts, picture);
    let (calls, records) = (reader.try_calls()?, reader.try_records()?);
    let mut boxes = Vec::new();
    reader.try_boxes(|_| 0, |_, copy| boxes.try_push(copy))?;
    boxes.sort_unstable_by_key(|copy| copy.number);
    let taken = Taken { picture, facts, taken_unix_ns, elapsed_ticks, calls, records, boxes };
    let own = OwnFile { process, file: &mut file };
    let mut json = Json::new(Buffered::new(own)?);
    json.object(|json| taken.snapshot(json))?;
    json.end()?.flush()?;
    file.finish()
}

/// Ticks from the creation of the segment to a time of CLOCK_MONOTONIC_RAW.
fn ticks_until(monotonic_ns: u64, facts: &Facts, picture: &Picture) -> u64 {
    let seconds = monotonic_ns.saturating_sub(facts.created_monotonic_ns) as f64 / 1e9;
    (seconds * picture.clock.ticks_per_second) as u64
}

/// The contents of a snapshot.
struct Taken<'a> {
    picture: &'a Picture,
    facts: &'a Facts,
    taken_unix_ns: u64,
    elapsed_ticks: u64,
    calls: Vec<LaneCalls>,
    records: Vec<(u32, Record)>,
    boxes: Vec<BoxPicture>,
}

impl Taken<'_> {
    fn snapshot<W: Write>(&self, json: &mut Json<W>) -> io::Result<()> {
        json.word("format", "pfp-snapshot")?;
        json.plain("version", 1)?;
        json.plain("taken_unix_ns", self.taken_unix_ns)?;
        json.plain("elapsed_ticks", self.elapsed_ticks)?;
        json.name("process")?.object(|json| self.process(json))?;
        json.name("clock")?.object(|json| self.clock(json))?;
        if self.picture.heap != HeapPicture::default() {
            let HeapPicture { live_bytes, live_samples, peak_bytes } = self.picture.heap;
            json.name("heap")?.object(|json| {
                json.plain("live_bytes", live_bytes)?;
                json.plain("live_samples", live_samples)?;
                json.plain("peak_bytes", peak_bytes)
            })?;
        }
        let whole = self.picture.points.iter().filter(|point| point.tuple.is_none());
        json.name("points")?.list(whole, |json, of| json.object(|json| self.point(json, of)))?;
        json.name("lanes")?
            .list(&self.picture.lanes, |json, of| json.object(|json| self.lane(json, of)))?;
        let has_any = |cell: &&CellReading| !cell.is_part && cell.has_figures();
        let mut cells = heap::collect(self.picture.cells.iter().filter(has_any))?;
        cells.sort_unstable_by_key(|cell| (cell.point, cell.lane));
        json.name("cells")?
            .list(cells, |json, of| json.object(|json| cell(json, of, self.picture)))?;
        let edges = self.calls.iter().flat_map(|of| of.edges.iter().map(|edge| (of.lane, edge)));
        let known = |caller| ![calls::UNKNOWN, calls::ELSEWHERE].contains(&caller);
        let mut edges = heap::collect(edges.filter(|(_, edge)| known(edge.caller)))?;
        // Outermost regions have no caller, so their edges come before a callee's other edges.
        let caller = |edge: &Call| Some(edge.caller).filter(|caller| *caller != calls::ROOT);
        edges.sort_unstable_by_key(|(lane, edge)| (edge.callee, caller(edge), *lane));
        json.name("edges")?.list(edges, |json, (lane, edge)| {
            json.object(|json| {
                json.plain("point", edge.callee)?;
                if let Some(caller) = caller(edge) {
                    json.plain("caller", caller)?;
                }
                json.plain("lane", lane)?;
                json.plain("count", edge.sums.count)?;
                json.plain("exclusive", edge.sums.exclusive)?;
                json.plain("inclusive", edge.sums.inclusive)?;
                edge.allocs.to_json(|name, value| json.plain(name, value))
            })
        })?;
        let created = self.facts.created_ticks;
        let records = self.records.iter().filter_map(|(lane, record)| {
            let start = record.start.saturating_sub(created);
            // Records of regions that ended after `elapsed_ticks`, the time of the snapshot, are
            // left out.
            (start.saturating_add(record.span) <= self.elapsed_ticks)
                .then_some((lane, start, record))
        });
        json.name("records")?.list(records, record)?;
        json.name("losses")?.object(|json| self.losses(json))?;
        let dropped = self.picture.calls_dropped();
        if dropped > 0 {
            json.plain("slow_dropped", dropped)?;
        }
        if self.boxes.is_empty() {
            return Ok(());
        }
        let created = self.facts.created_ticks;
        json.name("slow")?
            .list(&self.boxes, |json, call| json.object(|json| slow_call(json, call, created)))
    }

    fn point<W: Write>(&self, json: &mut Json<W>, of: &PointPicture) -> io::Result<()> {
        point(json, of)?;
        // The reset is later than the snapshot only if another process has forged the reset's time.
        let since = of.reset_ns.map(|ns| ticks_until(ns, self.facts, self.picture));
        since.map_or(Ok(()), |since| json.plain("since_ticks", since.min(self.elapsed_ticks)))
    }

    fn process<W: Write>(&self, json: &mut Json<W>) -> io::Result<()> {
        let Self { picture, facts, .. } = self;
        let file = || Path::new(&facts.exe).file_name().and_then(|name| name.to_str());
        let name = Some(picture.name.as_str()).filter(|name| !name.is_empty());
        json.text("name", name.or_else(file).unwrap_or_default())?;
        json.text("exe", &facts.exe)?;
        json.plain("pid", facts.pid)?;
        json.word("segment_id", format_args!("{:032x}", facts.id))?;
        json.word("boot_id", format_args!("{:032x}", facts.boot_id))?;
        json.text("host", &facts.host)?;
        json.plain("started_unix_ns", facts.created_unix_ns)?;
        json.word("state", if picture.exited { "exited" } else { "running" })
    }

    fn clock<W: Write>(&self, json: &mut Json<W>) -> io::Result<()> {
        let clock = &self.picture.clock;
        json.word(
            "kind",
            match clock.kind {
                ClockKind::Rseq => "rseq",
                ClockKind::Perf => "perf",
                ClockKind::Cputime => "cputime",
                ClockKind::Wall => "wall",
            },
        )?;
        json.plain("ticks_per_second", clock.ticks_per_second)?;
        json.float("reported_ticks_per_second", clock.reported_ticks_per_second)?;
        json.float("core_hz", clock.core_hz)?;
        json.plain("invariant", clock.invariant)?;
        json.plain("system_clock", clock.system_clock)?;
        json.plain("overhead_inside", clock.overhead_inside)?;
        json.plain("overhead_pair", clock.overhead_pair)
    }

    fn lane<W: Write>(&self, json: &mut Json<W>, reading: &LaneReading) -> io::Result<()> {
        let lane = &reading.lane;
        json.plain("id", reading.id)?;
        json.word(
            "kind",
            match lane.state {
                _ if reading.overflow => "overflow",
                LaneState::Live => "live",
                LaneState::Free | LaneState::Ended => "ended",
            },
        )?;
        json.plain("tid", lane.tid)?;
        match reading.overflow {
            true => json.word("name", "(overflow)")?,
            false => json.text("name", &heap::lossy(&lane.name)?)?,
        }
        json.plain("records_written", reading.written)?;
        json.plain("switches", reading.switches)?;
        let calls = self.calls.binary_search_by_key(&reading.id, |of| of.lane);
        let Some(calls) = calls.ok().map(|place| &self.calls[place]) else { return Ok(()) };
        if !calls.open.is_empty() {
            let created = self.facts.created_ticks;
            json.name("open")?.list(&calls.open, |json, open| {
                json.object(|json| {
                    json.plain("point", open.point)?;
                    json.plain("start", open.start.saturating_sub(created))
                })
            })?;
        }
        match calls.unplaced {
            0 => Ok(()),
            unplaced => json.plain("unplaced", unplaced),
        }
    }

    fn losses<W: Write>(&self, json: &mut Json<W>) -> io::Result<()> {
        let losses = &self.picture.losses;
        json.plain("points_refused", losses.points_refused)?;
        json.plain("space_refused", losses.space_refused)?;
        json.plain("lanes_overflowed", losses.lanes_overflowed)?;
        json.plain("mismatched_ends", losses.mismatched_ends)?;
        json.plain("begins_refused", losses.begins_refused)?;
        json.plain("clock_anomalies", losses.clock_anomalies)?;
        json.plain("records_lost", losses.records_lost)?;
        json.plain("cells_busy", losses.cells_busy)?;
        json.plain("begins_missed", losses.begins_missed)?;
        json.plain("records_missed", losses.records_missed)
    }
}

fn point<W: Write>(json: &mut Json<W>, point: &PointPicture) -> io::Result<()> {
    let control = point.control;
    json.plain("id", point.id)?;
    json.text("name", &point.name)?;
    json.text("file", &point.file)?;
    json.plain("line", point.line)?;
    if point.device {
        json.plain("device", true)?;
    }
    json.word(
        "state",
        match (control.invalid(), control.enabled()) {
            (true, _) => "invalid-begin-begin",
            (false, true) => "on",
            (false, false) => "off",
        },
    )?;
    json.float("alpha", control.alpha())?;
    json.plain("resets", control.epoch())?;
    if control.fenced() {
        json.plain("fenced", true)?;
    }
    if control.counts_allocs() {
        json.plain("counts_allocs", true)?;
    }
    if let Some(limit) = control.limit() {
        json.name("limit")?.object(|json| limit_of(json, limit))?;
    }
    if point.slow_calls > 0 {
        json.plain("slow_calls", point.slow_calls)?;
    }
    if point.amounts.is_empty() {
        return Ok(());
    }
    json.name("amounts")?.list(&point.amounts, |json, name| json.bare_text(name))
}

fn slow_call<W: Write>(json: &mut Json<W>, call: &BoxPicture, created: u64) -> io::Result<()> {
    let BoxPicture { number, facts, why, enclosing, records } = call;
    json.plain("number", number)?;
    // Another process may have written any number.
    let id = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    json.plain("point", id(facts.point))?;
    json.plain("lane", id(facts.lane))?;
    json.plain("tid", id(facts.tid))?;
    json.plain("context", id(facts.context))?;
    json.plain("depth", id(facts.depth) % 256)?;
    json.plain("unix_ms", facts.unix_ms)?;
    json.plain("start", facts.start.saturating_sub(created))?;
    json.plain("span", facts.span)?;
    json.plain("inclusive", facts.inclusive)?;
    json.plain("exclusive", facts.exclusive)?;
    json.plain("off_cpu", facts.off_cpu)?;
    json.plain("switches", facts.switches)?;
    match Control(facts.control).limit() {
        Some(limit) => json.name("limit")?.object(|json| limit_of(json, limit))?,
        None => json.text("why", why)?,
    }
    if facts.is_usage_known == 1 {
        json.name("kernel")?.object(|json| {
            json.plain("waits", facts.waits)?;
            json.plain("preemptions", facts.preemptions)?;
            json.plain("minor_faults", facts.minor_faults)?;
            json.plain("major_faults", facts.major_faults)?;
            json.plain("before", facts.before)
        })?;
    }
    json.name("enclosing")?.list(enclosing, |json, region| {
        json.object(|json| {
            json.plain("point", region.point)?;
            json.plain("start", region.start.saturating_sub(created))
        })
    })?;
    let lane = id(facts.lane);
    let records = records.iter().map(|it| (lane, it.start.saturating_sub(created), it));
    json.name("records")?.list(records, record)
}

fn limit_of<W: Write>(json: &mut Json<W>, limit: Limit) -> io::Result<()> {
    json.plain("ns", limit.ns())?;
    match limit.is_cpu() {
        true => json.plain("cpu", true),
        false => Ok(()),
    }
}

/// A record on a lane that began `start` ticks after the segment was created.
fn record<W: Write, L: Display>(
    json: &mut Json<W>,
    (lane, start, record): (L, u64, &Record),
) -> io::Result<()> {
    json.object(|json| {
        json.plain("lane", lane)?;
        json.plain("point", record.point)?;
        json.plain("start", start)?;
        json.plain("span", record.span)?;
        json.plain("exclusive", record.exclusive)?;
        json.plain("depth", record.depth)?;
        json.plain("context", record.context)
    })
}

fn heap_samples<W: Write>(json: &mut Json<W>, heap: &HeapSamples) -> io::Result<()> {
    json.plain("live_bytes", heap.live_bytes)?;
    json.plain("live_samples", heap.live_samples)?;
    json.plain("live_births", heap.live_births)?;
    json.name("sizes")?.list(&heap.sizes, |json, bytes| json.bare(format_args!("{bytes}")))
}

fn cell<W: Write>(json: &mut Json<W>, cell: &CellReading, picture: &Picture) -> io::Result<()> {
    json.plain("point", cell.point)?;
    json.plain("lane", cell.lane)?;
    json.name("stats")?.object(|json| stats(json, &cell.live))?;
    json.name("retired")?.object(|json| stats(json, &cell.retired))?;
    json.name("histogram")?.list(cell.histogram.iter(), |json, bucket| {
        json.bare(format_args!("[{},{},{}]", bucket.low, bucket.width, bucket.count))
    })?;
    if cell.allocs.is_any() {
        json.name("allocs")?
            .object(|json| cell.allocs.to_json(|name, value| json.plain(name, value)))?;
    }
    if cell.heap.is_any() {
        json.name("heap")?.object(|json| heap_samples(json, &cell.heap))?;
    }
    let parts = cell.parts.iter().map(|place| &picture.cells[*place as usize]);
    let parts = heap::collect(parts.filter_map(|part| TupleSums::of(part, picture)))?;
    if parts.is_empty() {
        return Ok(());
    }
    json.name("tuples")?.list(&parts, |json, part| {
        json.object(|json| {
            let name = if part.each { "each" } else { "sums" };
            let amounts = &part.amounts[..part.names];
            json.name(name)?.list(amounts, |json, amount| json.bare(format_args!("{amount}")))?;
            json.name("stats")?.object(|json| stats(json, &part.sums))
        })
    })
}

/// Measurements of a metered point on a lane: those with one tuple of amounts, or those whose
/// amounts are only summed.
pub(crate) struct TupleSums {
    /// Whether each measurement has these amounts. Otherwise `amounts` are sums over all.
    pub(crate) each: bool,
    pub(crate) amounts: Amounts,
    /// Number of amounts.
    pub(crate) names: usize,
    pub(crate) sums: Sums,
}

impl TupleSums {
    /// `None` if nothing was measured.
    pub(crate) fn of(reading: &CellReading, picture: &Picture) -> Option<Self> {
        let (sums, amounts) = reading.all_owners();
        let find = |id: u32| {
            let place = picture.points.binary_search_by_key(&id, |point| point.id).ok()?;
            Some(&picture.points[place])
        };
        let point = find(reading.point).filter(|_| sums.count > 0)?;
        let names = find(point.tuple.map_or(point.id, |tuple| tuple.of))?.amounts.len();
        let (each, amounts) = (point.tuple.is_some(), point.tuple.map_or(amounts, |it| it.each));
        Some(Self { each, amounts, names, sums })
    }
}

fn stats<W: Write>(json: &mut Json<W>, sums: &Sums) -> io::Result<()> {
    sums.to_json(|name, value| json.plain(name, value))
}
