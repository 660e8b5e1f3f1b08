//! Tests of the Detail screen, as text.

use super::*;
use pfp_read::snapshot::Cell;
use pfp_read::source::synthetic::{cell, edge};

#[test]
fn a_point_in_full() {
    let mut desk = desk();
    desk.wait(20);
    desk.open(1);
    check_all("detail", &mut desk);
}

#[test]
fn a_point_of_the_clock_has_no_exclusive_time_and_its_detail_says_why() {
    let mut desk = desk();
    {
        let mut process = desk.process.0.borrow_mut();
        let point = &mut process.snapshot_mut().points[1];
        (point.device, point.wall) = (true, true);
    }
    desk.wait(20);
    desk.open(1);
    let text = screen(&mut desk, false, (120, 40));
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("so there is no exclusive time"), "{text}");
    assert!(text.contains("Wall time, all") && text.contains(" wall time "), "{text}");
    assert!(text.contains("% of the time"), "{text}");
    for absent in [" exclusive  ", " off CPU ", " switches ", "Exclusive", "one CPU"] {
        assert!(!text.contains(absent), "{absent} in {text}");
    }
}

/// What the regions of point 3 have allocated on its two threads, in all, by thread and by caller.
#[test]
fn the_allocations_of_a_point() {
    let mut desk = desk();
    desk.wait(3);
    desk.open(3);
    let without = screen(&mut desk, false, (120, 60));
    assert!(!without.contains("Alloc"), "{without}");
    {
        let mut process = desk.process.0.borrow_mut();
        let snapshot = process.snapshot_mut();
        let cells = snapshot.cells.iter_mut().filter(|cell| cell.point == 3);
        for cell in cells {
            let Cell { allocs, heap, .. } = Arc::make_mut(cell);
            (allocs.calls, allocs.allocs, allocs.bytes, allocs.largest) = (10, 20, 4_000, 512);
            (allocs.allocs_inclusive, allocs.bytes_inclusive) = (30, 5_000);
            (heap.live_bytes, heap.live_samples) = (1_000_000, 4);
            heap.live_births = 4 * (snapshot.taken_unix_ns / 1_000_000_000 - 89);
            (heap.sizes[1], heap.sizes[2], heap.sizes[7]) = (1_000_000, 2_000_000, 5_000_000);
        }
        for edge in snapshot.edges.iter_mut().filter(|edge| edge.point == 3) {
            (edge.allocs, edge.alloc_bytes) = (20, 4_000);
        }
    }
    desk.wait(1);
    let text = screen(&mut desk, false, (120, 60));
    let has = |words: &str| {
        let flat = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.lines().any(|line| flat(line).contains(words)), "{words}: {text}");
    };
    has("per call 2.00 400");
    has("in all 40 8.00k 0 512");
    has("with nested 60 10.0k 0");
    has("not freed yet, ±35.4%, age 90.0s 2.00M");
    has("0–32 12.5%");
    has("512–2.05k 62.5%");
    has("Off% Allocs Alloc B");
    has("Share% Allocs Alloc B");
    has("100.0 40 8.00k");
    has("0.0 20 4.00k");
}

#[test]
fn the_histogram_of_the_last_seconds_and_since_a_mark() {
    let mut desk = desk();
    desk.open(1);
    desk.wait(20);
    let all = screen(&mut desk, false, (120, 30));
    assert!(all.contains("Exclusive, all"), "{all}");
    // The window begins at the mark or, if the user has set none, when the detail was opened.
    desk.press("H");
    let opened = screen(&mut desk, false, (120, 30));
    assert!(opened.contains("last 20.0s, since opened"), "{opened}");
    desk.press("H");
    check("detail-window", &screen(&mut desk, false, (120, 30)), (120, 30));
    let stats = desk.screens.detail.window_stats(&desk.common).expect("the last ten seconds");
    let in_all = desk.common.selected().expect("it is").total().count;
    assert_eq!(stats.seconds, 10.0);
    assert!(
        stats.total.count * 2 < in_all && stats.total.count > 0,
        "{} of {in_all}",
        stats.total.count
    );
    let counted: u64 = stats.buckets.iter().map(|bucket| bucket.count).sum();
    assert_eq!(counted, stats.total.count);
    // The last minute is only partly known.
    desk.press("H");
    assert!(screen(&mut desk, false, (120, 30)).contains("last 20.0s: "));
    desk.press("m");
    let marked = screen(&mut desk, false, (120, 30));
    assert!(marked.contains("Exclusive, from now on"), "{marked}");
    assert!(marked.contains("nothing measured yet"), "{marked}");
    desk.wait(5);
    let stats = desk.screens.detail.window_stats(&desk.common).expect("since the mark");
    assert_eq!(stats.seconds, 5.0);
    // Another point has its own history.
    desk.press("j");
    assert_eq!(
        desk.screens.detail.window_stats(&desk.common).map(|stats| stats.total.count),
        Some(0)
    );
}

