//! The point table: names of points, filled once, then constant.
//!
//! ```text
//!  0 +---------------------------------------------------------------+
//!    | ready | kind, line | name offset, length | file offset, length|
//!    | shared cell | slow calls, of | amounts offset, length         |
//!    | second shared cell                                            |
//! 64 +---------------------------------------------------------------+
//! ```
//!
//! `kind` is the upper half of a word, `line` the lower: see [`DEVICE`]. `slow calls` is the upper
//! half of a word. The lower half is 1 + the metered point of this tuple, or 0. The slow calls of a
//! tuple are counted in its metered point.
//!
//! The [amounts](crate::layout::amounts) are a text: a metered point has their names,
//! `bytes,flops`, and a tuple its numbers, `2400,200`.
//!
//! Names and files are bytes in the string space. Two threads may enter the same point at once:
//! each fills the words of its entry that are still 0, and announces the entry by a store to
//! `ready`.
//!
//! | site | pairs with | makes visible |
//! |---|---|---|
//! | `point-ready` store | `point-enter` load | the entry and its strings |
//! | `point-fill` CAS | `point-filled` failed CAS | the other thread's string |
//! | `point-name` store | `point-name-seen` load | the new name's text |
//! | `point-cell` CAS | `point-cell-seen` load | the shared cell is prepared |

use crate::sync::{AtomicU64, Ordering, ord};

/// `ready` of an announced entry; 0 before.
const READY: u64 = 2;

/// Flag in the word of a point's line: the point measures time on a device, not on its thread's
/// CPU. Readers that do not know the flag see the line.
pub const DEVICE: u64 = 1 << 32;

/// Flag in the same word, beside [`DEVICE`]: the point measures spans of the clock, which do not
/// belong to a thread or a device.
pub const WALL: u64 = 1 << 33;

/// Bits of `of`, below the number of slow calls.
const OF_BITS: u32 = 32;

/// One point's entry; see the module for the drawing.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct PointEntry {
    ready: AtomicU64,
    line: AtomicU64,
    name: AtomicU64,
    file: AtomicU64,
    shared_cell: AtomicU64,
    of: AtomicU64,
    amounts: AtomicU64,
    second_shared_cell: AtomicU64,
}

/// The position of a string in the string space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Text {
    /// Offset from the start of the string space.
    pub offset: u32,
    /// Its length in bytes.
    pub len: u32,
}

impl Text {
    const fn pack(self) -> u64 {
        (self.len as u64) << 32 | self.offset as u64
    }

    const fn unpack(word: u64) -> Self {
        Self { offset: word as u32, len: (word >> 32) as u32 }
    }
}

/// A copy of a point's entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryPicture {
    /// Position of the point's name.
    pub name: Text,
    /// Position of the name of the point's source file.
    pub file: Text,
    /// Line in that file, 0 if unknown.
    pub line: u32,
    /// Whether the point measures the time of a device or spans of the clock; see [`DEVICE`].
    pub device: bool,
    /// Whether the point measures spans of the clock; see [`WALL`].
    pub wall: bool,
    /// Offsets of the point's two cells on the overflow lane, in the segment; 0 without a cell.
    pub shared_cells: [u64; 2],
    /// If the point is a tuple: the number of its metered point, whose control word it follows.
    pub of: Option<u32>,
    /// The names of a metered point's amounts, or the numbers of a tuple.
    pub amounts: Text,
    /// Slow calls of the point, kept or dropped, modulo 2^32; 0 for a tuple.
    pub slow_calls: u32,
}

/// Fills a word, unless another thread has filled it. The word is not overwritten, because the
/// point may have been renamed since. A failed CAS (`point-filled`) pairs with the other thread's
/// CAS (`point-fill`): the thread that announces the entry then announces the other thread's text,
/// too.
fn fill(word: &AtomicU64, value: u64) {
    let _ =
        word.compare_exchange(0, value, ord!("point-fill", Release), ord!("point-filled", Acquire));
}

impl Default for PointEntry {
    fn default() -> Self {
        Self::new()
    }
}

impl PointEntry {
    /// An entry of zeros: empty.
    #[must_use]
    pub fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            ready: zero(),
            line: zero(),
            name: zero(),
            file: zero(),
            shared_cell: zero(),
            of: zero(),
            amounts: zero(),
            second_shared_cell: zero(),
        }
    }

    // ---- writer ----

    /// Fills in the amounts of a metered point, or of a tuple of the metered point `of`, before the
    /// entry is announced.
    pub fn set_amounts(&self, of: Option<u32>, amounts: Text) {
        fill(&self.amounts, amounts.pack());
        fill(&self.of, of.map_or(0, |of| u64::from(of) + 1));
    }

    /// Fills the entry and announces it. The line may include [`DEVICE`]. Words that another thread
    /// has filled stay.
    pub fn announce(&self, name: Text, file: Text, line: u64) {
        fill(&self.name, name.pack());
        fill(&self.file, file.pack());
        fill(&self.line, line);
        // Pairs with `point-enter`.
        self.ready.store(READY, ord!("point-ready", Release));
    }

    /// Gives an announced point another name.
    pub fn rename(&self, name: Text) {
        self.name.store(name.pack(), ord!("point-name", Release));
    }

    /// Counts a slow call of the point, which is not a tuple.
    pub fn add_slow_call(&self) {
        self.of.fetch_add(1 << OF_BITS, Ordering::Relaxed);
    }

    /// Publishes one of the point's two cells on the overflow lane, unless another thread was
    /// faster; returns the published cell. Pairs with `point-cell-seen`.
    pub fn set_shared_cell(&self, second: bool, offset: u64) -> u64 {
        let word = if second { &self.second_shared_cell } else { &self.shared_cell };
        let won = word.compare_exchange(
            0,
            offset,
            ord!("point-cell", Release),
            ord!("point-cell-seen", Acquire),
        );
        won.map_or_else(|found| found, |_| offset)
    }

    /// Offsets of the point's two cells on the overflow lane, 0 without a cell.
    #[must_use]
    pub fn shared_cells(&self) -> [u64; 2] {
        [&self.shared_cell, &self.second_shared_cell]
            .map(|word| word.load(ord!("point-cell-seen", Acquire)))
    }

    // ---- reader ----

    /// Whether the entry was announced. Pairs with `point-ready`.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.load(ord!("point-enter", Acquire)) == READY
    }

    /// Copies the entry; `None` before it is announced.
    #[must_use]
    pub fn read(&self) -> Option<EntryPicture> {
        let line = || self.line.load(Ordering::Relaxed);
        self.is_ready().then(|| EntryPicture {
            // Pairs with `point-name`: the string is there before the new offset.
            name: Text::unpack(self.name.load(ord!("point-name-seen", Acquire))),
            file: Text::unpack(self.file.load(Ordering::Relaxed)),
            line: line() as u32,
            device: line() & DEVICE != 0,
            wall: line() & WALL != 0,
            shared_cells: self.shared_cells(),
            of: self.of(),
            amounts: Text::unpack(self.amounts.load(Ordering::Relaxed)),
            slow_calls: (self.of.load(Ordering::Relaxed) >> OF_BITS) as u32,
        })
    }

    fn of(&self) -> Option<u32> {
        (self.of.load(Ordering::Relaxed) as u32).checked_sub(1)
    }
}
