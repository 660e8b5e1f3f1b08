//! Every system call of the probe is refused in turn, with every error that means "not now" or "not
//! you". The host's output and exit code are those without the probe, a failed start leaves no
//! descriptor and no mapping, the figures are correct, and `pfp-top doctor` reports what was
//! refused.
//!
//! The test finds these calls by tracing, so that a new call cannot be missed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};
use pfp_shm_layout::failure::{self, Failure, Stage};
use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::faults::{self, Call};
use pfp_tests::place::Place;
use pfp_tests::{figure, lacks, size, skipped};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

/// Errors with which the system refuses.
const ERRORS: [&str; 5] = ["ENOSPC", "EMFILE", "EACCES", "ENOMEM", "EINTR"];
/// Number of calls of each name to refuse, from the first one on.
const OF_A_KIND: u64 = size(8, 1_000);
/// A call that is made at every switch; under the tracer, at every stamp.
const CLOCK: &str = "clock_gettime";
const OF_THE_CLOCK: u64 = size(2, 10);

/// A program whose calls are refused, and its output without the probe.
struct Host {
    place: Place,
    trace: PathBuf,
    report: PathBuf,
    program: String,
    arguments: Vec<String>,
    plain: Output,
    /// Number of the probe's private mappings that may stay although nothing is measured.
    keeps: usize,
    /// Refusals for which `doctor` has been run already.
    checked: RefCell<Vec<(Stage, i32)>>,
}

impl Host {
    /// `arguments` precede the argument that selects whether to measure.
    fn new(program: &str, arguments: &[&str]) -> Self {
        let place = Place::new();
        let (trace, report) = (place.path("trace"), place.path("report"));
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
            checked: RefCell::default(),
        }
    }

    fn command(&self, how: &str) -> Command {
        let mut command = self.place.command(&self.program);
        command.args(&self.arguments).arg(how).arg(&self.report);
        command
    }

    /// The probe's calls when nothing is refused: from the first point to the end of the work, and
    /// when the process ends.
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
            // The host's own calls in this part come first.
            let mut own: BTreeMap<&str, usize> = BTreeMap::new();
            for call in &plain[part] {
                *own.entry(&call.name).or_default() += 1;
            }
            assert!(part != 0 || own.is_empty(), "the host itself calls {own:?}");
            for call in &measured[part] {
                // A call is refused by its number among the calls of its name. If the host makes
                // calls of this name for its report, that number varies.
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

    /// Runs the host with calls refused, and checks it. `when` is in strace's syntax.
    fn refuse(&self, call: &Call, error: &str, when: &str) -> Result<Outcome> {
        let name = &call.name;
        // With this option, other calls run at full speed.
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
        let notes = failure::find(&self.place.directory()).expect("the directory can be read");
        // Check the notes before `left_behind` removes them.
        let notes_checked = notes.iter().try_for_each(|note| self.tell(note, &what));
        let left_behind = self.left_behind(&what);
        ensure!(output == self.plain, "{what}: {output:?}");
        left_behind?;
        notes_checked?;
        let (outcome, is_found) = self.judge(call, &what)?;
        self.judge_notes(call, error, &notes, outcome != Outcome::Nothing && is_found, &what)?;
        Ok(outcome)
    }

    /// A start that failed, or that left no beacon, leaves a note of what was refused; any other
    /// start leaves none.
    fn judge_notes(
        &self,
        call: &Call,
        error: &str,
        notes: &[Failure],
        works: bool,
        what: &str,
    ) -> Result<()> {
        match notes {
            [] => ensure!(works, "{what}: no note was left"),
            [note] => {
                ensure!(!works, "{what}: it works, but {note:?}");
                let expected = match call.name.as_str() {
                    // If the first pages cannot be allocated, pfp reports a lack of space.
                    "madvise" if call.line.contains("MADV_POPULATE_WRITE") => "ENOSPC",
                    // geteuid cannot fail. With a wrong result, the program's own files seem to be
                    // another user's.
                    "geteuid" => "EACCES",
                    _ => error,
                };
                ensure!(note.errno == errno_of(expected), "{what}: {note:?}");
            }
            _ => bail!("{what}: {notes:?}"),
        }
        Ok(())
    }

    /// Checks that `doctor` names the program, what it lacks, and why. Each refusal is checked
    /// once.
    fn tell(&self, note: &Failure, what: &str) -> Result<()> {
        let kind = (note.stage, note.errno);
        if self.checked.borrow().contains(&kind) {
            return Ok(());
        }
        self.checked.borrow_mut().push(kind);
        tells(&doctor(&self.place), &self.program, note.stage, note.errno)
            .with_context(|| what.to_owned())
    }

    /// Checks the process' own report of its resources and figures. Also returns whether a beacon
    /// is lit.
    fn judge(&self, call: &Call, what: &str) -> Result<(Outcome, bool)> {
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
            // A refused munmap has unmapped nothing.
            let most = 1 + usize::from(call.name == "munmap");
            ensure!((1..=most).contains(&mapped("/dev/shm/pfp-")), "{what}: {report}");
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
        let outcome = match (works, whole) {
            (false, _) => Outcome::Nothing,
            (true, false) => Outcome::Part,
            (true, true) => Outcome::All,
        };
        Ok((outcome, mapped(".beacon") == 1))
    }

    /// Checks that every object has a beacon, and removes everything.
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
        for file in fs::read_dir(self.place.beacons()).expect("it is there").flatten() {
            fs::remove_file(file.path()).expect("it is ours");
        }
        ensure!(lost.is_empty(), "{what}: nobody finds {lost:?}");
        Ok(())
    }
}

