//! Bounds the time that libpfp waits for a thread of the program that makes no progress.

use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::Place;
use pfp_tests::skipped;
use pfp_tests::watch::{self, Watch};

/// The thread that holds the lock of the table of tasks may be pre-empted, stopped or dead. Other
/// threads wait at most a millisecond for it, and calls that then fail are counted.
#[test]
fn a_thread_stopped_while_creating_a_task_blocks_no_other() {
    let flags = ["-lpthread", "-ldl"];
    let program = c::compile(Compiler::C, "held", &["held.c"], Link::Shared, flags);
    let place = Place::new();
    let mut target = place.start(&program, &[]);
    let said = target.reach("done").clone();
    assert_eq!(said.one::<u64>("refused"), 200);
    // A millisecond in total, plus the normal time of 200 calls; an earlier version waited many
    // seconds.
    let us = said.one::<u64>("us");
    assert!(us < 50_000, "{us} us of a processor");
    assert_eq!(said.one::<u64>("slept"), 0, "who waits keeps its CPU, or its time says nothing");
    let mut watch = Watch::attach(&place, &target);
    assert_eq!(watch.poll().losses.mismatched_ends, 200);
    target.end_well();
}

/// A real-time thread pre-empts the thread that creates the segment, which can only continue when
/// the real-time thread sleeps. The real-time thread waits no longer than any thread does, then
/// creates the segment itself, and measures all its regions.
#[test]
fn a_real_time_thread_does_not_wait_for_a_thread_that_it_pre_empts() {
    for link in [Link::Static, Link::Shared] {
        let name = format!("real-time-{link:?}");
        let program = c::compile(Compiler::C, &name, &["real_time.c"], link, ["-pthread"]);
        for place_of_it in ["before", "within", "after", "point"] {
            let place = Place::new();
            let mut target = place.start(&program, &[place_of_it]);
            let said = target.reach("done").clone();
            if let Some(&errno) = said.all::<i32>("refused").first().and_then(|all| all.first()) {
                let why = std::io::Error::from_raw_os_error(errno);
                return skipped("a real-time thread", &why.to_string());
            }
            let what = format!("{link:?} {place_of_it}");
            let us = said.one::<u64>("us");
            assert!((500..10_000).contains(&us), "{what}: {us} us");
            // The thread spins while it waits. Only system calls on the segment's files may sleep.
            assert!(said.one::<u64>("slept") < 20, "{what}");
            let mut watch = Watch::attach(&place, &target);
            let picture = watch.poll();
            let measured = watch::named(picture, "real time").count;
            assert_eq!(measured, said.one::<u64>("called"), "{what}");
            assert_eq!(picture.losses.begins_missed, 0, "{what}");
            target.end_well();
        }
    }
}
