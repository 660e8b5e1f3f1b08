//! The user's position on the timeline: the part of the time, the line, and the region.
//!
//! The picture follows the newest regions until the user moves back in time. Then the picture is
//! held, so that no newer picture replaces it while the user looks at it.

use std::collections::HashSet;

use crate::screens::prelude::*;
use pfp_model::slow;
use pfp_model::timeline::columns::TimelineWindow;
use pfp_model::timeline::{Region, Timeline, TimelineRow};
use pfp_read::snapshot::SlowCall;

/// Minimum length of the visible part, nanoseconds.
const SHORTEST_NS: u64 = 1_000;
/// Maximum length of the visible part, nanoseconds.
const LONGEST_NS: u64 = 1_000_000_000_000;
/// Limits of the initial length, nanoseconds.
const FIRST_NS: (u64, u64) = (1_000_000, 10_000_000_000);

/// The part of the time, the line and the region under the cursor.
#[derive(Debug, Default)]
pub struct TimeView {
    picture: Option<Timeline>,
    /// Length of the visible part, nanoseconds. `None` before the first picture.
    span_ns: Option<u64>,
    /// End of the visible part, ticks. `None` while the part follows the newest regions.
    right: Option<u64>,
    /// The moment of the cursor, ticks. `None` while the cursor is on the newest region.
    at: Option<u64>,
    line: Option<TimelineRow>,
    /// The last search.
    sought: Filter,
}

impl TimeView {
    /// Takes the records of a snapshot, unless the picture is held.
    pub(super) fn take(&mut self, snapshot: &Snapshot) {
        let same = |picture: &Timeline| picture.segment_id == snapshot.process.segment_id;
        if !self.follows() && self.picture.as_ref().is_some_and(same) {
            return;
        }
        let picture = Timeline::of(snapshot, self.picture.as_ref());
        let reach_ns = picture.reach() as f64 / picture.ticks_per_second * 1e9;
        let (least, most) = FIRST_NS;
        // The initial part covers all records in the rings and a bit of the lost time, so that the
        // boundary is visible.
        self.span_ns.get_or_insert_with(|| step_above((reach_ns as u64).clamp(least, most)));
        self.picture = Some(picture);
        self.line = self.line.or_else(|| self.first_line());
    }

    /// Shows the moment of a slow call, with the records that were kept with it, and holds the
    /// picture.
    pub(crate) fn show_call(&mut self, call: &SlowCall, snapshot: &Snapshot) {
        let picture = Timeline::of(&slow::moment(call, snapshot), None);
        let ns = call.span as f64 / picture.ticks_per_second * 1e9;
        self.picture = Some(picture);
        self.span_ns = Some(step_above((ns * 1.2) as u64).clamp(SHORTEST_NS, LONGEST_NS));
        // A call that the program asked to keep has no record, since it had not ended.
        let of_lane = || self.regions().filter(|(line, _)| line.lane == call.lane);
        let is_call = |region: &Region| (region.start, region.point) == (call.start, call.point);
        let found = of_lane().find(|(_, region)| is_call(region)).or(of_lane().next());
        self.line = found.map(|(line, _)| line);
        let room = self.ticks().saturating_sub(call.span) / 2;
        self.right = Some(call.end().saturating_add(room).max(self.ticks()));
        self.at = Some(call.start);
    }

    /// The picture. `None` before the first records.
    pub fn picture(&self) -> Option<&Timeline> {
        self.picture.as_ref()
    }

    /// Whether the picture follows the newest regions.
    pub fn follows(&self) -> bool {
        self.right.is_none()
    }

    /// The visible part of the time, in this many columns.
    pub fn window(&self, columns: usize) -> TimelineWindow {
        let ticks = self.ticks();
        TimelineWindow { from: self.right().saturating_sub(ticks), ticks, columns }
    }

    /// Length of the visible part, nanoseconds; at most the age of the process.
    pub fn span_ns(&self) -> u64 {
        let wanted = self.span_ns.unwrap_or(SHORTEST_NS);
        let Some(picture) = &self.picture else { return wanted };
        let life = picture.taken as f64 / picture.ticks_per_second * 1e9;
        wanted.min((life as u64).max(SHORTEST_NS))
    }

    /// Index of the cursor's line, and the number of lines.
    pub fn cursor(&self) -> (usize, usize) {
        let lines = || self.picture.iter().flat_map(Timeline::lines);
        (lines().position(|line| Some(line) == self.line).unwrap_or(0), lines().count())
    }

