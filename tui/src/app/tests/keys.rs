//! Tests of the keys of all screens and overlays.

use crossterm::event::KeyCode;

use super::*;
use crate::common::ChosenKeys;
use crate::common::keys::Key::{Char, Twice};
use crate::common::keys::{Key, KeyMap, Keys, bindings};

/// The keys of every screen and of every overlay.
fn every_key_map() -> Vec<(String, KeyMap)> {
    let of_screen = |(screen, keys): (Screen, KeyMap)| (format!("{screen:?}"), keys);
    let prompt = Prompt::new(PromptSubject::Filter, "");
    let overlays = [
        Overlay::Help(0),
        Overlay::Typed(prompt.clone()),
        Overlay::Palette(prompt.clone(), 0),
        Overlay::Columns("name"),
        Overlay::Sort("name"),
        Overlay::Typed(Prompt::new(PromptSubject::Moment, "")),
        Overlay::Ask(Question::Reset { ids: Vec::new() }),
        Overlay::Replace(prompt),
        Overlay::Leave("sim [4711]".into()),
    ];
    let of_overlay = |overlay: &Overlay| (format!("{overlay:?}"), overlay.keys());
    Screens::key_maps().into_iter().map(of_screen).chain(overlays.iter().map(of_overlay)).collect()
}

#[test]
fn every_key_has_one_meaning_per_screen() {
    for (of, keys) in every_key_map() {
        let mut seen: Vec<Key> = Vec::new();
        for key in bindings(keys).flat_map(|binding| binding.keys) {
            assert!(!seen.contains(key), "{} twice on {of}", key.name());
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
    let all = every_key_map();
    let shows = Screen::TABS.iter().map(|tab| Action::Show(tab.screen));
    for action in Action::ALL.iter().copied().chain(shows) {
        let mut all = all.iter().flat_map(|(_, keys)| bindings(keys));
        let has_both = |b: &Binding| !b.keys.is_empty() && !b.help.is_empty();
        assert!(all.any(|b| b.action == action && has_both(&b)), "{action:?}");
    }
}

#[test]
fn every_screen_can_be_left() {
    for (of, keys) in every_key_map() {
        let leaves = |b: Binding| {
            let key = |key| b.keys.contains(&key);
            match b.action {
                Action::Quit | Action::Back => key(Char('q')) && key(Key::Ctrl('c')),
                Action::Cancel => key(Key::Ctrl('c')),
                _ => false,
            }
        };
        assert!(bindings(keys).any(leaves), "{of}");
    }
}

#[test]
fn two_key_commands_need_both_keys_in_a_row() {
    let map = Screens::default().get(Screen::Points).keys();
    let press = |keys: &mut Keys, c| keys.action(bindings(map), KeyEvent::from(KeyCode::Char(c)));
    let mut keys = Keys::default();
    assert_eq!(press(&mut keys, 'g'), None);
    assert_eq!(keys.half_typed(), Some('g'));
    assert_eq!(press(&mut keys, 'g'), Some(Action::Top));
    assert_eq!(press(&mut keys, 'g'), None);
    assert_eq!(press(&mut keys, 'j'), Some(Action::Down));
    assert_eq!(press(&mut keys, 'g'), None);
}

fn chosen(wanted: &[(&str, &[&str])]) -> Result<ChosenKeys, String> {
    let words = |keys: &&[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
    ChosenKeys::new(
        &wanted.iter().map(|(action, keys)| ((*action).to_owned(), words(keys))).collect(),
        &Screens::key_maps(),
    )
}

#[test]
fn every_key_is_known_by_its_name() {
    for key in every_key_map().iter().flat_map(|(_, keys)| bindings(keys)).flat_map(|b| b.keys) {
        assert_eq!(Key::of_name(&key.name()), Some(*key), "{}", key.name());
    }
    for name in ["", " ", "ab", "Ctrl-", "Ctrl-1", "F13", "Hyper-x", "\u{7}"] {
        assert_eq!(Key::of_name(name), None, "{name:?}");
    }
}

#[test]
fn a_key_with_two_meanings_is_refused() {
    assert!(chosen(&[("toggle", &["x"]), ("limit", &["Y"])]).is_ok());
    assert!(chosen(&[("toggle", &["r"]), ("reset", &["e"])]).is_ok());
    assert!(chosen(&[("reset-all", &[])]).is_ok());
    for (wanted, said) in [
        (&[("toggle", &["r"][..])][..], "r would mean toggle and reset on the screen Points;"),
        (&[("toggle", &["g"])], "gg would mean toggle and top on the screen Points;"),
        (&[("toggle", &["xx"])], "x would mean toggle and limit on the screen Points;"),
        (&[("toggel", &["x"])], "expected actions among pause, step-back, step-on,"),
        (&[("show-log", &["L1"])], "show-log: \"L1\" is not a key; examples: x, gg,"),
        (&[("quit", &[])], "expected at least one key for quit, found none"),
    ] {
        let error = chosen(wanted).unwrap_err();
        assert!(error.starts_with(said), "{error}");
    }
}

#[test]
fn an_action_is_found_by_its_words() {
    let mut desk = desk();
    let found = |desk: &Desk| match &desk.overlay {
        Some(Overlay::Palette(prompt, place)) => {
            let all = desk.palette(&prompt.text());
            (all.iter().map(|binding| binding.action).collect::<Vec<_>>(), *place)
        }
        other => panic!("no palette: {other:?}"),
    };
    desk.press(":");
    let all = found(&desk).0;
    assert!(all.contains(&Action::Toggle) && !all.contains(&Action::Seek), "{all:?}");
    desk.press("pllmoft");
    assert_eq!(found(&desk), (vec![Action::Faster], 0));
    let before = desk.common.interval;
    desk.press("\n");
    assert!(desk.overlay.is_none() && desk.common.interval < before);

    // The arrows choose among several actions; another letter chooses the best match again.
    desk.press(":screen");
    desk.code(KeyCode::Down);
    let (several, place) = found(&desk);
    assert!(several.len() > 1 && place == 1, "{several:?}");
    desk.press("s");
    assert_eq!(found(&desk).1, 0);
    desk.press("\x1b");
    assert!(desk.overlay.is_none());

    // If no action matches, Enter does nothing. The list of actions also opens from the help.
    desk.press("?/no such action\n");
    assert_eq!(found(&desk), (Vec::new(), 0));
    desk.clear();
    desk.press("quit\n");
    assert!(desk.quit);
}
