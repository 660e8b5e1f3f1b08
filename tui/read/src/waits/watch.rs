//! Watches the waits of one process: for a while, or in a thread of its own.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result};

use super::report::{EndedWait, SampledStack, WaitsReport};
use super::times::{Period, WaitTimes, nanoseconds};
use super::totals::WaitTotals;
use super::{Reason, Sampler, ThreadSample, WaitNeeds};
use crate::local_time::unix_ns;
use crate::snapshot::{Lane, LaneKind, Snapshot};
use crate::source::{Refusal, Source, attach, discover};
use crate::text::clean;

/// Maximum part of a CPU that sampling takes; less for a summary. All processes that this program
/// samples share it.
const BUDGET: f64 = 0.02;
const LOW_BUDGET: f64 = 0.004;
/// Number of threads that sample.
static SAMPLERS: AtomicU32 = AtomicU32::new(0);

fn samplers() -> u32 {
    SAMPLERS.load(Relaxed).max(1)
}
/// Minimum and maximum time between two samples, for one process. Short waits need the minimum; a
/// process with thousands of threads reaches the maximum.
const BETWEEN: (Duration, Duration) = (Duration::from_millis(1), Duration::from_secs(5));
/// Time between two polls of the process: at most, and at least if there is a new thread or point. A
/// poll of a large process takes milliseconds.
const POLL: Duration = Duration::from_secs(10);
const POLL_FOR_NEW: Duration = Duration::from_millis(20);
/// Time between two polls while a thread has no lane: it may begin its first region at any time.
const POLL_FOR_LANES: Duration = Duration::from_millis(500);
/// Time between two readings of all threads' names.
const NAMES: Duration = Duration::from_secs(1);
/// How long the name of a thread that has ended is kept.
const KEPT: Duration = Duration::from_secs(600);
/// A report is of the last five periods of one second, and the present one.
const PERIOD: Duration = Duration::from_secs(1);
const PERIODS: usize = 5;
/// Time between two reports, and between two that are only a summary.
const REPORT: Duration = Duration::from_millis(250);
const RARE_REPORT: Duration = Duration::from_secs(1);
/// Maximum number of waits that have ended that a report has: the last ones.
const MOST_ENDED: usize = 2_000;
/// Number of stacks beyond which a report that was not taken loses its stacks.
const MOST_STACKS: usize = 10_000;

/// Samples the waits of one process.
pub struct Watch {
    sampler: Sampler,
    pid: u32,
    /// Its points. `None` for a process without points.
    source: Option<Box<dyn Source>>,
    snapshot: Snapshot,
    polled: Instant,
    times: WaitTimes,
    /// The name of each thread, and when the thread was there last.
    threads: HashMap<u32, (String, Instant)>,
    /// When the names were read.
    named: Instant,
    /// When the sample before this one began.
    last_round: Instant,
    /// Whether there is a thread or a point that the last poll did not know.
    has_new: bool,
    /// The ids of the lanes, by the ids of their threads in their own pid namespace.
    lanes: HashMap<u32, u32>,
    between: Duration,
    /// Part of a CPU that sampling takes.
    budget: f64,
    /// The stacks since the last report, if they are needed: the number of samples of each, and
    /// nanoseconds by the clock.
    stacks: Option<HashMap<OpenStack, (u64, u64)>>,
    /// Time of the first sample, nanoseconds since the Unix epoch. `None` before it.
    began_unix_ns: Option<u64>,
    /// Number of reports with totals.
    reports: u64,
    /// The waits that have ended since the last report with totals.
    ended: Vec<EndedWait>,
}

/// A thread's open regions at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OpenStack {
    /// Kernel id of the thread.
    tid: u32,
    /// Id of its lane. `None` if it has none.
    lane: Option<u32>,
    /// Ids of the open points, outermost first.
    points: Vec<u32>,
    /// What the thread waits for. `None` if it runs or waits for a CPU.
    reason: Option<Rc<Reason>>,
}

/// A wait that a sample saw, and that began before that sample.
struct SeenWait {
    /// Kernel id of the thread.
    tid: u32,
    /// Id of its lane.
    lane: u32,
    reason: Rc<Reason>,
    /// The thread that held what was waited for, and its point.
    owner: Option<(u32, Option<u32>)>,
    /// Its begin, the last sample that saw it, and the next sample.
    moments: [Instant; 3],
}

