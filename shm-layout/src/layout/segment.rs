//! The segment: where everything lies, and the one place that turns an offset
//! into a reference.
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
//! **Rules of this memory.** Another process may write to it at any moment, and
//! it may be hostile. So every word in it is an atomic; no reference to plain
//! bytes is ever made; a type may be laid over it only if it is [`Shared`]; and
//! what is read out of it is checked before it is used to find anything else.

use std::io;
use std::sync::atomic::AtomicU8;

use crate::discovery::name::Name;
use crate::discovery::object::{self, NoSpace, Object};
use crate::layout::amounts::SumWords;
use crate::layout::calls::Calls;
use crate::layout::cell::Cell;
pub use crate::layout::chain::CellBlock;
use crate::layout::geometry::{BLOCK, CHUNK, CONTROL_WORDS, Config, Geometry, PAGE, RING_SLOTS};
use crate::layout::header::{Facts, FormatError, Header, ProcessCounters};
use crate::layout::lane::Lane;
use crate::layout::point::{Entry, VariantOf};
use crate::layout::ring::Slot;
use crate::layout::switch;
use crate::layout::used::Used;
use crate::sync::{AtomicU64, Ordering, fence};

/// Types that may be laid over shared bytes.
///
/// # Safety
///
/// Every bit pattern is a valid value, every field is an atomic, there is no
/// padding that is read, and dropping does nothing.
pub unsafe trait Shared {}

// SAFETY: an atomic integer; any bytes are a value.
unsafe impl Shared for AtomicU64 {}
// SAFETY: as above.
unsafe impl Shared for AtomicU8 {}
// SAFETY: `repr(C)` and nothing but atomics.
unsafe impl Shared for Cell {}
// SAFETY: as above.
unsafe impl Shared for Header {}
// SAFETY: as above.
unsafe impl Shared for ProcessCounters {}
// SAFETY: as above.
unsafe impl Shared for Lane {}
// SAFETY: as above.
unsafe impl Shared for Entry {}
// SAFETY: as above.
unsafe impl Shared for Slot {}
// SAFETY: as above.
unsafe impl Shared for Calls {}
// SAFETY: as above.
unsafe impl Shared for CellBlock {}
// SAFETY: as above.
unsafe impl Shared for Chunk {}

/// The counters of one histogram part.
#[repr(C, align(256))]
#[derive(Debug)]
pub struct Chunk(pub [AtomicU64; crate::layout::histogram::BUCKETS]);

/// Where the bytes are.
#[repr(C)]
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one per segment")]
enum Bytes {
    /// A shared-memory object.
    Object(Object),
    /// A copy of one, read from a file, or a private segment of a test.
    Heap(#[expect(dead_code, reason = "it owns what `base` points to")] Box<[AtomicU64]>),
}

/// A segment's bytes with their geometry.
#[repr(C)]
#[derive(Debug)]
pub struct Segment {
    bytes: Bytes,
    base: *const u8,
    geometry: Geometry,
    /// What this process has taken of a segment that it made.
    used: Used,
}

// SAFETY: all access goes through shared references to atomics, and the base
// stays valid as long as `bytes` lives, on whatever thread.
unsafe impl Send for Segment {}
// SAFETY: as above.
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
    /// Where everything is, for who shares one with other code of the same version.
    #[doc(hidden)]
    pub const LAYOUT: [usize; 7] = [
        size_of::<Self>(),
        std::mem::offset_of!(Self, base),
        std::mem::offset_of!(Self, geometry),
        std::mem::offset_of!(Self, used),
        Object::LAYOUT[0],
        Object::LAYOUT[1],
        Object::LAYOUT[2],
    ];

    /// Creates a shared-memory object of this name and publishes a segment in
    /// it, whose counters is filled before anybody can open it.
    ///
    /// # Errors
    ///
    /// The object cannot be created, or the first pages have no space.
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

    /// A segment in private memory: for tests, and to learn what recording
    /// costs without shared memory.
    #[must_use]
    pub fn in_private_memory(config: Config, facts: &Facts) -> Self {
        let geometry = Geometry::new(config);
        let segment = Self::on_heap(vec_of_words(geometry.len()), geometry);
        segment.header().publish(&geometry, facts);
        segment
    }

    /// Opens the object of a running or crashed process. Everything but the
    /// control words is write-protected.
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
        // The real geometry is in the header, which needs none to be found.
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

