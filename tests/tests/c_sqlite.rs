//! A program of some size, of which every function is measured: SQLite, beside what a
//! timer finds that asks again and again which function it is in.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pfp_tests::c::{self, Compiler};
use pfp_tests::target::{Place, Target};
use pfp_tests::watch::{self, Watch};
use pfp_tests::{figure, skipped};

/// Functions that are found less often, of all times, are not compared: hundreds, many
/// of a few instructions, to which what measuring adds and no calibration knows is much.
const LARGE: f64 = 0.015;
/// Instructions of a function for each call that it gets or makes, from which on it is
/// at work by itself. With fewer, the processor does its work and the measuring
/// side by side, and neither has a time of its own.
const ALONE: f64 = 300.0;
/// The factor by which the two may differ of a function that is at work by itself, each
/// as a share of what all such functions take.
const ROOM: f64 = 1.3;
/// The same of others, as shares of what all functions take that are compared: a call
/// that they make costs more than in the loop in which it was calibrated, and it may
/// be one in ten nanoseconds.
const WIDE: f64 = 2.5;
/// Runs of which the median counts.
const RUNS: usize = 3;
/// What the program does in each.
const ROUNDS: u64 = 5;
/// Times that the timer asks, or more: what is just large enough is found so often that
/// chance alone is a seventeenth of that.
const SAMPLES: u64 = 20_000;

