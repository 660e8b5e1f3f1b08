//! What threads wait for, as `pfp-top waits` samples it from outside.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::{Place, pfp_top};
use pfp_tests::target::{Said, end_with_test, wait_for};
use pfp_tests::{figure, needs_a_screen};
use serde_json::Value;

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");
/// Exit status if there is a deadlock.
const DEADLOCK: i32 = 6;
/// Maximum difference of a time from the kernel's counts, as a share of the time sampled.
const NEAR: f64 = 0.03;

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {output:?}"))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key].as_array().unwrap_or_else(|| panic!("expected a list {key} in {value}"))
}

/// The entry of a list whose `key` is `name`.
#[track_caller]
fn named<'a>(all: &'a [Value], key: &str, name: &str) -> &'a Value {
    all.iter().find(|it| it[key] == name).unwrap_or_else(|| panic!("no {name} in {all:?}"))
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("expected a number {key} in {value}"))
}

/// Times between two steps of the program, in seconds.
struct Between {
    wall: f64,
    waited: f64,
    queued: f64,
}

/// The kernel's counts of a reason's thread between the last two steps. `None` for a reason that
/// the program left out.
fn between(said: &Said, reason: &str) -> Option<Between> {
    let all = said.all::<String>("counts");
    let lines: Vec<_> = all.iter().filter(|line| line[0] == reason).collect();
    let [.., before, after] = lines.as_slice() else { return None };
    let more = |at: usize| {
        let number = |line: &[String]| line[at].parse::<f64>().expect("it is a number");
        (number(after) - number(before)) / 1e9
    };
    let (wall, run, queued) = (more(1), more(2), more(3));
    Some(Between { wall, waited: wall - run - queued, queued })
}

/// The parts of each point add up to its time, and agree with the kernel's counts of its thread,
/// which the program reads before and after the samples.
#[test]
fn reasons_and_times_agree_with_the_kernels_counts() {
    let program =
        c::compile(Compiler::C, "known-waits", &["known_waits.c"], Link::Static, ["-pthread"]);
    let place = Place::new();
    let file = place.path("synced");
    let file = file.to_str().expect("the path is text");
    let mut target = place.start(&program, &[file]);
    target.reach("started");
    target.go();
    target.reach("step");
    let pid = target.pid().to_string();
    let output = place.pfp_top(&["waits", "-p", &pid, "-d", "3s", "--json"]);
    target.go();
    let said = target.reach("step").clone();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = report(&output);
    let (seconds, points) = (number(&report, "seconds"), list(&report, "points"));
    let port = format!("tcp 127.0.0.1:{}", said.one::<u16>("port"));
    for (reason, kind, detail) in [
        ("mutex", "lock", "JOBS"),
        ("rwlock", "lock", "TABLE"),
        ("condition", "condition", "READY"),
        ("pipe", "read", "pipe"),
        ("socket", "read", port.as_str()),
        ("fsync", "sync", file),
        ("sleep", "sleep", ""),
        ("fault", "page-fault", ""),
        ("queue", "", ""),
    ] {
        let Some(Between { wall, waited, queued }) = between(&said, reason) else {
            assert_eq!(reason, "fault", "only userfaultfd may be refused");
            continue;
        };
        let point = named(points, "name", reason);
        let [of_wall, of_run, of_queued, of_waited] =
            ["wall_s", "run_s", "queued_s", "waited_s"].map(|key| number(point, key));
        assert!((of_run + of_queued + of_waited - of_wall).abs() < 0.01 * of_wall, "{point}");
        // On a busy machine, the sampler is suspended in the middle of its first or last sample, and
        // has not read some threads for that long.
        assert!((0.8..1.01).contains(&(of_wall / seconds)), "{point} {seconds}");
        // The samples began after the program's first reading, and ended before its second.
        let around = wall - of_wall;
        for (what, counted, found) in [("waited", waited, of_waited), ("queued", queued, of_queued)]
        {
            figure(&format!("{reason}, {what}: {counted:.3} s of {wall:.3}, found {found:.3}"));
            let near = NEAR * seconds;
            let possible = counted - around - near..=counted + near;
            assert!(possible.contains(&found), "{reason} {what}: {counted} {around} {point}");
        }
        if of_waited > 0.1 * of_wall {
            let first = &list(point, "reasons")[0];
            assert_eq!((&first["reason"], &first["detail"]), (&kind.into(), &detail.into()));
        }
    }
    let jobs = named(list(&report, "locks"), "name", "JOBS");
    assert_eq!((&jobs["owner"], &jobs["owner_point"]), (&"holder".into(), &"flush".into()));
    assert_eq!(list(jobs, "waiters")[0]["point"], "mutex", "{jobs}");
    assert!(number(jobs, "longest_s") > 0.005 && number(jobs, "waits") > 3.0, "{jobs}");
    target.go();
}

