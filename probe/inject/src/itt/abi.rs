//! Declarations of `ittnotify.h` and `ittnotify_config.h` that this library uses.

use std::ffi::{c_char, c_int, c_long, c_ulong, c_void};
use std::sync::atomic::AtomicI32;

/// First bytes of an `__itt_global`.
pub(super) const MAGIC: [u8; 8] = [0xed, 0xab, 0xab, 0xec, 0x0d, 0xee, 0xda, 0x30];

/// Version (a date) of the first clients with the fields of [`Later`].
pub(super) const LATER: c_ulong = 20_180_723;

/// `__itt_global`, up to the last field that all clients have.
#[repr(C)]
pub(crate) struct Global {
    pub(super) magic: [u8; 8],
    /// Major version, minor version, and date.
    pub(super) version: [c_ulong; 3],
    state: [c_long; 3],
    mutex: libc::pthread_mutex_t,
    library: *mut c_void,
    error_handler: *mut c_void,
    path: *mut c_void,
    /// Array that ends with an element without a name.
    pub(super) functions: *mut ApiInfo,
}

/// `__itt_global` of later clients, up to the last field in use.
#[repr(C)]
pub(super) struct Later {
    global: Global,
    lists: [*const c_void; 4],
    collection: c_int,
    /// Counters that the client created before a collector was loaded.
    pub(super) counters: *const CounterInfo,
}

/// `__itt_counter_info`.
#[repr(C)]
pub(super) struct CounterInfo {
    pub(super) name: *const c_char,
    wide_name: *const c_void,
    pub(super) domain: *const c_char,
    wide_domain: *const c_void,
    pub(super) kind: c_int,
    index: c_long,
    extra: c_int,
    more: *const c_void,
    pub(super) next: *const CounterInfo,
}

/// `__itt_api_info`.
#[repr(C)]
pub(super) struct ApiInfo {
    pub(super) name: *const c_char,
    pub(super) function: *mut *const c_void,
    first: *const c_void,
    /// Function that does nothing, used if the collector has no such function.
    pub(super) null: *const c_void,
    group: c_int,
}

/// `__itt_domain`.
#[repr(C)]
pub(crate) struct IttDomain {
    /// 0 makes the client skip its calls for this domain.
    pub(super) flags: AtomicI32,
    pub(super) rest: Behind,
}

/// Fields of an `__itt_domain` after the flags.
#[repr(C, align(8))]
pub(crate) struct Behind {
    pub(super) name: *const c_char,
    pub(super) wide_name: *const c_void,
    /// Free for the collector, like `more`.
    pub(super) extra: c_int,
    pub(super) more: *const c_void,
    pub(super) next: *const IttDomain,
}

/// `__itt_string_handle`.
#[repr(C)]
pub(crate) struct StringHandle {
    pub(super) name: *const c_char,
    pub(super) wide_name: *const c_void,
    pub(super) extra: c_int,
    pub(super) more: *const c_void,
    pub(super) next: *const StringHandle,
}

/// `__itt_id`, which is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Id {
    pub(super) words: [u64; 3],
}

/// Types of numbers: `__itt_metadata_type`.
pub(super) mod number {
    use std::ffi::{c_int, c_void};

    pub(in crate::itt) const U64: c_int = 1;
    const I64: c_int = 2;
    const U32: c_int = 3;
    const I32: c_int = 4;
    const U16: c_int = 5;
    const I16: c_int = 6;
    const F32: c_int = 7;
    const F64: c_int = 8;

    /// Converts a number to an amount, which is a non-negative integer. `None` if it is negative or
    /// of an unknown type.
    ///
    /// # Safety
    ///
    /// `number` is null, or points to a readable number of type `kind`, aligned or not.
    pub(in crate::itt) unsafe fn read(kind: c_int, number: *const c_void) -> Option<u64> {
        let rounded = |number: f64| (number >= 0.0).then_some(number.round() as u64);
        if number.is_null() {
            return None;
        }
        // SAFETY: the caller passes a pointer to a readable number of type `kind`; no alignment is
        // needed.
        unsafe {
            match kind {
                U64 => Some(number.cast::<u64>().read_unaligned()),
                I64 => number.cast::<i64>().read_unaligned().try_into().ok(),
                U32 => Some(number.cast::<u32>().read_unaligned().into()),
                I32 => number.cast::<i32>().read_unaligned().try_into().ok(),
                U16 => Some(number.cast::<u16>().read_unaligned().into()),
                I16 => number.cast::<i16>().read_unaligned().try_into().ok(),
                F32 => rounded(number.cast::<f32>().read_unaligned().into()),
                F64 => rounded(number.cast::<f64>().read_unaligned()),
                _ => None,
            }
        }
    }
}
