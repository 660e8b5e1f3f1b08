//! The sizes of a segment, and where each section begins.

use crate::layout::black_box::BlackBox;
use crate::layout::calls::{Calls, EdgeAllocs};
use crate::layout::cell::Cell;
use crate::layout::lane::Lane;
use crate::layout::point::PointEntry;
use crate::layout::ring::Slot;
use crate::sync::AtomicU64;

/// Bytes of a page, the grain of protection and backing.
pub const PAGE: usize = 4096;
/// Bytes of a block of the pool.
pub const BLOCK: usize = 16 * 1024;
/// Bytes of a chunk: one histogram part.
pub const CHUNK: usize = 256;
/// Copies of the sums of allocations of a cell, a power of two; see [`crate::layout::allocs`].
pub(crate) const ALLOC_COPIES: usize = 8;
/// Chunks that the sums of allocations take: a power of two, so that they are in one page.
pub const ALLOC_CHUNKS: usize = (64 + ALLOC_COPIES * 64).div_ceil(CHUNK).next_power_of_two();
/// Blocks of a lane's ring.
pub const RING_BLOCKS: u64 = 4;
/// Records that a lane's ring holds.
pub const RING_SLOTS: usize = RING_BLOCKS as usize * BLOCK / size_of::<Slot>();
/// Blocks of a lane's calls.
pub const CALLS_BLOCKS: u64 = (size_of::<Calls>() / BLOCK) as u64;
const _: () = assert!(size_of::<Calls>().is_multiple_of(BLOCK));
/// Blocks of the allocations of a lane's edges.
pub const EDGE_ALLOCS_BLOCKS: u64 = size_of::<EdgeAllocs>().div_ceil(BLOCK) as u64;
/// Blocks of a [box](crate::layout::black_box).
pub const BOX_BLOCKS: u64 = (size_of::<BlackBox>() / BLOCK) as u64;
const _: () = assert!(size_of::<BlackBox>().is_multiple_of(BLOCK));
/// Cells in a block of cells.
pub const CELLS_PER_BLOCK: usize = (BLOCK - 1) / size_of::<Cell>();

/// Control words in a page. The last one belongs to no point: it is a [switch](crate::switch).
pub(super) const CONTROL_WORDS: usize = PAGE / size_of::<AtomicU64>();

/// The sizes that a new segment is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Maximum number of points.
    pub points: u32,
    /// Lanes for threads; further threads share the overflow lane.
    pub lanes: u32,
    /// Bytes for names of points and source files.
    pub string_bytes: u32,
    /// Maximum memory for rings, cells and histograms, in blocks of 16 KiB.
    pub blocks: u32,
}

impl Default for Config {
    fn default() -> Self {
        // These upper bounds make a sparse object of 256 MiB. A small program uses less than one
        // MiB.
        Self { points: 10_240, lanes: 128, string_bytes: 2 << 20, blocks: 16_000 }
    }
}

impl Config {
    /// A segment of at most `bytes` in total, with room for the requested points and lanes. Without
    /// a request, it has room for the standard number, or for fewer if that does not fit.
    #[must_use]
    pub fn within(bytes: u64, points: Option<u32>, lanes: Option<u32>) -> Self {
        let standard = Self::default();
        let part = |of: u64, least: u32, most: u32| {
            u32::try_from(bytes / of).unwrap_or(u32::MAX).clamp(least, most)
        };
        let tables = Self {
            points: points.unwrap_or(part(1 << 10, 128, standard.points)),
            // Each lane takes nine blocks before it needs more. The overflow lane, which threads
            // beyond the lanes share, needs some blocks as well.
            lanes: lanes.unwrap_or(part(208 << 10, 2, standard.lanes)),
            string_bytes: part(16, PAGE as u32, standard.string_bytes),
            blocks: 0,
        };
        let pool = bytes.saturating_sub(Geometry::bare(tables).pool() as u64) / BLOCK as u64;
        let blocks = u32::try_from(pool).unwrap_or(u32::MAX).min(standard.blocks);
        Self { blocks, ..tables }
    }
}

/// The sizes of the sections. A value of this type has been checked: every section is within the
/// segment.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    points: usize,
    lanes: usize,
    string_bytes: usize,
    blocks: usize,
    len: usize,
}

impl Geometry {
    /// Upper bound of every size: keeps arithmetic far from overflow.
    const BOUND: u64 = 1 << 30;

