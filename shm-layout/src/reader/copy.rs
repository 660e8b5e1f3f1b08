//! Copies a segment into a file, while its process runs or after it has ended.
//!
//! ```text
//!    0 +---------------------------------------------------------+
//!      | the segment, up to the last block in use; holes where   |
//!      | it has no memory                                        |
//!  end +---------------------------------------------------------+
//!      | "pfp-copy" | unix time | monotonic time | runs | 4 spare |
//!      +---------------------------------------------------------+
//! ```
//!
//! All words are in the byte order of the machine, as in the segment. The note at the end has what
//! the segment lacks: when it was copied, and whether its process ran. A copy without a note, such
//! as `cp` makes, is read as well.
//!
//! Pages without memory are skipped, since reading them would allocate memory; the system shows
//! which pages have any. A live process keeps writing during the copy, so each cell is copied again
//! together with its histogram, by the code that readers use. Records of a ring that were
//! overwritten during the copy are zeros in the copy.

// Miri does not support the system calls of these tests.
#[cfg(all(test, not(miri)))]
mod tests;

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::slice;

use crate::atomic_file::WholeFile;
use crate::heap::NoMemory;
use crate::layout::amounts::SUM_WORDS;
use crate::layout::cell::Cell;
use crate::layout::geometry::{BLOCK, CHUNK, Geometry, PAGE, RING_SLOTS};
use crate::layout::header::{Facts, FormatError};
use crate::layout::histogram::PARTS;
use crate::layout::lane::Lane;
use crate::layout::point::PointEntry;
use crate::layout::ring::{self, Slot};
use crate::layout::segment::{OpenError, Segment};
use crate::reader::backed::{Backed, Sparse, next_extent};
use crate::reader::bounds::{COPY_ATTEMPTS, MAX_LANES};
use crate::reader::chain::{LaneCells, Visited};
use crate::sync::{AtomicU64, Ordering, fence};

const NOTE_MAGIC: u64 = u64::from_le_bytes(*b"pfp-copy");
const NOTE_WORDS: usize = 8;
const NOTE: usize = NOTE_WORDS * 8;
/// Bytes per read.
const CHUNK_OF_FILE: usize = 1 << 20;
/// Maximum ratio of the bytes in use to the bytes in the file. A ring takes four blocks and may
/// fill one page of them; a copy that claims far more is hostile.
const SPARSEST: u64 = 64;
/// Maximum number of bytes of a copy, since a reader holds them in memory. Holes do not count, and
/// in a stream pages of zeros do not count.
pub const MAX_BYTES: usize = 1 << 30;

/// When a copy was taken, and whether the process ran at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// When the copy was taken, in nanoseconds since the Unix epoch.
    pub taken_unix_ns: u64,
    /// When the copy was taken, by the clock of [`Facts::created_monotonic_ns`], in nanoseconds.
    pub taken_monotonic_ns: u64,
    /// Whether the process ran when the copy was taken.
    pub runs: bool,
}

impl Note {
    fn to_bytes(self) -> [u8; NOTE] {
        let words = [NOTE_MAGIC, self.taken_unix_ns, self.taken_monotonic_ns, u64::from(self.runs)];
        let mut bytes = [0; NOTE];
        for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *to = word.to_ne_bytes();
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut words =
            bytes.get(..NOTE)?.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
        (words.next()? == NOTE_MAGIC).then_some(())?;
        Some(Self {
            taken_unix_ns: words.next()?,
            taken_monotonic_ns: words.next()?,
            runs: words.next()? == 1,
        })
    }
}

/// An output that a copy is written to.
pub trait Out {
    /// Writes the next bytes.
    ///
    /// # Errors
    ///
    /// The bytes cannot be written.
    fn put(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Writes `bytes` zeros, or leaves a hole of that size.
    ///
    /// # Errors
    ///
    /// The zeros cannot be written, or the hole cannot be made.
    fn skip(&mut self, bytes: u64) -> io::Result<()>;
}

impl Out for WholeFile {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        Self::skip(self, bytes)
    }
}

/// Output without holes: zeros are written.
#[derive(Debug)]
pub struct Dense<W>(pub W);

