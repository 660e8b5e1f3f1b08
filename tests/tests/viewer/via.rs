//! Processes of another place: by commands that lead there, over lines that are cut, garbled,
//! silent or hostile, and through a real sshd.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};

use pfp_tests::place::{self, Place, has_counted, pfp_top};
use pfp_tests::screen::{row, rows};
use pfp_tests::target::{Target, end_with_test, wait_for};
use pfp_tests::tools::{lacks, missing};
use pfp_tests::{figure, needs_a_screen, os};
use pfp_top::snapshot::{PointState, Snapshot};
use pfp_top::source;
use serde_json::{Value, json};

const STEADY: &str = env!("CARGO_BIN_EXE_steady");
/// What an agent says first.
const MAGIC: &[u8] = b"\x89PFPVIA\r\n";

/// A place where `pfp-top` is on the path.
struct Near(Place);

impl Near {
    fn new() -> Self {
        let place = Place::new();
        std::fs::create_dir(place.path("bin")).expect("the folder is new");
        symlink(pfp_top(), place.path("bin/pfp-top")).expect("the folder is new");
        Self(place)
    }

    /// A shell's words for a command whose path has it.
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

    fn state(&self, target: &Target, name: &str) -> PointState {
        let snapshot = self.0.snapshot(target);
        snapshot.points.iter().find(|point| point.name == name).expect("it is there").state
    }
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn figures_are_those_that_a_viewer_there_shows() {
    let near = Near::new();
    let mut target = near.0.start_watched(STEADY, &["far"]);
    wait_for("figures", || has_counted(&near.0.snapshot(&target), "tick", 3));
    target.kill();
    let pid = target.pid().to_string();
    let picture = |output: Output, name: &str| {
        assert!(output.status.success(), "{}", complaint(&output));
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
    // A process that is nowhere: the other end's, not this one's, are looked through.
    let output = near.run(&near.via(), &["snapshot", "-p", "1", "-o", "none.json"]);
    assert_eq!(output.status.code(), Some(3), "{}", complaint(&output));
    assert!(complaint(&output).contains("far["), "{}", complaint(&output));
    let output = near.run(&near.via(), &["save-raw", "-p", &pid, "-o", "raw"]);
    assert!(complaint(&output).contains("save-raw` there"), "{}", complaint(&output));
}

#[test]
fn a_recording_and_a_sum_of_another_place_are_as_of_this_one() {
    let near = Near::new();
    let targets = ["one", "two"].map(|name| near.0.start_watched(STEADY, &[name]));
    let pid = targets[0].pid().to_string();
    let arguments = ["record", "-p", &pid, "-i", "50ms", "-d", "1s", "--events", "-o", "run.rec"];
    let output = near.run(&near.via(), &arguments);
    assert!(output.status.success(), "{}", complaint(&output));
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
    assert!(output.status.success(), "{}", complaint(&output));
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
    assert!(output.status.success(), "{}", complaint(&output));
    assert!(complaint(&output).contains("the line was lost"), "{}", complaint(&output));
    // No measurement was lost between the lines that the ring still had.
    let mut recorded = source::open(&near.0.path("run.rec")).expect("it can be read");
    let recording = recorded.recording().expect("it is one");
    let events: Vec<_> =
        (0..recording.len()).flat_map(|place| recording.events(place).expect("whole")).collect();
    let told: u64 = events.iter().map(|lane| lane.records.len() as u64 + lane.lost).sum();
    let written: u64 = recorded.poll().unwrap().lanes.iter().map(|lane| lane.records_written).sum();
    assert_eq!(told, written);
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
        assert!(output.status.success(), "{}", complaint(&output));
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
    let files = [&["gate", "--baseline", "before.json"], &limits[..], &["far.json"]].concat();
    let (status, said) = run(&files);
    assert!(status == Some(2) && said.contains("expected -p PID with --via"), "{said}");
    // Of another process all, of the same one what it has more.
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
    assert!(status == Some(2) && said.contains("the files to compare it with"), "{said}");
}

#[test]
fn several_places_are_as_one() {
    let (near, other) = (Near::new(), Place::new());
    let mut one = near.0.start_watched(STEADY, &["one"]);
    let two = other.start_watched(STEADY, &["two"]);
    let there = format!("PFP_DIR={} nice", other.beacons().display());
    let both = ["env", there.as_str()];
    let read = |name: &str| source::open(&near.0.path(name)).unwrap().poll().unwrap();

    let output = near.run_by(&both, &["snapshot", "--all", "-o", "all.json"]);
    assert!(output.status.success(), "{}", complaint(&output));
    let all = read("all.json");
    let mut names: Vec<_> = all.process.members.iter().map(|it| it.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["one@env", "two@nice"]);
    let output = near.run_by(&both, &["disable", "--name", "two@nice", "tick"]);
    assert!(output.status.success(), "{}", complaint(&output));
    let state = |snapshot: &Snapshot| {
        snapshot.points.iter().find(|point| point.name == "tick").expect("it is there").state
    };
    assert_eq!(state(&other.snapshot(&two)), PointState::Off);
    assert_eq!(near.state(&one, "tick"), PointState::On);

    // Their clocks may differ: ticks are nanoseconds.
    one.kill();
    let pid = one.pid().to_string();
    let output = near.run_by(&both, &["snapshot", "-p", &pid, "-o", "one.json"]);
    assert!(output.status.success(), "{}", complaint(&output));
    let (here, there) = (near.0.snapshot(&one), read("one.json"));
    assert_eq!(there.clock.ticks_per_second, 1e9);
    assert_eq!(here.cells.len(), there.cells.len());
    for (here, there) in here.cells.iter().zip(&there.cells) {
        assert_eq!(here.stats.count, there.stats.count);
    }
    let seconds = |snapshot: &Snapshot| {
        let ticks: u64 = snapshot.cells.iter().map(|cell| cell.stats.inclusive).sum();
        ticks as f64 / snapshot.clock.ticks_per_second
    };
    let (here, there) = (seconds(&here), seconds(&there));
    assert!((here / there - 1.0).abs() < 1e-5, "{here} {there}");

    // Two commands that lead to one place show each process once.
    let output = near.run_by(&["env", "nice env"], &["list", "--json"]);
    let listed: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");

    // One that cannot be reached keeps nobody from the others.
    let output = near.run_by(&["env", "/nowhere/at/all"], &["list"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("one@env"), "{text}{}", complaint(&output));
    let output = near.run_by(&["/nowhere/at/all", "/nowhere/else"], &["list"]);
    assert_eq!(output.status.code(), Some(3), "{}", complaint(&output));
}

#[test]
fn the_list_on_the_screen_has_the_processes_of_all_places() {
    needs_a_screen!();
    let (near, other) = (Near::new(), Place::new());
    let screen = near.0.screen(140, 30);
    let here = near.via();
    let there = format!("{here} PFP_DIR={} nice", other.beacons().display());
    screen.pfp_top(&format!("--via '{here} env' --via '{there}' -i 0.2"));
    screen.wait_for("why there is nothing", |text| {
        text.contains("env: no instrumented process") && text.contains("nice: no instrumented")
    });
    let one = near.0.start_watched(STEADY, &["one"]);
    let head = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    let is_shown = |target: &Target, name: &str| {
        let name = format!("{name}[{}]", target.pid());
        move |text: &str| head(text).contains(&name) && row(text, "tick").is_some()
    };
    screen.wait_for("the only process", is_shown(&one, "one@env"));
    let two = other.start_watched(STEADY, &["two"]);
    screen.keys(&["P"]);
    let line = |text: &str, name: &str| {
        text.lines().position(|line| line.contains(&format!("{name}  "))).unwrap_or_default()
    };
    let text = screen.wait_for("both", |text| line(text, "one@env") * line(text, "two@nice") > 0);
    // The last that was started comes first.
    screen.keys(match line(&text, "two@nice") < line(&text, "one@env") {
        true => &["Home", "Enter"],
        false => &["End", "Enter"],
    });
    screen.wait_for("the one of the other place", is_shown(&two, "two@nice"));
    screen.keys(&["q"]);
    screen.wait_for_shell();
}

#[test]
fn places_are_read_from_a_file() {
    let near = Near::new();
    let _one = near.0.start_watched(STEADY, &["one"]);
    let other = Place::new();
    let _two = other.start_watched(STEADY, &["two"]);
    let lines = format!(
        "# where our ranks run\n\nnice env\n  PFP_DIR={} nice  \nnowhere.invalid\n",
        other.beacons().display()
    );
    let file = near.0.path("hosts.txt");
    std::fs::write(&file, lines).expect("the folder is new");
    let list = |file: &str| near.run_by(&[], &["list", "--via-file", file]);
    let output = list("hosts.txt");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("one@env") && text.contains("two@nice"), "{text}");
    assert!(complaint(&output).contains("ssh nowhere.invalid"), "{}", complaint(&output));
    std::fs::write(&file, "# nobody\n").expect("it is there");
    for (file, words) in [("hosts.txt", "found none"), ("missing.txt", "No such file")] {
        let output = list(file);
        assert_eq!(output.status.code(), Some(2), "{}", complaint(&output));
        assert!(complaint(&output).contains(words), "{}", complaint(&output));
    }
}

#[test]
fn this_program_is_taken_along() {
    let near = Near::new();
    let target = near.0.start_watched(STEADY, &["far"]);
    let (bin, temporary) = (near.0.path("tools"), near.0.path("temporary"));
    for folder in [&bin, &temporary] {
        std::fs::create_dir(folder).expect("the folder is new");
    }
    // Without what this test's own path has.
    let via = |path: &str| {
        let (beacons, temporary) = (near.0.beacons().display(), temporary.display());
        format!("env -i PATH={path} PFP_DIR={beacons} TMPDIR={temporary}")
    };
    let system = "/usr/bin:/bin";
    let left = || std::fs::read_dir(&temporary).expect("it is there").count();
    let run = |via: &str| near.run(via, &["list", "--via-copy"]);

    let output = near.run(&via(system), &["list"]);
    assert_eq!(output.status.code(), Some(3), "{}", complaint(&output));
    assert!(complaint(&output).contains("--via-copy takes this one along"));
    let output = run(&via(system));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains(&target.pid().to_string()), "{text}{}", complaint(&output));
    assert_eq!(left(), 0);
    // No file is there while it runs either.
    let mut watching = near.0.command(pfp_top());
    watching.args(["-b", "--json", "-i", "0.1", "--via", &via(system), "--via-copy"]);
    let mut watching = Target::start(&mut watching);
    wait_for("figures from there", || !watching.lines_so_far().is_empty());
    assert_eq!(left(), 0);

    // Where it would not run, it says why, and sends nothing.
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
    refused(&via("/nowhere"), "expected pfp-top on the path there");
    // The line is cut in the middle of the program.
    let cut = format!("{} sh -c 'dd bs=1 count=9000 2>/dev/null | sh' --", via(system));
    refused(&cut, "ended");
    refused("true", "ended");
    refused("cat", "ended");
}

/// An agent that is spoken with byte by byte.
struct Agent {
    child: Child,
    input: Option<ChildStdin>,
    number: u32,
    /// Bytes of the last answer.
    came: usize,
}

impl Agent {
    fn start(place: &Place) -> Self {
        let mut command = place.command(pfp_top());
        command.arg("agent").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = end_with_test(&mut command).spawn().expect("pfp-top starts");
        let input = child.stdin.take();
        let mut magic = [0; 9];
        child.stdout.as_mut().unwrap().read_exact(&mut magic).expect("it speaks");
        assert_eq!(magic, MAGIC);
        Self { child, input, number: 0, came: 0 }
    }

