//! Tests the state that a reader keeps from one poll to the next: it equals what a new reader would
//! find, and its memory does not grow.

#[path = "common/counting.rs"]
mod counting;

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{PoisonError, RwLock};

use pfp_shm_layout::calls::ROOT;
use pfp_shm_layout::cell::{self, Away, Cell, Measurement, Sums};
use pfp_shm_layout::control::{Alpha, Change, Control};
use pfp_shm_layout::geometry::{BLOCK, CELLS_PER_BLOCK, Config, RING_BLOCKS, RING_SLOTS};
use pfp_shm_layout::header::Facts;
use pfp_shm_layout::histogram;
use pfp_shm_layout::point::Text;
use pfp_shm_layout::reader::{BucketCount, Picture, Reader};
use pfp_shm_layout::ring::{self, MAX_TICKS, What};
use pfp_shm_layout::segment::Segment;

use crate::counting::ALLOCATIONS;

/// Write-locked by the test that measures the memory of this process.
static ALONE: RwLock<()> = RwLock::new(());

const POINTS: usize = 40;
const LANES: usize = 3;

/// Writes to a segment as the threads of a program do, one after the other, and stores all
/// measurements in lists.
struct Program {
    lanes: Vec<Thread>,
    free_chunks: std::ops::Range<u32>,
    random: Random,
    /// Lists by lane and point.
    lists: Vec<[Lists; POINTS]>,
}

/// The owner of a lane.
struct Thread {
    generation: u32,
    is_live: bool,
    /// The first of the lane's two blocks of cells.
    cells: u64,
    ring: u64,
    written: u64,
    folded: u64,
}

/// The measurements of a point's regions on a lane.
#[derive(Clone, Default)]
struct Lists {
    generation: u32,
    epoch: u32,
    /// Measurements in the current window, by the owner of that generation. `retired` has those by
    /// earlier owners.
    live: Vec<Measurement>,
    retired: Vec<Measurement>,
    /// Measurements in earlier windows.
    past: Vec<Measurement>,
}

impl Program {
    fn new(segment: &Segment) -> Self {
        for point in 0..POINTS {
            segment.enter_point(None, 0, &format!("point {point}"), "polling.rs", 1);
            let word = segment.control(point).expect("there is room");
            let mut on = Control::default().with(Change::Enable);
            if point % 3 == 1 {
                on = on.with(Change::Alpha(Alpha::new(0.25).expect("below 1")));
            }
            word.store(on.0, Relaxed);
        }
        let (lanes, random) = (Vec::new(), Random(0x9e37_79b9_7f4a_7c15));
        let mut program = Self { lanes, free_chunks: 0..0, random, lists: Vec::new() };
        for lane in 0..LANES {
            let cells = segment.take_blocks(2).expect("there is room");
            let ring = segment.take_blocks(RING_BLOCKS).expect("there is room");
            let entry = segment.back_lane(lane).expect("there is room").expect("there is a lane");
            let generation = entry.claim().expect("nobody has it");
            entry.announce(generation, 1, 0, b"a thread");
            entry.set_cells_block(cells);
            entry.set_ring_block(ring);
            let (written, folded) = (0, 0);
            program.lanes.push(Thread { generation, is_live: true, cells, ring, written, folded });
            let lists = Lists { generation, ..Lists::default() };
            program.lists.push(std::array::from_fn(|_| lists.clone()));
            for point in 0..POINTS {
                let block = segment.cell_block(cells + u64::from(point >= CELLS_PER_BLOCK));
                let block = block.expect("just taken");
                let place = point % CELLS_PER_BLOCK;
                let word = control(segment, point);
                block.cell(place).prepare(point as u32, word, generation);
                block.set_used(place + 1);
            }
            segment.cell_block(cells).expect("just taken").set_next(cells + 1);
        }
        program
    }

