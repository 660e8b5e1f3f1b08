//! libpfp_alloc: a library that `pfp-top run --alloc` preloads into a program. It defines the
//! functions by which programs allocate. Each passes the call on to the next library that defines
//! it, and counts the result for the calling thread:
//!
//! ```text
//! program --> malloc here --> the C library's malloc, or that of another allocator
//!             |
//!             '--> counters of the thread <-- read by pfp at the begin and end of regions
//! ```
//!
//! The library has no engine. A copy of pfp finds the counters by [`pfp_alloc_numbers_2`], and starts
//! the samples by [`pfp_alloc_start_samples_2`]. `probe/src/alloc/found.rs` says when the number
//! changes.

mod next;
#[path = "../../src/alloc/numbers.rs"]
#[allow(dead_code, reason = "the engine calls the other functions")]
mod numbers;
#[path = "../../src/alloc/samples.rs"]
#[allow(dead_code, reason = "the engine reads the default rate")]
mod samples;
mod storage;
#[path = "../../src/word.rs"]
#[allow(dead_code, reason = "the counters only add")]
mod word;

use std::ffi::{c_int, c_void};
use std::ptr;

use numbers::Numbers;

/// The counters of the calling thread, which last as long as the thread. Null if the program does
/// not allocate by these functions, because it defines them itself.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_alloc_numbers_2() -> *const Numbers {
    if storage::is_called() { storage::numbers() } else { ptr::null() }
}

/// Starts to sample live memory, about once in `rate` bytes. A sample calls `find` for the region
/// that allocates.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_alloc_start_samples_2(find: samples::Find, rate: u64) {
    samples::start(find, rate);
}

/// Counts an allocation of `size` bytes, unless it failed.
#[inline(always)]
fn counted(memory: *mut c_void, size: usize) -> *mut c_void {
    if !memory.is_null() {
        storage::numbers().alloc(memory.addr(), size as u64);
    }
    memory
}

/// Counts the release of `bytes` bytes.
#[inline(always)]
fn freed(bytes: usize) {
    storage::numbers().free(bytes as u64);
}

/// Defines functions that return memory of `size` bytes.
macro_rules! allocating {
    ($(fn $name:ident($($given:ident: $type:ty),*), $size:expr;)*) => {
        $(
            /// As its manual page says.
            ///
            /// # Safety
            ///
            /// None: any numbers are valid.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($given: $type),*) -> *mut c_void {
                // SAFETY: any numbers are valid.
                counted(unsafe { next::$name($($given),*) }, $size)
            }
        )*
    };
}

allocating! {
    fn malloc(size: usize), size;
    fn calloc(count: usize, size: usize), count.wrapping_mul(size);
    fn aligned_alloc(align: usize, size: usize), size;
    fn memalign(align: usize, size: usize), size;
    fn valloc(size: usize), size;
    fn pvalloc(size: usize), size;
}

/// As its manual page says.
///
/// # Safety
///
/// `to` is valid for a write of a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: usize, size: usize) -> c_int {
    // SAFETY: the caller's promise.
    let failed = unsafe { next::posix_memalign(to, align, size) };
    if failed == 0 {
        // SAFETY: the call has stored the address.
        counted(unsafe { *to }, size);
    }
    failed
}

/// As its manual page says.
///
/// # Safety
///
/// The memory is null, or from one of these functions and not freed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(memory: *mut c_void) {
    if memory.is_null() || next::is_early(memory) {
        return;
    }
    samples::remove(memory.addr());
    // SAFETY: by the caller's promise, the memory is from the next library and not freed yet.
    freed(unsafe { next::malloc_usable_size(memory) });
    // SAFETY: by the caller's promise, the memory is from the next library and not freed yet.
    unsafe { next::free(memory) };
}

/// As its manual page says.
///
/// # Safety
///
/// The old memory is null, or from one of these functions and not freed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(old: *mut c_void, size: usize) -> *mut c_void {
    if next::is_early(old) {
        // SAFETY: any size is valid.
        let new = unsafe { malloc(size) };
        if !new.is_null() {
            // SAFETY: `old` is valid for `early_left` bytes, and `new` for `size` bytes.
            unsafe { ptr::copy(old.cast::<u8>(), new.cast(), size.min(next::early_left(old))) };
        }
        return new;
    }
    let mut before = 0;
    if !old.is_null() {
        samples::remove(old.addr());
        // SAFETY: by the caller's promise, the memory is from the next library and not freed yet.
        before = unsafe { next::malloc_usable_size(old) };
    }
    // SAFETY: by the caller's promise, the memory is null, or from the next library and not freed yet.
    let new = counted(unsafe { next::realloc(old, size) }, size);
    // A size of 0 frees the memory.
    if !old.is_null() && (!new.is_null() || size == 0) {
        freed(before);
    }
    new
}

/// As its manual page says.
///
/// # Safety
///
/// As for [`realloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(old: *mut c_void, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: the caller's promise.
        Some(bytes) => unsafe { realloc(old, bytes) },
        None => {
            // SAFETY: the location of `errno` is the calling thread's own.
            unsafe { *libc::__errno_location() = libc::ENOMEM };
            ptr::null_mut()
        }
    }
}
