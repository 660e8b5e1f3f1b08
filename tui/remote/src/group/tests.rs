use std::cell::RefCell;
use std::rc::Rc;

use anyhow::anyhow;

use super::*;
use pfp_model::{Figures, Model};
use pfp_read::snapshot::{Open, PointFlag, PointState, Record, total};
use pfp_read::source::Selector;
use pfp_read::source::synthetic::Synthetic;
use pfp_read::waits::{PointReport, SampledStack};

/// A made-up process of this machine.
struct Here(Shared);

impl Source for Here {
    fn picture(&mut self) -> Result<Snapshot> {
        self.0.borrow_mut().poll()
    }

    fn act(&mut self, change: Change) -> Result<Acted> {
        self.0.borrow_mut().act(change)
    }
}

/// Made-up processes by their ids, which the test can change. Processes with odd ids run on this
/// machine, and the others on another machine. The first flag makes figures of the other machine
/// late.
#[derive(Clone, Default)]
struct Machines(
    Rc<RefCell<Vec<(u32, Shared)>>>,
    Rc<std::cell::Cell<bool>>,
    /// Whether processes of the other machine refuse all changes.
    Rc<std::cell::Cell<bool>>,
    /// Whether processes of the other machine have died.
    Rc<std::cell::Cell<bool>>,
);

type Shared = Rc<RefCell<Synthetic>>;

/// A process of the other machine; its figures are late while `is_late` is set.
struct Distant {
    made: Shared,
    is_late: Rc<std::cell::Cell<bool>>,
    refuses: Rc<std::cell::Cell<bool>>,
    has_died: Rc<std::cell::Cell<bool>>,
    last: Option<Snapshot>,
    requested: Vec<Change>,
}

impl Source for Distant {
    fn picture(&mut self) -> Result<Snapshot> {
        if self.is_late.get() {
            return self.last.clone().ok_or_else(|| anyhow!("expected a picture, found silence"));
        }
        let snapshot = self.made.borrow_mut().poll()?;
        Ok(self.last.insert(snapshot).clone())
    }

    fn act(&mut self, change: Change) -> Result<Acted> {
        if self.refuses.get() {
            bail!("the connection is late");
        }
        if self.is_late.get() {
            self.requested.push(change);
            return Ok(Acted::Requested);
        }
        self.made.borrow_mut().act(change)
    }

    fn answers(&mut self) -> Vec<ChangeAnswer> {
        if self.is_late.get() {
            return Vec::new();
        }
        let answer = |change| match self.made.borrow_mut().act(change) {
            Ok(Acted::Made(found)) => ChangeAnswer { change, result: Ok(found) },
            other => panic!("{other:?}"),
        };
        self.requested.drain(..).map(answer).collect()
    }

    fn has_died(&self) -> bool {
        self.has_died.get()
    }

    fn awaits(&mut self) -> bool {
        self.is_late.get()
    }

    fn is_coming(&self) -> bool {
        self.last.is_none() && !self.has_died.get()
    }

    fn add_records(&mut self, snapshot: &mut Snapshot) {
        let (lane, point) = (snapshot.lanes[0].id, snapshot.points[0].id);
        let [start, span, exclusive] = [5, 3, 2];
        snapshot.records.push(Record { lane, point, start, span, exclusive, depth: 0, context: 0 });
    }

    fn line(&self) -> Option<LineStatus> {
        let late = self.is_late.get().then_some(Duration::ZERO);
        Some(LineStatus { via: "far".into(), late, why: None, age: late.unwrap_or_default() })
    }
}

impl Machines {
    fn start(&self, pid: u32) -> Shared {
        let made = Rc::new(RefCell::new(Synthetic::new()));
        made.borrow_mut().snapshot_mut().process.pid = pid;
        made.borrow_mut().snapshot_mut().process.segment_id = pid.to_string();
        self.0.borrow_mut().push((pid, Rc::clone(&made)));
        made
    }

    fn group(&self, sum: bool) -> GroupSource {
        let group = ProcessGroup { members: Selector::All(String::new()), sum };
        GroupSource::new(group, Box::new(self.clone()), None).unwrap()
    }
}