impl Watch {
    /// Watches a process that `source` reads.
    ///
    /// # Errors
    ///
    /// If the process does not run on this machine.
    pub fn of(mut source: Box<dyn Source>) -> Result<Self> {
        let snapshot = source.poll()?;
        let pid = source.pid_here().context(
            "expected one running process that this machine's /proc shows, found another source",
        )?;
        Self::new(pid, Some(source), snapshot)
    }

    /// Watches a process without points.
    ///
    /// # Errors
    ///
    /// If there is no such process.
    pub fn of_any(pid: u32) -> Result<Self> {
        Self::new(pid, None, Snapshot::default())
    }

    fn new(pid: u32, source: Option<Box<dyn Source>>, snapshot: Snapshot) -> Result<Self> {
        let sampler = Sampler::of(pid).map_err(|error| {
            Refusal::NoTarget(format!("expected a process with the id {pid}: {error}"))
        })?;
        let (times, threads) = (WaitTimes::default(), HashMap::new());
        let (polled, between, budget) = (Instant::now(), BETWEEN.0, BUDGET);
        let lanes = lanes_of(&snapshot);
        let mut watch = Self {
            sampler,
            pid,
            source,
            snapshot,
            polled,
            times,
            threads,
            named: polled,
            last_round: polled,
            has_new: false,
            lanes,
            between,
            budget,
            stacks: None,
            began_unix_ns: None,
            reports: 0,
            ended: Vec::new(),
        };
        // The first sample reads the symbols of the program, and is not typical.
        watch.look()?;
        Ok(watch)
    }

    /// Id of the process in this machine's `/proc`.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Name of the process.
    pub fn name(&self) -> String {
        match self.snapshot.process.name.as_str() {
            "" => clean(&self.sampler.name(self.pid)).into_owned(),
            name => name.to_owned(),
        }
    }

    /// Takes one sample. Returns how long to wait for the next one. `None` if the process has
    /// ended.
    ///
    /// # Errors
    ///
    /// If the process cannot be read at all.
    pub fn sample(&mut self) -> Result<Option<Duration>> {
        let (started, round) = (cpu_time(), Instant::now());
        let before = self.open_stacks();
        let samples = match self.look() {
            Ok(samples) => samples,
            Err(_) if self.began_unix_ns.is_some() && self.has_ended() => return Ok(None),
            Err(error) => return Err(error),
        };
        let after = self.open_stacks();
        let mut points = HashMap::new();
        for sample in &samples {
            let stack = self.stack_of(sample, &before, &after);
            points.extend(stack.last().map(|point| (sample.tid, *point)));
            self.count_stack(sample, stack);
        }
        let is_new = |sample: &ThreadSample| !self.threads.contains_key(&sample.tid);
        let is_unknown = |point: &u32| self.snapshot.point(*point).is_none();
        let has_new = samples.iter().any(is_new) || before.values().flatten().any(is_unknown);
        let has_no_lane = samples.iter().any(|it| !self.lanes.contains_key(&it.id_inside));
        let age = self.polled.elapsed();
        self.has_new |= has_new;
        let is_due =
            age > POLL || self.has_new && age > POLL_FOR_NEW || has_no_lane && age > POLL_FOR_LANES;
        let names_again = self.named.elapsed() > NAMES;
        for sample in &samples {
            match self.threads.get_mut(&sample.tid).filter(|_| !names_again) {
                Some((_, last)) => *last = sample.at,
                // Threads often get their name soon after their start.
                None => {
                    let name = clean(&self.sampler.name(sample.tid)).into_owned();
                    self.threads.insert(sample.tid, (name, sample.at));
                }
            }
        }
        if names_again {
            self.named = Instant::now();
            self.threads.retain(|_, (_, last)| last.elapsed() < KEPT);
        }
        let waits = self.seen_waits(&samples);
        self.times.add(&samples, |tid| points.get(&tid).copied());
        self.note_ended(waits);
        self.began_unix_ns.get_or_insert_with(|| unix_ns(SystemTime::now()));
        if is_due {
            self.polled = Instant::now();
            self.has_new = false;
            if let Some(source) = &mut self.source {
                self.snapshot = source.poll()?;
                self.lanes = lanes_of(&self.snapshot);
            }
        }
        self.last_round = round;
        self.charge(started);
        Ok(Some(self.between))
    }

