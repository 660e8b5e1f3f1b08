//! A program's life in a viewer: the names of its points, its end, what it leaves, and the figures
//! that it reads of itself.

use pfp_shm_layout::control::Change;
use pfp_shm_layout::find::KEEP;
use pfp_shm_layout::liveness::Liveness;
use pfp_shm_layout::object;
use pfp_tests::place::Place;
use pfp_tests::target::wait_for;
use pfp_tests::watch::{self, Watch};
use pfp_tests::{cells, figure};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

/// Calls of each kind in the scenario `life`.
const CALLS: u64 = 100;
/// The points of the scenario `life`.
const POINTS: [&str; 6] = [
    "function_attribute",
    "an attribute's own name",
    "function_scope",
    "a scope",
    "a point",
    "three",
];

fn near(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= 1e-9 * expected.abs()
}

#[test]
fn names_and_places_are_in_the_segment() {
    let place = Place::new();
    let mut target = place.start(TARGET, &["life"]);
    let scope_line: u32 = target.reach("done").one("scope_line");
    let entry = place.entry(target.pid()).expect("it was found");
    assert_eq!(entry.state, Liveness::Alive);
    assert_eq!(entry.info.name, "the living");
    assert!(entry.info.exe.ends_with("pfp-test-target"));

    let mut watch = Watch::open(&entry);
    assert_eq!(watch.reader().facts().pid, target.pid());
    let picture = watch.poll();
    assert_eq!(picture.name, "the living");
    assert!(!picture.exited);
    assert_eq!(picture.lanes[0].lane.name, b"main of it");
    for name in POINTS {
        assert_eq!(watch::named(picture, name).count, CALLS, "{name}");
        let point = picture.points.iter().find(|point| point.name == name).expect("just found");
        assert!(point.control.enabled() && !point.control.invalid());
        if name == "three" {
            assert_eq!((point.id, point.file.as_str(), point.line), (3, "", 0));
        } else {
            assert!(point.file.ends_with("src/bin/target/life.rs"), "{name}: {}", point.file);
            assert!(point.line > 0);
        }
    }
    let scope = picture.points.iter().find(|point| point.name == "a scope").expect("just found");
    assert_eq!(scope.line, scope_line);
    assert_eq!(watch::total(picture, 0).count > 0, picture.clock.overhead_pair > 0);
    target.end_well();
}

#[test]
fn a_program_and_its_viewer_read_the_same() {
    let place = Place::new();
    let mut target = place.start(TARGET, &["life"]);
    let said = target.reach("done").clone();
    let mut watch = Watch::attach(&place, &target);
    let sums = watch::named(watch.poll(), "a point");
    let own = said.all::<u64>("stats").remove(0);
    assert_eq!(own, [sums.count, sums.exclusive, sums.inclusive, sums.min, sums.max]);
    let spread = said.all::<f64>("spread").remove(0);
    assert!(near(spread[0], sums.mean().expect("it was measured")), "{spread:?}");
    assert!(near(spread[1], sums.variance().expect("more than once")), "{spread:?}");
    target.end_well();
}

#[test]
fn quantiles_include_threads_that_have_just_ended() {
    let place = Place::new();
    let mut target = place.start(TARGET, &["just_ended"]);
    let said = target.reach("done");
    assert_eq!(said.one::<u32>("miscounted"), 0);
    // On a busy machine, a thread may be pre-empted in the middle of its last fold for so long that
    // the reader gives up and reads a histogram with only some of the fold's records. This may
    // happen in a few of the 2,000 rounds.
    let differ = said.one::<u32>("differ");
    assert!(differ <= 20, "{differ}");
    target.end_well();
}

