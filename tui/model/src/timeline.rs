//! The last moments of every thread, from the records of its ring.
//!
//! ```text
//! records, each written at its end     tracks, levels, regions
//!   parse  depth 1   [20..30)          main   level 0:  [work..........]
//!   parse  depth 1   [35..50)                 level 1:   [parse][parse ]
//!   work   depth 0   [10..60)
//! ```
//!
//! A record is written when a region ends, and a ring keeps its last records. Regions that ended
//! before the oldest record are lost; those that ended after it are present. An open region has no
//! record, so there is an empty level above the regions inside it.
//!
//! A device's work for a thread is not a region of the thread and has a line of its own. The record
//! of such work is written when the program finds that the device has finished.
//!
//! The records are not trusted. Whatever they contain, a region ends no earlier than it begins, and
//! no loop depends on their order.

pub mod columns;

use std::collections::{BTreeMap, BTreeSet};

use pfp_read::snapshot::{Lane, LaneKind, Record, Snapshot};

/// Absences of a thread shorter than this cannot be distinguished from the cost of measuring,
/// seconds.
const SHORTEST_AWAY: f64 = 2e-6;

/// The last moments of a process.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// Segment id of the process.
    pub segment_id: String,
    /// The moment of the snapshot, ticks since the segment was created: "now".
    pub taken: u64,
    /// Ticks per second; never zero.
    pub ticks_per_second: f64,
    /// The threads that run or have left records, in the order of their lanes.
    pub tracks: Vec<ThreadTrack>,
    /// Whether the snapshot has no records although the process wrote some, as in a file without
    /// records.
    pub lacks_records: bool,
}

/// One thread.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadTrack {
    /// The thread's lane.
    pub lane: Lane,
    /// The thread's regions by strand and depth; at least one level.
    pub levels: Vec<TimelineLevel>,
    /// Number of records that have been overwritten.
    pub lost: u64,
    /// The moment before which ended regions are lost. `None` if nothing is lost.
    pub lost_until: Option<u64>,
}

/// The regions of a thread at one depth.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimelineLevel {
    /// 0 for the thread's own context. The tasks have the next strands, and the devices the strands
    /// that follow. Tasks, or devices, that do not overlap in time share a strand.
    pub strand: u32,
    /// 1 for the first device that worked for the thread, and so on. `None` for regions of the
    /// thread itself or of its tasks.
    pub device: Option<u32>,
    /// Number of regions that were open around these.
    pub depth: u32,
    /// The regions, in the order of their starts.
    pub regions: Vec<Region>,
}

/// One finished measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Id of the point.
    pub point: u32,
    /// Id of the context, 0 for the thread's own.
    pub context: u32,
    /// Begin, ticks since the segment was created.
    pub start: u64,
    /// End, ticks; at or after `start`.
    pub end: u64,
    /// Exclusive ticks.
    pub exclusive: u64,
    /// Ticks from begin to end of the regions directly inside.
    pub nested: u64,
    /// Exclusive ticks in which its thread or task did not run. `None` if regions inside it are
    /// lost.
    pub away: Option<u64>,
}

/// A line of the picture: it identifies a level of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelineRow {
    /// Id of the lane.
    pub lane: u32,
    /// Strand of the level.
    pub strand: u32,
    /// Depth of the level.
    pub depth: u32,
}

impl Region {
    /// Ticks from begin to end.
    pub fn span(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Share of the region's time, without nested regions, in which it was on a CPU; 1 if unknown.
    pub fn on_share(&self) -> f64 {
        let own = self.span().saturating_sub(self.nested);
        match self.away {
            Some(away) if own > 0 => 1.0 - (away as f64 / own as f64).min(1.0),
            _ => 1.0,
        }
    }
}

impl TimelineLevel {
    /// The index of the region at a moment, or of the nearest one.
    pub fn nearest(&self, at: u64) -> Option<usize> {
        let behind = self.regions.partition_point(|region| region.start <= at);
        let Some(before) = behind.checked_sub(1) else {
            return (!self.regions.is_empty()).then_some(0);
        };
        let since = at.saturating_sub(self.regions[before].end);
        match self.regions.get(behind) {
            Some(next) if next.start - at < since => Some(behind),
            _ => Some(before),
        }
    }
}

impl Timeline {
    /// The regions of a line, paired with the line.
    pub fn regions(&self, line: TimelineRow) -> impl Iterator<Item = (TimelineRow, &Region)> {
        let level = self.level(line).into_iter();
        level.flat_map(move |level| level.regions.iter().map(move |region| (line, region)))
    }

