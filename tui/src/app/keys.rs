//! The keys: one table that the dispatcher, the last line and the help read.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::Action;

/// What the keys act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Waiting for a process.
    Waiting,
    /// The table of points.
    Points,
    /// One point in full.
    Detail,
    /// The threads.
    Threads,
    /// What the threads did in the last moments.
    Timeline,
    /// The list of processes.
    Picker,
    /// The points beside their baseline.
    Diff,
    /// What was noticed.
    Log,
    /// The roofline.
    Roofline,
    /// The help.
    Help,
    /// What the points shown must have, while it is typed.
    Filter,
    /// A line that is being typed.
    Prompt,
    /// The columns to choose from.
    Columns,
    /// The columns to sort by.
    Sort,
    /// A question about many points, to be answered with yes or no.
    Ask,
    /// A question to be answered with yes or no.
    Confirm,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 16] = [
        Self::Waiting,
        Self::Points,
        Self::Detail,
        Self::Threads,
        Self::Timeline,
        Self::Picker,
        Self::Diff,
        Self::Log,
        Self::Roofline,
        Self::Help,
        Self::Filter,
        Self::Prompt,
        Self::Columns,
        Self::Sort,
        Self::Ask,
        Self::Confirm,
    ];
}

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
    /// The same with Shift.
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

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// What the keys do.
    pub action: Action,
    /// Any of these does it.
    pub keys: &'static [Key],
    /// Where they do it.
    pub modes: &'static [Mode],
    /// One or two words for the last line of the screen; empty for none.
    pub hint: &'static str,
    /// A line for the help.
    pub help: &'static str,
}

use Key::{Char, Ctrl, Named, Shift, Twice};
use Mode::{
    Ask, Columns, Confirm, Detail, Diff, Filter, Help, Log, Picker, Points, Prompt, Roofline, Sort,
    Threads, Timeline, Waiting,
};

const LISTS: &[Mode] = &[Points, Threads, Diff, Log, Roofline, Picker, Help, Columns, Sort];
/// Where there are rows to go up and down.
const ROWS: &[Mode] =
    &[Points, Detail, Threads, Timeline, Diff, Log, Roofline, Picker, Help, Columns, Sort];
/// Where there is a point that the keys mean.
const FIGURES: &[Mode] = &[Points, Detail, Timeline, Diff, Roofline];
/// Where a process is looked at.
const TABS: &[Mode] = &[Points, Detail, Threads, Timeline, Diff, Log, Roofline];
/// Those where no keys zoom.
const POLLED: &[Mode] = &[Points, Threads, Diff, Log, Roofline];

