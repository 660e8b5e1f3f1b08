//! Every system call of the probe's is refused in turn, with every error that means
//! "not now" or "not you": the host's output and exit code are what they were without
//! the probe, it keeps no descriptor and no mapping of what came to nothing, and what
//! is shown is right.
//!
//! Which calls those are is found out by tracing, so that a new one cannot be missed.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use anyhow::{Result, ensure};
use pfp_shm_layout::failure::{self, Stage};
use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::faults::{self, Call};
use pfp_tests::target::Place;
use pfp_tests::{figure, size, skipped};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

/// What the system says when it refuses.
const ERRORS: [&str; 5] = ["ENOSPC", "EMFILE", "EACCES", "ENOMEM", "EINTR"];
/// Of the calls of one name so many are refused, from the first one on.
const OF_A_KIND: u64 = size(8, 1_000);
/// The one that is made at every switch: traced, at every stamp.
const CLOCK: &str = "clock_gettime";
const OF_THE_CLOCK: u64 = size(2, 10);

/// A program to be refused things, and what it says when it does without the probe.
struct Host {
    place: Place,
    trace: PathBuf,
    report: PathBuf,
    program: String,
    arguments: Vec<String>,
    plain: Output,
    /// Private mappings that it may have although nothing is measured.
    keeps: usize,
}

impl Host {
    /// `how` is the argument that says whether to measure.
    fn new(program: &str, arguments: &[&str]) -> Self {
        let place = Place::new();
        let file = |name: &str| {
            // Not among the beacons.
            place.path().with_extension(name)
        };
        let (trace, report) = (file("trace"), file("report"));
        let mut command = place.command(program);
        let plain = command.args(arguments).arg("plain").output().expect("it can be started");
        assert!(plain.status.success(), "{plain:?}");
        Self {
            trace,
            report,
            program: program.into(),
            arguments: arguments.iter().map(|&argument| argument.into()).collect(),
            plain,
            place,
            keeps: 0,
        }
    }

    fn command(&self, how: &str) -> Command {
        let mut command = self.place.command(&self.program);
        command.args(&self.arguments).arg(how).arg(&self.report);
        command
    }

    /// What the probe calls when nothing is refused: from the first point to the end of
    /// the work, and when the process ends.
    fn calls_of_the_probe(&self) -> Vec<Call> {
        let all = |how: &str| {
            let mut command = faults::traced(&self.command(how), &[], &self.trace);
            let output = command.output().expect("strace is there");
            assert_eq!(output, self.plain, "traced, {how}");
            faults::calls(&self.trace)
        };
        let (plain, measured) = (all("plain"), all("measured"));
        let mut found = Vec::new();
        for part in [0, 2] {
            // Those that the host itself makes here come first.
            let mut own: BTreeMap<&str, usize> = BTreeMap::new();
            for call in &plain[part] {
                *own.entry(&call.name).or_default() += 1;
            }
            assert!(part != 0 || own.is_empty(), "the host itself calls {own:?}");
            for call in &measured[part] {
                // Which one of its name it is depends on what the host calls for its
                // report.
                if part == 2 && measured[1].iter().any(|own| own.name == call.name) {
                    continue;
                }
                match own.get_mut(call.name.as_str()) {
                    Some(left) if *left > 0 => *left -= 1,
                    _ => found.push(call.clone()),
                }
            }
        }
        found.retain(|call| call.name != "exit_group");
        let mut made: BTreeMap<String, u64> = BTreeMap::new();
        found.retain(|call| {
            let made = made.entry(call.name.clone()).or_default();
            *made += 1;
            *made <= if call.name == CLOCK { OF_THE_CLOCK } else { OF_A_KIND }
        });
        assert!(found.len() > 40, "{found:?}");
        found
    }

    /// Runs it with calls refused, and judges it. `when` is as strace takes it.
    fn refuse(&self, call: &Call, error: &str, when: &str) -> Result<Outcome> {
        let name = &call.name;
        // What it does not look at goes on at full speed.
        let options = [
            "--seccomp-bpf".into(),
            format!("-etrace={name}"),
            format!("-einject={name}:error={error}:when={when}"),
        ];
        let mut command = faults::traced(
            &self.command("measured"),
            &options.each_ref().map(String::as_str),
            &self.trace,
        );
        let _ = fs::remove_file(&self.report);
        let output = command.output().expect("strace is there");
        let what = format!("{error} for {name} {when}: {}", call.line);
        let left_behind = self.left_behind(&what);
        ensure!(output == self.plain, "{what}: {output:?}");
        left_behind?;
        self.judge(call, &what)
    }

    /// What the process itself says of what it holds and has measured.
    fn judge(&self, call: &Call, what: &str) -> Result<Outcome> {
        let report = fs::read_to_string(&self.report).expect("the host has written it");
        let of = |key: &str| -> Vec<Vec<String>> {
            let lines = report.lines().map(|line| line.split_whitespace().map(str::to_owned));
            let lines = lines.filter_map(|mut words| Some((words.next()?, words.collect())));
            lines.filter(|(found, _)| found == key).map(|(_, values)| values).collect()
        };
        // A refused close has closed nothing.
        if call.name != "close" {
            ensure!(of("descriptor").is_empty(), "{what}: a descriptor is left: {report}");
        }
        let works = of("init") == [["true"]];
        let mapped = |kind: &str| {
            of("mapping")
                .iter()
                .filter(|mapping| match kind {
                    "-" => mapping[0] == "-",
                    _ => mapping[0].contains(kind),
                })
                .count()
        };
        if works {
            ensure!(mapped("/dev/shm/pfp-") == 1, "{what}: {report}");
            ensure!(mapped(".beacon") <= 1, "{what}: {report}");
        } else if call.name != "munmap" {
            let named = of("mapping").len() - mapped("-");
            ensure!(named == 0, "{what}: a mapping is left: {report}");
            ensure!(mapped("-") <= self.keeps, "{what}: a mapping is left: {report}");
        }
        let mut whole = works;
        for count in of("count") {
            let number = |at: usize| count[at].parse::<u64>().expect("a number");
            let (expected, found) = (number(0), number(1));
            ensure!(found <= expected, "{what}: more than there were: {report}");
            ensure!(works || found == 0, "{what}: {report}");
            whole &= found == expected;
        }
        let seconds: f64 = of("seconds")[0][0].parse().expect("a number");
        ensure!((0.0..60.0).contains(&seconds), "{what}: {report}");
        Ok(match (works, whole) {
            (false, _) => Outcome::Nothing,
            (true, false) => Outcome::Part,
            (true, true) => Outcome::All,
        })
    }

