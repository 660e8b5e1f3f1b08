//! Measures how long a picture of a large segment takes, by the share of cells that changed since
//! the last picture, and shows that the time grows with the part in use, not with the capacity.
//!
//! `cargo bench -p pfp-shm-layout`

use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use pfp_shm_layout::cell::{Cell, CellPicture, Measurement};
use pfp_shm_layout::control::{Change, Control};
use pfp_shm_layout::geometry::{CELLS_PER_BLOCK, Config};
use pfp_shm_layout::header::Facts;
use pfp_shm_layout::histogram;
use pfp_shm_layout::reader::Reader;
use pfp_shm_layout::segment::Segment;

/// Number of pictures; the median of their times is printed.
const ROUNDS: usize = 101;
/// Ticks of every measurement.
const TICKS: u64 = 500;

/// Points and lanes in use, and the number of octaves that a region's durations spread over.
#[derive(Clone, Copy)]
struct Load {
    points: usize,
    lanes: usize,
    octaves: usize,
}

fn main() {
    let room = |points: u32, lanes: u32, blocks: u32| Config {
        points,
        lanes,
        blocks,
        ..Config::default()
    };
    println!("{:<44} {:>9} {:>9} {:>10}", "poll of", "cells", "ms", "ns a cell");
    let load = Load { points: 1_000, lanes: 8, octaves: 4 };
    measure("1,000 points x 8 lanes", room(1_024, 8, 2_000), load, &[0, 10, 100]);
    let load = Load { points: 10_000, lanes: 64, octaves: 1 };
    measure("10,000 points x 64 lanes", room(10_240, 64, 42_000), load, &[0, 10, 100]);
    let load = Load { points: 100, lanes: 2, octaves: 4 };
    measure("100 of 128 points x 2 of 2 lanes", room(128, 2, 64), load, &[0, 100]);
    measure("100 of 10,240 points x 2 of 64 lanes", room(10_240, 64, 42_000), load, &[0, 100]);
}

/// Polls a segment in which a share of the cells changes between two polls.
fn measure(what: &str, room: Config, load: Load, changed: &[usize]) {
    let mut reader = Reader::new(fill(room, load), Facts::default());
    let cells = load.points * load.lanes;
    assert_eq!(reader.poll().cells.len(), cells);
    for percent in changed {
        let mut times: Vec<Duration> = (0..ROUNDS)
            .map(|_| {
                let busy = recorded_in(reader.segment(), load);
                let one_in = if *percent == 0 { usize::MAX } else { 100 / percent };
                busy.iter()
                    .step_by(one_in)
                    .skip(usize::from(*percent == 0))
                    .for_each(|(cell, bucket)| record(cell, bucket));
                let start = Instant::now();
                black_box(reader.poll());
                start.elapsed()
            })
            .collect();
        times.sort_unstable();
        let median = times[ROUNDS / 2].as_secs_f64();
        let what = format!("{what}, {percent} % changed");
        println!(
            "{what:<44} {cells:>9} {:>9.3} {:>10.1}",
            median * 1e3,
            median * 1e9 / cells as f64
        );
    }
}

/// Creates a segment with this many busy points, as a program would leave it.
fn fill(room: Config, load: Load) -> Segment {
    let segment = Segment::in_private_memory(room, &Facts::default());
    for point in 0..load.points {
        segment.enter_point(None, 0, &format!("point {point}"), "bench.rs", 1);
        let word = segment.control(point).expect("there is room");
        word.store(Control::default().with(Change::Enable).0, Relaxed);
    }
    let (typical, _) = histogram::locate(TICKS);
    let mut free = 0..0;
    for lane in 0..load.lanes {
        let entry = segment.back_lane(lane).expect("there is room").expect("there is a lane");
        let generation = entry.claim().expect("nobody has it");
        entry.announce(generation, 1, 0, b"bench");
        let mut last = None;
        for point in 0..load.points {
            if point % CELLS_PER_BLOCK == 0 {
                let block = segment.take_blocks(1).expect("there is room");
                match last.and_then(|last| segment.cell_block(last)) {
                    Some(before) => before.set_next(block),
                    None => entry.set_cells_block(block),
                }
                last = Some(block);
            }
            let block = segment.cell_block(last.unwrap_or(0)).expect("just taken");
            let cell = block.cell(point % CELLS_PER_BLOCK);
            cell.prepare(point as u32, Control::default().with(Change::Enable), generation);
            for part in typical..typical + load.octaves {
                if free.is_empty() {
                    let block = segment.take_blocks(1).expect("there is room");
                    let offset = segment.block_offset(block).expect("just taken");
                    free = (offset / 256) as u32..(offset / 256) as u32 + 64;
                }
                let chunk = free.next().unwrap_or_default();
                cell.set_part(part, chunk);
                for count in &segment.chunk(chunk).expect("just taken").0 {
                    record(cell, count);
                }
            }
            block.set_used(point % CELLS_PER_BLOCK + 1);
        }
    }
    segment
}

/// Records one measurement.
fn record(cell: &Cell, bucket: &AtomicU64) {
    cell.record(Measurement { exclusive: TICKS, inclusive: TICKS, away: None }, Some(bucket), 0);
}

/// The histogram bucket that counts a cell's measurements.
fn bucket<'a>(segment: &'a Segment, cell: &Cell) -> &'a AtomicU64 {
    let mut picture = CellPicture::default();
    let _ = cell.read(&mut picture);
    let (part, bucket) = histogram::locate(TICKS);
    &segment.chunk(picture.parts.0[part]).expect("it was given one").0[bucket]
}

/// The cells in use, each with the bucket that it counts in.
fn recorded_in(segment: &Segment, load: Load) -> Vec<(&Cell, &AtomicU64)> {
    let mut cells = Vec::with_capacity(load.points * load.lanes);
    for lane in 0..load.lanes {
        let mut block =
            segment.lane(lane).and_then(|lane| lane.read()).map_or(0, |l| l.cells_block);
        while let Some(found) = segment.cell_block(block) {
            let (some, next) = found.read();
            cells.extend(some.iter().map(|cell| (cell, bucket(segment, cell))));
            block = next;
        }
    }
    cells
}
