//! Compares the sums of regions' amounts with the program's own arithmetic: over threads, owners of
//! lanes, resets and switches; after a kill; in signal handlers; on threads without a lane; and for
//! regions by hand, laps and futures.
//!
//! A tuple is the list of a region's amounts. pfp counts the first eight different tuples of a
//! point separately, and sums all others in the point's own cells.

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::path::Path;
use std::pin::{Pin, pin};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use pfp_read::snapshot::Snapshot;
use pfp_read::source;
use pfp_shm_layout::reader::{CellReading, Picture};
use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::os::Ticks;
use pfp_tests::own;
use pfp_tests::place::{Place, pfp_top};
use pfp_tests::random::Random;
use pfp_tests::script::in_turn;
use pfp_tests::size;
use pfp_tests::target::{Target, wait_for};
use pfp_tests::watch::{self, Watch};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

/// The tuples of a point: their numbers and amounts.
fn tuples(picture: &Picture, of: u32) -> impl Iterator<Item = (u32, [u64; 4])> {
    let tuples = picture.points.iter().filter_map(|point| Some((point.id, point.tuple?)));
    tuples.filter(move |(_, tuple)| tuple.of == of).map(|(id, tuple)| (id, tuple.each))
}

/// A point's own cells, without its tuples' cells.
fn own_cells(picture: &Picture, point: u32) -> impl Iterator<Item = &CellReading> {
    let cells = picture.cells.iter().filter(move |cell| cell.point == point);
    cells.filter(|cell| watch::is_own(picture, cell))
}

/// A point's measurements and sums of amounts, over its tuples and its own cells; the number of
/// tuples; and the measurements of its own cells.
fn sums(picture: &Picture, name: &str) -> (u64, [u64; 4], usize, u64) {
    let id = watch::id(picture, name);
    let (mut count, mut sums, mut others) = (0, [0; 4], 0);
    for (tuple, each) in tuples(picture, id) {
        let of_tuple = watch::total(picture, tuple).count;
        count += of_tuple;
        sums.iter_mut().zip(each).for_each(|(sum, each)| *sum += each * of_tuple);
    }
    for cell in own_cells(picture, id) {
        let (of_cell, amounts) = cell.all_owners();
        others += of_cell.count;
        sums.iter_mut().zip(amounts).for_each(|(sum, more)| *sum += more);
    }
    count += others;
    assert_eq!(count, watch::total(picture, id).count, "{name} is its tuples and others");
    (count, sums, tuples(picture, id).count(), others)
}

fn of_snapshot(snapshot: &Snapshot, name: &str) -> Vec<u128> {
    let point = snapshot.points.iter().find(|point| point.name == name).expect("it was measured");
    let cells = snapshot.cells.iter().filter(|cell| cell.point == point.id);
    let mut all = vec![0; 1 + point.amounts.len()];
    for cell in cells {
        let counts = cell.tuples.iter().map(|tuple| tuple.stats.count);
        assert_eq!(counts.sum::<u64>(), cell.stats.count + cell.retired.count);
        let ticks = cell.tuples.iter().map(|tuple| tuple.stats.exclusive);
        assert_eq!(ticks.sum::<u64>(), cell.stats.exclusive + cell.retired.exclusive);
        let buckets = cell.histogram.iter().map(|bucket| bucket.count);
        assert_eq!(buckets.sum::<u64>(), cell.stats.count + cell.retired.count);
        for tuple in &cell.tuples {
            all[0] += u128::from(tuple.stats.count);
            (1..all.len()).for_each(|at| all[at] += tuple.sum(at - 1));
        }
    }
    all
}

fn said(target: &Target, key: &str) -> Vec<u128> {
    target.said().all::<u128>(key).remove(0)
}

fn opened(path: &Path) -> Snapshot {
    source::open(path).and_then(|mut source| source.poll()).expect("the file can be read")
}