    fn cell<'a>(&self, segment: &'a Segment, lane: usize, point: usize) -> &'a Cell {
        let block = self.lanes[lane].cells + u64::from(point >= CELLS_PER_BLOCK);
        segment.cell_block(block).expect("it was taken").cell(point % CELLS_PER_BLOCK)
    }

    /// The histogram bucket of a duration.
    fn bucket<'a>(&mut self, segment: &'a Segment, cell: &Cell, ticks: u64) -> &'a AtomicU64 {
        let (part, bucket) = histogram::locate(ticks.min(histogram::LIMIT - 1));
        if cell.part(part) == 0 {
            if self.free_chunks.is_empty() {
                let block = segment.take_blocks(1).expect("there is room");
                let first = segment.block_offset(block).expect("just taken") as u32 / 256;
                self.free_chunks = first..first + 64;
            }
            cell.set_part(part, self.free_chunks.next().expect("not empty"));
        }
        &segment.chunk(cell.part(part)).expect("its own").0[bucket]
    }

    /// Measures one region of `ticks` ticks as its begin and its end write it: into the ring, or
    /// into its cell.
    fn measure(&mut self, segment: &Segment, lane: usize, point: usize, ticks: u64) {
        let inclusive = ticks + self.random.below(9);
        let is_away = self.random.below(20) == 0;
        let away = is_away.then_some(Away { off_cpu: 5, switches: 1, elapsed: inclusive + 5 });
        let measured = Measurement { exclusive: ticks, inclusive, away };
        self.follow(segment, lane, point);
        self.lists[lane][point].live.push(measured);
        if self.lanes[lane].written.is_multiple_of(128) {
            self.fold(segment, lane);
        }
        let is_direct = is_away || inclusive > MAX_TICKS;
        if is_direct {
            self.fold(segment, lane);
            let cell = self.cell(segment, lane, point);
            let bucket = self.bucket(segment, cell, ticks);
            cell.record(measured, Some(bucket), self.lanes[lane].written);
        }
        let thread = &mut self.lanes[lane];
        ring::reuse();
        let slot =
            &segment.ring(thread.ring).expect("its own")[thread.written as usize % RING_SLOTS];
        let what = What::new(point as u32, 0, ROOT, 0);
        if is_direct {
            slot.fill_counted(7, inclusive, ticks, what);
        } else {
            slot.fill(7, inclusive, ticks, inclusive, what);
        }
        thread.written += 1;
        let counters = &segment.lane(lane).expect("there is a lane").counters;
        counters.written.publish(thread.written);
    }

    /// Makes the cell follow its point's control word and the lane's owner.
    fn follow(&mut self, segment: &Segment, lane: usize, point: usize) {
        let (word, owner) = (control(segment, point), self.lanes[lane].generation);
        let cell = self.cell(segment, lane, point);
        if cell.control() == word {
            return;
        }
        self.fold(segment, lane);
        cell.follow(word, owner, |chunk| {
            let chunk = segment.chunk(chunk).expect("its own");
            chunk.0.iter().for_each(|count| count.store(0, Relaxed));
        });
        let lists = &mut self.lists[lane][point];
        if lists.generation != owner {
            lists.retired.append(&mut lists.live);
        }
        if lists.epoch != word.epoch() {
            lists.past.append(&mut lists.retired);
            lists.past.append(&mut lists.live);
        }
        (lists.generation, lists.epoch) = (owner, word.epoch());
    }

    /// Folds the records of the ring into the cells, a few at a time.
    fn fold(&mut self, segment: &Segment, lane: usize) {
        while self.lanes[lane].folded < self.lanes[lane].written {
            let Thread { folded, written, .. } = self.lanes[lane];
            let end = written.min(folded + 1 + self.random.below(60));
            for (cell, live) in self.stage(segment, lane, end) {
                cell.publish(&live, None, end);
            }
            self.lanes[lane].folded = end;
            let counters = &segment.lane(lane).expect("there is a lane").counters;
            ring::announce_folded(&counters.folded, end);
        }
    }

    /// Stages records in their cells, and returns those cells.
    fn stage<'a>(&mut self, segment: &'a Segment, lane: usize, end: u64) -> Vec<(&'a Cell, Sums)> {
        let slots = segment.ring(self.lanes[lane].ring).expect("its own");
        let mut staged: Vec<(&Cell, Sums)> = Vec::new();
        for number in self.lanes[lane].folded..end {
            let Some(addition) = slots[number as usize % RING_SLOTS].addition() else { continue };
            let cell = self.cell(segment, lane, addition.point as usize);
            // An earlier fold that stopped may have folded some of the records.
            if number < cell.folded() {
                continue;
            }
            let known = staged.iter().position(|(known, _)| std::ptr::eq(*known, cell));
            let place = known.unwrap_or_else(|| {
                staged.push((cell, cell.stage()));
                staged.len() - 1
            });
            staged[place].1.add(cell.control(), addition.exclusive, addition.inclusive);
            cell::add(self.bucket(segment, cell, addition.exclusive), 1);
        }
        staged
    }

    /// Folds and stops halfway: some cells are done, and others are staged.
    fn fold_and_stop(&mut self, segment: &Segment, lane: usize) {
        let Thread { folded, written, .. } = self.lanes[lane];
        let end = folded + self.random.below(written - folded + 1);
        let staged = self.stage(segment, lane, end);
        let is_done = self.random.below(2) == 0;
        let done = if is_done { self.random.below(staged.len() as u64 + 1) } else { 0 };
        staged[..done as usize].iter().for_each(|(cell, live)| cell.publish(live, None, end));
    }

    /// Repairs the cells after a fold that stopped.
    fn mend(&mut self, segment: &Segment, lane: usize) {
        for point in 0..POINTS {
            let cell = self.cell(segment, lane, point);
            let held = |chunk| {
                let chunk = segment.chunk(chunk).expect("its own");
                chunk.0.iter().map(|count| count.load(Relaxed)).sum()
            };
            let (too_many, _) = cell.mend(None, held, |_| unreachable!("nothing was reset"));
            let Thread { folded, written, ring, .. } = self.lanes[lane];
            let slots = segment.ring(ring).expect("its own");
            let counted: Vec<_> = (folded.max(cell.folded())..written)
                .filter_map(|number| slots[number as usize % RING_SLOTS].addition())
                .filter(|addition| addition.point as usize == point)
                .take(too_many as usize)
                .collect();
            assert_eq!(counted.len() as u64, too_many);
            for addition in counted {
                cell::add(self.bucket(segment, cell, addition.exclusive), u64::MAX);
            }
            cell.mended(None);
        }
    }

    /// Ends the lane's thread; if `next`, another thread claims the lane.
    fn end(&mut self, segment: &Segment, lane: usize, next: bool) {
        let entry = segment.lane(lane).expect("there is a lane");
        // A thread that is cancelled leaves the fold to the next owner.
        if self.random.below(2) == 0 {
            self.fold(segment, lane);
        }
        entry.release(self.lanes[lane].generation);
        self.lanes[lane].is_live = false;
        if next {
            let generation = entry.claim().expect("it was given up");
            self.fold(segment, lane);
            (0..POINTS).for_each(|point| self.cell(segment, lane, point).abandon());
            entry.announce(generation, 2, 0, b"another");
            (self.lanes[lane].generation, self.lanes[lane].is_live) = (generation, true);
        }
    }

    /// Asserts that a picture agrees with the lists.
    fn judge(&self, segment: &Segment, picture: &Picture) {
        assert_eq!(picture.cells.len(), POINTS * LANES);
        for cell in &picture.cells {
            let (lane, point) = (cell.lane as usize, cell.point as usize);
            let (thread, word) = (&self.lanes[lane], control(segment, point));
            let mut lists = self.lists[lane][point].clone();
            let ever = [&lists.past, &lists.retired, &lists.live].map(|list| sums(list, word));
            let what = format!("lane {lane}, point {point}");
            let lifetime = (cell.lifetime_count, cell.lifetime_exclusive);
            let count = |of: fn(&Sums) -> u64| ever.iter().map(of).sum::<u64>();
            assert_eq!(lifetime, (count(|it| it.count), count(|it| it.exclusive)), "{what}");
            if lists.epoch != word.epoch() {
                (lists.live, lists.retired) = Default::default();
            }
            let mut last_of_retired = None;
            if !thread.is_live || lists.generation != thread.generation {
                last_of_retired = Some(sums(&lists.live, word));
                lists.retired.append(&mut lists.live);
            }
            assert_eq!(cell.live, sums(&lists.live, word), "{what}");
            let last = last_of_retired.unwrap_or_default();
            let (last, average) = (last.last, last.average);
            let retired = Sums { last, average, ..sums(&lists.retired, word) };
            assert_eq!(cell.retired, retired, "{what}");

            let all = || lists.live.iter().chain(&lists.retired).map(|it| it.exclusive);
            let mut counted = 0;
            for BucketCount { low, width, count } in cell.histogram.iter() {
                let is_in = |ticks: &u64| (low..low + width).contains(ticks);
                assert_eq!(count, all().filter(is_in).count() as u64, "{what}: {low}");
                counted += count;
            }
            assert_eq!(counted, all().count() as u64, "{what}");
        }
    }
}

