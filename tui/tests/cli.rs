//! Runs the real program as scripts do.

#[path = "cli/files.rs"]
mod files;
#[path = "cli/hostile.rs"]
mod hostile;

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use pfp_read::files::json::{self, Existing};
use pfp_read::snapshot::{Cell, Edge};
use pfp_read::source::Source;
use pfp_read::source::synthetic::Synthetic;

fn pfp_top(arguments: &[&str]) -> Output {
    let beacons = concat!(env!("CARGO_TARGET_TMPDIR"), "/no-beacons");
    std::fs::DirBuilder::new().mode(0o700).recursive(true).create(beacons).unwrap();
    Command::new(env!("CARGO_BIN_EXE_pfp-top"))
        .args(arguments)
        // Ignore the tester's own settings and processes.
        .env("PFP_TOP_CONFIG", "")
        .env("PFP_DIR", beacons)
        .output()
        .expect("the program starts")
}

fn snapshot_file(folder: &Path) -> String {
    let path = folder.join("snapshot.json");
    let snapshot = Synthetic::new().poll().unwrap();
    json::write(&snapshot, &path, Existing::Keep).unwrap();
    path.to_str().unwrap().to_owned()
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_pipe_gets_the_table_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let output = pfp_top(&["open", &snapshot_file(folder.path()), "--sort", "id"]);
    assert_eq!(output.status.code(), Some(0), "{}", complaint(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains('\x1b'), "{text}");
    let names: Vec<_> =
        text.lines().skip(2).filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(names[..3], ["pfp.overhead", "io.parse", "io.read"], "{text}");
}

#[test]
fn a_file_that_is_missing_or_of_another_version_has_its_status() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("none.json");
    assert_eq!(pfp_top(&["open", missing.to_str().unwrap()]).status.code(), Some(3));

    let path = snapshot_file(folder.path());
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen("\"version\":1", "\"version\":99", 1)).unwrap();
    let output = pfp_top(&["open", &path]);
    assert_eq!(output.status.code(), Some(5));
    assert!(complaint(&output).contains("found 99"), "{}", complaint(&output));
}

/// A message about a broken file contains the file's name and text, both of which another user may
/// have chosen.
#[test]
fn an_error_message_contains_no_control_characters() {
    let folder = tempfile::tempdir().unwrap();
    let path = snapshot_file(folder.path());
    let text = std::fs::read_to_string(&path).unwrap();
    let evil = text.replacen("\"running\"", "\"\\u001b]0;evil\\u0007\\r\\u202e\"", 1);
    assert_ne!(evil, text);
    let named = folder.path().join("a\x1b]0;evil\x07.json");
    std::fs::write(&path, &evil).unwrap();
    std::fs::write(&named, &evil).unwrap();
    for file in [&path, named.to_str().unwrap()] {
        let output = pfp_top(&["open", file]);
        assert_eq!(output.status.code(), Some(2), "{file:?}");
        let said = complaint(&output);
        assert!(said.contains("unknown variant") && said.contains("]0;evil"), "{said:?}");
        let controls = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!said.contains(controls), "{said:?}");
    }
}