/// Runs the program once with a lane for each thread, and once with two lanes, so that most threads
/// share the overflow lane.
#[test]
fn sums_equal_the_programs_own_arithmetic() {
    for lanes in ["128", "2"] {
        let place = Place::new();
        let file = place.path("own.json");
        let arguments = ["amounts", file.to_str().expect("it is plain")];
        let mut target = place.start_with(TARGET, &arguments, "PFP_LANES", lanes);
        target.reach("done");
        let mut watch = Watch::attach(&place, &target);
        let picture = watch.poll();
        for (name, tuples) in [("many", 8), ("few", 2), ("former", 8)] {
            let expected = said(&target, name);
            let (count, sums, tuple_count, others) = sums(picture, name);
            assert_eq!(u128::from(count), expected[0], "{name} with {lanes} lanes");
            assert_eq!(tuple_count, tuples);
            assert_eq!(others > 0, tuples == 8);
            // The second amount of `many` is twice the third, so the program prints no sum of it.
            let sums = match name {
                "many" => vec![sums[0], sums[2]],
                _ => sums[..expected.len() - 1].to_vec(),
            };
            let sums: Vec<_> = sums.into_iter().map(u128::from).collect();
            assert_eq!(sums, expected[1..], "{name} with {lanes} lanes");
        }
        assert_eq!(said(&target, "reported"), said(&target, "former"));

        // The program's own snapshot, the viewer's snapshot and a copy of the segment agree.
        let top = |arguments: &[&str]| c::run(place.command(pfp_top()).args(arguments));
        let pid = target.pid().to_string();
        let files = ["viewer.json", "raw.pfp"].map(|name| place.path(name));
        let [viewer, raw] = files.each_ref().map(|file| file.to_str().unwrap());
        top(&["snapshot", "--pid", &pid, "-o", viewer]);
        top(&["save-raw", "--pid", &pid, "-o", raw]);
        let of_probe = opened(&file);
        for path in &files {
            let other = opened(path);
            assert_eq!(of_probe.points, other.points, "{}", path.display());
            assert_eq!(of_probe.cells, other.cells, "{}", path.display());
        }
        for name in ["few", "former"] {
            assert_eq!(of_snapshot(&of_probe, name), said(&target, name));
        }
        let records = of_probe.records.iter().map(|record| record.point);
        let known = |id: u32| of_probe.points.iter().any(|point| point.id == id);
        assert!(records.into_iter().all(known), "records are of points that there are");

        let csv = top(&["export", "csv", viewer]);
        let few = said(&target, "few");
        assert!(csv.contains(&format!("items={}", few[1])), "{csv}");
        let metrics = top(&["export", "openmetrics", viewer]);
        let line = metrics
            .lines()
            .find(|line| line.starts_with("pfp_amount_total{") && line.contains("\"few\""));
        let value = line.and_then(|line| line.rsplit(' ').next()).expect("there is a counter");
        assert_eq!(value.parse::<f64>().unwrap(), few[1] as f64);
        let columns = "name,count,items,bytes,flops,intensity";
        let rows = top(&["-p", &pid, "-b", "-n", "1", "--json", "--columns", columns]);
        assert!(rows.contains("items_per_cpu_s"), "{rows}");
        target.end_well();
    }
}

/// The program's n-th measurement has n bytes, so the sum of bytes shows how many measurements it
/// includes. It may include the measurement that the kill interrupted.
#[test]
fn a_kill_loses_nothing() {
    for _ in 0..size(20, 1000) {
        let place = Place::new();
        let mut target = place.start(TARGET, &["endless-amounts"]);
        let mut watch = Watch::attach(&place, &target);
        wait_for("measurements", || {
            let picture = watch.poll();
            let known = picture.points.iter().any(|point| point.name == "endless");
            known && watch::named(picture, "endless").count > 1000
        });
        target.kill();
        let picture = watch.poll();
        let (count, amounts, ..) = sums(picture, "endless");
        assert_eq!((amounts[0], amounts[1]), (count * (count + 1) / 2, count));
    }
}

