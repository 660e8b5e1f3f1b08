//! The facts that the engine reads of a point: its control word, its number, and how it was
//! declared.

use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use pfp_shm_layout::control::Control;
use pfp_shm_layout::point::{DEVICE, WALL};
use pfp_shm_layout::ring::POINT_SHIFT;

use super::copies;
use super::lease::Lease;
use super::state::{Name, State};
use crate::point::Point;

/// Offset of a point's entry in a thread's table: the point's number times the size of an entry.
/// Each thread's table has an entry for every point, because it is mapped with entries for all
/// numbers that are already assigned, and for all that its process may assign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offset(u32);

impl Offset {
    /// Bytes from the start of the table.
    #[inline(always)]
    pub(crate) const fn bytes(self) -> u32 {
        self.0
    }
}

/// The control word of all refused points. It stays 0, so they are off for good.
pub(super) static REFUSED: AtomicU64 = AtomicU64::new(0);

/// Reads the control word of a point. `leads_to` is the first field of the point.
///
/// # Safety
///
/// `leads_to` points to a pointer to a word that is never unmapped: a static, or a word in the
/// segment.
#[inline(always)]
pub unsafe fn word(leads_to: *const AtomicPtr<AtomicU64>) -> u64 {
    // Pairs with the store in `lead_to`: a thread that sees the word in the segment sees the
    // point's number, too.
    // SAFETY: by the caller's promise, the pointer leads to a word that is never unmapped.
    unsafe { (*(*leads_to).load(Acquire)).load(Relaxed) }
}

impl Point {
    pub(crate) fn is_fenced(&self) -> bool {
        self.state.fenced
    }

    /// Whether the point's regions count what they allocate from the start.
    pub(crate) fn is_counting_allocs(&self) -> bool {
        self.state.counts_allocs
    }

    /// Marks the point as measuring a device's time, which viewers do not count as CPU time.
    pub(crate) const fn of_a_device(self) -> Self {
        Self { state: State { device: true, ..self.state } }
    }

    /// Marks the point as measuring spans of wall-clock time, which do not belong to a thread.
    pub(crate) const fn of_the_clock(self) -> Self {
        Self { state: State { device: true, wall: true, ..self.state } }
    }

    /// Marks the point as the first field of a [`crate::MeteredPoint`].
    pub(crate) const fn of_amounts(self) -> Self {
        Self { state: State { has_amounts: true, ..self.state } }
    }

    /// A point that the program identifies by a number instead of a name.
    pub(crate) const fn numeric(number: u32) -> Self {
        Self { state: State::named(Name::Number, number, "", 0) }
    }

    /// A point that is off for good.
    pub(crate) const fn never() -> Self {
        Self {
            state: State {
                control: AtomicPtr::new((&raw const REFUSED).cast_mut()),
                registering: Lease::already_done(),
                ..State::literal("", "", 0)
            },
        }
    }

    /// The point of a tuple of amounts. `place` is its index among the tuples of a metered point.
    pub(crate) const fn tuple(place: u8) -> Self {
        Self { state: State::named(Name::Tuple(place), 0, "", 0) }
    }

    /// The control word of the point. It reads as enabled while the point is not registered.
    #[inline(always)]
    pub(crate) fn control(&self) -> Control {
        // SAFETY: the pointer leads to a static, or to a word in the segment, which is never
        // unmapped.
        Control(unsafe { word(&raw const self.state.control) })
    }

