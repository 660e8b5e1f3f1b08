//! The types of numbers that a region can carry as amounts.

/// A number that a region can carry: see [`crate::scope!`] and [`crate::MeteredPoint`].
pub trait Amount {
    /// The amount as it is stored. Negative values and NaN are stored as 0, and values beyond 64
    /// bits as the maximum.
    fn amount(self) -> u64;
}

macro_rules! amounts {
    ($($kind:ty)*) => {
        $(impl Amount for $kind {
            #[inline(always)]
            fn amount(self) -> u64 {
                u64::try_from(self).unwrap_or(if self > 0 { u64::MAX } else { 0 })
            }
        })*
    };
}

amounts!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

impl Amount for f32 {
    #[inline(always)]
    fn amount(self) -> u64 {
        self as u64
    }
}

impl Amount for f64 {
    #[inline(always)]
    fn amount(self) -> u64 {
        self as u64
    }
}

/// Four amounts as they are stored: missing amounts are 0, and surplus amounts are ignored.
#[inline(always)]
pub(crate) fn in_order<A: Amount, const N: usize>(amounts: [A; N]) -> [u64; 4] {
    let given = amounts.map(Amount::amount);
    std::array::from_fn(|at| given.get(at).copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::Amount;

    #[test]
    fn what_is_no_amount_is_none_and_what_is_too_much_is_the_most() {
        assert_eq!((7_u8.amount(), 7_usize.amount(), 7_i64.amount()), (7, 7, 7));
        assert_eq!(((-1_i32).amount(), f64::NAN.amount(), (-2.5_f64).amount()), (0, 0, 0));
        assert_eq!((u128::MAX.amount(), 1e30_f64.amount()), (u64::MAX, u64::MAX));
        assert_eq!((2.9_f32.amount(), i128::MIN.amount()), (2, 0));
    }
}
