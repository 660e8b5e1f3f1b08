//! Measuring a point, and steering it.

use std::borrow::Cow;
use std::time::Duration;

use super::Point;
use crate::engine::point::{Alpha, Change};
use crate::engine::{by_hand, numeric};
use crate::errors::alpha_of;
use crate::{AlphaError, Guard, Stats};

impl Point {
    /// The point of a number below [`NUMERIC`](crate::NUMERIC), which needs no static of the program's: for
    /// code that has numbers instead of names, as generated code and real-time systems do.
    ///
    /// It is off until it is enabled, and has no name until it is given one. Point 0 is the
    /// calibration's. A number beyond the range leads to a point that is never on, and is
    /// counted as a refused point.
    ///
    /// ```
    /// use pfp::Point;
    ///
    /// Point::numbered(3).set_name("control loop");
    /// Point::numbered(3).enable();
    /// for _ in 0..10 {
    ///     Point::numbered(3).begin_once();
    ///     Point::numbered(3).end();
    /// }
    /// # #[cfg(all(feature = "enabled", not(miri)))]
    /// assert_eq!(Point::numbered(3).stats().map(|stats| stats.count), Some(10));
    /// ```
    #[inline]
    #[must_use]
    pub fn numbered(id: u32) -> &'static Self {
        numeric::point_or_none(id)
    }

    /// Measures until the guard is dropped.
    #[inline(always)]
    pub fn measure(&'static self) -> Guard {
        Guard::begin(self)
    }

    /// Begins the region, to be ended with [`Self::end`] or
    /// [`Self::end_latched`] in the same thread or [context](crate::ExecutionContext).
    ///
    /// A point may be begun again inside itself; inclusive time counts recursion once. Up to 4,095
    /// regions may be open in a thread, and 1,024 in a context; one more gives up all of them, which
    /// the viewer counts as a mismatch.
    #[inline]
    pub fn begin(&'static self) {
        by_hand::begin(self);
    }

    /// Begins the region as [`begin`](Self::begin) does, but only once: if it is open in this
    /// thread or [context](crate::ExecutionContext) already, the point is switched off as invalid.
    ///
    /// That is the rule of points by [number](Self::numbered), where a begin without an end is
    /// a mistake and not recursion. The viewer shows the point as invalid; enabling it makes
    /// it valid again.
    #[inline]
    pub fn begin_once(&'static self) {
        by_hand::begin_once(self);
    }

    /// Ends the region. Without a begin it does nothing, so that a loop may
    /// start with an end. If other regions were begun inside and not ended, they
    /// are given up, which the viewer counts as a mismatch.
    #[inline]
    pub fn end(&'static self) {
        by_hand::end(self);
    }

    /// Ends the region, but keeps what it measured and adds it to the point's
    /// next measurement in this thread or [context](crate::ExecutionContext): the end
    /// that is not latched records the sum as one.
    #[inline]
    pub fn end_latched(&'static self) {
        by_hand::end_latched(self);
    }

    /// Switches the point on; takes effect at the next begin.
    pub fn enable(&'static self) {
        self.change(Change::Enable);
    }

    /// Switches the point off; takes effect at the next begin.
    pub fn disable(&'static self) {
        self.change(Change::Disable);
    }

    /// Whether the point measures.
    #[must_use]
    pub fn is_enabled(&'static self) -> bool {
        self.is_on()
    }

    /// Starts the point's statistics afresh; takes effect at the next begin.
    pub fn reset(&'static self) {
        self.change(Change::Reset);
    }

    /// Averages exponentially, `avg += alpha * (value - avg)` at each
    /// measurement.
    ///
    /// # Errors
    ///
    /// `alpha` is not in (0, 1].
    pub fn set_alpha(&'static self, alpha: f64) -> Result<(), AlphaError> {
        let alpha = Alpha::new(alpha).ok_or(AlphaError { alpha })?;
        self.change(Change::Alpha(alpha));
        Ok(())
    }

    /// Averages exponentially with the weight `period / tau`: `period` is how
    /// often the region runs, `tau` the time over which to average. 100 ms over
    /// 500 ms is a weight of 0.2.
    ///
    /// # Errors
    ///
    /// The weight is not in (0, 1]: `period` is zero or longer than `tau`.
    #[inline]
    pub fn set_average(&'static self, period: Duration, tau: Duration) -> Result<(), AlphaError> {
        self.set_alpha(alpha_of(period, tau))
    }

    /// Averages no longer.
    pub fn clear_alpha(&'static self) {
        self.change(Change::Alpha(Alpha::OFF));
    }

    /// The weight of a new value in the exponential average, in (0, 1]; none while
    /// averaging is off.
    #[must_use]
    pub fn alpha(&'static self) -> Option<f64> {
        self.weight()
    }

    /// The point's name as the viewer shows it.
    #[must_use]
    pub fn name(&'static self) -> Cow<'static, str> {
        self.known_name()
    }

    /// Gives the point another name, of which 1024 bytes are kept. Each name takes its room
    /// for good, unless the point has it already: names are not for what changes all the
    /// time.
    pub fn set_name(&'static self, name: &str) {
        self.rename(name);
    }

    /// Has the point's stamps wait for the work before them, or not, as
    /// [`fenced`](Self::fenced); takes effect at the next begin.
    pub fn set_fenced(&'static self, fenced: bool) {
        self.change(Change::Fence(fenced));
    }

    /// The point's statistics since its last reset, over all threads; none if
    /// it has not measured yet. It allocates, so it is not for signal handlers.
    #[must_use]
    pub fn stats(&'static self) -> Option<Stats> {
        self.figures()
    }
}
