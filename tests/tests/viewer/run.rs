//! `pfp-top run`: programs that the viewer starts itself, with and without a terminal.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use pfp_read::files::json;
use pfp_read::snapshot::ProcessState;
use pfp_tests::needs_a_screen;
use pfp_tests::os::{runs, signal};
use pfp_tests::place::{Place, count, pfp_top};
use pfp_tests::pty::Pty;
use pfp_tests::screen::{Screen, row};
use pfp_tests::target::{Target, wait_for};

const STEADY: &str = env!("CARGO_BIN_EXE_steady");

/// Runs `pfp-top run` without a terminal, and keeps its logs in the test's folder.
fn run(place: &Place, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = place.command(pfp_top());
    command.env("XDG_STATE_HOME", place.path("state")).arg("run").args(arguments);
    let output = command.output().expect("pfp-top starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn logs(place: &Place) -> Vec<std::path::PathBuf> {
    let files = std::fs::read_dir(place.path("state").join("pfp"));
    files.into_iter().flatten().flatten().map(|file| file.path()).collect()
}

/// A shell loop that runs until a file exists.
fn until(file: &Path) -> String {
    format!("until test -e {}; do sleep 0.05; done", file.display())
}

#[test]
fn a_descendant_is_watched_to_its_end_and_the_status_passed_on() {
    let place = Place::new();
    let script = format!("echo begun; {STEADY} mine 10; echo bad >&2; exit 3");
    let file = place.path("last.json");
    let path = file.to_str().unwrap();
    let (status, out, err) = run(&place, &["-o", path, "--", "sh", "-c", &script]);
    assert_eq!(status, Some(3), "{err}");
    let table = row_count(&out, "tick");
    assert!(table == 10 && out.contains("mine[") && out.contains("EXITED"), "{out}");
    assert!(!out.contains("begun"), "the table alone:\n{out}");
    for expected in ["sh ended with status 3", "| begun", "| bad", ".log"] {
        assert!(err.contains(expected), "{expected}:\n{err}");
    }
    let snapshot = json::read(&file).unwrap();
    assert_eq!(snapshot.process.state, ProcessState::Exited);
    assert_eq!(count(&snapshot, "tick"), table);
    assert!(!snapshot.records.is_empty(), "a file has the records too");

    let (status, _, err) = run(&place, &["-o", path, "--", "sh", "-c", &script]);
    assert!(status == Some(2) && err.contains("exists already"), "{err}");
}

/// The count of a point in a printed table.
fn row_count(table: &str, name: &str) -> u64 {
    let line = table.lines().find(|line| line.split_whitespace().nth(1) == Some(name));
    let line = line.unwrap_or_else(|| panic!("no {name} in\n{table}"));
    // The column after the load.
    line.split_whitespace().nth(3).unwrap().parse().unwrap()
}

#[test]
fn as_many_tables_as_asked_are_printed_and_then_the_program_ends() {
    let place = Place::new();
    // The ids of the program and of a child, which would both run longer than any test.
    let child = "sh -c 'echo $$ > child; exec sleep 600'";
    let script = format!("echo $$ > pid; {child} | {STEADY} mine");
    let all = ["--once", "-n", "3", "-i", "0.2", "--", "sh", "-c", &script];
    let (status, out, err) = run(&place, &all);
    assert_eq!(status, Some(128 + 15), "asked to end, as when the screen is left: {err}");
    let counts: Vec<u64> = out.split("\n\n").map(|table| row_count(table, "tick")).collect();
    assert!(counts.len() == 3 && counts.is_sorted_by(|a, b| a < b), "{counts:?}\n{out}");
    assert!(!err.contains("ended with"), "{err}");
    for file in ["pid", "child"] {
        let pid = std::fs::read_to_string(place.path(file)).unwrap().trim().parse().unwrap();
        wait_for("the program and its child to be gone", || !runs(pid));
    }

    // The program ends first: its last table is the last one printed.
    let script = format!("{STEADY} mine 20");
    let (status, out, _) = run(&place, &["-n", "1000", "-i", "0.2", "--", "sh", "-c", &script]);
    assert_eq!(status, Some(0));
    let tables: Vec<&str> = out.split("\n\n").collect();
    assert!((2..1000).contains(&tables.len()), "{out}");
    let ended = |table: &&&str| table.contains("EXITED");
    assert!(tables.last().unwrap().contains("EXITED"), "{out}");
    assert!(tables.iter().filter(ended).count() <= 2, "{out}");
}

#[test]
fn failures_and_programs_without_points_are_reported_with_their_status() {
    let place = Place::new();
    let (status, _, err) = run(&place, &["sh", "-c", "kill -ABRT $$"]);
    assert!(status == Some(134) && err.contains("signal 6 (SIGABRT)"), "{err}");
    // The exit status is the program's, whether anything was recorded or not.
    let (status, _, err) = run(&place, &["true"]);
    assert!(status == Some(0) && err.contains("exited without recording anything"), "{err}");
    let (status, _, err) = run(&place, &["/no/such/program"]);
    assert!(status == Some(127) && err.contains("/no/such/program"), "{err}");
    assert_eq!(logs(&place), [""; 0].map(Path::new), "no empty logs are left");

    let (_, out, _) = run(&place, &["--inherit", "--", "sh", "-c", "echo through"]);
    assert!(out.contains("through"), "{out}");
}

#[test]
fn on_the_screen_the_last_figures_stay_and_the_output_comes_after() {
    needs_a_screen!();
    let place = Place::new();
    let screen = place.screen(130, 34);
    let state = place.path("state");
    screen.line(&format!("export XDG_STATE_HOME={}", state.display()));
    let until = until(&place.path("end"));
    screen.pfp_top(&format!(
        "run -i 0.1 --sort name -- sh -c 'echo begun; {until} | {STEADY}; exit 5'"
    ));
    let live = screen.wait_for("figures", |text| {
        text.contains("LIVE") && row(text, "tick").is_some_and(|row| row.count() != "0")
    });
    assert!(!live.contains("begun"), "the screen is the viewer's:\n{live}");
    std::fs::write(place.path("end"), "").unwrap();
    screen.wait_for_status("EXITED");
    screen.keys(&["q"]);
    let after = screen.wait_for_shell();
    assert!(after.contains("sh ended with status 5") && after.contains("| begun"), "{after}");
    screen.line("echo status $?");
    screen.wait_for("the program's status", |text| text.contains("status 5\n"));
}

/// The id of the watched process, in brackets in the first line.
fn watched(live: &str) -> u32 {
    live.split(['[', ']']).nth(1).unwrap().parse().unwrap()
}

#[test]
fn the_program_and_its_children_end_when_asked_to() {
    needs_a_screen!();
    let place = Place::new();
    let screen = place.screen(130, 34);
    screen.line(&format!("export XDG_STATE_HOME={}", place.path("state").display()));
    screen.pfp_top(&format!("run -i 0.1 -- sh -c 'sleep 1000 | {STEADY}; true'"));
    let pid = watched(&screen.wait_for("figures", |text| text.contains("LIVE")));
    for key in ["C-c", "q"] {
        screen.press(&[key], "the question", |text| text.contains("] still runs."));
        screen.press(&["Escape"], "it to go", |text| !text.contains("still runs"));
        assert!(runs(pid));
    }
    screen.press(&["C-c"], "the question", |text| text.contains("] still runs."));
    screen.keys(&["e"]);
    screen.wait_for_shell();
    wait_for("the program to be gone", || !runs(pid));
    screen.line("echo status $?");
    screen.wait_for("the status of what was asked to end", |text| text.contains("status 143"));
}

#[test]
fn a_program_outlives_the_viewer_that_is_left() {
    needs_a_screen!();
    let place = Place::new();
    let screen = place.screen(200, 34);
    screen.line(&format!("export XDG_STATE_HOME={}", place.path("state").display()));
    screen.pfp_top(&format!("run -i 0.1 -- {STEADY} mine 6000"));
    let pid = watched(&screen.wait_for("figures", |text| text.contains("LIVE")));
    screen.press(&["q"], "the question", |text| text.contains("l leave it running"));
    screen.keys(&["l"]);
    let after = screen.wait_for_shell();
    let said = format!("[{pid}] continues without pfp-top; its output goes to ");
    assert!(after.contains(&said) && runs(pid), "{after}");
    assert_eq!(logs(&place).len(), 1, "it is still written to, though it is empty");
    screen.line("echo status $?");
    screen.wait_for("a good end of the viewer", |text| text.contains("status 0"));
    signal(pid, libc::SIGKILL);
}

/// Ends the viewer by SIGHUP, by SIGTERM and by SIGKILL.
#[test]
fn a_program_outlives_the_viewer_that_is_ended() {
    needs_a_screen!();
    let take_away = |screen: &Screen| screen.take_away();
    let terminate = |screen: &Screen| signal(screen.viewer(), libc::SIGTERM);
    let kill = |screen: &Screen| signal(screen.viewer(), libc::SIGKILL);
    let ends: [fn(&Screen); 3] = [take_away, terminate, kill];
    for end in ends {
        let place = Place::new();
        let screen = place.screen(130, 34);
        screen.line(&format!("export XDG_STATE_HOME={}", place.path("state").display()));
        screen.pfp_top(&format!("run -i 0.1 -- {STEADY} mine 6000"));
        let pid = watched(&screen.wait_for("figures", |text| text.contains("LIVE")));
        let viewer = screen.viewer();
        end(&screen);
        wait_for("the viewer to end", || !runs(viewer));
        assert!(runs(pid));
        signal(pid, libc::SIGKILL);
    }
}

/// A viewer that cannot start leaves the program running, and prints the path of its output.
#[test]
fn a_program_outlives_a_viewer_that_cannot_start() {
    let place = Place::new();
    // `setsid` detaches the viewer from the terminal, so it cannot read keys.
    let viewer = format!("setsid {} run -- {STEADY} mine 6000 < /dev/null", pfp_top().display());
    let mut command = place.command("sh");
    command.env("XDG_STATE_HOME", place.path("state")).args(["-c", &viewer]);
    let mut terminal = Pty::start(&mut command, 100, 30);
    terminal.end();
    let said = terminal.wait_for("the reason", |text| text.contains("the terminal cannot be used"));
    let (_, rest) = said.split_once(" [").unwrap_or_else(|| panic!("{said}"));
    let (pid, rest) = rest.split_once(']').unwrap_or_else(|| panic!("{said}"));
    assert!(rest.starts_with(" continues without pfp-top; its output goes to "), "{said}");
    let pid = pid.parse().unwrap();
    let _ = place.segment(pid);
    assert!(runs(pid));
    signal(pid, libc::SIGKILL);
}

/// Starts a command with these signals ignored, as `nohup` and `trap ''` do.
fn ignoring(command: &mut Command, signals: &'static [libc::c_int]) {
    let ignore = move || {
        for signal in signals {
            // SAFETY: takes plain numbers, and installs no handler.
            unsafe { libc::signal(*signal, libc::SIG_IGN) };
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls only.
    unsafe { command.pre_exec(ignore) };
}

#[test]
fn signals_that_were_ignored_at_the_start_stay_so_and_are_passed_on() {
    const SOME: [libc::c_int; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGPIPE, libc::SIGTSTP];
    let place = Place::new();
    for ignored in [&SOME[..], &[]] {
        let mut command = place.command(pfp_top());
        command.args(["run", "--inherit", "--once", "--", "cat", "/proc/self/status"]);
        ignoring(&mut command, ignored);
        let output = command.output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mask = text.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let mask = u64::from_str_radix(mask.expect("the kernel says it").trim(), 16).unwrap();
        let has = |signal: libc::c_int| mask & 1 << (signal - 1) != 0;
        let found = SOME.map(has);
        assert_eq!(found, [!ignored.is_empty(); 4], "{ignored:?}: {text}");
    }
}

#[test]
fn under_nohup_every_command_goes_on() {
    let place = Place::new();
    let target = place.start_watched(STEADY, &[]);
    let (pid, file) = (target.pid().to_string(), place.path("a.pfprec"));
    let commands: [&[&str]; 4] = [
        &["record", "-i", "20ms", "-p", &pid, "-o", file.to_str().unwrap()],
        &["serve", "--listen", "127.0.0.1:0", "-p", &pid],
        &["-b", "-n", "100000", "-i", "0.1", "-p", &pid],
        &["run", "--once", "-n", "100000", "-i", "0.1", "--", STEADY],
    ];
    for arguments in commands {
        let mut command = place.command(pfp_top());
        command.env("XDG_STATE_HOME", place.path("state")).args(arguments);
        ignoring(&mut command, &[libc::SIGHUP, libc::SIGINT]);
        let mut viewer = Target::start(&mut command);
        let size = || std::fs::metadata(&file).map_or(0, |meta| meta.len());
        let mut lines = 0;
        let mut goes_on = |viewer: &mut Target, what: &str| {
            let before = (lines, size());
            wait_for(what, || {
                lines = viewer.lines_so_far().len();
                match arguments[0] {
                    "record" => size() > before.1,
                    "serve" => lines > 0,
                    _ => lines > before.0,
                }
            });
        };
        goes_on(&mut viewer, "its begin");
        for number in [libc::SIGHUP, libc::SIGINT] {
            signal(viewer.pid(), number);
        }
        // Wait, so that a wrongly handled signal could have an effect.
        std::thread::sleep(std::time::Duration::from_millis(500));
        goes_on(&mut viewer, "it to go on");
        assert!(runs(viewer.pid()), "{arguments:?}");
        signal(viewer.pid(), libc::SIGTERM);
        let _ = viewer.end();
    }
}

/// A reader that closes its pipe, as `head` does, does not end the program.
#[test]
fn a_program_goes_on_when_nobody_reads_its_tables() {
    let place = Place::new();
    let viewer = pfp_top().display();
    let script = format!(
        "{{ {viewer} run -n 1000 -i 0.1 -- {STEADY} mine 20; echo status $? >&2; }} | head -n 1"
    );
    let mut command = place.command("sh");
    command.env("XDG_STATE_HOME", place.path("state")).args(["-c", &script]);
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("status 0"), "{said}");
}

#[test]
fn a_program_that_has_no_points_yet_is_waited_for() {
    needs_a_screen!();
    let place = Place::new();
    let screen = place.screen(100, 20);
    screen.line(&format!("export XDG_STATE_HOME={}", place.path("state").display()));
    let go = place.path("go");
    let until = until(&go);
    screen.pfp_top(&format!("run -- sh -c '{until}; sleep 1000 | {STEADY} later; true'"));
    screen.wait_for("what it waits for", |text| text.contains("has not reached a point yet"));
    std::fs::write(&go, "").unwrap();
    screen.wait_for("figures", |text| text.contains("later[") && text.contains("LIVE"));
    screen.keys(&["q", "e"]);
    screen.wait_for_shell();
}

#[test]
fn all_children_of_a_program_are_watched_as_one() {
    let place = Place::new();
    let script = format!("for n in 1 2 3; do {STEADY} rank 10 & done; wait");
    let (status, sum, err) = run(&place, &["--sum", "sh", "-c", &script]);
    assert_eq!(status, Some(0), "{err}");
    assert!(sum.starts_with("sum of 3 processes, 3 ended"), "{sum}");
    assert_eq!(row_count(&sum, "tick"), 3 * 10, "{sum}");
    let (_, apart, _) = run(&place, &["--all", "sh", "-c", &script]);
    let ticks = apart.lines().filter(|line| line.contains(" ended") && line.contains(" tick "));
    assert_eq!(ticks.count(), 3, "{apart}");
}