    /// Makes the timeline of a snapshot's records. Levels of `before` stay, so that lines do not
    /// appear and disappear with their regions.
    pub fn of(snapshot: &Snapshot, before: Option<&Self>) -> Self {
        let rate = snapshot.clock.ticks_per_second;
        let ticks_per_second = if rate.is_finite() && rate > 0.0 { rate } else { 1e9 };
        let before = before.filter(|before| before.segment_id == snapshot.process.segment_id);
        let mut records: BTreeMap<u32, Vec<&Record>> = BTreeMap::new();
        for record in &snapshot.records {
            records.entry(record.lane).or_default().push(record);
        }
        let slack = Slack {
            pair: snapshot.clock.overhead_pair,
            least: (SHORTEST_AWAY * ticks_per_second) as u64,
        };
        let devices = snapshot.points.iter().filter(|point| point.device);
        let devices: BTreeSet<u32> = devices.map(|point| point.id).collect();
        let lacks_records = snapshot.records.is_empty()
            && snapshot.lanes.iter().any(|lane| lane.records_written > 0);
        let track = |lane: &Lane| {
            let records = records.remove(&lane.id).unwrap_or_default();
            if records.is_empty() && lane.kind != LaneKind::Live {
                return None;
            }
            let known = before.and_then(|before| before.track(lane.id));
            let known = known.filter(|known| known.lane.tid == lane.tid);
            Some(ThreadTrack::of(lane, &records, &devices, known, &slack, snapshot.elapsed_ticks))
        };
        Self {
            segment_id: snapshot.process.segment_id.clone(),
            taken: snapshot.elapsed_ticks,
            ticks_per_second,
            tracks: snapshot.lanes.iter().filter_map(track).collect(),
            lacks_records,
        }
    }

    /// The lines from the top down.
    pub fn lines(&self) -> impl Iterator<Item = TimelineRow> {
        self.tracks.iter().flat_map(|track| {
            track.levels.iter().map(|level| TimelineRow {
                lane: track.lane.id,
                strand: level.strand,
                depth: level.depth,
            })
        })
    }

    /// A thread by its lane.
    pub fn track(&self, lane: u32) -> Option<&ThreadTrack> {
        self.tracks.iter().find(|track| track.lane.id == lane)
    }

    /// Whether another thread has the same name, so that its number must be shown.
    pub fn has_twin(&self, track: &ThreadTrack) -> bool {
        let lane = &track.lane;
        let is_twin = |other: &Lane| other.id != lane.id && other.name == lane.name;
        self.tracks.iter().any(|other| is_twin(&other.lane))
    }

    /// The level of a line.
    pub fn level(&self, line: TimelineRow) -> Option<&TimelineLevel> {
        let track = self.track(line.lane)?;
        track.levels.iter().find(|level| (level.strand, level.depth) == (line.strand, line.depth))
    }

    /// How far back from now the records reach, in ticks. If threads have lost records, the
    /// shortest reach of these threads.
    pub fn reach(&self) -> u64 {
        let back = |to: u64| self.taken.saturating_sub(to);
        // A remote source sends no records of threads that are out of view, so leave such threads
        // out.
        let is_known = |track: &&ThreadTrack| track.levels.iter().any(|it| !it.regions.is_empty());
        let known = self.tracks.iter().filter(is_known);
        let lost = known.filter_map(|track| track.lost_until).map(back).min();
        let regions = self.tracks.iter().flat_map(|t| &t.levels).flat_map(|l| &l.regions);
        lost.or_else(|| regions.map(|region| back(region.start)).max()).unwrap_or(0)
    }

