//! Why a kept call was slow: the chain of nested calls that took most of its time, and what its
//! thread did then.
//!
//! A point is on the chain if its calls took at least half of the time of the calls around them. The
//! cause is what the thread did in the own time of the last point's calls. If at least half of that
//! was off the CPU, the kernel's counts of the whole slow call show why. Otherwise page faults are
//! the cause if they took an estimated third of the time on the CPU.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, Result};
use pfp_read::snapshot::{KernelCounts, Limit, Record, SlowCall, Snapshot, total};
use pfp_read::source::Source;
use pfp_read::text::warn;

/// About the time that a page fault without a disk takes, with clearing the page; seconds.
const MINOR_FAULT: f64 = 1e-6;

/// Maximum number of calls of a chain.
const LONGEST: usize = 64;

/// Why a call was slow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Ids of the points of the chain. Calls of the first are directly in the slow call.
    pub chain: Vec<u32>,
    /// Ticks of the last point's calls, without calls inside; of the slow call if the chain is empty.
    pub span: u64,
    /// What the thread did in that time.
    pub cause: Cause,
}

/// What a thread did in the time of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It ran.
    Ran,
    /// It waited: for a lock, a timer, a file, a peer.
    Waited,
    /// Other threads ran on its CPU.
    Preempted,
    /// It had page faults.
    Faulted,
    /// It was off the CPU for an unknown reason: it waited, but was pre-empted more often, or the
    /// kernel's counts are unknown or show neither.
    OffCpu,
}

impl Cause {
    /// The cause in words that follow a time.
    pub fn words(self) -> &'static str {
        match self {
            Self::Ran => "on a CPU",
            Self::Waited => "waiting",
            Self::Preempted => "pre-empted",
            Self::Faulted => "in page faults",
            Self::OffCpu => "off the CPU",
        }
    }
}

/// Why a call was slow. `ticks_per_second` is the rate of its clock.
pub fn explain(call: &SlowCall, ticks_per_second: f64) -> Explanation {
    let mut chain = Vec::new();
    let mut depth = call.depth;
    let mut around = NestedCalls {
        span: call.span,
        exclusive: call.exclusive,
        times: vec![(call.start, call.end())],
        ..NestedCalls::default()
    };
    loop {
        let mut inside = nested(call, &around.times, depth);
        let all = inside.iter().fold(0_u64, |all, sum| all.saturating_add(sum.span));
        let span = around.span.saturating_sub(all);
        // Another process may have written records that are nested without end.
        let is_long = inside.first().is_some_and(|longest| longest.span >= around.span / 2);
        if !is_long || chain.len() == LONGEST {
            let cause = cause(call, (span, around.exclusive), ticks_per_second);
            return Explanation { chain, span, cause };
        }
        around = inside.swap_remove(0);
        chain.push(around.point);
        depth += 1;
    }
}

/// What the thread did in these ticks of a call, of which it ran in `exclusive`.
fn cause(call: &SlowCall, (ticks, exclusive): (u64, u64), ticks_per_second: f64) -> Cause {
    // If calls inside are not known any more, their time counts here, too.
    let off_cpu = ticks.saturating_sub(exclusive).min(call.off_cpu);
    let on_cpu = ticks.saturating_sub(off_cpu) as f64 / ticks_per_second;
    // The estimate is low for a virtual machine, where a fault takes 2 us.
    let faults = |counts: KernelCounts| {
        // Page faults may have filled the whole time before the call, so it is subtracted.
        let before = counts.before as f64 / ticks_per_second;
        counts.minor_faults as f64 * MINOR_FAULT - before >= on_cpu / 3.0
    };
    match call.kernel {
        Some(counts) if off_cpu < ticks / 2 && faults(counts) => Cause::Faulted,
        _ if off_cpu < ticks / 2 => Cause::Ran,
        Some(KernelCounts { major_faults: 1.., .. }) => Cause::Faulted,
        Some(KernelCounts { waits: 0, preemptions: 1.., .. }) => Cause::Preempted,
        Some(KernelCounts { waits: waits @ 1.., preemptions, .. }) if preemptions <= waits => {
            Cause::Waited
        }
        // Few long waits can be longer than many pre-emptions, and the other way round.
        Some(_) | None => Cause::OffCpu,
    }
}

/// Whether the reason of a call's wait is unknown. False if the program asked to keep the call.
pub fn lacks_reason(call: &SlowCall, ticks_per_second: f64) -> bool {
    let is_wait = |cause| matches!(cause, Cause::Waited | Cause::OffCpu);
    call.waited_for.is_none()
        && call.why.is_empty()
        && is_wait(explain(call, ticks_per_second).cause)
}

