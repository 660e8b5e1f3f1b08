//! Files of a few kilobytes that decompress to hundreds of megabytes are refused, without using
//! that much memory.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use pfp_read::files::zstd_file;
use pfp_read::source;
use pfp_shm_layout::header::ProcessCounters;

const MIB: u64 = 1 << 20;

/// Writes a compressed file that starts with `start` and continues with `more` equal bytes.
fn bomb(path: &Path, start: &[u8], byte: u8, more: u64) {
    let file = fs::File::create(path).unwrap();
    zstd_file::write(file, |out| {
        out.write_all(start)?;
        let block = [byte; 1 << 16];
        (0..more / block.len() as u64).try_for_each(|_| out.write_all(&block))
    })
    .unwrap();
    assert!(fs::metadata(path).unwrap().len() < 100 << 10);
}

/// The peak memory of this process since the peak was last reset, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

fn forget_peak() -> io::Result<()> {
    fs::write("/proc/self/clear_refs", "5")
}

/// One test, since the peak covers the whole process.
#[test]
fn files_that_decompress_to_far_more_are_refused_in_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let segment = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../assets/segment-v3.pfp"));
    let mut segment = segment.unwrap();
    // The segment claims to have and use many blocks, and all of them are zeros.
    const BLOCKS: u64 = 30_000;
    let used = 4096 + std::mem::offset_of!(ProcessCounters, blocks_used);
    let [blocks, len] = [16 + 3 * 8, 16 + 4 * 8];
    let mut put = |at: usize, value: fn(u64) -> u64| {
        let word: &mut [u8; 8] = (&mut segment[at..at + 8]).try_into().unwrap();
        *word = value(u64::from_ne_bytes(*word)).to_ne_bytes();
    };
    put(len, |len| len + (BLOCKS - 32) * (16 << 10));
    put(blocks, |blocks| {
        assert_eq!(blocks, 32);
        BLOCKS
    });
    put(used, |used| {
        assert!(used < 32);
        BLOCKS
    });

    for (name, start, byte, more, most, why) in [
        ("zeros", &b""[..], 0, 256 * MIB, 4 * MIB, "found other data when unpacked"),
        ("blanks", b"{", b' ', 256 * MIB, 40 * MIB, "at most 16 MiB when unpacked"),
        ("text", b"{\"format\":\"", b'a', 256 * MIB, 40 * MIB, "at most 16 MiB when unpacked"),
        ("segment", &segment, 0, 512 * MIB, 24 * MIB, "its blocks do not fit into its bytes"),
    ] {
        let path = folder.path().join(name);
        bomb(&path, start, byte, more);
        forget_peak().unwrap();
        let before = peak();
        let refused = format!("{:#}", source::open(&path).err().expect(name));
        let taken = peak() - before;
        assert!(refused.contains(why), "{name}: {refused}");
        assert!(taken < most, "{name} took {} MiB", taken / MIB);
    }
}
