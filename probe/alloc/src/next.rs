//! Looks up the allocation functions of the next library, and provides memory until they are found.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::storage;

/// Declares the functions. The first call of any of them looks all of them up by their names. A
/// function returns the value after the `else` if it is missing, or if `dlsym` calls it during the
/// lookup.
macro_rules! functions {
    ($(fn $name:ident($($given:ident: $type:ty),*) -> $returned:ty, else $instead:expr;)*) => {
        $(
            /// Calls the next function of this name.
            ///
            /// # Safety
            ///
            /// As the function's documentation says.
            #[inline(always)]
            pub(crate) unsafe fn $name($($given: $type),*) -> $returned {
                let next = next::$name.load(Relaxed);
                // SAFETY: the word is the address of `first::$name`, or of the next function of
                // that name, which has the same type.
                let next = unsafe {
                    mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $returned>(
                        next,
                    )
                };
                // SAFETY: the caller's promise.
                unsafe { next($($given),*) }
            }
        )*

        /// The addresses of the functions.
        #[allow(non_upper_case_globals, reason = "they have the functions' names")]
        mod next {
            use super::{AtomicPtr, c_void, first};

            $(pub(super) static $name: AtomicPtr<c_void> =
                AtomicPtr::new(first::$name as *mut c_void);)*
        }

        /// Stand-ins that run until the functions are found.
        mod first {
            use super::*;

            $(
                #[cold]
                pub(super) unsafe extern "C" fn $name($($given: $type),*) -> $returned {
                    let is_found = look_up()
                        && next::$name.load(Relaxed) != first::$name as *mut c_void;
                    if is_found {
                        // SAFETY: the caller's promise.
                        return unsafe { super::$name($($given),*) };
                    }
                    $(let _ = $given;)*
                    $instead
                }
            )*
        }

        fn look_up_all() {
            $({
                const NAME: &CStr = match CStr::from_bytes_with_nul(
                    concat!(stringify!($name), "\0").as_bytes()
                ) {
                    Ok(name) => name,
                    Err(_) => panic!("the name has no NUL"),
                };
                // SAFETY: the name is NUL-terminated.
                let found = unsafe { libc::dlsym(libc::RTLD_NEXT, NAME.as_ptr()) };
                if !found.is_null() {
                    next::$name.store(found, Relaxed);
                }
            })*
        }
    };
}

functions! {
    fn malloc(size: usize) -> *mut c_void, else early(size);
    fn calloc(count: usize, size: usize) -> *mut c_void, else early(count.saturating_mul(size));
    fn realloc(old: *mut c_void, size: usize) -> *mut c_void, else early(size);
    fn free(memory: *mut c_void) -> Unit, else ();
    fn aligned_alloc(align: usize, size: usize) -> *mut c_void, else ptr::null_mut();
    fn memalign(align: usize, size: usize) -> *mut c_void, else ptr::null_mut();
    fn posix_memalign(to: *mut *mut c_void, align: usize, size: usize) -> c_int, else libc::ENOMEM;
    fn valloc(size: usize) -> *mut c_void, else ptr::null_mut();
    fn pvalloc(size: usize) -> *mut c_void, else ptr::null_mut();
    fn malloc_usable_size(memory: *mut c_void) -> usize, else 0;
}

type Unit = ();

/// Looks the functions up. Returns false if the calling thread is in a lookup, as when `dlsym`
/// allocates.
#[cold]
fn look_up() -> bool {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    // Pairs with the store below, which makes the addresses visible.
    if IS_DONE.load(Acquire) {
        return true;
    }
    if !storage::begin_look_up() {
        return false;
    }
    look_up_all();
    IS_DONE.store(true, Release);
    storage::end_look_up();
    true
}

/// Bytes of memory for allocations that `dlsym` makes while it looks for `malloc`.
const EARLY: usize = 16 << 10;

#[repr(align(16))]
struct EarlyMemory {
    bytes: UnsafeCell<[u8; EARLY]>,
    used: AtomicUsize,
}

// SAFETY: each caller of `early` gets bytes of its own.
unsafe impl Sync for EarlyMemory {}

static EARLY_MEMORY: EarlyMemory =
    EarlyMemory { bytes: UnsafeCell::new([0; EARLY]), used: AtomicUsize::new(0) };

/// Memory of zeros that is never freed, or null.
#[cold]
pub(crate) fn early(size: usize) -> *mut c_void {
    let Some(size) = size.checked_next_multiple_of(16).filter(|size| *size <= EARLY) else {
        return ptr::null_mut();
    };
    let start = EARLY_MEMORY.used.fetch_add(size, Relaxed);
    if start > EARLY - size {
        return ptr::null_mut();
    }
    EARLY_MEMORY.bytes.get().cast::<u8>().wrapping_add(start).cast()
}

/// Whether the memory is from [`early`].
#[inline(always)]
pub(crate) fn is_early(memory: *mut c_void) -> bool {
    memory.addr().wrapping_sub(EARLY_MEMORY.bytes.get().addr()) < EARLY
}

/// Bytes from this address to the end of the early memory.
pub(crate) fn early_left(memory: *mut c_void) -> usize {
    EARLY - (memory.addr() - EARLY_MEMORY.bytes.get().addr())
}
