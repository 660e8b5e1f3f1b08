//! Processes on other machines, watched through commands that start an agent there: over
//! connections that are cut, garbled, silent or hostile, and through a real sshd. Tests start in
//! the order of their names, so this module's name puts its tests, which wait longest, first.

mod agent;
mod lines;
mod places;
mod ssh;

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent};
use pfp_read::snapshot::PointState;
use pfp_read::source;
use pfp_remote::Route;
use pfp_tests::place::{self, Place, has_counted, pfp_top};
use pfp_tests::screen::row;
use pfp_tests::target::{Target, end_with_test, wait_for};
use pfp_tests::watch::{Watch, id};
use pfp_tests::{needs_a_screen, os, together};
use pfp_top::app::App;
use pfp_top::common::Options;
use serde_json::Value;

const STEADY: &str = env!("CARGO_BIN_EXE_steady");
/// The first bytes that an agent sends.
const MAGIC: &[u8] = b"\x89PFPVIA\r\n";
/// The version of the protocol.
const VERSION: u32 = 11;

/// A simulated machine, which has `pfp-top` on its path.
struct Near(Place);

impl Near {
    fn new() -> Self {
        let place = Place::new();
        std::fs::create_dir(place.path("bin")).expect("the folder is new");
        symlink(pfp_top(), place.path("bin/pfp-top")).expect("the folder is new");
        Self(place)
    }

    /// Shell words that set this path, for a command.
    fn via(&self) -> String {
        format!("PATH={}:$PATH", self.0.path("bin").display())
    }

    /// Runs the viewer with arguments, through an agent that this command starts.
    fn run(&self, via: &str, arguments: &[&str]) -> Output {
        self.run_by(&[via], arguments)
    }

    /// Runs the viewer through several agents.
    fn run_by(&self, vias: &[&str], arguments: &[&str]) -> Output {
        let mut command = self.0.command(pfp_top());
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.0.path("bin").display()));
        command.args(arguments).args(vias.iter().flat_map(|via| ["--via", via]));
        command.output().expect("pfp-top starts")
    }

    /// The point's state in the segment.
    fn state(&self, target: &Target, name: &str) -> PointState {
        let mut watch = Watch::attach(&self.0, target);
        let picture = watch.poll();
        let id = id(picture, name);
        let point = picture.points.iter().find(|point| point.id == id);
        let control = point.expect("it was just there").control;
        assert!(!control.invalid(), "{name}");
        if control.enabled() { PointState::On } else { PointState::Off }
    }
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn figures_equal_those_of_a_viewer_on_that_machine() {
    let near = Near::new();
    let mut target = near.0.start_watched(STEADY, &["far"]);
    wait_for("figures", || has_counted(&near.0.snapshot(&target), "tick", 3));
    target.kill();
    let pid = target.pid().to_string();
    let picture = |output: Output, name: &str| {
        pfp_tests::well(&output);
        let text = std::fs::read_to_string(near.0.path(name)).expect("it was written");
        let mut value: Value = serde_json::from_str(&text).expect("it is JSON");
        value["taken_unix_ns"] = Value::Null;
        value
    };
    let here = near.0.pfp_top(&["snapshot", "-p", &pid, "-o", "here.json"]);
    let there = near.run(&near.via(), &["snapshot", "-p", &pid, "-o", "there.json"]);
    let (here, there) = (picture(here, "here.json"), picture(there, "there.json"));
    assert!(here["records"].as_array().is_some_and(|records| !records.is_empty()));
    assert_eq!(here, there);

    let listed = near.run(&near.via(), &["list"]);
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(text.contains(&pid) && text.contains("far"), "{text}{}", complaint(&listed));
    // The viewer searches the processes of the other end, and not those of this machine.
    let output = near.run(&near.via(), &["snapshot", "-p", "1", "-o", "none.json"]);
    assert_eq!(output.status.code(), Some(3), "{}", complaint(&output));
    assert!(complaint(&output).contains("far["), "{}", complaint(&output));
    let output = near.run(&near.via(), &["save-raw", "-p", &pid, "-o", "raw"]);
    assert!(complaint(&output).contains("save-raw` there"), "{}", complaint(&output));
}

