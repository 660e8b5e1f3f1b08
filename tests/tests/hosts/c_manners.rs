//! The library's calls do not change state that a C program relies on: `errno` and the heap.

use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::Place;

#[test]
fn no_call_changes_errno() {
    for link in [Link::Static, Link::Shared] {
        let name = format!("errno-{link:?}");
        let program = c::compile(Compiler::C, &name, &["errno.c"], link, ["-pthread"]);
        let place = Place::new();
        assert_eq!(c::run(&mut place.command(&program)), "kept\n");
        // Without memory, each first region tries in vain to create the segment.
        assert_eq!(c::run(place.command(&program).env("PFP_MEMORY_MB", "0")), "kept\n");
        for clock in ["perf", "cputime", "wall"] {
            assert_eq!(c::run(place.command(&program).env("PFP_CLOCK", clock)), "kept\n");
        }
    }
}

#[test]
#[cfg(target_env = "gnu")]
fn a_points_first_use_in_a_signal_handler_does_not_allocate() {
    let sources = ["first_in_handler.c"];
    let program = c::compile(Compiler::C, "first_in_handler", &sources, Link::Static, [""; 0]);
    let said = c::run(&mut Place::new().command(&program));
    assert_eq!(said, "allocated 0, same 1, count 1\n");
}
