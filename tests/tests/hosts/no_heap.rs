//! When the heap is exhausted, a call of the library fails or works without more memory. The host
//! continues: its output and its exit status do not change.

use std::process::Command;

use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::figure;
use pfp_tests::place::Place;
use pfp_tests::stand_in::StandIn;
use pfp_tests::target::{Ended, Said, Target};

const STRICT: &str = env!("CARGO_BIN_EXE_strict");

/// Runs a program that must exit with 7 and print no error. Returns its output.
fn end_with_seven(command: &mut Command) -> Said {
    let Ended { status, errors, said } = Target::start(command).end();
    assert_eq!((status.code(), &*errors), (Some(7), ""), "{said:?}");
    said
}

/// Starts the library and calls each function of the C interface, while the allocator refuses the
/// n-th request, for each n: first only that request, then all from there on.
#[test]
fn each_function_of_c_survives_an_exhausted_heap() {
    let wrapped = ["malloc", "calloc", "realloc", "posix_memalign"];
    let flags = wrapped.map(|name| format!("-Wl,--wrap={name}"));
    let program = c::compile(Compiler::C, "no_heap", &["no_heap.c"], Link::Static, flags);
    let place = Place::new();
    let folder = place.folder();
    let at_the_end = folder.join("at the end.json");
    let mut command = place.command(&program);
    let said = end_with_seven(command.env("PFP_SNAPSHOT", &at_the_end).current_dir(folder));
    for call in ["start_once", "start_for_good"] {
        let [asked, lost] = said.all::<u64>(call)[0][..] else { panic!("{call}: {said:?}") };
        figure(&format!("no heap: {call} asks {asked} times, {lost} of them in another's code"));
        assert!(asked > 10, "{call} was refused nothing");
    }
    for call in ["snapshot_to", "snapshot_over", "show"] {
        let asked = said.one::<u64>(call);
        figure(&format!("no heap: {call} asks {asked} times"));
        assert!(asked > 10, "{call} was refused nothing");
    }
    assert!(!at_the_end.exists(), "half a snapshot");
}

/// Calls each function of the Rust interface, and of `pfp-timing`, while the allocator refuses
/// requests, as in the test of the C interface above.
#[test]
fn each_function_of_rust_survives_an_exhausted_heap() {
    let place = Place::new();
    let folder = place.folder();
    let at_the_end = folder.join("at the end.json");
    let mut command = place.command(STRICT);
    let stand_in = StandIn::new("no-heap");
    let command = command.arg("no-heap").arg(stand_in.path());
    let command = command.env("PFP_SNAPSHOT", &at_the_end).current_dir(folder);
    let said = end_with_seven(command);
    for call in ["snapshot_to", "snapshot_over", "show", "stats", "samples", "groups", "gpu"] {
        let asked = said.one::<u64>(call);
        figure(&format!("no heap: {call} asks {asked} times"));
        assert!(asked > 0, "{call} was refused nothing");
    }
    assert!(!at_the_end.exists(), "half a snapshot");
}
