//! Compares pfp with similar libraries in one run.
//!
//! Each peer is set up as its own documentation advises; its file in `peers/` describes the setup
//! and its source. Each case runs in its own process (see `pfp-bench`), all of them in turn. The
//! tables go to standard output.
//!
//! `cargo run --release --locked --manifest-path probe/comparison/Cargo.toml`; add `-- --quick` to
//! only check that everything runs.

use std::io;

use pfp_bench::{Case, Sample, Worker, interleave, machine, median, serve_if_asked};

use crate::row::{Row, Subject};

mod apart;
mod floors;
mod peers;
mod row;
mod table;

/// Amount of measuring.
struct Plan {
    /// Number of rounds on one thread; in each, every case runs one batch. It is even, because
    /// memory is read after half of them.
    rounds: usize,
    calls: u64,
    /// Number of rounds with a batch on one thread and a batch on two.
    pairs: usize,
    /// Number of calls per thread in these batches, which is large enough for both threads to run
    /// simultaneously.
    calls_of_pair: u64,
}

/// Each half of the rounds has a million regions of each case, on one thread.
const FULL: Plan = Plan { rounds: 100, calls: 20_000, pairs: 31, calls_of_pair: 50_000 };
const QUICK: Plan = Plan { rounds: 4, calls: 1_000, pairs: 3, calls_of_pair: 5_000 };

/// Figures of a case.
struct Figures {
    ns: f64,
    /// Ratio of a region's cost on each of two threads to its cost on one.
    two_threads: f64,
    /// Bytes that became resident in the first half of the rounds, and in the second.
    growth: [i64; 2],
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let has = |wanted: &str| arguments.iter().any(|argument| argument == wanted);
    peers::hotpath::before_any_thread(has(peers::hotpath::OFF));
    let rows = peers::rows();
    let mut cases: Vec<Case> = floors::cases().to_vec();
    cases.extend(rows.iter().flat_map(Row::subjects).filter_map(Subject::case));
    serve_if_asked(&cases);

    apart::build()?;
    let mut workers = floors::cases()
        .iter()
        .map(|case| Worker::spawn(case.name))
        .collect::<io::Result<Vec<_>>>()?;
    for subject in rows.iter().flat_map(Row::subjects) {
        workers.push(match subject {
            Subject::Here(case) => Worker::spawn(case.name)?,
            Subject::Apart(program) => Worker::spawn_from(apart::path(program)?, apart::CASE)?,
        });
    }
    let plan = if has("--quick") { QUICK } else { FULL };
    let figures = measure(&mut workers, &plan)?;
    table::print(&rows, &figures, &plan, &machine(pfp::ticks_per_second()));
    Ok(())
}

/// The figures of every worker, in order.
fn measure(workers: &mut [Worker], plan: &Plan) -> io::Result<Vec<Figures>> {
    // The first answer loads pages of the worker itself into memory.
    let before: Vec<Sample> = workers
        .iter_mut()
        .map(|worker| worker.run(0, 1).and_then(|_| worker.run(0, 1)))
        .collect::<io::Result<_>>()?;
    let one = interleave(workers, plan.rounds, |worker| worker.run(plan.calls, 1))?;
    let pairs = interleave(workers, plan.pairs, |worker| {
        Ok([worker.run(plan.calls_of_pair, 1)?, worker.run(plan.calls_of_pair, 2)?])
    })?;
    let figures = before.iter().zip(&one).zip(&pairs).map(|((before, one), pairs)| {
        let rss = |after: usize| one[after - 1].rss as i64;
        let half = rss(plan.rounds / 2);
        let of_pairs =
            |which: usize| median(&mut pairs.iter().map(|pair| pair[which].ns).collect::<Vec<_>>());
        Figures {
            ns: median(&mut one.iter().map(|sample| sample.ns).collect::<Vec<_>>()),
            two_threads: of_pairs(1) / of_pairs(0),
            growth: [half - before.rss as i64, rss(plan.rounds) - half],
        }
    });
    Ok(figures.collect())
}

/// The content of a region: nothing, but the compiler cannot remove or move it.
#[inline(always)]
fn nothing() {
    std::hint::black_box(());
}