    /// Asks, and waits for the answer.
    fn ask(&mut self, ask: Value) -> Value {
        let head = json!({ "number": self.number, "ask": ask }).to_string();
        let len = (head.len() as u32).to_le_bytes();
        let input = self.input.as_mut().unwrap();
        input.write_all(&[&len[..], &len[..], head.as_bytes()].concat()).expect("it reads");
        let mut lengths = [0; 8];
        let output = self.child.stdout.as_mut().unwrap();
        output.read_exact(&mut lengths).expect("it answers");
        let at = |at: usize| u32::from_le_bytes(lengths[at..at + 4].try_into().unwrap()) as usize;
        let mut message = vec![0; at(0)];
        self.came = lengths.len() + message.len();
        output.read_exact(&mut message).expect("it answers");
        let reply: Value = serde_json::from_slice(&message[..at(4)]).expect("it is JSON");
        assert_eq!(reply["number"], self.number);
        self.number += 1;
        reply["answer"].clone()
    }

    /// Asks for a picture, and promises the next request within so many seconds.
    fn picture(&mut self, extent: &str, within_s: Option<u64>) -> Value {
        self.ask(json!({ "Picture": { "source": 0, "extent": extent, "within_s": within_s } }))
    }

    /// Watches a process, and switches one of its points off.
    fn switch_off(&mut self, place: &Place, target: &Target, name: &str, keep: bool) {
        let hello = self.ask(json!({ "Hello": { "keep": keep } }));
        assert_eq!(hello["Hello"]["version"], 3, "{hello}");
        let snapshot = place.snapshot(target);
        let segment = &snapshot.process.segment_id;
        let point = snapshot.points.iter().find(|point| point.name == name).unwrap().id;
        let attach = json!({ "Attach": { "source": 0, "segment_id": segment } });
        let attached = self.ask(attach);
        assert!(attached["Attached"].is_object(), "{attached}");
        assert!(self.picture("All", None)["Picture"].is_object());
        let act = json!({ "Act": { "source": 0, "change": { "Disable": point } } });
        assert_eq!(self.ask(act), "Done");
    }

