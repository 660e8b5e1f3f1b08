//! All points by name and place.
//!
//! A signal handler that interrupted the host's allocator can be the first to reach a scope. So no
//! code here takes a lock or uses the heap: the points are in a [`trie`](crate::trie), in memory
//! from [`arena`].
//!
//! Texts are read and written byte by byte. ThreadSanitizer intercepts `memcpy` and `memcmp` and
//! would report races, because it does not see the atomic operations of this library that order the
//! accesses.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use probe::Point;

use crate::arena;
use crate::trie::Trie;

/// Maximum number of names, far more than a segment has points.
const MAX_POINTS: usize = 1 << 17;

/// A point and its place in the source.
struct PlacedPoint {
    name: &'static [AtomicU8],
    file: &'static [AtomicU8],
    line: u32,
    point: Point,
}

static PLACES: Trie<PlacedPoint> = Trie::new();

/// The point of a name and place. `None` if there are too many points, or memory runs out. Bytes
/// that are not UTF-8 are replaced.
pub(crate) fn point(name: &[u8], file: &[u8], line: u32) -> Option<&'static Point> {
    let is = |place: &PlacedPoint| {
        place.line == line && text(name).eq(bytes(place.name)) && text(file).eq(bytes(place.file))
    };
    let make = || {
        let (kept_name, name) = keep(name)?;
        let (kept_file, file) = keep(file)?;
        Some(PlacedPoint {
            name: kept_name,
            file: kept_file,
            line,
            point: Point::at(name, file, line),
        })
    };
    PLACES.get(hash([name, file, b""], line), MAX_POINTS, is, make).map(|place| &place.point)
}

/// A hash of three texts and a line.
pub(crate) fn hash(texts: [&[u8]; 3], line: u32) -> u64 {
    let all = texts.into_iter().flat_map(|of| text(of).chain([0])).chain(line.to_ne_bytes());
    // FNV-1a.
    let hash = all.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    hash ^ hash >> 32
}

/// The bytes of a text, with invalid UTF-8 replaced.
pub(crate) fn text(bytes: &[u8]) -> impl Iterator<Item = u8> {
    bytes.utf8_chunks().flat_map(|chunk| {
        let replacement = if chunk.invalid().is_empty() { "" } else { "\u{fffd}" };
        chunk.valid().bytes().chain(replacement.bytes())
    })
}

fn bytes(kept: &[AtomicU8]) -> impl Iterator<Item = u8> {
    kept.iter().map(|byte| byte.load(Relaxed))
}

/// Stores a text for good. Returns it as atomic bytes and as a `str`.
pub(crate) fn keep(bytes: &[u8]) -> Option<(&'static [AtomicU8], &'static str)> {
    let kept = arena::keep_bytes(text(bytes).count())?;
    for (to, byte) in kept.iter().zip(text(bytes)) {
        to.store(byte, Relaxed);
    }
    // SAFETY: both types have the same layout, and the bytes are not changed any more.
    let kept_text = unsafe { std::slice::from_raw_parts(kept.as_ptr().cast::<u8>(), kept.len()) };
    // SAFETY: the bytes come from `text`, which replaces invalid UTF-8.
    Some((kept, unsafe { std::str::from_utf8_unchecked(kept_text) }))
}
