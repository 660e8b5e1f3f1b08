//! Ways to look at any bytes at all, as a fuzzer calls them: one input at a time, in
//! the way that is fast for its kind.

use std::cell::RefCell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pfp_shm_layout::reader::Reader;
use pfp_shm_layout::segment::Segment;

use crate::hostile::{Memory, look_at_file};

static GOLDEN: &[u8] = include_bytes!("../../assets/segment-v1.pfp");

/// Words at the front of a segment that an input names twice as easily: header and
/// ledger.
const FRONT: usize = 2 * 4096 / 8;

/// A segment that is read, changed as the input says, and read again: 11 bytes for each
/// word that is changed, two for its place, one that says how, and eight for its value.
/// The change is undone, so that no input depends on the one before.
///
/// # Panics
///
/// If reading does.
pub fn segment(input: &[u8]) {
    thread_local! {
        static BASE: RefCell<Option<Segment>> = const { RefCell::new(None) };
    }
    BASE.with_borrow_mut(|base| {
        let base = base
            .get_or_insert_with(|| Segment::from_copy(GOLDEN).expect("the file is a segment").0);
        let original = |word: usize| {
            let bytes = GOLDEN[word * 8..].first_chunk().expect("it is in the file");
            u64::from_le_bytes(*bytes)
        };
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
        let facts = base.facts().expect("the header is as it was");
        let put = |word: usize, value: u64| {
            // SAFETY: a word of the copy on the heap, which is as long as the file and
            // aligned; all access to it is atomic.
            unsafe { &*base.base().add(word * 8).cast::<AtomicU64>() }.store(value, Relaxed);
        };
        {
            let mut reader = Reader::new(&*base, facts.clone());
            reader.poll(false);
            changes().for_each(|(word, value)| put(word, value));
            reader.poll(false);
            // What a first look makes of the header as it is now.
            let _ = base.facts();
            let mut reader = Reader::new(&*base, facts);
            reader.poll(true);
            drop(reader.records());
        }
        changes().for_each(|(word, _)| put(word, original(word)));
    });
}

/// Words of the segment that are not zero.
fn told() -> &'static [usize] {
    static TOLD: OnceLock<Vec<usize>> = OnceLock::new();
    TOLD.get_or_init(|| {
        let words = GOLDEN.as_chunks::<8>().0.iter().enumerate();
        words.filter(|(_, word)| **word != [0; 8]).map(|(word, _)| word).collect()
    })
}

/// The bytes of a whole segment, as a file that claims to be one is read.
///
/// # Panics
///
/// If reading does.
pub fn header(input: &[u8]) {
    if let Ok((segment, facts)) = Segment::from_copy(input) {
        let mut reader = Reader::new(segment, facts);
        reader.poll(true);
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
