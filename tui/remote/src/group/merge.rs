//! Merges the last pictures of all members of a group into one snapshot.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use super::{GroupMember, GroupSource, PointKey};
use pfp_read::snapshot::{
    Cell, Clock, ClockKind, Edge, EnclosingRegion, FORMAT, Heap, Lane, LaneKind, Open, Point,
    PointFlag, PointState, Process, ProcessState, Record, SlowCall, Snapshot, Usage, VERSION,
};
use pfp_read::waits::{ReportPart, WaitsReport};

impl GroupSource {
    /// Makes one snapshot of the last pictures of all members.
    pub(super) fn merge(&mut self) -> Snapshot {
        let state = self.state();
        let rate = self.rate();
        let elapsed_ticks = self.age(state, rate);
        let first = &self.members[0].last;
        let mut whole = Snapshot {
            format: FORMAT.to_owned(),
            version: VERSION,
            taken_unix_ns: first.taken_unix_ns,
            elapsed_ticks,
            process: Process { segment_id: self.id.clone(), ..first.process.clone() },
            clock: Clock { ticks_per_second: rate, ..first.clock.clone() },
            ..Snapshot::default()
        };
        self.routes.clear();
        // Each point's index in the merged snapshot, by its id.
        let mut places: HashMap<u32, usize> = HashMap::new();
        for (place, member) in self.members.iter_mut().enumerate() {
            let last = &member.last;
            let process = &last.process;
            let running = process.state == ProcessState::Running;
            let age = last.elapsed_ticks;
            let began = *member.began.get_or_insert(elapsed_ticks.saturating_sub(age));
            for point in &last.points {
                let id = *member.points.entry(point.id).or_insert_with(|| {
                    let next = self.points;
                    let id = match self.wanted.sum {
                        true => {
                            let key = shared_key(point, &mut member.names);
                            *self.ids.entry(key).or_insert(next)
                        }
                        false => next,
                    };
                    self.points += u32::from(id == next);
                    id
                });
                self.routes.entry(id).or_default().push((place, point.id));
                // In the merged snapshot, a point without `since_ticks` began with the oldest
                // process.
                let begin = point.begin_ticks().map(|begin| began.saturating_add(begin));
                let since_ticks = if began == 0 { point.since_ticks } else { begin };
                match places.get(&id) {
                    None => {
                        places.insert(id, whole.points.len());
                        whole.points.push(Point {
                            id,
                            since_ticks,
                            number: Some(point.number.unwrap_or(point.id)),
                            process: (!self.wanted.sum).then_some(place as u32),
                            ..point.clone()
                        });
                    }
                    Some(at) => add_point(&mut whole.points[*at], point, begin, running),
                }
            }
            let mut lane_id = |lane: u32| {
                *member.lanes.entry(lane).or_insert_with(|| {
                    self.lanes += 1;
                    self.lanes - 1
                })
            };
            for lane in &last.lanes {
                let id = lane_id(lane.id);
                let name = format!("{process} {}", lane.name);
                // No thread outlives its process, whatever its lane contains.
                let kind = match lane.kind {
                    LaneKind::Live if !running => LaneKind::Ended,
                    kind => kind,
                };
                let clock = Some(last.clock.kind);
                let process = Some(place as u32);
                let open = lane.open.iter().filter_map(|open| {
                    let start = began.saturating_add(open.start);
                    Some(Open { point: *member.points.get(&open.point)?, start, ..*open })
                });
                let open = open.collect();
                whole.lanes.push(Lane { id, name, kind, process, clock, open, ..lane.clone() });
            }
            whole.edges.extend(last.edges.iter().filter_map(|edge| {
                Some(Edge {
                    point: *member.points.get(&edge.point)?,
                    caller: match edge.caller {
                        Some(caller) => Some(*member.points.get(&caller)?),
                        None => None,
                    },
                    lane: *member.lanes.get(&edge.lane)?,
                    ..*edge
                })
            }));
            let ids = [&member.points, &member.lanes];
            add_cells(&mut whole.cells, &last.cells, ids, &mut member.cells);
            add_slow(&mut whole.slow, &last.slow, ids, began, &mut member.slow);
            whole.slow_dropped = whole.slow_dropped.saturating_add(last.slow_dropped);
            whole.losses.add(&last.losses);
            if running {
                add_usage(&mut whole.usage, last.usage);
                whole.heap = [whole.heap, last.heap].into_iter().flatten().reduce(Heap::plus);
            }
            // The least reliable clock determines how reliable the figures are.
            let rank = |kind: ClockKind| kind as u8;
            if rank(last.clock.kind) > rank(whole.clock.kind) {
                whole.clock.kind = last.clock.kind;
            }
            whole.taken_unix_ns = whole.taken_unix_ns.max(last.taken_unix_ns);
            self.started_unix_ns = self.started_unix_ns.min(process.started_unix_ns);
            let is_late = running && member.is_late();
            let late_since_unix_ns = is_late.then_some(last.taken_unix_ns);
            whole.process.members.push(Process { late_since_unix_ns, ..process.clone() });
            whole.ages.push(age);
        }
        whole.waits = self.merged_waits();
        whole.process.started_unix_ns = self.started_unix_ns;
        whole.points.sort_by_key(|point| point.id);
        whole.lanes.sort_by_key(|lane| lane.id);
        whole.cells.sort_by_key(|cell| cell.key());
        whole.slow.sort_by_key(|call| call.key());
        whole.edges.sort_by_key(Edge::key);
        self.name(&mut whole.process, state);
        whole
    }

