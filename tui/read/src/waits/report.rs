//! The report of all waits: plain data for tables and JSON.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::times::{LockTimes, Period, Place, Times, WaitTimes};
use super::totals::WaitTotals;
use super::{Kind, Reason};
use crate::text::clean_in_place;

/// Name of the time outside all points.
pub(super) const OUTSIDE: &str = "(outside)";
/// The detail of waits that began and ended between two samples.
pub(super) const SHORT: &str = "short waits";
/// The longest tick that a kernel is built with, nanoseconds.
const TICK: u64 = 10_000_000;

/// Where the time of a process went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WaitsReport {
    /// Number of the report; its sampler counts from 1. 0 if the command itself sampled. See
    /// [`Self::is_same`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub number: u64,
    /// Time from the first sample to the last, seconds.
    pub seconds: f64,
    /// Number of samples of all threads.
    pub samples: u64,
    /// Number of threads at the last sample.
    pub threads: usize,
    /// The points, those with the most time waited and queued first.
    pub points: Vec<PointReport>,
    /// The locks and the like, those with the most time waited first.
    pub locks: Vec<LockReport>,
    /// The deadlocks: cycles of threads of which each waits for the next.
    pub deadlocks: Vec<Vec<Link>>,
    /// The other threads that have waited for one lock in all samples.
    pub stuck: Vec<Link>,
    /// The threads that waited at the last sample, in the order of [`Waiting::lane`].
    pub now: Vec<Waiting>,
    /// Why nothing, or less than usual, is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// The waits of each point since the first sample. `None` in a merged report, and if the command
    /// itself sampled: then `points` has all samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totals: Option<WaitTotals>,
    /// The stacks of open regions that were sampled since the report before. `None` if they
    /// are not needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stacks: Option<Vec<SampledStack>>,
    /// The waits that have ended since the report before, of threads with a lane. Waits that no
    /// sample saw are missing.
    #[serde(skip)]
    pub ended: Vec<EndedWait>,
    /// Whether [`Self::clean`] has cleaned it.
    #[serde(skip)]
    pub is_clean: bool,
}

/// A wait that has ended. Times are in nanoseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct EndedWait {
    /// Id of the thread's lane.
    pub lane: u32,
    /// What the thread waited for, and who held that, as in `lock JOBS, held by worker-1 in flush`.
    pub reason: String,
    /// Its earliest possible begin.
    pub since_ns: u64,
    /// The last sample that saw it.
    pub seen_ns: u64,
    /// Its latest possible end.
    pub until_ns: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A stack of open regions that was sampled, and what its thread waited for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SampledStack {
    /// Id of the thread's lane.
    pub lane: u32,
    /// Ids of the open points, outermost first; empty outside all points.
    pub points: Vec<u32>,
    /// What the thread waited for, as in `lock JOBS`. `None` if it ran or waited for a CPU.
    pub reason: Option<String>,
    /// Number of samples.
    pub count: u64,
}

/// A thread that waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// The thread's name.
    pub thread: String,
    /// Kernel id of the thread.
    pub tid: u32,
    /// What it waits for, as in `lock JOBS`.
    pub reason: String,
    /// For how long, as far as known, seconds.
    pub seconds: f64,
    /// Id of its lane. `None` if it has none.
    pub lane: Option<u32>,
}

/// The exclusive time of all threads in a point: time in nested regions belongs to their points.
/// `wall_s` is the sum of `run_s`, `queued_s` and `waited_s`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PointReport {
    /// The point's id. `None` for the time outside all points.
    pub id: Option<u32>,
    /// The point's name, or `(outside)` for the time outside all points.
    pub name: String,
    /// Number of threads that were in it.
    pub threads: usize,
    /// Time by the clock, seconds, summed over the threads.
    pub wall_s: f64,
    /// Time on a CPU, seconds.
    pub run_s: f64,
    /// Time in the run queue, seconds: the thread could run, but had no CPU.
    pub queued_s: f64,
    /// Time in waits, seconds.
    pub waited_s: f64,
    /// The reasons, the longest first.
    pub reasons: Vec<ReasonReport>,
}

/// A reason of a point's waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReasonReport {
    /// The kind.
    pub reason: Kind,
    /// What was waited for; empty if unknown.
    pub detail: String,
    /// Share of the point's `wall_s`, from 0 to 1.
    pub share: f64,
    /// Number of threads that waited for it.
    pub threads: usize,
    /// The longest wait, seconds, known to within one sample.
    pub longest_s: f64,
}

/// The waits for one lock, or for something else that has an address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LockReport {
    /// The kind of the waits.
    pub reason: Kind,
    /// The name of the variable, or the address.
    pub name: String,
    /// The address in the process's memory, as in `0x55d0c8`.
    pub address: String,
    /// Number of waits that were seen. Waits that begin and end between two samples are not.
    pub waits: u64,
    /// Time waited, seconds, summed over the threads.
    pub total_s: f64,
    /// The longest wait, seconds, known to within one sample.
    pub longest_s: f64,
    /// The thread that was its owner most often. `None` if no owner is known.
    pub owner: Option<String>,
    /// The point that this thread was in most often as the owner. `None` outside all points.
    pub owner_point: Option<String>,
    /// The waiting threads, those with the most time first.
    pub waiters: Vec<Waiter>,
}

