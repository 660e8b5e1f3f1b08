//! What a reader keeps from one poll to the next: it is what a new reader would
//! find, and keeping it costs no memory.

#[path = "common/counting.rs"]
mod counting;

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use pfp_shm_layout::cell::{Away, Cell, Measurement, NO_LAST};
use pfp_shm_layout::control::{Change, Control};
use pfp_shm_layout::header::Facts;
use pfp_shm_layout::histogram;
use pfp_shm_layout::point::Text;
use pfp_shm_layout::reader::{BucketCount, Picture, Reader};
use pfp_shm_layout::segment::{CELLS_PER_BLOCK, Config, Segment};

use crate::counting::ALLOCATIONS;

const POINTS: usize = 40;
const LANES: usize = 3;

/// Writes to a segment as the threads of a program do, one after the other.
struct Program {
    /// Of each lane: its generation and the first of its blocks of cells.
    lanes: Vec<(u32, u64)>,
    free_chunks: std::ops::Range<u32>,
}

impl Program {
    fn new(segment: &Segment) -> Self {
        for point in 0..POINTS {
            segment.enter_point(None, 0, &format!("point {point}"), "polling.rs", 1);
            let word = segment.control(point).expect("there is room");
            word.store(Control::default().with(Change::Enable).0, Relaxed);
        }
        let mut program = Self { lanes: Vec::new(), free_chunks: 0..0 };
        for lane in 0..LANES {
            let first = segment.take_blocks(2).expect("there is room");
            let entry = segment.back_lane(lane).expect("there is room").expect("there is a lane");
            let generation = entry.claim().expect("nobody has it");
            entry.announce(generation, 1, 0, b"a thread");
            entry.set_cells_block(first);
            program.lanes.push((generation, first));
            for point in 0..POINTS {
                let block = segment.cell_block(first + u64::from(point >= CELLS_PER_BLOCK));
                let block = block.expect("just taken");
                let place = point % CELLS_PER_BLOCK;
                let word = control(segment, point);
                block.cell(place).prepare(point as u32, word, generation);
                block.set_used(place + 1);
            }
            segment.cell_block(first).expect("just taken").set_next(first + 1);
        }
        program
    }

