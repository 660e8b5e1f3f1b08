//! Callers, callees and open regions: on the screen, in snapshots and in stacks, of programs with a
//! known call pattern.

use std::collections::BTreeMap;

use pfp_read::snapshot::{ProcessState, Snapshot};
use pfp_read::source;
use pfp_tests::needs_a_screen;
use pfp_tests::place::Place;
use pfp_tests::target::{Target, wait_for};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

/// Name, caller (none at the top level) and number of calls in a program's 100 rounds.
const PATTERN: [(&str, Option<&str>, u64); 7] = [
    ("calls.a", None, 100),
    ("calls.again", None, 100),
    ("calls.again", Some("calls.again"), 300),
    ("calls.b", Some("calls.a"), 300),
    ("calls.b", Some("calls.d"), 100),
    ("calls.c", Some("calls.a"), 200),
    ("calls.d", None, 100),
];

fn name(snapshot: &Snapshot, id: u32) -> &str {
    &snapshot.points.iter().find(|point| point.id == id).expect("it is known").name
}

/// Count, exclusive and inclusive ticks of a point, over all its cells.
fn total(snapshot: &Snapshot, wanted: &str) -> [u64; 3] {
    let cells = snapshot.cells.iter().filter(|cell| name(snapshot, cell.point) == wanted);
    let parts = cells.flat_map(|cell| [&cell.stats, &cell.retired]);
    parts.fold([0; 3], |sum, part| {
        [sum[0] + part.count, sum[1] + part.exclusive, sum[2] + part.inclusive]
    })
}

fn called() -> (Place, Target) {
    let place = Place::new();
    let mut target = place.start(TARGET, &["calls"]);
    target.reach("called");
    (place, target)
}

#[test]
fn callers_and_callees_are_counted_exactly() {
    let (place, target) = called();
    let snapshot = place.snapshot(&target);
    let mut edges = Vec::new();
    let mut sums: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
    for edge in &snapshot.edges {
        let (point, caller) = (name(&snapshot, edge.point), edge.caller);
        if !point.starts_with("calls.") {
            continue;
        }
        edges.push((point, caller.map(|caller| name(&snapshot, caller)), edge.count));
        let sum = sums.entry(point).or_default();
        *sum = [sum[0] + edge.count, sum[1] + edge.exclusive, sum[2] + edge.inclusive];
    }
    edges.sort_unstable();
    assert_eq!(edges, PATTERN);
    for (point, sum) in sums {
        assert_eq!(sum, total(&snapshot, point), "the edges of {point} are all that it did");
    }

    // The stacks that end in a pair of caller and callee add up to the pair's exclusive time, to
    // the nanosecond.
    let pid = target.pid().to_string();
    let output = place.pfp_top(&["export", "folded", "-p", &pid]);
    pfp_tests::well(&output);
    let text = String::from_utf8(output.stdout).expect("it is text");
    let mut folded: BTreeMap<(String, Option<String>), f64> = BTreeMap::new();
    for line in text.lines().filter(|line| line.contains("calls.")) {
        let (path, ns) = line.rsplit_once(' ').expect("a number is last");
        let mut frames = path.split(';').skip(2).collect::<Vec<_>>();
        let point = frames.pop().expect("a point is last").to_owned();
        let caller = frames.last().map(|caller| (*caller).to_owned());
        assert!(frames.len() <= 2, "{line}");
        *folded.entry((point, caller)).or_default() += ns.parse::<f64>().expect("a number");
    }
    let pairs: Vec<_> =
        folded.keys().map(|(point, caller)| (point.as_str(), caller.as_deref())).collect();
    assert_eq!(pairs, PATTERN.map(|(point, caller, _)| (point, caller)));
    for edge in &snapshot.edges {
        let point = name(&snapshot, edge.point).to_owned();
        let caller = edge.caller.map(|caller| name(&snapshot, caller).to_owned());
        let exact = edge.exclusive as f64 / snapshot.clock.ticks_per_second * 1e9;
        if let Some(found) = folded.get(&(point, caller)) {
            // The rate of the clock is still being refined.
            assert!((found - exact).abs() <= 2.0 + exact * 0.01, "{edge:?}: {found} ns");
        }
    }
}