    /// The cursor's line.
    pub fn line(&self) -> Option<TimelineRow> {
        let (place, _) = self.cursor();
        self.picture.as_ref()?.lines().nth(place)
    }

    /// The region under the cursor, and its index on the line.
    pub fn region(&self) -> Option<(usize, &Region)> {
        let level = self.picture.as_ref()?.level(self.line()?)?;
        let place = level.nearest(self.at.unwrap_or(u64::MAX))?;
        Some((place, &level.regions[place]))
    }

    /// Moves the cursor to the line with this index.
    pub(super) fn select_line(&mut self, place: usize) {
        self.line = self.picture.as_ref().and_then(|picture| picture.lines().nth(place));
    }

    /// Moves the cursor to the next region on the line, or to the previous one.
    pub(super) fn step(&mut self, later: bool) {
        let Some((picture, line)) = self.picture.as_ref().zip(self.line()) else { return };
        let Some((place, region)) = self.region() else { return };
        let regions = picture.level(line).map_or(&[][..], |level| &level.regions);
        let next = if later {
            regions[place..].iter().find(|next| next.start > region.start)
        } else {
            regions[..place].iter().rfind(|next| next.start < region.start)
        };
        match next.map(|next| next.start) {
            Some(start) => self.look_at(start),
            // At the first region, the cursor stays on it.
            None if !later => self.look_at(region.start),
            None => {}
        }
    }

    /// Moves the cursor to the oldest region on the line.
    pub(super) fn go_to_oldest(&mut self) {
        let level = self.picture.as_ref().zip(self.line()).and_then(|(p, line)| p.level(line));
        if let Some(start) = level.and_then(|level| level.regions.first()).map(|r| r.start) {
            self.look_at(start);
        }
    }

    /// The last search.
    pub(super) fn sought(&self) -> &Filter {
        &self.sought
    }

    /// Searches for these points from now on, beginning at the newest region.
    pub(super) fn seek(&mut self, points: Filter) {
        self.sought = points;
        self.follow();
    }

    /// Moves the cursor to the newest region of these points that began before the region under the
    /// cursor; after the oldest, to the newest of all. Returns false if there is none.
    pub(super) fn go_to_one_of(&mut self, points: &HashSet<u32>) -> bool {
        let before = match self.follows() {
            true => u64::MAX,
            false => self.region().map_or(u64::MAX, |(_, region)| region.start),
        };
        let wanted = || self.regions().filter(|(_, region)| points.contains(&region.point));
        let newest = |(_, region): &(TimelineRow, &Region)| region.start;
        let found = wanted().filter(|(_, region)| region.start < before).max_by_key(newest);
        let found = found.or(wanted().max_by_key(newest));
        self.go_to(found.map(|(line, region)| (line, region.start)))
    }

    /// Moves the cursor to the region of a point that took longest by wall-clock time.
    pub(super) fn go_to_slowest(&mut self, point: u32) {
        let of_point = self.regions().filter(|(_, region)| region.point == point);
        let longest = of_point.max_by_key(|(_, region)| region.span());
        self.go_to(longest.map(|(line, region)| (line, region.start)));
    }

    /// All regions, with their lines.
    fn regions(&self) -> impl Iterator<Item = (TimelineRow, &Region)> {
        let pictures = self.picture.iter();
        pictures.flat_map(|picture| picture.lines().flat_map(|line| picture.regions(line)))
    }

    /// Moves the cursor to a line and a moment; false if there are none.
    fn go_to(&mut self, found: Option<(TimelineRow, u64)>) -> bool {
        if let Some((line, start)) = found {
            self.line = Some(line);
            self.look_at(start);
        }
        found.is_some()
    }

    /// Moves the cursor to the line with this index, and to its region nearest to a moment.
    pub(super) fn click(&mut self, place: usize, at: u64) {
        self.select_line(place);
        self.at = Some(at);
        if let Some(start) = self.region().map(|(_, region)| region.start) {
            self.right = Some(self.right());
            self.at = Some(start);
        }
    }

    /// Holds the picture with the cursor where it is.
    pub(super) fn hold(&mut self) {
        if let Some(start) = self.region().map(|(_, region)| region.start) {
            self.look_at(start);
        }
    }

    /// Follows the newest regions again.
    pub(crate) fn follow(&mut self) {
        self.right = None;
        self.at = None;
    }

