//! Tuning an inner loop by its cycle counts: a supervisor, and six workers that each add a constant
//! to an array in a different way.
//!
//! First, each variant runs on every length and alignment. It must produce the same result as the
//! scalar one, and not change the memory around the array. Then all workers run at once. After each
//! round, the supervisor prints how many core cycles each worker takes per element. The number of
//! processors does not matter, because a point measures only on-CPU time. All figures are for a
//! pass over an array that fits into the first-level cache.
//!
//! Run it with `cargo run --release -p pfp-timing --example inner_loop -- [ROUNDS] [--hold]`. With
//! 0 rounds, it runs until its standard input ends. At the same time,
//!
//! ```text
//! pfp-top --name inner_loop --columns name,rate,avg,items,per-item,thr --unit cycles
//! ```
//!
//! shows the points `add:scalar` and so on: elements per second, and counter cycles per element.

use std::io::{self, Read, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};
use std::{env, hint, thread};

use pfp::MeteredPoint;

/// Number of elements of the array, which is 16 KiB large.
const LENGTH: usize = 4096;
/// Passes of a worker per round.
const PASSES: u32 = 200;
/// Maximum length that is tested.
const LENGTHS: usize = 130;
/// Number of alignments that are tested, in elements.
const ALIGNMENTS: usize = 16;

static INPUT_ENDED: AtomicBool = AtomicBool::new(false);

/// A function that adds a constant to all elements.
type Way = fn(&mut [u32], u32);

struct Worker {
    name: &'static str,
    way: Way,
    point: &'static MeteredPoint,
}

macro_rules! worker {
    ($name:literal, $way:expr) => {{
        static POINT: MeteredPoint = MeteredPoint::new(concat!("add:", $name), &["elements"]);
        Worker { name: $name, way: $way, point: &POINT }
    }};
}

fn workers() -> [Worker; 6] {
    [
        worker!("scalar", scalar),
        worker!("unrolled-2", unrolled::<2>),
        worker!("unrolled-8", unrolled::<8>),
        worker!("vectorised", vectorised),
        worker!("vectorised-4", vectorised_4),
        worker!("pipelined", pipelined),
    ]
}

/// Returns its argument, but the compiler cannot know that, so it does not vectorise the loop.
#[inline(always)]
fn opaque(value: u32) -> u32 {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    {
        let mut value = u64::from(value);
        // SAFETY: the assembly contains no instruction.
        unsafe {
            std::arch::asm!("/* {0} */", inout(reg) value, options(nomem, nostack, preserves_flags));
        }
        value as u32
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    hint::black_box(value)
}

#[inline(never)]
fn scalar(array: &mut [u32], constant: u32) {
    for element in array {
        *element = opaque(element.wrapping_add(constant));
    }
}

#[inline(never)]
fn unrolled<const N: usize>(array: &mut [u32], constant: u32) {
    let (groups, rest) = array.as_chunks_mut::<N>();
    for group in groups {
        for element in group {
            *element = opaque(element.wrapping_add(constant));
        }
    }
    scalar(rest, constant);
}

/// A vector of four elements in a register.
#[cfg(target_arch = "x86_64")]
mod vector {
    use std::arch::x86_64::*;

    pub(super) type Vector = __m128i;

    #[inline(always)]
    pub(super) fn splat(value: u32) -> Vector {
        // SAFETY: every x86-64 processor has SSE2.
        unsafe { _mm_set1_epi32(value as i32) }
    }

    #[inline(always)]
    pub(super) fn load(from: &[u32; 4]) -> Vector {
        // SAFETY: every x86-64 processor has SSE2; `from` has 16 bytes, which need no alignment.
        unsafe { _mm_loadu_si128(from.as_ptr().cast()) }
    }

    #[inline(always)]
    pub(super) fn add(a: Vector, b: Vector) -> Vector {
        // SAFETY: every x86-64 processor has SSE2.
        unsafe { _mm_add_epi32(a, b) }
    }

    #[inline(always)]
    pub(super) fn store(to: &mut [u32; 4], value: Vector) {
        // SAFETY: every x86-64 processor has SSE2; `to` has 16 bytes, which need no alignment.
        unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), value) }
    }
}