    /// The control word, whether the point is registered or not. `None` if the point was refused.
    pub(super) fn known_word(&self) -> Option<&'static AtomicU64> {
        let word = self.state.control.load(Acquire);
        // SAFETY: `word` points to a static, or to a word in the segment, which is never unmapped.
        (!ptr::eq(word, &raw const REFUSED)).then(|| unsafe { &*word })
    }

    /// Number of the point; 0 before it is registered.
    #[inline(always)]
    pub(crate) fn index(&self) -> usize {
        (self.offset().bytes() >> POINT_SHIFT) as usize
    }

    /// The offset of the point's entry in each thread's table.
    #[inline(always)]
    pub(crate) fn offset(&self) -> Offset {
        Offset(self.state.offset.load(Relaxed))
    }

    /// The number of the point. `None` unless it is a numeric point, or registered and not refused.
    pub(crate) fn number(&self) -> Option<u32> {
        let index = self.index() as u32;
        // A refused point has no number.
        let known = index != 0 && self.state.registering.is_done();
        (self.is_numeric() || known).then_some(index)
    }

    /// The number that the point needs in a table. An inherited point keeps its number from the
    /// parent's table, even if its registration there was not complete.
    pub(crate) fn wanted_number(&self) -> Option<u32> {
        let index = self.index() as u32;
        (self.is_numeric() || index != 0).then_some(index)
    }

    pub(crate) fn description(&self) -> (&str, &str, u32) {
        let is_calibration = self.is_numeric() && self.index() == 0;
        let name = if is_calibration { "overhead" } else { self.state.name.known() };
        (name, self.state.file, self.state.line)
    }

    pub(crate) fn is_tuple(&self) -> bool {
        matches!(self.state.name, Name::Tuple(_))
    }

    /// Whether the point's regions carry amounts. If so, its cells have sums of amounts.
    #[inline(always)]
    pub(crate) fn has_amounts(&self) -> bool {
        self.state.has_amounts
    }

    /// Pauses a point that would start on, until [`crate::set_enabled`] switches all points on.
    pub(crate) fn start_paused(&self) {
        self.state.paused.store(true, Relaxed);
    }

    /// Switches the point off for good, because the table has no room for one of its tuples.
    pub(crate) fn refuse(&self) {
        self.state.control.store((&raw const REFUSED).cast_mut(), Release);
        self.lead_follower();
    }

    fn is_numeric(&self) -> bool {
        matches!(self.state.name, Name::Number)
    }

    /// The flags that show whether the point measures a device's time or wall-clock time. In the
    /// segment, they share a word with the point's line number.
    pub(crate) fn time_source(&self) -> u64 {
        let device = if self.state.device { DEVICE } else { 0 };
        device | if self.state.wall { WALL } else { 0 }
    }

    /// Whether the point was declared to measure from the start.
    pub(crate) fn starts_on(&self) -> bool {
        self.state.starts_on
    }

    /// Whether the point is one of the program's own. Tuples, the calibration's point and refused
    /// points are not.
    pub(crate) fn is_listed(&'static self) -> bool {
        let number = match copies::followed() {
            Some(leader) => Some(leader.number(self)),
            // Points of followers are not the program's own.
            None => self.number().filter(|_| self.state.other.load(Relaxed).is_null()),
        };
        number.is_some_and(|number| number != 0) && !self.is_tuple()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use super::*;

    /// A thread that sees a point's word also sees the point's number, even while another thread is
    /// registering the point. On x86-64 this holds whatever the memory ordering of the load; Miri
    /// also tests it for other processors.
    #[test]
    fn a_word_comes_with_its_number() {
        static UNREGISTERED: AtomicU64 = AtomicU64::new(u64::MAX);
        static WORD: AtomicU64 = AtomicU64::new(1);
        for _ in 0..if cfg!(miri) { 100 } else { 1000 } {
            let leads_to = AtomicPtr::new((&raw const UNREGISTERED).cast_mut());
            let offset = AtomicU32::new(0);
            thread::scope(|threads| {
                // The stores of `decide_number` and `lead_to`, in their order.
                threads.spawn(|| {
                    offset.store(64, Relaxed);
                    leads_to.store((&raw const WORD).cast_mut(), Release);
                });
                // SAFETY: `leads_to` always points to a static.
                while unsafe { word(&raw const leads_to) } != 1 {
                    thread::yield_now();
                }
                assert_eq!(offset.load(Relaxed), 64);
            });
        }
    }
}