    /// Cuts the line, after these last words.
    fn cut(mut self, last: &[u8]) -> Output {
        let mut input = self.input.take().unwrap();
        // It may have gone already.
        let _ = input.write_all(last);
        drop(input);
        self.child.wait_with_output().expect("it ends")
    }
}

#[test]
fn what_was_switched_is_put_back_when_the_line_breaks_and_only_then() {
    let near = Near::new();
    let target = near.0.start_watched(STEADY, &["far"]);
    wait_for("the point", || {
        near.0.snapshot(&target).points.iter().any(|point| point.name == "tick")
    });
    let goodbye = br#"{"number":9,"ask":"Goodbye"}"#;
    let len = (goodbye.len() as u32).to_le_bytes();
    let goodbye = [&len[..], &len[..], goodbye].concat();
    for (keep, last, left) in [
        (false, &b""[..], PointState::On),
        (false, &goodbye[..7], PointState::On),
        (false, &b"\xff\xff\xff\xff\xff\xff\xff\xff"[..], PointState::On),
        (true, &b""[..], PointState::Off),
        (false, &goodbye[..], PointState::Off),
    ] {
        let enabled = near.0.pfp_top(&["enable", "tick"]);
        assert!(enabled.status.success(), "{}", complaint(&enabled));
        let mut agent = Agent::start(&near.0);
        agent.switch_off(&near.0, &target, "tick", keep);
        assert_eq!(near.state(&target, "tick"), PointState::Off);
        let ended = agent.cut(last);
        assert!(!complaint(&ended).contains("panicked"), "{}", complaint(&ended));
        assert_eq!(near.state(&target, "tick"), left, "{keep} {last:?}");
    }
    // A signal ends it as the end of the line does; that of a key is for the viewer.
    let enabled = near.0.pfp_top(&["enable", "tick"]);
    assert!(enabled.status.success(), "{}", complaint(&enabled));
    for signal in [libc::SIGTERM, libc::SIGHUP] {
        let mut agent = Agent::start(&near.0);
        agent.switch_off(&near.0, &target, "tick", false);
        os::signal(agent.child.id(), libc::SIGINT);
        assert!(agent.ask(json!("Discover"))["Found"].is_object());
        assert_eq!(near.state(&target, "tick"), PointState::Off);
        os::signal(agent.child.id(), signal);
        wait_for("it to be put back", || near.state(&target, "tick") == PointState::On);
        assert!(agent.child.wait().expect("it is ours").success());
    }
    // A command says goodbye.
    let output = near.run(&near.via(), &["disable", "tick"]);
    assert!(output.status.success(), "{}", complaint(&output));
    assert_eq!(near.state(&target, "tick"), PointState::Off);
    let output = near.run(&near.via(), &["enable", "tick"]);
    assert!(output.status.success(), "{}", complaint(&output));
    assert_eq!(near.state(&target, "tick"), PointState::On);
}

/// A line that falls silent need not end: a network may be gone for hours before anybody is told.
#[test]
fn what_was_switched_is_put_back_when_the_viewer_breaks_its_promise() {
    let near = Near::new();
    let target = near.0.start_watched(STEADY, &["far"]);
    wait_for("the point", || {
        near.0.snapshot(&target).points.iter().any(|point| point.name == "tick")
    });
    let mut agent = Agent::start(&near.0);
    agent.switch_off(&near.0, &target, "tick", false);
    assert!(agent.picture("Sums", Some(3600))["Picture"].is_object());
    assert_eq!(near.state(&target, "tick"), PointState::Off);
    assert!(agent.picture("Sums", Some(1))["Picture"].is_object());
    wait_for("it to be put back", || near.state(&target, "tick") == PointState::On);
    // The line goes on as if nothing had been.
    assert!(agent.picture("Sums", Some(3600))["Picture"].is_object());
    assert!(agent.child.try_wait().expect("it is ours").is_none());

    let mut agent = Agent::start(&near.0);
    agent.switch_off(&near.0, &target, "tick", true);
    assert!(agent.picture("Sums", Some(0))["Picture"].is_object());
    assert!(agent.ask(json!("Discover"))["Found"].is_object());
    assert_eq!(near.state(&target, "tick"), PointState::Off, "it was to stay");
}

#[test]
fn what_is_no_agent_is_told_in_a_sentence() {
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
    let bring = "install it there, or --via-copy takes this one along";
    for (via, status, expected) in [
        ("true #".to_owned(), 2, "expected an agent of pfp-top, found nothing"),
        ("echo welcome; exit 5 #".to_owned(), 2, "found \"welcome\""),
        ("echo no such host >&2; exit 255 #".to_owned(), 2, "(no such host)"),
        ("/nowhere/at/all".to_owned(), 3, "expected pfp-top on the path there"),
        ("echo sudo: pfp-top: command not found >&2; exit 1 #".to_owned(), 3, bring),
        ("echo 'exec: \"pfp-top\": executable file not found in $PATH' >&2; exit 126 #".to_owned(), 3, bring),
        ("printf 'pfp-top: No such file or directory\nit ended with exit code 126\n' >&2; exit 1 #".to_owned(), 3, bring),
        ("echo 'pfp-top: Permission denied' >&2; exit 126 #".to_owned(), 2, bring),
        ("head -c 200000 /dev/zero #".to_owned(), 2, "expected an agent of pfp-top"),
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
    assert!(complaint(&output).contains("TMPDIR names another"), "{}", complaint(&output));
    // What a shell prints as it starts is in nobody's way.
    let _target = near.0.start_watched(STEADY, &["far"]);
    let output = near.run("echo welcome; ", &["--once"]);
    assert!(output.status.success(), "{}", complaint(&output));
}

#[test]
fn a_line_that_is_cut_or_garbled_anywhere_harms_nobody() {
    let near = Near::new();
    let _target = near.0.start_watched(STEADY, &["far"]);
    let run = |via: &str| {
        let output = near.run(via, &["--once", "--json", "-i", "0.1"]);
        let said = complaint(&output);
        assert!(!said.contains("panicked") && output.status.code().is_some(), "{via}: {said}");
        output.status.success()
    };
    // All that the agent says, which is so long; and then less of it.
    let all = near.0.path("all");
    assert!(run(&format!("pfp-top agent | tee {} #", all.display())));
    let whole = std::fs::metadata(&all).expect("it was written").len();
    for part in [0, 5, 9, 14, 40, 60] {
        let bytes = whole * part / 100;
        assert!(
            !run(&format!("timeout 2 pfp-top agent | head -c {bytes} #")),
            "{bytes} of {whole}"
        );
    }
    // Some letters of it as others.
    for letters in ["0 1", "a b", "{ [", "'\\001' '\\200'"] {
        run(&format!("timeout 2 pfp-top agent | stdbuf -o0 tr {letters} #"));
    }
}

#[test]
fn the_screen_says_how_old_its_figures_are_and_goes_on() {
    needs_a_screen!();
    let near = Near::new();
    let target = near.0.start_watched(STEADY, &["far"]);
    let screen = near.0.screen(120, 30);
    // Each agent tells its process id.
    let via = format!("{}; echo $$ > pid; exec", near.via());
    screen.pfp_top(&format!("--via '{via}' -i 0.2 --sort name"));
    let head = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    screen.wait_for("the process", |text| {
        head(text).contains(&format!("far[{}]", target.pid())) && row(text, "tick").is_some()
    });
    let signal = |signal: i32| {
        let pid = std::fs::read_to_string(near.0.path("pid")).expect("it was written");
        // SAFETY: to send a signal touches no memory.
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
            && text.contains("the line was lost")
            && row(text, "tick").is_some()
    });
    screen.wait_for("the next line", |text| head(text).ends_with("LIVE"));
    // A change that no agent lived to make is told of.
    screen.select("tick");
    signal(libc::SIGSTOP);
    screen.wait_for("that it is silent", |text| head(text).contains("LATE"));
    screen.keys(&["e"]);
    screen.wait_for("an answer", |text| text.lines().last().unwrap_or_default().contains("tick"));
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
    screen.keys(&["q"]);
    screen.wait_for_shell();
    assert_eq!(near.state(&target, "tick"), PointState::On);
}

#[test]
fn one_of_several_places_that_is_lost_is_named_with_the_reason() {
    needs_a_screen!();
    let (near, other) = (Near::new(), Place::new());
    let _one = near.0.start_watched(STEADY, &["one"]);
    let _two = other.start_watched(STEADY, &["two"]);
    let screen = near.0.screen(140, 30);
    let here = near.via();
    let script = format!(
        "#!/bin/sh\necho $$ >pid\nPFP_DIR={} {here} \"$@\"\necho the cable is out >&2\nexit 9\n",
        other.beacons().display()
    );
    let there = near.0.path("far");
    std::fs::write(&there, script).expect("the folder is new");
    std::fs::set_permissions(&there, Permissions::from_mode(0o755)).expect("it is ours");
    let vias = format!("--via '{here} env' --via {} --via /nowhere", there.display());
    screen.pfp_top(&format!("{vias} --all -i 0.2 --sort process"));
    let ticks = |text: &str| text.lines().filter(|line| line.contains("tick")).count();
    screen.wait_for("both, and one that is nowhere", |text| {
        let is_named = |line: &str| {
            line.contains("/nowhere DOWN ") && line.contains(" s (expected pfp-top on the path")
        };
        ticks(text) == 2 && text.lines().any(is_named)
    });
    let shell = std::fs::read_to_string(near.0.path("pid")).expect("it was written");
    let shell = shell.trim();
    let agent = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"));
    let agent = agent.expect("it runs").trim().parse().expect("its only child");
    os::signal(agent, libc::SIGKILL);
    let text = screen.wait_for("the reason", |text| text.contains("(the cable is out)"));
    assert_eq!(ticks(&text), 2, "the last figures stay: {text}");
    screen.wait_for("both bad places in a line", |text| {
        text.lines().any(|line| line.contains("/far DOWN ") && line.contains("/nowhere DOWN "))
    });
    screen.wait_for("the next line", |text| {
        text.lines().next().is_some_and(|head| head.ends_with("LIVE"))
            && text.contains("/nowhere DOWN ")
            && !text.contains("/far DOWN ")
    });
}

/// The agent of a place can be stopped; until it goes on, the others do.
#[test]
fn a_place_that_stalls_keeps_nobody_from_the_others_and_is_not_given_up() {
    needs_a_screen!();
    let (near, other) = (Near::new(), Place::new());
    let one = near.0.start_watched(STEADY, &["one"]);
    let two = other.start_watched(STEADY, &["two"]);
    let screen = near.0.screen(140, 30);
    let here = near.via();
    let there =
        format!("{here}; echo $$ > pid; exec env PFP_DIR={} nice", other.beacons().display());
    let vias = format!("--via '{here} env' --via '{there}'");
    screen.pfp_top(&format!("{vias} --all -i 0.2 --sort process --filter tick"));
    let counts = |text: &str| {
        let all = rows(text).into_iter().filter(|row| row.name() == "tick");
        all.map(|row| row.count().to_owned()).collect::<Vec<_>>()
    };
    screen.wait_for("both", |text| counts(text).len() == 2);
    let agent = || {
        let pid = std::fs::read_to_string(near.0.path("pid")).expect("it was written");
        pid.trim().parse::<u32>().expect("an id")
    };
    let stopped = agent();
    os::signal(stopped, libc::SIGSTOP);
    let late = |text: &str| {
        let head = text.lines().next().unwrap_or_default();
        let seconds = head.split_once("LATE ")?.1.split_whitespace().next()?;
        seconds.parse::<u32>().ok()
    };
    let text = screen.wait_for("that it is silent", |text| late(text).is_some());
    let before = counts(&text);
    let text = screen.wait_for("the other's figures", |text| {
        late(text).is_some_and(|seconds| seconds >= 9) && counts(text)[0] != before[0]
    });
    assert_eq!(counts(&text)[1], before[1], "{text}");
    assert!(!text.contains("lost"), "{text}");
    // Keys answer; what is switched there waits for the line.
    let state = |place: &Place, target: &Target| {
        let snapshot = place.snapshot(target);
        snapshot.points.iter().find(|point| point.name == "tick").expect("it is there").state
    };
    screen.select("tick");
    screen.keys(&["e"]);
    wait_for("it to be off here", || state(&near.0, &one) == PointState::Off);
    screen.keys(&["j"]);
    screen.wait_for("the other row", |text| rows(text).last().is_some_and(|row| row.selected));
    screen.keys(&["e"]);
    screen.wait_for("an answer", |text| text.lines().last().unwrap_or_default().contains("tick"));
    assert_eq!(state(&other, &two), PointState::On);
    os::signal(stopped, libc::SIGCONT);
    wait_for("it to be off there", || state(&other, &two) == PointState::Off);
    screen.wait_for("that it speaks", |text| {
        text.lines().next().is_some_and(|head| head.ends_with("LIVE"))
            && counts(text)[1] != before[1]
    });
    assert_eq!(agent(), stopped, "the line was not opened again");

    // Who leaves while it is stopped is not kept, and what was switched is put back.
    os::signal(stopped, libc::SIGSTOP);
    screen.wait_for("that it is silent", |text| late(text).is_some());
    screen.keys(&["q"]);
    screen.wait_for_shell();
    assert_eq!(state(&near.0, &one), PointState::On);
    os::signal(stopped, libc::SIGCONT);
    wait_for("it to be put back", || state(&other, &two) == PointState::On);
    wait_for("its end", || !os::runs(stopped));
}

/// The table is sent as sums over threads; nobody may see that.
#[test]
fn screens_are_those_of_a_viewer_there() {
    needs_a_screen!();
    let near = Near::new();
    let mut target = near.0.start_watched(STEADY, &["far"]);
    wait_for("figures", || has_counted(&near.0.snapshot(&target), "tick", 3));
    target.kill();
    // What the screens show; where it is to be this, it may take a moment.
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
            screen.keys(&["/", "C-u"]);
            screen.text(text);
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
        screen.keys(&["1", "w"]);
        screen.wait_for("the name", |text| text.contains("write snapshot to"));
        screen.keys(&["C-u"]);
        screen.text(if via.is_empty() { "here.json" } else { "there.json" });
        screen.keys(&["Enter"]);
        screen.wait_for("that it is written", |text| text.contains("wrote "));
        screen.keys(&["q"]);
        screen.wait_for_shell();
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

/// What the agent says for a table is a small part of what it says for all.
#[test]
fn the_table_is_sent_as_sums() {
    let near = Near::new();
    let _target = near.0.start_watched(env!("CARGO_BIN_EXE_hundred"), &["far", "8", "100"]);
    let snapshot = || {
        let output = near.run("env", &["snapshot", "-o", "far.json", "--force"]);
        output.status.success().then(|| source::open(&near.0.path("far.json")).unwrap().poll())
    };
    let snapshot = wait_for("all threads in all points", || {
        let snapshot = snapshot()?.ok()?;
        (snapshot.cells.len() >= 800).then_some(snapshot)
    });
    let mut bytes = [0, 0, 0];
    for (extent, bytes) in ["Sums", "Histograms", "All"].into_iter().zip(&mut bytes) {
        let mut agent = Agent::start(&near.0);
        agent.ask(json!({ "Hello": { "keep": false } }));
        let segment = &snapshot.process.segment_id;
        agent.ask(json!({ "Attach": { "source": 0, "segment_id": segment } }));
        let mut counted = 0;
        for _ in 0..10 {
            agent.picture(extent, None);
            counted += agent.came;
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        *bytes = counted;
    }
    figure(&format!("via: ten pictures of 100 points x 8 threads: {bytes:?} bytes"));
    assert!(bytes[0] * 8 < bytes[2] && bytes[1] * 2 < bytes[2], "{bytes:?}");
}

/// An sshd of the test's own, on the loopback.
struct Sshd {
    child: Child,
    client: String,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Sshd {
    /// None where nobody can log in that way.
    fn start(place: &Place) -> Option<Self> {
        let path = |name: &str| place.path(name).display().to_string();
        for key in ["host", "user"] {
            let key = path(key);
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f", &key])
                .status()
                .is_ok_and(|status| status.success());
            assert!(made, "ssh-keygen makes keys");
        }
        // What sshd wants where it separates its privileges.
        let _ = std::fs::create_dir("/run/sshd");
        let port = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
        std::fs::write(
            path("sshd"),
            format!(
                "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\n\
                 PidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n\
                 PermitUserEnvironment no\nAcceptEnv PFP_*\n",
                path("host"),
                path("user.pub"),
            ),
        )
        .expect("there is room");
        std::fs::set_permissions(path("user"), PermissionsExt::from_mode(0o600)).ok()?;
        let mut command = Command::new("/usr/sbin/sshd");
        command.args(["-D", "-e", "-f", &path("sshd")]).stderr(Stdio::null());
        let child = end_with_test(&mut command).spawn().ok()?;
        let client = format!(
            "ssh -q -p {port} -i {} -o BatchMode=yes -o StrictHostKeyChecking=no \
             -o UserKnownHostsFile=/dev/null -o SendEnv=PFP_* -o ConnectTimeout=10 127.0.0.1",
            path("user")
        );
        let sshd = Self { child, client };
        let enters = |_: &u32| {
            std::thread::sleep(std::time::Duration::from_millis(200));
            let words = format!("{} true", sshd.client);
            Command::new("sh").args(["-c", &words]).status().is_ok_and(|status| status.success())
        };
        (0..25).find(enters)?;
        Some(sshd)
    }
}

#[test]
fn a_process_is_watched_through_ssh() {
    if !Path::new("/usr/sbin/sshd").exists() {
        return assert!(!lacks("--via through ssh", "sshd"), "it is nowhere else");
    }
    let near = Near::new();
    let target = near.0.start_watched(STEADY, &["far"]);
    let Some(sshd) = Sshd::start(&near.0) else {
        let why = "the sshd that was started lets nobody in";
        return missing("--via through ssh", why, "start it by hand, and see what it says");
    };
    let via = format!("{} PATH={}:/usr/bin:/bin", sshd.client, near.0.path("bin").display());
    let output = near.run(&via, &["--once", "--json"]);
    assert!(output.status.success(), "{}", complaint(&output));
    let shown: Value = serde_json::from_slice(&output.stdout).expect("a line of JSON");
    assert!(shown.to_string().contains("tick"), "{shown}");
    let output = near.run(&via, &["disable", "tick"]);
    assert!(output.status.success(), "{}", complaint(&output));
    assert_eq!(near.state(&target, "tick"), PointState::Off);
    // Where it is not installed, that is said, and not what a shell says of it.
    let without = format!("{} PATH=/nowhere", sshd.client);
    let output = near.run(&without, &["--once"]);
    assert_eq!(output.status.code(), Some(3), "{}", complaint(&output));
    drop(sshd);
    let output = near.run(&via, &["--once"]);
    assert_eq!(output.status.code(), Some(2), "{}", complaint(&output));
}
