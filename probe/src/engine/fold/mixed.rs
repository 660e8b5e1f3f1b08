//! The fold of records that name several points in turn.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

use pfp_shm_layout::cell;
use pfp_shm_layout::histogram::{self, BUCKETS};
use pfp_shm_layout::ring::Slot;
use pfp_shm_layout::segment::Chunk;

use super::{RecordSums, add, fold_here, fold_one, part, ticks};
use crate::doubles::Doubles;
use crate::engine::thread::calls::EdgeIndex;
use crate::engine::thread::{Entry, Thread};

/// Sums of the records that name the same points.
#[repr(C, align(32))]
#[derive(Debug)]
struct Batch {
    sum: Cell<RecordSums>,
    names: Cell<u64>,
    /// The histogram part that was last added to, and the octave number of its first bucket.
    chunk: Cell<*const Chunk>,
    first: Cell<usize>,
    last: Cell<*const Slot>,
    /// Like [`Entry::batch`]: offset of the batch of the same point with another caller.
    next: Cell<u32>,
}

/// The batches of a fold, in pages that read zero in a forked child. The first batch is empty: no
/// record has its names.
#[derive(Debug)]
pub(in crate::engine) struct Batches {
    all: [Batch; BATCHES + 1],
    used: Cell<usize>,
}

/// Number of batches of a fold. Each takes a cache line and a half.
const BATCHES: usize = 24;

impl Batches {
    /// The batch that an entry leads to.
    #[inline(always)]
    fn at(&self, offset: u32) -> &Batch {
        debug_assert!((offset as usize) < size_of::<Self>());
        // SAFETY: only `other` writes offsets to entries and batches, and no other process can
        // write there. Each offset leads to a batch of `all`.
        unsafe { &*ptr::from_ref(self).cast::<Batch>().byte_add(offset as usize) }
    }

    /// Finds the batch of a point with another caller, or starts one. Once it is started, the
    /// histogram may have records that the cell lacks. `None` if no batch is free, and in a forked
    /// child, whose entries have no cells.
    #[cold]
    #[inline(never)]
    fn other(&self, entry: &Entry, names: u64) -> Option<&Batch> {
        let mut offset = entry.batch.load(Relaxed);
        while offset != 0 {
            let batch = self.at(offset);
            if batch.names.get() == names {
                return Some(batch);
            }
            offset = batch.next.get();
        }
        let number = self.used.get() + 1;
        let batch = self.all.get(number)?;
        let _ = entry.cell()?.stage_more();
        self.used.set(number);
        batch.sum.set(RecordSums::none());
        batch.names.set(names);
        batch.first.set(0);
        batch.next.set(entry.batch.load(Relaxed));
        entry.batch.store((number * size_of::<Batch>()) as u32, Relaxed);
        Some(batch)
    }
}

impl Batch {
    /// Adds a record and counts it in the histogram. False in a child that a signal handler has
    /// forked during the call.
    #[inline(always)]
    fn add(&self, thread: &Thread, entry: &Entry, slot: &Slot) -> bool {
        let ticks = ticks(slot).first_not_below_zero();
        let own = ticks.first();
        let RecordSums { both, squares, extremes, count } = self.sum.get();
        self.sum.set(RecordSums {
            both: both.add(ticks),
            squares: squares + own * own,
            extremes: extremes.min(Doubles::of(own, -own)),
            count: count + 1,
        });
        self.last.set(slot);
        let number = histogram::octave_number(own);
        let mut bucket = number.wrapping_sub(self.first.get());
        if bucket >= BUCKETS {
            bucket = number % BUCKETS;
            let Some(cell) = entry.cell() else { return false };
            let Some(chunk) = thread.part_for(cell, part(number)) else { return thread.is_alive() };
            self.chunk.set(chunk);
            self.first.set(number - bucket);
        }
        let chunk = self.chunk.get();
        // Checked as late as possible: a forked child must not change its parent's histogram, which
        // has no unpublished copy.
        if !thread.is_still_alive() {
            return false;
        }
        // SAFETY: the pointer leads to a chunk of the segment, found above now or for an earlier
        // record.
        cell::add(&unsafe { &*chunk }.0[bucket], 1);
        true
    }
}

/// Folds records of several points. False in a child that a signal handler has forked during the
/// call.
pub(super) fn fold_mixed(thread: &Thread, slots: &[Slot], from: u64) -> bool {
    let mut names = slots.iter().map(Slot::names).take(SOON);
    let first = names.next();
    match names.any(|names| Some(names) == first) {
        true => fold_batched(thread, slots, from),
        false => fold_each(thread, slots, from),
    }
}