/// The agent samples what the threads wait for, and the pictures have the report.
#[test]
fn waits_are_sampled_at_the_other_place() {
    let near = Near::new();
    let target = near.0.start_watched(STEADY, &["far"]);
    let pid = target.pid().to_string();
    let output = near.run(&near.via(), &["waits", "-p", &pid, "-d", "1s", "--json"]);
    pfp_tests::well(&output);
    let report: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(report["process"], "far");
    assert!(report["seconds"].as_f64().is_some_and(|seconds| seconds >= 1.0), "{report}");
    let points = report["points"].as_array().expect("it is a list");
    let sleeps = |point: &&Value| point["reasons"][0]["reason"] == "sleep";
    assert!(points.iter().any(|point| sleeps(&point)), "{report}");
    let output = near.run(&near.via(), &["waits", "-p", &pid, "-d", "6s"]);
    assert!(complaint(&output).contains("expected at most 5 s"), "{}", complaint(&output));
    needs_a_screen!();
    let screen = near.0.screen(120, 40);
    screen.pfp_top(&format!("-p {pid} -i 0.1 --via '{}'", near.via()));
    screen.wait_for("the figures", |text| text.contains("LIVE"));
    screen.press(&["9"], "the waits", |text| text.contains("> sleep"));
}

#[test]
fn a_remote_recording_accounts_for_every_record_and_a_sum_has_every_process() {
    let near = Near::new();
    let targets = ["one", "two"].map(|name| near.0.start_watched(STEADY, &[name]));
    let pid = targets[0].pid().to_string();
    let arguments = ["record", "-p", &pid, "-i", "50ms", "-d", "1s", "--events", "-o", "run.rec"];
    let output = near.run(&near.via(), &arguments);
    pfp_tests::well(&output);
    let mut recorded = source::open(&near.0.path("run.rec")).expect("it can be read");
    let recording = recorded.recording().expect("it is one");
    let events: Vec<_> =
        (0..recording.len()).flat_map(|place| recording.events(place).expect("whole")).collect();
    let (brought, lost) = events.iter().fold((0, 0), |(brought, lost), lane| {
        assert!(lane.records.iter().all(|record| record.lane == lane.lane));
        (brought + lane.records.len() as u64, lost + lane.lost)
    });
    let written: u64 = recorded.poll().unwrap().lanes.iter().map(|lane| lane.records_written).sum();
    assert!(brought > 0);
    assert_eq!(brought + lost, written);

    let output = near.run(&near.via(), &["snapshot", "--sum", "-o", "sum.json"]);
    pfp_tests::well(&output);
    let sum = source::open(&near.0.path("sum.json")).unwrap().poll().unwrap();
    assert_eq!(sum.process.members.len(), 2);
    assert_eq!(sum.points.iter().filter(|point| point.name == "tick").count(), 1);
}

#[test]
fn a_recording_goes_on_when_a_lost_line_comes_back() {
    let near = Near::new();
    let target = near.0.start_watched(STEADY, &["far"]);
    let via = format!("{}; echo $$ >> pids; exec", near.via());
    let mut recorder = near.0.command(pfp_top());
    let pid = target.pid().to_string();
    let arguments = ["record", "-p", &pid, "-i", "50ms", "--events", "-o", "run.rec"];
    recorder.args(arguments).args(["--via", &via]).stderr(Stdio::piped());
    let recorder = end_with_test(&mut recorder).spawn().expect("pfp-top starts");
    let frames = || {
        let mut recorded = source::open(&near.0.path("run.rec")).ok()?;
        Some(recorded.recording()?.len())
    };
    let more = |than: usize| wait_for("more moments", || frames().filter(|now| *now > than));
    let before = more(3);
    let agents = || -> Vec<u32> {
        let pids = std::fs::read_to_string(near.0.path("pids")).unwrap_or_default();
        pids.lines().filter_map(|pid| pid.trim().parse().ok()).collect()
    };
    os::signal(agents()[0], libc::SIGKILL);
    wait_for("the next line", || agents().len() > 1);
    more(before + 20);
    os::signal(recorder.id(), libc::SIGINT);
    let output = recorder.wait_with_output().expect("it ends");
    pfp_tests::well(&output);
    assert!(complaint(&output).contains("the connection was lost"), "{}", complaint(&output));
    // Each record is delivered or counted as lost, also across the lost connection.
    let mut recorded = source::open(&near.0.path("run.rec")).expect("it can be read");
    let recording = recorded.recording().expect("it is one");
    let events: Vec<_> =
        (0..recording.len()).flat_map(|place| recording.events(place).expect("whole")).collect();
    let delivered_or_lost: u64 =
        events.iter().map(|lane| lane.records.len() as u64 + lane.lost).sum();
    let written: u64 = recorded.poll().unwrap().lanes.iter().map(|lane| lane.records_written).sum();
    assert_eq!(delivered_or_lost, written);
}

