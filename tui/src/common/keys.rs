//! The keys: groups of bindings, from which the key maps of screens and overlays are built. The
//! dispatcher, the last line and the help read them.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::action::Action;
use super::overlay::Overlay;
use super::prompt::PromptSubject;
use super::screen::{Screen, every_screen};

/// A key, or the same key twice.
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
    /// The name of the key, as in the help.
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
            // Only these keys have a different meaning with Shift.
            Self::Named(KeyCode::Left | KeyCode::Right | KeyCode::Home | KeyCode::End) if shift => {
                false
            }
            Self::Named(code) => event.code == code,
            Self::Shift(code) => event.code == code && shift,
        }
    }
}

/// Keys for an action.
#[derive(Clone, Copy, Debug)]
pub struct Binding<'a> {
    /// The action of the keys.
    pub action: Action,
    /// The keys; each triggers the action.
    pub keys: &'a [Key],
    /// One or two words for the last line of the screen; empty for no hint.
    pub hint: &'static str,
    /// A line for the help.
    pub help: &'static str,
    /// An explanation for the end of the help; empty for none.
    pub more: &'static str,
}

/// Bindings that belong together.
#[derive(Clone, Copy, Debug)]
pub struct BindingGroup {
    /// The bindings, in the order of the last line and the help.
    pub bindings: &'static [Binding<'static>],
    /// Whether most screens have these keys; the help lists them after a screen's own keys.
    pub is_common: bool,
}

/// All keys of a screen or an overlay, in the order of the last line.
pub type KeyMap = &'static [&'static [BindingGroup]];

