//! How the process that made a segment takes space in it: blocks, points, switches, texts, lanes.
//!
//! The process counts in private memory ([`Used`]) what it has taken, and publishes the counts for
//! readers. Points, switches and lanes are backed before they are counted; blocks and texts are
//! counted first.

use crate::discovery::object::NoSpace;
use crate::layout::geometry::{BLOCK, CONTROL_WORDS};
use crate::layout::lane::Lane;
use crate::layout::point::{PointEntry, Text};
use crate::layout::segment::Segment;
use crate::layout::switch;
use crate::layout::used::Used;
use crate::sync::{AtomicU64, Ordering, fence};

impl Segment {
    /// Takes `count` blocks in a row, backed by memory and zeroed.
    ///
    /// # Errors
    ///
    /// The pool or the memory is used up.
    pub fn take_blocks(&self, count: u64) -> Result<u64, NoSpace> {
        let block = self.reserve_blocks(count)?;
        let offset = self.block_offset(block).ok_or_else(|| self.refuse_space())?;
        self.back_or_count(offset, count as usize * BLOCK)?;
        Ok(block)
    }

    /// Takes blocks without backing them: the caller [backs](Self::back) each page before it
    /// touches or announces it.
    ///
    /// # Errors
    ///
    /// The pool is used up.
    pub fn reserve_blocks(&self, count: u64) -> Result<u64, NoSpace> {
        let taken = self.used.blocks.take(&self.counters().blocks_used, |used| {
            let next = used.max(1) + count;
            (next <= self.geometry.blocks() as u64).then_some(next)
        });
        Ok(taken.ok_or_else(|| self.refuse_space())?.max(1))
    }

    /// Backs a range as [`Self::back`], and counts a refusal.
    ///
    /// # Errors
    ///
    /// Memory runs out.
    pub fn back_or_count(&self, offset: usize, len: usize) -> Result<(), NoSpace> {
        self.back(offset, len).map_err(|NoSpace| self.refuse_space())
    }

    fn refuse_space(&self) -> NoSpace {
        self.counters().space_refused.fetch_add(1, Ordering::Relaxed);
        NoSpace
    }

    /// Enters a point into the table. `wanted` is the number of a point that chooses its own;
    /// another point gets the next free number from `first_free` on. Returns the number, or `None`
    /// if the table is full or memory runs out; either refusal is counted.
    pub fn enter_point(
        &self,
        wanted: Option<usize>,
        first_free: usize,
        name: &str,
        file: &str,
        line: u64,
    ) -> Option<usize> {
        let point = self.reserve_point(wanted, first_free)?;
        self.announce_point(point, name, file, line, "");
        Some(point)
    }

    /// Announces a point of a reserved number, unless it is announced already. The names of a
    /// metered point's amounts are in the format of [`crate::layout::point`].
    pub fn announce_point(&self, point: usize, name: &str, file: &str, line: u64, amounts: &str) {
        let Some(entry) = self.entry(point).filter(|entry| !entry.is_ready()) else { return };
        // A point without a name is better than none.
        let name = self.enter_text(name).unwrap_or_default();
        let file = self.enter_text(file).unwrap_or_default();
        if !amounts.is_empty() {
            entry.set_amounts(None, self.enter_text(amounts).unwrap_or_default());
        }
        entry.announce(name, file, line);
    }

    /// Announces a tuple of a metered point that is in the table, unless it is announced already.
    /// Its amounts are in the format of [`crate::layout::point`].
    pub fn announce_tuple(&self, tuple: usize, of: usize, amounts: &str) {
        let Some(entry) = self.entry(tuple).filter(|entry| !entry.is_ready()) else { return };
        let Some(known) = self.entry(of).and_then(PointEntry::read) else { return };
        entry.set_amounts(Some(of as u32), self.enter_text(amounts).unwrap_or_default());
        entry.announce(known.name, known.file, u64::from(known.line));
    }

    /// The number of the next point, which is at least `first_free`. If the table is full, the
    /// number is beyond the table.
    #[must_use]
    pub fn next_point(&self, first_free: usize) -> usize {
        next_point(self.used.points.get(), first_free)
    }

