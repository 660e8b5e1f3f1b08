//! Hostile arguments, names and environments.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::{Command, Output, Stdio};

use pfp_read::files::json::{self, Existing};
use pfp_read::source::Source;
use pfp_read::source::synthetic::Synthetic;

use super::{complaint, pfp_top, snapshot_file};

const EVIL: &str = "a\x1b]0;evil\x07\u{9b}31m\u{202e}b";

#[track_caller]
fn is_clean(output: &Output, what: &str) {
    for text in [&output.stdout, &output.stderr] {
        let text = String::from_utf8_lossy(text);
        let controls = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!text.contains(controls), "{what}: {text:?}");
    }
}

/// Runs the program in a terminal, where clap would use colours.
fn in_a_terminal(arguments: &[&str], theme: &str) -> String {
    let quoted = |word: &&str| format!("'{word}'");
    let words: Vec<_> = arguments.iter().map(quoted).collect();
    let line = format!("'{}' {}", env!("CARGO_BIN_EXE_pfp-top"), words.join(" "));
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null());
    command.env("PFP_TOP_CONFIG", "").env("PFP_TOP_THEME", theme).env("TERM", "xterm");
    let output = command.output().expect("script is a part of util-linux");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn wrong_arguments_are_quoted_without_control_characters() {
    for arguments in [
        &["--theme", EVIL][..],
        &["-p", EVIL],
        &["--filter", "(\x1b[31m", "--once"],
        &["export", EVIL],
        &["export", "csv", EVIL],
        &["open", EVIL, EVIL],
        &["diff", EVIL, EVIL],
        &["open", "--at", EVIL, "x"],
        &[EVIL],
        &["run", "--once", EVIL],
        &["--columns", EVIL],
        &["completions", EVIL],
    ] {
        let output = pfp_top(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(!output.stderr.is_empty(), "{arguments:?}");
        is_clean(&output, arguments[0]);
        // clap's own colours are the only sequences, and there are none if the message quotes
        // control characters.
        let text = in_a_terminal(arguments, "dark");
        assert!(!text.is_empty() && !text.contains(['\x1b', '\u{9b}', '\x07']), "{text:?}");
    }
    for arguments in [&["--once"][..], &["--help"]] {
        let text = in_a_terminal(arguments, EVIL);
        assert!(!text.is_empty() && !text.contains(['\x1b', '\u{9b}', '\x07']), "{text:?}");
    }
    // Harmless output keeps clap's colours.
    assert!(in_a_terminal(&["--help"], "dark").contains("\x1b[1m"));
    assert!(in_a_terminal(&["--theme", "pink"], "dark").contains("\x1b["));
}

#[test]
fn a_name_is_no_formula_and_a_state_has_one_word() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("formula.json");
    let mut made = Synthetic::new();
    let names = ["=1+1", "+1", "-1", "@SUM(A1)", "plain"];
    for (point, name) in made.snapshot_mut().points.iter_mut().zip(names) {
        point.name = name.into();
    }
    made.snapshot_mut().points[4].state = pfp_read::snapshot::PointState::InvalidBeginBegin;
    made.snapshot_mut().lanes[0].name = "=thread".into();
    json::write(&made.poll().unwrap(), &path, Existing::Keep).unwrap();
    let path = path.to_str().unwrap();
    for (arguments, name, state) in [
        (&["open", path, "--csv", "--sort", "id", "--columns", "on,name,load"][..], "name", "on"),
        (&["export", "csv", path], "point", "state"),
        (&["export", "csv", "--per-thread", path], "point", "state"),
    ] {
        let output = pfp_top(arguments);
        assert!(output.status.success(), "{}", complaint(&output));
        let mut rows = csv::Reader::from_reader(&output.stdout[..]);
        let head = rows.headers().unwrap().clone();
        let place = |title: &str| head.iter().position(|it| it == title).unwrap();
        let (name, state) = (place(name), place(state));
        let mut seen = Vec::new();
        for row in rows.records().map(Result::unwrap) {
            for field in &row {
                let is_number = field.parse::<f64>().is_ok();
                assert!(is_number || !field.starts_with(['=', '+', '-', '@']), "{field}");
            }
            if &row[name] == "plain" {
                assert_eq!(&row[state], "invalid");
            }
            seen.push(row[name].to_owned());
        }
        assert!(seen.contains(&"'@SUM(A1)".to_owned()), "{seen:?}");
    }
}

