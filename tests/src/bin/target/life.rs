//! A small program that measures and ends, and one that changes its own points.

use std::hint;
use std::sync::Barrier;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};
use std::thread;
use std::time::{Duration, Instant};

use pfp_tests::random::Random;
use pfp_tests::script::{in_turn, pause, say};

/// Number of calls of each kind.
pub(crate) const CALLS: u64 = 100;

#[pfp::function]
fn function_attribute() {}

#[pfp::measure("an attribute's own name")]
fn named_attribute() {}

fn function_scope() {
    pfp::function_scope!();
}

static POINT: pfp::Point = pfp::Point::new("a point");

/// Calls points of every form, and waits.
pub(crate) fn run() {
    pfp::set_program_name("the living");
    pfp::register_thread("main of it");
    pfp::Point::numbered(3).set_name("three");
    pfp::Point::numbered(3).enable();
    for _ in 0..CALLS {
        function_attribute();
        named_attribute();
        function_scope();
        {
            pfp::scope!("a scope");
        }
        {
            let _guard = POINT.measure();
        }
        pfp::Point::numbered(3).begin_once();
        pfp::Point::numbered(3).end();
    }
    say("scope_line", &[&(line!() - 8)]);
    if let Some(stats) = POINT.stats() {
        say("stats", &[&stats.count, &stats.exclusive, &stats.inclusive, &stats.min, &stats.max]);
        say("spread", &[&stats.mean_ticks(), &stats.variance()]);
    }
    pause("done");
}

/// Threads that finish frames; each frame has measured work and a wait. Prints bounds of the
/// frames' total time by another clock: from the first frame to the last, and around all of them.
pub(crate) fn frames() {
    const FRAMES: u64 = 50;
    fn draw() {
        pfp::scope!("draw");
        for step in 0..20_000u64 {
            hint::black_box(step);
        }
    }
    pfp::init().ok();
    // Both threads stay alive until the end, so that they have different lanes.
    let both = Barrier::new(2);
    let animate = || {
        let before = Instant::now();
        let begun = in_turn(|| {
            pfp::register_thread!();
            pfp::finish_frame!();
            let begun = Instant::now();
            draw();
            begun
        });
        let mut ended = begun;
        for frame in 1..=FRAMES {
            pfp::scope!("round");
            draw();
            thread::sleep(Duration::from_millis(1));
            if frame == FRAMES {
                ended = Instant::now();
            }
            // The frame ends inside a region, which stays open until the program ends it.
            pfp::finish_frame!();
        }
        let after = Instant::now();
        say("frames", &[&FRAMES, &(ended - begun).as_secs_f64(), &(after - before).as_secs_f64()]);
        both.wait();
    };
    thread::scope(|scope| {
        for name in ["a thread with a long name", "another thread that animates"] {
            let named = thread::Builder::new().name(name.into());
            named.spawn_scoped(scope, animate).expect("a thread can be made");
        }
    });
    say("ticks_per_second", &[&pfp::ticks_per_second()]);
    pause("done");
}

/// Measures one point in several threads, resets it, measures again, and prints its figures as
/// times.
pub(crate) fn spread() {
    static POINT: pfp::Point = pfp::Point::new("spread");
    const THREADS: u64 = 3;
    let round = || {
        thread::scope(|scope| {
            for seed in 1..=THREADS {
                scope.spawn(move || {
                    let mut random = Random::new(seed);
                    in_turn(|| drop(POINT.measure()));
                    for _ in 0..500 {
                        let _guard = POINT.measure();
                        let most = 1 << random.below(14);
                        for _ in 0..random.below(most) {
                            hint::black_box(seed);
                        }
                    }
                });
            }
        });
    };
    round();
    POINT.reset();
    round();
    let stats = POINT.stats().expect("it was measured");
    let times = [
        stats.exclusive(),
        stats.inclusive(),
        stats.off_cpu(),
        stats.min(),
        stats.max(),
        stats.last(),
        stats.mean(),
        stats.std_dev(),
    ];
    let quantiles = [0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0].map(|q| stats.quantile(q));
    say("ticks_per_second", &[&pfp::ticks_per_second()]);
    times.iter().for_each(|time| say("time", &[&time.as_secs_f64()]));
    quantiles.iter().flatten().for_each(|time| say("quantile", &[&time.as_secs_f64()]));
    let outside = [-0.1, 1.1, f64::NAN].map(|q| stats.quantile(q));
    say("outside", &[&outside.iter().flatten().count()]);
    say("averages", &[&stats.average().is_some()]);
    pause("done");
}

