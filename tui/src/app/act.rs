//! Carries out actions: an overlay handles them first, then the screen, then the app.

use std::time::{Duration, Instant};

use super::{App, AwaitedRecords, CHECK, saving};
use crate::common::{
    Action, Errand, Overlay, Prompt, PromptSubject, Screen, Severity, Status, default_file_name,
};
use crate::screens::Outcome;
use pfp_model::compare::Baseline;
use pfp_model::filter::Filter;
use pfp_model::grid::Scroll;
use pfp_read::snapshot::{PointFlag, PointState, Snapshot};
use pfp_read::units::Unit;

/// The poll intervals that `+` and `-` walk through, milliseconds.
const INTERVALS_MS: [u64; 7] = [100, 200, 500, 1000, 2000, 5000, 10_000];

impl App {
    /// Carries out an action of the user.
    pub fn act(&mut self, action: Action, now: Instant) {
        self.common.now = now;
        if !self.act_on_overlay(action) {
            let (view, common) = self.view_mut();
            match view.act(action, common) {
                Outcome::Pass => self.act_anywhere(action),
                outcome => self.carry_on(outcome),
            }
        }
    }

    /// Applies the outcome of a screen's own handling.
    pub(super) fn carry_on(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Pass | Outcome::Done => {}
            Outcome::Arrange => self.arrange(),
            Outcome::Show(screen) => self.show(screen),
            // Going back would show this same screen again, so show the table.
            Outcome::Back if self.came_from == self.screen => self.show(Screen::Points),
            Outcome::Back => self.show(self.came_from),
            Outcome::Act(action) => self.act(action, self.common.now),
            Outcome::Ask(overlay) => self.overlay = Some(overlay),
            Outcome::Attach(candidate) => {
                let found = self.finder.attach(&candidate);
                self.attach(found);
            }
            Outcome::AttachGroup(group) => {
                let found = self.finder.attach_group(&group, Some(self.common.interval));
                self.attach(found);
            }
            Outcome::ShowCall(call) => {
                if let Some(snapshot) = self.common.model.snapshot() {
                    self.screens.timeline.at.show_call(&call, snapshot);
                    self.show(Screen::Timeline);
                }
            }
            Outcome::ShowPoints(filter, why) => {
                self.common.selected = None;
                self.show(Screen::Points);
                self.common.scroll = Scroll::default();
                self.filter_by(filter);
                self.common.say(why);
            }
        }
    }

    /// Carries out an action that means the same on all screens.
    fn act_anywhere(&mut self, action: Action) {
        match action {
            Action::Quit => match self.way_back() {
                Some(back) => self.act(back, self.common.now),
                None if self.must_warn_of_saving() => {
                    self.common.say("the file is not written yet; the same key leaves without it");
                }
                None => self.leave(),
            },
            Action::Suspend => self.common.errand = Some(Errand::Suspend),
            Action::Redraw => self.common.errand = Some(Errand::Redraw),
            Action::Help => self.overlay = Some(Overlay::Help(0)),
            Action::Palette => {
                let prompt = Prompt::new(PromptSubject::Command, "");
                self.overlay = Some(Overlay::Palette(prompt, 0));
            }
            Action::Up => self.walk(-1),
            Action::Down => self.walk(1),
            Action::PageUp => self.scroll(-(self.common.rows as isize)),
            Action::PageDown => self.scroll(self.common.rows as isize),
            Action::Top => self.walk(isize::MIN),
            Action::Bottom => self.walk(isize::MAX),
            Action::Open if self.common.selected.is_some() && self.has_points() => {
                self.show(Screen::Detail);
            }
            Action::Back => self.back(),
            Action::Filter => self.ask_filter(),
            Action::Unfilter => self.filter_by(Filter::default()),
            Action::Sort => self.choose_sorting(),
            Action::SortLeft => self.move_sorting(false),
            Action::SortRight => self.move_sorting(true),
            Action::Invert => self.invert(),
            Action::Columns => self.choose_columns(),
            Action::Toggle => self.toggle(),
            Action::Reset => self.reset(),
            Action::ToggleAll => self.toggle_all(),
            Action::ResetAll => self.reset_all(),
            Action::Weight => self.ask_alpha(),
            Action::Limit => self.ask_limit(),
            Action::Fence => self.turn_flag(PointFlag::Fenced),
            Action::CountAllocs => self.turn_flag(PointFlag::CountsAllocs),
            Action::Undo => self.undo(),
            Action::Copy => self.copy_row(),
            Action::Pause => self.pause(),
            Action::Slower => self.change_interval(true),
            Action::Faster => self.change_interval(false),
            Action::Units => {
                self.common.unit = match self.common.unit {
                    Unit::Time => Unit::Cycles,
                    Unit::Cycles => Unit::Time,
                }
            }
            Action::Write => {
                if let Some(snapshot) = self.common.model.snapshot() {
                    let name = default_file_name(snapshot);
                    self.overlay = Some(Overlay::Typed(Prompt::new(PromptSubject::File, &name)));
                }
            }
            Action::Baseline => self.take_baseline(),
            Action::Processes => {
                self.show(Screen::Picker);
                self.poll(self.common.now);
            }
            Action::Show(screen) => self.show(screen),
            Action::NextScreen => self.turn(1),
            Action::PreviousScreen => self.turn(Screen::TABS.len() - 1),
            Action::StepBack => self.step(-1),
            Action::StepOn => self.step(1),
            Action::MinuteBack => self.skip_minute(false),
            Action::MinuteOn => self.skip_minute(true),
            Action::RecordingBegin => self.step(isize::MIN),
            Action::RecordingEnd => self.step(isize::MAX),
            Action::Seek => self.ask_moment(),
            Action::PlaySlower => self.change_speed(false),
            Action::PlayFaster => self.change_speed(true),
            // Actions of other screens and overlays.
            _ => {}
        }
    }

    /// Leaves. If a program was started for this viewer, asks first whether to end it.
    fn leave(&mut self) {
        self.overlay = self.finder.program().map(Overlay::Leave);
        self.quit = self.overlay.is_none();
    }

    /// Removes the screen's own filter if it hides rows; otherwise shows the table.
    fn back(&mut self) {
        match self.view_mut().0.own_filter() {
            Some((filter, _)) if filter.is_on() => {
                *filter = Filter::default();
                self.arrange();
            }
            _ => self.show(Screen::Points),
        }
    }

    /// Whether the rows of the screen are points.
    pub(super) fn has_points(&self) -> bool {
        self.view().points(&self.common).is_some()
    }

    fn walk(&mut self, rows: isize) {
        let (view, common) = self.view_mut();
        view.walk(rows, common);
    }

    /// Scrolls the help or the screen by lines.
    pub(super) fn scroll(&mut self, lines: isize) {
        if let Some(Overlay::Help(offset)) = &mut self.overlay {
            *offset = offset.saturating_add_signed(lines);
            return;
        }
        let (view, common) = self.view_mut();
        view.scroll(lines, common);
    }

    /// Sorts the rows, even if the cursor has just been moved.
    fn arrange(&mut self) {
        self.common.frozen_until = None;
        self.sort();
    }

    /// Shows a screen.
    pub(super) fn show(&mut self, screen: Screen) {
        // The detail and the picker are shown on top of another screen, to which Esc returns.
        let is_below =
            |screen: Screen| screen.tab().is_some() && !self.screens.get(screen).holds_point();
        if is_below(self.screen) {
            self.came_from = self.screen;
        }
        self.scrolls[self.screen as usize] = self.common.scroll;
        self.common.scroll = self.scrolls[screen as usize];
        self.screen = screen;
        if self.view().wants_records() {
            self.look_at_records();
        }
        if self.common.replay.is_some() && !self.view().windows().is_empty() {
            self.read_parts();
        }
        let (view, common) = self.view_mut();
        view.begin(common);
        view.arrange(common);
    }

    /// Gives the screens the current records of the rings. While paused, the screens keep the
    /// records from the start of the pause.
    pub(super) fn look_at_records(&mut self) {
        let status = self.common.status();
        let (Some(snapshot), Some(session)) =
            (self.common.model.snapshot(), &mut self.common.session)
        else {
            return;
        };
        match status {
            Status::Paused => {}
            Status::Replay => self.read_parts(),
            // A busy ring may have overwritten the records of the last poll by now, so poll again.
            Status::Live => match session.poll() {
                Ok(mut snapshot) => {
                    session.source.add_records(&mut snapshot);
                    self.take_records(&snapshot);
                }
                Err(error) => self.common.notify(Severity::Error, format!("{error:#}")),
            },
            _ => {
                let mut whole = snapshot.clone();
                session.source.add_records(&mut whole);
                let now = self.common.now;
                let until = self.records.as_ref().map_or(now + saving::FOR_RECORDS, |it| it.until);
                let is_late = session.source.awaits_records(snapshot);
                self.records = is_late.then(|| AwaitedRecords { next: now + CHECK, until });
                self.take_records(&whole);
            }
        }
    }

    /// Gives a snapshot's records to all screens.
    pub(super) fn take_records(&mut self, snapshot: &Snapshot) {
        for screen in self.screens.all_mut() {
            screen.take_records(snapshot);
        }
    }

    /// Shows the screen this many places further in the row of tabs, wrapping around.
    fn turn(&mut self, screens: usize) {
        if let Some(tab) = self.screen.tab() {
            self.show(Screen::TABS[(tab + screens) % Screen::TABS.len()].screen);
        }
    }

    /// The point that the keys act on: its id, state and name.
    pub(super) fn point_meant(&self) -> Option<(u32, PointState, String)> {
        let target = self.target_point()?;
        Some((target.id(), target.state(), self.common.full_name(target)))
    }

    fn pause(&mut self) {
        match self.common.status() {
            Status::Live => {
                // Read the records now, before the rings overwrite them.
                self.look_at_records();
                self.common.paused = true;
                self.common.model.pause();
            }
            Status::Paused => {
                self.common.paused = false;
                self.common.ended_unseen = None;
                self.next_poll = self.common.now;
            }
            Status::Replay => self.play_or_stop(),
            Status::Waiting | Status::Exited | Status::Crashed | Status::File => {
                self.common.say("these figures no longer change");
            }
        }
    }

    /// Takes a new baseline: the measurements since the previous baseline or, without one, all
    /// measurements so far.
    fn take_baseline(&mut self) {
        let Some(snapshot) = self.common.model.snapshot() else { return };
        if self.common.replay.is_some() {
            // In a recording, any moment may become the baseline.
            let time = pfp_read::local_time::time_of_day(snapshot.taken_unix_ns);
            self.compare_with(Baseline::of(snapshot.clone(), Some(time.clone())));
            let said = format!("baseline set at {time}; press 5 to compare");
            return self.common.say(said);
        }
        let next = match &self.screens.diff.baseline {
            Some(baseline) => baseline.next(snapshot),
            None => Some(Baseline::of(snapshot.clone(), None)),
        };
        match next {
            Some(baseline) => {
                self.compare_with(baseline);
                self.common.log.note(self.common.unix_ns(), "baseline taken");
                let said = "baseline taken; press 5 to compare";
                self.common.say(said);
            }
            None => {
                self.common.notify(Severity::Error, "nothing was measured since the last baseline")
            }
        }
    }

    fn change_interval(&mut self, longer: bool) {
        if self.common.replay.is_some() {
            return self.common.say("a recording is not polled; ] plays it faster, [ slower");
        }
        let mut steps = INTERVALS_MS.into_iter().map(Duration::from_millis);
        let step = if longer {
            steps.find(|step| *step > self.common.interval)
        } else {
            steps.rfind(|step| *step < self.common.interval)
        };
        if let Some(step) = step {
            self.common.interval = step;
            self.next_poll = self.next_poll.min(self.common.now + step);
        }
        self.common.say(format!("every {} s", self.common.interval.as_secs_f64()));
    }
}
