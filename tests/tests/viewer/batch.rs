//! The viewer without a screen: tables for programs, switching points in scripts, gates, and the
//! exit statuses.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Output, Stdio};

use pfp_tests::place::{Place, pfp_top};
use pfp_tests::target::{Target, wait_for};
use serde_json::Value;

const STEADY: &str = env!("CARGO_BIN_EXE_steady");
/// An id that no process ever has, since it exceeds the kernel's limit.
const NOBODY: &str = "4294967295";

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The viewer's output; asserts that it succeeded.
#[track_caller]
fn good(place: &Place, arguments: &[&str]) -> String {
    let output = place.pfp_top(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}{}", out(&output), err(&output));
    out(&output)
}

/// Starts the steady program, and returns once it has reached all its points.
fn steady(place: &Place) -> Target {
    let target = place.start(STEADY, &[]);
    wait_for("all points", || count(place, &target, "tick").is_some_and(|count| count > 2));
    target
}

/// A snapshot as text and as JSON, read without pfp's own code.
fn snapshot(place: &Place, target: &Target, name: &str) -> Option<(String, Value)> {
    let path = place.path(name);
    let path = path.to_str().expect("the path is text").to_owned();
    let pid = target.pid().to_string();
    let output = place.pfp_top(&["snapshot", "-p", &pid, "-o", &path, "--force"]);
    output.status.success().then(|| {
        let text = std::fs::read_to_string(&path).expect("it was written");
        (path, serde_json::from_str(&text).expect("it is JSON"))
    })
}

fn point<'a>(snapshot: &'a Value, name: &str) -> Option<&'a Value> {
    let points = snapshot["points"].as_array().expect("there are points");
    points.iter().find(|point| match name.strip_prefix('#') {
        Some(number) => point["name"] == "" && point["id"].as_u64() == number.parse().ok(),
        None => point["name"] == name,
    })
}

fn count_in(snapshot: &Value, name: &str) -> Option<u64> {
    let id = &point(snapshot, name)?["id"];
    let cells = snapshot["cells"].as_array()?.iter().filter(|cell| cell["point"] == *id);
    Some(cells.map(|cell| cell["stats"]["count"].as_u64().unwrap_or(0)).sum())
}

fn count(place: &Place, target: &Target, name: &str) -> Option<u64> {
    count_in(&snapshot(place, target, "count.json")?.1, name)
}

