//! Polling: updates the picture that a reader keeps.

use std::alloc::Layout;
use std::borrow::Borrow;
use std::collections::HashMap;

use super::backed::{Backed, Sparse};
use super::bounds::{COPY_ATTEMPTS, LONGEST_TEXT, MAX_LANES, MAX_POINTS, MAX_TEXT};
use super::cells::{self, CellReader};
use super::chain::{LaneCells, Visited};
use super::keys::{CacheKey, Owner, ReadBatch};
use super::pending::Pending;
use super::picture::{
    AmountTuple, ClockPicture, HeapPicture, LaneErrors, LaneReading, Losses, Picture, PointPicture,
};
use super::reading::CellReading;

use crate::heap::{self, Grow, NoMemory};
use crate::layout::allocs::not_negative;
use crate::layout::amounts::{Amounts, MAX_AMOUNTS};
use crate::layout::black_box::BoxPicture;
use crate::layout::cell::Cell;
use crate::layout::control::{self, Change, Control};
use crate::layout::geometry::{RING_BLOCKS, RING_SLOTS};
use crate::layout::header::{ClockKind, Facts, ProcessState};
use crate::layout::lane::{LanePicture, LaneState};
use crate::layout::point::{EntryPicture, Text};
use crate::layout::ring::{self, Drained, Record};
use crate::layout::segment::Segment;
use crate::sync::{AtomicU64, Ordering};

/// Polls one segment, which it owns or borrows.
#[derive(Debug)]
pub struct Reader<S = Segment> {
    pub(super) segment: S,
    facts: Facts,
    pub(super) picture: Picture,
    /// The entries of `picture.points`, as they were last read.
    entries: Vec<EntryPicture>,
    /// Number of bytes of text that may still be read.
    text_left: usize,
    pub(super) lanes: Vec<LaneCache>,
    /// Keys of the overflow lane's cells, by index in `picture.points`.
    shared: Vec<CacheKey>,
    cells: CellReader,
    pending: Pending,
    /// Buffer for an entry of the directory.
    entry: LanePicture,
    /// The numbers of the tuples, in ascending order, and of their metered points.
    pub(super) tuples: Vec<(u32, u32)>,
    /// Index of the sums of each metered point, by lane and point.
    sums: HashMap<(u32, u32), u32>,
    /// Number of cells in the picture that were checked for being part of a metered point's sum.
    sorted: usize,
    /// Indexes of checked cells whose point was not in the table yet.
    unsorted: Vec<usize>,
    visited: Visited,
    pub(super) backed: Backed,
}

/// The state of a lane at the last poll.
#[derive(Debug, Default)]
pub(super) struct LaneCache {
    owner: Owner,
    pub(super) keys: Vec<CacheKey>,
    /// The range of records that were not folded yet.
    records: (u64, u64),
}

impl<S: Borrow<Segment>> Reader<S> {
    /// A reader for an opened segment. If memory runs out, this and the other functions end the
    /// program; the functions named `try_...` return an error instead.
    #[must_use]
    pub fn new(segment: S, facts: Facts) -> Self {
        or_end(Self::try_new(segment, facts))
    }

    /// [`Self::new`] for code that runs inside the host.
    ///
    /// # Errors
    ///
    /// Memory runs out.
    pub fn try_new(segment: S, facts: Facts) -> Result<Self, NoMemory> {
        let geometry = segment.borrow().geometry();
        Ok(Self {
            backed: Backed::of(segment.borrow())?,
            // Each text is entered once, so all texts together have at most this many bytes. A
            // damaged table may name the same bytes again and again.
            text_left: geometry.string_bytes().min(MAX_TEXT),
            cells: CellReader::new(geometry),
            pending: Pending::default(),
            visited: Visited::new(geometry)?,
            segment,
            facts,
            picture: Picture::default(),
            entries: Vec::new(),
            lanes: Vec::new(),
            shared: Vec::new(),
            entry: LanePicture::default(),
            tuples: Vec::new(),
            sums: HashMap::new(),
            sorted: 0,
            unsorted: Vec::new(),
        })
    }

