//! Points whose regions carry amounts: bytes, operations, items.
//!
//! A tuple of amounts has a point of its own, with its own number and cells. This point follows the
//! control word of the metered point. A region with amounts is a region of its tuple's point, so
//! its only extra cost is the search for the tuple. The amounts of the tuples are adjacent, do not
//! change once the tuple is known, and are compared one tuple after the other. A loop that the
//! branch predictor knows is cheaper than an index that waits for a hash, and threads with
//! different amounts do not contend for a word that remembers the last tuple.
//!
//! Regions whose amounts have no tuple count for the metered point itself, whose cells have the
//! sums of their amounts. So if a tuple cannot be added, because there is no slot or no memory, or
//! because the caller is a signal handler that has interrupted such an addition, no region is lost,
//! and all sums stay exact.
//!
//! All of this is in the point's static, so the first use of a tuple allocates nothing, and may be
//! in a signal handler.

use std::fmt::{self, Display, Write};
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use pfp_shm_layout::amounts::{Amounts, MAX_AMOUNTS, TUPLES};
use pfp_shm_layout::control::Control;
use pfp_shm_layout::heap;

use super::copies::by_leader;
use super::figures::{self, Histogram};
use super::guard::{self, Guard};
use super::lease::Lease;
use super::measure::SCOPE;
use super::process::entries::NotEntered;
use super::process::{self, Process};
use super::state::Name;
use super::{cold, current, room};
use crate::point::Point;
use crate::stats::Stats;

/// The first amount of a pair, if the slot has no pair. A tuple whose own first amount has this
/// value is found by all four amounts.
const NONE: u64 = u64::MAX;
/// Maximum length of an amount's name in bytes. Longer names are cut.
const LONGEST_NAME: usize = 32;

/// A point whose regions carry amounts: how much work they did, in addition to the time it took.
///
/// The viewer shows the sums per second, both of CPU time and of wall-clock time. Up to eight
/// different tuples of a point have figures of their own; all other measurements are summed.
/// Switching, resetting and averaging the point apply to all of them.
///
/// [`crate::scope!`] creates one at its place in the source.
///
/// ```
/// static TRIAD: pfp::MeteredPoint = pfp::MeteredPoint::new("triad", &["bytes", "flops"]);
///
/// fn triad(a: &mut [f64], b: &[f64], c: &[f64], by: f64) {
///     let n = a.len();
///     let _guard = TRIAD.measure([n * 24, n * 2]);
///     for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
///         *a = b + by * c;
///     }
/// }
/// triad(&mut [0.0; 100], &[1.0; 100], &[2.0; 100], 3.0);
/// # #[cfg(all(feature = "enabled", not(miri)))]
/// assert_eq!(TRIAD.amounts()[0], ("bytes", 2400));
/// ```
#[derive(Debug)]
#[repr(C)]
pub struct MeteredPoint {
    /// The point itself. It is the first field, because C's inline functions expect it there.
    point: Point,
    names: &'static [&'static str],
    /// Bit set of the tuples whose amounts and points are ready.
    known: AtomicU32,
    /// Number of slots that threads have taken for tuples. A thread writes only to its own
    /// slot.
    taken: AtomicU32,
    /// Held by the thread that adds a tuple.
    adding: Lease,
    /// The first two amounts of the tuples whose other amounts are 0. For all other tuples, the
    /// first element is [`NONE`]. A region with one or two amounts only compares these pairs.
    pairs: [[AtomicU64; 2]; TUPLES],
    amounts: [[AtomicU64; MAX_AMOUNTS]; TUPLES],
    tuples: [Point; TUPLES],
}

