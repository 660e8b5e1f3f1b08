//! Functions that a fuzzer calls with arbitrary bytes, one input per call. `fuzz/` has a target for
//! each of [`TARGETS`], and `assets/fuzz/` its corpus.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{LazyLock, OnceLock};

use pfp_shm_layout::header::Facts;
use pfp_shm_layout::reader::Reader;
use pfp_shm_layout::segment::Segment;

use crate::hostile::{Memory, assert_fit, look_at_file};

/// Reads an input; panics if the code under test does.
pub type Look = fn(&[u8]);

/// The fuzzer's functions by the names of its targets.
pub const TARGETS: [(&str, Look); 4] =
    [("header", header), ("descriptors", descriptors), ("segment", segment), ("file", file)];

/// The golden segment. It is read at run time, since the file is outside this package.
static GOLDEN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../assets/segment-v3.pfp"))
        .expect("the repository has it")
});

/// Number of words at the front of a segment: header and counters. An input of [`segment`] can
/// choose the counters' words directly.
const FRONT: usize = 2 * 4096 / 8;
/// Number of words of the header.
const HEADER: usize = 4096 / 8;
/// Number of words before the pool of blocks. These words describe the pool's content.
const DESCRIPTORS: usize = 32 * 1024 / 8;
/// Number of words of a cache line; all sections are aligned to cache lines.
const LINE: usize = 8;

/// Overwrites a segment's header with the input, and makes the first check that a new reader makes.
/// Bytes that the input does not reach keep their values, and so does everything after the header.
///
/// # Panics
///
/// Panics if the check panics.
pub fn header(input: &[u8]) {
    with_golden(|base, _| {
        let changed = || (0..HEADER).zip(input.chunks(8));
        for (word, bytes) in changed() {
            let mut value = original(word).to_le_bytes();
            value[..bytes.len()].copy_from_slice(bytes);
            put(base, word, u64::from_le_bytes(value));
        }
        if let Err(refusal) = base.facts() {
            assert_fit("a refusal", &refusal.to_string());
        }
        changed().for_each(|(word, _)| put(base, word, original(word)));
    });
}

/// Overwrites a segment's descriptors with the input. The descriptors are the used 64-byte lines of
/// header, counters, control words, table of points, texts and lanes. Then the function reads the
/// segment as a new reader, and as a reader that validated the header before the change. Bytes that
/// the input does not reach keep their values.
///
/// # Panics
///
/// Panics if reading does.
pub fn descriptors(input: &[u8]) {
    with_golden(|base, facts| {
        let changed = || described().iter().zip(input.chunks(8));
        for (&word, bytes) in changed() {
            let mut value = original(word).to_le_bytes();
            value[..bytes.len()].copy_from_slice(bytes);
            put(base, word, u64::from_le_bytes(value));
        }
        if let Err(refusal) = base.facts() {
            assert_fit("a refusal", &refusal.to_string());
        }
        Reader::new(base, facts.clone()).poll();
        changed().for_each(|(&word, _)| put(base, word, original(word)));
    });
}

/// The input of [`descriptors`] that changes nothing.
#[must_use]
pub fn unchanged_descriptors() -> Vec<u8> {
    described().iter().flat_map(|&word| original(word).to_le_bytes()).collect()
}

/// Words of those lines of the descriptors that are in use.
fn described() -> &'static [usize] {
    static DESCRIBED: OnceLock<Vec<usize>> = OnceLock::new();
    DESCRIBED.get_or_init(|| {
        let lines = (0..DESCRIPTORS).step_by(LINE).map(|word| word..word + LINE);
        lines.filter(|line| line.clone().any(|word| original(word) != 0)).flatten().collect()
    })
}

/// Reads a segment, makes the changes in the input, and reads it again. Each word to change takes
/// 11 bytes of input: two for its position, one for the kind of change, and eight for its value.
/// The changes are undone, so that no input depends on an earlier one.
///
/// # Panics
///
/// Panics if reading does.
pub fn segment(input: &[u8]) {
    with_golden(|base, facts| {
        let changes = || {
            input.as_chunks::<11>().0.iter().map(|change| {
                let place = usize::from(u16::from_le_bytes([change[0], change[1]]));
                let value = u64::from_le_bytes(change[3..].try_into().expect("eight bytes"));
                // A quarter of the changes hit the counters, a quarter hit words that are not zero,
                // and the others hit any word.
                let word = match change[2] % 4 {
                    0 => FRONT / 2 + place % (FRONT / 2),
                    1 => nonzero_words()[place % nonzero_words().len()],
                    _ => place % (GOLDEN.len() / 8),
                };
                let value = match change[2] / 4 % 4 {
                    0 => value,
                    1 => original(word).wrapping_add(value as i8 as u64),
                    2 => original(word) ^ 1 << (value % 64),
                    _ => value % 64,
                };
                (word, value)
            })
        };
        {
            let mut reader = Reader::new(base, facts.clone());
            reader.poll();
            changes().for_each(|(word, value)| put(base, word, value));
            reader.poll();
            // A new reader checks the changed header.
            let _ = base.facts();
            let mut reader = Reader::new(base, facts.clone());
            reader.poll();
            drop(reader.records());
        }
        changes().for_each(|(word, _)| put(base, word, original(word)));
    });
}

/// Words of the segment that are not zero.
fn nonzero_words() -> &'static [usize] {
    static NONZERO: OnceLock<Vec<usize>> = OnceLock::new();
    NONZERO.get_or_init(|| (0..GOLDEN.len() / 8).filter(|&word| original(word) != 0).collect())
}

/// Calls `look` with the golden segment. Each thread has its own copy, which `look` must leave
/// unchanged.
fn with_golden(look: impl FnOnce(&Segment, &Facts)) {
    thread_local! {
        static BASE: (Segment, Facts) = Segment::from_copy(&GOLDEN).expect("it is a segment");
    }
    BASE.with(|(base, facts)| look(base, facts));
}

/// The original value of a word of the golden segment.
fn original(word: usize) -> u64 {
    u64::from_le_bytes(GOLDEN.as_chunks().0[word])
}

/// Stores a word of the segment's copy.
fn put(base: &Segment, word: usize, value: u64) {
    assert!(word < GOLDEN.len() / 8);
    // SAFETY: the word is inside the copy on the heap, which is aligned and as long as the file,
    // and all accesses to it are atomic.
    unsafe { &*base.base().add(word * 8).cast::<AtomicU64>() }.store(value, Relaxed);
}

/// Reads the input as a file that claims to be a segment.
///
/// # Panics
///
/// Panics if reading does.
pub fn copy(input: &[u8]) {
    if let Ok((segment, facts)) = Segment::from_copy(input) {
        let mut reader = Reader::new(segment, facts);
        reader.poll();
        drop(reader.records());
    }
}

/// Reads the input as a file of any format, and writes every export of it.
///
/// # Panics
///
/// Panics if any of these steps does.
pub fn file(input: &[u8]) {
    // A compressed file that is too large is refused only once its expansion reaches the size
    // limit, which takes long.
    let file = Memory::new(input).expect("there is memory");
    look_at_file(&file, false);
}