    /// The facts in the header.
    #[must_use]
    pub const fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The segment.
    #[must_use]
    pub fn segment(&self) -> &Segment {
        self.segment.borrow()
    }

    /// Changes a point's control word; the change takes effect at the point's next begin. `None` if
    /// the point does not exist. `monotonic_ns` is the current time by CLOCK_MONOTONIC_RAW, which a
    /// reset stores for all readers.
    pub fn change(&self, point: u32, change: Change, monotonic_ns: u64) -> Option<Control> {
        let segment: &Segment = self.segment.borrow();
        let used = segment.counters().points_used.load(Ordering::Relaxed);
        let sparse = Sparse::new(segment, &self.backed);
        let word = sparse.control(point as usize).filter(|_| u64::from(point) < used);
        let time = sparse.reset_time(point as usize);
        self.backed.close_file();
        let word = word?;
        let before = match (change, time) {
            (Change::Reset, Some(time)) => control::reset(word, time, monotonic_ns),
            _ => control::apply(word, change),
        };
        if change == Change::Enable {
            segment.wake_as_shown();
        }
        Some(before)
    }

    /// The last picture.
    #[must_use]
    pub const fn picture(&self) -> &Picture {
        &self.picture
    }

    /// Takes a new picture of the segment: polls the process, its points, and all cells.
    pub fn poll(&mut self) -> &Picture {
        or_end(self.try_poll())
    }

    /// [`Self::poll`] for code that runs inside the host. The reader is unusable after an error.
    ///
    /// # Errors
    ///
    /// Memory runs out.
    pub fn try_poll(&mut self) -> Result<&Picture, NoMemory> {
        self.poll_process()?;
        self.poll_points()?;
        self.poll_lanes()?;
        self.poll_overflow()?;
        self.sum_parts()?;
        self.backed.close_file();
        Ok(&self.picture)
    }

    /// Takes a picture of the process and its points without the measurements. Its time does not
    /// depend on how much the threads have measured.
    pub fn outline(&mut self) -> &Picture {
        or_end(self.poll_process());
        or_end(self.poll_points());
        self.backed.close_file();
        &self.picture
    }

    fn poll_process(&mut self) -> Result<(), NoMemory> {
        let segment: &Segment = self.segment.borrow();
        let counters = segment.counters();
        let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let rate = |word: &AtomicU64| get(word) as f64 / 1000.0;
        let some = |value: f64| (value > 0.0).then_some(value);
        let picture = &mut self.picture;

        picture.poll += 1;
        picture.exited = counters.state.load(Ordering::Acquire) == ProcessState::Exited as u64;
        counters.read_name(&mut picture.name)?;
        picture.clock = ClockPicture {
            kind: ClockKind::from_word(get(&counters.clock_kind)),
            ticks_per_second: rate(&counters.ticks_per_1000_s),
            reported_ticks_per_second: some(rate(&counters.reported_ticks_per_1000_s)),
            core_hz: some(get(&counters.core_hz) as f64),
            invariant: get(&counters.invariant) == 1,
            system_clock: get(&counters.system_clock) == 1,
            overhead_inside: get(&counters.overhead_inside),
            overhead_pair: get(&counters.overhead_pair),
        };
        let [live_bytes, live_samples, peak_bytes] =
            counters.heap.each_ref().map(|word| not_negative(get(word)));
        picture.heap = HeapPicture { live_bytes, live_samples, peak_bytes };
        picture.calls_kept = get(&counters.calls_kept);
        picture.losses = Losses {
            points_refused: get(&counters.points_refused),
            space_refused: get(&counters.space_refused),
            lanes_overflowed: get(&counters.lanes_overflowed),
            begins_missed: get(&counters.begins_missed),
            ..Losses::default()
        };
        Ok(())
    }

