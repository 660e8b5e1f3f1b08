//! Files compressed with Zstandard, with a checksum of what is in them.

use std::io::{self, Read, Write};
use std::path::Path;

use anyhow::{Result, anyhow, bail};
use zstd::stream::{read::Decoder, write::Encoder};

/// What every frame of Zstandard begins with (RFC 8878, 3.1.1).
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The library's own middle between time and size.
const LEVEL: i32 = 3;
/// Most bytes that are made of a file: a small one could unfold into more than
/// any machine has.
const LIMIT: u64 = 4 << 30;

/// Whether a file of this name is to be compressed.
pub fn is_named(path: &Path) -> bool {
    path.extension().is_some_and(|end| end.eq_ignore_ascii_case("zst"))
}

/// Whether these bytes are compressed.
pub fn is_packed(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Compresses what is written by `fill`.
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

/// What was compressed.
pub fn unpack(bytes: &[u8]) -> Result<Vec<u8>> {
    unpack_up_to(bytes, LIMIT)
}

fn unpack_up_to(bytes: &[u8], limit: u64) -> Result<Vec<u8>> {
    let mut whole = Vec::new();
    let read = Decoder::with_buffer(bytes)
        .and_then(|packed| packed.take(limit.saturating_add(1)).read_to_end(&mut whole));
    if let Err(error) = read {
        return Err(match error.kind() {
            io::ErrorKind::UnexpectedEof => anyhow!(
                "expected a whole compressed file, but it ends early ({} bytes); it was cut off on \
                 its way: copy it again",
                bytes.len()
            ),
            _ => anyhow!(
                "expected a file that Zstandard can unpack, found a damaged one ({error}); copy it \
                 again"
            ),
        });
    }
    if whole.len() as u64 > limit {
        bail!(
            "expected at most {} MiB when unpacked, found more; unpack it with `zstd -d` first, if \
             it comes from somebody you trust",
            limit >> 20
        );
    }
    Ok(whole)
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
    fn the_name_says_whether_and_the_content_tells_that_it_is_packed() {
        for (name, packs) in [("a.json.zst", true), ("a.ZST", true), ("zst", false), ("a", false)] {
            assert_eq!(is_named(Path::new(name)), packs, "{name}");
        }
        assert!(is_packed(&packed(b"")) && !is_packed(b"{") && !is_packed(b""));
    }

    /// Cut anywhere, or with any byte changed, it is refused or the same as ever:
    /// no wrong figure comes of it.
    #[test]
    fn damage_is_refused() {
        let text: Vec<u8> = (0..5_000u32).flat_map(|n| (n * n % 97).to_le_bytes()).collect();
        let whole = packed(&text);
        for len in 0..whole.len() {
            let error = unpack(&whole[..len]).map(|read| assert_eq!(read, b"", "{len}"));
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
            match unpack(&copy) {
                Ok(read) => assert_eq!(read, text, "byte {at}"),
                Err(_) => refused += 1,
            }
        }
        assert!(refused >= whole.len() - 2, "{refused} of {}", whole.len());
    }

    #[test]
    fn what_unfolds_without_end_is_refused() {
        let bomb = packed(&vec![0; 1 << 20]);
        assert!(bomb.len() < 1_000);
        assert_eq!(unpack_up_to(&bomb, 1 << 20).unwrap().len(), 1 << 20);
        let error = unpack_up_to(&bomb, (1 << 20) - 1).unwrap_err().to_string();
        assert!(error.contains("at most 0 MiB"), "{error}");
    }
}
