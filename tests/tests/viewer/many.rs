//! The viewer with five thousand points: scrolling, filtering and sorting show the right rows, and
//! the cursor stays on its point while rows move.

use pfp_tests::needs_a_screen;
use pfp_tests::place::Place;
use pfp_tests::screen::{Screen, rows};

const POINTS: usize = 5_000;
/// The probe's own point, which is measured more often than the others here.
const OVERHEAD: &str = "overhead";

/// The names in the order of their rows, including the probe's own point.
fn sorted() -> Vec<String> {
    let name = |place| format!("part{:02}.region{place:04}", place % 50);
    let mut names: Vec<String> = (0..POINTS).map(name).collect();
    names.push(OVERHEAD.into());
    names.sort();
    names
}

fn names(text: &str) -> Vec<String> {
    rows(text).iter().map(|row| row.name().to_owned()).collect()
}

fn selected(text: &str) -> Option<String> {
    rows(text).into_iter().find(|row| row.selected).map(|row| row.name().to_owned())
}

/// Waits until the cursor is on this point, and the rows around it are its neighbours in this
/// order.
#[track_caller]
fn wait_for_place(screen: &Screen, order: &[String], place: usize, many: usize) {
    screen.wait_for(&format!("the cursor on {}", order[place]), |text| {
        let shown = names(text);
        let first = order.iter().position(|name| Some(name) == shown.first());
        selected(text).as_ref() == Some(&order[place])
            && shown.len() == many
            && first.is_some_and(|first| order[first..].starts_with(&shown))
    });
}

#[test]
fn five_thousand_points_are_walked_through_filtered_and_sorted() {
    needs_a_screen!();
    let place = Place::new();
    let mut target =
        place.start(env!("CARGO_BIN_EXE_pfp-test-target"), &["thousands", &POINTS.to_string()]);
    let screen = place.screen(130, 34);
    screen.pfp_top("-i 0.1 --sort name");
    let order = sorted();
    let text = screen.wait_for("all points", |text| {
        text.contains(&format!(" of {}", POINTS + 1)) && selected(text).is_some()
    });
    let page = rows(&text).len();
    assert!(page > 20, "{text}");

    // Moves by pages, to the ends, and by rows.
    screen.keys(&["Home"]);
    wait_for_place(&screen, &order, 0, page);
    screen.keys(&["PageDown"; 100]);
    wait_for_place(&screen, &order, 100 * page, page);
    screen.keys(&["PageUp"]);
    wait_for_place(&screen, &order, 99 * page, page);
    screen.keys(&["End"]);
    wait_for_place(&screen, &order, POINTS, page);
    screen.keys(&["PageDown", "j"]);
    screen.keys(&["k", "k", "k"]);
    wait_for_place(&screen, &order, POINTS - 3, page);
    screen.keys(&["Home"]);
    screen.keys(&["j"; 40]);
    wait_for_place(&screen, &order, 40, page);

    // With a filter only matching points are shown; without it, the cursor is on its point again.
    screen.fill("/", "region43");
    screen.keys(&["Enter"]);
    let passing: Vec<String> =
        order.iter().filter(|name| name.contains("region43")).cloned().collect();
    assert_eq!(passing.len(), 100);
    screen.wait_for("what passes", |text| text.contains(" of 100 "));
    screen.keys(&["End"]);
    wait_for_place(&screen, &passing, 99, page);
    screen.keys(&["Escape"]);
    let place = order.iter().position(|name| *name == passing[99]).unwrap();
    wait_for_place(&screen, &order, place, page);

    // Sorted by count, rows move, and the cursor moves with its point.
    screen.quit();
    let name = |place: usize| format!("part{:02}.region{place:04}", place % 50);
    target.tell("2500 10");
    target.tell("100 20");
    screen.pfp_top("-i 0.1 --sort count");
    let leads = |text: &str, places: &[usize]| {
        let expected: Vec<String> = places.iter().map(|place| name(*place)).collect();
        let names: Vec<String> = names(text).into_iter().filter(|n| n != OVERHEAD).collect();
        names.starts_with(&expected)
    };
    screen
        .wait_for("those with most", |text| leads(text, &[100, 2500]) && selected(text).is_some());
    screen.press(&["Home", "j", "j"], "the cursor on the second of them", |text| {
        selected(text) == Some(name(2500))
    });
    target.tell("4000 30");
    target.tell("4001 40");
    screen.wait_for("it to be the fourth, and still under the cursor", |text| {
        leads(text, &[4001, 4000, 100, 2500]) && selected(text) == Some(name(2500))
    });
    // The point moves from far below to the top, and the screen follows.
    screen.keys(&["End"]);
    let is_point = |name: &String| name.starts_with("part");
    let text = screen.wait_for("the end", |text| {
        !leads(text, &[4001]) && selected(text).is_some_and(|name| is_point(&name))
    });
    let end = selected(&text);
    let text = screen.press(&["k"], "the last but one", |text| {
        selected(text) != end && selected(text).is_some_and(|name| is_point(&name))
    });
    let last = selected(&text).unwrap();
    let place: usize = last.rsplit("region").next().unwrap().parse().unwrap();
    target.tell(&format!("{place} 100"));
    screen.wait_for("it at the top, under the cursor", |text| {
        leads(text, &[place, 4001, 4000, 100, 2500]) && selected(text) == Some(last.clone())
    });
    screen.quit();
    target.end_well();
}
