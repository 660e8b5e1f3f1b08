//! The axes of the plots, and their measurements.

use std::io;

use pfp_bench::{Case, Worker, interleave, median};

use crate::{Plan, cases};

const THREADS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Number of readings of the memory. The number of regions before a reading doubles each time.
const LOOKS: u32 = 5;

/// A quantity with which the cost may grow.
pub(crate) struct Axis {
    pub(crate) title: &'static str,
    /// Label of the values in `at`.
    pub(crate) along: &'static str,
    /// Label of the figures.
    pub(crate) figure: &'static str,
    pub(crate) at: Vec<f64>,
    /// Lines of the plot, with a figure for each value of `at`.
    pub(crate) series: Vec<Series>,
}

pub(crate) struct Series {
    pub(crate) name: &'static str,
    pub(crate) figures: Vec<f64>,
}

const PFP: &str = "a region";
const BARE: &str = "two bare rdtsc";

pub(crate) fn measure(plan: &Plan) -> io::Result<Vec<Axis>> {
    Ok(vec![points(plan)?, threads(plan)?, depth(plan)?, duration(plan)?, memory(plan)?])
}

fn points(plan: &Plan) -> io::Result<Axis> {
    let mut cases = cases::POINTS.to_vec();
    cases.push(cases::TWO_RDTSC);
    let mut figures = medians(&cases, plan.regions_of_points, plan.rounds_of_points)?;
    // The last case is `TWO_RDTSC`, which does not depend on the number of points.
    let floor = figures.pop().unwrap_or(f64::NAN);
    Ok(Axis {
        title: "Points",
        along: "points in turn",
        figure: "ns per region",
        at: at(&cases::POINTS),
        series: vec![
            Series { name: PFP, figures },
            Series { name: BARE, figures: vec![floor; cases::POINTS.len()] },
        ],
    })
}

fn threads(plan: &Plan) -> io::Result<Axis> {
    let mut workers = spawn(&[cases::REGION, cases::TWO_RDTSC])?;
    let turns = interleave(&mut workers, plan.rounds_of_threads, |worker| {
        let batch = |&threads| Ok(worker.run(plan.regions_of_threads, threads)?.cpu_ns);
        THREADS.iter().map(batch).collect::<io::Result<Vec<_>>>()
    })?;
    let series = |name, turns: &[Vec<f64>]| {
        let of = |which| median(&mut turns.iter().map(|turn| turn[which]).collect::<Vec<_>>());
        Series { name, figures: (0..THREADS.len()).map(of).collect() }
    };
    Ok(Axis {
        title: "Threads",
        along: "threads at once, on one point",
        figure: "ns of CPU time per region",
        at: THREADS.map(|threads| threads as f64).to_vec(),
        series: vec![series(PFP, &turns[0]), series(BARE, &turns[1])],
    })
}

fn depth(plan: &Plan) -> io::Result<Axis> {
    let figures =
        medians(&[cases::DEPTHS, cases::BARE_DEPTHS].concat(), plan.regions, plan.rounds)?;
    let (regions, bare) = figures.split_at(cases::DEPTHS.len());
    Ok(Axis {
        title: "Depth",
        along: "nested regions",
        figure: "ns per region",
        at: at(&cases::DEPTHS),
        series: vec![
            Series { name: PFP, figures: regions.to_vec() },
            Series { name: BARE, figures: bare.to_vec() },
        ],
    })
}

