//! The points of a process that this viewer and other viewers have switched on or off.

use std::collections::BTreeMap;

use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::name::Name;
use pfp_shm_layout::switched::{self, Others, Switched};

use crate::snapshot::{Point, PointState};

/// Records this viewer's switches for other viewers, and reads theirs.
pub(super) struct Switches {
    directory: Directory,
    segment: Name,
    /// This viewer's record of its switches. `None` before the first switch, or if writing fails.
    own: Option<Switched>,
    /// The points that this viewer has switched, with their states before any viewer switched them.
    found: BTreeMap<u32, PointState>,
    /// The other viewers' switches at the last poll.
    others: Vec<Others>,
}

impl Switches {
    pub(super) fn new(directory: Directory, segment: Name) -> Self {
        Self { directory, segment, own: None, found: BTreeMap::new(), others: Vec::new() }
    }

    /// Records that a point is about to be switched. If recording fails and this viewer is killed,
    /// other viewers do not learn of the switch.
    pub(super) fn note(&mut self, point: u32, on: bool) {
        if self.own.is_none() {
            self.own = Switched::start(&self.directory, &self.segment).ok();
        }
        self.note_state(point, Some(on));
    }

    /// Removes the record of a point: the point was not switched, or is in its original state
    /// again.
    pub(super) fn retract(&self, point: u32) {
        self.note_state(point, None);
    }

    fn note_state(&self, point: u32, on: Option<bool>) {
        if let Some(own) = &self.own {
            own.note(point, on).ok();
        }
    }

    /// Completes the record after a point has been switched. Returns the state to restore later:
    /// the state before this switch or, if another viewer has switched the point and has not
    /// restored it yet, the state before that viewer's switch.
    pub(super) fn confirm(&mut self, point: u32, on: bool, before: PointState) -> PointState {
        let left = state(on);
        let others = || self.others.iter().find_map(|other| other.points.get(&point));
        let found = match before == left {
            true => before,
            false => others().map_or(before, |on| state(!on)),
        };
        if *self.found.entry(point).or_insert(found) == left {
            self.found.remove(&point);
            self.retract(point);
        }
        found
    }

    /// Marks the points that are still in the state to which a killed viewer switched them.
    pub(super) fn mark_left_over(&mut self, points: &mut [Point]) {
        self.others = switched::others(&self.directory, &self.segment, self.own.as_ref());
        for dead in self.others.iter_mut().filter(|other| other.is_dead) {
            dead.retain(|id, on| {
                let place = points.binary_search_by_key(&id, |point| point.id);
                place.is_ok_and(|place| {
                    let point = &mut points[place];
                    point.left_over |= point.state == state(on);
                    point.state != state(!on)
                })
            });
        }
    }
}

fn state(on: bool) -> PointState {
    if on { PointState::On } else { PointState::Off }
}
