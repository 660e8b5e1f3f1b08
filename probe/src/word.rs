//! What the hot path does to words of its thread's own state in one instruction: a signal handler
//! can come before it or after it, and no register is needed for what stands in memory.
//!
//! A word is named by where it lies from the start of a state. No other thread writes one, so
//! none of this is locked.

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

/// A word from the start of a state, and as many bytes further.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline(always)]
fn word<'a, T, const WORD: usize>(of: *const T, further: u64) -> &'a AtomicU64 {
    let word = of.expose_provenance() + WORD + further as usize;
    // SAFETY: an atomic word at that offset, as the callers say.
    unsafe { &*std::ptr::with_exposed_provenance::<AtomicU64>(word) }
}

/// Whether a word has a value. Like a fence of the compiler's, so that what is read before and
/// after it is read before and after it.
#[inline(always)]
pub(crate) fn is<T, const WORD: usize>(of: *const T, value: u64) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: reads a word of ours.
        unsafe {
            std::arch::asm!(
                "cmp qword ptr [{of} + {word}], {value}",
                "jne {differs}",
                of = in(reg) of,
                word = const WORD,
                value = in(reg) value,
                differs = label { return false },
                options(nostack)
            );
        }
        true
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        compiler_fence(SeqCst);
        let found = word::<T, WORD>(of, 0).load(Relaxed);
        compiler_fence(SeqCst);
        found == value
    }
}

/// As [`is`], of a constant, without a register for it.
#[inline(always)]
pub(crate) fn is_constant<T, const WORD: usize, const VALUE: i32>(of: *const T) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: as in `is`.
        unsafe {
            std::arch::asm!(
                "cmp qword ptr [{of} + {word}], {value}",
                "jne {differs}",
                of = in(reg) of,
                word = const WORD,
                value = const VALUE,
                differs = label { return false },
                options(nostack)
            );
        }
        true
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    is::<T, WORD>(of, VALUE as u64)
}

/// Whether the word so many bytes further has a value.
#[inline(always)]
pub(crate) fn is_further<T, const WORD: usize>(of: *const T, further: u64, value: u64) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: as in `is`.
        unsafe {
            std::arch::asm!(
                "cmp qword ptr [{of} + {further} + {word}], {value}",
                "jne {differs}",
                of = in(reg) of,
                further = in(reg) further,
                word = const WORD,
                value = in(reg) value,
                differs = label { return false },
                options(nostack)
            );
        }
        true
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        word::<T, WORD>(of, further).load(Relaxed) == value
    }
}

/// A value plus a word.
#[inline(always)]
pub(crate) fn plus<T, const WORD: usize>(of: *const T, value: u64) -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let mut value = value;
        // SAFETY: reads a word of ours.
        unsafe {
            std::arch::asm!(
                "add {value}, qword ptr [{of} + {word}]",
                of = in(reg) of,
                word = const WORD,
                value = inout(reg) value,
                options(nostack)
            );
        }
        value
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    value.wrapping_add(word::<T, WORD>(of, 0).load(Relaxed))
}

/// A value less a word.
#[inline(always)]
pub(crate) fn minus<T, const WORD: usize>(of: *const T, value: u64) -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let mut value = value;
        // SAFETY: reads a word of ours.
        unsafe {
            std::arch::asm!(
                "sub {value}, qword ptr [{of} + {word}]",
                of = in(reg) of,
                word = const WORD,
                value = inout(reg) value,
                options(nostack)
            );
        }
        value
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    value.wrapping_sub(word::<T, WORD>(of, 0).load(Relaxed))
}

/// A value less the word so many bytes further.
#[inline(always)]
pub(crate) fn minus_further<T, const WORD: usize>(of: *const T, further: u64, value: u64) -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let mut value = value;
        // SAFETY: reads a word of ours.
        unsafe {
            std::arch::asm!(
                "sub {value}, qword ptr [{of} + {further} + {word}]",
                of = in(reg) of,
                further = in(reg) further,
                word = const WORD,
                value = inout(reg) value,
                options(nostack)
            );
        }
        value
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    value.wrapping_sub(word::<T, WORD>(of, further).load(Relaxed))
}

/// A word some bytes behind a place. Its halves may be written one by one.
#[inline(always)]
pub(crate) fn of_halves<const BYTES: usize>(place: *const u8) -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let found: u64;
        // SAFETY: reads a word of ours, in memory that other processes may read.
        unsafe {
            std::arch::asm!(
                "mov {found}, qword ptr [{place} + {bytes}]",
                place = in(reg) place,
                bytes = const BYTES,
                found = lateout(reg) found,
                options(nostack, readonly, preserves_flags)
            );
        }
        found
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        use std::sync::atomic::AtomicU32;
        // SAFETY: as above.
        let [low, high] = unsafe { &*place.add(BYTES).cast::<[AtomicU32; 2]>() };
        u64::from(low.load(Relaxed)) | u64::from(high.load(Relaxed)) << u32::BITS
    }
}

/// Adds to a word.
#[inline(always)]
pub(crate) fn add<T, const WORD: usize>(of: *const T, more: u64) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: adds to a word of ours.
    unsafe {
        std::arch::asm!(
            "add qword ptr [{of} + {word}], {more}",
            of = in(reg) of,
            word = const WORD,
            more = in(reg) more,
            options(nostack)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    word::<T, WORD>(of, 0).fetch_add(more, Relaxed);
}

/// Adds to the word as many bytes further.
#[inline(always)]
pub(crate) fn add_further<T, const WORD: usize>(of: *const T, further: u64, more: u64) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "add qword ptr [{of} + {further} + {word}], {more}",
            of = in(reg) of,
            further = in(reg) further,
            word = const WORD,
            more = in(reg) more,
            options(nostack)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    word::<T, WORD>(of, further).fetch_add(more, Relaxed);
}

/// Adds a constant to a word.
#[inline(always)]
pub(crate) fn add_constant<T, const WORD: usize, const MORE: i32>(of: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "add qword ptr [{of} + {word}], {more}",
            of = in(reg) of,
            word = const WORD,
            more = const MORE,
            options(nostack)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    add::<T, WORD>(of, MORE as u64);
}

/// Puts a value in the place of another one; false if the word has a third one.
#[inline(always)]
pub(crate) fn exchange<T, const WORD: usize>(of: *const T, expected: u64, value: u64) -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        // SAFETY: changes a word of ours.
        unsafe {
            std::arch::asm!(
                "cmpxchg qword ptr [{of} + {word}], {value}",
                "jne {differs}",
                of = in(reg) of,
                word = const WORD,
                value = in(reg) value,
                inout("rax") expected => _,
                differs = label { return false },
                options(nostack)
            );
        }
        true
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    word::<T, WORD>(of, 0).compare_exchange(expected, value, Relaxed, Relaxed).is_ok()
}
