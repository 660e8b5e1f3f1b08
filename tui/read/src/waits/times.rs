//! Where the time of a process went: run, queued, or waited for which reason, by point and by lock.
//!
//! [`WaitTimes`] adds up samples of a [`Sampler`](super::Sampler). For each thread, the time between two
//! samples is divided exactly, by the kernel's counts:
//!
//! ```text
//! sample a             sample b
//!   |----- run ---- queued -- waited --|      run + queued + waited = b - a
//! ```
//!
//! Only the attribution is sampled. Run and queued time belongs to the points in which a sample found
//! the thread not waiting. Waited time belongs to the points and reasons of the samples that found it
//! waiting. If the thread was not on a CPU in between, all of it belongs to one wait. Time that
//! fits neither sample, such as of waits that begin and end between two samples, is divided in
//! proportion to the thread's other times of its kind. The waits of a thread that was never seen to
//! wait are shown as short waits without a reason.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::totals::Totals;
use super::{Kind, Reason, ThreadSample, Wait};

/// Where a thread spent time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// In a point, or outside all points.
    Point(Option<u32>),
    /// In unknown points: the thread did something else at both samples.
    Unseen,
}

/// A thread's time in one place, nanoseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    pub(super) run: u64,
    pub(super) queued: u64,
    pub(super) waited: HashMap<Reason, u64>,
    /// Waits without a known reason.
    pub(super) short: u64,
    /// Run and queued time that was taken for waits before the kernel counted it.
    pub(super) late: [u64; 2],
    pub(super) longest: HashMap<Reason, u64>,
}

impl Times {
    fn busy(&self) -> u64 {
        self.run + self.queued
    }

    fn all_waited(&self) -> u64 {
        self.waited.values().sum()
    }
}

/// The waits for one lock, or for something else that has an address.
#[derive(Clone, Debug, Default)]
pub(super) struct LockTimes {
    /// Number of waits that were seen.
    pub(super) waits: u64,
    pub(super) longest: u64,
    /// Nanoseconds by the waiting thread and its point.
    pub(super) waiters: HashMap<(u32, Option<u32>), u64>,
    /// How often each thread was the owner, with the point that it was in.
    pub(super) owners: HashMap<(u32, Option<u32>), u64>,
}

/// A thread that is sampled.
#[derive(Clone, Debug)]
pub(super) struct Thread {
    pub(super) sample: ThreadSample,
    pub(super) point: Option<u32>,
    /// When the present wait began, as far as known.
    pub(super) since: Instant,
    /// Its first sample.
    begun: Instant,
    /// Whether the thread was in the same wait at the sample before the last, and not on a CPU in
    /// between.
    is_unbroken: bool,
    /// Time on a CPU or in the run queue that the kernel has not counted yet. Nanoseconds.
    pub(super) uncounted: Vec<(Place, u64)>,
    /// Times on a CPU and in the run queue that the kernel has counted and that are in no interval
    /// yet. Nanoseconds.
    pub(super) left: [u64; 2],
    /// Time that was taken for waits, which is all that `left` can correct. Nanoseconds.
    taken: u64,
}

/// The times of some period.
#[derive(Clone, Debug, Default)]
pub(super) struct Period {
    first: Option<Instant>,
    last: Option<Instant>,
    pub(super) samples: u64,
    pub(super) times: HashMap<(u32, Place), Times>,
    pub(super) locks: HashMap<(Reason, u64), LockTimes>,
}

impl Period {
    fn lock(&mut self, wait: &Wait) -> &mut LockTimes {
        self.locks.entry((wait.reason.as_ref().clone(), wait.address)).or_default()
    }

    pub(super) fn times(&mut self, tid: u32, place: Place) -> &mut Times {
        self.times.entry((tid, place)).or_default()
    }

    fn add_wait(&mut self, tid: u32, point: Option<u32>, wait: &Wait, waited: u64) {
        let reason = wait.reason.as_ref().clone();
        *self.times(tid, Place::Point(point)).waited.entry(reason).or_default() += waited;
        if wait.has_address() {
            *self.lock(wait).waiters.entry((tid, point)).or_default() += waited;
        }
    }