/// Without a home folder, a program's output goes to a folder that only this user can access.
#[test]
fn a_log_without_a_home_follows_no_link() {
    let folder = tempfile::tempdir().unwrap();
    let (victim, temporary) = (folder.path().join("victim"), folder.path().join("tmp"));
    fs::create_dir(&victim).unwrap();
    fs::create_dir(&temporary).unwrap();
    let precious: Vec<_> = (0..40).map(|n| victim.join(format!("run-x-{n}.log"))).collect();
    precious.iter().for_each(|path| fs::write(path, "precious").unwrap());
    let uid = fs::metadata(folder.path()).unwrap().uid();
    let own = temporary.join(format!("pfp-run-{uid}"));
    let run = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pfp-top"));
        command.args(["run", "--once", "--", "sh", "-c", "echo said"]);
        command.env_remove("HOME").env_remove("XDG_STATE_HOME").env("TMPDIR", &temporary);
        command.env("PFP_TOP_CONFIG", "").stdin(Stdio::null()).output().unwrap()
    };
    symlink(&victim, temporary.join("pfp")).unwrap();
    symlink(&victim, &own).unwrap();
    let refused = run();
    assert!(complaint(&refused).contains("--log FILE"), "{}", complaint(&refused));
    assert!(precious.iter().all(|path| path.exists()));
    assert_eq!(fs::read_dir(&victim).unwrap().count(), precious.len());

    fs::remove_file(&own).unwrap();
    fs::create_dir(&own).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(complaint(&run()).contains("--log FILE"));

    fs::remove_dir(&own).unwrap();
    run();
    let made = fs::metadata(&own).unwrap();
    assert_eq!(made.mode() & 0o777, 0o700);
    assert_eq!(fs::read_dir(&own).unwrap().count(), 1);
}

#[test]
fn several_files_are_summed() {
    let folder = tempfile::tempdir().unwrap();
    let file = |run: u32, polls: u32| {
        let path = folder.path().join(format!("{run}.json"));
        let mut source = Synthetic::new();
        source.snapshot_mut().process.segment_id = format!("{run:032x}");
        let snapshot = (0..polls).map(|_| source.poll().unwrap()).last().unwrap();
        json::write(&snapshot, &path, Existing::Keep).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let files = [file(1, 3), file(2, 5), file(3, 8)];
    let calls = |arguments: &[&str]| -> Vec<(String, u64)> {
        let output = pfp_top(&[&["open", "--csv", "--columns", "name,count"], arguments].concat());
        assert!(output.status.success(), "{}", complaint(&output));
        let mut rows = csv::Reader::from_reader(&output.stdout[..]);
        let head = rows.headers().unwrap().clone();
        let place = |title: &str| head.iter().position(|it| it == title).unwrap();
        let (name, count) = (place("name"), place("count"));
        let rows = rows.records().map(Result::unwrap);
        let mut all: Vec<_> =
            rows.map(|row| (row[name].to_owned(), row[count].parse().unwrap())).collect();
        all.sort();
        all
    };
    let alone: Vec<_> = files.iter().map(|file| calls(&[file])).collect();
    let mut names: Vec<&str> = files.iter().map(String::as_str).collect();
    let beside = calls(&names);
    assert_eq!(beside.len(), alone.iter().map(Vec::len).sum::<usize>());
    names.push("--sum");
    let sum = calls(&names);
    assert_eq!(sum.len(), alone[0].len());
    for (name, count) in &sum {
        let of = |all: &Vec<(String, u64)>| {
            all.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count)
        };
        assert_eq!(*count, alone.iter().map(of).sum::<u64>(), "{name}");
    }
    let twice = pfp_top(&["open", "--sum", &files[0], &files[0]]);
    assert_eq!(twice.status.code(), Some(2));
    assert!(complaint(&twice).contains("another snapshot of"), "{}", complaint(&twice));
}

/// Output that cannot be written and input that cannot be read lead to an exit status, and not to a
/// panic.
#[test]
fn closed_and_full_outputs_end_it_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let good = snapshot_file(folder.path());
    let full = || File::options().write(true).open("/dev/full").unwrap();
    for arguments in [
        &["open", &good][..],
        &["open", &good, "--json"],
        &["export", "csv", &good],
        &["export", "openmetrics", &good],
        &["diff", &good, &good],
        &["--help"],
        &["man"],
        &["completions", "bash"],
        &["list"],
        &["doctor"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pfp-top"));
        command.args(arguments).env("PFP_TOP_CONFIG", "").stdin(Stdio::null());
        let output = command.stdout(full()).output().unwrap();
        let said = complaint(&output);
        assert!(output.status.code().is_some(), "{arguments:?}: {:?}", output.status);
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
        if ["open", "export", "man", "completions"].contains(&arguments[0]) {
            assert_ne!(output.status.code(), Some(0), "{arguments:?}");
        }
        for close in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
            let line = format!("exec \"$0\" \"$@\" {close}");
            let mut command = Command::new("sh");
            command.args(["-c", &line, env!("CARGO_BIN_EXE_pfp-top")]).args(arguments);
            let output = command.env("PFP_TOP_CONFIG", "").output().unwrap();
            assert!(output.status.code().is_some_and(|code| code < 126), "{arguments:?} {close}");
            assert!(!complaint(&output).contains("panicked"), "{arguments:?} {close}");
        }
    }
}
