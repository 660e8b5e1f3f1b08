//! The segment: the offsets of its sections, and the only place that turns an offset into a
//! reference.
//!
//! ```text
//!       0 +-----------------------------------------------+
//!         | header                          1 page        |  before the magic
//!    4096 | counters                          1 page        |  process, rarely
//!    8192 +-----------------------------------------------+
//!         | control words, switches         8 B a point   |  viewer, application
//!         | times of resets                 8 B a point   |  viewer, application
//!         +-----------------------------------------------+
//!         | point table                    64 B a point   |  process, once each
//!         +-----------------------------------------------+
//!         | string space                                  |  process, once each
//!         +-----------------------------------------------+
//!         | lane directory                256 B a lane    |  each thread its own
//!         +-----------------------------------------------+
//!         | pool of 16 KiB blocks: rings, calls, cells... |  each thread its own
//!         +-----------------------------------------------+
//! ```
//!
//! Each section begins on a page of its own. The object is sparse: its size is
//! an upper bound, and memory is taken only as blocks, points and lanes come
//! into use, always by [`Segment::back`] before the first touch, so that a full
//! `/dev/shm` is an error and never a SIGBUS.
//!
//! **Rules of this memory.** Another process may write to this memory at any moment, and that
//! process may be hostile. So every word in the memory is an atomic; no reference to plain bytes is
//! ever made; only a type that is [`Shared`] is laid over the memory; and a value read from the
//! memory is checked before it is used to find anything else.

mod space;

use std::io;
use std::sync::atomic::AtomicU8;

use crate::discovery::name::Name;
use crate::discovery::object::{self, NoSpace, Object};
use crate::layout::allocs::AllocWords;
use crate::layout::amounts::SumWords;
use crate::layout::black_box::BlackBox;
use crate::layout::calls::{Calls, EdgeAllocs};
use crate::layout::cell::Cell;
pub use crate::layout::chain::CellBlock;
use crate::layout::geometry::{
    ALLOC_CHUNKS, BLOCK, CHUNK, CONTROL_WORDS, Config, Geometry, PAGE, RING_SLOTS,
};
use crate::layout::header::{Facts, FormatError, Header, ProcessCounters};
use crate::layout::lane::Lane;
use crate::layout::point::PointEntry;
use crate::layout::ring::Slot;
use crate::layout::used::Used;
use crate::sync::{AtomicU64, Ordering};

/// Types that may be laid over shared bytes.
///
/// # Safety
///
/// Every bit pattern is a valid value, every field is an atomic, padding is never read, and
/// dropping does nothing.
pub unsafe trait Shared {}

// SAFETY: an atomic integer; any bytes are a value.
unsafe impl Shared for AtomicU64 {}
// SAFETY: an atomic integer; any byte is a value.
unsafe impl Shared for AtomicU8 {}
// SAFETY: `repr(C)`, with atomics as its only fields.
unsafe impl Shared for Cell {}
// SAFETY: `repr(C)`, with atomics as its only fields.
unsafe impl Shared for Header {}
// SAFETY: `repr(C)`, with atomics as its only fields.
unsafe impl Shared for ProcessCounters {}
// SAFETY: `repr(C)`, with atomics as its only fields.
unsafe impl Shared for AllocWords {}
// SAFETY: `repr(C)`, with atomics as its only fields.
unsafe impl Shared for BlackBox {}
// SAFETY: `repr(C)`, with atomics as its only fields.
unsafe impl Shared for Lane {}
// SAFETY: `repr(C)`, with atomics as its only fields.
unsafe impl Shared for PointEntry {}
// SAFETY: `repr(C)`, with atomics as its only fields.
unsafe impl Shared for Slot {}
// SAFETY: `repr(C)`, with atomics as its only fields.
unsafe impl Shared for Calls {}
// SAFETY: `repr(C)`, with atomics as its only fields.
unsafe impl Shared for EdgeAllocs {}
// SAFETY: `repr(C)`, with atomics and cells as its only fields.
unsafe impl Shared for CellBlock {}
// SAFETY: `repr(C)`, with atomics as its only fields.
unsafe impl Shared for Chunk {}

/// The counters of one histogram part.
#[repr(C, align(256))]
#[derive(Debug)]
pub struct Chunk(pub [AtomicU64; crate::layout::histogram::BUCKETS]);