/// A slow call that was kept while its process was sampled says what its thread waited for.
#[test]
fn a_slow_call_has_the_name_of_the_lock_and_of_its_holder() {
    let flags = ["-pthread", "-D_GNU_SOURCE"];
    let program = c::compile(Compiler::C, "held-up", &["held_up.c"], Link::Static, flags);
    let place = Place::new();
    let mut target = place.start(&program, &[]);
    target.reach("started");
    let pid = target.pid().to_string();
    for (point, reason) in [
        ("locked", " waiting: lock JOBS, held by holder in flush"),
        ("fed", " waiting: read pipe"),
        ("timed", " waiting: sleep"),
    ] {
        let watch = |limit: &[&str]| {
            let only = format!("/^{point}$/");
            let output = place.pfp_top(&[&["watch", &only, "-p", &pid], limit].concat());
            assert!(output.status.success(), "{output:?}");
        };
        watch(&["--over", "8ms"]);
        let mut follow = place.command(pfp_top());
        follow.args(["slow", "-f", "-p", &pid]).stdout(Stdio::piped());
        let mut follower = end_with_test(&mut follow).spawn().expect("pfp-top starts");
        let lines = BufReader::new(follower.stdout.take().expect("it is a pipe")).lines();
        let mut lines = lines.map(|line| line.expect("it is text"));
        let is_it = |line: &String| line.contains(&format!(" {point} ")) && line.contains(reason);
        // The first calls were kept before the samples began.
        assert!(lines.by_ref().take(100).any(|line| is_it(&line)), "{point}");
        pfp_tests::os::signal(follower.id(), libc::SIGINT);
        assert!(follower.wait().expect("it ends").success());
        watch(&["--off"]);
    }
    target.go();
}

/// A sleep after a region of 100 us is not charged to the region.
#[test]
fn a_short_region_does_not_have_the_wait_after_it() {
    let place = Place::new();
    let target = place.start_watched(env!("CARGO_BIN_EXE_steady"), &[]);
    let pid = target.pid().to_string();
    let report = report(&place.pfp_top(&["waits", "-p", &pid, "-d", "3s", "--json"]));
    let points = list(&report, "points");
    for point in points.iter().filter(|point| point["name"] == "inner" || point["name"] == "work") {
        let [wall, waited] = ["wall_s", "waited_s"].map(|key| number(point, key));
        assert!(waited <= 0.5 * wall, "{point}");
    }
}

#[test]
fn a_deadlock_that_hangs_already_is_found() {
    let program = c::compile(Compiler::C, "deadlock", &["deadlock.c"], Link::Static, ["-pthread"]);
    let place = Place::new();
    let mut target = place.start(&program, &[]);
    target.reach("started");
    let pid = target.pid().to_string();
    let waits =
        |more: &[&str]| place.pfp_top(&[&["waits", "-p", &pid, "-d", "200ms"], more].concat());
    // The threads may not have reached their locks yet.
    wait_for("the deadlock", || waits(&[]).status.code() == Some(DEADLOCK));
    let report = report(&waits(&["--json"]));
    let [cycle] = list(&report, "deadlocks").as_slice() else { panic!("{report}") };
    for (thread, point, lock, holder) in [
        ("payer", "transfer", "lock JOURNAL", "auditor"),
        ("auditor", "audit", "lock ACCOUNTS", "payer"),
    ] {
        let link = named(cycle.as_array().expect("it is a list"), "thread", thread);
        assert_eq!((&link["point"], &link["lock"]), (&point.into(), &lock.into()), "{link}");
        assert_eq!(link["owner"], holder);
    }
    let [reporter] = list(&report, "stuck").as_slice() else { panic!("{report}") };
    assert_eq!((&reporter["thread"], &reporter["owner"]), (&"reporter".into(), &"payer".into()));
    let text = String::from_utf8(waits(&[]).stdout).expect("it is text");
    assert!(text.contains("auditor in audit waits for lock ACCOUNTS, held by payer"), "{text}");
    // Each of these threads is in one wait all the time, so it has one stack.
    let began = Instant::now();
    let output = waits(&["--folded"]);
    let lasted = began.elapsed().as_nanos() as u64;
    assert_eq!(output.status.code(), Some(DEADLOCK));
    let stacks = String::from_utf8(output.stdout).expect("it is text");
    for stack in
        ["deadlock;payer;transfer;[lock JOURNAL]", "deadlock;auditor;audit;[lock ACCOUNTS]"]
    {
        let ns = stacks.lines().filter_map(|line| line.strip_prefix(stack)?.trim().parse().ok());
        let [ns] = ns.collect::<Vec<u64>>()[..] else { panic!("{stack} in {stacks}") };
        assert!((1..=lasted).contains(&ns), "{stack} {ns} in {lasted}");
    }
    // The samples of open regions end in what their threads wait for.
    needs_a_screen!();
    let screen = place.screen(120, 40);
    screen.pfp_top(&format!("-p {pid} -i 0.1"));
    screen.wait_for("the figures", |text| text.contains("LIVE"));
    screen.press(&["8", "v"], "the reasons", |text| {
        text.contains("[lock JOURNAL]") && text.contains("[lock ACCOUNTS]")
    });
}

