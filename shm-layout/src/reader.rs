//! The reader: takes a picture of a segment, whoever writes to it meanwhile.
//!
//! The segment is treated as hostile. The header was copied and checked when it
//! was opened; every offset is checked again where it is used; every loop is
//! bounded by the geometry, not by what the segment says. A picture is plain
//! data and holds no reference to shared memory. Nothing is touched that has no
//! memory (`backed`), so reading an object never makes it grow.
//!
//! The cost grows with what has changed: the reader keeps one picture and mends
//! it. A cell whose sequence word is the one of the last poll is not read again,
//! nor is its reading touched; nothing is allocated for what is known already.
//! The rings are not looked into before somebody asks for their records: they
//! keep the last ones by themselves, and few want them.

mod backed;
mod calls;
mod cells;
pub mod copy;
mod histogram;
mod marks;
mod near;
mod pending;
pub mod truncation;

use std::borrow::Borrow;
use std::collections::HashMap;

use crate::layout::amounts::{Amounts, MOST};
use crate::layout::cell::Cell;
use crate::layout::control::{self, Change, Control};
use crate::layout::geometry::{Geometry, RING_BLOCKS, RING_SLOTS};
use crate::layout::header::{ClockKind, Facts, ProcessState};
use crate::layout::lane::{LanePicture, LaneState, Tally};
use crate::layout::point::{EntryPicture, Text};
use crate::layout::ring::{self, Drained, Record};
use crate::layout::segment::Segment;
use crate::sync::{AtomicU64, Ordering};

pub(crate) use backed::{Backed, Sparse};
pub use calls::{Call, LaneCalls};
use cells::CellReader;
pub use cells::CellReading;
pub use histogram::{BucketCount, Histogram};
use marks::{Mark, Owner, Stale};
use pending::Pending;

/// Tries to copy what its thread writes meanwhile, before it is left for the next
/// poll.
pub(crate) const TRIES: usize = 64;
/// Longest name that is read, in bytes.
const LONGEST_TEXT: u32 = 4096;
/// Most points that are read; those behind them count as refused.
const MAX_POINTS: usize = 1 << 20;
/// Most bytes of text that are read.
const MAX_TEXT: usize = 64 << 20;
/// Most lanes and blocks that a segment is made with, whatever one says.
pub(crate) const MAX_LANES: usize = 1 << 16;
const MAX_BLOCKS: usize = 1 << 22;

/// Everything that a segment holds, at one moment, but for the rings.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// Number of this poll; the first one is 1.
    pub poll: u64,
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
    /// The cells, in the order in which they were first read: a cell keeps its
    /// place as long as the reader lives. Those of variants are there by themselves,
    /// and summed for their point.
    pub cells: Vec<CellReading>,
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
    /// Whether the processor says that its counter runs at one rate always.
    pub invariant: bool,
    /// Whether the system's clock is read in place of that counter.
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
    /// Its name, as written by the process: may hold anything.
    pub name: String,
    /// Its source file.
    pub file: String,
    /// The line, 0 where unknown.
    pub line: u32,
    /// Whether its time is a device's or the clock's, and no CPU's.
    pub device: bool,
    /// Whether its time is the clock's: spans that no thread has for itself.
    pub wall: bool,
    /// Its control word.
    pub control: Control,
    /// When it was last reset, in nanoseconds of CLOCK_MONOTONIC_RAW; none where it never
    /// was, or nobody knows. Whoever resets may write any time.
    pub reset_ns: Option<u64>,
    /// The names of its amounts, where its regions have amounts.
    pub amounts: Vec<String>,
    /// It is a variant of another point: all that is measured here is in the
    /// readings of that one as well.
    pub variant: Option<Variant>,
}

/// A variant of a point: its measurements of certain amounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Number of the point.
    pub of: u32,
    /// The amounts of each measurement, in the order of their names; none where
    /// they differ: then the cells have the sums.
    pub each: Option<Amounts>,
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
    /// What went wrong on it, of the counts that a lane has.
    pub amiss: Amiss,
}

/// What a lane's threads counted that should not be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amiss {
    /// Ends that matched no open region, or not the innermost one.
    pub mismatched_ends: u64,
    /// Begins refused because too many regions were open.
    pub begins_refused: u64,
    /// Stamps at which the clock ran backwards.
    pub clock_anomalies: u64,
    /// Measurements of which there is no record.
    pub records_missed: u64,
}

