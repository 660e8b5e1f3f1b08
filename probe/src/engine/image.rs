//! Runs once for the program or library that contains pfp: as it is loaded, before there is
//! anything to measure, and as it ends.
//!
//! The first part runs at loading, because it takes locks of the C library. Later, in a forked
//! child, such a lock may be held by a thread that only the parent has.

use std::ffi::{c_char, c_int, c_void};
use std::mem::{self, MaybeUninit};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::process::{self, Process, making, switches};
use super::thread::lane;
use super::{allocs, cold, copies, leader, overhead};
use crate::{alloc, clock, errno, loaded, snapshot};

// Miri would run this, too, but it has no loader.
#[cfg(not(miri))]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

#[used]
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = at_process_exit;

/// Whether `at_load` has run. The loader does not call it if a linker has left `AT_LOAD` out.
static IS_READY: AtomicBool = AtomicBool::new(false);

extern "C" fn at_load() {
    if IS_READY.swap(true, Relaxed) {
        return;
    }
    // SAFETY: the registered function may be called in any forked child.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    clock::look_up();
    loaded::look_up();
    pin();
    // From here on other copies of pfp may refer to this one.
    leader::choose();
    alloc::look_up(copies::leads().then_some(allocs::place_of_sample));
}

/// Does the work of `at_load` now, if the loader has not called it, and registers the work at the
/// end of the process.
pub(super) fn prepare() {
    if !IS_READY.load(Relaxed) {
        at_load();
        // SAFETY: the registered function may be called at any time.
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
        // A fork handler of another copy, or of the host, may have measured already. Then the child
        // has its own process.
        if process::current().is_some() {
            return;
        }
        // A copy of pfp that follows has no process, so it has nothing to detach.
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

/// Like [`at_process_exit`], for a process that calls `_exit`, but writes no file that several
/// processes share. No process replaces a file that exists, and forked children usually end before
/// the program, so the file would have a child's figures instead of the program's.
pub(crate) fn at_immediate_exit() {
    end_by(|process, path| {
        if process.has_own_file() {
            snapshot::write_at_exit(process, path);
        }
    });
}

fn end_by(write_snapshot: impl FnOnce(&Process, &Path)) {
    // Only the leading copy of pfp has a process.
    if let Some(process) = process::current() {
        cold::section(|| process.end(write_snapshot));
    }
}

type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

/// Keeps the shared library with this code loaded: threads refer to it until they end.
fn pin() {
    let mut object = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the first argument is the address of this function, and `object` is valid for writes.
    if unsafe { libc::dladdr(pin as *const c_void, object.as_mut_ptr()) } == 0 {
        return;
    }
    // SAFETY: `object` was zeroed, and then filled in by the call.
    let object = unsafe { object.assume_init() };
    if object.dli_fname.is_null() || is_program(object.dli_fbase.addr()) {
        return;
    }
    // `dlopen` is found by its name, because a statically linked program has none, and a linker
    // would warn.
    // SAFETY: the name is NUL-terminated and outlives the call.
    let dlopen = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"dlopen".as_ptr()) };
    if dlopen.is_null() {
        return;
    }
    // SAFETY: the C library's function of that name has this type.
    let dlopen = unsafe { mem::transmute::<*mut c_void, Dlopen>(dlopen) };
    let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: the name is NUL-terminated, and the object is loaded already. The handle is never
    // closed.
    unsafe { dlopen(object.dli_fname, flags) };
}

/// Whether the program itself is loaded at `base`.
fn is_program(base: usize) -> bool {
    // SAFETY: the argument is a plain number.
    let headers = unsafe { libc::getauxval(libc::AT_PHDR) } as usize;
    // The program headers follow the header of the file, in its first page.
    headers.wrapping_sub(base) < 4096
}
