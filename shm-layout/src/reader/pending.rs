//! The records of a lane that its cells may still lack, because they are perhaps not folded yet.

use super::bounds::COPY_ATTEMPTS;
use crate::heap::{Grow, NoMemory};
use crate::layout::geometry::RING_SLOTS;
use crate::layout::lane::LaneCounters;
use crate::layout::ring::{self, Addition, Slot};

/// The records of a lane that its cells may still lack, by point.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Whether the records differ from the lane's records at the last poll.
    has_changed: bool,
    /// Number of the first record that is not folded, and the number after the last record.
    taken: (u64, u64),
    additions: Vec<(u64, Addition)>,
    /// For each point: one more than the index of its first addition, or 0 without an addition.
    first: Vec<u32>,
}

impl Pending {
    /// Copies the unfolded records of a lane, for points below `points`. `before` is the range of
    /// the records in the last poll.
    pub(super) fn take(
        &mut self,
        counters: &LaneCounters,
        slots: Option<&[Slot]>,
        before: &mut (u64, u64),
        points: usize,
    ) -> Result<(), NoMemory> {
        for (_, addition) in self.additions.drain(..) {
            self.first[addition.point as usize] = 0;
        }
        if slots.is_some() {
            // Room for a whole ring, so that a visit of its records needs no memory.
            self.additions.try_reserve(RING_SLOTS)?;
        }
        let now = (0..COPY_ATTEMPTS).find_map(|_| {
            self.additions.clear();
            let folded = ring::folded(&counters.folded);
            let written = ring::visit(&counters.written, slots?, folded, |number, addition| {
                let has_room = self.additions.len() < self.additions.capacity();
                if (addition.point as usize) < points && has_room {
                    #[allow(clippy::disallowed_methods, reason = "there is room for it")]
                    self.additions.push((number, addition));
                }
            });
            Some((folded, written?))
        });
        let now = now.unwrap_or_else(|| {
            self.additions.clear();
            (0, 0)
        });
        self.has_changed = *before != now;
        (*before, self.taken) = (now, now);
        self.additions.sort_unstable_by_key(|(number, addition)| (addition.point, *number));
        for (place, (_, addition)) in self.additions.iter().enumerate().rev() {
            let point = addition.point as usize;
            if self.first.len() <= point {
                self.first.try_resize_with(point + 1, || 0)?;
            }
            self.first[point] = place as u32 + 1;
        }
        Ok(())
    }

    pub(super) const fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// Whether [`Self::take`] found all records folded, and no record was written since.
    pub(super) fn is_all_folded(&self, counters: Option<&LaneCounters>) -> bool {
        self.additions.is_empty()
            && counters.is_some_and(|counters| {
                let written = counters.written.now();
                self.taken == (written, written)
            })
    }

    /// The records of a point, oldest first, with their numbers.
    #[inline]
    pub(super) fn of(&self, point: u32) -> &[(u64, Addition)] {
        let Some(&first) = self.first.get(point as usize) else { return &[] };
        let Some(first) = (first as usize).checked_sub(1) else { return &[] };
        let from = &self.additions[first..];
        &from[..from.partition_point(|(_, addition)| addition.point == point)]
    }
}
