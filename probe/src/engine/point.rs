//! Points as the program controls and reads them.

use std::borrow::Cow;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pfp_shm_layout::control::{self, Control};
pub(crate) use pfp_shm_layout::control::{Alpha, Change, Limit};
use pfp_shm_layout::heap;

use super::copies::{self, by_leader};
use super::figures::{self, Histogram};
use super::process;
use crate::clock::calibrate::shared_ns;
use crate::point::Point;
use crate::stats::Stats;

impl Point {
    /// Whether the point measures.
    pub(crate) fn is_on(&'static self) -> bool {
        by_leader!(is_on(self));
        self.word().is_some_and(|word| Control(word.load(Relaxed)).enabled())
    }

    /// The weight of a new value in the exponential average. `None` while averaging is off.
    pub(crate) fn weight(&'static self) -> Option<f64> {
        if let Some(leader) = copies::followed() {
            return Some(leader.weight(self)).filter(|alpha| *alpha > 0.0);
        }
        Control(self.word()?.load(Relaxed)).alpha()
    }

    /// The point's name in the table. Without memory, and before the point is in the table, the
    /// name in the source.
    pub(crate) fn known_name(&'static self) -> Cow<'static, str> {
        let name = match copies::followed() {
            Some(leader) => leader.name_of(self),
            None => self.name_in_the_table(),
        };
        match name {
            Some(name) => Cow::Owned(name),
            None => Cow::Borrowed(self.state.name.known()),
        }
    }

    /// Gives the point another name.
    pub(crate) fn rename(&'static self, name: &str) {
        by_leader!(rename(self, name));
        if self.word().is_some()
            && let Some(process) = process::current()
        {
            process.segment.rename_point(self.index(), name);
        }
    }

    /// Implements [`Point::stats`].
    pub(crate) fn figures(&'static self) -> Option<Stats> {
        self.stats_with(Histogram::Read)
    }

    /// [`Point::stats`], with or without the histogram.
    pub(crate) fn stats_with(&'static self, histogram: Histogram) -> Option<Stats> {
        by_leader!(stats(self, histogram == Histogram::Read));
        match self.metered() {
            Some(metered) => metered.stats_with(histogram),
            None => figures::of_point(self, histogram),
        }
    }

    /// The point's current name in the table. `None` if the point is not in the table, or if memory
    /// runs out.
    pub(super) fn name_in_the_table(&'static self) -> Option<String> {
        let segment = &process::current()?.segment;
        let name = segment.entry(self.number()? as usize)?.read()?.name;
        let text = segment.text(name.offset as usize, name.len as usize)?;
        let text = heap::collect(text.iter().map(|byte| byte.load(Relaxed))).ok()?;
        heap::lossy(&text).ok()
    }

    pub(crate) fn change(&'static self, change: Change) {
        by_leader!(change(self, change));
        let Some(word) = self.word() else { return };
        match self.reset_time(word).filter(|_| change == Change::Reset) {
            Some(time) => control::reset(word, time, shared_ns()),
            None => control::apply(word, change),
        };
        if change == Change::Enable
            && let Some(process) = process::current()
        {
            process.segment.wake();
        }
    }

    /// The word for the time of a point's reset; `None` if the control word is not in this
    /// process's segment.
    fn reset_time(&'static self, word: &AtomicU64) -> Option<&'static AtomicU64> {
        let segment = &process::current()?.segment;
        let is_here = segment.control(self.index()).is_some_and(|here| ptr::eq(here, word));
        segment.reset_time(self.index()).filter(|_| is_here)
    }
}
