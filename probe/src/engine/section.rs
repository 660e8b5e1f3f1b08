//! Sections: while a thread is in a section, signals are blocked and it cannot be cancelled.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

use super::local;
use crate::marker::{self, Holder};

const fn bit(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

/// Signals that a thread raises by a fault of its own. If one of them is blocked, the fault ends
/// the program.
const OF_FAULTS: u64 = bit(libc::SIGTRAP)
    | bit(libc::SIGSEGV)
    | bit(libc::SIGBUS)
    | bit(libc::SIGILL)
    | bit(libc::SIGFPE)
    | bit(libc::SIGSYS);
/// Signals of the C library: to cancel a thread, and to change the user of all threads.
const OF_THE_LIBRARY: u64 = bit(32) | bit(33) | if cfg!(target_env = "musl") { bit(34) } else { 0 };
/// Signals that the kernel never blocks.
const NEVER: u64 = bit(libc::SIGKILL) | bit(libc::SIGSTOP);
/// The signals that are blocked in a section, as the kernel's bit set.
const BLOCKED: u64 = !(OF_FAULTS | OF_THE_LIBRARY | NEVER);

/// The state of the sections that a thread is in. If the thread jumps out of them, at any moment,
/// the state still has the values that the outermost section has to restore. A handler that returns
/// leaves every field unchanged.
#[repr(C)]
pub(super) struct Section {
    /// The signals that were blocked when the outermost section began; [`NONE_BLOCKED`] until that
    /// section has blocked its own.
    signals: Cell<u64>,
    /// Whether the thread could be cancelled when the outermost section began; [`UNCHANGED`] until
    /// that section has disabled cancelling.
    cancelling: Cell<libc::c_int>,
    /// Number of nested sections that the thread is in. Greater than 0 only while there is a
    /// holder.
    depth: Cell<u32>,
    /// The [`marker`] of the outermost section; 0 outside of sections.
    holder: AtomicU64,
    /// Whether the outermost section has been entered completely. A handler then finds the signals
    /// blocked.
    is_ready: Cell<bool>,
}

pub(super) const UNCHANGED: libc::c_int = -1;
/// Stands for a set of blocked signals that is not known. It is not a possible set, because some
/// signals are never blocked.
pub(super) const NONE_BLOCKED: u64 = u64::MAX;

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}
// All C libraries of Linux use these numbers.
const CANCEL_ENABLE: libc::c_int = 0;
const CANCEL_DISABLE: libc::c_int = 1;

/// Whether the thread is in a section, or has jumped out of one and has not repaired its state yet.
#[inline(always)]
pub(super) fn is_open() -> bool {
    local::known().is_some_and(|local| local.section.depth.get() > 0)
}

/// Whether the state shows a section that the thread has jumped out of.
pub(super) fn was_left() -> bool {
    local::known().is_some_and(|local| local.section.was_left())
}

/// Enters a section, which lasts until the returned guard is dropped. Also returns whether the
/// thread had jumped out of an earlier section. If memory for the thread's state cannot be mapped,
/// `instead` holds the section's state; then a jump out of the section is not noticed.
pub(super) fn enter<'a>(
    marker: &mut MaybeUninit<u64>,
    instead: &'a Section,
) -> (SectionGuard<'a>, bool) {
    let section = local::get().map_or(instead, |local| &local.section);
    let (how, was_left) = section.enter(marker);
    (SectionGuard { section, how }, was_left)
}

/// Whether the thread's section is its outermost one. If so, a lease that the thread seems to hold
/// was left behind by a jump.
pub(super) fn is_outermost() -> bool {
    local::known().is_none_or(|local| local.section.depth.get() == 1)
}

/// Runs work with the signals of a section blocked, before the thread has state for a section.
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", not(miri)))]
pub(super) fn blocking<R>(work: impl FnOnce() -> R) -> R {
    let mut before = NONE_BLOCKED;
    change_signals(libc::SIG_BLOCK, BLOCKED, &raw mut before);
    let result = work();
    restore_signals(before);
    result
}