/// A vector of four elements, vectorised by the compiler.
#[cfg(not(target_arch = "x86_64"))]
mod vector {
    pub(super) type Vector = [u32; 4];

    #[inline(always)]
    pub(super) fn splat(value: u32) -> Vector {
        [value; 4]
    }

    #[inline(always)]
    pub(super) fn load(from: &[u32; 4]) -> Vector {
        *from
    }

    #[inline(always)]
    pub(super) fn add(a: Vector, b: Vector) -> Vector {
        std::array::from_fn(|at| a[at].wrapping_add(b[at]))
    }

    #[inline(always)]
    pub(super) fn store(to: &mut [u32; 4], value: Vector) {
        *to = value;
    }
}

#[inline(never)]
fn vectorised(array: &mut [u32], constant: u32) {
    let all = vector::splat(constant);
    let (groups, rest) = array.as_chunks_mut::<4>();
    for group in groups {
        vector::store(group, vector::add(vector::load(group), all));
        // Prevents the compiler from unrolling the loop.
        opaque(0);
    }
    scalar(rest, constant);
}

#[inline(never)]
fn vectorised_4(array: &mut [u32], constant: u32) {
    let all = vector::splat(constant);
    let (groups, rest) = array.as_chunks_mut::<4>();
    let (fours, few) = groups.as_chunks_mut::<4>();
    for four in fours {
        for group in four {
            vector::store(group, vector::add(vector::load(group), all));
        }
        opaque(0);
    }
    for group in few {
        vector::store(group, vector::add(vector::load(group), all));
    }
    scalar(rest, constant);
}

/// Loads the next two vectors before it stores the current two.
#[inline(never)]
fn pipelined(array: &mut [u32], constant: u32) {
    let all = vector::splat(constant);
    let (groups, rest) = array.as_chunks_mut::<4>();
    let (pairs, few) = groups.as_chunks_mut::<2>();
    if let Some(first) = pairs.first() {
        let mut loaded = [vector::load(&first[0]), vector::load(&first[1])];
        for at in 0..pairs.len() {
            let sums = loaded.map(|it| vector::add(it, all));
            if let Some([a, b]) = pairs.get(at + 1) {
                loaded = [vector::load(a), vector::load(b)];
            }
            let [a, b] = &mut pairs[at];
            vector::store(a, sums[0]);
            vector::store(b, sums[1]);
        }
    }
    for group in few {
        vector::store(group, vector::add(vector::load(group), all));
    }
    scalar(rest, constant);
}

/// Tests a variant on every length and alignment. Returns the number of cases, or the length and
/// alignment that failed.
fn is_right(way: Way) -> Result<usize, (usize, usize)> {
    let mut tried = 0;
    for length in 0..=LENGTHS {
        for alignment in 0..ALIGNMENTS {
            let fresh = |at: usize| (at as u32).wrapping_mul(0x9e37_79b9);
            let mut found: Vec<u32> = (0..LENGTHS + 2 * ALIGNMENTS).map(fresh).collect();
            let mut expected = found.clone();
            way(&mut found[alignment..alignment + length], 0xffff_fff0);
            scalar(&mut expected[alignment..alignment + length], 0xffff_fff0);
            if found != expected {
                return Err((length, alignment));
            }
            tried += 1;
        }
    }
    Ok(tried)
}

