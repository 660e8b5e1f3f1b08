//! The user's own keys, from the settings file.

use std::collections::BTreeMap;

use crossterm::event::KeyCode;

use super::keys::{Binding, Key, KeyMap, bindings};
use crate::common::action::Action;
use crate::common::screen::Screen;

/// The keys for some actions, in place of the usual ones. Prompts, menus and questions keep their
/// usual keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChosenKeys(Vec<(Action, Vec<Key>)>);

impl ChosenKeys {
    /// Parses the names of actions and of their keys. `screens` has the usual keys of each screen.
    ///
    /// # Errors
    ///
    /// If there is no such action or key, if a key would have two meanings on a screen, or if no
    /// key would be left to quit. The error states what was expected.
    pub fn new(
        wanted: &BTreeMap<String, Vec<String>>,
        screens: &[(Screen, KeyMap)],
    ) -> Result<Self, String> {
        let actions = actions(screens);
        let one = |(word, keys): (&String, &Vec<String>)| {
            let action = actions.iter().find(|action| action.word() == *word).ok_or_else(|| {
                let all: Vec<_> = actions.iter().map(|action| action.word()).collect();
                format!("expected actions among {}, found {word}", all.join(", "))
            })?;
            let keys = keys.iter().map(|name| {
                Key::of_name(name).ok_or_else(|| {
                    format!(
                        "{word}: {name:?} is not a key; examples: x, gg, F5, Space, PgUp, Ctrl-B, \
                         Shift-Left"
                    )
                })
            });
            Ok((*action, keys.collect::<Result<Vec<_>, String>>()?))
        };
        let chosen = Self(wanted.iter().map(one).collect::<Result<_, String>>()?);
        if chosen.0.iter().any(|(action, keys)| *action == Action::Quit && keys.is_empty()) {
            return Err("expected at least one key for quit, found none".into());
        }
        chosen.check(screens)?;
        Ok(chosen)
    }

    /// Checks that each key has one meaning on each screen.
    fn check(&self, screens: &[(Screen, KeyMap)]) -> Result<(), String> {
        for (screen, keys) in screens {
            let mut seen: Vec<(Key, Action)> = Vec::new();
            for binding in bindings(keys) {
                for key in self.of(binding).keys {
                    let half = |other: Key| match (*key, other) {
                        (Key::Twice(a), Key::Char(b)) | (Key::Char(a), Key::Twice(b)) => a == b,
                        _ => false,
                    };
                    if let Some((_, other)) =
                        seen.iter().find(|(other, _)| other == key || half(*other))
                    {
                        return Err(format!(
                            "{} would mean {} and {} on the screen {screen:?}; choose another key \
                             for one of them",
                            key.name(),
                            other.word(),
                            binding.action.word(),
                        ));
                    }
                    seen.push((*key, binding.action));
                }
            }
        }
        Ok(())
    }

    /// A binding with the user's own keys, if there are any for its action.
    pub fn of<'a>(&'a self, binding: Binding<'a>) -> Binding<'a> {
        match self.0.iter().find(|(action, _)| *action == binding.action) {
            Some((_, keys)) => Binding { keys, ..binding },
            None => binding,
        }
    }
}

/// The actions that have keys on a screen.
fn actions(screens: &[(Screen, KeyMap)]) -> Vec<Action> {
    let mut all: Vec<Action> = Vec::new();
    for binding in screens.iter().flat_map(|(_, keys)| bindings(keys)) {
        if !all.contains(&binding.action) {
            all.push(binding.action);
        }
    }
    all
}

impl Key {
    /// The key with this name in the help.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        use KeyCode::{
            BackTab, Backspace, Delete, Down, End, Enter, Esc, Home, Insert, Left, PageDown,
            PageUp, Right, Tab, Up,
        };
        let named = [
            Enter, Esc, Tab, BackTab, Up, Down, Left, Right, Home, End, PageUp, PageDown, Insert,
            Delete, Backspace,
        ];
        let named = named.into_iter().chain((1..=12).map(KeyCode::F)).map(Self::Named);
        let shifted = [Left, Right, Home, End].map(Self::Shift);
        let control = ('a'..='z').map(Self::Ctrl);
        let mut known = named.chain(shifted).chain(control).chain([Self::Char(' ')]);
        let mut letters = name.chars();
        match (letters.next(), letters.next(), letters.next()) {
            (Some(c), None, _) if !c.is_control() && c != ' ' => Some(Self::Char(c)),
            (Some(a), Some(b), None) if a == b && !a.is_control() => Some(Self::Twice(a)),
            _ => known.find(|key| key.name() == name),
        }
    }
}