    /// Converts nanoseconds to ticks; at least one.
    pub fn ticks(&self, nanoseconds: u64) -> u64 {
        ((nanoseconds as f64 * self.ticks_per_second / 1e9) as u64).max(1)
    }
}

/// Time that is not counted as absence: the cost of measuring. Exclusive time leaves out this cost,
/// and the span includes it.
struct Slack {
    pair: u64,
    least: u64,
}

impl ThreadTrack {
    fn of(
        lane: &Lane,
        records: &[&Record],
        devices: &BTreeSet<u32>,
        known: Option<&Self>,
        slack: &Slack,
        taken: u64,
    ) -> Self {
        let lost = lane.records_written.saturating_sub(records.len() as u64);
        let (of_devices, records): (Vec<&Record>, Vec<&Record>) =
            records.iter().copied().partition(|record| devices.contains(&record.point));
        // Records of devices are written some time after the work ended, so their ends do not show
        // which records are lost.
        let first_end = records.iter().map(|record| record.end()).min();
        let lost_until = (lost > 0).then(|| first_end.unwrap_or(taken).min(taken));

        let known = known.iter().flat_map(|known| &known.levels).filter(|l| l.strand == 0);
        let mut levels: BTreeMap<(u32, u32), Vec<Region>> =
            known.map(|level| ((0, level.depth), Vec::new())).collect();
        let tasks = strands(&records);
        for (depth, region) in nested(&records, lost_until, slack) {
            let strand = tasks.get(&region.context).copied().unwrap_or(0);
            levels.entry((strand, depth)).or_default().push(region);
        }
        if levels.is_empty() {
            levels.insert((0, 0), Vec::new());
        }
        let first_device = tasks.values().max().unwrap_or(&0) + 1;
        let at_work = device_strands(&of_devices);
        for (depth, region) in nested(&of_devices, lost_until, slack) {
            let strand = at_work.get(&region.context).copied().unwrap_or(0);
            levels.entry((first_device + strand, depth)).or_default().push(region);
        }
        let level = |((strand, depth), mut regions): ((u32, u32), Vec<Region>)| {
            regions.sort_by_key(|region| region.start);
            let device = strand.checked_sub(first_device).map(|before| before + 1);
            TimelineLevel { strand, device, depth, regions }
        };
        Self {
            lane: lane.clone(),
            levels: levels.into_iter().map(level).collect(),
            lost,
            lost_until,
        }
    }
}

/// The strand of each context: the first strand whose earlier tasks have all ended before this one
/// began, as far as records show.
fn strands(records: &[&Record]) -> BTreeMap<u32, u32> {
    let mut lives = lives(records);
    lives.remove(&0);
    let mut lives: Vec<_> = lives.into_iter().collect();
    lives.sort_by_key(|(_, (start, _))| *start);
    let mut free_from: Vec<u64> = Vec::new();
    let mut strands = BTreeMap::from([(0, 0)]);
    for (context, (start, end)) in lives {
        let place = free_from.iter().position(|free| *free <= start).unwrap_or(free_from.len());
        match free_from.get_mut(place) {
            Some(free) => *free = end,
            None => free_from.push(end),
        }
        strands.insert(context, place as u32 + 1);
    }
    strands
}

/// The strand of each device timer: the first strand in which it overlaps no other timer. Timers
/// get their strands in the order in which they were made, and not by their oldest records, so that
/// a timer stays in its line while the ring overwrites its records.
fn device_strands(records: &[&Record]) -> BTreeMap<u32, u32> {
    let mut taken: Vec<Vec<(u64, u64)>> = Vec::new();
    let mut strands = BTreeMap::new();
    for (timer, life) in lives(records) {
        let is_free = |taken: &Vec<(u64, u64)>| {
            taken.iter().all(|(start, end)| *end <= life.0 || life.1 <= *start)
        };
        let place = taken.iter().position(is_free).unwrap_or(taken.len());
        match taken.get_mut(place) {
            Some(taken) => taken.push(life),
            None => taken.push(vec![life]),
        }
        strands.insert(timer, place as u32);
    }
    strands
}

/// The first begin and last end of each context's records.
fn lives(records: &[&Record]) -> BTreeMap<u32, (u64, u64)> {
    let mut lives: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for record in records {
        let end = record.end();
        let life = lives.entry(record.context).or_insert((record.start, end));
        *life = (life.0.min(record.start), life.1.max(end));
    }
    lives
}

/// The regions of a lane with their depths, and the time of the regions inside each.
fn nested(records: &[&Record], lost_until: Option<u64>, slack: &Slack) -> Vec<(u32, Region)> {
    let mut sorted: Vec<&Record> = records.to_vec();
    sorted.sort_by_key(|r| (r.context, r.start, r.depth, std::cmp::Reverse(r.span)));
    let mut regions: Vec<(u32, Region)> = Vec::with_capacity(sorted.len());
    let mut children: Vec<u64> = Vec::with_capacity(sorted.len());
    // Indices of the regions that enclose the next one, the outermost first.
    let mut open: Vec<usize> = Vec::new();
    for record in sorted {
        let end = record.end();
        while let Some(&last) = open.last() {
            let (depth, around) = &regions[last];
            let encloses = around.context == record.context
                && *depth < record.depth
                && record.start >= around.start
                && end <= around.end;
            if encloses {
                break;
            }
            open.pop();
        }
        if let Some(&parent) = open.last() {
            let nested = &mut regions[parent].1.nested;
            *nested = nested.saturating_add(record.span);
            children[parent] += 1;
        }
        open.push(regions.len());
        children.push(0);
        let region = Region {
            point: record.point,
            context: record.context,
            start: record.start,
            end,
            exclusive: record.exclusive,
            nested: 0,
            away: None,
        };
        regions.push((record.depth, region));
    }
    for ((_, region), children) in regions.iter_mut().zip(children) {
        if lost_until.is_some_and(|until| region.start < until) {
            continue;
        }
        let own = region.span().saturating_sub(region.nested);
        let unexplained = own.saturating_sub(region.exclusive);
        let cost = slack.pair.saturating_mul(children + 1).saturating_add(slack.least);
        region.away = Some(if unexplained > cost { unexplained } else { 0 });
    }
    regions
}

#[cfg(test)]
mod tests;
