//! The processes of this machine, through their segments.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow, bail};
use pfp_shm_layout::beacon::Info;
use pfp_shm_layout::calls::{self, CallSums};
use pfp_shm_layout::cell::Sums;
use pfp_shm_layout::control::{Alpha, Change as Steer, Control};
use pfp_shm_layout::copy::{Copy, Dense, Note};
use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::find::{self, Entry};
use pfp_shm_layout::header::{self, Facts, FormatError};
use pfp_shm_layout::lane::LaneState;
use pfp_shm_layout::liveness::{Liveness, Watch};
use pfp_shm_layout::name::Name;
use pfp_shm_layout::reader::{BucketCount, CellReading, Picture, Reader};
use pfp_shm_layout::ring;
use pfp_shm_layout::segment::{OpenError, Segment};
use pfp_shm_layout::truncation;

use super::namespaces::{ids_here, is_own};
use super::place::locate;
use super::symbol::readable;
use super::usage;
use super::{Candidate, Change, Discovery, Refusal, Refused, Source};
use crate::export::packed;
use crate::export::whole::{self, Overwrite, WriteError};
use crate::snapshot::{
    Amiss, Bucket, Cell, Clock, ClockKind, Drained, Edge, FORMAT, Lane, LaneKind, Losses, Open,
    Point, PointState, Process, ProcessState, Record, Snapshot, Stats, VERSION, Variant,
};

/// Looks for segments.
pub(super) fn discover() -> Result<Discovery> {
    let (found, unread) = find::find_everywhere();
    let mut discovery = Discovery { searched: Directory::candidates(), ..Discovery::default() };
    for why in unread {
        let why = Refusal::Permission(format!(
            "{why}; where it cannot be mended, PFP_DIR names another folder to programs and viewers"
        ));
        discovery.refused.push(Refused { pid: None, why });
    }
    // The namespace of each candidate, and its id there.
    let mut insides = Vec::new();
    for place in found {
        for (path, why) in place.unreadable {
            let why = Refusal::Version(format!("{}: {why}", path.display()));
            discovery.refused.push(Refused { pid: None, why });
        }
        for entry in place.entries {
            discovery.stale += usize::from(entry.state == Liveness::Dead);
            // Without its object, a process is just starting or ending.
            if entry.object_bytes.is_none() {
                continue;
            }
            match open(&entry.info) {
                Ok((mut reader, facts)) => {
                    let candidate = candidate(&entry, &mut reader, &facts);
                    let why = whole(&reader).map_err(|why| Refusal::NoTarget(why.to_string()));
                    match why {
                        Ok(()) => {
                            let process = &entry.info.process;
                            insides.push((process.pidns, process.pid));
                            discovery.candidates.push(candidate);
                        }
                        Err(why) => {
                            let pid = Some(entry.info.process.pid);
                            discovery.refused.push(Refused { pid, why });
                        }
                    }
                }
                Err(why) => {
                    discovery.refused.push(Refused { pid: Some(entry.info.process.pid), why });
                }
            }
        }
    }
    let running = discovery.candidates.iter().zip(&insides).filter(|(c, _)| c.runs());
    let here = ids_here(running.map(|(_, inside)| *inside));
    for (candidate, inside) in discovery.candidates.iter_mut().zip(&insides) {
        if candidate.runs() {
            candidate.pid_here = here.get(inside).copied();
        }
    }
    Ok(discovery)
}

/// The files in the directories of beacons.
pub(super) fn announced() -> BTreeSet<PathBuf> {
    let files = Directory::candidates().into_iter().filter_map(|path| std::fs::read_dir(path).ok());
    files.flat_map(|files| files.flatten().map(|file| file.path())).collect()
}

fn candidate(entry: &Entry, reader: &mut Reader, facts: &Facts) -> Candidate {
    let dead = entry.state != Liveness::Alive;
    let run = reader.segment().ledger().run.load(Relaxed);
    let picture = reader.outline();
    Candidate {
        name: name_of(picture, facts),
        exe: facts.exe.clone(),
        pid: facts.pid,
        pid_here: None,
        segment_id: format!("{:032x}", facts.id),
        state: state_of(picture, dead),
        started_unix_ns: facts.created_unix_ns,
        points: picture.points.iter().filter(|point| point.variant.is_none()).count() as u32,
        run,
        awaited: false,
    }
}

