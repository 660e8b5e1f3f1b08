//! Files compressed with Zstandard, with a checksum of their content.

use std::io::{self, Read, Write};
use std::path::Path;

use anyhow::{Result, anyhow};
use zstd::stream::{read::Decoder, write::Encoder};

use super::input;

/// The first bytes of every Zstandard frame (RFC 8878, 3.1.1).
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The compression level: the library's default compromise between time and size.
const LEVEL: i32 = 3;
/// Maximum unpacked size of a copy of a segment, in bytes; nearly all of it is zeros that take no
/// memory.
const LIMIT: u64 = 4 << 30;
/// Maximum ratio of unpacked to packed bytes of a text. Snapshots have a ratio of about 15, or 200
/// if all cells are alike. The text stays in memory until parsed.
const TIMES: u64 = 1024;
/// Unpacked size that is allowed for every file, however small it is, in bytes.
const MIN_BYTES: u64 = 16 << 20;
/// Number of bytes that are unpacked first, to find out the kind of the file.
const START: usize = 64 << 10;

/// Whether the name ends in `.zst`, as names of compressed files do.
pub fn is_named(path: &Path) -> bool {
    path.extension().is_some_and(|end| end.eq_ignore_ascii_case("zst"))
}

/// Whether these bytes are compressed.
pub fn is_compressed(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Compresses the bytes that `fill` writes.
pub fn write<W: Write>(
    out: W,
    fill: impl FnOnce(&mut Encoder<'static, W>) -> io::Result<()>,
) -> io::Result<()> {
    let mut packed = Encoder::new(out, LEVEL)?;
    packed.include_checksum(true)?;
    fill(&mut packed)?;
    packed.finish()?;
    Ok(())
}

/// A compressed file. Only its start is unpacked so far.
pub struct Compressed<'a> {
    start: Vec<u8>,
    rest: Decoder<'static, &'a [u8]>,
    /// Size of the file, in bytes.
    len: u64,
}

/// Begins to unpack a file.
///
/// # Errors
///
/// If the file is damaged or truncated. The error explains this to the user.
pub fn unpack(bytes: &[u8]) -> Result<Compressed<'_>> {
    let len = bytes.len() as u64;
    let mut start = Vec::new();
    let rest = Decoder::with_buffer(bytes).and_then(|mut rest| {
        rest.by_ref().take(START as u64).read_to_end(&mut start)?;
        Ok(rest)
    });
    let rest = rest.map_err(|error| explain(error, len))?;
    Ok(Compressed { start, rest, len })
}

impl<'a> Compressed<'a> {
    /// The first bytes of its content.
    pub fn start(&self) -> &[u8] {
        &self.start
    }

    /// The whole content, as text. Memory grows as the file is unpacked, up to the limit for texts.
    ///
    /// # Errors
    ///
    /// If the file is damaged, or its content exceeds the limit. The error explains this to the
    /// user.
    pub fn text(self) -> Result<Vec<u8>> {
        let most = (self.len * TIMES).clamp(MIN_BYTES, input::MAX_BYTES);
        self.up_to(most)
    }

    fn up_to(self, most: u64) -> Result<Vec<u8>> {
        let len = self.len;
        let mut whole = Vec::new();
        let read = self.bounded(most.min(LIMIT)).read_to_end(&mut whole);
        read.map_err(|error| explain(error, len))?;
        Ok(whole)
    }

    /// A reader of the content, for callers that store little of it. Pass its errors to
    /// [`explain`].
    pub fn reader(self) -> impl Read + use<'a> {
        self.bounded(LIMIT)
    }

    fn bounded(self, most: u64) -> impl Read + use<'a> {
        let from = io::Cursor::new(self.start).chain(self.rest);
        BoundedReader { from, most, left: most }
    }
}

/// A reader that fails after a number of bytes.
struct BoundedReader<R> {
    from: R,
    most: u64,
    left: u64,
}

impl<R: Read> Read for BoundedReader<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        // Read one byte more than allowed, to find out whether there is more.
        let room = usize::try_from(self.left.saturating_add(1)).unwrap_or(usize::MAX);
        let room = room.min(to.len());
        let found = self.from.read(&mut to[..room])?;
        let left = self.left.checked_sub(found as u64);
        self.left = left.ok_or_else(|| {
            let why = format!(
                "expected at most {} MiB when unpacked, found more; if you trust its source, \
                 unpack it with `zstd -d` first",
                self.most >> 20
            );
            io::Error::new(io::ErrorKind::FileTooLarge, why)
        })?;
        Ok(found)
    }
}

/// Explains to the user why a compressed file of `len` bytes cannot be unpacked.
pub fn explain(error: io::Error, len: u64) -> anyhow::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => anyhow!(
            "expected a whole compressed file, but it ends early ({len} bytes); it was truncated: \
             copy it again"
        ),
        io::ErrorKind::FileTooLarge | io::ErrorKind::OutOfMemory => anyhow!(error),
        _ => anyhow!(
            "expected a file that Zstandard can unpack, found a damaged one ({error}); copy it \
             again"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes, |out| out.write_all(text)).unwrap();
        bytes
    }

    #[test]
    fn compression_follows_the_name_and_is_detected_by_content() {
        for (name, packs) in [("a.json.zst", true), ("a.ZST", true), ("zst", false), ("a", false)] {
            assert_eq!(is_named(Path::new(name)), packs, "{name}");
        }
        assert!(is_compressed(&packed(b"")) && !is_compressed(b"{") && !is_compressed(b""));
    }

    fn unpacked(bytes: &[u8]) -> Result<Vec<u8>> {
        let text = unpack(bytes)?.text()?;
        // `reader` yields the same bytes as `text`.
        let mut read = Vec::new();
        unpack(bytes)?.reader().read_to_end(&mut read)?;
        assert_eq!(read, text);
        Ok(text)
    }

    /// Truncated anywhere, or with any byte changed, a file is refused or read as before: never
    /// with a wrong figure.
    #[test]
    fn damage_is_refused() {
        let text: Vec<u8> = (0..50_000u32).flat_map(|n| (n * n % 97).to_le_bytes()).collect();
        assert!(text.len() > 2 * START);
        let whole = packed(&text);
        for len in 0..whole.len() {
            let error = unpacked(&whole[..len]).map(|read| assert_eq!(read, b"", "{len}"));
            if let Err(error) = error {
                assert!(error.to_string().contains("copy it again"), "{len}: {error}");
            } else {
                assert_eq!(len, 0);
            }
        }
        let mut refused = 0;
        for at in 0..whole.len() {
            let mut copy = whole.clone();
            copy[at] ^= 0x55;
            match unpacked(&copy) {
                Ok(read) => assert_eq!(read, text, "byte {at}"),
                Err(_) => refused += 1,
            }
        }
        assert!(refused >= whole.len() - 2, "{refused} of {}", whole.len());
    }

    #[test]
    fn decompression_bombs_are_refused() {
        let bomb = packed(&vec![0; 1 << 20]);
        assert!(bomb.len() < 1_000);
        assert_eq!(unpack(&bomb).unwrap().up_to(1 << 20).unwrap().len(), 1 << 20);
        let error = unpack(&bomb).unwrap().up_to((1 << 20) - 1).unwrap_err().to_string();
        assert!(error.contains("at most 0 MiB"), "{error}");

        let bomb = packed(&vec![b' '; 2 * MIN_BYTES as usize]);
        assert!((bomb.len() as u64) < MIN_BYTES / TIMES);
        let error = unpack(&bomb).unwrap().text().unwrap_err().to_string();
        assert!(error.contains("at most 16 MiB"), "{error}");
    }
}