    /// Reserves a number in the table of points: the wanted one, or the next free one. Readers do
    /// not see the point until it is announced. `None` if the table is full or memory runs out.
    pub fn reserve_point(&self, wanted: Option<usize>, first_free: usize) -> Option<usize> {
        let counters = self.counters();
        let refuse = || {
            counters.points_refused.fetch_add(1, Ordering::Relaxed);
            None
        };
        loop {
            let before = self.used.points.get();
            let point = wanted.unwrap_or(next_point(before, first_free));
            if point >= self.geometry.points() {
                return refuse();
            }
            // Readers touch every entry that is counted as used, so its memory is backed first.
            let entry_at = self.geometry.table() + point * size_of::<PointEntry>();
            let control_at = self.geometry.control() + point * size_of::<AtomicU64>();
            let reset_at = self.geometry.reset_times() + point * size_of::<AtomicU64>();
            let back = |offset, len| self.back(offset, len);
            let Used { entries, controls, reset_times, .. } = &self.used;
            if entries.back(entry_at, size_of::<PointEntry>(), back).is_err()
                || controls.back(control_at, size_of::<AtomicU64>(), back).is_err()
                || reset_times.back(reset_at, size_of::<AtomicU64>(), back).is_err()
            {
                self.refuse_space();
                return None;
            }
            let is_taken = self.used.points.take(&counters.points_used, |used| {
                (used == before).then_some(before.max(point as u64 + 1))
            });
            if is_taken.is_some() {
                return Some(point);
            }
        }
    }

    /// Takes the next switch and backs its memory. `None` if all are taken or memory runs out.
    pub fn take_switch(&self) -> Option<&AtomicU64> {
        loop {
            let next = self.used.switches.get();
            let number = usize::try_from(next).ok()?;
            let switch = self.switch(number)?;
            // A thread that wakes the switches touches all that are counted as used, so the memory
            // of this one is backed before it is counted.
            self.back_or_count(self.offset_of(std::slice::from_ref(switch)), size_of_val(switch))
                .ok()?;
            let is_next = |used| (used == next).then_some(next + 1);
            if self.used.switches.take(&self.counters().switches_used, is_next).is_some() {
                return Some(switch);
            }
        }
    }

    /// Wakes the resting switches, after this process has switched one of its points on.
    pub fn wake(&self) {
        self.wake_first(self.used.switches.get());
    }

    /// Wakes the resting switches, after a viewer has switched a point on. The viewer takes the
    /// number of switches from the counters in the segment.
    pub fn wake_as_shown(&self) {
        self.wake_first(self.counters().switches_used.load(Ordering::Relaxed));
    }

    fn wake_first(&self, used: u64) {
        // Pairs with the exchange in `switch::rest`: either the thread that makes a switch rest
        // then sees that the point is on, or the loads below see that the switch rests.
        fence(Ordering::SeqCst);
        let used = usize::try_from(used).unwrap_or(usize::MAX).min(self.geometry.switches());
        (0..used).filter_map(|number| self.switch(number)).for_each(switch::wake);
    }

    /// Gives a point in the table another name. False if the table lacks the point, or the string
    /// space is full. Names stay in the string space, so the name that the point already has is not
    /// entered again.
    pub fn rename_point(&self, point: usize, name: &str) -> bool {
        let Some(entry) = self.entry(point) else { return false };
        let Some(known) = entry.read() else { return false };
        let Text { offset, len } = known.name;
        let is_same = self
            .text(offset as usize, len as usize)
            .is_some_and(|text| text.iter().map(|byte| byte.load(Ordering::Relaxed)).eq(cut(name)));
        if !is_same {
            let Some(text) = self.enter_text(name) else { return false };
            entry.rename(text);
        }
        true
    }

    /// Copies a text into the string space. `None` if it is full.
    pub fn enter_text(&self, text: &str) -> Option<Text> {
        let length = cut(text).count();
        let limit = self.geometry.string_bytes() as u64;
        let offset = self.used.strings.take(&self.counters().strings_used, |used| {
            let next = used + length as u64;
            (next <= limit).then_some(next)
        })?;
        let at = self.geometry.strings() + offset as usize;
        self.used.texts.back(at, length, |offset, len| self.back_or_count(offset, len)).ok()?;
        for (to, from) in self.text(offset as usize, length)?.iter().zip(cut(text)) {
            to.store(from, Ordering::Relaxed);
        }
        Some(Text { offset: offset as u32, len: length as u32 })
    }

    /// Points that are in use: one more than the highest number.
    #[must_use]
    pub fn points_used(&self) -> u64 {
        self.used.points.get()
    }

    /// Lanes that have ever been claimed: one more than the highest.
    #[must_use]
    pub fn lanes_used(&self) -> u64 {
        self.used.lanes.get()
    }

    /// Backs and returns a lane for its next owner.
    ///
    /// # Errors
    ///
    /// Memory runs out.
    pub fn back_lane(&self, lane: usize) -> Result<Option<&Lane>, NoSpace> {
        if lane > self.geometry.lanes() {
            return Ok(None);
        }
        self.back(self.geometry.directory() + lane * size_of::<Lane>(), size_of::<Lane>())?;
        // Readers touch every lane that is counted as used, so its memory is backed first.
        let counters = self.counters();
        if lane == self.geometry.lanes() {
            counters.overflow_used.store(1, Ordering::Release);
        } else {
            self.used.lanes.raise(&counters.lanes_used, lane as u64 + 1);
        }
        Ok(self.lane(lane))
    }
}

