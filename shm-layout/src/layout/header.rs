//! The first two pages: facts about the segment, and counters of the process as a whole.
//!
//! ```text
//!    0 +--------------------------------------------------------------+
//!      | magic | byte order, version | geometry (6 words)             |
//!      | id 2x | boot id 2x | pid, start time, pid namespace          |  before
//!      | created: unix time, ticks, monotonic time                    |  magic,
//!      | executable (256 bytes) | host name (64 bytes)                |  then
//!      | folder of the beacon (512 bytes)                             |  constant
//! 4096 +--------------------------------------------------------------+
//!      | ProcessCounters: state, clock, overhead, name of the program |  rarely
//!      |         how far points, strings, lanes, pool are used        |
//!      |         what was refused                                     |
//! 8192 +--------------------------------------------------------------+
//! ```
//!
//! The magic is written last, with release (`header-magic`, pairs with `header-magic-seen`): a
//! reader that sees the magic sees the whole header.

use std::fmt;

use crate::heap::{self, NoMemory};
use crate::layout::black_box::BOXES;
use crate::layout::geometry::Geometry;
use crate::sync::{AtomicU64, Ordering, ord};

/// The first eight bytes of a complete segment.
pub const MAGIC: u64 = u64::from_le_bytes(*b"pfp-seg\0");
/// Major part of the layout version: a reader cannot read a segment with another one.
pub const MAJOR: u16 = 3;
/// Minor part of the layout version: a higher one only adds fields.
pub const MINOR: u16 = 1;
/// A machine of the other byte order reads another number.
const BYTE_ORDER: u32 = 0x0102_0304;

const EXE_WORDS: usize = 32;
const HOST_WORDS: usize = 8;
const FOLDER_WORDS: usize = 64;
/// Maximum length of the program's name, in bytes.
pub const NAME_BYTES: usize = 64;

/// The first page; see the module for the drawing.
#[repr(C, align(4096))]
#[derive(Debug)]
pub(crate) struct Header {
    magic: AtomicU64,
    version: AtomicU64,
    geometry: [AtomicU64; 6],
    id: [AtomicU64; 2],
    boot_id: [AtomicU64; 2],
    pid: AtomicU64,
    start_time: AtomicU64,
    pid_namespace: AtomicU64,
    created_unix_ns: AtomicU64,
    created_ticks: AtomicU64,
    created_monotonic_ns: AtomicU64,
    exe: [AtomicU64; EXE_WORDS],
    host: [AtomicU64; HOST_WORDS],
    folder: [AtomicU64; FOLDER_WORDS],
}

/// The second page: words of the process as a whole. Any thread writes them, off the hot path; no
/// word depends on another.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct ProcessCounters {
    /// See [`ProcessState`].
    pub state: AtomicU64,
    /// See [`ClockKind`].
    pub clock_kind: AtomicU64,
    /// Ticks in 1000 seconds, as calibrated.
    pub ticks_per_1000_s: AtomicU64,
    /// Ticks in 1000 seconds by CPUID, 0 if CPUID does not report them.
    pub reported_ticks_per_1000_s: AtomicU64,
    /// The true clock of the core in hertz, 0 if it was not measured.
    pub core_hz: AtomicU64,
    /// 1 if the processor reports that the counter has a constant rate.
    pub invariant: AtomicU64,
    /// Calibrated ticks that measuring adds inside a region.
    pub overhead_inside: AtomicU64,
    /// Calibrated ticks of a whole begin and end pair.
    pub overhead_pair: AtomicU64,
    name: [AtomicU64; NAME_BYTES / 8],
    /// Entries of the point table in use.
    pub points_used: AtomicU64,
    /// Bytes of the string space in use.
    pub strings_used: AtomicU64,
    /// Lanes that have ever been claimed: one more than the highest.
    pub lanes_used: AtomicU64,
    /// 1 once the overflow lane is in use.
    pub overflow_used: AtomicU64,
    /// Blocks of the pool in use.
    pub blocks_used: AtomicU64,
    /// Points that found no entry.
    pub points_refused: AtomicU64,
    /// Requests for space that could not be backed by memory.
    pub space_refused: AtomicU64,
    /// Threads that found no lane.
    pub lanes_overflowed: AtomicU64,
    /// Begins that could not be measured: memory for the thread's lane or cell ran out, the stack
    /// had no room for the slow path, or a signal handler ran while its thread made the segment,
    /// claimed its lane or entered the point.
    pub begins_missed: AtomicU64,
    /// 1 if times are read from the system's clock, because the tick counter is unreliable. Zero in
    /// segments of versions that lack this word.
    pub system_clock: AtomicU64,
    /// Id of the `pfp-top run` that started the program or an ancestor of it. Zero if no run did,
    /// and in segments of versions that lack this word.
    pub run: AtomicU64,
    /// 1 if the probe was built with debug assertions, and so most likely without optimisation.
    /// Zero in segments of versions that lack this word.
    pub debug: AtomicU64,
    /// [Switches](crate::switch) in use. Zero in segments of versions that lack this word.
    pub switches_used: AtomicU64,
    /// Memory that was allocated in the process and is not freed yet, estimated by samples: bytes,
    /// samples, and the most bytes so far. Zeros in segments of versions that lack these words.
    pub heap: [AtomicU64; 3],
    /// First block of each [box](crate::black_box), 0 for none. Zeros in segments of versions that
    /// lack these words.
    pub boxes: [AtomicU64; BOXES],
    /// Slow calls that were kept in a box.
    pub calls_kept: AtomicU64,
}

