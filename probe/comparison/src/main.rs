//! pfp beside what people otherwise use, in one run.
//!
//! Every peer is set up as its own documentation advises; its file in `peers/`
//! says which, and where that is written. Each case runs in a process of its own
//! (see `pfp-bench`), all of them in turn. The tables go to standard output.
//!
//! `cargo run --release --locked --manifest-path probe/comparison/Cargo.toml`;
//! `-- --quick` only shows that everything runs.

use std::io;

use pfp_bench::{Case, Sample, Worker, interleave, machine, median, serve_if_asked};

use crate::row::{Row, Subject};

mod apart;
mod floors;
mod peers;
mod row;
mod table;

/// How much is measured.
struct Plan {
    /// Rounds on one thread, in each of which every case has one batch. An even
    /// number: memory is read at half of them.
    rounds: usize,
    calls: u64,
    /// Rounds of a batch on one thread and one on two threads.
    pairs: usize,
    /// Long enough that both threads really run at once.
    calls_of_pair: u64,
}

/// A million regions in each half, on one thread.
const FULL: Plan = Plan { rounds: 100, calls: 20_000, pairs: 31, calls_of_pair: 50_000 };
const QUICK: Plan = Plan { rounds: 4, calls: 1_000, pairs: 3, calls_of_pair: 5_000 };

/// What came out for one case.
struct Figures {
    ns: f64,
    /// What a region costs on each of two threads, per what it costs on one.
    two_threads: f64,
    /// Bytes that became resident in the first half of the rounds, and in the
    /// second.
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

/// The figures of every worker, in their order.
fn measure(workers: &mut [Worker], plan: &Plan) -> io::Result<Vec<Figures>> {
    // The first answer brings pages of the worker's own into memory.
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

/// What stands in a region: nothing, which the compiler must leave where it is.
#[inline(always)]
fn nothing() {
    std::hint::black_box(());
}