    /// Divides busy time by what the kernel has counted: time on a CPU, and in the run queue. Both
    /// are divided among the places alike. Returns the counts that exceed the busy time.
    fn settle(&mut self, tid: u32, busy: &mut Vec<(Place, u64)>, counted: [u64; 2]) -> [u64; 2] {
        let all_busy: u64 = busy.iter().map(|(_, busy)| busy).sum();
        let all_counted = counted[0].saturating_add(counted[1]);
        let settled = all_busy.min(all_counted);
        if settled == 0 {
            return counted;
        }
        let mut left = counted;
        for (place, busy) in busy.iter_mut() {
            let settled = part(*busy, settled, all_busy);
            let run = part(settled, counted[0], all_counted).min(left[0]);
            let queued = (settled - run).min(left[1]);
            let times = self.times(tid, *place);
            times.run += run;
            times.queued += queued;
            *busy -= run + queued;
            left = [left[0] - run, left[1] - queued];
        }
        busy.retain(|(_, busy)| *busy > 0);
        left
    }

    /// Takes busy time beyond `most` for queued time. After the kernel has counted a run, it will
    /// count no older time: interrupts or another virtual machine had the CPU then.
    fn give_up(&mut self, tid: u32, busy: &mut [(Place, u64)], most: u64) {
        let all: u64 = busy.iter().map(|(_, busy)| busy).sum();
        let mut more = all.saturating_sub(most);
        for (place, busy) in busy {
            let given_up = more.min(*busy);
            self.times(tid, *place).queued += given_up;
            (*busy, more) = (*busy - given_up, more - given_up);
        }
    }

    /// Divides the times in [`Place::Unseen`] among the thread's other times. `point` returns the
    /// present point of a thread, which gets them if the thread has no other times.
    pub(super) fn divide_unseen(&mut self, point: impl Fn(u32) -> Option<u32>) {
        let unseen = self.times.extract_if(|key, _| key.1 == Place::Unseen);
        let unseen: Vec<(u32, Times)> = unseen.map(|((tid, _), times)| (tid, times)).collect();
        let others: HashSet<u32> = self.times.keys().map(|key| key.0).collect();
        for (tid, _) in unseen.iter().filter(|(tid, _)| !others.contains(tid)) {
            self.times(*tid, Place::Point(point(*tid)));
        }
        let mut by_thread: HashMap<u32, Vec<&mut Times>> = HashMap::new();
        for (&(tid, _), times) in &mut self.times {
            by_thread.entry(tid).or_default().push(times);
        }
        for (tid, unseen) in unseen {
            let others = by_thread.entry(tid).or_default();
            let busy: u64 = others.iter().map(|times| times.busy()).sum();
            let waited: u64 = others.iter().map(|times| times.all_waited()).sum();
            let late = unseen.late[0] + unseen.late[1];
            let moved = late.min(waited + unseen.short);
            let [late_run, late_queued] = unseen.late.map(|ns| part(ns, moved, late.max(1)));
            let (run, queued) = (unseen.run + late_run, unseen.queued + late_queued);
            let waits = waited + unseen.short - moved;
            let number = others.len() as u64;
            for times in others {
                let (own_busy, own_waited) = (times.busy(), times.all_waited());
                let (of, all) = match (busy, waited) {
                    (0, 0) => (1, number),
                    (0, _) => (own_waited, waited),
                    _ => (own_busy, busy),
                };
                times.run += part(run, of, all);
                times.queued += part(queued, of, all);
                match waited {
                    0 => times.short += part(waits, of, all),
                    _ => times.waited.values_mut().for_each(|ns| *ns = part(waits, *ns, waited)),
                }
            }
        }
    }

    /// Adds the times of a later period.
    pub(super) fn extend(&mut self, later: &Self) {
        self.first = self.first.or(later.first);
        self.last = later.last.or(self.last);
        self.samples += later.samples;
        for (&(tid, place), more) in &later.times {
            let times = self.times(tid, place);
            times.run += more.run;
            times.queued += more.queued;
            times.short += more.short;
            add_each(&mut times.waited, &more.waited, |a, b| a + b);
            add_each(&mut times.longest, &more.longest, u64::max);
        }
        for (key, more) in &later.locks {
            let lock = self.locks.entry(key.clone()).or_default();
            lock.waits += more.waits;
            lock.longest = lock.longest.max(more.longest);
            add_each(&mut lock.waiters, &more.waiters, |a, b| a + b);
            add_each(&mut lock.owners, &more.owners, |a, b| a + b);
        }
    }

