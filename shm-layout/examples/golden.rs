//! Creates `assets/segment-v3.pfp` and `assets/segment-v3-amounts.pfp`: the segments of programs
//! that were killed, with known figures.
//!
//! `cargo run -p pfp-shm-layout --example golden -- STORY FILE`, where the story is
//! `first` or `amounts`.
//!
//! The files in `assets` were written once, when layout version 3.0 was made, and prove that later
//! readers understand them. They are never written again: a new minor version adds files of its
//! own. This example writes them with the writer's half of the layout, in the order in which the
//! threads of a program would do it. The expected figures are in `tests/golden.rs` and
//! `tests/golden_amounts.rs`.

#[path = "golden/amounts.rs"]
mod amounts;

use std::cell::Cell as LocalCell;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use pfp_shm_layout::amounts::Amounts;
use pfp_shm_layout::calls::{self, CallSums, ROOT};
use pfp_shm_layout::cell::{Away, Cell, Measurement, Sums, add};
use pfp_shm_layout::control::{Alpha, Change, Control, apply, reset};
use pfp_shm_layout::geometry::{CALLS_BLOCKS, CHUNK, Config, PAGE, RING_BLOCKS, RING_SLOTS};
use pfp_shm_layout::header::{ClockKind, Facts};
use pfp_shm_layout::histogram::{LIMIT, locate};
use pfp_shm_layout::lane::Lane;
use pfp_shm_layout::ring::{self, MAX_TICKS, POINT_SHIFT, Slot, What};
use pfp_shm_layout::segment::Segment;

/// Number of the first named point.
const FIRST_NAMED: usize = 64;
/// Number of records that are folded together.
const RECORDS_PER_PAGE: u64 = (PAGE / size_of::<Slot>()) as u64;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(story), Some(path)) = (arguments.next(), arguments.next()) else {
        return Err("expected a story and the file to write".into());
    };
    let fill = match story.to_str() {
        Some("first") => first,
        Some("amounts") => amounts::fill,
        _ => return Err("the stories are first and amounts".into()),
    };
    std::fs::write(path, fill().ok_or("the segment is too small")?.to_copy()?)?;
    Ok(())
}

/// The life of the first program.
fn first() -> Option<Segment> {
    let config = Config { points: 128, lanes: 3, string_bytes: 4096, blocks: 32 };
    let segment = Segment::in_private_memory(config, &facts());
    clock(&segment, "golden");
    let [parse, compress, wait, lookup] = points(&segment)?;

    let main = Thread::start(&segment, 0, 4_711, b"main")?;
    // The lane gets more records than its ring holds, and then a reset.
    for _ in 0..2_100 {
        main.record(parse, Region { own: 100, inside: 5, ..Region::default() });
    }
    reset(parse.word, segment.reset_time(parse.number)?, 6_500_000_000);
    main.follow(parse);
    for step in 0..10 {
        main.record(parse, Region { own: 100 + 10 * step, inside: 5, ..Region::default() });
    }
    // An exponential average.
    apply(compress.word, Change::Alpha(Alpha::new(0.25)?));
    for own in [1_000, 2_000] {
        main.record(compress, Region { own, ..Region::default() });
    }
    // Time off the CPU, and a measurement beyond the histogram.
    let away = Some(Away { off_cpu: 1_000_000, switches: 3, elapsed: 1_000_600 });
    main.record(wait, Region { own: 500, away, ..Region::default() });
    main.record(wait, Region { own: 1 << 50, ..Region::default() });
    main.record(wait, Region { own: 700, ..Region::default() });
    // Two parts of a latched region, of 300 and 400 ticks, count as one measurement.
    main.record(lookup, Region { own: 300 + 400, ..Region::default() });
    main.record(lookup, Region { own: 50, depth: 1, context: 9, ..Region::default() });
    let counters = &main.lane.counters;
    for (word, value) in [
        (&counters.switches, 3),
        (&counters.mismatched, 1),
        (&counters.refused, 2),
        (&counters.anomalies, 4),
    ] {
        word.store(value, Relaxed);
    }

    // A lane with two owners. The second owner uses one of the first owner's two cells.
    let first = Thread::start(&segment, 1, 4_712, b"worker 1")?;
    for _ in 0..3 {
        first.record(parse, Region { own: 400, inside: 5, ..Region::default() });
    }
    for _ in 0..2 {
        first.record(compress, Region { own: 70, ..Region::default() });
    }
    let second = first.end_and_hand_over(4_713, "Ärbeiter 2".as_bytes())?;
    second.follow(parse);
    for _ in 0..2 {
        second.record(parse, Region { own: 1_000, inside: 5, ..Region::default() });
    }

    // A thread that ended before it measured anything, because there was no space.
    let lane = segment.back_lane(2).ok()??;
    let generation = lane.claim()?;
    lane.announce(generation, 4_714, 2_004_714, b"a name of 32 bytes is all we keep");
    assert!(segment.take_blocks(1_000).is_err());
    lane.release(generation);

    share(&segment, parse)?;
    main.show_calls(parse, compress, wait)?;

    // The program is killed in the middle of a reset, and of a fold.
    apply(lookup.word, Change::Reset);
    main.die_following(lookup);
    second.die_folding(parse);
    Some(segment)
}

