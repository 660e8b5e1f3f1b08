//! The keys: groups of bindings that screens and overlays are put together from, and that
//! the dispatcher, the last line and the help read.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::action::Action;
use super::overlay::Overlay;
use super::screen::{Screen, every_screen};

/// A key, or the same one twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// A character with Ctrl.
    Ctrl(char),
    /// A character typed twice, as in vim.
    Twice(char),
    /// A key without a character.
    Named(KeyCode),
    /// A key without a character, with Shift.
    Shift(KeyCode),
}

impl Key {
    /// As the help spells it.
    pub fn name(self) -> String {
        match self {
            Self::Char(' ') => "Space".into(),
            Self::Char(c) => c.into(),
            Self::Ctrl(c) => format!("Ctrl-{}", c.to_ascii_uppercase()),
            Self::Twice(c) => format!("{c}{c}"),
            Self::Named(KeyCode::PageUp) => "PgUp".into(),
            Self::Named(KeyCode::PageDown) => "PgDn".into(),
            Self::Named(KeyCode::BackTab) => "Shift-Tab".into(),
            Self::Named(KeyCode::F(n)) => format!("F{n}"),
            Self::Named(code) => format!("{code:?}"),
            Self::Shift(code) => format!("Shift-{}", Self::Named(code).name()),
        }
    }

    fn matches(self, event: &KeyEvent) -> bool {
        let ctrl = event.modifiers.contains(KeyModifiers::CONTROL);
        let shift = event.modifiers.contains(KeyModifiers::SHIFT);
        match self {
            Self::Char(c) => event.code == KeyCode::Char(c) && !ctrl,
            Self::Ctrl(c) => event.code == KeyCode::Char(c) && ctrl,
            Self::Twice(_) => false,
            // Others than these mean the same with Shift.
            Self::Named(KeyCode::Left | KeyCode::Right | KeyCode::Home | KeyCode::End) if shift => {
                false
            }
            Self::Named(code) => event.code == code,
            Self::Shift(code) => event.code == code && shift,
        }
    }
}

/// Keys, and what they do.
#[derive(Clone, Copy, Debug)]
pub struct Binding<'a> {
    /// What the keys do.
    pub action: Action,
    /// Any of these does it.
    pub keys: &'a [Key],
    /// One or two words for the last line of the screen; empty for none.
    pub hint: &'static str,
    /// A line for the help.
    pub help: &'static str,
    /// What else there is to know, for the end of the help; empty for nothing.
    pub more: &'static str,
}

/// Bindings that belong together.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// In the order of the last line and the help.
    pub bindings: &'static [Binding<'static>],
    /// Whether most screens have them; the help lists them behind a screen's own.
    pub is_common: bool,
}

/// All keys of a screen or an overlay, in the order of the last line.
pub type KeyMap = &'static [&'static [Group]];

use Key::{Char, Ctrl, Named, Shift, Twice};

pub(crate) const fn bind(
    action: Action,
    keys: &'static [Key],
    hint: &'static str,
    help: &'static str,
) -> Binding<'static> {
    Binding { action, keys, hint, help, more: "" }
}

/// Bindings of few screens.
pub(crate) const fn own(bindings: &'static [Binding<'static>]) -> Group {
    Group { bindings, is_common: false }
}

/// Bindings of most screens.
pub(crate) const fn common(bindings: &'static [Binding<'static>]) -> Group {
    Group { bindings, is_common: true }
}

/// Whether figures go on, and where one is in a recording.
pub(crate) const RUN: Group = common(&[
    bind(
        Action::Pause,
        &[Char(' '), Char('Z'), Char('p')],
        "pause",
        "pause or go on; play or stop a recording",
    ),
    bind(
        Action::StepBack,
        &[Char(','), Shift(KeyCode::Left)],
        "back",
        "recording: the snapshot before",
    ),
    bind(Action::StepOn, &[Char('.'), Shift(KeyCode::Right)], "on", "recording: the next snapshot"),
    bind(Action::Seek, &[Char('@')], "go to", "recording: go to a moment")
        .more("a moment is 12:03:41, +34s after the first snapshot, or #34"),
    bind(Action::PlayFaster, &[Char(']')], "faster", "recording: play faster"),
    bind(Action::PlaySlower, &[Char('[')], "slower", "recording: play more slowly"),
    bind(Action::MinuteBack, &[Char('{')], "", "recording: a minute back"),
    bind(Action::MinuteOn, &[Char('}')], "", "recording: a minute on"),
    bind(
        Action::RecordingBegin,
        &[Char('^'), Shift(KeyCode::Home)],
        "",
        "recording: the first snapshot",
    ),
    bind(
        Action::RecordingEnd,
        &[Char('$'), Shift(KeyCode::End)],
        "",
        "recording: the last snapshot",
    )
    .more("while the recording grows, play from its last snapshot to follow it"),
]);