    pub(super) fn seconds(&self) -> f64 {
        let (Some(first), Some(last)) = (self.first, self.last) else { return 0.0 };
        last.duration_since(first).as_secs_f64()
    }
}

/// `of` of the `all` parts of a whole.
fn part(whole: u64, of: u64, all: u64) -> u64 {
    (u128::from(whole) * u128::from(of) / u128::from(all)) as u64
}

fn add_each<K: Clone + Eq + Hash>(
    all: &mut HashMap<K, u64>,
    more: &HashMap<K, u64>,
    sum: fn(u64, u64) -> u64,
) {
    for (key, more) in more {
        let number = all.entry(key.clone()).or_default();
        *number = sum(*number, *more);
    }
}

/// The times of a process, from samples of its threads.
#[derive(Clone, Debug, Default)]
pub(super) struct WaitTimes {
    /// The end of the first sample.
    started: Option<Instant>,
    pub(super) threads: HashMap<u32, Thread>,
    /// The present period.
    pub(super) now: Period,
    /// The periods before it.
    pub(super) before: VecDeque<Period>,
    /// The waits since the first sample.
    pub(super) totals: Totals,
}

impl WaitTimes {
    /// Begins another period, and drops all but the last `kept` earlier ones.
    pub(super) fn begin_period(&mut self, kept: usize) {
        let next = Period { first: self.now.last, last: self.now.last, ..Period::default() };
        self.before.push_back(std::mem::replace(&mut self.now, next));
        while self.before.len() > kept
            && let Some(mut period) = self.before.pop_front()
        {
            period.divide_unseen(|tid| self.threads.get(&tid)?.point);
            self.totals.add(&period);
        }
    }

    /// Adds one sample of all threads. `point` returns the innermost open point of a thread.
    pub(super) fn add(&mut self, samples: &[ThreadSample], point: impl Fn(u32) -> Option<u32>) {
        self.now.samples += 1;
        for sample in samples {
            self.now.first.get_or_insert(sample.at);
            self.now.last = Some(sample.at);
            let point = point(sample.tid);
            let next = match self.threads.remove(&sample.tid) {
                Some(before) => self.add_interval(&before, sample, point),
                None => self.begin(sample, point),
            };
            self.threads.insert(sample.tid, next);
        }
        // A thread that has ended has no sample any more, and nothing more will be counted.
        let there: HashSet<u32> = samples.iter().map(|sample| sample.tid).collect();
        for (tid, ended) in self.threads.extract_if(|tid, _| !there.contains(tid)) {
            for (place, busy) in ended.uncounted {
                self.now.times(tid, place).run += busy;
            }
        }
        self.started = self.started.or(self.now.last);
        let waits = samples.iter().filter_map(|sample| sample.wait.as_ref());
        for wait in waits.filter(|wait| wait.has_address()) {
            let Some(owner) = wait.owner else { continue };
            let place = self.threads.get(&owner).and_then(|thread| thread.point);
            *self.now.lock(wait).owners.entry((owner, place)).or_default() += 1;
        }
    }

    /// Time from the first sample to the last.
    pub(super) fn lasted(&self) -> Duration {
        let (first, last) = (self.started, self.now.last);
        first.zip(last).map_or(Duration::ZERO, |(first, last)| last.duration_since(first))
    }

    /// Begins with a thread that had no sample before.
    fn begin(&mut self, sample: &ThreadSample, point: Option<u32>) -> Thread {
        if let Some(wait) = sample.wait.as_ref().filter(|wait| wait.has_address()) {
            self.now.lock(wait).waits += 1;
        }
        let (sample, since) = (sample.clone(), sample.at);
        Thread {
            sample,
            point,
            since,
            begun: since,
            is_unbroken: false,
            uncounted: Vec::new(),
            left: [0; 2],
            taken: 0,
        }
    }

