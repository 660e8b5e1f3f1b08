//! Tests of NVTX: Python's package, and C with the stock header.

use std::path::PathBuf;

use pfp_read::snapshot::Loss;
use pfp_read::snapshot::Point;
use pfp_read::source;
use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::Place;
use pfp_tests::{figure, size, together, tools};

use crate::{alone, file, run, text};

/// Compiles a C program that includes the header of the package.
pub(crate) fn compiled(name: &str, link: Link) -> Option<PathBuf> {
    let python = tools::annotated("a C program with NVTX's header")?;
    let packages = python.parent()?.parent()?.join("lib");
    let version = std::fs::read_dir(packages).ok()?.flatten().next()?.path();
    let include = version.join("site-packages/nvidia/nvtx/include");
    // The header itself does not have to pass our warnings.
    let flags = [format!("-isystem{}", include.display()), "-Wno-error".into()];
    let source = file(&format!("{name}.c"));
    let flags = flags.into_iter().chain(["-ldl".into(), "-pthread".into(), "-std=gnu11".into()]);
    Some(c::compile(Compiler::C, &format!("nvtx_{name}"), &[text(&source)], link, flags))
}

#[test]
fn annotations_of_a_script_are_counted_exactly() {
    const ROUNDS: u64 = 40;
    let Some(python) = tools::annotated("a script with NVTX") else { return };
    let script = file("ranges.py");
    let arguments = [text(&script), &ROUNDS.to_string()];
    let ran = run(&[], &python, &arguments);
    assert_eq!(ran.printed, alone(&python, &arguments));
    for (domain, name, each) in [
        ("nvtx:app", "outer", 1),
        ("nvtx:app/io", "inner", 1),
        ("nvtx:app", "mark", 1),
        ("nvtx:one", "crossed", 1),
        ("nvtx:other", "crossed", 1),
        ("nvtx", "recursive", 5),
        ("nvtx", "span", 1),
    ] {
        assert_eq!(ran.count(domain, name), each * ROUNDS, "{name} in {domain}");
    }
    // A range belongs to its thread, but a span to no thread.
    let point = |name: &str| ran.snapshot.points.iter().find(|it| it.name == name).unwrap();
    assert!(point("span").wall && !point("outer").wall);
    // A payload is an amount.
    let inner = point("inner");
    assert_eq!(inner.amounts, ["payload"]);
    assert_eq!(ran.amount(inner), 7 * ROUNDS);
    // pfp keeps names up to a limit. Ranges with further names are counted, too.
    let many = ran.snapshot.points.iter().filter(|point| point.file == "nvtx:many");
    let made_up = many.filter(|point| point.name.starts_with("made up")).count() as u64;
    assert!((3000..5000).contains(&made_up), "{made_up}");
    assert_eq!(made_up + ran.count("nvtx:many", "(other names)"), 6000);
    ran.lost_nothing();
}

#[test]
fn wide_strings_and_thread_names_are_accepted() {
    const ROUNDS: u64 = 30;
    let Some(program) = compiled("names", Link::Without) else { return };
    let ran = run(&["--inject", "nvtx"], &program, &[&ROUNDS.to_string()]);
    const WIDE: &str = "nvtx:wide/\u{e4}";
    for (domain, name, count) in [
        ("nvtx", "pushed \u{df}", ROUNDS),
        ("nvtx", "marked", ROUNDS),
        ("nvtx", "started", ROUNDS),
        ("nvtx", "of a named thread", 1),
        ("nvtx", "of another thread", 2),
        (&format!("{WIDE}/part"), "unicode", ROUNDS),
    ] {
        assert_eq!(ran.count(domain, name), count, "{name} in {domain}");
        assert_eq!(ran.point(domain, name).wall, name == "started");
    }
    // Three points have this name: one for ranges with a payload that cannot be an amount, one for
    // ranges with a payload of 3, and one for spans whose payloads differ.
    let all = ran.snapshot.points.iter().filter(|point| point.name == "registered \u{20ac}");
    assert!(all.clone().all(|point| point.file == WIDE));
    let count = |it: &Point| ran.all_of(it).iter().map(|stats| stats.count).sum::<u64>();
    let mut all: Vec<_> = all.map(|it| (it.wall, ran.amount(it), count(it))).collect();
    all.sort_unstable();
    let rounds = (0..ROUNDS).sum();
    assert_eq!(all, [(false, 0, ROUNDS), (false, 3 * ROUNDS, ROUNDS), (true, rounds, ROUNDS)]);
    let named = |name: &str| ran.snapshot.lanes.iter().any(|lane| lane.name == name);
    assert!(named("the first") && named("wide thread") && !named("somebody else"));
    assert!(named("named before it measures") && named("named later"));
    ran.lost_nothing();
}