fn duration(plan: &Plan) -> io::Result<Axis> {
    let cases = cases::WORK.concat();
    let mut workers = spawn(&cases)?;
    // The number of calls that take about `work_ns`, estimated by a first run.
    let mut calls = Vec::new();
    for worker in &mut workers {
        let first = worker.run(10, 1)?.ns;
        calls.push((plan.work_ns as f64 / first.max(10.0)).max(1.0) as u64);
    }
    let rounds = rounds(&cases, &mut workers, &calls, plan.rounds_of_work)?;
    // Within a round, the machine is equally fast for both cases.
    let added = |which: usize| {
        let of_case = |of: &[Vec<f64>]| {
            let differences = of[which].iter().zip(&of[0]).map(|(with, without)| with - without);
            median(&mut differences.collect::<Vec<_>>())
        };
        rounds.chunks(3).map(of_case).collect()
    };
    Ok(Axis {
        title: "Duration",
        along: "ns of work in the region",
        figure: "ns added to the work",
        at: rounds.chunks(3).map(|of| median(&mut of[0].clone())).collect(),
        series: vec![
            Series { name: PFP, figures: added(1) },
            Series { name: BARE, figures: added(2) },
        ],
    })
}

fn memory(plan: &Plan) -> io::Result<Axis> {
    let mut grown = [const { Vec::new() }; 2];
    for _ in 0..plan.processes {
        for (case, grown) in [cases::REGION, cases::TWO_RDTSC].iter().zip(&mut grown) {
            grown.push(growth(case, plan)?);
        }
    }
    let series = |name, grown: &[Vec<f64>]| {
        let of = |which| median(&mut grown.iter().map(|looks| looks[which]).collect::<Vec<_>>());
        Series { name, figures: (0..LOOKS as usize).map(of).collect() }
    };
    Ok(Axis {
        title: "Memory",
        along: "regions recorded",
        figure: "KiB more than after 10 regions",
        at: (0..LOOKS).map(|look| (plan.regions_of_memory << look) as f64).collect(),
        series: vec![series(PFP, &grown[0]), series(BARE, &grown[1])],
    })
}

/// Resident memory of a new process, in KiB, at each reading.
fn growth(case: &Case, plan: &Plan) -> io::Result<Vec<f64>> {
    let mut worker = Worker::spawn(case.name)?;
    // The first answer loads pages of the worker itself into memory.
    worker.run(0, 1)?;
    let before = worker.run(0, 1)?.rss;
    let mut done = 0;
    let look = |look| {
        let regions = plan.regions_of_memory << look;
        let sample = worker.run(regions - done, 1)?;
        done = regions;
        Ok((sample.rss as f64 - before as f64) / 1024.0)
    };
    (0..LOOKS).map(look).collect()
}

/// Additional CPU time in nanoseconds of a region that is the first after its thread was switched
/// in.
pub(crate) fn after_a_switch(plan: &Plan) -> io::Result<f64> {
    let mut workers = spawn(&cases::AWAY)?;
    let mut rounds =
        interleave(&mut workers, plan.rounds, |worker| Ok(worker.run(100, 1)?.cpu_ns))?;
    let [without, with] = [0, 1].map(|which: usize| median(&mut rounds[which]));
    Ok(with - without)
}

/// Median of each case over all rounds, in nanoseconds per region. A batch has about `regions`
/// regions.
fn medians(cases: &[Case], regions: u64, count: usize) -> io::Result<Vec<f64>> {
    let calls: Vec<u64> = cases.iter().map(|case| regions / u64::from(case.regions)).collect();
    let mut rounds = rounds(cases, &mut spawn(cases)?, &calls, count)?;
    Ok(rounds.iter_mut().map(|rounds| median(rounds)).collect())
}

/// Nanoseconds per region, of each case in each round.
fn rounds(
    cases: &[Case],
    workers: &mut [Worker],
    calls: &[u64],
    rounds: usize,
) -> io::Result<Vec<Vec<f64>>> {
    interleave(workers, rounds, |worker| {
        let which = cases.iter().position(|case| case.name == worker.name());
        Ok(worker.run(which.map_or(1, |which| calls[which]), 1)?.ns)
    })
}

fn spawn(cases: &[Case]) -> io::Result<Vec<Worker>> {
    cases.iter().map(|case| Worker::spawn(case.name)).collect()
}

/// Position of each case on its axis.
fn at(cases: &[Case]) -> Vec<f64> {
    cases.iter().map(|case| f64::from(case.regions)).collect()
}
