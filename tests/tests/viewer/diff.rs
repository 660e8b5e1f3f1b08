//! The diff and the log in a terminal: a program that becomes slower while it is
//! watched, and two viewers on one process.

use pfp_tests::needs_a_screen;
use pfp_tests::place::Place;
use pfp_tests::screen::{Screen, row};
use pfp_tests::target::Target;

const STEADY: &str = env!("CARGO_BIN_EXE_steady");

/// A viewer that polls often, with rows in the order of their names.
fn watch<'a>(place: &'a Place, target: &Target) -> Screen<'a> {
    let screen = place.screen(130, 34);
    screen.pfp_top(&format!("-i 0.1 --sort name -p {}", target.pid()));
    screen.wait_for_count("tick", 2);
    screen
}

/// The line of a point on the diff screen, from its name on.
fn line<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let lines = text.lines().map(|line| line.trim_start_matches(['>', '●', ' ']));
    lines.into_iter().find(|line| line.split_whitespace().next() == Some(name))
}

/// The change of the mean in such a line, per cent.
fn mean_change(line: &str) -> Option<f64> {
    line.split_whitespace().find_map(|cell| cell.strip_suffix('%'))?.parse().ok()
}

/// Seconds since the baseline, once a second has passed.
fn seconds_since(text: &str) -> Option<f64> {
    let (_, rest) = text.split_once("; now: ")?;
    rest.split_once("s since")?.0.parse().ok()
}

#[test]
fn a_program_that_becomes_slower_is_caught_by_its_baseline() {
    needs_a_screen!();
    let place = Place::new();
    let mut target = place.start(STEADY, &[]);
    let screen = watch(&place, &target);
    screen.press(&["5"], "how to take a baseline", |text| text.contains("press b to take one"));
    screen.press(&["Escape"], "enough to compare with", |text| {
        row(text, "work").is_some_and(|row| row.counts_above(400))
    });
    target.tell("slow");
    screen.press(&["b"], "the baseline", |text| text.contains("baseline taken"));
    let text = screen.press(&["5"], "the verdict", |text| {
        line(text, "work").is_some_and(|line| line.contains(" slower "))
            && seconds_since(text).is_some_and(|seconds| seconds >= 2.0)
    });
    assert!(mean_change(line(&text, "work").unwrap()).unwrap() > 50.0, "{text}");
    assert!(text.contains("significantly"), "{text}");
    assert!(text.lines().any(|line| line.starts_with(" baseline ") && line.contains(" since")));
    // A second `b` compares with the window since the first baseline, which was just as slow.
    screen.press(&["b"], "no such difference from then on", |text| {
        let change = line(text, "work").and_then(mean_change);
        change.is_some_and(|change| change.abs() < 50.0)
    });

    // A paused screen can still be scrolled.
    screen.keys(&["p"]);
    screen.wait_for_status("PAUSED");
    screen.press(&["G"], "the cursor on the last row", |text| {
        let rows = text.lines().filter(|line| line.contains('●')).collect::<Vec<_>>();
        rows.last().is_some_and(|row| row.starts_with('>'))
    });
    screen.quit();
}

#[test]
fn two_viewers_see_each_others_switches_and_the_end_of_the_process() {
    needs_a_screen!();
    let place = Place::new();
    let mut target = place.start(STEADY, &["shared"]);
    let (one, two) = (watch(&place, &target), watch(&place, &target));
    one.select("tick");
    one.keys(&["e"]);
    for screen in [&one, &two] {
        screen.wait_for("the point off", |t| row(t, "tick").is_some_and(|row| !row.on));
        screen.keys(&["6"]);
    }
    one.wait_for("its own doing", |t| t.contains("tick switched off by this viewer"));
    two.wait_for("the other's doing", |t| {
        t.contains("watching shared[")
            && t.contains("tick switched off by another viewer or the program")
            && t.contains("measuring costs")
    });

    // When this viewer quits, it restores the point. The other viewer reports the switch.
    one.quit();
    two.wait_for("it put back", |t| t.contains("tick switched on by another viewer"));
    two.press(&["Escape"], "the point on", |t| row(t, "tick").is_some_and(|row| row.on));

    target.kill();
    two.wait_for("an unread problem", |t| t.contains(" 1 new problem (press 6)"));
    two.press(&["6"], "what it is", |t| {
        t.contains("crashed or was killed") && !t.contains("new problem")
    });
}
