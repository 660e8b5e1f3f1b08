//! Reads a segment like a viewer, and computes the few sums that tests need.

use pfp_shm_layout::cell::Sums;
use pfp_shm_layout::control::Change;
use pfp_shm_layout::find::Entry;
use pfp_shm_layout::reader::{CellReading, Picture, PointPicture, Reader};
use pfp_shm_layout::segment::Segment;

use crate::place::Place;
use crate::target::Target;

/// An attached reader.
#[derive(Debug)]
pub struct Watch {
    reader: Reader,
}

impl Watch {
    /// Finds the segment of a running target and attaches to it.
    #[must_use]
    pub fn attach(place: &Place, target: &Target) -> Self {
        Self::attach_to(place, target.pid())
    }

    /// Finds the segment of a process that the target has started, and attaches to it.
    #[must_use]
    pub fn attach_to(place: &Place, pid: u32) -> Self {
        let (segment, facts) = place.segment(pid);
        Self { reader: Reader::new(segment, facts) }
    }

    /// Opens a segment that was found.
    #[must_use]
    pub fn open(entry: &Entry) -> Self {
        let (segment, facts) = Segment::open(&entry.info.object).expect("the segment can be read");
        Self { reader: Reader::new(segment, facts) }
    }

    /// The reader.
    #[must_use]
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Takes a picture of the process, running or ended.
    pub fn poll(&mut self) -> &Picture {
        self.reader.poll()
    }

    /// Changes a point's control word.
    pub fn change(&self, point: u32, change: Change) {
        let now = crate::os::wall().as_nanos() as u64;
        self.reader.change(point, change, now).expect("there is such a point");
    }

    /// Blocks of the pool in use.
    #[must_use]
    pub fn blocks_used(&self) -> u64 {
        let counters = self.reader.segment().counters();
        counters.blocks_used.load(std::sync::atomic::Ordering::Relaxed)
    }
}

/// Number of a point by its name; there must be one such point.
#[must_use]
pub fn id(picture: &Picture, name: &str) -> u32 {
    let found: Vec<u32> = named_points(picture, name).map(|point| point.id).collect();
    match found[..] {
        [id] => id,
        _ => panic!("expected one point named {name:?}, found {found:?}"),
    }
}

/// The points with this name, without the tuples of metered points.
fn named_points<'a>(picture: &'a Picture, name: &str) -> impl Iterator<Item = &'a PointPicture> {
    picture.points.iter().filter(move |point| point.name == name && point.tuple.is_none())
}

/// The cells of a point, on all lanes; for a metered point, one sum per lane, over the point's own
/// cell and its tuples' cells.
pub fn cells(picture: &Picture, point: u32) -> impl Iterator<Item = &CellReading> {
    picture.cells.iter().filter(move |cell| cell.point == point && !is_own(picture, cell))
}

/// Whether a cell is a metered point's own cell, which sums the measurements that are in no tuple's
/// cell.
#[must_use]
pub fn is_own(picture: &Picture, cell: &CellReading) -> bool {
    let is_tuple = |point: &PointPicture| point.id == cell.point && point.tuple.is_some();
    cell.is_part && !picture.points.iter().any(is_tuple)
}

/// A point's figures over all lanes, of running and ended threads.
#[must_use]
pub fn total(picture: &Picture, point: u32) -> Sums {
    sum(cells(picture, point))
}

/// The figures of a point by its name.
#[must_use]
pub fn named(picture: &Picture, name: &str) -> Sums {
    total(picture, id(picture, name))
}

/// The sums over all points of one lane.
#[must_use]
pub fn of_lane(picture: &Picture, lane: u32) -> Sums {
    sum(picture.cells.iter().filter(|cell| cell.lane == lane && !cell.is_part))
}

fn sum<'a>(cells: impl Iterator<Item = &'a CellReading>) -> Sums {
    let mut all = Sums::default();
    for cell in cells {
        all.merge(&cell.live);
        all.merge(&cell.retired);
    }
    all
}

/// Number of the lane of a thread.
#[must_use]
pub fn lane(picture: &Picture, tid: u32) -> u32 {
    let found = picture.lanes.iter().find(|lane| lane.lane.tid == tid && !lane.overflow);
    found.unwrap_or_else(|| panic!("thread {tid} has no lane")).id
}
