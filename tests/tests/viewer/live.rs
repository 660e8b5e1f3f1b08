//! The viewer as a user sees it: a terminal, keys, and real processes that start, change, end and
//! crash.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::{Output, Stdio};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pfp_read::files::json;
use pfp_read::snapshot::{PointState, ProcessState, Snapshot};
use pfp_read::source;
use pfp_tests::needs_a_screen;
use pfp_tests::os::{copy_program, runs};
use pfp_tests::place::{Place, count, pfp_top};
use pfp_tests::screen::{PROMPT, Screen, heading, row, rows};
use pfp_tests::target::{Target, wait_for};
use pfp_tests::watch::Watch;

const STEADY: &str = env!("CARGO_BIN_EXE_steady");
/// Options of the viewer in most tests: it polls often, so that tests wait less.
const QUICK: &str = "-i 0.1";

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn state(snapshot: &Snapshot, name: &str) -> PointState {
    snapshot.points.iter().find(|point| point.name == name).unwrap().state
}

/// Starts the steady program, and a viewer of 130 x 34 that watches it. Rows are sorted by name, so
/// that none moves.
fn watching<'a>(place: &'a Place, more: &str) -> (Target, Screen<'a>) {
    let target = place.start(STEADY, &[]);
    let screen = place.screen(130, 34);
    screen.pfp_top(&format!("{QUICK} --sort name {more}"));
    screen.wait_for_count("tick", 2);
    (target, screen)
}

/// Waits until the target has measured `more` further ticks.
fn wait_for_ticks(place: &Place, target: &Target, more: u64) {
    let before = count(&place.snapshot(target), "tick");
    wait_for("more ticks", || count(&place.snapshot(target), "tick") >= before + more);
}

#[test]
fn the_demo_shows_live_figures_in_any_order_and_leaves_nothing_behind() {
    needs_a_screen!();
    let place = Place::new();
    let screen = place.screen(130, 40);
    screen.line("stty -g");
    let before = screen.wait_for("the terminal's settings", |text| text.contains(':'));
    let settings = before.lines().find(|line| line.contains(':')).unwrap().trim().to_owned();

    screen.pfp_top(&format!("demo {QUICK}"));
    let first = screen.wait_for("figures", |text| {
        text.contains("LIVE") && row(text, "deflate").is_some_and(|row| row.count() != "0")
    });
    let count = |text: &str| row(text, "deflate").map(|row| row.count().to_owned());
    screen.wait_for("a count that grows", |text| count(text) != count(&first));
    assert!(first.contains("Load%▼"), "{first}");
    let workload: u32 = first.split(['[', ']']).nth(1).unwrap().parse().unwrap();
    assert!(runs(workload));

    screen.press(&[">"], "the column to the right", |text| text.contains("Count▼"));
    screen.keys(&["<", "<"]);
    let names = |text: &str| -> Vec<String> {
        rows(text).iter().map(|row| row.name().to_owned()).collect()
    };
    screen.wait_for("the column of the names", |text| {
        text.contains("Name▲") && names(text).is_sorted() && names(text).len() > 10
    });
    screen.press(&["I"], "the other way round", |text| {
        text.contains("Name▼") && names(text).is_sorted_by(|a, b| a >= b)
    });

    screen.keys(&["q"]);
    let after = screen.wait_for_shell();
    // The screen from before the viewer is restored, and nothing of the viewer is left.
    assert!(after.contains(&settings) && !after.contains("LIVE"), "{after}");
    screen.line("clear; stty -g");
    screen.wait_for("the terminal's settings as before", |text| text.contains(&settings));
    wait_for("the demo's program to be gone", || !runs(workload));
    assert_eq!(place.lit(), [""; 0]);
}