    /// Divides the time between two samples of a thread.
    fn add_interval(
        &mut self,
        before: &Thread,
        sample: &ThreadSample,
        point: Option<u32>,
    ) -> Thread {
        let passed = nanoseconds(before.sample.at, sample.at);
        let more =
            |count: fn(&ThreadSample) -> u64| count(sample).saturating_sub(count(&before.sample));
        let is_unbroken = before.sample.runs == sample.runs;
        let (old, new) = (before.sample.wait.as_ref(), sample.wait.as_ref());
        // The kernel counts the current run late, and a time in the run queue when it ends. A thread
        // that does not wait, and was not put on a CPU in between, has not waited in between. If it
        // waited before, its wait may have ended at any time in between.
        let (ran, queued) = (more(|it| it.run_ns), more(|it| it.queued_ns));
        let counted = [before.left[0].saturating_add(ran), before.left[1].saturating_add(queued)];
        let already: u64 = before.uncounted.iter().map(|(_, busy)| busy).sum();
        let least = match (old, new) {
            (None, None) if is_unbroken => passed,
            (Some(_), None) if is_unbroken => passed / 2,
            _ => 0,
        };
        let busy =
            counted[0].saturating_add(counted[1]).saturating_sub(already).clamp(least, passed);
        let waited = passed - busy;

        let tid = sample.tid;
        let [first, second] = [before.point, point].map(Place::Point);
        let places = match (old, new) {
            (None, None) => [first, second],
            (None, Some(_)) => [first; 2],
            (Some(_), None) => [second; 2],
            (Some(_), Some(_)) => [Place::Unseen; 2],
        };
        let mut uncounted = before.uncounted.clone();
        for (place, busy) in places.into_iter().zip(halves_of(busy)) {
            match uncounted.iter_mut().find(|(other, _)| *other == place) {
                Some((_, so_far)) => *so_far += busy,
                None => uncounted.push((place, busy)),
            }
        }
        let left = self.now.settle(tid, &mut uncounted, counted);
        if ran > 0 {
            self.now.give_up(tid, &mut uncounted, passed);
        }
        let taken = before.taken.saturating_add(waited);
        let run = left[0].min(taken);
        let left = [run, left[1].min(taken - run)];
        // A lock may have another owner now. A thread that wakes while it is sampled has run since
        // the kernel's count was read, so it may be in another wait.
        let what = |wait: &Wait| (Rc::clone(&wait.reason), wait.address);
        let continues = is_unbroken && old.is_some() && old.map(what) == new.map(what);
        let since = if continues { before.since } else { earlier(sample.at, waited) };
        match (old, new) {
            (_, Some(wait)) if continues => self.now.add_wait(tid, point, wait, waited),
            (Some(old), Some(new)) => {
                let [first, second] = halves_of(waited);
                self.now.add_wait(tid, before.point, old, first);
                self.now.add_wait(tid, point, new, second);
            }
            (Some(wait), None) => self.now.add_wait(tid, before.point, wait, waited),
            (None, Some(wait)) => self.now.add_wait(tid, point, wait, waited),
            (None, None) if waited > 0 => self.now.times(tid, Place::Unseen).short += waited,
            (None, None) => {}
        }
        if let Some(wait) = new {
            let length = nanoseconds(since, sample.at);
            let reason = wait.reason.as_ref().clone();
            let longest =
                self.now.times(tid, Place::Point(point)).longest.entry(reason).or_default();
            *longest = length.max(*longest);
            if wait.has_address() {
                let lock = self.now.lock(wait);
                lock.waits += u64::from(!continues);
                lock.longest = lock.longest.max(length);
            }
        }
        let is_unbroken = is_unbroken && old == new;
        let (sample, begun) = (sample.clone(), before.begun);
        Thread { sample, point, since, begun, is_unbroken, uncounted, left, taken }
    }

    /// The threads that have waited for one lock in all samples, without those in these cycles.
    pub(super) fn stuck(&self, cycles: &[Vec<u32>]) -> Vec<u32> {
        let in_cycles: HashSet<u32> = cycles.iter().flatten().copied().collect();
        let is_stuck = |thread: &Thread| {
            let is_for_lock = |wait: &Wait| wait.reason.kind == Kind::Lock && !wait.is_timed;
            thread.sample.wait.as_ref().is_some_and(is_for_lock)
                && thread.is_unbroken
                && thread.since <= thread.begun
                && self.started.is_some_and(|started| thread.begun <= started)
        };
        let stuck = self.threads.iter().filter(|(_, thread)| is_stuck(thread));
        let stuck = stuck.map(|(tid, _)| *tid).filter(|tid| !in_cycles.contains(tid));
        let mut stuck: Vec<u32> = stuck.collect();
        stuck.sort_unstable();
        stuck
    }

