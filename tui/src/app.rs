//! The app: what the user looks at, and what the user's keys do to it.
//!
//! Keys become [`Action`]s ([`keys`]), actions change the state here, the
//! view draws it. Time comes in as an argument, processes through a
//! [`Finder`], so that a test can live through an afternoon in a millisecond.

mod act;
mod action;
mod choose_columns;
mod common;
mod diff;
mod event_loop;
mod filter;
mod idle;
pub mod keys;
mod load_view;
mod look_for;
pub mod mouse;
mod noticed;
mod prompt;
mod replay;
mod roofline;
mod session;
mod steer;
mod suspend;
mod threads;
mod timeline;
pub(crate) mod weight;

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossterm::event::{KeyEvent, KeyEventKind};

pub use action::Action;
pub use common::Common;
pub use diff::Diff;
pub use event_loop::run;
pub use filter::Filter;
use idle::Idle;
pub use load_view::LoadView;
pub use prompt::{Prompt, default_file_name};
pub use replay::Replay;
pub use roofline::Roofline;
pub(crate) use roofline::dot as roofline_dot;
pub use session::Session;
pub use steer::Question;
pub use threads::{ThreadColumn, ThreadList};
pub use timeline::{TimeView, step_above};

use crate::columns::{Column, Sorting};
use crate::model::threads::rings;
use crate::model::{Basis, Figures, Lately, Model, News, Past, Since, TAU_SECONDS};
use crate::snapshot::{ProcessState, Snapshot};
use crate::source::{Candidate, Choice, Finder, Source, Together, Wanted, choose};
use crate::units::Unit;

/// How long the rows stand still after the cursor moved.
const FREEZE: Duration = Duration::from_millis(1500);
/// How long a message stays.
const TOAST: Duration = Duration::from_secs(4);
/// The first interval is shorter, so that real rates show at once.
const FIRST_INTERVAL: Duration = Duration::from_millis(300);

/// What fills the body of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Screen {
    /// There is no process yet; it is looked for.
    Waiting,
    /// The table of points.
    Points,
    /// One point in full.
    Detail,
    /// The threads.
    Threads,
    /// What the threads did in the last moments.
    Timeline,
    /// The processes to choose from.
    Picker,
    /// The points beside their baseline.
    Diff,
    /// What was noticed, and what measuring costs.
    Log,
    /// What the machine can do at most, and the points below that.
    Roofline,
}

impl Screen {
    /// The screens that show the watched process, in the order of their numbers,
    /// with what they are called.
    pub const TABS: &[(Self, &str)] = &[
        (Self::Points, "Points"),
        (Self::Detail, "Detail"),
        (Self::Threads, "Threads"),
        (Self::Timeline, "Timeline"),
        (Self::Diff, "Diff"),
        (Self::Log, "Log"),
        (Self::Roofline, "Roofline"),
    ];

    /// Whether it shows what the rings hold, which is not looked at otherwise.
    fn wants_records(self) -> bool {
        matches!(self, Self::Threads | Self::Timeline)
    }

    /// Its place among [`Self::TABS`]; none for those that are shown while
    /// nothing is watched, or to choose what is.
    pub fn tab(self) -> Option<usize> {
        Self::TABS.iter().position(|(screen, _)| *screen == self)
    }
}

/// What lies over the body and takes the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Overlay {
    /// The keys and what they do, scrolled down by this many lines.
    Help(usize),
    /// What the points shown must have is being typed.
    Filter(Prompt),
    /// The weight of this point's exponential average is being typed.
    Weight(u32, Prompt),
    /// The columns to choose from, with the cursor on this one.
    Columns(Column),
    /// The columns to sort by, with the cursor on this one.
    Sort(Column),
    /// What the points must have whose regions are looked for on the timeline.
    Find(Prompt),
    /// Something that changes many points waits for a yes.
    Ask(Question),
    /// The moment of the recording to go to is being typed.
    Seek(Prompt),
    /// The path of the snapshot to write is being typed.
    Write(Prompt),
    /// The file of that path exists: may it be replaced?
    Replace(Prompt),
}