fn facts() -> Facts {
    Facts {
        id: 0x0123_4567_89ab_cdef_0011_2233_4455_6677,
        boot_id: 0x8899_aabb_ccdd_eeff_1021_3243_5465_7687,
        pid: 4_711,
        start_time: 123_456,
        pid_namespace: 4_026_531_836,
        created_unix_ns: 1_700_000_000_000_000_000,
        created_ticks: 1_000_000,
        created_monotonic_ns: 5_000_000_000,
        exe: "/usr/bin/gölden".into(),
        host: "host.example".into(),
        ..Facts::default()
    }
}

fn clock(segment: &Segment, name: &str) {
    let counters = segment.counters();
    counters.set_name(name);
    counters.clock_kind.store(ClockKind::Rseq as u64, Relaxed);
    counters.ticks_per_1000_s.store(2_300_000_500_000, Relaxed);
    counters.reported_ticks_per_1000_s.store(2_300_000_000_000, Relaxed);
    counters.core_hz.store(3_500_000_000, Relaxed);
    counters.invariant.store(1, Relaxed);
    counters.overhead_inside.store(22, Relaxed);
    counters.overhead_pair.store(51, Relaxed);
}

/// A point: its number and the control word that it follows.
#[derive(Clone, Copy)]
struct Point<'a> {
    number: usize,
    word: &'a AtomicU64,
    /// Whether its cells have sums of amounts.
    has_sums: bool,
}

impl Point<'_> {
    fn control(self) -> Control {
        Control(self.word.load(Relaxed))
    }
}

/// Registers the points. Returns those that the threads use.
fn points(segment: &Segment) -> Option<[Point<'_>; 4]> {
    let enter = |wanted, name, file, line, change| {
        let number = segment.enter_point(wanted, FIRST_NAMED, name, file, line)?;
        let word = segment.control(number)?;
        apply(word, change);
        Some(Point { number, word, has_sums: false })
    };
    enter(Some(0), "overhead", "", 0, Change::Enable)?;
    // A point by number, which was named later, and begun twice.
    let numbered = enter(Some(5), "", "", 0, Change::Invalidate)?;
    segment.entry(numbered.number)?.rename(segment.enter_text("period")?);
    let used = [
        enter(None, "parse", "src/parse.rs", 10, Change::Enable)?,
        enter(None, "compress → 圧縮", "src/compress.rs", 20, Change::Enable)?,
        enter(None, "wait", "src/wait.rs", 30, Change::Enable)?,
        enter(None, "lookup", "src/lookup.rs", 40, Change::Enable)?,
    ];
    enter(None, "never ran", "src/never.rs", 50, Change::Disable)?;
    // A refused number, beyond the table.
    assert!(enter(Some(128), "too many", "src/never.rs", 60, Change::Enable).is_none());
    Some(used)
}

/// The measurement of one begin and end, in ticks.
#[derive(Clone, Copy, Default)]
struct Region {
    own: u64,
    inside: u64,
    away: Option<Away>,
    depth: u8,
    context: u32,
    /// The amounts that the region adds to the sums of its point.
    amounts: Amounts,
}