/// Reads the figures of threads that have just ended, and again a moment later; prints how often
/// they differed.
pub(crate) fn just_ended() {
    static POINT: pfp::Point = pfp::Point::new("just ended");
    const REGIONS: u64 = 100;
    let quantiles = || {
        let stats = POINT.stats().expect("it was measured");
        let of = |percent| stats.quantile(f64::from(percent) / 100.0);
        (stats.count, (0..=100).map(of).collect::<Vec<_>>())
    };
    let (mut miscounted, mut differ) = (0, 0);
    for round in 0..2000 {
        POINT.reset();
        thread::scope(|scope| {
            for thread in 0..2 {
                scope.spawn(move || {
                    let mut random = Random::new(1 + 2 * round + thread);
                    for _ in 0..REGIONS {
                        let _guard = POINT.measure();
                        let most = 1 << random.below(13);
                        (0..random.below(most)).for_each(|at| {
                            hint::black_box(at);
                        });
                    }
                });
            }
        });
        let at_once = quantiles();
        // A thread's own clean-up may continue after the join returns.
        thread::sleep(Duration::from_micros(300));
        let later = quantiles();
        miscounted += u32::from([at_once.0, later.0] != [2 * REGIONS; 2]);
        differ += u32::from(at_once.1 != later.1);
    }
    say("miscounted", &[&miscounted]);
    say("differ", &[&differ]);
    pause("done");
}

/// Uses points of all kinds and lists them.
pub(crate) fn listed() {
    static LITERAL: pfp::Point = pfp::Point::new("a literal");
    static ELSEWHERE: pfp::Point = pfp::Point::at("elsewhere", "grammar.y", 12);
    static OFF: pfp::Point = pfp::Point::new("off").starts_off();
    static SENT: pfp::MeteredPoint = pfp::MeteredPoint::new("sent", &["bytes"]);
    static NEVER: pfp::Point = pfp::Point::new("never met");

    fn in_a_function() {
        pfp::function_scope!();
    }

    #[pfp::function]
    fn measured_by_an_attribute() {}

    struct Block;

    #[pfp::all_functions]
    impl Block {
        fn one_of_all() {
            Self::another_of_all();
            Self::skipped();
            Self::named();
            Self::in_the_compiler();
        }

        fn another_of_all() {}

        #[pfp::skip]
        fn skipped() {}

        #[pfp::function("named itself")]
        fn named() {}

        const fn in_the_compiler() {}
    }

    say("before", &[&pfp::points().count()]);
    for point in [&LITERAL, &ELSEWHERE, &OFF] {
        drop(point.measure());
    }
    OFF.disable();
    for bytes in [1, 2, 3] {
        drop(SENT.measure([bytes]));
    }
    in_a_function();
    measured_by_an_attribute();
    Block::one_of_all();
    pfp::Point::numbered(5).enable();
    pfp::Point::numbered(5).set_name("five");
    pfp::Point::numbered(5).begin_once();
    pfp::Point::numbered(5).end();
    for point in pfp::points() {
        let count = point.stats().map_or(0, |stats| stats.count);
        let name = point.name().replace(' ', "_");
        let file = if point.file().is_empty() { "-" } else { point.file() };
        say("point", &[&name, &file, &point.line(), &point.is_enabled(), &count]);
    }
    say("never", &[&NEVER.name(), &pfp::points().any(|point| point.name() == "never met")]);
    pause("done");
}

/// Calls a point `calls` times, lives on for some milliseconds, and then exits in an orderly way.
pub(crate) fn brief(calls: u64, ms: u64) {
    for _ in 0..calls {
        pfp::scope!("brief");
    }
    thread::sleep(Duration::from_millis(ms));
}