/// The figures of a list.
fn sums(list: &[Measurement], control: Control) -> Sums {
    let ticks = || list.iter().map(|it| it.exclusive);
    let away = || list.iter().filter_map(|it| it.away);
    let alpha = control.alpha().unwrap_or_default();
    let average = ticks().map(|ticks| i128::from(ticks) << 16).reduce(|average, ticks| {
        average + ((ticks - average) * (alpha * f64::from(1 << 20)) as i128).div_euclid(1 << 20)
    });
    Sums {
        count: list.len() as u64,
        exclusive: ticks().sum(),
        inclusive: list.iter().map(|it| it.inclusive).sum(),
        off_cpu: away().map(|away| away.off_cpu).sum(),
        switches: away().map(|away| away.switches).sum(),
        longest: away().map(|away| away.elapsed).max().unwrap_or(0),
        min: ticks().min().unwrap_or(u64::MAX),
        max: ticks().max().unwrap_or(0),
        last: ticks().next_back().unwrap_or(0),
        squares: ticks().map(|ticks| u128::from(ticks).pow(2)).sum(),
        average: average.filter(|_| alpha > 0.0).unwrap_or(0) as u64,
    }
}

fn control(segment: &Segment, point: usize) -> Control {
    Control(segment.control(point).expect("there is such a point").load(Relaxed))
}

