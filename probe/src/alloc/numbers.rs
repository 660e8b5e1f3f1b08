//! Counters of a thread's allocations. The crate `pfp-alloc` compiles this file, too.

use std::mem::offset_of;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

use super::samples;
use crate::word;

/// Counters of a thread. Only this thread writes them. They are atomic because a signal handler may
/// allocate, too.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Numbers {
    /// Allocations.
    allocs: AtomicU64,
    /// Allocated bytes, as requested.
    bytes: AtomicU64,
    /// Freed bytes.
    freed: AtomicU64,
    /// Size of the largest allocation since the innermost counting region began.
    largest: AtomicU64,
    /// Bytes to allocate until the next [sample](samples); 0 before the first allocation.
    left: AtomicU64,
}

impl Numbers {
    pub(crate) const fn new() -> Self {
        Self {
            allocs: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            largest: AtomicU64::new(0),
            left: AtomicU64::new(0),
        }
    }

    /// Counts an allocation, and takes its samples if the thread's interval is used up.
    #[inline(always)]
    pub(crate) fn alloc(&self, memory: usize, size: u64) {
        self.count(size);
        let left = self.left.load(Relaxed);
        let next = if left > size { left - size } else { samples::take(memory, size, left) };
        self.left.store(next, Relaxed);
    }

    /// Counts an allocation whose address is not known, so that it has no samples.
    #[inline(always)]
    pub(crate) fn count(&self, size: u64) {
        word::add_constant::<Self, { offset_of!(Self, allocs) }, 1>(self);
        word::add::<Self, { offset_of!(Self, bytes) }>(self, size);
        if self.largest.load(Relaxed) < size {
            self.largest.store(size, Relaxed);
        }
    }

    /// Counts freed bytes.
    #[inline(always)]
    pub(crate) fn free(&self, size: u64) {
        word::add::<Self, { offset_of!(Self, freed) }>(self, size);
    }

    /// Allocations, allocated bytes and freed bytes.
    #[inline(always)]
    pub(crate) fn counts(&self) -> [u64; 3] {
        [&self.allocs, &self.bytes, &self.freed].map(|word| word.load(Relaxed))
    }

    /// Passes the largest allocation to `with`, stores the result, and returns the old value.
    #[inline(always)]
    pub(crate) fn replace_largest(&self, with: impl FnOnce(u64) -> u64) -> u64 {
        let largest = self.largest.load(Relaxed);
        self.largest.store(with(largest), Relaxed);
        largest
    }

    /// Runs work whose allocations do not count. The caller has blocked signals.
    pub(crate) fn uncounted<R>(&self, work: impl FnOnce() -> R) -> R {
        let words = [&self.allocs, &self.bytes, &self.freed, &self.largest];
        let before = words.map(|word| word.load(Relaxed));
        compiler_fence(SeqCst);
        let result = work();
        compiler_fence(SeqCst);
        // If the work has allocated nothing, the largest allocation stays: a switch of contexts
        // replaces it on purpose.
        let restored = if self.allocs.load(Relaxed) == before[0] { 3 } else { 4 };
        words
            .iter()
            .zip(before)
            .take(restored)
            .for_each(|(word, before)| word.store(before, Relaxed));
        result
    }
}
