//! What a report says in words and in few rows: the parts of a point's time, the reasons of all
//! waits, and the longest wait in a sentence.

use std::collections::HashMap;

use super::report::{LockReport, OUTSIDE, PointReport, ReasonReport, WaitsReport};
use super::{Kind, Reason};
use crate::text::counted;
use crate::units;

/// A part of a point's time.
#[derive(Clone, Debug, PartialEq)]
pub struct TimePart {
    /// [`RUNNING`], [`RUN_QUEUE`] or the reason of a wait in words.
    pub name: String,
    /// Share of the point's time by the clock, from 0 to 1.
    pub share: f64,
    /// Number of threads that waited. `None` for time that was not waited.
    pub threads: Option<usize>,
    /// The longest wait, seconds. `None` if unknown.
    pub longest_s: Option<f64>,
}

impl PointReport {
    /// What the point's threads did most while they did not run: a wait or [`RUN_QUEUE`], with its
    /// share of the point's time. `None` if they ran all the time.
    pub fn main_wait(&self) -> Option<(String, f64)> {
        let first = self.reasons.first().filter(|first| first.share > 0.0);
        let queued = self.queued_share();
        match first {
            Some(first) if first.share >= queued => Some((first.words(), first.share)),
            _ => (queued > 0.0).then(|| (RUN_QUEUE.to_owned(), queued)),
        }
    }

    /// The parts of the point's time: on a CPU, and then the others, the longest first.
    pub fn parts(&self) -> Vec<TimePart> {
        let plain = |name: &str, share: f64| {
            let name = name.to_owned();
            TimePart { name, share, threads: None, longest_s: None }
        };
        let waited = self.reasons.iter().map(|reason| TimePart {
            name: reason.words(),
            share: reason.share,
            threads: Some(reason.threads),
            longest_s: (reason.longest_s > 0.0).then_some(reason.longest_s),
        });
        let mut others: Vec<_> = waited.chain([plain(RUN_QUEUE, self.queued_share())]).collect();
        others.retain(|part| part.share > 0.0);
        others.sort_by(|a, b| b.share.total_cmp(&a.share));
        let run = if self.wall_s > 0.0 { self.run_s / self.wall_s } else { 0.0 };
        [plain(RUNNING, run)].into_iter().chain(others).collect()
    }

    fn queued_share(&self) -> f64 {
        if self.wall_s > 0.0 { self.queued_s / self.wall_s } else { 0.0 }
    }
}

impl ReasonReport {
    /// The reason in words, as in `lock JOBS`.
    pub fn words(&self) -> String {
        Reason { kind: self.reason, detail: self.detail.clone() }.to_string()
    }
}

/// What most threads wait for, in one sentence. `None` if the process runs more than it waits for
/// any one thing. Waits outside all points count only if there are no points. A wait for work, as
/// for a request, counts like any other.
pub fn verdict(report: &WaitsReport) -> Option<String> {
    let run: f64 = report.points.iter().map(|point| point.run_s).sum();
    let has_points = report.points.iter().any(|point| point.name != OUTSIDE);
    let points = report.points.iter().filter(|point| !has_points || point.name != OUTSIDE);
    let waits = points.filter_map(|point| Some((point, point.reasons.first()?)));
    let longest = waits.max_by(|(a, x), (b, y)| {
        let order = (a.wall_s * x.share).total_cmp(&(b.wall_s * y.share));
        order.then_with(|| b.name.cmp(&a.name))
    });
    let waited = longest.map_or(0.0, |(point, reason)| point.wall_s * reason.share);
    let queued: f64 = report.points.iter().map(|point| point.queued_s).sum();
    if queued > waited.max(run) {
        let wall: f64 = report.points.iter().map(|point| point.wall_s).sum();
        let share = units::percent(queued / wall);
        return Some(format!(
            "the threads wait for a CPU {share} % of their time: more can run than there are CPUs"
        ));
    }
    let (point, reason) = longest.filter(|_| waited > run)?;
    let threads = counted(reason.threads, "thread");
    let (verb, their) = if reason.threads == 1 { ("waits", "its") } else { ("wait", "their") };
    // The share of the time of the threads that wait, if each was in the point all the time.
    let of_them = reason.share * point.threads as f64 / reason.threads.max(1) as f64;
    let share = units::percent(of_them.min(1.0));
    let (name, what) = (&point.name, reason.words());
    let place = if name == OUTSIDE { String::new() } else { format!(" in {name}") };
    let mut text = format!("{threads} {verb}{place} for {what}, {share} % of {their} time");
    let is_it = |it: &&LockReport| it.reason == reason.reason && it.name == reason.detail;
    // Locks of several processes may have one name.
    if let [lock] = report.locks.iter().filter(is_it).collect::<Vec<_>>()[..]
        && let Some(owner) = &lock.owner
    {
        let place = lock.owner_point.as_ref().map_or(String::new(), |point| format!(" in {point}"));
        text += &format!("; {owner} holds it{place}");
    }
    Some(text)
}

