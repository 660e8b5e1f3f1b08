//! Timers and samples, compared with independent clocks.

use std::ffi::{CStr, CString};
use std::fs;
use std::os::unix::process::CommandExt;
use std::time::Duration;

use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::faults::{own_files, own_shm};
use pfp_tests::os::{burn, thread_cpu, wall};
use pfp_tests::own::figures;
use pfp_tests::place::Place;
use pfp_tests::stand_in::StandIn;
use pfp_tests::target::{Said, Target};
use pfp_tests::{figure, size, skipped, stolen};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Tolerance in milliseconds. The kernel's wall clocks differ in rate by what NTP corrects, at most
/// 500 ppm, and reading them takes time.
const NEAR_MS: f64 = 0.5;

#[test]
fn a_timer_returns_both_times_at_each_query() {
    let mut timer = pfp_timing::CpuTimer::new();
    assert_eq!((timer.elapsed_ms(), timer.on_cpu_ms()), (0.0, None));
    timer.stop();
    assert_eq!(timer.elapsed_ms(), 0.0, "a stop without a start is none");

    let (outer, outer_cpu) = (wall(), thread_cpu());
    timer.start();
    let (inner, inner_cpu) = (wall(), thread_cpu());
    let mut before = 0.0;
    for _ in 0..5 {
        burn(Duration::from_millis(2));
        std::thread::sleep(Duration::from_millis(4));
        let now = timer.elapsed_ms();
        // Reading the timer does not stop it.
        assert!(timer.is_running() && now >= before + 6.0, "{now} after {before}");
        assert!(timer.on_cpu_ms().expect("it is this thread's") <= now + NEAR_MS);
        before = now;
    }
    let (inner, inner_cpu) = (wall() - inner, thread_cpu() - inner_cpu);
    timer.stop();
    let (outer, outer_cpu) = (wall() - outer, thread_cpu() - outer_cpu);
    std::thread::sleep(Duration::from_millis(5));
    timer.stop();

    let (elapsed, on_cpu) = (timer.elapsed_ms(), timer.on_cpu_ms().expect("as above"));
    // The timer's value is between the readings just inside and just outside of it.
    assert!(elapsed >= ms(inner) * 0.9995 && elapsed <= ms(outer) * 1.0005, "{elapsed} {inner:?}");
    assert!(on_cpu >= ms(inner_cpu) && on_cpu <= ms(outer_cpu), "{on_cpu} {inner_cpu:?}");
    assert!(elapsed > on_cpu + 15.0, "asleep is not on the CPU: {elapsed} and {on_cpu}");
    assert_eq!((timer.elapsed_ms(), timer.on_cpu_ms()), (elapsed, Some(on_cpu)));

    timer.start();
    assert!(timer.elapsed_ms() < elapsed, "a start begins anew");
}

#[test]
fn a_timer_stopped_on_another_thread_has_no_cpu_time() {
    let mut timer = pfp_timing::CpuTimer::new();
    timer.start();
    let (elapsed, on_cpu) = std::thread::spawn(move || {
        timer.stop();
        (timer.elapsed_ms(), timer.on_cpu_ms())
    })
    .join()
    .expect("it does not panic");
    assert!(elapsed > 0.0);
    assert_eq!(on_cpu, None, "two threads' clocks have no difference");
}

fn assert_as_the_clocks_say(said: &Said) {
    let two = |key: &str| {
        let values = said.all::<f64>(key);
        (values[0][0], values[0][1])
    };
    assert_eq!(two("fresh"), (0.0, -1.0));
    let ((first, second), timer) = (two("laps"), two("timer"));
    assert!(first >= 10.0 && second >= first + 20.0 && timer.0 >= second, "{first} {second}");
    assert_eq!(two("again"), timer);
    let oracle = two("oracle");
    assert!((oracle.0 - timer.0).abs() < NEAR_MS.max(oracle.0 - second), "{timer:?} {oracle:?}");
    assert!(timer.1 >= 10.0 && timer.1 <= oracle.1, "{timer:?} {oracle:?}");
    assert_eq!(two("null"), (-3.0, -3.0));
}

#[test]
fn the_timer_in_c_and_cxx_agrees_with_the_clocks() {
    for compiler in Compiler::all() {
        for (name, link, flag) in [
            ("timer", Link::Static, "-UPFP_DISABLE"),
            ("timer-off", Link::Without, "-DPFP_DISABLE"),
        ] {
            let program = c::compile(compiler, name, &["timer.c"], link, [flag, "-lm"]);
            let place = Place::new();
            let said = place.start(&program, &[]).end_well();
            if link == Link::Without {
                assert_eq!(said.all::<f64>("timer"), [[0.0, -1.0]], "{compiler:?}");
            } else {
                assert_as_the_clocks_say(&said);
            }
            assert_eq!(place.entries().len(), 0, "a timer needs no segment");
        }
    }
}