impl<W: Write> Out for Dense<W> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let mut left = bytes;
        while left > 0 {
            let some = left.min(PAGE as u64);
            self.0.write_all(&[0; PAGE][..some as usize])?;
            left -= some;
        }
        Ok(())
    }
}

/// The parts of a file that have data, in their order.
#[derive(Debug, Default)]
struct Extents(Vec<Range<usize>>);

impl Extents {
    /// Reads a file up to a length, and calls `each` with each part that has data and its offset.
    fn read(file: &File, len: usize, mut each: impl FnMut(usize, &[u8])) -> io::Result<Self> {
        let mut extents = Self::default();
        let mut buffer = vec![0; CHUNK_OF_FILE.min(len)];
        let (mut at, mut there) = (0, 0);
        while let Some(extent) = next_extent(file, at..len)? {
            at = extent.start;
            while at < extent.end {
                check_bytes(there)?;
                let some = buffer.len().min(extent.end - at);
                file.read_exact_at(&mut buffer[..some], at as u64)?;
                each(at, &buffer[..some]);
                at += some;
                there += some;
            }
            extents.0.push(extent);
        }
        Ok(extents)
    }

    /// Whether a part has data at an offset.
    fn have(&self, offset: usize) -> bool {
        let next = self.0.partition_point(|extent| extent.end <= offset);
        self.0.get(next).is_some_and(|extent| extent.start <= offset)
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(Range::len).sum()
    }
}

/// The bytes of a segment at one moment.
#[derive(Debug)]
pub struct SegmentCopy {
    segment: Segment,
    extents: Extents,
}

impl SegmentCopy {
    /// Copies the parts of a segment that are in use.
    ///
    /// # Errors
    ///
    /// The system's error from reading the object; `OutOfMemory`.
    pub fn of(from: &Segment) -> io::Result<Self> {
        let used = from.counters().blocks_used.load(Ordering::Relaxed);
        let used = used.min(from.geometry().blocks_present() as u64);
        let segment = blank(from.geometry().cut_to(used as usize))?;
        let len = segment.geometry().len();
        let extents = match from.object() {
            Some(object) => {
                Extents::read(&object.to_file()?, len, |at, bytes| segment.fill(at, bytes))?
            }
            None => {
                copy_words(from, &segment, 0, len / 8);
                Extents(Vec::from([Range { start: 0, end: len }]))
            }
        };
        // The segment may have grown during the copy. Blocks that lanes have taken since are beyond
        // the copy's end, and read as unused.
        segment.counters().blocks_used.store(used, Ordering::Relaxed);
        let mut copy = Self { segment, extents };
        copy.take_lanes(from)?;
        Ok(copy)
    }

    /// Writes the copy, with a note if there is one.
    ///
    /// # Errors
    ///
    /// The copy cannot be written.
    pub fn write(&self, out: &mut impl Out, note: Option<&Note>) -> io::Result<()> {
        let len = self.segment.geometry().len();
        let (mut run, mut done) = (Vec::with_capacity(CHUNK_OF_FILE), 0);
        let pages = self.extents.0.iter().flat_map(|extent| extent.clone().step_by(PAGE));
        for page in pages {
            let words = self.segment.words(page, PAGE.min(len - page) / 8).unwrap_or_default();
            if words.iter().all(|word| word.load(Ordering::Relaxed) == 0) {
                continue;
            }
            if page != done + run.len() || run.len() >= CHUNK_OF_FILE {
                out.put(&run)?;
                done += run.len();
                run.clear();
                out.skip((page - done) as u64)?;
                done = page;
            }
            let start = run.len();
            run.resize(start + words.len() * 8, 0);
            for (to, word) in run[start..].as_chunks_mut().0.iter_mut().zip(words) {
                *to = word.load(Ordering::Relaxed).to_ne_bytes();
            }
        }
        out.put(&run)?;
        out.skip((len - done - run.len()) as u64)?;
        note.map_or(Ok(()), |note| out.put(&note.to_bytes()))
    }