    /// Reads a copy of a segment, such as a file holds. The copy may end where
    /// the blocks in use do; what is not there reads as if never used.
    ///
    /// # Errors
    ///
    /// The bytes are not a segment that this version reads, or not all of what
    /// is in use.
    pub fn from_copy(copy: &[u8]) -> Result<(Self, Facts), FormatError> {
        let len = copy.len();
        if len < 2 * PAGE {
            return Err(FormatError::TooShort { found: len });
        }
        let (geometry, facts) = Self::judge(&copy[..2 * PAGE], len)?;
        Ok((Self::of_bytes(copy, geometry), facts))
    }

    /// Judges a copy of so many bytes by its first two pages, before memory is
    /// taken for the rest.
    pub(crate) fn judge(start: &[u8], len: usize) -> Result<(Geometry, Facts), FormatError> {
        let start = Self::of_bytes(start, Geometry::unknown(2 * PAGE));
        let used = start.counters().blocks_used.load(Ordering::Relaxed);
        start.header().read(len, Some(used))
    }

    /// A segment on the heap that begins with these bytes.
    fn of_bytes(copy: &[u8], geometry: Geometry) -> Self {
        let segment = Self::on_heap(vec_of_words(geometry.len()), geometry);
        segment.fill(0, copy);
        segment
    }

    /// A segment on the heap, all zeros, and taking memory only where it is
    /// filled; none where there is no memory for so much.
    pub(crate) fn blank(geometry: Geometry) -> Option<Self> {
        Some(Self::on_heap(blank_words(geometry.len())?, geometry))
    }

