//! A made-up process whose figures are known in advance.
//!
//! Tests and the pictures of the screens use it: the same polls always yield the same snapshots,
//! and it carries out [`Change`]s. Each poll makes it one second older.

use std::sync::Arc;

use anyhow::{Result, bail};
use pfp_shm_layout::cell::average_of;

use super::{Acted, Change, Source};
use crate::snapshot::{
    Bucket, Cell, Clock, Edge, FORMAT, Lane, Point, PointState, Process, ProcessState, Snapshot,
    Stats, VERSION,
};

/// Ticks per second of the made-up clock.
pub const TICKS_PER_SECOND: u64 = 2_600_000_000;
/// Age of the made-up process at the first poll, seconds.
const STARTED_BEFORE: u64 = 751;

/// The work of the made-up points: name, line, lane, calls per second, typical exclusive ticks, per
/// cent of exclusive ticks added by nested regions, per cent of the span off the CPU.
const WORK: &[(&str, u32, u32, u64, u64, u64, u64)] = &[
    ("pfp.overhead", 0, 0, 0, 60, 0, 0),
    ("io.parse", 88, 0, 9_800, 108_000, 40, 3),
    ("io.read", 41, 1, 320, 1_020_000, 0, 88),
    ("io.crc", 130, 0, 2_400, 31_000, 0, 0),
    ("lz.compress", 212, 2, 150, 11_300_000, 25, 1),
    ("lz.match_longest_in_the_whole_window", 251, 2, 41_000, 9_200, 0, 0),
    ("sort.recursive", 17, 1, 77, 640_000, 310, 2),
    ("net.wait", 301, 2, 5, 45_000, 0, 99),
    ("config.reload", 9, 0, 0, 0, 0, 0),
];

/// Points and their callers; the other points have no caller.
const CALLERS: [(u32, u32); 2] = [(3, 1), (5, 4)];

/// A made-up process.
#[derive(Clone, Debug)]
pub struct Synthetic {
    polls: u64,
    seed: u64,
    snapshot: Snapshot,
}

impl Default for Synthetic {
    fn default() -> Self {
        Self::new()
    }
}

impl Synthetic {
    /// The process before the first poll.
    pub fn new() -> Self {
        let points = WORK.iter().enumerate().map(|(id, work)| Point {
            id: id as u32,
            name: work.0.into(),
            file: if id == 0 { String::new() } else { "src/work.rs".into() },
            line: work.1,
            state: if work.3 == 0 && id != 0 { PointState::Off } else { PointState::On },
            alpha: (id == 1).then_some(0.2),
            ..Point::default()
        });
        let lanes = ["main", "reader", "packer"].iter().enumerate().map(|(id, name)| Lane {
            id: id as u32,
            tid: 4711 + id as u32,
            name: (*name).into(),
            ..Lane::default()
        });
        Self {
            polls: 0,
            seed: 1,
            snapshot: Snapshot {
                format: FORMAT.into(),
                version: VERSION,
                process: Process {
                    name: "my_app".into(),
                    exe: "/usr/bin/my_app".into(),
                    pid: 4711,
                    segment_id: "00112233445566778899aabbccddeeff".into(),
                    started_unix_ns: 1_764_000_000_000_000_000,
                    ..Process::default()
                },
                clock: Clock {
                    ticks_per_second: TICKS_PER_SECOND as f64,
                    core_hz: Some(3.65e9),
                    invariant: true,
                    overhead_inside: 22,
                    overhead_pair: 60,
                    ..Clock::default()
                },
                points: points.collect(),
                lanes: lanes.collect(),
                ..Snapshot::default()
            },
        }
    }

    /// The snapshots of the next polls.
    pub fn polls(&mut self, number: usize) -> Vec<Snapshot> {
        (0..number).filter_map(|_| self.poll().ok()).collect()
    }

    /// The state from which the next poll continues, for tests that need an unusual one.
    pub fn snapshot_mut(&mut self) -> &mut Snapshot {
        &mut self.snapshot
    }