fn reader() -> Reader {
    let room = Config { points: 64, lanes: LANES as u32, blocks: 600, string_bytes: 1 << 14 };
    let facts = Facts::default();
    Reader::new(Segment::in_private_memory(room, &facts), facts)
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// All cells of a picture as text, without the numbers of the polls that changed them.
fn cells(picture: &Picture) -> Vec<String> {
    let mut all: Vec<_> = (picture.cells.iter())
        .map(|cell| {
            let lifetime = (cell.lifetime_count, cell.lifetime_exclusive);
            let buckets: Vec<_> = cell.histogram.iter().collect();
            let (live, retired) = (&cell.live, &cell.retired);
            format!("{} {} {live:?} {retired:?} {lifetime:?} {buckets:?}", cell.lane, cell.point)
        })
        .collect();
    all.sort();
    all
}

/// A thread announces a tuple and measures it after a reader has polled the table and before the
/// reader polls the cells: the next poll assigns the measurement to the tuple.
#[test]
fn a_tuple_read_before_its_announcement_is_summed_at_the_next_poll() {
    let _beside = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let mut reader = reader();
    let mut program = Program::new(reader.segment());
    program.measure(reader.segment(), 0, 3, 5);
    let of_the_whole = |picture: &Picture| -> u64 {
        let whole = picture.cells.iter().filter(|cell| cell.point == 3 && !cell.is_part);
        whole.map(|cell| cell.live.count).sum()
    };
    assert_eq!(of_the_whole(reader.poll()), 1);

    let Thread { generation, cells, .. } = program.lanes[0];
    let segment: &Segment = reader.segment();
    let block = segment.cell_block(cells + 1).expect("it was taken");
    let place = POINTS % CELLS_PER_BLOCK;
    block.cell(place).prepare(POINTS as u32, control(segment, POINTS), generation);
    block.set_used(place + 1);
    let measured = Measurement { exclusive: 7, inclusive: 7, away: None };
    block.cell(place).record(measured, None, 1);
    reader.poll();

    assert_eq!(reader.segment().reserve_point(None, 0), Some(POINTS));
    reader.segment().announce_tuple(POINTS, 3, "8");
    let picture = reader.poll();
    assert_eq!(of_the_whole(picture), 2);
    let part = picture.cells.iter().find(|cell| cell.point == POINTS as u32);
    assert!(part.is_some_and(|cell| cell.is_part && cell.live.count == 1), "{part:?}");
}

/// Measurements, folds, resets and changes of owner in random order, with polls in between; some
/// threads stop in the middle of a fold.
#[test]
fn old_and_new_readers_agree_with_the_measurements() {
    let _beside = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut reader = reader();
    let mut program = Program::new(reader.segment());
    let mut changed = 0;
    for _ in 0..400 {
        for _ in 0..random.below(200) {
            let lane = random.below(LANES as u64) as usize;
            // Some points are measured far more often than others.
            let most = 1 + random.below(POINTS as u64);
            let point = random.below(most) as usize;
            let rare = random.below(4) == 0;
            let bits = if rare { random.below(48) } else { 4 + random.below(3) };
            program.measure(reader.segment(), lane, point, random.below(1 << bits));
        }
        match random.below(10) {
            0..3 => drop(reader.change(random.below(POINTS as u64) as u32, Change::Reset, 7_000)),
            3 => program.end(reader.segment(), random.below(LANES as u64) as usize, true),
            4 => program.fold(reader.segment(), random.below(LANES as u64) as usize),
            _ => {}
        }
        let stopped = (random.below(4) == 0).then(|| random.below(LANES as u64) as usize);
        if let Some(lane) = stopped {
            program.fold_and_stop(reader.segment(), lane);
        }
        let (segment, facts) =
            Segment::from_copy(&reader.segment().to_copy().expect("there is memory"))
                .expect("it is a segment");
        let mut other = Reader::new(segment, facts);
        program.judge(other.segment(), reader.poll());
        program.judge(reader.segment(), other.poll());
        let (mended, fresh) = (reader.picture(), other.picture());
        changed += mended.cells.iter().filter(|cell| cell.changed == mended.poll).count();
        let (mended, fresh) = (cells(mended), cells(fresh));
        assert_eq!(mended.len(), POINTS * LANES);
        for (mended, fresh) in mended.iter().zip(&fresh) {
            assert_eq!(mended, fresh);
        }
        if let Some(lane) = stopped {
            program.mend(reader.segment(), lane);
            program.judge(other.segment(), reader.poll());
        }
    }
    assert!(changed < 400 * POINTS * LANES / 2, "{changed} readings: all are read at every poll");
    program.end(reader.segment(), 0, false);
    let live = |picture: &Picture| {
        picture.cells.iter().filter(|cell| cell.lane == 0 && cell.live.count > 0).count()
    };
    assert_eq!(live(reader.poll()), 0, "figures of a thread that has ended");
}

#[test]
fn a_poll_allocates_nothing_for_what_is_known() {
    let _beside = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let mut reader = reader();
    let mut program = Program::new(reader.segment());
    let mut work = |segment: &Segment| {
        for lane in 0..LANES {
            for point in 0..POINTS {
                for ticks in [20, 500, 4_000] {
                    program.measure(segment, lane, point, ticks);
                }
            }
        }
    };
    for changed in [false, true] {
        // The second pass still allocates memory for names, and for each lane's records that are
        // not folded.
        for _ in 0..8 {
            work(reader.segment());
            reader.poll();
        }
        reader.poll();
        if changed {
            work(reader.segment());
        }
        let before = ALLOCATIONS.get();
        assert_eq!(reader.poll().cells.len(), POINTS * LANES);
        assert_eq!(ALLOCATIONS.get() - before, 0, "changed: {changed}");
    }
}

/// However a measurement falls between a reader's loads, no bucket counts more measurements than
/// were begun.
#[test]
fn no_bucket_is_ahead_of_its_measurements() {
    let _beside = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    const TICKS: [u64; 2] = [20, 5_000];
    let room = Config { points: 64, lanes: LANES as u32, blocks: 600, string_bytes: 1 << 14 };
    let facts = Facts::default();
    let segment = Segment::in_private_memory(room, &facts);
    let mut program = Program::new(&segment);
    let begun = [const { AtomicU64::new(0) }; 2];
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random(0x2545_f491_4f6c_dd1d);
            while !is_over.load(SeqCst) {
                let which = random.below(2) as usize;
                begun[which].fetch_add(1, SeqCst);
                program.measure(&segment, 0, 0, TICKS[which]);
                // The pause lets polls run in between, and lets some of them find the writer idle.
                (0..random.below(200)).for_each(|_| std::hint::spin_loop());
            }
        });
        let mut reader = Reader::new(&segment, facts);
        for _ in 0..400_000 {
            let picture = reader.poll();
            let cell = picture.cells.iter().find(|cell| (cell.lane, cell.point) == (0, 0));
            let Some(cell) = cell else { continue };
            let counted: u64 = cell.histogram.iter().map(|bucket| bucket.count).sum();
            if counted < cell.live.count {
                is_over.store(true, SeqCst);
                panic!("{counted} in the histogram, {} measured", cell.live.count);
            }
            for (ticks, begun) in TICKS.iter().zip(&begun) {
                let holds =
                    |bucket: &BucketCount| (bucket.low..bucket.low + bucket.width).contains(ticks);
                let counted = cell.histogram.iter().find(holds).map_or(0, |bucket| bucket.count);
                let begun = begun.load(SeqCst);
                if counted > begun {
                    is_over.store(true, SeqCst);
                    panic!("{counted} of {ticks} ticks, {begun} were begun");
                }
            }
        }
        is_over.store(true, SeqCst);
    });
}