#[test]
fn a_process_of_another_place_is_compared_with_files() {
    let near = Near::new();
    let [far, before] = ["far", "before"].map(|name| near.0.start_watched(STEADY, &[name]));
    for target in [&far, &before] {
        wait_for("figures", || has_counted(&near.0.snapshot(target), "work", 100));
    }
    let pid = far.pid().to_string();
    for (name, target) in [("far.json", &far), ("before.json", &before)] {
        let pid = target.pid().to_string();
        let output = near.0.pfp_top(&["snapshot", "-p", &pid, "-o", name]);
        pfp_tests::well(&output);
    }
    let run = |arguments: &[&str]| {
        let output = near.run(&near.via(), arguments);
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &complaint(&output);
        (output.status.code(), said)
    };
    let limits = ["--max-regress", "mean=100000%"];
    let gate = [&["gate", "--baseline", "before.json"], &limits[..], &["-p", &pid]].concat();
    let (status, said) = run(&gate);
    assert!(status == Some(0) && said.contains("work"), "{said}");
    // All processes of a job belong to one run.
    let output = near.0.pfp_top(&["snapshot", "--all", "-o", "job.json"]);
    pfp_tests::well(&output);
    let job = |more: &[&str]| {
        run(&[&["gate", "--baseline", "job.json", "--json"], &limits[..], more].concat())
    };
    for which in [&["--all"][..], &["--sum"], &["-p", &pid, "-p", &before.pid().to_string()]] {
        let (status, said) = job(which);
        assert!(status == Some(2) && said.contains("is on both sides"), "{said}");
        let (status, said) = job(&[which, &["-d", "100ms", "-n", "3"]].concat());
        assert_eq!(status, Some(0), "{said}");
        assert!(said.contains("\"work\""), "{said}");
        assert!(!said.contains("pfp.overhead"), "{said}");
    }
    let (status, said) = job(&["--all", "far.json"]);
    assert!(status == Some(2) && said.contains("cannot be used with"), "{said}");
    let files = [&["gate", "--baseline", "before.json"], &limits[..], &["far.json"]].concat();
    let (status, said) = run(&files);
    assert!(
        status == Some(2) && said.contains("expected -p PID, --name, --all or --sum with --via"),
        "{said}"
    );
    // Compared with another process, the counts are complete; compared with an earlier snapshot of
    // the same process, they are the increase since then.
    let counts = |baseline: &str| {
        let (status, said) = run(&["diff", baseline, "-p", &pid, "--json"]);
        assert_eq!(status, Some(0), "{said}");
        let found: Value = serde_json::from_str(&said).expect("it is JSON");
        let points = found["points"].as_array().expect("it has points").clone();
        let work = points.iter().find(|point| point["name"] == "work").expect("it is there");
        ["before", "now"]
            .map(|side| work[side]["count"].as_u64().unwrap_or_else(|| panic!("{work}")))
    };
    let [_, all] = counts("before.json");
    let [saved, more] = counts("far.json");
    let now = place::count(&near.0.snapshot(&far), "work");
    assert!(saved <= all && 0 < more && saved + more <= now, "{saved}, {more}; {all}, {now}");
    let (status, said) = run(&["diff", "before.json", "far.json", "--sum"]);
    assert!(status == Some(2) && said.contains("would be on both sides"), "{said}");
    let (status, said) = run(&["diff", "-p", &pid]);
    assert!(
        status == Some(2) && said.contains("name a file to compare the process with"),
        "{said}"
    );
}