fn main() -> ExitCode {
    let mut rounds = 20u64;
    let mut hold = false;
    for argument in env::args().skip(1) {
        match argument.parse() {
            _ if argument == "--hold" => hold = true,
            Ok(number) => rounds = number,
            Err(_) => {
                eprintln!("inner_loop [ROUNDS] [--hold]");
                return ExitCode::FAILURE;
            }
        }
    }
    let workers = workers();
    for worker in &workers {
        match is_right(worker.way) {
            Ok(tried) => println!("right: {} {tried}", worker.name),
            Err((length, alignment)) => {
                println!("wrong: {} at length {length}, alignment {alignment}", worker.name);
                return ExitCode::FAILURE;
            }
        }
    }

    // Core cycles per tick, from a chain of dependent additions, which takes one cycle each.
    let cycles_per_tick = cycles_per_tick();
    println!("cycles per tick: {cycles_per_tick:.4}");
    if rounds == 0 {
        thread::spawn(|| {
            let _ = io::stdin().read_to_end(&mut Vec::new());
            INPUT_ENDED.store(true, Relaxed);
        });
    }
    // The supervisor and the workers meet at the start and at the end of each round.
    let meet = Barrier::new(workers.len() + 1);
    let is_over = AtomicBool::new(false);
    let by_hand = [const { Mutex::new(Vec::new()) }; 6];
    thread::scope(|scope| {
        for (worker, by_hand) in workers.iter().zip(&by_hand) {
            let (meet, is_over) = (&meet, &is_over);
            scope.spawn(move || {
                pfp::register_thread(worker.name);
                let mut array = vec![1u32; LENGTH];
                loop {
                    meet.wait();
                    if is_over.load(Relaxed) {
                        return;
                    }
                    let mut passes = Vec::new();
                    for _ in 0..PASSES {
                        let guard = worker.point.measure([LENGTH]);
                        (worker.way)(hint::black_box(&mut array), 3);
                        drop(guard);
                        // Also times the pass by hand, for comparison.
                        let before = pfp::ticks();
                        (worker.way)(hint::black_box(&mut array), 3);
                        passes.push(pfp::ticks().wrapping_sub(before));
                    }
                    if let Ok(mut by_hand) = by_hand.lock() {
                        // With an unlimited number of rounds, keeps only the last round.
                        if rounds == 0 {
                            by_hand.clear();
                        }
                        by_hand.append(&mut passes);
                    }
                    meet.wait();
                }
            });
        }
        let mut printed = Instant::now();
        for round in 0u64.. {
            let was_last = if rounds == 0 { INPUT_ENDED.load(Relaxed) } else { round == rounds };
            if was_last {
                is_over.store(true, Relaxed);
                meet.wait();
                break;
            }
            meet.wait();
            meet.wait();
            // Rounds are short, so an unlimited run prints at most one line per second.
            if rounds == 0 && printed.elapsed() < Duration::from_secs(1) {
                continue;
            }
            printed = Instant::now();
            print!("live:");
            for worker in &workers {
                let stats = worker.point.point().stats().unwrap_or_default();
                print!(
                    " {} {:.3}",
                    worker.name,
                    stats.mean_ticks() / LENGTH as f64 * cycles_per_tick
                );
            }
            println!();
            let _ = io::stdout().flush();
        }
    });
    for (worker, by_hand) in workers.iter().zip(by_hand) {
        let stats = worker.point.point().stats().unwrap_or_default();
        let mut by_hand = by_hand.into_inner().unwrap_or_default();
        by_hand.sort_unstable();
        let median = by_hand.get(by_hand.len() / 2).map_or(0.0, |ticks| *ticks as f64);
        let each = |ticks: f64| ticks / LENGTH as f64 * cycles_per_tick;
        println!(
            "worker: {} {} {:.4} {:.4}",
            worker.name,
            stats.count,
            each(stats.mean_ticks()),
            each(median)
        );
    }
    if hold {
        println!("done");
        let _ = io::stdin().read_to_end(&mut Vec::new());
    }
    ExitCode::SUCCESS
}

/// Ratio of the core's clock to the counter's.
fn cycles_per_tick() -> f64 {
    let sampled = pfp_timing::sample("the core's clock", 0, 1, || ());
    match sampled.core_hz {
        Some((core, _)) => core / pfp::ticks_per_second(),
        None => 1.0,
    }
}