    /// The waits of threads with a lane that continue or end at these samples.
    fn seen_waits(&self, samples: &[ThreadSample]) -> Vec<SeenWait> {
        let wait = |sample: &ThreadSample| {
            let thread = self.times.threads.get(&sample.tid)?;
            let wait = thread.sample.wait.as_ref().filter(|_| thread.since < thread.sample.at)?;
            let owner = wait.owner.filter(|owner| *owner != sample.tid);
            let point = |owner| self.times.threads.get(&owner).and_then(|owner| owner.point);
            Some(SeenWait {
                tid: sample.tid,
                lane: *self.lanes.get(&sample.id_inside)?,
                reason: Rc::clone(&wait.reason),
                owner: owner.map(|owner| (owner, point(owner))),
                moments: [thread.since, thread.sample.at, sample.at],
            })
        };
        samples.iter().filter_map(wait).collect()
    }

    /// Notes the waits that have ended.
    fn note_ended(&mut self, mut waits: Vec<SeenWait>) {
        let is_over = |wait: &SeenWait| {
            let thread = self.times.threads.get(&wait.tid);
            thread.is_none_or(|thread| thread.since != wait.moments[0])
        };
        waits.retain(is_over);
        let (now, now_ns) = (Instant::now(), unix_ns(SystemTime::now()));
        let noted = waits.into_iter().map(|wait| {
            let ns = |moment| now_ns.saturating_sub(nanoseconds(moment, now));
            let [since_ns, seen_ns, until_ns] = wait.moments.map(ns);
            let owner = wait.owner.map_or(String::new(), |(owner, point)| {
                let place =
                    point.map_or(String::new(), |id| format!(" in {}", self.point_name(id)));
                format!(", held by {}{place}", self.thread_name(owner))
            });
            let reason = format!("{}{owner}", wait.reason);
            EndedWait { lane: wait.lane, reason, since_ns, seen_ns, until_ns }
        });
        let noted: Vec<_> = noted.collect();
        self.ended.extend(noted);
        let more = self.ended.len().saturating_sub(MOST_ENDED);
        self.ended.drain(..more);
    }

    /// Sets the time until the next sample by the CPU time since `started`.
    fn charge(&mut self, started: Duration) {
        let cost = cpu_time().saturating_sub(started).div_f64(self.budget);
        // A quarter of the difference each time: one slow sample lowers the rate only a little.
        self.between = ((self.between * 3 + cost) / 4).clamp(BETWEEN.0, BETWEEN.1 * samplers());
    }

    fn has_ended(&self) -> bool {
        fs::read_dir(format!("/proc/{}/task", self.pid)).is_err()
    }

    fn look(&mut self) -> Result<Vec<ThreadSample>> {
        self.sampler.sample().map_err(|error| {
            let why = format!("the threads of [{}] cannot be read: {error}", self.pid);
            Refusal::NoTarget(why).into()
        })
    }

