//! Several real processes as one: side by side, summed, coming and going.

use pfp_tests::screen::{Stage, Target, why_no_screen};
use pfp_top::export::json;
use pfp_top::snapshot::{PointState, ProcessState, Snapshot};

const STEADY: &str = env!("CARGO_BIN_EXE_steady");

/// Leaves a test for which there is no terminal, and says so.
macro_rules! needs_a_screen {
    () => {
        if let Some(why) = why_no_screen() {
            pfp_tests::skipped("the viewer in a terminal", &why.to_string());
            return;
        }
    };
}

fn snapshot(stage: &Stage, arguments: &[&str]) -> Snapshot {
    try_snapshot(stage, arguments).unwrap_or_else(|why| panic!("{why}"))
}

fn try_snapshot(stage: &Stage, arguments: &[&str]) -> Result<Snapshot, String> {
    let file = stage.path("several.json");
    let path = file.to_str().unwrap();
    let all = [&["snapshot", "-o", path, "--force"], arguments].concat();
    let output = stage.pfp_top(&all);
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(json::read(&file).unwrap())
}

/// The count of a point, of one process where there are several.
fn count(snapshot: &Snapshot, name: &str, pid: Option<u32>) -> u64 {
    let of = |place: Option<u32>| {
        place.and_then(|place| snapshot.process.members.get(place as usize)).map(|p| p.pid)
    };
    let point = snapshot.points.iter().find(|p| p.name == name && of(p.process) == pid);
    let id = point.unwrap_or_else(|| panic!("no {name} of {pid:?}")).id;
    let cells = snapshot.cells.iter().filter(|cell| cell.point == id);
    cells.map(|cell| cell.stats.count + cell.retired.count).sum()
}

fn wait_for_ticks(stage: &Stage, target: &Target, least: u64) {
    let pid = target.pid().to_string();
    pfp_tests::screen::wait_until("ticks", || {
        // It may not have come by its first point yet.
        let Ok(snapshot) = try_snapshot(stage, &["-p", &pid]) else { return false };
        let ticks = snapshot.points.iter().any(|point| point.name == "tick");
        ticks && count(&snapshot, "tick", None) >= least
    });
}

#[test]
fn the_sum_is_that_of_its_processes() {
    let stage = Stage::new();
    let mut targets = ["one", "two", "three"].map(|name| stage.start(STEADY, &[name]));
    for target in &targets {
        wait_for_ticks(&stage, target, 3);
    }
    // Figures that stand still can be compared: those of the dead do.
    let pids = targets.each_ref().map(|target| target.pid().to_string());
    for target in &mut targets {
        target.kill();
    }
    let mut chosen = Vec::new();
    for pid in &pids {
        chosen.extend(["-p", pid.as_str()]);
    }
    let apart = snapshot(&stage, &chosen);
    chosen.push("--sum");
    let sum = snapshot(&stage, &chosen);
    assert_eq!(sum.process.state, ProcessState::Crashed);
    for name in ["tick", "work", "inner", "round"] {
        let each = pids.iter().map(|pid| {
            let alone = snapshot(&stage, &["-p", pid]);
            let alone = count(&alone, name, None);
            assert_eq!(count(&apart, name, pid.parse().ok()), alone, "{name} of {pid}");
            alone
        });
        let each: u64 = each.sum();
        assert!(each >= 6 && count(&sum, name, None) == each, "{name}");
    }
    assert_eq!(sum.points.iter().filter(|point| point.name == "tick").count(), 1);
}

#[test]
fn processes_come_and_go_and_the_others_go_on() {
    needs_a_screen!();
    let stage = Stage::new();
    let (mut one, two) = (stage.start(STEADY, &["one"]), stage.start(STEADY, &["two"]));
    for target in [&one, &two] {
        wait_for_ticks(&stage, target, 1);
    }
    let screen = stage.screen(140, 34);
    screen.pfp_top("--all -d 0.1 --sort name");
    let rows = |text: &str, name: &str| text.lines().filter(|line| line.contains(name)).count();
    let [first, second] = [&one, &two].map(|target| target.pid());
    screen.wait_for("both", |text| {
        text.contains("2 processes")
            && rows(text, &format!("one[{first}]")) >= 6
            && rows(text, &format!("two[{second}]")) >= 6
    });
    one.end();
    screen.wait_for("the end of one", |text| {
        text.contains("2 processes, 1 ended")
            && rows(text, &format!("one[{first}] ended")) >= 6
            && rows(text, &format!("two[{second}] ended")) == 0
            && text.lines().next().is_some_and(|line| line.ends_with("LIVE"))
    });
    let three = stage.start(STEADY, &["three"]);
    screen.wait_for("another one", |text| {
        text.contains("3 processes, 1 ended")
            && rows(text, &format!("three[{}]", three.pid())) >= 6
            && rows(text, &format!("one[{first}] ended")) >= 6
    });
    screen.keys(&["q"]);
    screen.wait_for_shell();
}

#[test]
fn marked_processes_are_one_and_switched_each_by_itself() {
    needs_a_screen!();
    let stage = Stage::new();
    // One after the other: the list is in the order of their beginnings.
    let targets = ["one", "two", "three"].map(|name| {
        let target = stage.start(STEADY, &[name]);
        wait_for_ticks(&stage, &target, 1);
        target
    });
    let screen = stage.screen(140, 34);
    screen.pfp_top("-d 0.1 --sort name --keep");
    screen.wait_for("the processes to choose from", |text| {
        ["one", "two", "three"].iter().all(|name| text.contains(&format!("  {name}  ")))
    });
    // The youngest comes first.
    screen.keys(&["Space"]);
    screen.wait_for("a mark", |text| text.lines().any(|line| line.starts_with(" * ")));
    screen.keys(&["Space", "Enter"]);
    let shown = screen.wait_for("two of them", |text| {
        text.contains("2 processes") && text.contains("three[") && text.contains("two[")
    });
    assert!(!shown.contains("one["), "{shown}");
    // The first row is `inner` of the older of both; only there it is switched.
    screen.keys(&["g", "g", "e"]);
    screen.wait_for("a point off", |text| text.contains('○'));
    screen.keys(&["q"]);
    screen.wait_for_shell();
    let off = |target: &Target| {
        let snapshot = snapshot(&stage, &["-p", &target.pid().to_string()]);
        let off = snapshot.points.iter().filter(|point| point.state == PointState::Off);
        off.map(|point| point.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(targets.each_ref().map(off), [vec![], vec!["inner".to_owned()], vec![]]);
}