static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_signal(_: libc::c_int) {
    let n = HANDLED.fetch_add(1, Relaxed);
    pfp::scope!("handled", items = n % 20);
}

/// A handler that interrupts regions with amounts measures such regions itself, from the first
/// region of its point on. Each is counted as measured, or as missed if it interrupts the
/// registration of its own point.
#[test]
fn amounts_in_a_signal_handler_are_counted_or_reported_missed() {
    pfp::init().ok();
    {
        pfp::scope!("before");
    }
    let missed = || own::watch().poll().losses.begins_missed;
    let before = missed();
    // SAFETY: the handler only measures, which is allowed in a signal handler.
    unsafe { libc::signal(libc::SIGUSR1, on_signal as extern "C" fn(_) as usize) };
    // SAFETY: the handler only measures, which is allowed in a signal handler.
    unsafe { libc::signal(libc::SIGALRM, on_signal as extern "C" fn(_) as usize) };
    let ticks = Ticks::of_this_thread(libc::SIGALRM, Duration::from_micros(50));
    let mut calls = 0;
    while HANDLED.load(Relaxed) < size(2000, 200_000) {
        calls += 1;
        pfp::scope!("interrupted", items = calls % 20);
        // SAFETY: takes a plain number; the handler is installed.
        unsafe { libc::raise(libc::SIGUSR1) };
    }
    drop(ticks);
    let mut watch = own::watch();
    let picture = watch.poll();
    let handled = HANDLED.load(Relaxed);
    let (count, amounts, tuple_count, _) = sums(picture, "interrupted");
    assert_eq!((count, tuple_count), (calls, 8));
    assert_eq!(amounts[0], (1..=calls).map(|call| call % 20).sum::<u64>());
    let (count, amounts, tuple_count, rest) = sums(picture, "handled");
    // Other tests in this process may have missed some of these.
    let missed = missed() - before;
    assert!(count <= handled && handled <= count + missed, "{count} of {handled}, {missed} missed");
    assert!(tuple_count == 8 && rest > 0);
    if count == handled {
        assert_eq!(amounts[0], (0..handled).map(|n| n % 20).sum::<u64>());
    }
}

#[pfp::function("attribute", items = items.len(), bytes = items.iter().sum::<u64>())]
fn attribute(items: &[u64]) -> usize {
    items.len()
}

#[pfp::measure(items = 3)]
fn unnamed() {
    pfp::function_scope!(requests = 7, bytes = 1.5_f64);
}

#[test]
fn attributes_and_functions_carry_amounts() {
    assert_eq!(attribute(&[1, 2, 3]) + attribute(&[10]), 4);
    unnamed();
    let mut watch = own::watch();
    let picture = watch.poll();
    assert_eq!(sums(picture, "attribute"), (2, [4, 16, 0, 0], 2, 0));
    let ids: Vec<_> = (picture.points.iter())
        .filter(|point| point.name == "unnamed" && point.tuple.is_none())
        .map(|point| point.amounts.clone())
        .collect();
    assert!(ids.contains(&vec!["items".to_owned()]), "{ids:?}");
    assert!(ids.contains(&vec!["requests".to_owned(), "bytes".to_owned()]), "{ids:?}");
}

