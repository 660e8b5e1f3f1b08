//! Pairs of doubles. One instruction computes or compares both doubles of a pair.

/// Two doubles, in one register.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubles([f64; 2]);

impl Doubles {
    /// A pair with `number` twice.
    #[inline(always)]
    pub(crate) fn both(number: f64) -> Self {
        Self([number; 2])
    }

    /// Reads the two signed numbers of 32 bits at `place + BYTES`, and converts them.
    ///
    /// # Safety
    ///
    /// The 8 bytes there are mapped, and aligned to 8. Other processes may write to them.
    #[inline(always)]
    pub(crate) unsafe fn of_behind<const BYTES: usize>(place: *const u8) -> Self {
        // SAFETY: by the caller's promise, the 8 bytes are mapped and aligned.
        let both = unsafe { place.add(BYTES).cast::<u64>().read_volatile() };
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{__m128d, _mm_cvtepi32_pd, _mm_cvtsi64_si128};

            // SAFETY: all x86-64 processors have SSE2; the result consists of two doubles.
            unsafe {
                std::mem::transmute::<__m128d, Self>(_mm_cvtepi32_pd(_mm_cvtsi64_si128(
                    both as i64,
                )))
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            // SAFETY: any 8 bytes are two valid numbers of 32 bits.
            Self(unsafe { std::mem::transmute::<u64, [i32; 2]>(both) }.map(f64::from))
        }
    }

    #[inline(always)]
    fn zip(self, other: Self, of: impl Fn(f64, f64) -> f64) -> Self {
        Self([of(self.0[0], other.0[0]), of(self.0[1], other.0[1])])
    }

    #[inline(always)]
    pub(crate) fn of(first: f64, second: f64) -> Self {
        Self([first, second])
    }

    /// The first number of each of two pairs.
    #[inline(always)]
    pub(crate) fn firsts(self, other: Self) -> Self {
        Self([self.0[0], other.0[0]])
    }

    /// The first number, or 0 if it is negative, and the second number.
    #[inline(always)]
    pub(crate) fn first_not_below_zero(self) -> Self {
        self.max(Self([0.0, f64::NEG_INFINITY]))
    }

    /// The sums of the two pairs, element by element.
    #[inline(always)]
    pub(crate) fn add(self, more: Self) -> Self {
        self.zip(more, |one, other| one + other)
    }

    /// The squares, element by element.
    #[inline(always)]
    pub(crate) fn squared(self) -> Self {
        self.zip(self, |one, other| one * other)
    }

    /// The lesser numbers of the two pairs, element by element.
    #[inline(always)]
    pub(crate) fn min(self, other: Self) -> Self {
        self.zip(other, lesser)
    }

    /// The greater numbers of the two pairs, element by element.
    #[inline(always)]
    pub(crate) fn max(self, other: Self) -> Self {
        self.zip(other, greater)
    }

    /// The first number of the pair.
    #[inline(always)]
    pub(crate) fn first(self) -> f64 {
        self.0[0]
    }

    /// The second number of the pair.
    #[inline(always)]
    pub(crate) fn second(self) -> f64 {
        self.0[1]
    }
}

/// The lesser of two numbers, in one instruction.
#[inline(always)]
pub(crate) fn lesser(one: f64, other: f64) -> f64 {
    if one < other { one } else { other }
}

/// The greater of two numbers, in one instruction.
#[inline(always)]
pub(crate) fn greater(one: f64, other: f64) -> f64 {
    if one > other { one } else { other }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod arch {
    use std::arch::x86_64::{__m128i, _mm_srli_epi64, _mm_sub_epi64};
    use std::mem::transmute;

    use super::Doubles;

    /// Two integers in one vector register. The compiler would move the integers of an array into
    /// separate registers too early.
    #[derive(Clone, Copy)]
    pub(crate) struct Numbers(__m128i);

    impl Numbers {
        /// A pair with `number` twice.
        #[inline(always)]
        pub(crate) fn both(number: usize) -> Self {
            // SAFETY: the register has room for two numbers, and any bits are valid.
            Self(unsafe { transmute::<[usize; 2], __m128i>([number; 2]) })
        }

        /// The bits of two doubles from bit `BIT` on.
        #[inline(always)]
        pub(crate) fn bits_from<const BIT: i32>(of: Doubles) -> Self {
            // SAFETY: `Doubles` has the size of the register; all x86-64 processors have SSE2.
            Self(unsafe { _mm_srli_epi64::<BIT>(transmute::<Doubles, __m128i>(of)) })
        }

        /// The wrapping differences of the two pairs, element by element.
        #[inline(always)]
        pub(crate) fn less(self, other: Self) -> [usize; 2] {
            // SAFETY: the register holds two numbers; all x86-64 processors have SSE2.
            unsafe { transmute::<__m128i, [usize; 2]>(_mm_sub_epi64(self.0, other.0)) }
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod arch {
    use super::Doubles;

    #[derive(Clone, Copy)]
    pub(crate) struct Numbers([usize; 2]);

    impl Numbers {
        #[inline(always)]
        pub(crate) fn both(number: usize) -> Self {
            Self([number; 2])
        }

        #[inline(always)]
        pub(crate) fn bits_from<const BIT: i32>(of: Doubles) -> Self {
            Self(of.0.map(|double| (double.to_bits() >> BIT) as usize))
        }

        #[inline(always)]
        pub(crate) fn less(self, other: Self) -> [usize; 2] {
            [0, 1].map(|at| self.0[at].wrapping_sub(other.0[at]))
        }
    }
}

pub(crate) use arch::Numbers;
