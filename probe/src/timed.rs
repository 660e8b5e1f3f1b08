//! Points whose regions carry amounts: bytes, operations, items.
//!
//! A tuple of amounts has a point of its own, a *variant*, with its own number and
//! cells, which follows the control word of the whole; so a region with amounts is a
//! region of one of up to nine points, and what it costs more is to find which. The
//! amounts of each variant lie side by side, unwritten once they are there, and are
//! compared one after the other: a loop that a branch predictor knows is cheaper than
//! any index that waits for a hash, and threads that have different amounts do not
//! fight for what would remember the last.
//!
//! All of it is in the point's own static, so nothing is allocated when a variant is
//! met for the first time, in a signal handler, say.

use std::fmt::{self, Write};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use pfp_shm_layout::amounts::{Amounts, MOST, VARIANTS};
use pfp_shm_layout::control::Control;

use crate::amount::in_order;
use crate::engine::cold;
use crate::engine::figures::{self, Histogram};
use crate::engine::guard::Guard;
use crate::engine::point::Kind;
use crate::engine::process::{self, NotEntered};
use crate::engine::turn::{Denied, Turn};
use crate::{Amount, Point, Stats};

/// In place of a first amount: this variant is not there yet.
const NONE: u64 = u64::MAX;
/// Place of the point of all amounts that have no variant.
pub(crate) const REST: usize = VARIANTS;
/// Bytes of a name of an amount that are kept.
const LONGEST_NAME: usize = 32;

/// A point whose regions carry amounts: how much they did, beside how long it took.
///
/// The viewer shows what they come to in a second, of CPU time and of the clock's.
/// Measurements of different amounts are told apart, up to eight different tuples
/// of a point; all others are summed as the rest. Switching the point on and off,
/// resetting and averaging it are of all of them.
///
/// [`crate::scope!`] makes one at the place where it stands.
///
/// ```
/// static TRIAD: pfp::Timed = pfp::Timed::new("triad", &["bytes", "flops"]);
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
pub struct Timed {
    /// The whole. It measures nothing by itself. First, as C's inline functions
    /// expect it.
    point: Point,
    names: &'static [&'static str],
    /// What the variants' regions have; [`NONE`] first while there is no such
    /// variant.
    keys: [[AtomicU64; MOST]; VARIANTS],
    /// The first two of those if the others are 0, [`NONE`] first otherwise: of regions
    /// that have no more, so that there is half as much to compare.
    pairs: [[AtomicU64; 2]; VARIANTS],
    /// The [`bit`] of each of those. Once there is a rest, most of its regions have
    /// another one and nothing to compare.
    bits: AtomicU64,
    /// 1 once the rest has its point.
    has_rest: AtomicU32,
    /// 0, or the thread that makes a variant.
    making: Turn,
    /// Places that threads took for variants.
    taken: AtomicU32,
    /// The places, as bits, whose amounts are there for good: in `first`, and in `keys` after
    /// the first.
    settled: AtomicU32,
    /// The first amounts of variants, before they are published in `keys`.
    first: [AtomicU64; VARIANTS],
    points: [Point; VARIANTS + 1],
}

