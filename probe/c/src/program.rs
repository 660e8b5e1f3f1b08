//! The program, its threads, the clock.

use std::ffi::{CStr, c_char, c_int};

use crate::status::Status;
use crate::text;

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_init() -> c_int {
    if probe::init() { Status::Ok.code() } else { Status::NoSpace.code() }
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// Names something as the caller asks.
///
/// # Safety
///
/// `name` is null or ends with a zero byte.
unsafe fn name(name: *const c_char, set: fn(&str)) -> c_int {
    // SAFETY: as the caller says.
    match unsafe { text::of(name) } {
        Ok(name) => {
            set(&name);
            Status::Ok.code()
        }
        Err(refused) => refused.code(),
    }
}

/// See `pfp.h`.
///
/// # Safety
///
/// `program` is null or ends with a zero byte.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pfp_set_program_name(program: *const c_char) -> c_int {
    // SAFETY: as the caller says.
    unsafe { name(program, probe::set_program_name) }
}

/// See `pfp.h`.
///
/// # Safety
///
/// `thread` is null or ends with a zero byte.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pfp_register_thread(thread: *const c_char) -> c_int {
    // SAFETY: as the caller says.
    unsafe { name(thread, probe::register_thread) }
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_ticks() -> u64 {
    probe::ticks()
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_ticks_per_second() -> f64 {
    probe::ticks_per_second()
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_on_cpu_ticks() -> u64 {
    probe::on_cpu_ticks().unwrap_or(0)
}
