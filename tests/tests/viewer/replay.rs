//! A recording replayed in a real terminal.

use std::cell::RefCell;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use pfp_read::local_time::time_of_day;
use pfp_read::source::{Recording, Source};
use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::needs_a_screen;
use pfp_tests::os::signal;
use pfp_tests::place::{Place, pfp_top};
use pfp_tests::pty::Pty;
use pfp_tests::screen::{Screen, row};
use pfp_tests::target::{Target, wait_for};
use pfp_tests::tools::lacks;

const STEADY: &str = env!("CARGO_BIN_EXE_steady");

fn record(place: &Place, target: &Target, file: &Path) -> Child {
    let mut command = place.command(pfp_top());
    command.args(["record", "-i", "50ms", "--events", "-p", &target.pid().to_string(), "-o"]);
    let child = command.arg(file).stderr(Stdio::null()).spawn().expect("pfp-top starts");
    wait_for("the recording", || file.exists());
    child
}

fn read(file: &Path) -> Recording {
    Recording::read(File::open(file).unwrap(), file).unwrap()
}

/// Waits until the replay is at this snapshot, counted from 1.
#[track_caller]
fn at(screen: &Screen, number: usize) -> String {
    screen.wait_for(&format!("snapshot {number}"), |text| {
        let first = text.lines().next().unwrap_or_default();
        first.contains(&format!(" ({number} of ")) && row(text, "work").is_some()
    })
}

