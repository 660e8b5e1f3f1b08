//! Whose memory this is.
//!
//! A child of `vfork`, and of any `clone` with CLONE_VM, runs in its parent's memory under an id of
//! its own. A segment made there would stay the parent's and bear the child's id, and a lane would
//! belong to a thread that has ended. So all code that ties memory to the calling process or thread
//! asks here first.
//!
//! Memory that leads to a [`super::process::Process`] knows its owner: in a copy of it, the pages
//! that lead there read as zeros. Before there is a process, the C library is asked. It keeps each
//! thread's kernel id in the thread's memory, and updates it in a child of `fork`. If that id is
//! not the caller's, the caller runs in that thread's memory, or in a copy that the library does
//! not know (a bare `clone`). To decide which, the caller maps some memory: the kernel shows
//! whether that thread's memory has grown, too.

use std::ffi::CStr;
use std::io::{self, Write};
use std::ptr;

use pfp_shm_layout::descriptors::above_standard;

use super::gate;
use crate::errno;

/// Whether the calling process lives in the memory of another one.
pub(super) fn is_anothers() -> bool {
    errno::preserve(|| match library_tid() {
        Some(known) if known != tid() => grows_with(known),
        _ => false,
    })
}

/// Kernel id of the calling thread.
pub(crate) fn tid() -> u32 {
    // A filter may refuse even this, and would set `errno`.
    // SAFETY: no preconditions.
    let told = errno::preserve(|| unsafe { libc::syscall(libc::SYS_gettid) });
    // What stands for "done" and "failed" is nobody's id.
    if told > 0 { told as u32 } else { library_tid().unwrap_or(1) }
}

/// Whether a thread that shares the caller's memory has that kernel id. Asked by a
/// child in its parent's memory, it is about the parent's threads.
pub(crate) fn exists(tid: u32) -> bool {
    errno::preserve(|| {
        // SAFETY: signal 0 is not sent, only asked about; getpid has no preconditions.
        let refused = unsafe {
            let process = gate::pid().unwrap_or_else(|| libc::getpid());
            libc::syscall(libc::SYS_tgkill, process, tid, 0) != 0
        };
        !refused || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
    })
}

/// What the C library takes for the calling thread's kernel id; none if it does not
/// tell.
pub(super) fn library_tid() -> Option<u32> {
    let mut clock = 0;
    // SAFETY: the calling thread exists, and the result is ours to write.
    let refused = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
    // The kernel's way to name a thread's clock: the id, inverted, above three bits.
    let id = !(clock >> 3);
    (refused == 0 && id > 0).then_some(id as u32)
}

/// How much memory grows by, to see who else's does: pages, a number that nobody is
/// likely to ask for at the same moment.
const PAGES: usize = 1021;
/// Others may map memory at the same moment.
const TRIES: u32 = 64;

/// Whether a thread has the calling process's memory. True if that cannot be told.
fn grows_with(thread: u32) -> bool {
    let mut path = [0; 32];
    // There is room for any number, and for the zero at the end.
    let _ = write!(&mut path[..31], "/proc/{thread}/statm");
    let path = CStr::from_bytes_until_nul(&path).unwrap_or_default();
    if pages(c"/proc/self/statm").is_err() {
        return true;
    }
    let look = || {
        let before = pages(path)?;
        let more = Reserved::map()?;
        let during = pages(path)?;
        drop(more);
        Ok((before, during, pages(path)?))
    };
    for _ in 0..TRIES {
        match look() {
            Ok((before, during, after)) if before == during && during == after => return false,
            Ok((before, during, after)) if before + PAGES == during && before == after => break,
            Ok(_) => {}
            // Who has a child in its memory waits for that one; who is gone has left a
            // copy.
            Err(error) => return !is_gone(&error),
        }
    }
    true
}

/// Whether a process was not there, or went while it was asked about.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH))
}

/// The pages of memory that a process has, by a file of /proc's. Allocates nothing.
fn pages(path: &CStr) -> io::Result<usize> {
    // SAFETY: a NUL-terminated path that outlives the call.
    let file =
        above_standard(|| unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) });
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut text = [0u8; 32];
    // SAFETY: a buffer of ours, of that length, and a descriptor that was just opened.
    let read = unsafe { libc::read(file, text.as_mut_ptr().cast(), text.len()) };
    let error = io::Error::last_os_error();
    // SAFETY: a descriptor of ours, which nobody uses again.
    unsafe { libc::close(file) };
    let Ok(read) = usize::try_from(read) else { return Err(error) };
    let text = str::from_utf8(&text[..read]).unwrap_or_default();
    let first = text.split(' ').next().and_then(|number| number.parse().ok());
    first.ok_or(io::ErrorKind::InvalidData.into())
}

/// Addresses that nobody uses.
struct Reserved {
    at: *mut libc::c_void,
    bytes: usize,
}

impl Reserved {
    fn map() -> io::Result<Self> {
        // SAFETY: takes a plain number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let bytes = PAGES * usize::try_from(page).unwrap_or(4096);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, at a place of the kernel's choice.
        let at = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { at, bytes })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: the mapping that was made in `map`, once; nobody has its address.
        unsafe { libc::munmap(self.at, self.bytes) };
    }
}
