//! Checks pfp's JSON by the schemas in `docs/` with an independent validator. Each of the schemas'
//! fields is required or listed here, and unknown fields are refused.

use std::path::{Path, PathBuf};
use std::process::Command;

use pfp_model::columns::Column;
use pfp_tests::place::{Place, pfp_top};
use pfp_tests::target::wait_for;
use pfp_tests::tools;
use serde_json::{Value, json};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");
const ALLOCATING: &str = env!("CARGO_BIN_EXE_allocating");
const SLOW: &str = env!("CARGO_BIN_EXE_slow");
/// Optional fields of snapshots, listed in docs/snapshot-format.md.
const OPTIONAL: [&str; 23] = [
    ".ages",
    ".cells[].retired.longest",
    ".cells[].stats.longest",
    ".clock.core_hz",
    ".clock.reported_ticks_per_second",
    ".clock.system_clock",
    ".edges",
    ".edges[].caller",
    ".lanes[].amiss",
    ".lanes[].amiss.begins_refused",
    ".lanes[].amiss.clock_anomalies",
    ".lanes[].amiss.mismatched_ends",
    ".lanes[].amiss.records_missed",
    ".lanes[].clock",
    ".lanes[].open",
    ".lanes[].open[].on_cpu",
    ".lanes[].unplaced",
    ".losses.begins_missed",
    ".losses.records_missed",
    ".points[].device",
    ".points[].since_ticks",
    ".process.members",
    ".records",
];
/// Optional fields of snapshots with amounts.
const OF_AMOUNTS: [&str; 4] =
    [".cells[].tuples", ".cells[].tuples[].each", ".cells[].tuples[].sums", ".points[].amounts"];