#[test]
fn a_point_is_switched_off_and_on_again_while_it_runs() {
    needs_a_screen!();
    let place = Place::new();
    let (target, screen) = watching(&place, "");
    screen.select("tick");
    screen.press(&["e"], "the point off", |text| {
        row(text, "tick").is_some_and(|row| !row.on) && text.contains("tick is off")
    });
    // The next call sees the change; a region that is open may still end.
    wait_for("the program to know", || state(&place.snapshot(&target), "tick") == PointState::Off);
    let stopped = count(&place.snapshot(&target), "tick");
    let other = count(&place.snapshot(&target), "round");
    wait_for("other points to go on", || count(&place.snapshot(&target), "round") > other + 10);
    let found = count(&place.snapshot(&target), "tick");
    assert!(found <= stopped + 1, "{stopped} -> {found}");
    let shown = screen.wait_for("other points to go on", |text| {
        row(text, "round").is_some_and(|row| row.counts_above(other + 10))
    });
    let tick = row(&shown, "tick").unwrap();
    assert!(tick.counts(found), "{found}: {shown}");
    assert_eq!(tick.cells[2..], ["-", "off"], "{shown}");

    screen.press(&["e"], "the count to go on", |text| {
        row(text, "tick").is_some_and(|row| row.on && row.counts_above(found + 2))
    });
}

/// A key changes the mode in the control word of the running program. The program's own output at
/// its end confirms the mode.
#[test]
fn a_point_is_fenced_and_no_longer_while_it_runs() {
    needs_a_screen!();
    let place = Place::new();
    let file = place.path("figures.json");
    let target = place.start_with(STEADY, &[], "PFP_SNAPSHOT", &file);
    let screen = place.screen(130, 34);
    screen.pfp_top(&format!("{QUICK} --sort name"));
    screen.wait_for_count("tick", 2);
    let is_fenced = |snapshot: &Snapshot, name: &str| {
        snapshot.points.iter().find(|point| point.name == name).expect("it is there").fenced
    };
    let press = |name: &str, expected: bool| {
        screen.select(name);
        screen.keys(&["F"]);
        wait_for("the word of the point", || is_fenced(&place.snapshot(&target), name) == expected);
        // The point is measured in both modes.
        wait_for_ticks(&place, &target, 2);
    };
    for (name, expected) in [("tick", true), ("round", true), ("round", false)] {
        press(name, expected);
    }
    target.end_well();
    let snapshot = json::read(&file).expect("the program has written it");
    let fenced = snapshot.points.iter().filter(|point| point.fenced).map(|point| &*point.name);
    assert_eq!(fenced.collect::<Vec<_>>(), ["tick"]);
}

#[test]
fn a_reset_starts_a_point_afresh_and_leaves_the_others() {
    needs_a_screen!();
    let place = Place::new();
    let (_target, screen) = watching(&place, "");
    let is_above =
        |text: &str, name: &str, count| row(text, name).is_some_and(|row| row.counts_above(count));
    let before = screen.wait_for("counts", |text| is_above(text, "tick", 20));
    let before = row(&before, "tick").unwrap().counted().start;
    screen.select("tick");
    screen.press(&["r", "y"], "a count that dropped beside one that did not", |text| {
        row(text, "tick").is_some_and(|row| row.counts_above(0) && row.counted().end <= before)
            && is_above(text, "round", before - 1)
    });
}

#[test]
fn a_pause_freezes_the_figures_and_still_tells_the_end_of_the_process() {
    needs_a_screen!();
    let place = Place::new();
    let (mut target, screen) = watching(&place, "");
    let table = |text: &str| rows(text);
    for key in ["Space", "Z", "p"] {
        screen.keys(&[key]);
        let frozen = screen.wait_for_status("PAUSED");
        wait_for_ticks(&place, &target, 5);
        let later = screen.shown();
        assert_eq!(table(&later), table(&frozen), "{later}");
        screen.keys(&[key]);
        screen.wait_for_status("LIVE");
        screen.wait_for("counts that go on", |text| table(text) != table(&frozen));
    }
    screen.keys(&["Space"]);
    let frozen = screen.wait_for_status("PAUSED");
    wait_for_ticks(&place, &target, 5);
    target.kill();
    let dead = screen.wait_for_status("CRASHED  PAUSED");
    assert_eq!(table(&dead), table(&frozen), "{dead}");
    screen.keys(&["Space"]);
    screen.wait_for_status("CRASHED");
    let least = row(&frozen, "tick").unwrap().counted().start + 5;
    screen.wait_for("the last figures", |text| {
        row(text, "tick").is_some_and(|row| row.counted().end > least)
    });
}

