//! The table as a user works with it: filtering, switching many points, choosing columns, the
//! mouse, job control, and the settings file.

use pfp_read::snapshot::{PointState, Snapshot};
use pfp_tests::needs_a_screen;
use pfp_tests::place::{Place, pfp_top};
use pfp_tests::screen::{Screen, heading, row, rows};
use pfp_tests::target::{Target, wait_for};

const STEADY: &str = env!("CARGO_BIN_EXE_steady");
/// Sorted by name, so that no row moves.
const QUICK: &str = "-i 0.1 --sort name";

fn states(place: &Place, target: &Target, names: [&str; 3]) -> [PointState; 3] {
    let snapshot = place.snapshot(target);
    names.map(|name| snapshot.points.iter().find(|point| point.name == name).unwrap().state)
}

fn watching<'a>(place: &'a Place, before: &str, more: &str) -> (Target, Screen<'a>) {
    let target = place.start(STEADY, &[]);
    let screen = place.screen(130, 24);
    screen.line(&format!("{before} {} {QUICK} {more}", pfp_top().display()));
    screen.wait_for_count("tick", 2);
    (target, screen)
}

fn names(text: &str) -> Vec<String> {
    rows(text).iter().map(|row| row.name().to_owned()).collect()
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn last_line(text: &str) -> &str {
    text.lines().rfind(|line| !line.is_empty()).unwrap_or_default()
}

#[test]
fn rows_are_filtered_while_the_text_is_typed() {
    needs_a_screen!();
    let place = Place::new();
    let (_target, screen) = watching(&place, "", "");
    let all = names(&screen.shown());
    screen.fill("/", "thread:work");
    screen.wait_for("the worker's points", |text| {
        names(text) == ["inner", "work"] && last_line(text).starts_with(" filter: thread:work")
    });
    screen.keys(&["C-u"]);
    screen.text("/^(tick|round");
    screen.wait_for("what is wrong", |text| {
        last_line(text).contains("open group") && names(text) == all
    });
    screen.text(")$");
    let found = screen.press(&["Enter"], "both points, and that others are hidden", |text| {
        names(text) == ["round", "tick"] && last_line(text).contains("? help")
    });
    let said = format!("filter /^(tick|round)$ 2/{}", all.len());
    assert!(first_line(&found).contains(&said), "{found}");

    // All terms must match. An invalid term hides no rows, and is named.
    screen.fill("/", "thread:ticker !tick file:/[/");
    screen.wait_for("which is wrong", |text| {
        names(text) == ["round", "#5"] && last_line(text).contains("file:/[/: found unclosed")
    });
    // The prompt stays.
    screen.keys(&["Enter", "BSpace", "BSpace", "BSpace"]);
    screen.wait_for("what is left", |text| !last_line(text).contains("/[/"));
    screen.text("steady.rs");
    screen.press(&["Enter"], "what passes all three", |text| {
        names(text) == ["round"] && last_line(text).contains("? help")
    });
    screen.press(&["Escape"], "all points", |text| {
        names(text) == all && !first_line(text).contains("filter")
    });
}

#[test]
fn all_points_shown_are_switched_and_reset_after_a_yes() {
    needs_a_screen!();
    let place = Place::new();
    let (target, screen) = watching(&place, "", "");
    let all = ["tick", "round", "work"];
    use PointState::{Off, On};
    screen.fill("/", "tick|round");
    screen.press(&["Enter", "E"], "the question", |text| {
        last_line(text).contains("switch off 2 points that pass the filter?")
    });
    screen.press(&["n"], "the keys", |text| last_line(text).contains("? help"));
    assert_eq!(states(&place, &target, all), [On, On, On]);
    screen.keys(&["E", "y"]);
    wait_for("two points to be off", || states(&place, &target, all) == [Off, Off, On]);
    screen.keys(&["E", "y"]);
    wait_for("them to be on", || states(&place, &target, all) == [On, On, On]);

    let before = place.snapshot(&target);
    screen.press(&["R"], "the question", |text| last_line(text).contains("reset 2 points"));
    screen.keys(&["y"]);
    let resets = |name: &str| {
        let of = |snapshot: &Snapshot| {
            snapshot.points.iter().find(|point| point.name == name).unwrap().resets
        };
        of(&place.snapshot(&target)) - of(&before)
    };
    wait_for("two points to start afresh", || resets("tick") == 1 && resets("round") == 1);
    assert_eq!(resets("work"), 0);

    // Points that are off when the viewer quits are restored.
    screen.keys(&["E", "y"]);
    wait_for("two points to be off", || states(&place, &target, all) == [Off, Off, On]);
    screen.press(&["F10"], "no filter", |text| last_line(text).contains("q quit"));
    screen.keys(&["F10"]);
    screen.wait_for_shell();
    assert_eq!(states(&place, &target, all), [On, On, On]);
}

#[test]
fn the_next_viewer_names_the_switches_that_a_killed_one_left() {
    needs_a_screen!();
    let place = Place::new();
    let (target, screen) = watching(&place, "", "");
    let all = ["tick", "round", "work"];
    use PointState::{Off, On};
    screen.fill("/", "tick|round");
    screen.press(&["Enter", "E"], "the question", |text| last_line(text).contains("2 points"));
    screen.keys(&["y"]);
    wait_for("two points to be off", || states(&place, &target, all) == [Off, Off, On]);
    // A second viewer does not restore the switches of a running viewer, and does not report them.
    let said = "left by a viewer that was killed";
    let beside = place.screen(130, 24);
    beside.line(&format!("{} {QUICK}", pfp_top().display()));
    assert!(!beside.wait_for_count("work", 2).contains(said));
    pfp_tests::os::signal(screen.viewer(), libc::SIGKILL);
    let all_said = "2 points are off, left by a viewer that was killed; E switches them on";
    beside.wait_for("what it left", |text| text.contains(all_said));
    beside.quit();
    assert_eq!(states(&place, &target, all), [Off, Off, On]);

    let screen = place.screen(130, 24);
    screen.line(&format!("{} {QUICK}", pfp_top().display()));
    screen.wait_for("what it left", |text| text.contains(all_said));
    screen.press(&["E"], "the question", |text| last_line(text).contains("switch on 2 points"));
    screen.keys(&["y"]);
    wait_for("them to be on", || states(&place, &target, all) == [On; 3]);
    screen.wait_for("nothing more of it", |text| !text.contains(said));
    screen.quit();
    assert_eq!(states(&place, &target, all), [On; 3], "they stay on");
}

#[test]
fn a_weight_is_set_and_a_row_copied() {
    needs_a_screen!();
    let place = Place::new();
    let (target, screen) = watching(&place, "", "");
    screen.fill("/", "tick");
    screen.keys(&["Enter"]);
    screen.fill("a", "500ms/100ms");
    screen.press(&["Enter"], "the reason", |text| {
        last_line(text).contains("500ms/100ms") && last_line(text).contains("T/tau is 5: expected")
    });
    screen.keys(&["C-u"]);
    screen.text("100ms/400ms");
    screen.keys(&["Enter"]);
    let alpha = || {
        let snapshot = place.snapshot(&target);
        snapshot.points.iter().find(|point| point.name == "tick").unwrap().alpha
    };
    wait_for("the program to know", || alpha() == Some(0.25));
    screen.fill("a", "off");
    screen.keys(&["Enter"]);
    wait_for("averaging to be off", || alpha().is_none());

    screen.press(&["y"], "the message", |text| last_line(text).contains("OSC 52"));
    wait_for("the clipboard to have it", || {
        let copied = screen.copied();
        copied.starts_with("tick  tests/src/bin/steady.rs:") && copied.contains("  Load% ")
    });
}

#[test]
fn columns_are_chosen() {
    needs_a_screen!();
    let place = Place::new();
    let (_target, screen) = watching(&place, "", "");
    screen
        .press(&["c"], "the columns", |text| text.contains("[x] Name") && text.contains("[ ] ID"));
    screen.press(&["G"], "the last column", |text| text.contains(">[ ] Queued"));
    screen.press(&["k"; 7], "the column", |text| text.contains(">[ ] Thr"));
    screen.keys(&["Space", "k", "Space"]);
    let ends_in_them = |text: &str| {
        let heading = heading(text).replace("Waits for", "");
        heading.split_whitespace().collect::<Vec<_>>().ends_with(&["Off%", "Switch", "Thr"])
    };
    screen.press(&["Escape"], "two columns more", ends_in_them);
    screen.press(&["c", "G", "g", "g"], "the columns", |text| text.contains("[x] Name"));
    screen.press(&["j", "j", "j", "j", "j", "Space", "Escape"], "a column less", |text| {
        !heading(text).contains("Count") && ends_in_them(text)
    });
}

#[test]
fn the_mouse_selects_opens_and_sorts_unless_it_is_left_alone() {
    needs_a_screen!();
    let place = Place::new();
    let (_target, screen) = watching(&place, "", "");
    assert!(screen.has_mouse());
    let text = screen.shown();
    let click = |x: usize, y: usize| screen.text(&format!("\x1b[<0;{};{}M", x + 1, y + 1));
    let line = |name: &str| text.lines().position(|line| line.contains(name)).unwrap();
    click(20, line(" tick "));
    screen.wait_for("the cursor on it", |text| row(text, "tick").is_some_and(|row| row.selected));
    click(20, line(" tick "));
    screen.wait_for("the point in full", |text| text.contains("tick  id "));
    screen.keys(&["Escape"]);
    // Wait for the table: a click directly after the key would be parsed as one sequence with the
    // key.
    screen.wait_for("the table", |text| row(text, "tick").is_some());
    let place = heading(&text).split("Load%").next().unwrap().chars().count();
    let above = text.lines().position(|line| line.contains("Load%")).unwrap();
    click(place, above);
    screen.wait_for("the heading", |text| text.contains("Load%▼"));
    click(place, above);
    screen.wait_for("the other way round", |text| text.contains("Load%▲"));
    // Scrolls one notch down from the first row.
    screen.keys(&["g", "g"]);
    screen.text("\x1b[<65;20;5M");
    screen.wait_for("the cursor three rows further", |text| {
        rows(text).iter().position(|row| row.selected) == Some(3)
    });
    screen.quit();
    assert!(!screen.has_mouse());
    screen.pfp_top("-i 0.1 --no-mouse");
    screen.wait_for_status("LIVE");
    assert!(!screen.has_mouse());
}

#[test]
fn job_control_stops_and_continues_the_viewer() {
    needs_a_screen!();
    let place = Place::new();
    let (_target, screen) = watching(&place, "", "");
    let viewer = screen.viewer().to_string();
    for way in ["key", "TSTP"] {
        match way {
            "key" => screen.keys(&["C-z"]),
            signal => {
                let sent = place.command("kill").args(["-s", signal, &viewer]).status().unwrap();
                assert!(sent.success());
            }
        }
        screen.wait_for_shell();
        assert!(!screen.has_mouse());
        screen.line("fg");
        screen.wait_for_status("LIVE");
        wait_for("the mouse to be taken again", || screen.has_mouse());
    }
    screen.quit();
}

#[test]
fn settings_come_from_the_file_the_environment_and_the_command_line() {
    needs_a_screen!();
    let place = Place::new();
    let file = place.path("settings.toml");
    std::fs::write(
        &file,
        "columns = [\"id\", \"name\", \"count\", \"rate\", \"load\"]\nascii = true\n",
    )
    .unwrap();
    let named = format!("PFP_TOP_CONFIG={}", file.display());
    let target = place.start(STEADY, &[]);
    let screen = place.screen(100, 20);
    screen.line(&format!("{named} PFP_TOP_SORT=id {} -i 0.1", pfp_top().display()));
    screen.wait_for("the file's columns, the environment's order", |text| {
        heading(text).starts_with(" On   ID^ Name") && heading(text).ends_with("Count    /s  Load%")
    });
    screen.quit();
    screen.line(&format!("{named} PFP_TOP_SORT=id {} --sort count", pfp_top().display()));
    screen.wait_for("the command line's order", |text| heading(text).contains("Countv"));
    screen.quit();
    // Empty settings change nothing.
    let empty =
        ["THEME", "INTERVAL", "TAU", "SORT", "COLUMNS", "UNIT", "KEEP", "ASCII", "NO_MOUSE"];
    let mut command = place.command(pfp_top());
    command.arg("--once").envs(empty.map(|name| (format!("PFP_TOP_{name}"), "")));
    let output = command.output().unwrap();
    pfp_tests::well(&output);
    command.env("PFP_TOP_THEME", "pink");
    assert_eq!(command.output().unwrap().status.code(), Some(2));
    std::fs::write(&file, "sort = \"name\"\nmouse = maybe\n").unwrap();
    let run = |command: &str| {
        let mut command_line = place.command(pfp_top());
        command_line.env("PFP_TOP_CONFIG", &file).args(command.split(' '));
        command_line.output().unwrap()
    };
    // An unreadable settings file does not keep the viewer from starting.
    let warned = run("--once");
    pfp_tests::well(&warned);
    let said = String::from_utf8_lossy(&warned.stderr).into_owned();
    assert!(said.contains("settings.toml:2: "), "{said}");
    // Commands without a screen need no settings.
    pfp_tests::well(&run("list"));
    drop(target);
}