/// Opens a segment, of which from then on nothing can hurt this process.
fn open(info: &Info) -> Result<(Reader, Facts), Refusal> {
    if let Err(error) = truncation::survive() {
        return Err(Refusal::NoTarget(format!("SIGBUS cannot be taken over: {error}")));
    }
    match Segment::open(&info.object) {
        Ok((segment, facts)) => Ok((Reader::new(segment, facts.clone()), facts)),
        Err(OpenError::Format(error @ FormatError::Version { .. })) => {
            Err(Refusal::Version(error.to_string()))
        }
        Err(OpenError::Io(error)) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Err(Refusal::Permission(format!("{}: {error}", info.object)))
        }
        Err(error) => Err(Refusal::NoTarget(format!("{}: {error}", info.object))),
    }
}

/// Whether what a reader has read was there.
fn whole(reader: &Reader) -> Result<()> {
    let segment = reader.segment();
    if segment.is_cut() {
        let name = segment.name().map_or_else(String::new, ToString::to_string);
        let bytes = segment.geometry().len();
        bail!(
            "somebody has cut the segment short: expected the {bytes} bytes of {name}, found \
             fewer; the figures are those of before, start the program again"
        );
    }
    Ok(())
}

/// Attaches to the segment of one process.
pub(super) fn attach(candidate: &Candidate) -> Result<Box<dyn Source>> {
    let place = Name::from_hex(candidate.segment_id.as_bytes()).and_then(|object| {
        let places = Directory::candidates().into_iter();
        let mut places = places.filter_map(|path| Directory::open(&path).ok());
        places.find_map(|directory| {
            let entry = find::find_one(&directory, &object)?;
            Some((directory, entry))
        })
    });
    let ended = || {
        let why = format!("{} [{}] has ended meanwhile", candidate.name, candidate.pid);
        anyhow!(Refusal::NoTarget(why))
    };
    let (directory, entry) = place.ok_or_else(ended)?;
    let watch = Watch::new(&directory, &entry.info)?.ok_or_else(ended)?;
    let inside = &entry.info.process;
    let pid = candidate.pid_here.or_else(|| is_own(inside.pidns).then_some(inside.pid));
    let (reader, facts) = open(&entry.info).map_err(|why| anyhow!(why))?;
    Ok(Box::new(LiveSource {
        reader,
        facts,
        watch,
        dead: false,
        cells: Cells::default(),
        names: Vec::new(),
        last: None,
        elapsed_ticks: 0,
        pid,
        threads_of: (inside.pidns != 0 && is_own(inside.pidns)).then_some(inside.pid),
    }))
}

/// Removes the segments of processes that have ended.
pub(super) fn gc() -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for path in Directory::candidates() {
        let Ok(directory) = Directory::open(&path) else { continue };
        let swept = find::gc(&directory).with_context(|| path.display().to_string())?;
        for entry in &swept.removed {
            let kib = entry.object_bytes.unwrap_or(0) / 1024;
            let info = &entry.info;
            let exe = info.exe.display();
            lines.push(format!("removed {exe} [{}], {kib} KiB", info.process.pid));
        }
        for (path, why) in &swept.failed {
            lines.push(format!("kept {}: {why}", path.display()));
        }
    }
    Ok(lines)
}

/// A process that is watched through its segment.
struct LiveSource {
    reader: Reader,
    facts: Facts,
    watch: Watch,
    /// The process was found dead; nothing will change any more.
    dead: bool,
    cells: Cells,
    /// Of each point, what it is called and, if that is another, what it is shown as.
    names: Vec<(String, Option<String>)>,
    /// The last picture of a process that is dead.
    last: Option<Snapshot>,
    elapsed_ticks: u64,
    /// The id that our /proc knows it by; none where that shows it under none.
    pid: Option<u32>,
    /// Its process id, if threads have the ids here that its lanes tell.
    threads_of: Option<u32>,
}

