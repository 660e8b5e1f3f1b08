//! Converts a picture of a segment to a snapshot.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use pfp_shm_layout::black_box::{BOXES, BoxPicture};
use pfp_shm_layout::calls::{self, CallAllocs, CallSums};
use pfp_shm_layout::control::Control;
use pfp_shm_layout::copy::Note;
use pfp_shm_layout::header::{self, Facts};
use pfp_shm_layout::lane::LaneState;
use pfp_shm_layout::reader::{BucketCount, CellReading, HeapPicture, Picture, Reader};
use pfp_shm_layout::ring;
use pfp_shm_layout::segment::Segment;

use crate::local_time::unix_ns;
use crate::snapshot::{
    AmountTuple, Bucket, Cell, Clock, ClockKind, Edge, EnclosingRegion, End, FORMAT, Heap,
    KernelCounts, Lane, LaneKind, Limit, Loss, Open, Point, PointState, Process, ProcessState,
    Record, SlowCall, Snapshot, VERSION,
};
use crate::waits::{EndedWait, WaitsReport};

/// Makes a snapshot of a copy of a segment. If the copy has no note with a time, `file_unix_ns` is
/// the snapshot's time.
pub(in crate::source) fn of_copy(
    segment: Segment,
    facts: Facts,
    note: Option<Note>,
    file_unix_ns: u64,
) -> Snapshot {
    let mut reader = Reader::new(segment, facts.clone());
    // A copy without a note is a segment that a process left behind, so the process is dead.
    let runs = note.is_some_and(|note| note.runs);
    let picture = reader.poll();
    let cells = CellCache::default().convert(picture);
    let fate = if runs { Fate::Alive { stopped: false } } else { Fate::Dead(None) };
    let mut snapshot = convert(picture, cells, &facts, &fate);
    snapshot.records = records(&reader, &facts).collect();
    snapshot.taken_unix_ns = note.map_or(file_unix_ns, |note| note.taken_unix_ns);
    let rate = snapshot.clock.ticks_per_second;
    // The age of a dead process ends at its last known activity.
    let until =
        note.filter(|_| runs).map_or(0, |note| ticks_until(note.taken_monotonic_ns, &facts, rate));
    snapshot.elapsed_ticks = snapshot.records.iter().map(Record::end).fold(until, u64::max);
    add_calls(&mut snapshot, &reader, &facts);
    let mut slow = SlowCalls::default();
    slow.read(&reader, &facts);
    snapshot.slow = slow.calls();
    if !runs {
        until_last_begin(&mut snapshot);
    }
    bound_resets(&mut snapshot);
    snapshot
}

/// Adds the edges and the open regions to a snapshot.
pub(super) fn add_calls(snapshot: &mut Snapshot, reader: &Reader, facts: &Facts) {
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
                // A wall clock also counts time off the CPU.
                ClockKind::Wall if runs => Some(so_far),
                ClockKind::Wall => None,
                _ => own_cpu.and_then(|now| {
                    let ns = now.checked_sub(of_lane.cpu)?;
                    let now = (ns as f64 / 1e9 * snapshot.clock.ticks_per_second) as u64;
                    // The thread's CPU time when the region began. Like `now`, it is counted from
                    // the moment at which the thread claimed its lane.
                    let then = open.start.checked_sub(claimed)?.checked_sub(open.off)?;
                    // The kernel updates a thread's time only a few times in 10 ms, so it may lag
                    // behind.
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
            let CallAllocs { allocs, bytes, bytes_inclusive } = call.allocs;
            Some(Edge {
                point: call.callee,
                caller,
                lane: of_lane.lane,
                count,
                exclusive,
                inclusive,
                allocs,
                alloc_bytes: bytes,
                alloc_bytes_inclusive: bytes_inclusive,
            })
        }));
    }
    snapshot.edges.sort_unstable_by_key(Edge::key);
}

/// Extends the age of a dead process to the last begin of an open region: such a region has no
/// record yet, but its begin shows that the process still lived.
pub(super) fn until_last_begin(snapshot: &mut Snapshot) {
    let begins = snapshot.lanes.iter().flat_map(|lane| &lane.open).map(|open| open.start);
    snapshot.elapsed_ticks = begins.fold(snapshot.elapsed_ticks, u64::max);
}

/// The rings' records, lane by lane.
pub(super) fn records(reader: &Reader, facts: &Facts) -> impl Iterator<Item = Record> + use<> {
    let created = facts.created_ticks;
    reader.records().into_iter().map(move |(lane, record)| convert_record(lane, &record, created))
}

