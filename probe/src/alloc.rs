//! Allocators that count, and the counters of each thread.

use std::alloc::{GlobalAlloc, Layout, System};

#[cfg(feature = "enabled")]
mod found;
#[cfg(feature = "enabled")]
mod numbers;
#[cfg(feature = "enabled")]
mod samples;

#[cfg(feature = "enabled")]
pub(crate) use self::{
    found::{look_up, of_this_thread},
    numbers::Numbers,
    samples::SamplePlace,
};

/// A global allocator that counts what the program allocates, so that regions can show their
/// allocations. It calls the allocator `A` for the memory itself.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: pfp::Alloc = pfp::Alloc::new(std::alloc::System);
///
/// # fn main() {
/// static PARSE: pfp::Point = pfp::Point::new("parse").counting_allocs();
/// {
///     let _region = PARSE.measure();
///     drop("a,b".split(',').map(String::from).collect::<Vec<_>>());
/// }
/// # }
/// ```
///
/// Counting costs a few additions for each allocation. A region shows its allocations only if its
/// point counts them: see [`Point::counting_allocs`](crate::Point::counting_allocs).
///
/// This allocator counts the Rust allocations of the program that declares it. `pfp-top run
/// --alloc` counts all calls of `malloc`, by C code, too; its counts are then shown instead.
///
/// A reallocation counts as an allocation of the new size and a release of the old one. An
/// allocation that fails does not count.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alloc<A = System>(A);

impl<A> Alloc<A> {
    /// Counts the allocations of `allocator`.
    pub const fn new(allocator: A) -> Self {
        Self(allocator)
    }
}

// SAFETY: each method passes its arguments to the allocator `A`, which keeps the contract, and
// returns its result.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Alloc<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, and `A` has the same contract.
        counted(unsafe { self.0.alloc(layout) }, layout.size())
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, and `A` has the same contract.
        counted(unsafe { self.0.alloc_zeroed(layout) }, layout.size())
    }

    #[inline]
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        leave(old);
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, and `A` has the same contract.
        let new = counted(unsafe { self.0.realloc(old, layout, size) }, size);
        if !new.is_null() {
            freed(layout.size());
        }
        new
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        leave(memory);
        // SAFETY: the caller keeps the contract of `GlobalAlloc`, and `A` has the same contract.
        unsafe { self.0.dealloc(memory, layout) };
        freed(layout.size());
    }
}

/// Counts an allocation, unless it failed.
#[inline(always)]
fn counted(memory: *mut u8, size: usize) -> *mut u8 {
    #[cfg(feature = "enabled")]
    if !memory.is_null() {
        found::own_counts(|numbers| numbers.alloc(memory.addr(), size as u64));
    }
    let _ = size;
    memory
}

/// Counts memory that was freed.
#[inline(always)]
fn freed(size: usize) {
    #[cfg(feature = "enabled")]
    found::own_counts(|numbers| numbers.free(size as u64));
    let _ = size;
}

/// Removes the samples of memory that is about to be freed or reallocated. If the reallocation
/// fails, the memory has no sample.
#[inline(always)]
fn leave(memory: *mut u8) {
    #[cfg(feature = "enabled")]
    samples::remove(memory.addr());
    let _ = memory;
}

/// Counts an allocation of the calling thread, for an allocator that [`Alloc`] does not wrap.
#[cfg(feature = "enabled")]
#[inline(always)]
pub fn count_alloc(size: usize) {
    found::own_counts(|numbers| numbers.count(size as u64));
}

/// Counts memory that the calling thread has released.
#[cfg(feature = "enabled")]
#[inline(always)]
pub fn count_free(size: usize) {
    freed(size);
}
