//! Points whose regions carry amounts, as programs use them.

use std::panic::Location;

use crate::amount::in_order;
use crate::engine::by_hand;
use crate::{Amount, Guard, MeteredPoint, Point};

impl MeteredPoint {
    /// A point of this name, and the names of its amounts, one to four; the place is
    /// where this is called. Of names longer than 32 bytes the rest is cut.
    ///
    /// # Panics
    ///
    /// There are no amounts, or more than four: when compiling, since it is a
    /// static's.
    #[must_use]
    #[track_caller]
    pub const fn new(name: &'static str, amounts: &'static [&'static str]) -> Self {
        let here = Location::caller();
        Self::at(name, here.file(), here.line(), amounts)
    }

    /// A point with amounts at another place in the source, as [`Point::at`] has it.
    ///
    /// # Panics
    ///
    /// As [`Self::new`].
    #[must_use]
    pub const fn at(
        name: &'static str,
        file: &'static str,
        line: u32,
        amounts: &'static [&'static str],
    ) -> Self {
        Self::of(Point::at(name, file, line), amounts)
    }

    /// For [`crate::function_scope!`].
    #[doc(hidden)]
    #[must_use]
    #[track_caller]
    pub const fn in_function(name: fn() -> &'static str, amounts: &'static [&'static str]) -> Self {
        Self::of(Point::in_function(name), amounts)
    }

    /// The point, switched off from the start; see [`Point::starts_off`].
    #[must_use]
    pub const fn starts_off(self) -> Self {
        self.switched_off()
    }

    /// Measures until the guard is dropped, with these amounts in the order of their
    /// names: bytes, say, or a count of what was done. Fewer than there are names
    /// leave the others 0, more are lost.
    #[inline(always)]
    pub fn measure<A: Amount, const N: usize>(&'static self, amounts: [A; N]) -> Guard {
        self.begin_with(in_order(amounts))
    }

    /// Begins the region, to be ended with [`Self::end`] or [`Self::end_latched`] in the
    /// same thread or [context](crate::ExecutionContext), which tell its amounts: what was
    /// received, say, is known only then. As with [`Point::begin`], the point may be
    /// begun again inside itself; a guard of the point inside counts twice in inclusive time.
    ///
    /// ```
    /// static RECEIVE: pfp::MeteredPoint = pfp::MeteredPoint::new("receive", &["bytes"]);
    ///
    /// RECEIVE.begin();
    /// let received = "a message".len();
    /// RECEIVE.end([received]);
    /// # #[cfg(all(feature = "enabled", not(miri)))]
    /// assert_eq!(RECEIVE.amounts()[0], ("bytes", 9));
    /// ```
    pub fn begin(&'static self) {
        by_hand::begin(self.point());
    }

    /// Ends the region, which had these amounts; see [`Point::end`].
    #[inline]
    pub fn end<A: Amount, const N: usize>(&'static self, amounts: [A; N]) {
        by_hand::end_with(self, false, &in_order(amounts));
    }

    /// Ends the region, but keeps what it measured and its amounts, and adds them to
    /// the point's next measurement in this thread or [context](crate::ExecutionContext); see
    /// [`Point::end_latched`].
    #[inline]
    pub fn end_latched<A: Amount, const N: usize>(&'static self, amounts: [A; N]) {
        by_hand::end_with(self, true, &in_order(amounts));
    }

    /// The point itself, which is steered and asked as any point is: switching it on and off,
    /// resetting, averaging and [`Point::stats`] are of all amounts together.
    ///
    /// There is no `Deref`, since [`Point::measure`] and [`Point::begin`] would then be one
    /// letter away from those here: a region that is begun through this has amounts of 0.
    ///
    /// ```
    /// static SEND: pfp::MeteredPoint = pfp::MeteredPoint::new("send", &["bytes"]);
    ///
    /// SEND.point().disable();
    /// drop(SEND.measure([9]));
    /// assert!(SEND.point().stats().is_none());
    /// ```
    #[must_use]
    pub fn point(&'static self) -> &'static Point {
        self.itself()
    }

    /// What all regions since the last reset had of each amount, over all threads,
    /// with its name; 0 before the first. Exact, but for what regions in progress add
    /// meanwhile.
    #[must_use]
    pub fn amounts(&'static self) -> Vec<(&'static str, u128)> {
        self.sums()
    }
}