impl Source for LiveSource {
    fn poll(&mut self) -> Result<Snapshot> {
        if let Some(last) = &self.last {
            return Ok(last.clone());
        }
        // Judged before the picture is taken: a process that is found dead has
        // written its last by then.
        self.dead = matches!(self.watch.judge(), Ok(Liveness::Dead | Liveness::Gone));
        self.reader.poll();
        // Asked afterwards: what is gone by then may have been read as zeros.
        whole(&self.reader)?;
        let picture = self.reader.picture();
        let cells = self.cells.convert(picture);
        let mut snapshot = convert(picture, cells, &self.facts, self.dead);
        show_names(&mut self.names, &mut snapshot.points);
        self.elapsed_ticks = self.ticks_until_now(&snapshot);
        snapshot.elapsed_ticks = self.elapsed_ticks;
        let of = self.threads_of.filter(|_| snapshot.process.state == ProcessState::Running);
        for lane in snapshot.lanes.iter_mut().filter(|lane| lane.kind == LaneKind::Live) {
            lane.cpu_ns = of.and_then(|process| cpu_ns(process, lane.tid));
        }
        add_calls(&mut snapshot, &self.reader, &self.facts);
        if self.dead {
            until_last_begin(&mut snapshot);
            self.elapsed_ticks = snapshot.elapsed_ticks;
        }
        bound_resets(&mut snapshot);
        if self.dead {
            self.last = Some(snapshot.clone());
        } else {
            snapshot.usage = self.pid.and_then(usage::of);
        }
        Ok(snapshot)
    }

    fn open_stacks(&mut self) -> Option<Vec<(u32, Vec<u32>)>> {
        (!self.dead).then(|| self.reader.open_stacks())
    }

    fn has_died(&self) -> bool {
        self.dead
    }

    fn add_records(&mut self, snapshot: &mut Snapshot) {
        let taken = snapshot.elapsed_ticks;
        snapshot.records = self.records().filter(|record| end(record) <= taken).collect();
    }

    fn new_records(&mut self, snapshot: &Snapshot, from: &dyn Fn(u32) -> u64) -> Vec<Drained> {
        let created = self.facts.created_ticks;
        let mut all = Vec::new();
        self.reader.drain(from, |lane, drained, records| {
            let place = snapshot.lanes.binary_search_by_key(&lane, |lane| lane.id);
            let Ok(place) = place else { return };
            let from = from(lane);
            // What was written after the snapshot is for the next one to bring.
            let until = snapshot.lanes[place].records_written.min(drained.next);
            if until <= from {
                return;
            }
            let first = drained.next.saturating_sub(records.len() as u64).max(from);
            let of_now = until.saturating_sub(first) as usize;
            let records =
                records.iter().take(of_now).map(|record| convert_record(lane, record, created));
            all.push(Drained {
                lane,
                from,
                lost: first.min(until) - from,
                records: records.collect(),
            });
        });
        all
    }

    fn save_raw(&mut self, path: &Path, overwrite: Overwrite) -> Result<(), WriteError> {
        // Judged before, as for a picture; timed behind it, so that no record is of
        // later.
        let runs = !matches!(self.watch.judge(), Ok(Liveness::Dead | Liveness::Gone));
        whole::write_file(path, overwrite, |file| {
            let copy = Copy::of(self.reader.segment())?;
            let note = Note { taken_unix_ns: unix_ns(), taken_monotonic_ns: monotonic_ns(), runs };
            if packed::is_named(path) {
                packed::write(file, |out| copy.write(&mut Dense(out), Some(&note)))
            } else {
                copy.write(file, Some(&note))
            }
        })
    }

