//! The app: the user's view of a process, and how keys change it.
//!
//! Keys become [`Action`]s, actions change the state here and in the screens, and [`crate::view`]
//! draws it. The time is an argument, and processes are found by a [`Finder`], so a test can
//! simulate an afternoon in a millisecond.

mod act;
mod answers;
mod change;
mod controls;
mod mouse;
mod palette;
mod replay;
mod saving;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::Rect;

use crate::common::keys::{self, Binding};
use crate::common::{
    Action, Common, MouseTarget, Options, Overlay, Replay, Screen, Severity, Status,
};
use crate::screens::{PointsView, Screens, View};
use pfp_model::compare::Baseline;
use pfp_model::grid::Scroll;
use pfp_model::headline::ended_words;
use pfp_model::{Basis, Figures, Model, News};
use pfp_read::session::Session;
use pfp_read::snapshot::{ProcessState, Snapshot};
use pfp_read::source::{Finder, Source};

/// Maximum time that a poll waits for requested figures, since they may come from another place,
/// such as another machine. After this time, the last figures are shown again.
const POLL_TIMEOUT: Duration = Duration::from_millis(100);
/// Time between two checks whether requested figures have arrived.
const CHECK: Duration = Duration::from_millis(10);
/// The first interval is shorter, so that real rates show at once.
const FIRST_INTERVAL: Duration = Duration::from_millis(300);

/// The whole state behind the screen.
pub struct App {
    /// State that all screens share.
    pub common: Common,
    /// State of each screen.
    pub screens: Screens,
    /// The screen that fills the body.
    pub screen: Screen,
    /// The overlay over the screen, if any.
    pub overlay: Option<Overlay>,
    /// Whether the user wants to leave.
    pub quit: bool,
    /// Whether the user wants to end the program that was started for this viewer.
    pub ends_program: bool,
    /// The screen from which the current one was opened.
    came_from: Screen,
    /// Scroll position of each screen's list when the screen was last shown.
    scrolls: [Scroll; Screen::ALL.len()],
    /// The object at which the left button of the mouse was pressed last.
    grabbed: MouseTarget,
    /// Earlier filters, the newest last.
    filters: Vec<String>,
    finder: Box<dyn Finder>,
    keys: keys::Keys,
    next_poll: Instant,
    updates: u64,
    /// Whether there was a search for processes.
    has_looked: bool,
    /// The user's changes in the watched program that can be undone, the newest last.
    undo_stack: Vec<change::UndoEntry>,
    /// The user's changes that another place has not confirmed yet.
    requested: change::Requested,
    /// The job that reads the recording.
    reading: Option<replay::Reading>,
    /// The file that is being saved.
    saving: Option<saving::Saving>,
    /// The records of figures that no longer change, while they are on their way.
    records: Option<AwaitedRecords>,
    /// While requested figures are on their way: the moment from which the last ones are shown again.
    awaits_until: Option<Instant>,
}

/// Records that are awaited.
struct AwaitedRecords {
    /// Moment of the next check.
    next: Instant,
    /// The moment until which they are awaited.
    until: Instant,
}

impl App {
    /// An app that looks for a process to watch.
    pub fn new(options: Options, finder: Box<dyn Finder>, now: Instant) -> Self {
        Self {
            screens: Screens { points: PointsView::new(&options), ..Screens::default() },
            common: Common::new(options, now),
            screen: Screen::Waiting,
            overlay: None,
            quit: false,
            ends_program: false,
            came_from: Screen::Points,
            scrolls: Default::default(),
            grabbed: MouseTarget::Nothing,
            filters: Vec::new(),
            finder,
            keys: keys::Keys::default(),
            next_poll: now,
            updates: 0,
            has_looked: false,
            undo_stack: Vec::new(),
            requested: change::Requested::default(),
            reading: None,
            saving: None,
            records: None,
            awaits_until: None,
        }
    }

