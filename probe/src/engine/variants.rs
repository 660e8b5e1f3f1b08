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

mod measuring;

use std::fmt::{self, Write};
use std::ptr;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use pfp_shm_layout::amounts::{Amounts, MAX_AMOUNTS, VARIANTS};

use super::process::Process;
use super::process::entries::NotEntered;
use super::state::{Kind, Name};
use super::turn::Turn;
use crate::point::Point;

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
    /// The whole. It measures nothing by itself. First, as C's inline functions
    /// expect it.
    point: Point,
    names: &'static [&'static str],
    /// What the variants' regions have; [`NONE`] first while there is no such
    /// variant.
    keys: [[AtomicU64; MAX_AMOUNTS]; VARIANTS],
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

impl MeteredPoint {
    /// A point with these names of amounts.
    pub(crate) const fn of(point: Point, names: &'static [&'static str]) -> Self {
        assert!(!names.is_empty() && names.len() <= MAX_AMOUNTS, "a point has one to four amounts");
        Self {
            point: point.of_amounts(),
            names,
            keys: [const { [const { AtomicU64::new(NONE) }; MAX_AMOUNTS] }; VARIANTS],
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
            if is_first && (1..MAX_AMOUNTS).all(|at| key[at].load(Relaxed) == amounts[at]) {
                // An amount as large as the value for "none".
                return (amounts[0] != NONE).then_some(point);
            }
        }
        None
    }

    /// [`Self::find`] for amounts that are 0 from the third on. With two iterators instead of one over
    /// pairs, the point's place is a sum instead of a product.
    #[inline(always)]
    fn find_two(&'static self, a: u64, b: u64) -> Option<&'static Point> {
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

    /// The names of the amounts.
    pub(crate) fn names(&self) -> &'static [&'static str] {
        self.names
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
        // Meets `Point::metered`.
        let _ = (&raw const *self).expose_provenance();
        &self.point
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
    bytes: [u8; MAX_AMOUNTS * (LONGEST_NAME + 22)],
    len: usize,
}

impl Description {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; MAX_AMOUNTS * (LONGEST_NAME + 22)], len: 0 }
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

impl Point {
    /// Says of what it is a variant, before it is registered.
    pub(crate) fn belong_to(&self, metered: &'static MeteredPoint) {
        if let Name::Variant(of, _) = &self.state.name {
            of.store(ptr::from_ref(metered).cast_mut().cast(), Release);
        }
    }

    /// The point with amounts that this is the whole of.
    pub(crate) fn metered(&'static self) -> Option<&'static MeteredPoint> {
        // A reference to the part is none to the whole: that was exposed in
        // `MeteredPoint::point`.
        let metered = ptr::with_exposed_provenance::<MeteredPoint>((&raw const *self).addr());
        // SAFETY: such a point is the first field of a `MeteredPoint`, which is a static as
        // this is, and `repr(C)`.
        self.has_amounts().then(|| unsafe { &*metered })
    }
}

/// What kind of point this is, for what has to treat variants by themselves.
pub(crate) fn variant_of(point: &Point) -> Option<(&'static MeteredPoint, usize)> {
    match point.kind() {
        Kind::Plain => None,
        Kind::Variant { of, place } => {
            // SAFETY: null, or a static that the point is in.
            let of = unsafe { of.load(Acquire).cast::<MeteredPoint>().as_ref() }?;
            Some((of, usize::from(place)))
        }
    }
}

/// Enters a variant into the process's table, after its whole.
pub(crate) fn enter(
    process: &'static Process,
    point: &Point,
) -> Result<&'static AtomicU64, NotEntered> {
    let (metered, place) = variant_of(point).ok_or(NotEntered::NoPlace)?;
    let of = metered.point().number().ok_or(NotEntered::NoPlace)? as usize;
    let mut amounts = Description::new();
    metered.describe(place, &mut amounts);
    process.enter_variant(point, of, amounts.as_str())
}
