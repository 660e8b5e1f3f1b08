//! The reader: takes a picture of a segment, whoever writes to it meanwhile.
//!
//! The segment is treated as hostile. The header was copied and checked when it
//! was opened; every offset is checked again where it is used; every loop is
//! bounded by the geometry, not by what the segment says. A picture is plain
//! data and holds no reference to shared memory.
//!
//! The cost grows with what has changed: a cell whose sequence word is the one
//! of the last poll is not read again.

use std::sync::Arc;

use crate::cell::{Cell, CellPicture, CellRead, Sums};
use crate::control::{self, Change, Control};
use crate::header::{ClockKind, Facts, ProcessState};
use crate::histogram::{self, BUCKETS};
use crate::lane::{LanePicture, LaneState, Tally};
use crate::point::{EntryPicture, Text};
use crate::ring::{self, Record};
use crate::segment::Segment;
use crate::sync::{AtomicU64, Ordering};

/// Tries to copy a cell while its thread writes, before it is left for the next
/// poll.
const TRIES: usize = 64;
/// Longest name that is read, in bytes.
const LONGEST_TEXT: u32 = 4096;

/// Everything that a segment holds, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// Whether the process has ended in order.
    pub exited: bool,
    /// Name that the program gave itself; may be empty.
    pub name: String,
    /// The clock.
    pub clock: ClockPicture,
    /// The points, by number.
    pub points: Vec<PointPicture>,
    /// The lanes that have ever been used, by number; the overflow lane last.
    pub lanes: Vec<LaneReading>,
    /// The cells, by lane.
    pub cells: Vec<CellReading>,
    /// Records of the rings that are new since the last poll, by lane, oldest
    /// first.
    pub records: Vec<(u32, Record)>,
    /// What was refused or lost.
    pub losses: Losses,
}

/// The clock of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClockPicture {
    /// The rung of the ladder in force.
    pub kind: ClockKind,
    /// Ticks per second, as calibrated.
    pub ticks_per_second: f64,
    /// Ticks per second as CPUID tells it.
    pub reported_ticks_per_second: Option<f64>,
    /// The core's true clock in hertz.
    pub core_hz: Option<f64>,
    /// Whether the counter runs at one rate always.
    pub invariant: bool,
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
    /// Its name, as written by the process: may hold anything.
    pub name: String,
    /// Its source file.
    pub file: String,
    /// The line, 0 where unknown.
    pub line: u32,
    /// Its control word.
    pub control: Control,
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
}

/// A cell since the last reset of its point.
#[derive(Clone, Debug)]
pub struct CellReading {
    /// Number of the lane.
    pub lane: u32,
    /// Number of the point.
    pub point: u32,
    /// Figures of the lane's owner.
    pub live: Sums,
    /// Figures of owners before.
    pub retired: Sums,
    /// Measurements since the process began, whatever was reset.
    pub lifetime_count: u64,
    /// Exclusive ticks since the process began, whatever was reset.
    pub lifetime_exclusive: u64,
    /// The process died in the middle of a change: the sums may hold a part of
    /// a measurement that the count does not.
    pub in_flight: bool,
    /// Measurements by bucket, of `live` and `retired` together. It is read
    /// beside the sums: of a cell in use it may be ahead of them by the
    /// measurements that ended in between.
    pub histogram: Histogram,
}

/// A histogram: only the parts in use, each as one block.
///
/// Cloning it shares it.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    parts: Arc<Vec<(usize, [u64; BUCKETS])>>,
}

impl Histogram {
    /// The buckets that are not empty, by value.
    pub fn iter(&self) -> impl Iterator<Item = BucketCount> + '_ {
        self.parts.iter().flat_map(|&(part, ref counts)| {
            counts.iter().enumerate().filter(|(_, count)| **count != 0).map(
                move |(bucket, &count)| {
                    let (low, width) = histogram::bounds(part, bucket);
                    BucketCount { low, width, count }
                },
            )
        })
    }

    /// Reads the counters that a picture names, and counts the last measurement
    /// where they do not yet. Takes the memory of the reading before if nobody
    /// else holds it.
    fn read(&mut self, segment: &Segment, picture: &CellPicture, uncounted: Option<u64>) {
        if Arc::get_mut(&mut self.parts).is_none() {
            self.parts = Arc::default();
        }
        let Some(parts) = Arc::get_mut(&mut self.parts) else { return };
        parts.clear();
        for (part, &number) in picture.parts.0.iter().enumerate() {
            let chunk = (number != 0).then(|| segment.chunk(number)).flatten();
            if let Some(chunk) = chunk {
                parts.push((part, chunk.0.each_ref().map(|count| count.load(Ordering::Relaxed))));
            }
        }
        let Some(ticks) = uncounted else { return };
        let (part, bucket) = histogram::locate(ticks.min(histogram::LIMIT - 1));
        let at = parts.partition_point(|(known, _)| *known < part);
        if parts.get(at).is_none_or(|(known, _)| *known != part) {
            parts.insert(at, (part, [0; BUCKETS]));
        }
        parts[at].1[bucket] = parts[at].1[bucket].saturating_add(1);
    }
}