    fn act(&mut self, change: Change) -> Result<()> {
        if self.dead {
            bail!("the process has ended; nothing can be changed in it");
        }
        let (point, change) = match change {
            Change::Enable(point) => (point, Steer::Enable),
            Change::Disable(point) => (point, Steer::Disable),
            Change::Reset(point) => (point, Steer::Reset),
            Change::Fence(point, fenced) => (point, Steer::Fence(fenced)),
            Change::SetAlpha(point, None) => (point, Steer::Alpha(Alpha::OFF)),
            Change::SetAlpha(point, Some(alpha)) => {
                let alpha = Alpha::new(alpha).ok_or_else(|| {
                    anyhow!("expected a weight in (0, 1], found {alpha}; it is period / tau")
                })?;
                (point, Steer::Alpha(alpha))
            }
        };
        match self.reader.change(point, change, monotonic_ns()) {
            Some(_) => Ok(()),
            None => bail!("the process has no point {point}"),
        }
    }

    fn is_process(&self) -> bool {
        true
    }
}

impl LiveSource {
    fn records(&self) -> impl Iterator<Item = Record> {
        records(&self.reader, &self.facts)
    }

    /// Ticks since the segment was created. Of a process that is dead, up to the
    /// last thing that it is known to have done.
    fn ticks_until_now(&self, snapshot: &Snapshot) -> u64 {
        if self.dead {
            return self.records().map(|record| end(&record)).fold(self.elapsed_ticks, u64::max);
        }
        ticks_until(monotonic_ns(), &self.facts, snapshot.clock.ticks_per_second)
    }
}

/// What a copy of a segment says; `file_unix_ns` is when it was taken, if it does
/// not say that.
pub(super) fn of_copy(
    segment: Segment,
    facts: Facts,
    note: Option<Note>,
    file_unix_ns: u64,
) -> Snapshot {
    let mut reader = Reader::new(segment, facts.clone());
    // A copy without a note was made by somebody who found what a process left.
    let runs = note.is_some_and(|note| note.runs);
    let picture = reader.poll();
    let cells = Cells::default().convert(picture);
    let mut snapshot = convert(picture, cells, &facts, !runs);
    snapshot.records = records(&reader, &facts).collect();
    snapshot.taken_unix_ns = note.map_or(file_unix_ns, |note| note.taken_unix_ns);
    let rate = snapshot.clock.ticks_per_second;
    // Of a process that is dead, up to the last thing that it is known to have done.
    let until =
        note.filter(|_| runs).map_or(0, |note| ticks_until(note.taken_monotonic_ns, &facts, rate));
    snapshot.elapsed_ticks = snapshot.records.iter().map(end).fold(until, u64::max);
    add_calls(&mut snapshot, &reader, &facts);
    if !runs {
        until_last_begin(&mut snapshot);
    }
    bound_resets(&mut snapshot);
    snapshot
}

/// Puts the edges and the open regions into a snapshot.
fn add_calls(snapshot: &mut Snapshot, reader: &Reader, facts: &Facts) {
    let lanes = &reader.picture().lanes;
    for of_lane in reader.calls() {
        let Ok(place) = snapshot.lanes.binary_search_by_key(&of_lane.lane, |lane| lane.id) else {
            continue;
        };
        let runs = snapshot.lanes[place].kind == LaneKind::Live
            && snapshot.process.state == ProcessState::Running;
        let own_cpu = match of_lane.open.is_empty() {
            false if runs && of_lane.is_own => snapshot.lanes[place].cpu_ns,
            _ => None,
        };
        let claimed = lanes.iter().find(|lane| lane.id == of_lane.lane);
        let claimed = claimed.map_or(0, |lane| lane.lane.claimed);
        let open = of_lane.open.iter().map(|open| {
            let start = open.start.saturating_sub(facts.created_ticks);
            let so_far = snapshot.elapsed_ticks.saturating_sub(start);
            let on_cpu = match snapshot.clock.kind {
                // It takes nothing out.
                ClockKind::Wall if runs => Some(so_far),
                ClockKind::Wall => None,
                _ => own_cpu.and_then(|now| {
                    let ns = now.checked_sub(of_lane.cpu)?;
                    let now = (ns as f64 / 1e9 * snapshot.clock.ticks_per_second) as u64;
                    // What the thread had been on the CPU at the begin, since the same moment.
                    let then = open.start.checked_sub(claimed)?.checked_sub(open.off)?;
                    // The kernel brings a thread's time up to date a few times in 10 ms.
                    Some(now.saturating_sub(then).min(so_far))
                }),
            };
            Open { point: open.point, start, on_cpu }
        });
        let open = open.collect();
        let lane = &mut snapshot.lanes[place];
        (lane.open, lane.unplaced) = (open, of_lane.unplaced);
        snapshot.edges.extend(of_lane.edges.iter().filter_map(|call| {
            let caller = match call.caller {
                calls::ROOT => None,
                calls::UNKNOWN | calls::ELSEWHERE => return None,
                caller => Some(caller),
            };
            let CallSums { count, exclusive, inclusive } = call.sums;
            let (point, lane) = (call.callee, of_lane.lane);
            Some(Edge { point, caller, lane, count, exclusive, inclusive })
        }));
    }
    snapshot.edges.sort_unstable_by_key(Edge::key);
}