/// A limit as [`parse_limit`] reads it.
pub fn written(limit: Limit) -> String {
    let cpu = if limit.cpu { "cpu " } else { "" };
    format!("{cpu}{}", pfp_read::units::duration(limit.ns as f64 / 1e9))
}

/// The calls of a point directly inside other calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NestedCalls {
    /// Id of the point.
    pub point: u32,
    /// Number of calls.
    pub count: u64,
    /// Ticks from begin to end.
    pub span: u64,
    /// Ticks on a CPU, without calls inside.
    pub exclusive: u64,
    /// Begin and end of each, in the order of time.
    times: Vec<(u64, u64)>,
}

/// Calls `see` with each slow call of a source, of a recording those of all its snapshots, and with a
/// snapshot that has the call. A call is seen again if a later snapshot says what it waited for.
/// Returns the last snapshot.
///
/// # Errors
///
/// No snapshot can be read.
pub fn each(
    source: &mut dyn Source,
    mut see: impl FnMut(&SlowCall, &Snapshot),
) -> Result<Snapshot> {
    let mut has_reason = HashMap::new();
    let mut visit = |snapshot: &Snapshot| {
        for call in &snapshot.slow {
            let has_now = call.waited_for.is_some();
            let had = has_reason.insert(call.key(), has_now);
            if had.is_none_or(|had| has_now && !had) {
                see(call, snapshot);
            }
        }
    };
    let places = source.recording().map_or(1, |recording| recording.len());
    let mut last = None;
    for place in 0..places {
        if let Some(recording) = source.recording() {
            recording.seek(place);
        }
        match source.poll() {
            Ok(snapshot) => {
                visit(&snapshot);
                last = Some(snapshot);
            }
            Err(error) if last.is_none() && place + 1 == places => return Err(error),
            // A damaged snapshot is skipped, so that the others are shown.
            Err(error) => warn(&format!("{error:#}")),
        }
    }
    last.context("expected a snapshot, found an empty recording")
}

/// The moment of a call: a snapshot that was taken at the end of the last record that was kept with
/// it. It has these records and no other figures.
pub fn moment(call: &SlowCall, snapshot: &Snapshot) -> Snapshot {
    let records: Vec<Record> = call.records.iter().chain(&call.others).copied().collect();
    let last = records.iter().map(Record::end).max().unwrap_or(0).max(call.end());
    // Records of other threads may end after the call.
    let after_ns = (last - call.end()) as f64 / snapshot.clock.ticks_per_second * 1e9;
    let mut moment = Snapshot {
        records,
        elapsed_ticks: last,
        taken_unix_ns: call.unix_ms.saturating_mul(1_000_000).saturating_add(after_ns as u64),
        waits: None,
        ..snapshot.without_measurements()
    };
    moment.lanes.iter_mut().for_each(|lane| lane.open.clear());
    moment
}

/// Averages per call of `caller`: the number of calls of `inside` directly in it, and their ticks on
/// a CPU without nested calls. `None` if they are unknown, or if only one of the points was reset.
pub fn usual(caller: u32, inside: u32, snapshot: &Snapshot) -> Option<(f64, f64)> {
    let begin = |point| snapshot.point(point)?.begin_ticks();
    let (one, other) = (begin(caller)?, begin(inside)?);
    // A reset of all points takes a moment.
    let since = snapshot.elapsed_ticks.saturating_sub(one.max(other));
    if one.abs_diff(other) > since / 100 {
        return None;
    }
    let calls = total(snapshot.cells_of(caller)).count as f64;
    let edges = snapshot.edges_of(inside).iter().filter(|edge| edge.caller == Some(caller));
    let (count, ticks) = edges.fold((0.0, 0.0), |(count, ticks), edge| {
        (count + edge.count as f64, ticks + edge.exclusive as f64)
    });
    (calls > 0.0 && count > 0.0).then_some((count / calls, ticks / calls))
}

/// The calls directly inside a slow call by point, the longest in all first. Of a call with very
/// many calls inside, only the last ones are known.
pub fn inside(call: &SlowCall) -> Vec<NestedCalls> {
    nested(call, &[(call.start, call.end())], call.depth)
}

/// The calls directly inside calls of the same thread, which have these times and this depth.
fn nested(call: &SlowCall, around: &[(u64, u64)], depth: u32) -> Vec<NestedCalls> {
    let is_inside = |record: &&Record| {
        let after = around.partition_point(|(start, _)| *start <= record.start);
        record.depth == (depth + 1) % 256
            && record.context == call.context
            && after.checked_sub(1).is_some_and(|last| record.end() <= around[last].1)
    };
    let mut sums: BTreeMap<u32, NestedCalls> = BTreeMap::new();
    for record in call.records.iter().filter(is_inside) {
        let sum = sums.entry(record.point).or_default();
        sum.point = record.point;
        sum.count += 1;
        sum.span = sum.span.saturating_add(record.span);
        sum.exclusive = sum.exclusive.saturating_add(record.exclusive);
        sum.times.push((record.start, record.end()));
    }
    let mut sums: Vec<_> = sums.into_values().collect();
    sums.sort_by_key(|sum| std::cmp::Reverse(sum.span));
    sums
}