    /// The open points of a thread, by those before and after its sample. A thread that still is in
    /// its wait has been in the later ones since the wait began.
    fn stack_of<'a>(
        &mut self,
        sample: &ThreadSample,
        before: &'a HashMap<u32, Vec<u32>>,
        after: &'a HashMap<u32, Vec<u32>>,
    ) -> &'a [u32] {
        let [before, after] = [before, after]
            .map(|open| open.get(&sample.id_inside).map_or(&[][..], |points| points.as_slice()));
        let is_later =
            before != after && sample.wait.is_some() && self.sampler.is_unchanged(sample);
        if is_later { after } else { before }
    }

    /// Counts a stack, with the time since the last sample of its thread, if stacks are needed.
    fn count_stack(&mut self, sample: &ThreadSample, points: &[u32]) {
        let Some(stacks) = &mut self.stacks else { return };
        // The id of a thread that has ended may be another thread's.
        let last = self.threads.get(&sample.tid).filter(|(_, last)| *last >= self.last_round);
        let last = last.map_or(sample.at, |(_, last)| *last);
        let passed = sample.at.saturating_duration_since(last).as_nanos() as u64;
        let stack = OpenStack {
            tid: sample.tid,
            lane: self.lanes.get(&sample.id_inside).copied(),
            points: points.to_vec(),
            reason: sample.wait.as_ref().map(|wait| Rc::clone(&wait.reason)),
        };
        let (count, ns) = stacks.entry(stack).or_default();
        (*count, *ns) = (*count + 1, *ns + passed);
    }

    /// Begins to count stacks, or stops that.
    pub fn need_stacks(&mut self, is_needed: bool) {
        if is_needed != self.stacks.is_some() {
            self.stacks = is_needed.then(HashMap::new);
        }
    }

    /// The open points of each thread that is in one, outermost first, by the thread's id in its
    /// own pid namespace.
    fn open_stacks(&mut self) -> HashMap<u32, Vec<u32>> {
        let open = self.source.as_mut().and_then(|source| source.open_stacks()).unwrap_or_default();
        let by_thread = |(lane, points)| Some((self.snapshot.lane(lane)?.tid, points));
        open.into_iter().filter_map(by_thread).collect()
    }

    /// The stacks of threads with a lane that were counted since the last call.
    fn take_stacks(&mut self) -> Option<Vec<SampledStack>> {
        let counted = std::mem::take(self.stacks.as_mut()?).into_iter();
        let stack = |(stack, (count, _)): (OpenStack, (u64, u64))| {
            let reason = stack.reason.map(|reason| reason.to_string());
            Some(SampledStack { lane: stack.lane?, points: stack.points, reason, count })
        };
        Some(counted.filter_map(stack).collect())
    }

    /// The stacks that were counted, as names from the outside in: the thread, its open points, and
    /// what it waited for in brackets. Each with nanoseconds by the clock.
    pub fn named_stacks(&self) -> BTreeMap<Vec<String>, u64> {
        let mut all = BTreeMap::new();
        for (stack, (_, ns)) in self.stacks.iter().flatten().filter(|(_, (_, ns))| *ns > 0) {
            let thread = self.thread_name(stack.tid);
            let points = stack.points.iter().map(|point| self.point_name(*point));
            let reason = stack.reason.as_ref().map(|reason| format!("[{reason}]"));
            let names = std::iter::once(thread).chain(points).chain(reason).collect();
            *all.entry(names).or_default() += ns;
        }
        all
    }

    fn point_name(&self, id: u32) -> String {
        self.snapshot.point(id).map_or_else(|| format!("#{id}"), |point| point.shown_name())
    }

    fn thread_name(&self, tid: u32) -> String {
        match self.threads.get(&tid) {
            Some((name, _)) if !name.is_empty() => name.clone(),
            _ => format!("thread {tid}"),
        }
    }

    /// The report of all samples that are kept.
    pub fn report(&self) -> WaitsReport {
        let mut report = self.report_of(&self.times.kept());
        report.clean();
        report
    }

    /// The report with the totals, and with the stacks since the last one.
    fn next_report(&mut self) -> WaitsReport {
        let kept = self.times.kept();
        let totals = WaitTotals {
            since_unix_ns: self.began_unix_ns.unwrap_or_default(),
            seconds: self.times.lasted().as_secs_f64(),
            waits: self.times.totals.report(&kept),
        };
        self.reports += 1;
        let (number, stacks) = (self.reports, self.take_stacks());
        let (totals, ended) = (Some(totals), std::mem::take(&mut self.ended));
        let mut report = WaitsReport { number, totals, stacks, ended, ..self.report_of(&kept) };
        report.clean();
        report
    }

    fn report_of(&self, periods: &Period) -> WaitsReport {
        let point = |id| self.point_name(id);
        let mut alike: HashMap<&str, usize> = HashMap::new();
        self.threads.values().for_each(|(name, _)| *alike.entry(name).or_default() += 1);
        let thread = |tid| {
            let Some((name, _)) = self.threads.get(&tid) else { return String::new() };
            match alike.get(name.as_str()) {
                Some(1) => name.clone(),
                // Threads can share a name, because a new thread inherits the name of its creator.
                _ => format!("{name} {tid}"),
            }
        };
        let mut report = WaitsReport {
            limit: self.sampler.limit(),
            ..self.times.report(periods, point, thread)
        };
        for waiting in &mut report.now {
            let inside = self.times.threads.get(&waiting.tid).map(|it| it.sample.id_inside);
            waiting.lane = inside.and_then(|inside| self.lanes.get(&inside)).copied();
        }
        report
    }
}

