//! Several machines watched as one: machines that can be reached, hang, cannot be reached or are
//! lost, and the commands' messages about them.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::thread;
use std::time::Duration;

use pfp_read::snapshot::{PointState, Snapshot};
use pfp_read::source;
use pfp_tests::place::{Place, count, has_counted, pfp_top};
use pfp_tests::screen::{row, rows};
use pfp_tests::target::{Target, end_with_test, wait_for};
use pfp_tests::{lacks_namespaces, needs_a_screen, os};
use serde_json::Value;

use super::{Near, STEADY, complaint};

#[test]
fn several_places_are_as_one() {
    let (near, other) = (Near::new(), Place::new());
    let mut one = near.0.start_watched(STEADY, &["one"]);
    let two = other.start_watched(STEADY, &["two"]);
    let there = format!("PFP_DIR={} nice", other.beacons().display());
    let both = ["env", there.as_str()];
    let read = |name: &str| source::open(&near.0.path(name)).unwrap().poll().unwrap();

    let output = near.run_by(&both, &["snapshot", "--all", "-o", "all.json"]);
    pfp_tests::well(&output);
    let all = read("all.json");
    let mut names: Vec<_> = all.process.members.iter().map(|it| it.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["one@env", "two@nice"]);
    let output = near.run_by(&both, &["disable", "--name", "two@nice", "tick"]);
    pfp_tests::well(&output);
    let state = |snapshot: &Snapshot| {
        snapshot.points.iter().find(|point| point.name == "tick").expect("it is there").state
    };
    assert_eq!(state(&other.snapshot(&two)), PointState::Off);
    assert_eq!(near.state(&one, "tick"), PointState::On);

    // The machines' clocks may differ, so ticks are converted to nanoseconds.
    one.kill();
    let pid = one.pid().to_string();
    let output = near.run_by(&both, &["snapshot", "-p", &pid, "-o", "one.json"]);
    pfp_tests::well(&output);
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

    // Two commands that lead to one machine show each of its processes once.
    let output = near.run_by(&["env", "nice env"], &["list", "--json"]);
    let listed: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");

    // If one machine cannot be reached, the others are still listed.
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
    // The process that was started last comes first.
    screen.keys(match line(&text, "two@nice") < line(&text, "one@env") {
        true => &["Home", "Enter"],
        false => &["End", "Enter"],
    });
    screen.wait_for("the one of the other place", is_shown(&two, "two@nice"));
    screen.quit();
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
            line.contains("/nowhere DOWN ") && line.contains(" s (pfp-top is not on the path")
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

/// A screen that waits for a silent connection cannot end by itself, but still restores the
/// terminal.
#[test]
fn a_blocked_screen_restores_the_terminal_when_it_is_ended() {
    needs_a_screen!();
    let near = Near::new();
    let _targets = ["one", "two"].map(|name| near.0.start_watched(STEADY, &[name]));
    let screen = near.0.screen(100, 20);
    screen.pfp_top(&format!("--via '{}; echo $$ > pid; exec nice'", near.via()));
    screen.wait_for("the processes", |text| text.matches("steady").count() >= 2);
    let agent = std::fs::read_to_string(near.0.path("pid")).expect("it was written");
    os::signal(agent.trim().parse().expect("an id"), libc::SIGSTOP);
    let viewer = screen.viewer();
    screen.keys(&["Enter"]);
    // By now the screen waits for the connection.
    thread::sleep(Duration::from_secs(1));
    os::signal(viewer, libc::SIGTERM);
    screen.wait_for_shell();
    assert!(!screen.has_mouse());
}

/// A machine's agent is stopped: until it continues, the other machine's figures are updated.
#[test]
fn a_stalled_place_blocks_no_other_and_is_kept() {
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
    // Keys still work. A switch on the stopped machine waits for the connection.
    let state = |place: &Place, target: &Target| {
        let snapshot = place.snapshot(target);
        snapshot.points.iter().find(|point| point.name == "tick").expect("it is there").state
    };
    screen.select("tick");
    screen.keys(&["e"]);
    wait_for("it to be off here", || state(&near.0, &one) == PointState::Off);
    screen.press(&["j"], "the other row", |text| rows(text).last().is_some_and(|row| row.selected));
    screen.press(&["e"], "an answer", |text| {
        text.lines().last().unwrap_or_default().contains("tick")
    });
    assert_eq!(state(&other, &two), PointState::On);
    os::signal(stopped, libc::SIGCONT);
    wait_for("it to be off there", || state(&other, &two) == PointState::Off);
    screen.wait_for("that it speaks", |text| {
        text.lines().next().is_some_and(|head| head.ends_with("LIVE"))
            && counts(text)[1] != before[1]
    });
    assert_eq!(agent(), stopped, "the line was not opened again");

    // The viewer quits without waiting for a stopped agent, and the agent restores the switches
    // when it continues.
    os::signal(stopped, libc::SIGSTOP);
    screen.wait_for("that it is silent", |text| late(text).is_some());
    screen.quit();
    assert_eq!(state(&near.0, &one), PointState::On);
    os::signal(stopped, libc::SIGCONT);
    wait_for("it to be put back", || state(&other, &two) == PointState::On);
    wait_for("its end", || !os::runs(stopped));
}

/// Writes an executable script for use as a `--via` command. The viewer appends the words that
/// start the agent.
fn script(near: &Near, name: &str, text: &str) -> PathBuf {
    let path = near.0.path(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("the folder is ours");
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("it is ours");
    path
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_place_that_hangs_at_the_start_blocks_no_other() {
    let near = Near::new();
    let _one = near.0.start_watched(STEADY, &["one"]);
    let text = "echo $$ >>hung; exec sleep 100000";
    let hangs = script(&near, "hangs", text).display().to_string();
    let nowhere = Place::new();
    let empty = format!("PFP_DIR={} env", nowhere.beacons().display());
    let (listed, output) = std::thread::scope(|scope| {
        let listed = scope.spawn(|| near.run_by(&["env", &hangs], &["list"]));
        let output = near.run_by(&[&empty, &hangs], &["snapshot", "--all", "-o", "none.json"]);
        (listed.join().expect("it runs"), output)
    });
    let (text, said) = (printed(&listed), complaint(&listed));
    assert!(listed.status.success() && text.contains("one@env"), "{text}{said}");
    assert!(said.contains(&format!("{hangs}: expected an agent, found none for ")), "{said}");
    // If no process is found anywhere, the hanging machine is named, too.
    let said = complaint(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("env: ") && said.contains("/hangs: expected an agent"), "{said}");
    // None of the started commands is left.
    let hung = std::fs::read_to_string(near.0.path("hung")).expect("they were started");
    let hung: Vec<u32> = hung.lines().filter_map(|pid| pid.parse().ok()).collect();
    assert!(hung.len() >= 2, "{hung:?}");
    wait_for("their end", || !hung.iter().any(|pid| os::runs(*pid)));
}

#[test]
fn a_screen_shows_what_is_there_and_names_the_place_that_hangs() {
    needs_a_screen!();
    let near = Near::new();
    let _one = near.0.start_watched(STEADY, &["one"]);
    let hangs = script(&near, "hangs", "exec sleep 100000").display().to_string();
    let screen = near.0.screen(140, 30);
    screen.pfp_top(&format!("--via '{} env' --via {hangs} --all -i 0.2", near.via()));
    screen.wait_for("the process, and the place that is late", |text| {
        row(text, "tick").is_some() && text.contains("/hangs LATE ")
    });
    screen.quit();
}

#[test]
fn the_list_on_the_screen_names_a_place_that_is_down() {
    needs_a_screen!();
    let near = Near::new();
    let _two = ["one", "two"].map(|name| near.0.start_watched(STEADY, &[name]));
    let screen = near.0.screen(140, 30);
    screen.pfp_top(&format!("--via '{} env' --via /nowhere/at/all -i 0.2", near.via()));
    screen.wait_for("both processes and the place", |text| {
        text.contains("one@env  ")
            && text.contains("two@env  ")
            && text.contains("/nowhere/at/all: pfp-top is not on the path there")
    });
    screen.quit();
}

#[test]
fn a_refused_place_is_named_where_nothing_is_found() {
    let near = Near::new();
    let output = near.run_by(&["env", "/nowhere/at/all"], &["list"]);
    let said = complaint(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("env: no instrumented process for uid"), "{said}");
    assert!(said.contains("/nowhere/at/all: pfp-top is not on the path there"), "{said}");
    assert_eq!(said.matches("/nowhere/at/all: pfp-top is not on").count(), 1, "{said}");
}

#[test]
fn commands_say_which_place_is_missing() {
    let near = Near::new();
    let one = near.0.start_watched(STEADY, &["one"]);
    wait_for("figures", || has_counted(&near.0.snapshot(&one), "tick", 3));
    let other = Place::new();
    let _two = other.start_watched(STEADY, &["two"]);
    let there = format!("PFP_DIR={} nice", other.beacons().display());
    for (arguments, place) in [
        (&["snapshot", "--all", "-o", "all.json", "--force"][..], "one@env"),
        (&["--once", "--sum", "--table"], "tick"),
        (&["export", "csv", "--all"], "tick"),
        (&["record", "--all", "-i", "100ms", "-d", "300ms", "-o", "all.rec", "--force"], ""),
    ] {
        let output = near.run_by(&["env", "/nowhere/at/all"], arguments);
        let said = complaint(&output);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {said}");
        let words = "/nowhere/at/all is missing: pfp-top is not on the path there";
        assert_eq!(said.matches(words).count(), 1, "{arguments:?}: {said}");
        let file = std::fs::read_to_string(near.0.path("all.json")).unwrap_or_default();
        assert!((printed(&output) + &file).contains(place), "{arguments:?}: {said}");
        // If all machines answer, there is no message.
        let output = near.run_by(&["env", &there], arguments);
        let said = complaint(&output);
        assert!(output.status.success() && !said.contains("missing"), "{arguments:?}: {said}");
    }
}

#[test]
fn an_export_has_the_processes_of_all_places() {
    let (near, other) = (Near::new(), Place::new());
    let one = near.0.start_watched(STEADY, &["one"]);
    let two = other.start_watched(STEADY, &["two"]);
    wait_for("figures", || has_counted(&near.0.snapshot(&one), "tick", 3));
    wait_for("figures", || has_counted(&other.snapshot(&two), "tick", 3));
    let there = format!("PFP_DIR={} nice", other.beacons().display());
    let output = near.run_by(&["env", &there], &["export", "openmetrics", "--all"]);
    let text = printed(&output);
    pfp_tests::well(&output);
    for process in ["one@env", "two@nice"] {
        let is_it = |line: &str| {
            line.starts_with("pfp_calls_total{")
                && line.contains(&format!("process=\"{process}\""))
                && line.contains("point=\"tick\"")
        };
        assert!(text.lines().any(is_it), "{process}: {text}");
    }
}

#[test]
fn a_recording_of_several_places_names_the_stalled_one() {
    let (near, other) = (Near::new(), Place::new());
    let _one = near.0.start_watched(STEADY, &["one"]);
    let _two = other.start_watched(STEADY, &["two"]);
    // The command leads to the other machine once, and then fails.
    let there = script(
        &near,
        "far",
        &format!(
            "[ -e pid ] && exit 9\necho $$ >pid\nPFP_DIR={} exec \"$@\"",
            other.beacons().display()
        ),
    );
    let mut recorder = near.0.command(pfp_top());
    let path = std::env::var("PATH").unwrap_or_default();
    recorder.env("PATH", format!("{}:{path}", near.0.path("bin").display()));
    recorder.args(["record", "--all", "-i", "50ms", "-o", "run.rec", "--via", "env", "--via"]);
    recorder.arg(there).stderr(Stdio::piped());
    let recorder = end_with_test(&mut recorder).spawn().expect("pfp-top starts");
    let last = || source::open(&near.0.path("run.rec")).ok()?.poll().ok();
    let late = |snapshot: &Snapshot, name: &str| {
        let found = snapshot.process.members.iter().find(|it| it.name.starts_with(name));
        found.map(|member| member.late_since_unix_ns.is_some())
    };
    let of = |snapshot: &Snapshot, name: &str| {
        let place = snapshot.process.members.iter().position(|it| it.name.starts_with(name));
        let place = place.expect("it is a member") as u32;
        let point = snapshot
            .points
            .iter()
            .find(|point| point.name == "tick" && point.process == Some(place));
        let id = point.expect("it is there").id;
        let cells = snapshot.cells.iter().filter(|cell| cell.point == id);
        cells.map(|cell| cell.stats.count + cell.retired.count).sum::<u64>()
    };
    wait_for("both places", || {
        let last = last()?;
        let both = late(&last, "one@env") == Some(false) && late(&last, "two@") == Some(false);
        both.then_some(())
    });
    let pid = std::fs::read_to_string(near.0.path("pid")).expect("it was written");
    os::signal(pid.trim().parse().expect("an id"), libc::SIGKILL);
    let before = wait_for("that it is late", || last().filter(|it| late(it, "two@") == Some(true)));
    let after = wait_for("the other to go on", || {
        last().filter(|it| of(it, "one@env") > of(&before, "one@env") + 3)
    });
    assert_eq!(late(&after, "one@env"), Some(false));
    assert_eq!(of(&after, "two@"), of(&before, "two@"));
    os::signal(recorder.id(), libc::SIGINT);
    let output = recorder.wait_with_output().expect("it ends");
    let said = complaint(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("/far is missing: the connection was lost"), "{said}");
    assert!(said.contains("/far missing at the end"), "{said}");
}

#[test]
fn the_imbalance_of_a_sum_is_that_over_all_places() {
    let (near, other) = (Near::new(), Place::new());
    let one = near.0.start_watched(STEADY, &["one"]);
    let two = other.start_watched(STEADY, &["two"]);
    for (place, target) in [(&near.0, &one), (&other, &two)] {
        wait_for("figures", || has_counted(&place.snapshot(target), "tick", 3));
    }
    let there = format!("PFP_DIR={} nice", other.beacons().display());
    let arguments = ["--once", "--sum", "--json", "--columns", "name,count,imbalance"];
    let output = near.run_by(&["env", &there], &arguments);
    pfp_tests::well(&output);
    let shown: Value = serde_json::from_str(&printed(&output)).expect("it is JSON");
    let points = shown["points"].as_array().expect("it has points");
    let tick: Vec<&Value> = points.iter().filter(|point| point["name"] == "tick").collect();
    assert_eq!(tick.len(), 1, "{shown}");
    let least = count(&near.0.snapshot(&one), "tick").min(count(&other.snapshot(&two), "tick"));
    let all = tick[0]["count"].as_u64().expect("a count");
    assert!(all > 6 && least > 0, "{shown}");
    // The load of the busiest of two, divided by their mean load, is between 1 and 2.
    let imbalance = tick[0]["imbalance"].as_f64().expect("an imbalance");
    assert!((1.0..=2.0).contains(&imbalance), "{shown}");
}

#[test]
fn hosts_have_a_column_and_are_filtered_by() {
    let (near, other) = (Near::new(), Place::new());
    let apart = ["--uts", "sh", "-c", "hostname pfp-elsewhere && exec \"$@\"", "sh"];
    if lacks_namespaces("processes of another host", &apart) {
        return;
    }
    let _one = near.0.start_watched(STEADY, &["one"]);
    let mut command = other.command("unshare");
    let two = Target::start(command.args(apart).arg(STEADY).arg("two"));
    let _ = other.segment(two.pid());
    let there = format!("PFP_DIR={} nice", other.beacons().display());
    let run = |more: &[&str]| {
        let output =
            near.run_by(&["env", &there], &[&["--once", "--all", "--json"], more].concat());
        pfp_tests::well(&output);
        let shown: Value = serde_json::from_str(&printed(&output)).expect("it is JSON");
        let points = shown["points"].as_array().expect("it has points").clone();
        let tick = points.into_iter().filter(|point| point["name"] == "tick");
        tick.map(|point| point["host"].as_str().expect("a host").to_owned()).collect::<Vec<_>>()
    };
    let columns = ["--columns", "name,host"];
    let hosts = run(&columns);
    assert_eq!(hosts.len(), 2, "{hosts:?}");
    assert!(hosts.iter().any(|host| host == "pfp-elsewhere"), "{hosts:?}");
    let filtered = run(&[&columns[..], &["--filter", "host:pfp-elsewhere"]].concat());
    assert_eq!(filtered, ["pfp-elsewhere"]);
    // With several machines, the table has a Host column by default.
    let output = near.run_by(&["env", &there], &["--once", "--all", "--table"]);
    let text = printed(&output);
    assert!(text.contains("Host") && text.contains("pfp-elsewhere"), "{text}");
}

#[test]
fn via_to_this_machine_works_without_pfp_top_on_the_path() {
    let near = Near::new();
    let _one = near.0.start_watched(STEADY, &["one"]);
    std::fs::create_dir(near.0.path("elsewhere")).expect("the folder is new");
    let program = near.0.path("elsewhere/pfp-top");
    os::copy_program(pfp_top(), &program);
    let mut command = near.0.command(&program);
    let output = command.env("PATH", "/usr/bin:/bin").args(["list", "--via", "env"]).output();
    let output = output.expect("it starts");
    let text = printed(&output);
    assert!(output.status.success() && text.contains("one"), "{text}{}", complaint(&output));
}