/// All keys, in the order of the last line and the help.
pub const BINDINGS: &[Binding] = &[
    bind(
        Action::Pause,
        &[Char(' '), Char('Z'), Char('p')],
        TABS,
        "pause",
        "let the figures stand still, or go on; plays a recording, or stops it",
    ),
    bind(
        Action::StepBack,
        &[Char(','), Shift(KeyCode::Left)],
        TABS,
        "back",
        "recording: the snapshot before",
    ),
    bind(
        Action::StepOn,
        &[Char('.'), Shift(KeyCode::Right)],
        TABS,
        "on",
        "recording: the next snapshot",
    ),
    bind(
        Action::Seek,
        &[Char('@')],
        TABS,
        "go to",
        "recording: go to a moment: 12:03:41, +34s behind the first snapshot, or #34",
    ),
    bind(Action::PlayFaster, &[Char(']')], TABS, "faster", "recording: play faster"),
    bind(Action::PlaySlower, &[Char('[')], TABS, "slower", "recording: play more slowly"),
    bind(Action::MinuteBack, &[Char('{')], TABS, "", "recording: a minute back"),
    bind(Action::MinuteOn, &[Char('}')], TABS, "", "recording: a minute on"),
    bind(
        Action::RecordingBegin,
        &[Char('^'), Shift(KeyCode::Home)],
        TABS,
        "",
        "recording: the first snapshot",
    ),
    bind(
        Action::RecordingEnd,
        &[Char('$'), Shift(KeyCode::End)],
        TABS,
        "",
        "recording: the last snapshot; while it grows, play from there to follow it",
    ),
    bind(
        Action::Open,
        &[Named(KeyCode::Enter)],
        &[Points, Threads, Timeline, Diff, Roofline, Picker],
        "open",
        "open what is under the cursor; of a thread: the points it was in",
    ),
    bind(
        Action::MeasureCeilings,
        &[Char('m')],
        &[Roofline],
        "measure",
        "roofline: measure what the machine can do at most; some seconds on all processors",
    ),
    bind(
        Action::Below,
        &[Char('d')],
        &[Threads],
        "its points below",
        "below the threads, what this one alone measured of each point; or no more",
    ),
    bind(
        Action::Earlier,
        &[Named(KeyCode::Left), Char('h')],
        &[Timeline],
        "earlier",
        "timeline: the previous region; the picture is paused until End",
    ),
    bind(
        Action::Later,
        &[Named(KeyCode::Right), Char('l')],
        &[Timeline],
        "later",
        "timeline: the next region",
    ),
    bind(
        Action::ZoomIn,
        &[Char('+'), Char('=')],
        &[Timeline],
        "closer",
        "timeline: look closer, at half of the time or less",
    ),
    bind(
        Action::ZoomOut,
        &[Char('-')],
        &[Timeline],
        "wider",
        "timeline: look wider, at twice the time or more",
    ),
    bind(
        Action::FindNext,
        &[Char('n')],
        &[Timeline],
        "",
        "timeline: the next earlier region that / looked for",
    ),
    bind(
        Action::Slowest,
        &[Char('x')],
        &[Timeline],
        "",
        "timeline: the slowest call of the point under the cursor that is still known",
    ),
    bind(
        Action::MuchEarlier,
        &[Named(KeyCode::PageUp), Ctrl('b')],
        &[Timeline],
        "",
        "timeline: half a screen back in time",
    ),
    bind(
        Action::MuchLater,
        &[Named(KeyCode::PageDown), Ctrl('f')],
        &[Timeline],
        "",
        "timeline: half a screen on in time",
    ),
    bind(
        Action::Oldest,
        &[Named(KeyCode::Home), Twice('g')],
        &[Timeline],
        "",
        "timeline: the oldest region of the line",
    ),
    bind(
        Action::Newest,
        &[Named(KeyCode::End), Char('G')],
        &[Timeline],
        "now",
        "timeline: what happens now, and follow it",
    ),
    bind(
        Action::Back,
        &[Named(KeyCode::Esc), Named(KeyCode::Enter)],
        &[Detail, Help],
        "back",
        "back to where you came from",
    ),
    bind(
        Action::Back,
        &[Named(KeyCode::Esc)],
        &[Diff, Log, Roofline],
        "back",
        "back to the table of points",
    ),
    bind(
        Action::Back,
        &[Named(KeyCode::Esc)],
        &[Threads, Timeline, Picker],
        "back",
        "back to where you came from",
    ),
    bind(
        Action::Mark,
        &[Char(' ')],
        &[Picker],
        "mark",
        "mark the process; Enter then opens all marked ones as one",
    ),
    bind(
        Action::OpenSummed,
        &[Char('S')],
        &[Picker],
        "summed",
        "open the marked processes, points of the same name summed",
    ),
    bind(
        Action::Toggle,
        &[Char('e')],
        FIGURES,
        "on/off",
        "switch the point on or off in the program; timeline: that of the region",
    ),
    bind(
        Action::Reset,
        &[Char('r')],
        FIGURES,
        "reset",
        "reset the point's figures; timeline: that of the region; asks first",
    ),
    bind(
        Action::ToggleAll,
        &[Char('E')],
        &[Points],
        "",
        "switch all points shown off; again: those that it switched off on; asks first",
    ),
    bind(
        Action::ResetAll,
        &[Char('R')],
        &[Points],
        "",
        "reset the figures of all points shown; asks first",
    ),
    bind(
        Action::ZoomIn,
        &[Char('+'), Char('=')],
        &[Detail],
        "closer",
        "a point's load: look closer, at half of the time or less",
    ),
    bind(
        Action::ZoomOut,
        &[Char('-')],
        &[Detail],
        "wider",
        "a point's load: look wider, at twice the time or more",
    ),
    bind(
        Action::Earlier,
        &[Named(KeyCode::Left), Char('h')],
        &[Detail],
        "earlier",
        "a point's load: a quarter back in time; it is paused there until End",
    ),
    bind(
        Action::Later,
        &[Named(KeyCode::Right), Char('l')],
        &[Detail],
        "",
        "a point's load: a quarter on in time",
    ),
    bind(
        Action::Oldest,
        &[Named(KeyCode::Home)],
        &[Detail],
        "",
        "a point's load: the oldest that is known",
    ),
    bind(
        Action::Newest,
        &[Named(KeyCode::End)],
        &[Detail],
        "now",
        "a point's load: what is now, and follow it",
    ),
    bind(
        Action::Weight,
        &[Char('a')],
        FIGURES,
        "",
        "set alpha, the weight of a new value in the point's exponential average: 0.2, a period \
         over a time constant as 100ms/500ms, or off; it stays so",
    ),
    bind(
        Action::Fence,
        &[Char('F')],
        FIGURES,
        "",
        "fence the point, or not: its stamps wait for the work before them, so that a short region \
         has its own time; it costs the program some 50 ns a region, and stays so",
    ),
    bind(
        Action::ShowIdle,
        &[Char('o')],
        &[Points],
        "",
        "show the points that are off and never measured, or hide them; a filter finds them, too",
    ),
    bind(
        Action::Copy,
        &[Char('y')],
        FIGURES,
        "",
        "copy the row to the terminal's clipboard; in tmux with set-clipboard on",
    ),
    bind(
        Action::Filter,
        &[Char('/'), Char('\\'), Named(KeyCode::F(4))],
        TABS,
        "filter",
        "show only points of a name: a part of it or a regular expression, also /in slashes/, \
         or all of it \"in quotes\"; thread:NAME, tid:NUMBER and file:NAME look at those; \
         load>5, /s>1k or avg<20us at a column's figure; a capital makes case count; of \
         several terms all hold; !TERM excludes; Up brings earlier ones; timeline: find a \
         region whose point is such",
    ),
    bind(Action::Unfilter, &[Named(KeyCode::Esc)], &[Points], "", "show all points again"),
    bind(Action::SortLeft, &[Char('<')], &[Points, Threads], "", "sort by the column to the left"),
    bind(
        Action::Sort,
        &[Char('s'), Named(KeyCode::F(6))],
        &[Points],
        "sort",
        "choose the column to sort by",
    ),
    bind(Action::SortRight, &[Char('>')], &[Points], "", "sort by the column to the right"),
    bind(
        Action::SortRight,
        &[Char('>'), Named(KeyCode::F(6)), Char('s')],
        &[Threads],
        "sort",
        "sort by the column to the right",
    ),
    bind(
        Action::ScrollLeft,
        &[Named(KeyCode::Left), Char('h')],
        &[Points],
        "",
        "more of the beginnings of names that are cut",
    ),
    bind(
        Action::ScrollRight,
        &[Named(KeyCode::Right), Char('l')],
        &[Points],
        "",
        "more of the ends of names that are cut",
    ),
    bind(Action::Invert, &[Char('I')], &[Points, Threads], "invert", "sort the other way round"),
    bind(Action::Columns, &[Char('c')], &[Points], "columns", "choose the columns"),
    bind(Action::Write, &[Char('w')], TABS, "save", "write a snapshot of everything to a file"),
    bind(Action::Units, &[Char('u')], TABS, "cycles", "show time or cycles"),
    bind(Action::Processes, &[Char('P')], TABS, "process", "choose another process"),
    bind(
        Action::Window,
        &[Char('H')],
        &[Detail],
        "window",
        "histogram since the reset, since opened or marked, of the last 10 or 60 seconds",
    ),
    bind(Action::Moment, &[Char('m')], &[Detail], "mark", "the histogram counts from now on"),
    bind(Action::Faster, &[Char('+'), Char('=')], POLLED, "", "poll more often"),
    bind(Action::Slower, &[Char('-')], POLLED, "", "poll less often"),
    bind(
        Action::Baseline,
        &[Char('b')],
        TABS,
        "baseline",
        "make what was measured since the last baseline, first of all so far, the next one",
    ),
    bind(
        Action::Up,
        &[Named(KeyCode::Up), Char('k')],
        ROWS,
        "",
        "one row up; in a point's detail: the point above",
    ),
    bind(
        Action::Down,
        &[Named(KeyCode::Down), Char('j')],
        ROWS,
        "",
        "one row down; in a point's detail: the point below",
    ),
    bind(
        Action::PageUp,
        &[Named(KeyCode::PageUp), Ctrl('b')],
        LISTS,
        "",
        "one screen up; of an opened thread: among its points",
    ),
    bind(
        Action::PageDown,
        &[Named(KeyCode::PageDown), Ctrl('f')],
        LISTS,
        "",
        "one screen down; of an opened thread: among its points",
    ),
    bind(
        Action::PageUp,
        &[Named(KeyCode::PageUp), Ctrl('b')],
        &[Detail],
        "",
        "one screen up in a point's detail",
    ),
    bind(
        Action::PageDown,
        &[Named(KeyCode::PageDown), Ctrl('f')],
        &[Detail],
        "",
        "one screen down in a point's detail",
    ),
    bind(Action::Top, &[Named(KeyCode::Home), Twice('g')], LISTS, "", "to the first row"),
    bind(Action::Bottom, &[Named(KeyCode::End), Char('G')], LISTS, "", "to the last row"),
    bind(Action::Top, &[Twice('g')], &[Detail], "", "to the first point"),
    bind(Action::Bottom, &[Char('G')], &[Detail], "", "to the last point"),
    bind(Action::ShowPoints, &[Char('1')], TABS, "", "the table of points"),
    bind(Action::ShowDetail, &[Char('2')], TABS, "", "one point in full"),
    bind(Action::ShowThreads, &[Char('3')], TABS, "", "the threads"),
    bind(Action::ShowTimeline, &[Char('4')], TABS, "", "what the threads did last"),
    bind(
        Action::ShowDiff,
        &[Char('5')],
        TABS,
        "",
        "what changed since the baseline, and whether that is more than chance",
    ),
    bind(Action::ShowLog, &[Char('6')], TABS, "", "what was noticed, and what measuring costs"),
    bind(
        Action::ShowRoofline,
        &[Char('7')],
        TABS,
        "",
        "how near points that report bytes and flops come to what the machine can do",
    ),
    bind(Action::NextScreen, &[Named(KeyCode::Tab)], TABS, "", "the next of these"),
    bind(Action::PreviousScreen, &[Named(KeyCode::BackTab)], TABS, "", "the one before"),
    bind(
        Action::Help,
        &[Char('?'), Named(KeyCode::F(1))],
        &[Points, Detail, Threads, Timeline, Diff, Log, Roofline, Picker, Waiting],
        "help",
        "this help",
    ),
    bind(
        Action::Quit,
        &[Char('q'), Named(KeyCode::F(10)), Ctrl('c')],
        &[
            Points, Detail, Threads, Timeline, Diff, Log, Roofline, Picker, Waiting, Help, Columns,
            Sort,
        ],
        "quit",
        "leave; toggled points are put back unless started with --keep",
    ),
    bind(Action::Suspend, &[Ctrl('z')], &Mode::ALL, "", "to the shell for a while; fg brings back"),
    bind(Action::Redraw, &[Ctrl('l')], &Mode::ALL, "", "draw the whole screen anew"),
    bind(Action::Accept, &[Named(KeyCode::Enter)], &[Prompt], "take", "take what was typed"),
    bind(Action::Accept, &[Named(KeyCode::Enter)], &[Filter], "keep", "keep the filter"),
    bind(
        Action::Unfilter,
        &[Named(KeyCode::Esc), Ctrl('c')],
        &[Filter],
        "show all",
        "drop the filter, show all points",
    ),
    bind(Action::Up, &[Named(KeyCode::Up)], &[Filter], "", "the filter before"),
    bind(Action::Down, &[Named(KeyCode::Down)], &[Filter], "", "the filter after that"),
    bind(
        Action::PageUp,
        &[Named(KeyCode::PageUp)],
        &[Filter],
        "",
        "one screen up while typing a filter",
    ),
    bind(
        Action::PageDown,
        &[Named(KeyCode::PageDown)],
        &[Filter],
        "",
        "one screen down while typing a filter",
    ),
    bind(Action::Check, &[Char(' ')], &[Columns], "show/hide", "show the column, or hide it"),
    bind(
        Action::Accept,
        &[Named(KeyCode::Enter), Char(' ')],
        &[Sort],
        "sort by it",
        "sort by the column",
    ),
    bind(
        Action::Invert,
        &[Char('I')],
        &[Sort],
        "invert",
        "sort by the same column the other way round",
    ),
    bind(
        Action::Back,
        &[Named(KeyCode::Esc), Char('s'), Named(KeyCode::F(6))],
        &[Sort],
        "cancel",
        "back to the table",
    ),
    bind(
        Action::ColumnLeft,
        &[Char('<'), Char('K')],
        &[Columns],
        "left",
        "move the column to the left",
    ),
    bind(
        Action::ColumnRight,
        &[Char('>'), Char('J')],
        &[Columns],
        "right",
        "move the column to the right",
    ),
    bind(
        Action::Back,
        &[Named(KeyCode::Esc), Named(KeyCode::Enter), Char('c')],
        &[Columns],
        "done",
        "back to the table",
    ),
    bind(Action::Accept, &[Char('y')], &[Ask], "yes", "yes, all of them"),
    bind(
        Action::Cancel,
        &[Char('n'), Named(KeyCode::Esc), Ctrl('c')],
        &[Ask],
        "no",
        "no, leave them as they are",
    ),
    bind(Action::Accept, &[Char('y')], &[Confirm], "replace it", "yes, replace the file"),
    bind(
        Action::Cancel,
        &[Named(KeyCode::Esc), Ctrl('c')],
        &[Prompt],
        "cancel",
        "drop what was typed",
    ),
    bind(
        Action::Cancel,
        &[Char('n'), Named(KeyCode::Esc), Ctrl('c')],
        &[Confirm],
        "another name",
        "no, keep the file",
    ),
];

