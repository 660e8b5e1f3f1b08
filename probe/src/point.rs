//! Points: named places in the program.

use std::borrow::Cow;
use std::panic::Location;
use std::time::Duration;

use crate::engine::point::{Alpha, Change, State};
use crate::engine::{by_hand, numeric};
use crate::errors::alpha_of;
use crate::{AlphaError, Guard, Stats};

/// Points that are named by a number: `0..NUMERIC`. Point 0 is the
/// calibration's.
pub const NUMERIC: u32 = 64;

/// A profile point: a region of the program with statistics of its own.
///
/// ```
/// static PARSE: pfp::Point = pfp::Point::new("parse");
///
/// fn parse(line: &str) -> usize {
///     let _guard = PARSE.measure();
///     line.split(',').count()
/// }
/// assert_eq!(parse("a,b"), 2);
/// ```
///
/// A point must be a `static`: the viewer steers it for as long as the program
/// runs. It measures from the start, unless it [starts off](Self::starts_off) or
/// the environment has `PFP_DEFAULT=off`, and `PFP_ENABLE` does not name it.
///
/// # What its times hold
///
/// Exclusive time is the region's own: without the regions inside it and without what
/// measuring those took. Inclusive time has both, so it grows with the number of regions
/// inside. A region whose point is off is none: its time is that of the region around it, in
/// both figures. Switching a point off therefore moves its time to its callers.
#[derive(Debug)]
#[repr(transparent)]
pub struct Point {
    pub(crate) state: State,
}

impl Point {
    /// A point of this name; the place is where this is called.
    #[must_use]
    #[track_caller]
    pub const fn new(name: &'static str) -> Self {
        let here = Location::caller();
        Self::at(name, here.file(), here.line())
    }

    /// A point of this name at a place of the source that is not this one: for
    /// generated code, and for bindings of other languages. An empty `file` says
    /// that the place is not known.
    ///
    /// ```
    /// static LEXER: pfp::Point = pfp::Point::at("lexer", "grammar.y", 12);
    /// let _guard = LEXER.measure();
    /// ```
    #[must_use]
    pub const fn at(name: &'static str, file: &'static str, line: u32) -> Self {
        Self { state: State::literal(name, file, line) }
    }

    /// The point of a number below [`NUMERIC`], which needs no static of the program's: for
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

    /// The point, switched off from the start: it measures once it is enabled
    /// here, in the viewer, or by `PFP_ENABLE` in the environment.
    ///
    /// ```
    /// static DETAIL: pfp::Point = pfp::Point::new("detail").starts_off();
    /// assert!(!DETAIL.is_enabled());
    /// ```
    #[must_use]
    pub const fn starts_off(self) -> Self {
        Self { state: self.state.starts_off() }
    }

    /// The point, fenced: its stamps wait for the work before them.
    ///
    /// Otherwise a processor reads the end of a short region while its last loads and chains
    /// of instructions are still under way, and up to some 50 ns of it are counted for the
    /// region around. Fences cost some 45 ns, which are taken out of the figures, and the work on
    /// both sides of a stamp no longer overlaps: the program becomes that much slower.
    /// `PFP_FENCE=1` fences all points. Futures, regions with amounts that are begun by hand,
    /// and threads without a lane of their own have no fences.
    ///
    /// ```
    /// static LOOKUP: pfp::Point = pfp::Point::new("lookup").fenced();
    /// let _guard = LOOKUP.measure();
    /// ```
    #[must_use]
    pub const fn fenced(self) -> Self {
        Self { state: self.state.fenced() }
    }

    /// Has the point's stamps wait for the work before them, or not, as
    /// [`fenced`](Self::fenced); takes effect at the next begin.
    pub fn set_fenced(&'static self, fenced: bool) {
        self.change(Change::Fence(fenced));
    }

    /// For [`crate::function_scope!`].
    #[doc(hidden)]
    #[must_use]
    #[track_caller]
    pub const fn in_function(name: fn() -> &'static str) -> Self {
        let here = Location::caller();
        Self { state: State::function(name, here.file(), here.line()) }
    }

    /// Measures until the guard is dropped.
    #[inline(always)]
    pub fn measure(&'static self) -> Guard {
        Guard::begin(self)
    }

    /// Measures until a guard, which has no region yet, is dropped: one that is filled
    /// where it stays need not be copied, which would wait for the counter.
    #[doc(hidden)]
    #[inline(always)]
    pub fn measure_in(&'static self, guard: &mut Guard) {
        Guard::begin_where(self, guard);
    }

    /// Begins the region, to be ended with [`Self::end`] or
    /// [`Self::end_latched`] in the same thread or [context](crate::ExecutionContext).
    ///
    /// A point may be begun again inside itself. Up to 32 regions that were begun by
    /// hand may be open at a time in a thread or context; a begin beyond that is not
    /// measured, and counted as refused. Inclusive time counts recursion once.
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

    /// The file that the point is in; empty where that is not known.
    #[must_use]
    pub const fn file(&'static self) -> &'static str {
        self.state.file()
    }

    /// The line that the point is at; 0 where that is not known.
    #[must_use]
    pub const fn line(&'static self) -> u32 {
        self.state.line()
    }

    /// The point's statistics since its last reset, over all threads; none if
    /// it has not measured yet. It allocates, so it is not for signal handlers.
    #[must_use]
    pub fn stats(&'static self) -> Option<Stats> {
        self.figures()
    }
}
