//! Cache keys: whether a reading still matches its cell.

use super::backed::Sparse;
use super::histogram::{IN_LINE, Near};
use super::near::{fetch, fetch_start};
use super::pending::Pending;
use super::picture::Picture;
use super::reading::IN_USE;
use crate::layout::cell::{Cell, CellPicture};
use crate::layout::control::Control;
use crate::layout::lane::LaneState;

/// The thread or threads whose figures a cell has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The owner of the lane, which runs or has ended.
    One { generation: u32, state: LaneState },
    /// All threads that found no lane.
    All,
}

impl Default for Owner {
    fn default() -> Self {
        Self::One { generation: 0, state: LaneState::Free }
    }
}

impl Owner {
    /// Whether the live figures of a cell belong to this owner, and the owner still runs.
    pub(super) fn owns(self, cell: &CellPicture) -> bool {
        match self {
            Self::One { generation, state } => generation == cell.owner && state == LaneState::Live,
            Self::All => true,
        }
    }
}

/// Shows whether a reading still matches its cell. The key is small and separate from the reading:
/// for an unchanged cell the poll reads nothing but the key.
#[derive(Clone, Debug)]
pub(super) struct CacheKey {
    pub(super) sequence: u64,
    /// Number of the point whose control word the cell follows.
    pub(super) steered_by: u32,
    pub(super) epoch: u32,
    /// Whether `epoch` was the point's current one.
    pub(super) current: bool,
    /// Whether records of the ring were added to the cell's figures.
    pub(super) added: bool,
    /// Index of the reading; `None` before the cell was read.
    pub(super) place: Option<u32>,
    pub(super) near: Near,
}

impl Default for CacheKey {
    fn default() -> Self {
        Self {
            sequence: Self::NEVER,
            steered_by: 0,
            epoch: 0,
            current: false,
            added: false,
            place: None,
            near: Near::default(),
        }
    }
}

impl CacheKey {
    /// A sequence word that never counts as unchanged: it is odd, and the sequence word of a cell
    /// without staged figures is even.
    pub(super) const NEVER: u64 = 1;

    /// Makes the next poll read the cell again, though no thread has written to it.
    pub(super) fn forget(&mut self) {
        (self.sequence, self.current) = (Self::NEVER, false);
    }

    /// The index of the reading and the epoch that the cell follows, if the cell belongs to `point`
    /// or to one of its tuples.
    pub(super) fn epoch_of(&self, point: u32) -> Option<(usize, u32)> {
        let place = self.place.filter(|_| self.steered_by == point);
        place.map(|place| (place as usize, self.epoch))
    }

    /// Whether the reading is up to date: the cell and the lane's unfolded records of its point are
    /// unchanged.
    #[inline]
    pub(super) fn is_fresh(&self, segment: Sparse<'_>, cell: &Cell, pending: &Pending) -> bool {
        self.is_as_it_was(segment, cell)
            && !(pending.has_changed() && (self.added || !pending.of(cell.point()).is_empty()))
    }

    /// Prefetches the memory that [`CellReader::read`](super::cells::CellReader::read) will most
    /// likely read, except the counts of [`Self::fetch_counts`].
    #[inline]
    fn fetch(&self, segment: Sparse<'_>, cell: &Cell, picture: &Picture) {
        cell.live_words(cell.sequence()).into_iter().for_each(fetch);
        let Some(place) = self.place else { return };
        if let Some(words) = segment.words(self.near.chunk) {
            fetch_start(&words[usize::from(self.near.line) * IN_LINE]);
        }
        let reading = picture.cells.as_ptr().wrapping_add(place as usize).cast::<u8>();
        fetch(reading..reading.wrapping_add(IN_USE));
    }

    #[inline]
    fn fetch_counts(&self, picture: &Picture) {
        let reading = self.place.map(|place| &picture.cells[place as usize]);
        if let Some(line) = reading.and_then(|reading| reading.histogram.line(self.near)) {
            fetch_start(line);
        }
    }

    #[inline]
    fn is_as_it_was(&self, segment: Sparse<'_>, cell: &Cell) -> bool {
        let sequence = cell.sequence();
        sequence == self.sequence
            && sequence & 1 == 0
            && is_current(segment, self.steered_by, self.epoch) == Some(self.current)
    }
}

/// Number of cells that are read together: their lines and the lines of the batch before fit into
/// the first-level cache.
const STALE: usize = 16;

/// Cells of a lane that have to be read again.
///
/// Between two polls their memory leaves all caches. So it is prefetched some cells ahead: the
/// processor handles several such requests at a time, and does not wait for them.
pub(super) struct ReadBatch<'a> {
    cells: [Option<(usize, &'a Cell)>; STALE],
    len: usize,
}

impl Default for ReadBatch<'_> {
    fn default() -> Self {
        Self { cells: [None; STALE], len: 0 }
    }
}

impl<'a> ReadBatch<'a> {
    pub(super) const fn is_full(&self) -> bool {
        self.len == STALE
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds the cell of a key to the batch, and prefetches the memory that reading the cell needs.
    #[inline]
    pub(super) fn add(
        &mut self,
        (index, key): (usize, &CacheKey),
        cell: &'a Cell,
        segment: Sparse<'_>,
        picture: &Picture,
    ) {
        key.fetch(segment, cell, picture);
        self.cells[self.len] = Some((index, cell));
        self.len += 1;
    }

    /// The cells, with the indexes of their keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &'a Cell)> {
        self.cells[..self.len].iter().filter_map(|cell| *cell)
    }

    /// Prefetches the counts that the readings lead to, after the readings themselves were
    /// prefetched.
    pub(super) fn fetch_counts(&self, keys: &[CacheKey], picture: &Picture) {
        self.iter().for_each(|(index, _)| keys[index].fetch_counts(picture));
    }
}

/// The point whose control word a point follows: a tuple follows its metered point, which has a
/// lower number, and any other point follows its own word.
pub(super) fn steering(segment: Sparse<'_>, point: u32) -> u32 {
    let entry = segment.entry(point as usize).and_then(|entry| entry.read());
    let of = entry.and_then(|entry| entry.of);
    of.filter(|of| *of < point).unwrap_or(point)
}

/// Whether figures of this epoch belong to the point's current window; `None` for a point that does
/// not exist.
#[inline]
pub(super) fn is_current(segment: Sparse<'_>, point: u32, epoch: u32) -> Option<bool> {
    Some(Control(segment.control_word(point as usize)?).epoch() == epoch)
}