impl Finder for Machines {
    fn discover(&mut self) -> Result<Discovery> {
        let candidate = |(pid, made): &(u32, Shared)| Candidate {
            pid: *pid,
            state: made.borrow_mut().snapshot_mut().process.state,
            segment_id: pid.to_string(),
            started_unix_ns: u64::from(*pid),
            ..Candidate::default()
        };
        let candidates = self.0.borrow().iter().map(candidate).collect();
        Ok(Discovery { candidates, ..Discovery::default() })
    }

    fn attach(&mut self, candidate: &Candidate) -> Result<Box<dyn Source>> {
        let all = self.0.borrow();
        let (_, made) = all.iter().find(|(pid, _)| *pid == candidate.pid).unwrap();
        let made = Rc::clone(made);
        if candidate.pid % 2 == 1 {
            return Ok(Box::new(Here(made)));
        }
        let (is_late, refuses) = (Rc::clone(&self.1), Rc::clone(&self.2));
        let has_died = Rc::clone(&self.3);
        Ok(Box::new(Distant {
            made,
            is_late,
            refuses,
            has_died,
            last: None,
            requested: Vec::new(),
        }))
    }
}

fn counts(snapshot: &Snapshot, name: &str) -> Vec<u64> {
    let points = snapshot.points.iter().filter(|point| point.name == name);
    points.map(|point| total(snapshot.cells_of(point.id)).count).collect()
}

#[test]
fn edges_and_open_regions_are_those_of_the_processes() {
    for sum in [false, true] {
        let machines = Machines::default();
        for pid in [7, 9] {
            let made = machines.start(pid);
            let open = |point| Open { point, start: 5, on_cpu: Some(3) };
            made.borrow_mut().snapshot_mut().lanes[1].open = vec![open(4), open(5)];
        }
        let mut group = machines.group(sum);
        let snapshot = group.poll().unwrap();
        assert!(snapshot.edges.is_sorted_by(|a, b| a.key() < b.key()));
        assert!(snapshot.edges.iter().any(|edge| edge.caller.is_some()));
        // Each cell's figures are the sums of its edges, and callers have the same names as before
        // the merge.
        let name = |id| snapshot.point(id).unwrap().name.as_str();
        for cell in &snapshot.cells {
            let own = cell.key();
            let own = snapshot.edges.iter().filter(|edge| (edge.point, edge.lane) == own);
            let own: Vec<_> = own.collect();
            assert_eq!(own.iter().map(|e| e.exclusive).sum::<u64>(), cell.stats.exclusive);
            let callers = own.iter().filter_map(|edge| edge.caller);
            for caller in callers {
                let expected =
                    if name(cell.point) == "io.crc" { "io.parse" } else { "lz.compress" };
                assert_eq!(name(caller), expected);
            }
        }
        let open: Vec<Vec<&str>> = snapshot
            .lanes
            .iter()
            .filter(|lane| !lane.open.is_empty())
            .map(|lane| lane.open.iter().map(|open| name(open.point)).collect())
            .collect();
        let stack = ["lz.compress", "lz.match_longest_in_the_whole_window"];
        assert_eq!(open, [stack, stack], "{sum}");
    }
}

/// The waits of two processes are one report. Each sampled stack counts in one picture.
#[test]
fn waits_are_merged_and_a_sampled_stack_counts_once() {
    let machines = Machines::default();
    let processes = [machines.start(7), machines.start(8)];
    let sample = |process: &Shared, number| {
        let point =
            PointReport { id: Some(1), name: "io.parse".into(), wall_s: 2.0, ..Default::default() };
        let stack = SampledStack { lane: 0, points: vec![1], reason: None, count: 3 };
        let report = WaitsReport {
            number,
            samples: 10,
            points: vec![point],
            stacks: Some(vec![stack]),
            ..WaitsReport::default()
        };
        process.borrow_mut().snapshot_mut().waits = Some(Arc::new(report));
    };
    processes.iter().for_each(|process| sample(process, 1));
    let mut group = machines.group(true);
    let mut poll = || group.poll().unwrap().waits.expect("they are sampled");
    let stacks = |report: &WaitsReport| report.stacks.as_ref().map(Vec::len);
    let report = poll();
    assert_eq!((report.samples, stacks(&report)), (20, Some(2)));
    let [point] = report.points.as_slice() else { panic!("{report:?}") };
    assert_eq!((point.name.as_str(), point.wall_s), ("io.parse", 4.0));
    assert!(report.is_same(&poll()));
    sample(&processes[0], 2);
    let next = poll();
    assert_eq!((stacks(&next), report.is_same(&next)), (Some(1), false));
    // The last report stays after the end of the processes.
    for process in &processes {
        process.borrow_mut().snapshot_mut().process.state = ProcessState::Crashed;
    }
    assert!(next.is_same(&poll()));
}