/// The folder with SQLite's source, fetched if need be; none without a network.
fn source() -> Option<PathBuf> {
    let folder = scratch().join("source");
    let file = folder.join("libsqlite3-sys/sqlite3");
    if file.join("sqlite3.c").is_file() {
        return Some(file);
    }
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/sqlite/Cargo.toml");
    let fetched = Command::new(cargo)
        .args(["vendor", "--quiet", "--locked", "--manifest-path", manifest])
        .arg(&folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    (fetched.is_ok_and(|status| status.success()) && file.join("sqlite3.c").is_file())
        .then_some(file)
}

fn scratch() -> PathBuf {
    let folder = c::library().ancestors().nth(2).expect("it is in a folder").join("sqlite");
    std::fs::create_dir_all(&folder).expect("there is room");
    folder
}

/// What a program's hooks lead to.
#[derive(Clone, Copy)]
enum Hooks {
    /// libpfp.
    Measured,
    /// What the timer asks.
    Sampled,
    /// Nothing.
    Counted,
}

/// Builds the program.
fn build(source: &Path, hooks: Hooks) -> PathBuf {
    let folder = scratch();
    let object = folder.join("sqlite3.o");
    let compile = || {
        let mut command = Command::new(Compiler::C.name);
        // Callgrind knows nothing of functions that were inlined, and the hooks do.
        command.args(["-O1", "-fno-inline", "-w", "-finstrument-functions"]);
        command.args(["-DSQLITE_THREADSAFE=0", "-DSQLITE_OMIT_LOAD_EXTENSION", "-D_GNU_SOURCE"]);
        command.arg("-I").arg(source);
        command
    };
    if !object.is_file() {
        // Under another name first: the build may be interrupted.
        let unfinished = folder.join("unfinished.o");
        c::run(compile().arg("-c").arg(source.join("sqlite3.c")).arg("-o").arg(&unfinished));
        std::fs::rename(unfinished, &object).expect("it was built");
    }
    let mut command = compile();
    command.arg(Path::new(c::SOURCES).join("sqlite.c")).arg(object);
    let built = match hooks {
        Hooks::Measured => {
            let library = c::library().display();
            command.arg(format!("-L{library}")).arg("-lpfp");
            command.arg(format!("-Wl,-rpath,{library}"));
            folder.join("measured")
        }
        Hooks::Sampled => {
            // So that functions are where the program's file says.
            command.arg("-no-pie").arg(Path::new(c::SOURCES).join("sampler.c"));
            folder.join("sampled")
        }
        Hooks::Counted => folder.join("counted"),
    };
    c::run(command.arg("-o").arg(&built).arg("-lm"));
    built
}

/// A function's name without what compilers add to those of its copies, and callgrind
/// to those of its recursions.
fn original(name: &str) -> &str {
    name.split(['.', '\'']).next().unwrap_or(name)
}

/// What callgrind knows of a function.
#[derive(Clone, Copy, Default)]
struct Counted {
    instructions: u64,
    /// Calls of functions that have hooks.
    made: u64,
}

/// Instructions by function, those of the C library counted for who called it: it
/// has no hooks.
fn counted(program: &Path) -> HashMap<String, Counted> {
    let output = scratch().join("callgrind.out");
    c::run(
        Command::new("valgrind")
            .args(["--tool=callgrind", "--error-exitcode=9", "--quiet"])
            .arg(format!("--callgrind-out-file={}", output.display()))
            .arg(program)
            .env("LD_BIND_NOW", "1")
            .stdin(Stdio::null()),
    );
    let text = std::fs::read_to_string(output).expect("callgrind has written it");
    let mut names: HashMap<(bool, &str), &str> = HashMap::new();
    // `(number) name` at first, then `(number)`.
    let mut resolve = |is_object: bool, text: &'static str| -> &'static str {
        let (number, name) = text.split_once(' ').unwrap_or((text, ""));
        if !name.is_empty() {
            names.insert((is_object, number), name);
        }
        names[&(is_object, number)]
    };
    let mut costs: HashMap<String, Counted> = HashMap::new();
    let (mut object, mut function) = ("", "");
    let (mut called_object, mut called) = (None, "");
    let mut is_call = false;
    let own = program.to_str().expect("it is plain text");
    for line in Box::leak(text.into_boxed_str()).lines() {
        if let Some(name) = line.strip_prefix("ob=") {
            object = resolve(true, name);
        } else if let Some(name) = line.strip_prefix("fn=") {
            function = resolve(false, name);
        } else if let Some(name) = line.strip_prefix("cob=") {
            called_object = Some(resolve(true, name));
        } else if let Some(name) = line.strip_prefix("cfn=") {
            called = resolve(false, name);
        } else if let Some(calls) = line.strip_prefix("calls=") {
            is_call = true;
            if object == own && called_object.is_none_or(|it| it == own) {
                let calls = calls.split(' ').next().and_then(|it| it.parse().ok()).unwrap_or(0);
                costs.entry(original(function).to_owned()).or_default().made += calls;
            }
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let of_libraries = called_object.is_some_and(|it| it != own);
            let counts = !is_call || of_libraries && !called.starts_with("__cyg_profile");
            if object == own && counts {
                let cost: u64 = line.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or(0);
                costs.entry(original(function).to_owned()).or_default().instructions += cost;
            }
            if is_call {
                (is_call, called_object) = (false, None);
            }
        }
    }
    // What has no hooks in the program.
    for name in ["main", "row", "_start", "(below main)"] {
        costs.remove(name);
    }
    costs
}

/// How often the program was found in each function.
fn sampled(program: &Path) -> HashMap<String, u64> {
    let symbols = c::run(Command::new("nm").arg(program));
    let functions: HashMap<u64, &str> = symbols
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
            let is_function = kind.eq_ignore_ascii_case("t");
            is_function.then_some((u64::from_str_radix(address, 16).ok()?, name))
        })
        .collect();
    let mut found: HashMap<String, u64> = HashMap::new();
    // As often as it takes: on a machine that has much else to do the timer is late.
    while found.values().sum::<u64>() < SAMPLES {
        let mut command = Command::new(program);
        let said = c::run(command.arg(ROUNDS.to_string()).stdin(Stdio::null()));
        for line in said.lines().filter_map(|line| line.strip_prefix("found 0x")) {
            let (address, times) = line.split_once(' ').expect("an address and a number");
            let address = u64::from_str_radix(address, 16).expect("an address");
            let times: u64 = times.parse().expect("a number");
            *found.entry(original(functions[&address]).to_owned()).or_default() += times;
        }
    }
    found
}