#[test]
fn the_detail_page_and_the_help_open_and_close() {
    needs_a_screen!();
    let place = Place::new();
    let (_target, screen) = watching(&place, "");
    screen.select("work");
    screen.keys(&["Enter"]);
    for said in [
        "work  id ",
        "tests/src/bin/steady.rs:",
        "Exclusive, all",
        "p50",
        "█",
        "Load, last",
        "worker",
    ] {
        screen.wait_for(said, |text| text.contains(said));
    }
    screen.wait_for("its callees", |text| text.contains(" Callees ") && text.contains(" inner "));
    // Histograms since the viewer was opened, of the last seconds, and from a chosen moment on.
    screen.press(&["H"], "the histogram since it was opened", |text| text.contains("since opened"));
    screen.press(&["H"], "that of the last seconds", |text| {
        text.contains("Exclusive, last ") && !text.contains("since opened")
    });
    screen.press(&["m"], "that since the mark", |text| {
        text.contains("since the mark") && text.contains(" calls, average ")
    });
    screen.press(&["Escape"], "the table", |text| row(text, "work").is_some());
    screen.press(&["?"], "the help", |text| text.contains("Keys") && text.contains("on or off"));
    screen.keys(&["Escape"]);
    // A point without a name is shown with its number.
    screen.wait_for("the table", |text| row(text, "#5").is_some());
}

#[test]
fn a_snapshot_is_written_and_shown_again() {
    needs_a_screen!();
    let place = Place::new();
    let (target, screen) = watching(&place, "");
    screen.press(&["w"], "the question for a name", |text| {
        text.contains("write snapshot to: steady-")
    });
    screen.keys(&["C-u"]);
    screen.text("saved.json");
    screen.press(&["Enter"], "the message", |text| text.contains("wrote saved.json"));
    // Writes a copy of the segment to a file with this name.
    screen.fill("w", "saved.pfp.zst");
    screen.press(&["Enter"], "the message", |text| text.contains("wrote saved.pfp.zst"));
    screen.quit();
    target.end_well();

    let saved = json::read(&place.path("saved.json")).unwrap();
    let ticks = count(&saved, "tick");
    let copied = source::open(&place.path("saved.pfp.zst")).unwrap().poll().unwrap();
    assert_eq!(copied.process.segment_id, saved.process.segment_id);
    assert!(count(&copied, "tick") >= ticks && copied.elapsed_ticks > saved.elapsed_ticks);
    screen.pfp_top("open saved.json");
    screen.wait_for_status("FILE");
    screen.wait_for("the figures of the file", |text| {
        row(text, "tick").is_some_and(|row| row.counts(ticks))
    });
    screen.press(&["e"], "a refusal", |text| text.contains("cannot be changed"));
    screen.quit();

    let printed = place.pfp_top(&["open", "saved.json", "--once", "--sort", "name"]);
    let text = said(&printed);
    assert!(printed.status.success() && text.starts_with("steady["), "{printed:?}");
    let line = text.lines().find(|line| line.split_whitespace().nth(1) == Some("tick")).unwrap();
    assert_eq!(line.split_whitespace().nth(3), Some(ticks.to_string().as_str()), "{text}");
}

#[test]
fn every_exit_restores_the_terminal() {
    needs_a_screen!();
    let place = Place::new();
    let _target = place.start(STEADY, &[]);
    let screen = place.screen(100, 20);
    for way in ["q", "F10", "C-c", "TERM", "INT", "HUP"] {
        screen.line("clear");
        screen.wait_for("an empty screen", |text| text.trim() == PROMPT.trim_end());
        screen.pfp_top(QUICK);
        screen.wait_for_status("LIVE");
        if ["TERM", "INT", "HUP"].contains(&way) {
            let viewer = screen.viewer().to_string();
            let sent = place.command("kill").args(["-s", way, &viewer]).status().unwrap();
            assert!(sent.success());
        } else {
            screen.keys(&[way]);
        }
        screen.wait_for_shell();
        // The shell echoes input again, and keys are characters again.
        screen.line("echo still $((40 + 2))");
        let text = screen.wait_for("the shell to work", |text| text.contains("still 42"));
        assert!(text.contains("echo still"), "{way}:\n{text}");
    }
}

