//! The story of `assets/segment-v3-amounts.pfp`: amounts, a device, and losses.
//!
//! A program copies blocks, mostly of 4,096 and of 64 bytes, and takes steps, each with different
//! amounts. A device works for it.

use std::sync::atomic::Ordering::Relaxed;

use pfp_shm_layout::amounts::Amounts;
use pfp_shm_layout::cell::{Cell, Measurement};
use pfp_shm_layout::control::{Change, apply};
use pfp_shm_layout::geometry::{CHUNK, Config};
use pfp_shm_layout::histogram::locate;
use pfp_shm_layout::point::DEVICE;
use pfp_shm_layout::segment::Segment;

use super::{FIRST_NAMED, Point, Region, Thread, clock, facts};

const KI: u64 = 1 << 10;

fn region(own: u64, amounts: Amounts) -> Region {
    Region { own, amounts, ..Region::default() }
}

/// The life of the program.
pub(crate) fn fill() -> Option<Segment> {
    let config = Config { points: 128, lanes: 2, string_bytes: 4096, blocks: 32 };
    let segment = Segment::in_private_memory(config, &facts());
    clock(&segment, "golden amounts");
    segment.counters().begins_missed.store(6, Relaxed);
    let Points { copy, device, blocks, lines, step } = points(&segment)?;

    let main = Thread::start(&segment, 0, 4_711, b"main")?;
    for own in [100, 100, 130] {
        main.record(blocks, Region { own, inside: 5, ..Region::default() });
    }
    main.record(lines, region(50, [0; 4]));
    main.record(lines, region(60, [0; 4]));
    main.record(copy, region(1_000, [KI, 0, 0, 0]));
    main.record(copy, region(2_000, [3 * KI, 0, 0, 0]));
    // A reset of the metered point. One of its tuples is not measured again.
    apply(copy.word, Change::Reset);
    for point in [blocks, copy] {
        main.follow(point);
    }
    main.record(blocks, region(110, [0; 4]));
    main.record(blocks, region(110, [0; 4]));
    main.record(copy, region(1_500, [5 * KI, 0, 0, 0]));
    main.record(copy, region(2_500, [7 * KI, 0, 0, 0]));
    main.work_of_a_device(device, 50_000);
    main.work_of_a_device(device, 70_000);
    main.record(step, region(300, [7, 1, 1 << 40, 0]));
    main.record(step, region(400, [8, 2, 1 << 41, 0]));
    main.lane.counters.unrecorded.store(2, Relaxed);

    // A lane with two owners. The second owner copies no lines.
    let first = Thread::start(&segment, 1, 4_712, b"worker 1")?;
    first.record(lines, region(40, [0; 4]));
    first.record(copy, region(700, [1_000, 0, 0, 0]));
    first.record(copy, region(710, [2_000, 0, 0, 0]));
    let second = first.end_and_hand_over(4_713, b"worker 2")?;
    second.follow(copy);
    second.record(copy, region(800, [4_000, 0, 0, 0]));

    // Threads without a lane, after the same reset.
    let lane = segment.back_lane(segment.overflow_lane()).ok()??;
    segment.counters().lanes_overflowed.store(1, Relaxed);
    lane.counters.unrecorded.store(3, Relaxed);
    let first_chunk = segment.block_offset(segment.take_blocks(1).ok()?)? / CHUNK;
    share(&segment, first_chunk as u32, blocks, &[(95, [0; 4])])?;
    share(&segment, first_chunk as u32 + 5, copy, &[(90, [10, 0, 0, 0]), (90, [20, 0, 0, 0])])?;

    // The program is killed in the middle of a reset, before the sums are cleared.
    apply(step.word, Change::Reset);
    main.die_following(step);
    Some(segment)
}

struct Points<'a> {
    copy: Point<'a>,
    device: Point<'a>,
    /// The tuple for copies of 4,096 bytes; `lines` is the tuple for copies of 64 bytes.
    blocks: Point<'a>,
    lines: Point<'a>,
    step: Point<'a>,
}

fn points<'a>(segment: &'a Segment) -> Option<Points<'a>> {
    let enter = |name, line, amounts: &str| {
        let number = segment.reserve_point(None, FIRST_NAMED)?;
        segment.announce_point(number, name, "src/copy.rs", line, amounts);
        let word = segment.control(number)?;
        apply(word, Change::Enable);
        Some(Point { number, word, has_sums: !amounts.is_empty() })
    };
    let tuple = |metered: Point<'a>, amounts: &str| {
        let number = segment.reserve_point(None, FIRST_NAMED)?;
        segment.announce_tuple(number, metered.number, amounts);
        Some(Point { number, has_sums: false, ..metered })
    };
    let copy = enter("copy", 10, "bytes")?;
    let device = enter("gpu:copy", DEVICE | 20, "")?;
    let blocks = tuple(copy, "4096")?;
    let lines = tuple(copy, "64")?;
    // A thread was killed before it had measured this tuple.
    tuple(copy, "128")?;
    let step = enter("step", 30, "items,errors,cost")?;
    // The first eight tuples were measured only once each, before all others.
    for items in 0..8 {
        tuple(step, &format!("{items},0,{}", u64::MAX - items))?;
    }
    Some(Points { copy, device, blocks, lines, step })
}

impl Thread<'_> {
    /// A measurement of a device has no record, because the thread was doing other work.
    fn work_of_a_device(&self, point: Point<'_>, own: u64) {
        let cell = self.cell(point);
        self.fold();
        let measured = Measurement { exclusive: own, inclusive: own, away: None };
        let written = self.lane.counters.written.now();
        cell.record(measured, self.bucket(cell, own), written);
    }
}

/// Threads that found no lane measure a point that has no shared cell yet. `chunk` is the first of
/// five chunks for the cell, its sums and its histogram.
fn share(
    segment: &Segment,
    chunk: u32,
    point: Point<'_>,
    measured: &[(u64, Amounts)],
) -> Option<()> {
    let offset = u64::from(chunk) * CHUNK as u64;
    let cell = segment.shared_cell(offset)?;
    cell.prepare(point.number as u32, point.control(), 0);
    if point.has_sums {
        cell.set_amounts(chunk + 3);
    }
    segment.entry(point.number)?.set_shared_cell(false, offset);
    for &(own, amounts) in measured {
        let (part, bucket) = locate(own);
        let chunk = cell.set_part_shared(part, chunk + 4);
        if let Some(sums) = segment.sums(cell.amounts()) {
            Cell::add_amounts_shared(sums, &amounts);
        }
        let measured = Measurement { exclusive: own, inclusive: own, away: None };
        cell.record_shared(measured, Some(&segment.chunk(chunk)?.0[bucket]));
    }
    Some(())
}