impl Timed {
    /// A point with these names of amounts.
    pub(crate) const fn of(point: Point, names: &'static [&'static str]) -> Self {
        assert!(!names.is_empty() && names.len() <= MOST, "a point has one to four amounts");
        Self {
            point: point.of_amounts(),
            names,
            keys: [const { [const { AtomicU64::new(NONE) }; MOST] }; VARIANTS],
            pairs: [const { [const { AtomicU64::new(NONE) }; 2] }; VARIANTS],
            bits: AtomicU64::new(0),
            has_rest: AtomicU32::new(0),
            making: Turn::new(),
            taken: AtomicU32::new(0),
            settled: AtomicU32::new(0),
            first: [const { AtomicU64::new(0) }; VARIANTS],
            points: [
                Point::variant(0),
                Point::variant(1),
                Point::variant(2),
                Point::variant(3),
                Point::variant(4),
                Point::variant(5),
                Point::variant(6),
                Point::variant(7),
                Point::variant(REST as u8),
            ],
        }
    }

    /// The point, switched off from the start.
    pub(crate) const fn switched_off(mut self) -> Self {
        self.point = self.point.starts_off();
        self
    }

    /// Measures until a guard, which has no region yet, is dropped: one that is filled
    /// where it stays need not be copied, which would wait for the counter.
    #[doc(hidden)]
    #[inline(always)]
    pub fn measure_in<A: Amount, const N: usize>(
        &'static self,
        amounts: [A; N],
        guard: &mut TimedGuard,
    ) {
        let control = self.point.control();
        if control.enabled() {
            let amounts = in_order(amounts);
            if N <= 2 {
                self.begin_two(control, guard, amounts[0], amounts[1]);
            } else {
                self.begin_four(control, guard, amounts);
            }
        }
    }

    /// Begins a region in a guard that has its amounts, if the point is on.
    ///
    /// Word by word, as they were written a moment ago: wider reads would wait until that
    /// has reached the cache.
    #[inline(always)]
    pub(crate) fn begin_with(&'static self, guard: &mut TimedGuard) {
        let control = self.point.control();
        if control.enabled() {
            // SAFETY: the caller has filled them.
            let &[a, b, c, d] = unsafe { guard.amounts.assume_init_ref() };
            if c == 0 && d == 0 {
                self.begin_on(control, guard, [a, b, 0, 0], Self::find_two);
            } else {
                self.begin_four(control, guard, [a, b, c, d]);
            }
        }
    }

    /// Begins a region of a point that is on, with one amount or two: those stay in
    /// registers.
    #[inline(never)]
    fn begin_two(&'static self, control: Control, guard: &mut TimedGuard, a: u64, b: u64) {
        self.begin_on(control, guard, [a, b, 0, 0], Self::find_two);
    }

    /// The same with more.
    #[inline(never)]
    fn begin_four(&'static self, control: Control, guard: &mut TimedGuard, amounts: Amounts) {
        self.begin_on(control, guard, amounts, Self::find);
    }

    #[inline(always)]
    fn begin_on(
        &'static self,
        control: Control,
        guard: &mut TimedGuard,
        amounts: Amounts,
        find: impl FnOnce(&'static Self, &Amounts) -> Option<&'static Point>,
    ) {
        let point = if let Some(point) = find(self, &amounts) {
            guard.is_rest.write(0);
            point
        } else {
            guard.amounts.write(amounts);
            guard.is_rest.write(1);
            let Some(rest) = self.rest() else { return self.begin_new(control, guard) };
            rest
        };
        Guard::begin_in_place(point, control, &mut guard.guard);
    }

    /// Begins a region whose amounts, which the guard has, were not met before.
    #[cold]
    #[inline(never)]
    fn begin_new(&'static self, control: Control, guard: &mut TimedGuard) {
        // SAFETY: the caller has filled them.
        let amounts = unsafe { guard.amounts.assume_init_ref() };
        let Some((point, is_rest)) = self.choose_new(amounts) else { return };
        guard.is_rest.write(u64::from(is_rest));
        Guard::begin_in_place(point, control, &mut guard.guard);
    }

    /// The point that a region with these amounts is of, and whether it is the rest's;
    /// none if this is off, or it cannot be had now.
    pub(crate) fn choose(&'static self, amounts: &Amounts) -> Option<(&'static Point, bool)> {
        if !self.point.control().enabled() {
            return None;
        }
        self.known(amounts).or_else(|| self.choose_new(amounts))
    }

    /// The same of a region that has begun, while this was on.
    pub(crate) fn choose_for_good(
        &'static self,
        amounts: &Amounts,
    ) -> Option<(&'static Point, bool)> {
        self.known(amounts).or_else(|| self.make(amounts))
    }

    /// The same if it is there already.
    #[inline(always)]
    pub(crate) fn known(&'static self, amounts: &Amounts) -> Option<(&'static Point, bool)> {
        match self.find(amounts) {
            Some(point) => Some((point, false)),
            None => Some((self.rest()?, true)),
        }
    }

    /// The point of all amounts that have no variant, if there are any.
    #[inline(always)]
    fn rest(&'static self) -> Option<&'static Point> {
        // Meets the store in `enter_rest`.
        (self.has_rest.load(Acquire) != 0).then(|| &self.points[REST])
    }

    /// The point of the variant with these amounts, if there is one.
    #[inline(always)]
    fn find(&'static self, amounts: &Amounts) -> Option<&'static Point> {
        for (key, point) in self.keys.iter().zip(&self.points) {
            // Meets the store in `enter_variant`: the rest of the key, and the point.
            let is_first = key[0].load(Acquire) == amounts[0];
            if is_first && (1..MOST).all(|at| key[at].load(Relaxed) == amounts[at]) {
                // What is as large as what stands for none.
                return (amounts[0] != NONE).then_some(point);
            }
        }
        None
    }

    /// The same of amounts of which only the first two are not 0. With two iterators, not
    /// one of both: the place of the point is then a sum, not a product.
    #[inline(always)]
    fn find_two(&'static self, &[a, b, ..]: &Amounts) -> Option<&'static Point> {
        // Where there is a rest all variants are made, and their bits are there.
        if self.rest().is_some() && self.bits.load(Relaxed) & bit(a, b) == 0 {
            return None;
        }
        let mut points = self.points.iter();
        for pair in &self.pairs {
            let point = points.next();
            // Meets the store in `enter_variant`, as above.
            if pair[0].load(Acquire) == a && pair[1].load(Relaxed) == b {
                return point.filter(|_| a != NONE);
            }
        }
        None
    }

    #[cold]
    #[inline(never)]
    fn choose_new(&'static self, amounts: &Amounts) -> Option<(&'static Point, bool)> {
        if !self.point.register() {
            process::miss_unregistered(&self.point);
            return None;
        }
        // Read once: a viewer may switch the point off this very moment.
        let on = |word: &AtomicU64| Control(word.load(Relaxed)).enabled();
        if !self.point.word().is_some_and(on) {
            return None;
        }
        let made = self.make(amounts);
        if made.is_none() {
            process::miss();
        }
        made
    }

    /// The point of the variant with these amounts, made if there is room for it, or of
    /// the rest; none if that cannot be done now.
    #[cold]
    #[inline(never)]
    fn make(&'static self, amounts: &Amounts) -> Option<(&'static Point, bool)> {
        // More than is kept as a key is not told apart from the most.
        let mut amounts = *amounts;
        amounts[0] = amounts[0].min(NONE - 1);
        let place = self.make_in_turn(&amounts)?;
        Some((&self.points[place], place == REST))
    }

    fn make_in_turn(&'static self, amounts: &Amounts) -> Option<usize> {
        cold::section(|| {
            // A thread that has waited enough makes the variant too, in the same place.
            let _turn = match self.making.take() {
                Ok(turn) => Some(turn),
                Err(Denied::Others) => None,
                Err(Denied::Own | Denied::Done) => return None,
            };
            match self.settle(amounts) {
                Some(place) => self.enter_variant(place, amounts).then_some(place),
                None => self.enter_rest().then_some(REST),
            }
        })
    }

    /// The place of the variant with these amounts; none if there is no room for it.
    fn settle(&'static self, amounts: &Amounts) -> Option<usize> {
        let mut mine = None;
        loop {
            // Meets the exchange below: the amounts of these places.
            let settled = self.settled.load(Acquire);
            let of_others = (0..VARIANTS)
                .find(|&place| settled & 1 << place != 0 && self.amounts_at(place) == *amounts);
            if let Some(place) = of_others {
                if let Some(mine) = mine {
                    self.give_back(mine);
                }
                return Some(place);
            }
            let place = mine.or_else(|| self.take_place(amounts))?;
            mine = Some(place);
            let with_mine = settled | 1 << place;
            // Meets the load above.
            if self.settled.compare_exchange(settled, with_mine, Release, Relaxed).is_ok() {
                return mine;
            }
        }
    }

    fn amounts_at(&self, place: usize) -> Amounts {
        std::array::from_fn(|at| match at {
            0 => self.first[place].load(Relaxed),
            _ => self.keys[place][at].load(Relaxed),
        })
    }

    /// Takes a place, which no other thread has, and leaves the amounts there.
    fn take_place(&'static self, amounts: &Amounts) -> Option<usize> {
        let more = |taken| (taken < VARIANTS as u32).then_some(taken + 1);
        let place = self.taken.fetch_update(Relaxed, Relaxed, more).ok()? as usize;
        self.first[place].store(amounts[0], Relaxed);
        let key = &self.keys[place];
        key.iter().zip(amounts).skip(1).for_each(|(key, amount)| key.store(*amount, Relaxed));
        Some(place)
    }

    /// Gives back a place that was not settled; it is lost if another thread has taken the next.
    fn give_back(&self, place: usize) {
        let here = place as u32;
        let _ = self.taken.compare_exchange(here + 1, here, Relaxed, Relaxed);
    }

    /// Enters the variant of a settled place, and publishes its amounts. More than one thread may
    /// do so at once; false if it cannot be done now.
    fn enter_variant(&'static self, place: usize, amounts: &Amounts) -> bool {
        let (key, point) = (&self.keys[place], &self.points[place]);
        point.belong_to(self);
        // Refused: there is no room in the table, neither for others.
        if !point.register() || point.number().is_none() {
            return false;
        }
        // Meets the load in `find`.
        key[0].store(amounts[0], Release);
        if amounts[2..].iter().all(|&amount| amount == 0) {
            let pair = &self.pairs[place];
            self.bits.fetch_or(bit(amounts[0], amounts[1]), Relaxed);
            pair[1].store(amounts[1], Relaxed);
            // Meets the load in `find_two`.
            pair[0].store(amounts[0], Release);
        }
        true
    }

    /// Enters the rest; false if that cannot be done now.
    fn enter_rest(&'static self) -> bool {
        let rest = &self.points[REST];
        rest.belong_to(self);
        if !rest.register() || rest.number().is_none() {
            return false;
        }
        // Meets the load in `rest`: the point is registered.
        self.has_rest.store(1, Release);
        true
    }

    /// Says in the table's words what the regions of a variant have.
    pub(crate) fn describe(&self, place: usize, to: &mut Description) {
        for (at, name) in self.names.iter().enumerate() {
            if at > 0 {
                let _ = to.write_char(',');
            }
            let mut end = name.len().min(LONGEST_NAME);
            while !name.is_char_boundary(end) {
                end -= 1;
            }
            for letter in name[..end].chars() {
                // What separates.
                let _ = to.write_char(if matches!(letter, ',' | '=') { '_' } else { letter });
            }
            if place < REST {
                let word = if at == 0 { &self.first[place] } else { &self.keys[place][at] };
                let _ = write!(to, "={}", word.load(Relaxed));
            }
        }
    }

    /// The points of the variants, the rest last, as far as they measure.
    fn parts(&'static self) -> impl Iterator<Item = (usize, &'static Point)> {
        let is_there = move |place: usize| match self.keys.get(place) {
            Some(key) => key[0].load(Acquire) != NONE,
            None => self.has_rest.load(Acquire) != 0,
        };
        self.points.iter().enumerate().filter(move |(place, _)| is_there(*place))
    }

    /// The point that comes first.
    pub(crate) fn whole(&'static self) -> &'static Point {
        // Meets `Point::timed`.
        let _ = (&raw const *self).expose_provenance();
        &self.point
    }

    pub(crate) fn stats_with(&'static self, histogram: Histogram) -> Option<Stats> {
        let points = self.parts().map(|(_, point)| point);
        let (stats, _) = figures::of_points(self.point.word()?, points, histogram)?;
        (stats.count > 0).then_some(stats)
    }

    /// What all regions had of each amount; see [`Self::amounts`].
    pub(crate) fn sums(&'static self) -> Vec<(&'static str, u128)> {
        let mut sums = [0_u128; MOST];
        let word = self.point.word();
        for (place, point) in self.parts() {
            let one = std::iter::once(point);
            let found = word.and_then(|word| figures::of_points(word, one, Histogram::LeftOut));
            let Some((stats, rest)) = found else { continue };
            for (at, sum) in sums.iter_mut().enumerate() {
                *sum += match self.keys.get(place) {
                    Some(key) => u128::from(key[at].load(Relaxed)) * u128::from(stats.count),
                    None => rest[at],
                };
            }
        }
        self.names.iter().copied().zip(sums).collect()
    }
}

/// A bit for two amounts; others may have the same. The multiplier is 2^64 divided by the
/// golden ratio (Knuth, The Art of Computer Programming, volume 3, 6.4).
#[inline(always)]
fn bit(a: u64, b: u64) -> u64 {
    1 << (a.wrapping_add(b.wrapping_mul(2)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58)
}

/// A text of bounded length: what a variant's regions have. It is written where
/// nothing may be allocated.
pub(crate) struct Description {
    bytes: [u8; MOST * (LONGEST_NAME + 22)],
    len: usize,
}

impl Description {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; MOST * (LONGEST_NAME + 22)], len: 0 }
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

impl Write for Description {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.len..self.len + text.len()).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

/// Measures a region with amounts until it is dropped; see [`Timed::measure`].
///
/// It belongs to its thread: it cannot be sent to another one.
#[must_use = "a guard that is not bound to a name ends its region at once"]
#[derive(Debug)]
#[repr(C)]
pub struct TimedGuard {
    /// Always defined, and not dropped by itself. First, as C's inline functions
    /// expect it.
    guard: MaybeUninit<Guard>,
    /// Whether the region is one of the rest. Defined if the region is measured.
    is_rest: MaybeUninit<u64>,
    /// Defined if the region is one of the rest.
    amounts: MaybeUninit<Amounts>,
    thread_bound: PhantomData<*const ()>,
}

impl TimedGuard {
    /// A guard that has no region, for the macros.
    #[doc(hidden)]
    #[inline(always)]
    pub fn empty() -> Self {
        Self {
            guard: MaybeUninit::new(Guard::empty()),
            is_rest: MaybeUninit::uninit(),
            amounts: MaybeUninit::uninit(),
            thread_bound: PhantomData,
        }
    }
}

impl Drop for TimedGuard {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: defined from the start.
        let guard = unsafe { self.guard.assume_init_mut() };
        if guard.place() == 0 {
            return;
        }
        // SAFETY: defined with a tag other than 0.
        if unsafe { self.is_rest.assume_init() } == 0 {
            guard.end_on();
        } else {
            // SAFETY: as above.
            guard.end_rest(unsafe { self.amounts.assume_init_ref() });
        }
    }
}

/// What kind of point this is, for what has to treat variants by themselves.
pub(crate) fn variant_of(point: &Point) -> Option<(&'static Timed, usize)> {
    match point.kind() {
        Kind::Plain => None,
        Kind::Variant { of, place } => {
            // SAFETY: null, or a static that the point is in.
            let of = unsafe { of.load(Acquire).as_ref() }?;
            Some((of, usize::from(place)))
        }
    }
}

/// Enters a variant into the process's table, after its whole.
pub(crate) fn enter(
    process: &'static process::Process,
    point: &Point,
) -> Result<&'static AtomicU64, NotEntered> {
    let (timed, place) = variant_of(point).ok_or(NotEntered::NoPlace)?;
    let of = timed.point().number().ok_or(NotEntered::NoPlace)? as usize;
    let mut amounts = Description::new();
    timed.describe(place, &mut amounts);
    process.enter_variant(point, of, amounts.as_str())
}
