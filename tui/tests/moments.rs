//! Moments and windows of recordings, with the real program: the figures between two moments are
//! the increase from the earlier to the later.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use pfp_read::files::json::{self, Existing};
use pfp_read::files::recording::Writer;
use pfp_read::snapshot::{Record, Snapshot};
use pfp_read::source::Source;
use pfp_read::source::synthetic::Synthetic;
use serde_json::Value;

/// Number of snapshots in the recording, one per second.
const LENGTH: usize = 31;

fn pfp_top(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pfp-top"));
    command.args(arguments).env("PFP_TOP_CONFIG", "").output().expect("the program starts")
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn said(arguments: &[&str]) -> String {
    let output = pfp_top(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", complaint(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn refused(arguments: &[&str], why: &str) {
    let output = pfp_top(arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    assert!(complaint(&output).contains(why), "{arguments:?}: {}", complaint(&output));
}

/// A recording of one process that becomes slower by this factor halfway, and its snapshots.
fn recording(folder: &Path, name: &str, run: u32, slower: u64) -> (String, Vec<Snapshot>) {
    let path: PathBuf = folder.join(name);
    let mut source = Synthetic::new();
    source.snapshot_mut().process.segment_id = format!("{run:032x}");
    let mut all: Vec<Snapshot> = (0..LENGTH).map(|_| source.poll().unwrap()).collect();
    let middle = all[LENGTH / 2].clone();
    for snapshot in &mut all[LENGTH / 2 + 1..] {
        for cell in &mut snapshot.cells {
            let then = middle.cells.iter().find(|c| (c.point, c.lane) == (cell.point, cell.lane));
            let Some(then) = then else { continue };
            // Measurements since the middle take `slower` times as long.
            let cell = Arc::make_mut(cell);
            cell.stats.exclusive += (cell.stats.exclusive - then.stats.exclusive) * (slower - 1);
            let old: BTreeMap<u64, u64> = then.histogram.iter().map(|b| (b.low, b.count)).collect();
            let mut buckets: BTreeMap<u64, (u64, u64)> =
                then.histogram.iter().map(|b| (b.low, (b.width, b.count))).collect();
            for bucket in &cell.histogram {
                let more = bucket.count - old.get(&bucket.low).copied().unwrap_or(0);
                // Twice the duration is the same bucket of the next octave.
                let (low, width) = (bucket.low * slower, bucket.width * slower);
                buckets.entry(low).or_insert((width, 0)).1 += more;
            }
            cell.histogram.clear();
            for (low, (width, count)) in buckets {
                let bucket = pfp_read::snapshot::Bucket { low, width, count };
                cell.histogram.extend((count > 0).then_some(bucket));
            }
        }
    }
    let mut writer = Writer::create(&path, Existing::Keep, 1_000_000_000, &all[0], &[]).unwrap();
    for snapshot in &all[1..] {
        writer.append(snapshot, &[]).unwrap();
    }
    (path.to_str().unwrap().to_owned(), all)
}

/// Calls of each point, summed over the cells of a snapshot.
fn calls(snapshot: &Snapshot) -> BTreeMap<String, u64> {
    let of = |id| snapshot.cells.iter().filter(move |cell| cell.point == id);
    let count = |id| of(id).map(|cell| cell.stats.count + cell.retired.count).sum::<u64>();
    snapshot.points.iter().map(|point| (point.name.clone(), count(point.id))).collect()
}

fn more(now: &Snapshot, then: &Snapshot) -> BTreeMap<String, u64> {
    let then = calls(then);
    calls(now).into_iter().map(|(name, count)| (name.clone(), count - then[&name])).collect()
}

/// Calls of each point, from an export as CSV.
fn exported(arguments: &[&str]) -> BTreeMap<String, u64> {
    let text = said(&[&["export", "csv"], arguments].concat());
    let mut rows = csv::Reader::from_reader(text.as_bytes());
    let head = rows.headers().unwrap().clone();
    let place = |name: &str| head.iter().position(|title| title == name).unwrap();
    let (name, calls) = (place("point"), place("calls"));
    let row = |row: csv::StringRecord| (row[name].to_owned(), row[calls].parse().unwrap());
    rows.records().map(|record| row(record.unwrap())).collect()
}

#[test]
fn an_export_is_of_a_moment_or_of_a_window() {
    let folder = tempfile::tempdir().unwrap();
    let (file, all) = recording(folder.path(), "a.pfprec", 1, 1);
    assert_eq!(exported(&[&file]), calls(&all[LENGTH - 1]));
    for (at, place) in [("#5", 4), ("+7s", 7), ("#31", 30)] {
        assert_eq!(exported(&[&file, "--at", at]), calls(&all[place]), "{at}");
        assert_eq!(exported(&[&file, "--to", at]), calls(&all[place]), "{at}");
    }
    let time = pfp_read::local_time::time_of_day(all[9].taken_unix_ns);
    assert_eq!(exported(&[&file, "--at", &time]), calls(&all[9]), "{time}");
    let window = more(&all[20], &all[10]);
    assert_eq!(exported(&[&file, "--from", "+10s", "--to", "+20s"]), window);
    assert_eq!(exported(&[&file, "--from", "#11", "--to", "#21"]), window);
    assert_eq!(exported(&[&file, "--from", "#11"]), more(&all[30], &all[10]));
    // Every format covers this window.
    for format in ["openmetrics", "hgrm", "hlog", "folded", "speedscope", "chrome", "perfetto"] {
        let output = pfp_top(&["export", format, &file, "--from", "#11", "--to", "#21"]);
        assert!(output.status.success() && !output.stdout.is_empty(), "{}", complaint(&output));
    }
    let text = said(&["export", "openmetrics", &file, "--from", "#11", "--to", "#21"]);
    let elapsed = text.lines().find_map(|line| line.strip_prefix("pfp_elapsed_seconds{"));
    assert!(elapsed.unwrap().ends_with(" 10") || elapsed.unwrap().ends_with(" 10.0"), "{text}");

    refused(&["export", "csv", &file, "--from", "#20", "--to", "#10"], "expected a snapshot after");
    refused(&["export", "csv", &file, "--at", "#99"], "expected a moment from");
    refused(&["export", "csv", &file, "--at", "#9", "--from", "#2"], "cannot be used with");
    refused(&["export", "csv", "-p", "1", "--at", "#9"], "cannot be used with");
    refused(&["export", "csv", "--to", "#9"], "found no file");
    let plain = folder.path().join("plain.json");
    json::write(&all[3], &plain, Existing::Keep).unwrap();
    refused(&["export", "csv", plain.to_str().unwrap(), "--at", "#1"], "of one moment only");
}

#[test]
fn records_of_a_window_begin_in_it() {
    let mut source = Synthetic::new();
    let (first, mut last) = (source.poll().unwrap(), source.poll().unwrap());
    let record =
        |start| Record { lane: 0, point: 1, start, span: 9, exclusive: 9, depth: 0, context: 0 };
    last.records = vec![record(first.elapsed_ticks - 1), record(first.elapsed_ticks + 70)];
    let window = pfp_model::between(&first, last).unwrap();
    assert_eq!(window.records, [record(70)]);
}

#[test]
fn windows_of_one_recording_are_compared_and_share_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (file, all) = recording(folder.path(), "a.pfprec", 1, 2);
    let (other, _) = recording(folder.path(), "b.pfprec", 2, 1);
    let diff = |arguments: &[&str]| -> Value {
        serde_json::from_str(&said(&[&["diff", "--json"], arguments].concat())).unwrap()
    };
    let counts = |report: &Value, side: &str| -> BTreeMap<String, u64> {
        let points = report["points"].as_array().unwrap().iter();
        points
            .map(|p| (p["name"].as_str().unwrap().into(), p[side]["count"].as_u64().unwrap()))
            .collect()
    };
    let used = |mut all: BTreeMap<String, u64>| {
        all.retain(|_, count| *count > 0);
        all
    };
    // Compares everything up to a moment with everything after it.
    let report = diff(&[&file, &file, "--from", "#16"]);
    assert_eq!(used(counts(&report, "before")), used(calls(&all[15])));
    assert_eq!(used(counts(&report, "now")), used(more(&all[30], &all[15])));
    assert_eq!(report, diff(&[&file, &file, "--baseline-to", "#16", "--from", "#16"]));
    let report = diff(&[&file, &file, "--from", "#16", "--at", "#21"]);
    assert_eq!(used(counts(&report, "now")), used(more(&all[20], &all[15])));
    // Two windows with a gap between them.
    let windows = ["--baseline-from", "#3", "--baseline-to", "#9", "--from", "#18", "--to", "#25"];
    let report = diff(&[&[file.as_str(), &file][..], &windows].concat());
    assert_eq!(used(counts(&report, "before")), used(more(&all[8], &all[2])));
    assert_eq!(used(counts(&report, "now")), used(more(&all[24], &all[17])));
    let parse = report["points"].as_array().unwrap().iter().find(|p| p["name"] == "io.parse");
    assert_eq!(parse.unwrap()["verdict"], "slower", "{report}");
    // Before the first snapshot the point was called far less. A baseline that includes that time
    // differs significantly. A baseline from the first snapshot on does not differ significantly.
    for (begin, verdict) in [(&[][..], "more"), (&["--baseline-from", "#1"], "same")] {
        let report = diff(&[&[other.as_str(), &other, "--from", "#16"], begin].concat());
        let parse = report["points"].as_array().unwrap().iter().find(|p| p["name"] == "io.parse");
        let verdicts = ["calls_verdict", "load_verdict"].map(|key| &parse.unwrap()[key]);
        assert_eq!(verdicts, [verdict, verdict], "{report}");
    }
    // With two runs, each run has its own window.
    let report = diff(&[&other, &file, "--from", "#18", "--baseline-at", "#9"]);
    assert_eq!(used(counts(&report, "before")), used(calls(&all[8])));
    assert_eq!(used(counts(&report, "now")), used(more(&all[30], &all[17])));

    refused(
        &["diff", &file, &file, "--baseline-to", "#20", "--from", "#10"],
        "found that they overlap",
    );
    refused(&["diff", &file, &file], "name the later one second");
}

#[test]
fn gates_take_windows_and_parts_of_recordings_for_runs() {
    let folder = tempfile::tempdir().unwrap();
    let (slowed, _) = recording(folder.path(), "slowed.pfprec", 1, 2);
    let (steady, _) = recording(folder.path(), "steady.pfprec", 2, 1);
    let gate = |arguments: &[&str]| -> (Option<i32>, String, String) {
        let fixed = ["gate", "--max-regress", "p50=20%", "--filter", "io.parse"];
        let output = pfp_top(&[&fixed, arguments].concat());
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        (output.status.code(), text, complaint(&output))
    };
    // One window on each side counts as one run each.
    let halves = ["--baseline-to", "#16", "--from", "#17"];
    let (status, text, _) =
        gate(&[&["--baseline", &slowed], &halves[..], &["--", &slowed]].concat());
    assert!(text.contains("1 and 1 runs") && status == Some(1), "{text}");
    // Fifteen seconds before and fourteen after, split into parts of three.
    let (status, text, errors) =
        gate(&[&["--split", "3s", "--baseline", &slowed], &halves[..], &["--", &slowed]].concat());
    assert!(text.contains("5 and 4 runs") && status == Some(1), "{text}");
    assert!(errors.contains("they differ less than runs do"), "{errors}");
    let (status, text, _) =
        gate(&[&["--split", "3s", "--baseline", &steady], &halves[..], &["--", &steady]].concat());
    assert!(text.contains("5 and 4 runs") && status == Some(0), "{text}");
    // A file on both sides is refused.
    let (status, _, errors) = gate(&["--split", "3s", "--baseline", &steady, "--", &steady]);
    assert!(status == Some(2) && errors.contains("on both sides"), "{errors}");
    let (status, _, errors) = gate(&["--split", "1h", "--baseline", &steady, "--", &slowed]);
    assert!(status == Some(2) && errors.contains("expected at least 3600s"), "{errors}");

    // `--baseline A B` at the end means one file on each side.
    let two = gate(&["--baseline", &steady, &slowed]);
    assert_eq!(two, gate(&["--baseline", &steady, "--", &slowed]));
    assert!(two.0 == Some(1) && two.1.contains("1 and 1 runs"), "{two:?}");
    let (status, _, errors) = gate(&["--baseline", &steady, &steady, &slowed]);
    assert!(status == Some(2) && errors.contains("takes all 3 files"), "{errors}");
    let (status, _, errors) = gate(&["--baseline", &steady]);
    assert!(status == Some(2) && errors.contains("name their files"), "{errors}");
    // The option may be repeated, and may come after the other files.
    let (third, _) = recording(folder.path(), "third.pfprec", 3, 1);
    let again = gate(&["--baseline", &steady, "--baseline", &third, "--", &slowed]);
    assert!(again.1.contains("2 and 1 runs"), "{again:?}");
    assert_eq!(again, gate(&[&slowed, "--baseline", &steady, &third]));
}

#[test]
fn as_many_tables_are_printed_as_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let (file, all) = recording(folder.path(), "a.pfprec", 1, 1);
    let tables = |arguments: &[&str]| -> Vec<u64> {
        let text =
            said(&[&["open", &file, "--json", "--columns", "name,count"], arguments].concat());
        let count = |line: &str| {
            let line: Value = serde_json::from_str(line).unwrap();
            let points = line["points"].as_array().unwrap();
            points.iter().map(|point| point["count"].as_u64().unwrap()).sum()
        };
        text.lines().map(count).collect()
    };
    let expected = |places: std::ops::Range<usize>| -> Vec<u64> {
        all[places].iter().map(|snapshot| calls(snapshot).values().sum()).collect()
    };
    assert_eq!(tables(&["--once"]), expected(30..31));
    assert_eq!(tables(&["-n", "3"]), expected(0..3));
    assert_eq!(tables(&["-n", "3", "--at", "#7"]), expected(6..9));
    assert_eq!(tables(&["-b"]), expected(0..31));
    assert_eq!(tables(&["-b", "--at", "#29"]), expected(28..31));
}