/// Why a call was slow, in words: `flush > write, 4.80ms waiting`.
pub fn words(call: &SlowCall, snapshot: &Snapshot) -> String {
    let rate = snapshot.clock.ticks_per_second;
    let Explanation { chain, span, cause } = explain(call, rate);
    let names: Vec<_> = chain.iter().map(|point| name(*point, snapshot)).collect();
    let chain = if names.is_empty() { "itself".into() } else { names.join(" > ") };
    let waits = matches!(cause, Cause::Waited | Cause::OffCpu);
    let waited_for = call.waited_for.as_ref().filter(|_| waits);
    let waited_for = waited_for.map_or(String::new(), |reason| format!(": {reason}"));
    let time = pfp_read::units::duration(span as f64 / rate);
    format!("{chain}, {time} {}{waited_for}", cause.words())
}

/// The name of a point, or its number.
pub fn name(point: u32, snapshot: &Snapshot) -> String {
    let found = snapshot.point(point).filter(|point| !point.name.is_empty());
    found.map_or_else(|| format!("#{point}"), |point| point.name.clone())
}

/// The name of the call's thread, if its lane still belongs to it.
pub fn thread(call: &SlowCall, snapshot: &Snapshot) -> String {
    let lane = snapshot.lane(call.lane).filter(|lane| lane.tid == call.tid);
    lane.map_or_else(|| format!("tid {}", call.tid), |lane| lane.name.clone())
}