#[test]
fn the_detail_page_has_callers_and_callees() {
    needs_a_screen!();
    let (place, _target) = called();
    let screen = place.screen(120, 50);
    screen.pfp_top("-i 0.1 --sort name");
    screen.wait_for_count("calls.b", 399);
    // Name and number of calls in each line below a heading.
    let below = |text: &str, heading: &str| -> Vec<(String, String)> {
        let lines = text.lines().skip_while(|line| !line.starts_with(&format!(" {heading} ")));
        let words = lines.skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
        let rows = words.take_while(|words| words.len() >= 5 && words[0] != "Callees");
        let row = |words: Vec<&str>| {
            let calls = words.len() - 4;
            (words[..calls].join(" "), words[calls].to_owned())
        };
        rows.map(row).collect()
    };
    let pair = |name: &str, calls: &str| (name.to_owned(), calls.to_owned());
    // The screen may be read in the middle of a redraw, so one condition checks everything.
    let show = |point: &str, callers: &[(String, String)], callees: &[(String, String)]| {
        screen.select(point);
        screen.press(&["Enter"], "its page", |text| {
            // The rows are sorted by time, which varies; sort them by name instead.
            let found = ["Callers", "Callees"].map(|heading| {
                let mut rows = below(text, heading);
                rows.sort();
                rows
            });
            text.contains(&format!(" {point}  id ")) && found == [callers, callees]
        });
        screen.keys(&["1"]);
    };
    show("calls.b", &[pair("calls.a", "300"), pair("calls.d", "100")], &[]);
    let callees = [pair("calls.b", "300"), pair("calls.c", "200")];
    show("calls.a", &[pair("(top level)", "100")], &callees);
    let callers = [pair("(top level)", "100"), pair("calls.again", "300")];
    show("calls.again", &callers, &[pair("calls.again", "300")]);
}

/// The open regions of the program's thread.
fn open(snapshot: &Snapshot) -> Vec<&str> {
    let lane = snapshot.lanes.iter().find(|lane| lane.name == "caller").expect("it has a lane");
    lane.open.iter().map(|open| name(snapshot, open.point)).collect()
}

fn in_regions(place: &Place) -> Target {
    let mut target = place.start(TARGET, &["open"]);
    target.reach("open");
    target
}

const STACK: [&str; 3] = ["open.outer", "open.middle", "open.inner"];

#[test]
fn a_killed_program_shows_its_open_regions() {
    needs_a_screen!();
    let place = Place::new();
    let mut target = in_regions(&place);
    assert_eq!(open(&place.snapshot(&target))[..3], STACK);
    let screen = place.screen(140, 30);
    screen.pfp_top("-i 0.1");
    screen.wait_for_count("open.called", 10);
    screen.press(&["3"], "where it is", |text| {
        let line = text.lines().find(|line| line.contains(" caller "));
        line.is_some_and(|line| line.contains(" open.inner") || line.contains(" open.called"))
    });
    target.kill();
    screen.wait_for("where it was", |text| {
        let line = text.lines().find(|line| line.contains(" caller "));
        line.is_some_and(|line| line.contains("was in open."))
    });
    let dead = place.snapshot(&target);
    assert_eq!(dead.process.state, ProcessState::Crashed);
    assert_eq!(open(&dead)[..3], STACK);
    screen.press(&["d"], "the whole stack", |text| {
        let mut lines = text.lines().skip_while(|line| !line.contains("Was in when the process"));
        lines.next();
        STACK.iter().all(|point| lines.next().is_some_and(|line| line.contains(point)))
    });
    // A copy of the segment and a recording agree.
    let copy = place.path("copy.pfp");
    let path = copy.to_str().expect("it is plain text");
    let saved = place.pfp_top(&["save-raw", "-p", &target.pid().to_string(), "-o", path]);
    pfp_tests::well(&saved);
    let copied = source::open(&copy).and_then(|mut source| source.poll()).expect("it is a copy");
    assert_eq!(open(&copied), open(&dead));
    assert_eq!(copied.edges, dead.edges);
}

#[test]
fn a_region_around_a_loop_has_its_figures_while_it_runs() {
    let place = Place::new();
    let target = in_regions(&place);
    let snapshot = wait_for("many rounds", || {
        Some(place.snapshot(&target)).filter(|it| total(it, "open.called")[0] > 1000)
    });
    assert_eq!(total(&snapshot, "open.inner")[0], 0, "it has not ended");
    let lane = snapshot.lanes.iter().find(|lane| lane.name == "caller").expect("it has a lane");
    let on_cpu = |level: usize| lane.open[level].on_cpu.expect("it has no context but its own");
    let off = |level: usize| snapshot.elapsed_ticks - lane.open[level].start - on_cpu(level);
    // Only the outermost region has slept for 50 ms.
    let slept = snapshot.clock.ticks_per_second * 0.05;
    assert!(off(0) as f64 >= slept * 0.9, "{:?}", lane.open);
    assert!(on_cpu(0) >= on_cpu(1) && on_cpu(1) >= on_cpu(2), "{:?}", lane.open);

    // The region spends two thirds of its time itself, and the rest in its callee.
    let output = place.pfp_top(&["export", "folded", "-p", &target.pid().to_string()]);
    pfp_tests::well(&output);
    let text = String::from_utf8(output.stdout).expect("it is text");
    let weight = |end: &str| {
        let path = format!(";caller;open.outer;open.middle;{end} ");
        let line = text.lines().find(|line| line.contains(&path));
        let ns = line.and_then(|line| line.rsplit_once(' ')).map(|(_, ns)| ns.parse::<f64>());
        ns.unwrap_or_else(|| panic!("{end} in {text}")).expect("a number is last")
    };
    let ratio = weight("open.inner") / weight("open.inner;open.called");
    assert!((1.3..3.0).contains(&ratio), "{ratio}: {text}");
}