const fn bind(
    action: Action,
    keys: &'static [Key],
    modes: &'static [Mode],
    hint: &'static str,
    help: &'static str,
) -> Binding {
    Binding { action, keys, modes, hint, help }
}

impl Binding {
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

/// The bindings of a mode.
pub fn bindings(mode: Mode) -> impl Iterator<Item = &'static Binding> {
    BINDINGS.iter().filter(move |binding| binding.modes.contains(&mode))
}

/// Turns keys into actions, and remembers the first half of two-key commands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Keys {
    half: Option<char>,
}

impl Keys {
    /// What the key asks for in this mode.
    pub fn action(&mut self, mode: Mode, event: KeyEvent) -> Option<Action> {
        let half = self.half.take();
        let typed = match event.code {
            KeyCode::Char(c) if !event.modifiers.contains(KeyModifiers::CONTROL) => Some(c),
            _ => None,
        };
        let twice = |binding: &&Binding| {
            binding.keys.iter().any(|key| typed.is_some_and(|c| *key == Twice(c)))
        };
        if let Some(binding) = bindings(mode).find(twice) {
            if half == typed {
                return Some(binding.action);
            }
            self.half = typed;
            return None;
        }
        bindings(mode)
            .find(|binding| binding.keys.iter().any(|key| key.matches(&event)))
            .map(|binding| binding.action)
    }

