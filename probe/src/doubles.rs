//! Two doubles side by side, which one instruction makes, adds or compares.

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod arch {
    use std::arch::asm;
    use std::arch::x86_64::{
        __m128d, __m128i, _mm_add_pd, _mm_castpd_si128, _mm_cvtsd_f64, _mm_cvtsi128_si64,
        _mm_max_pd, _mm_max_sd, _mm_min_pd, _mm_mul_pd, _mm_set1_epi64x, _mm_set1_pd,
        _mm_setzero_pd, _mm_srli_epi64, _mm_sub_epi64, _mm_unpackhi_epi64, _mm_unpackhi_pd,
        _mm_unpacklo_pd,
    };

    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Doubles(__m128d);

    impl Doubles {
        /// The same number twice.
        #[inline(always)]
        pub(crate) fn both(number: f64) -> Self {
            // SAFETY: all x86-64 processors have SSE2, which is all that this module uses.
            Self(unsafe { _mm_set1_pd(number) })
        }

        /// Two numbers of 32 bits with a sign, which lie `BYTES` bytes behind a place.
        ///
        /// # Safety
        ///
        /// Those 8 bytes are mapped. Others may write there.
        #[inline(always)]
        pub(crate) unsafe fn of_behind<const BYTES: usize>(place: *const u8) -> Self {
            let doubles: __m128d;
            // SAFETY: reads 8 bytes that the caller has mapped, in one access.
            unsafe {
                asm!(
                    "cvtdq2pd {doubles}, qword ptr [{place} + {bytes}]",
                    place = in(reg) place,
                    bytes = const BYTES,
                    doubles = lateout(xmm_reg) doubles,
                    options(nostack, readonly, preserves_flags)
                );
            }
            Self(doubles)
        }

        /// The first ones of two pairs.
        #[inline(always)]
        pub(crate) fn firsts(self, other: Self) -> Self {
            // SAFETY: SSE2.
            Self(unsafe { _mm_unpacklo_pd(self.0, other.0) })
        }

        /// The first one, or 0 if that is more, and the second one.
        #[inline(always)]
        pub(crate) fn first_not_below_zero(self) -> Self {
            // SAFETY: SSE2.
            Self(unsafe { _mm_max_sd(self.0, _mm_setzero_pd()) })
        }

        /// Each, or 0 if that is more.
        #[inline(always)]
        pub(crate) fn not_below_zero(self) -> Self {
            // SAFETY: SSE2.
            Self(unsafe { _mm_max_pd(self.0, _mm_setzero_pd()) })
        }

        /// The sum of each.
        #[inline(always)]
        pub(crate) fn add(self, more: Self) -> Self {
            // SAFETY: SSE2.
            Self(unsafe { _mm_add_pd(self.0, more.0) })
        }

        /// The square of each.
        #[inline(always)]
        pub(crate) fn squared(self) -> Self {
            // SAFETY: SSE2.
            Self(unsafe { _mm_mul_pd(self.0, self.0) })
        }

        /// The lesser of each.
        #[inline(always)]
        pub(crate) fn min(self, other: Self) -> Self {
            // SAFETY: SSE2.
            Self(unsafe { _mm_min_pd(self.0, other.0) })
        }

        /// The greater of each.
        #[inline(always)]
        pub(crate) fn max(self, other: Self) -> Self {
            // SAFETY: SSE2.
            Self(unsafe { _mm_max_pd(self.0, other.0) })
        }

        /// The first one.
        #[inline(always)]
        pub(crate) fn first(self) -> f64 {
            // SAFETY: SSE2.
            unsafe { _mm_cvtsd_f64(self.0) }
        }

        /// The second one.
        #[inline(always)]
        pub(crate) fn second(self) -> f64 {
            // SAFETY: SSE2.
            unsafe { _mm_cvtsd_f64(_mm_unpackhi_pd(self.0, self.0)) }
        }

        /// The bits of each but for the lowest ones.
        #[inline(always)]
        pub(crate) fn bits_from<const BIT: i32>(self) -> Numbers {
            // SAFETY: SSE2.
            Numbers(unsafe { _mm_srli_epi64::<BIT>(_mm_castpd_si128(self.0)) })
        }
    }

    /// Two numbers side by side.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Numbers(__m128i);

    impl Numbers {
        /// The same number twice.
        #[inline(always)]
        pub(crate) fn both(number: usize) -> Self {
            // SAFETY: SSE2.
            Self(unsafe { _mm_set1_epi64x(number as i64) })
        }

        /// The difference of each, which wraps.
        #[inline(always)]
        pub(crate) fn less(self, other: Self) -> Self {
            // SAFETY: SSE2.
            Self(unsafe { _mm_sub_epi64(self.0, other.0) })
        }

        /// Both.
        #[inline(always)]
        pub(crate) fn halves(self) -> [usize; 2] {
            // SAFETY: SSE2.
            unsafe {
                let second = _mm_unpackhi_epi64(self.0, self.0);
                [self.0, second].map(|number| _mm_cvtsi128_si64(number) as usize)
            }
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod arch {
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Doubles([f64; 2]);

    /// The greater one of two numbers.
    #[inline(always)]
    fn greater(one: f64, other: f64) -> f64 {
        if one > other { one } else { other }
    }

    impl Doubles {
        #[inline(always)]
        pub(crate) fn both(number: f64) -> Self {
            Self([number; 2])
        }

        #[inline(always)]
        pub(crate) unsafe fn of_behind<const BYTES: usize>(place: *const u8) -> Self {
            // SAFETY: reads 8 bytes that the caller has mapped.
            let halves = unsafe { place.add(BYTES).cast::<[i32; 2]>().read_volatile() };
            Self(halves.map(f64::from))
        }

        #[inline(always)]
        pub(crate) fn firsts(self, other: Self) -> Self {
            Self([self.0[0], other.0[0]])
        }

        #[inline(always)]
        pub(crate) fn first_not_below_zero(self) -> Self {
            Self([greater(self.0[0], 0.0), self.0[1]])
        }

        #[inline(always)]
        pub(crate) fn not_below_zero(self) -> Self {
            Self(self.0.map(|double| greater(double, 0.0)))
        }

        #[inline(always)]
        pub(crate) fn add(self, more: Self) -> Self {
            Self([self.0[0] + more.0[0], self.0[1] + more.0[1]])
        }

        #[inline(always)]
        pub(crate) fn squared(self) -> Self {
            Self(self.0.map(|double| double * double))
        }

        #[inline(always)]
        pub(crate) fn min(self, other: Self) -> Self {
            Self([-greater(-self.0[0], -other.0[0]), -greater(-self.0[1], -other.0[1])])
        }

        #[inline(always)]
        pub(crate) fn max(self, other: Self) -> Self {
            Self([greater(self.0[0], other.0[0]), greater(self.0[1], other.0[1])])
        }

        #[inline(always)]
        pub(crate) fn first(self) -> f64 {
            self.0[0]
        }

        #[inline(always)]
        pub(crate) fn second(self) -> f64 {
            self.0[1]
        }

        #[inline(always)]
        pub(crate) fn bits_from<const BIT: i32>(self) -> Numbers {
            Numbers(self.0.map(|double| (double.to_bits() >> BIT) as usize))
        }
    }

    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Numbers([usize; 2]);

    impl Numbers {
        #[inline(always)]
        pub(crate) fn both(number: usize) -> Self {
            Self([number; 2])
        }

        #[inline(always)]
        pub(crate) fn less(self, other: Self) -> Self {
            Self([self.0[0].wrapping_sub(other.0[0]), self.0[1].wrapping_sub(other.0[1])])
        }

        #[inline(always)]
        pub(crate) fn halves(self) -> [usize; 2] {
            self.0
        }
    }
}

pub(crate) use arch::{Doubles, Numbers};