    /// An object is found by its beacon, or is not there.
    fn left_behind(&self, what: &str) -> Result<()> {
        let found = self.place.entries();
        let mut lost = Vec::new();
        for object in fs::read_dir("/dev/shm").expect("it is there").flatten() {
            let name = object.file_name().to_string_lossy().into_owned();
            let beacon = found.iter().find(|entry| entry.info.object.as_str()[1..] == name);
            if beacon.is_none() {
                lost.push(name);
            }
            fs::remove_file(object.path()).expect("it is ours");
        }
        for entry in found {
            let _ = fs::remove_file(entry.path);
        }
        ensure!(lost.is_empty(), "{what}: nobody finds {lost:?}");
        Ok(())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for file in [&self.trace, &self.report] {
            let _ = fs::remove_file(file);
        }
    }
}

/// What became of the measuring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    All,
    Part,
    Nothing,
}

/// Refuses everything to a host; a line of figures.
fn refuse_everything(program: &str, arguments: &[&str], keeps: usize) -> String {
    let mut host = Host::new(program, arguments);
    host.keeps = keeps;
    let calls = host.calls_of_the_probe();
    let mut outcomes: BTreeMap<Outcome, usize> = BTreeMap::new();
    let (mut runs, mut bad) = (0, Vec::new());
    for (at, call) in calls.iter().enumerate() {
        let full = cfg!(feature = "torture");
        // Reduced, each call is refused once, with the errors in turn.
        let errors = if full { &ERRORS[..] } else { &ERRORS[at % ERRORS.len()..][..1] };
        for error in errors {
            runs += 1;
            match host.refuse(call, error, &call.number.to_string()) {
                Ok(outcome) => *outcomes.entry(outcome).or_default() += 1,
                Err(why) => bad.push(why.to_string()),
            }
        }
    }
    assert!(bad.is_empty(), "{} of {runs} runs:\n{}", bad.len(), bad.join("\n"));
    let mut names: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    format!("{} calls ({}) refused in {runs} runs, {outcomes:?}", calls.len(), names.join(", "))
}

fn does_not_notice(language: &str, program: &str, arguments: &[&str], keeps: usize) {
    if !c::is_there("strace") {
        return skipped("refused system calls", "strace is not installed");
    }
    match faults::with_own_shm("size=64m", || refuse_everything(program, arguments, keeps)) {
        Ok(said) => figure(&format!("refused_calls: {language}: {said}")),
        Err(error) => skipped("refused system calls", &error.to_string()),
    }
}

#[test]
fn the_host_does_not_notice_what_is_refused() {
    does_not_notice("Rust", TARGET, &["refused"], 0);
}

#[test]
fn a_host_in_c_does_not_notice_what_is_refused() {
    let program = c::compile(Compiler::C, "refused", &["refused.c"], Link::Static, [""; 0]);
    // Its points lie in memory of the library's own, which is there before the segment.
    does_not_notice("C", program.to_str().expect("it is plain text"), &[], 1);
}

/// A start that came to nothing is told by `pfp-top doctor`, until one does not.
#[test]
fn what_was_refused_is_noted_for_the_doctor() {
    if !c::is_there("strace") {
        return skipped("what is noted of refused calls", "strace is not installed");
    }
    let host = Host::new(TARGET, &["refused"]);
    let said = || failure::find(&host.place.directory()).expect("the directory can be read");
    let refuse = |name: &str, error: &str, when: &str| {
        let options = [
            "--seccomp-bpf".into(),
            format!("-etrace={name}"),
            format!("-einject={name}:error={error}:when={when}"),
        ];
        let options = options.each_ref().map(String::as_str);
        let mut command = faults::traced(&host.command("measured"), &options, &host.trace);
        assert_eq!(command.output().expect("strace is there"), host.plain);
    };
    for (name, error, when, stage, errno) in [
        ("ftruncate", "ENOSPC", "1", Stage::Segment, libc::ENOSPC),
        ("ftruncate", "EACCES", "1", Stage::Segment, libc::EACCES),
        ("ftruncate", "EMFILE", "1", Stage::Segment, libc::EMFILE),
        ("renameat2", "ENOSPC", "1", Stage::Beacon, libc::ENOSPC),
        ("renameat2", "EACCES", "1", Stage::Beacon, libc::EACCES),
    ] {
        refuse(name, error, when);
        let found = said();
        assert_eq!(found.len(), 1, "{error} for {name}: {found:?}");
        assert_eq!((found[0].stage, found[0].errno), (stage, errno), "{error} for {name}");
        assert_eq!(found[0].exe.file_name(), Some("pfp-test-target".as_ref()));
    }
    let output = host.command("measured").output().expect("it can be started");
    assert_eq!(output, host.plain);
    assert_eq!(said(), [], "it works again");
}
