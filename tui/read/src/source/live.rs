//! Finds and watches the processes of this machine through their segments.

mod names;
pub(super) mod picture;
mod switches;
mod waits;

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, anyhow, bail};
use pfp_shm_layout::beacon::Info;
use pfp_shm_layout::control::{self, Alpha, Change as Control};
use pfp_shm_layout::copy::{Dense, Note, SegmentCopy};
use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::find::{self, Entry};
use pfp_shm_layout::header::{Facts, FormatError};
use pfp_shm_layout::liveness::{Identity, Liveness, Watch, is_stopped};
use pfp_shm_layout::name::Name;
use pfp_shm_layout::object;
use pfp_shm_layout::reader::Reader;
use pfp_shm_layout::segment::{OpenError, Segment};
use pfp_shm_layout::{time_namespace, truncation};

use super::guard::clean_discovery;
use super::namespaces::{effective_user, ids_here, is_own};
use super::place::Objects;
use super::usage;
use super::{Acted, Candidate, Change, Discovery, Refusal, Source};
use crate::files::atomic_file::{self, Existing};
use crate::files::zstd_file;
use crate::local_time::unix_ns;
use crate::snapshot::{Drained, End, LaneKind, Limit, PointFlag, ProcessState, Record, Snapshot};
use crate::waits::WaitNeeds;
use names::Names;
use picture::{
    CellCache, Fate, SlowCalls, add_calls, bound_resets, convert, convert_record, name_of,
    point_state, records, state_of, ticks_until, until_last_begin,
};
use switches::Switches;
use waits::Waits;

/// How long a screen waits for names from the program's object files: too short for a user to
/// notice, and long enough that the names of most programs do not change before the user's eyes.
const FOR_NAMES: Duration = Duration::from_millis(20);

/// Finds the processes of this user.
pub fn discover() -> Result<Discovery> {
    let (found, unread) = find::find_everywhere();
    let mut discovery = Discovery { searched: Directory::candidates(), ..Discovery::default() };
    for why in unread {
        let why = Refusal::Permission(format!(
            "{why}; if that cannot be repaired, set PFP_DIR to another folder for programs and \
             viewers"
        ));
        discovery.refuse(None, why);
    }
    // The pid namespace of each candidate, and its process id in that namespace.
    let mut insides = Vec::new();
    for mut place in found {
        if let Ok(dir) = Directory::open(&place.looked_in) {
            find::trim(&dir, &mut place, find::KEEP);
        }
        for (path, why) in place.unreadable {
            discovery.refuse(None, Refusal::Version(format!("{}: {why}", path.display())));
        }
        for entry in place.entries {
            discovery.stale += usize::from(entry.state == Liveness::Dead);
            // If the beacon's segment does not exist, the process is just starting or ending.
            if entry.object_bytes.is_none() {
                continue;
            }
            let process = &entry.info.process;
            match candidate(&entry) {
                Ok(candidate) => {
                    insides.push((process.pidns, process.pid));
                    discovery.candidates.push(candidate);
                }
                Err(why) => discovery.refuse(Some(process.pid), why),
            }
        }
    }
    let running = discovery.candidates.iter().zip(&insides).filter(|(c, _)| c.runs());
    let here = ids_here(running.map(|(_, inside)| *inside));
    for (candidate, inside) in discovery.candidates.iter_mut().zip(&insides) {
        if candidate.runs() {
            candidate.pid_here = here.get(inside).copied();
            let own = is_own(inside.0).then_some(inside.1);
            candidate.stopped = candidate.pid_here.or(own).is_some_and(is_stopped);
        }
    }
    clean_discovery(&mut discovery);
    Ok(discovery)
}

/// The files by which processes announce themselves. After a new file appears, [`discover`] may
/// find more processes; listing the files costs next to nothing.
pub fn announced() -> BTreeSet<PathBuf> {
    let files = Directory::candidates().into_iter().filter_map(|path| std::fs::read_dir(path).ok());
    files.flat_map(|files| files.flatten().map(|file| file.path())).collect()
}

