//! Measuring regions with amounts.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};

use pfp_shm_layout::amounts::{Amounts, MAX_AMOUNTS};
use pfp_shm_layout::control::Control;
use pfp_shm_layout::heap;

use super::{MeteredPoint, NONE, REST, bit};
use crate::engine::copies::by_leader;
use crate::engine::figures::{self, Histogram};
use crate::engine::guard::Guard;
use crate::engine::measure::{self, SCOPE};
use crate::engine::process::{self, entries::miss_unregistered};
use crate::engine::room;
use crate::engine::turn::Denied;
use crate::engine::{cold, copies, current};
use crate::{Point, Stats};

impl MeteredPoint {
    /// Begins a region with amounts, if the point is on.
    #[inline(always)]
    pub(crate) fn begin_with(&'static self, amounts: Amounts) -> Guard {
        let control = self.point.control();
        Guard::of(match amounts {
            _ if !control.enabled() => 0,
            [a, b, 0, 0] => self.begin_two(control, a, b),
            amounts => self.begin_four(control, amounts),
        })
    }

    /// Begins a region of a point that is on, with one amount or two: those stay in
    /// registers.
    #[inline(never)]
    fn begin_two(&'static self, control: Control, a: u64, b: u64) -> u64 {
        match self.find_two(a, b) {
            Some(variant) => measure::begin::<SCOPE>(variant, control),
            None => self.begin_other(control, &[a, b, 0, 0]),
        }
    }

    /// Begins a region of a point that is on, with up to four amounts.
    #[inline(never)]
    fn begin_four(&'static self, control: Control, amounts: Amounts) -> u64 {
        match self.find(&amounts) {
            Some(variant) => measure::begin::<SCOPE>(variant, control),
            None => self.begin_other(control, &amounts),
        }
    }

    /// Begins a region whose amounts have no variant so far.
    #[inline(never)]
    fn begin_other(&'static self, control: Control, amounts: &Amounts) -> u64 {
        let rest = self.rest().map(|rest| (rest, true));
        let Some((point, is_rest)) = rest.or_else(|| self.choose_new(amounts)) else {
            let leader = copies::followed();
            return leader.map_or(0, |leader| leader.begin(self.whole(), SCOPE, Some(amounts)));
        };
        let tag = measure::begin::<SCOPE>(point, control);
        match current::thread() {
            Some(thread) if is_rest && tag != 0 => thread.keep_amounts(tag, amounts),
            _ => tag,
        }
    }

    /// The point that a region with these amounts is of, and whether it is the rest's;
    /// none if this is off, or it cannot be had now.
    pub(crate) fn choose(&'static self, amounts: &Amounts) -> Option<(&'static Point, bool)> {
        if !self.point.control().enabled() {
            return None;
        }
        self.known(amounts).or_else(|| self.choose_new(amounts))
    }

    /// As [`Self::choose`], for a region that has begun while this was on.
    pub(crate) fn choose_for_good(
        &'static self,
        amounts: &Amounts,
    ) -> Option<(&'static Point, bool)> {
        self.known(amounts).or_else(|| self.make(amounts))
    }

    #[cold]
    #[inline(never)]
    fn choose_new(&'static self, amounts: &Amounts) -> Option<(&'static Point, bool)> {
        if copies::followed().is_some() {
            return None;
        }
        if room::has_room() {
            return self.choose_slowly(amounts);
        }
        process::miss();
        None
    }

    #[inline(never)]
    fn choose_slowly(&'static self, amounts: &Amounts) -> Option<(&'static Point, bool)> {
        if !self.point.register() {
            miss_unregistered(&self.point);
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

    pub(crate) fn stats_with(&'static self, histogram: Histogram) -> Option<Stats> {
        let points = self.parts().map(|(_, point)| point);
        let (stats, _) = figures::of_points(self.point.word()?, points, histogram)?;
        (stats.count > 0).then_some(stats)
    }

    /// What all regions had of each amount, or nothing if memory runs out; see [`Self::amounts`].
    pub(crate) fn sums(&'static self) -> Vec<(&'static str, u128)> {
        heap::collect(self.names.iter().copied().zip(self.sums_in_order())).unwrap_or_default()
    }

    /// [`Self::sums`] in the order of the names.
    pub(crate) fn sums_in_order(&'static self) -> [u128; MAX_AMOUNTS] {
        by_leader!(sums(self.whole()));
        let mut sums = [0_u128; MAX_AMOUNTS];
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
        sums
    }
}
