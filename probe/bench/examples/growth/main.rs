//! How the cost of a region grows: with the number of points, of threads, of
//! regions around it, with its duration, and with what was recorded before.
//!
//! Each case runs in a process of its own (see `pfp-bench`), those of an axis in
//! turn. A table per axis goes to standard output, the plot of all of them into a
//! folder if one is named:
//!
//! ```text
//! cargo run --release -p pfp-bench --example growth -- assets
//! ```
//!
//! `--quick` only shows that everything runs.

use std::error::Error;
use std::path::Path;

use pfp_bench::{Case, machine, serve_if_asked};

mod axes;
mod cases;
mod picture;
mod table;

/// How much is measured.
pub(crate) struct Plan {
    /// Rounds of each axis, in which every case has one batch.
    pub(crate) rounds: usize,
    /// About how many regions a batch has.
    pub(crate) regions: u64,
    /// The same of several points. They must fill the caches anew after the case
    /// before, which is not to be in the figures.
    pub(crate) regions_of_points: u64,
    pub(crate) rounds_of_points: usize,
    /// The same on each of several threads: so many that all threads have the CPU
    /// more than once. And the rounds of that.
    pub(crate) regions_of_threads: u64,
    pub(crate) rounds_of_threads: usize,
    /// Rounds of the axis of durations. What a region adds to work ten thousand times
    /// as long is within what two rounds differ by, so there are many, and short.
    pub(crate) rounds_of_work: usize,
    /// About how long one of their batches takes.
    pub(crate) work_ns: u64,
    /// Regions after which memory is looked at for the first time.
    pub(crate) regions_of_memory: u64,
    /// Processes whose memory is looked at.
    pub(crate) processes: usize,
}

const FULL: Plan = Plan {
    rounds: 51,
    regions: 200_000,
    regions_of_points: 2_000_000,
    rounds_of_points: 15,
    regions_of_threads: 500_000,
    rounds_of_threads: 11,
    rounds_of_work: 1_001,
    work_ns: 1_000_000,
    regions_of_memory: 1_000_000,
    processes: 5,
};
const QUICK: Plan = Plan {
    rounds: 3,
    regions: 20_000,
    regions_of_points: 20_000,
    rounds_of_points: 3,
    regions_of_threads: 20_000,
    rounds_of_threads: 3,
    rounds_of_work: 11,
    work_ns: 100_000,
    regions_of_memory: 10_000,
    processes: 1,
};

fn main() -> Result<(), Box<dyn Error>> {
    serve_if_asked(&all());
    let (options, folders): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let plan = if options.iter().any(|option| option == "--quick") { QUICK } else { FULL };

    let axes = axes::measure(&plan)?;
    let machine = machine(pfp::ticks_per_second());
    let after_a_switch = axes::after_a_switch(&plan)?;
    table::print(&axes, &machine);
    println!(
        "\nThe first region after its thread was away: {after_a_switch:.0} ns more of CPU time"
    );
    for folder in folders {
        picture::draw(&Path::new(&folder).join("cost-growth.svg"), &axes, &machine)?;
    }
    Ok(())
}

/// Every case, for the processes that are asked for one.
fn all() -> Vec<Case> {
    let mut all = vec![cases::REGION, cases::TWO_RDTSC];
    all.extend(cases::POINTS);
    all.extend(cases::AWAY);
    all.extend(cases::DEPTHS);
    all.extend(cases::BARE_DEPTHS);
    all.extend(cases::WORK.concat());
    all
}
