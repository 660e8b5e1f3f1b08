//! Groups: no member begins before all have arrived, and no member waits for a dead one.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use pfp::Point;
use pfp_shm_layout::find;
use pfp_tests::os::{burn, tid};
use pfp_tests::own::figures;
use pfp_tests::place::Place;
use pfp_tests::target::{Target, wait_for};
use pfp_tests::watch::{self, Watch};
use pfp_tests::{figure, size};
use pfp_timing::{ProcessGroup, SyncScope, ThreadGroup};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

/// A member's times in one round: when it arrived, when all had arrived by its account, and when
/// its work began.
#[derive(Clone, Copy, Debug)]
struct Came {
    came: u64,
    all_came: u64,
    start: u64,
}

/// Maximum difference of the counter between CPUs, in ticks; virtual machines add some.
const SKEW: u64 = 2_000;

/// Compares the members' times: no work began before the last member arrived, and all members agree
/// when that was.
fn assert_together(rounds: &BTreeMap<u64, Vec<Came>>, members: usize) {
    for (round, all) in rounds {
        assert_eq!(all.len(), members, "round {round}");
        let last = all.iter().map(|it| it.came).max().expect("there are members");
        let first_start = all.iter().map(|it| it.start).min().expect("there are members");
        assert!(first_start + SKEW >= last, "round {round} began before all had come: {all:?}");
        let said = all[0].all_came;
        assert!(all.iter().all(|it| it.all_came == said), "round {round}: {all:?}");
        assert!(said + SKEW >= last && said <= first_start + SKEW, "round {round}: {all:?}");
    }
}

#[test]
fn threads_begin_once_the_last_has_arrived() {
    static PHASE: Point = Point::new("threads' phase");
    const THREADS: u32 = 5;
    let rounds = size(50, 5_000);
    let group = ThreadGroup::named("five", THREADS);
    let noted: Mutex<BTreeMap<u64, Vec<Came>>> = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let (group, noted) = (&group, &noted);
            scope.spawn(move || {
                for round in 0..rounds {
                    burn(Duration::from_micros(u64::from(number * 37 + round as u32 * 11) % 200));
                    let came = pfp_timing::cycle_stamp();
                    assert_eq!(came.thread, tid());
                    let count =
                        pfp_timing::cycle_count(&PHASE, SyncScope::Internal(group), || round + 1);
                    assert_eq!(count.result, round + 1);
                    assert!(count.since_all_came() >= count.elapsed());
                    assert!(count.on_cpu <= count.elapsed());
                    let it = Came {
                        came: came.ticks,
                        all_came: count.synced.all_came.expect("it is a member"),
                        start: count.start.ticks,
                    };
                    noted.lock().expect("nobody panics").entry(round).or_default().push(it);
                }
            });
        }
    });
    assert_together(&noted.into_inner().expect("nobody panics"), THREADS as usize);
    let all = rounds * u64::from(THREADS);
    assert_eq!(figures("threads' phase").count, all);
    // The waits have their own point, and a wait is not on the CPU.
    let waits = figures("wait:five");
    assert_eq!(waits.count, all);
    figure(&format!("waits of threads: {} on and {} off", waits.exclusive, waits.off_cpu));
}

#[test]
fn a_thread_that_ended_is_not_waited_for() {
    static PHASE: Point = Point::new("a phase without one");
    let group = ThreadGroup::named("four", 4);
    let dead = Mutex::new(0);
    let longest = Mutex::new(Duration::ZERO);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (group, dead, longest) = (&group, &dead, &longest);
            scope.spawn(move || {
                // The last thread ends after two rounds without leaving the group.
                for _ in 0..if number == 3 { 2 } else { 6 } {
                    let began = Instant::now();
                    let count = pfp_timing::cycle_count(&PHASE, SyncScope::Internal(group), || ());
                    *dead.lock().expect("nobody panics") += count.synced.dead;
                    let mut longest = longest.lock().expect("nobody panics");
                    *longest = began.elapsed().max(*longest);
                }
            });
        }
    });
    assert_eq!(dead.into_inner().expect("nobody panics"), 1);
    assert_eq!(figures("a phase without one").count, 3 * 6 + 2);
    figure(&format!("longest wait with an ended thread: {longest:?}"));
}

#[test]
fn threads_may_leave_and_join() {
    let group = ThreadGroup::named("who comes", 0);
    assert!(group.join());
    // The only member waits for no other.
    assert!(pfp_timing::synchronize(SyncScope::Internal(&group)).all_came.is_some());
    let other = group.clone();
    let (joined, has_joined) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        assert!(other.join());
        joined.send(()).expect("the test listens");
        let together = pfp_timing::synchronize(SyncScope::Internal(&other));
        other.leave();
        together
    });
    has_joined.recv().expect("it joins");
    let here = pfp_timing::synchronize(SyncScope::Internal(&group));
    let there = thread.join().expect("it does not panic");
    assert_eq!((here.all_came, here.dead), (there.all_came, 0));
    // The other member has left, so this member does not wait.
    assert_eq!(pfp_timing::synchronize(SyncScope::Internal(&group)).dead, 0);
    group.leave();
    assert!(pfp_timing::synchronize(SyncScope::None).all_came.is_none());
}

