//! Replaying a recording: a cursor in its time, which all screens follow.
//!
//! Loads and rates cover the time since the previous snapshot, without smoothing, so they do not
//! depend on how the user reached the cursor. After a jump, parts of a screen that show earlier
//! times (the history of a load, the windows of a histogram, the log) are read again, as far as
//! that is quick.
//!
//! ```text
//! key, poll -> Replay::goal -> a job in a thread reads -> poll -> the snapshots are shown
//! ```
//!
//! One job runs at a time. Keys that are pressed while it runs move the goal, which the next job
//! reads.

mod job;

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Error;

use self::job::{Found, Order, Range};
pub(super) use self::job::{Placed, Reading};
use super::{App, CHECK};
use crate::common::replay::{NORMAL, SPEEDS};
use crate::common::{Overlay, Prompt, PromptSubject, Replay, Screen, Severity};
use pfp_model::Model;
use pfp_model::log::EventLog;
use pfp_read::snapshot::Snapshot;
use pfp_read::source::{Growth, Moment};

/// The shortest time between two frames while a recording plays.
const FRAME: Duration = Duration::from_millis(100);
/// Time between two checks whether the recording has grown.
const LOOK: Duration = Duration::from_millis(500);
/// Age of a job from which on the screen says that it waits for the file.
const LATE: Duration = Duration::from_millis(500);
/// Time between two checks whether a late job has ended.
const CHECK_LATE: Duration = Duration::from_millis(100);
/// The largest step forward that reads the snapshots in between.
const BETWEEN: usize = 60;
const MINUTE: Duration = Duration::from_secs(60);

impl App {
    /// Sets up the replay, if the watched source is a recording.
    pub(super) fn begin_replay(&mut self) {
        self.reading = None;
        self.give_up_saving();
        if self.common.replay.take().is_some() {
            self.common.interval = self.common.options.interval;
        }
        let Some(recording) = self.common.recording() else { return };
        let place = recording.cursor();
        self.common.replay = Some(Replay {
            at: None,
            goal: Some(place),
            lacks_parts: false,
            late: None,
            len: recording.len(),
            unix_ns: recording.taken_unix_ns(place),
            since_first: recording.since_first(place),
            next: None,
            speed: NORMAL,
            playing: false,
            grows: None,
        });
    }

    /// Shows what was read. While playing, goes on to the next snapshot that is due.
    pub(super) fn play(&mut self) {
        if let Some(reading) = &self.reading {
            match reading.found() {
                Some(found) => self.take_in(found.unwrap_or_else(Found::failed)),
                None => {
                    let age = Some(reading.age(self.common.now)).filter(|age| *age >= LATE);
                    if let Some(replay) = &mut self.common.replay {
                        replay.late = age;
                    }
                }
            }
            return self.read_on(false);
        }
        self.go_with_time();
        self.read_on(true);
    }

    /// While playing, moves the goal to the next snapshot that is due.
    fn go_with_time(&mut self) {
        let session = self.common.session.as_mut();
        let Some(recording) = session.and_then(|session| session.source.recording()) else {
            return;
        };
        let Some(replay) = &mut self.common.replay else { return };
        let (Some(at), last) = (replay.at, replay.len - 1) else { return };
        if replay.playing && at < last {
            // Skip as many snapshots as one frame covers at this speed.
            let until = replay.since_first + FRAME.mul_f64(SPEEDS[replay.speed]);
            let mut to = at + 1;
            while to < last && recording.since_first(to) < until {
                to += 1;
            }
            replay.goal = Some(to);
            return self.screens.timeline.at.follow();
        }
        replay.next = (at < last).then(|| recording.since_first(at + 1));
        if replay.playing && replay.grows == Some(false) {
            replay.playing = false;
            self.common.say("this is the end of the recording");
        }
    }

    /// Starts to read what the screen lacks, unless a job runs. With `refresh`, also looks for new
    /// snapshots of a recording that may grow.
    fn read_on(&mut self, refresh: bool) {
        let wants_records = self.view().wants_records();
        let windows = self.view().windows();
        let shown = self.common.model.shared_snapshot();
        let save = self.snapshot_to_read();
        let session = self.common.session.as_mut();
        let (Some(recording), Some(replay), None) = (
            session.and_then(|session| session.source.recording()),
            &mut self.common.replay,
            &self.reading,
        ) else {
            return;
        };
        let (at, lacks_parts) = (replay.at, mem::take(&mut replay.lacks_parts));
        let range = replay.goal.map(|to| match at {
            Some(at) if to > at && to - at <= BETWEEN => Range::Between(at, to),
            _ => Range::Before(to),
        });
        let place = range.map(Range::last).or(at);
        let looks_back = lacks_parts || matches!(range, Some(Range::Before(_)));
        let begin = |place: usize, window: &Duration| {
            let now = recording.since_first(place);
            let begins = |place: &usize| recording.since_first(*place) + *window <= now;
            (0..=place).rev().find(begins).unwrap_or(0)
        };
        let windows = place
            .filter(|_| looks_back)
            .map(|place| windows.iter().map(|window| begin(place, window)).collect());
        let order = Order {
            refresh: refresh && replay.grows != Some(false),
            range,
            with_records: wants_records,
            records_of: at.filter(|_| lacks_parts && wants_records).zip(shown),
            save,
            windows: windows.unwrap_or_default(),
        };
        if order.is_empty() {
            return;
        }
        match order.start(recording, self.common.now) {
            Ok(reading) => self.reading = Some(reading),
            Err(error) => self.cannot_read(&error.into()),
        }
    }

