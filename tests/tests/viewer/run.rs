//! `pfp-top run`: programs that the viewer starts itself, in a terminal and without.

use std::path::Path;

use pfp_tests::needs_a_screen;
use pfp_tests::os::runs;
use pfp_tests::place::{Place, count, pfp_top};
use pfp_tests::screen::row;
use pfp_tests::target::wait_for;
use pfp_top::files::json;
use pfp_top::snapshot::ProcessState;

const STEADY: &str = env!("CARGO_BIN_EXE_steady");

/// Runs `pfp-top run` without a terminal, and keeps its logs on the place.
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

/// What a shell does until a file is there.
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
    // Behind the load.
    line.split_whitespace().nth(3).unwrap().parse().unwrap()
}

#[test]
fn as_many_tables_as_asked_are_printed_and_then_the_program_ends() {
    let place = Place::new();
    // The ids of the program and of a child, which would run for longer than any test.
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

    // One that ends before: its last table is the last.
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
fn what_ends_badly_or_measures_nothing_is_said_with_its_status() {
    let place = Place::new();
    let (status, _, err) = run(&place, &["sh", "-c", "kill -ABRT $$"]);
    assert!(status == Some(134) && err.contains("signal 6 (SIGABRT)"), "{err}");
    let (status, _, err) = run(&place, &["true"]);
    assert!(status == Some(3) && err.contains("exited without recording anything"), "{err}");
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

#[test]
fn leaving_the_screen_ends_the_program_and_its_children() {
    needs_a_screen!();
    let place = Place::new();
    let screen = place.screen(130, 34);
    screen.line(&format!("export XDG_STATE_HOME={}", place.path("state").display()));
    screen.pfp_top(&format!("run -i 0.1 -- sh -c 'sleep 1000 | {STEADY}; true'"));
    let live = screen.wait_for("figures", |text| text.contains("LIVE"));
    let pid: u32 = live.split(['[', ']']).nth(1).unwrap().parse().unwrap();
    assert!(runs(pid));
    screen.keys(&["C-c"]);
    screen.wait_for_shell();
    wait_for("the program to be gone", || !runs(pid));
    screen.line("echo status $?");
    screen.wait_for("the status of what was asked to end", |text| text.contains("status 143"));
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
    screen.quit();
}

#[test]
fn all_that_a_program_starts_is_watched_as_one() {
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
