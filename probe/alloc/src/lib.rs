//! libpfp_alloc: a library that `pfp-top run --alloc` preloads into a program. It defines the
//! functions by which programs allocate. Each passes the call on to the next library that defines
//! it, and counts the result for the calling thread:
//!
//! ```text
//! program --> malloc here --> the C library's malloc, or that of another allocator
//!             |
//!             '--> numbers of the thread <-- read by pfp at the begin and end of regions
//! ```
//!
//! The library has no copy of pfp. A copy finds the numbers by the function [`pfp_alloc_numbers`].

mod next;
mod numbers;
#[path = "../../src/alloc/samples.rs"]
mod samples;

use std::ffi::{c_int, c_void};
use std::ptr;

use numbers::Numbers;

/// The numbers of the calling thread, which last as long as the thread. Null if the program does not
/// allocate by these functions, because it defines them itself.
#[unsafe(no_mangle)]
pub extern "C" fn pfp_alloc_numbers() -> *const Numbers {
    if numbers::has_counted() { numbers::of_this_thread() } else { ptr::null() }
}

/// Starts to sample living memory, about once in `rate` bytes. Samples find the region that has
/// allocated them by `find`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_alloc_start_samples(find: samples::Find, rate: u64) {
    samples::start(find, rate);
}

/// Counts an allocation of `size` bytes, unless it failed.
#[inline(always)]
fn counted(memory: *mut c_void, size: usize) -> *mut c_void {
    if !memory.is_null() {
        numbers::alloc(memory, size);
    }
    memory
}

/// The bytes that the allocator has given for this memory, at least as many as were requested.
///
/// # Safety
///
/// The memory is null, or from one of the functions below and not freed yet.
unsafe fn given(memory: *mut c_void) -> usize {
    if next::is_early(memory) {
        return 0;
    }
    // SAFETY: the caller's promise.
    unsafe { next::malloc_usable_size(memory) }
}

/// C's function.
///
/// # Safety
///
/// As C says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    // SAFETY: any size is valid.
    counted(unsafe { next::malloc(size) }, size)
}

/// C's function.
///
/// # Safety
///
/// As C says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    // SAFETY: any numbers are valid.
    counted(unsafe { next::calloc(count, size) }, count.wrapping_mul(size))
}

/// C's function.
///
/// # Safety
///
/// As C says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(memory: *mut c_void) {
    if memory.is_null() || next::is_early(memory) {
        return;
    }
    samples::forget(memory.addr());
    // SAFETY: the caller passes memory that is not freed yet.
    numbers::free(unsafe { given(memory) });
    // SAFETY: the caller passes memory that is not freed yet.
    unsafe { next::free(memory) };
}

/// C's function.
///
/// # Safety
///
/// As C says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(old: *mut c_void, size: usize) -> *mut c_void {
    if next::is_early(old) {
        // SAFETY: any size is valid.
        let new = unsafe { malloc(size) };
        if !new.is_null() {
            // SAFETY: the early memory ends after its longest block, and `new` has `size` bytes.
            unsafe { ptr::copy(old.cast::<u8>(), new.cast(), size.min(next::early_left(old))) };
        }
        return new;
    }
    let mut before = 0;
    if !old.is_null() {
        samples::forget(old.addr());
        // SAFETY: the caller passes memory that is not freed yet.
        before = unsafe { given(old) };
    }
    // SAFETY: the caller passes memory that is not freed yet, or null, which this may free.
    let new = counted(unsafe { next::realloc(old, size) }, size);
    // A size of 0 frees the memory.
    if !old.is_null() && (!new.is_null() || size == 0) {
        numbers::free(before);
    }
    new
}

/// C's function.
///
/// # Safety
///
/// As C says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(old: *mut c_void, count: usize, size: usize) -> *mut c_void {
    match count.checked_mul(size) {
        // SAFETY: the caller passes memory that is not freed yet, or null.
        Some(bytes) => unsafe { realloc(old, bytes) },
        None => {
            // SAFETY: the location of `errno` is the calling thread's own.
            unsafe { *libc::__errno_location() = libc::ENOMEM };
            ptr::null_mut()
        }
    }
}

/// C's function.
///
/// # Safety
///
/// As C says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    // SAFETY: any numbers are valid.
    counted(unsafe { next::aligned_alloc(align, size) }, size)
}

/// The system's function.
///
/// # Safety
///
/// As the system says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    // SAFETY: any numbers are valid.
    counted(unsafe { next::memalign(align, size) }, size)
}

/// The system's function.
///
/// # Safety
///
/// As the system says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: usize, size: usize) -> c_int {
    // SAFETY: the caller passes a place for the address.
    let failed = unsafe { next::posix_memalign(to, align, size) };
    if failed == 0 {
        // SAFETY: the call has stored the address.
        numbers::alloc(unsafe { *to }, size);
    }
    failed
}

/// The system's function.
///
/// # Safety
///
/// As the system says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn valloc(size: usize) -> *mut c_void {
    // SAFETY: any size is valid.
    counted(unsafe { next::valloc(size) }, size)
}

/// The system's function.
///
/// # Safety
///
/// As the system says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvalloc(size: usize) -> *mut c_void {
    // SAFETY: any size is valid.
    counted(unsafe { next::pvalloc(size) }, size)
}