/// Each region is counted under its own tuple, whether it sets all of its point's amounts or fewer,
/// also after further tuples are summed together.
#[test]
fn each_tuple_has_its_own_measurements() {
    static TUPLES: pfp::MeteredPoint = pfp::MeteredPoint::new("tuples", &["a", "b", "c"]);
    const MOST: u64 = u64::MAX;
    type Kept = [u64; 4];
    let kept: [Kept; 8] = [
        [1, 2, 0, 0],
        [1, 2, 3, 0],
        [1, 0, 0, 0],
        [0, 0, 0, 0],
        [MOST - 1, MOST, 0, 0],
        [7, MOST, MOST, 0],
        [2, 1, 0, 0],
        [MOST, 0, 0, 0],
    ];
    let measure = |[a, b, c, _]: Kept| match (b, c) {
        (0, 0) => drop(TUPLES.measure([a])),
        (_, 0) => drop(TUPLES.measure([a, b])),
        _ => drop(TUPLES.measure([a, b, c])),
    };
    kept.into_iter().for_each(measure);
    let mut random = Random::new(3);
    let mut rest = 0;
    for round in 0..1_000 {
        measure(kept[round % 8]);
        let other = [random.word() % 100, 1_000 + random.word() % (1 << 40), 0, 0];
        measure(other);
        rest += 1;
        if round % 3 == 0 {
            measure([1, 2, 4 + round as u64, 0]);
            rest += 1;
        }
    }
    let mut watch = own::watch();
    let picture = watch.poll();
    let id = watch::id(picture, "tuples");
    let found = tuples(picture, id).map(|(tuple, each)| (each, watch::total(picture, tuple).count));
    let found: Vec<_> = found.collect();
    assert_eq!(found, kept.map(|tuple| (tuple, 126)));
    let others = own_cells(picture, id).map(|cell| cell.all_owners().0.count);
    assert_eq!(others.sum::<u64>(), rest);
}

/// Several threads measure a tuple for the first time at once. A thread waits for others only for a
/// limited time in its life, and after that still makes no second tuple with the same amounts.
#[test]
fn no_two_tuples_have_the_same_amounts() {
    const THREADS: u64 = 4;
    const POINTS: usize = 100;
    let new = |_| pfp::MeteredPoint::new("met at once", &["bytes"]);
    let points: &[pfp::MeteredPoint] = Vec::leak((0..POINTS).map(new).collect());
    let arrived = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for (at, point) in points.iter().enumerate() {
                    arrived.fetch_add(1, Relaxed);
                    while arrived.load(Relaxed) < THREADS * (at as u64 + 1) {
                        thread::yield_now();
                    }
                    drop(point.measure([7_u64]));
                }
            });
        }
    });
    let mut watch = own::watch();
    let picture = watch.poll();
    let of_all = || picture.points.iter().filter(|point| point.name == "met at once");
    let mut counts = vec![];
    for metered in of_all().filter(|point| point.tuple.is_none()) {
        assert_eq!(tuples(picture, metered.id).count(), 1, "{metered:?}");
        counts.push(watch::total(picture, metered.id).count);
    }
    assert_eq!(counts, [THREADS; POINTS]);
}

/// Measures regions by hand: some in parts, some nested, on several threads at once. The amounts
/// are passed at the end of each part, and each amount is counted exactly once.
#[test]
fn regions_by_hand_carry_amounts() {
    static HAND: pfp::MeteredPoint = pfp::MeteredPoint::new("by hand", &["bytes", "parts"]);
    const THREADS: u64 = 3;
    let times = size(5_000, 2_000_000);
    let region = |n: u64| {
        let mut all = [0; 3];
        let mut add = |amounts: [u64; 2], count| {
            all = [all[0] + count, all[1] + amounts[0], all[2] + amounts[1]];
            amounts
        };
        HAND.begin();
        if n.is_multiple_of(5) {
            HAND.end_latched(add([n % 7, 1], 0));
            HAND.begin();
        }
        if n.is_multiple_of(11) {
            HAND.begin();
            HAND.end(add([1, 1], 1));
        }
        HAND.end(add([n % 23, 2], 1));
        all
    };
    // Number of regions that a thread measures while no other thread registers points or tuples.
    // These regions have more different tuples than pfp counts separately.
    const FIRST: u64 = 30;
    let all_of = |numbers: Range<u64>| numbers.map(region).fold([0; 3], sum_of);
    let of_thread = || sum_of(in_turn(|| all_of(0..FIRST)), all_of(FIRST..times));
    let all = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(of_thread)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("it only measures"))
            .fold([0; 3], sum_of)
    });
    let mut watch = own::watch();
    let (count, sums, tuple_count, rest) = sums(watch.poll(), "by hand");
    assert_eq!([count, sums[0], sums[1]], all);
    assert!(tuple_count == 8 && rest > 0);
    let said: Vec<_> = HAND.amounts().into_iter().map(|(_, sum)| sum).collect();
    assert_eq!(said, [u128::from(all[1]), u128::from(all[2])]);
}