#[test]
fn programs_get_json_by_line_and_csv_with_one_head() {
    let place = Place::new();
    let target = steady(&place);
    let pid = target.pid().to_string();
    let chosen =
        ["-p", &pid, "-i", "0.1", "--columns", "count,name,avg", "--filter", "^(tick|#5)$"];
    let all = |more: &[&'static str]| {
        let arguments: Vec<&str> = more.iter().copied().chain(chosen).collect();
        good(&place, &arguments)
    };
    let text = all(&["-b", "-n", "3", "--json", "--sort", "name"]);
    let updates: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    assert_eq!(updates.len(), 3, "{text}");
    let mut before = 0.0;
    for update in &updates {
        assert_eq!(update["process"]["pid"].to_string(), pid);
        let points = update["points"].as_array().expect("points");
        let names: Vec<_> = points.iter().map(|point| point["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["tick", "#5"], "by name, those without one last");
        let mut keys: Vec<_> = points[0].as_object().unwrap().keys().cloned().collect();
        keys.sort();
        assert_eq!(keys, ["avg_s", "avg_short", "count", "name"]);
        // A tick takes 50 us of wall time; the value must be in seconds.
        let seconds = points[0]["avg_s"].as_f64().unwrap();
        assert!((1e-6..1e-2).contains(&seconds), "{seconds}");
        let time = update["time_unix_s"].as_f64().unwrap();
        assert!(time > before);
        before = time;
    }

    let text = all(&["--batch", "-n", "2", "--csv", "--sort", "name"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "time_unix_s,count,name,avg_s,avg_short");
    assert_eq!(lines.len(), 1 + 2 * 2, "{text}");
    assert!(lines[1..].iter().all(|line| line.split(',').count() == 5), "{text}");

    let text = all(&["--once", "--table"]);
    let head = text.lines().nth(1).unwrap_or_default();
    assert_eq!(
        head.split_whitespace().collect::<Vec<_>>(),
        ["Count", "Name", "CPU", "avg"],
        "{text}"
    );
    assert_eq!(text.lines().count(), 4, "{text}");
}

#[test]
fn a_batch_ends_with_the_process_or_its_reader() {
    let place = Place::new();
    let target = steady(&place);
    let pid = target.pid().to_string();
    let batch = || {
        let mut command = place.command(pfp_top());
        command.args(["-b", "-i", "0.05", "--csv", "-p", &pid]).stdout(Stdio::piped());
        command.spawn().expect("pfp-top starts")
    };
    let mut left = batch();
    let mut lines = BufReader::new(left.stdout.take().expect("it was piped")).lines();
    assert!(lines.next().expect("a line").expect("text").starts_with("time_unix_s,"));
    // `head -1` closes its end like this.
    drop(lines);
    assert_eq!(left.wait().expect("it is a child").code(), Some(0));

    let mut batch = batch();
    let mut lines = BufReader::new(batch.stdout.take().expect("it was piped")).lines();
    lines.next().expect("a line").expect("text");
    target.end_well();
    assert!(lines.all(|line| line.is_ok()));
    assert_eq!(batch.wait().expect("it is a child").code(), Some(0));
}

#[test]
fn points_are_switched_reset_and_averaged_by_scripts() {
    let place = Place::new();
    let target = steady(&place);
    let pid = target.pid().to_string();
    let now = || snapshot(&place, &target, "now.json").expect("it runs").1;
    let state = |name: &str| point(&now(), name).expect("it is there")["state"].clone();
    let all = now()["points"].as_array().unwrap().len();

    // Unlike a viewer with a screen, the command leaves the points disabled when it ends.
    let said = good(&place, &["disable", "-p", &pid, "ti?k", "#5"]);
    assert_eq!(said, format!("disabled 2 of {all} points\n"));
    assert_eq!(
        (state("tick"), state("#5"), state("round")),
        ("off".into(), "off".into(), "on".into())
    );
    let (ticks, rounds) = (count_in(&now(), "tick"), count_in(&now(), "round").unwrap());
    wait_for("rounds without ticks", || count_in(&now(), "round").unwrap() > rounds + 3);
    // One region may have been open when the point was disabled; its end still counts.
    let later = count_in(&now(), "tick");
    assert!(later <= ticks.map(|count| count + 1), "{ticks:?} {later:?}");

    let said = good(&place, &["enable", "-p", &pid, "tick", "work"]);
    assert_eq!(said, format!("enabled 1 of {all} points, 1 was on already\n"));
    wait_for("ticks", || count_in(&now(), "tick") > later);

    let counts = |name: &str| point(&now(), name).expect("it is there")["counts_allocs"].as_bool();
    let output = place.pfp_top(&["enable", "--alloc", "-p", &pid, "work"]);
    assert_eq!(out(&output), format!("count allocations of 1 of {all} points\n"));
    assert!(err(&output).contains("no point has counted an allocation so far"), "{output:?}");
    assert_eq!((counts("work"), counts("tick")), (Some(true), None));
    let said = good(&place, &["disable", "--alloc", "-p", &pid, "*"]);
    let rest = all - 1;
    let expected = format!(
        "no longer count allocations of 1 of {all} points, {rest} were not counted already\n"
    );
    assert_eq!((said, counts("work")), (expected, None));

    let before = count_in(&now(), "work").unwrap();
    assert_eq!(good(&place, &["reset", "-p", &pid, "wor*"]), format!("reset 1 of {all} points\n"));
    let after = now();
    let resets = |name: &str| point(&after, name).unwrap()["resets"].as_u64();
    assert_eq!((resets("work"), resets("tick")), (Some(1), Some(0)));
    wait_for("fewer than before", || count_in(&now(), "work").unwrap() < before);

    let alpha = || point(&now(), "work").unwrap()["alpha"].as_f64();
    let said = good(&place, &["alpha", "-p", &pid, "100ms/500ms", "work"]);
    assert_eq!(said, format!("set alpha of 1 of {all} points to 0.2\n"));
    // A segment stores the weight in units of 2^-20.
    assert!((alpha().unwrap() - 0.2).abs() < 1e-6);
    good(&place, &["alpha", "--all", "off", "work"]);
    assert_eq!(alpha(), None);
}

#[test]
fn every_failure_has_its_status_and_says_what_to_do() {
    let place = Place::new();
    let fails = |arguments: &[&str], status: i32, said: &str| {
        let output = place.pfp_top(arguments);
        let why = err(&output);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {why}");
        assert!(why.contains(said), "{arguments:?}: {why}");
    };
    // No process is found.
    for words in [&["-b"][..], &["list"], &["enable", "*"], &["--once", "-p", NOBODY]] {
        fails(words, 3, "no");
    }
    let output = place.pfp_top(&["list", "--json"]);
    assert_eq!((output.status.code(), out(&output).trim()), (Some(3), "[]"));

    let mut target = steady(&place);
    let pid = target.pid().to_string();
    fails(&["disable", "-p", &pid, "tock*"], 3, "points has such a name");
    fails(&["enable", "-p", &pid], 2, "NAME");
    fails(&["alpha", "-p", &pid, "2", "tick"], 2, "expected above 0, up to 1");
    fails(&["--json", "--csv", "-p", &pid], 2, "cannot be used with");
    fails(&["--once", "-p", &pid, "--filter", "/io(/"], 2, "open group");
    fails(&["--once", "-p", &pid, "--columns", "trend"], 2, "bar and trend alone");
    let list: Value = serde_json::from_str(&good(&place, &["list", "--json"])).unwrap();
    assert_eq!(list[0]["pid"].to_string(), pid);
    assert_eq!((&list[0]["state"], &list[0]["name"]), (&"running".into(), &"steady".into()));

    // The process belongs to another user.
    let mut command = place.command(pfp_top());
    // SAFETY: getuid takes no arguments and cannot fail.
    if unsafe { libc::getuid() } == 0 {
        command.uid(65_534).gid(65_534).current_dir("/");
    }
    match command.args(["--once", "-p", "1"]).output() {
        Ok(output) => assert_eq!(output.status.code(), Some(4), "{}", err(&output)),
        Err(why) => pfp_tests::skipped("another user's process", &why.to_string()),
    }

    // The segment of a crashed process with a future version.
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let object = maps.split_whitespace().find(|word| word.starts_with("/dev/shm/")).unwrap();
    target.kill();
    fails(&["enable", "-p", &pid, "*"], 3, "has ended");
    good(&place, &["--once", "-p", &pid]);
    let file = std::fs::OpenOptions::new().write(true).open(object).unwrap();
    // The major version, after magic and byte order.
    std::os::unix::fs::FileExt::write_all_at(&file, &[99, 0], 12).unwrap();
    fails(&["--once", "-p", &pid], 5, "layout version 99");
    fails(&["disable", "-p", &pid, "tick"], 5, "layout version 99");
    std::fs::remove_file(object).unwrap();
}

#[test]
fn a_gate_fails_only_on_points_that_became_slower() {
    let place = Place::new();
    let before = steady(&place);
    let mut now = steady(&place);
    now.tell("slow");
    for target in [&now, &before] {
        wait_for("some work", || count(&place, target, "work") > Some(400));
    }
    let (base, _) = snapshot(&place, &before, "base.json").unwrap();
    let pid = now.pid().to_string();
    // `work` takes 1600 us instead of 200, far more than the noise of a busy machine; `inner` in it
    // still takes 100. The other points have too few calls for a finding, or barely enough.
    let gate = |more: &[&str]| {
        let fixed = ["gate", "--baseline", &base, "--max-regress", "p50=50%"];
        place.pfp_top(&[&fixed, more].concat())
    };
    let failed = gate(&["-p", &pid, "-d", "0.5", "-n", "5", "--filter", "^(work|inner)$"]);
    assert_eq!(failed.status.code(), Some(1), "{}{}", out(&failed), err(&failed));
    let text = out(&failed);
    let line = |name: &str| text.lines().find(|l| l.split_whitespace().nth(1) == Some(name));
    assert!(text.starts_with("gate FAILED: 1 failed, 0 unsure"), "{text}");
    assert!(line("work").unwrap().starts_with("FAILED"), "{text}");
    assert!(line("inner").unwrap().starts_with("fine"), "{text}");

    let (file, _) = snapshot(&place, &now, "now.json").unwrap();
    let passed = gate(&[&file, "--filter", "inner", "--json"]);
    assert_eq!(passed.status.code(), Some(0), "{}{}", out(&passed), err(&passed));
    let report: Value = serde_json::from_slice(&passed.stdout).unwrap();
    assert_eq!((&report["passed"], &report["assumed_deviation"]), (&true.into(), &0.02.into()));
    assert_eq!(report["gates"].as_array().unwrap().len(), 1);
    assert_eq!(report["gates"][0]["finding"], "fine");

    // A gate that compares nothing does not pass.
    assert_eq!(gate(&[&file, "--filter", "no_such_point"]).status.code(), Some(3));
    assert_eq!(gate(&[&base]).status.code(), Some(2));
    assert!(err(&gate(&[&base])).contains("both sides"));
    assert_eq!(gate(&["none.json"]).status.code(), Some(3));
    assert_eq!(gate(&[]).status.code(), Some(2));

    let text = good(&place, &["diff", &base, &file, "--markdown"]);
    assert!(text.contains("| `work` | **slower** |") && text.contains("Mann-Whitney"), "{text}");
}
