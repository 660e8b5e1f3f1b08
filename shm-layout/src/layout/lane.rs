//! The lane directory: which thread writes where.
//!
//! ```text
//!   0 +-------------------------------------------------------------+
//!     | state | tid | claimed | ring block | cells block | name[4]  |  on claim
//!     | calls block | ...                                           |
//! 128 +-------------------------------------------------------------+
//!     | written | folded | folding | switches | mismatched | refused |  as it runs
//!     | anomalies | unrecorded | edges | unplaced | edge allocs[2]  |
//! 256 +-------------------------------------------------------------+
//! ```
//!
//! A lane is claimed with one compare-and-swap on `state`, which holds the generation (how many
//! owners the lane has had) and the lane's present state:
//!
//! ```text
//!   free --claim--> claiming --announce--> live --release--> ended
//!                      ^                                       |
//!                      +----------------claim------------------+
//! ```
//!
//! The lane keeps its ring and cells over all its owners. A cell passes to a new owner when that
//! owner first uses it (see [`crate::layout::cell`]). So a thread ends without any work, and its
//! measurements stay counted.
//!
//! | site | pairs with | makes visible |
//! |---|---|---|
//! | `lane-announce` store | `lane-enter` load | the owner's fields |
//! | `lane-reuse` fence | `lane-recheck` fence | a reader that saw a field of the next owner sees the state stored before that field |
//! | `lane-blocks` store | `lane-recheck` fence | what the ring, the calls or the chain of cells have published is backed by memory |
//! | `lane-release` store | `lane-claim` CAS | the next owner sees all that the last one wrote |

use std::fmt;
use std::ops::Deref;

use crate::layout::ring::Written;
use crate::sync::{AtomicU64, Ordering, fence_at, ord};

/// Maximum length of a lane's name, in bytes.
pub const NAME_BYTES: usize = 32;
const NAME_WORDS: usize = NAME_BYTES / 8;

const FREE: u64 = 0;
const CLAIMING: u64 = 1;
const LIVE: u64 = 2;
const ENDED: u64 = 3;
const KIND: u64 = 3;

/// One lane's entry in the directory; see the module for the drawing.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Lane {
    state: AtomicU64,
    tid: AtomicU64,
    claimed: AtomicU64,
    ring_block: AtomicU64,
    cells_block: AtomicU64,
    name: [AtomicU64; NAME_WORDS],
    calls_block: AtomicU64,
    spare: [AtomicU64; 6],
    /// The counters of the lane's thread.
    pub counters: LaneCounters,
}

/// The counters of a lane's thread, in a pair of cache lines of their own. Only the lane's thread
/// writes these words. On the overflow lane many threads add to them atomically.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct LaneCounters {
    /// Records ever written to the ring.
    pub written: Written,
    /// Records below this number are in the lane's cells; see [`crate::layout::ring`].
    pub folded: AtomicU64,
    /// Ticks that folding took.
    pub folding: AtomicU64,
    /// Times the thread was found to have been off the CPU.
    pub switches: AtomicU64,
    /// Ends that matched no open region, or not the innermost one.
    pub mismatched: AtomicU64,
    /// Begins refused because too many regions were open.
    pub refused: AtomicU64,
    /// Clock readings at which the counter had decreased, stood still or jumped, or the clock
    /// source had missed a context switch.
    pub anomalies: AtomicU64,
    /// Measurements without a record: no page of the ring was free, or the thread has no ring, as
    /// on the overflow lane and in a signal handler that interrupts the probe itself.
    pub unrecorded: AtomicU64,
    /// Number of edges between callers and callees; see [`crate::layout::calls`].
    pub edges: AtomicU64,
    /// Records that found no room for an edge.
    pub unplaced: AtomicU64,
    /// First block of the allocations of edges, 0 for none.
    pub edge_allocs_block: AtomicU64,
    /// Number of edges that have an entry for allocations; see [`crate::layout::calls`].
    pub edge_allocs: AtomicU64,
    spare: [AtomicU64; 4],
}

/// The state of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LaneState {
    /// No thread has owned it yet.
    #[default]
    Free,
    /// A running thread owns it.
    Live,
    /// Its last owner has ended.
    Ended,
}

/// The name of a lane's thread, padded with zero bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct LaneName([u8; NAME_BYTES]);

impl Deref for LaneName {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.split(|&byte| byte == 0).next().unwrap_or_default()
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for LaneName {
    fn eq(&self, other: &&[u8; N]) -> bool {
        **self == other[..]
    }
}

impl fmt::Debug for LaneName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "\"{}\"", self.escape_ascii())
    }
}

/// A copy of a lane's entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LanePicture {
    /// The state of the lane.
    pub state: LaneState,
    /// Number of owners so far.
    pub generation: u32,
    /// Kernel thread id of the last owner; 0 while the next owner claims the lane.
    pub tid: u32,
    /// Tick counter when the last owner claimed the lane; 0 while the next owner claims it.
    pub claimed: u64,
    /// First block of the ring, 0 for none.
    pub ring_block: u64,
    /// First block of cells, 0 for none.
    pub cells_block: u64,
    /// First block of the calls, 0 for none.
    pub calls_block: u64,
    /// Name of the thread: bytes as given, cut at the first zero.
    pub name: LaneName,
}

impl Default for Lane {
    fn default() -> Self {
        Self::new()
    }
}

