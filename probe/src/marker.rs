//! In-progress markers: a marker shows a signal handler that it has interrupted some work of its
//! thread.
//!
//! A flag would stay set if a handler left the work by a jump, an exception or the end of its
//! thread, because the code that clears the flag would never run. A marker is the address of a word
//! in the stack frame of the code that does the work, and that word holds the marker, too. A
//! handler that finds a marker checks whether the frame still exists:
//!
//! ```text
//!   marked word --> frame: | marker |    the frame exists: the work is in progress
//!               --> frame: | other  |    the frame is gone: the work is never finished
//! ```
//!
//! A word of a frame that is gone may still hold its marker, because nothing has overwritten it. So
//! a handler also compares the frame's address with its own stack pointer: a frame far enough below
//! it is gone. The comparison says nothing if a handler has switched to another fibre, which has
//! another stack. So the address is compared only if the bit [`HERE`] is set: then the current
//! context has set the marker.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

use crate::errno;

/// A marker is the address multiplied by this. It is negative, unlike any other value of a word
/// that may hold a marker, and its lowest bits are 0, because the address is a multiple of 8. On
/// x86-64, compilers take one instruction for this product, but two for a product with a negative
/// power of two.
const SCALE: i64 = if cfg!(target_arch = "x86_64") { -512 * 7 } else { -512 };
/// The lowest bits of a marker, which are 0.
pub(crate) const LOW_BITS: u64 = (1 << SCALE.trailing_zeros()) * align_of::<u64>() as u64 - 1;

/// A bit of a marker: 1 if the current context set the marker, 0 if another context did.
const HERE: u64 = 1 << 62;

/// Whether a word holds a marker.
#[inline(always)]
pub(crate) fn is_marker(word: u64) -> bool {
    (word as i64) < 0
}

/// The marker of an address.
#[inline(always)]
fn of(address: u64) -> u64 {
    address.wrapping_mul(SCALE as u64)
}

/// Whether a word has a marker, and whether the frame of the marker still exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    None,
    Live,
    Gone,
}

/// Checks whether the frame whose marker is in a word still exists.
#[inline(always)]
pub(crate) fn holder(word: &AtomicU64) -> Holder {
    loop {
        let marker = word.load(Relaxed);
        if !is_marker(marker) {
            return Holder::None;
        }
        if is_live(marker) {
            return Holder::Live;
        }
        compiler_fence(SeqCst);
        // If the word has changed, a handler has switched to the fibre that set the marker and
        // back, and that fibre has finished its work.
        if word.load(Relaxed) == marker {
            return Holder::Gone;
        }
    }
}

/// Copies a marker from `word` to `kept` when the current context is suspended. Stores 0 if another
/// context set the marker, or if `word` holds none.
pub(crate) fn put_aside(word: &AtomicU64, kept: &AtomicU64) {
    let marker = word.load(Relaxed);
    let is_its_own = is_marker(marker) && marker & HERE != 0;
    kept.store(if is_its_own { marker } else { 0 }, Relaxed);
}

/// Updates [`HERE`] in a marked word when a context is resumed: the context set the marker if
/// `kept` contains it. Returns the marker if another context set it, else 0.
pub(crate) fn resume(word: &AtomicU64, kept: &AtomicU64) -> u64 {
    let marker = word.load(Relaxed);
    if !is_marker(marker) {
        return 0;
    }
    let is_its_own = marker | HERE == kept.load(Relaxed);
    let marker = if is_its_own { marker | HERE } else { marker & !HERE };
    word.store(marker, Relaxed);
    if is_its_own { 0 } else { marker }
}

/// An uninitialized word for [`set`], to be stored in the frame of the code that does the work.
#[inline(always)]
pub(crate) fn new() -> MaybeUninit<u64> {
    MaybeUninit::uninit()
}

/// Stores a marker in `word`, which belongs to the thread, and in `frame`, a word of the caller's
/// frame. `frame` must not move until the marker is removed from `word`.
#[inline(always)]
pub(crate) fn set<T>(frame: &mut T, word: &AtomicU64) {
    let marker = prepare(frame);
    word.store(marker, Relaxed);
    compiler_fence(SeqCst);
}

/// The first half of [`set`]: stores a marker in a word of the caller's frame, and returns it. The
/// caller must store the marker in a word of the thread.
#[inline(always)]
pub(crate) fn prepare<T>(frame: &mut T) -> u64 {
    const { assert!(size_of::<T>() == 8 && align_of::<T>() == 8) };
    let place = ptr::from_mut(frame).cast::<u64>();
    let marker = of(place.expose_provenance() as u64);
    // The write is volatile, because the compiler does not see the reads, which find the frame by
    // the marker.
    // SAFETY: `frame` is borrowed mutably, and has the size and the alignment of a `u64`.
    unsafe { place.write_volatile(marker) };
    compiler_fence(SeqCst);
    marker
}

