//! How long libpfp waits for a thread of the program that does not get on.

use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::Place;
use pfp_tests::watch::Watch;

/// A thread that holds the table of tasks may be preempted, stopped or gone: nobody waits
/// for it longer than a millisecond, and that is counted.
#[test]
fn nobody_waits_for_a_thread_that_has_stopped_while_it_creates_a_task() {
    let flags = ["-lpthread", "-ldl"];
    let program = c::compile(Compiler::C, "held", &["held.c"], Link::Shared, flags);
    let place = Place::new();
    let mut target = place.start(program.to_str().expect("it is plain text"), &[]);
    let said = target.reach("done").clone();
    assert_eq!(said.one::<u64>("refused"), 200);
    // A millisecond in all, and what 200 calls take otherwise; before, it was many seconds.
    let us = said.one::<u64>("us");
    assert!(us < 50_000, "{us} us of a processor");
    let mut watch = Watch::attach(&place, &target);
    assert_eq!(watch.poll().losses.mismatched_ends, 200);
    target.end_well();
}