fn candidate(entry: &Entry) -> Result<Candidate, Refusal> {
    let (mut reader, facts) = open(&entry.info)?;
    let process = &entry.info.process;
    let pid = is_own(process.pidns).then_some(process.pid);
    let run = reader.segment().counters().run.load(Relaxed);
    let picture = reader.outline();
    let fate = match entry.state {
        Liveness::Alive => Fate::Alive { stopped: false },
        // The segment records a clean exit.
        _ if picture.exited => Fate::Dead(None),
        _ => Fate::Dead(pid.and_then(|pid| process.end(pid)).map(End::from)),
    };
    let candidate = Candidate {
        name: name_of(picture, &facts),
        exe: facts.exe.clone(),
        pid: facts.pid,
        pid_here: None,
        segment_id: format!("{:032x}", facts.id),
        state: state_of(picture, &fate),
        stopped: false,
        end: match fate {
            Fate::Dead(end) => end,
            Fate::Alive { .. } => None,
        },
        started_unix_ns: facts.created_unix_ns,
        points: picture.points.iter().filter(|point| point.tuple.is_none()).count() as u32,
        run,
        awaited: false,
        place: None,
    };
    whole(&reader).map_err(|why| Refusal::NoTarget(why.to_string()))?;
    Ok(candidate)
}

