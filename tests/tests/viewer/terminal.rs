//! The terminal itself: given back after a fault, and used with no more than it has,
//! at every size.

use pfp_tests::needs_a_screen;
use pfp_tests::place::{Place, pfp_top};
use pfp_tests::screen::row;

const STEADY: &str = env!("CARGO_BIN_EXE_steady");

#[test]
fn a_panic_gives_the_terminal_back_and_can_be_read() {
    needs_a_screen!();
    let place = Place::new();
    let screen = place.screen(100, 20);
    screen.line("stty -g > before");
    screen.line(&format!("RUST_BACKTRACE=0 {}", env!("CARGO_BIN_EXE_faulty")));
    screen.wait_for_status("LIVE");
    assert!(screen.has_mouse(), "there is nothing to give back");
    std::fs::write(place.path("now"), "").unwrap();
    // On the shell's own screen, with a cursor.
    let text = screen.wait_for_shell();
    let mut lines = text.lines();
    assert!(lines.any(|line| line.starts_with("thread 'main'")), "{text}");
    assert!(lines.any(|line| line == "a fault in the midst of a poll"), "{text}");
    let rest: Vec<&str> = lines.filter(|line| !line.is_empty()).collect();
    assert!(rest.last().is_some_and(|line| line.starts_with("shell>")), "over it:\n{text}");
    assert!(!screen.has_mouse(), "{text}");
    screen.line("stty -g > after; echo still $((40 + 2))");
    let text = screen.wait_for("the shell to work", |text| text.contains("still 42"));
    assert!(text.contains("echo still"), "what is typed is not seen:\n{text}");
    let setting = |name: &str| std::fs::read_to_string(place.path(name)).unwrap();
    assert_eq!(setting("before"), setting("after"));
}

/// What tells each screen that a key shows.
const SCREENS: [(&str, &str); 6] = [
    ("2", "Figures"),
    ("3", "Load%"),
    ("4", "long,"),
    ("5", "baseline"),
    ("6", "watching"),
    ("1", "tick"),
];

#[test]
fn every_screen_needs_no_more_than_ascii_where_that_is_asked_for() {
    needs_a_screen!();
    let place = Place::new();
    let _target = place.start(STEADY, &[]);
    for (width, height) in [(300, 100), (100, 30), (40, 8)] {
        let screen = place.screen(width, height);
        screen.pfp_top("-d 0.1 --sort name --ascii");
        screen.wait_for_status("LIVE");
        // The rows of the table begin with a glyph that is no part of `row`.
        screen.wait_for("a row", |text| text.contains(">*") && text.contains(" round"));
        for (key, sign) in SCREENS {
            screen.keys(&[key]);
            let text = screen.wait_for(sign, |text| {
                text.contains(sign) && text.lines().next().is_some_and(|l| l.ends_with("LIVE"))
            });
            assert!(text.is_ascii(), "{width} x {height}, key {key}:\n{text}");
        }
        screen.keys(&["?"]);
        let text = screen.wait_for("the help", |text| text.contains(" Keys"));
        assert!(text.is_ascii(), "{text}");
    }
}

#[test]
fn every_screen_fits_the_terminal() {
    needs_a_screen!();
    let place = Place::new();
    let _target = place.start(STEADY, &[]);
    for (width, height) in [(300, 100), (40, 8)] {
        let screen = place.screen(width, height);
        screen.line(&format!("NO_COLOR=1 {} -d 0.1 --sort name", pfp_top().display()));
        screen.wait_for_status("LIVE");
        if width > 80 {
            screen.wait_for("the rows", |text| row(text, "tick").is_some());
        }
        for (key, sign) in SCREENS {
            screen.keys(&[key]);
            // The header and the footer frame every one of them.
            let text = screen.wait_for(sign, |text| {
                let lines: Vec<&str> = text.lines().collect();
                text.contains(sign)
                    && lines.first().is_some_and(|line| line.ends_with("LIVE"))
                    && lines.len() == usize::from(height)
                    && lines.last().is_some_and(|line| line.contains("q quit"))
            });
            let widest = text.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(width.into()), "{text}");
        }
        let styled = screen.styled();
        let cursor = styled.lines().find(|line| line.contains(">●")).expect("a selected row");
        let before = cursor.split(">●").next().unwrap_or_default();
        let codes = before.split("\x1b[").filter_map(|rest| rest.split_once('m'));
        let is_reverse = codes.flat_map(|(codes, _)| codes.split(';')).any(|code| code == "7");
        assert!(is_reverse, "{cursor:?}");
    }
}