/// If a program is killed at the last step of a measurement that goes into its cell at once, no
/// figure and no bucket has that measurement.
#[test]
fn an_unfinished_measurement_is_in_no_figure() {
    let _beside = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let reader = reader();
    let mut program = Program::new(reader.segment());
    let segment = reader.segment();
    (0..3).for_each(|ticks| program.measure(segment, 0, 0, 100 + ticks));
    program.fold(segment, 0);
    let cell = program.cell(segment, 0, 0);
    let bucket = program.bucket(segment, cell, 90_000);
    let measured = Measurement { exclusive: 90_000, inclusive: 90_000, away: None };
    cell.record(measured, Some(bucket), 3);
    // Everything is written except the sequence word that publishes it.
    let mut copy = segment.to_copy().expect("there is memory");
    let block = segment.block_offset(program.lanes[0].cells).expect("it was taken");
    let first = block + BLOCK - CELLS_PER_BLOCK * size_of::<Cell>();
    let before = (cell.sequence() - 2) | 1;
    copy[first..first + 8].copy_from_slice(&before.to_ne_bytes());
    let (copy, facts) = Segment::from_copy(&copy).expect("it is a segment");
    program.judge(&copy, Reader::new(&copy, facts).poll());
}

/// A damaged table may refer to one text many times, and a damaged cell to one chunk many times.
/// The reader's memory stays within the size of the segment.
#[test]
fn a_damaged_segment_does_not_inflate_the_readers_memory() {
    let _beside = ALONE.read().unwrap_or_else(PoisonError::into_inner);
    let room = Config { points: 64, lanes: LANES as u32, blocks: 60, string_bytes: 1 << 14 };
    let facts = Facts::default();
    let mut reader = Reader::new(Segment::in_private_memory(room, &facts), facts);
    let segment = reader.segment();
    let geometry = *segment.geometry();
    let program = Program::new(segment);
    let long = segment.enter_text(&"x".repeat(1_000)).expect("there is room");
    let block = segment.take_blocks(1).expect("there is room");
    let chunk = segment.block_offset(block).expect("just taken") as u32 / 256;
    // Only one bucket is in use, so the number of buckets is the number of parts read.
    segment.chunk(chunk).expect("just taken").0[0].store(1, Relaxed);
    for point in 0..POINTS {
        let text = Text { len: 1_000_000, ..long };
        segment.entry(point).expect("it was entered").rename(text);
        for lane in 0..LANES {
            let cell = program.cell(segment, lane, point);
            (0..histogram::PARTS).for_each(|part| cell.set_part(part, chunk));
        }
    }
    let picture = reader.poll();
    let text: usize = picture.points.iter().map(|point| point.name.len()).sum();
    assert!(text <= geometry.string_bytes(), "{text} bytes of names");
    let parts: usize = picture.cells.iter().map(|cell| cell.histogram.iter().count()).sum();
    let chunks = geometry.blocks_present() * 64;
    assert!(parts > 0 && parts <= chunks, "{parts} parts of {chunks} chunks");
}