#[test]
fn switches_are_restored_on_quitting_unless_kept() {
    needs_a_screen!();
    for (more, leave, left) in [
        ("", "q", PointState::On),
        ("", "TERM", PointState::On),
        ("", "gone", PointState::On),
        ("--keep", "q", PointState::Off),
    ] {
        let place = Place::new();
        let (target, screen) = watching(&place, more);
        screen.select("tick");
        screen.keys(&["e"]);
        let is = |wanted| state(&place.snapshot(&target), "tick") == wanted;
        wait_for("the point to be off", || is(PointState::Off));
        let viewer = screen.viewer();
        match leave {
            "TERM" => {
                let viewer = viewer.to_string();
                assert!(place.command("kill").arg(viewer).status().unwrap().success());
            }
            "gone" => screen.take_away(),
            key => screen.keys(&[key]),
        }
        wait_for("the viewer to be gone", || !runs(viewer));
        assert!(is(left), "{more} {leave}");
    }
}

#[test]
fn the_screen_follows_the_size_of_the_terminal() {
    needs_a_screen!();
    let place = Place::new();
    let (_target, screen) = watching(&place, "");
    screen.resize(40, 8);
    let small = screen.wait_for("a small table", |text| {
        let line = heading(text);
        line.contains("Load%") && !line.contains("Count") && text.contains("q quit")
    });
    assert!(small.lines().all(|line| line.chars().count() <= 40), "{small}");
    assert!(small.lines().count() <= 8 && small.contains("LIVE"), "{small}");
    screen.resize(300, 100);
    screen.wait_for("a large table", |text| {
        let table = heading(text).split('│').next().unwrap_or_default();
        table.contains("Off%") && table.chars().count() > 200
    });
    // A tiny terminal does not crash the viewer.
    screen.resize(10, 3);
    screen.resize(130, 34);
    screen.wait_for("the table as before", |text| row(text, "tick").is_some());
}

#[test]
fn a_terminal_of_40_by_8_is_usable() {
    needs_a_screen!();
    let place = Place::new();
    let target = place.start(STEADY, &[]);
    let screen = place.screen(40, 8);
    screen.pfp_top(&format!("{QUICK} --sort name"));
    let shown = screen.wait_for_status("LIVE");
    assert!(shown.lines().all(|line| line.chars().count() <= 40), "{shown}");
    screen.keys(&["G"]);
    screen.press(&["e"], "the message", |text| text.contains(" is off"));
    screen
        .press(&["Enter"], "the detail", |text| text.contains("Figures") && text.contains("PgDn"));
    screen.press(&["PageDown"], "its next lines", |text| !text.contains("Figures"));
    screen.quit();
    assert!(target_is_whole(&place, &target));
}

/// Whether every point is enabled again.
fn target_is_whole(place: &Place, target: &Target) -> bool {
    place.snapshot(target).points.iter().all(|point| point.state == PointState::On)
}

#[test]
fn a_process_that_ends_leaves_its_last_figures_on_the_screen() {
    needs_a_screen!();
    let place = Place::new();
    let (target, screen) = watching(&place, "");
    target.end_well();
    screen.wait_for_status("EXITED");
    // The message is in the last line, so the whole screen is drawn.
    let ended = screen.wait_for("the message", |text| {
        text.contains("the process has ended; showing its last figures")
    });
    assert!(row(&ended, "tick").is_some_and(|row| row.counts_above(2)), "{ended}");
    // The last figures can still be viewed and saved.
    screen.select("tick");
    screen.press(&["e"], "a refusal", |text| text.contains("the process has ended; nothing can"));
    screen.fill("w", "last.json");
    screen.press(&["Enter"], "the message", |text| text.contains("wrote last.json"));
    let last = json::read(&place.path("last.json")).unwrap();
    assert_eq!(last.process.state, ProcessState::Exited);
    assert!(row(&ended, "tick").unwrap().counts(count(&last, "tick")), "{ended}");
}

#[test]
fn a_process_that_is_killed_or_aborts_shows_as_crashed() {
    needs_a_screen!();
    for aborts in [false, true] {
        let place = Place::new();
        let (mut target, screen) = watching(&place, "");
        if aborts {
            target.tell("abort");
            wait_for("the target to be dead", || !runs(target.pid()));
        }
        target.kill();
        screen.wait_for_status("CRASHED");
        let oracle = place.snapshot(&target);
        assert_eq!(oracle.process.state, ProcessState::Crashed);
        let ticks = count(&oracle, "tick");
        let is_last = |text: &str| row(text, "tick").is_some_and(|row| row.counts(ticks));
        screen.wait_for("the last figures", is_last);
        // A later viewer shows the figures, too.
        screen.quit();
        screen.pfp_top(&format!("-p {}", target.pid()));
        screen.wait_for_status("CRASHED");
        screen.wait_for("the same figures", is_last);
    }
}

