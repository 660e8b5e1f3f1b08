//! The Lorenz system over threads, with a reduction: each thread integrates its share of
//! the trajectories, and their ends are summed.
//!
//! `probe/examples/c/lorenz.cpp` is the same with OpenMP, and gives the same sums.
//!
//! Run it with `cargo run --release -p pfp-probe --example lorenz -- [THREADS] [TRAJECTORIES]
//! [STEPS] [--hold]`.

use std::io::{self, Read};
use std::process::ExitCode;
use std::{env, thread};

use pfp::{CpuTimer, Point};

static TRAJECTORY: Point = Point::new("trajectory");
static REDUCTION: Point = Point::new("reduction");

type State = [f64; 3];

const STEP: f64 = 0.001;

/// The classic parameters: sigma 10, rho 28, beta 8/3.
fn slope([x, y, z]: State) -> State {
    [10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z]
}

fn along(from: State, slope: State, time: f64) -> State {
    std::array::from_fn(|at| from[at] + time * slope[at])
}

/// A step of the classic Runge-Kutta method.
fn step(from: State) -> State {
    let a = slope(from);
    let b = slope(along(from, a, STEP / 2.0));
    let c = slope(along(from, b, STEP / 2.0));
    let d = slope(along(from, c, STEP));
    std::array::from_fn(|at| from[at] + STEP / 6.0 * (a[at] + 2.0 * b[at] + 2.0 * c[at] + d[at]))
}

fn trajectory(number: u32, steps: u32) -> State {
    let _guard = TRAJECTORY.measure();
    let start = [1.0 + f64::from(number) * 1e-3, 1.0, 1.0];
    (0..steps).fold(start, |state, _| step(state))
}

fn add(a: State, b: State) -> State {
    std::array::from_fn(|at| a[at] + b[at])
}

fn main() -> ExitCode {
    let mut numbers = [4u32, 64, 2_000];
    let mut hold = false;
    for (at, argument) in env::args().skip(1).enumerate() {
        match argument.parse() {
            _ if argument == "--hold" => hold = true,
            Ok(number) if at < numbers.len() && number > 0 => numbers[at] = number,
            _ => {
                eprintln!("lorenz [THREADS] [TRAJECTORIES] [STEPS] [--hold]");
                return ExitCode::FAILURE;
            }
        }
    }
    let [threads, trajectories, steps] = numbers;
    // What pfp does once at its first region is no trajectory's.
    pfp::init();
    let parts: Vec<(State, f64)> = thread::scope(|scope| {
        let part = |thread: u32| {
            scope.spawn(move || {
                let mut timer = CpuTimer::new();
                timer.start();
                // As OpenMP's static schedule deals them: a run of them each.
                let share = trajectories.div_ceil(threads);
                let own = (thread * share)..((thread + 1) * share).min(trajectories);
                let sum = own.map(|number| trajectory(number, steps)).fold([0.0; 3], add);
                timer.stop();
                (sum, timer.on_cpu_ms().unwrap_or(0.0))
            })
        };
        let running: Vec<_> = (0..threads).map(part).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let sum = {
        let _guard = REDUCTION.measure();
        parts.iter().map(|(sum, _)| *sum).fold([0.0; 3], add)
    };
    println!("sum: {:.9} {:.9} {:.9}", sum[0], sum[1], sum[2]);
    println!("on_cpu_ms: {:.6}", parts.iter().map(|(_, ms)| ms).sum::<f64>());
    let ms = |ticks: f64| ticks / pfp::ticks_per_second() * 1e3;
    for (name, point) in [("trajectory", &TRAJECTORY), ("reduction", &REDUCTION)] {
        let stats = point.stats().unwrap_or_default();
        println!(
            "point: {name} {} {:.6} {:.6} {:.6} {:.6} {:.6}",
            stats.count,
            ms(stats.exclusive as f64),
            ms(stats.min as f64),
            ms(stats.max as f64),
            ms(stats.mean()),
            ms(stats.variance().sqrt())
        );
    }
    if hold {
        println!("done");
        let _ = io::stdin().read_to_end(&mut Vec::new());
    }
    ExitCode::SUCCESS
}