/// A thread with a lane, and the private state that the probe stores for the thread.
struct Thread<'a> {
    segment: &'a Segment,
    lane: &'a Lane,
    generation: u32,
    ring: u64,
    /// The thread's block of cells, which never becomes full.
    cells: u64,
    /// The number of the thread's next free chunk.
    chunk: LocalCell<u32>,
    /// Number of the ring's records that are in the cells.
    folded: LocalCell<u64>,
    now: LocalCell<u64>,
}

impl<'a> Thread<'a> {
    /// Claims a lane that has had no owner yet.
    fn start(segment: &'a Segment, number: usize, tid: u32, name: &[u8]) -> Option<Self> {
        let lane = segment.back_lane(number).ok()??;
        let generation = lane.claim()?;
        let ring = segment.take_blocks(RING_BLOCKS).ok()?;
        lane.set_ring_block(ring);
        let cells = segment.take_blocks(1).ok()?;
        lane.set_cells_block(cells);
        let chunks = segment.block_offset(segment.take_blocks(1).ok()?)? / CHUNK;
        lane.announce(generation, tid, 2_000_000 + u64::from(tid), name);
        let (chunk, now) = (LocalCell::new(chunks as u32), LocalCell::new(10_000_000));
        let folded = LocalCell::new(0);
        Some(Self { segment, lane, generation, ring, cells, chunk, folded, now })
    }

    /// Publishes two open regions, and an edge for one point inside the other.
    fn show_calls(&self, parse: Point<'_>, compress: Point<'_>, wait: Point<'_>) -> Option<()> {
        let block = self.segment.take_blocks(CALLS_BLOCKS).ok()?;
        let shown = self.segment.calls(block)?;
        shown.claim(2_004_711, 5_000);
        for (level, point) in [compress, wait].into_iter().enumerate() {
            shown.open(level).name((point.number as u32) << POINT_SHIFT, 1_000_000);
            shown.open(level).begin(self.now.get() + level as u64);
        }
        let edge = shown.edge(0)?;
        edge.set_key(What::new(compress.number as u32, 0, parse.number as u32, 0).names);
        let sums = CallSums { count: 2, exclusive: 3_000, inclusive: 3_000 };
        edge.add(
            edge.stage(),
            Some(compress.control().epoch()),
            sums,
            self.lane.counters.written.now(),
        );
        calls::announce(&self.lane.counters.edges, 1);
        self.lane.counters.unplaced.store(1, Relaxed);
        self.lane.set_calls_block(block);
        Some(())
    }

    /// The thread ends, and another one claims its lane.
    fn end_and_hand_over(self, tid: u32, name: &[u8]) -> Option<Self> {
        self.fold();
        let (cells, _) = self.segment.cell_block(self.cells)?.read();
        cells.iter().for_each(Cell::abandon);
        self.lane.release(self.generation);
        let generation = self.lane.claim()?;
        self.lane.announce(generation, tid, 2_000_000 + u64::from(tid), name);
        Some(Self { generation, ..self })
    }

    /// The lane's cell of a point, made at its first use.
    fn cell(&self, point: Point<'_>) -> &'a Cell {
        let block = self.segment.cell_block(self.cells).expect("taken at the start");
        let (cells, _) = block.read();
        if let Some(cell) = cells.iter().find(|cell| cell.point() as usize == point.number) {
            return cell;
        }
        let cell = block.cell(cells.len());
        if point.has_sums {
            cell.set_amounts(self.chunk.replace(self.chunk.get() + 1));
        }
        cell.prepare(point.number as u32, point.control(), self.generation);
        block.set_used(cells.len() + 1);
        cell
    }

    /// The counter of a duration's bucket.
    fn bucket(&self, cell: &Cell, ticks: u64) -> Option<&'a AtomicU64> {
        let (part, bucket) = locate(ticks.min(LIMIT - 1));
        if cell.part(part) == 0 {
            cell.set_part(part, self.chunk.replace(self.chunk.get() + 1));
        }
        Some(&self.segment.chunk(cell.part(part))?.0[bucket])
    }

