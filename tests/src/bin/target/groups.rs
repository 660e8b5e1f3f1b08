//! Members of groups of processes.

use std::time::Duration;

use pfp::Point;
use pfp_tests::os::burn;
use pfp_tests::script::{pause, say};
use pfp_timing::{ProcessGroup, SyncScope, ThreadGroup};

static PHASE: Point = Point::new("phase");

/// Arrives in one phase after the other. Prints for each phase when this rank arrived, when all had
/// arrived, when its work began and how many members had died. `how` is "run", or the number of the
/// round before which it waits for the test.
pub(crate) fn rank(name: &str, members: u32, rounds: u64, how: &str) {
    let group = ProcessGroup::join(name, members).expect("the group can be joined");
    let group = group.with_join_timeout(Duration::from_secs(30));
    let pause_at: Option<u64> = how.parse().ok();
    pause("joined");
    for round in 0..rounds {
        if pause_at == Some(round) {
            pause("before");
        }
        // Each rank works for a different time.
        burn(Duration::from_micros(50 * (u64::from(std::process::id()) % 7)));
        let came = pfp_timing::cycle_stamp().ticks;
        let count =
            pfp_timing::cycle_count(&PHASE, SyncScope::External(&group), || burn_a_little(round));
        let synced = count.synced;
        let all_came = synced.all_came.expect("it is a member");
        assert!(!synced.not_member && count.result == round);
        say("round", &[&round, &came, &all_came, &count.start.ticks, &count.since_all_came()]);
        say("dead", &[&synced.dead, &synced.absent]);
    }
    pause("done");
}

fn burn_a_little(round: u64) -> u64 {
    burn(Duration::from_micros(100));
    round
}

/// A rank with several threads, which form a group in each process.
pub(crate) fn team(name: &str, members: u32, rounds: u64, threads: u32) {
    let processes = ProcessGroup::join(name, members).expect("the group can be joined");
    let team = ThreadGroup::named("team", threads);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for round in 0..rounds {
                    let came = pfp_timing::cycle_stamp();
                    burn(Duration::from_micros(30 * u64::from(came.thread % 5)));
                    let came = pfp_timing::cycle_stamp().ticks;
                    let sync = SyncScope::Global(&team, &processes);
                    let count = pfp_timing::cycle_count(&PHASE, sync, || burn_a_little(round));
                    let all_came = count.synced.all_came.expect("it is a member");
                    let start = count.start.ticks;
                    say("round", &[&round, &came, &all_came, &start, &count.since_all_came()]);
                }
            });
        }
    });
    pause("done");
}
