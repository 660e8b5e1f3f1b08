//! Allocators that count, and the numbers that they have for each thread.

use std::alloc::{GlobalAlloc, Layout, System};

#[cfg(feature = "enabled")]
mod samples;

#[cfg(feature = "enabled")]
pub(crate) use self::{
    numbers::{Numbers, look_up, of_this_thread},
    samples::LiveWords,
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
/// point counts them: see [`Point::counting_allocs`](crate::Point::counting_allocs). Counted are
/// allocations by Rust code of the program or library that has this allocator. `pfp-top run
/// --alloc` also counts those of C code, and needs no change of the program; it replaces the count
/// of this allocator.
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
        // SAFETY: the caller's promise is the one that `A` needs.
        counted(unsafe { self.0.alloc(layout) }, layout.size())
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise is the one that `A` needs.
        counted(unsafe { self.0.alloc_zeroed(layout) }, layout.size())
    }

    #[inline]
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        forget(old);
        // SAFETY: the caller's promise is the one that `A` needs.
        let new = counted(unsafe { self.0.realloc(old, layout, size) }, size);
        if !new.is_null() {
            freed(layout.size());
        }
        new
    }

    #[inline]
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        forget(memory);
        // SAFETY: the caller's promise is the one that `A` needs.
        unsafe { self.0.dealloc(memory, layout) };
        freed(layout.size());
    }
}

/// Counts an allocation, unless it failed.
#[inline(always)]
fn counted(memory: *mut u8, size: usize) -> *mut u8 {
    #[cfg(feature = "enabled")]
    if !memory.is_null() {
        numbers::alloc(size as u64, |left| samples::take(memory.addr(), size as u64, left));
    }
    let _ = size;
    memory
}

/// Counts memory that was freed.
#[inline(always)]
fn freed(size: usize) {
    #[cfg(feature = "enabled")]
    numbers::free(size as u64);
    let _ = size;
}

/// Forgets the samples of memory that is about to be freed.
#[inline(always)]
fn forget(memory: *mut u8) {
    #[cfg(feature = "enabled")]
    samples::forget(memory.addr());
    let _ = memory;
}

/// Counts an allocation of the calling thread, for an allocator that is not behind [`Alloc`].
#[cfg(feature = "enabled")]
#[inline(always)]
pub fn count_alloc(size: usize) {
    numbers::alloc(size as u64, |left| left);
}

/// Counts memory that the calling thread has released.
#[cfg(feature = "enabled")]
#[inline(always)]
pub fn count_free(size: usize) {
    numbers::free(size as u64);
}

