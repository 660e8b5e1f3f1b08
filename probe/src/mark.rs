//! Marks: that something is under way on a thread, as a signal handler may find it.
//!
//! A flag would stay set where a handler leaves by a jump, an exception or the end of its
//! thread, for who was to take it away never goes on. A mark is the address of a word in
//! the frame of whoever is at work, and that word holds the mark. Whoever finds a mark
//! looks whether the frame is still there:
//!
//! ```text
//!   word that is marked --> frame: | mark |      there: somebody is at work
//!                       --> frame: | else |      gone: what was begun is never finished
//! ```
//!
//! A handler may switch to another fibre, which then finds the mark. The frame is on
//! another stack there, so its address says nothing about its life.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

use crate::errno;

/// A mark is an address times this: below zero, as no other value of the words that are marked,
/// and its lowest bits are 0, since the address is a multiple of 8.
const SCALE: i64 = -512;
/// The lowest bits of a mark, which are 0.
pub(crate) const NO_MARK: u64 = SCALE.unsigned_abs() * align_of::<u64>() as u64 - 1;

/// In a mark, unless the context that set it is not the current one.
const HERE: u64 = 1 << 62;

/// Whether a word holds a mark.
#[inline(always)]
pub(crate) fn is_mark(word: u64) -> bool {
    (word as i64) < 0
}

/// The mark of an address.
#[inline(always)]
fn of(address: u64) -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let mark: u64;
        // SAFETY: a product. The compiler would take two instructions for it.
        unsafe {
            std::arch::asm!(
                "imul {mark}, {address}, {scale}",
                mark = lateout(reg) mark,
                address = in(reg) address,
                scale = const SCALE,
                options(nostack, nomem, pure)
            );
        }
        mark
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    address.wrapping_mul(SCALE as u64)
}

/// Who has marked a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    Nobody,
    AtWork,
    /// Somebody whose frame is gone.
    Gone,
}

/// Looks who has marked a word.
#[inline(always)]
pub(crate) fn holder(word: &AtomicU64) -> Holder {
    loop {
        let mark = word.load(Relaxed);
        if !is_mark(mark) {
            return Holder::Nobody;
        }
        if is_live(mark) {
            return Holder::AtWork;
        }
        compiler_fence(SeqCst);
        // It differs if a handler switched to that fibre and back: the fibre has finished.
        if word.load(Relaxed) == mark {
            return Holder::Gone;
        }
    }
}

/// Keeps the mark of the context that is put aside; 0 if another context set it.
pub(crate) fn put_aside(word: &AtomicU64, kept: &AtomicU64) {
    let mark = word.load(Relaxed);
    let is_its_own = is_mark(mark) && mark & HERE != 0;
    kept.store(if is_its_own { mark } else { 0 }, Relaxed);
}

/// Notes in a marked word whether the context that goes on set the mark. Returns the mark
/// if another context did, else 0.
pub(crate) fn resume(word: &AtomicU64, kept: &AtomicU64) -> u64 {
    let mark = word.load(Relaxed);
    if !is_mark(mark) {
        return 0;
    }
    let is_its_own = mark | HERE == kept.load(Relaxed);
    let mark = if is_its_own { mark | HERE } else { mark & !HERE };
    word.store(mark, Relaxed);
    if is_its_own { 0 } else { mark }
}

/// A word for [`set`] in the frame of whoever is at work.
#[inline(always)]
pub(crate) fn new() -> MaybeUninit<u64> {
    MaybeUninit::uninit()
}

/// Marks a word of the thread's. The word in the frame must stay where it is until that is
/// undone.
#[inline(always)]
pub(crate) fn set<T>(frame: &mut T, word: &AtomicU64) {
    let mark = prepare(frame);
    word.store(mark, Relaxed);
    compiler_fence(SeqCst);
}

/// A mark, which stands in a word of the frame of whoever is at work, and is to be put into the
/// word that it marks.
#[inline(always)]
pub(crate) fn prepare<T>(frame: &mut T) -> u64 {
    const { assert!(size_of::<T>() == 8 && align_of::<T>() == 8) };
    let place = ptr::from_mut(frame).cast::<u64>();
    let mark = of(place.expose_provenance() as u64);
    // SAFETY: a word of the caller's; volatile, since only its address leads here.
    unsafe { place.write_volatile(mark) };
    compiler_fence(SeqCst);
    mark
}

