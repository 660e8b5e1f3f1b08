//! How the cost of a region grows with the number of points, the number of threads, the depth of
//! nesting, the region's duration, and the number of earlier measurements.
//!
//! Each case runs in its own process (see `pfp-bench`), all cases of an axis in turn. The program
//! prints a table per axis to standard output. If a folder is named, it also writes a plot of all
//! axes there:
//!
//! ```text
//! cargo run --release -p pfp-bench --example growth -- assets
//! ```
//!
//! `--quick` only checks that everything runs.

use std::error::Error;
use std::path::Path;

use pfp_bench::{Case, machine, serve_if_asked};

mod axes;
mod cases;
mod picture;
mod table;

/// Amount of measuring.
pub(crate) struct Plan {
    /// Number of rounds of each axis. In a round, every case runs one batch.
    pub(crate) rounds: usize,
    /// Approximate number of regions in a batch.
    pub(crate) regions: u64,
    /// Number of regions in a batch with several points, and of rounds. The batches are long, so
    /// that refilling the caches after the previous case does not affect the figures.
    pub(crate) regions_of_points: u64,
    pub(crate) rounds_of_points: usize,
    /// Number of regions on each of several threads, and of rounds. The batches are so long that
    /// each thread gets a CPU more than once.
    pub(crate) regions_of_threads: u64,
    pub(crate) rounds_of_threads: usize,
    /// Number of rounds of the duration axis. The cost of a region in work that is ten thousand
    /// times as long is less than the noise of a round, so there are many short rounds.
    pub(crate) rounds_of_work: usize,
    /// Approximate duration of a batch on that axis.
    pub(crate) work_ns: u64,
    /// Number of regions before the first reading of the memory.
    pub(crate) regions_of_memory: u64,
    /// Number of processes whose memory is read.
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
        "\nFirst region after a context switch: {after_a_switch:.0} ns of additional CPU time"
    );
    for folder in folders {
        picture::draw(&Path::new(&folder).join("cost-growth.svg"), &axes, &machine)?;
    }
    Ok(())
}

/// All cases, for workers.
fn all() -> Vec<Case> {
    let mut all = vec![cases::REGION, cases::TWO_RDTSC];
    all.extend(cases::POINTS);
    all.extend(cases::AWAY);
    all.extend(cases::DEPTHS);
    all.extend(cases::BARE_DEPTHS);
    all.extend(cases::WORK.concat());
    all
}