#[test]
fn callers_and_callees() {
    let mut desk = desk();
    {
        let mut process = desk.process.0.borrow_mut();
        let mut snapshot = process.snapshot_mut().clone();
        // Each point has a million exclusive ticks. Point 2 is called by io.parse, without a
        // caller, and by unknown callers.
        snapshot.cells = [1, 2, 3].map(|point| cell(point, 0, [100, 1_000_000, 2_000_000])).into();
        snapshot.edges = vec![
            edge(2, None, 0, [10, 200_000, 500_000]),
            edge(2, Some(1), 0, [30, 300_000, 400_000]),
            edge(2, Some(1), 1, [20, 200_000, 600_000]),
            edge(3, Some(2), 1, [100, 1_000_000, 1_000_000]),
        ];
        // The process has ended, so that open regions add nothing.
        snapshot.process.state = ProcessState::Exited;
        *process.snapshot_mut() = snapshot;
    }
    desk.wait(1);
    desk.common.unit = Unit::Cycles;
    desk.open(2);
    let text = screen(&mut desk, false, (120, 60));
    assert_eq!(words(&text, "io.parse"), ["io.parse", "50", "500kcy", "1.00Mcy", "50.0"]);
    assert_eq!(words(&text, "(top level)")[2..], ["10", "200kcy", "500kcy", "25.0"]);
    assert_eq!(words(&text, "(other callers)")[2..], ["40", "300kcy", "500kcy", "25.0"]);
    assert_eq!(words(&text, "io.crc"), ["io.crc", "100", "1.00Mcy", "1.00Mcy", "50.0"]);
    // At first the longest calls come first; a click on a heading sorts each table on its own.
    let place = |text: &str, word: &str| {
        let found = text.lines().enumerate().find_map(|(y, line)| Some((line.find(word)?, y)));
        found.map(|(x, y)| Position { x: x as u16, y: y as u16 }).unwrap()
    };
    let above = |text: &str| place(text, "(top level)").y < place(text, "(other callers)").y;
    for (heading, is_above) in [("Calls", false), ("Calls", true), ("Callers", false)] {
        let target = hit(&desk.app, Rect::new(0, 0, 120, 60), place(&text, heading));
        desk.click(target);
        assert_eq!(above(&screen(&mut desk, false, (120, 60))), is_above, "{heading}");
    }
}

/// Two open regions on the first thread; the point of the outer one has never ended.
fn with_open() -> Desk {
    let desk = desk();
    {
        let mut snapshot = desk.made();
        let second = TICKS_PER_SECOND;
        let now = snapshot.elapsed_ticks;
        let open = |point, ago, on_cpu| Open {
            point,
            start: now - ago * second,
            on_cpu: Some(on_cpu * second),
        };
        snapshot.clock.overhead_pair = 0;
        snapshot.points[8].name = "loop".into();
        snapshot.lanes[0].open = vec![open(8, 12, 6), open(2, 2, 1)];
    }
    desk
}

#[test]
fn open_regions_are_in_the_table_and_with_their_threads() {
    let mut desk = with_open();
    let load = |text: &str| text.lines().nth(2).and_then(|heading| heading.find("Load%"));
    let [without, with] = [super::desk(), with_open()].map(|mut desk| {
        desk.wait(1);
        load(&screen(&mut desk, false, (120, 30)))
    });
    assert!(without.is_some() && without == with, "no column moves: {without:?} {with:?}");
    desk.wait(1);
    let text = screen(&mut desk, false, (120, 30));
    assert!(text.contains("loop open 13.0s"), "{text}");
    desk.press("3");
    let text = screen(&mut desk, false, (120, 30));
    assert!(
        text.lines().any(|line| line.contains(" main") && line.contains("3.00s io.read")),
        "{text}"
    );
    desk.screens.threads.selected = Some(0);
    desk.press("d");
    let text = screen(&mut desk, false, (120, 30));
    assert_eq!(words(&text, "loop"), ["loop", "13.0s", "6.00s"]);
    assert_eq!(words(&text, "io.read")[..3], ["io.read", "3.00s", "1.00s"]);
    // After a crash, the open regions are those in which the thread died.
    desk.made().process.state = ProcessState::Crashed;
    desk.wait(1);
    let text = screen(&mut desk, false, (120, 30));
    assert!(text.contains("was in io.read"), "{text}");
    assert!(text.contains("Was in when the process died"), "{text}");
}