/// The state of the thread's section when an inner section began.
#[derive(Clone, Copy)]
pub(super) struct Before {
    depth: u32,
    cancelling: libc::c_int,
    signals: u64,
}

impl Before {
    const NOTHING: Self = Self { depth: 0, cancelling: UNCHANGED, signals: NONE_BLOCKED };
}

/// A section that the thread has entered. Dropping this leaves the section.
pub(super) struct SectionGuard<'a> {
    section: &'a Section,
    how: How,
}

/// How a section was entered, which determines what its end restores.
enum How {
    /// No section encloses this section, or the thread has jumped out of the enclosing section.
    Outermost,
    /// The enclosing section has already blocked the signals and disabled cancelling.
    Inner(Before),
    /// The section is in a handler that interrupted the outermost section while that one was
    /// changing the blocked signals or cancelling, at its begin or its end. The end of this section
    /// restores the state that this section found.
    Beside { before: Before, cancelling: libc::c_int, signals: u64 },
}

impl Drop for SectionGuard<'_> {
    fn drop(&mut self) {
        let section = self.section;
        match self.how {
            How::Outermost => {
                section.is_ready.set(false);
                compiler_fence(SeqCst);
                restore(section.cancelling.get(), section.signals.get());
                section.put_back(Before::NOTHING);
                section.holder.store(0, Relaxed);
            }
            How::Inner(before) => section.depth.set(before.depth),
            How::Beside { before, cancelling, signals } => {
                restore(cancelling, signals);
                section.put_back(before);
            }
        }
    }
}

impl Section {
    /// The state of a thread outside of sections.
    pub(super) const fn new() -> Self {
        Self {
            signals: Cell::new(NONE_BLOCKED),
            cancelling: Cell::new(UNCHANGED),
            depth: Cell::new(0),
            holder: AtomicU64::new(0),
            is_ready: Cell::new(false),
        }
    }

    /// Enters a section. Also returns whether the thread had jumped out of an earlier section.
    fn enter(&self, marker: &mut MaybeUninit<u64>) -> (How, bool) {
        let (depth, cancelling) = (self.depth.get(), self.cancelling.get());
        let before = Before { depth, cancelling, signals: self.signals.get() };
        if self.holder.load(Relaxed) == 0 {
            (self.start(marker), false)
        } else if self.was_left() {
            (self.start_again(marker, before), true)
        } else if self.is_ready.get() {
            self.depth.set(before.depth + 1);
            (How::Inner(before), false)
        } else {
            (self.start_beside(before), false)
        }
    }

    /// Whether the thread has jumped out of the section.
    #[cold]
    fn was_left(&self) -> bool {
        match marker::holder(&self.holder) {
            Holder::None => false,
            // The frame still seems to exist. If the signals are not blocked, a jump out of the
            // section has restored them.
            Holder::Live => self.is_ready.get() && !is_blocked(blocked_signals()),
            Holder::Gone => true,
        }
    }

    fn start(&self, marker: &mut MaybeUninit<u64>) -> How {
        self.take(marker);
        // Each call stores the previous state in the same step as the change, so a jump may
        // interrupt this code anywhere.
        change_signals(libc::SIG_BLOCK, BLOCKED, self.signals.as_ptr());
        change_cancelling(CANCEL_DISABLE, self.cancelling.as_ptr());
        self.set_ready();
        How::Outermost
    }

    /// Starts in place of a section that the thread has jumped out of.
    fn start_again(&self, marker: &mut MaybeUninit<u64>, left: Before) -> How {
        self.is_ready.set(false);
        compiler_fence(SeqCst);
        self.take(marker);
        let mut signals = NONE_BLOCKED;
        change_signals(libc::SIG_BLOCK, BLOCKED, &raw mut signals);
        let is_noted = is_blocked(signals) && left.signals != NONE_BLOCKED;
        self.signals.set(if is_noted { left.signals } else { signals });
        let mut cancelling = UNCHANGED;
        change_cancelling(CANCEL_DISABLE, &raw mut cancelling);
        let is_noted = cancelling != CANCEL_ENABLE && left.cancelling != UNCHANGED;
        self.cancelling.set(if is_noted { left.cancelling } else { cancelling });
        self.set_ready();
        How::Outermost
    }

