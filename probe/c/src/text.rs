//! Strings of the caller's.

use std::ffi::{CStr, c_char};

use crate::status::Status;

/// A string of the caller's, with what is not UTF-8 in it replaced.
///
/// # Safety
///
/// `text` is null or ends with a zero byte.
pub(crate) unsafe fn of(text: *const c_char) -> Result<String, Status> {
    if text.is_null() {
        return Err(Status::Null);
    }
    // SAFETY: as the caller says.
    Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