    /// Moves the visible part by half its length, together with the cursor.
    pub(super) fn pan(&mut self, later: bool) {
        let Some(newest) = self.newest() else { return };
        if later && self.follows() {
            return;
        }
        let ticks = self.ticks();
        let (way, right) = ((ticks / 2).max(1), self.right());
        let at = self.at.or(self.region().map(|(_, region)| region.start)).unwrap_or(right);
        let (right, at) = if later {
            (right.saturating_add(way), at.saturating_add(way))
        } else {
            (right.saturating_sub(way).max(ticks), at.saturating_sub(way))
        };
        if right >= newest {
            return self.follow();
        }
        self.right = Some(right);
        self.at = Some(at.clamp(right.saturating_sub(ticks), right));
    }

    /// Shows a shorter part of the time, or a longer one, and keeps the cursor in its column. A
    /// part that follows the newest regions continues to follow them.
    pub(super) fn zoom(&mut self, closer: bool) {
        self.zoom_around(closer, self.right.map(|right| self.at.unwrap_or(right)));
    }

    /// Shows a shorter part of the time, or a longer one, and keeps a moment in its column; without
    /// a moment, the end of the part.
    pub(super) fn zoom_around(&mut self, closer: bool, kept: Option<u64>) {
        let (before, right) = (self.ticks(), self.right());
        let span = self.span_ns();
        let span = if closer { step_below(span - 1) } else { step_above(span + 1) };
        self.span_ns = Some(span.clamp(SHORTEST_NS, LONGEST_NS));
        if let (Some(kept), Some(newest)) = (kept, self.newest()) {
            let kept = kept.clamp(right.saturating_sub(before), right);
            let behind = (right - kept) as f64 * (self.ticks() as f64 / before as f64);
            let until = kept.saturating_add((behind as u64).max(1));
            if !self.follows() || until < newest {
                self.end_at(until);
            }
        }
    }

    /// Holds the picture, and moves the visible part so that the moment `from` gets the column of
    /// the moment `to`, as far as the time of the process reaches.
    pub(super) fn drag(&mut self, from: u64, to: u64) {
        if from != to {
            self.end_at(self.right().saturating_add(from).saturating_sub(to));
        }
    }

    /// Ends the visible part at a moment, or as near to it as possible, with the cursor in the
    /// part.
    fn end_at(&mut self, right: u64) {
        let Some(newest) = self.newest() else { return };
        let ticks = self.ticks();
        let right = right.max(ticks).min(newest);
        let at = self.at.or(self.region().map(|(_, region)| region.start)).unwrap_or(right);
        self.right = Some(right);
        self.at = Some(at.clamp(right.saturating_sub(ticks), right));
    }

    /// Holds the picture, moves the cursor to this moment, and scrolls the moment into view.
    fn look_at(&mut self, at: u64) {
        let Some(newest) = self.newest() else { return };
        let (ticks, right) = (self.ticks(), self.right());
        let right = if at < right.saturating_sub(ticks) {
            at.saturating_add(ticks / 4 * 3)
        } else if at >= right {
            at.saturating_add(ticks / 4)
        } else {
            right
        };
        self.right = Some(right.min(newest));
        self.at = Some(at);
    }

    /// The moment at which the picture was taken.
    fn newest(&self) -> Option<u64> {
        self.picture.as_ref().map(|picture| picture.taken)
    }

    fn right(&self) -> u64 {
        self.right.or(self.newest()).unwrap_or(0)
    }

    fn ticks(&self) -> u64 {
        self.picture.as_ref().map_or(1, |picture| picture.ticks(self.span_ns()))
    }

    /// The first line with a region in the visible part.
    fn first_line(&self) -> Option<TimelineRow> {
        let (picture, from) = (self.picture.as_ref()?, self.window(1).from);
        let is_seen = |line: &TimelineRow| {
            picture.level(*line).is_some_and(|level| level.regions.iter().any(|r| r.end >= from))
        };
        picture.lines().find(is_seen).or(picture.lines().next())
    }
}

/// The greatest of 1, 2, 5, 10, ... up to a value; at least 1.
fn step_below(value: u64) -> u64 {
    steps().take_while(|step| *step <= value).last().unwrap_or(1)
}

/// The least of 1, 2, 5, 10, ... from a value on.
pub(super) fn step_above(value: u64) -> u64 {
    steps().find(|step| *step >= value).unwrap_or(u64::MAX)
}

fn steps() -> impl Iterator<Item = u64> {
    (0..19).flat_map(|power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power)))
}
