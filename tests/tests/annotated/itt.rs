//! Tests of ITT: OpenCV, and Python's package, whose native half has the stock client.

use pfp_read::snapshot::Loss;
use pfp_shm_layout::control::Change;
use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::Place;
use pfp_tests::tools;
use pfp_tests::watch::{self, Watch};

use crate::{alone, file, run, text};

#[test]
fn each_call_of_opencvs_functions_is_counted() {
    const ROUNDS: u64 = 5;
    let Some(python) = tools::annotated("OpenCV") else { return };
    let script = file("pictures.py");
    let arguments = [text(&script), &ROUNDS.to_string()];
    let ran = run(&[], &python, &arguments);
    assert_eq!(ran.printed.lines().next(), alone(&python, &arguments).lines().next());
    for function in ["cvtColor", "GaussianBlur", "Canny", "resize"] {
        let point = ran.snapshot.points.iter().find(|point| {
            point.file.starts_with("itt:") && point.name.contains(&format!("cv::{function}("))
        });
        let point = point.unwrap_or_else(|| panic!("no {function}"));
        assert_eq!(ran.count(&point.file, &point.name), ROUNDS, "{function}");
    }
    ran.lost_nothing();
}

#[test]
fn annotations_of_a_script_are_counted_exactly() {
    const ROUNDS: u64 = 50;
    let Some(python) = tools::annotated("a script with ITT") else { return };
    let script = file("tasks.py");
    let arguments = [text(&script), &ROUNDS.to_string()];
    let ran = run(&["--inject", "itt"], &python, &arguments);
    assert_eq!(ran.printed, alone(&python, &arguments));
    for (domain, name, each) in [
        ("itt:tasks.app", "outer", 1),
        ("itt:tasks.app", "inner", 1),
        ("itt:tasks.app", "overlapped", 2),
        ("itt", "event", 1),
    ] {
        assert_eq!(ran.count(domain, name), each * ROUNDS, "{name} in {domain}");
    }
    let is_wall = |name: &str| ran.snapshot.points.iter().any(|it| it.name == name && it.wall);
    assert!(is_wall("overlapped") && is_wall("event") && !is_wall("outer"));
    ran.lost_nothing();
}

/// Parts of the interface other than tasks, called as the stock client's macros do.
#[test]
fn regions_frames_markers_counters_and_waiting_are_counted_exactly() {
    const ROUNDS: u64 = 20;
    const APP: &str = "itt:others.app";
    const IO: &str = "itt:others.io";
    let Some(python) = tools::annotated("ITT's client") else { return };
    let script = file("others.py");
    let arguments = [text(&script), &ROUNDS.to_string()];
    let ran = run(&["--inject", "itt"], &python, &arguments);
    assert_eq!(ran.printed, alone(&python, &arguments));
    // The name of an amount, and its value in each round.
    for (domain, name, each, is_wall, amount) in [
        (APP, "region", 2, true, None),
        (APP, "frame", 2, true, None),
        ("itt:earlier", "early task", 1, false, None),
        ("itt:others.later", "late", 1, false, None),
        (IO, "rows", 1, false, Some(("value", 3))),
        (IO, "bytes", 2, false, Some(("value", 100))),
        (IO, "bytes (down)", 2, false, Some(("down", 10))),
        (IO, "heat (set)", 2, false, Some(("set to", 2 * 37))),
        (IO, "balance (set)", 1, false, None),
        (APP, "count", 1, false, Some(("value", 7))),
        (APP, "count (down)", 1, false, Some(("down", 1))),
        ("itt:sync", "wait for the lock", 1, false, None),
    ] {
        assert_eq!(ran.count(domain, name), each * ROUNDS, "{name} in {domain}");
        let point = ran.point(domain, name);
        assert_eq!(point.wall, is_wall, "{name}");
        let names: Vec<_> = amount.map(|(name, _)| name.to_owned()).into_iter().collect();
        assert_eq!(point.amounts, names, "{name}");
        assert_eq!(ran.amount(point), amount.map_or(0, |(_, each)| each * ROUNDS), "{name}");
    }
    assert_eq!(ran.count(APP, "marker"), ROUNDS + 1);
    assert!(ran.snapshot.points.iter().all(|point| point.file != "itt:off"));
    assert!(ran.snapshot.lanes.iter().any(|lane| lane.name == "a thread of ITT"));
    // pfp has room for 1,024 events, and counts the calls of further events as refused.
    let events = ran.snapshot.points.iter().filter(|point| point.name.starts_with("event "));
    assert_eq!(events.map(|event| ran.count(&event.file, &event.name)).sum::<u64>(), 1024);
    assert_eq!(ran.snapshot.losses[Loss::BeginsRefused], 6);
}

/// Once all points of a domain are off and the regions open in the domain have ended, the program
/// stops calling the tool for the domain. The program resumes the calls as soon as a viewer enables
/// a point.
#[test]
fn a_domain_that_is_off_costs_the_program_nothing() {
    const MANY: u64 = 400_000;
    let source = file("rests.c");
    let flags = ["-std=gnu11", "-ldl", "-pthread"];
    let program = c::compile(Compiler::C, "itt_rests", &[text(&source)], Link::Without, flags);
    let place = Place::new();
    let mut target = place.start(&program, &[text(&c::inject())]);
    target.reach("begun");
    let mut watch = Watch::attach(&place, &target);
    let all = ["work", "of a thread", "span"].map(|name| watch::id(watch.poll(), name));
    all.iter().for_each(|point| watch.change(*point, Change::Disable));
    target.go();
    let said = target.reach("rested").clone();
    let called = |key: &str| said.one::<u64>(key);
    assert_eq!(["on", "open", "span"].map(called), [10, MANY, MANY]);
    // The client notices only after some ten thousand calls that the domain is off.
    assert!(called("closed") < MANY / 4, "{said:?}");
    assert_eq!(["rests", "forked"].map(called), [0, 0]);
    watch.change(all[0], Change::Enable);
    target.go();
    let said = target.reach("awoken").clone();
    // The program itself has disabled the other domain.
    assert_eq!(said.all::<u64>("awake"), [[1000, 0]]);
    watch.change(all[0], Change::Disable);
    target.go();
    let said = target.reach("done").clone();
    assert_eq!(said.one::<u64>("again"), 0);
    let picture = watch.poll();
    let counts = ["work", "of a thread", "span"].map(|name| watch::named(picture, name).count);
    // The second span ended while its point was off.
    assert_eq!(counts, [1010, 1, 1]);
    assert_eq!(picture.losses.mismatched_ends, 0);
    target.end_well();
}