/// Enter on a row.
pub(crate) const OPEN: Group = common(&[bind(
    Action::Open,
    &[Named(KeyCode::Enter)],
    "open",
    "open the row; of a thread: its points",
)]);

/// Esc on a screen beside the table.
pub(crate) const TO_TABLE: Group =
    own(&[bind(Action::Back, &[Named(KeyCode::Esc)], "back", "back to the table of points")]);

/// Esc on a screen that another one led to.
pub(crate) const BACK: Group =
    own(&[bind(Action::Back, &[Named(KeyCode::Esc)], "back", "back to where you came from")]);

/// Changes of the point that the keys mean.
pub(crate) const POINT: Group = own(&[
    bind(Action::Toggle, &[Char('e')], "on/off", "switch the point on or off in the program"),
    bind(Action::Reset, &[Char('r')], "reset", "reset the point's figures; asks first"),
]);

/// How that point measures.
pub(crate) const TUNE: Group = own(&[
    bind(Action::Weight, &[Char('a')], "", "set alpha of the point's average").more(
        "the weight of a new value in EWMA: 0.2, a period over a time constant as 100ms/500ms, or off",
    ),
    bind(Action::Fence, &[Char('F')], "", "fence the point, or no longer").more(
        "its stamps wait for the work before them: short regions have their own time, for some 45 ns",
    ),
]);

/// The row as text.
pub(crate) const COPY: Group =
    own(&[bind(Action::Copy, &[Char('y')], "", "copy the row (OSC 52; tmux: set-clipboard on)")]);

/// Which points are shown.
pub(crate) const FILTER: Group = common(&[bind(
    Action::Filter,
    &[Char('/'), Char('\\'), Named(KeyCode::F(4))],
    "filter",
    "show only some points, by name or figure",
)
.more(
    "a part of the name, a regular expression (also /in slashes/) or the whole name \"in \
     quotes\"; thread:NAME, tid:NUMBER, file:NAME; load>5, avg<20us; a capital makes case count; \
     all terms hold, and !TERM excludes; Up brings earlier ones; the timeline finds such a region",
)]);

/// Files, units and processes.
pub(crate) const SAVE: Group = common(&[
    bind(Action::Write, &[Char('w')], "save", "save a snapshot of everything to a file"),
    bind(Action::Units, &[Char('u')], "cycles", "show time or cycles"),
    bind(Action::Processes, &[Char('P')], "process", "choose another process"),
]);

/// What a table has for columns, and what its rows are sorted by.
pub(crate) const TABLE: Group = own(&[
    bind(Action::SortLeft, &[Char('<')], "", "sort by the column to the left"),
    bind(Action::Sort, &[Char('s'), Named(KeyCode::F(6))], "sort", "choose the column to sort by"),
    bind(Action::SortRight, &[Char('>')], "", "sort by the column to the right"),
    bind(Action::Invert, &[Char('I')], "invert", "sort the other way round"),
    bind(Action::Columns, &[Char('c')], "columns", "choose the columns"),
]);

/// How often figures are taken, where no keys zoom.
pub(crate) const POLL: Group = own(&[
    bind(Action::Faster, &[Char('+'), Char('=')], "", "poll more often"),
    bind(Action::Slower, &[Char('-')], "", "poll less often"),
]);

/// What figures are compared with.
pub(crate) const BASELINE: Group =
    common(&[bind(Action::Baseline, &[Char('b')], "baseline", "take a baseline to compare with")
        .more(
            "a baseline is what was measured since the baseline before, or since the beginning",
        )]);

/// One row up or down.
pub(crate) const WALK: Group = common(&[
    bind(
        Action::Up,
        &[Named(KeyCode::Up), Char('k')],
        "",
        "one row up; in Detail: the point above",
    ),
    bind(
        Action::Down,
        &[Named(KeyCode::Down), Char('j')],
        "",
        "one row down; in Detail: the point below",
    ),
]);