    /// The waits of the members that are sampled. The last report stays if no member runs, and
    /// until a member has another one. `None` before the first.
    fn merged_waits(&mut self) -> Option<Arc<WaitsReport>> {
        let mut parts = Vec::new();
        let mut is_new = false;
        for member in &self.members {
            let GroupMember { last, points, lanes, .. } = member;
            let runs = last.process.state == ProcessState::Running;
            let report = last.waits.as_ref().filter(|_| runs);
            let is_same = match (report, &member.waits) {
                (Some(now), Some(before)) => now.is_same(before),
                (now, before) => now.is_none() && before.is_none(),
            };
            is_new |= !is_same;
            if let Some(report) = report {
                let (process, names_points) = (last.process.to_string(), !self.wanted.sum);
                let is_new = !is_same;
                parts.push(ReportPart { report, is_new, process, names_points, points, lanes });
            }
        }
        if is_new && !parts.is_empty() {
            self.reports += 1;
            self.waits = Some(Arc::new(WaitsReport::merged(self.reports, parts)));
        }
        for member in &mut self.members {
            let runs = member.last.process.state == ProcessState::Running;
            member.waits = member.last.waits.clone().filter(|_| runs);
        }
        self.waits.clone()
    }

    fn name(&self, whole: &mut Process, state: ProcessState) {
        let n: usize = self.members.iter().map(|member| member.processes).sum();
        let plural = if n == 1 { "" } else { "es" };
        let sum = if self.wanted.sum { "sum of " } else { "" };
        whole.name = format!("{sum}{n} process{plural}");
        whole.pid = 0;
        whole.state = state;
        let mut running = whole.members.iter().filter(|m| m.state == ProcessState::Running);
        whole.stopped = state == ProcessState::Running
            && running.clone().next().is_some()
            && running.all(|member| member.stopped);
        whole.end = None;
    }

    fn state(&self) -> ProcessState {
        let is = |state| self.members.iter().any(|member| member.last.process.state == state);
        if self.wanted.is_open() || is(ProcessState::Running) {
            ProcessState::Running
        } else if is(ProcessState::Crashed) {
            ProcessState::Crashed
        } else if is(ProcessState::Ended) {
            ProcessState::Ended
        } else {
            ProcessState::Exited
        }
    }

    /// Ticks per second of the group's clock, which is the clock of its first process. When that
    /// process ends, the last rate stays: another process's rate differs by a calibration error,
    /// and would shift all figures so far.
    fn rate(&mut self) -> f64 {
        let first = &self.members[0];
        let (id, rate) = self
            .clock
            .get_or_insert_with(|| (first.segment_id.clone(), first.last.clock.ticks_per_second));
        let is_first =
            |m: &&GroupMember| m.segment_id == *id && m.last.process.state == ProcessState::Running;
        if let Some(first) = self.members.iter().find(is_first) {
            *rate = first.last.clock.ticks_per_second;
        }
        *rate
    }

    /// The group's age. This viewer's clock counts it, so the age does not depend on which
    /// processes end.
    fn age(&mut self, state: ProcessState, rate: f64) -> u64 {
        let now = Instant::now();
        match self.counted {
            None => {
                let ages = self.members.iter().map(|member| member.last.elapsed_ticks);
                self.elapsed_ticks = ages.max().unwrap_or(0);
            }
            // Each poll adds its own time, so a refined rate does not change the time before it.
            Some(counted) if state == ProcessState::Running => {
                let ticks = now.duration_since(counted).as_secs_f64() * rate;
                self.elapsed_ticks = self.elapsed_ticks.saturating_add(ticks as u64);
            }
            Some(_) => {}
        }
        self.counted = Some(now);
        self.elapsed_ticks
    }
}

/// Adds the cells of a member, each with the group's ids.
fn add_cells(
    whole: &mut Vec<Arc<Cell>>,
    cells: &[Arc<Cell>],
    [points, lanes]: [&HashMap<u32, u32>; 2],
    passed_on: &mut HashMap<(u32, u32), [Arc<Cell>; 2]>,
) {
    for of_point in cells.chunk_by(|a, b| a.point == b.point) {
        for cell in of_point {
            let (Some(&point), Some(&lane)) = (points.get(&cell.point), lanes.get(&cell.lane))
            else {
                continue;
            };
            let kept = passed_on.entry((point, lane)).or_default();
            if !Arc::ptr_eq(&kept[0], cell) {
                let passed = match cell.key() == (point, lane) {
                    true => Arc::clone(cell),
                    false => Arc::new(Cell { point, lane, ..Cell::clone(cell) }),
                };
                *kept = [Arc::clone(cell), passed];
            }
            whole.push(Arc::clone(&kept[1]));
        }
    }
}