/// The number of the next point, if `used` are used. The last word of each page of control words is
/// a switch, so the number of that word is skipped.
fn next_point(used: u64, first_free: usize) -> usize {
    let next = (used as usize).max(first_free);
    next + usize::from(next % CONTROL_WORDS == CONTROL_WORDS - 1)
}

/// The bytes of a text that are stored. A long text is cut, so that it does not fill the string
/// space. A cut text ends with a hash of the whole text, so that two long names with the same
/// beginning stay different.
fn cut(text: &str) -> impl Iterator<Item = u8> {
    const MOST: usize = 1024;
    const DIGITS: u32 = 6;
    let is_long = text.len() > MOST;
    let mut end = if is_long { MOST - 1 - DIGITS as usize } else { text.len() };
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let hash = if is_long { fnv1a(text.as_bytes()) } else { 0 };
    let digits =
        (0..DIGITS).rev().map(move |at| b"0123456789abcdef"[(hash >> (4 * at) & 0xf) as usize]);
    let tail = is_long.then(|| std::iter::once(b'#').chain(digits));
    text[..end].bytes().chain(tail.into_iter().flatten())
}

/// The hash of Fowler, Noll and Vo, variant 1a.
fn fnv1a(bytes: &[u8]) -> u64 {
    let add = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, add)
}

// Segments of this size take too long under Miri.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::layout::geometry::{Config, PAGE};
    use crate::layout::header::Facts;

    /// Another process may write any number to the words that count what is used. That must not
    /// change where the process places the next things.
    #[test]
    fn words_for_readers_decide_nothing() {
        let config = Config { points: 1024, blocks: 100, ..Config::default() };
        for written in [0, 1, 64, 200, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let segment = Segment::in_private_memory(config, &Facts::default());
            let counters = segment.counters();
            let take = || {
                let point = segment.enter_point(None, 64, "name", "file", 1).unwrap();
                let text = segment.entry(point).unwrap().read().unwrap().name.offset;
                let lane = segment.back_lane(3).unwrap().is_some();
                (point, text, segment.reserve_blocks(4).unwrap(), lane, segment.lanes_used())
            };
            assert_eq!(take(), (64, 0, 1, true, 4));
            for word in [
                &counters.points_used,
                &counters.strings_used,
                &counters.lanes_used,
                &counters.blocks_used,
                &counters.switches_used,
            ] {
                word.store(written, Ordering::Relaxed);
            }
            assert_eq!(take(), (65, 8, 5, true, 4), "{written}");
            assert_eq!(segment.points_used(), 66);
            assert!(segment.take_switch().is_some());
            segment.wake();
            // Requests beyond the room are refused and counted.
            while segment.reserve_blocks(4).is_ok() {}
            while segment.reserve_point(None, 64).is_some() {}
            let refused = [&counters.points_refused, &counters.space_refused];
            assert_eq!(refused.map(|word| word.load(Ordering::Relaxed)), [1, 1], "{written}");
        }
    }

    /// A program may give its points their names again and again.
    #[test]
    fn a_name_that_a_point_has_takes_no_more_room() {
        let config = Config { string_bytes: PAGE as u32, ..Config::default() };
        let segment = Segment::in_private_memory(config, &Facts::default());
        let point = segment.enter_point(None, 0, "a", "", 0).unwrap();
        let long = "n".repeat(1500);
        let other = format!("{long}o");
        let mut seen = Vec::new();
        for name in ["period", "a", "", &long, &other, "\u{f6}"] {
            for _ in 0..PAGE {
                assert!(segment.rename_point(point, name), "{name}");
            }
            let text = segment.entry(point).unwrap().read().unwrap().name;
            let bytes = segment.text(text.offset as usize, text.len as usize).unwrap();
            let bytes: Vec<u8> = bytes.iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
            let kept = String::from_utf8(bytes).unwrap();
            let is_whole = kept == name;
            assert!(is_whole || name.len() > 1024 && kept.len() == 1024, "{kept}");
            assert!(name.starts_with(kept.trim_end_matches(|c| c != 'n')) || is_whole, "{kept}");
            assert!(!seen.contains(&kept), "{kept}");
            seen.push(kept);
        }
        assert!(segment.enter_text("another").is_some());
        // If no room is left, the name stays.
        while segment.enter_text("x").is_some() {}
        assert!(segment.rename_point(point, "\u{f6}") && !segment.rename_point(point, "b"));
        assert!(!segment.rename_point(point + 1, "b"));
    }
}