impl Amiss {
    fn of(tally: &Tally) -> Self {
        let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
        Self {
            mismatched_ends: get(&tally.mismatched),
            begins_refused: get(&tally.refused),
            clock_anomalies: get(&tally.anomalies),
            records_missed: get(&tally.unrecorded),
        }
    }
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
    /// Records that the rings hold no more.
    pub records_lost: u64,
    /// Cells that could not be copied whole in this poll.
    pub cells_busy: u64,
    /// Begins that could not be measured: there was no memory, or a signal handler
    /// came while its thread claimed its lane.
    pub begins_missed: u64,
    /// Measurements of which there is no record: no memory for the ring, or none to
    /// write to. They are in all figures.
    pub records_missed: u64,
}

impl Losses {
    /// Adds what a lane's threads have counted, whatever stands there.
    fn add(&mut self, amiss: &Amiss) {
        for (sum, more) in [
            (&mut self.mismatched_ends, amiss.mismatched_ends),
            (&mut self.begins_refused, amiss.begins_refused),
            (&mut self.clock_anomalies, amiss.clock_anomalies),
            (&mut self.records_missed, amiss.records_missed),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

/// Polls one segment, its own or one that is lent to it.
#[derive(Debug)]
pub struct Reader<S = Segment> {
    segment: S,
    facts: Facts,
    picture: Picture,
    /// What the table said of `picture.points`.
    entries: Vec<EntryPicture>,
    /// Bytes of text that may still be read.
    text_left: usize,
    lanes: Vec<LaneCache>,
    /// Marks of the overflow lane's cells, by place in `picture.points`.
    shared: Vec<Mark>,
    cells: CellReader,
    pending: Pending,
    /// An entry of the directory is read into it.
    entry: LanePicture,
    /// The numbers of variants, in their order, and of their points.
    variants: Vec<(u32, u32)>,
    /// Places of the sums of variants, by lane and point.
    sums: HashMap<(u32, u32), u32>,
    /// Cells that were looked at for being variants' ones.
    sorted: usize,
    /// Of those, the ones whose point was not in the table yet.
    unsorted: Vec<usize>,
    followed: Followed,
    backed: Backed,
}

/// What the last poll saw of a lane.
#[derive(Debug, Default)]
struct LaneCache {
    owner: Owner,
    marks: Vec<Mark>,
    /// The first and the last of the records that were not folded.
    records: (u64, u64),
}

impl<S: Borrow<Segment>> Reader<S> {
    /// Reads a segment that was opened.
    #[must_use]
    pub fn new(segment: S, facts: Facts) -> Self {
        let geometry = segment.borrow().geometry();
        Self {
            backed: Backed::of(segment.borrow()),
            // No text is entered twice, so there are no more bytes than these.
            // A damaged table may name the same ones again and again.
            text_left: geometry.string_bytes().min(MAX_TEXT),
            cells: CellReader::new(geometry),
            pending: Pending::default(),
            followed: Followed::new(geometry),
            segment,
            facts,
            picture: Picture::default(),
            entries: Vec::new(),
            lanes: Vec::new(),
            shared: Vec::new(),
            entry: LanePicture::default(),
            variants: Vec::new(),
            sums: HashMap::new(),
            sorted: 0,
            unsorted: Vec::new(),
        }
    }

    /// What the header says of the process.
    #[must_use]
    pub const fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The segment.
    #[must_use]
    pub fn segment(&self) -> &Segment {
        self.segment.borrow()
    }

    /// Changes a point's control word; it takes effect at the point's next
    /// begin. None if there is no such point. `monotonic_ns` is the time, by
    /// CLOCK_MONOTONIC_RAW: a reset leaves it for all readers.
    pub fn change(&self, point: u32, change: Change, monotonic_ns: u64) -> Option<Control> {
        let segment: &Segment = self.segment.borrow();
        let used = segment.ledger().points_used.load(Ordering::Relaxed);
        let sparse = Sparse::new(segment, &self.backed);
        let word = sparse.control(point as usize).filter(|_| u64::from(point) < used);
        let time = sparse.reset_time(point as usize);
        self.backed.rest();
        let word = word?;
        let before = match (change, time) {
            (Change::Reset, Some(time)) => control::reset(word, time, monotonic_ns),
            _ => control::apply(word, change),
        };
        if change == Change::Enable {
            segment.wake();
        }
        Some(before)
    }

    /// The last picture.
    #[must_use]
    pub const fn picture(&self) -> &Picture {
        &self.picture
    }

    /// Takes a picture.
    pub fn poll(&mut self) -> &Picture {
        self.poll_process();
        self.poll_points();
        self.poll_lanes();
        self.poll_overflow();
        self.sum_variants();
        self.backed.rest();
        &self.picture
    }

    /// Takes a picture of the process and its points, which takes a moment however much its
    /// threads have measured: that is left out.
    pub fn outline(&mut self) -> &Picture {
        self.poll_process();
        self.poll_points();
        self.backed.rest();
        &self.picture
    }

    fn poll_process(&mut self) {
        let segment: &Segment = self.segment.borrow();
        let ledger = segment.ledger();
        let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let rate = |word: &AtomicU64| get(word) as f64 / 1000.0;
        let some = |value: f64| (value > 0.0).then_some(value);
        let picture = &mut self.picture;

        picture.poll += 1;
        picture.exited = ledger.state.load(Ordering::Acquire) == ProcessState::Exited as u64;
        ledger.read_name(&mut picture.name);
        picture.clock = ClockPicture {
            kind: ClockKind::from_word(get(&ledger.clock_kind)),
            ticks_per_second: rate(&ledger.ticks_per_1000_s),
            reported_ticks_per_second: some(rate(&ledger.reported_ticks_per_1000_s)),
            core_hz: some(get(&ledger.core_hz) as f64),
            invariant: get(&ledger.invariant) == 1,
            system_clock: get(&ledger.system_clock) == 1,
            overhead_inside: get(&ledger.overhead_inside),
            overhead_pair: get(&ledger.overhead_pair),
        };
        picture.losses = Losses {
            points_refused: get(&ledger.points_refused),
            space_refused: get(&ledger.space_refused),
            lanes_overflowed: get(&ledger.lanes_overflowed),
            begins_missed: get(&ledger.begins_missed),
            ..Losses::default()
        };
    }

    /// Sums what variants have measured for the points that they are variants of.
    fn sum_variants(&mut self) {
        let Picture { poll, points, cells, .. } = &mut self.picture;
        let waiting = std::mem::take(&mut self.unsorted);
        for place in waiting.into_iter().chain(self.sorted..cells.len()) {
            let (lane, point) = (cells[place].lane, cells[place].point);
            let Some(of) = point_of(&self.variants, point) else {
                // It may have been announced since the table was looked at, and be a
                // variant.
                if points.binary_search_by_key(&point, |known| known.id).is_err() {
                    self.unsorted.push(place);
                }
                continue;
            };
            let sum = *self.sums.entry((lane, of)).or_insert_with(|| {
                cells.push(CellReading::sum(lane, of));
                cells.len() as u32 - 1
            });
            // Of one that was waiting the figures may not change any more.
            (cells[place].is_part, cells[place].changed) = (true, *poll);
            cells[sum as usize].variants.push(place as u32);
        }
        self.sorted = cells.len();
        for &place in self.sums.values() {
            CellReading::sum_up(place as usize, &mut self.picture);
        }
    }

    /// Copies the records that the rings hold, lane by lane, oldest first, each
    /// with the number of its lane.
    #[must_use]
    pub fn records(&self) -> Vec<(u32, Record)> {
        let mut records = Vec::new();
        // A copy has zeros where the ring was written while it was made.
        let is_there = |record: &&Record| **record != Record::default();
        self.drain(
            |_| 0,
            |id, _, of_lane| {
                records.extend(of_lane.iter().filter(is_there).map(|record| (id, *record)));
            },
        );
        records
    }

    /// Copies what the rings hold from a record on, lane by lane, oldest first.
    /// `from` tells by a lane's number the record to begin with; `take` is given the
    /// lane, what came of it, and the records that are whole.
    pub fn drain(&self, from: impl Fn(u32) -> u64, mut take: impl FnMut(u32, Drained, &[Record])) {
        let segment: &Segment = self.segment.borrow();
        let mut of_lane = Vec::new();
        // A ring is one lane's; a damaged directory may name one many times.
        let most = segment.geometry().blocks_present() / RING_BLOCKS as usize;
        let sparse = Sparse::new(segment, &self.backed);
        let lanes = self.picture.lanes.iter().filter_map(|reading| {
            let lane = sparse.lane(reading.id as usize)?;
            // What is written later is backed before that.
            let written = lane.tally.written.load(Ordering::Acquire);
            Some((reading.id, lane, sparse.ring(reading.lane.ring_block, written)?))
        });
        for (id, lane, slots) in lanes.take(most) {
            of_lane.clear();
            let drained = ring::drain(&lane.tally.written, slots, from(id), &mut of_lane);
            if !self.variants.is_empty() {
                for record in &mut of_lane {
                    record.point = point_of(&self.variants, record.point).unwrap_or(record.point);
                }
            }
            take(id, drained, &of_lane);
        }
        self.backed.rest();
    }

    fn poll_points(&mut self) {
        let segment: &Segment = self.segment.borrow();
        let used = segment.ledger().points_used.load(Ordering::Relaxed);
        let used = usize::try_from(used).map_or(usize::MAX, |used| used);
        let used = used.min(segment.geometry().points());
        let sparse = Sparse::new(segment, &self.backed);
        let points = &mut self.picture.points;
        // Ids grow from one to the next, and no point ever goes.
        let mut place = 0;
        for (id, entry) in sparse.entries(used) {
            let is_known = points.get(place).is_some_and(|point| point.id as usize == id);
            if place == MAX_POINTS {
                let refused = &mut self.picture.losses.points_refused;
                *refused = refused.saturating_add((used - id) as u64);
                break;
            }
            let (Some(entry), Some(word)) = (entry.read(), sparse.control_word(id)) else {
                place += usize::from(is_known);
                continue;
            };
            let mut text = |text| read_text(sparse, text, &mut self.text_left);
            let control = Control(word);
            // Most points were never reset.
            let time = (control.epoch() != 0).then(|| sparse.reset_time(id)).flatten();
            let reset_ns =
                time.and_then(|time| control::reset_ns(control, time.load(Ordering::Relaxed)));
            // Texts do not change in place, so the same offsets mean the same
            // texts.
            if is_known {
                let (point, last) = (&mut points[place], &mut self.entries[place]);
                if last.name != entry.name {
                    point.name = text(entry.name);
                }
                if last.file != entry.file {
                    point.file = text(entry.file);
                }
                (point.line, point.control, *last) = (entry.line, control, entry);
                (point.device, point.wall, point.reset_ns) = (entry.device, entry.wall, reset_ns);
            } else {
                let (name, file) = (text(entry.name), text(entry.file));
                let id = id as u32;
                let found = entry.variant.filter(|variant| variant.point < id);
                let variant = found.map(|found| {
                    let (names, each) = amounts_of(&text(found.amounts));
                    let of = points.binary_search_by_key(&found.point, |point| point.id);
                    if let Ok(of) = of
                        && points[of].amounts.is_empty()
                    {
                        points[of].amounts = names;
                    }
                    let at = self.variants.partition_point(|(known, _)| *known < id);
                    self.variants.insert(at, (id, found.point));
                    Variant { of: found.point, each }
                });
                let (EntryPicture { line, device, wall, .. }, amounts) = (entry, Vec::new());
                let point = PointPicture {
                    id,
                    name,
                    file,
                    line,
                    device,
                    wall,
                    control,
                    reset_ns,
                    amounts,
                    variant,
                };
                points.insert(place, point);
                self.entries.insert(place, entry);
                // One that was announced late: the places behind it move.
                if place < self.shared.len() {
                    self.shared.insert(place, Mark::default());
                }
            }
            place += 1;
        }
    }

    fn poll_lanes(&mut self) {
        let segment: &Segment = self.segment.borrow();
        let geometry = segment.geometry();
        let used = segment.ledger().lanes_used.load(Ordering::Acquire);
        let lanes = segment.geometry().lanes().min(MAX_LANES);
        let used = usize::try_from(used).map_or(lanes, |used| used.min(lanes));
        self.lanes.resize_with(used.max(self.lanes.len()), LaneCache::default);
        self.followed.forget();
        let sparse = Sparse::new(segment, &self.backed);
        let mut place = 0;
        for (id, lane) in sparse.lanes(used) {
            let cache = &mut self.lanes[id];
            let readings = &mut self.picture.lanes;
            let is_known = readings.get(place).is_some_and(|lane| lane.id as usize == id);
            // An entry that changes under our eyes has a new owner; the next
            // poll will know it.
            let entry = &mut self.entry;
            if !(0..TRIES).any(|_| lane.read_into(entry)) {
                place += usize::from(is_known);
                continue;
            }
            if entry.state == LaneState::Free && entry.cells_block == 0 && !is_known {
                continue;
            }
            if !is_known {
                readings.insert(place, LaneReading { id: id as u32, ..LaneReading::default() });
            }
            let reading = &mut readings[place];
            place += 1;
            std::mem::swap(&mut reading.lane, entry);
            let entry = &reading.lane;

            let tally = &lane.tally;
            reading.written = tally.written.load(Ordering::Relaxed);
            reading.switches = tally.switches.load(Ordering::Relaxed);
            let losses = &mut self.picture.losses;
            reading.amiss = Amiss::of(tally);
            losses.add(&reading.amiss);
            if entry.ring_block != 0 {
                let lost = reading.written.saturating_sub(RING_SLOTS as u64 - 1);
                losses.records_lost = losses.records_lost.saturating_add(lost);
            }

            let first_block = entry.cells_block;
            let owner = Owner::One { generation: entry.generation, state: entry.state };
            if cache.owner != owner {
                cache.owner = owner;
                cache.marks.iter_mut().for_each(Mark::forget);
            }
            // Before the cells: what they lack is in here.
            let written = tally.written.load(Ordering::Acquire);
            let ring = sparse.ring(entry.ring_block, written);
            let points = geometry.points().min(MAX_POINTS);
            self.pending.take(tally, ring, &mut cache.records, points);
            let (pending, picture) = (&self.pending, &mut self.picture);
            let cells = LaneCells::new(sparse, first_block, &mut self.followed);
            let mut cells = cells.fuse().enumerate();
            let from =
                cells::From { lane: id as u32, owner, before: (0, 0), pending, tally: Some(tally) };
            let mut seen = 0;
            let mut near = Stale::default();
            loop {
                let mut stale = Stale::default();
                while !stale.is_full()
                    && let Some((index, cell)) = cells.next()
                {
                    seen = index + 1;
                    if cache.marks.len() == index {
                        cache.marks.push(Mark::default());
                    }
                    let mark = &cache.marks[index];
                    if !mark.is_fresh(sparse, cell, pending) {
                        stale.add((index, mark), cell, sparse, picture);
                    }
                }
                // The memory of those before them has come meanwhile.
                for (index, cell) in near.iter() {
                    let mark = &mut cache.marks[index];
                    if !self.cells.read(sparse, cell, &from, mark, picture) {
                        picture.losses.cells_busy += 1;
                    }
                }
                if stale.is_empty() {
                    break;
                }
                stale.fetch_counts(&cache.marks, picture);
                near = stale;
            }
            // Only a damaged chain is shorter than it was. Their readings keep their
            // places, or a chain that comes and goes would add to them without end.
            cache.marks.iter_mut().skip(seen).for_each(Mark::forget);
        }
    }

    fn poll_overflow(&mut self) {
        let segment: &Segment = self.segment.borrow();
        let id = segment.overflow_lane();
        let sparse = Sparse::new(segment, &self.backed);
        // The entry has memory once a thread has found no lane. The cells are in
        // use before: handlers that interrupt the probe itself record there.
        let entered = segment.ledger().overflow_used.load(Ordering::Acquire) != 0;
        let lane = sparse.lane(id).filter(|_| entered);
        let mut used = lane.is_some();
        let none = Pending::default();
        for (place, entry) in self.entries.iter().enumerate() {
            let cells = entry.shared_cells.map(|offset| sparse.shared_cell(offset));
            let Some((cell, before)) = Cell::newest_shared(cells) else { continue };
            used = true;
            if self.shared.len() <= place {
                self.shared.resize_with(place + 1, Mark::default);
            }
            // Many threads add to it, so its sequence word says nothing.
            let before = before.and_then(Cell::ever).unwrap_or_default();
            let (lane, owner, pending) = (id as u32, Owner::All, &none);
            let from = cells::From { lane, owner, before, pending, tally: None };
            let mark = &mut self.shared[place];
            self.cells.read(sparse, cell, &from, mark, &mut self.picture);
        }
        if !used {
            return;
        }
        let lanes = &mut self.picture.lanes;
        if lanes.last().is_none_or(|last| !last.overflow) {
            lanes.push(LaneReading { id: id as u32, overflow: true, ..LaneReading::default() });
        }
        if let (Some(reading), Some(lane)) = (lanes.last_mut(), lane) {
            reading.amiss = Amiss::of(&lane.tally);
            self.picture.losses.add(&reading.amiss);
            reading.switches = lane.tally.switches.load(Ordering::Relaxed);
        }
    }
}

/// The cells of a lane, in the order in which they were taken.
pub(crate) struct LaneCells<'a> {
    segment: Sparse<'a>,
    block: u64,
    cells: std::slice::Iter<'a, Cell>,
    followed: &'a mut Followed,
}

/// The blocks of cells that were read in this poll. A block is in one chain, once. A
/// damaged chain may be a ring, and many lanes may lead into it.
#[derive(Debug)]
pub(crate) struct Followed(Vec<u64>);

impl Followed {
    pub(crate) fn new(geometry: &Geometry) -> Self {
        Self(vec![0; geometry.blocks_present().min(MAX_BLOCKS) / 64 + 1])
    }

    fn forget(&mut self) {
        self.0.fill(0);
    }

    /// Notes a block; false if it was noted already, or cannot be one.
    fn note(&mut self, block: u64) -> bool {
        let word = usize::try_from(block / 64).ok().and_then(|place| self.0.get_mut(place));
        let Some(word) = word else { return false };
        let is_new = *word >> (block % 64) & 1 == 0;
        *word |= 1 << (block % 64);
        is_new
    }
}

impl<'a> LaneCells<'a> {
    pub(crate) fn new(segment: Sparse<'a>, block: u64, followed: &'a mut Followed) -> Self {
        Self { segment, block, cells: [].iter(), followed }
    }
}

impl<'a> Iterator for LaneCells<'a> {
    type Item = &'a Cell;

    fn next(&mut self) -> Option<&'a Cell> {
        loop {
            if let Some(cell) = self.cells.next() {
                if let Some(ahead) = self.cells.as_slice().get(AHEAD) {
                    near::fetch_start(ahead);
                }
                // Only a damaged chain goes on where there is no memory.
                return self.segment.has_cell(cell).then_some(cell);
            }
            let block = self.segment.cell_block(self.block)?;
            if !self.followed.note(self.block) {
                return None;
            }
            let (cells, next) = block.read();
            self.cells = cells.iter();
            self.block = next;
            if let Some(next) = self.segment.cell_block(next) {
                near::fetch_start(next);
                (0..AHEAD).for_each(|ahead| near::fetch_start(next.cell(ahead)));
            }
        }
    }
}

/// Cells between the one that is looked at and the one whose first line is asked for.
const AHEAD: usize = 8;

/// The point that one is a variant of.
fn point_of(variants: &[(u32, u32)], point: u32) -> Option<u32> {
    let at = variants.binary_search_by_key(&point, |(variant, _)| *variant).ok()?;
    Some(variants[at].1)
}

/// The names of amounts, and what each measurement has of them, as
/// [`crate::layout::point`] has them.
fn amounts_of(text: &str) -> (Vec<String>, Option<Amounts>) {
    let (mut names, mut each) = (Vec::new(), Some(Amounts::default()));
    for (place, amount) in text.split(',').take(MOST).enumerate() {
        let (name, value) = amount.split_once('=').unwrap_or((amount, ""));
        names.push(name.to_owned());
        match (&mut each, value.parse()) {
            (Some(each), Ok(value)) => each[place] = value,
            _ => each = None,
        }
    }
    (names, each)
}

/// Reads a text; `left` is charged for it.
fn read_text(segment: Sparse<'_>, text: Text, left: &mut usize) -> String {
    let len = (text.len.min(LONGEST_TEXT) as usize).min(*left);
    let bytes = segment.text(text.offset as usize, len).unwrap_or_default();
    *left -= bytes.len();
    let bytes: Vec<u8> = bytes.iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