    /// The cycles of threads of which each waits for the next. Each thread of a cycle was in the
    /// same wait at the last two samples, for a lock with the same owner, and not on a CPU in
    /// between. So none of them can have released anything: the threads are in a deadlock. Each
    /// cycle begins with its smallest thread id.
    pub(super) fn cycles(&self) -> Vec<Vec<u32>> {
        let owner = |tid: u32| {
            let thread = self.threads.get(&tid).filter(|thread| thread.is_unbroken)?;
            let wait = thread.sample.wait.as_ref().filter(|wait| !wait.is_timed)?;
            wait.owner.filter(|owner| *owner != tid)
        };
        let mut cycles: Vec<Vec<u32>> = Vec::new();
        let mut ids: Vec<u32> = self.threads.keys().copied().collect();
        ids.sort_unstable();
        // The first thread of the path on which each thread was met.
        let mut met: HashMap<u32, u32> = HashMap::new();
        for first in ids {
            let (mut path, mut next) = (Vec::new(), Some(first));
            while let Some(tid) = next.filter(|tid| !met.contains_key(tid)) {
                met.insert(tid, first);
                path.push(tid);
                next = owner(tid);
            }
            // The path has met itself, or it leads to an earlier one or to a thread that runs.
            let Some(back) = next.filter(|tid| met.get(tid) == Some(&first)) else { continue };
            let mut cycle = path.split_off(path.iter().position(|tid| *tid == back).unwrap_or(0));
            let least = (0..cycle.len()).min_by_key(|at| cycle[*at]).unwrap_or(0);
            cycle.rotate_left(least);
            cycles.push(cycle);
        }
        cycles.sort_unstable();
        cycles
    }
}

pub(super) fn nanoseconds(from: Instant, until: Instant) -> u64 {
    u64::try_from(until.saturating_duration_since(from).as_nanos()).unwrap_or(u64::MAX)
}

/// The moment some nanoseconds before another.
fn earlier(at: Instant, nanoseconds: u64) -> Instant {
    at.checked_sub(Duration::from_nanos(nanoseconds)).unwrap_or(at)
}

fn halves_of(number: u64) -> [u64; 2] {
    [number / 2, number - number / 2]
}

#[cfg(test)]
mod tests {
    use super::super::words::{RUNNING, held_up, verdict};
    use super::*;

    /// A sample of a thread after `ms` milliseconds, with its counts in milliseconds.
    fn sample(
        start: Instant,
        tid: u32,
        ms: u64,
        [run, queued, runs]: [u64; 3],
        wait: Option<Wait>,
    ) -> ThreadSample {
        let at = start + Duration::from_millis(ms);
        let [run_ns, queued_ns] = [run, queued].map(|ms| ms * 1_000_000);
        ThreadSample { tid, id_inside: tid, at, run_ns, queued_ns, runs, wait }
    }

    fn lock(name: &str, address: u64, owner: Option<u32>) -> Option<Wait> {
        let reason = Rc::new(Reason { kind: Kind::Lock, detail: name.into() });
        Some(Wait { reason, address, owner, is_timed: false })
    }

    fn name(point: u32) -> String {
        format!("p{point}")
    }

    #[test]
    fn parts_add_up_to_the_time_that_passed() {
        let start = Instant::now();
        let mut times = WaitTimes::default();
        let at = |ms, counts, wait| [sample(start, 1, ms, counts, wait)];
        let jobs = || lock("JOBS", 16, None);
        times.add(&at(0, [0, 0, 1], None), |_| Some(7));
        times.add(&at(100, [20, 10, 3], jobs()), |_| Some(7));
        times.add(&at(200, [20, 10, 3], jobs()), |_| Some(7));
        times.add(&at(300, [110, 10, 5], None), |_| Some(8));
        times.add(&at(400, [200, 10, 9], None), |_| Some(8));
        let report = times.report(&times.kept(), name, |_| String::new());
        let [seven, eight] = report.points.as_slice() else { panic!("{report:?}") };
        assert_eq!((seven.name.as_str(), eight.name.as_str()), ("p7", "p8"));
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        for point in [seven, eight] {
            let parts = point.run_s + point.queued_s + point.waited_s;
            assert!(near(parts, point.wall_s), "{point:?}");
        }
        assert!(near(seven.wall_s + eight.wall_s, 0.4), "{report:?}");
        // 70 ms in the first interval, 100 in the second, 10 in the third. The last 10 ms of waiting
        // were seen in no sample, and count like the others.
        assert!(near(seven.waited_s, 0.19) && near(eight.waited_s, 0.0), "{report:?}");
        assert_eq!(seven.reasons[0].reason, Kind::Lock);
        let parts = seven.parts();
        assert_eq!((parts[0].name.as_str(), parts[1].name.as_str()), (RUNNING, "lock JOBS"));
        let all: f64 = parts.iter().map(|part| part.share).sum();
        assert!(near(all, 1.0), "{parts:?}");
        assert_eq!(seven.main_wait(), Some(("lock JOBS".into(), parts[1].share)));
        assert!(near(seven.reasons[0].share, 0.19 / seven.wall_s));
        let [jobs] = report.locks.as_slice() else { panic!("{report:?}") };
        assert_eq!((jobs.name.as_str(), jobs.waits), ("JOBS", 1));
        assert!(near(jobs.longest_s, 0.17) && near(jobs.total_s, 0.18), "{jobs:?}");
    }

