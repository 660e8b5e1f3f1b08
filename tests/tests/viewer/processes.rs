//! Several processes on a real screen: sorting by process, messages about processes that start and
//! end, a program without memory, and a program that is restarted.

use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::find;
use pfp_shm_layout::segment::Segment;
use pfp_tests::needs_a_screen;
use pfp_tests::place::{Place, pfp_top};
use pfp_tests::screen::{self, Screen, row};
use pfp_tests::target::Target;

const STEADY: &str = env!("CARGO_BIN_EXE_steady");

/// Waits until every process has rows.
fn wait_for_rows(screen: &Screen, targets: &[(&str, &Target)]) {
    screen.wait_for("rows of each", |text| {
        targets.iter().all(|(name, target)| {
            let process = format!("{name}[{}]", target.pid());
            text.lines().filter(|line| line.contains(&process)).count() >= 6
        })
    });
}

/// The process names of the rows, from the top.
fn processes(text: &str) -> Vec<&str> {
    let of = |line: &'_ str| {
        let start = ["alpha[", "omega["].iter().find_map(|name| line.find(name))?;
        Some(start..start + 5)
    };
    let rows = text.lines().filter(|line| line.contains(['●', '○']));
    rows.filter_map(|line| Some(&line[of(line)?])).collect()
}

#[test]
fn rows_are_sorted_by_process_with_keys_and_mouse() {
    needs_a_screen!();
    let place = Place::new();
    let (alpha, omega) = (place.start(STEADY, &["alpha"]), place.start(STEADY, &["omega"]));
    let screen = place.screen(140, 34);
    screen.pfp_top("--all -i 0.1 --sort name");
    wait_for_rows(&screen, &[("alpha", &alpha), ("omega", &omega)]);
    // Change the sorting from the name to the column before it.
    screen.keys(&["<"]);
    let heading = |text: &str, sorted: &str| screen::heading(text).contains(sorted);
    screen.wait_for("alpha above omega", |text| {
        let found = processes(text);
        heading(text, "Process▲") && found.len() >= 12 && found.is_sorted()
    });
    screen.press(&["I"], "omega above alpha", |text| {
        let found = processes(text);
        heading(text, "Process▼") && found.len() >= 12 && found.iter().rev().is_sorted()
    });
    // Clicks on the heading, with the terminal's mouse codes.
    let text = screen.shown();
    let place = screen::heading(&text).find("Process").unwrap() + 2;
    let line = text.lines().position(|line| line.contains(" Process")).unwrap() + 1;
    screen.text(&format!("\x1b[<0;{place};{line}M\x1b[<0;{place};{line}m"));
    screen.wait_for("turned again", |text| heading(text, "Process▲"));
    screen.quit();
}

#[test]
fn losses_for_lack_of_memory_are_shown_and_explained() {
    needs_a_screen!();
    for (setting, lost, explained) in [
        ("PFP_LANES=1", "share the overflow lane", "more threads ran than there are lanes"),
        ("PFP_POINTS=4", "points not measured: table full", "the table of points was full"),
    ] {
        let place = Place::new();
        let screen = place.screen(140, 34);
        let run = format!("run -i 0.1 -- sh -c 'sleep 600 | {STEADY} small'");
        screen.line(&format!("{setting} {} {run}", pfp_top().display()));
        screen.wait_for("that something is lost", |text| {
            let notice = text.lines().find(|line| line.contains("lost: ")).unwrap_or_default();
            notice.contains("lost: ")
                && notice.contains(lost)
                && notice.ends_with(": Enter explains")
        });
        screen.press(&["Enter"], "what that means", |text| {
            text.contains("[2 Detail]") && text.contains(" Lost: ") && text.contains(explained)
        });
        screen.keys(&["1", "q", "e"]);
        screen.wait_for_shell();
    }
}

#[test]
fn a_restarted_program_can_be_chosen_from_the_list() {
    needs_a_screen!();
    let place = Place::new();
    let mut first = place.start(STEADY, &["again"]);
    let screen = place.screen(130, 30);
    screen.pfp_top("-i 0.1 --sort name");
    let of = |target: &Target| format!("again[{}]", target.pid());
    let head = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    screen.wait_for("the first", |text| {
        head(text).contains(&of(&first))
            && head(text).ends_with("LIVE")
            && row(text, "tick").is_some()
    });
    first.kill();
    let last = screen.wait_for_status("CRASHED");
    let second = place.start(STEADY, &["again"]);
    // The screen keeps the dead process until the user chooses another one.
    screen.keys(&["P"]);
    let pids = [first.pid(), second.pid()].map(|pid| pid.to_string());
    screen.wait_for("both to choose from", |text| pids.iter().all(|pid| text.contains(pid)));
    let text = screen.press(&["g", "g", "Enter"], "the second", |text| {
        head(text).contains(&of(&second))
            && head(text).ends_with("LIVE")
            && row(text, "tick").is_some()
    });
    assert!(row(&last, "tick").is_some() && !text.contains("CRASHED"), "{last}");
    screen.quit();
}

#[test]
fn joining_ending_and_dying_processes_are_reported_and_logged() {
    needs_a_screen!();
    let place = Place::new();
    let (alpha, mut omega) = (place.start(STEADY, &["alpha"]), place.start(STEADY, &["omega"]));
    let screen = place.screen(140, 34);
    screen.pfp_top("--all -i 0.1 --sort name");
    wait_for_rows(&screen, &[("alpha", &alpha), ("omega", &omega)]);
    let last = |text: &str| text.trim_end().lines().next_back().unwrap_or("").to_owned();
    let late = place.start(STEADY, &["late"]);
    let joined = format!("late[{}] joined", late.pid());
    screen.wait_for("who joined", |text| last(text).contains(&joined));
    let ended = format!("alpha[{}] ended in order", alpha.pid());
    alpha.end_well();
    screen.wait_for("who ended", |text| last(text).contains(&ended));
    omega.kill();
    let died = format!("omega[{}] crashed or was killed", omega.pid());
    let marked = format!("omega[{}] died ", omega.pid());
    screen.wait_for("who died", |text| {
        last(text).contains(&died)
            && text.contains(&marked)
            && text.contains("1 new problem (press 6)")
            && text.contains("3 processes, 2 ended")
    });
    screen.press(&["6"], "all of it in the log", |text| {
        [&joined, &ended, &died].iter().all(|said| text.contains(said.as_str()))
    });
    screen.quit();
}

/// A process has its name and its clock from the first moment at which a viewer can open it.
#[test]
fn a_process_that_can_be_opened_has_its_name_and_clock() {
    let place = Place::new();
    let dir = Directory::open(place.beacons()).unwrap();
    for _ in 0..20 {
        let target = place.start(STEADY, &["newcomer"]);
        // Polls without a pause, unlike the other waits.
        let segment = (0..u64::MAX).find_map(|_| {
            let entries = find::find(&dir).unwrap().entries;
            let entry = entries.iter().find(|entry| entry.info.process.pid == target.pid())?;
            Some(Segment::open(&entry.info.object).ok()?.0)
        });
        let segment = segment.unwrap();
        let mut name = String::new();
        segment.counters().read_name(&mut name).expect("there is memory");
        let rate = segment.counters().ticks_per_1000_s.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!((name.as_str(), rate > 0), ("newcomer", true));
    }
}
