//! Points whose names contain the text of a field, as requested by the program or the environment.

mod apart;

use std::process::Command;

use pfp_tracing::{InitError, Options};
use tracing::{Span, info_span};

fn count(name: &str) -> u64 {
    let point = pfp::points().find(|point| point.name() == name);
    point.and_then(pfp::Point::stats).map_or(0, |stats| stats.count)
}

fn system(name: &str) -> Span {
    info_span!("system", name, other = 7)
}

#[test]
fn each_text_is_a_point() {
    let Some(way) = apart::way("each_text_is_a_point") else { return };
    let options = Options::default().fields("system{name}, fields::request{method path}");
    apart::set(&way, options).expect("it is the first");
    // Long-lived spans, as in bevy, entered in turn with spans of other texts.
    let kept = ["walk", "jump"].map(system);
    for round in 0..10 {
        for (span, times) in kept.iter().zip([1, 2]) {
            (0..times).for_each(|_| span.in_scope(|| system("inner").in_scope(|| ())));
        }
        if round % 2 == 0 {
            info_span!("request", method = "GET", path = ?round).in_scope(|| ());
        }
        info_span!("plain", name = "walk").in_scope(|| ());
        info_span!(target: "elsewhere", "request", method = "GET").in_scope(|| ());
    }
    for (name, expected) in [
        ("fields::system{walk}", 10),
        ("fields::system{jump}", 20),
        ("fields::system{inner}", 30),
        ("fields::system", 0),
        ("fields::request{GET 4}", 1),
        ("fields::plain", 10),
        ("elsewhere::request", 10),
    ] {
        assert_eq!(count(name), expected, "{name}");
    }
    // These fields have no value when the span is created.
    info_span!("request", method = tracing::field::Empty, path = tracing::field::Empty)
        .in_scope(|| ());
    assert_eq!(count("fields::request"), 1);
}

#[test]
fn points_of_a_callsite_are_limited() {
    let Some(way) = apart::way("points_of_a_callsite_are_limited") else { return };
    apart::set(&way, Options::default().fields("{name}")).expect("it is the first");
    for number in 0..3000 {
        system(&number.to_string()).in_scope(|| ());
    }
    system(&"long".repeat(1000)).in_scope(|| ());
    let points: Vec<_> = pfp::points().filter(|point| point.name().contains("system")).collect();
    let counts = points.iter().filter_map(|point| point.stats()).map(|stats| stats.count);
    assert_eq!((points.len(), counts.sum::<u64>()), (257, 3001));
    assert_eq!(count("fields::system"), 3001 - 256);
}

#[test]
fn a_callsite_is_wanted_while_one_of_its_points_is_on() {
    let test = "a_callsite_is_wanted_while_one_of_its_points_is_on";
    let Some(way) = apart::way(test) else { return };
    apart::set(&way, Options::default().fields("system{name}")).expect("it is the first");
    let enter = |name: &str| system(name).in_scope(|| ());
    ["walk", "jump"].into_iter().for_each(enter);
    let point = |name: &str| pfp::points().find(|point| point.name() == name).expect("it is there");
    let [walk, jump] = ["fields::system{walk}", "fields::system{jump}"].map(point);
    walk.disable();
    for _ in 0..3 {
        ["walk", "jump"].into_iter().for_each(enter);
        // Longer than the period between two updates of callsites.
        std::thread::sleep(std::time::Duration::from_millis(150));
    }
    assert_eq!([walk, jump].map(|point| point.stats().unwrap().count), [1, 4]);
    jump.disable();
    let is_disabled_now = || {
        ["walk", "jump"].into_iter().for_each(enter);
        system("walk").is_disabled()
    };
    while !is_disabled_now() {
        std::thread::yield_now();
    }
    walk.enable();
    while count("fields::system{walk}") < 2 {
        ["walk", "jump"].into_iter().for_each(enter);
        std::thread::yield_now();
    }
    assert_eq!(jump.stats().unwrap().count, 4);
}

const WRONG: [&str; 2] = ["right", "wrong"];

fn prepare(case: &str, command: &mut Command) {
    command.env("PFP_SPAN_FIELDS", if case == "right" { "system{other}" } else { "system{" });
}

#[test]
fn environment_overrides_program() {
    let Some(case) = apart::case("environment_overrides_program", &WRONG, prepare) else { return };
    let set = Options::default().fields("system{name}").init();
    if case == "wrong" {
        let error = set.expect_err("it is wrong");
        assert_eq!(error, InitError::Fields { found: "system{".to_owned() });
        assert!(error.to_string().contains("such as system{name}"), "{error}");
        return;
    }
    set.expect("it is the first");
    system("walk").in_scope(|| ());
    assert_eq!(count("fields::system{7}"), 1);
}
