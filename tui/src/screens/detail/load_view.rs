//! The part of a point's load history that the user looks at.
//!
//! At first the part ends at the present and follows it. Once the user has moved back in time, the
//! end of the part is fixed, so that other points can be viewed over the same time.

use crate::screens::prelude::*;
use pfp_model::History;

/// The lengths to choose from, seconds.
const SPANS: [u64; 16] =
    [2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400, 172_800, 604_800];
/// Index of the initial length.
const FIRST: usize = 4;

/// The part of the load history that is shown.
#[derive(Clone, Copy, Debug)]
pub struct LoadView {
    /// Index in [`SPANS`].
    span: usize,
    /// End of the part, ticks since the segment was created. `None` while the part ends now.
    until: Option<u64>,
    /// Whether the part was just changed, so that the picture must be scrolled into view.
    pub(super) wanted: bool,
}

impl Default for LoadView {
    fn default() -> Self {
        Self { span: FIRST, until: None, wanted: false }
    }
}

impl LoadView {
    /// The length of the part, seconds.
    pub fn span_seconds(&self) -> u64 {
        SPANS[self.span]
    }

    /// Whether the part ends now.
    pub fn follows(&self) -> bool {
        self.until.is_none()
    }

    /// The end of the part, ticks since the segment was created.
    pub fn until(&self, now: u64) -> u64 {
        self.until.map_or(now, |until| until.min(now))
    }

    /// Moves a quarter of the picture back in time, or forward.
    pub(super) fn pan(&mut self, later: bool, common: &mut Common) {
        self.wanted = true;
        if !LoadTime::of(common).is_some_and(|time| self.pan_within(later, time)) {
            common.say("its load is not known before this");
        }
    }

    /// Shows a shorter part of the time, or a longer one, and keeps the moment under the mouse in
    /// its column.
    pub(super) fn zoom(&mut self, closer: bool, moment: Option<u64>, common: &mut Common) {
        self.wanted = moment.is_none();
        let Some(time) = LoadTime::of(common) else {
            return common.say("its load is not known yet");
        };
        let is_all = time.from.saturating_add(time.ticks(self.span_seconds())) >= time.now;
        match (closer, is_all) {
            (false, true) => common.say("the whole known load is shown"),
            (true, _) if self.span == 0 => common.say("this is the closest zoom"),
            _ => self.zoom_within(closer, moment, time),
        }
    }

    /// Moves the part so that the moment `from` gets the column of the moment `to`, as far as the
    /// load is known.
    pub(super) fn drag(&mut self, from: u64, to: u64, common: &Common) {
        if let Some(time) = LoadTime::of(common) {
            let until = self.until(time.now).saturating_add(from).saturating_sub(to);
            self.end_at(until.max(time.first_end(self.span_seconds())), time.now);
        }
    }

    /// Goes to the oldest known load.
    pub(super) fn oldest(&mut self, common: &mut Common) {
        self.wanted = true;
        match LoadTime::of(common) {
            Some(time) => {
                self.end_at(time.first_end(self.span_seconds()), time.now);
                if self.follows() {
                    common.say("its load is not known before this");
                }
            }
            None => common.say("its load is not known yet"),
        }
    }

    /// Goes to the present, and follows it.
    pub(super) fn newest(&mut self) {
        self.wanted = true;
        self.until = None;
    }

    fn end_at(&mut self, until: u64, now: u64) {
        self.until = (until < now).then_some(until);
    }

    /// Changes to the next length. Keeps `moment` in its column; without it, the middle of the
    /// part, or now if the part ends now.
    fn zoom_within(&mut self, closer: bool, moment: Option<u64>, time: LoadTime) {
        let (before, until) = (time.ticks(self.span_seconds()), self.until(time.now));
        let kept = moment.or(self.until.map(|_| until.saturating_sub(before / 2)));
        self.span = match closer {
            true => self.span.saturating_sub(1),
            false => (self.span + 1).min(SPANS.len() - 1),
        };
        if let Some(kept) = kept {
            let longer = time.ticks(self.span_seconds()) as f64 / before as f64;
            let behind = until.saturating_sub(kept) as f64 * longer;
            let until = kept.saturating_add(behind as u64);
            self.end_at(until.max(time.first_end(self.span_seconds())), time.now);
        }
    }

    /// Moves the part back or forward by a quarter of its length. Returns false if there is nothing
    /// older.
    fn pan_within(&mut self, later: bool, time: LoadTime) -> bool {
        let (now, until) = (time.now, self.until(time.now));
        let step = (time.ticks(self.span_seconds()) / 4).max(1);
        let first = time.first_end(self.span_seconds());
        if later {
            self.end_at(until.saturating_add(step), now);
        } else if until <= first {
            return false;
        } else {
            self.end_at(until.saturating_sub(step).max(first), now);
        }
        true
    }
}

/// The time for which the load is known.
#[derive(Clone, Copy)]
struct LoadTime {
    /// Start of the known load, ticks since the segment was created.
    from: u64,
    now: u64,
    ticks_per_second: f64,
}

impl LoadTime {
    fn ticks(self, seconds: u64) -> u64 {
        (seconds as f64 * self.ticks_per_second) as u64
    }

    /// The end of the oldest part of this length.
    fn first_end(self, seconds: u64) -> u64 {
        self.from.saturating_add(self.ticks(seconds)).min(self.now)
    }
}

impl LoadTime {
    /// The known time of the load of the point under the cursor, if any.
    fn of(common: &Common) -> Option<Self> {
        let snapshot = common.model.snapshot()?;
        Some(Self {
            from: common.selected().map(|figures| figures.history()).and_then(History::from)?,
            now: snapshot.elapsed_ticks,
            ticks_per_second: snapshot.clock.ticks_per_second,
        })
    }
}