/// A recording has the waits before each of its snapshots.
#[test]
fn a_recording_has_a_deadlock_that_was_there() {
    let program = c::compile(Compiler::C, "deadlock", &["deadlock.c"], Link::Static, ["-pthread"]);
    let place = Place::new();
    let mut target = place.start(&program, &[]);
    target.reach("started");
    let (pid, file) = (target.pid().to_string(), place.path("hung.pfprec"));
    let file = file.to_str().expect("the path is text");
    let of_file = |more: &[&str]| place.pfp_top(&[&["waits", file], more].concat());
    // The first snapshots have no samples, and the threads may not have reached their locks.
    wait_for("a recorded deadlock", || {
        let record = ["record", "-p", &pid, "-d", "1500ms", "-i", "0.1", "-o", file, "--force"];
        assert_eq!(place.pfp_top(&record).status.code(), Some(0));
        of_file(&[]).status.code() == Some(DEADLOCK)
    });
    let report = report(&of_file(&["--json"]));
    let [cycle] = list(&report, "deadlocks").as_slice() else { panic!("{report}") };
    let payer = named(cycle.as_array().expect("it is a list"), "thread", "payer");
    assert_eq!((&payer["lock"], &payer["owner"]), (&"lock JOURNAL".into(), &"auditor".into()));
    let snapshot = place.path("without.json");
    let snapshot = snapshot.to_str().expect("the path is text");
    pfp_tests::well(&place.pfp_top(&["snapshot", "-p", &pid, "-o", snapshot]));
    let output = place.pfp_top(&["waits", snapshot]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("found one without"), "{output:?}");
    needs_a_screen!();
    let screen = place.screen(120, 40);
    screen.pfp_top(&format!("open {file}"));
    screen.wait_for("the recording", |text| text.contains("REPLAY"));
    screen.press(&["9"], "the deadlock", |text| text.contains("DEADLOCK"));
}

/// Rust's mutexes do not contain their owner, so a deadlock of them is not proved. The waiting
/// threads and their locks are shown.
#[test]
fn a_deadlock_of_rust_mutexes_is_shown_without_owners() {
    let place = Place::new();
    let mut target = place.start(TARGET, &["deadlocked"]);
    target.reach("started");
    let pid = target.pid().to_string();
    let waits = || place.pfp_top(&["waits", "-p", &pid, "-d", "200ms", "--json"]);
    wait_for("both to wait", || list(&report(&waits()), "stuck").len() == 2);
    let output = waits();
    assert_eq!(output.status.code(), Some(0));
    let report = report(&output);
    assert!(list(&report, "deadlocks").is_empty(), "{report}");
    for (point, lock) in [("transfer", "JOURNAL"), ("audit", "ACCOUNTS")] {
        let stuck = named(list(&report, "stuck"), "point", point);
        let name = stuck["lock"].as_str().expect("it is text");
        assert!(name.starts_with("lock ") && name.ends_with(lock), "{stuck}");
        assert!(stuck["owner"].is_null(), "{stuck}");
    }
}

#[test]
fn a_program_without_points_is_sampled_too() {
    let place = Place::new();
    let mut sleeper = Command::new("sleep");
    let mut sleeper = end_with_test(sleeper.arg("600")).spawn().expect("it starts");
    let pid = sleeper.id().to_string();
    let waits =
        |more: &[&str]| place.pfp_top(&[&["waits", "-p", &pid, "-d", "100ms"], more].concat());
    wait_for("the program to sleep", || {
        let text = String::from_utf8(waits(&[]).stdout).expect("it is text");
        text.contains("1 thread waits for sleep, 100.0 % of its time")
    });
    // Another user may not read the system calls of the program.
    // SAFETY: `geteuid` has no preconditions.
    if unsafe { libc::geteuid() } == 0 {
        let mut other = place.command(pfp_top());
        other.args(["waits", "-p", &pid, "-d", "100ms"]).uid(65_534).gid(65_534).current_dir("/");
        if let Ok(output) = other.stdin(Stdio::null()).output() {
            let [text, why] =
                [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
            assert!(text.contains("unknown 100.0 %"), "{text}");
            assert!(why.contains("cannot be read"), "{why}");
        }
    }
    sleeper.kill().expect("it runs");
    sleeper.wait().expect("it was started here");
    let output = waits(&[]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
}