/// Ticks from the segment's creation to a moment of CLOCK_MONOTONIC_RAW.
pub(super) fn ticks_until(monotonic_ns: u64, facts: &Facts, ticks_per_second: f64) -> u64 {
    let ns = monotonic_ns.saturating_sub(facts.created_monotonic_ns);
    (ns as f64 / 1e9 * ticks_per_second) as u64
}

/// Limits the times of resets to the snapshot's age: the viewer that resets a point writes the
/// time, and that time may be wrong.
pub(super) fn bound_resets(snapshot: &mut Snapshot) {
    for point in &mut snapshot.points {
        point.since_ticks = point.since_ticks.map(|since| since.min(snapshot.elapsed_ticks));
    }
}

/// Converts a record of a ring; ticks count from the segment's creation.
pub(super) fn convert_record(lane: u32, record: &ring::Record, created: u64) -> Record {
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

/// Maximum number of records of other threads that a slow call gets: the longest.
const MOST_OTHERS: usize = 2_500;

/// Maximum number of waits that are compared with slow calls: the last ones.
const MOST_WAITS: usize = 4_000;

/// The slow calls of a process.
#[derive(Default)]
pub(super) struct SlowCalls {
    /// The calls, by the place of their boxes.
    calls: [Option<Arc<SlowCall>>; BOXES],
    /// The waits that have ended. They are kept, since the call around a wait may end later.
    waits: VecDeque<EndedWait>,
    /// Number of the report that was read last.
    report: u64,
}

impl SlowCalls {
    /// Reads the calls that are new.
    pub(super) fn read(&mut self, reader: &Reader, facts: &Facts) {
        let numbers =
            self.calls.each_ref().map(|known| known.as_ref().map_or(0, |call| call.number));
        let mut new = Vec::new();
        reader.boxes(
            |place| numbers[place],
            |place, copy| new.push((place, convert_box(copy, facts.created_ticks))),
        );
        if new.is_empty() {
            return;
        }
        // The rings of the other threads may still reach back to the calls.
        let rings: Vec<Record> = records(reader, facts).collect();
        for (place, mut call) in new {
            let during = |record: &&Record| {
                record.lane != call.lane && record.end() > call.start && record.start < call.end()
            };
            call.others = longest(rings.iter().filter(during).copied().collect(), MOST_OTHERS);
            self.calls[place] = Some(Arc::new(call));
        }
    }

    /// Finds out what the calls have waited for. `rate` is the number of ticks in a second.
    pub(super) fn take_waits(&mut self, report: &WaitsReport, rate: f64) {
        if report.number != self.report {
            self.report = report.number;
            self.waits.extend(report.ended.iter().cloned());
            let more = self.waits.len().saturating_sub(MOST_WAITS);
            self.waits.drain(..more);
        }
        let calls = self.calls.iter_mut().flatten();
        for call in calls.filter(|it| it.waited_for.is_none() && it.context == 0 && it.off_cpu > 0)
        {
            if let Some(reason) = waited_for(call, &self.waits, rate) {
                Arc::make_mut(call).waited_for = Some(reason);
            }
        }
    }

    /// The calls, by lane and number.
    pub(super) fn calls(&self) -> Vec<Arc<SlowCall>> {
        let mut calls: Vec<_> = self.calls.iter().flatten().cloned().collect();
        calls.sort_by_key(|call| call.key());
        calls
    }
}

/// The reason that took more than half of a call's time off the CPU, if samples saw one.
fn waited_for(call: &SlowCall, waits: &VecDeque<EndedWait>, rate: f64) -> Option<String> {
    const MS: u64 = 1_000_000;
    let ns = |ticks: u64| (ticks as f64 / rate * 1e9) as u64;
    // The call ended within this millisecond.
    let end = call.unix_ms.saturating_add(1).saturating_mul(MS);
    let begin = end.saturating_sub(ns(call.span)).saturating_sub(MS);
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    let is_inside =
        |wait: &&EndedWait| wait.lane == call.lane && (begin..=end).contains(&wait.seen_ns);
    for wait in waits.iter().filter(is_inside) {
        let lasted = wait.until_ns.min(end).saturating_sub(wait.since_ns.max(begin));
        *sums.entry(&wait.reason).or_default() += lasted;
    }
    let (reason, most) = sums.into_iter().max_by_key(|(_, sum)| *sum)?;
    // The millisecond at each edge may be of another call.
    (most > (ns(call.off_cpu) / 2).max(2 * MS)).then(|| reason.to_owned())
}

/// The longest records, by lane and end.
fn longest(mut records: Vec<Record>, most: usize) -> Vec<Record> {
    if records.len() > most {
        records.select_nth_unstable_by_key(most, |record| Reverse(record.span));
        records.truncate(most);
        records.sort_by_key(|record| (record.lane, record.end()));
    }
    records
}

fn convert_box(copy: BoxPicture, created: u64) -> SlowCall {
    let BoxPicture { number, facts, why, enclosing, records } = copy;
    // Another process may have written any number.
    let id = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let lane = id(facts.lane);
    let limit = Control(facts.control).limit();
    let kernel = KernelCounts {
        waits: facts.waits,
        preemptions: facts.preemptions,
        minor_faults: facts.minor_faults,
        major_faults: facts.major_faults,
        before: facts.before,
    };
    let around = enclosing.into_iter().map(|region| EnclosingRegion {
        point: region.point,
        start: region.start.saturating_sub(created),
    });
    SlowCall {
        number,
        point: id(facts.point),
        lane,
        tid: id(facts.tid),
        context: id(facts.context),
        depth: id(facts.depth) % 256,
        unix_ms: facts.unix_ms,
        start: facts.start.saturating_sub(created),
        span: facts.span,
        inclusive: facts.inclusive,
        exclusive: facts.exclusive,
        off_cpu: facts.off_cpu,
        switches: facts.switches,
        limit: limit.map(Limit::from),
        why,
        waited_for: None,
        kernel: (facts.is_usage_known == 1).then_some(kernel),
        enclosing: around.collect(),
        records: records.iter().map(|record| convert_record(lane, record, created)).collect(),
        others: Vec::new(),
    }
}

/// The converted cells of the last snapshots, so that snapshots share unchanged cells.
#[derive(Default)]
pub(super) struct CellCache {
    /// The last two versions of each cell, by its fixed index in the picture. The older version is
    /// most likely not in use any more, so its memory is reused for the next.
    converted: Vec<[Arc<Cell>; 2]>,
    /// The indices, sorted by point and lane.
    order: Vec<usize>,
}

impl CellCache {
    /// Converts the cells that have figures.
    pub(super) fn convert(&mut self, picture: &Picture) -> Vec<Arc<Cell>> {
        let known = self.converted.len();
        self.converted.resize_with(picture.cells.len(), Default::default);
        let changed = || picture.cells.iter().zip(&self.converted);
        let changed = changed().filter(|(reading, _)| reading.changed == picture.poll);
        // Touch all changed cells first, so that cache misses overlap.
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
        cells.filter(|cell| cell.has_figures()).cloned().collect()
    }
}

/// Fills a cell from a reading.
pub(super) fn fill(cell: &mut Cell, reading: &CellReading, picture: &Picture) {
    cell.point = reading.point;
    cell.lane = reading.lane;
    cell.stats.clone_from(&reading.live);
    cell.retired.clone_from(&reading.retired);
    cell.histogram.clear();
    // `for_each` is several times as fast as calling `next`.
    reading.histogram.iter().for_each(|BucketCount { low, width, count }| {
        cell.histogram.push(Bucket { low, width, count });
    });
    let parts = reading.parts.iter().map(|place| &picture.cells[*place as usize]);
    (cell.allocs, cell.heap) = (reading.allocs, reading.heap);
    cell.tuples.clear();
    cell.tuples.extend(parts.filter_map(|part| tuple(part, picture)));
}

/// Converts the cell for one tuple of amounts, or the metered point's own cell, which has the
/// measurements without a tuple. `None` if the cell has no measurements.
pub(super) fn tuple(part: &CellReading, picture: &Picture) -> Option<AmountTuple> {
    let (stats, amounts) = part.all_owners();
    let find = |id: u32| {
        let place = picture.points.binary_search_by_key(&id, |point| point.id).ok()?;
        Some(&picture.points[place])
    };
    let point = find(part.point).filter(|_| stats.count > 0)?;
    let names = find(point.tuple.map_or(point.id, |tuple| tuple.of))?.amounts.len();
    let (each, sums) = match point.tuple {
        Some(tuple) => (tuple.each[..names].to_vec(), Vec::new()),
        None => (Vec::new(), amounts[..names].to_vec()),
    };
    Some(AmountTuple { each, sums, stats })
}

pub(super) fn name_of(picture: &Picture, facts: &Facts) -> String {
    if picture.name.is_empty() {
        let file = PathBuf::from(&facts.exe);
        file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    } else {
        picture.name.clone()
    }
}

/// The state of a process as known from outside its segment.
#[derive(Clone, Debug)]
pub(super) enum Fate {
    /// The process exists; `stopped` is whether a signal has stopped it.
    Alive { stopped: bool },
    /// The process is dead; the value is how it ended, if known.
    Dead(Option<End>),
}

pub(super) fn state_of(picture: &Picture, fate: &Fate) -> ProcessState {
    match fate {
        Fate::Dead(end) => ProcessState::of_dead(picture.exited, end.as_ref()),
        Fate::Alive { .. } if picture.exited => ProcessState::Exited,
        Fate::Alive { .. } => ProcessState::Running,
    }
}

/// Makes a snapshot of a picture and these cells, without records and elapsed time.
pub(super) fn convert(
    picture: &Picture,
    cells: Vec<Arc<Cell>>,
    facts: &Facts,
    fate: &Fate,
) -> Snapshot {
    let clock = &picture.clock;
    Snapshot {
        format: FORMAT.to_owned(),
        version: VERSION,
        taken_unix_ns: unix_ns(SystemTime::now()),
        process: Process {
            name: name_of(picture, facts),
            exe: facts.exe.clone(),
            pid: facts.pid,
            segment_id: format!("{:032x}", facts.id),
            boot_id: format!("{:032x}", facts.boot_id),
            host: facts.host.clone(),
            started_unix_ns: facts.created_unix_ns,
            state: state_of(picture, fate),
            stopped: matches!(fate, Fate::Alive { stopped: true }) && !picture.exited,
            end: match fate {
                Fate::Dead(end) => end.clone(),
                Fate::Alive { .. } => None,
            },
            ..Process::default()
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
        slow_dropped: picture.calls_dropped(),
        heap: (picture.heap != HeapPicture::default()).then(|| {
            let HeapPicture { live_bytes, live_samples, peak_bytes } = picture.heap;
            Heap { live_bytes, live_samples, peak_bytes }
        }),
        points: picture
            .points
            .iter()
            .filter(|point| point.tuple.is_none())
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
                counts_allocs: point.control.counts_allocs(),
                limit: point.control.limit().map(Limit::from),
                slow_calls: point.slow_calls.into(),
                amounts: point.amounts.clone(),
                ..Point::default()
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
                amiss: [
                    (Loss::MismatchedEnds, lane.errors.mismatched_ends),
                    (Loss::BeginsRefused, lane.errors.begins_refused),
                    (Loss::ClockAnomalies, lane.errors.clock_anomalies),
                    (Loss::RecordsMissed, lane.errors.records_missed),
                ]
                .into_iter()
                .collect(),
                ..Lane::default()
            })
            .collect(),
        cells,
        losses: (&picture.losses).into(),
        ..Snapshot::default()
    }
}