    /// Watches this source from now on, and shows its first snapshot.
    pub fn watch(&mut self, source: Box<dyn Source>, now: Instant) {
        self.common.now = now;
        // Drop the old session first, which restores its toggled points.
        self.common.session = None;
        self.common.session = Some(Session::new(source, self.common.options.keep));
        self.common.model = Model::new(self.common.options.tau.as_secs_f64());
        self.common.order.clear();
        self.common.selected = None;
        self.common.paused = false;
        self.common.ended_unseen = None;
        self.common.had_bad_places = false;
        self.undo_stack.clear();
        self.requested = change::Requested::default();
        self.records = None;
        for screen in self.screens.all_mut() {
            screen.forget();
        }
        self.scrolls = Default::default();
        self.common.scroll = Scroll::default();
        self.screen = Screen::Points;
        self.next_poll = now;
        self.begin_replay();
        self.poll(now);
    }

    /// The screen that is shown.
    pub fn view(&self) -> &dyn View {
        self.screens.get(self.screen)
    }

    /// The screen that is shown, mutable, with the shared state.
    fn view_mut(&mut self) -> (&mut dyn View, &mut Common) {
        (self.screens.get_mut(self.screen), &mut self.common)
    }

    /// The moment of the next poll. `None` while nothing can change.
    pub fn next_poll(&self) -> Option<Instant> {
        match self.common.status() {
            Status::Waiting | Status::Live => Some(self.next_poll),
            Status::Replay if self.common.replay.as_ref().is_some_and(Replay::is_due) => {
                Some(self.next_poll)
            }
            Status::Replay if self.reading.is_some() => Some(self.next_poll),
            // While paused, figures stay as they are, but the end of the process is shown.
            Status::Paused if self.common.ended_unseen.is_none() => Some(self.next_poll),
            // The list of processes keeps changing, so polling continues while it is shown.
            _ if self.screen.tab().is_none() || self.is_busy() => Some(self.next_poll),
            _ => None,
        }
    }

    /// Whether a screen works on something in the background.
    fn is_busy(&self) -> bool {
        Screen::ALL.iter().any(|screen| self.screens.get(*screen).is_busy())
    }

    /// Requests figures, and the list of processes if the screen shows it. If they have not arrived
    /// yet, returns true, and the poll must be repeated a moment later. The wait for the first
    /// figures or the first list has no time limit.
    fn awaits(&mut self, now: Instant) -> bool {
        let (mut awaits, mut is_first) = (false, false);
        if self.shows_processes() {
            self.finder.prepare();
            awaits = self.finder.awaits();
            is_first = !self.has_looked;
        }
        let needs = self.view().wait_needs();
        if let Some(session) = &mut self.common.session {
            session.source.set_interval(Some(self.common.interval));
            session.source.need_waits(needs);
            session.source.prepare();
            awaits |= session.source.awaits();
            is_first |= self.common.model.snapshot().is_none() && self.screen.tab().is_some();
        }
        let until = *self.awaits_until.get_or_insert(now + POLL_TIMEOUT);
        if awaits && (is_first || now < until) {
            self.next_poll = now + CHECK;
            return true;
        }
        self.awaits_until = None;
        false
    }

    /// Whether the screen shows processes to choose from, or waits for one.
    fn shows_processes(&self) -> bool {
        self.common.session.is_none() || self.screen.tab().is_none()
    }

    /// Takes the next snapshot, or looks for a process if none is watched.
    pub fn poll(&mut self, now: Instant) {
        self.common.now = now;
        if self.awaits(now) {
            return;
        }
        for screen in self.screens.all_mut() {
            screen.tick(&mut self.common);
        }
        if self.common.status() == Status::Paused {
            self.check_for_end();
        } else if self.common.replay.is_some() {
            self.play();
        } else {
            self.take_snapshot();
        }
        if self.shows_processes() {
            self.look();
        }
        let wait = match &self.common.session {
            None => self.common.options.look_every.unwrap_or(self.common.interval),
            Some(_) if self.common.replay.is_some() => self.until_next_frame(),
            Some(_) if self.common.model.basis() == Basis::Life => {
                self.common.interval.min(FIRST_INTERVAL)
            }
            Some(_) => self.common.interval,
        };
        self.next_poll = now + wait;
    }

