//! The program, its threads, and the clock.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::io;
use std::os::unix::ffi::OsStrExt;

use crate::status::Status;
use crate::text;

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_init() -> c_int {
    if probe::init().is_ok() { Status::Ok.code() } else { Status::NoSpace.code() }
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

/// Passes a name from C to `set`.
///
/// # Safety
///
/// `name` is null or ends with a zero byte.
unsafe fn name(name: *const c_char, set: fn(&str)) -> c_int {
    // SAFETY: by the caller's promise, `name` is null or ends with a zero byte.
    match unsafe { text::of(name) } {
        Ok(name) => {
            set(name.as_str());
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
    // SAFETY: the caller passes null or a string that ends with a zero byte.
    unsafe { name(program, probe::set_program_name) }
}

/// See `pfp.h`.
///
/// # Safety
///
/// `thread` is null or ends with a zero byte.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pfp_register_thread(thread: *const c_char) -> c_int {
    // SAFETY: the caller passes null or a string that ends with a zero byte.
    unsafe { name(thread, probe::register_thread) }
}

/// Writes a snapshot to the file that a C string names.
///
/// # Safety
///
/// `path` is null or ends with a zero byte.
unsafe fn save(path: *const c_char, write: fn(&OsStr) -> io::Result<()>) -> c_int {
    if path.is_null() {
        return Status::Null.code();
    }
    // SAFETY: not null, so the caller passes a string that ends with a zero byte.
    let path = OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes());
    shown(write(path))
}

/// Converts the result of a write to a status, and sets `errno` on failure.
fn shown(written: io::Result<()>) -> c_int {
    let Err(error) = written else { return Status::Ok.code() };
    let number = match error.kind() {
        io::ErrorKind::Unsupported if error.raw_os_error().is_none() => {
            return Status::NoSpace.code();
        }
        io::ErrorKind::AlreadyExists => libc::EEXIST,
        io::ErrorKind::FileTooLarge => libc::EFBIG,
        io::ErrorKind::InvalidInput => libc::EINVAL,
        io::ErrorKind::OutOfMemory => libc::ENOMEM,
        _ => error.raw_os_error().unwrap_or(libc::EIO),
    };
    // SAFETY: the address of the calling thread's `errno` is valid.
    unsafe { *libc::__errno_location() = number };
    Status::File.code()
}

/// See `pfp.h`.
///
/// # Safety
///
/// `path` is null or ends with a zero byte.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pfp_snapshot_to(path: *const c_char) -> c_int {
    // SAFETY: the caller passes null or a string that ends with a zero byte.
    unsafe { save(path, |path| probe::snapshot_to(path)) }
}

/// See `pfp.h`.
///
/// # Safety
///
/// `path` is null or ends with a zero byte.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pfp_snapshot_over(path: *const c_char) -> c_int {
    // SAFETY: the caller passes null or a string that ends with a zero byte.
    unsafe { save(path, |path| probe::snapshot_over(path)) }
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpShow(fd: c_int) -> c_int {
    struct Descriptor(c_int);

    impl io::Write for Descriptor {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // SAFETY: `bytes` is readable; the call checks the descriptor.
            let written = unsafe { libc::write(self.0, bytes.as_ptr().cast(), bytes.len()) };
            usize::try_from(written).map_err(|_| io::Error::last_os_error())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    shown(probe::show(&mut Descriptor(fd)))
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_set_enabled(on: c_int) {
    probe::set_enabled(on != 0);
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
