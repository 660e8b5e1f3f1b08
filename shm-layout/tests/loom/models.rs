//! The models. Each is a small scene of one protocol with assertions that must hold; each protocol
//! has a file.

#![warn(dead_code, reason = "a model that is not in `MODELS` shows nothing")]

mod allocs;
mod black_box;
mod calls;
mod cell;
mod cell_death;
mod cell_mend;
mod chain;
mod control;
mod group;
mod header;
mod lane;
mod point;
mod ring;
mod shared_cell;

use std::sync::Arc;

use self::allocs::*;
use self::black_box::*;
use self::calls::*;
use self::cell::*;
use self::cell_death::*;
use self::cell_mend::*;
use self::chain::*;
use self::control::*;
use self::group::*;
use self::header::*;
use self::lane::*;
use self::point::*;
use self::ring::*;
use self::shared_cell::*;
use crate::amounts::{SumWords, SumsPicture};
use crate::cell::{Away, Cell, CellPicture, CellRead, Measurement};
use crate::control::{Change, Control};
use crate::sync::{self, AtomicU64, Ordering};

/// Every model, by name.
pub(crate) const MODELS: &[(&str, fn())] = &[
    ("cell_record", cell_record),
    ("cell_live_record", cell_live_record),
    ("cell_same_sequence", cell_same_sequence),
    ("cell_new_owner", cell_new_owner),
    ("cell_reset", cell_reset),
    ("cell_reset_histogram", cell_reset_histogram),
    ("cell_next_window_histogram", cell_next_window_histogram),
    ("cell_histogram_beside", cell_histogram_beside),
    ("cell_fold", cell_fold),
    ("cell_sums_of_amounts", cell_sums_of_amounts),
    ("cell_death_between_owners", cell_death_between_owners),
    ("cell_death_and_retired_figures", cell_death_and_retired_figures),
    ("cell_death_in_reset", cell_death_in_reset),
    ("cell_death_and_histogram", cell_death_and_histogram),
    ("cell_mended_record", cell_mended_record),
    ("cell_mended_new_owner", cell_mended_new_owner),
    ("cell_mended_reset", cell_mended_reset),
    ("cell_mended_reset_histogram", cell_mended_reset_histogram),
    ("cell_part", cell_part),
    ("cell_part_shared", cell_part_shared),
    ("cell_new_part", cell_new_part),
    ("cell_amounts", cell_amounts),
    ("cell_allocs", cell_allocs),
    ("allocs_are_whole", allocs_are_whole),
    ("box_is_whole", box_is_whole),
    ("cell_death_and_retired_amounts", cell_death_and_retired_amounts),
    ("cell_death_in_fold", cell_death_in_fold),
    ("shared_cell_records", shared_cell_records),
    ("shared_cell_reset", shared_cell_reset),
    ("shared_cell_entered", shared_cell_entered),
    ("shared_cell_left", shared_cell_left),
    ("shared_cell_cleared", shared_cell_cleared),
    ("shared_cell_two_resets", shared_cell_two_resets),
    ("shared_cell_to_enter", shared_cell_to_enter),
    ("shared_cell_death_in_reset", shared_cell_death_in_reset),
    ("ring_is_drained", ring_is_drained),
    ("ring_is_folded", ring_is_folded),
    ("ring_is_written_over", ring_is_written_over),
    ("ring_folded_is_in_cells", ring_folded_is_in_cells),
    ("lane_two_claimants", lane_two_claimants),
    ("lane_hand_over", lane_hand_over),
    ("lane_entry", lane_entry),
    ("lane_ring_block", lane_ring_block),
    ("lane_cells_block", lane_cells_block),
    ("lane_calls_block", lane_calls_block),
    ("edge_is_whole", edge_is_whole),
    ("edge_has_its_key", edge_has_its_key),
    ("open_region_has_its_point", open_region_has_its_point),
    ("open_regions_are_shown_again", open_regions_are_shown_again),
    ("point_two_registrants", point_two_registrants),
    ("point_renamed_meanwhile", point_renamed_meanwhile),
    ("point_rename", point_rename),
    ("point_shared_cell", point_shared_cell),
    ("point_shared_cell_reader", point_shared_cell_reader),
    ("chain_cell", chain_cell),
    ("chain_next", chain_next),
    ("group_late_member", group_late_member),
    ("group_two_come", group_two_come),
    ("group_three_come", group_three_come),
    ("group_one_leaves", group_one_leaves),
    ("group_one_dies", group_one_dies),
    ("group_next_round", group_next_round),
    ("group_one_enters", group_one_enters),
    ("control_two_writers", control_two_writers),
    ("control_reset", control_reset),
    ("control_two_resets", control_two_resets),
    ("control_reset_is_timed", control_reset_is_timed),
    ("header_magic", header_magic),
];

