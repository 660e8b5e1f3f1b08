//! Replaying a recording: a cursor in its time, which all screens follow.
//!
//! Loads and rates cover the time since the previous snapshot, without smoothing, so they do not
//! depend on how the user reached the cursor. After a jump, parts of a screen that show earlier
//! times (the history of a load, the windows of a histogram, the log) are read again, as far as
//! that is quick.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::App;
use crate::common::replay::{NORMAL, SPEEDS};
use crate::common::{Overlay, Prompt, PromptSubject, Replay, Screen, Severity};
use pfp_model::Model;
use pfp_model::log::EventLog;
use pfp_read::snapshot::Snapshot;
use pfp_read::source::Moment;

/// The shortest time between two frames while a recording plays.
const FRAME: Duration = Duration::from_millis(100);
/// Time between two checks whether the recording has grown.
const LOOK: Duration = Duration::from_millis(500);
/// After a jump, the maximum number of snapshots before the cursor that are read.
const BEFORE: usize = 120;
/// After a move of the cursor, the time limit for reading snapshots other than the one to show.
const READ_LIMIT: Duration = Duration::from_millis(100);
/// The largest step forward that reads the snapshots in between.
const BETWEEN: usize = 60;
const MINUTE: Duration = Duration::from_secs(60);

impl App {
    /// Sets up the replay, if the watched source is a recording.
    pub(super) fn begin_replay(&mut self) {
        if self.common.replay.take().is_some() {
            self.common.interval = self.common.options.interval;
        }
        let session = self.common.session.as_mut();
        let Some(recording) = session.and_then(|session| session.source.recording()) else {
            return;
        };
        let place = recording.cursor();
        self.common.replay = Some(Replay {
            at: None,
            len: recording.len(),
            unix_ns: recording.taken_unix_ns(place),
            since_first: recording.since_first(place),
            next: None,
            speed: NORMAL,
            playing: false,
            grows: recording.grows(),
        });
        if let Some(remark) = recording.remark() {
            self.common.notify(Severity::Problem, remark);
        }
    }

    /// Shows the first snapshot. While playing, shows the next snapshot that is due.
    pub(super) fn play(&mut self) {
        let session = self.common.session.as_mut();
        let Some(recording) = session.and_then(|session| session.source.recording()) else {
            return;
        };
        let Some(replay) = &mut self.common.replay else { return };
        if replay.grows {
            // Check `grows` before the refresh. If the recording ended between a refresh and a
            // later check, the snapshots written in between would never be read.
            replay.grows = recording.grows();
            if let Err(error) = recording.refresh() {
                let error = format!("the recording cannot be read any more: {error}");
                return self.common.notify(Severity::Error, error);
            }
            replay.len = recording.len();
        }
        let last = replay.len - 1;
        match replay.at {
            None => {
                let place = recording.cursor();
                self.move_to(place);
            }
            Some(at) if replay.playing && at < last => {
                // Skip as many snapshots as one frame covers at this speed.
                let until = replay.since_first + FRAME.mul_f64(SPEEDS[replay.speed]);
                let mut to = at + 1;
                while to < last && recording.since_first(to) < until {
                    to += 1;
                }
                self.move_to(to);
            }
            Some(at) => {
                replay.next = (at < last).then(|| recording.since_first(at + 1));
                if replay.playing && !replay.grows && at >= last {
                    replay.playing = false;
                    self.common.say("this is the end of the recording");
                }
            }
        }
    }

    /// How long the current snapshot stays on the screen.
    pub(super) fn until_next_frame(&self) -> Duration {
        let Some(replay) = &self.common.replay else { return LOOK };
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
        if replay.playing && at == last && !replay.grows {
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

    /// The index of the snapshot at the cursor and the last index. Without a recording, shows a
    /// message and returns `None`.
    fn place(&mut self) -> Option<(usize, usize)> {
        let place =
            self.common.replay.as_ref().and_then(|replay| Some((replay.at?, replay.len - 1)));
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

    /// Shows the snapshot with this index.
    fn move_to(&mut self, to: usize) {
        let at = self.common.replay.as_ref().and_then(|replay| replay.at);
        // The timeline follows the newest region again.
        self.screens.timeline.at.follow();
        let moved = match at {
            Some(at) if to > at && to - at <= BETWEEN => self.go_on(at, to),
            _ => self.jump(to),
        };
        if let Err(error) = moved {
            self.stop_playing();
            self.common.notify(Severity::Problem, format!("{error:#}"));
            // The snapshot on the screen stays, and playing continues from it.
            let shown =
                self.common.replay.as_mut().map_or(to, |replay| *replay.at.get_or_insert(to));
            if let Some(recording) = self.common.recording() {
                recording.seek(shown);
            }
        }
        if self.view().wants_records()
            && let Some(snapshot) = self.common.model.snapshot()
            && let Some(session) = &mut self.common.session
        {
            let whole = session.whole(snapshot);
            self.take_records(&whole);
        }
        self.update();
        self.next_poll = self.common.now + self.until_next_frame();
    }

    /// Moves a little forward and takes in the snapshots in between, as far as that is quick.
    fn go_on(&mut self, at: usize, to: usize) -> anyhow::Result<()> {
        let start = Instant::now();
        for place in at + 1..=to {
            if place + 1 < to && start.elapsed() > READ_LIMIT {
                continue;
            }
            let snapshot = Arc::new(self.common.read(place)?);
            self.arrive(place, &snapshot);
            self.common.observe(&snapshot);
            let news = self.common.model.fold(snapshot);
            self.report_news(news, "here the process ended");
            let (view, common) = self.view_mut();
            view.update(common);
        }
        Ok(())
    }

    /// Jumps to any moment, and takes in as many snapshots before it as can be read quickly.
    fn jump(&mut self, to: usize) -> anyhow::Result<()> {
        let start = Instant::now();
        let mut snapshots = vec![self.common.read(to)?];
        for place in (0..to).rev().take(BEFORE) {
            if snapshots.len() > 1 && start.elapsed() > READ_LIMIT {
                break;
            }
            // Stop at a damaged snapshot: the history begins after it.
            let Ok(snapshot) = self.common.read(place) else { break };
            snapshots.push(snapshot);
        }
        self.common.read(to)?;
        self.arrive(to, &snapshots[0]);
        self.common.model = Model::new(0.0);
        self.common.log = EventLog::default();
        for snapshot in snapshots.into_iter().rev().map(Arc::new) {
            self.common.log.observe(snapshot.taken_unix_ns, &snapshot);
            self.common.model.fold(snapshot);
        }
        for screen in Screen::ALL {
            self.screens.get_mut(screen).jump(&mut self.common, screen == self.screen);
        }
        // Entries from before the jump do not count as unread.
        self.common.log.read();
        self.next_poll = self.common.now;
        Ok(())
    }

    /// Records the new position of the cursor.
    fn arrive(&mut self, place: usize, snapshot: &Snapshot) {
        let session = self.common.session.as_mut();
        let Some(recording) = session.and_then(|session| session.source.recording()) else {
            return;
        };
        let Some(replay) = &mut self.common.replay else { return };
        let next = (place + 1 < recording.len()).then(|| recording.since_first(place + 1));
        (replay.at, replay.len, replay.unix_ns) =
            (Some(place), recording.len(), snapshot.taken_unix_ns);
        (replay.since_first, replay.next) = (recording.since_first(place), next);
        self.common.interval = recording.since_before(place);
    }
}
