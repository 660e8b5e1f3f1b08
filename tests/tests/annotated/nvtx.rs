//! NVTX: Python's package, and C with the stock header.

use std::path::PathBuf;

use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::Place;
use pfp_tests::{size, tools};
use pfp_top::source;

use crate::{alone, file, run, text};

/// A program in C that includes the header which the package has.
pub(crate) fn compiled(name: &str, link: Link) -> Option<PathBuf> {
    let python = tools::annotated("a C program with NVTX's header")?;
    let packages = python.parent()?.parent()?.join("lib");
    let version = std::fs::read_dir(packages).ok()?.flatten().next()?.path();
    let include = version.join("site-packages/nvidia/nvtx/include");
    // The header is not held to our warnings.
    let flags = [format!("-isystem{}", include.display()), "-Wno-error".into()];
    let source = file(&format!("{name}.c"));
    let flags = flags.into_iter().chain(["-ldl".into(), "-pthread".into(), "-std=gnu11".into()]);
    Some(c::compile(Compiler::C, &format!("nvtx_{name}"), &[text(&source)], link, flags))
}

#[test]
fn what_a_script_annotates_is_counted_to_one() {
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
    // Each thread has its own, but a span is nobody's.
    let point = |name: &str| ran.snapshot.points.iter().find(|it| it.name == name).unwrap();
    assert!(point("span").wall && !point("outer").wall);
    // A payload is an amount.
    let inner = point("inner");
    assert_eq!(inner.amounts, ["payload"]);
    let cells = ran.snapshot.cells.iter().filter(|cell| cell.point == inner.id);
    let payload: u64 = cells
        .flat_map(|cell| &cell.variants)
        .map(|variant| variant.each[0] * variant.stats.count)
        .sum();
    assert_eq!(payload, 7 * ROUNDS);
    // Names are kept up to a limit, and none of the others is lost.
    let many = ran.snapshot.points.iter().filter(|point| point.file == "nvtx:many");
    let made_up = many.filter(|point| point.name.starts_with("made up")).count() as u64;
    assert!((3000..5000).contains(&made_up), "{made_up}");
    assert_eq!(made_up + ran.count("nvtx:many", "(other names)"), 6000);
    ran.lost_nothing();
}

#[test]
fn digits_fold_where_that_is_asked_for() {
    let Some(python) = tools::annotated("a script with NVTX") else { return };
    let ran = run(&["--fold-digits"], &python, &[text(&file("ranges.py")), "1"]);
    assert_eq!(ran.count("nvtx:many", "made up #"), 6000);
    ran.lost_nothing();
}

/// Every function of a module that knows nothing of it is a range.
#[test]
fn functions_of_a_module_are_ranges_by_pythons_own_hook() {
    let Some(python) = tools::annotated("python -m nvtx") else { return };
    let ran = run(&[], &python, &["-m", "nvtx", text(&file("wrapped.py")), "23"]);
    // The module itself counts its calls.
    let counted = |name: &str| -> u64 {
        let found = ran.snapshot.points.iter().filter(|point| {
            point.name.starts_with("textwrap.py:") && point.name.ends_with(&format!("({name})"))
        });
        found.map(|point| ran.count("nvtx:nvtx.py", &point.name)).max().unwrap_or(0)
    };
    for (name, calls) in ran.printed.lines().filter_map(|line| line.split_once(' ')) {
        assert_eq!(counted(name).to_string(), calls, "{name}");
    }
    assert_eq!(ran.printed.lines().count(), 3, "{}", ran.printed);
}

/// Headers of this version have each thread that comes first start the library.
#[test]
fn threads_that_call_first_together_lose_no_call() {
    let Some(program) = compiled("race", Link::Without) else { return };
    let place = Place::new();
    let copy = place.path("copy.pfp");
    for round in 0..size(100, 1_000) {
        let mut command = place.command(&program);
        c::run(command.env("NVTX_INJECTION64_PATH", c::inject()).env("PFP_SNAPSHOT", &copy));
        let mut source = source::open(&copy).expect("the program has left its figures");
        let snapshot = source.poll().expect("they can be read");
        assert_eq!(pfp_tests::place::count(&snapshot, "first"), 8, "round {round}");
        std::fs::remove_file(&copy).expect("it is there");
    }
}
