//! A program with several phases. It averages only the phase that repeats.
//!
//! It builds a polynomial, compiles it for a small stack machine, loads the machine's memory, runs
//! the machine many times, and copies the results back. Only the runs are worth tuning: each other
//! phase happens once. So only the runs have an exponential average over about the last ten, in
//! addition to the mean of all.
//!
//! Run it with `cargo run --release -p pfp-timing --example phases -- [RUNS] [--hold]`. With
//! `--hold`, it prints its table and then waits until its standard input ends, so that a viewer can
//! show it.

use std::io::{self, Read};
use std::{env, process::ExitCode};

use pfp::Point;
use pfp_timing::{CpuTimer, SyncScope};

static BUILD: Point = Point::new("build");
static COMPILE: Point = Point::new("compile");
static LOAD: Point = Point::new("load");
static RUN: Point = Point::new("run");
static COPY_BACK: Point = Point::new("copy back");

const PHASES: [(&str, &Point); 5] = [
    ("build", &BUILD),
    ("compile", &COMPILE),
    ("load", &LOAD),
    ("run", &RUN),
    ("copy back", &COPY_BACK),
];

/// Weight of the newest run in the average.
const ALPHA: f64 = 0.1;
const DEGREE: u64 = 24;
const VALUES: usize = 4096;

/// An instruction of the stack machine.
#[derive(Clone, Copy)]
enum Op {
    /// Push a constant.
    Constant(u64),
    /// Push the input.
    Input,
    Add,
    Multiply,
}

/// Compiles Horner's rule: `((c[n] x + c[n-1]) x + ...) x + c[0]`, modulo 2^64.
fn compile(coefficients: &[u64]) -> Vec<Op> {
    let mut code = vec![Op::Constant(0)];
    for &coefficient in coefficients.iter().rev() {
        code.extend([Op::Input, Op::Multiply, Op::Constant(coefficient), Op::Add]);
    }
    code
}

fn run(code: &[Op], inputs: &[u64], outputs: &mut [u64]) {
    let mut stack = Vec::with_capacity(4);
    for (&input, output) in inputs.iter().zip(outputs) {
        stack.clear();
        for op in code {
            let value = match *op {
                Op::Constant(value) => value,
                Op::Input => input,
                Op::Add | Op::Multiply => {
                    let (b, a): (u64, u64) = (stack.pop().unwrap_or(0), stack.pop().unwrap_or(0));
                    if matches!(op, Op::Add) { a.wrapping_add(b) } else { a.wrapping_mul(b) }
                }
            };
            stack.push(value);
        }
        *output = stack.pop().unwrap_or(0);
    }
}

fn main() -> ExitCode {
    let mut runs = 100u32;
    let mut hold = false;
    for argument in env::args().skip(1) {
        match argument.parse() {
            _ if argument == "--hold" => hold = true,
            Ok(number) => runs = number,
            Err(_) => {
                eprintln!("phases [RUNS] [--hold]");
                return ExitCode::FAILURE;
            }
        }
    }
    if RUN.set_alpha(ALPHA).is_err() {
        return ExitCode::FAILURE;
    }
    let mut timer = CpuTimer::new();
    timer.start();

    let count = |point, work: &mut dyn FnMut()| {
        let count = pfp_timing::cycle_count(point, SyncScope::None, work);
        count.elapsed()
    };
    let mut coefficients = Vec::new();
    count(&BUILD, &mut || coefficients = (0..DEGREE).map(|n| n * n + 1).collect());
    let mut code = Vec::new();
    count(&COMPILE, &mut || code = compile(&coefficients));
    let (mut inputs, mut memory) = (Vec::new(), Vec::new());
    count(&LOAD, &mut || {
        inputs = (0..VALUES as u64).collect();
        memory = vec![0; VALUES];
    });
    let mut least = u64::MAX;
    for _ in 0..runs {
        least = least.min(count(&RUN, &mut || run(&code, &inputs, &mut memory)));
    }
    let mut results = Vec::new();
    count(&COPY_BACK, &mut || results.extend_from_slice(&memory));
    timer.stop();

    let ms = |ticks: f64| ticks / pfp::ticks_per_second() * 1e3;
    for (name, point) in PHASES {
        let stats = point.stats().unwrap_or_default();
        print!("{name}: n={}, mean={:.6} ms", stats.count, stats.mean().as_secs_f64() * 1e3);
        match point.alpha() {
            Some(alpha) => println!(", average={:.6} ms at {alpha:.2}", ms(stats.average)),
            None => println!(),
        }
    }
    println!("fastest run: {:.6} ms", ms(least as f64));
    println!("sum: {}", results.iter().fold(0, |sum: u64, value| sum.wrapping_add(*value)));
    println!(
        "all: {:.6} ms, {:.6} ms of them on a CPU",
        timer.elapsed_ms(),
        timer.on_cpu_ms().unwrap_or(0.0)
    );
    if hold {
        println!("done");
        let _ = io::stdin().read_to_end(&mut Vec::new());
    }
    ExitCode::SUCCESS
}
