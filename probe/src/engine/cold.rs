//! Cold sections: code that runs once for a process, a thread or a point.
//!
//! A section runs without signal handlers, except handlers of the thread's own faults. The thread
//! cannot be cancelled in it, and `errno` has the same value after it as before. A fault's handler
//! may jump out of the section. The thread notices such a jump when it next enters a section or
//! refreshes its clock, and then repairs what the section left.
//!
//! [`super::spin`] limits the total time for which a thread waits for other threads.

use std::mem::MaybeUninit;
use std::ptr;

use super::section::Section;
use super::{lease, local, section};
use crate::errno;
use crate::marker;

pub(crate) use section::uncancelled;

/// Runs work in a section.
#[inline(never)]
pub(crate) fn section<R>(work: impl FnOnce() -> R) -> R {
    errno::preserve(|| {
        let (mut marker, instead) = (marker::new(), Section::new());
        let (_entered, was_left) = section::enter(&mut marker, &instead);
        if was_left {
            lease::release_after_jump();
        }
        // What pfp allocates counts for no region. If no region has looked for the counters yet,
        // none counts.
        match local::counters() {
            Some(numbers) => numbers.uncounted(work),
            None => work(),
        }
    })
}

/// Repairs what a jump out of a section has left behind. A refresh of the clock calls this, because
/// the thread may never enter another section.
#[inline]
pub(super) fn put_right() {
    if section::is_open() {
        put_right_if_left();
    }
}

#[cold]
#[inline(never)]
fn put_right_if_left() {
    if section::was_left() {
        section(|| ());
    }
}

/// Whether the thread runs on a stack for signal handlers with less free space than `bytes`.
pub(super) fn has_less_stack(bytes: usize) -> bool {
    signal_stack_left().is_some_and(|(_, left)| left < bytes)
}

/// The stack for signal handlers, and how many bytes of it are free. `None` if the thread runs on
/// another stack.
#[inline(never)]
pub(super) fn signal_stack_left() -> Option<(libc::stack_t, usize)> {
    let here = 0u8;
    let stack = signal_stack().filter(|stack| stack.ss_flags & libc::SS_ONSTACK != 0)?;
    let left = (&raw const here).addr().saturating_sub(stack.ss_sp.addr());
    Some((stack, left))
}

/// The stack that the thread has set aside for signal handlers. `None` if the system refuses to
/// report it.
fn signal_stack() -> Option<libc::stack_t> {
    // Miri has no system to ask.
    if cfg!(miri) {
        return None;
    }
    let mut stack = MaybeUninit::<libc::stack_t>::zeroed();
    let place = stack.as_mut_ptr();
    // SAFETY: only reads the stack's description into `place`, which is valid for writes.
    let refused = errno::preserve(|| unsafe { libc::sigaltstack(ptr::null(), place) }) != 0;
    // SAFETY: zeroed, and then filled in by the call; any bytes are valid.
    (!refused).then(|| unsafe { stack.assume_init() })
}