#[test]
fn a_member_that_never_arrives_is_waited_for_once() {
    let timeout = Duration::from_millis(150);
    let group = ThreadGroup::named("one of two", 2).with_join_timeout(timeout);
    let began = Instant::now();
    let synced = pfp_timing::synchronize(SyncScope::Internal(&group));
    assert_eq!((synced.absent, synced.not_member), (1, false));
    assert!(began.elapsed() >= timeout, "{:?}", began.elapsed());
    // The member that arrives waits for the missing one in the first round only.
    let began = Instant::now();
    assert_eq!(pfp_timing::synchronize(SyncScope::Internal(&group)).absent, 1);
    figure(&format!("a round without who never came: {:?}", began.elapsed()));
}

fn start(place: &Place, ranks: u32, rounds: u64, paused: Option<(u32, u64)>) -> Vec<Target> {
    let rank = |number: u32| {
        let how = match paused {
            Some((rank, round)) if rank == number => round.to_string(),
            _ => "run".to_owned(),
        };
        place.start(TARGET, &["rank", "job", &ranks.to_string(), &rounds.to_string(), &how])
    };
    let mut targets: Vec<Target> = (0..ranks).map(rank).collect();
    for target in &mut targets {
        target.reach("joined");
    }
    targets.iter_mut().for_each(Target::go);
    targets
}

fn note(rounds: &mut BTreeMap<u64, Vec<Came>>, target: &Target) {
    for line in target.said().all::<u64>("round") {
        let [round, came, all_came, start, _] = line[..] else { panic!("{line:?}") };
        rounds.entry(round).or_default().push(Came { came, all_came, start });
    }
}

/// The group files in a folder, and their content.
fn groups(place: &Place) -> Vec<(std::path::PathBuf, String)> {
    let files = std::fs::read_dir(place.beacons()).expect("it can be read");
    files
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "group"))
        .map(|path| (path.clone(), std::fs::read_to_string(path).unwrap_or_default()))
        .collect()
}

fn object_of(text: &str) -> std::path::PathBuf {
    let line = text.lines().find_map(|line| line.strip_prefix("object=/"));
    std::path::Path::new("/dev/shm").join(line.expect("the file names its object"))
}