/// Number of records whose names `fold_mixed` compares. If the names of the first record do not
/// recur among them, most batches would have one record.
const SOON: usize = BATCHES + 1;

/// Folds records one by one.
#[inline(never)]
fn fold_each(thread: &Thread, slots: &[Slot], from: u64) -> bool {
    let (table, mut end) = (thread.table(), from);
    for slot in slots {
        end += 1;
        // Another process may have forged the names.
        let Some(entry) = table.entry_named(slot.names()) else { continue };
        if !fold_here(thread, entry, slot, end) {
            break;
        }
    }
    thread.is_still_alive()
}

/// Folds records with the same names as a batch, which is added to the cell in the end. While all
/// batches are in use, other records are added one by one.
#[inline(never)]
fn fold_batched(thread: &Thread, slots: &[Slot], from: u64) -> bool {
    let batches = thread.batches();
    batches.at(0).names.set(u64::MAX);
    batches.used.set(0);
    let table = thread.table();
    for slot in slots {
        let names = slot.names();
        let Some(entry) = table.entry_named(names) else { continue };
        let mut batch = batches.at(entry.batch.load(Relaxed));
        if batch.names.get() != names {
            match batches.other(entry, names) {
                Some(other) => batch = other,
                None if fold_beside(thread, entry, slots, slot, from) => continue,
                None => break,
            }
        }
        if !batch.add(thread, entry, slot) {
            break;
        }
    }
    let end = from + slots.len() as u64;
    let used = batches.all.iter().take(batches.used.get() + 1).skip(1);
    used.map(|batch| table.entry_named(batch.names.get())).all(|entry| {
        // The first batch of a point adds all batches of that point.
        let has_more = |entry: &&Entry| entry.batch.load(Relaxed) != 0;
        entry.filter(has_more).is_none_or(|entry| fold_batches(thread, entry, slots, end))
    }) && thread.is_still_alive()
}

/// Folds a record for which no batch is free. The point's batches are added first, so that its cell
/// gets the records in order.
#[cold]
#[inline(never)]
fn fold_beside(thread: &Thread, entry: &Entry, slots: &[Slot], slot: &Slot, from: u64) -> bool {
    let before = &slots[..place(slots, slot)];
    let number = from + before.len() as u64;
    let has_batch = entry.batch.load(Relaxed) != 0;
    (!has_batch || fold_batches(thread, entry, before, number))
        && fold_one(thread, entry, slot, number + 1)
}

/// Adds the batches of a point to its cell and edges, which then hold the lane's records below
/// `end`. `slots` include all records of the batches. False in a child that a signal handler has
/// forked during the call.
#[inline(never)]
fn fold_batches(thread: &Thread, entry: &Entry, slots: &[Slot], end: u64) -> bool {
    let batches = thread.batches();
    let Some(cell) = entry.cell() else { return false };
    let mut batch = batches.at(entry.batch.load(Relaxed));
    entry.batch.store(0, Relaxed);
    let first = batch;
    let (mut sum, mut last) = (first.sum.get(), first.last.get());
    while batch.next.get() != 0 {
        batch = batches.at(batch.next.get());
        sum = sum.merged(batch.sum.get());
        last = last.max(batch.last.get());
    }
    let Some(last) = slots.get(place(slots, last)) else { return false };
    // Checked as late as possible: in a forked child the sums read as zeros, and must not be added.
    if !thread.is_still_alive() {
        return false;
    }
    add(entry, cell, &sum, slots, last, end);
    batch = first;
    loop {
        if !thread.add_call(entry, batch.names.get(), batch.sum.get().of_calls(), end) {
            return false;
        }
        match batch.next.get() {
            0 => return true,
            next => batch = batches.at(next),
        }
    }
}

/// The index of a slot in `slots`.
#[inline(always)]
fn place(slots: &[Slot], slot: *const Slot) -> usize {
    slot.addr().wrapping_sub(slots.as_ptr().addr()) / size_of::<Slot>()
}

impl Thread {
    /// The batches are in the pages that follow the table, and not on the stack, because a signal
    /// handler's stack may be small.
    fn batches(&self) -> &Batches {
        // SAFETY: `map_pages` has mapped room for the batches, filled with zeros. They belong to
        // the thread, and only a fold uses them: the thread is marked during a fold, so that no
        // signal handler folds.
        unsafe { &*self.behind_table().wrapping_add(size_of::<EdgeIndex>()).cast() }
    }
}