#[test]
fn a_recording_is_replayed_with_a_cursor_in_time() {
    needs_a_screen!();
    let place = Place::new();
    let mut target = place.start_watched(STEADY, &[]);
    let file = place.path("a.pfprec");
    let mut recorder = record(&place, &target, &file);
    wait_for("snapshots", || read(&file).len() >= 30);
    target.tell("slow");
    wait_for("snapshots", || read(&file).len() >= 60);

    // While the recording grows, so does the number of its snapshots.
    let screen = place.screen(130, 34);
    screen.pfp_top("open a.pfprec");
    // The replay opens at the last snapshot.
    screen.wait_for("the last snapshot", |text| {
        let number = |part: Option<&str>| part?.trim().parse::<usize>().ok();
        let shown = text.lines().next().and_then(|line| line.split_once(" of ")).map(|(a, _)| a);
        number(shown.and_then(|shown| shown.rsplit('(').next())).is_some_and(|it| it >= 30)
    });
    screen.text("^");
    let first = at(&screen, 1);
    assert!(first.contains("REPLAY ") && first.contains("+)"), "{first}");
    let len = read(&file).len();
    screen.wait_for("it to grow", |text| {
        let of = text.lines().next().and_then(|line| line.split(" of ").nth(1)?.split('+').next());
        of.is_some_and(|of| of.parse::<usize>().is_ok_and(|of| of > len + 5))
    });
    signal(recorder.id(), libc::SIGINT);
    assert!(recorder.wait().unwrap().success());
    drop(target);
    let mut recording = read(&file);
    let len = recording.len();
    let since_first: Vec<_> = (0..len).map(|place| recording.since_first(place)).collect();
    screen.wait_for("its end", |text| text.contains(&format!("(1 of {len})")));

    // Each snapshot shows the figures of the file, whether the replay moves forwards, backwards or
    // jumps.
    let mut count = |place: usize| {
        recording.seek(place - 1);
        let snapshot = recording.poll().unwrap();
        let id = snapshot.points.iter().find(|point| point.name == "work").unwrap().id;
        let cells = snapshot.cells.iter().filter(|cell| cell.point == id);
        let count: u64 = cells.map(|cell| cell.stats.count).sum();
        (count, time_of_day(snapshot.taken_unix_ns))
    };
    let mut check = |number: usize| -> String {
        let text = at(&screen, number);
        let (count, time) = count(number);
        assert!(row(&text, "work").unwrap().counts(count), "{count}: {text}");
        let place = format!("{time} ({number} of {len})");
        assert!(text.lines().next().unwrap().contains(&place), "{text}");
        text
    };
    check(1);
    screen.text(".");
    check(2);
    screen.keys(&["S-Right"]);
    check(3);
    screen.text(",");
    check(2);
    screen.text("$");
    check(len);
    screen.text("@#40");
    screen.keys(&["Enter"]);
    let table = |text: &str| text.lines().skip(3).take(8).collect::<Vec<_>>().join("\n");
    let forty = check(40);
    screen.text("}");
    check(len);
    screen.text("{");
    check(1);
    screen.text("@#39");
    screen.keys(&["Enter"]);
    check(39);
    screen.text(".");
    // Loads and rates are computed from two snapshots, without smoothing. The plots of the earlier
    // load and the order of rows with almost the same load depend on what was shown before, so they
    // are not compared.
    let figures = |text: &str| {
        let table = table(text).replace(|c: char| !c.is_ascii(), "").replace('>', " ");
        let mut rows: Vec<_> = table.lines().map(str::to_owned).collect();
        rows.sort();
        rows
    };
    assert_eq!(figures(&check(40)), figures(&forty));

    // A snapshot number that does not exist is refused, and can be corrected.
    screen.text(&format!("@#{}", len + 1));
    screen.press(&["Enter"], "what there is", |text| text.contains("expected a moment from"));
    screen.keys(&["C-u"]);
    screen.text("+1s");
    screen.keys(&["Enter"]);
    let far = |place: &usize| since_first[*place].abs_diff(Duration::from_secs(1));
    let nearest = (0..len).min_by_key(far);
    at(&screen, nearest.expect("there are snapshots") + 1);

    // Compares with an earlier moment; the program became slow after it.
    screen.text("@#25");
    screen.keys(&["Enter"]);
    at(&screen, 25);
    screen.text("b$5");
    screen.wait_for("the difference", |text| {
        text.contains(" since") && text.lines().any(|l| l.contains("work") && l.contains("slower"))
    });
    screen.text("^");
    screen.wait_for("nothing to compare", |text| text.contains("between the baseline and this"));

    // The other screens show this moment's threads, records and windows.
    screen.text("4@#30");
    screen.press(&["Enter"], "the timeline of that moment", |text| {
        text.contains("(30 of") && text.contains("worker") && text.contains(" wide")
    });
    // The right edge of the timeline is that moment, and not now.
    screen.wait_for("its edge", |text| text.contains("here|") && !text.contains("now|"));
    // A round takes a tenth of a second; the initial width depends on the number of regions.
    let before = RefCell::new(String::new());
    screen.wait_for("rounds", |text| {
        let width = text.lines().find(|line| line.contains(" wide")).unwrap_or_default();
        if text.contains("round") && text.contains("ticker") {
            return true;
        }
        // One key for each width, since the screen needs time to redraw.
        if *before.borrow() != width {
            before.replace(width.to_owned());
            screen.keys(&["-"]);
        }
        false
    });
    screen.text("3");
    screen.wait_for("the threads", |text| text.contains("worker") && text.contains("(30 of"));
    screen.text("1");
    at(&screen, 30);
    screen.press(&["g", "g", "Enter"], "the load up to there", |text| {
        text.contains("Load") && text.contains("here|")
    });
    // Nothing is known from before the first snapshot, so the window is shorter than ten seconds,
    // and has the measurements since then.
    screen.text("HH");
    let measured = count(30).0 - count(1).0;
    screen.wait_for("a window", |text| {
        text.contains("(30 of") && text.contains(&format!("{measured} calls"))
    });
    screen.text("6");
    screen.wait_for("the log", |text| text.contains("(30 of") && text.contains("6 Log"));
    screen.text("1");

    // A recorded process cannot be changed.
    screen.text("e");
    screen.wait_for("a refusal", |text| text.contains("a recording cannot be changed"));

    // The replay plays to the end without keys, and then from the beginning again.
    screen.text("]]]");
    screen.press(&["Space"], "the end", |text| {
        text.contains(&format!("REPLAY {}", count_time(len, &file)))
    });
    screen.press(&["Space"], "it to play", |text| text.contains("PLAYING 10x"));
    screen.text("q");
    screen.wait_for_shell();
    screen.pfp_top("open a.pfprec -n 3");
    screen.wait_for("a refusal", |text| text.contains("-n does not apply"));
}