    /// Writes bytes over what is there, from an offset that is a whole number of
    /// words on.
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
        // Blocks and chunks are found from the base, which the heap does not
        // align to a page; `vec_of_words` leaves room for that.
        let address = words.as_ptr().addr();
        let shift = address.next_multiple_of(PAGE) - address;
        let base = words.as_ptr().cast::<u8>().wrapping_add(shift);
        Self { bytes: Bytes::Heap(words), base, geometry, used: Used::default() }
    }

    /// Takes memory for a range of bytes, so that touching it cannot fail.
    ///
    /// # Errors
    ///
    /// There is no space.
    pub fn back(&self, offset: usize, len: usize) -> Result<(), NoSpace> {
        match &self.bytes {
            Bytes::Object(object) => object.back(offset, len),
            Bytes::Heap(_) => Ok(()),
        }
    }

    /// What the header says of the process.
    ///
    /// # Errors
    ///
    /// None, unless somebody has written over the header.
    pub fn facts(&self) -> Result<Facts, FormatError> {
        Ok(self.header().read(self.geometry.len(), Some(0))?.1)
    }

    /// The shared-memory object; none for a segment in private memory.
    pub(crate) fn object(&self) -> Option<&Object> {
        match &self.bytes {
            Bytes::Object(object) => Some(object),
            Bytes::Heap(_) => None,
        }
    }

    /// Whether the object behind an opened segment is shorter than it was: what was
    /// read of it since nobody knows when is zeros. See [`crate::reader::truncation`].
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.object().is_some_and(Object::is_cut)
    }

    /// The object's name; none for a segment in private memory.
    #[must_use]
    pub fn name(&self) -> Option<&Name> {
        match &self.bytes {
            Bytes::Object(object) => Some(object.name()),
            Bytes::Heap(_) => None,
        }
    }

    /// Removes the object's name; the bytes stay as long as they are mapped. False if
    /// the name may still be there. One system call, since a program's end makes it.
    pub fn unlink(&self) -> bool {
        match &self.bytes {
            Bytes::Object(object) => match object::unlink(object.name()) {
                Err(error) => error.kind() == io::ErrorKind::NotFound,
                Ok(()) => true,
            },
            Bytes::Heap(_) => true,
        }
    }

    /// Puts private memory in the place of the segment, in a forked child: what it still
    /// writes to its parent's is lost. Points are on and off as they were. Only what a
    /// signal handler may do.
    pub fn detach(&self) {
        /// Threads that are in the middle of taking blocks may take this many beyond the count.
        const MORE_BLOCKS: usize = 64;
        let Bytes::Object(object) = &self.bytes else { return };
        let points = self.used.points.get() as usize;
        let blocks = self.used.blocks.get() as usize + MORE_BLOCKS;
        let control = self.geometry.control();
        let pool = self.geometry.pool() + blocks.min(self.geometry.blocks()) * BLOCK;
        object.detach(pool, control..control + points * size_of::<AtomicU64>());
    }

    /// Where the sections lie.
    #[must_use]
    pub const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    // ---- the one place that turns offsets into references ----

    /// The `T` at an offset; none where it does not fit or is not aligned.
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

    /// Words of whatever kind, for a copy.
    pub(crate) fn words(&self, offset: usize, count: usize) -> Option<&[AtomicU64]> {
        self.many(offset, count)
    }

    /// How far into the segment something of it lies.
    pub(crate) fn offset_of<T: Shared>(&self, part: &[T]) -> usize {
        part.as_ptr().addr() - self.base.addr()
    }

    fn header(&self) -> &Header {
        // SAFETY: every constructor has checked that there are two pages, and
        // the base is page-aligned.
        unsafe { &*self.base.cast::<Header>() }
    }

    /// The words of the process as a whole.
    #[must_use]
    pub fn counters(&self) -> &ProcessCounters {
        // SAFETY: as in `header`.
        unsafe { &*self.base.wrapping_add(PAGE).cast::<ProcessCounters>() }
    }

    /// The control word of a point; none beyond the table.
    #[must_use]
    pub fn control(&self, point: usize) -> Option<&AtomicU64> {
        (point < self.geometry.points())
            .then(|| self.at(self.geometry.control() + point * size_of::<AtomicU64>()))?
    }

    /// The word that says when a point was reset, as [`crate::layout::control`] has it;
    /// none beyond the table.
    #[must_use]
    pub fn reset_time(&self, point: usize) -> Option<&AtomicU64> {
        (point < self.geometry.points())
            .then(|| self.at(self.geometry.reset_times() + point * size_of::<AtomicU64>()))?
    }

    /// A [`switch`] by its number; none beyond the last one.
    fn switch(&self, number: usize) -> Option<&AtomicU64> {
        let is_there = number < self.geometry.switches();
        is_there.then(|| self.control((number + 1) * CONTROL_WORDS - 1))?
    }

    /// The entry of a point; none beyond the table.
    #[must_use]
    pub fn entry(&self, point: usize) -> Option<&Entry> {
        (point < self.geometry.points())
            .then(|| self.at(self.geometry.table() + point * size_of::<Entry>()))?
    }

    /// Bytes of the string space; none where they do not lie in it.
    #[must_use]
    pub fn text(&self, offset: usize, len: usize) -> Option<&[AtomicU8]> {
        let end = offset.checked_add(len)?;
        (end <= self.geometry.string_bytes())
            .then(|| self.many(self.geometry.strings() + offset, len))?
    }

    /// A lane; the one after the last is the overflow lane.
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

    /// A block of cells by its number; none outside the pool.
    #[must_use]
    pub fn cell_block(&self, block: u64) -> Option<&CellBlock> {
        self.at(self.block_offset(block)?)
    }

    /// A ring by the number of its first block; none outside the pool.
    #[must_use]
    pub fn ring(&self, block: u64) -> Option<&[Slot]> {
        self.many(self.block_offset(block)?, RING_SLOTS)
    }

    /// The calls of a lane by the number of their first block; none outside the pool.
    #[must_use]
    pub fn calls(&self, block: u64) -> Option<&Calls> {
        self.at(self.block_offset(block)?)
    }

    /// A chunk by its number; none outside the pool.
    #[must_use]
    pub fn chunk(&self, chunk: u32) -> Option<&Chunk> {
        let offset = chunk as usize * CHUNK;
        (offset >= self.geometry.pool() + BLOCK).then(|| self.at(offset))?
    }

    /// The sums of amounts in a chunk; none outside the pool.
    #[must_use]
    pub fn sums(&self, chunk: u32) -> Option<&SumWords> {
        self.chunk(chunk)?.0.first_chunk()
    }

    /// A shared cell by its offset; none outside the pool.
    #[must_use]
    pub fn shared_cell(&self, offset: u64) -> Option<&Cell> {
        let offset = usize::try_from(offset).ok()?;
        (offset >= self.geometry.pool() + BLOCK).then(|| self.at(offset))?
    }

    /// Offset of a block. Block 0 is never used, so that 0 can stand for none.
    #[must_use]
    pub fn block_offset(&self, block: u64) -> Option<usize> {
        let block = usize::try_from(block).ok()?;
        (1..self.geometry.blocks()).contains(&block).then(|| self.geometry.pool() + block * BLOCK)
    }

    /// The chunk number of the first chunk of the pool, and the number of
    /// chunks: a number `n` is good if `n - first < count`.
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

    // ---- space, for the process that writes ----

    /// Takes `count` blocks in a row, backed by memory and zeroed.
    ///
    /// # Errors
    ///
    /// The pool is used up or memory is.
    pub fn take_blocks(&self, count: u64) -> Result<u64, NoSpace> {
        let block = self.reserve_blocks(count)?;
        let offset = self.block_offset(block).ok_or_else(|| self.refuse_space())?;
        self.back_or_count(offset, count as usize * BLOCK)?;
        Ok(block)
    }

    /// Takes blocks without backing them: the caller [backs](Self::back) each page before it
    /// touches or announces it.
    ///
    /// # Errors
    ///
    /// The pool is used up.
    pub fn reserve_blocks(&self, count: u64) -> Result<u64, NoSpace> {
        let taken = self.used.blocks.take(&self.counters().blocks_used, |used| {
            let next = used.max(1) + count;
            (next <= self.geometry.blocks() as u64).then_some(next)
        });
        Ok(taken.ok_or_else(|| self.refuse_space())?.max(1))
    }

    /// As [`Self::back`], and counts where there is no space.
    ///
    /// # Errors
    ///
    /// There is no memory for it.
    pub fn back_or_count(&self, offset: usize, len: usize) -> Result<(), NoSpace> {
        self.back(offset, len).map_err(|NoSpace| self.refuse_space())
    }

    fn refuse_space(&self) -> NoSpace {
        self.counters().space_refused.fetch_add(1, Ordering::Relaxed);
        NoSpace
    }

    /// Enters a point into the table. `wanted` is its number for the points
    /// that choose their own; the others get the next free number from
    /// `first_free` on. Returns the number; none if there is no place for it, or no
    /// memory for its place, which is counted as the one or the other.
    pub fn enter_point(
        &self,
        wanted: Option<usize>,
        first_free: usize,
        name: &str,
        file: &str,
        line: u64,
    ) -> Option<usize> {
        let point = self.reserve_point(wanted, first_free)?;
        self.announce_point(point, name, file, line);
        Some(point)
    }

    /// Announces a point of a reserved number, unless that was done.
    pub fn announce_point(&self, point: usize, name: &str, file: &str, line: u64) {
        let Some(entry) = self.entry(point).filter(|entry| !entry.is_ready()) else { return };
        // A point without a name is better than none.
        let name = self.enter_text(name).unwrap_or_default();
        let file = self.enter_text(file).unwrap_or_default();
        entry.announce(name, file, line);
    }

    /// Announces a variant of a point that is in the table, unless that was done. Its
    /// amounts are as [`crate::layout::point`] has them.
    pub fn announce_variant(&self, variant: usize, of: usize, amounts: &str) {
        let Some(entry) = self.entry(variant).filter(|entry| !entry.is_ready()) else { return };
        let Some(known) = self.entry(of).and_then(Entry::read) else { return };
        let amounts = self.enter_text(amounts).unwrap_or_default();
        let variant = VariantOf { point: of as u32, amounts };
        entry.announce_variant(known.name, known.file, u64::from(known.line), variant);
    }

    /// The number of the next point, from `first_free` on; there may be no place for it.
    #[must_use]
    pub fn next_point(&self, first_free: usize) -> usize {
        next_point(self.used.points.get(), first_free)
    }

    /// Reserves a number in the table of points: the wanted one, or the next free one. Readers see
    /// nothing of it until it is announced. `None` if the table is full, or without memory.
    pub fn reserve_point(&self, wanted: Option<usize>, first_free: usize) -> Option<usize> {
        let counters = self.counters();
        let refuse = || {
            counters.points_refused.fetch_add(1, Ordering::Relaxed);
            None
        };
        loop {
            let before = self.used.points.get();
            let point = wanted.unwrap_or(next_point(before, first_free));
            if point >= self.geometry.points() {
                return refuse();
            }
            // What is said to be used is backed: readers touch it.
            let entry_at = self.geometry.table() + point * size_of::<Entry>();
            let control_at = self.geometry.control() + point * size_of::<AtomicU64>();
            let reset_at = self.geometry.reset_times() + point * size_of::<AtomicU64>();
            let back = |offset, len| self.back(offset, len);
            let Used { entries, controls, reset_times, .. } = &self.used;
            if entries.back(entry_at, size_of::<Entry>(), back).is_err()
                || controls.back(control_at, size_of::<AtomicU64>(), back).is_err()
                || reset_times.back(reset_at, size_of::<AtomicU64>(), back).is_err()
            {
                self.refuse_space();
                return None;
            }
            let is_taken = self.used.points.take(&counters.points_used, |used| {
                (used == before).then_some(before.max(point as u64 + 1))
            });
            if is_taken.is_some() {
                return Some(point);
            }
        }
    }

    /// Takes the next switch and backs its memory. `None` if all are taken, or without memory.
    pub fn take_switch(&self) -> Option<&AtomicU64> {
        let next = |number: u64| (number < self.geometry.switches() as u64).then_some(number + 1);
        let number = self.used.switches.take(&self.counters().switches_used, next)?;
        let number = usize::try_from(number).ok()?;
        let at = ((number + 1) * CONTROL_WORDS - 1) * size_of::<AtomicU64>();
        self.back_or_count(self.geometry.control() + at, size_of::<AtomicU64>()).ok()?;
        self.switch(number)
    }

    /// Wakes the switches that rest, after this process has switched one of its points on.
    pub fn wake(&self) {
        self.wake_first(self.used.switches.get());
    }

    /// Wakes the switches that rest, after a viewer has switched a point on.
    pub fn wake_as_shown(&self) {
        self.wake_first(self.counters().switches_used.load(Ordering::Relaxed));
    }

    fn wake_first(&self, used: u64) {
        // Pairs with the fence in `Switch::rest`: either that sees the point on, or this sees the
        // resting switch.
        fence(Ordering::SeqCst);
        let used = usize::try_from(used).unwrap_or(usize::MAX).min(self.geometry.switches());
        (0..used).filter_map(|number| self.switch(number)).for_each(switch::wake);
    }

    /// Gives a point in the table another name. False if the table lacks the point, or without
    /// room. Names stay in the string space, so a name that the point already has is not entered
    /// again.
    pub fn rename_point(&self, point: usize, name: &str) -> bool {
        let Some(entry) = self.entry(point) else { return false };
        let Some(known) = entry.read() else { return false };
        let crate::layout::point::Text { offset, len } = known.name;
        let is_same = self
            .text(offset as usize, len as usize)
            .is_some_and(|text| text.iter().map(|byte| byte.load(Ordering::Relaxed)).eq(cut(name)));
        if !is_same {
            let Some(text) = self.enter_text(name) else { return false };
            entry.rename(text);
        }
        true
    }

    /// Copies a text into the string space. `None` if it is full.
    pub fn enter_text(&self, text: &str) -> Option<crate::layout::point::Text> {
        let length = cut(text).count();
        let limit = self.geometry.string_bytes() as u64;
        let offset = self.used.strings.take(&self.counters().strings_used, |used| {
            let next = used + length as u64;
            (next <= limit).then_some(next)
        })?;
        let at = self.geometry.strings() + offset as usize;
        self.used.texts.back(at, length, |offset, len| self.back(offset, len)).ok()?;
        for (to, from) in self.text(offset as usize, length)?.iter().zip(cut(text)) {
            to.store(from, Ordering::Relaxed);
        }
        Some(crate::layout::point::Text { offset: offset as u32, len: length as u32 })
    }

    /// Points that are in use: one more than the highest number.
    #[must_use]
    pub fn points_used(&self) -> u64 {
        self.used.points.get()
    }

    /// Lanes that have ever been claimed: one more than the highest.
    #[must_use]
    pub fn lanes_used(&self) -> u64 {
        self.used.lanes.get()
    }

    /// Backs and returns a lane for its next owner.
    ///
    /// # Errors
    ///
    /// Memory runs out.
    pub fn back_lane(&self, lane: usize) -> Result<Option<&Lane>, NoSpace> {
        if lane > self.geometry.lanes() {
            return Ok(None);
        }
        self.back(self.geometry.directory() + lane * size_of::<Lane>(), size_of::<Lane>())?;
        // What is said to be used is backed: readers touch it.
        let counters = self.counters();
        if lane == self.geometry.lanes() {
            counters.overflow_used.store(1, Ordering::Release);
        } else {
            self.used.lanes.raise(&counters.lanes_used, lane as u64 + 1);
        }
        Ok(self.lane(lane))
    }
}