/// Name of the time in the run queue among the reasons.
pub const RUN_QUEUE: &str = "run queue";
/// Name of the time on a CPU.
pub const RUNNING: &str = "running";

/// All waits for one reason, over all points.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReasonRow {
    /// The reason in words, or [`RUN_QUEUE`].
    pub name: String,
    /// Time waited, seconds, summed over the threads.
    pub total_s: f64,
    /// Share of the time of all threads.
    pub share: f64,
    /// The longest wait, seconds. `None` if unknown.
    pub longest_s: Option<f64>,
    /// Number of waits that were seen. `None` if they are not counted.
    pub waits: Option<u64>,
    /// The thread that holds it, and that thread's point; empty if unknown.
    pub owner: String,
    /// The points that wait, the longest first, each with the number of its threads.
    pub points: Vec<(String, usize)>,
}

impl WaitsReport {
    /// The reasons, those with the most time first.
    pub fn reasons(&self) -> Vec<ReasonRow> {
        let wall: f64 = self.points.iter().map(|point| point.wall_s).sum();
        let mut rows: HashMap<String, ReasonRow> = HashMap::new();
        let mut add = |name: String, of: (&str, usize), total: f64, longest: Option<f64>| {
            let row = rows.entry(name).or_default();
            row.total_s += total;
            row.longest_s = match (row.longest_s, longest) {
                (Some(a), Some(b)) => Some(a.max(b)),
                (a, b) => a.or(b),
            };
            row.points.push((of.0.to_owned(), of.1));
        };
        for point in &self.points {
            for reason in &point.reasons {
                let (total, of) = (reason.share * point.wall_s, (&*point.name, reason.threads));
                add(reason.words(), of, total, Some(reason.longest_s));
            }
            if point.queued_s > 0.0 {
                add(RUN_QUEUE.to_owned(), (&point.name, point.threads), point.queued_s, None);
            }
        }
        for lock in &self.locks {
            let Some(row) = rows.get_mut(&lock.words()) else { continue };
            // Locks of several processes may have one name.
            let is_first = row.waits.is_none();
            row.waits = Some(row.waits.unwrap_or(0).saturating_add(lock.waits));
            row.owner = lock.owner_in_words().filter(|_| is_first).unwrap_or_default();
        }
        let mut rows: Vec<_> = rows
            .into_iter()
            .map(|(name, row)| {
                let share = if wall > 0.0 { row.total_s / wall } else { 0.0 };
                ReasonRow { name, share, ..row }
            })
            .collect();
        rows.sort_by(|a, b| b.total_s.total_cmp(&a.total_s).then_with(|| a.name.cmp(&b.name)));
        rows
    }
}

impl LockReport {
    /// The lock in words, as in `lock JOBS`.
    pub fn words(&self) -> String {
        Reason { kind: self.reason, detail: self.name.clone() }.to_string()
    }

    /// The thread that held it most often, with its point, as in `worker-1 in flush`.
    pub fn owner_in_words(&self) -> Option<String> {
        let owner = self.owner.as_ref()?;
        Some(match &self.owner_point {
            Some(point) => format!("{owner} in {point}"),
            None => owner.clone(),
        })
    }
}

/// What holds the points up more than they run, in a few words: a lock, a disk, memory, or the run
/// queue. `None` if nothing does. Waits for work, as in a pool of threads or for a request, do not
/// count.
pub fn held_up(report: &WaitsReport) -> Option<String> {
    let points = || report.points.iter().filter(|point| point.name != OUTSIDE);
    let run: f64 = points().map(|point| point.run_s).sum();
    let queued: f64 = points().map(|point| point.queued_s).sum();
    let is_hold_up = |it: &&ReasonReport| {
        matches!(it.reason, Kind::Lock | Kind::FileLock | Kind::Sync | Kind::PageFault)
    };
    let waits = points().filter_map(|point| {
        let reason = point.reasons.iter().find(is_hold_up)?;
        Some((point.wall_s * reason.share, point, reason))
    });
    let longest = waits.max_by(|(a, ..), (b, ..)| a.total_cmp(b));
    match longest {
        Some((waited, point, reason)) if waited > run.max(queued) => {
            let threads = counted(reason.threads, "thread");
            let verb = if reason.threads == 1 { "waits" } else { "wait" };
            let (share, words) = (units::percent(reason.share), reason.words());
            Some(format!("{threads} {verb} for {words}: {share} % of {}", point.name))
        }
        _ if queued > run => Some(format!("{RUN_QUEUE}: more threads can run than there are CPUs")),
        _ => None,
    }
}