#[test]
fn processes_begin_once_the_last_has_arrived_and_leave_nothing() {
    let place = Place::new();
    let (ranks, rounds) = (5, size(20, 2_000));
    let mut targets = start(&place, ranks, rounds, None);
    let mut noted = BTreeMap::new();
    for target in &mut targets {
        target.reach("done");
        note(&mut noted, target);
        let mut watch = Watch::attach(&place, target);
        let picture = watch.poll();
        assert_eq!(watch::named(picture, "phase").count, rounds);
        assert_eq!(watch::named(picture, "wait:job").count, rounds);
    }
    assert_together(&noted, ranks as usize);
    // Only this user may access the file and the memory.
    let files = groups(&place);
    let [(file, text)] = &files[..] else { panic!("one group: {files:?}") };
    let object = object_of(text);
    for path in [file, &object] {
        let mode = std::fs::metadata(path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", path.display());
    }
    for target in targets {
        let said = target.end_well();
        assert!(said.all::<u32>("dead").iter().all(|found| found == &[0, 0]));
    }
    assert!(!file.exists() && !object.exists(), "the last one takes it away");
}

#[test]
fn a_killed_process_is_not_waited_for() {
    let place = Place::new();
    let mut targets = start(&place, 4, 6, Some((3, 3)));
    let mut victim = targets.pop().expect("there are four");
    victim.reach("before");
    // The others have arrived in the victim's round, and none continues while the victim lives.
    let last = |target: &mut Target| {
        target.has_reached("done");
        target.said().all::<u64>("round").len()
    };
    for target in &mut targets {
        wait_for("round 2 to end", || last(target) == 3);
    }
    std::thread::sleep(Duration::from_millis(300));
    assert!(targets.iter_mut().all(|target| last(target) == 3), "they wait for who lives");
    let killed = Instant::now();
    victim.kill();
    let (mut noted, mut dead) = (BTreeMap::new(), 0);
    for target in &mut targets {
        target.reach("done");
        note(&mut noted, target);
        dead += target.said().all::<u32>("dead").iter().map(|line| line[0]).sum::<u32>();
    }
    figure(&format!("three rounds after a kill: {:?} from the kill", killed.elapsed()));
    assert_eq!(dead, 1, "it is found once");
    noted.retain(|&round, _| round >= 3);
    assert_eq!(noted.len(), 3);
    assert_together(&noted, 3);
}

#[test]
fn kills_at_any_moment_block_no_member() {
    for attempt in 0..size(6, 300) {
        let place = Place::new();
        let mut targets = start(&place, 3, 200, None);
        // The kill comes at a different moment each time, mostly within the rounds.
        std::thread::sleep(Duration::from_micros(attempt * 7_919 % 60_000));
        targets.pop().expect("there are three").kill();
        for target in &mut targets {
            target.reach("done");
            assert_eq!(target.said().all::<u64>("round").len(), 200);
        }
    }
}

#[test]
fn files_of_killed_processes_are_swept_and_a_new_group_starts_fresh() {
    let place = Place::new();
    for how in ["swept", "joined again"] {
        let mut targets = start(&place, 2, 2, None);
        targets.iter_mut().for_each(|target| drop(target.reach("done").clone()));
        drop(targets);
        let [(file, text)] = &groups(&place)[..] else { panic!("{how}: what was left") };
        let object = object_of(text);
        assert!(object.exists(), "{how}");
        if how == "swept" {
            let swept = find::gc(&place.directory()).expect("it can be read");
            assert!(swept.failed.is_empty(), "{swept:?}");
            assert!(!file.exists() && !object.exists());
        } else {
            // A group with another number of members: the state of the old one does not count.
            let mut targets = start(&place, 3, 2, None);
            targets.iter_mut().for_each(|target| drop(target.reach("done").clone()));
            assert!(!object.exists(), "the old memory is gone");
            targets.into_iter().for_each(|target| drop(target.end_well()));
            assert_eq!(groups(&place), []);
        }
    }
}

#[test]
fn threads_of_processes_begin_together() {
    let place = Place::new();
    let rounds = size(10, 500);
    let team = || place.start(TARGET, &["team", "teams", "3", &rounds.to_string(), "3"]);
    let mut targets: Vec<Target> = (0..3).map(|_| team()).collect();
    let mut noted = BTreeMap::new();
    for target in &mut targets {
        target.reach("done");
        note(&mut noted, target);
        let mut watch = Watch::attach(&place, target);
        let picture = watch.poll();
        let points = ["phase", "wait:team", "wait:teams"];
        let counts = points.map(|point| watch::named(picture, point).count);
        // A thread that reaches a point while another one registers it may miss a region.
        let counted = counts.iter().sum::<u64>() + picture.losses.begins_missed;
        assert_eq!(counted, 3 * 3 * rounds, "{counts:?}");
        assert!(counts.iter().all(|&count| count <= 3 * rounds), "{counts:?}");
    }
    assert_together(&noted, 9);
}

#[test]
fn a_group_has_one_size_and_a_forked_child_is_not_a_member() {
    // The group's file is in the default directory, which other runs of this test use, too. So the
    // name contains the process id.
    let name = format!("sizes {}", std::process::id());
    let group = ProcessGroup::join(&name, 1).expect("it can be joined");
    let other = ProcessGroup::join(&name, 2).map(|_| ()).expect_err("it is of another size");
    assert_eq!(other.kind(), std::io::ErrorKind::InvalidInput);
    let full = ProcessGroup::join(&name, 1).map(|_| ()).expect_err("its place is taken");
    assert_eq!(full.kind(), std::io::ErrorKind::QuotaExceeded);
    // SAFETY: the child only calls `synchronize`, which returns at once, and ends without running
    // exit handlers.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let not_member = pfp_timing::synchronize(SyncScope::External(&group)).not_member;
        // SAFETY: ends the child at once, without running exit handlers.
        unsafe { libc::_exit(if not_member { 7 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: `status` outlives the call, and the process is our child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(libc::WEXITSTATUS(status), 7, "{status:#x}");
    let synced = pfp_timing::synchronize(SyncScope::External(&group));
    assert!(!synced.not_member && synced.all_came.is_some());
}

#[test]
fn a_stamp_says_where_it_was_taken() {
    let cpus = pfp_tests::os::cpus();
    std::thread::spawn(move || {
        for &cpu in &cpus {
            pfp_tests::os::pin(cpu);
            let (before, stamp, after) = (pfp::ticks(), pfp_timing::cycle_stamp(), pfp::ticks());
            assert_eq!((stamp.cpu, stamp.thread), (Some(cpu as u32), tid()));
            assert!(before <= stamp.ticks && stamp.ticks <= after, "{before} {stamp:?} {after}");
        }
    })
    .join()
    .expect("it does not panic");
}