/// The number of the next point, if `used` are used. The last word of each page is a switch, so
/// that number is skipped.
fn next_point(used: u64, first_free: usize) -> usize {
    let next = (used as usize).max(first_free);
    next + usize::from(next % CONTROL_WORDS == CONTROL_WORDS - 1)
}

/// The bytes of a text that are kept: longer names only serve to hide what is behind them. A cut
/// text ends with a hash of the whole, so that two long names which begin alike stay two names.
fn cut(text: &str) -> impl Iterator<Item = u8> {
    const MOST: usize = 1024;
    const DIGITS: u32 = 6;
    let is_long = text.len() > MOST;
    let mut end = if is_long { MOST - 1 - DIGITS as usize } else { text.len() };
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let hash = if is_long { fnv1a(text.as_bytes()) } else { 0 };
    let digits =
        (0..DIGITS).rev().map(move |at| b"0123456789abcdef"[(hash >> (4 * at) & 0xf) as usize]);
    let tail = is_long.then(|| std::iter::once(b'#').chain(digits));
    text[..end].bytes().chain(tail.into_iter().flatten())
}

/// The hash of Fowler, Noll and Vo, variant 1a.
fn fnv1a(bytes: &[u8]) -> u64 {
    let add = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, add)
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
    // SAFETY: allocated just now, of that layout, by the allocator of boxes; an
    // atomic of zero bytes is a value.
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
    assert!(size_of::<Lane>() == 256 && size_of::<Entry>() == 64);
};