/// Whether the frame in which a marker was set still exists.
#[cold]
#[inline(never)]
fn is_live(marker: u64) -> bool {
    let whole = marker | HERE;
    let place = whole.wrapping_neg() / SCALE.unsigned_abs();
    // The stack below this frame is unused. Overwrite it, so that a word left there is not mistaken
    // for a marker.
    scrub();
    if place == 0 || !is_readable(place) {
        return false;
    }
    // SAFETY: the word was just readable, and stacks stay mapped.
    let found = unsafe { ptr::with_exposed_provenance::<u64>(place as usize).read_volatile() };
    found == whole && (marker & HERE == 0 || !is_below(place))
}

/// If a marker's word is at most this many bytes below the current frame, both are taken to be on
/// one stack.
const NEAR: u64 = 256 << 10;

/// Minimum size of the frame that the kernel pushes when it calls a signal handler.
const SIGNAL_FRAME: u64 = 1 << 10;

/// Whether `place` is so far down this stack that only frames of a calling signal handler can be
/// there, and no frame that the handler has interrupted. Then the frame of the marker is gone.
/// `place` may still hold the marker, because the handler's frames need not overwrite every word.
fn is_below(place: u64) -> bool {
    let here = 0u8;
    let here = (&raw const here).addr() as u64;
    let lowest = here + SIGNAL_FRAME;
    if place >= lowest || lowest - place > NEAR {
        return false;
    }
    // A signal handler on its own stack may have a higher address than the code that it has
    // interrupted. So `place` counts as below only if it is on the stack of this call.
    let mut stack = MaybeUninit::<libc::stack_t>::uninit();
    let asked = errno::preserve(|| {
        // SAFETY: the buffer has the size of a `stack_t`.
        unsafe { libc::sigaltstack(ptr::null(), stack.as_mut_ptr()) == 0 }
    });
    if !asked {
        return false;
    }
    // SAFETY: the call has succeeded, so it has filled the buffer.
    let stack = unsafe { stack.assume_init() };
    if stack.ss_flags & libc::SS_DISABLE != 0 {
        return true;
    }
    let is_there =
        |place: u64| place.wrapping_sub(stack.ss_sp.addr() as u64) < stack.ss_size as u64;
    is_there(place) == is_there(here)
}

/// Whether a word at any address can be read. The system call gets the address as a pointer to a
/// set of signals, and an invalid operation. The kernel reads the set first, and fails with EFAULT
/// if it cannot.
fn is_readable(place: u64) -> bool {
    errno::preserve(|| {
        let nothing: *mut libc::c_void = ptr::null_mut();
        // SAFETY: the operation is invalid, so the call does not change the mask.
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, -1, place, nothing, 8usize) };
        std::io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT)
    })
}

/// Overwrites the stack below the caller's frame, where the word of a frame that is gone may still
/// hold its marker.
#[inline(never)]
fn scrub() {
    let mut below = MaybeUninit::<[u64; 128]>::uninit();
    for at in 0..128 {
        // SAFETY: `at` is less than the length of the array.
        unsafe { below.as_mut_ptr().cast::<u64>().add(at).write_volatile(0) };
    }
}

// Miri cannot test frames that are gone.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    static WORD: AtomicU64 = AtomicU64::new(0);

    #[inline(never)]
    fn leaves_a_marker() -> bool {
        let mut marker = new();
        set(&mut marker, &WORD);
        let between = std::hint::black_box([0u8; SIGNAL_FRAME as usize]);
        let found = is_live_from(WORD.load(Relaxed));
        std::hint::black_box(&between);
        found
    }

    /// Calls `is_live` from as far down the stack as a signal handler would run.
    #[inline(never)]
    fn is_live_from(marker: u64) -> bool {
        let between = std::hint::black_box([0u8; SIGNAL_FRAME as usize]);
        let found = is_live(marker);
        std::hint::black_box(&between);
        found
    }

    #[inline(never)]
    fn leaves_it_deep(depth: u64) -> u64 {
        let mut frame = [depth; 64];
        std::hint::black_box(&mut frame);
        let found =
            if depth == 0 { u64::from(leaves_a_marker()) } else { leaves_it_deep(depth - 1) };
        std::hint::black_box(&mut frame);
        found
    }

    #[test]
    fn a_marker_lives_as_long_as_its_frame() {
        assert!(leaves_a_marker(), "its frame was there");
        assert!(!is_live(WORD.load(Relaxed)), "its frame is gone");
        assert_eq!(leaves_it_deep(100), 1, "its frame was there");
        assert!(!is_live(WORD.load(Relaxed)), "its frame is gone, far below");
    }

    #[test]
    fn a_marker_on_memory_that_is_gone_is_no_fault() {
        assert!(!is_live(of(0x1000)));
        assert!(!is_live(of(u64::MAX >> 10)));
        assert!(!is_live(u64::MAX));
    }
}