#[test]
fn wrong_arguments_are_a_usage_error() {
    for wrong in [&["--bogus"][..], &["-i", "0"], &["--sort", "trend"], &["snapshot", "-p", "1"]] {
        assert_eq!(pfp_top(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn a_missing_process_has_its_exit_status() {
    // This id exceeds the kernel's limit, so no process has it.
    let output = pfp_top(&["--once", "-p", "4294967295"]);
    assert_eq!(output.status.code(), Some(3), "{}", complaint(&output));
}

#[test]
fn two_snapshots_are_compared_and_a_regression_has_its_status() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, snapshot: &pfp_read::snapshot::Snapshot| {
        let path = folder.path().join(name);
        json::write(snapshot, &path, Existing::Keep).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let mut source = Synthetic::new();
    let mut snapshots: Vec<_> = (0..20).map(|_| source.poll().unwrap()).collect();
    let mut slow = snapshots.pop().unwrap();
    slow.process.segment_id = "f".repeat(32);
    // All durations are doubled.
    slow.clock.ticks_per_second /= 2.0;
    slow.elapsed_ticks /= 2;
    let (early, late) = (file("early", &snapshots[8]), file("late", &snapshots[18]));
    let slow = file("slow", &slow);

    let same = pfp_top(&["diff", &early, &late, "--fail-over", "10"]);
    assert_eq!(same.status.code(), Some(0), "{}", complaint(&same));
    let text = String::from_utf8(same.stdout).unwrap();
    assert!(text.contains("no difference") && !text.contains("slower"), "{text}");

    for (percent, status) in [("50%", 1), ("150", 0)] {
        let output = pfp_top(&["diff", &late, &slow, "--fail-over", percent]);
        assert_eq!(output.status.code(), Some(status), "{}", complaint(&output));
    }
    let output = pfp_top(&["diff", &late, &slow, "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["points"][0]["verdict"], "slower", "{report}");
    let shown = pfp_top(&["open", &slow, "--baseline", &late]);
    assert!(String::from_utf8(shown.stdout).unwrap().contains(" slower "));

    let swapped = pfp_top(&["diff", &late, &early]);
    assert_eq!(swapped.status.code(), Some(2));
    assert!(complaint(&swapped).contains("name the later one second"), "{}", complaint(&swapped));
    assert_eq!(pfp_top(&["diff", &late, "none.json"]).status.code(), Some(3));
    assert_eq!(pfp_top(&["diff", &late, &slow, "--fail-over", "x"]).status.code(), Some(2));
}

#[test]
fn each_side_of_a_comparison_may_be_a_sum_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = |run: u64, polls: usize, slower: f64| {
        let mut source = Synthetic::new();
        let mut snapshot = (0..polls).map(|_| source.poll().unwrap()).last().unwrap();
        snapshot.process.segment_id = format!("{run:032x}");
        snapshot.clock.ticks_per_second /= slower;
        let path = folder.path().join(format!("{run}.json"));
        json::write(&snapshot, &path, Existing::Keep).unwrap();
        let cells = snapshot.cells.iter().filter(|cell| cell.point == 1);
        let count = cells.map(|cell| cell.stats.count + cell.retired.count).sum::<u64>();
        (path.to_str().unwrap().to_owned(), count)
    };
    let before = [(1, 3), (2, 5), (3, 8)].map(|(run, polls)| file(run, polls, 1.0));
    let now = [(4, 4), (5, 9)].map(|(run, polls)| file(run, polls, 2.0));
    let of = |files: &[(String, u64)]| files.iter().map(|file| file.1).sum::<u64>();
    let [a, b, c] = before.each_ref().map(|file| file.0.as_str());
    let [d, e] = now.each_ref().map(|file| file.0.as_str());

    let report = |arguments: &[&str]| -> serde_json::Value {
        let output = pfp_top(&[&["diff", "--json"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", complaint(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let counts = |report: &serde_json::Value| {
        let points = report["points"].as_array().unwrap();
        let point = points.iter().find(|point| point["id"] == 1).unwrap();
        assert_eq!(point["verdict"], "slower", "{report}");
        ["before", "now"].map(|side| point[side]["count"].as_u64().unwrap())
    };
    let all = report(&[d, e, "--baseline", a, b, c]);
    assert_eq!(counts(&all), [of(&before), of(&now)]);
    assert_eq!(counts(&report(&[d, "--baseline", a, b])), [of(&before[..2]), now[0].1]);
    assert_eq!(counts(&report(&[d, e, "--baseline", c])), [before[2].1, of(&now)]);
    assert_eq!(counts(&report(&[d, "--baseline", c])), counts(&report(&[c, d])));

    for (arguments, why) in [
        (&[a][..], "expected two files"),
        (&[a, b, c], "expected two files"),
        (&[a, "--baseline", a, b], "would be on both sides"),
        (&[d, e, e, "--baseline", a, b], "another snapshot of"),
    ] {
        let output = pfp_top(&[&["diff"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(complaint(&output).contains(why), "{}", complaint(&output));
    }
}

/// Six runs of a simulated program, and three with doubled durations.
#[test]
fn runs_on_both_sides_are_gated() {
    let folder = tempfile::tempdir().unwrap();
    let file = |run: u64, slower: f64| {
        let mut source = Synthetic::new();
        let mut snapshot = (0..=run % 3).map(|_| source.poll().unwrap()).last().unwrap();
        snapshot.process.segment_id = format!("{run:032x}");
        snapshot.clock.ticks_per_second /= slower;
        snapshot.elapsed_ticks = (snapshot.elapsed_ticks as f64 / slower) as u64;
        let path = folder.path().join(format!("{run}.json"));
        json::write(&snapshot, &path, Existing::Keep).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let files: Vec<String> = (0..6).map(|run| file(run, 1.0)).collect();
    let slow: Vec<String> = (6..9).map(|run| file(run, 2.0)).collect();
    let gate = |now: &[String], more: &[&str]| {
        let mut words = vec!["gate", "--max-regress", "p50=5%,mean=10%", "--baseline"];
        words.extend(files[..3].iter().map(String::as_str));
        words.push("--");
        words.splice(1..1, more.iter().copied());
        words.extend(now.iter().map(String::as_str));
        pfp_top(&words)
    };
    let same = gate(&files[3..], &[]);
    let text = String::from_utf8(same.stdout.clone()).unwrap();
    assert_eq!(same.status.code(), Some(0), "{text}{}", complaint(&same));
    assert!(text.starts_with("gate passed: 0 failed") && text.contains("3 and 3 runs"), "{text}");
    assert!(!text.contains("assuming"), "{text}");
    let slower = gate(&slow, &["--filter", "io", "--json"]);
    assert_eq!(slower.status.code(), Some(1), "{}", complaint(&slower));
    let report: serde_json::Value = serde_json::from_slice(&slower.stdout).unwrap();
    assert_eq!((&report["failed"], &report["assumed_deviation"]), (&6.into(), &().into()));
    for gate in report["gates"].as_array().unwrap() {
        assert_eq!(gate["finding"], "failed", "{gate}");
        let change = gate["change"].as_f64().unwrap();
        assert!((change - 1.0).abs() < 0.05, "{gate}");
        assert!(gate["change_above"].as_f64() < Some(change), "{gate}");
    }
    for wrong in [
        &["gate", "--max-regress", "p50=5%", "a.json"][..],
        &["gate", "--baseline", "a.json", "--max-regress", "max=5%", "--", "b.json"],
        &["gate", "--baseline", "a.json", "--", "b.json"],
        &["diff", "a.json", "b.json", "--json", "--markdown"],
    ] {
        assert_eq!(pfp_top(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

/// Runs of a simulated program, unchanged, with one call more, and with other allocations.
#[test]
fn runs_are_compared_as_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let file = |run: u64, change: &dyn Fn(&mut Cell, &mut Vec<Edge>)| {
        let mut snapshot = Synthetic::new().poll().unwrap();
        snapshot.process.segment_id = format!("{run:032x}");
        for cell in &mut snapshot.cells {
            let cell = Arc::make_mut(cell);
            // Times differ from run to run.
            cell.stats.exclusive += run;
            cell.allocs.calls = cell.stats.count;
            cell.allocs.allocs = 2 * cell.stats.count;
            cell.allocs.bytes = 50 * cell.stats.count;
            change(cell, &mut snapshot.edges);
        }
        let path = folder.path().join(format!("{run}.json"));
        json::write(&snapshot, &path, Existing::Keep).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let [a, b, same] = [0, 1, 2].map(|run| file(run, &|_, _| {}));
    // Point 3, `io.crc`, is called by point 1, `io.parse`.
    let more = file(3, &|cell, edges| {
        let is_crc = |point| point == 3;
        if is_crc(cell.point) && cell.lane == 0 {
            cell.stats.count += 1;
            cell.allocs.calls += 1;
            cell.allocs.allocs += 2;
            edges.iter_mut().filter(|edge| is_crc(edge.point)).take(1).for_each(|e| e.count += 1);
        }
    });
    let allocates = file(4, &|cell, _| {
        cell.allocs.allocs += if cell.point == 2 { cell.allocs.calls } else { 0 };
    });
    let gate = |arguments: &[&str]| {
        let output = pfp_top(&[&["gate", "--exact", "--baseline", &a, &b], arguments].concat());
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        (output.status.code(), text, complaint(&output))
    };
    let (status, text, errors) = gate(&["--", &same]);
    assert_eq!(status, Some(0), "{text}{errors}");
    assert!(text.starts_with("gate passed: 0 differences; 2 and 1 runs"), "{text}");
    let (status, text, _) = gate(&["--", &more]);
    let lines: Vec<&str> = text.lines().collect();
    let is_call = |line: &&str| line.starts_with("io.crc was called ");
    assert!(status == Some(1) && lines.iter().any(is_call), "{text}");
    assert!(text.contains(" before (io.parse -> io.crc)\n"), "{text}");
    assert!(lines.last().unwrap().contains(" 2 differ, 0 vary between"), "{text}");
    let expected = "io.read allocates 3 times per call, 2 before";
    let (status, text, _) = gate(&["--", &allocates]);
    assert!(status == Some(1) && text.lines().nth(1) == Some(expected), "{text}");
    let (status, text, _) = gate(&["--markdown", "--", &allocates]);
    assert!(status == Some(1) && text.contains(&format!("\n- {expected}\n")), "{text}");
    let (status, text, _) = gate(&["--json", "--", &allocates]);
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(status == Some(1) && report["differences"][0]["text"] == expected, "{report}");
    assert_eq!(gate(&["--filter", "lz", "--", &allocates]).0, Some(0));
    let (status, _, errors) = gate(&["--filter", "no_such_point", "--", &same]);
    assert!(status == Some(3) && errors.contains("passes the filter"), "{errors}");
    for more in [
        &["--max-regress", "p50=5%"][..],
        &["--split", "1s"],
        &["--deviation", "2"],
        &["--json", "--markdown"],
    ] {
        let (status, _, errors) = gate(&[more, &["--", &same]].concat());
        assert!(status == Some(2) && errors.contains("cannot be used with"), "{more:?} {errors}");
    }
    let folded = pfp_top(&["export", "folded", "--alloc", &a]);
    let lines = String::from_utf8(folded.stdout).unwrap();
    let bytes: u64 =
        lines.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
    let snapshot = json::read(Path::new(&a)).unwrap();
    assert!(bytes > 1_000);
    assert_eq!(bytes, snapshot.cells.iter().map(|cell| cell.allocs.bytes).sum::<u64>());
    let refused = pfp_top(&["export", "csv", "--alloc", &a]);
    assert!(complaint(&refused).contains("--alloc works with folded only"));
    let limits = ["gate", "--markdown", "--max-regress", "p50=5%", "--baseline", &a, "--", &same];
    assert_eq!(pfp_top(&limits).status.code(), Some(2));
}

#[test]
fn completions_and_manual_cover_every_command() {
    let output = |arguments: &[&str]| {
        let output = pfp_top(arguments);
        assert!(output.status.success(), "{}", complaint(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    for shell in ["bash", "zsh", "fish"] {
        let script = output(&["completions", shell]);
        for word in ["snapshot", "run", "--interval", "p99"] {
            let word = if shell == "fish" { word.trim_start_matches('-') } else { word };
            assert!(script.contains(word), "{shell}: {word}");
        }
        assert!(!script.contains("demo-workload"), "{shell}: a hidden command");
    }
    let page = output(&["man"]);
    assert!(page.contains(".TH pfp-top 1"), "{page}");
    let folder = tempfile::tempdir().unwrap();
    output(&["man", folder.path().to_str().unwrap()]);
    let run = std::fs::read_to_string(folder.path().join("pfp-top-run.1")).unwrap();
    assert!(run.contains("XDG_STATE_HOME"), "{run}");
}

#[test]
fn the_doctor_compares_the_clocks() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_pfp-top"));
    command.args(["doctor", "clocks", "--json"]).env("PFP_DIR", folder.path());
    let output = command.output().expect("the program starts");
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let said: Vec<(String, String)> = findings
        .as_array()
        .unwrap()
        .iter()
        .map(|f| (f["about"].as_str().unwrap().into(), f["found"].as_str().unwrap().into()))
        .collect();
    let rate = |of: &str| -> f64 {
        let line = said.iter().find(|(about, found)| about == "counter" && found.starts_with(of));
        let (_, found) = line.unwrap_or_else(|| panic!("no {of:?} in {said:?}"));
        let (_, number) = found.split_once(": ").unwrap();
        number.split_once(" GHz").unwrap().0.parse().unwrap()
    };
    // Two measurements of one counter, by different programs and over different times.
    let (program, here) = (rate("measured by the program"), rate("measured by this program"));
    assert!((program / here - 1.0).abs() < 0.01, "{said:?}");
    assert!(said.iter().any(|(about, _)| about == "core"), "{said:?}");
    assert!(said.iter().any(|(about, _)| about == "source"), "{said:?}");
}

#[test]
fn the_doctor_distinguishes_usable_folders_from_others() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let doctor = |mode: u32| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(folder.path(), permissions).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_pfp-top"));
        command.args(["doctor", "--json"]).env("PFP_DIR", folder.path()).env_remove("PFP_CLOCK");
        let output = command.output().expect("the program starts");
        let findings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let of = |about: &str, verdict: &str| {
            let all = findings.as_array().unwrap().iter();
            all.filter(|f| f["about"] == about && f["verdict"] == verdict).count()
        };
        (output.status.code(), of("beacons", "problem"), of("clock", "problem"))
    };
    assert_eq!(doctor(0o700).1, 0);
    assert_eq!(doctor(0o700).2, 0, "a program tried out there can be measured");
    assert_eq!(doctor(0o777), (Some(1), 1, 1), "others could write to it");
}