fn sum_of(one: [u64; 3], other: [u64; 3]) -> [u64; 3] {
    std::array::from_fn(|at| one[at] + other[at])
}

/// Measures regions of a fenced point by guards and by hand, with more different tuples than pfp
/// counts separately.
#[test]
fn regions_of_a_fenced_point_carry_amounts() {
    static FENCED: pfp::MeteredPoint = pfp::MeteredPoint::new("fenced amounts", &["items"]);
    FENCED.point().set_fenced(true);
    let times = size(1_200, 120_000);
    for n in 0..times {
        drop(FENCED.measure([n % 12]));
        FENCED.begin();
        FENCED.end([n % 12]);
    }
    let all = 2 * (0..times).map(|n| n % 12).sum::<u64>();
    let others = 2 * times / 3;
    assert_eq!(sums(own::watch().poll(), "fenced amounts"), (2 * times, [all, 0, 0, 0], 8, others));
}

/// The cell of a region with amounts is only known at its end. Still, a region that began before a
/// reset, or while the point was off, is not counted.
#[test]
fn a_region_counts_by_the_state_at_its_begin() {
    static OPEN: pfp::MeteredPoint = pfp::MeteredPoint::new("open", &["items"]);
    let count = || OPEN.point().stats().map_or(0, |stats| stats.count);
    OPEN.begin();
    OPEN.end([3]);
    assert_eq!(count(), 1);
    // With 3 items, the thread has measured the tuple before; with 4 items, the tuple is new.
    for items in [3, 4] {
        OPEN.begin();
        OPEN.point().reset();
        OPEN.end([items]);
        assert_eq!(count(), 0, "what began before the reset, with {items}");
    }
    OPEN.begin();
    OPEN.point().disable();
    OPEN.end([5]);
    assert_eq!((count(), OPEN.amounts()), (1, vec![("items", 5)]));
    OPEN.begin();
    OPEN.end([6]);
    OPEN.point().enable();
    OPEN.end([7]);
    assert_eq!((count(), OPEN.amounts()), (1, vec![("items", 5)]), "none of these was open");
    OPEN.begin();
    OPEN.end([3]);
    assert_eq!((count(), OPEN.amounts()), (2, vec![("items", 8)]));
}

/// Measures laps of plain points and of points with amounts in alternation. One point has more
/// different tuples than pfp counts separately.
#[test]
fn laps_carry_amounts() {
    let times = size(3_000, 1_200_000);
    {
        pfp::laps!("head", items = 2);
        for n in 0..times {
            pfp::lap!("lap with", items = n % 12, bytes = 5);
            pfp::lap!("lap of three", items = n % 3);
            pfp::lap!("lap without");
        }
    }
    static OFF: pfp::MeteredPoint = pfp::MeteredPoint::new("lap that is off", &["items"]);
    static AFTER: pfp::Point = pfp::Point::new("after what is off");
    OFF.point().disable();
    let mut guard = AFTER.measure();
    guard.lap_with(&OFF, [1]);
    guard.lap(&AFTER);
    drop(guard);
    let mut watch = own::watch();
    let picture = watch.poll();
    assert_eq!(sums(picture, "head"), (1, [2, 0, 0, 0], 1, 0));
    assert_eq!(watch::named(picture, "lap without").count, times);
    assert_eq!(watch::named(picture, "after what is off").count, 2);
    assert!(OFF.point().stats().is_none());
    let threes = (0..times).map(|n| n % 3).sum();
    assert_eq!(sums(picture, "lap of three"), (times, [threes, 0, 0, 0], 3, 0));
    let (count, found, tuple_count, rest) = sums(picture, "lap with");
    assert_eq!((count, found), (times, [(0..times).map(|n| n % 12).sum(), 5 * times, 0, 0]));
    assert!(tuple_count == 8 && rest == times / 3, "{rest} of the rest");
}

