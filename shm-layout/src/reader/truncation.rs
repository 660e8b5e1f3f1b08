//! An object that is cut short while a viewer has it mapped.
//!
//! Whoever may open an object may truncate it, and from then on touching what is gone
//! raises SIGBUS, which ends the process. Looking at the file's length first would not
//! do: it can shrink between the look and the touch. So a viewer takes the signal, and
//! puts zeros where there is nothing any more:
//!
//! ```text
//! mapping   |----- file -----|xxxxxxxx gone xxxxxxxx|
//!                                 ^ touched: SIGBUS
//! after it  |----- file -----|----|---- zeros ------|   and the object counts as cut
//! ```
//!
//! A reader goes on, since it believes nothing that it reads; what it made of the
//! zeros is thrown away by whoever asks [`Segment::is_cut`] afterwards.
//!
//! This is for viewers alone: a program that measures gets no signal handler from us.
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

/// Most objects that a process watches at a time.
const PLACES: usize = 1024;
/// In [`Place::start`]: taken, and not filled yet. No mapping starts there.
const TAKEN: usize = 1;

/// A mapping that is watched. Looked at in a signal handler, so nothing here waits.
struct Place {
    /// Address of the first byte; 0 while the place is free. Stored last, with release:
    /// whoever sees it (with acquire) sees the rest.
    start: AtomicUsize,
    /// Bytes.
    len: AtomicUsize,
    /// A descriptor that tells how long the file is.
    file: AtomicI32,
    /// Something was touched that was gone.
    cut: AtomicBool,
}

static MAPPINGS: [Place; PLACES] = [const {
    Place {
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        file: AtomicI32::new(-1),
        cut: AtomicBool::new(false),
    }
}; PLACES];

/// What SIGBUS did before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// From now on this process survives that an object which it has opened is cut short.
/// Any other SIGBUS does what it did.
///
/// # Errors
///
/// What the system answered.
pub fn survive() -> io::Result<()> {
    if BEFORE.get().is_some() {
        return Ok(());
    }
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks only; the structure lives across the call.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), before.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed and then filled in by the call; a plain structure.
    let before = unsafe { before.assume_init() };
    if BEFORE.set(before).is_err() {
        // Another thread is installing it just now.
        return Ok(());
    }
    // SAFETY: an all-zero `sigaction` is a valid value of that plain struct.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = handle as *const () as libc::sighandler_t;
    // On the other stack where a thread has one, as the handler for stack overflows is.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: the handler only uses atomics and system calls; the structure lives across
    // the call.
    if unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// A mapping among those that are watched; dropping it takes it out. To be dropped
/// before the mapping and the descriptor are.
#[derive(Debug)]
pub(crate) struct Watched {
    place: usize,
}

impl Watched {
    /// Watches a mapping of a file; `file` is a descriptor of it, of whatever kind.
    ///
    /// # Errors
    ///
    /// As many are watched as can be.
    pub(crate) fn new(start: *const u8, len: usize, file: RawFd) -> io::Result<Self> {
        let take = |place: &Place| {
            place.start.compare_exchange(0, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let Some(place) = MAPPINGS.iter().position(take) else {
            return Err(io::Error::other(format!(
                "expected at most {PLACES} segments to be looked at, found one more"
            )));
        };
        let mapping = &MAPPINGS[place];
        mapping.len.store(len, Ordering::Relaxed);
        mapping.file.store(file, Ordering::Relaxed);
        mapping.cut.store(false, Ordering::Relaxed);
        // Meets the handler's acquire.
        mapping.start.store(start.addr(), Ordering::Release);
        Ok(Self { place })
    }

    /// Whether something was touched that was gone.
    pub(crate) fn is_cut(&self) -> bool {
        // Relaxed: set by this very thread, in a handler, or by another one whose
        // reading is its own.
        MAPPINGS[self.place].cut.load(Ordering::Relaxed)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Meets the acquire of whoever takes the place next.
        MAPPINGS[self.place].start.store(0, Ordering::Release);
    }
}

/// SIGBUS. If it is about a mapping that is watched, the access is tried again on
/// zeros; if not, with the handler that was there before.
extern "C" fn handle(_signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel gives a filled structure; of a SIGBUS, with an address. One
    // that was sent has another code, and its address is not looked at.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    // SAFETY: the calling thread's own.
    let errno = unsafe { *libc::__errno_location() };
    if code != libc::BUS_ADRERR || !mend(address) {
        // SAFETY: what the system once gave, or its default. A fault comes again when
        // this returns, and then goes there; a signal that was sent is sent on.
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
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Puts zeros at an address; false if that is none of ours.
fn mend(address: usize) -> bool {
    let around = |place: &&Place| {
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
    // Behind the end nothing is left. Before it, a page that was never written could
    // not be had: that one reads as zeros, as it would have.
    let gone = !known || at >= file_len;
    let len = if gone { len - at } else { page };
    // SAFETY: whole pages within a mapping that its owner has told of and that stays as
    // long as the place is taken. Nothing else lies there, and no reference to plain
    // bytes of it exists.
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