    fn take_snapshot(&mut self) {
        let wants_records = self.view().wants_records();
        let Some(session) = &mut self.common.session else { return };
        let polled = session.poll_after(self.common.model.snapshot());
        self.hear();
        match polled {
            Ok(mut snapshot) => {
                if let Some(session) = self.common.session.as_mut().filter(|_| wants_records) {
                    session.source.add_records(&mut snapshot);
                    // A picture of all threads for each screen would cost too much, so only the
                    // visible screen gets the records. The other screens request them when they are
                    // shown.
                    self.view_mut().0.take_records(&snapshot);
                }
                let snapshot = Arc::new(snapshot);
                self.common.observe(&snapshot);
                // If one of several places is lost, the others continue. Remember that a place was
                // lost, so that the notice about places stays on the screen.
                let session = self.common.session.as_ref();
                self.common.had_bad_places |=
                    session.is_some_and(|session| !session.source.bad_places().is_empty());
                let line = session.and_then(|session| session.source.line());
                if let Some(why) = line.and_then(|line| line.why) {
                    self.common.notify(Severity::Problem, format!("{why}; trying again"));
                }
                let was_life = self.common.model.basis() == Basis::Life;
                let news = self.common.model.fold(snapshot);
                // The picture may be older than the switches that were requested.
                for (id, state) in self.requested.states() {
                    self.common.model.expect_state(id, state);
                }
                // Until now, the rows were sorted by averages over the whole life of the process.
                // Unless the user has just moved the cursor, move it to the top of the new order. A
                // screen about one point keeps its point.
                if was_life
                    && self.common.model.basis() == Basis::Interval
                    && self.common.frozen_until.is_none()
                    && !self.view().holds_point()
                {
                    self.common.selected = None;
                }
                self.updates += 1;
                if self.common.options.updates.is_some_and(|most| self.updates > most) {
                    self.quit = true;
                }
                let snapshot = self.common.model.snapshot();
                let ended = snapshot.map_or_else(String::new, |it| ended_words(&it.process));
                let ended = format!("{ended}; showing its last figures");
                self.report_news(news, &ended);
            }
            Err(error) => self.common.notify(Severity::Problem, format!("{error:#}")),
        }
        self.update();
    }

    /// Reports that another process is watched, or that the process has ended.
    fn report_news(&mut self, news: News, ended: &str) {
        match news {
            News::Later => {}
            News::Replaced => self.common.say("another process took its place"),
            News::Ended => self.common.say(ended),
        }
    }

    /// Brings the screen up to date with the figures.
    fn update(&mut self) {
        let (view, common) = self.view_mut();
        let outcome = view.update(common);
        self.carry_on(outcome);
        // A wide screen shows the point beside the table.
        self.screens.detail.follow(&self.common);
        self.sort();
    }

    /// While the figures are paused, checks whether the process has ended.
    fn check_for_end(&mut self) {
        let Some(session) = &mut self.common.session else { return };
        let polled = session.poll();
        self.hear();
        let snapshot = match polled {
            Ok(snapshot) => Arc::new(snapshot),
            Err(error) => {
                return self.common.notify(Severity::Problem, format!("{error:#}"));
            }
        };
        self.common.observe(&snapshot);
        let (view, common) = self.view_mut();
        view.update(common);
        let state = snapshot.process.state;
        if state != ProcessState::Running && self.common.ended_unseen.replace(state).is_none() {
            let what = ended_words(&snapshot.process);
            self.common.say(format!("{what}; Space shows its last figures"));
        }
    }

    /// Looks for processes, and lets the screen handle the result.
    fn look(&mut self) {
        self.has_looked = true;
        match self.finder.discover() {
            Ok(discovery) => self.common.discovery = discovery,
            Err(error) => return self.common.notify(Severity::Error, format!("{error:#}")),
        }
        let (view, common) = self.view_mut();
        let outcome = view.discovered(common);
        self.carry_on(outcome);
    }