impl MeteredPoint {
    /// A point with these names of amounts.
    pub(crate) const fn of(point: Point, names: &'static [&'static str]) -> Self {
        assert!(!names.is_empty() && names.len() <= MAX_AMOUNTS, "a point has one to four amounts");
        let mut at = 0;
        while at < names.len() {
            assert!(!names[at].is_empty(), "an amount has a name");
            at += 1;
        }
        let mut tuples = [const { Point::tuple(0) }; TUPLES];
        let mut place = 1;
        while place < TUPLES {
            tuples[place].state.name = Name::Tuple(place as u8);
            place += 1;
        }
        Self {
            point: point.of_amounts(),
            names,
            known: AtomicU32::new(0),
            taken: AtomicU32::new(0),
            adding: Lease::new(),
            pairs: [const { [const { AtomicU64::new(NONE) }; 2] }; TUPLES],
            amounts: [const { [const { AtomicU64::new(0) }; MAX_AMOUNTS] }; TUPLES],
            tuples,
        }
    }

    /// The point, switched off from the start.
    pub(crate) const fn switched_off(mut self) -> Self {
        self.point = self.point.starts_off();
        self
    }

    /// The names of the amounts.
    pub(crate) fn names(&self) -> &'static [&'static str] {
        self.names
    }

    /// The metered point's own point, which is its first field.
    pub(crate) fn itself(&'static self) -> &'static Point {
        // `Point::metered` and `Point::tuple_of` use the exposed address.
        let _ = (&raw const *self).expose_provenance();
        &self.point
    }

    /// Begins a region with amounts, if the point is on.
    #[inline(always)]
    pub(crate) fn begin_with(&'static self, [a, b, c, d]: Amounts) -> Guard {
        let control = self.point.control();
        // The amounts are passed one by one, so that they stay in registers.
        Guard::of(match [c, d] {
            _ if !control.enabled() => 0,
            [0, 0] => self.begin_two(control, a, b),
            _ => self.begin_four(control, a, b, c, d),
        })
    }

    /// Begins a region of a point that is on, with one amount or two.
    #[inline(never)]
    fn begin_two(&'static self, control: Control, a: u64, b: u64) -> u64 {
        match self.find_two(a, b) {
            Some(tuple) => guard::begin(tuple, control),
            None => self.begin_other(control, &[a, b, 0, 0]),
        }
    }

    /// Begins a region of a point that is on, with up to four amounts.
    #[inline(never)]
    fn begin_four(&'static self, control: Control, a: u64, b: u64, c: u64, d: u64) -> u64 {
        let amounts = [a, b, c, d];
        match self.find(&amounts) {
            Some(tuple) => guard::begin(tuple, control),
            None => self.begin_other(control, &amounts),
        }
    }

    /// Begins a region whose amounts have no tuple yet.
    #[inline(never)]
    fn begin_other(&'static self, control: Control, amounts: &Amounts) -> u64 {
        // A follower's point has no tuples of its own: the leader's point has them.
        by_leader!(begin(self.itself(), SCOPE, Some(amounts)));
        if let Some(tuple) = self.add(amounts) {
            return guard::begin(tuple, control);
        }
        let tag = guard::begin(&self.point, control);
        match current::thread() {
            Some(thread) if tag != 0 => thread.keep_amounts(tag, amounts),
            _ => tag,
        }
    }

    /// [`Self::find`] for amounts that are 0 from the third on. It uses two iterators instead of
    /// one over both, so that the compiler finds the point's address by additions, without a
    /// multiplication.
    #[inline(always)]
    fn find_two(&'static self, a: u64, b: u64) -> Option<&'static Point> {
        let mut tuples = self.tuples.iter();
        for pair in &self.pairs {
            let tuple = tuples.next();
            // Pairs with the store of the first amount in `add_under_lease`, which makes the second
            // amount and the point visible.
            if pair[0].load(Acquire) == a && pair[1].load(Relaxed) == b {
                return tuple.filter(|_| a != NONE);
            }
        }
        None
    }

    /// The point of these amounts, if it is known.
    #[inline(always)]
    pub(crate) fn find(&'static self, amounts: &Amounts) -> Option<&'static Point> {
        // Pairs with the store in `add_under_lease`, which makes the amounts of these tuples and
        // their points visible.
        let known = self.known.load(Acquire);
        let mut tuples = self.tuples.iter();
        for (place, words) in self.amounts.iter().enumerate() {
            let tuple = tuples.next();
            let is_it = (0..MAX_AMOUNTS).all(|at| words[at].load(Relaxed) == amounts[at]);
            if is_it && known & 1 << place != 0 {
                return tuple;
            }
        }
        None
    }

    /// The point of these amounts, which is added if there is room. `None` if the amounts have no
    /// tuple, so that they count for the metered point itself.
    pub(crate) fn tuple(&'static self, amounts: &Amounts) -> Option<&'static Point> {
        self.find(amounts).or_else(|| self.add(amounts))
    }

    #[inline]
    fn add(&'static self, amounts: &Amounts) -> Option<&'static Point> {
        match self.taken.load(Relaxed) < TUPLES as u32 {
            true => self.add_slowly(amounts),
            false => None,
        }
    }

    #[cold]
    #[inline(never)]
    fn add_slowly(&'static self, amounts: &Amounts) -> Option<&'static Point> {
        if !room::has_room() || !self.itself().is_on() {
            return None;
        }
        cold::section(|| self.add_under_lease(amounts))
    }

    #[inline(never)]
    fn add_under_lease(&'static self, amounts: &Amounts) -> Option<&'static Point> {
        let _lease = self.adding.acquire().ok()?;
        if let Some(tuple) = self.find(amounts) {
            return Some(tuple);
        }
        let more = |taken| (taken < TUPLES as u32).then_some(taken + 1);
        let place = self.taken.fetch_update(Relaxed, Relaxed, more).ok()?;
        let words = &self.amounts[place as usize];
        words.iter().zip(amounts).for_each(|(word, amount)| word.store(*amount, Relaxed));
        let tuple = &self.tuples[place as usize];
        if !process::current().is_some_and(|process| tuple.register_in_section(process)) {
            // Release the slot, unless another thread has taken the next one.
            let _ = self.taken.compare_exchange(place + 1, place, Relaxed, Relaxed);
            return None;
        }
        // If the tuple has no number, it was refused, because the table is full.
        tuple.number()?;
        // Pairs with the loads in `find` and `find_two`.
        self.known.fetch_or(1 << place, Release);
        if let [a, b, 0, 0] = *amounts {
            let pair = &self.pairs[place as usize];
            pair[1].store(b, Relaxed);
            pair[0].store(a, Release);
        }
        Some(tuple)
    }

    /// Enters a tuple into the process's table, after its metered point.
    pub(crate) fn enter_tuple(
        &'static self,
        process: &'static Process,
        place: usize,
    ) -> Result<&'static AtomicU64, NotEntered> {
        let of = self.point.number().ok_or(NotEntered::NoPlace)? as usize;
        let mut text = AmountList::new();
        let words = &self.amounts[place][..self.names.len()];
        words.iter().for_each(|word| text.list(word.load(Relaxed)));
        process.enter_tuple(&self.tuples[place], of, text.as_str())
    }

    /// The names of the amounts, in the format of the table.
    pub(crate) fn listed_names(&self) -> AmountList {
        let mut text = AmountList::new();
        for name in self.names {
            let mut end = name.len().min(LONGEST_NAME);
            while !name.is_char_boundary(end) {
                end -= 1;
            }
            text.list("");
            // A comma separates names here, and `=` is a separator in exports, so both are
            // replaced.
            let is_free = |letter| !matches!(letter, ',' | '=');
            let letters = name[..end].chars().map(|it| if is_free(it) { it } else { '_' });
            letters.for_each(|letter| _ = text.write_char(letter));
        }
        text
    }

    /// The points of the tuples, with their amounts.
    fn known_tuples(&'static self) -> impl Iterator<Item = (&'static Point, Amounts)> {
        // Pairs with the store in `add_under_lease`.
        let known = self.known.load(Acquire);
        let tuples = self.tuples.iter().zip(&self.amounts).enumerate();
        tuples
            .filter(move |(place, _)| known & 1 << place != 0)
            .map(|(_, (tuple, words))| (tuple, words.each_ref().map(|word| word.load(Relaxed))))
    }

    pub(crate) fn stats_with(&'static self, histogram: Histogram) -> Option<Stats> {
        let tuples = self.known_tuples().map(|(tuple, _)| tuple);
        let points = tuples.chain(std::iter::once(&self.point));
        let (stats, _) = figures::of_points(self.point.word()?, points, histogram)?;
        (stats.count > 0).then_some(stats)
    }

    /// The sums of each amount over all regions, or nothing if memory runs out; see
    /// [`Self::amounts`].
    pub(crate) fn sums(&'static self) -> Vec<(&'static str, u128)> {
        heap::collect(self.names.iter().copied().zip(self.sums_in_order())).unwrap_or_default()
    }

    /// [`Self::sums`] in the order of the names.
    pub(crate) fn sums_in_order(&'static self) -> [u128; MAX_AMOUNTS] {
        by_leader!(sums(self.itself()));
        let Some(word) = self.point.word() else { return [0; MAX_AMOUNTS] };
        let of = |point| {
            figures::of_points(word, std::iter::once(point), Histogram::LeftOut).unwrap_or_default()
        };
        let (_, mut sums) = of(&self.point);
        for (tuple, amounts) in self.known_tuples() {
            let count = u128::from(of(tuple).0.count);
            sums.iter_mut().zip(amounts).for_each(|(sum, each)| *sum += u128::from(each) * count);
        }
        sums
    }
}

/// A list of bounded length, for code that must not allocate.
pub(crate) struct AmountList {
    bytes: [u8; MAX_AMOUNTS * (LONGEST_NAME + 1)],
    len: usize,
}

impl AmountList {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; MAX_AMOUNTS * (LONGEST_NAME + 1)], len: 0 }
    }

    /// Adds an item to the list.
    fn list(&mut self, item: impl Display) {
        let comma = if self.len > 0 { "," } else { "" };
        let _ = write!(self, "{comma}{item}");
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

impl Write for AmountList {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.len..self.len + text.len()).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

impl Point {
    /// The metered point whose first field this is.
    pub(crate) fn metered(&'static self) -> Option<&'static MeteredPoint> {
        // SAFETY: only `MeteredPoint::of` makes points with this mark, and it stores them at this
        // offset in a `MeteredPoint`.
        self.has_amounts().then(|| unsafe { self.container(0) })
    }

    /// The metered point to which this tuple belongs, and the tuple's index there.
    pub(crate) fn tuple_of(&'static self) -> Option<(&'static MeteredPoint, usize)> {
        let Name::Tuple(place) = self.state.name else { return None };
        let place = usize::from(place);
        let offset = offset_of!(MeteredPoint, tuples) + place * size_of::<Self>();
        // SAFETY: only `MeteredPoint::of` makes points with this mark, and it stores them at this
        // offset in a `MeteredPoint`.
        Some((unsafe { self.container(offset) }, place))
    }

    /// # Safety
    ///
    /// The point is a field of a static [`MeteredPoint`], `offset` bytes behind its start.
    unsafe fn container(&'static self, offset: usize) -> &'static MeteredPoint {
        // A reference to a field does not reach beyond the field, so this code uses the address
        // that `MeteredPoint::itself` has exposed.
        let start = (&raw const *self).addr() - offset;
        // SAFETY: by the caller's promise, a static `MeteredPoint` starts at this address.
        unsafe { &*ptr::with_exposed_provenance::<MeteredPoint>(start) }
    }
}
