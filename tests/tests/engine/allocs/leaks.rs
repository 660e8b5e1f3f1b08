//! Memory that is never freed is named by the live memory of its point.

use std::collections::BTreeMap;

use pfp_read::snapshot::Allocs;
use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::{Place, text};
use pfp_tests::{python, together, tools};

use super::{ALLOCATING, By, assert_live, figures_with, noted_in, of_file};

/// The figures of a program, with many samples.
fn sampled(
    place: &Place,
    by: By,
    program: &[&str],
    variables: &[(&str, &str)],
) -> BTreeMap<String, Allocs> {
    let variables = [&[("PFP_ALLOC_SAMPLE", "8192")], variables].concat();
    figures_with(place, by, program, &variables)
}

/// Asserts that the live memory of one point is the bytes that it has leaked, and that the other
/// points have almost none, although they have allocated no less.
fn assert_leak(figures: &BTreeMap<String, Allocs>, leaking: &str, bytes: u64) {
    assert!(bytes > 3_000_000, "{bytes}");
    assert_live(figures[leaking], bytes, leaking);
    let others = figures.iter().filter(|(name, _)| !["overhead", leaking].contains(&name.as_str()));
    let others: Vec<_> = others.collect();
    assert_eq!(others.len(), 2, "{figures:?}");
    for (name, found) in others {
        assert!(found.bytes > bytes, "{name}: {found:?}");
        assert!(found.live_bytes < bytes / 20, "{name}: {found:?}");
    }
}

/// The memory that nothing frees is estimated to within a few standard errors, and freed memory is
/// not part of it.
#[test]
fn live_memory_is_estimated() {
    together([By::Itself, By::Preload], |by| {
        let place = Place::new();
        let noted = place.path("noted.json");
        let program = [ALLOCATING, "leaks", text(&noted)];
        let figures = sampled(&place, by, &program, &[]);
        for name in ["kept", "cycle", "open"] {
            let bytes = figures[name].bytes;
            // A region that is still open has no sums.
            let bytes = if name == "open" { 4000 * 700 } else { bytes };
            assert!(bytes > 2_000_000, "{name}: {bytes}");
            assert_live(figures[name], bytes, &format!("{name}, by {by:?}"));
        }
        for name in ["handed", "churn"] {
            let Allocs { bytes, live_bytes, live_samples, .. } = figures[name];
            assert!(bytes > 2_000_000, "{name}: {bytes}");
            assert_eq!((live_bytes, live_samples), (0, 0), "{name}, by {by:?}");
        }
    });
}

#[test]
fn a_cache_that_grows_is_named() {
    together([By::Itself, By::Preload], |by| {
        let place = Place::new();
        let noted = place.path("noted.json");
        let figures = sampled(&place, by, &[ALLOCATING, "cache", text(&noted)], &[]);
        // Only this region frees what it has allocated.
        let [_, _, bytes, freed, ..] = noted_in(&noted)["remember"];
        assert_leak(&figures, "remember", bytes - freed);
    });
}

#[test]
fn a_forgotten_buffer_in_c_is_named() {
    // The compiler would leave out what is only allocated and freed.
    let flags = ["-fno-builtin"];
    let program = c::compile(Compiler::C, "leaks", &["leaks.c"], Link::Static, flags);
    let figures = sampled(&Place::new(), By::Preload, &[text(&program)], &[]);
    assert_leak(&figures, "receive", 4000 * 1500);
}

#[test]
fn a_list_that_grows_in_python_is_named() {
    let found = tools::python("a leak in Python", "python", "tests/python/requirements.txt");
    let Some(interpreter) = found else { return };
    let place = Place::new();
    let packages = python::package(&place);
    let [snapshot, size] = ["snapshot.json", "size"].map(|name| place.path(name));
    let variables = [("PYTHONPATH", text(&packages)), ("PYTHONDONTWRITEBYTECODE", "1")];
    let script = python::script("leaks.py");
    let program = [text(&interpreter), text(&script), text(&snapshot), text(&size)];
    sampled(&place, By::Preload, &program, &variables);
    let size = std::fs::read_to_string(size).expect("it was written");
    assert_leak(&of_file(&snapshot), "log", size.parse().expect("it is a number"));
}
