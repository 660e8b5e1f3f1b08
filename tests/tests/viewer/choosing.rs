//! Ways to choose a process in the viewer's commands: its id here, its id in its own pid namespace,
//! and its number in the list.

use std::path::Path;

use pfp_tests::place::{Place, text};
use pfp_tests::skipped;
use pfp_tests::target::wait_for;
use serde_json::Value;

use super::liveness::{child_of, contain};

fn list(place: &Place) -> Vec<Value> {
    let listed = place.pfp_top(&["list", "--json"]).stdout;
    serde_json::from_slice(&listed).unwrap_or_default()
}

fn word<'a>(of: &'a Value, key: &str) -> &'a str {
    of[key].as_str().expect("it is a text")
}

/// The segment id of a snapshot, or the error message.
fn segment_by(place: &Place, which: &str, folder: &Path) -> Result<String, String> {
    let file = folder.join("taken.json");
    let output = place.pfp_top(&["snapshot", "-p", which, "--force", "-o", text(&file)]);
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let taken: Value =
        serde_json::from_slice(&std::fs::read(file).expect("it was written")).expect("it is JSON");
    Ok(word(&taken["process"], "segment_id").to_owned())
}

#[test]
fn first_processes_of_containers_are_distinguished() {
    let place = Place::new();
    let (Some(mut one), Some(mut two)) = (contain(&place, ""), contain(&place, "")) else {
        return skipped("processes in namespaces", "this user may not make any");
    };
    for target in [&mut one, &mut two] {
        target.reach("done");
    }
    let folder = place.path("files");
    std::fs::create_dir(&folder).expect("a folder can be made");
    let listed = list(&place);
    assert!(listed.len() == 2 && listed.iter().all(|it| it["pid"] == 1), "{listed:?}");
    let numbers: Vec<_> = listed.iter().map(|it| word(it, "number")).collect();
    assert_ne!(numbers[0], numbers[1]);

    // An id that both processes have is ambiguous: the command fails, and the message lists both.
    let why = segment_by(&place, "1", &folder).expect_err("there are two");
    assert!(numbers.iter().all(|number| why.contains(number)), "{why}");
    let shown = String::from_utf8(place.pfp_top(&["list"]).stdout).expect("it is text");
    assert!(numbers.iter().all(|number| shown.contains(number)), "{shown}");
    for it in &listed {
        let id = word(it, "segment_id");
        assert_eq!(segment_by(&place, word(it, "number"), &folder).as_deref(), Ok(id));
        assert_eq!(segment_by(&place, &format!("@{id}"), &folder).as_deref(), Ok(id));
    }

    // A process can also be chosen by its id in the pid namespace of the viewer. The test takes it
    // from /proc.
    for target in [&one, &two] {
        let here = child_of(target.pid());
        let of = listed.iter().find(|it| it["pid_here"] == here).expect("it is listed by that");
        let found = segment_by(&place, &here.to_string(), &folder);
        assert_eq!(found.as_deref(), Ok(word(of, "segment_id")));
        assert!(shown.contains(&here.to_string()), "{shown}");
    }

    // Every command with a process option accepts a number.
    let number = numbers[1];
    let raw = folder.join("raw");
    let record = folder.join("record");
    for arguments in [
        &["--once", "-p", number][..],
        &["reset", "-p", number, "a scope"],
        &["disable", "-p", number, "a scope"],
        &["enable", "-p", number, "a scope"],
        &["export", "csv", "-p", number],
        &["save-raw", "-p", number, "-o", text(&raw)],
        &["record", "-p", number, "-i", "50ms", "-d", "200ms", "-o", text(&record)],
        &["--once", "-p", numbers[0], "-p", number],
    ] {
        let output = place.pfp_top(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }

    // A process keeps its number when other processes end.
    let kept = listed[1]["segment_id"].clone();
    let first = listed[0]["pid_here"].clone();
    let first_is_one = first == child_of(one.pid());
    let (mut gone, stays) = if first_is_one { (one, two) } else { (two, one) };
    gone.kill();
    wait_for("one to be dead", || {
        let all = list(&place);
        let ended = all.iter().any(|it| it["segment_id"] != kept && it["state"] != "running");
        let same = all.iter().any(|it| it["segment_id"] == kept && it["number"] == number);
        ended && same
    });
    assert_eq!(segment_by(&place, number, &folder).ok().as_deref(), kept.as_str());
    let why = segment_by(&place, "@", &folder).expect_err("that is no number");
    assert!(why.contains("expected a process id"), "{why}");
    drop(stays);
}
