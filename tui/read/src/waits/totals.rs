//! How long the threads have waited since the first sample.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::Reason;
use super::report::SHORT;
use super::times::{Period, Place};
use super::words::RUN_QUEUE;
use crate::snapshot::Snapshot;
use crate::text::clean_in_place;

/// Maximum number of totals with the name of a variable. Further waits count without a name.
const NAMED: usize = 1_000;
/// The time from the first sample to the first report, at most, nanoseconds.
const FIRST_REPORT_NS: u64 = 10_000_000_000;

/// The waits of each point since the first sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitTotals {
    /// Time of the first sample, nanoseconds since the Unix epoch. All totals of one sampler share
    /// this value; [`Self::after`] keeps it.
    pub since_unix_ns: u64,
    /// Time from the first sample to the last, seconds.
    pub seconds: f64,
    /// The totals, in the order of points, reasons and names.
    pub waits: Vec<WaitTotal>,
}

impl WaitTotals {
    /// The waits since `earlier`. `None` if `earlier` is not earlier, or of another sampler.
    pub fn after(&self, earlier: &Self) -> Option<Self> {
        let is_same = self.since_unix_ns == earlier.since_unix_ns;
        if !is_same || self.seconds <= earlier.seconds {
            return None;
        }
        let before: HashMap<_, u64> =
            earlier.waits.iter().map(|total| (total.key(), total.ns)).collect();
        let since = |total: &WaitTotal| {
            let ns = total.ns.saturating_sub(before.get(&total.key()).copied().unwrap_or(0));
            (ns > 0).then(|| WaitTotal { ns, ..total.clone() })
        };
        let waits = self.waits.iter().filter_map(since).collect();
        Some(Self { seconds: self.seconds - earlier.seconds, waits, ..*self })
    }

    /// The waits between two snapshots. If the first snapshot is from before the sampler's first
    /// report, all waits of the second count. `None` if they are not known.
    pub fn between(from: &Snapshot, to: &Snapshot) -> Option<Self> {
        let to = Self::of(to)?;
        match &from.waits.as_ref()?.totals {
            Some(from) => to.after(from),
            None => {
                let sampled_before = from.taken_unix_ns.saturating_sub(to.since_unix_ns);
                (sampled_before < FIRST_REPORT_NS).then(|| to.clone())
            }
        }
    }

    /// The totals that a snapshot has.
    pub fn of(snapshot: &Snapshot) -> Option<&Self> {
        snapshot.waits.as_ref()?.totals.as_ref()
    }

    /// Makes the texts safe to show, sorts the totals and removes those with the same key.
    pub(super) fn clean(&mut self) {
        for total in &mut self.waits {
            clean_in_place(&mut total.reason);
            clean_in_place(&mut total.name);
        }
        self.waits.sort_by(|a, b| a.key().cmp(&b.key()));
        self.waits.dedup_by(|a, b| a.key() == b.key());
    }
}

/// All waits of a point for one reason, since the first sample. The time never decreases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitTotal {
    /// The point's id. `None` for waits outside all points.
    pub point: Option<u32>,
    /// The kind in words, [`RUN_QUEUE`], or `short waits` without a known reason.
    pub reason: String,
    /// The variable of a lock or the like; empty for what has no name in the program, so that there
    /// are few totals.
    pub name: String,
    /// Time waited, nanoseconds, summed over the threads.
    pub ns: u64,
}

impl WaitTotal {
    fn key(&self) -> (Option<u32>, &str, &str) {
        (self.point, &self.reason, &self.name)
    }
}

/// A point, the kind of a wait in words, and the name of a variable.
type Key = (Option<u32>, &'static str, String);

/// The totals of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    /// Waits of the periods that are not kept any more, nanoseconds.
    earlier: HashMap<Key, u64>,
    /// The greatest value of each total so far, nanoseconds. A later report may move time from one
    /// total to another, but no total may decrease.
    reported: HashMap<Key, u64>,
    /// The keys with a name.
    named: HashSet<Key>,
}

impl Totals {
    /// Adds the waits of a period that will not be kept.
    pub(super) fn add(&mut self, period: &Period) {
        let mut earlier = std::mem::take(&mut self.earlier);
        self.add_to(&mut earlier, period);
        self.earlier = earlier;
    }

    /// The totals with the waits of the periods that are kept.
    pub(super) fn report(&mut self, kept: &Period) -> Vec<WaitTotal> {
        let mut now = self.earlier.clone();
        self.add_to(&mut now, kept);
        for (key, ns) in now {
            let total = self.reported.entry(key).or_default();
            *total = ns.max(*total);
        }
        let total = |((point, reason, name), ns): (&Key, &u64)| WaitTotal {
            point: *point,
            reason: (*reason).to_owned(),
            name: name.clone(),
            ns: *ns,
        };
        self.reported.iter().map(total).collect()
    }

    fn add_to(&mut self, totals: &mut HashMap<Key, u64>, period: &Period) {
        let mut add = |key, ns| {
            if ns > 0 {
                let total: &mut u64 = totals.entry(key).or_default();
                *total = total.saturating_add(ns);
            }
        };
        for ((_, place), times) in &period.times {
            let Place::Point(point) = *place else { continue };
            add((point, RUN_QUEUE, String::new()), times.queued);
            add((point, SHORT, String::new()), times.short);
            for (reason, ns) in &times.waited {
                add(self.key(point, reason), *ns);
            }
        }
    }

    /// The key of a wait. The first [`NAMED`] keys with a name keep it.
    fn key(&mut self, point: Option<u32>, reason: &Reason) -> Key {
        let unnamed = (point, reason.kind.words(), String::new());
        let Some(name) = reason.variable() else { return unnamed };
        let key = (point, reason.kind.words(), name.to_owned());
        let has_name =
            self.named.contains(&key) || self.named.len() < NAMED && self.named.insert(key.clone());
        if has_name { key } else { unnamed }
    }
}