/// A point with amounts is one of the program's points, and can be measured like any other: its
/// regions then have amounts of 0, and each is counted exactly once.
#[test]
fn regions_of_the_bare_point_have_zero_amounts() {
    static BARE: pfp::MeteredPoint = pfp::MeteredPoint::new("bare", &["items"]);
    // More tuples than pfp counts separately, so that the point's own cell has regions with
    // amounts, too.
    (1..=12).for_each(|items| drop(BARE.measure([items])));
    let bare = pfp::points().find(|point| point.name() == "bare").expect("it was met");
    assert!(std::ptr::eq(bare, BARE.point()));
    let twice = || {
        let mut polled = false;
        bare.measure_async(poll_fn(move |_| {
            let ready = std::mem::replace(&mut polled, true);
            if ready { Poll::Ready(()) } else { Poll::Pending }
        }))
    };
    for round in 1..=10 {
        drop(bare.measure());
        bare.begin();
        bare.end();
        bare.begin_once();
        bare.end_latched();
        bare.begin();
        bare.end();
        let mut guard = bare.measure();
        guard.lap(bare);
        drop(guard);
        let mut future = pin!(twice());
        assert!(poll(future.as_mut()).is_pending() && poll(future.as_mut()).is_ready());
        let mut dropped = Box::pin(twice());
        assert!(poll(dropped.as_mut()).is_pending());
        drop(dropped);
        assert_eq!(bare.stats().map(|stats| stats.count), Some(12 + 7 * round));
        assert_eq!(BARE.amounts(), [("items", 78)]);
    }
    assert_eq!(sums(own::watch().poll(), "bare"), (82, [78, 0, 0, 0], 8, 74));
}

#[pfp::function("asynchronous", items = n, calls = 1)]
async fn asynchronous(n: u64) -> u64 {
    let mut polled = false;
    poll_fn(|_| if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending })
        .await;
    n
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Futures that finish are measured, and so are futures that are dropped halfway. A future that was
/// never polled has measured nothing.
#[test]
fn futures_carry_amounts() {
    let times = size(3_000, 300_000);
    for n in 0..times {
        let mut future = pin!(asynchronous(n % 12));
        assert!(poll(future.as_mut()).is_pending());
        if n % 4 != 0 {
            assert_eq!(poll(future), Poll::Ready(n % 12));
        }
    }
    drop(asynchronous(1000));
    let mut watch = own::watch();
    let (count, found, tuple_count, rest) = sums(watch.poll(), "asynchronous");
    assert_eq!((count, found), (times, [(0..times).map(|n| n % 12).sum(), times, 0, 0]));
    assert!(tuple_count == 8 && rest == times / 3, "{rest} of the rest");
}

