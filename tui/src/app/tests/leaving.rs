//! Tests of leaving the viewer, and of input that must not act as keys.

use super::*;

/// A finder that has started a program and finds no other process.
struct Started(bool);

impl Finder for Started {
    fn discover(&mut self) -> Result<Discovery> {
        Ok(Discovery::default())
    }

    fn attach(&mut self, _: &Candidate) -> Result<Box<dyn Source>> {
        Ok(Box::new(Synthetic::new()))
    }

    fn program(&mut self) -> Option<String> {
        self.0.then(|| "sim [4711]".into())
    }
}

fn desk_of(finder: Started) -> Desk {
    let (process, now) = (Shared::default(), Instant::now());
    let mut app = App::new(Options::default(), Box::new(finder), now);
    app.watch(Box::new(process.clone()), now);
    Desk { app, process, now }
}

fn ctrl(c: char) -> KeyEvent {
    KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL)
}

#[test]
fn quit_keys_first_close_the_open_overlay() {
    for open in ["?", "c", "s", "E", "r"] {
        for leave in [KeyEvent::from(KeyCode::Char('q')), KeyEvent::from(KeyCode::F(10)), ctrl('c')]
        {
            let mut desk = desk();
            desk.press(open);
            assert!(desk.overlay.is_some(), "{open}");
            desk.app.key(leave, desk.now);
            assert!(desk.overlay.is_none() && !desk.quit, "{open} {leave:?}");
            assert_eq!(desk.process.state(1), PointState::On, "{open} {leave:?}");
            desk.app.key(leave, desk.now);
            assert!(desk.quit, "{open} {leave:?}");
        }
    }
}

#[test]
fn the_keys_of_help_close_it() {
    for key in [KeyCode::Char('?'), KeyCode::F(1)].map(KeyEvent::from) {
        let mut desk = desk();
        desk.app.key(key, desk.now);
        assert_eq!(desk.overlay, Some(Overlay::Help(0)), "{key:?}");
        desk.app.key(key, desk.now);
        assert_eq!(desk.overlay, None, "{key:?}");
    }
}

#[test]
fn a_program_that_was_started_ends_only_when_asked_to() {
    for (keys, quits, ends) in [
        ("q", false, false),
        ("q\x1bj", false, false),
        ("qq", false, false),
        ("qn", false, false),
        ("qy\n ", false, false),
        ("ql", true, false),
        ("qe", true, true),
    ] {
        let mut desk = desk_of(Started(true));
        desk.press(keys);
        assert_eq!((desk.quit, desk.ends_program), (quits, ends), "{keys:?}");
    }
    let mut desk = desk_of(Started(true));
    desk.app.key(ctrl('c'), desk.now);
    assert_eq!(desk.overlay, Some(Overlay::Leave("sim [4711]".into())));
    let mut desk = desk_of(Started(false));
    desk.press("q");
    assert!(desk.quit && !desk.ends_program);
}

/// Terminals send the same bytes for Alt-s as for Esc and s in quick succession.
#[test]
fn alt_and_a_letter_are_esc_and_the_letter() {
    let mut desk = desk();
    desk.press("\n");
    assert_eq!(desk.screen, Screen::Detail);
    desk.app.key(KeyEvent::new(KeyCode::Char('s'), KeyModifiers::ALT), desk.now);
    assert_eq!(desk.screen, Screen::Points);
    assert!(matches!(desk.overlay, Some(Overlay::Sort(_))), "{:?}", desk.overlay);
}

#[test]
fn pasted_text_does_not_act_as_keys() {
    let mut desk = desk();
    let before: Vec<PointState> = desk.made().points.iter().map(|point| point.state).collect();
    for text in ["Reply", "Yes, Every", "here", "wow\r", "q"] {
        desk.app.paste(text, desk.now);
        assert!(desk.overlay.is_none() && !desk.quit, "{text}");
        assert!(desk.common.toast.is_some(), "{text}: it is said");
    }
    let after: Vec<PointState> = desk.made().points.iter().map(|point| point.state).collect();
    assert_eq!(before, after);

    desk.press("/o");
    desk.code(KeyCode::Left);
    desk.app.paste("\n i\u{1b}\no.p\n", desk.now);
    assert_eq!(desk.common.filter.text(), "io");
    desk.app.paste(".parse", desk.now);
    assert_eq!(desk.common.filter.text(), "i.parseo");
    // Only the beginning of a long text is inserted, and the text after the cursor stays.
    desk.app.paste(&"x".repeat(1 << 22), desk.now);
    let Some(Overlay::Typed(prompt)) = &desk.overlay else { panic!("{:?}", desk.overlay) };
    assert!(prompt.text().starts_with("i.parsex") && prompt.text().ends_with("xo"));
}