    fn start_beside(&self, before: Before) -> How {
        self.depth.set(before.depth + 1);
        let (mut signals, mut cancelling) = (NONE_BLOCKED, UNCHANGED);
        // If the outer section has not stored the previous state yet, the inner section stores it
        // in the outer one's field, so that it is restored after a jump out of both.
        let noted =
            if before.signals == NONE_BLOCKED { self.signals.as_ptr() } else { &mut signals };
        change_signals(libc::SIG_BLOCK, BLOCKED, noted);
        // SAFETY: `noted` points to `self.signals` or to the local `signals`, both initialized.
        let signals = unsafe { noted.read() };
        let noted =
            if before.cancelling == UNCHANGED { self.cancelling.as_ptr() } else { &mut cancelling };
        change_cancelling(CANCEL_DISABLE, noted);
        // SAFETY: `noted` points to `self.cancelling` or to the local `cancelling`, both
        // initialized.
        let cancelling = unsafe { noted.read() };
        How::Beside { before, cancelling, signals }
    }

    fn take(&self, marker: &mut MaybeUninit<u64>) {
        marker::set(marker, &self.holder);
        self.depth.set(1);
        compiler_fence(SeqCst);
    }

    fn set_ready(&self) {
        compiler_fence(SeqCst);
        self.is_ready.set(true);
    }

    fn put_back(&self, Before { depth, cancelling, signals }: Before) {
        compiler_fence(SeqCst);
        self.signals.set(signals);
        self.cancelling.set(cancelling);
        self.depth.set(depth);
        compiler_fence(SeqCst);
    }
}

/// Restores in the reverse order of the changes.
fn restore(cancelling: libc::c_int, signals: u64) {
    change_cancelling(cancelling, ptr::null_mut());
    restore_signals(signals);
}

fn restore_signals(signals: u64) {
    // If a filter refused to change the signals, there is nothing to restore.
    if signals != NONE_BLOCKED {
        change_signals(libc::SIG_SETMASK, signals, ptr::null_mut());
    }
}

/// Whether all signals of a section are blocked. Checks only the standard signals, because an
/// emulator reserves some of the real-time signals.
fn is_blocked(signals: u64) -> bool {
    const STANDARD: u64 = BLOCKED & (bit(32) - 1);
    signals & STANDARD == STANDARD
}

/// The signals that are blocked; [`NONE_BLOCKED`] if a filter refuses the system call.
fn blocked_signals() -> u64 {
    let mut signals = NONE_BLOCKED;
    change_signals(libc::SIG_BLOCK, 0, &raw mut signals);
    signals
}

/// Changes which signals are blocked, and stores the set from before.
fn change_signals(how: libc::c_int, signals: u64, before: *mut u64) {
    // The set does not contain the C library's own signals, so the system call may bypass the
    // library.
    // SAFETY: both sets have the given size. `before` is null, or the caller's and valid for
    // writes.
    unsafe {
        libc::syscall(libc::SYS_rt_sigprocmask, how, &raw const signals, before, size_of::<u64>());
    }
}

/// Changes whether the thread can be cancelled, and stores whether it could before.
fn change_cancelling(state: libc::c_int, before: *mut libc::c_int) {
    let mut unused = state;
    let before = if before.is_null() { &raw mut unused } else { before };
    // SAFETY: `before` is valid for writes, and is written before anything changes.
    unsafe { pthread_setcancelstate(state, before) };
}

/// Runs long work, during which signals may arrive, on a thread that cannot be cancelled.
pub(crate) fn uncancelled<R>(work: impl FnOnce() -> R) -> R {
    let mut before = CANCEL_DISABLE;
    change_cancelling(CANCEL_DISABLE, &raw mut before);
    let result = work();
    change_cancelling(before, ptr::null_mut());
    result
}