/// A bucket of a histogram that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketCount {
    /// Least value in it, ticks.
    pub low: u64,
    /// Number of values in it, ticks.
    pub width: u64,
    /// Measurements in it.
    pub count: u64,
}

/// What was refused, repaired or lost since the process began.
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
    /// Stamps at which the clock ran backwards.
    pub clock_anomalies: u64,
    /// Records overwritten before this reader came.
    pub records_lost: u64,
    /// Cells that could not be copied whole in this poll.
    pub cells_busy: u64,
}

impl Losses {
    /// Adds what a lane's threads have counted, whatever stands there.
    fn add(&mut self, tally: &Tally) {
        for (sum, word) in [
            (&mut self.mismatched_ends, &tally.mismatched),
            (&mut self.begins_refused, &tally.refused),
            (&mut self.clock_anomalies, &tally.anomalies),
        ] {
            *sum = sum.saturating_add(word.load(Ordering::Relaxed));
        }
    }
}

/// Polls one segment.
#[derive(Debug)]
pub struct Reader {
    segment: Segment,
    facts: Facts,
    picture: Picture,
    lanes: Vec<LaneCache>,
    shared: LaneCache,
    texts: Vec<Option<(EntryPicture, String, String)>>,
}

/// What the last poll saw of a lane.
#[derive(Debug, Default)]
struct LaneCache {
    ring_next: u64,
    records_lost: u64,
    cells: Vec<CellCache>,
}

/// What the last poll saw of a cell.
#[derive(Clone, Debug)]
struct CellCache {
    was_read: bool,
    sequence: u64,
    picture: CellPicture,
    in_flight: bool,
    histogram: Histogram,
    /// Memory for the next histogram, which counts only once it is whole.
    spare: Histogram,
}

impl Reader {
    /// Reads a segment that was opened.
    #[must_use]
    pub fn new(segment: Segment, facts: Facts) -> Self {
        Self {
            segment,
            facts,
            picture: Picture::default(),
            lanes: Vec::new(),
            shared: LaneCache::default(),
            texts: Vec::new(),
        }
    }

    /// What the header says of the process.
    #[must_use]
    pub const fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The segment.
    #[must_use]
    pub const fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Changes a point's control word; it takes effect at the point's next
    /// begin. None if there is no such point.
    pub fn change(&self, point: u32, change: Change) -> Option<Control> {
        let used = self.segment.ledger().points_used.load(Ordering::Relaxed);
        let word = self.segment.control(point as usize).filter(|_| u64::from(point) < used)?;
        Some(control::apply(word, change))
    }

    /// Takes a picture. `dead` says that the process is known to run no more,
    /// so that a cell in the middle of a change will stay so.
    pub fn poll(&mut self, dead: bool) -> &Picture {
        let ledger = self.segment.ledger();
        let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let rate = |word: &AtomicU64| get(word) as f64 / 1000.0;
        let some = |value: f64| (value > 0.0).then_some(value);
        let picture = &mut self.picture;

        picture.exited = ledger.state.load(Ordering::Acquire) == ProcessState::Exited as u64;
        picture.name = ledger.name();
        picture.clock = ClockPicture {
            kind: ClockKind::from_word(get(&ledger.clock_kind)),
            ticks_per_second: rate(&ledger.ticks_per_1000_s),
            reported_ticks_per_second: some(rate(&ledger.reported_ticks_per_1000_s)),
            core_hz: some(get(&ledger.core_hz) as f64),
            invariant: get(&ledger.invariant) == 1,
            overhead_inside: get(&ledger.overhead_inside),
            overhead_pair: get(&ledger.overhead_pair),
        };
        picture.losses = Losses {
            points_refused: get(&ledger.points_refused),
            space_refused: get(&ledger.space_refused),
            lanes_overflowed: get(&ledger.lanes_overflowed),
            ..Losses::default()
        };
        picture.points.clear();
        picture.lanes.clear();
        picture.cells.clear();
        picture.records.clear();

        self.poll_points();
        self.poll_lanes(dead);
        self.poll_overflow();
        &self.picture
    }

