//! Reads environment variables, for all of pfp's code that runs inside a program.
//!
//! [`std::env::var`] takes a lock, which in a forked child may be held by a thread that exists only
//! in the parent. So the functions here take no lock.

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;

/// Maximum length of a value in bytes; a longer value counts as not set.
pub const MAX_BYTES: usize = 4096;

/// The value of a variable; `None` if it is not set or too long, or if the environment is not
/// [trusted](is_trusted).
#[must_use]
pub fn variable(name: &CStr) -> Option<&'static OsStr> {
    if !is_trusted() {
        return None;
    }
    // SAFETY: `name` is NUL-terminated and outlives the call.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: `getenv` returned a NUL-terminated text. The text stays valid, because a program must
    // not change the environment while other threads read it, as with any C library.
    let value = unsafe { CStr::from_ptr(value) }.to_bytes();
    (value.len() <= MAX_BYTES).then(|| OsStr::from_bytes(value))
}

/// Whether the environment comes from the program's own user. A program that got other rights at
/// its start (set-user-id, file capabilities) was started by a user who may have fewer rights and
/// chose its environment.
#[must_use]
pub fn is_trusted() -> bool {
    // SAFETY: `getauxval` takes a plain number and writes nothing.
    unsafe { libc::getauxval(libc::AT_SECURE) == 0 }
}
