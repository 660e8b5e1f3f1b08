//! Which parts of a segment have memory, and a view of a segment that touches only these.
//!
//! An object is sparse. Reading a hole through a mapping allocates a page there, so a viewer that
//! visited every address in a segment would fill the segment, page by page. So the reader asks the
//! system whether a page exists before it touches the page. A page that exists stays, so a poll
//! asks only about new ones.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::slice;
use std::sync::atomic::AtomicU8;

use crate::heap::{self, NoMemory};
use crate::layout::allocs::AllocWords;
use crate::layout::amounts::SumWords;
use crate::layout::black_box::BlackBox;
use crate::layout::calls::{self, Calls, Edge, EdgeAllocs};
use crate::layout::cell::Cell;
use crate::layout::chain::CellBlock;
use crate::layout::geometry::{Config, Geometry, PAGE};
use crate::layout::lane::{Lane, LaneCounters};
use crate::layout::point::PointEntry;
use crate::layout::ring::Slot;
use crate::layout::segment::{Chunk, Segment, Shared};
use crate::sync::{AtomicU64, Ordering};

/// The pages of a segment that are known to have memory.
#[derive(Debug)]
pub(crate) struct Backed(Option<RefCell<Pages>>);

#[derive(Debug, Default)]
struct Pages {
    /// One bit for each page that is known to exist.
    known: Vec<u64>,
    /// The object, open while a poll asks about pages.
    file: Option<File>,
    /// Whether the system has refused to answer. Every page then counts as existing.
    all: bool,
}

impl Backed {
    /// Tracks the pages of a segment that this process has opened as a viewer. In any other
    /// segment, all pages count as existing.
    pub(crate) fn of(segment: &Segment) -> Result<Self, NoMemory> {
        let is_foreign = segment.object().is_some_and(|object| object.is_watched());
        let pages = is_foreign.then(|| -> Result<_, NoMemory> {
            // No segment is larger than this.
            let most = Config {
                points: u32::MAX,
                lanes: u32::MAX,
                string_bytes: u32::MAX,
                blocks: u32::MAX,
            };
            let len = segment.geometry().len().min(Geometry::new(most).len());
            let known = heap::collect(std::iter::repeat_n(0, len / PAGE / 64 + 1))?;
            Ok(RefCell::new(Pages { known, ..Pages::default() }))
        });
        Ok(Self(pages.transpose()?))
    }

    /// Closes the file that was opened to ask about pages.
    pub(crate) fn close_file(&self) {
        if let Some(pages) = &self.0 {
            pages.borrow_mut().file = None;
        }
    }
}

impl Pages {
    /// Whether a page is known to exist; `None` beyond all bounds.
    fn knows(&self, page: usize) -> Option<bool> {
        self.known.get(page / 64).map(|word| word >> (page % 64) & 1 != 0)
    }

    /// The first byte at or after an offset that has memory.
    fn next(&mut self, segment: &Segment, from: usize) -> Option<usize> {
        if self.all || self.knows(from / PAGE)? {
            return Some(from);
        }
        let len = segment.geometry().len();
        if self.file.is_none() {
            self.file = segment.object().and_then(|object| object.to_file().ok());
        }
        let Some(Ok(extent)) =
            self.file.as_ref().map(|file| next_extent(file, from / PAGE * PAGE..len))
        else {
            // The system refuses to answer, for example because no descriptor is free.
            self.all = true;
            return Some(from);
        };
        let extent = extent?;
        for page in extent.start / PAGE..extent.end.div_ceil(PAGE) {
            *self.known.get_mut(page / 64)? |= 1 << (page % 64);
        }
        Some(from.max(extent.start))
    }

    fn have(&mut self, segment: &Segment, range: Range<usize>) -> bool {
        let mut pages = range.start / PAGE..range.end.div_ceil(PAGE);
        pages.all(|page| {
            self.knows(page) == Some(true) || self.next(segment, page * PAGE) == Some(page * PAGE)
        })
    }
}

