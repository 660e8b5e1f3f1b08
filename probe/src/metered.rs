//! Points whose regions carry amounts: the public interface.

use std::panic::Location;

use crate::amount::in_order;
use crate::engine::by_hand;
use crate::{Amount, Guard, MeteredPoint, Point};

impl MeteredPoint {
    /// A point with this name and one to four names of amounts. Its place in the source is where
    /// this function is called. Names longer than 32 bytes are cut.
    ///
    /// # Panics
    ///
    /// There are no names or more than four. For a static, this is a compilation error.
    #[must_use]
    #[track_caller]
    pub const fn new(name: &'static str, amounts: &'static [&'static str]) -> Self {
        let here = Location::caller();
        Self::at(name, here.file(), here.line(), amounts)
    }

    /// A point with amounts and an explicit place in the source; see [`Point::at`].
    ///
    /// # Panics
    ///
    /// See [`Self::new`].
    #[must_use]
    pub const fn at(
        name: &'static str,
        file: &'static str,
        line: u32,
        amounts: &'static [&'static str],
    ) -> Self {
        Self::of(Point::at(name, file, line), amounts)
    }

    /// Used by [`crate::function_scope!`].
    #[doc(hidden)]
    #[must_use]
    #[track_caller]
    pub const fn in_function(name: fn() -> &'static str, amounts: &'static [&'static str]) -> Self {
        Self::of(Point::in_function(name), amounts)
    }

    /// Makes the point start off; see [`Point::starts_off`].
    #[must_use]
    pub const fn starts_off(self) -> Self {
        self.switched_off()
    }

    /// Measures until the guard is dropped. The amounts are in the order of their names. Missing
    /// amounts are 0; surplus amounts are ignored.
    #[inline(always)]
    pub fn measure<A: Amount, const N: usize>(&'static self, amounts: [A; N]) -> Guard {
        self.begin_with(in_order(amounts))
    }

    /// Begins a region, to be ended with [`Self::end`] or [`Self::end_latched`] in the same thread
    /// or [context](crate::ExecutionContext). The end states the amounts, which may be known only
    /// then, such as the number of bytes received. As with [`Point::begin`], regions of the point
    /// may nest. If a nested region of the point is measured by a guard, inclusive time counts it
    /// twice.
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

    /// Ends the region and states its amounts; see [`Point::end`].
    #[inline]
    pub fn end<A: Amount, const N: usize>(&'static self, amounts: [A; N]) {
        by_hand::end_with(self, false, &in_order(amounts));
    }

    /// Ends the region, but keeps its measurement and amounts, and adds them to the point's next
    /// measurement in this thread or [context](crate::ExecutionContext); see
    /// [`Point::end_latched`].
    #[inline]
    pub fn end_latched<A: Amount, const N: usize>(&'static self, amounts: [A; N]) {
        by_hand::end_with(self, true, &in_order(amounts));
    }

    /// The point itself, for its other functions. Switching, resetting, averaging and
    /// [`Point::stats`] apply to the measurements of all amounts together.
    ///
    /// There is no `Deref`, because [`Point::measure`] and [`Point::begin`] would then be easily
    /// confused with the functions here. A region that is begun through the point has amounts of 0.
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

    /// The sum of each amount, with its name, over all regions since the last reset and over all
    /// threads; 0 without a region. Exact, except for what running regions add during the call.
    #[must_use]
    pub fn amounts(&'static self) -> Vec<(&'static str, u128)> {
        self.sums()
    }
}
