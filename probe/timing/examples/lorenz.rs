//! The Lorenz system on several threads, with a reduction: each thread integrates its share of the
//! trajectories, and their ends are summed. Both regions state the bytes that they move and the
//! operations that they compute, so the program can print its figures like the timers of HPC
//! programs.
//!
//! `probe/examples/c/lorenz.cpp` does this with OpenMP, and computes the same sums.
//!
//! Run it with `cargo run --release -p pfp-timing --example lorenz -- [THREADS] [TRAJECTORIES]
//! [STEPS] [--hold]`. With `--hold`, it then waits until its standard input ends, and `pfp-top
//! --columns name,count,avg,dev,bytes,flops,intensity` shows the rates.

use std::io::{self, Read};
use std::process::ExitCode;
use std::{env, thread};

use pfp_timing::CpuTimer;

type State = [f64; 3];

const STEP: f64 = 0.001;

/// Floating-point operations of a [`step`]: four slopes of 8 each, three moves along a slope with 2
/// for each of 3 numbers, and finally 7 for each of 3 numbers. The compiler evaluates constants
/// such as `STEP / 2.0`.
const FLOPS: u64 = 4 * 8 + 3 * 3 * 2 + 3 * 7;
/// Bytes of a [`step`], which reads a state and writes one.
const BYTES: u64 = 2 * size_of::<State>() as u64;

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
    let n = u64::from(steps);
    pfp::scope!("trajectory", bytes = n * BYTES, flops = n * FLOPS);
    let start = [1.0 + f64::from(number) * 1e-3, 1.0, 1.0];
    (0..steps).fold(start, |state, _| step(state))
}

fn reduction(ends: &[State]) -> State {
    pfp::scope!("reduction", bytes = size_of_val(ends), flops = ends.len() * 3);
    ends.iter().fold([0.0; 3], |a, b| std::array::from_fn(|at| a[at] + b[at]))
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
    // Initializes pfp now, so that no trajectory includes it.
    pfp::init().ok();
    let parts: Vec<(Vec<State>, f64)> = thread::scope(|scope| {
        let part = |thread: u32| {
            scope.spawn(move || {
                let mut timer = CpuTimer::new();
                timer.start();
                // Contiguous shares, like OpenMP's static schedule.
                let share = trajectories.div_ceil(threads);
                let own = (thread * share)..((thread + 1) * share).min(trajectories);
                let ends = own.map(|number| trajectory(number, steps)).collect();
                timer.stop();
                (ends, timer.on_cpu_ms().unwrap_or(0.0))
            })
        };
        let running: Vec<_> = (0..threads).map(part).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let on_cpu_ms: f64 = parts.iter().map(|(_, ms)| ms).sum();
    let ends: Vec<State> = parts.into_iter().flat_map(|(ends, _)| ends).collect();
    let sum = reduction(&ends);
    println!("sum: {:.9} {:.9} {:.9}", sum[0], sum[1], sum[2]);
    println!("on_cpu_ms: {on_cpu_ms:.6}");
    if pfp::show(&mut io::stdout()).is_err() {
        return ExitCode::FAILURE;
    }
    if hold {
        println!("done");
        let _ = io::stdin().read_to_end(&mut Vec::new());
    }
    ExitCode::SUCCESS
}