#[test]
fn without_a_process_it_says_where_it_looked_and_waits_for_one() {
    needs_a_screen!();
    let place = Place::new();
    let screen = place.screen(130, 20);
    screen.pfp_top(QUICK);
    screen.wait_for_status("WAITING");
    let beacons = place.beacons().display().to_string();
    screen.wait_for("why, and where it looked", |text| {
        // Lines may be wrapped anywhere.
        let flat = text.split_whitespace().collect::<String>();
        flat.contains("noinstrumentedprocess") && flat.contains(&beacons)
    });
    let target = place.start(STEADY, &["late comer"]);
    let shown = screen.wait_for_status("LIVE");
    assert!(shown.contains(&format!("late comer[{}]", target.pid())), "{shown}");
}

#[test]
fn several_processes_are_offered_to_choose_from() {
    needs_a_screen!();
    let place = Place::new();
    let first = place.start(STEADY, &["first"]);
    wait_for("the first to show", || said(&place.pfp_top(&["list"])).contains("first"));
    let second = place.start(STEADY, &["second"]);
    wait_for("the second to show", || said(&place.pfp_top(&["list"])).contains("second"));
    let screen = place.screen(100, 20);
    screen.pfp_top(QUICK);
    let offered = screen.wait_for("both", |text| {
        text.contains("first") && text.contains("second") && text.contains("PID")
    });
    // The cursor is on the process that was started last.
    let cursor = offered.lines().find(|line| line.starts_with('>')).unwrap();
    assert!(cursor.contains(&second.pid().to_string()), "{offered}");
    screen.press(&["Down"], "the cursor on the first", |text| {
        text.lines().any(|line| line.starts_with('>') && line.contains("first"))
    });
    screen.keys(&["Enter"]);
    let shown = screen.wait_for_status("LIVE");
    assert!(shown.contains(&format!("first[{}]", first.pid())), "{shown}");
    // Back to the list, and to the other process.
    screen.press(&["P"], "the list", |text| text.contains("second"));
    screen.press(&["g", "g", "Enter"], "the other", |text| {
        text.contains(&format!("second[{}]", second.pid()))
    });
}

#[test]
fn a_crashed_process_is_offered_until_one_runs() {
    needs_a_screen!();
    let place = Place::new();
    let mut dead = place.start(STEADY, &["departed"]);
    wait_for("it to show", || said(&place.pfp_top(&["list"])).contains("departed"));
    dead.kill();
    let screen = place.screen(100, 20);
    screen.pfp_top(QUICK);
    screen.wait_for("the crashed process", |text| {
        text.contains("departed") && text.contains("crashed")
    });
    let _alive = place.start(STEADY, &["newcomer"]);
    let shown = screen.wait_for_status("LIVE");
    assert!(shown.contains("newcomer["), "{shown}");
    // If one process runs, the viewer opens it at once, although another one has crashed.
    screen.quit();
    screen.pfp_top(QUICK);
    let shown = screen.wait_for_status("LIVE");
    assert!(shown.contains("newcomer["), "{shown}");
}

#[test]
fn the_selected_row_is_seen_without_colours() {
    needs_a_screen!();
    let place = Place::new();
    let _target = place.start(STEADY, &[]);
    let screen = place.screen(100, 20);
    screen.line(&format!("NO_COLOR=1 {} {QUICK} --sort name", pfp_top().display()));
    screen.wait_for_status("LIVE");
    screen.wait_for("rows", |text| rows(text).len() > 3);
    let styled = screen.styled();
    let cursor = styled.lines().find(|line| line.contains(">●")).unwrap();
    assert!(attributes(cursor).contains(&7), "not in reverse: {cursor:?}");
    // 39 and 49 select the terminal's default colours.
    let colour = |code: &u32| matches!(code, 30..=38 | 40..=48 | 90..=107);
    assert!(!attributes(&styled).iter().any(colour), "{styled:?}");
}

