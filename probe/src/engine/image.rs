//! Runs once for the program or library that contains pfp: as it is loaded, before there is
//! anything to measure, and as it ends.
//!
//! Later, it would take locks of the C library, which in a forked child may be held by a thread
//! that only the parent has.

use std::ffi::{c_char, c_int, c_void};
use std::mem::{self, MaybeUninit};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::process::{self, Process, making, switches};
use super::thread::lane;
use super::{cold, leader, overhead};
use crate::{clock, errno, loaded, snapshot};

// Miri runs it as well, but has no loader.
#[cfg(not(miri))]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = at_process_exit;

/// Whether `at_load` has run: a linker may have left it out.
static IS_READY: AtomicBool = AtomicBool::new(false);

extern "C" fn at_load() {
    if IS_READY.swap(true, Relaxed) {
        return;
    }
    // SAFETY: registers a function that any child may call.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    clock::look_up();
    loaded::look_up();
    pin();
    // From here on other copies of pfp may refer to this one.
    leader::choose();
}

/// Does the same now if the loader has not called `at_load`.
pub(super) fn prepare() {
    if !IS_READY.load(Relaxed) {
        at_load();
        // SAFETY: registers a function that may be called at any time.
        unsafe { libc::atexit(at_process_exit) };
    }
}

/// Runs in a forked child before `fork` returns. From here on, the child no longer writes to its
/// parent's segment, whatever its thread was doing at the fork. It calls only what signal handlers
/// may call.
extern "C" fn in_child() {
    errno::preserve(|| {
        // The parent's other threads do not exist in the child.
        making::forget();
        switches::leave_parents();
        overhead::CALIBRATING.release_if(|_| true);
        // A handler of another copy, or of the host, may have measured already.
        if process::current().is_some() {
            return;
        }
        // Only the copy of pfp that made the parent's process has it to detach.
        if let Some(parents) = process::newest() {
            parents.detach();
        }
        lane::forget();
    });
}

/// Does pfp's work at the end of the process. A second call has no effect.
extern "C" fn at_process_exit() {
    end_by(snapshot::write_at_exit);
}

/// Does the same before an end by `_exit`, but writes no file that several processes share. Forked
/// children end before the program does, and the first file of a name is kept: a shared name is
/// left for the program's own figures.
pub(crate) fn at_immediate_exit() {
    end_by(|process, path| {
        if process.has_own_file() {
            snapshot::write_at_exit(process, path);
        }
    });
}

fn end_by(write_snapshot: impl FnOnce(&Process, &Path)) {
    // A copy that follows has none.
    if let Some(process) = process::current() {
        cold::section(|| process.end(write_snapshot));
    }
}

type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

/// Keeps the shared library with this code loaded: threads refer to it until they end.
fn pin() {
    let mut object = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the address of this function; `object` is valid for writes.
    if unsafe { libc::dladdr(pin as *const c_void, object.as_mut_ptr()) } == 0 {
        return;
    }
    // SAFETY: zeroed, and then filled in by the call.
    let object = unsafe { object.assume_init() };
    if object.dli_fname.is_null() || is_program(object.dli_fbase.addr()) {
        return;
    }
    // Found by its name: a statically linked program has no `dlopen`, and a linker would warn.
    // SAFETY: a NUL-terminated name that outlives the call.
    let dlopen = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"dlopen".as_ptr()) };
    if dlopen.is_null() {
        return;
    }
    // SAFETY: the C library's function of that name has this type.
    let dlopen = unsafe { mem::transmute::<*mut c_void, Dlopen>(dlopen) };
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: a NUL-terminated name; the object is loaded already. The handle is kept.
    unsafe { dlopen(object.dli_fname, flags) };
}

/// Whether the program itself is loaded at `base`.
fn is_program(base: usize) -> bool {
    // SAFETY: the argument is a plain number.
    let headers = unsafe { libc::getauxval(libc::AT_PHDR) } as usize;
    // The program headers follow the header of the file, in its first page.
    headers.wrapping_sub(base) < 4096
}