/// The program's own times and quantiles agree with the histogram and the sums that a reader finds,
/// over all lanes since the reset.
#[test]
fn a_program_knows_its_times_and_quantiles() {
    let place = Place::new();
    let mut target = place.start(TARGET, &["spread"]);
    let said = target.reach("done").clone();
    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    let sums = watch::named(picture, "spread");
    assert_eq!(sums.count, 3 * 501);
    let rate: f64 = said.one("ticks_per_second");
    let ticks = [
        sums.exclusive as f64,
        sums.inclusive as f64,
        sums.off_cpu as f64,
        sums.min as f64,
        sums.max as f64,
        sums.last as f64,
        sums.mean().expect("it was measured"),
        sums.variance().expect("more than once").sqrt(),
    ];
    // The rate may have become more exact in between, and a time has whole nanoseconds.
    let is_near = |time: f64, low: f64, high: f64| {
        let slack = 1e-3 * high / rate + 2e-9;
        (low / rate - slack..=high / rate + slack).contains(&time)
    };
    let times = said.all::<f64>("time");
    assert_eq!(times.len(), ticks.len());
    for (at, (time, ticks)) in times.iter().zip(ticks).enumerate() {
        // Skip time 5, the last measurement: any of the threads may have made it.
        if at != 5 {
            assert!(is_near(time[0], ticks, ticks), "time {at}: {time:?}, {ticks} ticks");
        }
    }
    // The bounds of each measurement's bucket, in ascending order.
    let cells = watch::cells(picture, watch::id(picture, "spread"));
    let mut buckets: Vec<(u64, u64)> = cells
        .flat_map(|cell| cell.histogram.iter())
        .flat_map(|found| {
            std::iter::repeat_n((found.low, found.low + found.width - 1), found.count as usize)
        })
        .collect();
    buckets.sort_unstable();
    assert_eq!(buckets.len(), 3 * 501);
    let quantiles = said.all::<f64>("quantile");
    assert_eq!(quantiles.len(), 7);
    for (quantile, found) in [0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0].into_iter().zip(quantiles) {
        let rank = (quantile * buckets.len() as f64).ceil() as usize;
        let (low, high) = buckets[rank.max(1) - 1];
        assert!(is_near(found[0], low as f64, high as f64), "{quantile}: {found:?}, {low}..{high}");
    }
    assert_eq!(said.one::<u32>("outside"), 0);
    assert!(!said.one::<bool>("averages"));
    target.end_well();
}

/// A program's own list of points agrees with a reader's.
#[test]
fn a_program_lists_its_points() {
    let place = Place::new();
    let mut target = place.start(TARGET, &["listed"]);
    let said = target.reach("done").clone();
    assert_eq!(said.one::<u32>("before"), 0);
    let mut listed = said.all::<String>("point");
    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    let points = picture.points.iter().filter(|point| point.tuple.is_none() && point.id != 0);
    let mut found: Vec<Vec<String>> = points
        .map(|point| {
            let file = if point.file.is_empty() { "-" } else { &point.file };
            let count = watch::total(picture, point.id).count;
            let name = point.name.replace(' ', "_");
            let (line, on) = (point.line, point.control.enabled());
            [name, file.into(), line.to_string(), on.to_string(), count.to_string()].into()
        })
        .collect();
    found.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, found);
    let names: Vec<&str> = listed.iter().map(|point| point[0].as_str()).collect();
    let expected = [
        "a_literal",
        "another_of_all",
        "elsewhere",
        "five",
        "in_a_function",
        "measured_by_an_attribute",
        "named_itself",
        "off",
        "one_of_all",
        "sent",
    ];
    assert_eq!(names, expected);
    let counts: Vec<&str> = listed.iter().map(|point| point[4].as_str()).collect();
    assert_eq!(counts, ["1", "1", "1", "1", "1", "1", "1", "0", "1", "3"]);
    assert_eq!(said.all::<String>("never"), [["never", "met", "false"]]);
    target.end_well();
}

/// Frames have a row like any point, with their number and their time by the wall clock. If a frame
/// ends inside a region, nothing is lost.
#[test]
fn frames_are_measured_from_one_end_to_the_next() {
    let place = Place::new();
    let mut target = place.start(TARGET, &["frames"]);
    let said = target.reach("done").clone();
    let rate: f64 = said.one("ticks_per_second");
    let threads = said.all::<f64>("frames");
    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    let [frame, draw, round] = ["frame", "draw", "round"].map(|name| watch::named(picture, name));
    let sum = |at: usize| threads.iter().map(|thread| thread[at]).sum::<f64>();
    let frames = sum(0) as u64;
    assert_eq!([frame.count, round.count, draw.count], [frames, frames, frames + 2]);
    let seconds = frame.exclusive as f64 / rate;
    assert!((0.999 * sum(1)..=1.001 * sum(2)).contains(&seconds), "{seconds}, {threads:?}");
    // Each frame slept: the sleep is in the frame's time and not in its load.
    assert!(frame.min as f64 / rate > 0.001, "{frame:?}");
    let is_apart = |name: &str| picture.points.iter().any(|it| it.name == name && it.device);
    assert!(is_apart("frame") && !is_apart("round"));
    assert_eq!(picture.losses.mismatched_ends, 0);
    let names = picture.lanes.iter().map(|lane| String::from_utf8_lossy(&lane.lane.name));
    let mut names: Vec<_> = names.filter(|name| name.contains("thread")).collect();
    names.sort_unstable();
    assert_eq!(names, ["a thread with a long name", "another thread that animates"]);
    target.end_well();
}