    /// Copies the calls in the boxes. `known` returns the number of the call that the caller has of
    /// a box, by the box's place; a box with this call is not copied. `take` gets the others.
    pub fn boxes(&self, known: impl Fn(usize) -> u64, mut take: impl FnMut(usize, BoxPicture)) {
        or_end(self.try_boxes(known, |place, copy| {
            take(place, copy);
            Ok(())
        }));
    }

    /// [`Self::boxes`] for code that runs inside the host.
    ///
    /// # Errors
    ///
    /// Memory runs out, or the error of `take`.
    pub fn try_boxes(
        &self,
        known: impl Fn(usize) -> u64,
        mut take: impl FnMut(usize, BoxPicture) -> Result<(), NoMemory>,
    ) -> Result<(), NoMemory> {
        let segment: &Segment = self.segment.borrow();
        let sparse = Sparse::new(segment, &self.backed);
        for (place, block) in segment.counters().boxes.iter().enumerate() {
            let found = sparse.black_box(block.load(Ordering::Relaxed));
            let Some(found) = found.filter(|it| ![0, known(place)].contains(&it.number())) else {
                continue;
            };
            for _ in 0..COPY_ATTEMPTS {
                if let Some(mut copy) = found.read()? {
                    let metered = |point: u32| point_of(&self.tuples, point).unwrap_or(point);
                    let point = u32::try_from(copy.facts.point).unwrap_or(u32::MAX);
                    copy.facts.point = metered(point).into();
                    copy.enclosing.iter_mut().for_each(|it| it.point = metered(it.point));
                    copy.records.iter_mut().for_each(|it| it.point = metered(it.point));
                    take(place, copy)?;
                    break;
                }
            }
        }
        self.backed.close_file();
        Ok(())
    }

    /// Sums the cells of each metered point and its tuples, lane by lane.
    fn sum_parts(&mut self) -> Result<(), NoMemory> {
        let Picture { poll, points, cells, .. } = &mut self.picture;
        let waiting = std::mem::take(&mut self.unsorted);
        for place in waiting.into_iter().chain(self.sorted..cells.len()) {
            let (lane, point) = (cells[place].lane, cells[place].point);
            let Ok(at) = points.binary_search_by_key(&point, |known| known.id) else {
                // The point may have been announced after the table was read.
                self.unsorted.try_push(place)?;
                continue;
            };
            let of = match points[at].tuple {
                Some(tuple) => tuple.of,
                None if points[at].amounts.is_empty() => continue,
                None => point,
            };
            self.sums.try_reserve(1)?;
            cells.try_reserve(1)?;
            let sum = *self.sums.entry((lane, of)).or_insert_with(|| {
                #[allow(clippy::disallowed_methods, reason = "there is room for it")]
                cells.push(CellReading::sum(lane, of));
                cells.len() as u32 - 1
            });
            // The cell's point is known only now. Mark the cell as changed, since its figures may
            // never change again.
            (cells[place].is_part, cells[place].changed) = (true, *poll);
            cells[sum as usize].parts.try_push(place as u32)?;
        }
        self.sorted = cells.len();
        for &place in self.sums.values() {
            let Picture { cells, poll, .. } = &mut self.picture;
            CellReading::sum_up(place as usize, cells, *poll)?;
        }
        Ok(())
    }

    /// Copies the records of the rings, lane by lane, oldest first, each with the number of its
    /// lane.
    #[must_use]
    pub fn records(&self) -> Vec<(u32, Record)> {
        or_end(self.try_records())
    }

    /// [`Self::records`] for code that runs inside the host.
    ///
    /// # Errors
    ///
    /// Memory runs out.
    pub fn try_records(&self) -> Result<Vec<(u32, Record)>, NoMemory> {
        let mut records = Vec::new();
        // In the copy of a segment, records that were overwritten during the copy are zeros.
        let is_there = |record: &&Record| **record != Record::default();
        self.try_drain(
            |_| 0,
            |id, _, of_lane| {
                records.try_reserve(of_lane.len())?;
                records.extend(of_lane.iter().filter(is_there).map(|record| (id, *record)));
                Ok(())
            },
        )?;
        Ok(records)
    }