/// Checks the rules of the numeric interface, step by step.
pub(crate) fn steered() {
    pfp::init().ok();
    // A numbered point is off until it is enabled.
    pfp::Point::numbered(1).begin_once();
    pfp::Point::numbered(1).end();
    say("off", &[&pfp::Point::numbered(1).stats().is_none()]);

    // An end comes first, because a loop may start with an end.
    pfp::Point::numbered(2).enable();
    for _ in 0..10 {
        pfp::Point::numbered(2).end();
        pfp::Point::numbered(2).begin_once();
    }
    pfp::Point::numbered(2).end();
    say("end_first", &[&count(2)]);

    // A latched measurement of three parts counts once.
    pfp::Point::numbered(3).enable();
    let mut burnt = Duration::ZERO;
    for part in 0..3 {
        pfp::Point::numbered(3).begin_once();
        burnt += pfp_tests::os::burn(Duration::from_millis(2));
        let point = pfp::Point::numbered(3);
        if part < 2 { point.end_latched() } else { point.end() }
    }
    let latched = pfp::Point::numbered(3).stats().unwrap_or_default();
    let ms = latched.exclusive as f64 / pfp::ticks_per_second() * 1e3;
    let [burnt, stolen] = [burnt, pfp_tests::stolen::so_far()].map(|it| it.as_secs_f64() * 1e3);
    say("latched", &[&latched.count, &ms, &burnt, &stolen]);

    // A begin follows a begin.
    pfp::Point::numbered(4).enable();
    pfp::Point::numbered(4).begin_once();
    pfp::Point::numbered(4).begin_once();
    pfp::Point::numbered(4).end();
    say("invalid", &[&count(4)]);

    // A reset comes while the region is open.
    pfp::Point::numbered(5).enable();
    for _ in 0..20 {
        pfp::Point::numbered(5).begin_once();
        pfp::Point::numbered(5).end();
    }
    pfp::Point::numbered(5).begin_once();
    pfp::Point::numbered(5).reset();
    pfp::Point::numbered(5).end();
    say("at_reset", &[&count(5)]);
    pfp::Point::numbered(5).begin_once();
    pfp::Point::numbered(5).end();
    say("after_reset", &[&count(5)]);

    // Numbers beyond the range are ignored.
    for id in [pfp::NUMERIC, pfp::NUMERIC + 1, u32::MAX] {
        pfp::Point::numbered(id).enable();
        pfp::Point::numbered(id).begin_once();
        pfp::Point::numbered(id).end_latched();
        pfp::Point::numbered(id).end();
        pfp::Point::numbered(id).reset();
        pfp::Point::numbered(id).disable();
        pfp::Point::numbered(id).set_name("nowhere");
        let point = pfp::Point::numbered(id);
        point.enable();
        point.set_alpha(0.5).expect("it is a weight, of no point");
        drop(point.measure());
        let is_there = point.is_enabled() || point.alpha().is_some() || point.name() != "";
        let is_listed = pfp::points().any(|listed| std::ptr::eq(listed, point));
        say("nowhere", &[&point.stats().is_none(), &!(is_there || is_listed)]);
    }

    // Checks weights of averages.
    let tau = Duration::from_millis(500);
    let accepted = pfp::Point::numbered(6).set_average(Duration::from_millis(100), tau).is_ok();
    say("accepted", &[&accepted]);
    for bad in [0.0, f64::NAN, 1.5, -0.1, f64::INFINITY] {
        say("refused", &[&pfp::Point::numbered(6).set_alpha(bad).is_err()]);
    }
    say("refused", &[&pfp::Point::numbered(6).set_average(Duration::ZERO, tau).is_err()]);
    say("refused", &[&pfp::Point::numbered(6).set_average(tau, Duration::ZERO).is_err()]);
    say("refused", &[&pfp::Point::numbered(6).set_average(tau * 2, tau).is_err()]);

    if pause("steered") {
        // The viewer has enabled this point again.
        pfp::Point::numbered(4).begin_once();
        pfp::Point::numbered(4).end();
        say("valid_again", &[&count(4)]);
        pause("done");
    }
}

fn count(id: u32) -> u64 {
    pfp::Point::numbered(id).stats().map_or(0, |stats| stats.count)
}

/// Uses a hundred points in each of `threads` threads at once.
pub(crate) fn many_points(threads: u64) {
    static POINTS: [pfp::Point; 100] = [const { pfp::Point::new("one of many") }; 100];
    pfp::init().ok();
    // All threads stay alive until the end; otherwise a late one could reuse the lane of an early
    // one.
    let all = Barrier::new(threads as usize);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let round = || {
                    for point in &POINTS {
                        let _guard = point.measure();
                        point.begin();
                        point.end();
                    }
                };
                in_turn(round);
                (1..CALLS).for_each(|_| round());
                all.wait();
            });
        }
    });
    let measured: u64 = POINTS.iter().filter_map(|point| point.stats()).map(|s| s.count).sum();
    say("measured", &[&measured]);
    say("stats", &[&POINTS.iter().filter(|point| point.stats().is_some()).count()]);
    pause("done");
}

/// Threads reach new points at the very moment at which another thread disables everything, or
/// enables it. Prints how many of the new points ended in the wrong state: on while everything was
/// disabled, or off while everything was enabled. The thread that reaches the points sleeps while
/// it waits, so that the other thread soon gets a CPU even on a busy machine.
pub(crate) fn latecomers(rounds: u64) {
    pfp::init().ok();
    let (turn, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut wrong = 0;
    let meeting = thread::current();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Random::new(1);
            for round in 1..=2 * rounds {
                for waited in 1.. {
                    if turn.load(Acquire) == round {
                        break;
                    }
                    match waited % 10_000 {
                        0 => thread::yield_now(),
                        _ => hint::spin_loop(),
                    }
                }
                // Over all rounds, random delays hit every moment of the other thread's work.
                (0..random.below(4_000)).for_each(|_| hint::spin_loop());
                pfp::set_enabled(round % 2 == 0);
                done.store(round, Release);
                meeting.unpark();
            }
        });
        for round in 1..=2 * rounds {
            let point: &'static pfp::Point = Box::leak(Box::new(pfp::Point::at("late", "", 0)));
            turn.store(round, Release);
            drop(point.measure());
            while done.load(Acquire) != round {
                thread::park();
            }
            wrong += u64::from(point.is_enabled() != pfp::is_enabled());
        }
    });
    say("wrong", &[&wrong]);
    pause("done");
}

