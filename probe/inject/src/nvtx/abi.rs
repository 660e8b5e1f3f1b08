//! Declarations of NVTX version 3 (`nvtxTypes.h`, `nvToolsExt.h`) that this library uses.

use std::ffi::{c_char, c_int, c_uint, c_void};

pub(super) type NvtxFunction = unsafe extern "C" fn();

/// Returns the client's export table of this number, or null.
pub(crate) type GetExportTable = unsafe extern "C" fn(u32) -> *const c_void;

/// Number of the export table [`Callbacks`].
pub(super) const CALLBACKS: u32 = 1;

#[repr(C)]
pub(super) struct Callbacks {
    pub(super) size: usize,
    /// Writes the address and the length of a module's table of function pointers.
    pub(super) table: Option<
        unsafe extern "C" fn(c_int, *mut *const *mut Option<NvtxFunction>, *mut c_uint) -> c_int,
    >,
}

pub(super) const CORE: c_int = 1;
pub(super) const CORE2: c_int = 5;

/// `nvtxEventAttributes_t` of version 2. The attributes of a client may be longer or shorter.
#[repr(C)]
pub(crate) struct Attributes {
    pub(super) version: u16,
    pub(super) size: u16,
    pub(super) category: u32,
    pub(super) color_kind: i32,
    color: u32,
    pub(super) payload_kind: i32,
    reserved: i32,
    pub(super) payload: [u8; 8],
    pub(super) message_kind: i32,
    pub(super) message: *const c_void,
}

/// Kinds of payloads.
pub(super) mod payload {
    pub(in crate::nvtx) const U64: i32 = 1;
    pub(in crate::nvtx) const I64: i32 = 2;
    pub(in crate::nvtx) const F64: i32 = 3;
    pub(in crate::nvtx) const U32: i32 = 4;
    pub(in crate::nvtx) const I32: i32 = 5;
    pub(in crate::nvtx) const F32: i32 = 6;
}

/// Kinds of messages.
pub(super) mod message {
    pub(in crate::nvtx) const ASCII: i32 = 1;
    pub(in crate::nvtx) const WIDE: i32 = 2;
    pub(in crate::nvtx) const REGISTERED: i32 = 3;
}

pub(super) type Ascii = *const c_char;
pub(super) type Wide = *const libc::wchar_t;
