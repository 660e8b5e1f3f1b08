//! Memory that is never freed is named by the live memory of its point.

use std::collections::BTreeMap;
use std::path::Path;

use pfp_read::files::json;
use pfp_read::snapshot::{Allocs, HeapSamples, Snapshot};
use pfp_shm_layout::allocs::size_class;
use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::{Place, text};
use pfp_tests::{python, together, tools};

use super::{
    ALLOCATING, By, FIGURES, assert_live, assert_near, figures_with, noted_in, of_snapshot, samples,
};

const NS: u64 = 1_000_000_000;
/// Bytes that the program allocates outside all regions and keeps.
const OUTSIDE: u64 = 2000 * 1500;

/// What a program has allocated.
struct Sampled {
    figures: BTreeMap<String, Allocs>,
    samples: BTreeMap<String, HeapSamples>,
    snapshot: Snapshot,
}

impl Sampled {
    fn of_file(file: &Path) -> Self {
        let snapshot: Snapshot = json::read(file).expect("it was written");
        Self { figures: of_snapshot(&snapshot), samples: samples(&snapshot), snapshot }
    }
}

/// Allocated bytes for each sample, on average.
const RATE: u64 = 8192;

/// The figures of a program, with many samples.
fn sampled(place: &Place, by: By, program: &[&str], variables: &[(&str, &str)]) -> Sampled {
    let rate = RATE.to_string();
    let variables = [&[("PFP_ALLOC_SAMPLE", rate.as_str())], variables].concat();
    figures_with(place, by, program, &variables);
    Sampled::of_file(&place.path(FIGURES))
}

/// Asserts that the live memory of one point is the bytes that it has leaked, and that the other
/// points have almost none, although they have allocated no less.
fn assert_leak(sampled: &Sampled, leaking: &str, bytes: u64) {
    assert!(bytes > 3_000_000, "{bytes}");
    let Sampled { figures, samples, .. } = sampled;
    assert_live(samples[leaking], bytes, leaking);
    let others = figures.iter().filter(|(name, _)| !["overhead", leaking].contains(&name.as_str()));
    let others: Vec<_> = others.collect();
    assert_eq!(others.len(), 2, "{figures:?}");
    for (name, found) in others {
        assert!(found.bytes > bytes, "{name}: {found:?}");
        assert!(samples[name].live_bytes < bytes / 20, "{name}: {:?}", samples[name]);
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
        let Sampled { figures, samples, snapshot } = sampled(&place, by, &program, &[]);
        let mut in_all = OUTSIDE;
        for name in ["kept", "cycle", "open"] {
            let bytes = figures[name].bytes;
            // A region that is still open has no sums.
            let bytes = if name == "open" { 4000 * 700 } else { bytes };
            assert!(bytes > 2_000_000, "{name}: {bytes}");
            assert_live(samples[name], bytes, &format!("{name}, by {by:?}"));
            in_all += bytes;
            // Samples have their times in whole seconds.
            let HeapSamples { live_samples, live_births, .. } = samples[name];
            let lived = snapshot.process.started_unix_ns / NS - 1..=snapshot.taken_unix_ns / NS;
            assert!(lived.contains(&(live_births / live_samples)), "{name}: {lived:?}");
        }
        let heap = snapshot.heap.expect("an allocator counts");
        assert_near(heap.live_bytes, heap.live_samples, in_all, "the process");
        assert!(heap.live_bytes >= samples.values().map(|it| it.live_bytes).sum(), "{heap:?}");
        let handed = 8 << 20;
        assert!((heap.live_bytes..heap.live_bytes + handed).contains(&heap.peak_bytes), "{heap:?}");
        // Each of these points has allocations of one size.
        for (name, size) in [("kept", 1000), ("handed", 2000), ("churn", 3000)] {
            let mut sizes = samples[name].sizes;
            let sampled = std::mem::take(&mut sizes[size_class(size)]);
            assert_near(sampled, sampled / RATE, figures[name].bytes, name);
            assert!(sizes.iter().sum::<u64>() < sampled / 10, "{name}: {:?}", samples[name]);
        }
        for name in ["handed", "churn"] {
            assert!(figures[name].bytes > 2_000_000, "{name}: {:?}", figures[name]);
            let live = samples[name];
            assert_eq!(live, live.without_live(), "{name}, by {by:?}");
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
    assert_leak(&Sampled::of_file(&snapshot), "log", size.parse().expect("it is a number"));
}