    /// Shows what a job has read.
    fn take_in(&mut self, mut found: Found) {
        let Some(Reading { order, .. }) = self.reading.take() else { return };
        if let Some(replay) = &mut self.common.replay {
            replay.late = None;
        }
        match found.growth.take() {
            Some(Ok((grows, growth))) => self.grow(grows, growth),
            Some(Err(error)) => {
                let error = format!("the recording cannot be read any more: {error}");
                self.common.notify(Severity::Error, error);
            }
            None => {}
        }
        let snapshots = mem::take(&mut found.snapshots);
        match order.range {
            Some(Range::Before(_)) if !snapshots.is_empty() => self.jump(snapshots),
            _ => self.go_on(snapshots),
        }
        if let (Some(last), Some(replay)) = (order.range.map(Range::last), &mut self.common.replay)
        {
            replay.goal = replay.goal.filter(|goal| *goal != last);
            // If nothing can be read there, the snapshot on the screen stays, and playing continues
            // from it.
            replay.at.get_or_insert(last);
        }
        if let Some(error) = &found.error {
            self.cannot_read(error);
        }
        if !order.windows.is_empty() && found.error.is_none() {
            let (view, common) = self.view_mut();
            view.look_back(found.windows, common);
        }
        if let Some(whole) = found.with_records {
            self.take_records(&whole);
        }
        match found.to_save {
            Some(whole) => self.write(whole),
            None if order.save.is_some() => self.give_up_saving(),
            None => {}
        }
        match order.range {
            Some(_) => self.update(),
            None => self.sort(),
        }
    }

    fn cannot_read(&mut self, error: &Error) {
        self.stop_playing();
        self.common.notify(Severity::Problem, format!("{error:#}"));
    }

    /// Adds the snapshots that were appended to the recording.
    fn grow(&mut self, grows: bool, growth: Growth) {
        let Some(recording) = self.common.recording() else { return };
        recording.grow(growth);
        let (len, remark) = (recording.len(), recording.remark_while(grows));
        let Some(replay) = &mut self.common.replay else { return };
        replay.len = len;
        let is_first = replay.grows.replace(grows).is_none();
        if let Some(remark) = remark.filter(|_| is_first) {
            self.common.notify(Severity::Problem, remark);
        }
    }

    /// Reads what the screen shows beside the snapshot on it: records, and the snapshots at the
    /// starts of windows.
    pub(super) fn read_parts(&mut self) {
        if let Some(replay) = &mut self.common.replay {
            replay.lacks_parts = true;
        }
        self.read_soon();
    }

    pub(super) fn read_soon(&mut self) {
        self.read_on(false);
        self.next_poll = self.common.now + self.until_next_frame();
    }

    /// How long the current snapshot stays on the screen; while a job reads, the time until the
    /// next check.
    pub(super) fn until_next_frame(&self) -> Duration {
        let Some(replay) = &self.common.replay else { return LOOK };
        if self.reading.is_some() {
            return if replay.late.is_some() { CHECK_LATE } else { CHECK };
        }
        match replay.next.filter(|_| replay.playing) {
            Some(next) => {
                let gap = next.saturating_sub(replay.since_first);
                gap.div_f64(SPEEDS[replay.speed]).clamp(FRAME, Duration::from_secs(3600))
            }
            None => LOOK,
        }
    }

    /// Moves this many snapshots on or, if negative, back.
    pub(super) fn step(&mut self, by: isize) {
        let Some((at, last)) = self.place() else { return };
        let to = at.saturating_add_signed(by).min(last);
        if to == at {
            let edge = if by < 0 { "first" } else { "last" };
            return self.common.say(format!("this is the {edge} snapshot of the recording"));
        }
        self.stop_playing();
        self.move_to(to);
    }

    /// Moves a minute on, or back.
    pub(super) fn skip_minute(&mut self, later: bool) {
        let Some((at, last)) = self.place() else { return };
        let Some(recording) = self.common.recording() else { return };
        let from = recording.since_first(at);
        let mut to = at;
        if later {
            while to < last && recording.since_first(to) < from + MINUTE {
                to += 1;
            }
        } else {
            while to > 0 && recording.since_first(to) > from.saturating_sub(MINUTE) {
                to -= 1;
            }
        }
        self.step(to as isize - at as isize);
    }

