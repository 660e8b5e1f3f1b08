//! The word that leads from a thread to its state.
//!
//! What Rust and C have for that is reached by a call wherever the code may end up in a shared
//! library, so each begin and end would save the registers that a call may change. The model of
//! thread-local storage that is used here takes two loads. In return a library that has it and
//! is loaded later takes 8 bytes of the room that the C library keeps for such; musl keeps none.

use std::cell::Cell;

use super::thread::Thread;

#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", not(miri)))]
mod word {
    use std::arch::{asm, global_asm};

    use super::{Cell, Thread};

    /// Only its name is used, which no other copy of pfp has.
    static NAME: u8 = 0;

    global_asm!(
        ".pushsection .tbss.{name}.word, \"awT\", @nobits",
        ".globl {name}.word",
        ".hidden {name}.word",
        ".type {name}.word, @object",
        ".size {name}.word, 8",
        ".p2align 3",
        "{name}.word:",
        ".zero 8",
        ".popsection",
        name = sym NAME,
    );

    #[inline(always)]
    pub(super) fn get() -> *const Thread {
        let found: *const Thread;
        // SAFETY: reads the calling thread's word.
        unsafe {
            asm!(
                "mov {found}, qword ptr [rip + {name}.word@GOTTPOFF]",
                "mov {found}, qword ptr fs:[{found}]",
                found = out(reg) found,
                name = sym NAME,
                options(nostack, preserves_flags, readonly)
            );
        }
        found
    }

    pub(super) fn place() -> *const Cell<*const Thread> {
        let found: *const Cell<*const Thread>;
        // SAFETY: the thread's own address stands in its first word.
        unsafe {
            asm!(
                "mov {found}, qword ptr fs:[0]",
                "add {found}, qword ptr [rip + {name}.word@GOTTPOFF]",
                found = out(reg) found,
                name = sym NAME,
                options(nostack, readonly)
            );
        }
        found
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", not(miri))))]
mod word {
    use std::ptr;

    use super::{Cell, Thread};

    thread_local! {
        /// Has no destructor, so that it can be used to the very end of the thread.
        static WORD: Cell<*const Thread> = const { Cell::new(ptr::null()) };
    }

    #[inline(always)]
    pub(super) fn get() -> *const Thread {
        WORD.with(Cell::get)
    }

    pub(super) fn place() -> *const Cell<*const Thread> {
        WORD.with(ptr::from_ref)
    }
}

/// The calling thread's state, which may be a wiped copy of a parent's; none before its first
/// region.
#[inline(always)]
pub(crate) fn thread() -> Option<&'static Thread> {
    // SAFETY: null, or the pages of a lane of this process or of the parent it
    // was forked from; those are never unmapped while a thread refers to them.
    unsafe { word::get().as_ref() }
}

/// Sets it, and returns what was there.
pub(super) fn replace(thread: *const Thread) -> *const Thread {
    // SAFETY: the calling thread's own word.
    unsafe { &*word::place() }.replace(thread)
}

/// Where the calling thread keeps it.
pub(super) fn place() -> *mut *const Thread {
    // SAFETY: as in `replace`.
    unsafe { &*word::place() }.as_ptr()
}
