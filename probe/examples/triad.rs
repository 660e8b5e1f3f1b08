//! Loops with their bytes and operations, for the roofline: `a = b + s * c` over arrays in
//! different caches, a dot product, and a matrix product.
//!
//! Run it with `cargo run --release -p pfp-probe --example triad -- [ROUNDS] [--hold]`. It prints
//! its own figures, like the timers of HPC programs. With `--hold`, it then waits until its
//! standard input ends. Meanwhile, `pfp-top` (key 7) or `pfp-top roofline -p PID` compares the
//! loops with the machine's limits.

use std::env;
use std::hint::black_box;
use std::io::{self, Read};
use std::process::ExitCode;

/// Number of elements of the arrays. Three arrays fit into the first-level cache, into the
/// second-level cache, or into no cache.
const SIZES: [usize; 3] = [1_000, 10_000, 4_000_000];
/// Number of elements that a round processes, for each size.
const EACH: usize = 4_000_000;
/// Number of rows of the matrices.
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
    // Eight independent sums, because otherwise each addition would wait for the previous one.
    let mut sums = [0.0; 8];
    for (b, c) in b.chunks_exact(8).zip(c.chunks_exact(8)) {
        for (at, sum) in sums.iter_mut().enumerate() {
            *sum += b[at] * c[at];
        }
    }
    sums.iter().sum()
}

/// Computes `a += b * c`, row by row.
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
