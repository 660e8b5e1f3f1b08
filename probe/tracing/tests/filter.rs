//! The environment or the program selects spans by level and target.

mod apart;

use std::process::Command;

use pfp_tracing::{InitError, Options};

const FILTER: &str = "info,hyper=off,app::db=trace";

/// Name of the case, the environment's filter, the program's filter, and the spans that pass.
type Case = (&'static str, Option<&'static str>, Option<&'static str>, &'static [&'static str]);
const CASES: [Case; 7] = [
    ("none", None, None, ALL),
    ("the environment's", Some(FILTER), None, FEW),
    ("the program's", None, Some(FILTER), FEW),
    ("both", Some(FILTER), Some("off"), FEW),
    ("an empty one", Some(" "), Some(FILTER), FEW),
    ("nothing passes", Some("off"), None, &[]),
    ("one level", Some("warn"), None, &["app::warned", "hyper::proto::served"]),
];
const ALL: &[&str] = &["app::db::traced", "app::debugged", "app::warned", "hyper::proto::served"];
const FEW: &[&str] = &["app::db::traced", "app::warned"];

fn spans() {
    tracing::trace_span!(target: "app::db", "traced").in_scope(|| ());
    tracing::debug_span!(target: "app", "debugged").in_scope(|| ());
    tracing::warn_span!(target: "app", "warned").in_scope(|| ());
    tracing::error_span!(target: "hyper::proto", "served").in_scope(|| ());
}

fn measured() -> Vec<String> {
    let has_measured =
        |point: &&'static pfp::Point| point.stats().is_some_and(|stats| stats.count == 3);
    let points = pfp::points().filter(|point| point.line() > 0);
    let mut names: Vec<_> = points.filter(has_measured).map(|point| point.name().into()).collect();
    names.sort();
    names
}

fn prepare(case: &str, command: &mut Command) {
    let (_, variable, ..) = CASES.iter().find(|its| case.ends_with(its.0)).expect("it is one");
    match variable {
        Some(text) => command.env("PFP_TRACING", text),
        None => command.env_remove("PFP_TRACING"),
    };
}

#[test]
fn the_filter_selects_levels_and_targets() {
    let all: Vec<String> = apart::WAYS
        .iter()
        .flat_map(|way| CASES.iter().map(move |case| format!("{way}, {}", case.0)))
        .collect();
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let test = "the_filter_selects_levels_and_targets";
    let Some(case) = apart::case(test, &all, prepare) else { return };
    let (way, case) = case.split_once(", ").expect("it has both");
    let (.., filter, passing) = CASES.iter().find(|its| its.0 == case).expect("it is one");
    let options = filter.map_or_else(Options::default, |text| Options::default().filter(text));
    apart::set(way, options).expect("it is the first");
    (0..3).for_each(|_| spans());
    assert_eq!(measured(), *passing);
}

#[test]
fn an_invalid_filter_is_an_error() {
    let test = "an_invalid_filter_is_an_error";
    let prepare = |_: &str, command: &mut Command| {
        command.env("PFP_TRACING", "app=loud");
    };
    let Some(way) = apart::case(test, &apart::WAYS, prepare) else { return };
    let error = InitError::Filter { found: "app=loud".to_owned() };
    assert_eq!(apart::set(&way, Options::default()), Err(error));
    // `layer` cannot return an error, so it measures nothing.
    use tracing_subscriber::layer::SubscriberExt;
    let all = tracing_subscriber::registry().with(pfp_tracing::layer());
    tracing::subscriber::with_default(all, spans);
    assert_eq!(measured(), [""; 0]);
}