    #[test]
    fn a_point_has_only_what_its_samples_show() {
        let start = Instant::now();
        let mut times = WaitTimes::default();
        // In turns, the thread runs in point 7 for half of the time and waits in point 8, many times
        // between two samples.
        for number in 0..=100_u64 {
            let is_in_8 = number % 7 < 3;
            let counts = [number * 5, 0, number * 10];
            let wait = if is_in_8 { lock("JOBS", 16, None) } else { None };
            let point = if is_in_8 { 8 } else { 7 };
            times.add(&[sample(start, 1, number * 10, counts, wait)], |_| Some(point));
        }
        let report = times.report(&times.kept(), name, |_| String::new());
        let [eight, seven] = report.points.as_slice() else { panic!("{report:?}") };
        let near = |a: f64, b: f64| (a - b).abs() < 1e-6;
        assert!(near(seven.run_s, 0.5) && near(seven.waited_s, 0.0), "{seven:?}");
        assert!(near(eight.run_s, 0.0) && near(eight.waited_s, 0.5), "{eight:?}");
    }

    #[test]
    fn stolen_time_is_queued_and_counts_once() {
        let start = Instant::now();
        let mut times = WaitTimes::default();
        // The thread never waits, and the kernel counts 98 % of its time.
        for number in 0..=3_000_u64 {
            let run = number * 98 / 10;
            times.add(&[sample(start, 1, number * 10, [run, 0, 1], None)], |_| Some(7));
        }
        let report = times.report(&times.kept(), name, |_| String::new());
        let [seven] = report.points.as_slice() else { panic!("{report:?}") };
        assert!((seven.wall_s - 30.0).abs() < 0.02, "{seven:?}");
        assert!((seven.queued_s - 0.6).abs() < 0.03 && seven.waited_s < 1e-9, "{seven:?}");
    }

    #[test]
    fn what_was_queued_before_the_first_sample_is_in_no_wait() {
        let start = Instant::now();
        let mut times = WaitTimes::default();
        times.add(&[sample(start, 1, 0, [0, 0, 1], None)], |_| Some(7));
        for number in 1..=100_u64 {
            let counts = [0, 500, 2];
            let wait = lock("JOBS", 16, None);
            times.add(&[sample(start, 1, number * 10, counts, wait)], |_| Some(7));
        }
        let report = times.report(&times.kept(), name, |_| String::new());
        let [seven] = report.points.as_slice() else { panic!("{report:?}") };
        assert!(seven.waited_s > 0.98, "{seven:?}");
    }

    #[test]
    fn waits_that_no_sample_shows_have_no_reason() {
        let start = Instant::now();
        let mut times = WaitTimes::default();
        for number in 0..=10_u64 {
            let counts = [number * 9, 0, number * 10];
            times.add(&[sample(start, 1, number * 10, counts, None)], |_| Some(7));
        }
        let report = times.report(&times.kept(), name, |_| String::new());
        let [seven] = report.points.as_slice() else { panic!("{report:?}") };
        assert!((seven.waited_s - 0.01).abs() < 1e-9 && (seven.run_s - 0.09).abs() < 1e-9);
        assert_eq!(seven.reasons[0].detail, "short waits");
    }

