//! Single instructions of the hot path on words of the thread's own state. A signal handler can run
//! before or after such an instruction, but not within it, and the word takes no register.
//!
//! A word is named by its offset `WORD` in the struct to which `of` points. No other thread writes
//! to the word, so no instruction needs a lock prefix. On x86-64, `add` and `exchange` are assembly
//! for correctness: a handler's change between a load and a store would be lost. The other
//! functions are assembly because the compiler would load the word into a register first: a begin
//! and an end would have 23 instructions more.

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) use self::portable::*;
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) use self::x86_64::*;

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86_64 {
    use std::arch::asm;

    /// Compares a word with a value, and makes the enclosing function return false if the jump is
    /// taken. The compiler moves no memory access across the comparison.
    macro_rules! compare {
        ($jump:literal, $word:literal, $of:ident, $($operand:tt)*) => {{
            // SAFETY: callers pass a pointer to a live struct that has a word at this offset. The
            // instruction only reads the word.
            unsafe {
                asm!(
                    concat!("cmp qword ptr [", $word, "], {value}"),
                    concat!($jump, " {differs}"),
                    of = in(reg) $of,
                    word = const WORD,
                    differs = label { return false },
                    $($operand)*,
                    options(nostack)
                );
            }
            true
        }};
    }

    /// Adds a word to a value, subtracts the word from it, or sets the word's bits in it.
    macro_rules! read {
        ($instruction:literal, $word:literal, $of:ident, $value:ident $(, $operand:tt)*) => {{
            let mut value = $value;
            // SAFETY: callers pass a pointer to a live struct that has a word at this offset. The
            // instruction only reads the word.
            unsafe {
                asm!(
                    concat!($instruction, " {value}, qword ptr [", $word, "]"),
                    of = in(reg) $of,
                    word = const WORD,
                    value = inout(reg) value,
                    $(further = in(reg) $operand,)*
                    options(nostack)
                );
            }
            value
        }};
    }

    /// Adds a value to a word.
    macro_rules! add {
        ($word:literal, $of:ident, $($operand:tt)*) => {
            // SAFETY: callers pass a pointer to a live struct that has a word at this offset, and
            // no other thread writes to the word.
            unsafe {
                asm!(
                    concat!("add qword ptr [", $word, "], {more}"),
                    of = in(reg) $of,
                    word = const WORD,
                    $($operand)*,
                    options(nostack)
                );
            }
        };
    }

    /// Whether a word equals a value. The compiler moves no memory access across the comparison.
    #[inline(always)]
    pub(crate) fn is<T, const WORD: usize>(of: *const T, value: u64) -> bool {
        compare!("jne", "{of} + {word}", of, value = in(reg) value)
    }

    /// Like [`is`], for a constant value, which takes no register.
    #[inline(always)]
    pub(crate) fn is_constant<T, const WORD: usize, const VALUE: i32>(of: *const T) -> bool {
        compare!("jne", "{of} + {word}", of, value = const VALUE)
    }

    /// Like [`is`], for the word at the offset `WORD + further`.
    #[inline(always)]
    pub(crate) fn is_further<T, const WORD: usize>(of: *const T, further: u64, value: u64) -> bool {
        compare!("jne", "{of} + {further} + {word}", of, further = in(reg) further, value = in(reg) value)
    }

    /// Whether a word is greater than a value.
    #[inline(always)]
    pub(crate) fn is_above<T, const WORD: usize>(of: *const T, value: u64) -> bool {
        compare!("jbe", "{of} + {word}", of, value = in(reg) value)
    }

    /// A value plus a word.
    #[inline(always)]
    pub(crate) fn plus<T, const WORD: usize>(of: *const T, value: u64) -> u64 {
        read!("add", "{of} + {word}", of, value)
    }

    /// A value minus a word.
    #[inline(always)]
    pub(crate) fn minus<T, const WORD: usize>(of: *const T, value: u64) -> u64 {
        read!("sub", "{of} + {word}", of, value)
    }

    /// Like [`minus`], for the word at the offset `WORD + further`.
    #[inline(always)]
    pub(crate) fn minus_further<T, const WORD: usize>(
        of: *const T,
        further: u64,
        value: u64,
    ) -> u64 {
        read!("sub", "{of} + {further} + {word}", of, value, further)
    }

    /// Bitwise OR of a value and a word whose two halves other processes may write separately.
    #[inline(always)]
    pub(crate) fn or_halves<T, const WORD: usize>(of: *const T, value: u64) -> u64 {
        read!("or", "{of} + {word}", of, value)
    }

    /// Adds a value to a word.
    #[inline(always)]
    pub(crate) fn add<T, const WORD: usize>(of: *const T, more: u64) {
        add!("{of} + {word}", of, more = in(reg) more);
    }

    /// Like [`add()`], for the word at the offset `WORD + further`.
    #[inline(always)]
    pub(crate) fn add_further<T, const WORD: usize>(of: *const T, further: u64, more: u64) {
        add!("{of} + {further} + {word}", of, further = in(reg) further, more = in(reg) more);
    }

    /// Adds a constant to a word.
    #[inline(always)]
    pub(crate) fn add_constant<T, const WORD: usize, const MORE: i32>(of: *const T) {
        add!("{of} + {word}", of, more = const MORE);
    }

    /// Replaces a word by a value, if the word has the expected value; otherwise returns false.
    #[inline(always)]
    pub(crate) fn exchange<T, const WORD: usize>(of: *const T, expected: u64, value: u64) -> bool {
        // SAFETY: callers pass a pointer to a live struct that has a word at this offset, and no
        // other thread writes to the word.
        unsafe {
            asm!(
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
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod portable {
    use std::ptr;
    use std::sync::atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Relaxed, SeqCst},
        compiler_fence,
    };

    /// The word at the offset `WORD + further` of a struct.
    #[inline(always)]
    fn word<'a, T, const WORD: usize>(of: *const T, further: u64) -> &'a AtomicU64 {
        let word = of.expose_provenance() + WORD + further as usize;
        // SAFETY: the callers state that there is an atomic word at that offset.
        unsafe { &*ptr::with_exposed_provenance::<AtomicU64>(word) }
    }

    #[inline(always)]
    fn between_fences(read: impl FnOnce() -> u64) -> u64 {
        compiler_fence(SeqCst);
        let found = read();
        compiler_fence(SeqCst);
        found
    }

    #[inline(always)]
    pub(crate) fn is<T, const WORD: usize>(of: *const T, value: u64) -> bool {
        is_further::<T, WORD>(of, 0, value)
    }

    #[inline(always)]
    pub(crate) fn is_constant<T, const WORD: usize, const VALUE: i32>(of: *const T) -> bool {
        is_further::<T, WORD>(of, 0, VALUE as u64)
    }

    #[inline(always)]
    pub(crate) fn is_further<T, const WORD: usize>(of: *const T, further: u64, value: u64) -> bool {
        between_fences(|| word::<T, WORD>(of, further).load(Relaxed)) == value
    }

    #[inline(always)]
    pub(crate) fn is_above<T, const WORD: usize>(of: *const T, value: u64) -> bool {
        between_fences(|| word::<T, WORD>(of, 0).load(Relaxed)) > value
    }

    #[inline(always)]
    pub(crate) fn plus<T, const WORD: usize>(of: *const T, value: u64) -> u64 {
        value.wrapping_add(word::<T, WORD>(of, 0).load(Relaxed))
    }

    #[inline(always)]
    pub(crate) fn minus<T, const WORD: usize>(of: *const T, value: u64) -> u64 {
        minus_further::<T, WORD>(of, 0, value)
    }

    #[inline(always)]
    pub(crate) fn minus_further<T, const WORD: usize>(
        of: *const T,
        further: u64,
        value: u64,
    ) -> u64 {
        value.wrapping_sub(word::<T, WORD>(of, further).load(Relaxed))
    }

    #[inline(always)]
    pub(crate) fn or_halves<T, const WORD: usize>(of: *const T, value: u64) -> u64 {
        let halves = of.expose_provenance() + WORD;
        // SAFETY: the callers state that there are two atomic halves at that offset.
        let [low, high] =
            unsafe { &*ptr::with_exposed_provenance::<[AtomicU32; 2]>(halves) }.each_ref();
        value | u64::from(low.load(Relaxed)) | u64::from(high.load(Relaxed)) << u32::BITS
    }

    #[inline(always)]
    pub(crate) fn add<T, const WORD: usize>(of: *const T, more: u64) {
        add_further::<T, WORD>(of, 0, more);
    }

    #[inline(always)]
    pub(crate) fn add_further<T, const WORD: usize>(of: *const T, further: u64, more: u64) {
        word::<T, WORD>(of, further).fetch_add(more, Relaxed);
    }

    #[inline(always)]
    pub(crate) fn add_constant<T, const WORD: usize, const MORE: i32>(of: *const T) {
        add::<T, WORD>(of, MORE as u64);
    }

    #[inline(always)]
    pub(crate) fn exchange<T, const WORD: usize>(of: *const T, expected: u64, value: u64) -> bool {
        word::<T, WORD>(of, 0).compare_exchange(expected, value, Relaxed, Relaxed).is_ok()
    }
}
