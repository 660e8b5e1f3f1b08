//! State that the app shares with all its screens: the watched process, the points to show, and the
//! message in the last line; also the actions, the keys and the overlays.

pub(crate) mod action;
mod chosen_keys;
pub mod keys;
mod options;
mod overlay;
mod prompt;
pub(crate) mod replay;
mod screen;
mod target;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

pub use self::action::Action;
pub use self::chosen_keys::ChosenKeys;
pub use self::options::Options;
pub use self::overlay::{Overlay, Question};
pub use self::prompt::{Prompt, PromptSubject, default_file_name};
pub use self::replay::Replay;
pub(crate) use self::screen::every_screen;
pub use self::screen::{Screen, Tab};
pub use self::target::MouseTarget;
use crate::styles::Styles;
use pfp_model::filter::Filter;
use pfp_model::grid::{CellContext, Scroll};
use pfp_model::log::EventLog;
use pfp_model::{Figures, Model};
use pfp_read::local_time::unix_ns;
use pfp_read::session::Session;
use pfp_read::snapshot::{ProcessState, Snapshot};
use pfp_read::source::{Discovery, Recording, Wanted};
use pfp_read::text;
use pfp_read::units::{Scale, Unit};
use pfp_read::waits::WaitsReport;

/// How long the rows stay in place after a move of the cursor.
pub(crate) const FREEZE: Duration = Duration::from_millis(1500);
/// How long a message stays.
pub(crate) const TOAST: Duration = Duration::from_secs(4);

/// The kind of figures on the screen, as shown in the first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// No process is watched.
    Waiting,
    /// The figures follow the process.
    Live,
    /// The user has paused the figures.
    Paused,
    /// The last figures of a process that exited cleanly, or ended in an unknown way.
    Exited,
    /// The last figures of a process that died.
    Crashed,
    /// The figures of a file.
    File,
    /// The figures of a moment of a recording.
    Replay,
}

impl Status {
    /// The label of the newest moment of a history.
    pub(crate) fn edge(self) -> &'static str {
        match self {
            Self::Exited | Self::Crashed => "end",
            Self::Replay => "here",
            _ => "now",
        }
    }
}

/// A request to the event loop, which owns the terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Errand {
    /// Suspend this process and return to the shell.
    Suspend,
    /// Redraw the whole screen.
    Redraw,
    /// Copy this text to the terminal's clipboard.
    Copy(String),
}

/// Severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Success.
    Info,
    /// A failure that the log has already.
    Failure,
    /// The failure of an action that a key requested.
    Error,
    /// A failure that no key has caused.
    Problem,
}

/// A message that disappears after a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toast {
    /// The text of the message.
    pub text: String,
    /// Whether it is about a failure.
    pub is_error: bool,
    pub(crate) until: Instant,
}

/// State that all screens share.
pub struct Common {
    /// The figures.
    pub model: Model,
    /// The filter: the points that pass have a row.
    pub filter: Filter,
    /// Ids of the points in the order of the table's rows.
    pub order: Vec<u32>,
    /// Id of the point under the cursor.
    pub selected: Option<u32>,
    /// The unit in which ticks are shown.
    pub unit: Unit,
    /// Time between two polls.
    pub interval: Duration,
    /// Whether the figures are paused.
    pub paused: bool,
    /// The message in the last line.
    pub toast: Option<Toast>,
    /// The log of events.
    pub log: EventLog,
    /// The last result of looking for processes.
    pub discovery: Discovery,
    /// The position in a recording. `None` if the source is not a recording.
    pub replay: Option<Replay>,
    /// A pending request to the event loop.
    pub errand: Option<Errand>,
    pub(crate) options: Options,
    pub(crate) session: Option<Session>,
    /// End of the time in which rows stay in place.
    pub(crate) frozen_until: Option<Instant>,
    /// Whether a place (a machine, container or user) was ever unreachable. If so, the notice about
    /// places stays on the screen.
    pub(crate) had_bad_places: bool,
    /// How the process ended while the figures were paused.
    pub(crate) ended_unseen: Option<ProcessState>,
    /// Scroll position of the list on the screen.
    pub scroll: Scroll,
    /// Number of rows of the list that are visible.
    pub(crate) rows: usize,
    /// The start of the app by two clocks: monotonic, and nanoseconds since the Unix epoch.
    began: (Instant, u64),
    /// The moment that the app is handling.
    pub(crate) now: Instant,
    /// Colours and signs.
    pub styles: Styles,
}

impl CellContext for Common {
    fn scale(&self) -> Scale {
        Self::scale(self)
    }
}

impl Common {
    pub(crate) fn new(options: Options, now: Instant) -> Self {
        Self {
            model: Model::new(options.tau.as_secs_f64()),
            filter: options.filter.clone(),
            order: Vec::new(),
            selected: None,
            unit: options.unit,
            interval: options.interval,
            paused: false,
            toast: None,
            log: EventLog::default(),
            discovery: Discovery::default(),
            replay: None,
            errand: None,
            options,
            session: None,
            frozen_until: None,
            had_bad_places: false,
            ended_unseen: None,
            scroll: Scroll::default(),
            rows: 1,
            began: (now, unix_ns(SystemTime::now())),
            now,
            styles: Styles::new(true, false),
        }
    }

