//! The threads as a list: what it is sorted by, and which of them is meant.

use std::cmp::Ordering;

use crate::model::threads::{Ring, Thread, find};

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

    fn compare(self, a: &Thread, b: &Thread) -> Ordering {
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

/// See the module's own description.
#[derive(Debug)]
pub struct ThreadList {
    /// Lanes in the order of the rows.
    pub order: Vec<u32>,
    /// Lane of the thread under the cursor.
    pub selected: Option<u32>,
    /// The points of that thread are shown, too.
    pub opened: bool,
    /// What the list is sorted by.
    pub column: ThreadColumn,
    /// Greatest first.
    pub descending: bool,
    /// What the rings hold, in the order of the lanes.
    pub rings: Vec<Ring>,
}

impl Default for ThreadList {
    fn default() -> Self {
        Self {
            order: Vec::new(),
            selected: None,
            opened: false,
            column: ThreadColumn::Load,
            descending: true,
            rings: Vec::new(),
        }
    }
}

impl ThreadList {
    /// Place of the cursor's row, and how many there are.
    pub fn cursor(&self) -> (usize, usize) {
        let place = self.order.iter().position(|lane| Some(*lane) == self.selected);
        (place.unwrap_or(0), self.order.len())
    }

    /// The ring of a lane; none before the rings were looked into.
    pub fn ring(&self, lane: u32) -> Option<&Ring> {
        let place = self.rings.binary_search_by_key(&lane, |ring| ring.lane).ok()?;
        Some(&self.rings[place])
    }

    /// To the row of this place.
    pub(super) fn select_row(&mut self, place: usize) {
        self.selected = self.order.get(place).copied();
    }

    /// Sorts by the next column to the right, or to the left.
    pub(super) fn move_sorting(&mut self, right: bool) {
        let all = ThreadColumn::ALL;
        let place = all.iter().position(|column| *column == self.column).unwrap_or(0);
        let next = if right { place + 1 } else { place + all.len() - 1 };
        self.column = all[next % all.len()];
        self.descending = !matches!(self.column, ThreadColumn::Name | ThreadColumn::Tid);
    }

    /// Puts the rows in order, or, while they stand still, only drops those that
    /// are gone and adds new ones at the end.
    pub(super) fn sort(&mut self, threads: &[Thread], still: bool) {
        if still {
            self.order.retain(|lane| find(threads, *lane).is_some());
            let known: Vec<u32> = self.order.clone();
            let new = threads.iter().map(|thread| thread.lane.id);
            self.order.extend(new.filter(|lane| !known.contains(lane)));
        } else {
            let mut sorted: Vec<&Thread> = threads.iter().collect();
            sorted.sort_by(|a, b| {
                let order = self.column.compare(a, b);
                if self.descending { order.reverse() } else { order }
            });
            self.order = sorted.into_iter().map(|thread| thread.lane.id).collect();
        }
        if self.selected.is_none_or(|lane| find(threads, lane).is_none()) {
            self.selected = self.order.first().copied();
        }
    }
}