// Miri has no system to ask.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// Another process may write any number to the words that say how much is in use. That must not
    /// change where the next things are placed.
    #[test]
    fn words_for_readers_decide_nothing() {
        let config = Config { points: 1024, blocks: 100, ..Config::default() };
        for written in [0, 1, 64, 200, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let segment = Segment::in_private_memory(config, &Facts::default());
            let counters = segment.counters();
            let take = || {
                let point = segment.enter_point(None, 64, "name", "file", 1).unwrap();
                let text = segment.entry(point).unwrap().read().unwrap().name.offset;
                let lane = segment.back_lane(3).unwrap().is_some();
                (point, text, segment.reserve_blocks(4).unwrap(), lane, segment.lanes_used())
            };
            assert_eq!(take(), (64, 0, 1, true, 4));
            for word in [
                &counters.points_used,
                &counters.strings_used,
                &counters.lanes_used,
                &counters.blocks_used,
                &counters.switches_used,
            ] {
                word.store(written, Ordering::Relaxed);
            }
            assert_eq!(take(), (65, 8, 5, true, 4), "{written}");
            assert_eq!(segment.points_used(), 66);
            assert!(segment.take_switch().is_some());
            segment.wake();
            // What is too much is refused and counted.
            while segment.reserve_blocks(4).is_ok() {}
            while segment.reserve_point(None, 64).is_some() {}
            let refused = [&counters.points_refused, &counters.space_refused];
            assert_eq!(refused.map(|word| word.load(Ordering::Relaxed)), [1, 1], "{written}");
        }
    }

    /// A program may give its points their names again and again.
    #[test]
    fn a_name_that_a_point_has_takes_no_more_room() {
        let config = Config { string_bytes: PAGE as u32, ..Config::default() };
        let segment = Segment::in_private_memory(config, &Facts::default());
        let point = segment.enter_point(None, 0, "a", "", 0).unwrap();
        let long = "n".repeat(1500);
        let other = format!("{long}o");
        let mut seen = Vec::new();
        for name in ["period", "a", "", &long, &other, "\u{f6}"] {
            for _ in 0..PAGE {
                assert!(segment.rename_point(point, name), "{name}");
            }
            let text = segment.entry(point).unwrap().read().unwrap().name;
            let bytes = segment.text(text.offset as usize, text.len as usize).unwrap();
            let bytes: Vec<u8> = bytes.iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
            let kept = String::from_utf8(bytes).unwrap();
            let is_whole = kept == name;
            assert!(is_whole || name.len() > 1024 && kept.len() == 1024, "{kept}");
            assert!(name.starts_with(kept.trim_end_matches(|c| c != 'n')) || is_whole, "{kept}");
            assert!(!seen.contains(&kept), "{kept}");
            seen.push(kept);
        }
        assert!(segment.enter_text("another").is_some());
        // And when there is none, the name stays.
        while segment.enter_text("x").is_some() {}
        assert!(segment.rename_point(point, "\u{f6}") && !segment.rename_point(point, "b"));
        assert!(!segment.rename_point(point + 1, "b"));
    }
}
