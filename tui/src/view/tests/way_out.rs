//! Tests of the keys that leave, on every screen.

use super::*;
use crate::common::Overlay;

/// Keys that show the screens, open parts of them, or open an overlay.
const OPENED: [&str; 29] = [
    "", "2", "3", "4", "5", "6", "7", "8", "\n", "3d", "3/wo\n", "4\n", "8\n", "8\n\n", "8f", "8z",
    "8P\x1b", "P", "P/app\n", "4P", "4P2", "?", "8?", "s", "3c", "e", "E", "r", "/io\n",
];

fn text_of(desk: &mut Desk) -> String {
    screen(desk, false, SIZES[0])
}

#[test]
fn quit_keys_act_as_esc_until_esc_does_nothing() {
    for keys in OPENED {
        let opened = || {
            let mut desk = desk();
            desk.wait(20);
            desk.press(keys);
            // A message would make the texts differ, since any key removes it.
            desk.common.toast = None;
            desk
        };
        let before = text_of(&mut opened());
        let mut by_esc = opened();
        by_esc.press("\x1b");
        assert!(!by_esc.quit, "{keys:?}");
        let after = text_of(&mut by_esc);
        let mut by_q = opened();
        by_q.press("q");
        assert_eq!(by_q.quit, after == before, "{keys:?}, before:\n{before}\nEsc:\n{after}");
        if !by_q.quit {
            assert_eq!(text_of(&mut by_q), after, "{keys:?}");
        }
        let says_quit = before.lines().last().is_some_and(|line| line.contains("q quit"));
        assert_eq!(says_quit, by_q.quit, "{keys:?}:\n{before}");
        for _ in 0..4 {
            by_q.press("q");
        }
        assert!(by_q.quit, "{keys:?}: it is left in the end");
    }
}

#[test]
fn q_leaves_if_no_process_is_watched() {
    let now = Instant::now();
    for found in [0, 2] {
        let stage = Stage::default();
        stage.0.borrow_mut().candidates = (0..found).map(candidate).collect();
        let mut app = App::new(Options::default(), Box::new(stage), now);
        app.poll(now);
        app.key(KeyCode::Esc.into(), now);
        assert!(!app.quit && app.overlay.is_none());
        app.key(KeyCode::Char('?').into(), now);
        assert_eq!(app.overlay, Some(Overlay::Help(0)));
        app.key(KeyCode::Char('q').into(), now);
        assert!(!app.quit && app.overlay.is_none());
        app.key(KeyCode::Char('q').into(), now);
        assert!(app.quit, "{found} processes, on {:?}", app.screen);
    }
}