/// Many rows at once.
pub(crate) const PAGE: Group = common(&[
    bind(Action::PageUp, &[Named(KeyCode::PageUp), Ctrl('b')], "", "one screen up"),
    bind(Action::PageDown, &[Named(KeyCode::PageDown), Ctrl('f')], "", "one screen down"),
    bind(Action::Top, &[Named(KeyCode::Home), Twice('g')], "", "to the first row"),
    bind(Action::Bottom, &[Named(KeyCode::End), Char('G')], "", "to the last row"),
]);

macro_rules! show {
    (
        tabs { $($(#[$doc:meta])* $tab:ident $f:ident $t:ty, $name:literal, [$($key:expr),*], $help:literal;)* }
        others { $($other:tt)* }
    ) => {
        /// The screens of the watched process, by their numbers.
        pub(crate) const SHOW: Group =
            common(&[$(bind(Action::Show(Screen::$tab), &[$($key),*], "", $help),)*]);
    };
}

every_screen!(show);

/// From screen to screen.
pub(crate) const TURN: Group = common(&[
    bind(Action::NextScreen, &[Named(KeyCode::Tab)], "", "the next screen"),
    bind(Action::PreviousScreen, &[Named(KeyCode::BackTab)], "", "the screen before"),
]);

/// Help and the way out.
pub(crate) const LEAVE: Group = common(&[
    bind(Action::Help, &[Char('?'), Named(KeyCode::F(1))], "help", "this help"),
    bind(Action::Quit, &[Char('q'), Named(KeyCode::F(10)), Ctrl('c')], "quit", "leave pfp-top")
        .more("on leaving, points that you switched are switched back, unless started with --keep"),
]);

/// What every line and screen has.
pub(crate) const TERMINAL: Group = common(&[
    bind(Action::Suspend, &[Ctrl('z')], "", "to the shell; fg brings back"),
    bind(Action::Redraw, &[Ctrl('l')], "", "draw the whole screen anew"),
]);

/// Only the way out.
const QUIT: Group = common(&[bind(
    Action::Quit,
    &[Char('q'), Named(KeyCode::F(10)), Ctrl('c')],
    "quit",
    "leave pfp-top",
)]);

/// Enter or Esc closes it.
const HELP: Group = own(&[bind(
    Action::Back,
    &[Named(KeyCode::Esc), Named(KeyCode::Enter)],
    "back",
    "back to where you came from",
)]);

/// A line that is being typed.
const TYPED: Group = own(&[
    bind(Action::Accept, &[Named(KeyCode::Enter)], "take", "take what was typed"),
    bind(Action::Cancel, &[Named(KeyCode::Esc), Ctrl('c')], "cancel", "drop what was typed"),
]);

/// A filter that is being typed.
const FILTER_TYPED: Group = own(&[
    bind(Action::Accept, &[Named(KeyCode::Enter)], "keep", "keep the filter"),
    bind(
        Action::Unfilter,
        &[Named(KeyCode::Esc), Ctrl('c')],
        "show all",
        "drop the filter, show all points",
    ),
    bind(Action::Up, &[Named(KeyCode::Up)], "", "the filter before"),
    bind(Action::Down, &[Named(KeyCode::Down)], "", "the filter after that"),
    bind(Action::PageUp, &[Named(KeyCode::PageUp)], "", "one screen up while typing a filter"),
    bind(
        Action::PageDown,
        &[Named(KeyCode::PageDown)],
        "",
        "one screen down while typing a filter",
    ),
]);

/// The chooser of columns.
const CHECK: Group = own(&[
    bind(Action::Check, &[Char(' ')], "show/hide", "show the column, or hide it"),
    bind(Action::ColumnLeft, &[Char('<'), Char('K')], "left", "move the column to the left"),
    bind(Action::ColumnRight, &[Char('>'), Char('J')], "right", "move the column to the right"),
    bind(
        Action::Back,
        &[Named(KeyCode::Esc), Named(KeyCode::Enter), Char('c')],
        "done",
        "back to the table",
    ),
]);

/// The chooser of what to sort by.
const SORT: Group = own(&[
    bind(Action::Accept, &[Named(KeyCode::Enter), Char(' ')], "sort by it", "sort by the column"),
    bind(Action::Invert, &[Char('I')], "invert", "sort by the same column the other way round"),
    bind(
        Action::Back,
        &[Named(KeyCode::Esc), Char('s'), Named(KeyCode::F(6))],
        "cancel",
        "back to the table",
    ),
]);

/// A question about many points.
const ASK: Group = own(&[
    bind(Action::Accept, &[Char('y')], "yes", "yes, all of them"),
    bind(
        Action::Cancel,
        &[Char('n'), Named(KeyCode::Esc), Ctrl('c')],
        "no",
        "no, leave them as they are",
    ),
]);

/// A question about a file.
const CONFIRM: Group = own(&[
    bind(Action::Accept, &[Char('y')], "replace it", "yes, replace the file"),
    bind(
        Action::Cancel,
        &[Char('n'), Named(KeyCode::Esc), Ctrl('c')],
        "another name",
        "no, keep the file",
    ),
]);

impl Binding<'_> {
    /// Adds a text for the end of the help.
    pub(crate) const fn more(self, more: &'static str) -> Self {
        Self { more, ..self }
    }

    /// The first of its keys; nothing if it has none.
    pub fn key_name(&self) -> String {
        self.keys.first().map_or(String::new(), |key| key.name())
    }

    /// Whether it is of use in a recording only.
    pub fn is_of_recordings(&self) -> bool {
        matches!(
            self.action,
            Action::StepBack
                | Action::StepOn
                | Action::MinuteBack
                | Action::MinuteOn
                | Action::RecordingBegin
                | Action::RecordingEnd
                | Action::Seek
                | Action::PlaySlower
                | Action::PlayFaster
        )
    }
}

/// What stands behind the keys of a screen of the watched process that are its own.
pub(crate) const TAIL: &[Group] = &[SAVE, POLL, BASELINE, WALK, PAGE, SHOW, TURN, LEAVE, TERMINAL];

/// What can be done with the point that the keys mean.
pub(crate) const CHANGE: &[Group] = &[POINT, TUNE, COPY, FILTER];

impl Overlay {
    /// The keys while it is open.
    pub fn keys(&self) -> KeyMap {
        match self {
            Self::Help(_) => &[&[HELP, WALK, PAGE, QUIT, TERMINAL]],
            Self::Filter(_) => &[&[FILTER_TYPED, TERMINAL]],
            Self::Columns(_) => &[&[WALK, PAGE, CHECK, QUIT, TERMINAL]],
            Self::Sort(_) => &[&[WALK, PAGE, SORT, QUIT, TERMINAL]],
            Self::Ask(_) => &[&[ASK, TERMINAL]],
            Self::Replace(_) => &[&[CONFIRM, TERMINAL]],
            Self::Write(_) | Self::Alpha(..) | Self::Seek(_) | Self::Find(_) => {
                &[&[TYPED, TERMINAL]]
            }
        }
    }
}

/// All bindings of a key map, one after the other.
pub fn bindings(keys: KeyMap) -> impl Iterator<Item = Binding<'static>> + Clone {
    keys.iter().copied().flatten().flat_map(|group| group.bindings).copied()
}

/// Turns keys into actions, and remembers the first half of two-key commands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keys {
    half: Option<char>,
}

impl Keys {
    /// What the key asks for among these.
    pub fn action<'a>(
        &mut self,
        mut bindings: impl Iterator<Item = Binding<'a>> + Clone,
        event: KeyEvent,
    ) -> Option<Action> {
        let half = self.half.take();
        let typed = match event.code {
            KeyCode::Char(c) if !event.modifiers.contains(KeyModifiers::CONTROL) => Some(c),
            _ => None,
        };
        let twice = |binding: &Binding| {
            binding.keys.iter().any(|key| typed.is_some_and(|c| *key == Twice(c)))
        };
        if let Some(binding) = bindings.clone().find(twice) {
            if half == typed {
                return Some(binding.action);
            }
            self.half = typed;
            return None;
        }
        bindings
            .find(|binding| binding.keys.iter().any(|key| key.matches(&event)))
            .map(|binding| binding.action)
    }

    /// The first half of a two-key command, while the second is awaited.
    pub fn half_typed(self) -> Option<char> {
        self.half
    }
}
