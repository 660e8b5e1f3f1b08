//! What a thread and its open regions store to count allocations; see [`crate::engine::allocs`].

use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU64,
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

use pfp_shm_layout::allocs::AllocWords;
use pfp_shm_layout::calls::{self, Edge, EdgeAllocs, MAX_EDGES};
use pfp_shm_layout::geometry::{EDGE_ALLOCS_BLOCKS, PAGE};
use pfp_shm_layout::lane::LaneCounters;

use crate::alloc::{self, Numbers};
use crate::engine::process::Process;

/// Maximum number of attempts to read the counters while signal handlers interrupt.
const ATTEMPTS: u32 = 8;

/// The epoch of a region that counts no more. No reset epoch has this value.
const LOST: u64 = u64::MAX;

/// Allocations, allocated bytes and freed bytes.
pub(in crate::engine) type Counts = [u64; 3];
type CountWords = [AtomicU64; 3];

/// What a region stores at its begin. Only the region's thread uses the words.
#[repr(C)]
#[derive(Debug)]
pub(in crate::engine) struct AtBegin {
    /// The thread's counters minus [`ThreadAllocs::taken`].
    pub(in crate::engine) untaken: CountWords,
    /// The thread's counters minus the point's inclusive sums on the lane.
    pub(in crate::engine) beyond_sums: CountWords,
    /// The largest allocation of the enclosing region so far.
    pub(in crate::engine) largest: AtomicU64,
    /// The reset epoch of the point.
    pub(in crate::engine) epoch: AtomicU64,
    /// The point's sums on the lane.
    words: AtomicPtr<AllocWords>,
}

impl AtBegin {
    /// The point's sums on the lane.
    pub(in crate::engine) fn words(&self) -> Option<&AllocWords> {
        // SAFETY: the pointer is null, or `set_words` has stored a reference to a chunk of the
        // segment, which is never unmapped.
        unsafe { self.words.load(Relaxed).as_ref() }
    }

    /// The region counts no more: its thread has ended, so nothing can read the thread's counters.
    pub(in crate::engine) fn lose(&self) {
        self.set_words(None);
        self.epoch.store(LOST, Relaxed);
    }

    pub(in crate::engine) fn is_lost(&self) -> bool {
        self.epoch.load(Relaxed) == LOST
    }

    /// Returns the largest allocation of the region, and restores the enclosing region's.
    #[inline(always)]
    pub(in crate::engine) fn restore_largest(&self, numbers: &Numbers) -> u64 {
        let before = self.largest.load(Relaxed);
        numbers.replace_largest(|largest| largest.max(before))
    }

    pub(in crate::engine) fn set_words(&self, words: Option<&AllocWords>) {
        self.words
            .store(words.map_or(ptr::null_mut(), |words| ptr::from_ref(words).cast_mut()), Relaxed);
    }
}

/// What a thread stores to count its allocations.
#[repr(C)]
#[derive(Debug)]
pub(in crate::engine) struct ThreadAllocs {
    /// The thread's counters; null before a region has looked for them.
    numbers: AtomicPtr<Numbers>,
    /// The sums of the exclusive figures of all ended regions.
    pub(in crate::engine) taken: CountWords,
    /// The allocations of the lane's edges; null before there are any.
    edges: AtomicPtr<EdgeAllocs>,
    /// Number of edges whose allocations have memory.
    edges_backed: AtomicU64,
}

impl ThreadAllocs {
    /// Clears the pointer to the counters of the lane's earlier owner.
    pub(super) fn clear(&self) {
        self.numbers.store(ptr::null_mut(), Relaxed);
    }

    /// The allocations of an edge, if they have memory.
    #[inline(always)]
    pub(in crate::engine) fn of_edge(&self, number: usize) -> Option<&Edge> {
        let is_backed = (number as u64) < self.edges_backed.load(Relaxed);
        // SAFETY: the pointer is null, or leads to blocks of the segment, which is never unmapped.
        let edges = unsafe { self.edges.load(Relaxed).as_ref() };
        edges.filter(|_| is_backed)?.of(number)
    }

