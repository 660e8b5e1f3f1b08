//! The cases on each axis, with and without pfp.

use std::hint::black_box;
use std::time::Duration;

use pfp_bench::{Case, case};

/// An empty region of one point.
pub(crate) const REGION: Case = case!("a region", 1, region());
/// Minimum cost of a measurement.
pub(crate) const TWO_RDTSC: Case = case!("two bare rdtsc", 1, two_rdtsc());

/// One region for each of several points, in turn.
pub(crate) const POINTS: [Case; 8] = [
    case!("1 point", 1, in_turn::<1>()),
    case!("4 points", 4, in_turn::<4>()),
    case!("16 points", 16, in_turn::<16>()),
    case!("64 points", 64, in_turn::<64>()),
    case!("256 points", 256, in_turn::<256>()),
    case!("1,000 points", 1_000, in_turn::<1_000>()),
    case!("4,000 points", 4_000, in_turn::<4_000>()),
    case!("10,000 points", 10_000, in_turn::<10_000>()),
];

/// Cost of a sleep, and of a sleep followed by a region.
pub(crate) const AWAY: [Case; 2] = [
    case!("sleep", 1, std::thread::sleep(Duration::from_micros(1))),
    case!("sleep, then a region", 1, {
        std::thread::sleep(Duration::from_micros(1));
        region();
    }),
];

/// Nested regions of different points.
pub(crate) const DEPTHS: [Case; 6] = [
    case!("1 region", 1, nested(1)),
    case!("2 regions", 2, nested(2)),
    case!("4 regions", 4, nested(4)),
    case!("8 regions", 8, nested(8)),
    case!("16 regions", 16, nested(16)),
    case!("32 regions", 32, nested(32)),
];
/// Two bare readings of the counter in place of each region.
pub(crate) const BARE_DEPTHS: [Case; 6] = [
    case!("1 pair", 1, nested_rdtsc(1)),
    case!("2 pairs", 2, nested_rdtsc(2)),
    case!("4 pairs", 4, nested_rdtsc(4)),
    case!("8 pairs", 8, nested_rdtsc(8)),
    case!("16 pairs", 16, nested_rdtsc(16)),
    case!("32 pairs", 32, nested_rdtsc(32)),
];

macro_rules! work_cases {
    ($steps:literal) => {
        [
            case!(concat!($steps, " steps"), 1, work($steps)),
            case!(concat!($steps, " steps in a region"), 1, work_in_region($steps)),
            case!(concat!($steps, " steps between rdtsc"), 1, work_between_rdtsc($steps)),
        ]
    };
}
/// Work, which takes about ten times as long in each row as in the row before. Each row has three
/// cases: the work alone, in a region, and between two bare readings of the counter.
pub(crate) const WORK: [[Case; 3]; 6] = [
    work_cases!(0),
    work_cases!(7),
    work_cases!(74),
    work_cases!(740),
    work_cases!(7_400),
    work_cases!(74_000),
];

fn region() {
    pfp::scope!("region");
    black_box(());
}

fn two_rdtsc() {
    let first = pfp::ticks();
    black_box(());
    black_box(pfp::ticks().wrapping_sub(first));
}

#[inline(never)]
fn in_turn<const POINTS: usize>() {
    static TURN: [pfp::Point; 10_000] = [const { pfp::Point::new("turn") }; 10_000];
    for point in &TURN[..POINTS] {
        let _guard = point.measure();
        black_box(());
    }
}

#[inline(never)]
fn nested(depth: usize) {
    static LEVEL: [pfp::Point; 32] = [const { pfp::Point::new("level") }; 32];
    let _guard = LEVEL[depth - 1].measure();
    if depth > 1 {
        nested(depth - 1);
    }
}

#[inline(never)]
fn nested_rdtsc(depth: usize) {
    let first = pfp::ticks();
    if depth > 1 {
        nested_rdtsc(depth - 1);
    }
    black_box(pfp::ticks().wrapping_sub(first));
}

/// Takes about five cycles per step, because each step depends on the previous one. Reads no memory
/// and no clock.
#[inline(never)]
fn work(steps: u32) {
    let mut value = black_box(1_u64);
    // If the measuring overlapped with the work, its cost would be hidden.
    wait_for_all_before();
    for _ in 0..steps {
        value = (value ^ value >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    black_box(value);
    wait_for_all_before();
}

#[inline(always)]
fn wait_for_all_before() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has this instruction.
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instruction changes no register and no memory.
    unsafe {
        std::arch::asm!("isb", options(nostack, preserves_flags));
    }
}

fn work_in_region(steps: u32) {
    pfp::scope!("work");
    work(steps);
}

fn work_between_rdtsc(steps: u32) {
    let first = pfp::ticks();
    work(steps);
    black_box(pfp::ticks().wrapping_sub(first));
}
