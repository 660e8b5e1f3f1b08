//! ITT: the part of `ittnotify.h` and `ittnotify_config.h` that is used.

use std::ffi::{c_char, c_int, c_long, c_ulong, c_void};

/// What an `__itt_global` begins with.
pub(super) const MAGIC: [u8; 8] = [0xed, 0xab, 0xab, 0xec, 0x0d, 0xee, 0xda, 0x30];

/// `__itt_global`, up to what all clients have.
#[repr(C)]
pub(crate) struct Global {
    pub(super) magic: [u8; 8],
    version: [c_ulong; 3],
    state: [c_long; 3],
    mutex: libc::pthread_mutex_t,
    library: *mut c_void,
    error_handler: *mut c_void,
    path: *mut c_void,
    /// Ends with one that has no name.
    pub(super) functions: *mut ApiInfo,
}

/// `__itt_api_info`.
#[repr(C)]
pub(super) struct ApiInfo {
    pub(super) name: *const c_char,
    pub(super) function: *mut *const c_void,
    first: *const c_void,
    /// In place of a function that does nothing.
    pub(super) null: *const c_void,
    group: c_int,
}

/// `__itt_domain`.
#[repr(C)]
pub(crate) struct Domain {
    /// 0 switches it off in the client.
    pub(super) flags: c_int,
    pub(super) name: *const c_char,
    pub(super) wide_name: *const c_void,
    pub(super) extra: c_int,
    pub(super) more: *const c_void,
    pub(super) next: *const Domain,
}

/// `__itt_string_handle`.
#[repr(C)]
pub(crate) struct Handle {
    pub(super) name: *const c_char,
    pub(super) wide_name: *const c_void,
    pub(super) extra: c_int,
    pub(super) more: *const c_void,
    pub(super) next: *const Handle,
}

/// `__itt_id`, which is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Id {
    pub(super) words: [u64; 3],
}