    /// Copies again, one by one, the rings, calls and cells that threads write to, so that each is
    /// whole.
    fn take_lanes(&mut self, from: &Segment) -> Result<(), NoMemory> {
        let geometry = from.geometry();
        let used = from.counters().lanes_used.load(Ordering::Acquire);
        let lanes = usize::try_from(used).map_or(usize::MAX, |used| used);
        let lanes = lanes.min(geometry.lanes()).min(MAX_LANES);
        let backed = Backed::of(from)?;
        let sparse = Sparse::new(from, &backed);
        // Bounded like a reader: a damaged segment may lead in circles.
        let mut visited = Visited::new(geometry)?;
        let mut parts_left = geometry.blocks_present() * (BLOCK / CHUNK);
        for (id, lane) in sparse.lanes(lanes) {
            let Some(entry) = (0..COPY_ATTEMPTS).find_map(|_| lane.read()) else { continue };
            // A ring is copied before the cells. A record that is folded in between is then in both
            // copies, and the cell's number of records shows that the cell has the record.
            if let (Some(slots), Some(own)) = (from.ring(entry.ring_block), self.segment.lane(id)) {
                self.take_ring(from, (lane, own), entry.ring_block, slots);
            }
            if let (Some(calls), Some(own)) =
                (sparse.calls(entry.calls_block), self.segment.calls(entry.calls_block))
            {
                own.take_edges(
                    calls,
                    sparse.edges(entry.calls_block, &lane.counters),
                    COPY_ATTEMPTS,
                );
            }
            if let Some((allocs, count)) = sparse.edge_allocs(&lane.counters)
                && let block = lane.counters.edge_allocs_block.load(Ordering::Relaxed)
                && let Some(own) = self.segment.edge_allocs(block)
            {
                own.take(allocs, count, COPY_ATTEMPTS);
            }
            for cell in LaneCells::new(sparse, entry.cells_block, &mut visited) {
                self.take_cell(from, cell, &mut parts_left);
            }
        }
        for block in from.counters().boxes.each_ref().map(|block| block.load(Ordering::Relaxed)) {
            if let (Some(found), Some(own)) =
                (sparse.black_box(block), self.segment.black_box(block))
            {
                own.take(found, COPY_ATTEMPTS);
            }
        }
        Ok(())
    }

    /// Copies a cell and its histogram, whole if possible.
    fn take_cell(&self, from: &Segment, cell: &Cell, parts_left: &mut usize) {
        let offset = from.offset_of(slice::from_ref(cell));
        let mut copy = [0; size_of::<Cell>() / 8];
        let (Some(words), Some(to), true) = (
            from.words(offset, copy.len()),
            self.segment.words(offset, copy.len()),
            self.extents.have(offset),
        ) else {
            return;
        };
        for _ in 0..COPY_ATTEMPTS {
            let chunk = cell.amounts_to_read();
            let at = chunk as usize * CHUNK;
            let found = from.sums(chunk).filter(|_| self.extents.have(at));
            let mut sums = [0; SUM_WORDS];
            let whole = cell
                .copy((words, &mut copy), (found.map_or(&[], |sums| sums.as_slice()), &mut sums));
            // Otherwise the figures may count amounts of a chunk that was not copied.
            let is_whole = cell.amounts() == chunk;
            let Some(restarts) = whole.filter(|_| is_whole) else {
                std::hint::spin_loop();
                continue;
            };
            if let Some(to) = self.segment.words(at, sums.len()).filter(|_| found.is_some()) {
                to.iter().zip(sums).for_each(|(to, sum)| to.store(sum, Ordering::Relaxed));
            }
            to.iter().zip(copy).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
            let chunk = cell.allocs_to_read();
            if self.extents.have(chunk as usize * CHUNK)
                && let (Some(from), Some(to)) = (from.allocs(chunk), self.segment.allocs(chunk))
                && let Some((epoch, sums)) = (0..COPY_ATTEMPTS).find_map(|_| from.read())
            {
                to.publish(epoch, &sums);
                to.take_samples(from);
            }
            let has = |part: &usize| {
                let number = cell.part_to_read(*part);
                let there = number != 0 && self.extents.have(number as usize * CHUNK);
                there && from.chunk(number).is_some()
            };
            let mut left = *parts_left;
            for part in (0..PARTS).filter(has) {
                let Some(fewer) = left.checked_sub(1) else { break };
                left = fewer;
                copy_words(from, &self.segment, cell.part(part) as usize * CHUNK, CHUNK / 8);
            }
            // As in `reader/cells.rs`: if all parts are of one moment, they may hold some of the
            // staged records, and these are the first ones.
            let is_still = |part| same_words(from, &self.segment, cell.part(part) as usize * CHUNK);
            fence(Ordering::Acquire);
            let is_whole = (0..PARTS).filter(has).all(is_still);
            if is_whole && !cell.restarted_since(restarts) || left == 0 {
                *parts_left = left;
                return;
            }
        }
    }

