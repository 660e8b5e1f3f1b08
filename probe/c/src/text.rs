//! Strings passed by the caller.

use std::ffi::{CStr, c_char};

use crate::places;
use crate::status::Status;

/// Maximum length of a name in bytes. Names in a segment have the same limit.
const LONGEST: usize = 1024;

/// Copies a string of the caller. Bytes that are not UTF-8 are replaced.
///
/// # Safety
///
/// `text` is null or ends with a zero byte.
pub(crate) unsafe fn of(text: *const c_char) -> Result<Text, Status> {
    if text.is_null() {
        return Err(Status::Null);
    }
    // SAFETY: `text` is not null, and by the caller's promise it ends with a zero byte.
    let text = unsafe { CStr::from_ptr(text) }.to_bytes();
    let mut kept = Text { bytes: [0; LONGEST], len: 0 };
    for (to, byte) in kept.bytes.iter_mut().zip(places::text(text)) {
        *to = byte;
        kept.len += 1;
    }
    Ok(kept)
}

/// A text in a fixed buffer, without the heap.
pub(crate) struct Text {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Text {
    /// The text, cut at a character boundary.
    pub(crate) fn as_str(&self) -> &str {
        let bytes = &self.bytes[..self.len];
        bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid())
    }
}
