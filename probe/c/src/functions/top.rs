//! What the end of a function looks at, before it looks any further.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

use super::frames::Frames;

/// Of a thread: which of the ends that come by may be those of functions that are
/// measured. All others are further down the stack than the innermost of these, and
/// have another function.
#[repr(C)]
pub(super) struct Top {
    /// The innermost function that is measured; 0 if there is none.
    pub(super) function: AtomicUsize,
    /// Its place in the stack, the highest address if there is none, 0 if each end is
    /// to look further.
    pub(super) sp: AtomicUsize,
    /// The thread's frames; null before its first function that is on.
    pub(super) frames: AtomicPtr<Frames>,
}

impl Top {
    /// A signal handler that comes in between leaves both as they were, or jumps away;
    /// then they say less than they could.
    #[inline(always)]
    pub(super) fn set(&self, function: usize, sp: usize) {
        self.function.store(function, Relaxed);
        self.sp.store(sp, Relaxed);
    }
}

/// The hooks read it with one instruction, for which it must not be in memory that a
/// thread gets when it first asks.
#[cfg(target_arch = "x86_64")]
mod of_thread {
    use super::Top;

    std::arch::global_asm!(
        ".pushsection .tdata.__pfp_functions_top, \"awT\", @progbits",
        ".globl __pfp_functions_top",
        ".hidden __pfp_functions_top",
        ".type __pfp_functions_top, @object",
        ".size __pfp_functions_top, 24",
        ".balign 8",
        "__pfp_functions_top:",
        ".quad 0, -1, 0",
        ".popsection",
    );

    /// The calling thread's.
    #[inline(always)]
    pub(in super::super) fn top() -> &'static Top {
        let top: *const Top;
        // SAFETY: adds the thread's place to the variable's in it.
        unsafe {
            std::arch::asm!(
                "mov {0}, qword ptr fs:[0]",
                "add {0}, qword ptr [rip + __pfp_functions_top@GOTTPOFF]",
                out(reg) top,
                options(pure, nomem, nostack),
            );
        }
        // SAFETY: made above with these three words, and there as long as the thread.
        unsafe { &*top }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod of_thread {
    use std::ptr;
    use std::sync::atomic::{AtomicPtr, AtomicUsize};

    use super::Top;

    thread_local! {
        static TOP: Top = const {
            Top {
                function: AtomicUsize::new(0),
                sp: AtomicUsize::new(usize::MAX),
                frames: AtomicPtr::new(ptr::null_mut()),
            }
        };
    }

    /// The calling thread's.
    #[inline(always)]
    pub(in super::super) fn top() -> &'static Top {
        // SAFETY: there as long as the thread, since it has no destructor.
        TOP.with(|top| unsafe { &*ptr::from_ref(top) })
    }
}

pub(super) use of_thread::top;
