//! A program of some size, of which every function is measured: SQLite, beside what
//! callgrind counts of it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pfp_tests::c::{self, Compiler};
use pfp_tests::target::{Place, Target};
use pfp_tests::watch::{self, Watch};
use pfp_tests::{figure, skipped};

/// Functions with less of the whole are not compared.
const LARGE: f64 = 0.05;
/// By how much of the whole time and instructions may differ. On a machine that is
/// left alone it is a few hundredths; with neighbours, whose caches are the same, not
/// every function suffers alike.
const ROOM: f64 = 0.15;

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

/// Builds the program; with the hooks of libpfp, or with none that do anything.
fn build(source: &Path, with_pfp: bool) -> PathBuf {
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
    let built = folder.join(if with_pfp { "measured" } else { "counted" });
    let mut command = compile();
    command.arg(Path::new(c::SOURCES).join("sqlite.c")).arg(object).arg("-o").arg(&built);
    if with_pfp {
        let library = c::library().display();
        command.arg(format!("-L{library}")).arg("-lpfp").arg(format!("-Wl,-rpath,{library}"));
    }
    c::run(command.arg("-lm"));
    built
}

/// A function's name without what the compiler adds to those of its copies.
fn original(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// Shares of a whole.
fn shares(figures: HashMap<String, u64>) -> HashMap<String, f64> {
    let whole: u64 = figures.values().sum();
    figures.into_iter().map(|(name, figure)| (name, figure as f64 / whole as f64)).collect()
}

/// Instructions by function, those of the C library counted for who called it: it
/// has no hooks.
fn counted(program: &Path) -> HashMap<String, u64> {
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
    let mut costs = HashMap::new();
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
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let of_libraries = called_object.is_some_and(|it| it != own);
            let counts = !is_call || of_libraries && !called.starts_with("__cyg_profile");
            if object == own && counts {
                let cost: u64 = line.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or(0);
                *costs.entry(original(function).to_owned()).or_insert(0) += cost;
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

#[test]
fn exclusive_times_of_a_real_program_are_what_callgrind_counts() {
    let Some(source) = source() else {
        return skipped("SQLite", "its source is not there and could not be fetched");
    };
    if !c::is_there("valgrind") {
        return skipped("SQLite", "valgrind is not installed");
    }
    let place = Place::new();
    let mut command = place.command(build(&source, true).to_str().expect("it is plain text"));
    let mut target = Target::start(command.arg("10").env("PFP_ENABLE", "*"));
    target.reach("begun");
    target.go();
    target.reach("done");
    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    let mut ticks = HashMap::new();
    let mut calls = HashMap::new();
    for point in picture.points.iter().filter(|point| point.file == "measured") {
        let sums = watch::total(picture, point.id);
        *ticks.entry(original(&point.name).to_owned()).or_insert(0) += sums.exclusive;
        *calls.entry(original(&point.name).to_owned()).or_insert(0) += sums.count;
    }
    assert!(ticks.len() > 700, "only {} functions were called", ticks.len());
    assert_eq!(picture.losses.mismatched_ends, 0);
    assert_eq!(picture.losses.points_refused, 0);
    let all: u64 = calls.values().sum();
    let functions = ticks.len();
    target.end_well();

    let ticks = shares(ticks);
    let instructions = shares(counted(&build(&source, false)));
    let mut large: Vec<_> = instructions.iter().filter(|&(_, &share)| share >= LARGE).collect();
    large.sort_by(|a, b| b.1.total_cmp(a.1));
    assert!(!large.is_empty());
    let largest = ticks.iter().max_by(|a, b| a.1.total_cmp(b.1)).map(|(name, _)| name);
    assert_eq!(largest, Some(large[0].0), "the same function comes first");
    figure(&format!("SQLite: {functions} functions, {all} calls"));
    for &(name, &share) in &large {
        let measured = ticks.get(name).copied().unwrap_or(0.0);
        let calls = calls.get(name).copied().unwrap_or(0);
        assert!((measured - share).abs() < ROOM, "{name}: {measured} of time, {share} counted");
        figure(&format!(
            "{name}: {:.1} % of time, {:.1} % of instructions, {calls} calls",
            measured * 100.0,
            share * 100.0
        ));
    }
}