    /// Copies the records of the rings, lane by lane, oldest first. For a lane's number, `from`
    /// returns the number of the first record to copy. `take` gets the number of the lane, the
    /// outcome of the copy, and the records that were copied whole.
    pub fn drain(&self, from: impl Fn(u32) -> u64, mut take: impl FnMut(u32, Drained, &[Record])) {
        or_end(self.try_drain(from, |id, drained, records| {
            take(id, drained, records);
            Ok(())
        }));
    }

    fn try_drain(
        &self,
        from: impl Fn(u32) -> u64,
        mut take: impl FnMut(u32, Drained, &[Record]) -> Result<(), NoMemory>,
    ) -> Result<(), NoMemory> {
        let segment: &Segment = self.segment.borrow();
        let mut of_lane = Vec::new();
        // A ring belongs to one lane, but a damaged directory may name it many times.
        let most = segment.geometry().blocks_present() / RING_BLOCKS as usize;
        let sparse = Sparse::new(segment, &self.backed);
        let lanes = self.picture.lanes.iter().filter_map(|reading| {
            let lane = sparse.lane(reading.id as usize)?;
            // The slots of these records are checked to have memory. Slots that are written later
            // have memory, too, because a writer backs a slot before it publishes the record.
            let written = lane.counters.written.enter();
            Some((reading.id, lane, sparse.ring(reading.lane.ring_block, written)?))
        });
        for (id, lane, slots) in lanes.take(most) {
            of_lane.clear();
            let drained = ring::drain(&lane.counters.written, slots, from(id), &mut of_lane)?;
            if !self.tuples.is_empty() {
                for record in &mut of_lane {
                    record.point = point_of(&self.tuples, record.point).unwrap_or(record.point);
                }
            }
            take(id, drained, &of_lane)?;
        }
        self.backed.close_file();
        Ok(())
    }