/// Opens a segment. A truncation of the segment would cause SIGBUS, so this first makes the calling
/// process survive that signal.
fn open(info: &Info) -> Result<(Reader, Facts), Refusal> {
    if let Err(error) = truncation::survive() {
        return Err(Refusal::NoTarget(format!("cannot install a handler for SIGBUS: {error}")));
    }
    match Segment::open(&info.object) {
        Ok((segment, facts)) => Ok((Reader::new(segment, facts.clone()), facts)),
        Err(OpenError::Format(error @ FormatError::Version { .. })) => {
            Err(Refusal::Version(error.to_string()))
        }
        Err(OpenError::Io(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(Refusal::Permission(format!("{}: {error}", info.object)))
        }
        Err(error) => Err(Refusal::NoTarget(format!("{}: {error}", info.object))),
    }
}

/// Checks that the segment has not been truncated: bytes that a reader reads after a truncation are
/// zeros.
fn whole(reader: &Reader) -> Result<()> {
    let segment = reader.segment();
    if segment.is_cut() {
        let name = segment.name().map_or_else(String::new, ToString::to_string);
        let bytes = segment.geometry().len();
        bail!(
            "the segment was truncated: expected {bytes} bytes of {name}; showing the last \
             figures, restart the program"
        );
    }
    Ok(())
}

/// Attaches to a process that [`discover`] found.
pub fn attach(candidate: &Candidate) -> Result<Box<dyn Source>> {
    let place = Name::from_hex(candidate.segment_id.as_bytes()).and_then(|object| {
        let places = Directory::candidates().into_iter();
        let mut places = places.filter_map(|path| Directory::open(&path).ok());
        places.find_map(|directory| {
            let entry = find::find_one(&directory, &object)?;
            Some((directory, entry))
        })
    });
    let ended = || {
        let why = format!("{} [{}] has ended", candidate.name, candidate.pid);
        anyhow!(Refusal::NoTarget(why))
    };
    let (directory, entry) = place.ok_or_else(ended)?;
    let mut watch = entry.info.watch(&directory)?.ok_or_else(ended)?;
    let inside = &entry.info.process;
    let pid = candidate.pid_here.or_else(|| is_own(inside.pidns).then_some(inside.pid));
    if let Some(pid) = pid {
        watch.follow(pid);
    }
    let (reader, facts) = open(&entry.info).map_err(|why| anyhow!(why))?;
    Ok(Box::new(LiveSource {
        reader,
        switches: Switches::new(directory, entry.info.object),
        facts,
        watch,
        dead: false,
        cells: CellCache::default(),
        slow: SlowCalls::default(),
        names: Names::default(),
        waits: Waits::default(),
        interval: None,
        last: None,
        elapsed_ticks: 0,
        pid,
        threads_of: (inside.pidns != 0 && is_own(inside.pidns)).then_some(inside.pid),
    }))
}

/// Removes the leftovers of ended processes; returns a line for each thing removed.
pub fn gc() -> Result<Vec<String>> {
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
    for lost in LostSegment::all().into_iter().filter(|lost| !lost.runs) {
        let exe = &lost.facts.exe;
        let (pid, kib) = (lost.facts.pid, lost.bytes / 1024);
        lines.push(match object::unlink(&lost.object) {
            Ok(()) => format!("removed {exe} [{pid}], {kib} KiB, whose beacon was gone"),
            Err(error) => format!("kept {}: {error}", lost.object),
        });
    }
    Ok(lines)
}

/// A copy of a process's segment, to be written to a file.
#[derive(Debug)]
pub struct RawCopy {
    copy: SegmentCopy,
    note: Note,
}

impl RawCopy {
    /// Writes the file, whole or not at all; compressed if the name ends in `.zst`.
    ///
    /// # Errors
    ///
    /// The file cannot be written, or it exists and may not be replaced.
    pub fn write(&self, path: &Path, existing: Existing) -> io::Result<()> {
        atomic_file::write_file(path, existing, |file| {
            if zstd_file::is_named(path) {
                zstd_file::write(file, |out| self.copy.write(&mut Dense(out), Some(&self.note)))
            } else {
                self.copy.write(file, Some(&self.note))
            }
        })
    }
}

/// A segment of this user whose beacon was removed from its folder, so that viewers cannot find the
/// segment any more.
#[derive(Debug)]
pub struct LostSegment {
    /// The segment's object.
    pub object: Name,
    /// The facts in the segment's header.
    pub facts: Facts,
    /// Memory that the segment uses, bytes.
    pub bytes: u64,
    /// Whether the segment's process runs, or may run in another or an unknown pid namespace.
    pub runs: bool,
}

impl LostSegment {
    /// Checks every object in `/dev/shm`.
    pub fn all() -> Vec<Self> {
        let files = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        let names = files.map(|file| format!("/{}", file.file_name().to_string_lossy()));
        names.filter_map(|name| Self::of(Name::parse(&name)?)).collect()
    }

    /// Checks one object. `None` if the object is not a segment of this user, or if its beacon
    /// exists.
    pub fn of(object: Name) -> Option<Self> {
        let about = std::fs::symlink_metadata(format!("/dev/shm{object}")).ok()?;
        if about.uid() != effective_user() || truncation::survive().is_err() {
            return None;
        }
        let (_, facts) = Segment::open(&object).ok()?;
        let beacon = Path::new(&facts.folder).join(format!("{}.beacon", object.hex()));
        let is_gone = |file: &Path| {
            file.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        };
        if facts.folder.is_empty() || !is_gone(&beacon) {
            return None;
        }
        let here = Identity::of_this_process();
        // An object in `/dev/shm` is from this boot, even if its program could not read the boot
        // id.
        let boot = if facts.boot_id == 0 { here.boot } else { facts.boot_id };
        let (pid, start, pidns) = (facts.pid, facts.start_time, facts.pid_namespace);
        let process = Identity { pid, start, boot, pidns };
        let runs = process.judged_from(&here) == Liveness::Alive;
        Some(Self { object, facts, bytes: about.blocks() * 512, runs })
    }
}

/// A process that is watched through its segment.
struct LiveSource {
    reader: Reader,
    switches: Switches,
    facts: Facts,
    watch: Watch,
    /// Whether the process was found dead, so that its figures no longer change.
    dead: bool,
    cells: CellCache,
    slow: SlowCalls,
    names: Names,
    waits: Waits,
    /// Maximum time until the next poll. `None` for a command, which has no screen.
    interval: Option<Duration>,
    /// The last picture of a dead process, with the names that the program reports.
    last: Option<Snapshot>,
    elapsed_ticks: u64,
    /// The process's id in this viewer's /proc. `None` if the process has no id there.
    pid: Option<u32>,
    /// The process's id, if the thread ids in its lanes are valid in this viewer's /proc. `None` if
    /// the process has another pid namespace.
    threads_of: Option<u32>,
}

impl Source for LiveSource {
    fn set_interval(&mut self, within: Option<Duration>) {
        self.interval = within;
    }

    fn picture(&mut self) -> Result<Snapshot> {
        let mut snapshot = match &self.last {
            Some(last) => last.clone(),
            None => self.read_picture()?,
        };
        let timeout = self.interval.map_or(Duration::MAX, |_| FOR_NAMES);
        let loaded = self.objects();
        self.names.show(&mut snapshot.points, loaded, timeout);
        let report = self.waits.report();
        if let Some(report) = &report {
            self.slow.take_waits(report, snapshot.clock.ticks_per_second);
        }
        snapshot.slow = self.slow.calls();
        // A process that had ended before has no samples.
        snapshot.waits = report.filter(|report| !self.dead || report.samples > 0);
        Ok(snapshot)
    }

    fn need_waits(&mut self, needs: WaitNeeds) {
        self.waits.need(needs, self.facts.id);
    }

    fn open_stacks(&mut self) -> Option<Vec<(u32, Vec<u32>)>> {
        (!self.dead).then(|| self.reader.open_stacks())
    }

    fn pid_here(&self) -> Option<u32> {
        self.pid.filter(|_| !self.dead)
    }

    fn has_died(&self) -> bool {
        self.dead
    }

    fn end(&self) -> Option<End> {
        self.watch.end().map(End::from)
    }

    fn add_records(&mut self, snapshot: &mut Snapshot) {
        let taken = snapshot.elapsed_ticks;
        snapshot.records = self.records().filter(|record| record.end() <= taken).collect();
    }

    fn new_records(&mut self, snapshot: &Snapshot, from: &dyn Fn(u32) -> u64) -> Vec<Drained> {
        let created = self.facts.created_ticks;
        let mut all = Vec::new();
        self.reader.drain(from, |lane, drained, records| {
            let place = snapshot.lanes.binary_search_by_key(&lane, |lane| lane.id);
            let Ok(place) = place else { return };
            let from = from(lane);
            // Later records belong to the next snapshot.
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

    fn copy_raw(&mut self) -> io::Result<RawCopy> {
        // Check liveness before copying, as for a picture. Read the time after copying, so that no
        // record in the copy is later.
        let runs = !matches!(self.watch.judge(), Ok(Liveness::Dead | Liveness::Gone));
        let copy = SegmentCopy::of(self.reader.segment())?;
        let note = Note {
            taken_unix_ns: unix_ns(SystemTime::now()),
            taken_monotonic_ns: monotonic_ns(),
            runs,
        };
        Ok(RawCopy { copy, note })
    }

    fn act(&mut self, change: Change) -> Result<Acted> {
        if self.dead {
            bail!("the process has ended; nothing can be changed in it");
        }
        let (point, change) = match change {
            Change::Enable(point) => (point, Control::Enable),
            Change::Disable(point) => (point, Control::Disable),
            Change::Reset(point) => (point, Control::Reset),
            Change::SetFlag(point, PointFlag::Fenced, on) => (point, Control::Fence(on)),
            Change::SetFlag(point, PointFlag::CountsAllocs, on) => {
                (point, Control::CountAllocs(on))
            }
            Change::SetLimit(point, None) => (point, Control::Limit(None)),
            Change::SetLimit(point, Some(Limit { ns, cpu })) => {
                let limit = control::Limit::new(ns, cpu)
                    .ok_or_else(|| anyhow!("expected a time from 1us to 99s, found {ns} ns"))?;
                (point, Control::Limit(Some(limit)))
            }
            Change::SetAlpha(point, None) => (point, Control::Alpha(Alpha::OFF)),
            Change::SetAlpha(point, Some(alpha)) => {
                let alpha = Alpha::new(alpha).ok_or_else(|| {
                    anyhow!("expected a weight in (0, 1], found {alpha}; it is period / tau")
                })?;
                (point, Control::Alpha(alpha))
            }
        };
        let on = match change {
            Control::Enable => Some(true),
            Control::Disable => Some(false),
            _ => None,
        };
        if let Some(on) = on {
            // Note the switch before making it, since the viewer may be killed in between.
            self.switches.note(point, on);
        }
        let Some(before) = self.reader.change(point, change, monotonic_ns()) else {
            self.switches.retract(point);
            bail!("the process has no point {point}");
        };
        Ok(Acted::Made(on.map(|on| self.switches.confirm(point, on, point_state(before)))))
    }
}

impl LiveSource {
    /// The next picture, with the names that the program reports.
    fn read_picture(&mut self) -> Result<Snapshot> {
        // Check liveness before reading: if the process is dead by now, all its writes are done,
        // and the reading below is its last state.
        self.dead = matches!(self.watch.judge(), Ok(Liveness::Dead | Liveness::Gone));
        self.reader.poll();
        // Check after reading: bytes that were cut off before the check may have been read as
        // zeros.
        whole(&self.reader)?;
        let picture = self.reader.picture();
        let cells = self.cells.convert(picture);
        let fate = match self.dead {
            true => Fate::Dead(self.watch.end().map(End::from)),
            false => Fate::Alive { stopped: self.pid.is_some_and(is_stopped) },
        };
        let mut snapshot = convert(picture, cells, &self.facts, &fate);
        self.elapsed_ticks = self.ticks_until_now(&snapshot);
        snapshot.elapsed_ticks = self.elapsed_ticks;
        let of = self.threads_of.filter(|_| snapshot.process.state == ProcessState::Running);
        for lane in snapshot.lanes.iter_mut().filter(|lane| lane.kind == LaneKind::Live) {
            lane.cpu_ns = of.and_then(|process| cpu_ns(process, lane.tid));
        }
        add_calls(&mut snapshot, &self.reader, &self.facts);
        self.slow.read(&self.reader, &self.facts);
        if self.dead {
            until_last_begin(&mut snapshot);
            self.elapsed_ticks = snapshot.elapsed_ticks;
        }
        bound_resets(&mut snapshot);
        if self.dead {
            self.last = Some(snapshot.clone());
        } else {
            snapshot.usage = self.pid.and_then(usage::of);
            self.switches.mark_left_over(&mut snapshot.points);
        }
        Ok(snapshot)
    }

    fn records(&self) -> impl Iterator<Item = Record> {
        records(&self.reader, &self.facts)
    }

    fn objects(&self) -> Objects {
        Objects {
            running: self.pid.filter(|_| !self.dead),
            started_unix_ns: is_own(self.facts.pid_namespace).then_some(self.facts.created_unix_ns),
        }
    }

    /// Ticks since the segment was created; for a dead process, up to its last known activity.
    fn ticks_until_now(&self, snapshot: &Snapshot) -> u64 {
        if self.dead {
            return self.records().map(|record| record.end()).fold(self.elapsed_ticks, u64::max);
        }
        ticks_until(monotonic_ns(), &self.facts, snapshot.clock.ticks_per_second)
    }
}

/// The CPU time of a thread, nanoseconds.
fn cpu_ns(process: u32, thread: u32) -> Option<u64> {
    let path = format!("/proc/{process}/task/{thread}/schedstat");
    std::fs::read_to_string(path).ok()?.split_ascii_whitespace().next()?.parse().ok()
}

/// CLOCK_MONOTONIC_RAW of the initial time namespace, as for the times in the segment's header.
fn monotonic_ns() -> u64 {
    let ns = usage::time_of(libc::CLOCK_MONOTONIC_RAW).unwrap_or(0);
    ns.saturating_add_signed(time_namespace::monotonic_offset_ns().saturating_neg())
}