/// How much was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    All,
    Part,
    Nothing,
}

/// Refuses every call to a host; returns a line with the totals.
fn refuse_everything(program: &str, arguments: &[&str], keeps: usize) -> String {
    let mut host = Host::new(program, arguments);
    host.keeps = keeps;
    let output = host.command("measured").output().expect("it can be started");
    assert_eq!(output, host.plain);
    let nothing = Call { name: "nothing".into(), number: 0, line: String::new() };
    let judged = host.judge(&nothing, "nothing is refused").expect("it works");
    assert_eq!(judged, (Outcome::All, true), "nothing is refused");
    let calls = host.calls_of_the_probe();
    let mut outcomes: BTreeMap<Outcome, usize> = BTreeMap::new();
    let (mut runs, mut bad) = (0, Vec::new());
    for (at, call) in calls.iter().enumerate() {
        let full = cfg!(feature = "torture");
        // In the short test, each call is refused once, with one error after the other.
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
    let checked = host.checked.borrow().len();
    format!(
        "{} calls ({}) refused in {runs} runs, {outcomes:?}, {checked} kinds reported by doctor",
        calls.len(),
        names.join(", ")
    )
}

fn does_not_notice(language: &str, program: &str, arguments: &[&str], keeps: usize) {
    if lacks("refused system calls", "strace") {
        return;
    }
    match faults::with_own_shm("size=64m", || refuse_everything(program, arguments, keeps)) {
        Ok(said) => figure(&format!("refused_calls: {language}: {said}")),
        Err(error) => skipped("refused system calls", &error.to_string()),
    }
}

#[test]
fn the_host_does_not_notice_refused_calls() {
    does_not_notice("Rust", TARGET, &["refused"], 0);
}

#[test]
fn a_host_in_c_does_not_notice_refused_calls() {
    let program = c::compile(Compiler::C, "refused", &["refused.c"], Link::Static, [""; 0]);
    // The mapping that may stay holds the library's points. It is made before the segment.
    does_not_notice("C", program.to_str().expect("it is plain text"), &[], 1);
}

/// The output of `pfp-top doctor` for a folder of beacons.
fn doctor(place: &Place) -> String {
    String::from_utf8(place.pfp_top(&["doctor", "--json"]).stdout).expect("it is text")
}

/// Checks that the output reports what the program was refused, and why.
fn tells(doctor: &str, program: &str, stage: Stage, errno: i32) -> Result<()> {
    let findings: serde_json::Value = serde_json::from_str(doctor)?;
    let lacks = match stage {
        Stage::Segment => "no segment",
        Stage::Process => "no private memory",
        Stage::Beacon => "no beacon",
    };
    let name = Path::new(program).file_name().expect("it is a file").to_string_lossy();
    let why = std::io::Error::from_raw_os_error(errno).to_string();
    let tells = |finding: &serde_json::Value| {
        let found = finding["found"].as_str().unwrap_or_default();
        finding["verdict"] == "problem"
            && found.starts_with(&*name)
            && found.contains(lacks)
            && found.contains(&why)
            && finding["advice"].as_str().is_some_and(|advice| !advice.is_empty())
    };
    let is_reported = findings.as_array().is_some_and(|all| all.iter().any(tells));
    ensure!(is_reported, "expected {name}, {lacks}, {why:?}: {doctor}");
    Ok(())
}

fn errno_of(error: &str) -> i32 {
    match error {
        "ENOSPC" => libc::ENOSPC,
        "EMFILE" => libc::EMFILE,
        "EACCES" => libc::EACCES,
        "ENOMEM" => libc::ENOMEM,
        "EINTR" => libc::EINTR,
        other => panic!("{other} is refused nowhere"),
    }
}

/// `pfp-top doctor` reports a failed start until one succeeds. A start that is only interrupted
/// succeeds.
#[test]
fn doctor_reports_a_failed_start_until_one_succeeds() {
    if lacks("what is noted of refused calls", "strace") {
        return;
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
    for (name, error, when, stage) in [
        ("ftruncate", "ENOSPC", "1", Stage::Segment),
        ("ftruncate", "EACCES", "1", Stage::Segment),
        ("ftruncate", "EMFILE", "1", Stage::Segment),
        ("ftruncate", "EINTR", "1+", Stage::Segment),
        ("renameat2", "ENOSPC", "1", Stage::Beacon),
        ("renameat2", "EACCES", "1", Stage::Beacon),
        ("renameat2", "EINTR", "1+", Stage::Beacon),
    ] {
        refuse(name, error, when);
        let found = said();
        assert_eq!(found.len(), 1, "{error} for {name}: {found:?}");
        let expected = (stage, errno_of(error));
        assert_eq!((found[0].stage, found[0].errno), expected, "{error} for {name}");
        tells(&doctor(&host.place), TARGET, stage, expected.1).expect("it was noted");
    }
    // This simulates a kernel that cannot wipe memory in forked children.
    let options = ["--seccomp-bpf", "-etrace=madvise", "-einject=madvise:error=EINVAL"];
    let init = faults::traced(host.place.command(TARGET).arg("init"), &options, &host.trace)
        .output()
        .expect("strace is there");
    let init = String::from_utf8_lossy(&init.stdout).into_owned();
    assert!(init.starts_with("NoPrivateMemory { errno: 22 }\n"), "{init}");
    assert!(init.contains("Linux 4.14"), "{init}");
    for name in ["ftruncate", "renameat2"] {
        refuse(name, "EINTR", "1");
        assert_eq!(said(), [], "{name} was asked again");
    }
}

/// Here the system itself refuses the calls, and not a tracer. `doctor` reports the real reason.
#[test]
fn doctor_reports_refusals_by_the_system_itself() {
    let place = Place::new();
    let run = |arguments: &[&str], prepare: &dyn Fn(&mut Command)| {
        let mut command = place.command(TARGET);
        prepare(command.args(arguments));
        command.output()
    };
    let plain = run(&["refused", "plain"], &|_| {}).expect("the target can be started");
    assert!(plain.status.success(), "{plain:?}");
    let own_shm = |flags, options: &'static CStr| {
        move |command: &mut Command| {
            // SAFETY: the closure makes only system calls between fork and exec.
            unsafe { command.pre_exec(move || faults::own_shm(flags, options)) };
        }
    };
    let limited = |what, to| {
        move |command: &mut Command| {
            // Without this setting, pfp would use less memory.
            command.env("PFP_MEMORY_MB", "250");
            let limit = libc::rlimit { rlim_cur: to, rlim_max: to };
            // SAFETY: the closure makes one system call between fork and exec, with an initialized
            // limit.
            unsafe {
                command.pre_exec(move || match libc::setrlimit(what, &raw const limit) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                });
            }
        }
    };
    type Prepare = Box<dyn Fn(&mut Command)>;
    let cases: [(&str, Prepare, i32); 5] = [
        ("no room", Box::new(own_shm(0, c"size=4k")), libc::ENOSPC),
        ("no inode", Box::new(own_shm(0, c"size=64m,nr_inodes=1")), libc::ENOSPC),
        ("nothing can be written", Box::new(own_shm(libc::MS_RDONLY, c"size=64m")), libc::EROFS),
        ("no addresses", Box::new(limited(libc::RLIMIT_AS, 64 << 20)), libc::ENOMEM),
        ("no large files", Box::new(limited(libc::RLIMIT_FSIZE, 1 << 20)), libc::EFBIG),
    ];
    let mut tried = 0;
    for (what, prepare, errno) in &cases {
        match run(&["refused", "measured"], &**prepare) {
            Ok(output) => assert_eq!(output, plain, "{what}"),
            Err(error) => {
                skipped(what, &error.to_string());
                continue;
            }
        }
        tells(&doctor(&place), TARGET, Stage::Segment, *errno).expect(what);
        let said = run(&["init"], &**prepare).expect("it has just been started");
        let said = String::from_utf8(said.stdout).expect("it is text");
        let why = std::io::Error::from_raw_os_error(*errno).to_string();
        let (kind, text) = said.split_once('\n').expect("it is an error");
        assert_eq!(kind, format!("NoSharedMemory {{ errno: {errno} }}"), "{what}");
        assert!(text.contains("/dev/shm") && text.contains(&why), "{what}: {text}");
        assert!(text.contains(&Stage::Segment.advice(*errno)), "{what}: {text}");
        tried += 1;
    }
    let said = run(&["init-in-a-vfork-child"], &|_| {}).expect("the target can be started");
    let said = String::from_utf8_lossy(&said.stdout);
    assert!(said.starts_with("BorrowedMemory\n") && said.ends_with("\nok\n"), "{said}");

    // Few descriptors, down to none.
    let plain = run(&["host"], &|_| {}).expect("the target can be started");
    let said = || failure::find(&place.directory()).expect("the directory can be read");
    assert_eq!(said(), [], "it worked again");
    let mut enough = None;
    for left in 0..=8 {
        let output = run(&["host-short-of-descriptors", &left.to_string()], &|_| {});
        assert_eq!(output.expect("the target can be started"), plain, "{left} descriptors");
        let Some(note) = said().pop() else {
            enough = enough.or(Some(left));
            continue;
        };
        assert_eq!((note.errno, enough), (libc::EMFILE, None), "{left} descriptors: {note:?}");
        tells(&doctor(&place), TARGET, note.stage, libc::EMFILE).expect("it was noted");
        tried += 1;
    }
    // The advice of `doctor` names this number.
    let enough = enough.expect("eight are enough");
    assert!((1..=5).contains(&enough), "{enough}");
    figure(&format!(
        "refused_calls: doctor reported {tried} refusals of the system's own; a start takes \
         {enough} descriptors"
    ));
}
