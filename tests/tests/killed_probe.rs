//! A program killed at any instruction: whatever it leaves, a reader that comes then
//! makes a true picture of it.
//!
//! What a SIGKILL leaves in shared memory is what is there between two instructions.
//! So a program is run one instruction at a time, and whenever the memory it shares,
//! or a file of its own, is another than before, a reader that has not seen any of it
//! finds it, attaches, and takes a picture as of a dead process. What is true is told
//! by a witness, which the program keeps before and after each call.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};
use std::time::{Duration, Instant};

use pfp_shm_layout::find;
use pfp_shm_layout::header::{Facts, FormatError};
use pfp_shm_layout::lane::LaneState;
use pfp_shm_layout::liveness::Liveness;
use pfp_shm_layout::object::{self, Name};
use pfp_shm_layout::reader::{Picture, Reader};
use pfp_shm_layout::ring::{Drained, Record};
use pfp_shm_layout::segment::{OpenError, RING_SLOTS, Segment};
use pfp_tests::changes::Changes;
use pfp_tests::random::Random;
use pfp_tests::stepper::{self, Halt, Stepper};
use pfp_tests::target::{DEADLINE, Place, end_with_test, wait_for};
use pfp_tests::witness::{
    self, FILL, HAND_OVER, LET_GO, LOG, NAMES, NUMBER, RUN, SEATS, STAGES, Shared, point, stage,
};
use pfp_tests::{cells, figure, os, size, skipped};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");
/// Lanes of the program, of which it has more threads.
const LANES: u64 = 2;
/// Within this, a reader has found, opened and read what is left.
const WITHIN: Duration = Duration::from_millis(10);

/// A program that nobody waits for but this test, with its witness.
struct Program {
    child: Child,
    witness: Shared,
}

impl Program {
    fn start(place: &Place, scenario: &[&str], clock: &str) -> Self {
        let witness = Shared::new();
        let mut command: Command = place.command(TARGET);
        command
            .arg(scenario[0])
            .arg(witness.path())
            .args(&scenario[1..])
            .env("PFP_CLOCK", clock)
            .env("PFP_LANES", LANES.to_string())
            .env("PFP_POINTS", "1024")
            .env("PFP_MEMORY_MB", "8")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        Self { child: end_with_test(&mut command).spawn().expect("the target starts"), witness }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The objects that a process has mapped, by their names.
fn mapped(pid: u32) -> Vec<Name> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let paths = maps.lines().filter(|line| !line.ends_with("(deleted)"));
    let paths = paths.filter_map(|line| Some(&line[line.find("/dev/shm")? + "/dev/shm".len()..]));
    paths.filter_map(Name::parse).collect()
}

/// All that a reader gets out of what is left.
struct Left {
    picture: Picture,
    rings: BTreeMap<u32, (Drained, Vec<Record>)>,
    overhead: u64,
}

fn read<S: std::borrow::Borrow<Segment>>(reader: &mut Reader<S>) -> Left {
    let picture = reader.poll(true).clone();
    let mut rings = BTreeMap::new();
    reader.drain(
        |_| 0,
        |lane, drained, records| {
            rings.insert(lane, (drained, records.to_vec()));
        },
    );
    let overhead = picture.clock.overhead_pair;
    Left { picture, rings, overhead }
}

/// Judges pictures of one program.
struct Judge<'a> {
    place: &'a Place,
    witness: &'a Shared,
    pid: u32,
    /// Times are on-CPU times: there is no least that a region took.
    loose: bool,
    /// The segment as one knows it who was there in time.
    early: Option<(&'static Segment, Facts)>,
    /// Who attached at the state before this one.
    previous: Option<Reader<&'static Segment>>,
    /// Exclusive ticks of each point, as last seen.
    ticks: [u64; NAMES.len()],
    /// Records of the first lane that the witness does not know of.
    unwitnessed: u64,
    slowest: Duration,
    slowest_cpu: Duration,
    torn: u64,
}

impl<'a> Judge<'a> {
    fn new(place: &'a Place, program: &'a Program, loose: bool) -> Self {
        Self {
            place,
            witness: &program.witness,
            pid: program.pid(),
            loose,
            early: None,
            previous: None,
            ticks: [0; NAMES.len()],
            unwitnessed: 0,
            slowest: Duration::ZERO,
            slowest_cpu: Duration::ZERO,
            torn: 0,
        }
    }

