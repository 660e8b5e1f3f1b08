//! The columns of the list of threads: what they show and sort by.

use std::cmp::Ordering;

use crate::app::Common;
use crate::headline::clock_word;
use crate::look::{Look, chart};
use crate::model::threads::Thread;
use crate::snapshot::{LaneKind, ProcessState};
use crate::text;
use crate::units::{self, NONE};

/// What the columns of the list are filled from.
pub(super) struct Seen<'a> {
    pub(super) common: &'a Common,
    pub(super) look: &'a Look,
}

/// A column of the list.
pub(super) struct Column {
    pub(super) title: &'static str,
    /// 0 of the name, which shares what is left.
    pub(super) width: usize,
    /// The narrowest screen that has it.
    pub(super) from: usize,
    pub(super) text: fn(&Seen, &Thread) -> String,
    /// None if the rows cannot be sorted by it.
    pub(super) order: Option<Order>,
}

/// How a column sorts.
pub(super) struct Order {
    pub(super) key: &'static str,
    pub(super) meaning: &'static str,
    /// In its natural direction.
    pub(super) least_first: bool,
    pub(super) compare: fn(&Thread, &Thread) -> Ordering,
}

/// Columns of a load bar.
const BAR: usize = 10;

pub(super) const COLUMNS: &[Column] = &[
    Column {
        title: "Thread",
        width: 0,
        from: 0,
        text: |_, thread| name_of(thread),
        order: Some(Order {
            key: "name",
            meaning: "its name",
            least_first: true,
            compare: |a, b| a.lane.name.cmp(&b.lane.name),
        }),
    },
    Column {
        title: "Tid",
        width: 7,
        from: 50,
        text: |_, thread| match thread.lane.tid {
            0 => NONE.into(),
            tid => tid.to_string(),
        },
        order: Some(Order {
            key: "tid",
            meaning: "kernel thread id",
            least_first: true,
            compare: |a, b| a.lane.tid.cmp(&b.lane.tid),
        }),
    },
    Column {
        title: "State",
        width: 7,
        from: 70,
        text: |seen, thread| {
            let state = seen.common.model.snapshot().map(|snapshot| snapshot.process.state);
            match thread.lane.kind {
                // No thread outlives its process, whatever its lane says last.
                LaneKind::Live if state == Some(ProcessState::Crashed) => "crashed",
                LaneKind::Live if state == Some(ProcessState::Exited) => "ended",
                LaneKind::Live => "live",
                LaneKind::Ended => "ended",
                LaneKind::Overflow => "shared",
            }
            .into()
        },
        order: None,
    },
    Column {
        title: "CPU%",
        width: 6,
        from: 78,
        text: |_, thread| thread.cpu.map_or(NONE.into(), units::percent),
        order: Some(Order {
            key: "cpu",
            meaning: "share of a CPU as the kernel counts it, smoothed",
            least_first: false,
            compare: |a, b| by_figure(a.cpu, b.cpu),
        }),
    },
    Column {
        title: "Load%",
        width: 6,
        from: 0,
        text: |_, thread| thread.load.map_or(NONE.into(), units::percent),
        order: Some(Order {
            key: "load",
            meaning: "share of a CPU in its points, smoothed",
            least_first: false,
            compare: |a, b| by_figure(a.load, b.load),
        }),
    },
    Column {
        // Of one CPU.
        title: "",
        width: BAR,
        from: 90,
        text: |seen, thread| {
            let bar = chart::bar(thread.load.unwrap_or(0.0), BAR, &seen.look.glyphs);
            text::fit(&bar, BAR, ' ')
        },
        order: None,
    },
    Column {
        title: "Switch/s",
        width: 9,
        from: 60,
        text: |_, thread| thread.switch_rate.map_or(NONE.into(), units::si),
        order: Some(Order {
            key: "switches",
            meaning: "times it was off the CPU, per second",
            least_first: false,
            compare: |a, b| by_figure(a.switch_rate, b.switch_rate),
        }),
    },
    Column {
        title: "Switches",
        width: 8,
        from: 190,
        text: |_, thread| units::count(thread.lane.switches),
        order: None,
    },
    Column {
        title: "Points",
        width: 7,
        from: 100,
        text: |_, thread| thread.points.to_string(),
        order: Some(Order {
            key: "points",
            meaning: "points it measured",
            least_first: false,
            compare: |a, b| a.points.cmp(&b.points),
        }),
    },
    Column {
        title: "Records",
        width: 8,
        from: 150,
        text: |_, thread| units::count(thread.lane.records_written),
        order: Some(Order {
            key: "records",
            meaning: "records it wrote",
            least_first: false,
            compare: |a, b| a.lane.records_written.cmp(&b.lane.records_written),
        }),
    },
    Column {
        title: "Clock",
        width: 7,
        from: 180,
        text: |seen, thread| {
            let of_all = seen.common.model.snapshot().map(|snapshot| snapshot.clock.kind);
            thread.lane.clock.or(of_all).map_or(NONE, clock_word).into()
        },
        order: None,
    },
];

/// How the column of this key sorts.
pub(super) fn order_of(key: &str) -> Option<&'static Order> {
    COLUMNS.iter().filter_map(|column| column.order.as_ref()).find(|order| order.key == key)
}

pub(super) fn name_of(thread: &Thread) -> String {
    let lane = &thread.lane;
    if lane.name.is_empty() { format!("[{}]", lane.tid) } else { lane.name.clone() }
}

/// What has no figure counts as less than every figure.
fn by_figure(a: Option<f64>, b: Option<f64>) -> Ordering {
    let key = |figure: Option<f64>| figure.unwrap_or(f64::NEG_INFINITY);
    key(a).total_cmp(&key(b))
}
