//! The functions of the next library that defines them, and memory for the time before they are
//! known.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::numbers;

/// Declares the functions. `dlsym` finds each by its name. If the name is not found, calls return a
/// value that means failure.
macro_rules! functions {
    ($(fn $name:ident($($given:ident: $type:ty),*) $(-> $returned:ty = $failed:expr)?;)*) => {
        /// The functions, which are null until they are found.
        pub(crate) struct Functions {
            is_found: AtomicBool,
            $($name: AtomicPtr<c_void>,)*
        }

        /// The functions that follow this library's.
        pub(crate) static NEXT: Functions = Functions {
            is_found: AtomicBool::new(false),
            $($name: AtomicPtr::new(ptr::null_mut()),)*
        };

        impl Functions {
            #[cold]
            fn look_up(&self) {
                $({
                    const NAME: &CStr = match CStr::from_bytes_with_nul(
                        concat!(stringify!($name), "\0").as_bytes()
                    ) {
                        Ok(name) => name,
                        Err(_) => panic!("a name has no NUL"),
                    };
                    // SAFETY: the name is NUL-terminated.
                    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, NAME.as_ptr()) };
                    self.$name.store(found, Relaxed);
                })*
                // Pairs with the load in `find`, which makes the functions visible.
                self.is_found.store(true, Release);
            }

            $(
                /// Calls the next function of this name.
                ///
                /// # Safety
                ///
                /// As the function's documentation says.
                #[inline(always)]
                pub(crate) unsafe fn $name(&self, $($given: $type),*) $(-> $returned)? {
                    let found = self.$name.load(Relaxed);
                    if found.is_null() {
                        return $($failed)?;
                    }
                    // SAFETY: the C library's function of that name has this type.
                    let function = unsafe {
                        mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) $(-> $returned)?>(
                            found,
                        )
                    };
                    // SAFETY: the caller's promise.
                    unsafe { function($($given),*) }
                }
            )*
        }
    };
}

functions! {
    fn malloc(size: usize) -> *mut c_void = ptr::null_mut();
    fn calloc(count: usize, size: usize) -> *mut c_void = ptr::null_mut();
    fn realloc(old: *mut c_void, size: usize) -> *mut c_void = ptr::null_mut();
    fn free(memory: *mut c_void);
    fn aligned_alloc(align: usize, size: usize) -> *mut c_void = ptr::null_mut();
    fn memalign(align: usize, size: usize) -> *mut c_void = ptr::null_mut();
    fn posix_memalign(to: *mut *mut c_void, align: usize, size: usize) -> c_int = libc::ENOMEM;
    fn valloc(size: usize) -> *mut c_void = ptr::null_mut();
    fn pvalloc(size: usize) -> *mut c_void = ptr::null_mut();
    fn malloc_usable_size(memory: *mut c_void) -> usize = 0;
}

impl Functions {
    /// The functions, which the first call looks up. `None` if `dlsym` has called this.
    #[inline(always)]
    pub(crate) fn find(&self) -> Option<&Self> {
        // Pairs with the store in `look_up`.
        if self.is_found.load(Acquire) { Some(self) } else { self.find_now() }
    }

    #[cold]
    #[inline(never)]
    fn find_now(&self) -> Option<&Self> {
        if numbers::begin_look_up() {
            self.look_up();
            numbers::end_look_up();
            return Some(self);
        }
        None
    }

    /// [`Self::find`] for functions that `dlsym` does not call.
    #[inline(always)]
    pub(crate) fn get(&self) -> &Self {
        self.find().unwrap_or(self)
    }
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
