//! Two doubles side by side, which one instruction makes, adds or compares.

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod arch {
    use std::arch::asm;
    use std::arch::x86_64::{
        __m128d, _mm_cvtsd_f64, _mm_max_sd, _mm_mul_pd, _mm_setzero_pd, _mm_unpackhi_pd,
    };

    #[derive(Clone, Copy)]
    pub(crate) struct Doubles(__m128d);

    impl Doubles {
        /// Two zeros.
        #[inline(always)]
        pub(crate) fn zero() -> Self {
            // SAFETY: all x86-64 processors have it.
            Self(unsafe { _mm_setzero_pd() })
        }

        /// Two numbers of 32 bits with a sign, which lie some bytes behind a place.
        ///
        /// # Safety
        ///
        /// They can be read. Others may write there.
        #[inline(always)]
        pub(crate) unsafe fn of_behind<const BYTES: usize>(place: *const u8) -> Self {
            let doubles: __m128d;
            // SAFETY: reads what the caller says.
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

        /// The first one, or 0 if that is more, and the second one.
        #[inline(always)]
        pub(crate) fn first_not_below_zero(self) -> Self {
            // SAFETY: as above.
            Self(unsafe { _mm_max_sd(self.0, _mm_setzero_pd()) })
        }

        /// The sum of each.
        #[inline(always)]
        pub(crate) fn add(mut self, more: Self) -> Self {
            // SAFETY: adds two registers. The compiler may take that of the second one, and copy.
            unsafe {
                asm!(
                    "addpd {sum}, {more}",
                    sum = inout(xmm_reg) self.0,
                    more = in(xmm_reg) more.0,
                    options(nostack, nomem, pure, preserves_flags)
                );
            }
            self
        }

        /// The square of each.
        #[inline(always)]
        pub(crate) fn squared(self) -> Self {
            // SAFETY: as above.
            Self(unsafe { _mm_mul_pd(self.0, self.0) })
        }

        /// The first one.
        #[inline(always)]
        pub(crate) fn first(self) -> f64 {
            // SAFETY: as above.
            unsafe { _mm_cvtsd_f64(self.0) }
        }

        /// The second one.
        #[inline(always)]
        pub(crate) fn second(self) -> f64 {
            // SAFETY: as above.
            unsafe { _mm_cvtsd_f64(_mm_unpackhi_pd(self.0, self.0)) }
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod arch {
    #[derive(Clone, Copy)]
    pub(crate) struct Doubles([f64; 2]);

    impl Doubles {
        #[inline(always)]
        pub(crate) fn zero() -> Self {
            Self([0.0; 2])
        }

        #[inline(always)]
        pub(crate) unsafe fn of_behind<const BYTES: usize>(place: *const u8) -> Self {
            // SAFETY: as the caller says.
            let halves = unsafe { place.add(BYTES).cast::<[i32; 2]>().read_volatile() };
            Self(halves.map(f64::from))
        }

        #[inline(always)]
        pub(crate) fn first_not_below_zero(self) -> Self {
            Self([if self.0[0] > 0.0 { self.0[0] } else { 0.0 }, self.0[1]])
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
        pub(crate) fn first(self) -> f64 {
            self.0[0]
        }

        #[inline(always)]
        pub(crate) fn second(self) -> f64 {
            self.0[1]
        }
    }
}

pub(crate) use arch::Doubles;