    /// Watches the source that was attached to, or reports why attaching failed.
    fn attach(&mut self, found: anyhow::Result<Box<dyn Source>>) {
        match found {
            Ok(source) => self.watch(source, self.common.now),
            Err(error) => self.common.notify(Severity::Error, format!("{error:#}")),
        }
    }

    /// Sorts the rows. While the cursor moves, the rows stay in place, so that the row that the
    /// user is moving to does not jump away.
    fn sort(&mut self) {
        if self.common.frozen_until.is_some_and(|until| until <= self.common.now) {
            self.common.frozen_until = None;
        }
        self.screens.points.order(&mut self.common);
        let (view, common) = self.view_mut();
        view.arrange(common);
    }

    /// Removes expired messages, and lets the rows move again once their time in place is over.
    /// Returns whether anything on the screen changed.
    pub(crate) fn expire(&mut self, now: Instant) -> bool {
        self.common.now = now;
        let mut changed = false;
        if self.common.toast.as_ref().is_some_and(|toast| toast.until <= now) {
            self.common.toast = None;
            changed = true;
        }
        if self.common.frozen_until.is_some_and(|until| until <= now) {
            self.sort();
            changed = true;
        }
        changed
    }

    /// Adapts to a body of this size, for instance by scrolling the cursor into view. `help_lines`
    /// is the length of the help. Returns whether anything on the screen changed.
    pub(crate) fn fit(&mut self, body: Rect, help_lines: usize) -> bool {
        let (view, common) = self.view_mut();
        common.rows = usize::from(view.rows(body).height).max(1);
        view.settle(body, common);
        let changed = common.scroll.settle(common.rows, view.in_sight(common));
        if let Some(overlay) = &mut self.overlay {
            // The first line of the body is a heading.
            self.common.rows = usize::from(body.height.saturating_sub(1)).max(1);
            if let Overlay::Help(offset) = overlay {
                *offset = help_lines.saturating_sub(self.common.rows).min(*offset);
            }
        }
        changed
    }

    /// Row of the cursor and number of rows of the list on the screen.
    pub fn cursor(&self) -> (usize, usize) {
        self.view().cursor(&self.common)
    }