/// The codes of all colours and attributes that the text sets.
fn attributes(styled: &str) -> Vec<u32> {
    let sequences = styled.split("\x1b[").skip(1).filter_map(|rest| rest.split_once('m'));
    sequences.flat_map(|(codes, _)| codes.split(';').filter_map(|code| code.parse().ok())).collect()
}

#[test]
fn a_viewer_without_its_terminal_ends() {
    needs_a_screen!();
    let place = Place::new();
    let _target = place.start(STEADY, &[]);
    // With `setsid` the viewer has no controlling terminal, and so gets no signal.
    for way in ["", "setsid --wait "] {
        let screen = place.screen(100, 20);
        screen.line(&format!("{way}{} {QUICK}", pfp_top().display()));
        screen.wait_for_status("LIVE");
        let viewer = screen.viewer();
        screen.take_away();
        wait_for("the viewer to be gone", || !runs(viewer));
    }
}

#[test]
fn the_demo_in_a_pipe_prints_one_table_and_is_gone() {
    let place = Place::new();
    let viewer = place
        .command(pfp_top())
        .args(["demo", "--once"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("the demo's segment", || {
        place.lit().iter().any(|name| object(name).exists()) || !runs(viewer.id())
    });
    let lit = place.lit();
    let output = viewer.wait_with_output().unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(output.stderr.is_empty(), "{text}");
    assert!(text.starts_with("pfp-demo[") && text.contains("every 1 s"), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
    for name in ["deflate", "index", "housekeeping", "sink.read"] {
        let line = text.lines().find(|line| line.split_whitespace().nth(1) == Some(name));
        let line = line.unwrap_or_else(|| panic!("{name} in:\n{text}"));
        assert_ne!(line.split_whitespace().nth(3), Some("0"), "{text}");
    }
    let workload: u32 = text.split(['[', ']']).nth(1).unwrap().parse().unwrap();
    assert!(!runs(workload));
    assert_eq!(place.lit(), [""; 0]);
    assert!(!lit.is_empty() && !lit.iter().any(|name| object(name).exists()), "{lit:?}");
}

/// The shared-memory object of a beacon with this name.
fn object(beacon: &str) -> std::path::PathBuf {
    let hex = beacon.split('.').next().unwrap();
    format!("/dev/shm/pfp-{hex}").into()
}

#[test]
fn a_crashed_segment_is_listed_read_and_removed() {
    let place = Place::new();
    let mut target = place.start(STEADY, &["victim"]);
    wait_for("it to show", || said(&place.pfp_top(&["list"])).contains("running"));
    wait_for_ticks(&place, &target, 1);
    let [beacon] = &place.lit()[..] else { panic!("{:?}", place.lit()) };
    assert!(object(beacon).exists());
    // Other tests, or other programs, may have left objects of their own.
    let removed = said(&place.pfp_top(&["gc"]));
    assert!(object(beacon).exists() && place.lit() == [beacon.as_str()], "{removed}");
    target.kill();
    let listed = said(&place.pfp_top(&["list"]));
    let line = listed.lines().find(|line| line.contains("victim")).unwrap();
    let pid = target.pid().to_string();
    let fields: Vec<_> = line.split_whitespace().collect();
    assert!(fields[0].starts_with('@') && fields[1..3] == [&pid, "crashed"], "{listed}");
    assert!(count(&place.snapshot(&target), "tick") > 0);
    let removed = place.pfp_top(&["gc"]);
    assert!(said(&removed).contains("removed") && removed.status.success(), "{}", said(&removed));
    assert!(!object(beacon).exists());
    assert_eq!(place.lit(), [""; 0]);
}

/// The test marks the program's segment as if a debug build had made it, with the high cost of a
/// region in a debug build.
#[test]
fn the_doctor_says_what_pfp_costs_without_optimisation_and_what_to_do() {
    let place = Place::new();
    let target = place.start_watched(STEADY, &[]);
    let watch = Watch::attach(&place, &target);
    let segment = watch.reader().segment();
    let counters = segment.counters();
    let object = format!("/dev/shm{}", segment.name().expect("it is an object").as_str());
    let object = File::options().write(true).open(object).expect("it is this user's");
    let store = |word: &AtomicU64, value: u64| {
        let at = ptr::from_ref(word).addr() - segment.base().addr();
        object.write_all_at(&value.to_ne_bytes(), at as u64).expect("it is within the object");
    };
    let doctor = || said(&place.pfp_top(&["doctor"]));
    let before = doctor();
    assert!(!before.contains("without optimisation"), "{before}");
    let pair_ns = |ns: f64| {
        let rate = counters.ticks_per_1000_s.load(Relaxed) as f64 / 1e12;
        store(&counters.overhead_pair, (rate * ns).round() as u64);
    };
    store(&counters.debug, 1);
    pair_ns(700.0);
    let found = doctor();
    for words in [
        "pfp is built without optimisation: a region costs 700 ns",
        "set opt-level = 3 for pfp-probe and pfp-shm-layout in [profile.dev.package.NAME]",
    ] {
        let found = found.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(found.contains(words), "{words:?} is not in: {found}");
    }
    // A user who follows the advice still has a debug build, but a region is cheap.
    pair_ns(60.0);
    let after = doctor();
    assert!(!after.contains("without optimisation"), "{after}");
}

#[test]
fn exit_statuses_say_why_nothing_is_shown() {
    let place = Place::new();
    let code = |arguments: &[&str]| {
        let output = place.pfp_top(arguments);
        (output.status.code(), said(&output))
    };
    assert_eq!(code(&["--once", "--no-such-option"]).0, Some(2));
    for arguments in [&["--once"][..], &["list"], &["snapshot", "-p", "1", "-o", "x.json"]] {
        let (status, text) = code(arguments);
        assert_eq!(status, Some(3), "{arguments:?}: {text}");
    }
    let (status, text) = code(&["--once", "-p", "4194305"]);
    assert_eq!(status, Some(3), "{text}");
    assert!(text.contains("there is no process 4194305"), "{text}");

    fs::write(place.path("raw"), b"\x7fELF\x02\x01\x01").unwrap();
    fs::write(place.path("empty"), "").unwrap();
    for (file, expected, words) in [
        ("none.json", 3, "there is no file none.json"),
        ("raw", 2, "raw is not a snapshot that can be shown: expected JSON"),
        ("empty", 2, "the file ends early"),
        ("beacons", 2, "beacons cannot be read: expected a regular file, found a folder"),
        (STEADY, 2, "is not a snapshot"),
    ] {
        let (status, text) = code(&["open", file]);
        assert_eq!(status, Some(expected), "{text}");
        assert!(text.contains(words), "{text}");
    }
    // Two processes, and no option to choose one.
    let (one, two) = (place.start(STEADY, &[]), place.start(STEADY, &[]));
    wait_for("both to show", || said(&place.pfp_top(&["list"])).lines().count() == 3);
    let (status, text) = code(&["--once"]);
    assert_eq!(status, Some(2), "{text}");
    for pid in [one.pid(), two.pid()] {
        assert!(text.contains(&format!("[{pid}]")) && text.contains("-p PID"), "{text}");
    }
}

#[test]
fn a_process_of_another_user_is_refused_in_words() {
    let place = Place::new();
    // Only root can start a process of another user.
    let mut foreign = place.command("sleep");
    let Ok(mut foreign) = foreign.arg("600").current_dir("/").uid(65534).spawn() else {
        pfp_tests::skipped("a process of another user", "only root can start one");
        return;
    };
    let arguments = ["--once", "-p", &foreign.id().to_string()];
    let of_root = place.pfp_top(&arguments);
    // The folder of this build may be accessible to root only.
    let (folder, all) = (place.path(""), Permissions::from_mode(0o755));
    let copy = place.path("pfp-top");
    copy_program(pfp_top(), &copy);
    fs::set_permissions(folder, all).expect("it is ours");
    let mut user = place.command(copy);
    let of_user = user.args(arguments).current_dir("/").uid(65533).output().expect("it starts");
    foreign.kill().unwrap();
    foreign.wait().unwrap();
    let text = said(&of_user);
    assert_eq!(of_user.status.code(), Some(4), "{text}");
    assert!(text.contains("belongs to uid 65534") && text.contains("sudo pfp-top -p"), "{text}");
    // Root may read every process, so the message must not suggest `sudo`.
    let text = said(&of_root);
    assert!(of_root.status.code() == Some(3) && !text.contains("sudo"), "{of_root:?}");
}