/// What the figures on the screen are, for the first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Nothing is watched.
    Waiting,
    /// They follow the process.
    Live,
    /// They stand still because the user said so.
    Paused,
    /// They are the last of a process that ended in order.
    Exited,
    /// They are the last of a process that died.
    Crashed,
    /// They come from a file.
    File,
    /// They are those of a moment of a recording.
    Replay,
}

/// What only the event loop can do, with the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Errand {
    /// Back to the shell for a while.
    Suspend,
    /// Draw everything anew.
    Redraw,
    /// Put this into the terminal's clipboard.
    Copy(String),
}

/// A message that goes away by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toast {
    /// What it says.
    pub text: String,
    /// Whether something did not work.
    pub is_error: bool,
    until: Instant,
}

/// What the screen has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Rows of the list, or lines of the text, that are seen at once.
    pub rows: usize,
    /// Lines that the text on the screen has altogether; of a log, its entries that
    /// can be scrolled through; 0 for a list.
    pub lines: usize,
    /// Which of them the load of a point in full has: the first, and behind the last.
    pub load: Option<(usize, usize)>,
}

/// How the user wants to watch.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which processes to consider.
    pub wanted: Wanted,
    /// Time between two polls.
    pub interval: Duration,
    /// Time constant of the smoothed load.
    pub tau: Duration,
    /// The columns of the table, from left to right.
    pub columns: Vec<Column>,
    /// What to sort by first.
    pub sorting: Sorting,
    /// Which points to show first.
    pub filter: Filter,
    /// Leave toggled points as they are.
    pub keep: bool,
    /// What to show ticks as first.
    pub unit: Unit,
    /// Take the mouse.
    pub mouse: bool,
    /// Leave after this many updates.
    pub updates: Option<u64>,
    /// Time between two looks while there is no process; none for that between
    /// two polls.
    pub look_every: Option<Duration>,
    /// Several processes to watch as one.
    pub together: Option<Together>,
    /// Where the ceilings of the roofline are kept.
    pub ceilings: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            wanted: Wanted::default(),
            interval: Duration::from_secs(1),
            tau: Duration::from_secs_f64(TAU_SECONDS),
            columns: Column::DEFAULT.to_vec(),
            sorting: Sorting::by(Column::Load),
            filter: Filter::default(),
            keep: false,
            unit: Unit::Time,
            mouse: true,
            updates: None,
            look_every: None,
            together: None,
            ceilings: None,
        }
    }
}

/// The whole state behind the screen.
pub struct App {
    /// What all screens have in common.
    pub common: Common,
    /// What fills the body.
    pub screen: Screen,
    /// What lies over it.
    pub overlay: Option<Overlay>,
    /// Rows scrolled out at the top of the table or the picker.
    pub offset: usize,
    /// Lines scrolled out at the top of the detail, or of an opened thread.
    pub detail_offset: usize,
    /// Which part of its load history the detail shows.
    pub load: LoadView,
    /// Which measurements the histogram of the detail is of.
    pub since: Since,
    /// The threads as a list.
    pub threads: ThreadList,
    /// Where the user looks on the timeline.
    pub timeline: TimeView,
    /// The columns of the table, from left to right.
    pub columns: Vec<Column>,
    /// What the table is sorted by.
    pub sorting: Sorting,
    /// What the figures are compared with.
    pub diff: Diff,
    /// What the machine can do at most, and the points below that.
    pub roofline: Roofline,
    /// Entries of the log below the last one seen; 0 follows the newest.
    pub log_back: usize,
    /// The processes to choose from, in the order of the rows.
    pub candidates: Vec<Candidate>,
    /// Segment id of the process under the picker's cursor.
    pub picked: Option<String>,
    /// Segment ids of the processes that are marked in the picker.
    pub marked: HashSet<String>,
    /// The user wants to leave.
    pub quit: bool,
    /// The moments of the point whose detail is open.
    past: Past,
    /// The screen that the detail was opened on.
    came_from: Screen,
    /// Columns of long names that are scrolled out at the left.
    pub name_offset: usize,
    /// Filters that were typed before, the last one last.
    filters: Vec<String>,
    /// All columns, in the order in which the chooser has them.
    choices: Vec<Column>,
    finder: Box<dyn Finder>,
    keys: keys::Keys,
    /// Rows of points that are off and never measured.
    idle: Idle,
    next_poll: Instant,
    updates: u64,
}