    fn cell<'a>(&self, segment: &'a Segment, lane: usize, point: usize) -> &'a Cell {
        let block = self.lanes[lane].1 + u64::from(point >= CELLS_PER_BLOCK);
        segment.cell_block(block).expect("it was taken").cell(point % CELLS_PER_BLOCK)
    }

    /// Counts the last measurement in the histogram.
    fn settle_last(&mut self, segment: &Segment, cell: &Cell) -> Option<(u32, usize)> {
        let ticks = Some(cell.last()).filter(|ticks| *ticks != NO_LAST)?;
        let (part, bucket) = histogram::locate(ticks.min(histogram::LIMIT - 1));
        if cell.part(part) == 0 {
            if self.free_chunks.is_empty() {
                let block = segment.take_blocks(1).expect("there is room");
                let first = segment.block_offset(block).expect("just taken") as u32 / 256;
                self.free_chunks = first..first + 64;
            }
            cell.set_part(part, self.free_chunks.next().expect("not empty"));
        }
        Some((cell.part(part), bucket))
    }

    /// One region of that many ticks, as its begin and its end write it.
    fn measure(&mut self, segment: &Segment, lane: usize, point: usize, ticks: u64) {
        let cell = self.cell(segment, lane, point);
        let owner = self.lanes[lane].0;
        let word = control(segment, point);
        if cell.control() != word {
            if let Some((chunk, bucket)) = self.settle_last(segment, cell) {
                segment.chunk(chunk).expect("its own").0[bucket].fetch_add(1, Relaxed);
                cell.forget_last();
            }
            let clear = |chunk| {
                let chunk = segment.chunk(chunk).expect("its own");
                chunk.0.iter().for_each(|count| count.store(0, Relaxed));
            };
            cell.follow(word, owner, clear);
        }
        let last = self.settle_last(segment, cell);
        let bucket = last.map(|(chunk, bucket)| &segment.chunk(chunk).expect("its own").0[bucket]);
        let inclusive_total = cell.inclusive_total() + ticks;
        let away = (ticks.is_multiple_of(3)).then_some(Away { off_cpu: 5, switches: 1 });
        cell.record(Measurement { exclusive: ticks, inclusive_total, away }, bucket);
    }

    /// The lane's thread ends, and another one takes its place if `next`.
    fn end(&mut self, segment: &Segment, lane: usize, next: bool) {
        let entry = segment.lane(lane).expect("there is a lane");
        entry.release(self.lanes[lane].0);
        for point in 0..POINTS {
            self.cell(segment, lane, point).abandon();
        }
        if next {
            let generation = entry.claim().expect("it was given up");
            entry.announce(generation, 2, 0, b"another");
            self.lanes[lane].0 = generation;
        }
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

/// Everything that a picture says of the cells, but when it was said.
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

/// A thread announces a variant and measures it between a reader's look at the table and
/// its look at the cells: the next poll puts it where it belongs.
#[test]
fn a_variant_that_was_met_before_it_was_announced_is_summed_later() {
    let mut reader = reader();
    let mut program = Program::new(reader.segment());
    program.measure(reader.segment(), 0, 3, 5);
    let of_the_whole = |picture: &Picture| -> u64 {
        let whole = picture.cells.iter().filter(|cell| cell.point == 3 && !cell.is_part);
        whole.map(|cell| cell.live.count).sum()
    };
    assert_eq!(of_the_whole(reader.poll(false)), 1);

    let (generation, first) = program.lanes[0];
    let segment: &Segment = reader.segment();
    let block = segment.cell_block(first + 1).expect("it was taken");
    let place = POINTS % CELLS_PER_BLOCK;
    block.cell(place).prepare(POINTS as u32, control(segment, POINTS), generation);
    block.set_used(place + 1);
    let measured = Measurement { exclusive: 7, inclusive_total: 7, away: None };
    block.cell(place).record(measured, None);
    reader.poll(false);

    assert_eq!(reader.segment().reserve_point(None, 0), Some(POINTS));
    reader.segment().announce_variant(POINTS, 3, "bytes=8");
    let picture = reader.poll(false);
    assert_eq!(of_the_whole(picture), 2);
    let part = picture.cells.iter().find(|cell| cell.point == POINTS as u32);
    assert!(part.is_some_and(|cell| cell.is_part && cell.live.count == 1), "{part:?}");
}

/// Measurements, resets and changes of owner in any order, with polls now and
/// then.
#[test]
fn a_picture_that_was_mended_is_the_one_that_a_new_reader_takes() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut reader = reader();
    let mut program = Program::new(reader.segment());
    let mut changed = 0;
    for _ in 0..400 {
        for _ in 0..random.below(200) {
            let lane = random.below(LANES as u64) as usize;
            // Some far more often than others.
            let most = 1 + random.below(POINTS as u64);
            let point = random.below(most) as usize;
            let rare = random.below(4) == 0;
            let bits = if rare { random.below(48) } else { 4 + random.below(3) };
            program.measure(reader.segment(), lane, point, random.below(1 << bits));
        }
        match random.below(10) {
            0..3 => drop(reader.change(random.below(POINTS as u64) as u32, Change::Reset)),
            3 => program.end(reader.segment(), random.below(LANES as u64) as usize, true),
            _ => {}
        }
        let (segment, facts) =
            Segment::from_copy(&reader.segment().to_copy().expect("there is memory"))
                .expect("it is a segment");
        let mut other = Reader::new(segment, facts);
        let (mended, fresh) = (reader.poll(false), other.poll(false));
        changed += mended.cells.iter().filter(|cell| cell.changed == mended.poll).count();
        let (mended, fresh) = (cells(mended), cells(fresh));
        assert_eq!(mended.len(), POINTS * LANES);
        for (mended, fresh) in mended.iter().zip(&fresh) {
            assert_eq!(mended, fresh);
        }
    }
    assert!(changed < 400 * POINTS * LANES / 2, "{changed} readings: all are read at every poll");
    program.end(reader.segment(), 0, false);
    let live = |picture: &Picture| {
        picture.cells.iter().filter(|cell| cell.lane == 0 && cell.live.count > 0).count()
    };
    assert_eq!(live(reader.poll(false)), 0, "figures of a thread that has ended");
}

#[test]
fn a_poll_allocates_nothing_for_what_is_known() {
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
        work(reader.segment());
        work(reader.segment());
        // The second one still makes room for names.
        reader.poll(false);
        reader.poll(false);
        if changed {
            work(reader.segment());
        }
        let before = ALLOCATIONS.get();
        assert_eq!(reader.poll(false).cells.len(), POINTS * LANES);
        assert_eq!(ALLOCATIONS.get() - before, 0, "changed: {changed}");
    }
}