    fn poll_points(&mut self) {
        let used = self.segment.ledger().points_used.load(Ordering::Relaxed);
        let used = usize::try_from(used).map_or(usize::MAX, |used| used);
        let used = used.min(self.segment.geometry().points());
        self.texts.resize(used.max(self.texts.len()), None);
        for (id, known) in self.texts.iter_mut().enumerate().take(used) {
            let Some(entry) = self.segment.entry(id).and_then(|entry| entry.read()) else {
                continue;
            };
            // Texts do not change in place, so the same offsets mean the same
            // texts.
            if known
                .as_ref()
                .is_none_or(|(last, ..)| (last.name, last.file) != (entry.name, entry.file))
            {
                *known = Some((
                    entry,
                    read_text(&self.segment, entry.name),
                    read_text(&self.segment, entry.file),
                ));
            }
            let (Some((_, name, file)), Some(word)) = (known.as_ref(), self.segment.control(id))
            else {
                continue;
            };
            self.picture.points.push(PointPicture {
                id: id as u32,
                name: name.clone(),
                file: file.clone(),
                line: entry.line,
                control: Control(word.load(Ordering::Relaxed)),
            });
        }
    }

    fn poll_lanes(&mut self, dead: bool) {
        let used = self.segment.ledger().lanes_used.load(Ordering::Acquire);
        let lanes = self.segment.geometry().lanes();
        let used = usize::try_from(used).map_or(lanes, |used| used.min(lanes));
        self.lanes.resize_with(used.max(self.lanes.len()), LaneCache::default);
        // A block is in one chain, so all chains together are no longer than the
        // pool. A damaged chain may be a ring, and many lanes may lead into it.
        let mut blocks_left = self.segment.geometry().blocks_present();
        for (id, cache) in self.lanes.iter_mut().enumerate().take(used) {
            let Some(lane) = self.segment.lane(id) else { continue };
            // An entry that changes under our eyes has a new owner; the next
            // poll will know it.
            let Some(entry) = (0..TRIES).find_map(|_| lane.read()) else { continue };
            if entry.state == LaneState::Free && entry.cells_block == 0 {
                continue;
            }
            let tally = &lane.tally;
            let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
            self.picture.losses.add(tally);

            if let Some(slots) = self.segment.ring(entry.ring_block) {
                let mut records = Vec::new();
                let drained = ring::drain(&tally.written, slots, cache.ring_next, &mut records);
                cache.ring_next = drained.next;
                cache.records_lost = cache.records_lost.saturating_add(drained.lost);
                self.picture.records.extend(records.into_iter().map(|record| (id as u32, record)));
            }
            let lost = &mut self.picture.losses.records_lost;
            *lost = lost.saturating_add(cache.records_lost);

            let cells = LaneCells::new(&self.segment, entry.cells_block, &mut blocks_left);
            for (index, cell) in cells.enumerate() {
                if cache.cells.len() == index {
                    cache.cells.push(CellCache::default());
                }
                let known = &mut cache.cells[index];
                if !known.refresh(&self.segment, cell, dead, true) {
                    self.picture.losses.cells_busy += 1;
                    if !known.was_read {
                        continue;
                    }
                }
                let reading =
                    known.reading(&self.segment, id as u32, Some(entry.generation), entry.state);
                self.picture.cells.extend(reading);
            }
            self.picture.lanes.push(LaneReading {
                id: id as u32,
                overflow: false,
                lane: entry,
                written: get(&tally.written),
                switches: get(&tally.switches),
            });
        }
    }

    fn poll_overflow(&mut self) {
        let id = self.segment.overflow_lane();
        let Some(lane) = self.segment.lane(id) else { return };
        let mut reading = LaneReading { id: id as u32, overflow: true, ..LaneReading::default() };
        // The entry has memory once a thread has found no lane. The cells are in
        // use before: handlers that interrupt the probe itself record there.
        let entered = self.segment.ledger().overflow_used.load(Ordering::Acquire) != 0;
        if entered {
            self.picture.losses.add(&lane.tally);
            reading.switches = lane.tally.switches.load(Ordering::Relaxed);
        }
        let own_cells = self.picture.cells.len();
        for index in 0..self.picture.points.len() {
            let point = self.picture.points[index].id as usize;
            let offset = self.segment.entry(point).map_or(0, |entry| entry.shared_cell());
            let Some(cell) = self.segment.shared_cell(offset) else { continue };
            if self.shared.cells.len() <= point {
                self.shared.cells.resize(point + 1, CellCache::default());
            }
            let known = &mut self.shared.cells[point];
            // Many threads add to it, so its sequence word says nothing.
            known.sequence = 1;
            known.refresh(&self.segment, cell, true, false);
            known.in_flight = false;
            let cell = known.reading(&self.segment, id as u32, None, LaneState::Live);
            self.picture.cells.extend(cell);
        }
        if entered || self.picture.cells.len() > own_cells {
            self.picture.lanes.push(reading);
        }
    }
}

