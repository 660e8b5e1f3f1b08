//! Survives the truncation of an object that a viewer has mapped.
//!
//! A process that can open an object can also truncate it. From then on, touching the missing part
//! raises SIGBUS, which ends the viewer. Checking the file's length first would not help: the file
//! can shrink between the check and the touch. So a viewer handles the signal, and maps zeros over
//! the missing part:
//!
//! ```text
//! mapping   |----- file -----|xxxxxxxx gone xxxxxxxx|
//!                                 ^ touched: SIGBUS
//! after it  |----- file -----|----|---- zeros ------|   and the object counts as cut
//! ```
//!
//! The reader goes on, because it trusts nothing that it reads; the caller then asks
//! [`Segment::is_cut`] and drops the results.
//!
//! Only viewers do this: pfp installs no signal handler in a program that it measures.
//!
//! [`Segment::is_cut`]: crate::layout::segment::Segment::is_cut

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::os::fd::RawFd;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use crate::discovery::system::page_size;

/// Maximum number of objects that a process watches at a time.
const PLACES: usize = 1024;
/// Value of [`WatchSlot::start`] while a slot is taken and not filled yet. No mapping starts there.
const TAKEN: usize = 1;

/// A watched mapping. The signal handler reads it, so all accesses are atomic and none waits.
struct WatchSlot {
    /// Address of the first byte; 0 while the slot is free. Stored last, with release: a thread
    /// that loads it with acquire sees the other fields.
    start: AtomicUsize,
    /// Length in bytes.
    len: AtomicUsize,
    /// A descriptor of the mapped file, which shows the file's current length.
    file: AtomicI32,
    /// Whether a missing part was touched.
    cut: AtomicBool,
}

static MAPPINGS: [WatchSlot; PLACES] = [const {
    WatchSlot {
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        file: AtomicI32::new(-1),
        cut: AtomicBool::new(false),
    }
}; PLACES];

/// The action for SIGBUS that [`survive`] replaces.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// From now on this process survives the truncation of objects that it has opened. Any other SIGBUS
/// has the same effect as before.
///
/// # Errors
///
/// The system's error.
pub fn survive() -> io::Result<()> {
    if BEFORE.get().is_some() {
        return Ok(());
    }
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only reads the action into `before`, which outlives the call.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), before.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed and then filled in by the call; a plain structure.
    let before = unsafe { before.assume_init() };
    if BEFORE.set(before).is_err() {
        // Another thread is installing the handler.
        return Ok(());
    }
    // SAFETY: an all-zero `sigaction` is a valid value of that plain struct.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = handle as *const () as libc::sighandler_t;
    // The handler runs on the alternate stack of a thread that has one, like the handler for stack
    // overflows.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the handler only uses atomics and system calls; the structure lives across
    // the call.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Registration of a mapping that is watched; dropping it ends the watch. It must be dropped before
/// the mapping and the descriptor.
#[derive(Debug)]
pub(crate) struct Watched {
    place: usize,
}

impl Watched {
    /// Watches a mapping of a file; `file` is any descriptor of the file.
    ///
    /// # Errors
    ///
    /// All places are taken.
    pub(crate) fn new(start: *const u8, len: usize, file: RawFd) -> io::Result<Self> {
        let take = |place: &WatchSlot| {
            place.start.compare_exchange(0, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let Some(place) = MAPPINGS.iter().position(take) else {
            return Err(io::Error::other(format!(
                "cannot watch more than {PLACES} segments at a time"
            )));
        };
        let mapping = &MAPPINGS[place];
        mapping.len.store(len, Ordering::Relaxed);
        mapping.file.store(file, Ordering::Relaxed);
        mapping.cut.store(false, Ordering::Relaxed);
        // Pairs with the acquire in the handler.
        mapping.start.store(start.addr(), Ordering::Release);
        Ok(Self { place })
    }

    /// Whether a missing part was touched.
    pub(crate) fn is_cut(&self) -> bool {
        // Relaxed is enough. The flag is set by a signal handler on this thread, or on another
        // thread; each thread asks only about its own reading.
        MAPPINGS[self.place].cut.load(Ordering::Relaxed)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Pairs with the acquire of the thread that takes the place next.
        MAPPINGS[self.place].start.store(0, Ordering::Release);
    }
}

/// Handler of SIGBUS. If the address is in a watched mapping, it maps zeros there, and the access
/// is repeated. If not, it restores the handler from before, and the access is repeated, too.
extern "C" fn handle(_signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel passes a filled structure. For a fault it has an address. A signal that
    // was sent has another code, and then the address is not used.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    // SAFETY: the location is the calling thread's own errno.
    let errno = unsafe { *libc::__errno_location() };
    if code != libc::BUS_ADRERR || !mend(address) {
        // SAFETY: the action was returned by the system, or is the default. A fault occurs again
        // after the return, and reaches that action; a signal that was sent is raised again.
        unsafe {
            if let Some(before) = BEFORE.get() {
                libc::sigaction(libc::SIGBUS, before, ptr::null_mut());
            } else {
                libc::signal(libc::SIGBUS, libc::SIG_DFL);
            }
            if code <= 0 {
                libc::raise(libc::SIGBUS);
            }
        }
    }
    // SAFETY: the location is the calling thread's own errno.
    unsafe { *libc::__errno_location() = errno };
}

/// Maps zeros at an address. False if no watched mapping contains the address.
fn mend(address: usize) -> bool {
    let around = |place: &&WatchSlot| {
        let start = place.start.load(Ordering::Acquire);
        start > TAKEN && address.wrapping_sub(start) < place.len.load(Ordering::Relaxed)
    };
    let Some(place) = MAPPINGS.iter().find(around) else { return false };
    let page = page_size();
    let start = place.start.load(Ordering::Relaxed);
    let len = place.len.load(Ordering::Relaxed).next_multiple_of(page);
    let at = (address - start) / page * page;
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the buffer is a stat; the descriptor is open as long as the place is taken.
    let known = unsafe { libc::fstat(place.file.load(Ordering::Relaxed), stat.as_mut_ptr()) } == 0;
    // SAFETY: zeroed, and filled in if the call succeeded; any bytes are valid.
    let file_len = usize::try_from(unsafe { stat.assume_init() }.st_size).unwrap_or(0);
    // At or beyond the end of the file, all of the mapping from here on is missing. Before the end,
    // the system could not provide one page. That page was never written, so it would have read as
    // zeros anyway.
    let gone = !known || at >= file_len;
    let len = if gone { len - at } else { page };
    // SAFETY: the range is whole pages of a mapping that its owner has registered, and that stays
    // mapped as long as the place is taken. The pages contain nothing else, and no Rust reference
    // leads to them.
    let zeros = unsafe {
        libc::mmap(
            ptr::without_provenance_mut(start + at),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if gone {
        place.cut.store(true, Ordering::Relaxed);
    }
    zeros != libc::MAP_FAILED
}