/// However a measurement falls between a reader's looks, no bucket has more than
/// were begun.
#[test]
fn no_bucket_is_ahead_of_its_measurements() {
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
                // So that polls come in between, and find it at rest as well.
                (0..random.below(200)).for_each(|_| std::hint::spin_loop());
            }
        });
        let mut reader = Reader::new(&segment, facts);
        for _ in 0..400_000 {
            let picture = reader.poll(false);
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

/// A damaged table may name one text many times, and a damaged cell one chunk.
#[test]
fn what_is_kept_is_no_more_than_what_there_is() {
    let room = Config { points: 64, lanes: LANES as u32, blocks: 60, string_bytes: 1 << 14 };
    let facts = Facts::default();
    let mut reader = Reader::new(Segment::in_private_memory(room, &facts), facts);
    let segment = reader.segment();
    let geometry = *segment.geometry();
    let program = Program::new(segment);
    let long = segment.enter_text(&"x".repeat(1_000)).expect("there is room");
    let block = segment.take_blocks(1).expect("there is room");
    let chunk = segment.block_offset(block).expect("just taken") as u32 / 256;
    // One bucket in use, so buckets count parts.
    segment.chunk(chunk).expect("just taken").0[0].store(1, Relaxed);
    for point in 0..POINTS {
        let text = Text { len: 1_000_000, ..long };
        segment.entry(point).expect("it was entered").rename(text);
        for lane in 0..LANES {
            let cell = program.cell(segment, lane, point);
            (0..histogram::PARTS).for_each(|part| cell.set_part(part, chunk));
        }
    }
    let picture = reader.poll(false);
    let text: usize = picture.points.iter().map(|point| point.name.len()).sum();
    assert!(text <= geometry.string_bytes(), "{text} bytes of names");
    let parts: usize = picture.cells.iter().map(|cell| cell.histogram.iter().count()).sum();
    let chunks = geometry.blocks_present() * 64;
    assert!(parts > 0 && parts <= chunks, "{parts} parts of {chunks} chunks");
}

/// What memory an object and this process have, bytes.
fn memory(name: &pfp_shm_layout::object::Name) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    let object = std::fs::metadata(format!("/dev/shm/{name}")).expect("it is there");
    let status = std::fs::read_to_string("/proc/self/status").expect("it is there");
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it is told");
    let rss = rss.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10;
    (object.blocks() * 512, rss)
}

/// A segment may claim anything: a reader touches no hole of it, which would become a
/// page, and takes memory for what there is.
#[test]
fn holes_stay_holes() {
    use pfp_shm_layout::copy::Copy;
    use pfp_shm_layout::object::Name;
    const MANY: u32 = 10_000_000;
    let config = Config { points: MANY, lanes: 60_000, string_bytes: 1 << 28, blocks: 100_000 };
    let name = Name::random().expect("chance");
    let own = Segment::create(name, config, &Facts::default(), |_| {}).expect("there is room");
    let named = |reader: &Reader| {
        reader.picture().points.iter().map(|point| point.name.clone()).collect::<Vec<_>>()
    };
    let mut program = Program::new(&own);
    let ledger = own.ledger();
    // A point far behind the others, whose name lies in a hole.
    let far = MANY as usize - 7;
    own.enter_point(Some(far), far, "far", "polling.rs", 1).expect("there is room");
    let hole = Text { offset: 100 << 20, len: 4096 };
    own.entry(far).expect("it is there").rename(hole);
    (0..100).for_each(|_| program.measure(&own, 0, 0, 100));
    (0..100).for_each(|_| program.measure(&own, 2, 3, 100));
    for word in [&ledger.points_used, &ledger.lanes_used, &ledger.blocks_used] {
        word.store(u64::from(MANY), Relaxed);
    }
    ledger.overflow_used.store(1, Relaxed);
    ledger.strings_used.store((1 << 28) - 100, Relaxed);
    // A lane whose chain and ring lie in holes, and a cell whose chunks do.
    let lane = own.lane(1).expect("it is there");
    lane.set_cells_block(90_000);
    lane.set_ring_block(91_000);
    lane.tally.written.store(1 << 40, Relaxed);
    let cell = program.cell(&own, 2, 3);
    let (first, count) = own.chunk_numbers();
    (0..8).for_each(|part| cell.set_part(part, first + count - 1 - part as u32));
    cell.set_amounts(first + count - 100);

    let (object_before, rss_before) = memory(&name);
    let (segment, facts) = Segment::open(&name).expect("it is whole");
    let mut reader = Reader::new(segment, facts);
    for dead in [false, true, true] {
        reader.poll(dead);
        let records = reader.records();
        assert!(records.len() < 1 << 20, "{}", records.len());
        reader.change(MANY - 100_000, Change::Enable);
    }
    let picture = reader.picture();
    assert_eq!(picture.points.len(), POINTS + 1);
    assert_eq!(named(&reader)[0], "point 0");
    assert!(picture.lanes.len() <= LANES + 1, "{}", picture.lanes.len());
    assert!(picture.cells.iter().any(|cell| (cell.lane, cell.live.count) == (0, 100)));
    drop(Copy::of(reader.segment()).expect("there is room for what there is"));
    let (object, rss) = memory(&name);
    assert_eq!(object, object_before, "the object grew");
    assert!(rss < rss_before + (32 << 20), "{} MiB", (rss - rss_before) >> 20);

    // What comes into use later is seen.
    own.enter_point(Some(far + 1), far + 1, "later", "polling.rs", 1).expect("there is room");
    reader.poll(false);
    assert_eq!(named(&reader).last().map(String::as_str), Some("later"));
    own.unlink();
}