#[test]
fn an_orderly_exit_removes_the_segment_and_the_reader_keeps_its_picture() {
    let place = Place::new();
    let mut target = place.start(TARGET, &["life"]);
    target.reach("done");
    let entry = place.entry(target.pid()).expect("it was found");
    let mut watch = Watch::open(&entry);
    assert!(!watch.poll().exited);
    target.end_well();
    let picture = watch.poll();
    assert!(picture.exited);
    assert_eq!(watch::named(picture, "a scope").count, CALLS);
    assert!(place.entries().is_empty());
    let object = object::backed_bytes(&entry.info.object).expect("one can ask");
    assert_eq!(object, None, "the object is still there");
    let left = std::fs::read_dir(place.beacons()).expect("the directory is there").count();
    assert_eq!(left, 0, "files in the beacon directory");
}

#[test]
fn a_crash_leaves_the_last_figures() {
    let place = Place::new();
    let mut target = place.start(TARGET, &["life"]);
    target.reach("done");
    let pid = target.pid();
    let mut early = Watch::attach(&place, &target);
    target.kill();
    let entry = place.entry(pid).expect("the beacon is still there");
    assert_eq!(entry.state, Liveness::Dead);
    // A reader that attaches after the crash sees the figures, too.
    let mut late = Watch::open(&entry);
    for watch in [&mut early, &mut late] {
        let picture = watch.poll();
        assert!(!picture.exited);
        for name in POINTS {
            assert_eq!(watch::named(picture, name).count, CALLS, "{name}");
        }
        // The flight recorder is complete as well.
        assert!(watch.reader().records().len() as u64 >= POINTS.len() as u64 * CALLS);
    }
}

#[test]
fn only_the_last_three_crashes_are_kept() {
    let place = Place::new();
    let mut pids = Vec::new();
    for _ in 0..8 {
        let mut target = place.start(TARGET, &["life"]);
        target.reach("done");
        assert!(place.entries().len() <= KEEP + 1, "{:?}", place.entries());
        pids.push(target.pid());
        target.kill();
    }
    // The next process sweeps when it starts, and then makes an orderly exit.
    let mut target = place.start(TARGET, &["life"]);
    target.reach("done");
    target.end_well();
    let left: Vec<u32> = place.entries().iter().map(|entry| entry.info.process.pid).collect();
    pids.reverse();
    assert_eq!(left, pids[..KEEP]);
}

#[test]
fn the_environment_can_disable_points_at_the_start() {
    let place = Place::new();
    let mut target = place.start_with(TARGET, &["life"], "PFP_DEFAULT", "off");
    target.reach("done");
    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    for point in &picture.points {
        // The program enables point 3; point 0 belongs to the calibration.
        let on = point.id == 3;
        assert!(point.id == 0 || point.control.enabled() == on, "{point:?}");
        let count = watch::total(picture, point.id).count;
        assert!(point.id == 0 || count == if on { CALLS } else { 0 }, "{point:?}");
    }
    target.end_well();
}

/// One thread reaches new points while another one enables or disables all points: each new point
/// ends in the state of all others.
#[test]
fn a_point_registered_while_all_are_switched_follows_the_others() {
    let place = Place::new();
    let mut target = place.start_with(TARGET, &["latecomers", "4000"], "PFP_POINTS", "10240");
    assert_eq!(target.reach("done").one::<u64>("wrong"), 0);
    target.end_well();
}