/// Runs a scene in every interleaving with at most three pre-emptions. Debug builds, whose search
/// is slow, allow two, which already find every weakened ordering.
fn check(scene: impl Fn() + Sync + Send + 'static) {
    check_within(if cfg!(debug_assertions) { 2 } else { 3 }, scene);
}

/// Checks a scene with at most `switches` pre-emptions in each run.
fn check_within(switches: usize, scene: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound.get_or_insert(switches);
    sync::in_model(|| {
        model.check(move || {
            sync::set_scene();
            scene();
        });
    });
}

/// A watched word that represents memory which a protocol publishes: 0 until the memory is
/// initialized.
fn memory() -> Arc<AtomicU64> {
    let word = AtomicU64::new(0);
    word.watch();
    Arc::new(word)
}

/// Builds a structure on the heap that is larger than the stack of a model's thread. Without
/// optimization the value passes over that stack while it is built.
fn large<T: Send + Sync + 'static>(build: fn() -> T) -> Arc<T> {
    std::thread::spawn(move || Arc::new(build())).join().unwrap()
}

fn make_ready(memory: &AtomicU64) {
    memory.store(1, Ordering::Relaxed);
}

fn assert_ready(memory: &AtomicU64) {
    assert_eq!(memory.load(Ordering::Relaxed), 1, "seen before it was ready");
}

const ON: Control = Control(1);

fn after_reset() -> Control {
    ON.with(Change::Reset)
}

/// An empty cell of owner 1.
fn new_cell() -> Cell {
    let cell = Cell::new();
    cell.prepare(7, ON, 1);
    cell
}

fn record(cell: &Cell, ticks: u64, bucket: &AtomicU64) {
    let measured = Measurement {
        exclusive: ticks,
        inclusive: ticks,
        away: Some(Away { off_cpu: 2 * ticks, switches: 3, elapsed: 3 * ticks }),
    };
    cell.record(measured, Some(bucket), 0);
}

/// Returns a consistent picture, if the reader obtains one.
fn whole(cell: &Cell) -> Option<CellPicture> {
    let mut picture = CellPicture::default();
    (cell.read(&mut picture) == CellRead::Whole).then_some(picture)
}

fn torn_or_whole(cell: &Cell) -> CellPicture {
    let mut picture = CellPicture::default();
    let _ = cell.read(&mut picture);
    picture
}

/// A cell of owner 1 that has measured once, with these amounts.
fn with_amounts(amounts: [u64; 2]) -> (Arc<Cell>, Arc<SumWords>) {
    let cell = new_cell();
    cell.set_amounts(9);
    let sums: SumWords = std::array::from_fn(|_| AtomicU64::new(0));
    record_amounts(&cell, &sums, amounts);
    (Arc::new(cell), Arc::new(sums))
}

fn record_amounts(cell: &Cell, sums: &SumWords, [first, second]: [u64; 2]) {
    let measured = Measurement { exclusive: 7, inclusive: 7, away: None };
    cell.record_amounts(measured, None, Some((sums, &[first, second, 0, 0])), 0);
}

/// The first two amounts of all owners in a consistent picture.
fn amounts_left(cell: &Cell, sums: &SumWords) -> Option<[u64; 2]> {
    let mut picture = CellPicture::default();
    let read = cell.read_with(&mut picture, |chunk| (chunk == 9).then_some(sums));
    let SumsPicture { live, retired } = picture.amounts;
    (read == CellRead::Whole).then_some([live[0] + retired[0], live[1] + retired[1]])
}