impl App {
    /// An app that looks for a process to watch.
    pub fn new(options: Options, finder: Box<dyn Finder>, now: Instant) -> Self {
        Self {
            screen: Screen::Waiting,
            overlay: None,
            offset: 0,
            detail_offset: 0,
            load: LoadView::default(),
            since: Since::default(),
            threads: ThreadList::default(),
            timeline: TimeView::default(),
            came_from: Screen::Points,
            choices: choose_columns::choices(&options.columns),
            columns: options.columns.clone(),
            sorting: options.sorting,
            diff: Diff::default(),
            roofline: Roofline::default(),
            log_back: 0,
            candidates: Vec::new(),
            picked: None,
            marked: HashSet::new(),
            quit: false,
            past: Past::default(),
            name_offset: 0,
            filters: Vec::new(),
            finder,
            keys: keys::Keys::default(),
            idle: Idle::default(),
            next_poll: now,
            updates: 0,
            common: Common::new(options, now),
        }
    }

    /// Watches this source from now on, and shows its first snapshot.
    pub fn watch(&mut self, source: Box<dyn Source>, now: Instant) {
        // What was watched before gets its toggles back first.
        self.common.session = None;
        self.common.session = Some(Session::new(source, self.common.options.keep));
        self.common.model = Model::new(self.common.options.tau.as_secs_f64());
        self.common.order.clear();
        self.common.selected = None;
        self.idle.forget();
        self.offset = 0;
        self.threads = ThreadList::default();
        self.timeline = TimeView::default();
        self.load = LoadView::default();
        self.common.paused = false;
        self.common.ended_unseen = None;
        self.screen = Screen::Points;
        self.marked.clear();
        self.next_poll = now;
        self.begin_replay();
        self.poll(now);
    }

    /// When the next poll is due; none while nothing new can come.
    pub fn next_poll(&self) -> Option<Instant> {
        match self.common.status() {
            Status::Waiting | Status::Live => Some(self.next_poll),
            Status::Replay if self.common.replay.as_ref().is_some_and(Replay::is_due) => {
                Some(self.next_poll)
            }
            // Nothing new is shown, but that it ended is.
            Status::Paused if self.common.ended_unseen.is_none() => Some(self.next_poll),
            // The list of processes goes on changing.
            _ if self.screen == Screen::Picker => Some(self.next_poll),
            _ if self.roofline.is_measuring() => Some(self.next_poll),
            _ => None,
        }
    }