    /// The next moment at which the screen changes without input.
    pub fn next_change(&self) -> Option<Instant> {
        let toast = self.common.toast.as_ref().map(|toast| toast.until);
        [toast, self.common.frozen_until, self.next_poll(), self.next_check()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The moment of the next call of [`Self::check`]. `None` if there is nothing to wait for.
    pub(crate) fn next_check(&self) -> Option<Instant> {
        let records = self.records.as_ref().map(|records| records.next);
        self.next_saving().into_iter().chain(records).min()
    }

    /// Checks whether what a file or the screen waits for has arrived.
    pub(crate) fn check(&mut self, now: Instant) {
        self.common.now = now;
        if self.next_saving().is_some_and(|due| due <= now) {
            self.go_on_saving(now);
        }
        if let Some(&AwaitedRecords { until, .. }) =
            self.records.as_ref().filter(|it| it.next <= now)
        {
            self.look_at_records();
            self.records.take_if(|_| now >= until);
        }
    }

    /// The point that the keys act on.
    pub fn target_point(&self) -> Option<&Figures> {
        self.common.model.point(self.view().target_point(&self.common)?)
    }

    /// The keys that work now, and their actions.
    pub fn bindings(&self) -> impl Iterator<Item = Binding<'_>> + Clone {
        let (map, is_screen) = match &self.overlay {
            Some(overlay) => (overlay.keys(), false),
            None => (self.view().keys(), true),
        };
        let chosen = &self.common.options.keys;
        keys::bindings(map).map(move |own| if is_screen { chosen.of(own) } else { own })
    }

    /// The action of Esc on the screen; the keys that quit do the same. `None` if Esc does nothing.
    pub(crate) fn way_back(&self) -> Option<Action> {
        let mut actions = keys::bindings(self.view().keys()).map(|binding| binding.action);
        actions.find(|action| match action {
            Action::Back => self.view().leads_back(&self.common),
            Action::Unfilter => self.common.filter.is_on(),
            _ => false,
        })
    }

    /// The first of the keys that show a screen of the watched process.
    pub fn key_to(&self, screen: Screen) -> String {
        let shows = |binding: &&Binding| binding.action == Action::Show(screen);
        let binding = keys::SHOW.bindings.iter().find(shows);
        binding.map_or(String::new(), |binding| self.chosen(*binding).key_name())
    }

    /// The first of the keys that switch all points of the table.
    pub fn key_to_toggle_all(&self) -> String {
        let mut bindings = keys::bindings(self.screens.points.keys());
        let binding = bindings.find(|binding| binding.action == Action::ToggleAll);
        binding.map_or(String::new(), |binding| self.chosen(binding).key_name())
    }

    /// A binding of the screen, with the user's own keys if there are any.
    pub fn chosen<'a>(&'a self, binding: Binding<'a>) -> Binding<'a> {
        self.common.options.keys.of(binding)
    }

    /// Handles a key.
    pub fn key(&mut self, key: KeyEvent, now: Instant) {
        self.common.now = now;
        if key.kind == KeyEventKind::Release {
            return;
        }
        // Terminals send the same bytes for Alt-s as for Esc and s in quick succession, so Alt-s
        // acts as both keys.
        if key.modifiers.contains(KeyModifiers::ALT) && matches!(key.code, KeyCode::Char(_)) {
            self.key(KeyEvent::from(KeyCode::Esc), now);
            let modifiers = key.modifiers.difference(KeyModifiers::ALT);
            return self.key(KeyEvent { modifiers, ..key }, now);
        }
        // A message disappears at the next key.
        self.common.toast = None;
        let mut keys = self.keys;
        let action = keys.action(self.bindings(), key);
        self.keys = keys;
        match action {
            Some(action) => self.act(action, now),
            None => {
                if let Some(prompt) = self.overlay.as_mut().and_then(Overlay::prompt_mut) {
                    prompt.key(key);
                    self.typed();
                }
            }
        }
    }

    /// Inserts pasted text into the line that is being typed. Its characters do not act as keys.
    pub fn paste(&mut self, text: &str, now: Instant) {
        self.common.now = now;
        self.keys = keys::Keys::default();
        match self.overlay.as_mut().and_then(Overlay::prompt_mut) {
            Some(prompt) => {
                prompt.paste(text);
                self.typed();
            }
            None => {
                let said =
                    "pasted text does not act as keys; open a prompt first, for instance with /";
                self.common.say(said);
            }
        }
    }

    /// Whether the user typed the first half of a two-key command.
    pub fn half_typed(&self) -> Option<char> {
        self.keys.half_typed()
    }

    /// Adds an entry to the log, marked as a problem or not.
    pub fn note(&mut self, text: &str, is_problem: bool) {
        let (unix_ns, text) = (self.common.unix_ns(), pfp_read::text::clean(text));
        match is_problem {
            true => self.common.log.problem(unix_ns, text),
            false => self.common.log.note(unix_ns, text),
        }
    }

    /// Compares with this baseline from now on.
    pub fn compare_with(&mut self, baseline: Baseline) {
        for screen in self.screens.all_mut() {
            screen.compare_with(&baseline, &self.common);
        }
        let (view, common) = self.view_mut();
        view.update(common);
        view.arrange(common);
    }

    /// The watched process as it is now, complete, for a file. `None` if nothing is watched.
    pub fn last_snapshot(&mut self) -> Option<Snapshot> {
        let session = self.common.session.as_mut()?;
        let snapshot = session.poll().ok()?;
        let until = Instant::now() + saving::FOR_RECORDS;
        loop {
            let mut whole = snapshot.clone();
            session.source.add_records(&mut whole);
            if Instant::now() >= until || !session.source.awaits_records(&snapshot) {
                return Some(whole);
            }
            std::thread::sleep(CHECK);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
