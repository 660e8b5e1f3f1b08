//! The state of a point, as the engine needs it.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};

use pfp_shm_layout::ring::POINT_SHIFT;

use super::lease::Lease;

/// The control word of a point that is not registered yet. No registered point has this word.
pub const UNREGISTERED: u64 = u64::MAX;

/// The control word of all points that are not registered yet. It reads as enabled, so the first
/// begin of a point looks for a cell, finds none, and registers the point on the slow path. The
/// fast path needs no test for unregistered points.
static NOT_YET: AtomicU64 = AtomicU64::new(UNREGISTERED);

/// Value of `next` for a point that is not in the list.
pub(super) const UNLISTED: *mut State = ptr::without_provenance_mut(1);

/// The state of a point.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct State {
    /// Pointer to the point's control word, in the segment. It is the first field, as C's inline
    /// functions expect.
    pub(super) control: AtomicPtr<AtomicU64>,
    /// The point's number in the segment, as an offset in a thread's table.
    pub(super) offset: AtomicU32,
    /// Held by the thread that registers the point.
    pub(super) registering: Lease,
    /// The next point in the process's list, or [`UNLISTED`].
    pub(super) next: AtomicPtr<Self>,
    pub(crate) name: Name,
    pub(super) file: &'static str,
    pub(super) line: u32,
    /// Whether the point measures from the start.
    pub(super) starts_on: bool,
    /// Whether the point is fenced from the start: its stamps wait until earlier instructions are
    /// done.
    pub(super) fenced: bool,
    /// Whether the point's regions count what they allocate from the start.
    pub(super) counts_allocs: bool,
    pub(super) device: bool,
    pub(super) wall: bool,
    /// Whether the point is the first field of a [`crate::MeteredPoint`].
    pub(super) has_amounts: bool,
    /// Whether [`crate::set_enabled`] has switched the point off.
    pub(super) paused: AtomicBool,
    /// Links a point to its counterpart in another [copy of pfp](super::copies). In a follower's
    /// point: the leader's point. In the leader's point for a follower's point: the address of the
    /// follower's `control`. Null in all other points.
    pub(super) other: AtomicPtr<c_void>,
}

/// The source of a point's name.
#[derive(Debug)]
pub(crate) enum Name {
    Literal(&'static str),
    /// A path that is not known before the program runs.
    Function(fn() -> &'static str),
    Number,
    /// The index of the point among the tuples of a [`crate::MeteredPoint`].
    Tuple(u8),
}

impl Name {
    /// The name in the source, if it has one.
    pub(super) fn known(&self) -> &'static str {
        match self {
            Self::Literal(name) => name,
            Self::Function(name) => name(),
            Self::Number | Self::Tuple(_) => "",
        }
    }
}

impl State {
    /// A point that is named by a literal.
    pub(crate) const fn literal(name: &'static str, file: &'static str, line: u32) -> Self {
        Self::named(Name::Literal(name), 0, file, line)
    }

    /// A point that has the name of its function.
    pub(crate) const fn function(
        name: fn() -> &'static str,
        file: &'static str,
        line: u32,
    ) -> Self {
        Self::named(Name::Function(name), 0, file, line)
    }

    /// The point, switched off from the start.
    pub(crate) const fn starts_off(self) -> Self {
        Self { starts_on: false, ..self }
    }

    /// The point, fenced from the start.
    pub(crate) const fn fenced(self) -> Self {
        Self { fenced: true, ..self }
    }

    /// The point, whose regions count what they allocate from the start.
    pub(crate) const fn counting_allocs(self) -> Self {
        Self { counts_allocs: true, ..self }
    }

    pub(crate) const fn file(&self) -> &'static str {
        self.file
    }

    pub(crate) const fn line(&self) -> u32 {
        self.line
    }

    pub(super) const fn named(name: Name, number: u32, file: &'static str, line: u32) -> Self {
        let starts_on = !matches!(name, Name::Number) || number == 0;
        Self {
            control: AtomicPtr::new((&raw const NOT_YET).cast_mut()),
            offset: AtomicU32::new(number << POINT_SHIFT),
            registering: Lease::new(),
            next: AtomicPtr::new(UNLISTED),
            name,
            file,
            line,
            starts_on,
            fenced: false,
            counts_allocs: false,
            device: false,
            wall: false,
            has_amounts: false,
            paused: AtomicBool::new(false),
            other: AtomicPtr::new(ptr::null_mut()),
        }
    }
}