    /// The next number of a fixed pseudo-random sequence, in 0..bound.
    fn random(&mut self, bound: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.seed >> 33) % bound
    }

    /// Adds one second's work of a point on its first lane and, for some points, on the next lane.
    fn work(&mut self, id: u32) {
        let (_, _, lane, calls, typical, nested, off) = WORK[id as usize];
        if calls == 0 || self.snapshot.points[id as usize].state != PointState::On {
            return;
        }
        let spread = if id % 2 == 1 { 2 } else { 1 };
        // The load rises and falls, which gives the sparklines a shape.
        let swing =
            50 + [0, 15, 35, 50, 45, 30, 10, 5][((self.polls + u64::from(id)) % 8) as usize];
        for lane in lane..lane + spread {
            for _ in 0..32 {
                let exclusive = match self.random(20) {
                    0 => typical * (3 + self.random(6)),
                    _ => typical / 2 + self.random(typical),
                };
                let times = calls * swing / 100 / 32 / u64::from(spread) + u64::from(calls < 64);
                let inclusive = exclusive + exclusive * nested / 100;
                let off_cpu = if off == 0 { 0 } else { inclusive * off / (100 - off) };
                self.measure(id, lane.min(2), times, exclusive, inclusive, off_cpu);
            }
        }
    }

    /// Records `times` equal measurements.
    fn measure(
        &mut self,
        point: u32,
        lane: u32,
        times: u64,
        exclusive: u64,
        inclusive: u64,
        off_cpu: u64,
    ) {
        let cells = &mut self.snapshot.cells;
        let place = cells.partition_point(|cell| cell.key() < (point, lane));
        if cells.get(place).is_none_or(|cell| cell.key() != (point, lane)) {
            cells.insert(place, Arc::new(Cell { point, lane, ..Cell::default() }));
        }
        let cell = Arc::make_mut(&mut cells[place]);
        let stats = &mut cell.stats;
        stats.count += times;
        stats.exclusive += times * exclusive;
        stats.inclusive += times * inclusive;
        stats.off_cpu += times * off_cpu;
        stats.switches += times * u64::from(off_cpu > 0);
        if off_cpu > 0 {
            stats.longest = stats.longest.max(inclusive + off_cpu);
        }
        stats.min = stats.min.min(exclusive);
        stats.max = stats.max.max(exclusive);
        stats.last = exclusive;
        stats.squares += u128::from(times) * u128::from(exclusive) * u128::from(exclusive);
        let average = stats.average_ticks();
        stats.average = average_of(average + 0.2 * (exclusive as f64 - average));
        let bucket = bucket_of(exclusive);
        let place = cell.histogram.partition_point(|b| b.low < bucket.low);
        match cell.histogram.get_mut(place) {
            Some(same) if same.low == bucket.low => same.count += times,
            _ => cell.histogram.insert(place, Bucket { count: times, ..bucket }),
        }
        let caller = CALLERS.iter().find(|(inside, _)| *inside == point).map(|(_, by)| *by);
        let key = (point, caller, lane);
        let edges = &mut self.snapshot.edges;
        let place = edges.partition_point(|edge| edge.key() < key);
        if edges.get(place).is_none_or(|edge| edge.key() != key) {
            edges.insert(place, Edge { point, caller, lane, ..Edge::default() });
        }
        edges[place].count += times;
        edges[place].exclusive += times * exclusive;
        edges[place].inclusive += times * inclusive;
    }

    fn point_mut(&mut self, id: u32) -> Result<&mut Point> {
        match self.snapshot.points.get_mut(id as usize) {
            Some(point) => Ok(point),
            None => bail!("there is no point {id}"),
        }
    }
}

/// A cell with this count and these exclusive and inclusive ticks.
pub fn cell(point: u32, lane: u32, [count, exclusive, inclusive]: [u64; 3]) -> Arc<Cell> {
    let stats = Stats { count, exclusive, inclusive, ..Stats::default() };
    Arc::new(Cell { point, lane, stats, ..Cell::default() })
}

/// An edge with `sums`: the count, the exclusive and the inclusive ticks.
pub fn edge(point: u32, caller: Option<u32>, lane: u32, sums: [u64; 3]) -> Edge {
    let [count, exclusive, inclusive] = sums;
    Edge { point, caller, lane, count, exclusive, inclusive, ..Edge::default() }
}

/// The empty bucket for a value. As in a segment's histogram, each octave of `value + 32` has 32
/// buckets of equal width.
pub fn bucket_of(value: u64) -> Bucket {
    let shifted = value.saturating_add(32);
    let octave = shifted.ilog2() - 5;
    Bucket { low: (shifted >> octave << octave) - 32, width: 1 << octave, count: 0 }
}

impl Source for Synthetic {
    fn picture(&mut self) -> Result<Snapshot> {
        if self.snapshot.process.state == ProcessState::Running {
            let seconds = STARTED_BEFORE + self.polls;
            self.snapshot.elapsed_ticks = seconds * TICKS_PER_SECOND;
            self.snapshot.taken_unix_ns =
                self.snapshot.process.started_unix_ns + seconds * 1_000_000_000;
            for id in 0..WORK.len() as u32 {
                self.work(id);
            }
            self.polls += 1;
            if let Some(usage) = &mut self.snapshot.usage {
                usage.cpu_ns += 1_310_000_000;
                for lane in &mut self.snapshot.lanes {
                    let spent = 400_000_000 + 100_000_000 * u64::from(lane.id);
                    lane.cpu_ns = Some(lane.cpu_ns.unwrap_or(0) + spent);
                }
            }
        }
        Ok(self.snapshot.clone())
    }

    fn act(&mut self, change: Change) -> Result<Acted> {
        let mut switch = |id, to| {
            let point = self.point_mut(id)?;
            Ok(Acted::Made(Some(std::mem::replace(&mut point.state, to))))
        };
        match change {
            Change::Enable(id) => return switch(id, PointState::On),
            Change::Disable(id) => return switch(id, PointState::Off),
            Change::SetLimit(id, limit) => self.point_mut(id)?.limit = limit,
            Change::SetAlpha(id, alpha) => self.point_mut(id)?.alpha = alpha,
            Change::SetFlag(id, flag, on) => self.point_mut(id)?.set(flag, on),
            Change::Reset(id) => {
                let now = self.snapshot.elapsed_ticks;
                let point = self.point_mut(id)?;
                (point.resets, point.since_ticks) = (point.resets + 1, Some(now));
                self.snapshot.cells.retain(|cell| cell.point != id);
                self.snapshot.edges.retain(|edge| edge.point != id);
            }
        }
        Ok(Acted::Made(None))
    }
}
