//! Measures how often `pfp-top gate` raises a false alarm, and how often it finds a slow-down of
//! PERCENT: it runs a program that can be slowed down, and judges the snapshots of its runs as the
//! command does.
//!
//! ```text
//! cargo run --release -p pfp-tests --example gate_power -- [TRIES] [PERCENT]
//! ```
//!
//! Every try has new runs of three variants, in turn: the baseline, the baseline again, and one
//! whose `work` does PERCENT more. A try is judged with the first one, two, three, ... runs of each
//! variant, so that the tables show how many are needed, and once more with the baseline runs of
//! the previous try, as with an older baseline.

use std::io::BufRead;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use pfp_model::compare::gate::{
    ASSUMED_DEVIATION, GateFinding, Judgement, Limit, ProgramRun, judge,
};
use pfp_read::snapshot::Snapshot;
use pfp_read::source::{self, Source};
use pfp_tests::place::Place;

/// Runs of each variant in a try.
const RUNS: usize = 10;
/// Numbers of runs of each variant that a try is judged with.
const JUDGED: [usize; 6] = [1, 2, 3, 5, 7, 10];
/// Regions of each point in a run.
const ROUNDS: u32 = 6_000;
/// Steps of a region, on average; a step takes one or two nanoseconds.
const STEPS: u64 = 4_000;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, percent] = arguments.as_slice()
        && word == "workload"
    {
        workload(percent.parse()?);
        return Ok(());
    }
    let number = |place: usize, default: f64| {
        arguments.get(place).map_or(Ok(default), |text| text.parse::<f64>())
    };
    let (tries, percent) = (number(0, 100.0)? as usize, number(1, 5.0)?);
    let place = Place::new();
    // SAFETY: this process has no other thread yet.
    unsafe { std::env::set_var("PFP_DIR", place.beacons()) };

    let start = Instant::now();
    let mut counts = vec![Counts::default(); JUDGED.len()];
    let mut older = None;
    for _ in 0..tries {
        let mut sides = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..RUNS {
            for (side, more) in sides.iter_mut().zip([0.0, 0.0, percent]) {
                side.push(run(&place, more)?);
            }
        }
        let [before, same, slow] = &sides;
        for (counts, n) in counts.iter_mut().zip(JUDGED) {
            counts.add(
                &before[..n],
                &same[..n],
                &slow[..n],
                older.as_ref().map(|o: &Vec<_>| &o[..n]),
            );
        }
        let [before, ..] = sides;
        older = Some(before);
    }
    println!(
        "{tries} tries in {:.0} s; {percent} % slower; limits p50=5%,mean=5%",
        start.elapsed().as_secs_f64()
    );
    println!(
        "| runs a side | quiet on the same program | slow-down found | and nothing else | unsure instead | quiet, baseline of the try before | deviation between runs |"
    );
    println!("|---:|---:|---:|---:|---:|---:|---:|");
    for (counts, n) in counts.iter().zip(JUDGED) {
        counts.print(n, tries);
    }
    Ok(())
}

/// Counts over all tries.
#[derive(Clone, Debug, Default)]
struct Counts {
    quiet: usize,
    found: usize,
    only: usize,
    unsure: usize,
    quiet_later: usize,
    deviations: Vec<f64>,
}

impl Counts {
    fn add(
        &mut self,
        before: &[Snapshot],
        same: &[Snapshot],
        slow: &[Snapshot],
        older: Option<&[Snapshot]>,
    ) {
        let of = |judged: &Judgement, name: &str, finding: GateFinding| {
            judged.rows.iter().any(|row| row.name == name && row.finding == finding)
        };
        let fails = |judged: &Judgement| judged.count(GateFinding::Failed) > 0;
        let judged = gate(before, same);
        self.quiet += usize::from(!fails(&judged));
        self.deviations.extend(judged.rows.iter().map(|row| row.deviation));
        let judged = gate(before, slow);
        let found = of(&judged, "work", GateFinding::Failed);
        self.found += usize::from(found);
        self.only += usize::from(found && !of(&judged, "other", GateFinding::Failed));
        self.unsure += usize::from(!found && of(&judged, "work", GateFinding::Unsure));
        self.quiet_later += older.map_or(0, |older| usize::from(!fails(&gate(older, before))));
    }

    fn print(&self, n: usize, tries: usize) {
        let mut deviations = self.deviations.clone();
        deviations.sort_by(f64::total_cmp);
        let median = deviations.get(deviations.len() / 2).copied().unwrap_or(f64::NAN);
        println!(
            "| {n} | {} | {} | {} | {} | {} of {} | {:.2} % |",
            self.quiet,
            self.found,
            self.only,
            self.unsure,
            self.quiet_later,
            tries.saturating_sub(1),
            median * 100.0
        );
    }
}

fn gate(before: &[Snapshot], now: &[Snapshot]) -> Judgement {
    let limits = ["p50=5%", "mean=5%"].map(|text| Limit::parse(text).expect("it is one"));
    let [before, now] = [before, now].map(|side| ProgramRun::all(side.to_vec()));
    judge(&before, &now, &limits, ASSUMED_DEVIATION, |_| true)
}

/// Runs the workload once, and returns its last figures.
fn run(place: &Place, percent: f64) -> Result<Snapshot> {
    let program = std::env::current_exe()?;
    let program = program.to_str().context("the path of this program is text")?;
    let mut target = place.start(program, &["workload", &percent.to_string()]);
    target.reach("done");
    let found = source::discover()?.candidates;
    let candidate = found.into_iter().find(|candidate| candidate.pid == target.pid());
    let mut source: Box<dyn Source> = match candidate {
        Some(candidate) => source::attach(&candidate)?,
        None => bail!("the workload cannot be watched"),
    };
    let snapshot = source.poll()?;
    target.end_well();
    Ok(snapshot)
}

/// Measures two points of about equal work in turn; `work` does `percent` per cent more.
fn workload(percent: f64) {
    let mut dice = 0x2545_f491_4f6c_dd1d_u64 ^ u64::from(std::process::id());
    let mut sum = 0_u64;
    for _ in 0..ROUNDS {
        let more = (steps(&mut dice) as f64 * (1.0 + percent / 100.0)) as u64;
        {
            pfp::scope!("work");
            sum = sum.wrapping_add(chain(more, sum));
        }
        let same = steps(&mut dice);
        pfp::scope!("other");
        sum = sum.wrapping_add(chain(same, sum));
    }
    std::hint::black_box(sum);
    println!("done");
    // Wait until the figures have been read.
    let _ = std::io::stdin().lock().lines().next();
}

/// A random number of steps, from three to five quarters of [`STEPS`], because real inputs differ
/// in size.
fn steps(dice: &mut u64) -> u64 {
    // xorshift64: G. Marsaglia, J. Stat. Softw. 8, 2003.
    *dice ^= *dice << 13;
    *dice ^= *dice >> 7;
    *dice ^= *dice << 17;
    STEPS * 3 / 4 + *dice % (STEPS / 2)
}

/// Computes a chain in which each step depends on the one before.
fn chain(steps: u64, seed: u64) -> u64 {
    (0..std::hint::black_box(steps))
        .fold(seed | 1, |x, i| (x ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