    /// What the threads of the watched process waited for in the last seconds. `None` if that is not
    /// known.
    pub(crate) fn waits(&self) -> Option<&Arc<WaitsReport>> {
        self.model.snapshot()?.waits.as_ref()
    }

    /// The point under the cursor.
    pub fn selected(&self) -> Option<&Figures> {
        self.model.point(self.selected?)
    }

    /// The kind of figures on the screen.
    pub fn status(&self) -> Status {
        let Some(session) = &self.session else {
            return Status::Waiting;
        };
        if self.replay.is_some() {
            return Status::Replay;
        }
        if !session.source.is_process() {
            return Status::File;
        }
        match self.model.snapshot().map(|snapshot| snapshot.process.state) {
            Some(ProcessState::Exited | ProcessState::Ended) => Status::Exited,
            Some(ProcessState::Crashed) => Status::Crashed,
            Some(ProcessState::Running) | None if self.paused => Status::Paused,
            Some(ProcessState::Running) | None => Status::Live,
        }
    }

    /// How the process ended while the figures were paused. `None` once the screen shows its last
    /// figures.
    pub fn ended_unseen(&self) -> Option<ProcessState> {
        self.ended_unseen
    }

    /// The user's choice of processes.
    pub fn wanted(&self) -> &Wanted {
        &self.options.wanted
    }

    /// The scale to show ticks of the watched process.
    pub fn scale(&self) -> Scale {
        Scale {
            ticks_per_second: self.model.snapshot().map_or(0.0, |s| s.clock.ticks_per_second),
            unit: self.unit,
        }
    }

    /// The name of a point, or its number if the model does not have the point.
    pub fn point_name(&self, id: u32) -> String {
        self.model.point(id).map_or_else(|| format!("#{id}"), Figures::name)
    }

    /// Keeps the cursor on its point if the point is among these rows. Otherwise moves the cursor
    /// to the first row or, without rows, to a point of the table.
    pub(crate) fn select_among(&mut self, rows: &[u32]) {
        let is_in = |rows: &[u32]| self.selected.is_some_and(|id| rows.contains(&id));
        if !is_in(rows) {
            let kept = self.selected.filter(|_| is_in(&self.order));
            self.selected = rows.first().copied().or(kept).or(self.order.first().copied());
        }
    }

    /// The rows `sorted`, in the order in which they are shown. While the cursor moves, rows that
    /// are in `before` keep their places, and new ones come last.
    pub(crate) fn placed(&self, before: &[u32], sorted: Vec<u32>) -> Vec<u32> {
        if self.frozen_until.is_none() {
            return sorted;
        }
        let set = |ids: &[u32]| HashSet::<u32>::from_iter(ids.iter().copied());
        let (there, known) = (set(&sorted), set(before));
        let kept = before.iter().filter(|id| there.contains(id));
        kept.chain(sorted.iter().filter(|id| !known.contains(id))).copied().collect()
    }

    /// The id of a point's process and a blank, as a prefix of its name. Empty if there is only one
    /// process.
    pub(crate) fn pid_before(&self, point: u32) -> String {
        let process = self.model.point(point).and_then(Figures::process);
        process.map_or(String::new(), |process| format!("{} ", process.pid))
    }

    /// The name of a point, with its process if there are several.
    pub(crate) fn full_name(&self, figures: &Figures) -> String {
        let of = figures.process().map_or(String::new(), |it| format!(" of {it}"));
        figures.name() + &of
    }

    /// Keeps the rows in place for a while, so that the row that the user is moving to does not
    /// jump away.
    pub(crate) fn freeze(&mut self) {
        self.frozen_until = Some(self.now + FREEZE);
    }

    /// The wall clock, nanoseconds since the Unix epoch; in a recording, the time of
    /// the snapshot on the screen.
    pub(crate) fn unix_ns(&self) -> u64 {
        if let Some(replay) = &self.replay {
            return replay.unix_ns;
        }
        let (moment, unix_ns) = self.began;
        unix_ns + self.now.saturating_duration_since(moment).as_nanos() as u64
    }

    /// Passes a snapshot to the log, and shows a message about processes that joined or ended.
    pub(crate) fn observe(&mut self, snapshot: &Arc<Snapshot>) {
        let events = self.log.observe(self.unix_ns(), snapshot);
        if !events.is_empty() {
            let texts: Vec<&str> = events.iter().map(|event| event.text.as_str()).collect();
            let has_problem = events.iter().any(|event| event.is_problem);
            let level = if has_problem { Severity::Failure } else { Severity::Info };
            self.notify(level, texts.join("; "));
        }
    }

    /// The watched recording. `None` if the source is not a recording.
    pub(crate) fn recording(&mut self) -> Option<&mut Recording> {
        self.session.as_mut()?.source.recording()
    }

    /// Shows a message about a success.
    pub(crate) fn say(&mut self, text: impl AsRef<str>) {
        self.notify(Severity::Info, text);
    }

    /// Shows a message for a while. Failures are also added to the log.
    pub(crate) fn notify(&mut self, level: Severity, text: impl AsRef<str>) {
        let text = text::clean(text.as_ref()).into_owned();
        if matches!(level, Severity::Error | Severity::Problem) {
            self.log.note(self.unix_ns(), text.as_str());
        }
        if level == Severity::Problem {
            self.log.problem(self.unix_ns(), text.as_str());
        }
        self.toast =
            Some(Toast { text, is_error: level != Severity::Info, until: self.now + TOAST });
    }
}