#[test]
fn the_last_figures_of_a_late_place_stay() {
    for sum in [false, true] {
        let machines = Machines::default();
        let (here, _far) = (machines.start(7), machines.start(8));
        let mut group = machines.group(sum);
        let before = group.poll().unwrap();
        machines.1.set(true);
        let late = group.poll().unwrap();
        let of = |snapshot: &Snapshot, process| -> Vec<_> {
            let lanes = snapshot.lanes.iter().filter(|lane| lane.process == Some(process));
            let lanes: Vec<u32> = lanes.map(|lane| lane.id).collect();
            let cells = snapshot.cells.iter().filter(|cell| lanes.contains(&cell.lane));
            cells.map(|cell| (cell.key(), cell.total())).collect()
        };
        assert_eq!(of(&late, 1), of(&before, 1), "sum {sum}: the place is late");
        assert_ne!(of(&late, 0), of(&before, 0), "sum {sum}: this machine is not");
        let now = here.borrow_mut().snapshot_mut().cells.len();
        assert_eq!(of(&late, 0).len(), now);
    }
}

#[test]
fn points_stand_side_by_side_or_add_up() {
    let machines = Machines::default();
    let (a, b) = (machines.start(7), machines.start(9));
    a.borrow_mut().poll().unwrap();
    let name = b.borrow_mut().snapshot_mut().points[1].name.clone();
    let apart = machines.group(false).poll().unwrap();
    let each = counts(&apart, &name);
    assert_eq!(each.len(), 2);
    assert_ne!(each[0], each[1], "they have not run as long");
    let process = |place: usize| apart.points.iter().find(|p| p.process == Some(place as u32));
    assert!(process(0).is_some() && process(1).is_some());
    assert_eq!(apart.process.members.iter().map(|m| m.pid).collect::<Vec<_>>(), [7, 9]);

    // The snapshots change with each poll, so the sum is compared with the snapshots of its own
    // members.
    let mut group = machines.group(true);
    let sum = group.poll().unwrap();
    let parts = group.members.iter().map(|member| counts(&member.last, &name)[0]);
    assert_eq!(counts(&sum, &name), [parts.sum::<u64>()]);
    let lanes: usize = group.members.iter().map(|member| member.last.lanes.len()).sum();
    assert_eq!(sum.lanes.len(), lanes, "each thread keeps its own");
    assert!(sum.cells.is_sorted_by(|a, b| a.key() < b.key()));
}

#[test]
fn changes_reach_the_right_process() {
    let machines = Machines::default();
    let (a, b) = (machines.start(7), machines.start(9));
    let state = |made: &Shared| made.borrow_mut().snapshot_mut().points[1].state;
    let fenced = |made: &Shared| made.borrow_mut().snapshot_mut().points[1].fenced;
    let own = a.borrow_mut().snapshot_mut().points[1].id;
    let mut group = machines.group(false);
    let snapshot = group.poll().unwrap();
    let of_b = snapshot.points.iter().find(|p| (p.process, p.number) == (Some(1), Some(own)));
    group.act(Change::Disable(of_b.unwrap().id)).unwrap();
    assert_eq!((state(&a), state(&b)), (PointState::On, PointState::Off));
    group.act(Change::SetFlag(of_b.unwrap().id, PointFlag::Fenced, true)).unwrap();
    assert_eq!((fenced(&a), fenced(&b)), (false, true));

    let mut group = machines.group(true);
    let snapshot = group.poll().unwrap();
    let both = snapshot.points.iter().find(|p| p.number == Some(own)).unwrap();
    assert_eq!(both.state, PointState::On, "one of them measures");
    group.act(Change::Disable(both.id)).unwrap();
    assert_eq!((state(&a), state(&b)), (PointState::Off, PointState::Off));
    assert!(both.fenced, "one of them is");
    group.act(Change::SetFlag(both.id, PointFlag::Fenced, false)).unwrap();
    assert_eq!((fenced(&a), fenced(&b)), (false, false));
}