#[test]
fn the_viewer_uploads_itself() {
    let near = Near::new();
    let target = near.0.start_watched(STEADY, &["far"]);
    let (bin, temporary) = (near.0.path("tools"), near.0.path("temporary"));
    for folder in [&bin, &temporary] {
        std::fs::create_dir(folder).expect("the folder is new");
    }
    // A path without the folders of this test's own path.
    let via = |path: &str| {
        let (beacons, temporary) = (near.0.beacons().display(), temporary.display());
        format!("env -i PATH={path} PFP_DIR={beacons} TMPDIR={temporary}")
    };
    let system = "/usr/bin:/bin";
    let left = || std::fs::read_dir(&temporary).expect("it is there").count();
    let run = |via: &str| near.run(via, &["list", "--via-copy"]);

    let output = near.run(&via(system), &["list"]);
    assert_eq!(output.status.code(), Some(3), "{}", complaint(&output));
    assert!(complaint(&output).contains("send this one with --via-copy"));
    let output = run(&via(system));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains(&target.pid().to_string()), "{text}{}", complaint(&output));
    assert_eq!(left(), 0);
    // The upload leaves no file on the other machine, also while it runs.
    let mut watching = near.0.command(pfp_top());
    watching.args(["-b", "--json", "-i", "0.1", "--via", &via(system), "--via-copy"]);
    let mut watching = Target::start(&mut watching);
    wait_for("figures from there", || !watching.lines_so_far().is_empty());
    assert_eq!(left(), 0);

    // If the uploaded program could not run, the viewer prints the reason and uploads nothing.
    let fake = |tool: &str, says: &str| {
        let path = bin.join(tool);
        std::fs::write(&path, format!("#!/bin/sh\n{says}\n")).expect("the folder is new");
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("it is ours");
    };
    let with_fakes = via(&format!("{}:{system}", bin.display()));
    let refused = |via: &str, words: &str| {
        let output = run(via);
        assert!(
            !output.status.success() && complaint(&output).contains(words),
            "{words}: {}",
            complaint(&output)
        );
        assert_eq!(left(), 0, "{words}");
    };
    fake("getconf", "echo glibc 2.5");
    refused(&with_fakes, "or later, found glibc 2.5");
    fake("getconf", "exit 1");
    refused(&with_fakes, "found another C library");
    fake("uname", "echo sparc");
    refused(&with_fakes, "found sparc on sparc");
    refused(&via("/nowhere"), "pfp-top is not on the path there");
    // The connection is cut in the middle of the upload.
    let cut = format!("{} sh -c 'dd bs=1 count=9000 2>/dev/null | sh' --", via(system));
    refused(&cut, "ended");
    refused("true", "ended");
    refused("cat", "ended");
}