    #[test]
    fn time_that_the_kernel_counts_late_is_no_wait() {
        let start = Instant::now();
        let mut times = WaitTimes::default();
        // The run of the first 10 ms is counted at 20 ms. From 30 to 60 ms, the thread is in the run
        // queue.
        let counts =
            [[0, 0, 1], [0, 0, 1], [20, 0, 1], [30, 0, 1], [30, 0, 1], [30, 20, 2], [30, 30, 3]];
        for (at, counts) in counts.into_iter().enumerate() {
            times.add(&[sample(start, 1, at as u64 * 10, counts, None)], |_| None);
            // What is not counted yet is in the report.
            let parts = times.report(&times.kept(), name, |_| String::new()).points;
            let parts: f64 = parts.iter().map(|point| point.wall_s).sum();
            assert!((parts - 0.01 * at as f64).abs() < 1e-9, "{parts} at {at}");
        }
        let report = times.report(&times.kept(), name, |_| String::new());
        let [outside] = report.points.as_slice() else { panic!("{report:?}") };
        assert_eq!(outside.name, "(outside)");
        assert!((outside.run_s - 0.03).abs() < 1e-9, "{outside:?}");
        assert!((outside.queued_s - 0.03).abs() < 1e-9, "{outside:?}");
        assert!(outside.waited_s < 1e-9, "{outside:?}");
    }

    #[test]
    fn only_waits_without_a_run_in_between_are_a_deadlock() {
        let start = Instant::now();
        let mut times = WaitTimes::default();
        let all = |ms, third| {
            [
                sample(start, 1, ms, [0, 0, 5], lock("A", 16, Some(2))),
                sample(start, 2, ms, [0, 0, 5], lock("B", 32, Some(3))),
                sample(start, 3, ms, [0, 0, third], lock("C", 48, Some(1))),
                // This one waits for a thread of the cycle, but is not in it.
                sample(start, 4, ms, [0, 0, 5], lock("A", 16, Some(2))),
            ]
        };
        times.add(&all(0, 5), |_| None);
        assert!(times.cycles().is_empty(), "one sample shows no order");
        times.add(&all(10, 6), |_| None);
        assert!(times.cycles().is_empty(), "the third has run");
        times.add(&all(20, 6), |_| Some(9));
        assert_eq!(times.cycles(), [[1, 2, 3]]);
        let report = times.report(&times.kept(), name, |tid| format!("t{tid}"));
        let [cycle] = report.deadlocks.as_slice() else { panic!("{report:?}") };
        let links: Vec<_> = cycle.iter().map(|it| (it.thread.as_str(), it.lock.as_str())).collect();
        assert_eq!(links, [("t1", "lock A"), ("t2", "lock B"), ("t3", "lock C")]);
        assert_eq!(cycle[0].owner.as_deref(), Some("t2"));
        let stuck: Vec<_> = report.stuck.iter().map(|it| it.thread.as_str()).collect();
        assert_eq!(stuck, ["t4"]);
    }

    #[test]
    fn timed_waits_and_changed_owners_are_no_deadlock() {
        let start = Instant::now();
        let timed = |wait: Option<Wait>| wait.map(|wait| Wait { is_timed: true, ..wait });
        let changed = |ms| lock("B", 32, Some(if ms == 0 { 3 } else { 1 }));
        for (first, second) in [
            (timed(lock("A", 16, Some(2))), lock("B", 32, Some(1))),
            // A thread that was woken has no wait any more.
            (lock("A", 16, Some(2)), None),
            // A lock of its own, by a stale owner.
            (lock("A", 16, Some(1)), None),
        ] {
            let mut times = WaitTimes::default();
            for ms in [0, 10] {
                let [first, second] = [first.clone(), second.clone()];
                let all = [
                    sample(start, 1, ms, [0, 0, 5], first),
                    sample(start, 2, ms, [0, 0, 5], second),
                ];
                times.add(&all, |_| None);
            }
            assert!(times.cycles().is_empty());
        }
        let mut times = WaitTimes::default();
        for ms in [0, 10] {
            let first = sample(start, 1, ms, [0, 0, 5], lock("A", 16, Some(2)));
            times.add(&[first, sample(start, 2, ms, [0, 0, 5], changed(ms))], |_| None);
        }
        assert!(times.cycles().is_empty(), "the owner has changed, so it has run");
    }