    /// The geometry of a new segment.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let mut geometry = Self::bare(config);
        geometry.len = geometry.pool() + geometry.blocks * BLOCK;
        geometry
    }

    /// A geometry of `len` bytes without sections, for a segment that has not been read yet.
    pub(super) const fn unknown(len: usize) -> Self {
        Self { points: 0, lanes: 0, string_bytes: 0, blocks: 0, len }
    }

    /// The requested sizes, each within its bounds, without a length.
    fn bare(config: Config) -> Self {
        Self {
            // A record has 24 bits for the point.
            points: config.points.clamp(64, 1 << 24) as usize,
            lanes: config.lanes.clamp(1, 1 << 16) as usize,
            string_bytes: (config.string_bytes as usize).clamp(PAGE, 1 << 28),
            blocks: config.blocks.clamp(16, 1 << 22) as usize,
            len: 0,
        }
    }

    pub(crate) fn to_words(self) -> [u64; 6] {
        [
            self.points as u64,
            self.lanes as u64,
            self.string_bytes as u64,
            self.blocks as u64,
            self.len as u64,
            BLOCK as u64,
        ]
    }

    /// Checks words that another process may have written against the length `len`. The bytes must
    /// hold the whole pool, or, in a copy, its first `blocks_used` blocks.
    ///
    /// # Errors
    ///
    /// The section that does not fit.
    pub(crate) fn from_words(
        words: [u64; 6],
        len: usize,
        blocks_used: Option<u64>,
    ) -> Result<Self, &'static str> {
        let [points, lanes, string_bytes, blocks, claimed, block] = words;
        let bounded = |value: u64, section| {
            let value = usize::try_from(value).ok().filter(|_| value <= Self::BOUND);
            value.ok_or(section)
        };
        let geometry = Self {
            points: bounded(points, "points")?,
            lanes: bounded(lanes, "lanes")?,
            string_bytes: bounded(string_bytes, "strings")?,
            blocks: bounded(blocks, "blocks")?,
            len,
        };
        // All factors are below 2^30 and all sizes below 2^15: no overflow.
        let end = geometry.pool() + geometry.blocks * BLOCK;
        let needed = blocks_used.unwrap_or(blocks);
        let fits = needed <= blocks && geometry.pool() + needed as usize * BLOCK <= len;
        if end as u64 != claimed || !fits || block != BLOCK as u64 {
            return Err("blocks");
        }
        Ok(geometry)
    }

    /// Maximum number of points.
    #[must_use]
    pub const fn points(&self) -> usize {
        self.points
    }

    /// Number of switches: one at the end of each whole page of control words.
    pub(super) const fn switches(&self) -> usize {
        self.points / CONTROL_WORDS
    }

    /// Lanes, the overflow lane not counted.
    #[must_use]
    pub const fn lanes(&self) -> usize {
        self.lanes
    }

    /// Bytes of the string space.
    #[must_use]
    pub const fn string_bytes(&self) -> usize {
        self.string_bytes
    }

    /// Blocks of the pool, the unused block 0 counted.
    #[must_use]
    pub const fn blocks(&self) -> usize {
        self.blocks
    }

    /// Blocks of the pool that are within the bytes: fewer than [`Self::blocks`] in a copy, which
    /// ends after the last block in use.
    #[must_use]
    pub const fn blocks_present(&self) -> usize {
        let present = self.len.saturating_sub(self.pool()) / BLOCK;
        // An object may be longer than its sections.
        if present < self.blocks { present } else { self.blocks }
    }

    /// Length in bytes: of the whole segment, or of a copy that may end earlier.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a segment is never empty")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// The geometry of a copy that ends after `blocks` blocks.
    pub(crate) const fn cut_to(self, blocks: usize) -> Self {
        let len = self.pool() + blocks * BLOCK;
        Self { len: if len < self.len { len } else { self.len }, ..self }
    }

    pub(super) const fn control(&self) -> usize {
        2 * PAGE
    }

    /// The bytes of the control words and of the times of resets: whole pages, the only
    /// ones that a viewer may write.
    #[must_use]
    pub const fn control_pages(&self) -> std::ops::Range<usize> {
        self.control()..self.table()
    }

    /// The times come after the control words, so that the words which `begin` reads are side by
    /// side.
    pub(super) const fn reset_times(&self) -> usize {
        self.control() + self.points * size_of::<AtomicU64>()
    }

    pub(super) const fn table(&self) -> usize {
        (self.reset_times() + self.points * size_of::<AtomicU64>()).next_multiple_of(PAGE)
    }

    pub(super) const fn strings(&self) -> usize {
        (self.table() + self.points * size_of::<PointEntry>()).next_multiple_of(PAGE)
    }

    pub(super) const fn directory(&self) -> usize {
        (self.strings() + self.string_bytes).next_multiple_of(PAGE)
    }

    /// Offset of the first block.
    pub(crate) const fn pool(&self) -> usize {
        // One lane more: the overflow lane.
        (self.directory() + (self.lanes + 1) * size_of::<Lane>()).next_multiple_of(BLOCK)
    }
}
