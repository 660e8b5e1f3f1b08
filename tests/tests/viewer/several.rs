//! Several real processes shown as one: side by side, summed, starting and ending.

use std::collections::BTreeMap;

use pfp_read::files::json;
use pfp_read::snapshot::{PointState, ProcessState, Snapshot};
use pfp_tests::figure;
use pfp_tests::needs_a_screen;
use pfp_tests::place::Place;
use pfp_tests::target::{Target, wait_for};

const STEADY: &str = env!("CARGO_BIN_EXE_steady");
const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

fn snapshot(place: &Place, arguments: &[&str]) -> Snapshot {
    try_snapshot(place, arguments).unwrap_or_else(|why| panic!("{why}"))
}

fn try_snapshot(place: &Place, arguments: &[&str]) -> Result<Snapshot, String> {
    let file = place.path("several.json");
    let path = file.to_str().unwrap();
    let all = [&["snapshot", "-o", path, "--force"], arguments].concat();
    let output = place.pfp_top(&all);
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(json::read(&file).unwrap())
}

/// The count of a point; with several processes, of the process `pid`.
fn count(snapshot: &Snapshot, name: &str, pid: Option<u32>) -> u64 {
    let of = |place: Option<u32>| {
        place.and_then(|place| snapshot.process.members.get(place as usize)).map(|p| p.pid)
    };
    let point = snapshot.points.iter().find(|p| p.name == name && of(p.process) == pid);
    let id = point.unwrap_or_else(|| panic!("no {name} of {pid:?}")).id;
    let cells = snapshot.cells.iter().filter(|cell| cell.point == id);
    cells.map(|cell| cell.stats.count + cell.retired.count).sum()
}

fn wait_for_ticks(place: &Place, target: &Target, least: u64) {
    let pid = target.pid().to_string();
    wait_for("ticks", || {
        // The program may not have reached its first point yet.
        let Ok(snapshot) = try_snapshot(place, &["-p", &pid]) else { return false };
        let ticks = snapshot.points.iter().any(|point| point.name == "tick");
        ticks && count(&snapshot, "tick", None) >= least
    });
}

