//! A program whose system calls a tracer may make fail while pfp starts. Its standard output does
//! not depend on the probe; it writes the probe's results to a file.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::hint::black_box;
use std::path::Path;

use pfp_tests::faults;
use pfp_tests::os;

/// A value that nothing sets `errno` to.
const KEPT: i32 = 4242;
const ROUNDS: u64 = 96;
const NUMBERED: u32 = 7;

static OUTER: pfp::Point = pfp::Point::new("outer");
static INNER: [pfp::Point; 40] = [const { pfp::Point::new("inner") }; 40];
static BY_HAND: pfp::Point = pfp::Point::new("by hand");

/// Works, with or without points, between two marks for the tracer. The process ends at the third
/// mark.
pub(crate) fn run(measured: bool, report: Option<&Path>) {
    let before = HeldResources::now();
    faults::mark();
    let (sum, errno) = if measured { work::<true>() } else { work::<false>() };
    faults::mark();
    println!("{sum:x} {errno}");
    // Without points, the program calls nothing of the probe here either.
    if let Some(report) = report.filter(|_| measured) {
        let text = tell(&before, &HeldResources::now());
        fs::write(report, text).expect("there is room for the report");
    }
    faults::mark();
}

fn work<const MEASURED: bool>() -> (u64, i32) {
    os::set_errno(KEPT);
    if MEASURED {
        pfp::Point::numbered(NUMBERED).enable();
    }
    let mut sum = 1u64;
    for round in 0..ROUNDS {
        let _outer = MEASURED.then(|| OUTER.measure());
        let _inner = MEASURED.then(|| INNER[round as usize % INNER.len()].measure());
        if MEASURED {
            BY_HAND.begin();
            pfp::Point::numbered(NUMBERED).begin_once();
        }
        // Each round is longer than the last, so that histograms grow, too.
        for step in 0..round * round {
            sum = (sum ^ black_box(step)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
        }
        if MEASURED {
            let numbered = pfp::Point::numbered(NUMBERED);
            if round % 8 == 3 {
                numbered.end_latched()
            } else {
                numbered.end()
            }
            BY_HAND.end();
        }
    }
    (sum, os::errno())
}

fn tell(before: &HeldResources, after: &HeldResources) -> String {
    let mut text = String::new();
    let mut line = |key: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{key} {value}");
    };
    let new = |of: fn(&HeldResources) -> &BTreeSet<String>| {
        let found: Vec<&String> = of(after).difference(of(before)).collect();
        found
    };
    for descriptor in new(|looks| &looks.descriptors) {
        line("descriptor", descriptor.clone());
    }
    for mapping in new(|looks| &looks.mappings) {
        line("mapping", mapping.clone());
    }
    line("count", format!("{ROUNDS} {}", count(OUTER.stats())));
    line("count", format!("{ROUNDS} {}", count(BY_HAND.stats())));
    line(
        "count",
        format!("{} {}", ROUNDS - ROUNDS / 8, count(pfp::Point::numbered(NUMBERED).stats())),
    );
    let inner: u64 = INNER.iter().map(|point| count(point.stats())).sum();
    line("count", format!("{ROUNDS} {inner}"));
    let all = [OUTER.stats(), BY_HAND.stats(), pfp::Point::numbered(NUMBERED).stats()];
    let longest = all.iter().flatten().map(|stats| stats.inclusive).max().unwrap_or(0);
    line("seconds", (longest as f64 / pfp::ticks_per_second()).to_string());
    // This line comes last, since `init` may try again.
    line("init", pfp::init().is_ok().to_string());
    text
}

fn count(stats: Option<pfp::Stats>) -> u64 {
    stats.map_or(0, |stats| stats.count)
}

/// System resources that the process holds.
struct HeldResources {
    descriptors: BTreeSet<String>,
    /// Mappings other than the heap and the stack, which also grow for other reasons.
    mappings: BTreeSet<String>,
}

impl HeldResources {
    fn now() -> Self {
        let maps = fs::read_to_string("/proc/self/maps").expect("/proc is there");
        let mapping = |line: &str| {
            let mut words = line.split_whitespace();
            let (range, mode) = (words.next()?, words.next()?);
            let name = words.nth(3).unwrap_or("-");
            (!name.starts_with("[heap]") && !name.starts_with("[stack]"))
                .then(|| format!("{name} {mode} {range}"))
        };
        Self {
            descriptors: os::descriptors(std::process::id()).into_iter().collect(),
            mappings: maps.lines().filter_map(mapping).collect(),
        }
    }
}