/// A thread that waits for a lock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waiter {
    /// The thread's name.
    pub thread: String,
    /// Kernel id of the thread.
    pub tid: u32,
    /// Its point, or `(outside)`.
    pub point: String,
    /// Time waited, seconds.
    pub total_s: f64,
}

/// A thread that waits for a lock, and the thread that holds the lock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// The thread's name.
    pub thread: String,
    /// Kernel id of the thread.
    pub tid: u32,
    /// Its point, or `(outside)`.
    pub point: String,
    /// What it waits for, as in `lock JOBS`.
    pub lock: String,
    /// The thread that holds that; in a deadlock, the next one in the cycle. `None` if unknown.
    pub owner: Option<String>,
}

impl WaitsReport {
    /// Whether this is the same report as another one.
    pub fn is_same(&self, other: &Self) -> bool {
        let since = |it: &Self| it.totals.as_ref().map(|totals| totals.since_unix_ns);
        (self.number, since(self), &self.limit) == (other.number, since(other), &other.limit)
    }

    /// Makes the texts safe to show, and sorts the lists that are searched.
    pub fn clean(&mut self) {
        self.is_clean = true;
        self.now.sort_by_key(|waiting| waiting.lane);
        let Self { points, locks, deadlocks, stuck, now, limit, totals, stacks, ended, .. } = self;
        for point in points {
            clean_in_place(&mut point.name);
            point.reasons.iter_mut().for_each(|reason| clean_in_place(&mut reason.detail));
        }
        for lock in locks {
            clean_in_place(&mut lock.name);
            clean_in_place(&mut lock.address);
            lock.owner.iter_mut().chain(&mut lock.owner_point).for_each(clean_in_place);
            for waiter in &mut lock.waiters {
                clean_in_place(&mut waiter.thread);
                clean_in_place(&mut waiter.point);
            }
        }
        for link in deadlocks.iter_mut().flatten().chain(stuck) {
            [&mut link.thread, &mut link.point, &mut link.lock]
                .into_iter()
                .for_each(clean_in_place);
            link.owner.iter_mut().for_each(clean_in_place);
        }
        for waiting in now {
            clean_in_place(&mut waiting.thread);
            clean_in_place(&mut waiting.reason);
        }
        for wait in ended {
            clean_in_place(&mut wait.reason);
        }
        limit.iter_mut().for_each(clean_in_place);
        totals.iter_mut().for_each(WaitTotals::clean);
        let reasons = stacks.iter_mut().flatten().filter_map(|stack| stack.reason.as_mut());
        reasons.for_each(clean_in_place);
    }
}

impl WaitTimes {
    /// The report of `all`, the [periods that are kept](Self::kept). `point` names a point, and
    /// `thread` a thread.
    pub(super) fn report(
        &self,
        all: &Period,
        point: impl Fn(u32) -> String,
        thread: impl Fn(u32) -> String,
    ) -> WaitsReport {
        let point = |id: Option<u32>| id.map_or_else(|| OUTSIDE.to_owned(), &point);
        let thread = |tid: u32| match thread(tid) {
            name if name.is_empty() => format!("thread {tid}"),
            name => name,
        };
        let links = |threads: Vec<u32>| -> Vec<Link> {
            threads.into_iter().filter_map(|tid| self.link(tid, &point, &thread)).collect()
        };
        let cycles = self.cycles();
        let stuck = links(self.stuck(&cycles));
        WaitsReport {
            seconds: all.seconds(),
            samples: all.samples,
            threads: self.threads.len(),
            points: all.points(&point),
            locks: all.lock_reports(&point, &thread),
            deadlocks: cycles.into_iter().map(links).collect(),
            stuck,
            now: self.waiting(&thread),
            ..WaitsReport::default()
        }
    }

    /// The times of the present period and of the earlier ones that are kept.
    pub(super) fn kept(&self) -> Period {
        let mut all = Period::default();
        self.before.iter().chain([&self.now]).for_each(|period| all.extend(period));
        self.add_late(&mut all);
        all.divide_unseen(|tid| self.threads.get(&tid)?.point);
        all
    }

    /// Adds the time that the kernel will count later, and what it has counted too late. It counts a
    /// run at least once in [`TICK`], and a time in the run queue when it ends.
    fn add_late(&self, all: &mut Period) {
        let passed = (all.seconds() * 1e9) as u64;
        for (tid, thread) in &self.threads {
            let mut left = [TICK.min(passed), passed.saturating_sub(TICK)];
            for &(place, busy) in &thread.uncounted {
                let run = busy.min(left[0]);
                let queued = (busy - run).min(left[1]);
                left = [left[0] - run, left[1] - queued];
                let times = all.times(*tid, place);
                times.run += run;
                times.queued += queued;
            }
            if thread.left != [0; 2] {
                all.times(*tid, Place::Unseen).late = thread.left;
            }
        }
    }