/// A screen answers keys while it waits for the first figures. A command has nothing else to do.
#[test]
fn a_screen_waits_for_the_first_figures_of_late_places() {
    let machines = Machines::default();
    let _processes = [2, 4].map(|pid| machines.start(pid));
    machines.1.set(true);
    let late = |interval| {
        let group = ProcessGroup { members: Selector::All(String::new()), sum: false };
        GroupSource::new(group, Box::new(machines.clone()), interval)
    };
    let why = late(None).err().expect("nothing has arrived").to_string();
    assert!(why.contains("found 2 processes whose places are late"), "{why}");
    let mut group = late(Some(Duration::from_secs(1))).unwrap();
    assert!(group.is_coming() && group.awaits());
    let why = group.poll().unwrap_err().to_string();
    assert!(why.contains("found silence from 2 processes"), "{why}");
    machines.1.set(false);
    assert!(!group.awaits());
    assert_eq!(group.poll().unwrap().process.members.len(), 2);
    assert!(!group.is_coming());
    // If all of them end before that, nothing is shown.
    machines.1.set(true);
    let mut group = late(Some(Duration::from_secs(1))).unwrap();
    machines.3.set(true);
    let why = group.poll().unwrap_err().to_string();
    assert!(why.contains("the processes have ended"), "{why}");
}

/// Figures of a late process must not look like those of an idle process.
#[test]
fn a_late_process_has_no_rates_and_no_jump_on_return() {
    let machines = Machines::default();
    let _made = [7, 8].map(|pid| machines.start(pid));
    let (mut group, mut model) = (machines.group(false), Model::default());
    // Makes the processes late or not, and returns whether some of their points have rates.
    let mut look = |late: bool| {
        machines.1.set(late);
        std::thread::sleep(Duration::from_millis(2));
        let snapshot = group.poll().unwrap();
        let lates = [0, 1].map(|it| snapshot.process.members[it].late_since_unix_ns.is_some());
        let names: Vec<String> = snapshot.late_places().into_iter().map(|it| it.name).collect();
        model.fold(snapshot);
        let has_rates = [0, 1].map(|it| {
            let points = model.points().iter().filter(|point| point.point().process == Some(it));
            points.filter_map(Figures::rate).any(|rate| rate > 0.0)
        });
        (lates, has_rates, names.len())
    };
    look(false);
    assert_eq!(look(false), ([false, false], [true, true], 0));
    for _ in 0..2 {
        assert_eq!(look(true), ([false, true], [true, false], 1));
    }
    assert_eq!(look(false), ([false, false], [true, false], 0));
    assert_eq!(look(false), ([false, false], [true, true], 0));
}