    /// The thread's counters, if a region has looked for them.
    #[inline(always)]
    pub(in crate::engine) fn known(&self) -> Option<&'static Numbers> {
        // SAFETY: the pointer is null, or the storage of the thread, which calls this and so exists.
        unsafe { self.numbers.load(Relaxed).as_ref() }
    }

    /// The calling thread's counters. `None` if no allocator counts.
    #[inline(always)]
    pub(in crate::engine) fn numbers(&self) -> Option<&'static Numbers> {
        let mut numbers = self.numbers.load(Relaxed);
        if numbers.is_null() {
            numbers = self.find_numbers();
        }
        // SAFETY: the pointer is null, or the calling thread's storage, which lasts as long as the
        // thread.
        unsafe { numbers.as_ref() }
    }

    /// Backs the allocations of the edges up to `number`. `None` if memory runs out.
    #[cold]
    #[inline(never)]
    pub(super) fn back_edges(
        &self,
        process: &Process,
        counters: &LaneCounters,
        number: usize,
    ) -> Option<()> {
        const PER_PAGE: usize = PAGE / size_of::<Edge>();
        if self.edges.load(Relaxed).is_null() {
            let block = process.take_blocks(EDGE_ALLOCS_BLOCKS)?;
            let edges = process.segment.edge_allocs(block)?;
            counters.edge_allocs_block.store(block, Relaxed);
            self.edges.store(ptr::from_ref(edges).cast_mut(), Relaxed);
        }
        let start = self.edges.load(Relaxed).addr() - process.segment.base().addr();
        let (first, pages) = (self.edges_backed.load(Relaxed) as usize, number / PER_PAGE + 1);
        let from = first.div_ceil(PER_PAGE) * PAGE;
        process.back(start + from, pages * PAGE - from)?;
        let backed = (pages * PER_PAGE).min(MAX_EDGES) as u64;
        self.edges_backed.store(backed, Relaxed);
        calls::announce(&counters.edge_allocs, backed);
        Some(())
    }

    #[cold]
    #[inline(never)]
    fn find_numbers(&self) -> *mut Numbers {
        let found = alloc::of_this_thread().map_or(ptr::null(), ptr::from_ref).cast_mut();
        self.numbers.store(found, Relaxed);
        found
    }

    /// The counters, and [`Self::taken`]. Reads both again if a region of a signal handler has ended
    /// in between.
    #[inline(always)]
    pub(in crate::engine) fn read(&self, numbers: &Numbers) -> (Counts, Counts) {
        for tried in 1.. {
            let taken = get(&self.taken);
            compiler_fence(SeqCst);
            let now = numbers.counts();
            compiler_fence(SeqCst);
            // The test compares words. To compare arrays, the compiler would store them and load
            // them in larger pieces, and each load would wait for the stores.
            let [a, b, c] = minus(get(&self.taken), taken);
            if a | b | c == 0 || tried == ATTEMPTS {
                return (now, taken);
            }
        }
        unreachable!("it returns when all tries are over")
    }
}

#[inline(always)]
pub(in crate::engine) fn get(words: &CountWords) -> Counts {
    words.each_ref().map(|word| word.load(Relaxed))
}

#[inline(always)]
pub(in crate::engine) fn put(words: &CountWords, values: Counts) {
    words.iter().zip(values).for_each(|(word, value)| word.store(value, Relaxed));
}

#[inline(always)]
pub(in crate::engine) fn minus(these: Counts, those: Counts) -> Counts {
    std::array::from_fn(|at| these[at].wrapping_sub(those[at]))
}

#[inline(always)]
pub(in crate::engine) fn plus(these: Counts, those: Counts) -> Counts {
    std::array::from_fn(|at| these[at].wrapping_add(those[at]))
}