    fn slot(&self, number: u64) -> &'a Slot {
        let slots = self.segment.ring(self.ring).expect("taken at the start");
        &slots[number as usize % RING_SLOTS]
    }

    /// The first record of a page folds all records before it. A measurement that does not fit into
    /// a record is added to the cell at once.
    fn record(&self, point: Point<'_>, region: Region) {
        let cell = self.cell(point);
        assert_eq!(cell.control(), point.control(), "followed before");
        let inclusive = region.own + region.inside;
        let span = inclusive + region.away.map_or(0, |away| away.off_cpu);
        let what = What::new(point.number as u32, region.depth, ROOT, region.context);
        let written = self.lane.counters.written.now();
        if written.is_multiple_of(RECORDS_PER_PAGE) {
            self.fold();
        }
        if span > MAX_TICKS || region.away.is_some() || point.has_sums {
            self.fold();
            let measured = Measurement { exclusive: region.own, inclusive, away: region.away };
            let bucket = self.bucket(cell, region.own);
            let sums = self.segment.sums(cell.amounts()).map(|sums| (sums, &region.amounts));
            cell.record_amounts(measured, bucket, sums, written);
            self.slot(written).fill_counted(self.now.get(), span, region.own, what);
        } else {
            self.slot(written).fill(self.now.get(), span, region.own, inclusive, what);
        }
        self.lane.counters.written.publish(written + 1);
        self.now.set(self.now.get() + span);
    }

    /// Adds the records that are only in the ring so far to the cells.
    fn fold(&self) {
        let written = self.lane.counters.written.now();
        let (cells, _) = self.segment.cell_block(self.cells).expect("taken at the start").read();
        for cell in cells {
            if let Some(live) = self.stage(cell, usize::MAX) {
                cell.publish(&live, self.segment.sums(cell.amounts()), written);
            }
        }
        self.folded.set(written);
        ring::announce_folded(&self.lane.counters.folded, written);
    }

    /// Stages the first `most` records of a cell's point. `None` if there are none.
    fn stage(&self, cell: &Cell, most: usize) -> Option<Sums> {
        let numbers = self.folded.get()..self.lane.counters.written.now();
        let additions = numbers.filter_map(|number| self.slot(number).addition());
        let mut additions = additions.filter(|it| it.point == cell.point()).take(most).peekable();
        additions.peek()?;
        let mut live = cell.stage();
        for addition in additions {
            live.add(cell.control(), addition.exclusive, addition.inclusive);
            add(self.bucket(cell, addition.exclusive).expect("it has a chunk"), 1);
        }
        Some(live)
    }

    /// Starts a fold that stops after the first record of the cell.
    fn die_folding(&self, point: Point<'_>) {
        assert!(self.stage(self.cell(point), 1).is_some());
    }

    /// Follows the point's control word, as the next begin after a change does.
    fn follow(&self, point: Point<'_>) {
        self.fold();
        let cell = self.cell(point);
        let sums = self.segment.sums(cell.amounts());
        cell.follow_with(point.control(), self.generation, sums, |chunk| {
            for bucket in &self.segment.chunk(chunk).expect("the cell has it").0 {
                bucket.store(0, Relaxed);
            }
        });
    }

    /// Starts to follow the point's control word, but stops at the first part of the histogram that
    /// must be cleared.
    fn die_following(&self, point: Point<'_>) {
        self.fold();
        let cell = self.cell(point);
        let sums = self.segment.sums(cell.amounts());
        let killed = |_| resume_unwind(Box::new(()));
        let death = || cell.follow_with(point.control(), self.generation, sums, killed);
        assert!(catch_unwind(AssertUnwindSafe(death)).is_err());
    }
}

/// Two threads that found no lane measure the point four times.
fn share(segment: &Segment, point: Point<'_>) -> Option<()> {
    let lane = segment.back_lane(segment.overflow_lane()).ok()??;
    segment.counters().lanes_overflowed.store(2, Relaxed);
    lane.counters.mismatched.store(7, Relaxed);
    let block = segment.block_offset(segment.take_blocks(1).ok()?)?;
    let cell = segment.shared_cell(block as u64)?;
    cell.prepare(point.number as u32, point.control(), 0);
    segment.entry(point.number)?.set_shared_cell(false, block as u64);
    let (part, bucket) = locate(90);
    // The cell takes the first three chunks of the block.
    let chunk = cell.set_part_shared(part, (block / CHUNK) as u32 + 3);
    for _ in 0..4 {
        let measured = Measurement { exclusive: 90, inclusive: 95, away: None };
        cell.record_shared(measured, Some(&segment.chunk(chunk)?.0[bucket]));
    }
    Some(())
}
