//! Measuring a point, and changing its settings.

use std::borrow::Cow;
use std::time::Duration;

use super::Point;
use crate::engine::point::{Alpha, Change, Limit};
use crate::engine::{by_hand, numeric};
use crate::errors::alpha_of;
use crate::{AlphaError, Guard, Stats};

/// The limit nearest to a time.
fn nearest(time: Duration, is_cpu: bool) -> Option<Limit> {
    Limit::nearest(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), is_cpu)
}

impl Point {
    /// The point of a number below [`NUMERIC`](crate::NUMERIC). It needs no static in the program,
    /// so it suits code that has numbers instead of names, such as generated code and real-time
    /// systems.
    ///
    /// The point is off until it is enabled, and has no name until one is set. Point 0 is used by
    /// the calibration. For a number beyond the range, the function returns a point that is never
    /// on, and counts a refused point.
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

    /// Begins a region, to be ended with [`Self::end`] or [`Self::end_latched`] in the same thread
    /// or [context](crate::ExecutionContext).
    ///
    /// Regions of the point may nest; inclusive time counts recursion once. Up to 4,095 regions may
    /// be open in a thread, and 1,024 in a context. One more abandons all of them, which counts as
    /// a mismatch.
    #[inline]
    pub fn begin(&'static self) {
        by_hand::begin(self);
    }

    /// Begins a region like [`begin`](Self::begin), unless a region of the point is already open in
    /// this thread or [context](crate::ExecutionContext). If one is open, the point is switched off
    /// as invalid.
    ///
    /// This rule is for points by [number](Self::numbered), for which a begin without an end is a
    /// mistake and not recursion. The viewer shows the point as invalid. Enabling it makes it valid
    /// again.
    #[inline]
    pub fn begin_once(&'static self) {
        by_hand::begin_once(self);
    }

    /// Ends the region. Without a begin it does nothing, so a loop may start with an end. Regions
    /// that were begun inside and have not ended are abandoned, which counts as a mismatch.
    #[inline]
    pub fn end(&'static self) {
        by_hand::end(self);
    }

    /// Ends the region, but keeps its measurement, and adds it to the point's next measurement in
    /// this thread or [context](crate::ExecutionContext). The next normal end records the sum as
    /// one measurement.
    #[inline]
    pub fn end_latched(&'static self) {
        by_hand::end_latched(self);
    }

    /// Switches the point on, from the next begin.
    pub fn enable(&'static self) {
        self.change(Change::Enable);
    }

    /// Switches the point off, from the next begin.
    pub fn disable(&'static self) {
        self.change(Change::Disable);
    }

    /// Whether the point is on.
    #[must_use]
    pub fn is_enabled(&'static self) -> bool {
        self.is_on()
    }

    /// Resets the point's statistics, from the next begin.
    pub fn reset(&'static self) {
        self.change(Change::Reset);
    }

    /// Turns exponential averaging on: `avg += alpha * (value - avg)` at each measurement.
    ///
    /// # Errors
    ///
    /// `alpha` is not in (0, 1].
    pub fn set_alpha(&'static self, alpha: f64) -> Result<(), AlphaError> {
        let alpha = Alpha::new(alpha).ok_or(AlphaError { alpha })?;
        self.change(Change::Alpha(alpha));
        Ok(())
    }

    /// Turns exponential averaging on, with the weight `period / tau`: `period` is the time between
    /// regions, and `tau` the time over which to average. 100 ms over 500 ms is a weight of 0.2.
    ///
    /// # Errors
    ///
    /// The weight is not in (0, 1]: `period` is zero or longer than `tau`.
    #[inline]
    pub fn set_average(&'static self, period: Duration, tau: Duration) -> Result<(), AlphaError> {
        self.set_alpha(alpha_of(period, tau))
    }

    /// Turns exponential averaging off.
    pub fn clear_alpha(&'static self) {
        self.change(Change::Alpha(Alpha::OFF));
    }

    /// The weight of a new value in the exponential average, in (0, 1]. `None` while averaging is
    /// off.
    #[must_use]
    pub fn alpha(&'static self) -> Option<f64> {
        self.weight()
    }

    /// The point's name in the viewer.
    #[must_use]
    pub fn name(&'static self) -> Cow<'static, str> {
        self.known_name()
    }

    /// Renames the point. Names longer than 1024 bytes are cut. Each new name takes memory that is
    /// never freed, unless the point has had the name before. So do not encode changing values in
    /// names.
    pub fn set_name(&'static self, name: &str) {
        self.rename(name);
    }

    /// Turns fences on or off, from the next begin; see [`fenced`](Self::fenced).
    pub fn set_fenced(&'static self, fenced: bool) {
        self.change(Change::Fence(fenced));
    }

    /// Turns the count of allocations on or off, from the next begin; see
    /// [`counting_allocs`](Self::counting_allocs).
    pub fn set_counting_allocs(&'static self, counting: bool) {
        self.change(Change::CountAllocs(counting));
    }

    /// Keeps what explains each call that takes at least this time by the clock, from begin to end:
    /// the regions around it, how often its thread waited, and the last records of its thread.
    /// `None` stops that. `pfp-top slow` shows these calls. The limit has two digits and is 1 us to
    /// 99 s; a shorter or longer time counts as the nearest of these.
    ///
    /// A process keeps the slowest and the newest calls, 8 in all. A call below the limit costs
    /// nothing more, unless it takes longer than the shortest limit of all points.
    pub fn keep_over(&'static self, limit: impl Into<Option<Duration>>) {
        self.change(Change::Limit(limit.into().and_then(|limit| nearest(limit, false))));
    }

    /// [`keep_over`](Self::keep_over) for the time on a CPU, nested regions included.
    pub fn keep_over_cpu(&'static self, limit: impl Into<Option<Duration>>) {
        self.change(Change::Limit(limit.into().and_then(|limit| nearest(limit, true))));
    }

    /// The point's statistics since its last reset, over all threads. `None` if it has not measured
    /// yet. The call allocates memory, so do not use it in signal handlers.
    #[must_use]
    pub fn stats(&'static self) -> Option<Stats> {
        self.figures()
    }
}