impl Default for CellCache {
    fn default() -> Self {
        Self {
            was_read: false,
            // Odd: no cell at rest has it.
            sequence: 1,
            picture: CellPicture::default(),
            in_flight: false,
            histogram: Histogram::default(),
            spare: Histogram::default(),
        }
    }
}

impl CellCache {
    /// Copies the cell if it has changed; false if it could not be copied whole,
    /// which leaves what was known. `one_behind` says that its histogram is.
    fn refresh(&mut self, segment: &Segment, cell: &Cell, dead: bool, one_behind: bool) -> bool {
        let sequence = cell.sequence();
        if sequence == self.sequence && sequence & 1 == 0 {
            return true;
        }
        let mut picture = CellPicture::default();
        for _ in 0..TRIES {
            let before = cell.sequence();
            let whole = cell.read(&mut picture) == CellRead::Whole;
            if !whole && !dead {
                std::hint::spin_loop();
                continue;
            }
            let uncounted = picture.uncounted.filter(|_| one_behind);
            self.spare.read(segment, &picture, uncounted);
            if cell.restarted_since(&picture) && !dead {
                continue;
            }
            self.was_read = true;
            self.sequence = before;
            self.picture = picture;
            self.in_flight = !whole;
            std::mem::swap(&mut self.histogram, &mut self.spare);
            return true;
        }
        false
    }

    /// What the cell says about its point, given who owns the lane now (`None`:
    /// everybody).
    fn reading(
        &self,
        segment: &Segment,
        lane: u32,
        owner: Option<u32>,
        state: LaneState,
    ) -> Option<CellReading> {
        let picture = &self.picture;
        let word = segment.control(picture.point as usize)?;
        let current = Control(word.load(Ordering::Relaxed)).epoch() == picture.epoch;
        let whole_count = picture.live.count.wrapping_add(picture.settled.count);
        let whole_exclusive = picture.live.exclusive.wrapping_add(picture.settled.exclusive);
        let mut reading = CellReading {
            lane,
            point: picture.point,
            live: Sums::default(),
            retired: Sums::default(),
            lifetime_count: picture.past_count.wrapping_add(whole_count),
            lifetime_exclusive: picture.past_exclusive.wrapping_add(whole_exclusive),
            in_flight: self.in_flight,
            histogram: Histogram::default(),
        };
        if current {
            let owned =
                owner.is_none_or(|owner| owner == picture.owner && state == LaneState::Live);
            reading.retired = picture.settled.clone();
            if owned {
                reading.live = picture.live.clone();
            } else {
                // The thread has ended; its figures stay.
                reading.retired.merge(&picture.live);
                reading.retired.last = picture.live.last;
                reading.retired.average_fixed = picture.live.average_fixed;
            }
            reading.histogram = self.histogram.clone();
        }
        Some(reading)
    }
}

/// The cells of a lane, in the order in which they were taken.
struct LaneCells<'a> {
    segment: &'a Segment,
    block: u64,
    cells: std::slice::Iter<'a, Cell>,
    /// Blocks that may still follow.
    left: &'a mut usize,
}

impl<'a> LaneCells<'a> {
    fn new(segment: &'a Segment, block: u64, left: &'a mut usize) -> Self {
        Self { segment, block, cells: [].iter(), left }
    }
}

impl<'a> Iterator for LaneCells<'a> {
    type Item = &'a Cell;

    fn next(&mut self) -> Option<&'a Cell> {
        loop {
            if let Some(cell) = self.cells.next() {
                return Some(cell);
            }
            let block = self.segment.cell_block(self.block)?;
            *self.left = self.left.checked_sub(1)?;
            let (cells, next) = block.read();
            self.cells = cells.iter();
            self.block = next;
        }
    }
}

fn read_text(segment: &Segment, text: Text) -> String {
    let len = text.len.min(LONGEST_TEXT) as usize;
    let bytes = segment.text(text.offset as usize, len).unwrap_or_default();
    let bytes: Vec<u8> = bytes.iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