/// To begin a region is something that a dead process is known to have done, too.
fn until_last_begin(snapshot: &mut Snapshot) {
    let begins = snapshot.lanes.iter().flat_map(|lane| &lane.open).map(|open| open.start);
    snapshot.elapsed_ticks = begins.fold(snapshot.elapsed_ticks, u64::max);
}

/// The CPU time of a thread, in ns.
fn cpu_ns(process: u32, thread: u32) -> Option<u64> {
    let path = format!("/proc/{process}/task/{thread}/schedstat");
    std::fs::read_to_string(path).ok()?.split_ascii_whitespace().next()?.parse().ok()
}

/// What the rings hold, lane by lane.
fn records(reader: &Reader, facts: &Facts) -> impl Iterator<Item = Record> + use<> {
    let created = facts.created_ticks;
    reader.records().into_iter().map(move |(lane, record)| convert_record(lane, &record, created))
}

/// Ticks from when the segment was created to a moment of CLOCK_MONOTONIC_RAW.
fn ticks_until(monotonic_ns: u64, facts: &Facts, ticks_per_second: f64) -> u64 {
    let ns = monotonic_ns.saturating_sub(facts.created_monotonic_ns);
    (ns as f64 / 1e9 * ticks_per_second) as u64
}

/// No reset is later than the snapshot, whatever time a viewer left.
fn bound_resets(snapshot: &mut Snapshot) {
    for point in &mut snapshot.points {
        point.since_ticks = point.since_ticks.map(|since| since.min(snapshot.elapsed_ticks));
    }
}

/// A record of a ring, with the ticks at which the segment was created taken off.
fn convert_record(lane: u32, record: &ring::Record, created: u64) -> Record {
    Record {
        lane,
        point: record.point,
        start: record.start.saturating_sub(created),
        span: record.span,
        exclusive: record.exclusive,
        depth: u32::from(record.depth),
        context: record.context,
    }
}

/// When a measurement ended.
fn end(record: &Record) -> u64 {
    record.start.saturating_add(record.span)
}

/// Gives points the names that people know them by. A name is read once.
fn show_names(known: &mut Vec<(String, Option<String>)>, points: &mut [Point]) {
    known.resize_with(points.len(), Default::default);
    let mut new = Vec::new();
    for (number, (point, (name, shown))) in points.iter().zip(known.iter_mut()).enumerate() {
        if point.name != *name {
            *shown = readable(&point.name);
            name.clone_from(&point.name);
            new.push(number);
        }
    }
    for (number, place) in locate(points, &new) {
        known[number].1 = Some(place);
    }
    for (point, (_, shown)) in points.iter_mut().zip(known) {
        if let Some(shown) = shown {
            point.name.clone_from(shown);
        }
    }
}

/// The cells as a snapshot has them. One that has not changed is that of the
/// snapshot before.
#[derive(Default)]
struct Cells {
    /// By their places in the picture, where a cell keeps its own: as it is, and
    /// as it was before that. Whoever looked at that one has most likely done so,
    /// and its memory serves for the next.
    converted: Vec<[Arc<Cell>; 2]>,
    /// The places, by point and lane.
    order: Vec<usize>,
}