/// Parses a limit: `5ms`, `cpu 5ms`, or `off`, which is `None`.
///
/// # Errors
///
/// A sentence on what was expected.
pub fn parse_limit(text: &str) -> Result<Option<Limit>, String> {
    let expected = || format!("expected 5ms, cpu 5ms or off, found {text}");
    let text = text.trim();
    if text == "off" {
        return Ok(None);
    }
    let (cpu, time) = match text.strip_prefix("cpu ") {
        Some(time) => (true, time),
        None => (false, text),
    };
    let seconds = crate::alpha::seconds(time).ok_or_else(expected)?;
    let limit = Limit::stored((seconds * 1e9).round() as u64, cpu);
    limit.map(Some).ok_or_else(|| format!("expected a time from 1us to 99s, found {time}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pfp_read::snapshot::{Cell, Edge, Stats};
    use pfp_read::source::synthetic::Synthetic;

    use super::*;

    fn record(point: u32, depth: u32, start: u64, span: u64, exclusive: u64) -> Record {
        Record { lane: 0, point, start, span, exclusive, depth, context: 0 }
    }

    fn call(off_cpu: u64, waits: u64, preemptions: u64, records: Vec<Record>) -> SlowCall {
        let kernel = Some(KernelCounts { waits, preemptions, ..KernelCounts::default() });
        SlowCall {
            point: 1,
            start: 1000,
            span: 500,
            off_cpu,
            kernel,
            records,
            ..Default::default()
        }
    }

    #[test]
    fn the_chain_ends_where_the_time_was_spent() {
        let records = vec![
            record(9, 2, 900, 50, 50),
            record(4, 3, 1110, 300, 5),
            record(5, 3, 1420, 30, 30),
            record(3, 2, 1100, 360, 25),
            record(2, 1, 1050, 430, 70),
            record(1, 0, 1000, 500, 70),
        ];
        let found = explain(&call(295, 1, 0, records.clone()), 1e9);
        assert_eq!((found.chain, found.span, found.cause), (vec![2, 3, 4], 300, Cause::Waited));
        assert_eq!(explain(&call(295, 0, 7, records.clone()), 1e9).cause, Cause::Preempted);
        assert_eq!(explain(&call(295, 1, 7, records.clone()), 1e9).cause, Cause::OffCpu);
        let found = explain(&SlowCall { kernel: None, ..call(295, 0, 0, records) }, 1e9);
        assert_eq!(found.cause, Cause::OffCpu);
    }

    #[test]
    fn a_call_without_a_slow_one_inside_ran_or_waited_itself() {
        let short = vec![record(2, 1, 1100, 100, 100), record(2, 1, 1300, 100, 100)];
        let found = explain(&call(0, 0, 0, short.clone()), 1e9);
        assert_eq!((found.chain, found.span, found.cause), (vec![], 300, Cause::Ran));
        let waited = SlowCall { exclusive: 10, ..call(290, 2, 1, short) };
        assert_eq!(explain(&waited, 1e9).cause, Cause::Waited);
        let mut faulted = call(0, 0, 0, Vec::new());
        let kernel = |minor_faults| {
            Some(KernelCounts { minor_faults, before: 1_000_000, ..Default::default() })
        };
        faulted.kernel = kernel(1_100);
        assert_eq!(explain(&faulted, 1e9).cause, Cause::Faulted, "0.1 ms at least of 0.5 us");
        faulted.kernel = kernel(900);
        assert_eq!(explain(&faulted, 1e9).cause, Cause::Ran, "all may be before it");
        faulted.kernel = Some(KernelCounts { major_faults: 1, waits: 1, ..Default::default() });
        assert_eq!(explain(&SlowCall { off_cpu: 400, ..faulted }, 1e9).cause, Cause::Faulted);
    }

    /// Another process may have written any records.
    #[test]
    fn a_chain_ends() {
        let endless = (0..256).map(|depth| record(2, depth, 1000, 500, 0)).collect();
        assert_eq!(explain(&call(0, 0, 0, endless), 1e9).chain.len(), LONGEST);
        let huge = (0..9).map(|_| record(2, 1, 1000, u64::MAX, u64::MAX)).collect();
        explain(&SlowCall { span: u64::MAX, ..call(0, 0, 0, huge) }, 1e9);
    }

    #[test]
    fn what_is_usual_is_per_call_of_the_caller() {
        let mut snapshot = Synthetic::new().poll().unwrap();
        snapshot.cells.clear();
        let stats = Stats { count: 4, ..Stats::default() };
        snapshot.cells.push(Arc::new(Cell { point: 1, stats, ..Cell::default() }));
        let edge = |point, caller, lane, count| Edge {
            point,
            caller,
            lane,
            count,
            exclusive: 10 * count,
            ..Edge::default()
        };
        let edges = [edge(2, None, 0, 7), edge(2, Some(1), 0, 2), edge(2, Some(1), 1, 4)];
        snapshot.edges = edges.into();
        assert_eq!(usual(1, 2, &snapshot), Some((1.5, 15.0)));
        assert_eq!(usual(1, 3, &snapshot), None);
        // Both are reset, one shortly after the other.
        let since = snapshot.elapsed_ticks - 1_000_000;
        for (point, since) in [(1, since), (2, since + 2_000)] {
            let point = snapshot.points.iter_mut().find(|it| it.id == point).unwrap();
            (point.resets, point.since_ticks) = (1, Some(since));
        }
        assert_eq!(usual(1, 2, &snapshot), Some((1.5, 15.0)));
        snapshot.points.iter_mut().find(|it| it.id == 2).unwrap().since_ticks = Some(0);
        assert_eq!(usual(1, 2, &snapshot), None);
    }

    #[test]
    fn many_calls_of_one_point_are_a_cause_together() {
        let many = |exclusive| (0..30).map(move |at| record(2, 1, 1010 + 15 * at, 14, exclusive));
        let found =
            explain(&SlowCall { exclusive: 80, ..call(400, 30, 0, many(1).collect()) }, 1e9);
        assert_eq!((found.chain, found.span, found.cause), (vec![2], 420, Cause::Waited));
        let ran = SlowCall { exclusive: 80, ..call(0, 0, 0, many(14).collect()) };
        assert_eq!(explain(&ran, 1e9).cause, Cause::Ran);
        // The call waits itself, and the many calls run in calls inside them.
        let deep = many(1).flat_map(|around| {
            let inside = record(3, 2, around.start + 1, 6, 6);
            [inside, Record { start: inside.start + 6, ..inside }, around]
        });
        let ran = SlowCall { exclusive: 10, ..call(80, 30, 0, deep.collect()) };
        let found = explain(&ran, 1e9);
        assert_eq!((found.chain, found.span, found.cause), (vec![2, 3], 360, Cause::Ran));
    }

    #[test]
    fn limits_are_times() {
        let limit = |ns, cpu| Ok(Some(Limit { ns, cpu }));
        assert_eq!(parse_limit("5ms"), limit(5_000_000, false));
        assert_eq!(parse_limit(" cpu 1.5 s"), limit(1_500_000_000, true));
        assert_eq!(parse_limit("1.29ms"), limit(1_200_000, false));
        assert_eq!(parse_limit("off"), Ok(None));
        for wrong in ["", "5", "5 bananas", "-5ms", "1ns", "2min", "p99"] {
            assert!(parse_limit(wrong).is_err(), "{wrong}");
        }
    }
}