    /// The first half of a two-key command, while the second is awaited.
    pub fn half_typed(self) -> Option<char> {
        self.half
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_means_two_things_in_a_mode() {
        for mode in Mode::ALL {
            let mut seen: Vec<Key> = Vec::new();
            for key in bindings(mode).flat_map(|binding| binding.keys) {
                assert!(!seen.contains(key), "{} twice in {mode:?}", key.name());
                seen.push(*key);
            }
            for key in &seen {
                if let Twice(c) = key {
                    assert!(!seen.contains(&Char(*c)), "{c} is also half of a command");
                }
            }
        }
    }

    #[test]
    fn every_action_has_a_key_and_a_line_of_help() {
        for action in Action::ALL {
            let mut bindings = BINDINGS.iter().filter(|binding| binding.action == *action);
            assert!(bindings.any(|b| !b.keys.is_empty() && !b.help.is_empty()), "{action:?}");
        }
    }

    #[test]
    fn every_mode_can_be_left() {
        for mode in Mode::ALL {
            let leaves =
                |b: &Binding| matches!(b.action, Action::Quit | Action::Cancel | Action::Unfilter);
            assert!(bindings(mode).any(leaves), "{mode:?}");
        }
    }

    #[test]
    fn two_key_commands_need_both_keys_in_a_row() {
        let press = |keys: &mut Keys, c| keys.action(Points, KeyEvent::from(KeyCode::Char(c)));
        let mut keys = Keys::default();
        assert_eq!(press(&mut keys, 'g'), None);
        assert_eq!(keys.half_typed(), Some('g'));
        assert_eq!(press(&mut keys, 'g'), Some(Action::Top));
        assert_eq!(press(&mut keys, 'g'), None);
        assert_eq!(press(&mut keys, 'j'), Some(Action::Down));
        assert_eq!(press(&mut keys, 'g'), None);
    }
}
