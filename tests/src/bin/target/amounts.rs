//! Regions with amounts, whose sums the target also computes itself.

use std::path::Path;
use std::thread;

use pfp_tests::script::{pause, say};

/// Number of calls of each thread.
const CALLS: u64 = 3000;
/// Number of calls before there are threads: each tuple once.
const ALONE: u64 = 12;

static FORMER: pfp::MeteredPoint = pfp::MeteredPoint::new("former", &["bytes", "requests"]);

fn many(items: u64) -> u64 {
    let bytes = 1000 + items * 24;
    // There are twelve different tuples; pfp counts eight separately and sums the other four.
    pfp::scope!("many", bytes = bytes, flops = items * 2, items = items);
    bytes
}

fn few(items: u64) -> u64 {
    pfp::scope!("few", items = items);
    items
}

fn work(thread: u64, calls: u64) -> [u64; 3] {
    let mut sums = [0; 3];
    for call in 0..calls {
        let items = (call * 7 + thread) % 12;
        sums[0] += many(items);
        sums[1] += items;
        sums[2] += few(items % 2 + 1);
    }
    sums
}

/// Runs three threads, then three more on their lanes, then a point that is reset, disabled and
/// enabled. Prints the sums, and writes a snapshot of its own.
pub(crate) fn run(file: &Path) {
    // The first calls run alone. A thread waits at most a millisecond while another thread
    // registers a point, and its call would not be measured.
    let mut sums = work(0, ALONE);
    for _ in 0..2 {
        let threads: Vec<_> = (0..3).map(|at| thread::spawn(move || work(at, CALLS))).collect();
        for of_thread in threads.into_iter().map(|thread| thread.join().expect("it counts")) {
            sums = std::array::from_fn(|at| sums[at] + of_thread[at]);
        }
    }
    say("many", &[&(ALONE + 6 * CALLS), &sums[0], &sums[1]]);
    say("few", &[&(ALONE + 6 * CALLS), &sums[2]]);

    (0..20_u64).for_each(|n| drop(FORMER.measure([n, 1])));
    FORMER.point().reset();
    (0..15_u64).for_each(|n| drop(FORMER.measure([n, 2])));
    FORMER.point().disable();
    (0..15_u64).for_each(|n| drop(FORMER.measure([n, 3])));
    FORMER.point().enable();
    pfp::set_enabled(false);
    (0..15_u64).for_each(|n| drop(FORMER.measure([n, 4])));
    pfp::set_enabled(true);
    (0..10_u64).for_each(|n| drop(FORMER.measure([n, 5])));
    say("former", &[&25, &(105 + 45), &(30 + 50)]);
    let reported = FORMER.amounts();
    say(
        "reported",
        &[&FORMER.point().stats().map_or(0, |stats| stats.count), &reported[0].1, &reported[1].1],
    );
    if let Err(error) = pfp::snapshot_to(file) {
        say("error", &[&error]);
    }
    pause("done");
}

/// Measures until it is killed: the n-th call has n bytes and one item.
pub(crate) fn endless() {
    for bytes in 1.. {
        pfp::scope!("endless", bytes = bytes as u64, items = 1);
    }
}