#[test]
fn samples_are_a_point_and_their_mean_is_the_cpu_time() {
    let samples = size(30, 300) as u32;
    let (mut runs, mut spent) = (0, Vec::new());
    let stolen = stolen::so_far();
    let found = pfp_timing::sample("a burn", 3, samples, || {
        runs += 1;
        let before = thread_cpu();
        burn(Duration::from_micros(500));
        std::thread::sleep(Duration::from_micros(100));
        spent.push((thread_cpu() - before).as_secs_f64());
    });
    let stolen = stolen::since(stolen);
    assert_eq!((runs, found.samples, found.warmups), (samples + 3, samples, 3));
    let spent = &spent[3..];
    let mean = spent.iter().sum::<f64>() / spent.len() as f64;
    let off = found.mean / mean - 1.0;
    // Each switch has an uncertainty on both clocks, and each run sleeps once.
    let unknown = stolen + stolen::SWITCH * samples;
    let room = 0.01 + unknown.as_secs_f64() / spent.iter().sum::<f64>();
    figure(&format!("samples: mean {off:+.5} from the CPU time, {stolen:?} stolen; {found}"));
    assert!(off.abs() < room, "{} instead of {mean}, {stolen:?} stolen", found.mean);
    assert!(found.low < found.mean && found.mean < found.high);
    assert!(found.least >= 500e-6 * 0.99 - stolen.as_secs_f64());
    assert!(found.median <= found.greatest);
    assert!(found.elapsed > f64::from(samples) * 600e-6, "{}", found.elapsed);
    // Warm-up runs are not measured by the point.
    let point = figures("a burn");
    assert_eq!(point.count, u64::from(samples));
    let recorded = point.exclusive as f64 / pfp::ticks_per_second() / f64::from(samples);
    assert!((recorded / found.mean - 1.0).abs() < room, "{recorded} instead of {}", found.mean);
    assert!(found.to_string().starts_with("a burn: "), "{found}");
}

/// Files with the names of the kernel's clock source, and of those that it could use.
const CLOCK_SOURCES: [(&CStr, &str); 2] = [
    (c"/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n"),
    (c"/sys/devices/system/clocksource/clocksource0/available_clocksource", "hpet acpi_pm\n"),
];

/// Stamps and their rate match on any clock, with or without a segment. If the kernel does not use
/// the counter, stamps come from the system's clock; on a read-only `/dev/shm` there is no segment
/// that could hold a rate.
#[test]
fn a_stamp_matches_its_rate_on_every_clock() {
    let place = Place::new();
    let files = CLOCK_SOURCES.map(|(name, text)| {
        let own = place.path(&name.to_str().expect("it is plain text").replace('/', "-"));
        fs::write(&own, text).expect("there is room");
        (CString::new(own.to_str().expect("it is plain text")).expect("no zero in it"), name)
    });
    for (given_up, read_only) in [(false, false), (false, true), (true, false), (true, true)] {
        let what = format!("the counter given up {given_up}, /dev/shm read-only {read_only}");
        let files = files.clone();
        let stand_in = StandIn::new("timing");
        let mut command = place.command(TARGET);
        command.arg("timing").arg(stand_in.path());
        let change = move || {
            if read_only {
                own_shm(libc::MS_RDONLY, c"size=1m")?;
            }
            let files = files.iter().map(|(own, name)| (own.as_c_str(), *name));
            if given_up { own_files(files) } else { Ok(()) }
        };
        // SAFETY: the closure makes only system calls between fork and exec.
        unsafe { command.pre_exec(change) };
        if let Err(error) = command.output() {
            skipped(&what, &error.to_string());
            continue;
        }
        let said = Target::start(&mut command).end_well();
        assert_eq!(said.one::<bool>("segment"), !read_only, "{what}");
        let of_device: &[_] = if read_only { &[] } else { &["device", "recorded"] };
        let all = ["ticks", "stamps", "count", "wait", "sample", "launch"];
        for &name in all.iter().chain(of_device) {
            let times = said.all::<f64>(name);
            assert_eq!(times.len(), if name == "ticks" { 2 } else { 1 }, "{what}: {name}");
            for times in times {
                let [found, inside, around] = times[..] else { panic!("{what}: {times:?}") };
                figure(&format!("timing: {what}: {name} {found:.6} in {inside:.6}..{around:.6}"));
                assert!(found > inside * 0.99 && found < around * 1.01, "{what}: {name} {times:?}");
            }
        }
    }
}