/// If some processes of a sum cannot be changed, the message says how many.
#[test]
fn a_change_that_not_all_follow_says_how_many_did_not() {
    let machines = Machines::default();
    let [here, far] = [7, 8].map(|pid| machines.start(pid));
    let mut group = machines.group(true);
    let snapshot = group.poll().unwrap();
    let id = snapshot.points.iter().find(|point| point.state == PointState::On).unwrap().id;
    machines.2.set(true);
    let error = group.act(Change::Disable(id)).unwrap_err();
    assert!(Refusal::is_partly(&error), "{error:#}");
    assert_eq!(
        format!("{error:#}"),
        "1 of 2 processes did not follow (my_app[8]): the connection is late"
    );
    let state = |made: &Shared| made.borrow_mut().snapshot_mut().points[id as usize].state;
    assert_eq!((state(&here), state(&far)), (PointState::Off, PointState::On));

    // If only some of the processes were switched, the end of the session restores these processes.
    let mut session = pfp_read::session::Session::new(Box::new(group), false);
    assert!(session.switch(id, PointState::Off, true).is_err());
    assert_eq!(state(&here), PointState::On);
    drop(session);
    assert_eq!(state(&here), PointState::Off);

    // An ended process is not expected to follow.
    let mut group = machines.group(true);
    group.poll().unwrap();
    far.borrow_mut().snapshot_mut().process.state = ProcessState::Exited;
    group.poll().unwrap();
    group.act(Change::Enable(id)).unwrap();
    here.borrow_mut().snapshot_mut().process.state = ProcessState::Exited;
    group.poll().unwrap();
    assert_eq!(group.act(Change::Enable(id)).unwrap_err().to_string(), ENDED);
}

/// The group answers a change when all its processes have answered, or have ended.
#[test]
fn a_change_is_answered_after_the_last_process_has_answered() {
    for ends in [false, true] {
        let machines = Machines::default();
        let [here, far] = [7, 8].map(|pid| machines.start(pid));
        let mut group = machines.group(true);
        let snapshot = group.poll().unwrap();
        let id = snapshot.points.iter().find(|point| point.state == PointState::On).unwrap().id;
        let states = || {
            let state = |made: &Shared| made.borrow_mut().snapshot_mut().points[id as usize].state;
            [state(&here), state(&far)]
        };
        machines.1.set(true);
        assert_eq!(group.act(Change::Disable(id)).unwrap(), Acted::Requested);
        assert!(group.answers().is_empty());
        use PointState::{Off, On};
        assert_eq!(states(), [Off, On]);
        if ends {
            machines.3.set(true);
            group.poll().unwrap();
        } else {
            machines.1.set(false);
        }
        let answers = group.answers();
        let [ChangeAnswer { change: Change::Disable(of), result: Ok(Some(On)) }] = answers[..]
        else {
            panic!("{answers:?}");
        };
        assert_eq!((of, states()), (id, [Off, if ends { On } else { Off }]));
        assert!(group.answers().is_empty());
    }
}

#[test]
fn joining_and_ending_processes_cause_no_jump() {
    let machines = Machines::default();
    let a = machines.start(7);
    for sum in [false, true] {
        let (mut group, mut model) = (machines.group(sum), Model::default());
        for _ in 0..2 {
            model.fold(group.poll().unwrap());
        }
        let ids: Vec<u32> = model.points().iter().map(|figures| figures.id()).collect();
        machines.start(9);
        model.fold(group.poll().unwrap());
        let of_new = |id: u32| sum || model.point(id).unwrap().point().process == Some(1);
        for figures in model.points().iter().filter(|figures| of_new(figures.id())) {
            assert_eq!(figures.rate(), None, "sum {sum}: {}", figures.name());
        }
        assert!(ids.iter().all(|id| model.point(*id).is_some()), "ids stay");
        a.borrow_mut().snapshot_mut().process.state = ProcessState::Exited;
        let ended = group.poll().unwrap();
        assert_eq!(ended.process.state, ProcessState::Running, "others may come");
        assert_eq!(ended.process.members[0].state, ProcessState::Exited);
        a.borrow_mut().snapshot_mut().process.state = ProcessState::Running;
        machines.0.borrow_mut().pop();
    }
}

/// The records of a process keep their start times while its place is late and after the process
/// has ended.
#[test]
fn records_stay_where_they_were() {
    let machines = Machines::default();
    machines.start(3);
    let mut group = machines.group(false);
    let began = group.poll().unwrap().elapsed_ticks;
    let far = machines.start(4);
    let mut starts = || {
        let mut whole = group.poll().unwrap();
        group.add_records(&mut whole);
        whole.records.iter().map(|record| record.start).collect::<Vec<_>>()
    };
    let first = starts();
    assert!(first.len() == 1 && first[0] <= began + 5, "{first:?}");
    machines.1.set(true);
    assert_eq!([starts(), starts()], [first.clone(), first.clone()], "late");
    machines.1.set(false);
    far.borrow_mut().snapshot_mut().process.state = ProcessState::Exited;
    machines.3.set(true);
    assert_eq!([starts(), starts()], [first.clone(), first], "ended");
}