pub(super) fn point_state(control: Control) -> PointState {
    match (control.invalid(), control.enabled()) {
        (true, _) => PointState::InvalidBeginBegin,
        (false, true) => PointState::On,
        (false, false) => PointState::Off,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_fills_most_of_the_time_off_the_cpu() {
        let ms = |ms: u64| 1_000_000 * ms;
        let wait = |lane, reason: &str, since, seen, until| EndedWait {
            lane,
            reason: reason.into(),
            since_ns: ms(since),
            seen_ns: ms(seen),
            until_ns: ms(until),
        };
        // From 80 to 100 ms.
        let call = |off_cpu| SlowCall {
            lane: 1,
            unix_ms: 100,
            span: ms(20),
            off_cpu: ms(off_cpu),
            ..SlowCall::default()
        };
        let found = |off_cpu, waits: &[EndedWait]| {
            waited_for(&call(off_cpu), &waits.iter().cloned().collect(), 1e9)
        };
        let lock = |since, until| wait(1, "lock", since, until - 1, until);
        assert_eq!(found(10, &[lock(85, 95)]).as_deref(), Some("lock"));
        let halves = [lock(82, 85), wait(1, "read", 86, 88, 90), lock(91, 95)];
        assert_eq!(found(12, &halves).as_deref(), Some("lock"), "in all");
        assert_eq!(found(18, &halves), None, "not most of it");
        assert_eq!(found(10, &[wait(2, "lock", 85, 94, 95)]), None, "of another thread");
        assert_eq!(found(10, &[wait(1, "lock", 60, 78, 95)]), None, "not seen in the call");
        assert_eq!(found(1, &[wait(1, "queue", 60, 80, 81)]), None, "the wait before the call");
    }

    #[test]
    fn the_longest_records_are_kept_in_their_order() {
        let record = |lane, start, span| Record {
            lane,
            point: 1,
            start,
            span,
            exclusive: span,
            depth: 0,
            context: 0,
        };
        let all = vec![record(0, 5, 9), record(0, 20, 2), record(1, 0, 3), record(1, 4, 50)];
        let most = longest(all.clone(), 3);
        assert_eq!(most, [all[0], all[2], all[3]]);
        assert_eq!(longest(all.clone(), 4), all);
    }
}