    /// Copies a ring, with the number of its records.
    fn take_ring(&self, from: &Segment, (lane, own): (&Lane, &Lane), block: u64, slots: &[Slot]) {
        let offset = from.offset_of(slots);
        // Pairs with `ring-publish`.
        let written = lane.counters.written.enter();
        for page in (offset..offset + size_of_val(slots)).step_by(PAGE) {
            if self.extents.have(page) {
                copy_words(from, &self.segment, page, PAGE / 8);
            }
        }
        // Pairs with `ring-reuse`.
        fence(Ordering::Acquire);
        let now = lane.counters.written.now();
        own.counters.written.publish(written);
        // `folded` is read after the records, so every record that was overwritten is below
        // `folded`. And `folded` is read before the cells, so the cells hold all records below it.
        let folded = ring::folded(&lane.counters.folded).min(written);
        own.counters.folded.store(folded, Ordering::Relaxed);
        if now == written {
            return;
        }
        let capacity = RING_SLOTS as u64;
        let copied = self.segment.ring(block).unwrap_or_default();
        let oldest = written.saturating_sub(capacity);
        let safe = now.saturating_add(1).saturating_sub(capacity).clamp(oldest, written);
        for number in oldest..safe {
            if let Some(slot) = copied.get((number % capacity) as usize) {
                slot.forget();
            }
        }
    }
}