/// What a function was measured to take.
#[derive(Clone, Copy, Default)]
struct Measured {
    calls: u64,
    ticks: u64,
}

/// Runs the program with all functions on.
fn measured(program: &Path) -> HashMap<String, Measured> {
    let place = Place::new();
    let mut command = place.command(program.to_str().expect("it is plain text"));
    let mut target = Target::start(command.arg(ROUNDS.to_string()).env("PFP_ENABLE", "*"));
    target.reach("begun");
    target.go();
    target.reach("done");
    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    let mut functions: HashMap<String, Measured> = HashMap::new();
    for point in picture.points.iter().filter(|point| point.file == "measured") {
        let sums = watch::total(picture, point.id);
        let function = functions.entry(original(&point.name).to_owned()).or_default();
        function.calls += sums.count;
        function.ticks += sums.exclusive;
    }
    assert_eq!(picture.losses.mismatched_ends, 0);
    assert_eq!(picture.losses.points_refused, 0);
    target.end_well();
    functions
}

#[test]
fn exclusive_times_of_a_real_program_are_what_a_sampler_finds() {
    let Some(source) = source() else {
        return skipped("SQLite", "its source is not there and could not be fetched");
    };
    if pfp_tests::lacks("SQLite", "valgrind") {
        return;
    }
    let program = build(&source, Hooks::Measured);
    let runs: Vec<_> = (0..RUNS).map(|_| measured(&program)).collect();
    let functions = runs[0].len();
    assert!(functions > 700, "only {functions} functions were called");
    let calls: u64 = runs[0].values().map(|function| function.calls).sum();
    figure(&format!("SQLite: {functions} functions, {calls} calls"));

    let counted = counted(&build(&source, Hooks::Counted));
    let sampled = sampled(&build(&source, Hooks::Sampled));
    let samples: u64 = sampled.values().sum();
    figure(&format!("SQLite: {samples} samples"));
    let mut large: Vec<_> = sampled
        .iter()
        .map(|(name, &found)| (name, found as f64))
        .filter(|&(_, found)| found >= LARGE * samples as f64)
        .collect();
    large.sort_by(|a, b| b.1.total_cmp(&a.1));
    let of =
        |run: &HashMap<String, Measured>, name: &str| run.get(name).copied().unwrap_or_default();
    let is_alone = |name: &str| {
        let Counted { instructions, made } = counted[name];
        let got = of(&runs[0], name).calls as f64 / ROUNDS as f64;
        instructions as f64 / (got + made as f64).max(1.0) >= ALONE
    };
    let alone: Vec<_> = large.iter().copied().filter(|(name, _)| is_alone(name)).collect();
    for &(name, found) in &large {
        let (kind, room, among) = if is_alone(name) {
            ("by itself", ROOM, &alone)
        } else {
            ("among calls", WIDE, &large)
        };
        let share = found / among.iter().map(|(_, found)| found).sum::<f64>();
        let mut shares: Vec<f64> = runs
            .iter()
            .map(|run| {
                let ticks = |name: &str| of(run, name).ticks as f64;
                ticks(name) / among.iter().map(|(name, _)| ticks(name)).sum::<f64>()
            })
            .collect();
        shares.sort_by(f64::total_cmp);
        let measured = shares[RUNS / 2];
        figure(&format!(
            "{name}, {kind}: {:.1} % measured, {:.1} % sampled, {} calls",
            measured * 100.0,
            share * 100.0,
            of(&runs[0], name).calls,
        ));
        let factor = measured / share;
        assert!(
            factor < room && factor > 1.0 / room,
            "{name}: {measured} measured, {share} sampled"
        );
    }
    let alone = alone.len();
    assert!(alone >= 2, "only {alone} functions are at work by themselves");
}