/// The memory that holds the bytes.
#[repr(C)]
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one per segment")]
enum Bytes {
    /// A shared-memory object.
    Object(Object),
    /// A copy of an object, read from a file, or a private segment of a test.
    Heap(#[expect(dead_code, reason = "it owns what `base` points to")] Box<[AtomicU64]>),
}

/// A segment's bytes with their geometry.
#[repr(C)]
#[derive(Debug)]
pub struct Segment {
    bytes: Bytes,
    base: *const u8,
    geometry: Geometry,
    /// The space that this process has taken in the segment, if it created the segment.
    used: Used,
}

// SAFETY: all access is through shared references to atomics, and the base stays valid on every
// thread as long as `bytes` lives.
unsafe impl Send for Segment {}
// SAFETY: all access is through shared references to atomics.
unsafe impl Sync for Segment {}

/// Why a segment cannot be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The operating system refused.
    Io(io::Error),
    /// The bytes cannot be read as a segment.
    Format(FormatError),
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) => error.fmt(out),
            Self::Format(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<FormatError> for OpenError {
    fn from(error: FormatError) -> Self {
        Self::Format(error)
    }
}

impl Segment {
    /// Creates a shared-memory object of this name and publishes a segment in it. `fill` fills the
    /// counters before other processes can open the segment.
    ///
    /// # Errors
    ///
    /// The object cannot be created, or there is no memory for its first two pages.
    pub fn create(
        name: Name,
        config: Config,
        facts: &Facts,
        fill: impl FnOnce(&ProcessCounters),
    ) -> io::Result<Self> {
        let geometry = Geometry::new(config);
        let object = Object::create_as(name, geometry.len())?;
        let base = object.as_ptr().cast_const();
        let segment = Self { bytes: Bytes::Object(object), base, geometry, used: Used::default() };
        if let Err(NoSpace) = segment.back(0, 2 * PAGE) {
            segment.unlink();
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        fill(segment.counters());
        segment.header().publish(&geometry, facts);
        Ok(segment)
    }

    /// A segment in private memory: for tests, and to measure what recording costs without shared
    /// memory.
    #[must_use]
    pub fn in_private_memory(config: Config, facts: &Facts) -> Self {
        let geometry = Geometry::new(config);
        let segment = Self::on_heap(vec_of_words(geometry.len()), geometry);
        segment.header().publish(&geometry, facts);
        segment
    }

    /// Opens the object of a running or crashed process. Everything is write-protected, except the
    /// control words and the times of resets.
    ///
    /// # Errors
    ///
    /// The object does not exist, may not be opened, or is not a segment that this version reads.
    pub fn open(name: &Name) -> Result<(Self, Facts), OpenError> {
        let object = Object::open(name)?;
        let len = object.len();
        if len < 2 * PAGE {
            return Err(FormatError::TooShort { found: len }.into());
        }
        let base = object.as_ptr().cast_const();
        // The geometry is in the header. The header itself is at a fixed place, so any geometry of
        // this length leads to it.
        let geometry = Geometry::unknown(len);
        let used = Used::default();
        let mut segment = Self { bytes: Bytes::Object(object), base, geometry, used };
        let (geometry, facts) = segment.header().read(len, None)?;
        segment.geometry = geometry;
        if let Bytes::Object(object) = &segment.bytes {
            object.unlock(geometry.control_pages())?;
        }
        Ok((segment, facts))
    }

    /// Reads a copy of a segment, for example from a file. The copy may end after the blocks in
    /// use; blocks beyond its end count as never used.
    ///
    /// # Errors
    ///
    /// The bytes are not a segment that this version reads, or lack blocks that are in use.
    pub fn from_copy(copy: &[u8]) -> Result<(Self, Facts), FormatError> {
        let len = copy.len();
        if len < 2 * PAGE {
            return Err(FormatError::TooShort { found: len });
        }
        let (geometry, facts) = Self::judge(&copy[..2 * PAGE], len)?;
        Ok((Self::of_bytes(copy, geometry), facts))
    }

    /// Checks a copy of `len` bytes by its first two pages, before memory is allocated for the
    /// rest.
    pub(crate) fn judge(start: &[u8], len: usize) -> Result<(Geometry, Facts), FormatError> {
        let start = Self::of_bytes(start, Geometry::unknown(2 * PAGE));
        let used = start.counters().blocks_used.load(Ordering::Relaxed);
        start.header().read(len, Some(used))
    }

    /// A segment on the heap that begins with the bytes of `copy`.
    fn of_bytes(copy: &[u8], geometry: Geometry) -> Self {
        let segment = Self::on_heap(vec_of_words(geometry.len()), geometry);
        segment.fill(0, copy);
        segment
    }

    /// A segment of zeros on the heap, which takes memory only where it is filled; `None` if memory
    /// runs out.
    pub(crate) fn blank(geometry: Geometry) -> Option<Self> {
        Some(Self::on_heap(blank_words(geometry.len())?, geometry))
    }

    /// Overwrites bytes from an offset on, which is a whole number of words.
    pub(crate) fn fill(&self, offset: usize, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        let to = self.many::<AtomicU64>(offset, words.len()).unwrap_or_default();
        for (to, &from) in to.iter().zip(words) {
            to.store(u64::from_ne_bytes(from), Ordering::Relaxed);
        }
        let to = offset + bytes.len() - rest.len();
        let to = self.many::<AtomicU8>(to, rest.len()).unwrap_or_default();
        for (to, &from) in to.iter().zip(rest) {
            to.store(from, Ordering::Relaxed);
        }
    }

    fn on_heap(words: Box<[AtomicU64]>, geometry: Geometry) -> Self {
        // The base must be aligned to a page, which the heap does not guarantee. `vec_of_words` and
        // `blank_words` allocate a page more for that.
        let address = words.as_ptr().addr();
        let shift = address.next_multiple_of(PAGE) - address;
        let base = words.as_ptr().cast::<u8>().wrapping_add(shift);
        Self { bytes: Bytes::Heap(words), base, geometry, used: Used::default() }
    }

    /// Takes memory for a range of bytes, so that touching it cannot fail.
    ///
    /// # Errors
    ///
    /// Memory runs out.
    pub fn back(&self, offset: usize, len: usize) -> Result<(), NoSpace> {
        match &self.bytes {
            Bytes::Object(object) => object.back(offset, len),
            Bytes::Heap(_) => Ok(()),
        }
    }

    /// The facts in the header.
    ///
    /// # Errors
    ///
    /// None, unless another process has overwritten the header.
    pub fn facts(&self) -> Result<Facts, FormatError> {
        Ok(self.header().read(self.geometry.len(), Some(0))?.1)
    }

    /// The shared-memory object; `None` for a segment in private memory.
    pub(crate) fn object(&self) -> Option<&Object> {
        match &self.bytes {
            Bytes::Object(object) => Some(object),
            Bytes::Heap(_) => None,
        }
    }

    /// Whether the object behind an opened segment has become shorter at an unknown time. If so,
    /// parts of what was read may be zeros. See [`crate::reader::truncation`].
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.object().is_some_and(Object::is_cut)
    }

    /// The object's name; `None` for a segment in private memory.
    #[must_use]
    pub fn name(&self) -> Option<&Name> {
        match &self.bytes {
            Bytes::Object(object) => Some(object.name()),
            Bytes::Heap(_) => None,
        }
    }

    /// Removes the object's name; the bytes stay as long as they are mapped. False if the name may
    /// still exist. Makes only one system call, because programs call this at their end.
    pub fn unlink(&self) -> bool {
        match &self.bytes {
            Bytes::Object(object) => match object::unlink(object.name()) {
                Err(error) => error.kind() == io::ErrorKind::NotFound,
                Ok(()) => true,
            },
            Bytes::Heap(_) => true,
        }
    }

    /// Maps private memory in place of the segment, in a forked child, so that the child's writes
    /// do not reach its parent. Points that are on stay on, and points that are off stay off. Calls
    /// only functions that are safe in a signal handler.
    pub fn detach(&self) {
        /// Maximum number of blocks that threads may be about to take at the fork, and that are not
        /// counted yet.
        const MORE_BLOCKS: usize = 64;
        let Bytes::Object(object) = &self.bytes else { return };
        let points = self.used.points.get() as usize;
        let blocks = self.used.blocks.get() as usize + MORE_BLOCKS;
        let control = self.geometry.control();
        let pool = self.geometry.pool() + blocks.min(self.geometry.blocks()) * BLOCK;
        object.detach(pool, control..control + points * size_of::<AtomicU64>());
    }

    /// The sizes and offsets of the sections.
    #[must_use]
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    // ---- the one place that turns offsets into references ----

    /// The `T` at an offset; `None` if it does not fit or is not aligned.
    #[inline]
    fn at<T: Shared>(&self, offset: usize) -> Option<&T> {
        self.many(offset, 1)?.first()
    }

    /// `count` values of type `T` from an offset on.
    #[inline]
    fn many<T: Shared>(&self, offset: usize, count: usize) -> Option<&[T]> {
        let bytes = count.checked_mul(size_of::<T>())?;
        let end = offset.checked_add(bytes)?;
        let start = self.base.wrapping_add(offset);
        if end > self.geometry.len() || !start.addr().is_multiple_of(align_of::<T>().min(PAGE)) {
            return None;
        }
        // SAFETY: the range is within the mapping, which lives as long as
        // `self`, and aligned; `T: Shared` makes any bytes valid and all access
        // atomic, so that other writers are no data race.
        Some(unsafe { std::slice::from_raw_parts(start.cast::<T>(), count) })
    }

    /// Words at an offset, regardless of their meaning, for a copy.
    pub(crate) fn words(&self, offset: usize, count: usize) -> Option<&[AtomicU64]> {
        self.many(offset, count)
    }

    /// Offset of a part of the segment.
    pub(crate) fn offset_of<T: Shared>(&self, part: &[T]) -> usize {
        part.as_ptr().addr() - self.base.addr()
    }

    fn header(&self) -> &Header {
        // SAFETY: every constructor has checked that there are two pages, and
        // the base is page-aligned.
        unsafe { &*self.base.cast::<Header>() }
    }

    /// The counters of the process as a whole.
    #[must_use]
    pub fn counters(&self) -> &ProcessCounters {
        // SAFETY: every constructor has checked that there are two pages, and the base is
        // page-aligned.
        unsafe { &*self.base.wrapping_add(PAGE).cast::<ProcessCounters>() }
    }

    /// The control word of a point; `None` beyond the table.
    #[must_use]
    pub fn control(&self, point: usize) -> Option<&AtomicU64> {
        (point < self.geometry.points())
            .then(|| self.at(self.geometry.control() + point * size_of::<AtomicU64>()))?
    }

    /// The word with the time of a point's last reset, see [`crate::layout::control`]; `None`
    /// beyond the table.
    #[must_use]
    pub fn reset_time(&self, point: usize) -> Option<&AtomicU64> {
        (point < self.geometry.points())
            .then(|| self.at(self.geometry.reset_times() + point * size_of::<AtomicU64>()))?
    }

    /// A [`switch`] by its number; `None` beyond the last one.
    fn switch(&self, number: usize) -> Option<&AtomicU64> {
        let is_there = number < self.geometry.switches();
        is_there.then(|| self.control((number + 1) * CONTROL_WORDS - 1))?
    }

    /// The entry of a point; `None` beyond the table.
    #[must_use]
    pub fn entry(&self, point: usize) -> Option<&PointEntry> {
        (point < self.geometry.points())
            .then(|| self.at(self.geometry.table() + point * size_of::<PointEntry>()))?
    }

    /// Bytes of the string space; `None` if they are not in it.
    #[must_use]
    pub fn text(&self, offset: usize, len: usize) -> Option<&[AtomicU8]> {
        let end = offset.checked_add(len)?;
        (end <= self.geometry.string_bytes())
            .then(|| self.many(self.geometry.strings() + offset, len))?
    }

    /// A lane by its number; the number after the last is the overflow lane.
    #[must_use]
    pub fn lane(&self, lane: usize) -> Option<&Lane> {
        (lane <= self.geometry.lanes())
            .then(|| self.at(self.geometry.directory() + lane * size_of::<Lane>()))?
    }

    /// Number of the overflow lane.
    #[must_use]
    pub const fn overflow_lane(&self) -> usize {
        self.geometry.lanes()
    }

    /// A block of cells by its number; `None` outside the pool.
    #[must_use]
    pub fn cell_block(&self, block: u64) -> Option<&CellBlock> {
        self.at(self.block_offset(block)?)
    }

    /// A ring by the number of its first block; `None` outside the pool.
    #[must_use]
    pub fn ring(&self, block: u64) -> Option<&[Slot]> {
        self.many(self.block_offset(block)?, RING_SLOTS)
    }

    /// The calls of a lane by the number of their first block; `None` outside the pool.
    #[must_use]
    pub fn calls(&self, block: u64) -> Option<&Calls> {
        self.at(self.block_offset(block)?)
    }

    /// The allocations of a lane's edges by the number of their first block; `None` outside the
    /// pool.
    #[must_use]
    pub fn edge_allocs(&self, block: u64) -> Option<&EdgeAllocs> {
        self.at(self.block_offset(block)?)
    }

    /// A box by the number of its first block; `None` outside the pool.
    #[must_use]
    pub fn black_box(&self, block: u64) -> Option<&BlackBox> {
        self.at(self.block_offset(block)?)
    }

    /// A chunk by its number; `None` outside the pool.
    #[must_use]
    pub fn chunk(&self, chunk: u32) -> Option<&Chunk> {
        let offset = chunk as usize * CHUNK;
        (offset >= self.geometry.pool() + BLOCK).then(|| self.at(offset))?
    }

    /// The sums of amounts in a chunk; `None` outside the pool.
    #[must_use]
    pub fn sums(&self, chunk: u32) -> Option<&SumWords> {
        self.chunk(chunk)?.0.first_chunk()
    }

    /// What a point's regions have allocated, from a chunk on; `None` outside the pool.
    #[must_use]
    pub fn allocs(&self, chunk: u32) -> Option<&AllocWords> {
        const { assert!(size_of::<AllocWords>() <= ALLOC_CHUNKS * CHUNK) };
        const { assert!(align_of::<AllocWords>() <= CHUNK) };
        let offset = chunk as usize * CHUNK;
        (offset >= self.geometry.pool() + BLOCK).then(|| self.at(offset))?
    }

    /// A shared cell by its offset; `None` outside the pool.
    #[must_use]
    pub fn shared_cell(&self, offset: u64) -> Option<&Cell> {
        let offset = usize::try_from(offset).ok()?;
        (offset >= self.geometry.pool() + BLOCK).then(|| self.at(offset))?
    }

    /// Offset of a block. Block 0 is never used, so that 0 can mean "no block".
    #[must_use]
    pub fn block_offset(&self, block: u64) -> Option<usize> {
        let block = usize::try_from(block).ok()?;
        (1..self.geometry.blocks()).contains(&block).then(|| self.geometry.pool() + block * BLOCK)
    }

    /// The number of the pool's first chunk, and the number of chunks: a chunk number `n` is valid
    /// if `n - first < count`.
    #[must_use]
    pub fn chunk_numbers(&self) -> (u32, u32) {
        let first = (self.geometry.pool() + BLOCK) / CHUNK;
        let count = (self.geometry.blocks() - 1) * BLOCK / CHUNK;
        (first as u32, count as u32)
    }

    /// The first byte; every offset is relative to it.
    #[inline]
    #[must_use]
    pub const fn base(&self) -> *const u8 {
        self.base
    }
}

/// Zeroed words, as [`vec_of_words`] makes them, in memory that the system provides when it is
/// touched. `None` if the system refuses.
fn blank_words(len: usize) -> Option<Box<[AtomicU64]>> {
    let count = (len + PAGE) / 8 + 1;
    let layout = std::alloc::Layout::array::<AtomicU64>(count).ok()?;
    // SAFETY: `count` is at least 1, so the size is not 0.
    let words = unsafe { std::alloc::alloc_zeroed(layout) }.cast::<AtomicU64>();
    let words = std::ptr::NonNull::new(words)?;
    let words = std::ptr::slice_from_raw_parts_mut(words.as_ptr(), count);
    // SAFETY: `words` was allocated just now with this layout, by the allocator of boxes; an atomic
    // of zero bytes is a value.
    Some(unsafe { Box::from_raw(words) })
}

/// Zeroed words for `len` bytes and for aligning their start to a page.
#[allow(clippy::disallowed_methods, reason = "no segment of a host's is on the heap")]
fn vec_of_words(len: usize) -> Box<[AtomicU64]> {
    std::iter::repeat_with(|| AtomicU64::new(0)).take((len + PAGE) / 8 + 1).collect()
}

const _: () = {
    assert!(size_of::<Cell>() == 640);
    assert!(size_of::<CellBlock>() == BLOCK);
    assert!(size_of::<Chunk>() == CHUNK);
    assert!(size_of::<Slot>() == 32 && RING_SLOTS.is_power_of_two());
    assert!(size_of::<Lane>() == 256 && size_of::<PointEntry>() == 64);
};
