//! Compression and checksums.
//!
//! Shows regions around and inside a loop: `compress` contains `checksum` and `deflate`, which
//! alternate for each chunk. So the exclusive time of `compress` is only its remaining work.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

/// A compressed text, and the checksum by which it is verified.
pub(crate) struct Packed {
    pub(crate) bytes: Vec<u8>,
    /// CRC-32 (IEEE 802.3) of the text before compression.
    pub(crate) checksum: u32,
}

/// Bytes that are checksummed and compressed at a time.
const CHUNK_BYTES: usize = 4096;

/// A named static, since two places share the point.
static DEFLATE: pfp::Point = pfp::Point::new("deflate");

/// Compresses a text in zlib's format and computes its checksum in the same loop.
#[pfp::function]
pub(crate) fn compress(text: &[u8]) -> io::Result<Packed> {
    let mut checksum = crc32fast::Hasher::new();
    let mut encoder = ZlibEncoder::new(Vec::with_capacity(text.len() / 2), Compression::default());
    for chunk in text.chunks(CHUNK_BYTES) {
        {
            pfp::scope!("checksum");
            checksum.update(chunk);
        }
        {
            let _measured = DEFLATE.measure();
            encoder.write_all(chunk)?;
        }
    }
    // The end of the stream does most of the work of a small text.
    let _measured = DEFLATE.measure();
    Ok(Packed { bytes: encoder.finish()?, checksum: checksum.finalize() })
}

/// Whether a packed text unpacks to the original, to the byte.
#[pfp::function]
pub(crate) fn verify(packed: &Packed, original: &[u8]) -> bool {
    let mut text = Vec::with_capacity(original.len());
    let inflated = {
        pfp::scope!("inflate");
        ZlibDecoder::new(packed.bytes.as_slice()).read_to_end(&mut text)
    };
    inflated.is_ok() && text == original && crc32fast::hash(&text) == packed.checksum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::{BOOK, CHAPTERS};

    #[test]
    fn texts_come_back_whole() {
        for text in CHAPTERS.iter().copied().chain([BOOK, "", "x"]) {
            let packed = compress(text.as_bytes()).unwrap();
            assert!(verify(&packed, text.as_bytes()));
        }
    }

    #[test]
    fn the_book_shrinks_to_less_than_half() {
        let packed = compress(BOOK.as_bytes()).unwrap();
        assert!(packed.bytes.len() * 2 < BOOK.len());
    }

    #[test]
    fn the_checksum_is_the_standard_one() {
        // The check value that every catalogue gives for this CRC.
        assert_eq!(compress(b"123456789").unwrap().checksum, 0xCBF4_3926);
    }

    #[test]
    fn damage_is_noticed() {
        let text = CHAPTERS[6].as_bytes();
        let whole = compress(text).unwrap();

        let mut flipped = Packed { bytes: whole.bytes.clone(), ..whole };
        flipped.bytes[100] ^= 0x20;
        assert!(!verify(&flipped, text));

        let cut = Packed { bytes: whole.bytes[..whole.bytes.len() / 2].to_vec(), ..whole };
        assert!(!verify(&cut, text));

        let wrong_checksum = Packed { checksum: whole.checksum ^ 1, ..whole };
        assert!(!verify(&wrong_checksum, text));
    }
}