/// The figures of a sum are as old as its oldest process, until the point was reset in all
/// processes. If processes are shown side by side, each point is as old as its own figures.
#[test]
fn figures_began_with_their_processes_or_at_a_reset() {
    let machines = Machines::default();
    let (old, young) = (machines.start(7), machines.start(9));
    // The older process has been polled six times before the younger one is polled at all.
    (0..6).for_each(|_| drop(old.borrow_mut().poll().unwrap()));
    let rate = pfp_read::source::synthetic::TICKS_PER_SECOND;
    let age = |made: &Shared| made.borrow_mut().snapshot_mut().elapsed_ticks;
    for sum in [false, true] {
        let mut group = machines.group(sum);
        let first = group.poll().unwrap();
        let apart = age(&old) - age(&young);
        let mut model = Model::default();
        model.fold(first.clone());
        for point in &first.points {
            let is_young = point.process == Some(1);
            let expected = if is_young { first.elapsed_ticks - age(&young) } else { 0 };
            let begin = point.begin_ticks().unwrap();
            assert!(begin.abs_diff(expected) < rate / 2, "sum {sum}: {begin} {apart}");
            let figures = model.point(point.id).unwrap();
            let ticks = (first.elapsed_ticks - begin) as f64;
            let load = figures.total().exclusive as f64 / ticks;
            assert!((figures.load().unwrap() - load).abs() < 1e-9, "sum {sum}");
        }
        let name = &first.points[1].name;
        for point in first.points.iter().filter(|point| point.name == *name) {
            group.act(Change::Reset(point.id)).unwrap();
        }
        let reset_at = [&old, &young].map(age);
        let second = group.poll().unwrap();
        let mut model = Model::default();
        model.fold(second.clone());
        for point in second.points.iter().filter(|point| point.name == *name) {
            let begin = point.begin_ticks().unwrap();
            // The moment of each reset, as an age of the oldest process.
            let expected = if point.process == Some(1) { reset_at[1] + apart } else { reset_at[0] };
            assert!(begin.abs_diff(expected) < rate / 2, "sum {sum}: {begin} {expected}");
            assert!(model.point(point.id).unwrap().load().is_some(), "sum {sum}");
        }
        // The moment of one reset is unknown.
        young.borrow_mut().snapshot_mut().points[1].since_ticks = None;
        let third = group.poll().unwrap();
        let unknown = third.points.iter().filter(|point| point.begin_ticks().is_none());
        let names: Vec<&String> = unknown.map(|point| &point.name).collect();
        assert_eq!(names, [name], "sum {sum}");
        for made in [&old, &young] {
            let mut made = made.borrow_mut();
            let point = &mut made.snapshot_mut().points[1];
            (point.resets, point.since_ticks) = (0, None);
        }
    }
}

#[test]
fn rows_of_ended_processes_expire_except_the_last_that_died() {
    let machines = Machines::default();
    let all: Vec<Shared> = (1..=7).map(|pid| machines.start(pid)).collect();
    let end = |place: usize, state| {
        all[place].borrow_mut().snapshot_mut().process.state = state;
    };
    let pids = |group: &mut GroupSource, after: Instant| {
        group.leave(after);
        let whole = group.merge();
        assert!(
            whole
                .points
                .iter()
                .all(|point| { (point.process.unwrap() as usize) < whole.process.members.len() })
        );
        whole.process.members.iter().map(|member| member.pid).collect::<Vec<_>>()
    };
    let mut group = machines.group(false);
    let before = group.poll().unwrap();
    let id_of_last = before.points.last().unwrap().id;
    end(0, ProcessState::Exited);
    // The processes die one after the other.
    for place in 1..=4 {
        end(place, ProcessState::Crashed);
        group.poll().unwrap();
    }
    let now = Instant::now();
    assert_eq!(pids(&mut group, now), [1, 3, 4, 5, 6, 7]);
    assert_eq!(pids(&mut group, now + STAYS), [3, 4, 5, 6, 7]);
    let after = group.merge();
    let last = after.points.last().unwrap();
    assert_eq!((last.id, last.process), (id_of_last, Some(4)), "ids stay, places move up");
    group.act(Change::Disable(id_of_last)).unwrap();
    let changed = all[6].borrow_mut().snapshot_mut().points.last().unwrap().state;
    assert_eq!(changed, PointState::Off);

    // Once no process runs, the remaining rows stay readable.
    for place in 5..=6 {
        end(place, ProcessState::Exited);
    }
    group.poll().unwrap();
    assert_eq!(pids(&mut group, now + STAYS * 100), [3, 4, 5, 6, 7]);
}