/// Adds the slow calls of a member that began at `began`, each with the group's ids and times.
fn add_slow(
    whole: &mut Vec<Arc<SlowCall>>,
    calls: &[Arc<SlowCall>],
    [points, lanes]: [&HashMap<u32, u32>; 2],
    began: u64,
    passed_on: &mut HashMap<u64, [Arc<SlowCall>; 2]>,
) {
    passed_on.retain(|number, _| calls.iter().any(|call| call.number == *number));
    for call in calls {
        let kept = passed_on.entry(call.number).or_default();
        if !Arc::ptr_eq(&kept[0], call) {
            let Some(renumbered) = renumbered(call, [points, lanes], began) else { continue };
            *kept = [Arc::clone(call), Arc::new(renumbered)];
        }
        whole.push(Arc::clone(&kept[1]));
    }
}

/// A slow call with the group's ids, and with times that are later by these ticks. `None` if the
/// group does not have its point or lane.
pub(super) fn renumbered(
    call: &SlowCall,
    [points, lanes]: [&HashMap<u32, u32>; 2],
    later: u64,
) -> Option<SlowCall> {
    let record = |record: &Record| {
        let (point, lane) = (*points.get(&record.point)?, *lanes.get(&record.lane)?);
        Some(Record { point, lane, start: later.saturating_add(record.start), ..*record })
    };
    let region = |region: &EnclosingRegion| EnclosingRegion {
        point: points.get(&region.point).copied().unwrap_or(u32::MAX),
        start: later.saturating_add(region.start),
    };
    Some(SlowCall {
        point: *points.get(&call.point)?,
        lane: *lanes.get(&call.lane)?,
        start: later.saturating_add(call.start),
        why: call.why.clone(),
        waited_for: call.waited_for.clone(),
        enclosing: call.enclosing.iter().map(region).collect(),
        records: call.records.iter().filter_map(record).collect(),
        others: call.others.iter().filter_map(record).collect(),
        ..*call
    })
}

fn shared_key(point: &Point, names: &mut HashMap<(String, String), usize>) -> PointKey {
    if point.name.is_empty() {
        return PointKey::Numbered(point.id);
    }
    // The other name may be known later in one process than in another.
    let name = point.reported.as_ref().unwrap_or(&point.name);
    let seen = names.entry((name.clone(), point.file.clone())).or_default();
    *seen += 1;
    PointKey::Named(name.clone(), point.file.clone(), *seen)
}

/// Adds another process's point of the same name, whose figures began at `begin`. The sum's figures
/// begin with the earliest of its parts. A part that joins changes the number of resets, so that
/// users of the snapshot do not take the jump of the sum for new measurements.
pub(super) fn add_point(sum: &mut Point, point: &Point, begin: Option<u64>, running: bool) {
    for flag in PointFlag::ALL {
        sum.set(flag, sum.has(flag) || point.has(flag));
    }
    sum.left_over |= point.left_over;
    sum.since_ticks = sum.begin_ticks().zip(begin).map(|(sum, begin)| sum.min(begin));
    sum.resets = sum.resets.wrapping_add(point.resets).wrapping_add(1);
    // The sum is on if one of its parts is on; the state of an ended part does not count.
    match (sum.state, point.state) {
        (_, state) if !running && state != PointState::InvalidBeginBegin => {}
        (PointState::InvalidBeginBegin, _) | (_, PointState::InvalidBeginBegin) => {
            sum.state = PointState::InvalidBeginBegin;
        }
        (PointState::On, _) | (_, PointState::On) => sum.state = PointState::On,
        (PointState::Off, PointState::Off) => {}
    }
    if sum.alpha != point.alpha {
        sum.alpha = None;
    }
    if sum.limit != point.limit {
        sum.limit = None;
    }
    sum.slow_calls = sum.slow_calls.saturating_add(point.slow_calls);
}

/// Adds the usage of one more process.
fn add_usage(sum: &mut Option<Usage>, more: Option<Usage>) {
    *sum = match (*sum, more) {
        (Some(sum), Some(more)) => Some(Usage {
            cpu_ns: sum.cpu_ns.saturating_add(more.cpu_ns),
            memory_bytes: sum.memory_bytes.saturating_add(more.memory_bytes),
            threads: sum.threads.saturating_add(more.threads),
            cpus: sum.cpus.max(more.cpus),
        }),
        (sum, more) => sum.or(more),
    };
}
