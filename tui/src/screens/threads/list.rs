//! The columns of the list of threads, and the words in them.

use crate::screens::prelude::*;
use pfp_model::columns;
use pfp_model::headline::clock_word;
use pfp_model::lost;
use pfp_model::threads::{Thread, own_name, process_of, state_word};
use pfp_read::snapshot::{LaneKind, Open};

pub(super) static TABLE: Table<Thread, Common> = table! {
    Thread, Common;
    "process", "Process", 20, Text(process).rank(3), "its process, if there are several";
    "name", "Thread", 12, Text(name_of).left(24).rank(3).stays(), "its name";
    "tid", "Tid", 7, Whole(|thread, _| tid(thread)).rank(8).least(),
        "kernel thread id";
    "state", "State", 7, Text(|thread, common| state(thread, common).into()).right().rank(7),
        "live, ended, crashed or shared";
    "cpu", "CPU%", 6, Share(|thread, _| thread.cpu).rank(4),
        "share of a CPU as the kernel counts it, smoothed; not in files";
    "load", "Load%", 6, Share(|thread, _| thread.load).stays(),
        "share of a CPU in points, smoothed";
    "outside", "Outside%", 9, Share(|thread, _| thread.outside()).rank(5),
        "share of a CPU outside all points: CPU% less Load%";
    "bar", "", 10, Picture(|thread, _| thread.load).left(10).rank(9), "its load as a bar; full at one CPU";
    "switches", "Switch/s", 9, Rate(|thread, _| thread.switch_rate).rank(6),
        "times it was off the CPU, per second";
    "switches-all", "Switches", 9, Count(|thread, _| Some(thread.lane.switches as f64)).spare(),
        "times it was off the CPU";
    "points", "Points", 7, Whole(|thread, _| Some(thread.points as f64)).rank(10),
        "points it measured";
    "records", "Records", 8, Count(|thread, _| Some(thread.lane.records_written as f64)).rank(11),
        "records it wrote";
    "clock", "Clock", 7, Text(|thread, common| clock(thread, common).into()).right().rank(12),
        "clock of its process: rseq, perf, cputime or wall";
    "in", "In", 14, Text(within).left(32).cut().rank(2).unsorted(),
        "the innermost open region, and for how long";
    "waits", "Waits for", 16, Text(waits).left(32).cut().rank(2).unsorted(),
        "what it waits for now, and for how long";
    "most", "Hottest point", 16, Text(|thread, common| top(common, thread)).left(24).rank(1).unsorted(),
        "its busiest point, and that point's share of its load";
};

/// What the thread waits for, and for how long; empty while it runs.
fn waits(thread: &Thread, common: &Common) -> String {
    let now = common.waits().map_or(&[][..], |report| &report.now);
    let found = now.binary_search_by_key(&Some(thread.lane.id), |waiting| waiting.lane).ok();
    found.map_or(String::new(), |at| {
        let it = &now[at];
        format!("{} {}", units::duration(it.seconds), text::clean(&it.reason))
    })
}

fn tid(thread: &Thread) -> Option<f64> {
    Some(thread.lane.tid.into()).filter(|tid| *tid > 0.0)
}

fn state(thread: &Thread, common: &Common) -> &'static str {
    common.model.snapshot().map_or(NONE, |snapshot| state_word(snapshot, &thread.lane))
}

fn clock(thread: &Thread, common: &Common) -> &'static str {
    let of_all = common.model.snapshot().map(|snapshot| snapshot.clock.kind);
    thread.lane.clock.or(of_all).map_or(NONE, clock_word)
}

/// The region that a thread is in. Problems on the thread are shown to the left of the region.
fn within(thread: &Thread, common: &Common) -> String {
    let (amiss, inner) = (amiss(thread), innermost(common, thread));
    match (amiss.is_empty(), inner.is_empty()) {
        (true, _) => inner,
        (false, true) => format!("! {amiss}"),
        (false, false) => format!("! {amiss}  {inner}"),
    }
}

/// The thread's name in its process.
pub(super) fn name_of(thread: &Thread, common: &Common) -> String {
    let lane = &thread.lane;
    match common.model.snapshot().map_or(&*lane.name, |snapshot| own_name(snapshot, lane)) {
        "" => format!("[{}]", lane.tid),
        name => name.to_owned(),
    }
}

fn process(thread: &Thread, common: &Common) -> String {
    let process = common.model.snapshot().and_then(|it| it.member(thread.lane.process));
    process.map_or(String::new(), columns::process_in_column)
}

/// The problems on a thread; empty if there are none.
pub(super) fn amiss(thread: &Thread) -> String {
    let found = thread.lane.amiss.iter();
    let said =
        found.map(|(kind, count)| format!("{} {}", units::count(count), lost::words(kind, count)));
    said.collect::<Vec<_>>().join(", ")
}

/// The point that takes most of a thread's time, and its share.
fn top(common: &Common, thread: &Thread) -> String {
    let Some(top) = thread.top else {
        return String::new();
    };
    format!("{:>5}% {}", units::percent(top.share), common.point_name(top.point))
}

/// When the open regions of a thread were left open, in words. `None` while the thread runs.
pub(super) fn ended(common: &Common, thread: &Thread) -> Option<&'static str> {
    let process = process_of(common.model.snapshot()?, &thread.lane);
    match (process.state, thread.lane.kind) {
        (ProcessState::Crashed, _) => Some("when the process died"),
        (ProcessState::Exited | ProcessState::Ended, _) => Some("when the process ended"),
        (ProcessState::Running, LaneKind::Ended) => Some("when it ended"),
        (ProcessState::Running, LaneKind::Live | LaneKind::Overflow) => None,
    }
}

/// How long a region of a running thread has been open.
pub(super) fn open_for(common: &Common, open: &Open) -> String {
    let now = common.model.snapshot().map_or(0, |snapshot| snapshot.elapsed_ticks);
    common.scale().ticks(now.saturating_sub(open.start) as f64)
}

/// The innermost open region of a thread, and how long it has been open.
fn innermost(common: &Common, thread: &Thread) -> String {
    let Some(open) = thread.lane.open.last() else { return String::new() };
    let name = common.point_name(open.point);
    match ended(common, thread) {
        Some(_) => format!("was in {name}"),
        None => format!("{} {name}", open_for(common, open)),
    }
}