impl Lane {
    /// A lane of zeros: free.
    #[must_use]
    pub fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            state: zero(),
            tid: zero(),
            claimed: zero(),
            ring_block: zero(),
            cells_block: zero(),
            name: core::array::from_fn(|_| zero()),
            calls_block: zero(),
            spare: core::array::from_fn(|_| zero()),
            counters: LaneCounters {
                written: Written::default(),
                folded: zero(),
                folding: zero(),
                switches: zero(),
                mismatched: zero(),
                refused: zero(),
                anomalies: zero(),
                unrecorded: zero(),
                edges: zero(),
                unplaced: zero(),
                edge_allocs_block: zero(),
                edge_allocs: zero(),
                spare: core::array::from_fn(|_| zero()),
            },
        }
    }

    // ---- writer ----

    /// Claims the lane for the calling thread if it has no owner; returns the new generation, never
    /// 0. The lane is not visible as live before [`Self::announce`].
    pub fn claim(&self) -> Option<u32> {
        let state = self.state.load(Ordering::Relaxed);
        if matches!(state & KIND, CLAIMING | LIVE) {
            return None;
        }
        // Generation 0 means "never owned".
        let generation = ((state >> 2) as u32).wrapping_add(1).max(1);
        let claiming = u64::from(generation) << 2 | CLAIMING;
        // Pairs with `lane-release`: until here the cells and the ring belong to the last owner.
        let won = self.state.compare_exchange(
            state,
            claiming,
            ord!("lane-claim", Acquire),
            Ordering::Relaxed,
        );
        // Pairs with `lane-recheck`.
        fence_at!("lane-reuse", Release);
        won.ok().map(|_| generation)
    }

    /// Publishes the claimed lane as the calling thread's.
    pub fn announce(&self, generation: u32, tid: u32, claimed: u64, name: &[u8]) {
        self.tid.store(u64::from(tid), Ordering::Relaxed);
        self.claimed.store(claimed, Ordering::Relaxed);
        self.set_name(name);
        // Pairs with `lane-enter`.
        self.state.store(u64::from(generation) << 2 | LIVE, ord!("lane-announce", Release));
    }

    /// Names the lane, in at most [`NAME_BYTES`] bytes, cut at a character boundary of UTF-8. If
    /// two threads name it at the same time, parts of both names may stay.
    pub fn set_name(&self, name: &[u8]) {
        let mut end = name.len().min(NAME_BYTES);
        while end < name.len() && end > 0 && name[end] & 0xc0 == 0x80 {
            end -= 1;
        }
        let mut bytes = [0; NAME_BYTES];
        bytes[..end].copy_from_slice(&name[..end]);
        for (word, chunk) in self.name.iter().zip(bytes.chunks_exact(8)) {
            let value = chunk.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte));
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Releases the lane as its thread ends.
    pub fn release(&self, generation: u32) {
        // Pairs with `lane-claim`.
        self.state.store(u64::from(generation) << 2 | ENDED, ord!("lane-release", Release));
    }

    /// Publishes the ring. Pairs with `lane-recheck`.
    pub fn set_ring_block(&self, block: u64) {
        self.ring_block.store(block, ord!("lane-blocks", Release));
    }

    /// Publishes the calls. Pairs with `lane-recheck`.
    pub fn set_calls_block(&self, block: u64) {
        self.calls_block.store(block, ord!("lane-blocks", Release));
    }

    /// Publishes the first block of cells. Pairs with `lane-recheck`.
    pub fn set_cells_block(&self, block: u64) {
        self.cells_block.store(block, ord!("lane-blocks", Release));
    }

    // ---- reader ----

    /// Copies the entry; `None` if the owner changed during the copy.
    #[must_use]
    pub fn read(&self) -> Option<LanePicture> {
        let mut picture = LanePicture::default();
        self.read_into(&mut picture).then_some(picture)
    }

    /// Copies the entry over an older picture; false if the owner changed during the copy, which is
    /// then invalid.
    #[must_use]
    pub fn read_into(&self, picture: &mut LanePicture) -> bool {
        // Pairs with `lane-announce` and `lane-release`.
        let state = self.state.load(ord!("lane-enter", Acquire));
        picture.state = match state & KIND {
            LIVE => LaneState::Live,
            ENDED => LaneState::Ended,
            // The last owner has ended, and the new one is not announced.
            CLAIMING if state >> 2 > 1 => LaneState::Ended,
            _ => LaneState::Free,
        };
        picture.generation = (state >> 2) as u32;
        picture.ring_block = self.ring_block.load(Ordering::Relaxed);
        picture.cells_block = self.cells_block.load(Ordering::Relaxed);
        picture.calls_block = self.calls_block.load(Ordering::Relaxed);
        picture.name = LaneName::default();
        if state & KIND == CLAIMING {
            // Between two owners, the fields are a mixture of both owners'. If the process dies
            // there, the fields stay mixed.
            (picture.tid, picture.claimed) = (0, 0);
        } else {
            picture.tid = self.tid.load(Ordering::Relaxed) as u32;
            picture.claimed = self.claimed.load(Ordering::Relaxed);
            for (to, word) in picture.name.0.as_chunks_mut().0.iter_mut().zip(&self.name) {
                *to = word.load(Ordering::Relaxed).to_le_bytes();
            }
        }
        // Pairs with `lane-reuse`, and `lane-blocks` before the blocks are used.
        fence_at!("lane-recheck", Acquire);
        self.state.load(Ordering::Relaxed) == state
    }
}

const _: () = assert!(FREE == 0, "fresh memory is a free lane");
