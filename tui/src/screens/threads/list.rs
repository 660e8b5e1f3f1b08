//! The columns of the list of threads: what they show and sort by.

use super::draw::{amiss, innermost, top};
use crate::app::Common;
use crate::grid::{Column, Table, by_figure};
use crate::headline::clock_word;
use crate::model::threads::{Thread, state_word};
use crate::units::{self, NONE};

/// The column that is a picture: the drawer fills it.
pub(super) const BAR: &str = "bar";

const OUTSIDE: &str = "share of a CPU outside all points: CPU% less Load%";

fn share(share: Option<f64>) -> String {
    share.map_or(NONE.into(), units::percent)
}

type Of = Column<Thread, Common>;

pub(super) static TABLE: Table<Thread, Common> = Table(&[
    Of::new("name", "Thread", 12, "its name", |thread, _| name_of(thread))
        .left(24)
        .rank(3)
        .stays()
        .least(|a, b| a.lane.name.cmp(&b.lane.name)),
    Of::new("tid", "Tid", 7, "kernel thread id", |thread, _| match thread.lane.tid {
        0 => NONE.into(),
        tid => tid.to_string(),
    })
    .rank(8)
    .least(|a, b| a.lane.tid.cmp(&b.lane.tid)),
    Of::new("state", "State", 7, "whether it lives", |thread, common| {
        let snapshot = common.model.snapshot();
        snapshot.map_or(NONE, |snapshot| state_word(snapshot, &thread.lane)).into()
    })
    .rank(7),
    Of::new(
        "cpu",
        "CPU%",
        6,
        "share of a CPU as the kernel counts it, smoothed; not in files",
        |thread, _| share(thread.cpu),
    )
    .rank(4)
    .greatest(|a, b| by_figure(a.cpu, b.cpu)),
    Of::new("load", "Load%", 6, "share of a CPU in points, smoothed", |thread, _| {
        share(thread.load)
    })
    .stays()
    .greatest(|a, b| by_figure(a.load, b.load)),
    Of::new("outside", "Outside%", 9, OUTSIDE, |thread, _| share(thread.outside()))
        .rank(5)
        .greatest(|a, b| by_figure(a.outside(), b.outside())),
    Of::new(BAR, "", 10, "its load as a bar; full at one CPU", |_, _| String::new())
        .left(10)
        .rank(9),
    Of::new("switches", "Switch/s", 9, "times it was off the CPU, per second", |thread, _| {
        thread.switch_rate.map_or(NONE.into(), units::si)
    })
    .rank(6)
    .greatest(|a, b| by_figure(a.switch_rate, b.switch_rate)),
    Of::new("switches-all", "Switches", 9, "times it was off the CPU", |thread, _| {
        units::count(thread.lane.switches)
    })
    .spare()
    .greatest(|a, b| a.lane.switches.cmp(&b.lane.switches)),
    Of::new("points", "Points", 7, "points it measured", |thread, _| thread.points.to_string())
        .rank(10)
        .greatest(|a, b| a.points.cmp(&b.points)),
    Of::new("records", "Records", 8, "records it wrote", |thread, _| {
        units::count(thread.lane.records_written)
    })
    .rank(11)
    .greatest(|a, b| a.lane.records_written.cmp(&b.lane.records_written)),
    Of::new(
        "clock",
        "Clock",
        7,
        "how its process learns of switches: rseq, perf, cputime or wall",
        |thread, common| {
            let of_all = common.model.snapshot().map(|snapshot| snapshot.clock.kind);
            thread.lane.clock.or(of_all).map_or(NONE, clock_word).into()
        },
    )
    .rank(12),
    Of::new("in", "In", 14, "the innermost open region, and for how long", |thread, common| {
        let (amiss, inner) = (amiss(thread), innermost(common, thread));
        match (amiss.is_empty(), inner.is_empty()) {
            (true, _) => inner,
            // A rare problem comes first.
            (false, true) => format!("! {amiss}"),
            (false, false) => format!("! {amiss}  {inner}"),
        }
    })
    .text(32)
    .rank(2),
    Of::new(
        "most",
        "Burns most",
        16,
        "the point that it burns most in, and the part of its load",
        |thread, common| top(common, thread),
    )
    .left(24)
    .rank(1),
]);

pub(super) fn name_of(thread: &Thread) -> String {
    let lane = &thread.lane;
    if lane.name.is_empty() { format!("[{}]", lane.tid) } else { lane.name.clone() }
}
