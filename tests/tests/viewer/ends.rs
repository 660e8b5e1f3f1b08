//! How processes end, as reported by a viewer that watches them, and by a later viewer.

use std::io::{self, BufRead, BufReader};
use std::process::{Command, Output, Stdio};
use std::thread;

use pfp_read::files::json;
use pfp_shm_layout::find::KEEP;
use pfp_shm_layout::object;
use pfp_tests::place::{Place, count, pfp_top};
use pfp_tests::target::{Target, end_with_test, wait_for};
use pfp_tests::{needs_a_screen, os, skipped};
use serde_json::{Value, json};

use super::liveness::child_of;

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");
const STEADY: &str = env!("CARGO_BIN_EXE_steady");

/// The `process` of the last table that a viewer prints. The viewer ends with the process.
fn last_of(place: &Place, pid: u32, when_it_watches: impl FnOnce()) -> Value {
    let mut command = place.command(pfp_top());
    command.args(["-b", "--json", "-i", "0.1", "-p", &pid.to_string()]);
    let mut viewer =
        end_with_test(&mut command).stdout(Stdio::piped()).spawn().expect("pfp-top starts");
    let mut lines = BufReader::new(viewer.stdout.take().expect("it was piped")).lines();
    let update = |line: String| -> Value { serde_json::from_str(&line).expect("a line is JSON") };
    let first = update(lines.next().expect("it prints").expect("it is text"));
    assert_eq!(first["process"]["state"], "running", "{first}");
    when_it_watches();
    let last = lines.map_while(Result::ok).last().map_or(first, update);
    viewer.wait().expect("it ends");
    last["process"].clone()
}

/// The entry of a process in the list.
fn listed(place: &Place, pid: u32) -> Option<Value> {
    let output = place.pfp_top(&["list", "--json"]);
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    listed.as_array()?.iter().find(|it| it["pid"] == pid).cloned()
}

fn start(place: &Place, how: &str) -> (Target, u32) {
    let mut target = place.start(TARGET, &["child-ends", how]);
    let child = target.reach("ready").one("child");
    wait_for("the child to be found", || listed(place, child));
    (target, child)
}

/// The parent reaps the child at once, so the viewer has to ask the kernel how the child ended.
#[test]
fn a_forked_child_is_shown_as_it_ended() {
    for (how, state, end) in [
        ("exit", "exited", json!({"status": 0})),
        ("status", "exited", json!({"status": 3})),
        ("exec", "exited", json!({"replaced_by": "sleep"})),
        ("int", "exited", json!({"signal": libc::SIGINT})),
        ("term", "exited", json!({"signal": libc::SIGTERM})),
        ("abort", "crashed", json!({"signal": libc::SIGABRT})),
        ("kill", "crashed", json!({"signal": libc::SIGKILL})),
    ] {
        let place = Place::new();
        let (mut target, child) = start(&place, how);
        let last = last_of(&place, child, || target.go());
        let is_known = os::tells_ends() || how == "exec";
        let (state, end) = if is_known { (state, end) } else { ("ended", Value::Null) };
        assert_eq!((&last["state"], &last["end"]), (&state.into(), &end), "{how}");
        target.reach("done");

        // The figures are kept. A later viewer does not guess how the child ended.
        let later = listed(&place, child).expect("it is kept");
        let (state, end) = if how == "exec" { ("exited", end) } else { ("ended", Value::Null) };
        assert_eq!((&later["state"], &later["end"]), (&state.into(), &end), "{how}");
        let file = place.path("last.json");
        let arguments = ["snapshot", "-p", &child.to_string(), "-o", file.to_str().unwrap()];
        let output = place.pfp_top(&arguments);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(count(&json::read(&file).unwrap(), "call"), 1000, "{how}");
        target.end_well();
    }
}

