//! Points: named places in the program.

mod measuring;

use std::panic::Location;

use crate::engine::state::State;

/// Number of points that are identified by a number: `0..NUMERIC`. The calibration uses point 0.
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
/// A point must be a `static`, because the viewer can switch it as long as the program runs. It
/// measures from the start, unless it [starts off](Self::starts_off), or the environment has
/// `PFP_DEFAULT=off` and `PFP_ENABLE` does not name the point.
///
/// # Exclusive and inclusive time
///
/// Exclusive time is the region's own time: without the regions inside it, and without the overhead
/// of measuring those. Inclusive time contains both, so it grows with the number of regions inside.
/// A region whose point is off is not measured: its time counts for the enclosing region, in both
/// figures. So switching a point off moves its time to its callers.
#[derive(Debug)]
#[repr(transparent)]
pub struct Point {
    pub(crate) state: State,
}

impl Point {
    /// A point with this name. Its place in the source is where this function is called.
    #[must_use]
    #[track_caller]
    pub const fn new(name: &'static str) -> Self {
        let here = Location::caller();
        Self::at(name, here.file(), here.line())
    }

    /// A point with this name and an explicit place in the source, for generated code and for
    /// bindings of other languages. An empty `file` means that the place is unknown.
    ///
    /// ```
    /// static LEXER: pfp::Point = pfp::Point::at("lexer", "grammar.y", 12);
    /// let _guard = LEXER.measure();
    /// ```
    #[must_use]
    pub const fn at(name: &'static str, file: &'static str, line: u32) -> Self {
        Self { state: State::literal(name, file, line) }
    }

    /// Makes the point start off. It measures once it is enabled: by [`Self::enable`], in the
    /// viewer, or by `PFP_ENABLE` in the environment.
    ///
    /// ```
    /// static DETAIL: pfp::Point = pfp::Point::new("detail").starts_off();
    /// assert!(!DETAIL.is_enabled());
    /// ```
    #[must_use]
    pub const fn starts_off(self) -> Self {
        Self { state: self.state.starts_off() }
    }

    /// Fences the point: its stamps wait for the work before them.
    ///
    /// A stamp is a reading of the clock at the begin or end of a region. Without fences, a
    /// processor takes the last stamp of a short region while the region's last loads and chains of
    /// instructions are still running, so up to some 50 ns of the region count for the enclosing
    /// region. Fences cost some 45 ns, which are subtracted from the figures. The work on both
    /// sides of a stamp no longer overlaps, so the program becomes that much slower. `PFP_FENCE=1`
    /// fences all points. Futures, and threads without a lane of their own (see `PFP_LANES`), have
    /// no fences.
    ///
    /// ```
    /// static LOOKUP: pfp::Point = pfp::Point::new("lookup").fenced();
    /// let _guard = LOOKUP.measure();
    /// ```
    #[must_use]
    pub const fn fenced(self) -> Self {
        Self { state: self.state.fenced() }
    }

    /// Counts from the start what each region of the point allocates: allocations, bytes and freed
    /// bytes, exclusive and inclusive, and the largest allocation. The viewer's key `A`,
    /// [`set_counting_allocs`](Self::set_counting_allocs) and `PFP_ALLOCS=1` turn it on, too.
    ///
    /// It needs an allocator that counts: [`Alloc`](crate::Alloc), or `pfp-top run --alloc`. A
    /// region counts the calling thread's allocations from its begin to its end. Exclusive figures
    /// leave out nested regions whose points count, too. A region counts the memory that its thread
    /// frees, whichever region or thread has allocated it. Each poll of a measured future counts for
    /// the thread that polls it. Threads without a lane of their own (see `PFP_LANES`) do not count.
    #[must_use]
    pub const fn counting_allocs(self) -> Self {
        Self { state: self.state.counting_allocs() }
    }

    /// Used by [`crate::function_scope!`].
    #[doc(hidden)]
    #[must_use]
    #[track_caller]
    pub const fn in_function(name: fn() -> &'static str) -> Self {
        let here = Location::caller();
        Self { state: State::function(name, here.file(), here.line()) }
    }

    /// The source file of the point; empty if it is unknown.
    #[must_use]
    pub const fn file(&'static self) -> &'static str {
        self.state.file()
    }

    /// The source line of the point; 0 if it is unknown.
    #[must_use]
    pub const fn line(&'static self) -> u32 {
        self.state.line()
    }
}