    #[test]
    fn the_verdict_names_what_most_threads_wait_for() {
        let start = Instant::now();
        let mut times = WaitTimes::default();
        let all = |ms, run| {
            let mut all: Vec<_> = (1..=6)
                .map(|tid| sample(start, tid, ms, [0, 0, 1], lock("JOBS", 16, Some(7))))
                .collect();
            all.push(sample(start, 7, ms, [run, 0, 1], None));
            all
        };
        times.add(&all(0, 0), |tid| Some(u32::from(tid == 7)));
        times.add(&all(100, 100), |tid| Some(u32::from(tid == 7)));
        let report = times.report(&times.kept(), name, |tid| format!("t{tid}"));
        assert_eq!(
            verdict(&report).as_deref(),
            Some("6 threads wait in p0 for lock JOBS, 100.0 % of their time; t7 holds it in p1")
        );
        assert_eq!(report.locks[0].owner.as_deref(), Some("t7"));
        assert_eq!(
            held_up(&report).as_deref(),
            Some("6 threads wait for lock JOBS: 100.0 % of p0")
        );
        let [first, ..] = report.now.as_slice() else { panic!("{report:?}") };
        assert_eq!((first.tid, first.reason.as_str()), (1, "lock JOBS"));
        assert!((first.seconds - 0.1).abs() < 1e-9 && report.now.len() == 6, "{report:?}");
        let [jobs] = report.reasons().try_into().expect("there is one reason");
        assert_eq!((jobs.name.as_str(), jobs.owner.as_str()), ("lock JOBS", "t7 in p1"));
        assert_eq!((jobs.waits, jobs.points), (Some(6), vec![("p0".to_owned(), 6)]));
    }

    #[test]
    fn a_busy_machine_is_the_verdict_if_the_run_queue_is_the_longest_wait() {
        let start = Instant::now();
        let mut times = WaitTimes::default();
        for (ms, counts) in [(0, [0, 0, 1]), (100, [30, 60, 9])] {
            times.add(&[sample(start, 1, ms, counts, lock("JOBS", 16, None))], |_| Some(1));
        }
        let verdict =
            verdict(&times.report(&times.kept(), name, |_| String::new())).expect("there is one");
        assert!(
            verdict.starts_with("the threads wait for a CPU 60.0 % of their time"),
            "{verdict}"
        );
    }

    #[test]
    fn totals_have_all_periods_and_the_names_of_variables() {
        let start = Instant::now();
        let mut times = WaitTimes::default();
        for ms in 0..=10_u64 {
            let wait = lock(if ms < 5 { "JOBS" } else { "0x55d0c8" }, 16, None);
            let counts = [0, ms, 1];
            times.add(&[sample(start, 1, 10 * ms, counts, wait)], |_| Some(7));
            times.begin_period(2);
        }
        let kept = times.kept();
        let totals = times.totals.report(&kept);
        let of = |reason: &str, name: &str| {
            let total =
                totals.iter().find(|it| (it.reason.as_str(), it.name.as_str()) == (reason, name));
            total.map(|total| total.ns).expect("it is there")
        };
        // In the interval in which the wait changes, each has a half.
        assert_eq!(of("lock", "JOBS") + of("lock", ""), 90_000_000);
        assert!((39_000_000..42_000_000).contains(&of("lock", "JOBS")), "{totals:?}");
        assert_eq!(of("run queue", ""), 10_000_000);
        assert_eq!(totals.len(), 3);
    }

    #[test]
    fn totals_beyond_the_limit_count_once_and_without_a_name() {
        let start = Instant::now();
        let mut times = WaitTimes::default();
        let mut totals = Vec::new();
        for ms in 0..=1_500_u64 {
            let wait = lock(&format!("LOCKS+{ms}"), 16, None);
            times.add(&[sample(start, 1, ms, [0, 0, ms], wait)], |_| Some(7));
            if ms % 50 == 0 {
                times.begin_period(2);
                let kept = times.kept();
                totals = times.totals.report(&kept);
            }
        }
        assert_eq!(totals.iter().map(|total| total.ns).sum::<u64>(), 1_500_000_000);
        assert_eq!(totals.len(), 1_001);
    }

    #[test]
    fn old_periods_are_dropped() {
        let start = Instant::now();
        let mut times = WaitTimes::default();
        for ms in 0..10 {
            let wait = lock(if ms < 5 { "OLD" } else { "NEW" }, 16 * ms, None);
            times.add(&[sample(start, 1, ms, [0, 0, ms], wait)], |_| None);
            times.begin_period(2);
        }
        let report = times.report(&times.kept(), name, |_| String::new());
        assert!((report.seconds - 0.002).abs() < 1e-9 && report.samples == 2, "{report:?}");
        assert!(report.locks.iter().all(|lock| lock.name == "NEW"), "{report:?}");
    }
}
