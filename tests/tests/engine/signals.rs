//! Signals: handlers that measure and run at any moment, in the middle of the probe's own work and
//! of each other. No call is lost without being counted, no thread hangs, and no handler allocates
//! memory.

use pfp_shm_layout::reader::Picture;
use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::Place;
use pfp_tests::target::{Said, Target};
use pfp_tests::watch::{self, Watch};
use pfp_tests::{figure, size, skipped};

const STRICT: &str = env!("CARGO_BIN_EXE_strict");

const HANDLED: u64 = size(60_000, 1_000_000);
/// Number of threads that claim a lane under signals, in one program.
const THREADS: u64 = size(2_000, 100_000);
/// Number of programs that start under signals.
const PROGRAMS: u64 = size(10, 300);
/// Number of threads in each of these programs.
const THREADS_OF_A_PROGRAM: u64 = 8;

/// Checks the counts of the threads' own regions and of those in handlers; returns how many regions
/// of handlers could not be measured.
fn check(picture: &Picture, said: &Said, names: &[&str]) -> u64 {
    let calls: u64 = said.one("calls");
    for name in names {
        assert_eq!(watch::named(picture, name).count, calls, "{name}");
    }
    let count = |name| {
        let is_known = picture.points.iter().any(|point| point.name == name);
        if is_known { watch::named(picture, name).count } else { 0 }
    };
    let measured = count("handler") + count("handler inside") + count("handler by hand");
    let losses = picture.losses;
    let refused = losses.begins_missed + losses.begins_refused;
    assert_eq!(measured + refused, said.one::<u64>("regions"), "in handlers: {losses:?}");
    assert_eq!(losses.mismatched_ends, 0);
    refused
}

/// Number of handlers by the number of handlers that they interrupted.
fn by_depth(said: &Said) -> Vec<u64> {
    said.all("handled").into_iter().flatten().collect()
}

#[test]
fn a_storm_of_signals_loses_nothing() {
    let place = Place::new();
    let mut target = place.start(STRICT, &["signals", &HANDLED.to_string()]);
    let said = target.reach("done").clone();
    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    let refused = check(picture, &said, &["outer", "inner", "by hand", "numbered"]);
    let depths = by_depth(&said);
    assert!(depths[3] > 0, "not four deep: {depths:?}");
    assert_eq!(refused, 0, "every thread has its lane, and there is room for all regions");
    figure(&format!(
        "signals: {} rounds, {} handlers, by the others that they interrupted {depths:?}, \
         difference 0, {} measurements without a record",
        said.one::<u64>("calls"),
        depths.iter().sum::<u64>(),
        picture.losses.records_missed,
    ));
    target.end_well();
}

#[test]
fn signals_while_lanes_are_claimed_lose_nothing_uncounted() {
    let claims = Claims::run(1, THREADS);
    // The lanes of the first thread and of two threads at once, and some for threads that are
    // ending.
    assert!(claims.lanes <= 3 + 8, "{claims:?}");
    figure(&format!("signals: {THREADS} threads that claim lanes at a time, {claims:?}"));
}

/// The very first region, which creates the segment, is interrupted as well.
#[test]
fn signals_while_the_segment_is_made_lose_nothing_uncounted() {
    let claims = Claims::run(PROGRAMS, THREADS_OF_A_PROGRAM);
    figure(&format!("signals: segments made and first lanes claimed, {claims:?}"));
}

/// A handler that jumps out of a begin or end may jump out of a reading of the clock. After each
/// jump, the thread's next measurement has its CPU time, without the time that it sleeps.
#[test]
fn after_a_jump_a_thread_still_has_its_cpu_time() {
    if cfg!(not(target_arch = "x86_64")) {
        return skipped("jumps at single instructions", "they are for x86-64");
    }
    for link in [Link::Static, Link::Shared] {
        let name = format!("jumped-{link:?}");
        let program = c::compile(Compiler::C, &name, &["jumped.c"], link, [""; 0]);
        for clock in ["rseq", "cputime"] {
            let place = Place::new();
            let mut command = place.command(program.to_str().expect("plain text"));
            command.arg(size(61, 3).to_string()).env("PFP_CLOCK", clock);
            let mut target = Target::start(&mut command);
            let said = target.reach("done").clone();
            let number = |key: &str| said.one::<u64>(key);
            assert!(number("stepped") > 20, "{link:?} {clock}");
            // The program sleeps 5,000 us each time.
            let (busy, asleep) = (number("busy_us"), number("asleep_us"));
            assert!(busy < 1_000 && asleep < 1_000, "{link:?} {clock}: {busy}, {asleep} us off");
            figure(&format!(
                "signals: {} jumps on {clock}, CPU time off by {busy} us at most",
                number("tried")
            ));
            target.end_well();
        }
    }
}

/// A signal handler may jump out of the end of a scope whose guard is in heap memory. Regions that
/// the thread measures after the jump are counted, and have records.
#[test]
fn after_a_jump_out_of_a_scope_on_the_heap_a_thread_still_has_records() {
    if cfg!(not(target_arch = "x86_64")) {
        return skipped("jumps at single instructions", "they are for x86-64");
    }
    for link in [Link::Static, Link::Shared] {
        let name = format!("left-on-heap-{link:?}");
        let program = c::compile(Compiler::C, &name, &["left_on_heap.c"], link, [""; 0]);
        for clock in ["rseq", "wall"] {
            let place = Place::new();
            let mut command = place.command(program.to_str().expect("plain text"));
            let mut target = Target::start(command.env("PFP_CLOCK", clock));
            let said = target.reach("done").clone();
            // An end has at least 40 instructions, and many more after a context switch.
            assert!(said.one::<u64>("jumps") > 40, "{link:?} {clock}");
            let mut watch = Watch::attach(&place, &target);
            let picture = watch.poll();
            let later = watch::named(picture, "later").count;
            assert_eq!(later, said.one::<u64>("later"), "{link:?} {clock}");
            assert_eq!(picture.losses.records_missed, 0, "{link:?} {clock}");
            target.end_well();
        }
    }
}

/// The totals of programs whose threads claim lanes under signals.
#[derive(Debug, Default)]
struct Claims {
    programs: u64,
    handlers: u64,
    /// Handlers' regions that were not measured; each of them was counted as missed.
    missed: u64,
    /// Maximum number of lanes that one program used.
    lanes: usize,
}

impl Claims {
    /// Runs this many programs with this many threads. The handlers can measure at every moment.
    fn run(programs: u64, threads: u64) -> Self {
        let mut claims = Self::default();
        while claims.programs < programs {
            let place = Place::new();
            let mut target = place.start(STRICT, &["claims", &threads.to_string()]);
            let said = target.reach("done").clone();
            let mut watch = Watch::attach(&place, &target);
            let picture = watch.poll();
            claims.programs += 1;
            claims.handlers += by_depth(&said).iter().sum::<u64>();
            claims.missed += check(picture, &said, &["outer", "inner", "by hand"]);
            claims.lanes = claims.lanes.max(picture.lanes.len());
            target.end_well();
        }
        assert_eq!(claims.missed, 0, "{claims:?}");
        claims
    }
}