/// Two threads disable and enable everything at the same time. Then everything is enabled; prints
/// how many points are off.
pub(crate) fn switchers(rounds: u64) {
    static POINTS: [pfp::Point; 8] = [const { pfp::Point::new("switched") }; 8];
    POINTS.iter().for_each(|point| drop(point.measure()));
    thread::scope(|scope| {
        for first in [false, true] {
            scope
                .spawn(move || (0..rounds).for_each(|at| pfp::set_enabled((at % 2 == 0) == first)));
        }
    });
    pfp::set_enabled(true);
    say("off", &[&POINTS.iter().filter(|point| !point.is_enabled()).count()]);
    pause("done");
}

/// Memory runs out, many regions find none, and then memory is available again. Prints how many of
/// a thousand regions are measured by a thread that was refused memory, and how many by a later
/// one.
pub(crate) fn full_for_a_while() {
    static POINT: pfp::Point = pfp::Point::new("while it is full");
    const REGIONS: u64 = 1_000;
    // More than the number of blocks in the pool.
    const REFUSED: u64 = 50_000;
    let region = || drop(POINT.measure());
    let count = || POINT.stats().map_or(0, |stats| stats.count);
    region();
    let filler = "/dev/shm/filler";
    let mut file = std::fs::File::create(filler).expect("there is room for a name");
    while std::io::Write::write(&mut file, &[1; 4096]).is_ok_and(|written| written > 0) {}
    // A new thread needs memory for its first region; without it, no region is measured.
    let before = count();
    thread::scope(|scope| {
        scope.spawn(|| {
            (0..REFUSED).for_each(|_| region());
            say("refused", &[&(REFUSED - (count() - before))]);
            drop(file);
            std::fs::remove_file(filler).expect("it is ours");
            // After a refusal, pfp does not ask for memory again for a while.
            let start = count();
            pfp_tests::target::wait_for("measuring to go on", || {
                region();
                count() > start
            });
            let start = count();
            (0..REGIONS).for_each(|_| region());
            say("meanwhile", &[&(count() - start)]);
        });
    });
    let start = count();
    thread::scope(|scope| {
        scope.spawn(|| (0..REGIONS).for_each(|_| region()));
    });
    say("later", &[&(count() - start)]);
    pause("done");
}

/// Measures, resets a point of its own, and writes a snapshot, at the test's commands.
pub(crate) fn reset() {
    static OWN: pfp::Point = pfp::Point::new("own");
    pfp::init().ok();
    loop {
        say("measured", &[]);
        let mut line = String::new();
        if !std::io::stdin().read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            return;
        }
        match line.trim_end().split_once(' ') {
            Some(("save", path)) => pfp::snapshot_to(path).expect("it can be written"),
            _ if line.trim_end() == "reset" => OWN.reset(),
            _ => (0..50).for_each(|_| {
                let _own = OWN.measure();
                pfp::scope!("others");
                pfp::scope!("never");
                pfp_tests::os::burn(Duration::from_micros(20));
            }),
        }
    }
}

/// Measures, and then makes itself partly unreadable in `/proc`: with `user`, it changes to another
/// user; otherwise it overwrites its environment.
pub(crate) fn half_readable(how: &str) {
    pfp::init().ok();
    pfp::scope!("a scope");
    if how == "user" {
        // SAFETY: takes plain numbers, and this program runs no other thread.
        let refused = unsafe { libc::setgid(65_534) | libc::setuid(65_534) };
        assert_eq!(refused, 0, "root may become another user");
    } else {
        unsafe extern "C" {
            static environ: *const *mut u8;
        }
        // A program that sets a long title overwrites its environment like this.
        // SAFETY: the kernel put the variables there, no other thread reads them, and each write
        // stays before the NUL of its variable.
        unsafe {
            let mut variable = environ;
            while !(*variable).is_null() {
                libc::memset((*variable).cast(), i32::from(b'x'), libc::strlen((*variable).cast()));
                variable = variable.add(1);
            }
        }
    }
    pause("done");
}
