//! A histogram matches the figures of its cell, also while a writer runs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use pfp_shm_layout::cell::{Cell, Measurement};
use pfp_shm_layout::control::{Change, Control};
use pfp_shm_layout::geometry::{CHUNK, Config, RING_BLOCKS};
use pfp_shm_layout::header::Facts;
use pfp_shm_layout::histogram;
use pfp_shm_layout::reader::Reader;
use pfp_shm_layout::segment::Segment;

/// A point's cell on the only lane.
fn cell(segment: &Segment) -> &Cell {
    segment.enter_point(None, 0, "point", "torn.rs", 1);
    let word = Control::default().with(Change::Enable);
    segment.control(0).expect("there is room").store(word.0, Relaxed);
    let cells = segment.take_blocks(1).expect("there is room");
    let ring = segment.take_blocks(RING_BLOCKS).expect("there is room");
    let lane = segment.back_lane(0).expect("there is room").expect("there is a lane");
    let owner = lane.claim().expect("nobody has it");
    lane.announce(owner, 1, 0, b"a thread");
    lane.set_cells_block(cells);
    lane.set_ring_block(ring);
    let block = segment.cell_block(cells).expect("just taken");
    block.cell(0).prepare(0, word, owner);
    block.set_used(1);
    block.cell(0)
}

/// The histogram buckets of two durations.
fn buckets<'a>(segment: &'a Segment, cell: &Cell, ticks: [u64; 2]) -> [&'a AtomicU64; 2] {
    let block = segment.take_blocks(1).expect("there is room");
    let first = segment.block_offset(block).expect("just taken") / CHUNK;
    let located = ticks.map(histogram::locate);
    for ((part, _), chunk) in located.into_iter().zip(first..) {
        cell.set_part(part, chunk as u32);
    }
    located.map(|(part, bucket)| &segment.chunk(cell.part(part)).expect("its own").0[bucket])
}

/// Two buckets are incremented in turn: of the measurements in a picture, each has half.
#[test]
fn a_histogram_matches_the_figures_beside_it() {
    // First two buckets in two cache lines of one part, then in two parts.
    for ticks in [[500, 900], [500, 5_000]] {
        let room = Config { points: 64, lanes: 1, blocks: 600, string_bytes: 1 << 14 };
        let facts = Facts::default();
        let segment = Segment::in_private_memory(room, &facts);
        let cell = cell(&segment);
        let buckets = buckets(&segment, cell, ticks);
        let mut reader = Reader::new(&segment, facts);
        let is_over = AtomicBool::new(false);
        let (mut exact, mut wrong) = (0, None);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = 0x2545_f491_4f6c_dd1d_u64;
                let mut turns = (0..2).cycle();
                while !is_over.load(Relaxed) {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    for turn in turns.by_ref().take(1 + random as usize % 8) {
                        let exclusive = ticks[turn];
                        let measured = Measurement { exclusive, inclusive: exclusive, away: None };
                        cell.record(measured, Some(buckets[turn]), 0);
                    }
                    (0..random >> 32 & 0x7f).for_each(|_| std::hint::spin_loop());
                }
            });
            for _ in 0..1_600_000 {
                let picture = reader.poll();
                let Some(found) = picture.cells.first() else { continue };
                let count = found.live.count;
                let counts: Vec<u64> = found.histogram.iter().map(|it| it.count).collect();
                // The histogram may be ahead of the count while its cell is being written.
                if counts.iter().sum::<u64>() == count {
                    exact += 1;
                    if count > 1 && counts != [count.div_ceil(2), count / 2] {
                        wrong = Some((count, counts));
                        break;
                    }
                }
            }
            is_over.store(true, Relaxed);
        });
        assert_eq!(wrong, None, "of {exact}");
        assert!(exact > 0);
    }
}