/// How the process ended, if it did, in [`ProcessCounters::state`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// It runs, or was killed.
    Running = 0,
    /// The process made an orderly exit.
    Exited = 1,
}

/// How a thread's time off the CPU is subtracted, in [`ProcessCounters::clock_kind`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClockKind {
    /// Time off the CPU is not subtracted.
    #[default]
    Wall = 0,
    /// A switch is noticed through the restartable-sequence area.
    Rseq = 1,
    /// A switch is noticed through a self-monitoring perf event.
    Perf = 2,
    /// The thread's CPU time is read at every stamp.
    Cputime = 3,
}

impl ClockKind {
    /// The kind that a word encodes. Another process may have written any word. An unknown kind
    /// counts as wall clock, which promises least.
    #[must_use]
    pub const fn from_word(word: u64) -> Self {
        match word {
            1 => Self::Rseq,
            2 => Self::Perf,
            3 => Self::Cputime,
            _ => Self::Wall,
        }
    }
}

/// The facts in the header; constant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Random id of the segment, also the name of its object.
    pub id: u128,
    /// Boot id of the machine.
    pub boot_id: u128,
    /// Process id in its own pid namespace.
    pub pid: u32,
    /// Start time of the process: field 22 of `/proc/PID/stat`.
    pub start_time: u64,
    /// Inode of the process's pid namespace.
    pub pid_namespace: u64,
    /// When the segment was created: nanoseconds since the Unix epoch.
    pub created_unix_ns: u64,
    /// The tick counter when the segment was created.
    pub created_ticks: u64,
    /// CLOCK_MONOTONIC_RAW when the segment was created, in nanoseconds, as a process in the
    /// machine's first time namespace reads it.
    pub created_monotonic_ns: u64,
    /// Path of the executable, cut to 256 bytes.
    pub exe: String,
    /// Name of the host, cut to 64 bytes.
    pub host: String,
    /// Folder of the process's [beacon](crate::beacon), the file by which viewers find the segment.
    /// Empty without a beacon, for a path of more than 512 bytes, and in segments of versions that
    /// lack this text.
    pub folder: String,
}

/// Why bytes cannot be read as a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FormatError {
    /// There are fewer bytes than the header and the counters take.
    TooShort {
        /// Number of bytes.
        found: usize,
    },
    /// The magic is missing: not a segment, or not complete yet.
    NotASegment {
        /// The word in the place of the magic.
        found: u64,
    },
    /// The segment was written on a machine of the other byte order.
    ByteOrder,
    /// The segment's layout has another major version.
    Version {
        /// Version of the segment.
        found: (u16, u16),
    },
    /// A section does not fit into the bytes.
    Geometry {
        /// The section.
        section: &'static str,
    },
    /// The heap has no room for the texts.
    NoMemory,
}

impl From<NoMemory> for FormatError {
    fn from(NoMemory: NoMemory) -> Self {
        Self::NoMemory
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort { found } => {
                write!(out, "not a pfp segment: expected at least 8192 bytes, found {found}")
            }
            Self::NotASegment { found } => write!(
                out,
                "not a pfp segment: expected the magic {MAGIC:#018x}, found {found:#018x}"
            ),
            Self::ByteOrder => write!(
                out,
                "the segment was written on a machine of the other byte order; read it on such a \
                 machine"
            ),
            Self::Version { found: (major, minor) } => write!(
                out,
                "the segment has layout version {major}.{minor}, this program reads \
                 {MAJOR}.x; use the pfp-top that belongs to the program's pfp"
            ),
            Self::Geometry { section } => {
                write!(out, "the segment is damaged: its {section} do not fit into its bytes")
            }
            Self::NoMemory => NoMemory.fmt(out),
        }
    }
}

impl std::error::Error for FormatError {}

