//! Thread-local storage of the counters. It is reached without a call of the dynamic linker, which
//! might allocate.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::numbers::Numbers;

/// What the library stores for a thread.
#[repr(C)]
struct Stored {
    numbers: Numbers,
    /// 1 while the thread looks for the next functions.
    is_looking: AtomicU64,
}

/// Whether the program calls this library's functions.
static IS_CALLED: AtomicBool = AtomicBool::new(false);

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod access {
    use std::arch::{asm, global_asm};

    use super::Stored;

    // Initial-exec storage, which the loader reserves for each thread because this library is
    // loaded at the start of the program. It is zeros at first, as by `Numbers::new`.
    global_asm!(
        ".pushsection .tbss.pfp_alloc_words, \"awT\", @nobits",
        ".globl pfp_alloc_words",
        ".hidden pfp_alloc_words",
        ".type pfp_alloc_words, @object",
        ".size pfp_alloc_words, {size}",
        ".p2align 3",
        "pfp_alloc_words:",
        ".zero {size}",
        ".popsection",
        size = const size_of::<Stored>(),
    );

    #[inline(always)]
    pub(super) fn of_this_thread() -> *const Stored {
        let stored: *const Stored;
        // SAFETY: the instructions read the distance of the storage from `fs`, and the thread's own
        // address, which the system keeps at `fs:[0]`.
        unsafe {
            asm!(
                "mov {stored}, qword ptr [rip + pfp_alloc_words@GOTTPOFF]",
                "add {stored}, qword ptr fs:[0]",
                stored = out(reg) stored,
                options(pure, readonly, nostack)
            );
        }
        stored
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod access {
    use std::ptr;
    use std::sync::atomic::AtomicU64;

    use super::Stored;
    use crate::numbers::Numbers;

    thread_local! {
        static STORED: Stored =
            const { Stored { numbers: Numbers::new(), is_looking: AtomicU64::new(0) } };
    }

    pub(super) fn of_this_thread() -> *const Stored {
        STORED.with(|stored| ptr::from_ref(stored))
    }
}

#[inline(always)]
fn stored() -> &'static Stored {
    // SAFETY: the storage lasts as long as the thread, and the callers keep no reference longer.
    unsafe { &*access::of_this_thread() }
}

/// The calling thread's counters.
#[inline(always)]
pub(crate) fn numbers() -> &'static Numbers {
    &stored().numbers
}

/// Whether the program calls this library's functions.
pub(crate) fn is_called() -> bool {
    IS_CALLED.load(Relaxed)
}

/// Notes that the program calls this library, and begins a lookup of the next functions. Returns
/// false if the calling thread is in a lookup already.
pub(crate) fn begin_look_up() -> bool {
    IS_CALLED.store(true, Relaxed);
    stored().is_looking.swap(1, Relaxed) == 0
}

pub(crate) fn end_look_up() {
    stored().is_looking.store(0, Relaxed);
}
