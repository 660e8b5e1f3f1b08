//! Children that are forked while other threads hold locks: pfp waits for none of these locks.

use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::Place;
use pfp_tests::size;

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

/// The compiler inserts pfp's hooks into each function. A child calls a function that its parent
/// has not called, so pfp looks up the function's name, although threads of the parent held the
/// loader's locks at the fork.
#[test]
fn a_childs_own_functions_wait_for_no_lock_of_the_loader() {
    for link in [Link::Static, Link::Shared] {
        let name = format!("beside-locks-hooks-{link:?}");
        let flags = ["-finstrument-functions", "-pthread", "-ldl"];
        let program = c::compile(Compiler::C, &name, &["beside_locks.c"], link, flags);
        for when in ["first", "later"] {
            let place = Place::new();
            let arguments = [when, &size(100, 3_000).to_string()];
            let mut target = place.start_with(&program, &arguments, "PFP_ENABLE", "*");
            let said = target.reach("done").clone();
            let wrong = ["hung", "died", "miscounted"].map(|key| said.one::<u64>(key));
            assert_eq!(wrong, [0; 3], "{link:?} {when}: hung, died, miscounted");
            target.end_well();
        }
    }
}

/// Rust's standard library has a lock of its own for the environment. `std::env::var` would wait
/// for it forever if another thread held it at the fork.
#[test]
fn a_child_does_not_wait_for_the_lock_of_the_environment() {
    let place = Place::new();
    let mut target =
        place.start(TARGET, &["forks-beside-the-environment", &size(200, 5_000).to_string()]);
    assert_eq!(target.reach("done").one::<u64>("bad"), 0);
    target.end_well();
}