/// The ids of the lanes by the ids of their threads. A new thread may have the id of an earlier one.
fn lanes_of(snapshot: &Snapshot) -> HashMap<u32, u32> {
    let mut lanes: Vec<&Lane> = snapshot.lanes.iter().collect();
    lanes.sort_by_key(|lane| lane.kind == LaneKind::Live);
    lanes.into_iter().map(|lane| (lane.tid, lane.id)).collect()
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live `timespec` that the call may fill.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

/// Adds the stacks and the ended waits of `earlier`, a report that was not taken, to `next`. If
/// `earlier` has [`MOST_STACKS`] stacks or [`MOST_ENDED`] waits already, these are dropped, so that
/// memory stays bounded.
fn with_events_of(earlier: Option<WaitsReport>, mut next: WaitsReport) -> WaitsReport {
    let Some(earlier) = earlier else { return next };
    if let (Some(earlier), Some(stacks)) = (earlier.stacks, &mut next.stacks)
        && earlier.len() < MOST_STACKS
    {
        stacks.extend(earlier);
    }
    if earlier.ended.len() < MOST_ENDED {
        next.ended.splice(..0, earlier.ended);
    }
    next
}

/// A thread that samples a process, until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct WaitsThread(Arc<Shared>);

/// What the thread and its owner share.
#[derive(Debug, Default)]
struct Shared {
    latest: Mutex<Option<WaitsReport>>,
    needs: Mutex<WaitNeeds>,
}

impl WaitsThread {
    /// Samples the process with this segment.
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    pub(crate) fn start(segment_id: String, needs: WaitNeeds) -> Result<Self> {
        let it = Self::default();
        it.need(needs);
        let shared = Arc::clone(&it.0);
        let run = move || {
            SAMPLERS.fetch_add(1, Relaxed);
            if let Err(error) = run(&segment_id, &shared) {
                shared.publish(with_limit(WaitsReport::default(), &error));
            }
            SAMPLERS.fetch_sub(1, Relaxed);
        };
        thread::Builder::new()
            .name("waits".into())
            .spawn(run)
            .context("no thread can be started")?;
        Ok(it)
    }

    /// Samples from now on as much as is needed.
    pub(crate) fn need(&self, needs: WaitNeeds) {
        *lock(&self.0.needs) = needs;
    }

    /// The report since the last call, if there is a new one.
    pub(crate) fn take(&self) -> Option<WaitsReport> {
        lock(&self.0.latest).take()
    }
}

impl Drop for WaitsThread {
    fn drop(&mut self) {
        self.need(WaitNeeds::Nothing);
    }
}

impl Shared {
    fn publish(&self, next: WaitsReport) {
        let mut latest = lock(&self.latest);
        *latest = Some(with_events_of(latest.take(), next));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The last report, which says why it is the last one.
fn with_limit(report: WaitsReport, error: &anyhow::Error) -> WaitsReport {
    let limit = Some(clean(&format!("{error:#}")).into_owned());
    WaitsReport { limit, ..report }
}

/// Samples the process with this segment until nothing is needed or the process ends. Then publishes
/// a last report, which has the newest samples and no stacks.
fn run(segment_id: &str, shared: &Shared) -> Result<()> {
    let found = discover()?.candidates;
    let process = found.iter().find(|it| it.segment_id == segment_id);
    let process = process.context("the process has ended before its waits were sampled")?;
    let mut watch = Watch::of(attach(process)?)?;
    let ended = sample_on(&mut watch, shared);
    let last = WaitsReport { stacks: None, ..watch.next_report() };
    shared.publish(match &ended {
        Ok(()) => last,
        Err(error) => with_limit(last, error),
    });
    Ok(())
}

fn sample_on(watch: &mut Watch, shared: &Shared) -> Result<()> {
    let (mut reported, mut begun) = (Instant::now(), Instant::now());
    loop {
        let needs = *lock(&shared.needs);
        let (budget, report) = match needs {
            WaitNeeds::Nothing => return Ok(()),
            WaitNeeds::Summary => (LOW_BUDGET, RARE_REPORT),
            WaitNeeds::Reasons | WaitNeeds::Stacks => (BUDGET, REPORT),
        };
        watch.budget = budget / f64::from(samplers());
        watch.need_stacks(needs == WaitNeeds::Stacks);
        let Some(between) = watch.sample()? else { return Ok(()) };
        if begun.elapsed() > PERIOD {
            begun = Instant::now();
            watch.times.begin_period(PERIODS);
        }
        if reported.elapsed() > report {
            reported = Instant::now();
            let started = cpu_time();
            shared.publish(watch.next_report());
            // What a report costs is part of the budget, too.
            let cost = cpu_time().saturating_sub(started);
            thread::sleep(cost.div_f64(watch.budget).min(BETWEEN.1 * samplers()));
        }
        thread::sleep(between);
    }
}