/// A view of a segment that touches only what has memory. Parts without memory look as if they did
/// not exist.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sparse<'a> {
    segment: &'a Segment,
    backed: &'a Backed,
}

impl<'a> Sparse<'a> {
    pub(crate) fn new(segment: &'a Segment, backed: &'a Backed) -> Self {
        Self { segment, backed }
    }

    /// Whether a range of bytes has memory.
    pub(crate) fn has(self, range: Range<usize>) -> bool {
        self.backed.0.as_ref().is_none_or(|pages| pages.borrow_mut().have(self.segment, range))
    }

    /// The first byte at or after an offset that has memory.
    fn next(self, from: usize) -> Option<usize> {
        let Some(pages) = &self.backed.0 else { return Some(from) };
        pages.borrow_mut().next(self.segment, from)
    }

    fn slice<T: Shared>(self, found: Option<&'a [T]>) -> Option<&'a [T]> {
        let found = found?;
        let at = self.segment.offset_of(found);
        self.has(at..at + size_of_val(found)).then_some(found)
    }

    fn one<T: Shared>(self, found: Option<&'a T>) -> Option<&'a T> {
        self.slice(found.map(slice::from_ref))?.first()
    }

    /// The values of type `T` that have memory, with their numbers, which are below `limit`. Values
    /// with successive numbers are adjacent in the segment.
    fn numbers<T: Shared + 'a>(
        self,
        limit: usize,
        get: impl Fn(&'a Segment, usize) -> Option<&'a T>,
    ) -> impl Iterator<Item = (usize, &'a T)> {
        let mut number = 0;
        std::iter::from_fn(move || {
            while number < limit {
                let found = get(self.segment, number)?;
                let at = self.segment.offset_of(slice::from_ref(found));
                let there = self.next(at)?;
                if there == at {
                    number += 1;
                    return Some((number - 1, found));
                }
                number += (there - at).div_ceil(size_of::<T>());
            }
            None
        })
    }

    /// The entries of the table below `limit`.
    pub(crate) fn entries(self, limit: usize) -> impl Iterator<Item = (usize, &'a PointEntry)> {
        self.numbers(limit, Segment::entry)
    }

    /// The lanes below `limit`.
    pub(crate) fn lanes(self, limit: usize) -> impl Iterator<Item = (usize, &'a Lane)> {
        self.numbers(limit, Segment::lane)
    }

    pub(crate) fn control(self, point: usize) -> Option<&'a AtomicU64> {
        self.one(self.segment.control(point))
    }

    /// The control word of a point, 0 if its page was never written.
    pub(crate) fn control_word(self, point: usize) -> Option<u64> {
        self.segment.control(point)?;
        Some(self.control(point).map_or(0, |word| word.load(Ordering::Relaxed)))
    }

    pub(crate) fn reset_time(self, point: usize) -> Option<&'a AtomicU64> {
        self.one(self.segment.reset_time(point))
    }