/// Whether the frame that a mark was set in is still there.
#[cold]
#[inline(never)]
fn is_live(mark: u64) -> bool {
    let whole = mark | HERE;
    let place = whole.wrapping_neg() / SCALE.unsigned_abs();
    // What lies below this frame on this stack is nobody's.
    scrub();
    if place == 0 || !is_readable(place) {
        return false;
    }
    // SAFETY: it was readable just now, as stacks stay.
    let found = unsafe { ptr::with_exposed_provenance::<u64>(place as usize).read_volatile() };
    found == whole && (mark & HERE == 0 || !is_below(place))
}

/// How far below a frame one is looked for that was left by a jump.
const NEAR: u64 = 256 << 10;

/// What the kernel puts below whoever a signal handler interrupts, at least.
const SIGNAL_FRAME: u64 = 1 << 10;

/// Whether a place is below any frame on the same stack that the caller's handler can have
/// interrupted, so that its frame is gone. It may be inside a frame of ours, in a word that
/// this has not written yet.
fn is_below(place: u64) -> bool {
    let here = 0u8;
    let here = (&raw const here).addr() as u64;
    let lowest = here + SIGNAL_FRAME;
    if place >= lowest || lowest - place > NEAR {
        return false;
    }
    // A handler on a stack of its own may stand above what it has interrupted.
    let mut stack = MaybeUninit::<libc::stack_t>::uninit();
    let asked = errno::preserve(|| {
        // SAFETY: the kernel fills the structure.
        unsafe { libc::sigaltstack(ptr::null(), stack.as_mut_ptr()) == 0 }
    });
    if !asked {
        return false;
    }
    // SAFETY: filled just now.
    let stack = unsafe { stack.assume_init() };
    if stack.ss_flags & libc::SS_DISABLE != 0 {
        return true;
    }
    let is_there =
        |place: u64| place.wrapping_sub(stack.ss_sp.addr() as u64) < stack.ss_size as u64;
    is_there(place) == is_there(here)
}

/// Whether a word can be read, wherever it is: the kernel reads a set of signals there, and
/// then finds that it is not told what to do with it.
fn is_readable(place: u64) -> bool {
    errno::preserve(|| {
        let nothing: *mut libc::c_void = ptr::null_mut();
        // SAFETY: changes nothing, as there is no such way to change the mask.
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, -1, place, nothing, 8usize) };
        std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
    })
}

/// Overwrites the stack below the caller's frame, where a word of a frame that is gone may
/// still stand as it was.
#[inline(never)]
fn scrub() {
    let mut below = MaybeUninit::<[u64; 128]>::uninit();
    for at in 0..128 {
        // SAFETY: within the array.
        unsafe { below.as_mut_ptr().cast::<u64>().add(at).write_volatile(0) };
    }
}

// Miri has no frames that are gone.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    static WORD: AtomicU64 = AtomicU64::new(0);

    #[inline(never)]
    fn leaves_a_mark() -> bool {
        let mut mark = new();
        set(&mut mark, &WORD);
        let between = std::hint::black_box([0u8; SIGNAL_FRAME as usize]);
        let found = is_live_from(WORD.load(Relaxed));
        std::hint::black_box(&between);
        found
    }

    /// From as far below as a handler is.
    #[inline(never)]
    fn is_live_from(mark: u64) -> bool {
        let between = std::hint::black_box([0u8; SIGNAL_FRAME as usize]);
        let found = is_live(mark);
        std::hint::black_box(&between);
        found
    }

    #[inline(never)]
    fn leaves_it_deep(depth: u64) -> u64 {
        let mut frame = [depth; 64];
        std::hint::black_box(&mut frame);
        let found = if depth == 0 { u64::from(leaves_a_mark()) } else { leaves_it_deep(depth - 1) };
        std::hint::black_box(&mut frame);
        found
    }

    #[test]
    fn a_mark_lives_as_long_as_its_frame() {
        assert!(leaves_a_mark(), "its frame was there");
        assert!(!is_live(WORD.load(Relaxed)), "its frame is gone");
        assert_eq!(leaves_it_deep(100), 1, "its frame was there");
        assert!(!is_live(WORD.load(Relaxed)), "its frame is gone, far below");
    }

    #[test]
    fn a_mark_on_memory_that_is_gone_is_no_fault() {
        assert!(!is_live(of(0x1000)));
        assert!(!is_live(of(u64::MAX >> 10)));
        assert!(!is_live(u64::MAX));
    }
}
