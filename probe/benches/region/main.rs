//! Cost of a region, compared with the cost without pfp.
//!
//! docs/costs.md quotes the table, and states the maximum for each figure. Each case runs in its
//! own process, all of them in turn for many rounds (see `pfp-bench`). A figure is the ratio of the
//! case's median to the median of two bare readings of the time-stamp counter in the same run.
//! In addition to the table, Criterion measures each case separately.
//!
//! `cargo bench -p pfp-probe`; add `-- --quick` for a short run, or `-- table` for the table alone.

use std::io;
use std::time::Instant;

use criterion::{BenchmarkId, Criterion};
use pfp_bench::{Worker, interleave, median};

mod c;
mod cases;
mod starts;
mod watched;

/// Amount of measuring.
struct Plan {
    rounds: usize,
    /// Approximate number of regions in a batch.
    regions: u64,
    /// Number of rounds with a batch on one thread and a batch on two, and of regions in each. The
    /// batches are long enough to run simultaneously on both threads.
    pairs: usize,
    regions_of_pair: u64,
    /// Number of rounds with and without a viewer, and of regions in each. The batches are so long
    /// that the viewer polls several times.
    watched: usize,
    regions_watched: u64,
    /// Number of processes to start.
    starts: usize,
}

const FULL: Plan = Plan {
    rounds: 101,
    regions: 20_000,
    pairs: 41,
    regions_of_pair: 100_000,
    watched: 21,
    regions_watched: 20_000_000,
    starts: 31,
};
const QUICK: Plan = Plan {
    rounds: 11,
    regions: 20_000,
    pairs: 5,
    regions_of_pair: 100_000,
    watched: 3,
    regions_watched: 10_000_000,
    starts: 5,
};
/// Only checks that everything runs.
const TEST: Plan = Plan {
    rounds: 1,
    regions: 1000,
    pairs: 1,
    regions_of_pair: 1000,
    watched: 1,
    regions_watched: 1000,
    starts: 1,
};

fn main() -> io::Result<()> {
    starts::serve_if_asked();
    pfp_bench::serve_if_asked(&cases::all());
    let has = |flag: &str| std::env::args().any(|argument| argument == flag);
    // `cargo test --benches` needs only a check.
    let plan = match (has("--test"), has("--quick")) {
        (true, _) => TEST,
        (_, true) => QUICK,
        _ => FULL,
    };
    if !has("table") && !has("--test") {
        by_criterion();
    }
    table(&plan)
}

fn by_criterion() {
    let mut criterion = Criterion::default().configure_from_args();
    let mut group = criterion.benchmark_group("region");
    for case in cases::all() {
        (case.prepare)();
        group.bench_function(BenchmarkId::from_parameter(case.name), |bencher| {
            bencher.iter_custom(|calls| {
                let start = Instant::now();
                (case.batch)(calls);
                start.elapsed()
            });
        });
    }
    group.finish();
    criterion.final_summary();
}

fn table(plan: &Plan) -> io::Result<()> {
    let (cases, rows) = (cases::all(), cases::rows());
    let mut workers =
        cases.iter().map(|case| Worker::spawn(case.name)).collect::<io::Result<Vec<_>>>()?;
    let regions = |worker: &Worker| {
        let case = cases.iter().find(|case| case.name == worker.name());
        case.map_or(1, |case| u64::from(case.regions))
    };
    let samples = interleave(&mut workers, plan.rounds, |worker| {
        worker.run((plan.regions / regions(worker)).max(1), 1)
    })?;
    // The samples are in the order of `cases`.
    let ns = |name: &str| {
        let at = cases.iter().position(|case| case.name == name);
        let samples = at.map_or(&[][..], |at| &samples[at]);
        median(&mut samples.iter().map(|sample| sample.ns).collect::<Vec<_>>())
    };
    let floor = ns(cases::FLOOR);

    println!(
        "\n{} rounds, medians; {}\n",
        plan.rounds,
        pfp_bench::machine(pfp::ticks_per_second())
    );
    println!("| what | ns | x two rdtsc | bar |");
    println!("|---|---:|---:|---:|");
    for row in &rows {
        let ns = ns(row.case.name);
        let bar = row.bar.map_or(String::from("-"), |bar| bar.to_string());
        println!("| {} | {ns:.2} | {:.2} | {bar} |", row.case.name, ns / floor);
    }

    c::table(plan.rounds, plan.regions)?;
    c::annotated(plan.rounds, plan.regions)?;

    println!("\n| what else | found | bar |");
    println!("|---|---:|---:|");
    let off = ns(cases::OFF) - ns(cases::EMPTY_LOOP);
    println!("| disabled, more than an empty loop | {:.2} ns | 0.6 ns |", off.max(0.0));
    let off = ns(cases::ASYNC_OFF) - ns(cases::ASYNC_EMPTY);
    println!(
        "| disabled async function, more than one without a region | {:.2} ns | 2 ns |",
        off.max(0.0)
    );
    for ((kind, bar), names) in cases::WORK_KINDS.iter().zip(cases::WORK) {
        let [work, rdtsc, region] = names.map(ns);
        let (rdtsc, region) = (rdtsc - work, region - work);
        let bar = bar.map_or(String::from("-"), |bar| bar.to_string());
        println!(
            "| {work:.0} ns of work, {kind}: a region adds {region:.1} ns, two rdtsc {rdtsc:.1} ns | x {:.2} | {bar} |",
            region / rdtsc
        );
    }

    let scope = workers.iter_mut().filter(|worker| worker.name() == cases::SCOPE);
    let mut scope: Vec<Worker> =
        scope.map(|worker| Worker::spawn(worker.name())).collect::<io::Result<_>>()?;
    let pairs = interleave(&mut scope, plan.pairs, |worker| {
        let one = worker.run(plan.regions_of_pair, 1)?.ns;
        Ok(worker.run(plan.regions_of_pair, 2)?.ns / one)
    })?;
    let two = median(&mut pairs.concat());
    println!("| two threads at once, each against one alone | x {two:.2} | 1.03 |");
    drop(scope);
    drop(workers);

    let ratio = watched::ratio(plan.watched, plan.regions_watched)?;
    println!("| with a viewer polling ten times a second, against none | x {ratio:.2} | 1.03 |");
    let growth = growth()?;
    println!(
        "| memory, first and second million regions | {} and {} KiB | 0 in the second |",
        growth[0] / 1024,
        growth[1] / 1024
    );
    let starts = starts::measure(plan.starts)?;
    println!("| start of the process, first region | {:.0} us | 500 us |", starts.process);
    println!("| first region of a thread, on a new lane | {:.0} us | 15 us |", starts.new_lane);
    println!(
        "| first region of a thread, on a lane used before | {:.0} us | 15 us |",
        starts.old_lane
    );
    Ok(())
}

/// Bytes that become resident during the first million regions of a process, and during the second.
fn growth() -> io::Result<[i64; 2]> {
    let mut worker = Worker::spawn(cases::SCOPE)?;
    // The first answer loads pages of the worker itself into memory.
    worker.run(0, 1)?;
    let start = worker.run(0, 1)?.rss;
    let first = worker.run(1_000_000, 1)?.rss;
    let second = worker.run(1_000_000, 1)?.rss;
    Ok([first as i64 - start as i64, second as i64 - first as i64])
}