    pub(crate) fn entry(self, point: usize) -> Option<&'a PointEntry> {
        self.one(self.segment.entry(point))
    }

    pub(crate) fn text(self, offset: usize, len: usize) -> Option<&'a [AtomicU8]> {
        self.slice(self.segment.text(offset, len))
    }

    pub(crate) fn lane(self, lane: usize) -> Option<&'a Lane> {
        self.one(self.segment.lane(lane))
    }

    /// A block of cells. Only its first page is known to have memory.
    pub(crate) fn cell_block(self, block: u64) -> Option<&'a CellBlock> {
        let found = self.segment.cell_block(block)?;
        let at = self.segment.offset_of(slice::from_ref(found));
        self.has(at..at + PAGE).then_some(found)
    }

    /// Whether a cell of a block has memory.
    pub(crate) fn has_cell(self, cell: &Cell) -> bool {
        let at = self.segment.offset_of(slice::from_ref(cell));
        self.has(at..at + size_of::<Cell>())
    }

    /// A ring, if the slots of its first `written` records have memory.
    pub(crate) fn ring(self, block: u64, written: u64) -> Option<&'a [Slot]> {
        let slots = self.segment.ring(block)?;
        let used = usize::try_from(written).map_or(slots.len(), |used| used.min(slots.len()));
        self.slice(slots.get(..used))?;
        Some(slots)
    }

    /// The calls of a lane. Only as many of their edges are known to have memory as [`Self::edges`]
    /// returns.
    pub(crate) fn calls(self, block: u64) -> Option<&'a Calls> {
        let found = self.segment.calls(block).filter(|_| block != 0)?;
        let at = self.segment.offset_of(slice::from_ref(found));
        self.has(at..at + Calls::edge_offset(0)).then_some(found)
    }

    /// The number of edges of a lane that have memory.
    pub(crate) fn edges(self, block: u64, counters: &LaneCounters) -> usize {
        let Some(at) = self.segment.block_offset(block) else { return 0 };
        let edges = calls::announced(&counters.edges);
        // The first page without memory ends the edges.
        let is_there = |edge: &usize| {
            let first = at + Calls::edge_offset(*edge);
            !first.is_multiple_of(PAGE) && *edge != 0 || self.has(first..first + 1)
        };
        (0..edges).take_while(is_there).count()
    }

    /// The allocations of a lane's edges, and the number of edges that have memory for them.
    pub(crate) fn edge_allocs(self, counters: &LaneCounters) -> Option<(&'a EdgeAllocs, usize)> {
        let count = calls::announced(&counters.edge_allocs);
        let block = counters.edge_allocs_block.load(Ordering::Relaxed);
        let found = self.segment.edge_allocs(block).filter(|_| count != 0 && block != 0)?;
        let at = self.segment.offset_of(slice::from_ref(found));
        let bytes = count * size_of::<Edge>();
        let pages = (0..bytes).step_by(PAGE).take_while(|page| self.has(at + page..at + page + 1));
        Some((found, count.min(pages.count() * PAGE / size_of::<Edge>())))
    }

    pub(crate) fn chunk(self, chunk: u32) -> Option<&'a Chunk> {
        self.one(self.segment.chunk(chunk))
    }

    /// The words of a chunk. The caller must ask whether they have memory before it reads them.
    pub(crate) fn words(self, chunk: u32) -> Option<&'a [AtomicU64]> {
        Some(&self.segment.chunk(chunk)?.0)
    }

    pub(crate) fn sums(self, chunk: u32) -> Option<&'a SumWords> {
        self.chunk(chunk)?.0.first_chunk()
    }

    pub(crate) fn allocs(self, chunk: u32) -> Option<&'a AllocWords> {
        self.one(self.segment.allocs(chunk))
    }

    /// A box by its first block.
    pub(crate) fn black_box(self, block: u64) -> Option<&'a BlackBox> {
        self.one(self.segment.black_box(block).filter(|_| block != 0))
    }

    pub(crate) fn shared_cell(self, offset: u64) -> Option<&'a Cell> {
        self.one(self.segment.shared_cell(offset))
    }
}

/// The next part of a range of a file that has data.
pub(crate) fn next_extent(file: &File, range: Range<usize>) -> io::Result<Option<Range<usize>>> {
    if range.is_empty() {
        return Ok(None);
    }
    let seek = |from: usize, what| {
        // SAFETY: an open descriptor and plain numbers.
        let found = unsafe { libc::lseek(file.as_raw_fd(), from as libc::off_t, what) };
        usize::try_from(found).map_err(|_| io::Error::last_os_error())
    };
    let start = match seek(range.start, libc::SEEK_DATA) {
        Ok(start) => start,
        // No data follows.
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => return Ok(None),
        // The file system does not support SEEK_DATA.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(Some(range)),
        Err(error) => return Err(error),
    };
    if start >= range.end {
        return Ok(None);
    }
    // Aligned to a page, so that no word is cut.
    let start = (start - start % PAGE).max(range.start);
    let end = seek(start, libc::SEEK_HOLE)?.next_multiple_of(PAGE);
    Ok(Some(start..end.clamp(start + 1, range.end)))
}
