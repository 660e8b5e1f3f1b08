//! Results of calls.

use std::ffi::{c_char, c_int};

/// `PFP_OK` and the errors of `pfp.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Ok,
    NotCreated,
    NoSuchPoint,
    Null,
    Alpha,
    Handle,
    Full,
    NoSpace,
    Busy,
    File,
}

impl Status {
    const ALL: [Self; 10] = [
        Self::Ok,
        Self::NotCreated,
        Self::NoSuchPoint,
        Self::Null,
        Self::Alpha,
        Self::Handle,
        Self::Full,
        Self::NoSpace,
        Self::Busy,
        Self::File,
    ];

    pub(crate) const fn code(self) -> c_int {
        match self {
            Self::Ok => 0,
            Self::NotCreated => -1,
            Self::NoSuchPoint => -2,
            Self::Null => -3,
            Self::Alpha => -4,
            Self::Handle => -5,
            Self::Full => -6,
            Self::NoSpace => -7,
            Self::Busy => -8,
            Self::File => -9,
        }
    }

    const fn text(self) -> &'static std::ffi::CStr {
        match self {
            Self::Ok => c"no error",
            Self::NotCreated => {
                c"expected pfpCreate() before this call, found that it was not called; call it first"
            }
            Self::NoSuchPoint => {
                c"expected a point number from 0 to PFP_ID_COUNT - 1, found another one; choose one in that range, or name the point with pfp_point()"
            }
            Self::Null => c"expected a pointer, found NULL; pass a valid pointer",
            Self::Alpha => {
                c"expected a weight in (0, 1], which is period / time constant, found another value; choose a time constant that is not shorter than the period"
            }
            Self::Handle => {
                c"expected a handle that was created, of this kind and in the right state, found another; create it first, and pair each begin with an end"
            }
            Self::Full => {
                c"expected a free handle, found all PFP_OBJECTS in use; delete objects that have ended"
            }
            Self::NoSpace => {
                c"expected shared memory to measure in, found none; see that /dev/shm has space, or lower PFP_MEMORY_MB"
            }
            Self::Busy => {
                c"expected a free lock, found that another thread holds it; do not create or delete in signal handlers, or in a child forked during a create or delete"
            }
            Self::File => {
                c"expected to write a file, found a system error; see errno. EEXIST: the file exists; choose another name, or call pfp_snapshot_over()"
            }
        }
    }
}

impl From<Result<(), Self>> for Status {
    fn from(result: Result<(), Self>) -> Self {
        result.err().unwrap_or(Self::Ok)
    }
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_error(status: c_int) -> *const c_char {
    let known = Status::ALL.into_iter().find(|known| known.code() == status);
    known
        .map_or(c"expected a status of pfp, found another number; see pfp.h", Status::text)
        .as_ptr()
}