#[test]
fn a_command_that_starts_no_agent_is_reported() {
    let near = Near::new();
    let say = |name: &str, bytes: &[u8]| {
        std::fs::write(near.0.path(name), bytes).expect("there is room");
        format!("cat {}; sleep 0.2 #", near.0.path(name).display())
    };
    let message = |head: &str| {
        let len = (head.len() as u32).to_le_bytes();
        [MAGIC, &len, &len, head.as_bytes()].concat()
    };
    let other =
        message(r#"{"number":0,"answer":{"Hello":{"version":99,"program":"9.9\u001b[2J"}}}"#);
    let wrong = message(r#"{"number":0,"answer":"Done"}"#);
    let bring = "install it, or send this one with --via-copy";
    for (via, status, expected) in [
        ("true #".to_owned(), 2, "did not start `pfp-top agent`, and printed nothing"),
        ("echo welcome; exit 5 #".to_owned(), 2, "but printed \"welcome\""),
        ("echo no such host >&2; exit 255 #".to_owned(), 2, "(no such host)"),
        ("/nowhere/at/all".to_owned(), 3, "pfp-top is not on the path there"),
        ("echo sudo: pfp-top: command not found >&2; exit 1 #".to_owned(), 3, bring),
        ("echo 'exec: \"pfp-top\": executable file not found in $PATH' >&2; exit 126 #".to_owned(), 3, bring),
        ("printf 'pfp-top: No such file or directory\nit ended with exit code 126\n' >&2; exit 1 #".to_owned(), 3, bring),
        ("echo 'pfp-top: Permission denied' >&2; exit 126 #".to_owned(), 2, bring),
        ("head -c 200000 /dev/zero #".to_owned(), 2, "did not start `pfp-top agent`"),
        (say("other", &other), 5, "install the same one at both ends"),
        (say("wrong", &wrong), 2, "expected a greeting"),
        (say("long", &[MAGIC, &[0xff; 8]].concat()), 2, "expected a message of at most"),
        (say("cut", &other[..30]), 2, "in the middle of a message"),
        (say("garbage", &message("{]}")), 2, "a message cannot be read"),
    ] {
        let output = near.run(&via, &["--once"]);
        let said = complaint(&output);
        assert_eq!(output.status.code(), Some(status), "{via}: {said}");
        assert!(said.contains(expected) && !said.contains('\x1b'), "{via}: {said}");
        assert!(!said.contains("TMPDIR"), "{via}: {said}");
    }
    let output = near.run("exit 126 #", &["--once", "--via-copy"]);
    assert!(complaint(&output).contains("name another, such as --via"), "{}", complaint(&output));
    // Text that a shell prints when it starts does not disturb the protocol.
    let _target = near.0.start_watched(STEADY, &["far"]);
    let output = near.run("echo welcome; ", &["--once"]);
    pfp_tests::well(&output);
}

#[test]
fn a_cut_or_garbled_connection_does_no_harm() {
    let near = Near::new();
    let _target = near.0.start_watched(STEADY, &["far"]);
    let run = |via: &str| {
        let output = near.run(via, &["--once", "--json", "-i", "0.1"]);
        let said = complaint(&output);
        assert!(!said.contains("panicked") && output.status.code().is_some(), "{via}: {said}");
        output.status.success()
    };
    // The agent's whole output; the test then cuts it after fewer and fewer bytes.
    let all = near.0.path("all");
    assert!(run(&format!("pfp-top agent | tee {} #", all.display())));
    let whole = std::fs::metadata(&all).expect("it was written").len();
    together([0, 5, 9, 14, 40, 60], |part| {
        let bytes = whole * part / 100;
        assert!(
            !run(&format!("timeout 2 pfp-top agent | head -c {bytes} #")),
            "{bytes} of {whole}"
        );
    });
    // Some characters of the output are replaced by others.
    together(["0 1", "a b", "{ [", "'\\001' '\\200'"], |letters| {
        run(&format!("timeout 2 pfp-top agent | stdbuf -o0 tr {letters} #"));
    });
}

#[test]
fn the_screen_says_how_old_its_figures_are_and_goes_on() {
    needs_a_screen!();
    let near = Near::new();
    let target = near.0.start_watched(STEADY, &["far"]);
    let screen = near.0.screen(120, 30);
    // Each agent writes its process id to a file.
    let via = format!("{}; echo $$ > pid; exec", near.via());
    screen.pfp_top(&format!("--via '{via}' -i 0.2 --sort name"));
    let head = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    screen.wait_for("the process", |text| {
        head(text).contains(&format!("far[{}]", target.pid())) && row(text, "tick").is_some()
    });
    let signal = |signal: i32| {
        let pid = std::fs::read_to_string(near.0.path("pid")).expect("it was written");
        // SAFETY: the call takes no pointers.
        assert_eq!(unsafe { libc::kill(pid.trim().parse().expect("an id"), signal) }, 0);
    };
    signal(libc::SIGSTOP);
    screen.wait_for("that it is silent", |text| {
        head(text).contains("LATE") && row(text, "tick").is_some()
    });
    signal(libc::SIGCONT);
    screen.wait_for("that it speaks", |text| head(text).ends_with("LIVE"));
    signal(libc::SIGKILL);
    screen.wait_for("that it is lost", |text| {
        head(text).contains("LATE")
            && text.contains("the connection was lost")
            && row(text, "tick").is_some()
    });
    screen.wait_for("the next line", |text| head(text).ends_with("LIVE"));
    // A change that the agent did not apply before it died is reported.
    screen.select("tick");
    signal(libc::SIGSTOP);
    screen.wait_for("that it is silent", |text| head(text).contains("LATE"));
    screen.press(&["e"], "an answer", |text| {
        text.lines().last().unwrap_or_default().contains("tick")
    });
    signal(libc::SIGKILL);
    let count = |text: &str| row(text, "tick").map(|row| row.count().to_owned());
    let before =
        screen.wait_for("what became of it", |text| text.contains("before the last change"));
    screen.wait_for("the next line", |text| {
        head(text).ends_with("LIVE") && count(text) != count(&before)
    });
    assert_eq!(near.state(&target, "tick"), PointState::On);
    screen.keys(&["e"]);
    wait_for("it to be off there", || near.state(&target, "tick") == PointState::Off);
    screen.quit();
    assert_eq!(near.state(&target, "tick"), PointState::On);
}

/// An agent that is stopped answers no change; the keys do not wait for it.
#[test]
fn keys_that_switch_points_do_not_wait_for_the_answer() {
    let near = Near::new();
    let target = near.0.start_watched(STEADY, &["far"]);
    let (bin, beacons, pid) = (near.via(), near.0.beacons(), near.0.path("pid"));
    let (beacons, file) = (beacons.display(), pid.display());
    let command = format!("export {bin} PFP_DIR={beacons}; echo $$ > {file}; exec");
    let route = Route { command, copies: false };
    let mut finder = pfp_remote::finder(&[route], false, Duration::ZERO).expect("it starts");
    finder.ready_for_screen();
    let found = finder.discover().expect("it answers").candidates;
    let candidate = found.iter().find(|it| it.pid == target.pid()).expect("it runs");
    let source = finder.attach(candidate).expect("it runs");
    let mut app = App::new(Options::default(), finder, Instant::now());
    app.watch(source, Instant::now());
    let tick = |app: &mut App| {
        app.poll(Instant::now());
        app.common.model.points().iter().find(|it| it.name() == "tick").map(|it| it.id())
    };
    wait_for("figures", || {
        app.common.selected = tick(&mut app);
        app.common.selected.is_some()
    });
    let agent = std::fs::read_to_string(&pid).expect("it was written");
    let agent = agent.trim().parse().expect("an id");
    os::signal(agent, libc::SIGSTOP);
    // A request of so many changes fills the pipe to the agent.
    for _ in 0..9_999 {
        app.key(KeyEvent::from(KeyCode::Char('e')), Instant::now());
    }
    let start = Instant::now();
    app.key(KeyEvent::from(KeyCode::Char('e')), start);
    app.key(KeyEvent::from(KeyCode::Char('e')), start);
    app.poll(start);
    let took = start.elapsed();
    let said = |app: &App| app.common.toast.as_ref().map(|toast| toast.text.clone());
    assert_eq!(said(&app).as_deref(), Some("tick is off, not confirmed yet"));
    assert!(took < Duration::from_millis(300), "{took:?}");
    os::signal(agent, libc::SIGCONT);
    wait_for("the answer", || {
        app.poll(Instant::now());
        said(&app).as_deref() == Some("tick is off")
    });
    assert_eq!(near.state(&target, "tick"), PointState::Off);
    drop(app);
    wait_for("it to be put back", || near.state(&target, "tick") == PointState::On);
}

/// The agent sends the table as sums over threads; the screens do not show a difference.
#[test]
fn screens_equal_those_of_a_viewer_on_that_machine() {
    needs_a_screen!();
    let near = Near::new();
    let mut target = near.0.start_watched(STEADY, &["far"]);
    wait_for("figures", || has_counted(&near.0.snapshot(&target), "tick", 3));
    target.kill();
    // The text of the screens; a screen may need a moment to show the expected text.
    let shown = |via: &str, expected: &[String]| -> Vec<String> {
        let screen = near.0.screen(140, 40);
        screen.pfp_top(&format!("-p {} -i 0.2 --sort name {via}", target.pid()));
        let body = |text: &str| {
            let lines: Vec<&str> = text.lines().skip(2).take(30).map(str::trim_end).collect();
            lines.join("\n")
        };
        let mut all = Vec::new();
        let mut see = |what: &str, shows: &dyn Fn(&str) -> bool| {
            let expected = expected.get(all.len());
            let text = screen.wait_for(what, |text| {
                shows(text) && expected.is_none_or(|expected| body(text) == *expected)
            });
            all.push(body(&text));
        };
        let filter = |text: &str| {
            screen.fill("/", text);
            screen.keys(&["Enter"]);
        };
        see("the table", &|text| row(text, "tick").is_some());
        filter("thread:ticker");
        see("its points", &|text| row(text, "tick").is_some() && row(text, "work").is_none());
        filter("");
        screen.select("tick");
        for (keys, tab) in [("Enter", "[2 Detail]"), ("3", "[3 Threads]"), ("8", "[8 Tree]")] {
            screen.keys(&[keys]);
            see(tab, &|text| text.contains(tab));
        }
        screen.keys(&["1"]);
        screen.fill("w", if via.is_empty() { "here.json" } else { "there.json" });
        screen.press(&["Enter"], "that it is written", |text| text.contains("wrote "));
        screen.quit();
        all
    };
    let via = format!("--via '{}'", near.via());
    let here = shown("", &[]);
    assert_eq!(shown(&via, &here), here);
    let read = |name: &str| {
        let text = std::fs::read_to_string(near.0.path(name)).expect("it was written");
        let mut value: Value = serde_json::from_str(&text).expect("it is JSON");
        value["taken_unix_ns"] = Value::Null;
        value
    };
    assert_eq!(read("here.json"), read("there.json"));
}