/// When a late process returns, its figures are divided by the whole time that it was late, and not
/// by the time between two polls.
#[test]
fn the_rates_of_a_sum_are_those_of_its_parts_each_over_its_own_time() {
    let machines = Machines::default();
    let [_, far] = [7, 8].map(|pid| machines.start(pid));
    let (mut group, mut model) = (machines.group(true), Model::new(0.0));
    // A second passes. The remote process continues while it is late.
    let mut look = |late: bool| {
        machines.1.set(late);
        if late {
            far.borrow_mut().poll().unwrap();
        }
        std::thread::sleep(Duration::from_millis(2));
        model.fold(group.poll().unwrap());
        let read = model.points().iter().find(|it| it.name() == "io.read").unwrap();
        [read.rate(), read.load()].map(|figure| figure.expect("it goes on"))
    };
    look(false);
    let most = (0..16)
        .map(|_| look(false))
        .fold([0.0, 0.0], |[rate, load], now| [f64::max(rate, now[0]), f64::max(load, now[1])]);
    for late in [true, true, true, true, true, true, false, false] {
        let [rate, load] = look(late);
        assert!(rate > 0.0 && rate <= 1.001 * most[0], "{rate} {most:?}");
        assert!(load > 0.0 && load <= 1.2 * most[1], "{load} {most:?}");
    }
}

/// The group's clock has the rate of its first process. When that process leaves, the group keeps
/// its age in seconds and its start.
#[test]
fn the_clock_goes_on_by_its_rate_when_the_first_process_leaves() {
    let machines = Machines::default();
    let made = [7, 9].map(|pid| machines.start(pid));
    made[0].borrow_mut().snapshot_mut().process.started_unix_ns = 1_000;
    made[1].borrow_mut().snapshot_mut().process.started_unix_ns = 2_000;
    made[1].borrow_mut().snapshot_mut().clock.ticks_per_second *= 1.01;
    let mut group = machines.group(false);
    let start = Instant::now();
    let age = |snapshot: &Snapshot| snapshot.elapsed_ticks as f64 / snapshot.clock.ticks_per_second;
    let before = group.poll().unwrap();
    made[0].borrow_mut().snapshot_mut().process.state = ProcessState::Exited;
    group.poll().unwrap();
    group.members[0].ended = Instant::now().checked_sub(STAYS);
    let after = group.poll().unwrap();
    assert_eq!((before.process.members.len(), after.process.members.len()), (2, 1));
    assert_eq!(after.clock.ticks_per_second, before.clock.ticks_per_second);
    assert_eq!(after.process.started_unix_ns, 1_000);
    let grown = age(&after) - age(&before);
    assert!((0.0..=start.elapsed().as_secs_f64()).contains(&grown), "{grown}");

    // A refined rate applies from that poll on, and does not change the time before it.
    made[1].borrow_mut().snapshot_mut().clock.ticks_per_second *= 1.01;
    let mut alone = machines.group(false);
    let first = alone.poll().unwrap();
    made[1].borrow_mut().snapshot_mut().clock.ticks_per_second *= 1.01;
    let refined = alone.poll().unwrap();
    let ticks = refined.elapsed_ticks - first.elapsed_ticks;
    let most = start.elapsed().as_secs_f64() * refined.clock.ticks_per_second;
    assert!((ticks as f64) <= most, "{ticks} of {most}");
}