/// Declares groups of bindings. `common` groups are part of most screens, `own` groups of few. A
/// binding has an action, its keys, a hint for the last line, a line of help, and after a plus a
/// text for the end of the help.
macro_rules! groups {
    ($($(#[$doc:meta])* $vis:vis $name:ident = $of:ident {
        $($action:ident $(($shown:expr))? [$($key:expr),*] $hint:literal, $help:literal
            $(+ $more:literal)?;)*
    })*) => {$(
        $(#[$doc])*
        $vis const $name: $crate::common::keys::BindingGroup = {
            #[allow(unused_imports)]
            use crossterm::event::KeyCode::{
                BackTab, Down, End, Enter, Esc, F, Home, Left, PageDown, PageUp, Right, Tab, Up,
            };
            #[allow(unused_imports)]
            use $crate::common::keys::Key::{Char, Ctrl, Named, Shift, Twice};
            $crate::common::keys::BindingGroup {
                bindings: &[$($crate::common::keys::Binding {
                    action: $crate::common::action::Action::$action $(($shown))?,
                    keys: &[$($key),*],
                    hint: $hint,
                    help: $help,
                    more: concat!($($more)?),
                },)*],
                is_common: $crate::common::keys::groups!(@$of),
            }
        };
    )*};
    (@common) => { true };
    (@own) => { false };
}
pub(crate) use groups;

groups! {
    /// Pause, and the position in a recording.
    pub(crate) RUN = common {
        Pause [Char(' '), Char('Z'), Char('p')] "pause",
            "pause or resume; play or stop a recording";
        StepBack [Char(','), Shift(Left)] "back", "recording: the previous snapshot";
        StepOn [Char('.'), Shift(Right)] "on", "recording: the next snapshot";
        Seek [Char('@')] "go to", "recording: go to a moment"
            + "a moment is 12:03:41, +34s after the first snapshot, or #34";
        PlayFaster [Char(']')] "faster", "recording: play faster";
        PlaySlower [Char('[')] "slower", "recording: play more slowly";
        MinuteBack [Char('{')] "", "recording: a minute back";
        MinuteOn [Char('}')] "", "recording: a minute on";
        RecordingBegin [Char('^'), Shift(Home)] "", "recording: the first snapshot";
        RecordingEnd [Char('$'), Shift(End)] "", "recording: the last snapshot"
            + "while the recording grows, play from its last snapshot to follow it";
    }

    /// Enter, which opens the row.
    pub(crate) OPEN = common {
        Open [Named(Enter)] "open", "open the row; for a thread: show its points";
    }

    /// Esc on a screen other than the table.
    pub(crate) TO_TABLE = own {
        Back [Named(Esc)] "back", "back to the table of points";
    }

    /// Esc on a screen that was opened from another screen.
    pub(crate) BACK = own {
        Back [Named(Esc)] "back", "back to where you came from";
    }

    /// Changes of the point that the keys act on.
    pub(crate) POINT = own {
        Toggle [Char('e')] "on/off", "switch the point on or off in the program";
        Reset [Char('r')] "reset", "reset the point's figures; asks first";
        Undo [Char('U')] "", "undo your last switch, reset or setting"
            + "figures from before a reset come back in this viewer alone";
    }

    /// Settings of the selected point's measurements.
    pub(crate) TUNE = own {
        Weight [Char('a')] "", "set alpha of the point's average"
            + "alpha, the smoothing factor of EWMA: 0.2, a period over a time constant such as \
               100ms/500ms, or off";
        Fence [Char('F')] "", "fence the point, or remove its fences"
            + "fences make the times of short regions exact, at some 45 ns per call";
        Limit [Char('x')] "", "set the limit of slow calls of the point: 5ms, cpu 5ms or off"
            + "the screen 0 shows the kept calls, and why they were slow";
        CountAllocs [Char('A')] "", "count the allocations of the point, or stop"
            + "at some 10 ns per call, in a program with an allocator that counts: run --alloc";
    }

    /// Copying the row as text.
    pub(crate) COPY = own {
        Copy [Char('y')] "", "copy the row (OSC 52; tmux: set-clipboard on)";
    }

    /// The filter, which decides what points are shown.
    pub(crate) FILTER = common {
        Filter [Char('/'), Char('\\'), Named(F(4))] "filter",
            "show only some points, by name or figure"
            + "a part of the name, a regular expression (also /in slashes/) or the whole name \"in \
               quotes\"; thread:NAME, tid:NUMBER, file:NAME; load>5, avg<20us; case counts if \
               there is a capital; all terms must match, and !TERM excludes; Up: earlier filters; \
               on the timeline, / finds such a region";
    }

    /// Saving a file, and choosing the unit and the process.
    pub(crate) SAVE = common {
        Write [Char('w')] "save", "save a snapshot of everything to a file";
        Units [Char('u')] "cycles", "show time or cycles";
        Processes [Char('P')] "process", "choose another process";
    }

    /// The columns of a table, and the order of its rows.
    pub(crate) TABLE = own {
        SortLeft [Char('<')] "", "sort by the column to the left";
        Sort [Char('s'), Named(F(6))] "sort", "choose the column to sort by";
        SortRight [Char('>')] "", "sort by the column to the right";
        Invert [Char('I')] "invert", "sort the other way round";
        Columns [Char('c')] "columns", "choose the columns";
    }

    /// The poll interval, on screens where `+` and `-` do not zoom.
    pub(crate) POLL = own {
        Faster [Char('+'), Char('=')] "", "poll more often";
        Slower [Char('-')] "", "poll less often";
    }

    /// The baseline of comparisons.
    pub(crate) BASELINE = common {
        Baseline [Char('b')] "baseline", "take a baseline to compare with"
            + "a baseline covers everything since the previous baseline, or since the start";
    }

    /// Moves by one row.
    pub(crate) WALK = common {
        Up [Named(Up), Char('k')] "", "one row up; in Detail: the point above";
        Down [Named(Down), Char('j')] "", "one row down; in Detail: the point below";
    }

    /// Moves by many rows.
    pub(crate) PAGE = common {
        PageUp [Named(PageUp), Ctrl('b')] "", "one screen up";
        PageDown [Named(PageDown), Ctrl('f')] "", "one screen down";
        Top [Named(Home), Twice('g')] "", "to the first row";
        Bottom [Named(End), Char('G')] "", "to the last row";
    }
}

macro_rules! show {
    (
        tabs { $($tab:ident $f:ident $t:ty, $name:literal, [$($key:expr),*], $help:literal;)* }
        others { $($other:tt)* }
    ) => {
        groups! {
            /// The screens of the watched process, by their numbers.
            pub(crate) SHOW = common {
                $(Show(Screen::$tab) [$($key),*] "", $help;)*
            }
        }
    };
}

every_screen!(show);

groups! {
    /// Moves to the next or previous screen.
    pub(crate) TURN = common {
        NextScreen [Named(Tab)] "", "the next screen";
        PreviousScreen [Named(BackTab)] "", "the previous screen";
    }

    /// Help and the way out.
    pub(crate) LEAVE = common {
        Help [Char('?'), Named(F(1))] "help", "this help";
        Palette [Char(':'), Ctrl('p')] "", "find an action by its words, and carry it out";
        Quit [Char('q'), Named(F(10)), Ctrl('c')] "quit", "close what is open, or quit pfp-top"
            + "on exit, points that you switched are switched back, unless started with --keep";
    }

    /// Keys of every prompt and screen.
    pub(crate) TERMINAL = common {
        Suspend [Ctrl('z')] "", "suspend to the shell; fg resumes";
        Redraw [Ctrl('l')] "", "redraw the screen";
    }

    /// Keys in the help. The keys that quit, the keys that opened the help, Enter and Esc close the
    /// help.
    HELP = own {
        Palette [Char('/'), Char(':'), Ctrl('p')] "find", "find an action by its words";
        Back [Named(Esc), Named(Enter), Char('?'), Named(F(1)), Char('q'), Named(F(10)), Ctrl('c')]
            "back", "back to where you came from";
    }

    /// Keys in a prompt.
    TYPED = own {
        Accept [Named(Enter)] "OK", "accept what was typed";
        Cancel [Named(Esc), Ctrl('c')] "cancel", "cancel what was typed";
    }

    /// Keys in the list of actions.
    PALETTE = own {
        Accept [Named(Enter)] "do it", "carry out the action";
        Cancel [Named(Esc), Ctrl('c')] "cancel", "back to the screen";
        Up [Named(Up), Ctrl('p')] "", "one action up";
        Down [Named(Down), Ctrl('n')] "", "one action down";
        PageUp [Named(PageUp)] "", "one screen up";
        PageDown [Named(PageDown)] "", "one screen down";
    }

    /// Keys in the prompt for a filter.
    FILTER_TYPED = own {
        Accept [Named(Enter)] "apply", "apply the filter";
        Cancel [Named(Esc), Ctrl('c')] "cancel", "go back to the filter before";
        Up [Named(Up)] "", "the previous filter";
        Down [Named(Down)] "", "the next filter";
        PageUp [Named(PageUp)] "", "one screen up while typing a filter";
        PageDown [Named(PageDown)] "", "one screen down while typing a filter";
    }

    /// The chooser of columns.
    CHECK = own {
        Check [Char(' ')] "show/hide", "show the column, or hide it";
        ColumnLeft [Char('<'), Char('K')] "left", "move the column to the left";
        ColumnRight [Char('>'), Char('J')] "right", "move the column to the right";
        Back [Named(Esc), Named(Enter), Char('c'), Char('q'), Named(F(10)), Ctrl('c')] "done",
            "back to the table";
    }

    /// The chooser of the column to sort by.
    SORT = own {
        Accept [Named(Enter), Char(' ')] "sort by it", "sort by the column";
        Invert [Char('I')] "invert", "sort by the same column the other way round";
        Back [Named(Esc), Char('s'), Named(F(6)), Char('q'), Named(F(10)), Ctrl('c')] "cancel",
            "back to the table";
    }

    /// A question about a change of points.
    ASK = own {
        Accept [Char('y')] "yes", "yes, all of them";
        Cancel [Char('n'), Named(Esc), Char('q'), Named(F(10)), Ctrl('c')] "no",
            "no, leave them as they are";
    }

    /// A question about a file.
    CONFIRM = own {
        Accept [Char('y')] "replace it", "yes, replace the file";
        Cancel [Char('n'), Named(Esc), Char('q'), Named(F(10)), Ctrl('c')] "another name",
            "no, keep the file";
    }

    /// A question about the program that this viewer started.
    PROGRAM = own {
        LeaveRunning [Char('l')] "leave it running", "leave pfp-top; the program continues";
        EndProgram [Char('e')] "end it", "end the program and its children, and leave pfp-top";
        Cancel [Named(Esc), Char('n'), Char('q'), Named(F(10)), Ctrl('c')] "keep watching",
            "stay in pfp-top";
    }
}

impl Binding<'_> {
    /// The first key of the binding; empty if it has none.
    pub fn key_name(&self) -> String {
        self.keys.first().map_or(String::new(), |key| key.name())
    }

    /// Whether the action has an effect in recordings only.
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

/// The groups that follow the own keys of a screen that shows the watched process.
pub(crate) const TAIL: &[BindingGroup] =
    &[SAVE, POLL, BASELINE, WALK, PAGE, SHOW, TURN, LEAVE, TERMINAL];

/// Actions on the point that the keys act on.
pub(crate) const CHANGE: &[BindingGroup] = &[POINT, TUNE, COPY, FILTER];

impl Overlay {
    /// The keys while this overlay is open.
    pub fn keys(&self) -> KeyMap {
        match self {
            Self::Help(_) => &[&[HELP, WALK, PAGE, TERMINAL]],
            Self::Typed(prompt) if prompt.asked == PromptSubject::Filter => {
                &[&[FILTER_TYPED, TERMINAL]]
            }
            Self::Typed(_) => &[&[TYPED, TERMINAL]],
            Self::Palette(..) => &[&[PALETTE, TERMINAL]],
            Self::Columns(_) => &[&[WALK, PAGE, CHECK, TERMINAL]],
            Self::Sort(_) => &[&[WALK, PAGE, SORT, TERMINAL]],
            Self::Ask(_) => &[&[ASK, TERMINAL]],
            Self::Replace(_) => &[&[CONFIRM, TERMINAL]],
            Self::Leave(_) => &[&[PROGRAM, TERMINAL]],
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
    /// The action of a key in this key map.
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
            binding.keys.iter().any(|key| typed.is_some_and(|c| *key == Key::Twice(c)))
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

    /// The first half of a two-key command that waits for its second half.
    pub fn half_typed(self) -> Option<char> {
        self.half
    }
}
