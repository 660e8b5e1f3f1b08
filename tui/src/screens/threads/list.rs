//! What the list of threads can be sorted by.

use std::cmp::Ordering;

use crate::model::threads::Thread;

/// What the list of threads can be sorted by, in the order of its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadColumn {
    /// Name of the thread.
    Name,
    /// Kernel thread id.
    Tid,
    /// Share of a CPU.
    Load,
    /// Switches per second.
    Switches,
    /// Points measured.
    Points,
    /// Records written.
    Records,
}

impl ThreadColumn {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Name, Self::Tid, Self::Load, Self::Switches, Self::Points, Self::Records];

    pub(super) fn compare(self, a: &Thread, b: &Thread) -> Ordering {
        let by = |key: fn(&Thread) -> Option<f64>| {
            let key = |thread| key(thread).unwrap_or(f64::NEG_INFINITY);
            key(a).total_cmp(&key(b))
        };
        match self {
            Self::Name => a.lane.name.cmp(&b.lane.name),
            Self::Tid => a.lane.tid.cmp(&b.lane.tid),
            Self::Load => by(|thread| thread.load),
            Self::Switches => by(|thread| thread.switch_rate),
            Self::Points => a.points.cmp(&b.points),
            Self::Records => a.lane.records_written.cmp(&b.lane.records_written),
        }
    }
}