#[test]
fn a_process_that_has_died_is_held_once_and_keeps_its_figures() {
    for sum in [false, true] {
        let machines = Machines::default();
        machines.start(7);
        machines.start(8);
        let mut group = machines.group(sum);
        let figures = |snapshot: &Snapshot| {
            let lanes = snapshot.lanes.iter().filter(|lane| lane.process == Some(1));
            let lanes: Vec<u32> = lanes.map(|lane| lane.id).collect();
            let cells = snapshot.cells.iter().filter(|cell| lanes.contains(&cell.lane));
            let name = |id| snapshot.point(id).unwrap().name.clone();
            let cells: Vec<_> = cells
                .map(|cell| (name(cell.point), cell.lane, cell.stats.count, cell.histogram.clone()))
                .collect();
            let edges = snapshot.edges.iter().filter(|edge| lanes.contains(&edge.lane));
            let edges: Vec<_> = edges.map(|edge| (edge.key(), edge.count)).collect();
            (cells, edges)
        };
        group.poll().unwrap();
        machines.3.set(true);
        let last = group.poll().unwrap();
        let kept = group.poll().unwrap();
        assert!(group.members[1].is_kept && !figures(&last).0.is_empty());
        // The other process continues.
        assert_eq!(figures(&group.poll().unwrap()), figures(&kept), "{sum}");
        for cell in &group.members[1].last.cells {
            assert!(kept.cells.iter().any(|passed| Arc::ptr_eq(passed, cell)), "{sum}");
        }
        let mut whole = kept.clone();
        group.add_records(&mut whole);
        let names = |it: &Snapshot| it.points.iter().map(|p| p.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&whole), names(&last), "{sum}");
        assert!(whole.records.iter().any(|record| whole.point(record.point).is_some()));
        // A process that comes later gets new ids.
        machines.start(9);
        let later = group.poll().unwrap();
        assert_eq!(figures(&later), figures(&kept), "{sum}");
        assert_eq!(later.points.len(), if sum { 9 } else { 27 });
    }
}

/// A sum over a thousand short processes has few members, exact figures, and no jump in them.
#[test]
fn many_ended_processes_are_folded_into_one() {
    const NAME: &str = "io.parse";
    let machines = Machines::default();
    machines.start(1);
    let mut group = machines.group(true);
    let mut model = Model::new(0.0);
    model.fold(group.poll().unwrap());
    for batch in 0..20 {
        let pids = (0..50).map(|number| 2 * (batch * 50 + number + 1));
        let started: Vec<Shared> = pids.map(|pid| machines.start(pid)).collect();
        group.poll().unwrap();
        for made in started {
            made.borrow_mut().snapshot_mut().process.state = ProcessState::Exited;
        }
        let ended = group.poll().unwrap();
        let (before, then) = (counts(&ended, NAME), ended.elapsed_ticks);
        model.fold(ended);
        // Now their sources are dropped, and some are folded.
        machines.3.set(true);
        let after = group.poll().unwrap();
        machines.3.set(false);
        assert_eq!(after.process.name, format!("sum of {} processes", 51 + batch * 50));
        assert!(after.process.members.len() <= 1 + 1 + 256, "{}", after.process.members.len());
        let of_point = |made: &Shared| counts(made.borrow_mut().snapshot_mut(), NAME)[0];
        let all: u64 = machines.0.borrow().iter().map(|(_, made)| of_point(made)).sum();
        assert_eq!(counts(&after, NAME), [all]);
        assert!(after.cells.is_sorted_by(|a, b| a.key() < b.key()));
        assert!(after.edges.is_sorted_by(|a, b| a.key() < b.key()));
        let grown = all - before[0];
        let seconds = (after.elapsed_ticks - then) as f64 / after.clock.ticks_per_second;
        model.fold(after);
        let figures = model.points().iter().find(|it| it.name() == NAME).unwrap();
        let counted = figures.rate().map_or(0.0, |rate| rate * seconds);
        assert!(counted <= 1.1 * grown as f64, "{counted} for {grown}");
    }
    assert!(group.members.len() <= 258);
}