#[test]
fn the_detail_of_a_region_that_is_open() {
    let mut desk = with_open();
    desk.wait(1);
    desk.open(8);
    let text = screen(&mut desk, false, (120, 40));
    assert!(text.contains("1 for 13.0s"), "{text}");
    assert!(text.contains("6.00s so far") && text.contains("5.00s so far"), "{text}");
    // If an open region's time on a CPU is unknown, only the time since its begin is shown.
    desk.made().lanes[0].open[0].on_cpu = None;
    desk.wait(1);
    let text = screen(&mut desk, false, (120, 40));
    assert!(text.contains("1 for 14.0s") && text.contains("not known"), "{text}");
    assert!(!text.contains("so far"), "{text}");
    desk.press("1");
    let text = screen(&mut desk, false, (120, 40));
    assert!(text.contains("loop open 14.0s wall"), "{text}");
}

#[test]
fn warnings_are_explained_in_the_detail() {
    let mut desk = desk();
    {
        let mut snapshot = desk.made();
        snapshot.points[5].state = PointState::InvalidBeginBegin;
        snapshot.lanes[1].kind = pfp_read::snapshot::LaneKind::Overflow;
    }
    desk.wait(1);
    check_all("anomalies", &mut desk);
    for (id, said) in [
        (5, "Switch it on to make it valid again."),
        (1, "More threads ran than the segment has lanes."),
    ] {
        desk.open(id);
        for size in SIZES {
            let mut text = screen(&mut desk, false, size);
            desk.screens.detail.offset = 3;
            text += &screen(&mut desk, false, size);
            desk.screens.detail.offset = 0;
            let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(flat.contains(said), "{said} in {text}");
        }
        desk.press("\x1b");
    }
}

#[test]
fn losses_are_shown_on_the_table_and_explained_by_enter() {
    let mut desk = desk();
    {
        let mut snapshot = desk.made();
        snapshot.losses[Loss::SpaceRefused] = 12;
        snapshot.losses[Loss::BeginsRefused] = 3;
        snapshot.lanes[1].amiss[Loss::BeginsRefused] = 3;
    }
    desk.wait(1);
    check_all("losses", &mut desk);
    let text = screen(&mut desk, false, (120, 30));
    let notice = text.lines().nth(2).unwrap();
    assert!(notice.ends_with("3 begins nested too deep: Enter explains"), "{text}");
    let narrow = screen(&mut desk, false, (60, 12));
    assert!(narrow.lines().nth(1).unwrap().ends_with("…: Enter explains"), "{narrow}");
    desk.press("\n");
    check("losses-detail", &screen(&mut desk, false, (80, 24)), (80, 24));
    let text = screen(&mut desk, false, (120, 30));
    for said in ["3 begins nested too deep (reader 3): more regions", "no memory left for them"] {
        assert!(text.contains(said), "{said} in {text}");
    }
    desk.press("3");
    check("losses-threads", &screen(&mut desk, false, (120, 30)), (120, 30));

    // If the process refused all points, Enter has nothing to open, so the table itself explains
    // the losses.
    {
        let mut snapshot = desk.made();
        snapshot.process.state = ProcessState::Exited;
        (snapshot.points, snapshot.cells) = (Vec::new(), Vec::new());
        snapshot.losses[Loss::PointsRefused] = 9;
    }
    desk.press("1");
    desk.wait(1);
    let text = screen(&mut desk, false, (80, 24));
    assert!(
        text.contains(" Lost: 9 points not measured: table full: the table of points was full"),
        "{text}"
    );
    assert!(!text.contains("Enter explains"), "{text}");
}

#[test]
fn the_histogram_takes_the_remaining_lines() {
    let mut desk = desk();
    desk.wait(20);
    desk.open(1);
    // A higher screen has all bars.
    for height in [34, 40] {
        let text = screen(&mut desk, false, (120, height));
        let blank = text.lines().rev().skip(2).take_while(|line| line.is_empty()).count();
        assert!(blank <= 1, "{blank} at {height}: {text}");
    }
}