    /// Takes the next snapshot, or looks for a process where there is none.
    pub fn poll(&mut self, now: Instant) {
        self.take_ceilings(now);
        if self.common.status() == Status::Paused {
            self.look_after_it(now);
        } else if self.common.replay.is_some() {
            self.play(now);
        } else {
            self.take_snapshot(now);
        }
        if self.common.session.is_none() || self.screen == Screen::Picker {
            self.look(now);
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

    fn take_snapshot(&mut self, now: Instant) {
        let Some(session) = &mut self.common.session else {
            return;
        };
        match session.poll_after(self.common.model.snapshot()) {
            Ok(mut snapshot) => {
                if self.screen.wants_records() {
                    session.add_records(&mut snapshot);
                    self.take_shown_records(&snapshot);
                }
                self.observe(&snapshot, now);
                let was_life = self.common.model.basis() == Basis::Life;
                let news = self.common.model.fold(snapshot);
                // The first order was one of whole lives. A cursor that has not
                // been moved stays at the top of the real one; what is open stays.
                if was_life
                    && self.common.model.basis() == Basis::Interval
                    && self.common.frozen_until.is_none()
                    && self.screen != Screen::Detail
                {
                    self.common.selected = None;
                }
                self.updates += 1;
                if self.common.options.updates.is_some_and(|most| self.updates > most) {
                    self.quit = true;
                }
                match news {
                    News::Later => {}
                    News::Replaced => self.common.say(now, "another process took its place"),
                    News::Ended => {
                        self.common.say(now, "the process has ended; its last figures stay")
                    }
                }
            }
            Err(error) => self.common.trouble(now, format!("{error:#}")),
        }
        self.compare();
        self.sort(now);
        self.follow();
    }

    /// Takes over what the screen shows of the rings. The others look for
    /// themselves when they are turned to: a picture of all is not made for each.
    fn take_shown_records(&mut self, snapshot: &Snapshot) {
        match self.screen {
            Screen::Timeline => self.timeline.take(snapshot),
            Screen::Threads => self.threads.rings = rings(snapshot),
            _ => {}
        }
    }

    /// Takes over what a snapshot has of the rings, for all screens that show it.
    fn take_records(&mut self, snapshot: &Snapshot) {
        self.timeline.take(snapshot);
        self.threads.rings = rings(snapshot);
    }

    /// Remembers how the point whose detail is open is now.
    fn follow(&mut self) {
        let figures = self.common.selected.and_then(|id| self.common.model.point(id));
        if self.screen == Screen::Detail
            && let (Some(figures), Some(snapshot)) = (figures, self.common.model.snapshot())
        {
            let rate = snapshot.clock.ticks_per_second;
            self.past.follow(figures, snapshot.elapsed_ticks, rate);
        }
    }

    /// Counts the selected point's measurements from now on.
    fn mark_moment(&mut self) {
        self.follow();
        let figures = self.common.selected.and_then(|id| self.common.model.point(id));
        if let (Some(figures), Some(snapshot)) = (figures, self.common.model.snapshot()) {
            self.past.mark(figures, snapshot.elapsed_ticks);
            self.since = Since::Mark;
        }
    }

    /// What the selected point measured in the window; none for all of it, and
    /// where that is not known.
    pub fn lately(&self) -> Option<Lately> {
        let snapshot = self.common.model.snapshot()?;
        let rate = snapshot.clock.ticks_per_second;
        self.past.lately(self.since, self.common.selected()?, snapshot.elapsed_ticks, rate)
    }

    /// While the figures stand still: notices if the process ends.
    fn look_after_it(&mut self, now: Instant) {
        let snapshot = match self.common.session.as_mut().map(Session::poll) {
            Some(Ok(snapshot)) => snapshot,
            Some(Err(error)) => return self.common.trouble(now, format!("{error:#}")),
            None => return,
        };
        self.observe(&snapshot, now);
        let state = snapshot.process.state;
        if state != ProcessState::Running && self.common.ended_unseen.replace(state).is_none() {
            self.common.say(now, "the process has ended; Space shows its last figures");
        }
    }

    /// Looks for processes; takes the only one, offers several.
    fn look(&mut self, now: Instant) {
        match self.finder.discover() {
            Ok(discovery) => self.common.discovery = discovery,
            Err(error) => return self.common.complain(now, format!("{error:#}")),
        }
        if self.screen == Screen::Waiting
            && let Some(together) = self.common.options.together.clone()
        {
            let all = &self.common.discovery.candidates;
            if all.iter().any(|candidate| together.admits(candidate, all)) {
                self.attach_together(&together, now);
            }
            return;
        }
        let choice = choose(&self.common.discovery, &self.common.options.wanted);
        self.candidates = match (choice, self.screen) {
            (Choice::None, _) => Vec::new(),
            (Choice::One(only), Screen::Waiting) => return self.attach(&only, now),
            // Offered for want of one that runs; now there is one.
            (Choice::One(only), Screen::Picker)
                if self.common.session.is_none()
                    && !self.candidates.iter().any(Candidate::runs) =>
            {
                return self.attach(&only, now);
            }
            // The user asked to see what there is, so nothing is left out.
            (_, Screen::Picker) => {
                act::all_candidates(&self.common.discovery, &self.common.options.wanted)
            }
            (Choice::One(only), _) => vec![only],
            (Choice::Several(several), _) => several,
        };
        match (self.screen, self.candidates.is_empty()) {
            (Screen::Waiting, false) => self.screen = Screen::Picker,
            (Screen::Picker, true) if self.common.session.is_none() => {
                self.screen = Screen::Waiting
            }
            _ => {}
        }
    }

    fn attach(&mut self, candidate: &Candidate, now: Instant) {
        match self.finder.attach(candidate) {
            Ok(source) => self.watch(source, now),
            Err(error) => self.common.complain(now, format!("{error:#}")),
        }
    }

    fn attach_together(&mut self, together: &Together, now: Instant) {
        match self.finder.attach_together(together) {
            Ok(source) => self.watch(source, now),
            Err(error) => self.common.complain(now, format!("{error:#}")),
        }
    }

    /// Puts the rows in order, or keeps them where they are while the cursor
    /// moves: the row the user is reaching for must not run away.
    fn sort(&mut self, now: Instant) {
        self.idle.look(self.common.model.points(), self.common.filter.is_on());
        let (known, filter, idle) = (&self.common.model, &self.common.filter, &self.idle);
        let has_row = |figures: &Figures| filter.admits(figures) && !idle.hides(figures);
        if self.common.frozen_until.is_some_and(|until| now < until) {
            self.common.order.retain(|id| known.point(*id).is_some_and(has_row));
            let placed: HashSet<u32> = self.common.order.iter().copied().collect();
            let new = |figures: &&Figures| !placed.contains(&figures.id()) && has_row(figures);
            let new = known.points().iter().filter(new).map(Figures::id);
            self.common.order.extend(new);
            self.threads.sort(known.thread_figures(), true);
        } else {
            self.common.frozen_until = None;
            let shown = known.points().iter().filter(|figures| has_row(figures));
            self.common.order = self.sorting.order_at_once(shown);
            self.threads.sort(self.common.model.thread_figures(), false);
        }
        // The last figures of a process among several do not stay for ever.
        if self.screen == Screen::Detail
            && self.common.selected.is_some_and(|id| self.common.model.point(id).is_none())
        {
            self.screen = Screen::Points;
            self.common.say(now, "the process of that point ended before and is shown no more");
        }
        // A point that is shown in full stays, also when it has no row any more.
        let has_row = |id| match self.screen {
            Screen::Detail => self.common.model.point(id).is_some(),
            // It lists points as well that only the baseline has.
            Screen::Diff => self.common.order.contains(&id) || self.diff.order.contains(&id),
            Screen::Roofline => true,
            _ => self.common.order.contains(&id),
        };
        if !self.common.selected.is_some_and(has_row) {
            self.common.selected = self.common.order.first().copied();
        }
        self.arrange();
        self.arrange_roofline();
    }

    /// How many points have no row, since they are off and have never measured.
    pub fn hidden(&self) -> usize {
        self.idle.hidden()
    }

    /// Shows the rows of points that are off and never measured, or hides them.
    fn show_idle(&mut self, now: Instant) {
        let text = match self.idle.turn() {
            true => "points that are off and never measured are shown",
            false => "points that are off and never measured are hidden",
        };
        self.common.say(now, text);
        self.sort(now);
    }

    /// Mends what time and the size of the screen have made untrue: messages
    /// that are over, a cursor outside the rows of the list. Returns whether
    /// anything on the screen changed.
    pub fn settle(&mut self, room: Room, now: Instant) -> bool {
        let mut changed = false;
        if self.common.toast.as_ref().is_some_and(|toast| toast.until <= now) {
            self.common.toast = None;
            changed = true;
        }
        if self.common.frozen_until.is_some_and(|until| until <= now) {
            self.sort(now);
            changed = true;
        }
        self.common.rows = room.rows.max(1);
        if self.name_offset > 0 {
            let names =
                self.common.model.points().iter().map(|f| crate::text::width(&f.point().name));
            self.name_offset = self.name_offset.min(names.max().unwrap_or(0));
        }
        let last = room.lines.saturating_sub(self.common.rows);
        if let Some((first, behind)) = room.load.filter(|_| std::mem::take(&mut self.load.wanted)) {
            let least = behind.saturating_sub(self.common.rows).min(first);
            self.detail_offset = self.detail_offset.clamp(least, first);
        }
        match &mut self.overlay {
            Some(Overlay::Help(offset)) => *offset = last.min(*offset),
            _ => self.detail_offset = last.min(self.detail_offset),
        }
        if self.screen == Screen::Log && self.overlay.is_none() {
            self.log_back = self.log_back.min(last);
        }
        let (place, len) = self.cursor();
        let offset = self
            .offset
            .min(len.saturating_sub(self.common.rows))
            .min(place)
            .max((place + 1).saturating_sub(self.common.rows));
        changed |= offset != self.offset;
        self.offset = offset;
        changed
    }

    /// Row of the cursor and number of rows of the list on the screen.
    pub fn cursor(&self) -> (usize, usize) {
        if self.screen == Screen::Timeline {
            self.timeline.cursor()
        } else if self.screen == Screen::Threads {
            self.threads.cursor()
        } else if self.screen == Screen::Picker {
            let picked = |c: &Candidate| Some(&c.segment_id) == self.picked.as_ref();
            let place = self.candidates.iter().position(picked);
            (place.unwrap_or(0), self.candidates.len())
        } else {
            let listed = self.listed();
            let place = listed.iter().position(|id| Some(*id) == self.common.selected);
            (place.unwrap_or(0), listed.len())
        }
    }

    /// The next moment at which [`Self::settle`] will change something by
    /// itself.
    pub fn next_change(&self) -> Option<Instant> {
        let toast = self.common.toast.as_ref().map(|toast| toast.until);
        [toast, self.common.frozen_until, self.next_poll()].into_iter().flatten().min()
    }

    /// The point that the keys mean: on the timeline that of the region under the
    /// cursor.
    pub fn meant(&self) -> Option<&Figures> {
        match self.screen {
            Screen::Timeline => self.common.model.point(self.timeline.region()?.1.point),
            _ => self.common.selected(),
        }
    }

    /// Whether the mouse is taken from the terminal.
    pub fn takes_mouse(&self) -> bool {
        self.common.options.mouse
    }

    /// In which mode keys are read now.
    pub fn mode(&self) -> keys::Mode {
        self.mode_of(self.overlay.as_ref())
    }

    /// In which mode they are read on the screen itself.
    pub fn mode_below(&self) -> keys::Mode {
        self.mode_of(None)
    }

    fn mode_of(&self, overlay: Option<&Overlay>) -> keys::Mode {
        match (overlay, self.screen) {
            (Some(Overlay::Help(_)), _) => keys::Mode::Help,
            (Some(Overlay::Filter(_)), _) => keys::Mode::Filter,
            (Some(Overlay::Columns(_)), _) => keys::Mode::Columns,
            (Some(Overlay::Sort(_)), _) => keys::Mode::Sort,
            (Some(Overlay::Ask(_)), _) => keys::Mode::Ask,
            (
                Some(Overlay::Write(_) | Overlay::Weight(..) | Overlay::Seek(_) | Overlay::Find(_)),
                _,
            ) => keys::Mode::Prompt,
            (Some(Overlay::Replace(_)), _) => keys::Mode::Confirm,
            (None, Screen::Waiting) => keys::Mode::Waiting,
            (None, Screen::Points) => keys::Mode::Points,
            (None, Screen::Detail) => keys::Mode::Detail,
            (None, Screen::Threads) => keys::Mode::Threads,
            (None, Screen::Timeline) => keys::Mode::Timeline,
            (None, Screen::Picker) => keys::Mode::Picker,
            (None, Screen::Diff) => keys::Mode::Diff,
            (None, Screen::Log) => keys::Mode::Log,
            (None, Screen::Roofline) => keys::Mode::Roofline,
        }
    }

    /// Takes a key in.
    pub fn key(&mut self, key: KeyEvent, now: Instant) {
        if key.kind == KeyEventKind::Release {
            return;
        }
        // A message has been seen once the user goes on.
        self.common.toast = None;
        match self.keys.action(self.mode(), key) {
            Some(action) => self.act(action, now),
            None => {
                if let Some(
                    Overlay::Write(prompt)
                    | Overlay::Filter(prompt)
                    | Overlay::Weight(_, prompt)
                    | Overlay::Find(prompt)
                    | Overlay::Seek(prompt),
                ) = &mut self.overlay
                {
                    prompt.key(key);
                    self.typed(now);
                }
            }
        }
    }

    /// Whether the user typed the first half of a two-key command.
    pub fn half_typed(&self) -> Option<char> {
        self.keys.half_typed()
    }

    /// Shows a message for a while.
    pub fn tell(&mut self, text: &str, now: Instant) {
        self.common.say(now, text);
    }

    /// What is watched as it is now, and as a file is to have it; none where
    /// nothing is.
    pub fn last_snapshot(&mut self) -> Option<Snapshot> {
        let session = self.common.session.as_mut()?;
        let snapshot = session.poll().ok()?;
        Some(session.whole(&snapshot))
    }
}

#[cfg(test)]
pub(crate) mod tests;
