//! Ways to look at any bytes at all, as a fuzzer calls them: one input at a time, in
//! the way that is fast for its kind. `fuzz/` has a target for each of [`TARGETS`],
//! `assets/fuzz/` its corpus.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{LazyLock, OnceLock};

use pfp_shm_layout::header::Facts;
use pfp_shm_layout::reader::Reader;
use pfp_shm_layout::segment::Segment;

use crate::hostile::{Memory, assert_fit, look_at_file};

/// Looks at an input; panics if that does.
pub type Look = fn(&[u8]);

/// What a fuzzer calls, by the names of its targets.
pub const TARGETS: [(&str, Look); 4] =
    [("header", header), ("descriptors", descriptors), ("segment", segment), ("file", file)];

/// Read at run time: the file is outside this package.
static GOLDEN: LazyLock<Vec<u8>> = LazyLock::new(|| {
    std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../assets/segment-v3.pfp"))
        .expect("the repository has it")
});

/// Words at the front of a segment that an input of [`segment`] names twice as easily:
/// header and counters.
const FRONT: usize = 2 * 4096 / 8;
/// Words of the header.
const HEADER: usize = 4096 / 8;
/// Words in front of the pool of blocks, which describe what is in it.
const DESCRIPTORS: usize = 32 * 1024 / 8;
/// Words of a line of a processor's cache, by which all parts are laid out.
const LINE: usize = 8;

/// A segment's header as the input has it, in front of what is described as it was: what
/// a newcomer judges before he believes anything else. What the input does not reach is
/// as it was, and what is behind the header is left out of it.
///
/// # Panics
///
/// If that does.
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

/// A segment's descriptors as the input has them: header, counters, control words, table
/// of points, texts and lanes, of each the lines of 64 bytes that are in use. Looked at
/// by somebody who comes now and, whatever the header says, by one who knew it before.
/// What the input does not reach is as it was.
///
/// # Panics
///
/// If reading does.
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

/// Words of the descriptors' lines that are in use.
fn described() -> &'static [usize] {
    static DESCRIBED: OnceLock<Vec<usize>> = OnceLock::new();
    DESCRIBED.get_or_init(|| {
        let lines = (0..DESCRIPTORS).step_by(LINE).map(|word| word..word + LINE);
        lines.filter(|line| line.clone().any(|word| original(word) != 0)).flatten().collect()
    })
}

/// A segment that is read, changed as the input says, and read again: 11 bytes for each
/// word that is changed, two for its place, one that says how, and eight for its value.
/// The change is undone, so that no input depends on the one before.
///
/// # Panics
///
/// If reading does.
pub fn segment(input: &[u8]) {
    with_golden(|base, facts| {
        let changes = || {
            input.as_chunks::<11>().0.iter().map(|change| {
                let place = usize::from(u16::from_le_bytes([change[0], change[1]]));
                let value = u64::from_le_bytes(change[3..].try_into().expect("eight bytes"));
                // All that says something is reached: the front, the other sections'
                // words that are not zero, and the others.
                let word = match change[2] % 4 {
                    0 => FRONT / 2 + place % (FRONT / 2),
                    1 => told()[place % told().len()],
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
            // What a first look makes of the header as it is now.
            let _ = base.facts();
            let mut reader = Reader::new(base, facts.clone());
            reader.poll();
            drop(reader.records());
        }
        changes().for_each(|(word, _)| put(base, word, original(word)));
    });
}

/// Words of the segment that are not zero.
fn told() -> &'static [usize] {
    static TOLD: OnceLock<Vec<usize>> = OnceLock::new();
    TOLD.get_or_init(|| (0..GOLDEN.len() / 8).filter(|&word| original(word) != 0).collect())
}

/// Calls with the golden segment, which is one for each thread and must be left as it was.
fn with_golden(look: impl FnOnce(&Segment, &Facts)) {
    thread_local! {
        static BASE: (Segment, Facts) = Segment::from_copy(&GOLDEN).expect("it is a segment");
    }
    BASE.with(|(base, facts)| look(base, facts));
}

/// A word of the golden segment.
fn original(word: usize) -> u64 {
    u64::from_le_bytes(GOLDEN.as_chunks().0[word])
}

/// Writes a word of its copy.
fn put(base: &Segment, word: usize, value: u64) {
    assert!(word < GOLDEN.len() / 8);
    // SAFETY: a word of the copy on the heap, which is as long as the file and aligned;
    // all access to it is atomic.
    unsafe { &*base.base().add(word * 8).cast::<AtomicU64>() }.store(value, Relaxed);
}

/// The bytes of a whole segment, as a file that claims to be one is read.
///
/// # Panics
///
/// If reading does.
pub fn copy(input: &[u8]) {
    if let Ok((segment, facts)) = Segment::from_copy(input) {
        let mut reader = Reader::new(segment, facts);
        reader.poll();
        drop(reader.records());
    }
}

/// A file of whatever form, the whole way to every export.
///
/// # Panics
///
/// If anything of this does.
pub fn file(input: &[u8]) {
    // One that claims to unfold into more is refused by its size, which takes long.
    let file = Memory::new(input).expect("there is memory");
    look_at_file(&file, false);
}