#[test]
fn two_threads_that_switch_all_at_once_leave_no_point_off() {
    let place = Place::new();
    let mut target = place.start(TARGET, &["switchers", "200000"]);
    assert_eq!(target.reach("done").one::<u64>("off"), 0);
    target.end_well();
}

#[test]
fn numbered_points_follow_the_rules() {
    let place = Place::new();
    let mut target = place.start(TARGET, &["steered"]);
    let said = target.reach("steered").clone();
    assert!(said.one::<bool>("off"), "a point that nobody enabled has measured");
    // The loop ends the point's region before each begin, and once at the end: ten ends match.
    assert_eq!(said.one::<u64>("end_first"), 10);
    let latched = said.all::<f64>("latched").remove(0);
    assert_eq!(latched[0], 1.0, "three latched parts are one measurement");
    let [_, ms, burnt, stolen] = latched[..] else { panic!("{latched:?}") };
    let said_of_it = format!("latched: {ms} ms of {burnt} ms burnt, {stolen} ms stolen");
    figure(&said_of_it);
    assert!((ms / burnt - 1.0).abs() < 0.02 + stolen / burnt, "{said_of_it}");
    assert_eq!(said.one::<u64>("invalid"), 0);
    // The region that was open at the reset ends in the new window or is not counted.
    assert!(said.one::<u64>("at_reset") <= 1);
    assert_eq!(said.one::<u64>("after_reset"), said.one::<u64>("at_reset") + 1);
    assert_eq!(said.all::<bool>("nowhere"), vec![vec![true, true]; 3]);
    assert!(said.one::<bool>("accepted"));
    assert_eq!(said.all::<bool>("refused"), vec![vec![true]; 8]);

    let mut watch = Watch::attach(&place, &target);
    let control = |watch: &mut Watch, id: u32| {
        watch.poll().points.iter().find(|point| point.id == id).expect("it was used").control
    };
    let invalid = control(&mut watch, 4);
    assert!(invalid.invalid() && !invalid.enabled());
    // The weight of a 100 ms period with a time constant of 500 ms.
    let alpha = control(&mut watch, 6).alpha().expect("it was set");
    assert!((alpha - 0.2).abs() < 1e-6, "{alpha}");
    assert_eq!(control(&mut watch, 5).epoch(), 1);
    // Refused points were counted, and do not appear anywhere.
    let picture = watch.poll();
    assert!(picture.losses.points_refused > 0);
    assert!(picture.points.iter().all(|point| point.name != "nowhere"));

    watch.change(4, Change::Enable);
    let valid = control(&mut watch, 4);
    assert!(!valid.invalid() && valid.enabled());
    target.go();
    assert_eq!(target.reach("done").one::<u64>("valid_again"), 1);
    target.end_well();
}

/// A viewer resets while the program runs: nothing from before is shown.
#[test]
fn a_viewers_reset_starts_afresh() {
    let place = Place::new();
    let mut target = place.start(TARGET, &["counts", "40000000"]);
    target.reach("ready");
    let mut watch = Watch::attach(&place, &target);
    let id = watch::id(watch.poll(), "scoped");
    target.go();
    let (mut resets, mut last) = (0u64, 0);
    while !target.has_reached("done") {
        wait_for("calls", || {
            let count = watch::total(watch.poll(), id).count;
            count > 1000 || target.has_reached("done")
        });
        if target.said().has("rounds") {
            break;
        }
        watch.change(id, Change::Reset);
        resets += 1;
        let picture = watch.poll();
        let lifetime: u64 = watch::cells(picture, id).map(|cell| cell.lifetime_count).sum();
        assert!(lifetime >= last, "{last} became {lifetime}");
        last = lifetime;
    }
    let rounds: u64 = target.said().one("rounds");
    let picture = watch.poll();
    // The total over all windows includes each window's measurements.
    let lifetime: u64 = watch::cells(picture, id).map(|cell| cell.lifetime_count).sum();
    assert_eq!(lifetime, rounds);
    watch::cells(picture, id).for_each(|cell| cells::check(cell, true));
    assert!(watch::total(picture, id).count < rounds && resets > 0);
    figure(&format!("lifecycle: {resets} resets under {rounds} calls, sum exact"));
    target.go();
    target.end_well();
}
