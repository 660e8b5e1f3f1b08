//! Fork: a child measures into a segment of its own or not at all, however it
//! was forked; its parent's figures, object and life are the parent's alone.

use pfp_shm_layout::liveness::Liveness;
use pfp_shm_layout::object;
use pfp_tests::target::{Place, wait_for};
use pfp_tests::watch::{self, Watch};
use pfp_tests::{figure, os};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

#[test]
fn children_leave_their_parent_alone() {
    const FORKS: u64 = 60;
    let place = Place::new();
    let mut target = place.start(TARGET, &["forks", &FORKS.to_string()]);
    let calls: u64 = target.reach("done").one("calls");
    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    assert_eq!(watch::named(picture, "call").count, calls);
    assert_eq!(watch::named(picture, "across the fork").count, FORKS);
    assert_eq!(watch::named(picture, "across the fork by hand").count, FORKS);
    assert_eq!(picture.losses.mismatched_ends, 0);
    assert!(!picture.exited);

    // Its object was not removed by a child that ended, nor its beacon.
    let entry = place.entry(target.pid()).expect("the beacon is there");
    assert_eq!(entry.state, Liveness::Alive);
    assert!(object::backed_bytes(&entry.info.object).is_ok_and(|bytes| bytes.is_some()));
    // Of the children only those that did not end in order have left something.
    let children = place.entries().len() - 1;
    assert!(children as u64 <= FORKS / 2, "{children} children left a segment");
    figure(&format!("fork: {FORKS} children beside {calls} calls, {children} left a segment"));
    target.end_well();
}

#[test]
fn a_child_has_its_own_segment_and_outlives_its_parent() {
    let place = Place::new();
    let mut target = place.start(TARGET, &["fork-and-live"]);
    let children: Vec<Vec<u32>> = target.reach("done").all("child");
    let parent = target.pid();
    let kill_children = || children.iter().for_each(|child| os::signal(child[0], libc::SIGKILL));
    let outcome = std::panic::catch_unwind(|| {
        for child in &children {
            let mut watch = Watch::attach_to(&place, child[0]);
            assert_eq!(watch.reader().facts().pid, child[0]);
            wait_for("the child to have measured", || {
                let picture = watch.poll();
                let all: u64 = picture
                    .points
                    .iter()
                    .filter(|point| point.name == "call")
                    .map(|point| watch::total(picture, point.id).count)
                    .sum();
                assert!(all <= 1000, "the child has its own calls only");
                (all == 1000).then_some(())
            });
        }
        let mut watch = Watch::attach_to(&place, parent);
        assert_eq!(watch::named(watch.poll(), "call").count, 1);
    });
    if outcome.is_err() {
        kill_children();
    }
    assert!(outcome.is_ok());

    // The parent crashes; its children live on, and it is dead all the same.
    target.kill();
    let states = |pid: u32| place.entry(pid).map(|entry| entry.state);
    let parent_state = states(parent);
    let child_states: Vec<_> = children.iter().map(|child| states(child[0])).collect();
    kill_children();
    assert_eq!(parent_state, Some(Liveness::Dead));
    assert_eq!(child_states, [Some(Liveness::Alive); 2]);
    for child in &children {
        wait_for("the child to be dead", || {
            (states(child[0]) == Some(Liveness::Dead)).then_some(())
        });
    }
}