/// The text in the first line of the screen when the replay is at this snapshot.
fn count_time(number: usize, file: &Path) -> String {
    let recording = read(file);
    format!(
        "{} ({number} of {})",
        time_of_day(recording.taken_unix_ns(number - 1)),
        recording.len()
    )
}

/// Without a screen: prints the last moment, or the requested one.
#[test]
fn a_moment_of_a_recording_is_printed() {
    let place = Place::new();
    let target = place.start_watched(STEADY, &[]);
    let file = place.path("a.pfprec");
    let mut recorder = record(&place, &target, &file);
    wait_for("snapshots", || read(&file).len() >= 30);
    signal(recorder.id(), libc::SIGINT);
    assert!(recorder.wait().unwrap().success());
    let len = read(&file).len();
    let out = |arguments: &[&str]| {
        let output = place.pfp_top(arguments);
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let last = out(&["open", "--once", "a.pfprec"]);
    assert_eq!(last, out(&["open", "a.pfprec", "--at", &format!("#{len}")]));
    let (status, early) = out(&["open", "a.pfprec", "--at", "#5"]);
    assert_eq!(status, Some(0));
    let count = |text: &str| -> u64 {
        let line = text.lines().find_map(|line| line.split_once(" work ")).unwrap().1;
        // The column after the load.
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    assert!(count(&early) < count(&last.1), "{early}{}", last.1);
    let (status, diff) = out(&["diff", "a.pfprec", "a.pfprec", "--from", "#5"]);
    assert!(status == Some(0) && diff.contains("work"), "{diff}");
    assert_eq!(out(&["open", "a.pfprec", "--at", "#9999"]).0, Some(2));
    assert_eq!(out(&["diff", "a.pfprec", "a.pfprec"]).0, Some(2));
}

/// A preloaded library lets all reads of the recording hang. Keys still work, and so do Ctrl-C and q.
#[test]
fn keys_work_while_the_disk_hangs() {
    if lacks("a disk that hangs", "cc") {
        return;
    }
    let flags = ["-shared", "-fPIC"];
    let sources = ["hanging_file.c"];
    let preload = c::compile(Compiler::C, "hanging_file.so", &sources, Link::Without, flags);
    let place = Place::new();
    let target = place.start_watched(STEADY, &[]);
    let file = place.path("a.pfprec");
    let mut recorder = record(&place, &target, &file);
    wait_for("snapshots", || read(&file).len() >= 10);
    signal(recorder.id(), libc::SIGINT);
    assert!(recorder.wait().unwrap().success());
    let hangs = place.path("hangs");
    for leave in ["q", "\x03"] {
        let mut command = place.command(pfp_top());
        command.args(["open", "a.pfprec"]).env("LD_PRELOAD", &preload);
        let mut terminal = Pty::start(command.env("PFP_TEST_HANGS", &hangs), 120, 30);
        terminal.wait_for("the table", |text| text.contains("tick"));
        std::fs::write(&hangs, "").unwrap();
        terminal.keys(",");
        std::thread::sleep(Duration::from_secs(1));
        // Ctrl-L draws the whole screen.
        let start = Instant::now();
        terminal.keys("\x0c");
        terminal.wait_for("that it waits", |text| text.contains("waiting for the file: "));
        let took = start.elapsed();
        assert!(took < Duration::from_secs(1), "{took:?}");
        terminal.keys(leave);
        assert!(terminal.end().code().is_some(), "a signal ended it");
        assert_eq!(terminal.settings(), terminal.settings_before());
        std::fs::remove_file(&hangs).unwrap();
    }
}
