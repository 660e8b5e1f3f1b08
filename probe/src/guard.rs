//! Laps: consecutive regions in one guard.

use crate::amount::in_order;
use crate::{Amount, Guard, MeteredPoint, Point};

impl Guard {
    /// Ends the region and begins one of another point, with a single reading of the clock, so no
    /// time is lost between them. This suits loops and phases, and is cheaper than an end and a
    /// begin. [`crate::lap!`] does it without a name for the guard.
    ///
    /// The regions are consecutive, not nested. If the guard has no region, for example after a lap
    /// to a point that is off, this only begins one.
    ///
    /// ```
    /// static READ: pfp::Point = pfp::Point::new("read");
    /// static PARSE: pfp::Point = pfp::Point::new("parse");
    ///
    /// let mut phase = READ.measure();
    /// let text = String::from("1,2");
    /// phase.lap(&PARSE);
    /// assert_eq!(text.split(',').count(), 2);
    /// ```
    #[inline(always)]
    pub fn lap(&mut self, next: &'static Point) {
        self.lap_to(next);
    }

    /// Like [`lap`](Self::lap), for a region with amounts; see [`MeteredPoint::measure`]. A point
    /// has separate figures for up to eight tuples of amounts. If the amounts are not one of these
    /// tuples, the lap needs a second reading of the clock.
    ///
    /// ```
    /// static READ: pfp::MeteredPoint = pfp::MeteredPoint::new("read", &["bytes"]);
    /// static PARSE: pfp::Point = pfp::Point::new("parse");
    ///
    /// let mut phase = PARSE.measure();
    /// for text in ["1,2", "3"] {
    ///     phase.lap_with(&READ, [text.len()]);
    ///     let text = String::from(text);
    ///     phase.lap(&PARSE);
    ///     drop(text);
    /// }
    /// ```
    pub fn lap_with<A: Amount, const N: usize>(
        &mut self,
        next: &'static MeteredPoint,
        amounts: [A; N],
    ) {
        self.lap_to_amounts(next, &in_order(amounts));
    }

    /// A guard without a region, for [`crate::laps!`].
    #[doc(hidden)]
    #[inline(always)]
    pub fn empty() -> Self {
        Self::none()
    }
}
