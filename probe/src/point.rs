//! Points: named places in the program.

mod measuring;

use std::panic::Location;

use crate::engine::state::State;

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
    /// `PFP_FENCE=1` fences all points. Futures and threads without a lane of their own have no
    /// fences.
    ///
    /// ```
    /// static LOOKUP: pfp::Point = pfp::Point::new("lookup").fenced();
    /// let _guard = LOOKUP.measure();
    /// ```
    #[must_use]
    pub const fn fenced(self) -> Self {
        Self { state: self.state.fenced() }
    }

    /// For [`crate::function_scope!`].
    #[doc(hidden)]
    #[must_use]
    #[track_caller]
    pub const fn in_function(name: fn() -> &'static str) -> Self {
        let here = Location::caller();
        Self { state: State::function(name, here.file(), here.line()) }
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
}