#[test]
fn the_sum_is_that_of_its_processes() {
    let place = Place::new();
    let mut targets = ["one", "two", "three"].map(|name| place.start(STEADY, &[name]));
    for target in &targets {
        wait_for_ticks(&place, target, 3);
    }
    // The processes are killed first, so that their figures no longer change and can be compared.
    let pids = targets.each_ref().map(|target| target.pid().to_string());
    for target in &mut targets {
        target.kill();
    }
    let mut chosen = Vec::new();
    for pid in &pids {
        chosen.extend(["-p", pid.as_str()]);
    }
    let apart = snapshot(&place, &chosen);
    chosen.push("--sum");
    let sum = snapshot(&place, &chosen);
    assert_eq!(sum.process.state, ProcessState::Crashed);
    for name in ["tick", "work", "inner", "round"] {
        let each = pids.iter().map(|pid| {
            let alone = snapshot(&place, &["-p", pid]);
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
    let place = Place::new();
    let (one, two) = (place.start(STEADY, &["one"]), place.start(STEADY, &["two"]));
    for target in [&one, &two] {
        wait_for_ticks(&place, target, 1);
    }
    let screen = place.screen(140, 34);
    screen.pfp_top("--all -i 0.1 --sort name");
    let rows = |text: &str, name: &str| text.lines().filter(|line| line.contains(name)).count();
    let [first, second] = [&one, &two].map(|target| target.pid());
    screen.wait_for("both", |text| {
        text.contains("2 processes")
            && rows(text, &format!("one[{first}]")) >= 6
            && rows(text, &format!("two[{second}]")) >= 6
    });
    one.end_well();
    screen.wait_for("the end of one", |text| {
        text.contains("2 processes, 1 ended")
            && rows(text, &format!("one[{first}] ended")) >= 6
            && rows(text, &format!("two[{second}] ended")) == 0
            && text.lines().next().is_some_and(|line| line.ends_with("LIVE"))
    });
    let three = place.start(STEADY, &["three"]);
    screen.wait_for("another one", |text| {
        text.contains("3 processes, 1 ended")
            && rows(text, &format!("three[{}]", three.pid())) >= 6
            && rows(text, &format!("one[{first}] ended")) >= 6
    });
    screen.quit();
}

#[test]
fn marked_processes_are_one_and_switched_each_by_itself() {
    needs_a_screen!();
    let place = Place::new();
    // The targets start one after the other, since the list is sorted by start time.
    let targets = ["one", "two", "three"].map(|name| {
        let target = place.start(STEADY, &[name]);
        wait_for_ticks(&place, &target, 1);
        target
    });
    let screen = place.screen(140, 34);
    screen.pfp_top("-i 0.1 --sort name --keep");
    screen.wait_for("the processes to choose from", |text| {
        ["one", "two", "three"].iter().all(|name| text.contains(&format!("  {name}  ")))
    });
    // The newest process comes first.
    screen.press(&["Space"], "a mark", |text| text.lines().any(|line| line.starts_with(" * ")));
    let shown = screen.press(&["Space", "Enter"], "two of them", |text| {
        text.contains("2 processes") && text.contains("three[") && text.contains("two[")
    });
    assert!(!shown.contains("one["), "{shown}");
    // The first row is `inner` of the older process; it is disabled only there.
    screen.press(&["g", "g", "e"], "a point off", |text| text.contains('○'));
    screen.quit();
    let off = |target: &Target| {
        let snapshot = snapshot(&place, &["-p", &target.pid().to_string()]);
        let off = snapshot.points.iter().filter(|point| point.state == PointState::Off);
        off.map(|point| point.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(targets.each_ref().map(off), [vec![], vec!["inner".to_owned()], vec![]]);
}

/// The rows of the table for programs, in order.
fn rows(place: &Place, arguments: &[&str]) -> Vec<serde_json::Value> {
    let more = ["--once", "--json", "--columns", "name,excl,imbalance", "--sort", "imbalance"];
    let output = place.pfp_top(&[arguments, &more, &["--unit", "cycles"]].concat());
    pfp_tests::well(&output);
    let table: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    table["points"].as_array().expect("there are points").clone()
}

/// Three ranks with one, one and two shares of the work.
#[test]
fn a_sum_tells_how_unevenly_its_ranks_share_the_work() {
    let place = Place::new();
    let ranks = ["1", "1", "2"].map(|shares| {
        let mut rank = Target::start(place.command(TARGET).args(["share", shares]));
        rank.reach("done");
        rank
    });
    let name = |row: &serde_json::Value| row["name"].as_str().expect("a name").to_owned();
    let sum = rows(&place, &["--all", "--sum"]);
    let labels = ["alone", "solve", "even"];
    let found: Vec<String> =
        sum.iter().map(name).filter(|name| labels.contains(&&**name)).collect();
    assert_eq!(found, labels, "the most uneven first");
    let of = |label: &str| {
        let row = sum.iter().find(|row| row["name"] == label).expect("it was measured");
        row["imbalance"].as_f64().expect("a number")
    };
    // Each rank burns CPU time by the kernel's clock, so the shares are known without pfp.
    for (label, expected) in [("alone", 3.0), ("solve", 2.0 * 3.0 / 4.0), ("even", 1.0)] {
        figure(&format!("imbalance of {label}: {}, by its shares {expected}", of(label)));
        assert!((of(label) / expected - 1.0).abs() < 0.1, "{label}: {}", of(label));
    }
    // The imbalance also follows exactly from the ranks' own figures: the most ticks of a rank,
    // divided by their mean.
    let mut ticks: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for rank in &ranks {
        for row in rows(&place, &["-p", &rank.pid().to_string()]) {
            assert!(row["imbalance"].is_null(), "{row}");
            ticks.entry(name(&row)).or_default().push(row["excl_cycles"].as_f64().unwrap_or(0.0));
        }
    }
    for label in labels {
        let most = ticks[label].iter().copied().fold(0.0, f64::max);
        let mean = ticks[label].iter().sum::<f64>() / ranks.len() as f64;
        assert!((of(label) - most / mean).abs() < 1e-9, "{label}: {}", of(label));
    }
    for row in rows(&place, &["--all"]) {
        assert!(row["imbalance"].is_null(), "side by side they are not compared: {row}");
    }
    // A file has the sum, too.
    let file = place.path("sum.json");
    let saved = place.pfp_top(&["snapshot", "--all", "--sum", "-o", file.to_str().unwrap()]);
    pfp_tests::well(&saved);
    assert_eq!(rows(&place, &["open", file.to_str().unwrap()]), sum);

    needs_a_screen!();
    let screen = place.screen(100, 30);
    screen.pfp_top("--all --sum --columns name,count,imbalance --sort imbalance");
    let shown = screen.wait_for("the labels by imbalance", |text| {
        let at =
            labels.map(|label| text.lines().position(|line| line.contains(&format!(" {label} "))));
        text.contains("Imbal") && at.iter().all(Option::is_some) && at.is_sorted()
    });
    assert!(shown.lines().any(|line| line.contains("alone") && line.contains("3.00")), "{shown}");
    screen.press(&["g", "g", "Enter"], "the point's page", |text| {
        text.lines().any(|line| line.contains("imbalance") && line.contains("3.00x (busiest/mean)"))
    });
    screen.quit();
    for rank in ranks {
        rank.end_well();
    }
}