impl Header {
    /// A header of zeros, like fresh shared memory.
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            magic: zero(),
            version: zero(),
            geometry: core::array::from_fn(|_| zero()),
            id: [zero(), zero()],
            boot_id: [zero(), zero()],
            pid: zero(),
            start_time: zero(),
            pid_namespace: zero(),
            created_unix_ns: zero(),
            created_ticks: zero(),
            created_monotonic_ns: zero(),
            exe: core::array::from_fn(|_| zero()),
            host: core::array::from_fn(|_| zero()),
            folder: core::array::from_fn(|_| zero()),
        }
    }

    /// Fills the header, the magic last. Called once, before the segment can be opened.
    pub(crate) fn publish(&self, geometry: &Geometry, facts: &Facts) {
        let put = |word: &AtomicU64, value: u64| word.store(value, Ordering::Relaxed);
        let version = u64::from(MINOR) << 48 | u64::from(MAJOR) << 32 | u64::from(BYTE_ORDER);
        put(&self.version, version);
        for (word, value) in self.geometry.iter().zip(geometry.to_words()) {
            put(word, value);
        }
        for (words, value) in [(&self.id, facts.id), (&self.boot_id, facts.boot_id)] {
            put(&words[0], (value >> 64) as u64);
            put(&words[1], value as u64);
        }
        put(&self.pid, u64::from(facts.pid));
        put(&self.start_time, facts.start_time);
        put(&self.pid_namespace, facts.pid_namespace);
        put(&self.created_unix_ns, facts.created_unix_ns);
        put(&self.created_ticks, facts.created_ticks);
        put(&self.created_monotonic_ns, facts.created_monotonic_ns);
        put_text(&self.exe, &facts.exe);
        put_text(&self.host, &facts.host);
        // A path that does not fit is left out, because its beginning would name another folder.
        if facts.folder.len() <= FOLDER_WORDS * 8 {
            put_text(&self.folder, &facts.folder);
        }
        self.magic.store(MAGIC, ord!("header-magic", Release));
    }

    /// Copies the header once and checks it as far as the header alone allows. `len` is the real
    /// number of bytes. `blocks_used` is the number of blocks that the bytes must hold; `None`
    /// means all.
    pub(crate) fn read(
        &self,
        len: usize,
        blocks_used: Option<u64>,
    ) -> Result<(Geometry, Facts), FormatError> {
        let magic = self.magic.load(ord!("header-magic-seen", Acquire));
        // In a segment of the other byte order every word is reversed, the magic too.
        if magic == MAGIC.swap_bytes() {
            return Err(FormatError::ByteOrder);
        }
        if magic != MAGIC {
            return Err(FormatError::NotASegment { found: magic });
        }
        let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let version = get(&self.version);
        if version as u32 != BYTE_ORDER {
            return Err(FormatError::ByteOrder);
        }
        let found = ((version >> 32) as u16, (version >> 48) as u16);
        if found.0 != MAJOR {
            return Err(FormatError::Version { found });
        }
        let geometry = Geometry::from_words(self.geometry.each_ref().map(get), len, blocks_used)
            .map_err(|section| FormatError::Geometry { section })?;
        let wide =
            |words: &[AtomicU64; 2]| u128::from(get(&words[0])) << 64 | u128::from(get(&words[1]));
        let facts = Facts {
            id: wide(&self.id),
            boot_id: wide(&self.boot_id),
            pid: get(&self.pid) as u32,
            start_time: get(&self.start_time),
            pid_namespace: get(&self.pid_namespace),
            created_unix_ns: get(&self.created_unix_ns),
            created_ticks: get(&self.created_ticks),
            created_monotonic_ns: get(&self.created_monotonic_ns),
            exe: get_text(&self.exe)?,
            host: get_text(&self.host)?,
            folder: get_text(&self.folder)?,
        };
        Ok((geometry, facts))
    }
}

impl ProcessCounters {
    /// Sets the name of the program, cut to [`NAME_BYTES`].
    pub fn set_name(&self, name: &str) {
        put_text(&self.name, name);
    }

    /// Reads the name of the program into `known`, which becomes empty if no name was set.
    ///
    /// # Errors
    ///
    /// Memory runs out.
    pub fn read_name(&self, known: &mut String) -> Result<(), NoMemory> {
        let mut bytes = [0; NAME_BYTES];
        for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(&self.name) {
            *to = word.load(Ordering::Relaxed).to_le_bytes();
        }
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        if known.as_bytes() != &bytes[..end] {
            *known = heap::lossy(&bytes[..end])?;
        }
        Ok(())
    }
}

/// Stores a text. A longer text is cut at a character boundary, a shorter one is padded with zeros.
fn put_text(words: &[AtomicU64], text: &str) {
    let mut end = text.len().min(words.len() * 8);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let bytes = &text.as_bytes()[..end];
    for (index, word) in words.iter().enumerate() {
        let mut chunk = [0; 8];
        let from = &bytes[(index * 8).min(end)..(index * 8 + 8).min(end)];
        chunk[..from.len()].copy_from_slice(from);
        word.store(u64::from_le_bytes(chunk), Ordering::Relaxed);
    }
}

/// Reads the text that [`put_text`] stored, or any other bytes in these words.
fn get_text(words: &[AtomicU64]) -> Result<String, NoMemory> {
    let bytes = words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes());
    let bytes = heap::collect(bytes.take_while(|&byte| byte != 0))?;
    heap::lossy(&bytes)
}

const _: () = {
    assert!(size_of::<Header>() == 4096 && size_of::<ProcessCounters>() == 4096);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_without_its_magic_is_no_segment() {
        let header = Header::new();
        assert_eq!(header.read(1 << 20, None).err(), Some(FormatError::NotASegment { found: 0 }));
    }
}
