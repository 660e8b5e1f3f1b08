//! Loops with what they move and compute: `a = b + s * c` over arrays that lie in
//! different caches, a dot product, and a matrix product, for the roofline.
//!
//! Run it with `cargo run --release -p pfp-probe --example triad -- [ROUNDS] [--hold]`; it
//! prints its own figures as HPC programs' timers do. With `--hold` it stays after that
//! until its standard input ends: `pfp-top`, key 7, or `pfp-top roofline -p PID` then
//! show how near it came to what the machine can do.

use std::env;
use std::hint::black_box;
use std::io::{self, Read};
use std::process::ExitCode;

/// Elements of the arrays: three of them fit into a first, a second, and no cache.
const SIZES: [usize; 3] = [1_000, 10_000, 4_000_000];
/// Elements that a round goes over, whatever the size.
const EACH: usize = 4_000_000;
/// Rows of the matrices.
const ROWS: usize = 192;

fn triad(a: &mut [f64], b: &[f64], c: &[f64], by: f64) {
    let n = a.len();
    pfp::scope!("triad", bytes = n * 24, flops = n * 2);
    for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
        *a = b + by * c;
    }
}

fn dot(b: &[f64], c: &[f64]) -> f64 {
    let n = b.len();
    pfp::scope!("dot", bytes = n * 16, flops = n * 2);
    // Eight sums side by side, or each addition would wait for the one before.
    let mut sums = [0.0; 8];
    for (b, c) in b.chunks_exact(8).zip(c.chunks_exact(8)) {
        for (at, sum) in sums.iter_mut().enumerate() {
            *sum += b[at] * c[at];
        }
    }
    sums.iter().sum()
}

/// `a += b * c`, row by row.
fn multiply(a: &mut [f64], b: &[f64], c: &[f64]) {
    pfp::scope!("multiply", bytes = 4 * ROWS * ROWS * 8, flops = 2 * ROWS * ROWS * ROWS);
    for (a, b) in a.chunks_exact_mut(ROWS).zip(b.chunks_exact(ROWS)) {
        for (b, c) in b.iter().zip(c.chunks_exact(ROWS)) {
            for (a, c) in a.iter_mut().zip(c) {
                *a += b * c;
            }
        }
    }
}

fn main() -> ExitCode {
    let (mut rounds, mut hold) = (10_usize, false);
    for argument in env::args().skip(1) {
        match argument.parse() {
            _ if argument == "--hold" => hold = true,
            Ok(number) if number > 0 => rounds = number,
            _ => {
                eprintln!("triad [ROUNDS] [--hold]");
                return ExitCode::FAILURE;
            }
        }
    }
    let mut sum = 0.0;
    for size in SIZES {
        let (mut a, b, c) = (vec![0.0; size], vec![1.5; size], vec![2.0; size]);
        for _ in 0..rounds * EACH / size {
            triad(&mut a, &b, &c, 3.0);
            black_box(&mut a);
        }
        sum += a.iter().sum::<f64>() + dot(&b, &c);
    }
    let mut product = vec![0.0; ROWS * ROWS];
    for _ in 0..rounds {
        multiply(&mut product, &vec![1.0; ROWS * ROWS], &vec![0.5; ROWS * ROWS]);
    }
    sum += product.iter().sum::<f64>();
    println!("sum: {sum}");
    if pfp::show(&mut io::stdout()).is_err() {
        return ExitCode::FAILURE;
    }
    println!();
    if hold {
        println!("done");
        let _ = io::stdin().read_to_end(&mut Vec::new());
    }
    ExitCode::SUCCESS
}
