//! Slow calls of a running process: recorded for long, exported, and followed by a command.

use std::fs;
use std::process::Stdio;

use pfp_read::source;
use pfp_tests::place::{Place, pfp_top, text};
use pfp_tests::target::{Target, end_with_test, wait_for};
use pfp_tests::well;
use serde_json::Value;

const STEADY: &str = env!("CARGO_BIN_EXE_steady");

/// Starts a program whose point `tick`, which takes 50 us, has a limit of 1 us.
fn watched(place: &Place) -> (Target, String) {
    let target = place.start_watched(STEADY, &["far"]);
    let pid = target.pid().to_string();
    wait_for("the point", || {
        place.pfp_top(&["watch", "tick", "-p", &pid, "--over", "1us"]).status.success()
    });
    (target, pid)
}

#[test]
fn a_recording_of_slow_calls_alone_has_all_of_them_and_their_moments() {
    let place = Place::new();
    let (_target, pid) = watched(&place);
    let file = place.path("week.pfprec");
    let record = ["record", "--slow", "-p", &pid, "-i", "50ms", "-d", "3s", "-o", text(&file)];
    well(&place.pfp_top(&record));
    let last = source::open(&file).unwrap().poll().unwrap();
    assert!(last.cells.is_empty() && last.records.is_empty() && last.waits.is_none());

    let printed = place.pfp_top(&["slow", text(&file), "--json"]);
    well(&printed);
    let printed: Value = serde_json::from_slice(&printed.stdout).expect("it is JSON");
    let calls = printed["calls"].as_array().expect("it is a list");
    let mut numbers: Vec<_> = calls.iter().map(|call| call["number"].as_u64().unwrap()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    // A process keeps eight at a time.
    assert!(numbers.len() == calls.len() && calls.len() > 8, "{numbers:?}");

    let call = &calls[calls.len() / 2];
    let number = call["number"].to_string();
    let exported = place.pfp_top(&["export", "chrome", text(&file), "--slow", &number]);
    well(&exported);
    let trace: Value = serde_json::from_slice(&exported.stdout).expect("it is JSON");
    let events = trace["traceEvents"].as_array().expect("it is a list");
    let rate = printed["ticks_per_second"].as_f64().unwrap();
    let us = |key: &str| call[key].as_f64().unwrap() / rate * 1e6;
    let near = |found: &Value, us: f64| found.as_f64().is_some_and(|it| (it - us).abs() < 0.01);
    let is_it = |event: &&Value| {
        event["name"] == "tick"
            && near(&event["ts"], us("start"))
            && near(&event["dur"], us("span"))
    };
    assert_eq!(events.iter().filter(is_it).count(), 1, "{call} {trace}");
    // A moment has no figures, and not every call is there.
    let csv = place.pfp_top(&["export", "csv", text(&file), "--slow", &number]);
    let said = String::from_utf8_lossy(&csv.stderr).into_owned();
    assert!(said.contains("csv has no single calls"), "{said}");
    let absent = place.pfp_top(&["export", "chrome", text(&file), "--slow", "999999"]);
    let said = String::from_utf8_lossy(&absent.stderr).into_owned();
    assert!(said.contains("found 999999"), "{said}");
}

#[test]
fn a_command_gets_the_moment_of_a_followed_call() {
    let place = Place::new();
    let (target, pid) = watched(&place);
    let mut command = place.command(pfp_top());
    let exec = format!("'{}' slow --json -o got", pfp_top().display());
    command.args(["slow", "-f", "-p", &pid, "--exec", &exec]).env("TMPDIR", place.folder());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let follower = end_with_test(&mut command).spawn().expect("pfp-top starts");
    let got: Value = wait_for("what the command prints", || {
        serde_json::from_slice(&fs::read(place.path("got")).ok()?).ok()
    });
    let [call] = &got["calls"].as_array().expect("it is a list")[..] else { panic!("{got}") };
    assert_eq!(call["name"], "tick");
    let last = call["records"].as_array().and_then(|records| records.last()).expect("it has some");
    assert_eq!((&last["start"], &last["span"]), (&call["start"], &call["span"]), "{call}");

    // More calls come while the command may not run again.
    wait_for("more calls", || {
        let printed = place.pfp_top(&["slow", "-p", &pid, "--json"]);
        let printed: Value = serde_json::from_slice(&printed.stdout).ok()?;
        let numbers = printed["calls"].as_array()?.iter().filter_map(|it| it["number"].as_u64());
        numbers.max().filter(|number| *number > call["number"].as_u64().expect("it has one") + 16)
    });
    target.end_well();
    let output = follower.wait_with_output().expect("it ends");
    well(&output);
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(lines.lines().filter(|line| line.contains(" tick ")).count() > 1, "{lines}");
    // The command runs once in 10 s, and its file is gone.
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("the command of --exec was not run for"), "{said}");
    let is_left = |name: &str| name.starts_with("pfp-slow");
    let names = fs::read_dir(place.folder()).expect("it is there").flatten();
    let mut names = names.map(|file| file.file_name().to_string_lossy().into_owned());
    assert!(!names.any(|name| is_left(&name)));
}
