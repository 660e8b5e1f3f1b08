//! The guard: a region that lasts as long as a value.

use std::marker::PhantomData;

use super::measure::{self, SCOPE};
use crate::point::Point;
use pfp_shm_layout::control::Control;

/// Measures a region until it is dropped; see [`Point::measure`].
///
/// It belongs to its thread: it cannot be sent to another one.
///
/// Only a test and a call are inlined at each place that measures a region. All other code is out
/// of line, so no register has to be saved for a region that is off.
#[must_use = "a guard that is not bound to a name ends its region at once"]
#[derive(Debug)]
#[repr(C)]
pub struct Guard {
    /// The region's [tag](super::region); 0 if it is not measured.
    tag: u64,
    thread_bound: PhantomData<*const ()>,
}

impl Guard {
    /// A guard without a region.
    #[inline(always)]
    pub(crate) fn none() -> Self {
        Self::of(0)
    }

    #[inline(always)]
    pub(crate) fn of(tag: u64) -> Self {
        Self { tag, thread_bound: PhantomData }
    }

    /// Begins a region of a point.
    #[inline(always)]
    pub(crate) fn begin(point: &'static Point) -> Self {
        let control = point.control();
        if control.enabled() { Self::begin_on(point, control) } else { Self::none() }
    }

    /// Begins a region of a point whose word was read as enabled.
    #[inline(always)]
    pub(crate) fn begin_on(point: &'static Point, control: Control) -> Self {
        Self::of(begin(point, control))
    }

    /// The region's tag; 0 if it is not measured.
    #[inline(always)]
    pub(crate) fn tag(&self) -> u64 {
        self.tag
    }

    #[inline(always)]
    pub(super) fn set_tag(&mut self, tag: u64) {
        self.tag = tag;
    }
}

#[inline(never)]
pub(super) fn begin(point: &'static Point, control: Control) -> u64 {
    measure::begin::<SCOPE>(point, control)
}

impl Drop for Guard {
    #[inline(always)]
    fn drop(&mut self) {
        if self.tag != 0 {
            measure::end(self.tag);
        }
    }
}
