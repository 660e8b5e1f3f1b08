//! The perf clock source: the page of a self-monitoring software event as a switch
//! detector. Needs `perf_event_open`, which many containers forbid.

use std::sync::atomic::AtomicU64;

use pfp_shm_layout::descriptors::above_standard;

/// Size of the kernel's `struct perf_event_attr` in its first version, which has all fields that
/// are needed here.
const ATTR_SIZE: u32 = 64;
const TYPE_SOFTWARE: u32 = 1;
const COUNT_DUMMY: u64 = 9;
/// `exclude_kernel` and `exclude_hv`: with these, any user may open the event at paranoia level 2.
const FLAGS: u64 = 1 << 5 | 1 << 6;
/// Offset of the 8-byte word that a switch changes: `lock` in the lower half, `index` in the upper.
const LOCK: usize = 8;
const PAGE: usize = 4096;

#[repr(C)]
struct Attr {
    kind: u32,
    size: u32,
    config: u64,
    sample: [u64; 3],
    flags: u64,
    rest: [u64; 2],
}

/// The page of an event of the calling thread.
#[derive(Debug)]
pub(super) struct Page(*mut libc::c_void);

impl Page {
    /// Opens an event for the calling thread. `None` if that is forbidden, or if a seccomp filter
    /// is set: usual filters refuse this call, and some kill the process for it. A process cannot
    /// read the rules of its filter, so the call is not tried.
    pub(super) fn open() -> Option<Self> {
        if has_filter() {
            return None;
        }
        let attr = Attr {
            kind: TYPE_SOFTWARE,
            size: ATTR_SIZE,
            config: COUNT_DUMMY,
            sample: [0; 3],
            flags: FLAGS,
            rest: [0; 2],
        };
        // The arguments mean: this thread, any CPU, no group, close on exec.
        // SAFETY: the kernel reads `size` bytes of `attr`, which is that large.
        let file = above_standard(|| unsafe {
            libc::syscall(libc::SYS_perf_event_open, &raw const attr, 0, -1, -1, 8) as i32
        });
        if file < 0 {
            return None;
        }
        // SAFETY: maps the event's page at an address that the kernel chooses. The mapping keeps
        // the event alive, so the descriptor can be closed.
        let page = unsafe {
            let page =
                libc::mmap(std::ptr::null_mut(), PAGE, libc::PROT_READ, libc::MAP_SHARED, file, 0);
            libc::close(file);
            page
        };
        (page != libc::MAP_FAILED).then_some(Self(page))
    }

    /// The word that changes at every switch. Valid as long as the page is mapped.
    pub(super) fn word(&self) -> *const AtomicU64 {
        self.0.cast::<u8>().wrapping_add(LOCK).cast()
    }

    /// The address of the page, to be stored in a plain word. The page stays mapped.
    pub(super) fn into_address(self) -> u64 {
        let address = self.0.addr() as u64;
        std::mem::forget(self);
        address
    }

    /// Unmaps a page by the address that [`Self::into_address`] returned.
    ///
    /// # Safety
    ///
    /// `into_address` returned the address in this process, and nothing reads the page's word any
    /// more.
    pub(super) unsafe fn release(address: u64) {
        drop(Self(std::ptr::with_exposed_provenance_mut(address as usize)));
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the page was mapped by `open` and nothing refers to it.
        unsafe { libc::munmap(self.0, PAGE) };
    }
}

/// Maps zeros at the address of the parent's page, in a forked child. The mapping is never removed,
/// because it is not known when the child last reads it.
pub(super) fn stand_in(address: u64) {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let at = std::ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: the call replaces no mapping. If something is mapped at the address, it stays
    // readable.
    unsafe { libc::mmap(at, PAGE, libc::PROT_READ, flags, -1, 0) };
}

/// Whether a seccomp filter is set for the calling thread.
fn has_filter() -> bool {
    // SAFETY: the call takes plain numbers and writes no memory. If the call fails, its result is
    // not the mode, so the thread counts as unfiltered.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) == libc::SECCOMP_MODE_FILTER as i32 }
}

/// Whether an event can be opened, and its word changes when the thread blocks.
pub(super) fn works() -> bool {
    let Some(page) = Page::open() else { return false };
    // SAFETY: the page is mapped; the word in it is an aligned u64.
    let read = || unsafe { (*page.word()).load(std::sync::atomic::Ordering::Relaxed) };
    let before = read();
    let moment = libc::timespec { tv_sec: 0, tv_nsec: 1 };
    // SAFETY: `moment` is a valid timespec, and a null second argument is allowed.
    unsafe { libc::nanosleep(&raw const moment, std::ptr::null_mut()) };
    read() != before
}

const _: () = assert!(size_of::<Attr>() == ATTR_SIZE as usize);