#[cfg(feature = "enabled")]
mod numbers {
    use std::ffi::c_void;
    use std::mem::{self, offset_of};
    use std::ptr;
    use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU64,
        Ordering::{Relaxed, SeqCst},
        compiler_fence,
    };

    use pfp_shm_layout::environment::variable;

    use super::samples;
    use crate::word;

    /// What a thread has allocated so far. `libpfp_alloc.so` has the same words.
    #[repr(C)]
    #[derive(Debug)]
    pub(crate) struct Numbers {
        /// Allocations.
        allocs: AtomicU64,
        /// Allocated bytes.
        bytes: AtomicU64,
        /// Freed bytes.
        freed: AtomicU64,
        /// Bytes of the largest allocation since a region has set this to 0.
        largest: AtomicU64,
        /// Bytes to allocate until the next [sample](super::samples).
        left: AtomicU64,
    }

    thread_local! {
        // It has no destructor, so that it can be used to the very end of the thread.
        static OWN: Numbers = const {
            Numbers {
                allocs: AtomicU64::new(0),
                bytes: AtomicU64::new(0),
                freed: AtomicU64::new(0),
                largest: AtomicU64::new(0),
                left: AtomicU64::new(0),
            }
        };
    }

    /// Whether an allocator of this copy of pfp counts.
    static COUNTS: AtomicBool = AtomicBool::new(false);
    /// The function of `libpfp_alloc.so` that returns the calling thread's numbers; null without
    /// that library.
    static PRELOADED: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

    /// Looks for `libpfp_alloc.so`. Its samples, or those of this copy of pfp, find their region by
    /// `find`.
    pub(crate) fn look_up(find: samples::Find) {
        let rate = variable(c"PFP_ALLOC_SAMPLE").and_then(|rate| rate.to_str()?.parse().ok());
        let rate = rate.unwrap_or(samples::USUAL_RATE);
        // SAFETY: the names are NUL-terminated.
        let [numbers, start] = [c"pfp_alloc_numbers", c"pfp_alloc_start_samples"]
            .map(|name| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) });
        PRELOADED.store(numbers, Relaxed);
        if start.is_null() {
            return samples::start(find, rate);
        }
        // SAFETY: the library's function of that name has this type.
        let start = unsafe {
            mem::transmute::<*mut c_void, unsafe extern "C" fn(samples::Find, u64)>(start)
        };
        // SAFETY: the function stores its arguments. Any thread may call `find`.
        unsafe { start(find, rate) };
    }

    /// The calling thread's numbers, which last as long as the thread; `None` if no allocator
    /// counts. If several count, `libpfp_alloc.so` sees the allocations of all.
    pub(crate) fn of_this_thread() -> Option<&'static Numbers> {
        let preloaded = PRELOADED.load(Relaxed);
        if !preloaded.is_null() {
            // SAFETY: the library's function of that name has this type.
            let find = unsafe {
                mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const Numbers>(preloaded)
            };
            // SAFETY: the function may be called by any thread. It returns the thread's own storage.
            return unsafe { find().as_ref() };
        }
        COUNTS.load(Relaxed).then(own)
    }

    /// The numbers of this copy of pfp. Never inlined: the compiler would find the storage before it
    /// is known to be needed, and in a library that is loaded later, that may allocate.
    #[inline(never)]
    fn own() -> &'static Numbers {
        // SAFETY: the storage has no destructor, so it lasts as long as the thread.
        OWN.with(|own| unsafe { &*ptr::from_ref(own) })
    }

    #[inline(always)]
    pub(super) fn alloc(size: u64, sample: impl FnOnce(u64) -> u64) {
        if !COUNTS.load(Relaxed) {
            COUNTS.store(true, Relaxed);
        }
        OWN.with(|own| {
            word::add::<Numbers, { offset_of!(Numbers, allocs) }>(own, 1);
            word::add::<Numbers, { offset_of!(Numbers, bytes) }>(own, size);
            if own.largest.load(Relaxed) < size {
                own.largest.store(size, Relaxed);
            }
            let left = own.left.load(Relaxed);
            own.left.store(if left < size { sample(left) } else { left - size }, Relaxed);
        });
    }

    #[inline(always)]
    pub(super) fn free(size: u64) {
        OWN.with(|own| word::add::<Numbers, { offset_of!(Numbers, freed) }>(own, size));
    }

    impl Numbers {
        /// Allocations, allocated bytes and freed bytes.
        #[inline(always)]
        pub(crate) fn all(&self) -> [u64; 3] {
            [&self.allocs, &self.bytes, &self.freed].map(|word| word.load(Relaxed))
        }

        /// Replaces the largest allocation so far, and returns it.
        #[inline(always)]
        pub(crate) fn replace_largest(&self, with: impl FnOnce(u64) -> u64) -> u64 {
            let largest = self.largest.load(Relaxed);
            self.largest.store(with(largest), Relaxed);
            largest
        }

        /// Runs work whose allocations do not count. No signal handler may run during it.
        pub(crate) fn uncounted<R>(&self, work: impl FnOnce() -> R) -> R {
            let words = [&self.allocs, &self.bytes, &self.freed, &self.largest, &self.left];
            let before = words.map(|word| word.load(Relaxed));
            compiler_fence(SeqCst);
            let result = work();
            compiler_fence(SeqCst);
            // Work that allocates nothing may have replaced the largest allocation on purpose.
            if self.allocs.load(Relaxed) != before[0] {
                words.iter().zip(before).for_each(|(word, before)| word.store(before, Relaxed));
            } else {
                self.freed.store(before[2], Relaxed);
            }
            result
        }
    }
}