    /// What somebody sees who comes now, and has to be content with what there is.
    fn attach(&self) -> Option<Left> {
        let found = find::find(&self.place.directory()).expect("the directory can be read");
        assert!(found.unreadable.is_empty(), "half a beacon: {:?}", found.unreadable);
        let entry = found.entries.iter().find(|entry| entry.info.process.pid == self.pid)?;
        match Segment::open(&entry.info.object) {
            Ok((segment, facts)) => {
                assert_eq!(facts.pid, self.pid);
                assert!(facts.exe.ends_with("pfp-test-target"), "{facts:?}");
                Some(read(&mut Reader::new(segment, facts)))
            }
            // Not there, or not complete: said in so many words.
            Err(OpenError::Io(error)) => {
                let kind = error.kind();
                let started = kind == std::io::ErrorKind::InvalidData;
                assert!(started || kind == std::io::ErrorKind::NotFound, "{error}");
                None
            }
            Err(OpenError::Format(error)) => {
                let why = matches!(error, FormatError::NotASegment { .. });
                assert!(why, "an object that is not complete is taken for {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Looks at what is there now. `must` says that there must be a picture.
    fn judge(&mut self, must: bool) {
        let start = (Instant::now(), os::thread_cpu());
        let mut left = self.attach();
        self.slowest = self.slowest.max(start.0.elapsed());
        let mut took = os::thread_cpu() - start.1;
        // What takes long only because the machine is busy does so once.
        if took > WITHIN {
            let start = os::thread_cpu();
            left = self.attach();
            took = os::thread_cpu() - start;
        }
        assert!(took <= WITHIN, "a picture took {took:?} of CPU time");
        self.slowest_cpu = self.slowest_cpu.max(took);
        assert!(left.is_some() || !must, "there is nothing to be seen");
        let Some(left) = left else {
            self.previous = None;
            return;
        };
        self.check(&left);
        // Who attached one change ago, and hears of the death now.
        if let Some(mut reader) = self.previous.take() {
            let early = read(&mut reader);
            self.check(&early);
        }
        if self.early.is_none()
            && let Some(entry) = self.place.entry(self.pid)
            && let Ok((segment, facts)) = Segment::open(&entry.info.object)
        {
            self.early = Some((Box::leak(Box::new(segment)), facts));
        }
        if let Some((segment, facts)) = &self.early {
            let mut reader = Reader::new(*segment, facts.clone());
            // Then it was alive, as far as anybody knew.
            reader.poll(false);
            self.previous = Some(reader);
        }
    }

    fn check(&mut self, left: &Left) {
        let picture = &left.picture;
        let calling = self.witness.seats.iter().any(|seat| seat.calling.load(Acquire) != 0);
        let torn = picture.cells.iter().filter(|cell| cell.in_flight).count();
        assert!(torn <= usize::from(calling), "{torn} cells are said to be in the middle");
        self.torn += torn as u64;
        let losses = picture.losses;
        assert_eq!((losses.cells_busy, losses.clock_anomalies, losses.points_refused), (0, 0, 0));
        assert_eq!(
            (losses.mismatched_ends, losses.begins_refused, losses.space_refused),
            (0, 0, 0)
        );
        let ids = self.check_points(left);
        for (at, id) in ids.iter().enumerate() {
            self.check_counts(left, at, *id);
        }
        self.check_lanes(left);
        self.check_rings(left, &ids);
    }

    /// The points are called what they are; returns the number of each.
    fn check_points(&self, left: &Left) -> [Option<u32>; NAMES.len()] {
        let mut ids = [None; NAMES.len()];
        for point in &left.picture.points {
            let name = point.name.as_str();
            if point.id == 0 {
                assert_eq!(name, "overhead");
                continue;
            }
            if point.id == NUMBER && name.is_empty() {
                ids[point::NUMBERED] = Some(NUMBER);
                continue;
            }
            let at = NAMES.iter().position(|known| *known == name);
            let at = at.unwrap_or_else(|| panic!("a point is called {name:?}"));
            assert_eq!(ids[at].replace(point.id), None, "{name} is there twice");
            if at == point::NUMBERED {
                assert_eq!(point.id, NUMBER);
            } else {
                assert!(point.file.ends_with("killed.rs") && point.line > 0, "{point:?}");
            }
            let steered = &self.witness.steered[at];
            let get = |word: &AtomicU64| word.load(Acquire);
            let epochs = get(&steered.reset)..=get(&steered.resets);
            assert!(epochs.contains(&u64::from(point.control.epoch())), "{point:?}");
            if at == point::TOGGLED {
                let on = u64::from(point.control.enabled());
                assert!(on == get(&steered.was_on) || on == get(&steered.is_on), "{point:?}");
            }
        }
        ids
    }

    fn check_counts(&mut self, left: &Left, at: usize, id: Option<u32>) {
        let cells = || left.picture.cells.iter().filter(|cell| Some(cell.point) == id);
        let name = NAMES[at];
        let seats = |seats: &[usize]| {
            let of_seats = seats.iter().map(|seat| self.witness.counts(*seat, at));
            of_seats.fold((0, 0), |sum, of_seat| (sum.0 + of_seat.0, sum.1 + of_seat.1))
        };
        // Lane by lane: the first thread has the first, the next two share the
        // second, the last one has none.
        for (lane, of_lane) in [(0, &[0][..]), (1, &[1, 2]), (LANES as u32, &[3])] {
            let (least, most) = seats(of_lane);
            assert!(most - least <= 1);
            let counted: u64 =
                cells().filter(|cell| cell.lane == lane).map(|cell| cell.lifetime_count).sum();
            assert!(
                (least..=most).contains(&counted),
                "{name} on lane {lane}: {counted} counted, {least} have returned of {most}"
            );
        }
        for cell in cells() {
            if cell.lane < LANES as u32 {
                cells::check_left(cell);
            } else {
                // The sums of the one under way may be there, one after the other.
                let counted = cell.live.count + cell.retired.count;
                let histogram = cells::in_histogram(cell);
                assert!((counted..=counted + 1).contains(&histogram), "{name}: {cell:?}");
            }
        }
        self.check_window(left, at, id);
        self.check_ticks(left, at, id);
    }

    /// Since the last reset.
    fn check_window(&self, left: &Left, at: usize, id: Option<u32>) {
        let Some(point) = left.picture.points.iter().find(|point| Some(point.id) == id) else {
            return;
        };
        let steered = &self.witness.steered[at];
        let get = |word: &AtomicU64| word.load(Acquire);
        let (mut least, mut most) = (0, 0);
        for seat in 0..SEATS {
            let of_seat = self.witness.counts(seat, at);
            (least, most) = (least + of_seat.0, most + of_seat.1);
        }
        let (called, done) = (get(&steered.resets), get(&steered.reset));
        if called != done && u64::from(point.control.epoch()) == done {
            // Not yet.
            return;
        }
        if called > 0 {
            let before = get(&steered.before);
            least = least.saturating_sub(before + get(&steered.open));
            most -= before;
        }
        let cells = left.picture.cells.iter().filter(|cell| Some(cell.point) == id);
        let counted: u64 = cells.map(|cell| cell.live.count + cell.retired.count).sum();
        assert!(
            (least..=most).contains(&counted),
            "{}: {counted} since the reset, not {least} to {most}",
            NAMES[at]
        );
    }

    fn check_ticks(&mut self, left: &Left, at: usize, id: Option<u32>) {
        let (mut least, mut most, mut inside) = (0, 0, 0);
        for seat in &self.witness.seats {
            let calls = &seat.calls[at];
            let get = |word: &AtomicU64| word.load(Acquire);
            least += get(&calls.least);
            most += get(&calls.most);
            inside += get(&calls.inside);
            if get(&calls.ends) > get(&calls.returned) {
                most += witness::now().saturating_sub(get(&calls.since));
            }
        }
        let cells = left.picture.cells.iter().filter(|cell| Some(cell.point) == id);
        let ticks: u64 = cells.map(|cell| cell.lifetime_exclusive).sum();
        // What measuring costs is taken out, and cannot be told from here.
        let least = least.saturating_sub(inside * (4 * left.overhead + 500));
        let name = NAMES[at];
        assert!(
            self.loose || ticks >= least,
            "{name}: {ticks} ticks, at least {least} have passed"
        );
        assert!(ticks <= most, "{name}: {ticks} ticks, no more than {most} have passed");
        assert!(ticks >= self.ticks[at], "{name}: {} ticks became {ticks}", self.ticks[at]);
        self.ticks[at] = ticks;
    }

    fn check_lanes(&self, left: &Left) {
        let lanes = &left.picture.lanes;
        let live = |tid: u64| {
            let with = |lane: &&pfp_shm_layout::reader::LaneReading| {
                !lane.overflow
                    && lane.lane.state == LaneState::Live
                    && u64::from(lane.lane.tid) == tid
            };
            lanes.iter().filter(with).count()
        };
        let mut known = 0;
        for (number, seat) in self.witness.seats.iter().enumerate() {
            let get = |word: &AtomicU64| word.load(Acquire);
            let tid = get(&seat.tid);
            if tid == 0 || get(&seat.claims) == 0 {
                continue;
            }
            let found = live(tid);
            known += found;
            let settled = get(&seat.claimed) == 1 && get(&seat.leaves) == 0;
            if number as u64 == LANES + 1 {
                assert_eq!(found, 0, "there was no lane left");
                let overflowed = left.picture.losses.lanes_overflowed;
                assert!(overflowed == 1 || !settled, "{overflowed} threads without a lane");
            } else {
                assert!(found == 1 || !settled && found == 0, "thread {tid}: {lanes:?}");
            }
        }
        let all = lanes.iter().filter(|lane| lane.lane.state == LaneState::Live && !lane.overflow);
        assert_eq!(all.count(), known, "a lane of nobody's: {lanes:?}");
        for lane in lanes.iter().filter(|lane| lane.lane.tid != 0 && !lane.overflow) {
            assert_eq!(lane.lane.name, b"pfp-test-target", "{lane:?}");
        }
    }

    /// Every record is of one end that the witness knows, and none is missing.
    fn check_rings(&mut self, left: &Left, ids: &[Option<u32>; NAMES.len()]) {
        for (lane, seats) in [(0, &[0][..]), (1, &[1, 2])] {
            let Some((drained, records)) = left.rings.get(&lane) else { continue };
            let written = drained.next;
            assert_eq!(drained.lost, written.saturating_sub(RING_SLOTS as u64 - 1));
            assert_eq!(records.len() as u64, written - drained.lost, "records of lane {lane}");
            let mut ends = seats.iter().rev().flat_map(|seat| {
                let seat = &self.witness.seats[*seat];
                let logged = seat.logged.load(Acquire);
                (logged.saturating_sub(LOG as u64)..logged)
                    .rev()
                    .map(move |number| &seat.log[number as usize % LOG])
            });
            let mut at_end = true;
            for record in records.iter().rev().filter(|record| record.point != 0) {
                let mut end = ends.next().expect("more records than ends");
                if at_end && end.ticks[3].load(Acquire) == 0 && !self.is_of(record, end, ids, left)
                {
                    end = ends.next().expect("more records than ends");
                }
                at_end = false;
                assert!(self.is_of(record, end, ids, left), "{record:?} is not of {end:?}");
            }
            // All that were written are of ends; all ends before are written.
            let logged: u64 =
                seats.iter().map(|seat| self.witness.seats[*seat].logged.load(Acquire)).sum();
            if lane == 0 && logged == 0 {
                // Of the calibration.
                self.unwitnessed = written;
            }
            let unwitnessed = if lane == 0 { self.unwitnessed } else { 0 };
            if !self.loose {
                let all = logged + unwitnessed;
                let calling = seats.iter().any(|seat| self.is_ending(*seat));
                let bounds = all - u64::from(calling)..=all;
                assert!(
                    bounds.contains(&written),
                    "lane {lane}: {written} records, not {bounds:?}"
                );
            }
        }
    }

    /// Whether the last end of a thread has not returned.
    fn is_ending(&self, seat: usize) -> bool {
        let seat = &self.witness.seats[seat];
        let logged = seat.logged.load(Acquire);
        logged > 0 && seat.log[(logged - 1) as usize % LOG].ticks[3].load(Acquire) == 0
    }

    fn is_of(
        &self,
        record: &Record,
        end: &witness::End,
        ids: &[Option<u32>; NAMES.len()],
        left: &Left,
    ) -> bool {
        let at = end.point.load(Acquire) as usize - 1;
        let [before, begun, ending, ended] = end.ticks.each_ref().map(|word| word.load(Acquire));
        let ended = if ended == 0 { witness::now() } else { ended };
        // A lap's next region starts when the one before is recorded.
        let slack = 4 * left.overhead + 500;
        let stop = record.start.wrapping_add(record.span);
        let parts = end.parts.load(Acquire) == 1;
        Some(record.point) == ids[at]
            && (before..=begun + slack).contains(&record.start)
            && (ending.saturating_sub(slack)..=ended).contains(&stop)
            && (parts || self.loose || record.exclusive <= record.span)
            && (at != point::TASK || record.context != 0)
    }
}

/// How a stage is gone through.
#[derive(Clone, Copy)]
enum Pace {
    /// One instruction at a time until so much was changed, and the rest at once.
    Instructions(u64),
    /// So many system calls, and the rest at once.
    SystemCalls(u64),
}

/// What a run has shown.
#[derive(Default)]
struct Shown {
    steps: u64,
    states: HashSet<u64>,
    slowest: Duration,
    slowest_cpu: Duration,
    torn: u64,
}

/// What of a program lies in files.
fn files(place: &Place, pid: u32) -> (Vec<(String, Vec<u8>)>, Vec<Name>) {
    let entries = fs::read_dir(place.path()).expect("the directory is there").flatten();
    let mut all: Vec<_> = entries
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, fs::read(entry.path()).unwrap_or_default())
        })
        .collect();
    all.sort();
    let objects = mapped(pid);
    for object in &objects {
        let beacon = format!("{}.beacon", object.hex());
        assert!(all.iter().any(|(name, _)| *name == beacon), "{object} cannot be found: {all:?}");
    }
    (all, objects)
}

/// Runs a program through its script, each stage at its pace.
fn go_through(scenario: &[&str], clock: &str, pace: impl Fn(u64) -> Pace, shown: &mut Shown) {
    let place = Place::new();
    let program = Program::start(&place, scenario, clock);
    let mut judge = Judge::new(&place, &program, clock != "wall");
    let mut changes: Option<Changes> = None;
    let mut of_files = None;
    let mut waiting = Vec::new();
    let mut current = (0, Stepper::take(program.pid()));
    loop {
        let (seat, stepper) = &mut current;
        let asked = program.witness.seats[*seat].stage.load(Acquire);
        let mut halt = match asked {
            RUN => stepper.run(),
            FILL => {
                let left = judge.attach().expect("it runs");
                let written = left.rings[&0].0.next;
                let room = RING_SLOTS as u64 - written % RING_SLOTS as u64;
                program.witness.room.store(room.saturating_sub(8), Release);
                stepper.run()
            }
            HAND_OVER => {
                let seat = program.witness.next.load(Acquire) as usize;
                stepper.run_on();
                waiting.push(current);
                let tid = wait_for("the next thread", || {
                    Some(program.witness.seats[seat].tid.load(Acquire)).filter(|tid| *tid != 0)
                });
                current = (seat, Stepper::take(tid as u32));
                Halt::Stop
            }
            LET_GO => {
                current.1.let_go();
                current = waiting.pop().expect("a thread has handed over");
                current.1.wait()
            }
            stage => {
                let pace = pace(stage);
                if stage == stage::FIRST {
                    judge.judge(true);
                }
                let moved = matches!(stage, stage::CREATION | stage::EXIT);
                let must = !moved;
                let mut left = match pace {
                    Pace::Instructions(most) | Pace::SystemCalls(most) => most,
                };
                loop {
                    if left == 0 {
                        break stepper.run();
                    }
                    left -= u64::from(matches!(pace, Pace::SystemCalls(_)));
                    let system =
                        matches!(pace, Pace::SystemCalls(_)) || moved && stepper.calls_system();
                    let halt = match pace {
                        Pace::Instructions(_) => stepper.step(),
                        Pace::SystemCalls(_) => stepper.to_system_call(),
                    };
                    if halt != Halt::Step {
                        break halt;
                    }
                    shown.steps += 1;
                    let mut is_new = false;
                    if moved && system {
                        let now = files(&place, program.pid());
                        if changes.is_none()
                            && let Some(object) = now.1.first()
                        {
                            changes = Changes::of(object);
                        }
                        is_new = of_files.as_ref() != Some(&now);
                        of_files = Some(now);
                    }
                    if changes.is_none()
                        && !moved
                        && let Some(entry) = place.entry(program.pid())
                    {
                        changes = Changes::of(&entry.info.object);
                    }
                    if let Some(changes) = &mut changes {
                        is_new |= !changes.look().is_empty();
                    }
                    if is_new {
                        let files = of_files.as_ref().map_or(0, |(files, _)| files.len() as u64);
                        let state = changes.as_ref().map_or(0, Changes::digest);
                        let state = state ^ files.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                        shown.states.insert(state);
                        judge.judge(must);
                        left -= u64::from(matches!(pace, Pace::Instructions(_)));
                    }
                }
            }
        };
        if halt == Halt::Ended {
            let Some(before) = waiting.pop() else { break };
            current = before;
            halt = current.1.wait();
        }
        assert_eq!(halt, Halt::Stop, "at {}", STAGES.get(asked as usize).unwrap_or(&"a stop"));
    }
    assert!(place.entries().is_empty(), "it has ended in order");
    shown.slowest = shown.slowest.max(judge.slowest);
    shown.slowest_cpu = shown.slowest_cpu.max(judge.slowest_cpu);
    shown.torn += judge.torn;
}

#[test]
fn whatever_instruction_is_the_last() {
    if let Some(why) = stepper::why_not() {
        return skipped("a program killed at any instruction", &why);
    }
    let mut shown = Shown::default();
    let few = size(100, 1_000_000);
    let start = Instant::now();
    // With the thread's time on the wall, a region takes the short ways, as it does
    // where nobody switches the thread out; else each instruction is such a switch.
    for (clock, few) in [("wall", few), ("rseq", few / 4)] {
        go_through(
            &["stepped"],
            clock,
            |stage| match stage {
                stage::CREATION | stage::EXIT => Pace::SystemCalls(few * 4),
                _ => Pace::Instructions(few),
            },
            &mut shown,
        );
    }
    let ways = shown.states.len();
    // Apart from the others: calibrated instruction by instruction, measuring costs so
    // much that there are no figures left.
    let all = |_| Pace::Instructions(size(0, 1_000_000));
    go_through(&["stepped", "short"], "wall", all, &mut shown);
    let Shown { steps, states, slowest, slowest_cpu, torn } = shown;
    figure(&format!(
        "killed: {steps} instructions, {} states ({ways} without the creation's), each seen as it \
         is, {torn} pictures with a cell in the middle; the slowest took {slowest:?}, {slowest_cpu:?} \
         of CPU time; in {:?}",
        states.len(),
        start.elapsed()
    ));
    let enough = size(500, 10_000);
    assert!(ways as u64 >= enough, "{ways} states");
    assert!(torn > 0, "no cell was ever in the middle");
}

/// While files come and go, it is really killed.
#[test]
fn whatever_system_call_is_the_last() {
    if let Some(why) = stepper::why_not() {
        return skipped("a program killed at any system call", &why);
    }
    let place = Place::new();
    let (mut kills, mut readable, mut stale) = (0, 0, 0);
    for of in [stage::CREATION, stage::EXIT] {
        // The first ones, with all that a start does, and then some.
        let mut calls = 1;
        loop {
            let mut program = Program::start(&place, &["stepped", "alone"], "wall");
            let mut stepper = Stepper::take(program.pid());
            reach(&program, &mut stepper, of);
            let ended = (0..calls).any(|_| stepper.to_system_call() != Halt::Step);
            let objects = mapped(program.pid());
            program.kill();
            kills += 1;

            let entry = place.entry(program.pid());
            for object in &objects {
                let found = entry.as_ref().map(|entry| entry.info.object);
                assert_eq!(found.as_ref(), Some(object), "an object that nobody finds");
            }
            let found = find::find(&place.directory()).expect("the directory can be read");
            assert!(found.unreadable.is_empty(), "{:?}", found.unreadable);
            assert!(found.entries.len() <= 1);
            if let Some(entry) = entry {
                assert_eq!(entry.state, Liveness::Dead);
                stale += 1;
                if Segment::open(&entry.info.object).is_ok() {
                    readable += 1;
                    let judge = Judge::new(&place, &program, true);
                    let left = judge.attach().expect("it can be opened");
                    assert!(left.picture.points.iter().all(|point| point.id == 0
                        || point.id == NUMBER
                        || NAMES.contains(&point.name.as_str())));
                }
            }
            find::gc(&place.directory()).expect("the directory can be read");
            let after = fs::read_dir(place.path()).expect("it is there").count();
            assert_eq!(after, 0, "something is left behind");
            for object in objects {
                let left = object::backed_bytes(&object).expect("one can ask");
                assert_eq!(left, None, "{object} is left behind");
            }
            if ended {
                break;
            }
            calls += size(9, 1);
        }
    }
    assert!(readable > 0 && stale > readable);
    figure(&format!(
        "killed at system calls: {kills} kills while files come and go, {stale} left something, \
         {readable} a segment; all of it was found, read and removed"
    ));
}

/// Lets a program run until it is at a stage.
fn reach(program: &Program, stepper: &mut Stepper, stage: u64) {
    while program.witness.seats[0].stage.load(Acquire) != stage {
        assert_eq!(stepper.run(), Halt::Stop, "it comes to {}", STAGES[stage as usize]);
    }
}

/// Whoever makes the segment may be off its CPU for long. A region that another thread
/// begins meanwhile is measured all the same.
#[test]
fn a_region_waits_for_the_segment() {
    if let Some(why) = stepper::why_not() {
        return skipped("a thread held up while it makes the segment", &why);
    }
    let place = Place::new();
    let program = Program::start(&place, &["slow-start"], "wall");
    let mut stepper = Stepper::take(program.pid());
    reach(&program, &mut stepper, stage::CREATION);
    while place.entries().is_empty() {
        assert_eq!(stepper.to_system_call(), Halt::Step);
    }
    program.witness.pause.store(1, Release);
    let seat = &program.witness.seats[1];
    wait_for("the other thread's region", || (seat.calling.load(Acquire) == 1).then_some(()));
    // A fraction of what it has patience for.
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(seat.claimed.load(Acquire), 0, "it did not wait, and was not measured");
    // To the end of the making, then of the other thread.
    assert_eq!([stepper.run(), stepper.run()], [Halt::Stop; 2]);
    let left = Judge::new(&place, &program, false).attach().expect("it runs");
    let id = left.picture.points.iter().find(|at| at.name == NAMES[point::INNER]).map(|at| at.id);
    let cells = left.picture.cells.iter().filter(|cell| Some(cell.point) == id);
    assert_eq!(cells.map(|cell| cell.lifetime_count).sum::<u64>(), 1);
}

/// Killed whenever it happens, with two threads that call.
#[test]
fn whatever_moment_is_the_last() {
    let place = Place::new();
    let kills = size(100, 10_000);
    let (mut calls, mut under_way, mut shown, mut early) = (0, 0, 0, 0);
    let mut slowest = Duration::ZERO;
    let mut random = Random::new(1);
    let start = Instant::now();
    for kill in 0..kills {
        let clock = if kill % 2 == 0 { "rseq" } else { "wall" };
        let mut program = Program::start(&place, &["endless"], clock);
        // At the start, or while it measures.
        let mut wait = Duration::from_nanos(random.below(2_000_000) as u64);
        if kill % 4 == 0 {
            wait *= 4;
        } else {
            let seats = &program.witness.seats;
            let runs = || (seats[0].logged.load(Acquire) > 0).then_some(());
            let deadline = Instant::now() + DEADLINE;
            while runs().is_none() {
                assert!(Instant::now() < deadline, "it never measures");
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        let until = Instant::now() + wait;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        program.kill();

        let witness = &program.witness;
        let allowed = |at| {
            let seats = (0..SEATS).map(|seat| witness.counts(seat, at));
            seats.fold((0, 0), |sum, seat| (sum.0 + seat.0, sum.1 + seat.1))
        };
        let in_calls: u64 = witness.seats.iter().map(|seat| seat.calling.load(Acquire)).sum();
        let look = Instant::now();
        let entry = place.entry(program.pid());
        let opened = entry.as_ref().and_then(|entry| {
            assert_eq!(entry.state, Liveness::Dead);
            Segment::open(&entry.info.object).ok()
        });
        let left = opened.map(|(segment, facts)| read(&mut Reader::new(segment, facts)));
        slowest = slowest.max(look.elapsed());
        early += u64::from(left.is_none());
        let mut in_flight = 0;
        for (at, name) in NAMES.iter().enumerate() {
            let (least, most) = allowed(at);
            let id = left.as_ref().and_then(|left| {
                left.picture.points.iter().find(|point| point.name == *name).map(|point| point.id)
            });
            let cells = || {
                let cells = left.iter().flat_map(|left| &left.picture.cells);
                cells.filter(|cell| Some(cell.point) == id)
            };
            let counted: u64 = cells().map(|cell| cell.lifetime_count).sum();
            assert!(
                (least..=most).contains(&counted),
                "{name}: {counted} counted, {least} have returned of {most}"
            );
            cells().for_each(cells::check_left);
            in_flight += cells().filter(|cell| cell.in_flight).count() as u64;
            calls += least;
            under_way += most - least;
        }
        for seat in 0..SEATS {
            let of_seat = (0..NAMES.len()).map(|at| witness.counts(seat, at));
            let open: u64 = of_seat.map(|(least, most)| most - least).sum();
            assert!(open <= 1, "a thread is in {open} ends at once");
        }
        assert!(
            in_flight <= in_calls,
            "{in_flight} cells in the middle, {in_calls} threads in calls"
        );
        shown += in_flight;
        find::gc(&place.directory()).expect("the directory can be read");
        assert!(place.entries().is_empty());
    }
    assert!(calls > 0 && early < kills / 2);
    figure(&format!(
        "killed at random: {kills} kills, {early} of them before there was a segment, {calls} calls \
         had returned and were counted; {under_way} were under way, {shown} cells said so; the \
         slowest picture took {slowest:?}; in {:?}",
        start.elapsed()
    ));
}
