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
    /// The list of processes.
    Picker,
    /// The help.
    Help,
    /// A line that is being typed.
    Prompt,
    /// A question to be answered with yes or no.
    Confirm,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 7] = [
        Self::Waiting,
        Self::Points,
        Self::Detail,
        Self::Picker,
        Self::Help,
        Self::Prompt,
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
            Self::Named(KeyCode::F(n)) => format!("F{n}"),
            Self::Named(code) => format!("{code:?}"),
        }
    }

    fn matches(self, event: &KeyEvent) -> bool {
        let ctrl = event.modifiers.contains(KeyModifiers::CONTROL);
        match self {
            Self::Char(c) => event.code == KeyCode::Char(c) && !ctrl,
            Self::Ctrl(c) => event.code == KeyCode::Char(c) && ctrl,
            Self::Twice(_) => false,
            Self::Named(code) => event.code == code,
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

use Key::{Char, Ctrl, Named, Twice};
use Mode::{Confirm, Detail, Help, Picker, Points, Prompt, Waiting};

const LISTS: &[Mode] = &[Points, Detail, Picker, Help];
const FIGURES: &[Mode] = &[Points, Detail];

/// All keys, in the order of the last line and the help.
pub const BINDINGS: &[Binding] = &[
    bind(
        Action::Pause,
        &[Char(' '), Char('Z'), Char('p')],
        FIGURES,
        "pause",
        "let the figures stand still, or go on",
    ),
    bind(
        Action::Open,
        &[Named(KeyCode::Enter)],
        &[Points, Picker],
        "open",
        "open the point or process under the cursor",
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
        &[Picker],
        "back",
        "back to the process watched before",
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
        "switch the point on or off in the program",
    ),
    bind(Action::Reset, &[Char('r')], FIGURES, "reset", "start the point's figures afresh"),
    bind(Action::SortLeft, &[Char('<')], &[Points], "", "sort by the column to the left"),
    bind(
        Action::SortRight,
        &[Char('>'), Named(KeyCode::F(6)), Char('s')],
        &[Points],
        "sort",
        "sort by the column to the right",
    ),
    bind(Action::Invert, &[Char('I')], &[Points], "invert", "sort the other way round"),
    bind(Action::Write, &[Char('w')], FIGURES, "save", "write a snapshot of everything to a file"),
    bind(Action::Units, &[Char('u')], FIGURES, "cycles", "show time or cycles"),
    bind(Action::Processes, &[Char('P')], FIGURES, "process", "choose another process"),
    bind(Action::Slower, &[Char('+')], FIGURES, "", "poll less often"),
    bind(Action::Faster, &[Char('-')], FIGURES, "", "poll more often"),
    bind(
        Action::Up,
        &[Named(KeyCode::Up), Char('k')],
        LISTS,
        "",
        "one row up; in a point's detail: the point above",
    ),
    bind(
        Action::Down,
        &[Named(KeyCode::Down), Char('j')],
        LISTS,
        "",
        "one row down; in a point's detail: the point below",
    ),
    bind(
        Action::PageUp,
        &[Named(KeyCode::PageUp), Ctrl('b'), Named(KeyCode::Left), Char('h')],
        LISTS,
        "",
        "one screen up",
    ),
    bind(
        Action::PageDown,
        &[Named(KeyCode::PageDown), Ctrl('f'), Named(KeyCode::Right), Char('l')],
        LISTS,
        "",
        "one screen down",
    ),
    bind(Action::Top, &[Named(KeyCode::Home), Twice('g')], LISTS, "", "to the first row"),
    bind(Action::Bottom, &[Named(KeyCode::End), Char('G')], LISTS, "", "to the last row"),
    bind(
        Action::Help,
        &[Char('?'), Named(KeyCode::F(1))],
        &[Points, Detail, Picker, Waiting],
        "help",
        "this help",
    ),
    bind(
        Action::Quit,
        &[Char('q'), Named(KeyCode::F(10)), Ctrl('c')],
        &[Points, Detail, Picker, Waiting, Help],
        "quit",
        "leave; toggled points are put back unless started with --keep",
    ),
    bind(Action::Accept, &[Named(KeyCode::Enter)], &[Prompt], "take", "take what was typed"),
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
            let leaves = |b: &Binding| matches!(b.action, Action::Quit | Action::Cancel);
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