    fn waiting(&self, thread: &impl Fn(u32) -> String) -> Vec<Waiting> {
        let waiting = self.threads.iter().filter_map(|(tid, it)| {
            Some(Waiting {
                thread: thread(*tid),
                tid: *tid,
                reason: it.sample.wait.as_ref()?.reason.to_string(),
                seconds: it.sample.at.duration_since(it.since).as_secs_f64(),
                lane: None,
            })
        });
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_by_key(|it| it.tid);
        waiting
    }

    fn link(
        &self,
        tid: u32,
        point: &impl Fn(Option<u32>) -> String,
        thread: &impl Fn(u32) -> String,
    ) -> Option<Link> {
        let it = self.threads.get(&tid)?;
        let wait = it.sample.wait.as_ref()?;
        Some(Link {
            thread: thread(tid),
            tid,
            point: point(it.point),
            lock: wait.reason.to_string(),
            owner: wait.owner.map(thread),
        })
    }
}

impl Period {
    fn points(&self, name: &impl Fn(Option<u32>) -> String) -> Vec<PointReport> {
        let mut points: BTreeMap<Option<u32>, Vec<&Times>> = BTreeMap::new();
        for ((_, place), times) in &self.times {
            let Place::Point(point) = place else { continue };
            points.entry(*point).or_default().push(times);
        }
        let all = points.into_iter();
        let mut all: Vec<_> =
            all.map(|(id, times)| PointReport::of(id, name(id), &times)).collect();
        all.sort_by(|a, b| {
            let off = |it: &PointReport| it.queued_s + it.waited_s;
            off(b).total_cmp(&off(a)).then_with(|| a.name.cmp(&b.name))
        });
        all
    }

    fn lock_reports(
        &self,
        point: &impl Fn(Option<u32>) -> String,
        thread: &impl Fn(u32) -> String,
    ) -> Vec<LockReport> {
        let report = |((reason, address), times): (&(Reason, u64), &LockTimes)| {
            let owner = times.owners.iter().max_by_key(|((tid, _), times)| (**times, *tid));
            let mut waiters: Vec<_> = times.waiters.iter().collect();
            waiters.sort_by_key(|(who, ns)| (std::cmp::Reverse(**ns), **who));
            LockReport {
                reason: reason.kind,
                name: reason.detail.clone(),
                address: format!("{address:#x}"),
                // A wait that began before is seen, too.
                waits: times.waits.max(times.waiters.len() as u64),
                total_s: seconds(times.waiters.values().sum()),
                longest_s: seconds(times.longest),
                owner: owner.map(|((tid, _), _)| thread(*tid)),
                owner_point: owner.and_then(|((_, id), _)| Some(point(Some((*id)?)))),
                waiters: waiters
                    .into_iter()
                    .map(|((tid, id), ns)| Waiter {
                        thread: thread(*tid),
                        tid: *tid,
                        point: point(*id),
                        total_s: seconds(*ns),
                    })
                    .collect(),
            }
        };
        let mut all: Vec<_> = self.locks.iter().map(report).collect();
        all.sort_by(|a, b| b.total_s.total_cmp(&a.total_s).then_with(|| a.name.cmp(&b.name)));
        all
    }
}

impl PointReport {
    fn of(id: Option<u32>, name: String, threads: &[&Times]) -> Self {
        let mut waited: HashMap<Reason, u64> = HashMap::new();
        let mut longest: HashMap<Reason, u64> = HashMap::new();
        let mut waiting: HashMap<Reason, usize> = HashMap::new();
        let (mut run, mut queued, mut short) = (0, 0, 0);
        for times in threads {
            run += times.run;
            queued += times.queued;
            short += times.short;
            for (reason, ns) in &times.waited {
                *waited.entry(reason.clone()).or_default() += ns;
                *waiting.entry(reason.clone()).or_default() += usize::from(*ns > 0);
            }
            for (reason, ns) in &times.longest {
                let longest = longest.entry(reason.clone()).or_default();
                *longest = (*ns).max(*longest);
            }
        }
        let seen: u64 = waited.values().sum();
        let all_waited = seen + short;
        let wall = run + queued + all_waited;
        let share = |ns: f64| if wall == 0 { 0.0 } else { ns / wall as f64 };
        let mut reasons: Vec<_> = waited
            .into_iter()
            .filter(|(_, ns)| *ns > 0)
            .map(|(reason, ns)| ReasonReport {
                share: share(ns as f64),
                longest_s: seconds(longest.get(&reason).copied().unwrap_or(0)),
                threads: waiting.get(&reason).copied().unwrap_or(0),
                reason: reason.kind,
                detail: reason.detail,
            })
            .collect();
        if short > 0 {
            let (reason, detail) = (Kind::Other, SHORT.to_owned());
            let threads = threads.iter().filter(|times| times.short > 0).count();
            let share = share(short as f64);
            reasons.push(ReasonReport { reason, detail, share, threads, longest_s: 0.0 });
        }
        reasons.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.detail.cmp(&b.detail)));
        Self {
            id,
            name,
            threads: threads.len(),
            wall_s: seconds(wall),
            run_s: seconds(run),
            queued_s: seconds(queued),
            waited_s: seconds(all_waited),
            reasons,
        }
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