/// A program that runs out of memory continues; calls that cannot be measured are counted as lost.
#[test]
fn a_program_that_runs_out_of_memory_continues() {
    const ROUNDS: u64 = 1000;
    let Some(program) = compiled("limited", Link::Without) else { return };
    let ran = run(&["--inject", "nvtx"], &program, &[]);
    assert_eq!(ran.printed, "well\n");
    // The main thread had all memory for `known` before memory ran out. The other thread could not
    // measure without memory, but measures again in its second round, when there is memory.
    assert_eq!(ran.count("nvtx", "known"), 1 + 2 * ROUNDS);
    let another = ran.count("nvtx", "another");
    assert!((ROUNDS..=2 * ROUNDS).contains(&another), "{another}");
    let all = ran.snapshot.points.iter().filter(|point| point.file == "nvtx");
    let counted: u64 = all.map(|point| ran.count("nvtx", &point.name)).sum();
    let losses = &ran.snapshot.losses;
    let lost = losses[Loss::BeginsMissed] + losses[Loss::BeginsRefused];
    assert!(lost > 0, "there was no memory");
    assert_eq!(counted + lost, 2 + 3 * 4 * ROUNDS);
}

#[test]
fn digits_are_folded_on_request() {
    let Some(python) = tools::annotated("a script with NVTX") else { return };
    let ran = run(&["--fold-digits"], &python, &[text(&file("ranges.py")), "1"]);
    assert_eq!(ran.count("nvtx:many", "made up #"), 6000);
    ran.lost_nothing();
}

/// Python's own hook makes a range of every function of a package that does not use NVTX.
#[test]
fn functions_of_a_module_are_ranges_by_pythons_own_hook() {
    let Some(python) = tools::annotated("python -m nvtx") else { return };
    let script = file("wrapped.py");
    let ran = run(&[], &python, &["-m", "nvtx", text(&script), "23"]);
    assert_eq!(ran.printed, alone(&python, &[text(&script), "23"]));
    // The script prints how often the package's functions were called.
    let counted = |name: &str| -> u64 {
        let found = ran.snapshot.points.iter().filter(|point| {
            point.name.starts_with("func_inspect.py:") && point.name.ends_with(&format!("({name})"))
        });
        found.map(|point| ran.count("nvtx:nvtx.py", &point.name)).max().unwrap_or(0)
    };
    let said: Vec<_> = ran.printed.lines().filter_map(|line| line.split_once(' ')).collect();
    for (name, calls) in &said[..3] {
        assert_eq!(counted(name).to_string(), *calls, "{name}");
    }
}

/// In this NVTX version, the tool is started once more by each thread whose first call comes before
/// the tool has started.
#[test]
fn threads_that_call_first_together_lose_no_call() {
    let Some(program) = compiled("race", Link::Without) else { return };
    const ROUNDS: usize = size(150, 600) as usize;
    let source = file("starts.c");
    let flags = ["-std=gnu11", "-shared", "-fPIC", "-ldl"];
    let counter = c::compile(Compiler::C, "starts.so", &[text(&source)], Link::Without, flags);
    let place = Place::new();
    let starts = place.path("starts");
    together(0..2, |half| {
        let copy = place.path(&format!("copy-{half}.pfp"));
        for round in 0..ROUNDS / 2 {
            let mut command = place.command(&program);
            command.env("NVTX_INJECTION64_PATH", &counter).env("NVTX_REAL", c::inject());
            c::run(command.env("NVTX_STARTS", &starts).env("PFP_SNAPSHOT", &copy));
            let mut source = source::open(&copy).expect("the program has left its figures");
            let snapshot = source.poll().expect("they can be read");
            assert_eq!(pfp_tests::place::count(&snapshot, "first"), 8, "round {round}");
            std::fs::remove_file(&copy).expect("it is there");
        }
    });
    let starts = std::fs::metadata(starts).expect("it was started").len();
    figure(&format!("nvtx: {starts} starts of the tool in {ROUNDS} processes"));
    assert!(starts > ROUNDS as u64, "no two threads have started it");
}
