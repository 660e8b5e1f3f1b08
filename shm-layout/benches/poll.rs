//! What a picture of a large segment costs: 1,000 points on 8 lanes, all of
//! them in use, none, a tenth, or all of them changed since the last picture.
//!
//! `cargo bench -p pfp-shm-layout`

use std::hint::black_box;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use pfp_shm_layout::cell::{Cell, Measurement};
use pfp_shm_layout::control::{Change, Control};
use pfp_shm_layout::header::Facts;
use pfp_shm_layout::reader::Reader;
use pfp_shm_layout::segment::{CELLS_PER_BLOCK, Config, Segment};

const POINTS: usize = 1000;
const LANES: usize = 8;

/// A segment as a program with that many busy points leaves it.
fn fill() -> Segment {
    let config = Config { points: 1024, lanes: 8, blocks: 2000, ..Config::default() };
    let segment = Segment::in_private_memory(config, &Facts::default());
    for point in 0..POINTS {
        segment.enter_point(None, 0, &format!("point {point}"), "bench.rs", 1);
        let word = segment.control(point).expect("there is room");
        word.store(Control::default().with(Change::Enable).0, Relaxed);
    }
    let (first_chunk, _) = segment.chunk_numbers();
    let mut free = 0..0;
    for lane in 0..LANES {
        let entry = segment.back_lane(lane).expect("there is room").expect("there is a lane");
        let generation = entry.claim().expect("nobody has it");
        entry.announce(generation, 1, 0, b"bench");
        let mut last = None;
        for point in 0..POINTS {
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
            // Four octaves, as a region of ordinary spread has.
            for part in 3..7 {
                if free.is_empty() {
                    let block = segment.take_blocks(1).expect("there is room");
                    let offset = segment.block_offset(block).expect("just taken");
                    free = (offset / 256) as u32..(offset / 256) as u32 + 64;
                }
                let chunk = free.next().unwrap_or(first_chunk);
                cell.set_part(part, chunk);
                for bucket in &segment.chunk(chunk).expect("just taken").0 {
                    bucket.store(7, Relaxed);
                }
            }
            touch(cell);
            block.set_used(point % CELLS_PER_BLOCK + 1);
        }
    }
    segment
}

fn touch(cell: &Cell) {
    cell.record(Measurement { exclusive: 500, inclusive_total: 500, away: None }, None);
}

fn cells(segment: &Segment) -> Vec<&Cell> {
    let mut cells = Vec::new();
    for lane in 0..LANES {
        let mut block =
            segment.lane(lane).and_then(|lane| lane.read()).map_or(0, |l| l.cells_block);
        while let Some(found) = segment.cell_block(block) {
            let (some, next) = found.read();
            cells.extend(some);
            block = next;
        }
    }
    cells
}

fn poll(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("poll of 1,000 points x 8 lanes");
    for changed in [0, 10, 100] {
        let mut reader = Reader::new(fill(), Facts::default());
        assert_eq!(reader.poll(false).cells.len(), POINTS * LANES);
        let name = format!("{changed} % changed");
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter_custom(|polls| {
                let mut time = Duration::ZERO;
                for _ in 0..polls {
                    let cells = cells(reader.segment());
                    cells.iter().take(cells.len() * changed / 100).for_each(|cell| touch(cell));
                    let start = Instant::now();
                    black_box(reader.poll(false).cells.len());
                    time += start.elapsed();
                }
                time
            });
        });
    }
    group.finish();
}

criterion_group!(benches, poll);
criterion_main!(benches);