/// Runs the same C program, compiled by every installed C and C++ compiler. The sums in the segment
/// and in the output of `pfpShow` must equal those that the program computes.
#[test]
fn amounts_in_c_and_cpp_equal_the_programs_own_sums() {
    for (at, compiler) in Compiler::all().enumerate() {
        let link = if at % 2 == 0 { Link::Static } else { Link::Shared };
        let flags = ["-Wall", "-Wextra", "-Werror"];
        let program = c::compile(compiler, "amounts", &["amounts.c"], link, flags);
        let place = Place::new();
        let mut target = place.start(&program, &[]);
        target.reach("done");
        let mut watch = Watch::attach(&place, &target);
        let picture = watch.poll();
        assert_eq!(target.said().all::<i32>("statuses"), [[-3, -3, -5]]);
        let reported = target.said().all::<u128>("reported").remove(0);
        let sent = said(&target, "send");
        assert_eq!(reported, [0, sent[0], sent[1], sent[2], 0], "and there is no third");
        assert_eq!(target.said().all::<i32>("refused"), [[-3, -3, -5, 0, 0]]);
        assert_eq!(picture.losses.begins_refused, 1, "of a point without amounts");
        let odd = |name| sums(picture, name).1;
        assert_eq!([odd("odd"), odd("mixed")], [[0; 4], [5, 2, 7, 9]]);
        assert_eq!(odd("most"), [u64::MAX, u64::MAX, 0, 0]);
        assert_eq!(target.said().one::<u32>("once"), 6, "evaluated once");
        for (name, tuples) in [("triad", 8), ("handle", 3), ("receive", 8), ("send", 8)] {
            let expected = said(&target, name);
            let (count, sums, tuple_count, _) = sums(picture, name);
            let found = [count, sums[0], sums[1]].map(u128::from);
            assert_eq!((found.to_vec(), tuple_count), (expected, tuples), "{name}, {compiler:?}");
        }
        let json = target.said().all::<String>("shown").remove(0).concat();
        let shown: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
        shown_is(&shown, "triad", said(&target, "triad"), ["Bytes", "Flops"]);
        shown_is(&shown, "handle", said(&target, "handle"), ["requests", "Bytes"]);
        target.go();
        let ended = target.end();
        assert!(ended.status.success(), "{ended:?}");
    }
    // Compiled without the library, the program prints its results and measures nothing.
    let program = c::compile(
        Compiler::C,
        "amounts-off",
        &["amounts.c"],
        Link::Without,
        ["-DPFP_DISABLE", "-Wall", "-Wextra"],
    );
    let output = Command::new(program).output().expect("it starts");
    assert_eq!(output.status.code(), Some(1), "pfpShow says that it has nothing to show");
}

/// Checks counts and sums of two amounts in the output of `show`. Tuples beyond the eighth share a
/// row of means, rounded down.
fn shown_is(shown: &serde_json::Value, label: &str, expected: Vec<u128>, names: [&str; 2]) {
    let threads = shown.as_array().expect("an array of threads");
    let rows: Vec<_> =
        threads.iter().filter_map(|thread| thread[label].as_array()).flatten().collect();
    let number = |row: &serde_json::Value, name: &str| row[name].as_u64().expect("a number");
    let calls = || rows.iter().map(|row| number(row, "Calls"));
    assert_eq!(u128::from(calls().sum::<u64>()), expected[0]);
    let most = u128::from(calls().max().unwrap_or(0));
    for (name, expected) in names.into_iter().zip(&expected[1..]) {
        let sum: u64 = rows.iter().map(|row| number(row, name) * number(row, "Calls")).sum();
        let lost = expected - u128::from(sum);
        assert!(lost < most, "{label}: {name} is {sum}, and not {expected}");
    }
    for row in rows {
        let [least, mean, most] = ["Min", "Avg", "Max"].map(|name| row[name].as_f64().unwrap());
        assert!(0.0 <= least && least <= mean && mean <= most && most < 1.0, "{row}");
        assert!(row["Stddev"].as_f64().is_some_and(|deviation| deviation >= 0.0), "{row}");
    }
}

/// A forked child keeps its parent's tuples, and starts its own sums.
#[test]
fn a_forked_child_has_its_own_sums() {
    static FORKED: pfp::MeteredPoint = pfp::MeteredPoint::new("forked", &["items"]);
    (1..=12_u64).for_each(|n| drop(FORKED.measure([n])));
    // SAFETY: the child only measures, reads its own figures, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        (1..=12_u64).for_each(|n| drop(FORKED.measure([n])));
        drop(FORKED.measure([1_u64]));
        let good = FORKED.amounts() == [("items", 79)]
            && FORKED.point().stats().is_some_and(|stats| stats.count == 13);
        // SAFETY: ends the child at once; no destructors have to run.
        unsafe { libc::_exit(if good { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: `status` outlives the call, and the process is our child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0);
    assert_eq!(FORKED.amounts(), [("items", 78)]);
}