/// Bytes of memory in use by an object and by this process.
fn memory(name: &pfp_shm_layout::name::Name) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    let object = std::fs::metadata(format!("/dev/shm/{name}")).expect("it is there");
    let status = std::fs::read_to_string("/proc/self/status").expect("it is there");
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it is listed");
    let rss = rss.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10;
    (object.blocks() * 512, rss)
}

/// A segment may claim any size: a reader touches no hole of it, which would allocate a page, and
/// allocates memory only for the parts that exist.
#[test]
fn a_reader_allocates_no_pages_in_holes() {
    let _alone = ALONE.write().unwrap_or_else(PoisonError::into_inner);
    use pfp_shm_layout::copy::SegmentCopy;
    use pfp_shm_layout::name::Name;
    const MANY: u32 = 10_000_000;
    let config = Config { points: MANY, lanes: 60_000, string_bytes: 1 << 28, blocks: 100_000 };
    let name = Name::random().expect("chance");
    let own = Segment::create(name, config, &Facts::default(), |_| {}).expect("there is room");
    let named = |reader: &Reader| {
        reader.picture().points.iter().map(|point| point.name.clone()).collect::<Vec<_>>()
    };
    let mut program = Program::new(&own);
    let counters = own.counters();
    // A point whose number is far beyond the others, and whose name is in a hole.
    let far = MANY as usize - 7;
    own.enter_point(Some(far), far, "far", "polling.rs", 1).expect("there is room");
    let hole = Text { offset: 100 << 20, len: 4096 };
    own.entry(far).expect("it is there").rename(hole);
    (0..100).for_each(|_| program.measure(&own, 0, 0, 100));
    (0..100).for_each(|_| program.measure(&own, 2, 3, 100));
    for word in [&counters.points_used, &counters.lanes_used, &counters.blocks_used] {
        word.store(u64::from(MANY), Relaxed);
    }
    counters.overflow_used.store(1, Relaxed);
    counters.strings_used.store((1 << 28) - 100, Relaxed);
    // A lane whose chain and ring are in holes, and a cell whose chunks are.
    let lane = own.lane(1).expect("it is there");
    lane.set_cells_block(90_000);
    lane.set_ring_block(91_000);
    lane.counters.written.publish(1 << 40);
    let cell = program.cell(&own, 2, 3);
    let (first, count) = own.chunk_numbers();
    (0..8).for_each(|part| cell.set_part(part, first + count - 1 - part as u32));
    cell.set_amounts(first + count - 100);

    let (object_before, rss_before) = memory(&name);
    let (segment, facts) = Segment::open(&name).expect("it is whole");
    let mut reader = Reader::new(segment, facts);
    for _ in 0..3 {
        reader.poll();
        let records = reader.records();
        assert!(records.len() < 1 << 20, "{}", records.len());
        reader.change(MANY - 100_000, Change::Enable, 0);
    }
    let picture = reader.picture();
    assert_eq!(picture.points.len(), POINTS + 1);
    assert_eq!(named(&reader)[0], "point 0");
    assert!(picture.lanes.len() <= LANES + 1, "{}", picture.lanes.len());
    assert!(picture.cells.iter().any(|cell| (cell.lane, cell.live.count) == (0, 100)));
    drop(SegmentCopy::of(reader.segment()).expect("there is room for what there is"));
    let (object, rss) = memory(&name);
    assert_eq!(object, object_before, "the object grew");
    assert!(rss < rss_before + (32 << 20), "{} MiB", (rss - rss_before) >> 20);

    // Points that are registered later are read.
    own.enter_point(Some(far + 1), far + 1, "later", "polling.rs", 1).expect("there is room");
    reader.poll();
    assert_eq!(named(&reader).last().map(String::as_str), Some("later"));
    own.unlink();
}