fn copy_words(from: &Segment, to: &Segment, offset: usize, count: usize) {
    let from = from.words(offset, count).unwrap_or_default();
    let to = to.words(offset, count).unwrap_or_default();
    for (to, from) in to.iter().zip(from) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Whether the words of a chunk equal the copied ones.
fn same_words(from: &Segment, copy: &Segment, offset: usize) -> bool {
    let [from, copy] = [from, copy].map(|it| it.words(offset, CHUNK / 8).unwrap_or_default());
    let pairs = &mut from.iter().zip(copy);
    pairs.all(|(word, copy)| word.load(Ordering::Relaxed) == copy.load(Ordering::Relaxed))
}

fn blank(geometry: Geometry) -> io::Result<Segment> {
    Segment::blank(geometry).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

impl Segment {
    /// The bytes up to the last block in use, for a file: a copy that [`Self::from_copy`] reads.
    ///
    /// # Errors
    ///
    /// Fails like [`SegmentCopy::of`].
    pub fn to_copy(&self) -> io::Result<Vec<u8>> {
        let mut copy = Dense(Vec::new());
        SegmentCopy::of(self)?.write(&mut copy, None)?;
        Ok(copy.0)
    }
}

/// Whether a file that begins with these bytes is a copy of a segment, of any version and byte
/// order.
#[must_use]
pub fn is_copy(start: &[u8]) -> bool {
    let magic = crate::layout::header::MAGIC;
    let word = start.first_chunk().map(|word| u64::from_ne_bytes(*word));
    word == Some(magic) || word == Some(magic.swap_bytes())
}

/// Reads a copy of a segment from a file, with its note. Memory is allocated for the bytes that the
/// file has, not for the bytes that it claims.
///
/// # Errors
///
/// The file cannot be read, is not a segment that this version reads, or is incomplete.
pub fn read(file: &File) -> Result<(Segment, Facts, Option<Note>), OpenError> {
    let len = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    if len < 2 * PAGE {
        return Err(FormatError::TooShort { found: len }.into());
    }
    let mut start = vec![0; 2 * PAGE];
    file.read_exact_at(&mut start, 0)?;
    let (geometry, facts) = Segment::judge(&start, len)?;
    let geometry = geometry.cut_to(used_of(&start));
    let segment = blank(geometry)?;
    let extents = Extents::read(file, geometry.len(), |at, bytes| segment.fill(at, bytes))?;
    check_density(&segment, extents.bytes())?;
    let mut note = [0; NOTE];
    let note = file.read_exact_at(&mut note, geometry.len() as u64).ok().map(|()| note);
    Ok((segment, facts, note.and_then(|note| Note::from_bytes(&note))))
}

/// Reads a copy and its note from a stream, such as a compressed file. Pages of zeros take no
/// memory.
///
/// # Errors
///
/// Fails like [`read`].
pub fn read_from(mut from: impl Read) -> Result<(Segment, Facts, Option<Note>), OpenError> {
    let mut start = vec![0; 2 * PAGE];
    let found = read_up_to(&mut from, &mut start)?;
    if found < start.len() {
        return Err(FormatError::TooShort { found }.into());
    }
    // The length is known only at the end of the stream.
    let (geometry, facts) = Segment::judge(&start, usize::MAX)?;
    let geometry = geometry.cut_to(used_of(&start));
    let segment = blank(geometry)?;
    segment.fill(0, &start);
    let (mut at, mut there) = (start.len(), start.len());
    let mut buffer = vec![0; CHUNK_OF_FILE];
    while at < geometry.len() {
        let some = buffer.len().min(geometry.len() - at);
        let found = read_up_to(&mut from, &mut buffer[..some])?;
        if found < some {
            return Err(FormatError::Geometry { section: "blocks" }.into());
        }
        for (page, bytes) in buffer[..some].chunks(PAGE).enumerate() {
            if bytes.iter().any(|&byte| byte != 0) {
                segment.fill(at + page * PAGE, bytes);
                there += bytes.len();
                check_bytes(there)?;
            }
        }
        at += some;
    }
    check_density(&segment, there)?;
    let mut note = [0; NOTE];
    let found = read_up_to(&mut from, &mut note)?;
    // The end of the stream is read, too, so that a decompressor verifies its checksum.
    io::copy(&mut from, &mut io::sink())?;
    Ok((segment, facts, Note::from_bytes(&note[..found])))
}

/// Fills a buffer until it is full or the input ends. Returns the number of bytes read.
fn read_up_to(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut found = 0;
    while found < buffer.len() {
        match from.read(&mut buffer[found..]) {
            Ok(0) => break,
            Ok(more) => found += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Refuses a copy of more bytes than may be held in memory.
fn check_bytes(there: usize) -> io::Result<()> {
    if there <= MAX_BYTES {
        return Ok(());
    }
    let why = format!("expected a copy of at most {} MiB, found more", MAX_BYTES >> 20);
    Err(io::Error::new(io::ErrorKind::FileTooLarge, why))
}

/// Refuses a copy that claims to use more than [`SPARSEST`] times the bytes in the file. Reserved
/// room that is not in use does not count: the program chose its size.
fn check_density(segment: &Segment, there: usize) -> Result<(), FormatError> {
    let (counters, geometry) = (segment.counters(), segment.geometry());
    let used = |word: &AtomicU64, most: usize| word.load(Ordering::Relaxed).min(most as u64);
    let points = used(&counters.points_used, geometry.points());
    let lanes = used(&counters.lanes_used, geometry.lanes());
    let front = points * (size_of::<AtomicU64>() + size_of::<PointEntry>()) as u64
        + used(&counters.strings_used, geometry.string_bytes())
        + lanes * size_of::<Lane>() as u64;
    let blocks = geometry.blocks_present() as u64 * BLOCK as u64;
    if front + blocks > (there as u64).saturating_mul(SPARSEST) {
        return Err(FormatError::Geometry { section: "blocks" });
    }
    Ok(())
}

/// The number of blocks in use that a checked copy claims.
fn used_of(start: &[u8]) -> usize {
    let at = PAGE + std::mem::offset_of!(crate::layout::header::ProcessCounters, blocks_used);
    let word = start.get(at..).and_then(|bytes| bytes.first_chunk());
    word.map_or(0, |word| u64::from_ne_bytes(*word) as usize)
}