/// No viewer watched the process, so the reason for its end can no longer be determined.
#[test]
fn an_unknown_end_is_shown_as_unknown() {
    let place = Place::new();
    let (mut target, child) = start(&place, "exit");
    target.go();
    target.reach("done");
    let list = String::from_utf8(place.pfp_top(&["list"]).stdout).unwrap();
    let line = list.lines().find(|line| line.contains(&child.to_string())).unwrap();
    assert!(line.contains(" ended ") && line.contains("(ended, cause unknown)"), "{list}");
    let doctor = String::from_utf8(place.pfp_top(&["doctor"]).stdout).unwrap();
    assert!(doctor.contains(&format!("[{child}] ended, cause unknown")), "{doctor}");
    assert!(!doctor.contains("crashed"), "{doctor}");
    let figures = String::from_utf8(
        place.pfp_top(&["export", "openmetrics", "-p", &child.to_string()]).stdout,
    )
    .unwrap();
    assert!(figures.contains("state=\"ended\"") && !figures.contains("crashed"), "{figures}");
    target.end_well();
}

/// Many processes crash at once, and no program starts afterwards that would sweep.
#[test]
fn the_last_three_crashed_processes_are_kept() {
    let place = Place::new();
    let mut targets = Vec::new();
    for _ in 0..KEEP + 3 {
        let target = place.start_watched(TARGET, &["life"]);
        wait_for("it to be found", || listed(&place, target.pid()));
        targets.push(target);
    }
    targets.iter_mut().for_each(Target::kill);
    let output = place.pfp_top(&["list", "--json"]);
    let left: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let mut left: Vec<_> =
        left.as_array().unwrap().iter().map(|it| it["pid"].as_u64().unwrap() as u32).collect();
    left.sort_unstable();
    let mut newest: Vec<_> = targets[3..].iter().map(Target::pid).collect();
    newest.sort_unstable();
    assert_eq!(left, newest);
    assert_eq!(place.entries().len(), KEEP);
}

/// A viewer that watches all processes removes the segment of a process that made an orderly exit,
/// once it has read the segment. Of the processes that ended by `_exit`, the last three segments
/// stay, as they do without a viewer.
#[test]
fn a_viewer_of_all_keeps_the_last_three_that_ended_by_exit() {
    let place = Place::new();
    let (mut first, child) = start(&place, "exit");
    let mut viewer = place.command(pfp_top());
    viewer.args(["-b", "--all", "-i", "0.1"]);
    let mut viewer =
        end_with_test(&mut viewer).stdout(Stdio::piped()).spawn().expect("pfp-top starts");
    let mut output = BufReader::new(viewer.stdout.take().expect("it was piped"));
    output.read_line(&mut String::new()).expect("it prints");
    thread::spawn(move || io::copy(&mut output, &mut io::sink()));
    first.go();
    first.reach("done");
    first.end_well();
    let mut children = vec![child];
    for _ in 0..KEEP + 1 {
        let (mut target, child) = start(&place, "exit");
        target.go();
        target.reach("done");
        target.end_well();
        children.push(child);
    }
    wait_for("the others to be removed", || place.entries().len() == KEEP);
    let newest = &children[children.len() - KEEP..];
    assert!(newest.iter().all(|child| listed(&place, *child).is_some()), "{newest:?}");
    viewer.kill().expect("it runs");
    viewer.wait().expect("it ends");
}

#[test]
fn a_stopped_process_is_shown_as_stopped() {
    needs_a_screen!();
    let place = Place::new();
    let target = place.start_watched(STEADY, &[]);
    let pid = target.pid().to_string();
    let screen = place.screen(120, 20);
    screen.pfp_top(&format!("-i 0.1 -p {pid}"));
    screen.wait_for_status("LIVE");
    os::signal(target.pid(), libc::SIGSTOP);
    screen.wait_for_status("STOPPED");
    assert_eq!(listed(&place, target.pid()).unwrap()["state"], "stopped");
    let said = |arguments: &[&str]| String::from_utf8(place.pfp_top(arguments).stdout).unwrap();
    assert!(said(&["list"]).contains(" stopped "));
    let table: Value = serde_json::from_str(&said(&["--once", "--json", "-p", &pid])).unwrap();
    assert_eq!(table["process"]["state"], "stopped");
    assert!(said(&["--once", "-p", &pid]).lines().next().unwrap().ends_with("STOPPED"));
    let doctor = said(&["doctor", &pid]);
    assert!(doctor.contains("is stopped") && doctor.contains("can be watched"), "{doctor}");
    os::signal(target.pid(), libc::SIGCONT);
    screen.wait_for_status("LIVE");
}