    /// Stops a recording that plays. Otherwise plays from the cursor or, if the cursor is at the
    /// end, from the beginning.
    pub(super) fn play_or_stop(&mut self) {
        let Some((at, last)) = self.place() else { return };
        let Some(replay) = &mut self.common.replay else { return };
        replay.playing = !replay.playing;
        if replay.playing && at == last && replay.grows != Some(true) {
            self.move_to(0);
        }
        self.next_poll = self.common.now + self.until_next_frame();
    }

    /// Plays faster, or more slowly.
    pub(super) fn change_speed(&mut self, faster: bool) {
        if self.place().is_none() {
            return;
        }
        let Some(replay) = &mut self.common.replay else { return };
        replay.speed = match faster {
            true => (replay.speed + 1).min(SPEEDS.len() - 1),
            false => replay.speed.saturating_sub(1),
        };
        let speed = SPEEDS[replay.speed];
        self.next_poll = self.common.now + self.until_next_frame();
        self.common.say(format!("playing at {speed}x"));
    }

    /// Asks for the moment to jump to.
    pub(super) fn ask_moment(&mut self) {
        if self.place().is_some() {
            self.overlay = Some(Overlay::Typed(Prompt::new(PromptSubject::Moment, "")));
        }
    }

    /// Jumps to the typed moment, or shows the error in the text.
    pub(super) fn seek(&mut self, prompt: Prompt) {
        let Some(recording) = self.common.recording() else { return };
        let found = Moment::parse(&prompt.text())
            .and_then(|moment| recording.find(&moment).map_err(|error| format!("{error:#}")));
        match found {
            Ok(place) => {
                self.stop_playing();
                self.move_to(place);
            }
            Err(why) => self.overlay = Some(prompt.refused(why)),
        }
    }

    /// The index of the snapshot to show and the last index. Without a recording, shows a message
    /// and returns `None`.
    fn place(&mut self) -> Option<(usize, usize)> {
        let replay = self.common.replay.as_ref();
        let place = replay.and_then(|replay| Some((replay.goal.or(replay.at)?, replay.len - 1)));
        if place.is_none() {
            self.common.say("not a recording: you cannot go back in time");
        }
        place
    }

    fn stop_playing(&mut self) {
        if let Some(replay) = &mut self.common.replay {
            replay.playing = false;
        }
    }

    /// Goes to the snapshot with this index, as soon as it was read.
    fn move_to(&mut self, to: usize) {
        // The timeline follows the newest region again.
        self.screens.timeline.at.follow();
        if let Some(replay) = &mut self.common.replay {
            replay.goal = Some(to);
        }
        self.read_soon();
    }

    /// Goes on to the last of these snapshots, and takes in those before it.
    fn go_on(&mut self, snapshots: Vec<Placed<Snapshot>>) {
        for (place, snapshot) in snapshots {
            let snapshot = Arc::new(snapshot);
            self.arrive(place, &snapshot);
            self.common.observe(&snapshot);
            let news = self.common.model.fold(snapshot);
            self.report_news(news, "here the process ended");
            let (view, common) = self.view_mut();
            view.update(common);
        }
    }

    /// Jumps to the last of these snapshots, and takes in those before it as its history.
    fn jump(&mut self, snapshots: Vec<Placed<Snapshot>>) {
        if let Some((place, snapshot)) = snapshots.last() {
            self.arrive(*place, snapshot);
        }
        self.common.model = Model::new(0.0);
        self.common.log = EventLog::default();
        for snapshot in snapshots.into_iter().map(|(_, snapshot)| Arc::new(snapshot)) {
            self.common.log.observe(snapshot.taken_unix_ns, &snapshot);
            self.common.model.fold(snapshot);
        }
        for screen in Screen::ALL {
            self.screens.get_mut(screen).jump(&mut self.common);
        }
        // Entries from before the jump do not count as unread.
        self.common.log.read();
    }

    /// Records the new position of the cursor.
    fn arrive(&mut self, place: usize, snapshot: &Snapshot) {
        let session = self.common.session.as_mut();
        let Some(recording) = session.and_then(|session| session.source.recording()) else {
            return;
        };
        let Some(replay) = &mut self.common.replay else { return };
        recording.show(place, snapshot);
        let next = (place + 1 < recording.len()).then(|| recording.since_first(place + 1));
        (replay.at, replay.len, replay.unix_ns) =
            (Some(place), recording.len(), snapshot.taken_unix_ns);
        (replay.since_first, replay.next) = (recording.since_first(place), next);
        self.common.interval = recording.since_before(place);
    }
}