impl Cells {
    /// Those that have any figures.
    fn convert(&mut self, picture: &Picture) -> Vec<Arc<Cell>> {
        let known = self.converted.len();
        self.converted.resize_with(picture.cells.len(), Default::default);
        let changed = || picture.cells.iter().zip(&self.converted);
        let changed = changed().filter(|(reading, _)| reading.changed == picture.poll);
        // Asked for one after the other, and not waited for one by one.
        black_box(changed.fold(0, |sum, (_, [_, old])| sum ^ old.point ^ old.lane));
        for (reading, cell) in picture.cells.iter().zip(&mut self.converted) {
            if reading.changed == picture.poll {
                cell.swap(0, 1);
                if Arc::get_mut(&mut cell[0]).is_none() {
                    cell[0] = Arc::default();
                }
                if let Some(cell) = Arc::get_mut(&mut cell[0]) {
                    fill(cell, reading, picture);
                }
            }
        }
        if known < self.converted.len() {
            self.order = (0..self.converted.len()).collect();
            let cell = |place: usize| &self.converted[place][0];
            self.order.sort_unstable_by_key(|place| (cell(*place).point, cell(*place).lane));
        }
        let whole = self.order.iter().filter(|place| !picture.cells[**place].is_part);
        let cells = whole.map(|place| &self.converted[*place][0]);
        cells.filter(|cell| cell.stats.count > 0 || cell.retired.count > 0).cloned().collect()
    }
}

/// Makes a cell say what a reading does.
fn fill(cell: &mut Cell, reading: &CellReading, picture: &Picture) {
    cell.point = reading.point;
    cell.lane = reading.lane;
    cell.stats = stats(&reading.live);
    cell.retired = stats(&reading.retired);
    cell.histogram.clear();
    // Pushed from within, which is several times as fast as asking for the next.
    reading.histogram.iter().for_each(|BucketCount { low, width, count }| {
        cell.histogram.push(Bucket { low, width, count });
    });
    let parts = reading.variants.iter().map(|place| &picture.cells[*place as usize]);
    cell.variants.clear();
    cell.variants.extend(parts.filter_map(|part| variant(part, picture)));
}

/// What a variant has measured; none if it has not.
fn variant(part: &CellReading, picture: &Picture) -> Option<Variant> {
    let (sums, amounts) = part.all_owners();
    let place = picture.points.binary_search_by_key(&part.point, |point| point.id).ok()?;
    let variant = picture.points[place].variant.as_ref().filter(|_| sums.count > 0)?;
    let names = picture.points.binary_search_by_key(&variant.of, |point| point.id).ok()?;
    let names = picture.points[names].amounts.len();
    let (each, sums_of) = match variant.each {
        Some(each) => (each[..names].to_vec(), Vec::new()),
        None => (Vec::new(), amounts[..names].to_vec()),
    };
    Some(Variant { each, sums: sums_of, stats: stats(&sums) })
}

/// CLOCK_MONOTONIC_RAW, as the header's times are.
fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the structure that we own.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn unix_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

fn name_of(picture: &Picture, facts: &Facts) -> String {
    if picture.name.is_empty() {
        let file = PathBuf::from(&facts.exe);
        file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    } else {
        picture.name.clone()
    }
}

fn state_of(picture: &Picture, dead: bool) -> ProcessState {
    match (picture.exited, dead) {
        (true, _) => ProcessState::Exited,
        (false, true) => ProcessState::Crashed,
        (false, false) => ProcessState::Running,
    }
}

