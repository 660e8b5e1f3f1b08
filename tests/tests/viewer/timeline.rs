//! Threads and timeline in a real terminal, on a program with a known rhythm.

use pfp_tests::needs_a_screen;
use pfp_tests::place::Place;
use pfp_tests::screen::Screen;

const STEADY: &str = env!("CARGO_BIN_EXE_steady");

/// The thread's first line in the timeline.
fn line<'a>(text: &'a str, thread: &str) -> Option<&'a str> {
    text.lines().find(|line| line.trim_start_matches(['>', ' ']).starts_with(thread))
}

fn on_tab(text: &str, tab: &str) -> bool {
    text.contains(&format!("[{tab}]"))
}

/// Moves the cursor onto a thread's first line.
fn select(screen: &Screen, thread: &str) {
    for _ in 0..8 {
        screen.keys(&["Up"]);
    }
    for _ in 0..8 {
        let text = screen.wait_for("a cursor", |text| text.lines().any(|l| l.starts_with('>')));
        let cursor = text.lines().position(|line| line.starts_with('>'));
        let wanted = line(&text, thread).and_then(|wanted| text.lines().position(|l| l == wanted));
        if cursor == wanted {
            return;
        }
        screen.press(&["Down"], "the cursor to move", |text| {
            text.lines().position(|line| line.starts_with('>')) != cursor
        });
    }
    panic!("{thread} was not reached:\n{}", screen.shown());
}

#[test]
fn every_screen_is_a_key_away() {
    needs_a_screen!();
    let place = Place::new();
    let _target = place.start(STEADY, &[]);
    let screen = place.screen(100, 30);
    screen.pfp_top("-i 0.1");
    screen.wait_for("the points", |text| on_tab(text, "1 Points") && text.contains("tick"));
    for (key, tab) in [
        ("2", "2 Detail"),
        ("3", "3 Threads"),
        ("4", "4 Timeline"),
        ("1", "1 Points"),
        ("Tab", "2 Detail"),
        ("Tab", "3 Threads"),
        ("BTab", "2 Detail"),
        ("BTab", "1 Points"),
        ("4", "4 Timeline"),
        ("Escape", "1 Points"),
    ] {
        screen.press(&[key], tab, |text| on_tab(text, tab));
    }
    // On a narrow screen only the current tab shows its name.
    screen.keys(&["4"]);
    screen.resize(40, 20);
    screen.wait_for("narrow tabs", |text| on_tab(text, "4 Timeline") && !text.contains("1 Points"));
    screen.resize(40, 8);
    screen.wait_for("a word in the first line", |text| {
        text.lines().next().is_some_and(|line| line.trim_end().ends_with("4 Timeline  LIVE"))
    });
    screen.quit();
}

#[test]
fn threads_show_their_cpu_time() {
    needs_a_screen!();
    let place = Place::new();
    let _target = place.start(STEADY, &[]);
    let screen = place.screen(120, 30);
    screen.pfp_top("-i 0.1");
    screen.wait_for_status("LIVE");
    let text = screen.press(&["3"], "the threads", |text| {
        line(text, "worker").is_some_and(|line| line.contains('%') && line.contains("work"))
            && line(text, "ticker").is_some_and(|line| line.contains("live"))
    });
    assert!(text.contains("Load%▼"), "{text}");
    screen.press(&["I"], "the other way round", |text| text.contains("Load%▲"));
    screen.press(&["<"], "another column", |text| text.contains("CPU%▼"));
    select(&screen, "ticker");
    screen.press(&["d"], "the points of the thread", |text| {
        text.contains("ticker [") && ["round", "tick", "#5"].iter().all(|name| text.contains(name))
    });
    screen.press(&["Escape"], "the list alone", |text| {
        on_tab(text, "3 Threads") && !text.contains("Excl%")
    });
    screen.press(&["Enter"], "the table with the points it was in", |text| {
        on_tab(text, "1 Points")
            && text.lines().next().is_some_and(|line| line.contains("filter thread:\"ticker\" 3/"))
            && text.contains("Esc shows all")
            && text.contains("round")
            && !text.contains("inner")
    });
    screen.press(&["Escape"], "all points", |text| {
        text.contains("inner") && !text.contains("filter thread")
    });
    screen.quit();
}

#[test]
fn the_timeline_shows_the_rhythm_and_can_be_held() {
    needs_a_screen!();
    let place = Place::new();
    let _target = place.start(STEADY, &[]);
    let screen = place.screen(130, 34);
    screen.pfp_top("-i 0.1");
    screen.wait_for_status("LIVE");
    // The initial width covers everything that was recorded by the first poll, however long that
    // is.
    let width = |text: &str| {
        let before = text.split(" wide").next().unwrap_or_default();
        before.rsplit(' ').next().unwrap_or_default().to_owned()
    };
    let mut text = screen.press(&["4"], "the timeline", |text| text.contains(" wide"));
    while !width(&text).ends_with("ms") {
        text = screen.press(&["+"], "a closer look", |closer| {
            closer.contains(" wide") && width(closer) != width(&text)
        });
    }
    // A round sleeps for nearly all of its 100 ms, and the bar shows that without colours.
    screen.wait_for("rounds that sleep", |text| {
        line(text, "ticker").is_some_and(|line| line.contains("round░░░"))
    });
    screen.wait_for("now", |text| text.contains("now") && text.contains(" wide"));

    // Back in time: the timeline does not move while the figures change.
    select(&screen, "ticker");
    let held = screen.press(&["Left"], "a held picture", |text| {
        text.contains("paused: End resumes") && text.contains("exclusive, began")
    });
    assert!(held.contains("LIVE"), "{held}");
    let picture = |text: &str| text.lines().skip(1).take(8).collect::<Vec<_>>().join("\n");
    let uptime = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    let later = screen.wait_for("time to pass", |text| uptime(text) != uptime(&held));
    assert_eq!(picture(&later), picture(&held));

    screen.press(&["+"], "a closer look", |text| {
        text.contains(" wide, paused") && width(text) != width(&held)
    });
    screen.press(&["-"], "the look as before", |text| width(text) == width(&held));
    for key in ["Home", "PPage", "NPage", "Right", "Down", "Up"] {
        screen.keys(&[key]);
    }
    screen.press(&["End"], "the newest again", |text| {
        text.contains(" wide") && !text.contains("paused") && text.contains("now")
    });

    // While paused nothing moves; then the region's point is opened and closed again.
    screen.keys(&["Space"]);
    screen.wait_for_status("PAUSED");
    screen.press(&["Enter"], "a point of that thread", |text| {
        on_tab(text, "2 Detail") && text.contains("steady.rs") && text.contains("Figures")
    });
    screen.keys(&["Escape"]);
    // The line of tabs is drawn after the timeline, which is complete by then.
    let paused = screen.wait_for("the timeline", |text| on_tab(text, "4 Timeline"));
    screen.press(&["1"], "the points", |text| on_tab(text, "1 Points"));
    let again = screen.press(&["4"], "the timeline", |text| on_tab(text, "4 Timeline"));
    assert_eq!(picture(&again), picture(&paused));
    screen.quit();
}
