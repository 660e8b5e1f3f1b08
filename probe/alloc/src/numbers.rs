//! What each thread has allocated.

use std::ffi::c_void;
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::samples;

/// What a thread has allocated so far. Copies of pfp have the same first words
/// (`probe/src/alloc.rs`).
#[repr(C)]
#[derive(Debug)]
pub struct Numbers {
    /// Allocations.
    allocs: AtomicU64,
    /// Allocated bytes, as requested.
    bytes: AtomicU64,
    /// Freed bytes, as the allocator had given them.
    freed: AtomicU64,
    /// Bytes of the largest allocation since pfp has set this to 0.
    largest: AtomicU64,
    /// Bytes to allocate until the next sample.
    left: AtomicU64,
    /// 1 while the thread looks for the next functions.
    is_looking: AtomicU64,
}

/// Whether the program allocates by this library's functions.
static HAS_COUNTED: AtomicBool = AtomicBool::new(false);

pub(crate) fn has_counted() -> bool {
    HAS_COUNTED.load(Relaxed)
}

/// The storage is found without a call, since such a call might allocate.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod storage {
    use std::arch::{asm, global_asm};

    use super::Numbers;

    // Initial-exec storage, which the loader has for each thread because this library is loaded at
    // the start of the program.
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
        size = const size_of::<Numbers>(),
    );

    #[inline(always)]
    pub(crate) fn of_this_thread() -> *const Numbers {
        let numbers: *const Numbers;
        // SAFETY: the instructions read the distance of the storage from `fs`, and the thread's own
        // address, which the system keeps at `fs:[0]`.
        unsafe {
            asm!(
                "mov {numbers}, qword ptr [rip + pfp_alloc_words@GOTTPOFF]",
                "add {numbers}, qword ptr fs:[0]",
                numbers = out(reg) numbers,
                options(pure, readonly, nostack)
            );
        }
        numbers
    }

    /// Adds 1 to the word at this offset, as [`add`] does.
    #[inline(always)]
    pub(crate) fn increment<const WORD: usize>(numbers: *const Numbers) {
        // SAFETY: the word is the calling thread's own.
        unsafe {
            asm!(
                "inc qword ptr [{numbers} + {word}]",
                numbers = in(reg) numbers,
                word = const WORD,
                options(nostack)
            );
        }
    }

    /// Adds to the word at this offset in one instruction, so that nothing is lost if a signal
    /// handler allocates.
    #[inline(always)]
    pub(crate) fn add<const WORD: usize>(numbers: *const Numbers, more: u64) {
        // SAFETY: the word is the calling thread's own.
        unsafe {
            asm!(
                "add qword ptr [{numbers} + {word}], {more}",
                numbers = in(reg) numbers,
                word = const WORD,
                more = in(reg) more,
                options(nostack)
            );
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod storage {
    use std::ptr;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::Numbers;

    thread_local! {
        static NUMBERS: Numbers = const {
            Numbers {
                allocs: AtomicU64::new(0),
                bytes: AtomicU64::new(0),
                freed: AtomicU64::new(0),
                largest: AtomicU64::new(0),
                left: AtomicU64::new(0),
                is_looking: AtomicU64::new(0),
            }
        };
    }

    pub(crate) fn of_this_thread() -> *const Numbers {
        NUMBERS.with(|numbers| ptr::from_ref(numbers))
    }

    pub(crate) fn increment<const WORD: usize>(numbers: *const Numbers) {
        add::<WORD>(numbers, 1);
    }

    /// Adds to the word at this offset.
    pub(crate) fn add<const WORD: usize>(numbers: *const Numbers, more: u64) {
        // SAFETY: the word is the calling thread's own.
        let word = unsafe { &*numbers.cast::<AtomicU64>().byte_add(WORD) };
        word.fetch_add(more, Relaxed);
    }
}

pub(crate) use storage::of_this_thread;

#[inline(always)]
fn own() -> &'static Numbers {
    // SAFETY: the storage lasts as long as the thread, and the reference is not kept longer.
    unsafe { &*of_this_thread() }
}

/// Counts an allocation, and samples it if it is the thread's turn.
#[inline(always)]
pub(crate) fn alloc(memory: *mut c_void, size: usize) {
    let (own, size) = (own(), size as u64);
    storage::increment::<{ offset_of!(Numbers, allocs) }>(own);
    storage::add::<{ offset_of!(Numbers, bytes) }>(own, size);
    if own.largest.load(Relaxed) < size {
        own.largest.store(size, Relaxed);
    }
    let left = own.left.load(Relaxed);
    let next = if left < size { samples::take(memory.addr(), size, left) } else { left - size };
    own.left.store(next, Relaxed);
}

/// Counts freed memory.
#[inline(always)]
pub(crate) fn free(size: usize) {
    storage::add::<{ offset_of!(Numbers, freed) }>(own(), size as u64);
}

/// False if the calling thread looks for the next functions already.
pub(crate) fn begin_look_up() -> bool {
    HAS_COUNTED.store(true, Relaxed);
    own().is_looking.swap(1, Relaxed) == 0
}

pub(crate) fn end_look_up() {
    own().is_looking.store(0, Relaxed);
}