    fn poll_points(&mut self) -> Result<(), NoMemory> {
        let segment: &Segment = self.segment.borrow();
        let used = segment.counters().points_used.load(Ordering::Relaxed);
        let used = usize::try_from(used).map_or(usize::MAX, |used| used);
        let used = used.min(segment.geometry().points());
        let sparse = Sparse::new(segment, &self.backed);
        let points = &mut self.picture.points;
        // Ids ascend, and a point is never removed.
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
            // Texts do not change in place, so the same offset means the same text.
            if is_known {
                let (point, last) = (&mut points[place], &mut self.entries[place]);
                if last.name != entry.name {
                    point.name = text(entry.name)?;
                }
                if last.file != entry.file {
                    point.file = text(entry.file)?;
                }
                (point.line, point.control, *last) = (entry.line, control, entry);
                (point.device, point.wall, point.reset_ns) = (entry.device, entry.wall, reset_ns);
                point.slow_calls = entry.slow_calls;
            } else {
                let (name, file) = (text(entry.name)?, text(entry.file)?);
                let id = id as u32;
                let listed = text(entry.amounts)?;
                let (mut amounts, mut tuple) = (Vec::new(), None);
                if let Some(of) = entry.of.filter(|of| *of < id) {
                    let at = self.tuples.partition_point(|(known, _)| *known < id);
                    self.tuples.try_insert(at, (id, of))?;
                    tuple = Some(AmountTuple { of, each: numbers(&listed) });
                } else if !listed.is_empty() {
                    for name in listed.split(',').take(MAX_AMOUNTS) {
                        amounts.try_push(heap::text(name)?)?;
                    }
                }
                let EntryPicture { line, device, wall, slow_calls, .. } = entry;
                let point = PointPicture {
                    id,
                    name,
                    file,
                    line,
                    device,
                    wall,
                    control,
                    reset_ns,
                    slow_calls,
                    amounts,
                    tuple,
                };
                points.try_insert(place, point)?;
                self.entries.try_insert(place, entry)?;
                // A point that was announced late shifts the indexes of the points after it.
                if place < self.shared.len() {
                    self.shared.try_insert(place, CacheKey::default())?;
                }
            }
            place += 1;
        }
        Ok(())
    }

    fn poll_lanes(&mut self) -> Result<(), NoMemory> {
        let segment: &Segment = self.segment.borrow();
        let geometry = segment.geometry();
        let used = segment.counters().lanes_used.load(Ordering::Acquire);
        let lanes = segment.geometry().lanes().min(MAX_LANES);
        let used = usize::try_from(used).map_or(lanes, |used| used.min(lanes));
        self.lanes.try_resize_with(used.max(self.lanes.len()), LaneCache::default)?;
        self.visited.forget();
        let sparse = Sparse::new(segment, &self.backed);
        let mut place = 0;
        for (id, lane) in sparse.lanes(used) {
            let cache = &mut self.lanes[id];
            let readings = &mut self.picture.lanes;
            let is_known = readings.get(place).is_some_and(|lane| lane.id as usize == id);
            // If an entry changes while it is read, the lane has a new owner, which the next poll
            // will show.
            let entry = &mut self.entry;
            if !(0..COPY_ATTEMPTS).any(|_| lane.read_into(entry)) {
                place += usize::from(is_known);
                continue;
            }
            if entry.state == LaneState::Free && entry.cells_block == 0 && !is_known {
                continue;
            }
            if !is_known {
                let reading = LaneReading { id: id as u32, ..LaneReading::default() };
                readings.try_insert(place, reading)?;
            }
            let reading = &mut readings[place];
            place += 1;
            std::mem::swap(&mut reading.lane, entry);
            let entry = &reading.lane;

            let counters = &lane.counters;
            reading.written = counters.written.now();
            reading.switches = counters.switches.load(Ordering::Relaxed);
            let losses = &mut self.picture.losses;
            reading.errors = LaneErrors::of(counters);
            losses.add(&reading.errors);
            if entry.ring_block != 0 {
                let lost = reading.written.saturating_sub(RING_SLOTS as u64 - 1);
                losses.records_lost = losses.records_lost.saturating_add(lost);
            }

            let first_block = entry.cells_block;
            let owner = Owner::One { generation: entry.generation, state: entry.state };
            if cache.owner != owner {
                cache.owner = owner;
                cache.keys.iter_mut().for_each(CacheKey::forget);
            }
            // The ring is read before the cells. A record that is folded in between is then in
            // both, and the cell's number of records shows that the cell has the record. In the
            // other order, the reader could miss the record in both.
            let written = counters.written.enter();
            let ring = sparse.ring(entry.ring_block, written);
            let points = geometry.points().min(MAX_POINTS);
            self.pending.take(counters, ring, &mut cache.records, points)?;
            let (pending, picture) = (&self.pending, &mut self.picture);
            let cells = LaneCells::new(sparse, first_block, &mut self.visited);
            let mut cells = cells.fuse().enumerate();
            let from = cells::CellOrigin {
                lane: id as u32,
                owner,
                before: (0, 0),
                pending,
                counters: Some(counters),
            };
            let mut seen = 0;
            let mut near = ReadBatch::default();
            loop {
                let mut stale = ReadBatch::default();
                while !stale.is_full()
                    && let Some((index, cell)) = cells.next()
                {
                    seen = index + 1;
                    if cache.keys.len() == index {
                        cache.keys.try_push(CacheKey::default())?;
                    }
                    let key = &cache.keys[index];
                    if !key.is_fresh(sparse, cell, pending) {
                        stale.add((index, key), cell, sparse, picture);
                    } else if cell.allocs() != 0 {
                        // Memory may be freed although no region of the point ends.
                        cells::read_allocs(sparse, cell, key, picture);
                    }
                }
                // By now, the memory that was prefetched for these cells has arrived.
                for (index, cell) in near.iter() {
                    let key = &mut cache.keys[index];
                    if !self.cells.read(sparse, cell, &from, key, picture)? {
                        picture.losses.cells_busy += 1;
                    }
                }
                if stale.is_empty() {
                    break;
                }
                stale.fetch_counts(&cache.keys, picture);
                near = stale;
            }
            // Only a damaged chain gets shorter. The cells beyond its end keep their readings;
            // otherwise a chain that shrinks and grows would add readings without end.
            cache.keys.iter_mut().skip(seen).for_each(CacheKey::forget);
        }
        Ok(())
    }

    fn poll_overflow(&mut self) -> Result<(), NoMemory> {
        let segment: &Segment = self.segment.borrow();
        let id = segment.overflow_lane();
        let sparse = Sparse::new(segment, &self.backed);
        // The lane's entry has memory once a thread has found no lane. The lane's cells are used
        // even before: signal handlers that interrupt the probe itself record there.
        let entered = segment.counters().overflow_used.load(Ordering::Acquire) != 0;
        let lane = sparse.lane(id).filter(|_| entered);
        let mut used = lane.is_some();
        let none = Pending::default();
        for (place, entry) in self.entries.iter().enumerate() {
            let cells = entry.shared_cells.map(|offset| sparse.shared_cell(offset));
            let Some((cell, before)) = Cell::newest_shared(cells) else { continue };
            used = true;
            if self.shared.len() <= place {
                self.shared.try_resize_with(place + 1, CacheKey::default)?;
            }
            // Many threads add to a shared cell, so its sequence word does not show whether it has
            // changed.
            let before = before.and_then(Cell::ever).unwrap_or_default();
            let (lane, owner, pending) = (id as u32, Owner::All, &none);
            let from = cells::CellOrigin { lane, owner, before, pending, counters: None };
            let key = &mut self.shared[place];
            self.cells.read(sparse, cell, &from, key, &mut self.picture)?;
        }
        if !used {
            return Ok(());
        }
        let lanes = &mut self.picture.lanes;
        if lanes.last().is_none_or(|last| !last.overflow) {
            let reading = LaneReading { id: id as u32, overflow: true, ..LaneReading::default() };
            lanes.try_push(reading)?;
        }
        if let (Some(reading), Some(lane)) = (lanes.last_mut(), lane) {
            reading.errors = LaneErrors::of(&lane.counters);
            self.picture.losses.add(&reading.errors);
            reading.switches = lane.counters.switches.load(Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Returns the value, or ends the program if memory ran out. For viewers only.
pub(super) fn or_end<R>(found: Result<R, NoMemory>) -> R {
    found.unwrap_or_else(|NoMemory| std::alloc::handle_alloc_error(Layout::new::<Picture>()))
}

/// The metered point to which a tuple belongs.
pub(super) fn point_of(tuples: &[(u32, u32)], point: u32) -> Option<u32> {
    let at = tuples.binary_search_by_key(&point, |(tuple, _)| *tuple).ok()?;
    Some(tuples[at].1)
}

/// The amounts of a tuple. A damaged number is 0.
fn numbers(text: &str) -> Amounts {
    let mut numbers = text.split(',').map(|number| number.parse().unwrap_or(0));
    std::array::from_fn(|_| numbers.next().unwrap_or(0))
}

/// Reads a text, and subtracts its length from `left`.
fn read_text(segment: Sparse<'_>, text: Text, left: &mut usize) -> Result<String, NoMemory> {
    let len = (text.len.min(LONGEST_TEXT) as usize).min(*left);
    let bytes = segment.text(text.offset as usize, len).unwrap_or_default();
    *left -= bytes.len();
    heap::lossy(&heap::collect(bytes.iter().map(|byte| byte.load(Ordering::Relaxed)))?)
}