/// Optional fields of snapshots with allocations.
const OF_ALLOCS: [&str; 7] = [
    ".cells[].allocs",
    ".cells[].heap",
    ".edges[].alloc_bytes",
    ".edges[].alloc_bytes_inclusive",
    ".edges[].allocs",
    ".heap",
    ".points[].counts_allocs",
];
/// Optional fields of snapshots with slow calls.
const OF_SLOW: [&str; 7] = [
    ".points[].limit",
    ".points[].slow_calls",
    ".slow",
    ".slow[].enclosing",
    ".slow[].kernel",
    ".slow[].limit",
    ".slow[].records",
];
/// Optional fields of snapshots of several processes.
const OF_SEVERAL: [&str; 3] = [".lanes[].process", ".points[].number", ".points[].process"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The validator's result for a file; `None` if no validator is installed.
#[track_caller]
fn validated(file: &Path, schema: &str) -> Option<Value> {
    let mut command = Command::new(tools::readers("schemas")?);
    command.arg(root().join("tui/tests/readers.py")).arg("schema").arg(file);
    let output = command.arg(root().join("docs").join(schema)).output().expect("it starts");
    assert!(output.status.success(), "{}: {output:?}", file.display());
    let found: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    assert_eq!(found["loose"], json!([]), "an unknown field is let through");
    assert!(found["tried"].as_u64() > Some(8), "{found}");
    Some(found)
}

fn optional(found: &Value) -> Vec<&str> {
    found["optional"].as_array().unwrap().iter().map(|place| place.as_str().unwrap()).collect()
}

fn written(place: &Place, name: &str, arguments: &[&str]) -> PathBuf {
    let path = place.path(name);
    let output = place.pfp_top(arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    std::fs::write(&path, output.stdout).unwrap();
    path
}

#[test]
fn snapshots_match_their_schema() {
    for kept in ["assets/snapshot-v1.json", "assets/snapshot-v1-amounts.json"] {
        let Some(found) = validated(&root().join(kept), "snapshot.schema.json") else { return };
        let known = |place: &&str| OPTIONAL.contains(place) || OF_AMOUNTS.contains(place);
        assert!(optional(&found).iter().all(known), "{kept}: {found}");
        let amounts = optional(&found).iter().any(|place| OF_AMOUNTS.contains(place));
        assert_eq!(amounts, kept.contains("amounts"), "{kept}: {found}");
    }
    let place = Place::new();
    let own = place.path("own.json");
    let mut target = place.start(TARGET, &["saved", own.to_str().unwrap()]);
    target.reach("saved");
    let pid = target.pid().to_string();
    let (one, all) = (place.path("one.json"), place.path("all.json"));
    written(&place, "said", &["snapshot", "-p", &pid, "-o", one.to_str().unwrap()]);
    written(&place, "said", &["snapshot", "--all", "-o", all.to_str().unwrap()]);
    // Snapshots by the program itself, by the viewer, and of several processes as one.
    for (file, more) in [(&own, &[][..]), (&one, &[]), (&all, &OF_SEVERAL)] {
        let Some(found) = validated(file, "snapshot.schema.json") else { return };
        let known = |place: &&str| OPTIONAL.contains(place) || more.contains(place);
        assert!(optional(&found).iter().all(known), "{}: {found}", file.display());
        assert!(optional(&found).contains(&".records"), "{found}");
    }
    let found = validated(&all, "snapshot.schema.json").expect("it is there");
    assert!(optional(&found).contains(&".process.members"), "{found}");

    let allocs = place.path("allocs.json");
    let run = ["run", "--once", "-o", allocs.to_str().unwrap(), "--", ALLOCATING, "nested"];
    written(&place, "said", &[&run[..], &[place.path("noted").to_str().unwrap()]].concat());
    let found = validated(&allocs, "snapshot.schema.json").expect("it is there");
    let known = |place: &&str| {
        OPTIONAL.contains(place) || OF_ALLOCS.contains(place) || *place == ".process.end"
    };
    assert!(optional(&found).iter().all(known), "{found}");
    assert!(OF_ALLOCS.iter().all(|field| optional(&found).contains(field)), "{found}");

    let [slow, own] = ["slow.json", "slow-own.json"].map(|name| place.path(name));
    let run = ["run", "--once", "-o", slow.to_str().unwrap(), "--", SLOW, "sleep", "1"];
    let notes = place.path("notes");
    let mut command = place.command(pfp_top());
    command.args(run).arg(&notes).env("PFP_SNAPSHOT", &own);
    assert!(command.output().expect("it starts").status.success());
    // Snapshots by the viewer and by the program itself. On a busy machine, calls are dropped.
    for file in [&slow, &own] {
        let found = validated(file, "snapshot.schema.json").expect("it is there");
        let known = |place: &&str| {
            let more = [".slow_dropped", ".slow[].others", ".slow[].waited_for"];
            let of_slow = OF_SLOW.contains(place) || more.contains(place);
            OPTIONAL.contains(place) || of_slow || *place == ".process.end"
        };
        assert!(optional(&found).iter().all(known), "{}: {found}", file.display());
        // The slow call is an outermost one.
        let expected = OF_SLOW.iter().filter(|field| **field != ".slow[].enclosing");
        assert!(expected.into_iter().all(|field| optional(&found).contains(field)), "{found}");
    }

    // A value of the wrong type is as invalid as a missing one.
    let text = std::fs::read_to_string(&one).unwrap();
    let wrong = place.path("wrong.json");
    for (right, false_) in [
        ("\"version\":1", "\"version\":2"),
        ("\"state\":\"running\"", "\"state\":\"asleep\""),
        ("\"count\":", "\"count\":-"),
    ] {
        let changed = text.replacen(right, false_, 1);
        assert_ne!(changed, text, "{right}");
        std::fs::write(&wrong, changed).unwrap();
        let refused = std::panic::catch_unwind(|| validated(&wrong, "snapshot.schema.json"));
        assert!(refused.is_err(), "{false_}");
    }
}

#[test]
fn tables_match_their_schema() {
    let place = Place::new();
    let (one, two) = (place.start(TARGET, &["served"]), place.start(TARGET, &["served"]));
    let mut targets = [one, two];
    for target in &mut targets {
        target.reach("worked");
    }
    wait_for("both", || place.entries().len() == 2);
    let pid = targets[0].pid().to_string();
    let every = Column::ALL.iter().filter(|column| !column.is_drawn());
    let every = &every.map(|column| column.word()).collect::<Vec<_>>().join(",");
    for (name, arguments) in [
        ("plain", &["-p", &pid, "--once", "--json"][..]),
        ("every", &["-p", &pid, "-b", "-n", "3", "-i", "0.1", "--json", "--columns", every]),
        ("cycles", &["-p", &pid, "--once", "--json", "--columns", every, "--unit", "cycles"]),
        ("all", &["--all", "--once", "--json"]),
        ("sum", &["--all", "--sum", "--once", "--json", "--columns", every]),
    ] {
        let file = written(&place, name, arguments);
        let Some(found) = validated(&file, "table.schema.json") else { return };
        assert_eq!(found["documents"], if name == "every" { 3 } else { 1 }, "{found}");
        // The user chooses the columns; all other fields are fixed.
        let chosen = |place: &&str| place.starts_with(".points[].");
        assert!(optional(&found).iter().all(chosen), "{found}");
        let text = std::fs::read_to_string(&file).unwrap();
        let line: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        assert!(line["points"].as_array().unwrap().len() > 2, "{text}");
    }
}

#[test]
fn waits_match_their_schema() {
    let place = Place::new();
    let mut target = place.start(TARGET, &["deadlocked"]);
    target.reach("started");
    let pid = target.pid().to_string();
    let waits = ["waits", "-p", &pid, "-d", "200ms", "--json"];
    let mut file = place.path("waits");
    // The threads may not have reached their locks yet.
    wait_for("both to wait", || {
        file = written(&place, "waits", &waits);
        let text = std::fs::read_to_string(&file).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        value["stuck"].as_array().is_some_and(|stuck| stuck.len() == 2)
    });
    let Some(found) = validated(&file, "waits.schema.json") else { return };
    let known = [".limit", ".number", ".stacks", ".totals", ".verdict"];
    assert!(optional(&found).iter().all(|place| known.contains(place)), "{found}");
    // A report in a recording has more.
    let recording = place.path("waits.pfprec");
    let recording = recording.to_str().expect("the path is text");
    wait_for("a recorded report", || {
        let record =
            ["record", "-p", &pid, "-d", "1500ms", "-i", "0.1", "-o", recording, "--force"];
        assert!(place.pfp_top(&record).status.success());
        place.pfp_top(&["waits", recording]).status.success()
            && std::fs::read_to_string(written(&place, "waits", &["waits", recording, "--json"]))
                .is_ok_and(|text| text.contains("\"totals\":"))
    });
    let found = validated(&place.path("waits"), "waits.schema.json").expect("it was there before");
    assert!(optional(&found).contains(&".totals"), "{found}");
}