/// A picture as a snapshot with these cells, but for the records and the time
/// elapsed.
fn convert(picture: &Picture, cells: Vec<Arc<Cell>>, facts: &Facts, dead: bool) -> Snapshot {
    let clock = &picture.clock;
    Snapshot {
        format: FORMAT.to_owned(),
        version: VERSION,
        taken_unix_ns: unix_ns(),
        elapsed_ticks: 0,
        process: Process {
            name: name_of(picture, facts),
            exe: facts.exe.clone(),
            pid: facts.pid,
            segment_id: format!("{:032x}", facts.id),
            boot_id: format!("{:032x}", facts.boot_id),
            host: facts.host.clone(),
            started_unix_ns: facts.created_unix_ns,
            state: state_of(picture, dead),
            late_since_unix_ns: None,
            members: Vec::new(),
        },
        clock: Clock {
            kind: match clock.kind {
                header::ClockKind::Rseq => ClockKind::Rseq,
                header::ClockKind::Perf => ClockKind::Perf,
                header::ClockKind::Cputime => ClockKind::Cputime,
                header::ClockKind::Wall => ClockKind::Wall,
            },
            ticks_per_second: clock.ticks_per_second,
            reported_ticks_per_second: clock.reported_ticks_per_second,
            core_hz: clock.core_hz,
            invariant: clock.invariant,
            system_clock: clock.system_clock,
            overhead_inside: clock.overhead_inside,
            overhead_pair: clock.overhead_pair,
        },
        points: picture
            .points
            .iter()
            .filter(|point| point.variant.is_none())
            .map(|point| Point {
                id: point.id,
                name: point.name.clone(),
                file: point.file.clone(),
                line: point.line,
                device: point.device,
                wall: point.wall,
                state: point_state(point.control),
                alpha: point.control.alpha(),
                resets: point.control.epoch(),
                since_ticks: point
                    .reset_ns
                    .map(|ns| ticks_until(ns, facts, clock.ticks_per_second)),
                fenced: point.control.fenced(),
                process: None,
                number: None,
                amounts: point.amounts.clone(),
            })
            .collect(),
        lanes: picture
            .lanes
            .iter()
            .map(|lane| Lane {
                id: lane.id,
                kind: match lane.lane.state {
                    _ if lane.overflow => LaneKind::Overflow,
                    LaneState::Live => LaneKind::Live,
                    LaneState::Free | LaneState::Ended => LaneKind::Ended,
                },
                tid: lane.lane.tid,
                name: if lane.overflow {
                    "(overflow)".to_owned()
                } else {
                    String::from_utf8_lossy(&lane.lane.name).into_owned()
                },
                records_written: lane.written,
                switches: lane.switches,
                process: None,
                clock: None,
                open: Vec::new(),
                unplaced: 0,
                cpu_ns: None,
                amiss: Amiss {
                    mismatched_ends: lane.amiss.mismatched_ends,
                    begins_refused: lane.amiss.begins_refused,
                    clock_anomalies: lane.amiss.clock_anomalies,
                    records_missed: lane.amiss.records_missed,
                },
            })
            .collect(),
        cells,
        ages: Vec::new(),
        edges: Vec::new(),
        records: Vec::new(),
        usage: None,
        summed: None,
        losses: {
            let losses = &picture.losses;
            Losses {
                points_refused: losses.points_refused,
                space_refused: losses.space_refused,
                lanes_overflowed: losses.lanes_overflowed,
                mismatched_ends: losses.mismatched_ends,
                begins_refused: losses.begins_refused,
                clock_anomalies: losses.clock_anomalies,
                records_lost: losses.records_lost,
                cells_busy: losses.cells_busy,
                begins_missed: losses.begins_missed,
                records_missed: losses.records_missed,
            }
        },
    }
}

fn point_state(control: Control) -> PointState {
    match (control.invalid(), control.enabled()) {
        (true, _) => PointState::InvalidBeginBegin,
        (false, true) => PointState::On,
        (false, false) => PointState::Off,
    }
}

fn stats(sums: &Sums) -> Stats {
    Stats {
        count: sums.count,
        exclusive: sums.exclusive,
        inclusive: sums.inclusive,
        off_cpu: sums.off_cpu,
        switches: sums.switches,
        min: sums.min,
        max: sums.max,
        last: sums.last,
        squares: sums.squares,
        average: sums.average(),
    }
}
