//! Errors of the public functions.

use std::fmt;
use std::time::Duration;

use crate::engine::advice;

/// A weight for an exponential average that is not in (0, 1].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlphaError {
    /// The rejected weight.
    pub alpha: f64,
}

impl fmt::Display for AlphaError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "expected a weight in (0, 1], which is period / time constant, found {}; choose a \
             time constant that is not shorter than the period",
            self.alpha
        )
    }
}

impl std::error::Error for AlphaError {}

/// The reason why nothing can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InitError {
    /// The system refused shared memory. The program continues without being measured.
    NoSharedMemory {
        /// The system's error; 0 if there is none.
        errno: i32,
    },
    /// The system refused private memory that reads as zeros in a forked child. The program
    /// continues without being measured.
    NoPrivateMemory {
        /// The system's error; 0 if there is none. `EINVAL` means a kernel before Linux 4.14.
        errno: i32,
    },
    /// Another thread is making the shared memory, or the caller is a signal handler that has
    /// interrupted that work. Try again a moment later.
    Busy,
    /// The caller runs in the memory of another process, like a child of `vfork`; or the C library
    /// does not know the caller's process, because a bare `clone` created it.
    BorrowedMemory,
    /// The caller is a signal handler whose stack is too small.
    SmallStack,
    /// The program was built without the feature `enabled`.
    CompiledOut,
}

impl InitError {
    /// Writes which memory the system refused, and what the user can do.
    fn refused(
        out: &mut fmt::Formatter<'_>,
        expected: &str,
        errno: i32,
        advice: impl FnOnce() -> String,
    ) -> fmt::Result {
        write!(out, "expected {expected}, found ")?;
        match errno {
            0 => write!(out, "that the system refused it")?,
            errno => write!(out, "{}", std::io::Error::from_raw_os_error(errno))?,
        }
        write!(out, "; {}", advice())
    }
}

impl fmt::Display for InitError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoSharedMemory { errno } => {
                Self::refused(out, "shared memory in /dev/shm", errno, || advice(false, errno))
            }
            Self::NoPrivateMemory { errno } => {
                let expected = "private memory that forked children do not inherit";
                Self::refused(out, expected, errno, || advice(true, errno))
            }
            Self::Busy => out.write_str(
                "expected shared memory, found that another thread is making it; call init() \
                 again a moment later, or once before threads and signal handlers start",
            ),
            Self::BorrowedMemory => out.write_str(
                "expected a process with memory of its own that the C library knows, found a child \
                 of vfork or of a bare clone; use fork, or call init() in the parent or after \
                 the exec",
            ),
            Self::SmallStack => out.write_str(
                "expected 16 KiB of stack, found less on the signal handler's; call init() before \
                 signals are handled",
            ),
            Self::CompiledOut => out.write_str(
                "expected the feature \"enabled\" of pfp-probe, found that it is off; build the \
                 program with the feature",
            ),
        }
    }
}

impl std::error::Error for InitError {}

/// `period / tau`. If `tau` is zero, returns 0, which is an invalid weight.
pub(crate) fn alpha_of(period: Duration, tau: Duration) -> f64 {
    if tau.is_zero() { 0.0 } else { period.as_secs_f64() / tau.as_secs_f64() }
}
