//! A viewer is killed at any moment while it switches, resets and saves. The program's figures stay
//! exact, and the next viewer attaches at once. In the folder of beacons, the killed viewer leaves
//! only its list of switched points, from which the next viewer restores them.
//!
//! The program counts its calls in a witness. A call of a point that was being switched may be
//! counted or not; all other counts are exact.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::{Duration, Instant};

use pfp_read::source;
use pfp_shm_layout::atomic_file::DRAFT;
use pfp_shm_layout::control::{self, Control};
use pfp_shm_layout::liveness::Liveness;
use pfp_tests::changes::Changes;
use pfp_tests::os::wall;
use pfp_tests::place::{Place, text};
use pfp_tests::random::Random;
use pfp_tests::stepper::{self, Halt, Stepper};
use pfp_tests::target::{DEADLINE, end_with_test, wait_for};
use pfp_tests::watch::{self, Watch};
use pfp_tests::witness::{NAMES, RUN, SEATS, STAGES, Shared, point, stage};
use pfp_tests::{figure, size, skipped};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");
/// Threads of the program.
const THREADS: usize = 2;
/// Maximum CPU time for a viewer to start, find the program and attach.
const WITHIN: Duration = Duration::from_secs(1);

/// A folder in memory, so that a viewer that writes files can be killed often without waiting for a
/// disk.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let path = format!("/dev/shm/pfp-test-{}-{number}", std::process::id());
        fs::create_dir(&path).expect("a folder of this test's own");
        Self(path.into())
    }

    /// Checks that every snapshot and copy is complete, and removes all files except `again.json`,
    /// which each viewer overwrites. Returns the numbers of complete files and of drafts.
    fn clear(&self) -> (u64, u64) {
        let (mut whole, mut drafts) = (0, 0);
        for file in fs::read_dir(&self.0).expect("it is there").flatten() {
            let (path, name) = (file.path(), file.file_name());
            let name = name.to_str().expect("all names are text");
            if name.starts_with(DRAFT) {
                drafts += 1;
            } else {
                let read = source::open(&path).and_then(|mut source| source.poll());
                let snapshot = read.unwrap_or_else(|error| panic!("{name} is broken: {error:#}"));
                assert!(NAMES.iter().any(|name| snapshot.points.iter().any(|at| at.name == *name)));
                whole += 1;
            }
            if name != "again.json" {
                fs::remove_file(path).expect("it is ours");
            }
        }
        (whole, drafts)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process. Dropping this value kills the process.
struct Victim(Child);

impl Victim {
    fn start(place: &Place, arguments: &[&str]) -> Self {
        let mut command: Command = place.command(TARGET);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        Self(end_with_test(&mut command).spawn().expect("the target starts"))
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The watched program.
struct Watched {
    // The first field, since fields are dropped in order: the program must end before its folder is
    // removed.
    program: Victim,
    witness: Shared,
    place: Place,
}

impl Watched {
    fn start() -> Self {
        let (place, witness) = (Place::new(), Shared::new());
        let program = Victim::start(&place, &["watched", text(witness.path())]);
        let watched = Self { program, witness, place };
        wait_for("all points to be used", || {
            let seats = &watched.witness.seats[..THREADS];
            let used =
                |at: usize| seats.iter().all(|seat| seat.calls[at].returned.load(Acquire) > 0);
            [point::RESET, point::INNER, point::HAND, point::TOGGLED].into_iter().all(used)
        });
        watched
    }

    fn view(&self, folder: &Folder, more: &[&str]) -> Victim {
        let pid = self.program.0.id().to_string();
        let arguments = ["viewing", text(self.witness.path()), &pid, text(&folder.0)];
        Victim::start(&self.place, &[&arguments[..], more].concat())
    }

    /// Checks, after a viewer's end, that it left only its list of switched points. A switch that
    /// was begun before the kill counts as done.
    fn check_remains(&self) {
        self.witness.switched.store(self.witness.switching.load(Acquire), Release);
        let left = fs::read_dir(self.place.beacons()).expect("it is there").flatten();
        // The list of switched points stays, since the next viewer reads it.
        let left = left.filter(|file| file.file_name() != "switched").count();
        assert_eq!(left, 1, "more than the program's beacon");
    }

    fn rest(&self) {
        self.witness.pause.store(1, Release);
        let seats = &self.witness.seats[..THREADS];
        wait_for("the program to rest", || seats.iter().all(|seat| seat.rests.load(Acquire) == 1));
    }

    fn go_on(&self) {
        self.witness.pause.store(0, Release);
        let seats = &self.witness.seats[..THREADS];
        wait_for("the program to go on", || seats.iter().all(|seat| seat.rests.load(Acquire) == 0));
    }

    /// Checks that the lifetime count of each point equals its calls, while the program pauses.
    /// Returns the number of calls, and the number of calls in doubt.
    fn check(&self) -> (u64, u64) {
        let entry = self.place.entry(self.program.0.id()).expect("it runs");
        assert_eq!(entry.state, Liveness::Alive);
        let mut watch = Watch::open(&entry);
        let picture = watch.poll();
        let (mut calls, mut unknown) = (0, 0);
        for at in [point::RESET, point::INNER, point::HAND, point::TOGGLED] {
            let seats = (0..THREADS).map(|seat| self.witness.counts(seat, at));
            let (least, most) = seats.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
            let id = watch::id(picture, NAMES[at]);
            let counted: u64 = watch::cells(picture, id).map(|cell| cell.lifetime_count).sum();
            let name = NAMES[at];
            assert!(at == point::TOGGLED || least == most, "{name}: the program does not rest");
            assert!((least..=most).contains(&counted), "{name}: {counted} of {least} to {most}");
            calls += counted;
            unknown += most - least;
        }
        let losses = picture.losses;
        assert_eq!((losses.cells_busy, losses.clock_anomalies, losses.points_refused), (0, 0, 0));
        assert_eq!(
            (losses.mismatched_ends, losses.begins_refused, losses.space_refused),
            (0, 0, 0)
        );
        (calls, unknown)
    }
}

#[test]
fn the_figures_are_exact_whenever_a_viewer_is_killed() {
    let watched = Watched::start();
    let folder = Folder::new();
    let kills = size(60, 10_000);
    let start = Instant::now();
    let mut random = Random::new(2);
    let (mut slowest, mut slowest_cpu, mut attached) = (Duration::ZERO, Duration::ZERO, 0);
    let (mut saved, mut drafts) = (0, 0);
    // On a busy machine, viewers may need longer lives to switch a point and to save a file.
    for kill in 0.. {
        let is_missing = saved == 0 || watched.witness.switched.load(Acquire) == 0;
        if kill >= kills && !is_missing {
            break;
        }
        let doublings = kill / kills;
        assert!(doublings < 6, "no viewer has switched and saved anything");
        let before = watched.witness.attached.load(Acquire);
        let started = Instant::now();
        let viewer = watched.view(&folder, &[]);
        // One in four is killed while it starts.
        if kill % 4 != 0 {
            while watched.witness.attached.load(Acquire) == before {
                assert!(started.elapsed() < DEADLINE, "no viewer attaches any more");
                std::thread::sleep(Duration::from_micros(100));
            }
            slowest = slowest.max(started.elapsed());
            let cpu = Duration::from_nanos(watched.witness.attached_in.load(Relaxed));
            assert!(cpu < WITHIN, "attaching took {cpu:?} of CPU time");
            slowest_cpu = slowest_cpu.max(cpu);
            attached += 1;
        }
        let until =
            Instant::now() + Duration::from_nanos(random.below(4_000_000 << doublings) as u64);
        while Instant::now() < until {
            std::thread::sleep(Duration::from_micros(20));
        }
        drop(viewer);
        watched.check_remains();
        let (whole, left) = folder.clear();
        (saved, drafts) = (saved + whole, drafts + left);
        if kill % 256 == 0 {
            watched.rest();
            watched.check();
            watched.go_on();
        }
    }
    watched.rest();
    let (calls, unknown) = watched.check();
    figure(&format!(
        "viewers killed: {kills}, {attached} of them once attached, which took {slowest:?} at most \
         ({slowest_cpu:?} of CPU time); {} switches; {calls} calls, counted exactly but for {unknown} \
         that a switch may have met; {saved} files, all whole, {drafts} drafts; in {:?}",
        watched.witness.switched.load(Acquire),
        start.elapsed()
    ));
}

/// Run instruction by instruction, a viewer changes only control words and reset times, and each of
/// them in one step.
#[test]
fn a_killed_viewer_has_made_a_change_completely_or_not_at_all() {
    if let Some(why) = stepper::why_not() {
        return skipped("a viewer killed at any instruction", &why);
    }
    let watched = Watched::start();
    watched.rest();
    let folder = Folder::new();
    let entry = watched.place.entry(watched.program.0.id()).expect("it runs");
    let mut changes = Changes::of(&entry.info.object).expect("it is complete");
    changes.look();
    let viewer = watched.view(&folder, &["stepped"]);
    let mut stepper = Stepper::take(viewer.0.id());
    let mut steps = 0_u64;
    let asked = || watched.witness.seats[SEATS - 1].stage.load(Acquire);
    assert_eq!((asked(), stepper.run()), (RUN, Halt::Stop));
    while asked() != RUN {
        let (stage, early) = (asked(), wall());
        let steers = matches!(stage, stage::SWITCH | stage::RESET);
        let mut words = Vec::new();
        // Switching and resetting take few instructions, so the state is checked after each of
        // them. In the other stages, only the first instructions are checked.
        let mut left = if steers { u64::MAX } else { size(5_000, 2_000_000) };
        let halt = loop {
            if left == 0 {
                break stepper.run();
            }
            left -= 1;
            let halt = stepper.step();
            if halt != Halt::Step {
                break halt;
            }
            steps += 1;
            let changed = changes.look();
            assert!(changed.len() <= 1, "one instruction, and words changed: {changed:?}");
            words.extend(changed);
        };
        assert_eq!(halt, Halt::Stop, "at {}", STAGES[stage as usize]);
        words.extend(changes.look());
        match stage {
            stage::SWITCH => {
                let [off, on] = words[..] else { panic!("not two changes: {words:?}") };
                assert!(off.0 == on.0 && off.1 == on.2 && off.2 == on.1, "{words:?}");
                assert!(Control(off.1).enabled() && !Control(off.2).enabled(), "{words:?}");
            }
            stage::RESET => {
                assert_eq!(words.len(), 4, "{words:?}");
                for pair in words.chunks(2) {
                    let [(_, before, after), (_, earlier, time)] = *pair else { unreachable!() };
                    let (before, after) = (Control(before), Control(after));
                    assert_eq!(after.epoch(), before.epoch() + 1);
                    assert!(before.enabled() && after.enabled());
                    // Between the two stores, the reset has no valid time.
                    assert_eq!(control::reset_ns(after, earlier), None);
                    let time = control::reset_ns(after, time).expect("it was left");
                    let [early, now] = [early, wall()].map(|at| at.as_micros() as u64 * 1000);
                    assert!((early..=now).contains(&time), "{time}, not {early} to {now}");
                }
            }
            _ => assert_eq!(words, [], "at {}", STAGES[stage as usize]),
        }
    }
    drop(viewer);
    watched.check_remains();
    let (whole, drafts) = folder.clear();
    assert_eq!((whole, drafts), (3, 0));
    watched.check();
    figure(&format!("a viewer of {steps} instructions changes 6 words, in a step each"));
}

/// A viewer is killed while it has files open or locked.
#[test]
fn a_viewer_killed_at_any_system_call_does_no_harm() {
    if let Some(why) = stepper::why_not() {
        return skipped("a viewer killed at any system call", &why);
    }
    let watched = Watched::start();
    watched.rest();
    let folder = Folder::new();
    let (mut kills, mut drafts, mut saved) = (0_u64, 0, 0);
    let mut slowest = Duration::ZERO;
    let mut calls = 1;
    loop {
        let viewer = watched.view(&folder, &["stepped"]);
        let mut stepper = Stepper::take(viewer.0.id());
        let mut ended = false;
        for _ in 0..calls {
            let asked = watched.witness.seats[SEATS - 1].stage.load(Acquire);
            match stepper.to_system_call() {
                Halt::Ended => ended = true,
                Halt::Stop if asked == stage::SAVE => ended = true,
                _ => {}
            }
            if ended {
                break;
            }
        }
        drop(viewer);
        kills += 1;
        watched.check_remains();
        let start = Instant::now();
        watched.check();
        slowest = slowest.max(start.elapsed());
        let (whole, left) = folder.clear();
        (saved, drafts) = (saved + whole, drafts + left);
        if ended {
            break;
        }
        calls += size(23, 1);
    }
    watched.go_on();
    watched.rest();
    watched.check();
    figure(&format!(
        "viewers killed at system calls: {kills}; the next one saw the figures within {slowest:?}; \
         {saved} files, all whole, {drafts} drafts"
    ));
}
