//! Finds the counters of the calling thread: those of `libpfp_alloc.so`, or this copy's own.
//!
//! The names of the library's functions end in the version of what they exchange: [`Numbers`],
//! [`samples::Find`], and the words that its samples count in. A change of these needs another
//! version.

use std::ffi::c_void;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};

use pfp_shm_layout::environment::variable;

use super::numbers::Numbers;
use super::samples;

thread_local! {
    // It has no destructor, so that it can be used to the very end of the thread.
    static OWN: Numbers = const { Numbers::new() };
}

/// Whether an allocator of this copy of pfp counts.
static COUNTS: AtomicBool = AtomicBool::new(false);
/// The function of `libpfp_alloc.so` that returns the calling thread's counters; null without that
/// library.
static PRELOADED: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Looks for `libpfp_alloc.so`, and starts its samples; without it, the samples of this copy. `find`
/// finds the place of a sample. It is `None` in a copy that follows another: the leader has the
/// regions.
pub(crate) fn look_up(find: Option<samples::Find>) {
    let rate = variable(c"PFP_ALLOC_SAMPLE").and_then(|rate| rate.to_str()?.parse().ok());
    let rate = rate.unwrap_or(samples::USUAL_RATE);
    // SAFETY: the names are NUL-terminated.
    let [numbers, start] = [c"pfp_alloc_numbers_2", c"pfp_alloc_start_samples_2"]
        .map(|name| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) });
    PRELOADED.store(numbers, Relaxed);
    let Some(find) = find else { return };
    if start.is_null() {
        return samples::start(find, rate);
    }
    // SAFETY: the library's function of that name has this type.
    let start =
        unsafe { mem::transmute::<*mut c_void, unsafe extern "C" fn(samples::Find, u64)>(start) };
    // SAFETY: the function stores its arguments. Any thread may call `find`.
    unsafe { start(find, rate) };
}

/// The calling thread's counters, which last as long as the thread; `None` if no allocator counts.
/// If `libpfp_alloc.so` is loaded, they are its counters.
pub(crate) fn of_this_thread() -> Option<&'static Numbers> {
    let preloaded = PRELOADED.load(Relaxed);
    if !preloaded.is_null() {
        // SAFETY: the library's function of that name has this type.
        let find = unsafe {
            mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const Numbers>(preloaded)
        };
        // SAFETY: any thread may call the function. It returns the thread's own storage, or null if
        // the program does not allocate by that library.
        if let Some(numbers) = unsafe { find().as_ref() } {
            return Some(numbers);
        }
    }
    COUNTS.load(Relaxed).then(own)
}

/// The counters of this copy of pfp. Never inlined, so that the thread-local storage is reached
/// only after the test of [`COUNTS`]: in a library that is loaded later, reaching it may allocate.
#[inline(never)]
fn own() -> &'static Numbers {
    // SAFETY: the storage has no destructor, so it lasts as long as the thread.
    OWN.with(|own| unsafe { &*ptr::from_ref(own) })
}

/// Passes the counters of this copy of pfp, whose allocator counts, to `count`.
#[inline(always)]
pub(super) fn own_counts(count: impl FnOnce(&Numbers)) {
    if !COUNTS.load(Relaxed) {
        COUNTS.store(true, Relaxed);
    }
    OWN.with(count);
}