/// In the process's time namespace, the clocks and the start times in `/proc` are a day ahead.
#[test]
fn a_process_in_a_time_namespace_of_its_own_is_alive() {
    let place = Place::new();
    let ahead = ["--time", "--boottime", "86400", "--monotonic", "86400", "--fork", "--kill-child"];
    let tried = Command::new("unshare").args(ahead).arg("true").output();
    if !tried.is_ok_and(|output| output.status.success()) {
        return skipped("processes in time namespaces", "this user may not make any");
    }
    let inside = Target::start(place.command("unshare").args(ahead).args([STEADY, "inside"]));
    let outside = place.start_watched(STEADY, &["outside"]);
    let pid = child_of(inside.pid());
    let of_inside = || place.pfp_top(&["--once", "--json", "-p", &pid.to_string()]);
    let of_outside = || {
        let mut viewer = place.command("unshare");
        viewer.args(ahead).arg(pfp_top()).args(["--once", "--json", "-p"]);
        viewer.arg(outside.pid().to_string()).output().expect("it starts")
    };
    // The viewer outside watches the process inside, and the other way round.
    for look in [&of_inside as &dyn Fn() -> Output, &of_outside] {
        let uptime = wait_for("it to have run for a while", || {
            let table: Value = serde_json::from_slice(&look().stdout).ok()?;
            assert_eq!(table["process"]["state"], "running", "{table}");
            table["process"]["uptime_s"].as_f64().filter(|uptime| *uptime > 0.2)
        });
        assert!(uptime < 43_200.0, "{uptime}");
    }
    os::signal(pid, libc::SIGKILL);
    wait_for("it to be dead", || (listed(&place, pid)?["state"] != "running").then_some(()));
}

/// The beacon names the segment, so unreadable files in `/proc` do not matter.
#[test]
fn doctor_finds_processes_with_unreadable_proc_files() {
    let place = Place::new();
    for how in ["title", "user"] {
        // SAFETY: the call takes no arguments and cannot fail.
        if how == "user" && unsafe { libc::geteuid() } != 0 {
            return skipped("a process that becomes another user's", "only root's can");
        }
        let mut target = place.start(TARGET, &["half-readable", how]);
        target.reach("done");
        let pid = target.pid().to_string();
        assert_eq!(listed(&place, target.pid()).expect("it is listed")["state"], "running");
        let output = place.pfp_top(&["doctor", &pid]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("can be watched"), "{how}: {said}");
        target.end_well();
    }
}

/// The folder of beacons has been emptied.
#[test]
fn a_segment_whose_beacon_is_gone_is_explained_and_swept() {
    let place = Place::new();
    let mut target = place.start_watched(STEADY, &[]);
    let name = place.entry(target.pid()).expect("it was found").info.object;
    for file in place.lit() {
        std::fs::remove_file(place.beacons().join(file)).expect("it is there");
    }
    let said = |arguments: &[&str]| String::from_utf8(place.pfp_top(arguments).stdout).unwrap();
    let gone = format!(
        "[{}] runs, but its beacon is gone from {}",
        target.pid(),
        place.beacons().display()
    );
    for arguments in [&["doctor"][..], &["doctor", &target.pid().to_string()]] {
        let said = said(arguments);
        assert!(said.contains(&gone) && said.contains("emptied"), "{said}");
    }
    assert!(!said(&["gc"]).contains("steady"), "it runs");
    assert!(object::backed_bytes(&name).is_ok_and(|bytes| bytes.is_some()));
    target.kill();
    let swept = said(&["gc"]);
    assert!(swept.contains(&format!("[{}]", target.pid())), "{swept}");
    assert!(object::backed_bytes(&name).is_ok_and(|bytes| bytes.is_none()));
}
