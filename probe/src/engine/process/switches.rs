//! [Switches](pfp_shm_layout::switch): flags in the segment that stop the calls of code that is
//! annotated for another tool. The page of each switch is mapped a second time, followed by a
//! private page for the rest of the flag's domain, where no other process can write.

use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU64,
    Ordering::{Relaxed, SeqCst},
    fence,
};

use pfp_shm_layout::switch;

use super::{PAGE, current};
use crate::engine::copies;
use crate::errno;

/// Maximum number of switches that a process has mapped.
const MAX_SWITCHES: usize = 64;

/// The page of each mapped switch; null in unused elements.
static MAPPED: [AtomicPtr<u8>; MAX_SWITCHES] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MAX_SWITCHES];

const REGISTER: libc::c_int = 1 << 4;
const EXPEDITED: libc::c_int = 1 << 3;

fn page_size() -> usize {
    // SAFETY: the argument is a plain number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(0)
}

/// Makes every thread of the process pass a memory barrier; false if the system cannot.
fn order_threads(command: libc::c_int) -> bool {
    // SAFETY: the arguments are plain numbers; no memory is involved.
    errno::preserve(|| unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 })
}

/// A switch: a flag in the segment, followed by private memory.
#[derive(Debug)]
pub struct Switch {
    word: &'static AtomicU64,
    /// The process that made the switch. A forked child has the memory, too, but must not change
    /// it.
    pid: libc::pid_t,
}

impl Switch {
    /// A new switch, which is never freed. `None` if all are taken, or memory runs out.
    #[must_use]
    pub fn new() -> Option<Self> {
        let word = match copies::followed() {
            // SAFETY: the pointer is null, or leads to a word that is never unmapped.
            Some(leader) => unsafe { leader.new_switch().as_ref() },
            None => errno::preserve(new_word),
        };
        Some(Self { word: word?, pid: pid() })
    }

    /// Address of the flag, an `int`. The page of private memory begins eight bytes after it.
    #[must_use]
    pub fn place(&self) -> *mut u8 {
        ptr::from_ref(self.word).cast_mut().cast()
    }

    /// Whether the switch rests: its flag is 0 until it is woken.
    #[inline]
    #[must_use]
    pub fn rests(&self) -> bool {
        switch::rests(self.word)
    }

    /// Makes the switch rest if `is_idle` returns true; returns whether it rests now.
    #[cold]
    pub fn rest(&self, is_idle: impl Fn() -> bool) -> bool {
        if !self.is_of_this_process() || !is_idle() || !switch::rest(self.word) {
            return false;
        }
        // If another thread begins a region or switches a point on at this moment, either that
        // thread sees the resting switch, or `is_idle` sees what the thread did.
        let is_ordered = order_threads(EXPEDITED);
        fence(SeqCst);
        if is_ordered && is_idle() {
            return true;
        }
        self.wake();
        false
    }

    /// Wakes the switch, if it rests.
    #[cold]
    pub fn wake(&self) {
        if self.is_of_this_process() {
            switch::wake(self.word);
        }
    }

    fn is_of_this_process(&self) -> bool {
        self.pid == pid()
    }
}

fn pid() -> libc::pid_t {
    // SAFETY: no preconditions.
    errno::preserve(|| unsafe { libc::getpid() })
}

/// The word of a new switch in the segment.
pub(in crate::engine) fn new_word() -> Option<&'static AtomicU64> {
    let process = current()?;
    if page_size() != PAGE || !order_threads(REGISTER) {
        return None;
    }
    let own = process.segment.take_switch()?;
    let page = map_before_private(own)?;
    let take = |slot: &AtomicPtr<u8>| {
        slot.compare_exchange(ptr::null_mut(), page, Relaxed, Relaxed).is_ok()
    };
    if !MAPPED.iter().any(take) {
        // SAFETY: the pages were mapped just now, and are not published.
        unsafe { libc::munmap(page.cast(), 2 * PAGE) };
        return None;
    }
    own.store(switch::ON, SeqCst);
    // SAFETY: the word is aligned, and its page is never unmapped.
    Some(unsafe { &*page.add(PAGE - size_of::<AtomicU64>()).cast() })
}

/// Maps the page of a word a second time, followed by a private page.
fn map_before_private(word: &AtomicU64) -> Option<*mut u8> {
    const PRIVATE: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    const ACCESS: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;
    const OVER: libc::c_int = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let from = ptr::from_ref(word).addr() & !(PAGE - 1);
    let from = ptr::from_ref(word).cast_mut().with_addr(from).cast();
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let pages = unsafe { libc::mmap(ptr::null_mut(), 2 * PAGE, ACCESS, PRIVATE, -1, 0) };
    if pages == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: with 0 bytes to move, the call maps the page of the segment a second time, and keeps
    // its shared mapping; it replaces a page that was mapped just now.
    if unsafe { libc::mremap(from, 0, PAGE, OVER, pages) } == libc::MAP_FAILED {
        // SAFETY: the pages were mapped above, and no other code has their address.
        unsafe { libc::munmap(pages, 2 * PAGE) };
        return None;
    }
    Some(pages.cast())
}

/// In a forked child, replaces the parent's flags by flags in the child's own memory, which do not
/// rest. This function calls only functions that a signal handler may call.
pub(in crate::engine) fn leave_parents() {
    const PRIVATE: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    const ACCESS: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;
    const OVER: libc::c_int = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    for slot in &MAPPED {
        let page = slot.load(Relaxed);
        if page.is_null() {
            continue;
        }
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let new = unsafe { libc::mmap(ptr::null_mut(), PAGE, ACCESS, PRIVATE, -1, 0) };
        if new == libc::MAP_FAILED {
            continue;
        }
        let at = PAGE - size_of::<AtomicU64>();
        // SAFETY: both words are aligned and mapped, and no other code has the address of the new
        // mapping. The new mapping replaces the other one in one step.
        unsafe {
            let parents = &*page.add(at).cast::<AtomicU64>();
            let is_off = !switch::rests(parents) && parents.load(Relaxed) as u32 == 0;
            new.cast::<u8>().add(at).cast::<u64>().write(if is_off { 0 } else { switch::ON });
            libc::mremap(new, PAGE, PAGE, OVER, page);
        }
        slot.store(ptr::null_mut(), Relaxed);
    }
}
