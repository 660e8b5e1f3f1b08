//! The rseq clock source: the thread's restartable-sequence area as a switch detector.
//!
//! glibc from 2.35 on registers such an area for every thread. When a thread is
//! switched out or takes a signal, the kernel looks at its `rseq_cs` pointer; if
//! the thread was not inside the critical section that it names, the kernel sets
//! the pointer to null. So a pointer to a section that is never executed stays
//! until the next switch and no longer.

use std::ptr;
use std::sync::atomic::{AtomicIsize, AtomicU64, Ordering::Relaxed};

use super::arch;

/// What `rseq_cs` points to: the kernel's `struct rseq_cs`.
#[repr(C, align(32))]
#[derive(Debug)]
struct CriticalSection {
    version: u32,
    flags: u32,
    start_ip: *const u32,
    post_commit_offset: u64,
    abort_ip: *const u32,
}

// SAFETY: constant data; the pointers are only ever read as numbers, by the
// kernel.
unsafe impl Sync for CriticalSection {}

/// glibc registers with this signature; the kernel looks for it in front of
/// `abort_ip`. It asks no more of the section than that, so it need not be code.
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
    // Outside the section, with the signature in the four bytes before it.
    abort_ip: &raw const NOWHERE[2],
};

/// Offset of `rseq_cs` in the kernel's `struct rseq`.
const RSEQ_CS: isize = 8;
/// Where the areas are, and what is named in them.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Rseq {
    /// Distance of `rseq_cs` from the thread pointer; 0 while not looked up.
    offset: AtomicIsize,
    section: &'static CriticalSection,
}

impl Rseq {
    pub(super) const fn new() -> Self {
        Self { offset: AtomicIsize::new(0), section: &SECTION }
    }

    /// The value that an armed word has.
    pub(super) fn armed(&self) -> u64 {
        ptr::from_ref(self.section).addr() as u64
    }

    /// The calling thread's `rseq_cs` word; none where nobody has registered an
    /// area.
    pub(super) fn word(&self) -> Option<&'static AtomicU64> {
        let offset = self.offset.load(Relaxed);
        let pointer = arch::thread_pointer();
        if offset == 0 || pointer.is_null() {
            return None;
        }
        // SAFETY: glibc says that the thread's area is there, it lives as long as
        // the thread, and the word is an aligned u64 that only this thread and the
        // kernel on its behalf access. The caller keeps the reference to the thread.
        Some(unsafe { &*pointer.wrapping_offset(offset).cast::<AtomicU64>() })
    }

    /// Looks for the area and tries out whether blocking is noticed: newer kernels
    /// may leave the pointer alone for some kinds of registration.
    pub(super) fn works(&self) -> bool {
        self.offset.store(found(), Relaxed);
        let Some(word) = self.word() else { return false };
        // Somebody else's critical section is none of ours to disturb.
        if word.load(Relaxed) != 0 && word.load(Relaxed) != self.armed() {
            return false;
        }
        // The shortest sleep may be over before the thread is switched out: a real-time
        // thread's timers have no slack.
        let noticed = [1, 100_000, 2_000_000].into_iter().any(|tv_nsec| {
            word.store(self.armed(), Relaxed);
            let moment = libc::timespec { tv_sec: 0, tv_nsec };
            // SAFETY: sleeps for a moment; the structure is ours.
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

/// What [`look_up`] has found, once: 0 for nothing. In a forked child nobody asks again,
/// as that takes the loader's lock.
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

/// Looks for the area, so that nobody has to later.
pub(super) fn prepare() {
    found();
}

fn look_up() -> Option<isize> {
    // Weak symbols of glibc >= 2.35: an older one, or another libc, has none.
    // SAFETY: looks up names that end in zero.
    let (offset, size) = unsafe {
        (
            libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>(),
            libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>(),
        )
    };
    if offset.is_null() || size.is_null() {
        return None;
    }
    // SAFETY: glibc declares them with these types; they are constant after the
    // start of the process. A size of 0 says that registration failed.
    unsafe { (*size != 0).then(|| *offset + RSEQ_CS) }
}
