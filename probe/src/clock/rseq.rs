//! The rseq clock source: the thread's restartable-sequence area as a switch detector.
//!
//! glibc from 2.35 on registers such an area for every thread. When a thread is switched out or
//! takes a signal, the kernel reads the area's `rseq_cs` pointer. If the thread was not inside the
//! critical section to which the pointer leads, the kernel sets the pointer to null. So a pointer
//! to a section that is never executed stays exactly until the next switch or signal. A thread
//! *arms* the word by storing this pointer in it.

use std::ptr;
use std::sync::atomic::{AtomicIsize, AtomicU64, Ordering::Relaxed};

use super::arch;

/// The kernel's `struct rseq_cs`, to which `rseq_cs` points.
#[repr(C, align(32))]
#[derive(Debug)]
struct CriticalSection {
    version: u32,
    flags: u32,
    start_ip: *const u32,
    post_commit_offset: u64,
    abort_ip: *const u32,
}

// SAFETY: the data is constant. Only the kernel reads the pointers, and only as numbers.
unsafe impl Sync for CriticalSection {}

/// glibc registers areas with this signature, and the kernel checks it in front of `abort_ip`. The
/// kernel checks nothing else of the section, so the section need not be code.
#[cfg(not(target_arch = "aarch64"))]
const SIGNATURE: u32 = 0x5305_3053;
#[cfg(target_arch = "aarch64")]
const SIGNATURE: u32 = 0xd428_bc00;

static NOWHERE: [u32; 4] = [SIGNATURE; 4];

static SECTION: CriticalSection = CriticalSection {
    version: 0,
    flags: 0,
    start_ip: &raw const NOWHERE[0],
    post_commit_offset: 4,
    // An address outside of the section, with the signature in the four bytes before it.
    abort_ip: &raw const NOWHERE[2],
};

/// Offset of `rseq_cs` in the kernel's `struct rseq`.
const RSEQ_CS: isize = 8;
/// The location of the threads' areas, and the section to which an armed word points.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Rseq {
    /// Distance of `rseq_cs` from the thread pointer; 0 while it is unknown.
    offset: AtomicIsize,
    section: &'static CriticalSection,
}

impl Rseq {
    pub(super) const fn new() -> Self {
        Self { offset: AtomicIsize::new(0), section: &SECTION }
    }

    /// The value of an armed word.
    pub(super) fn armed(&self) -> u64 {
        ptr::from_ref(self.section).addr() as u64
    }

    /// The calling thread's `rseq_cs` word. `None` if no area is registered.
    pub(super) fn word(&self) -> Option<&'static AtomicU64> {
        let offset = self.offset.load(Relaxed);
        let pointer = arch::thread_pointer();
        if offset == 0 || pointer.is_null() {
            return None;
        }
        // SAFETY: glibc states that the thread's area exists, and lives as long as the thread. The
        // word is an aligned u64 that only this thread, and the kernel on its behalf, access. The
        // caller does not pass the reference to another thread.
        Some(unsafe { &*pointer.wrapping_offset(offset).cast::<AtomicU64>() })
    }

    /// Looks for the area, and tests whether blocking is noticed: newer kernels may leave the
    /// pointer unchanged for some kinds of registration.
    pub(super) fn works(&self) -> bool {
        self.offset.store(found(), Relaxed);
        let Some(word) = self.word() else { return false };
        // The program uses a critical section of its own, which must not be disturbed.
        if word.load(Relaxed) != 0 && word.load(Relaxed) != self.armed() {
            return false;
        }
        // The shortest sleep may end before the thread is switched out: a real-time thread's timers
        // have no slack.
        let noticed = [1, 100_000, 2_000_000].into_iter().any(|tv_nsec| {
            word.store(self.armed(), Relaxed);
            let moment = libc::timespec { tv_sec: 0, tv_nsec };
            // SAFETY: the argument is a valid timespec, and a null second argument is allowed.
            unsafe { libc::nanosleep(&raw const moment, ptr::null_mut()) };
            word.load(Relaxed) == 0
        });
        word.store(0, Relaxed);
        if !noticed {
            self.offset.store(0, Relaxed);
        }
        noticed
    }
}

/// The result of [`look_up`], which is called once; 0 if nothing was found. A forked child does not
/// repeat the search, because the search takes the loader's lock.
static FOUND: AtomicIsize = AtomicIsize::new(NOT_ASKED);
const NOT_ASKED: isize = isize::MIN;

fn found() -> isize {
    let known = FOUND.load(Relaxed);
    if known != NOT_ASKED {
        return known;
    }
    let found = look_up().unwrap_or(0);
    FOUND.store(found, Relaxed);
    found
}

/// Looks for the area now, so that no later call has to.
pub(super) fn prepare() {
    found();
}

fn look_up() -> Option<isize> {
    // glibc has these symbols from 2.35 on. Other C libraries lack them.
    // SAFETY: the names are NUL-terminated.
    let (offset, size) = unsafe {
        (
            libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>(),
            libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>(),
        )
    };
    if offset.is_null() || size.is_null() {
        return None;
    }
    // SAFETY: glibc declares the symbols with these types. They are constant after the start of the
    // process. A size of 0 means that the registration failed.
    unsafe { (*size != 0).then(|| *offset + RSEQ_CS) }
}
