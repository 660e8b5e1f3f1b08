//! Arbitrary bytes instead of a segment or a file, many inputs per second: reading them ends,
//! without a panic.

use std::path::{Path, PathBuf};
use std::time::Instant;

use pfp_tests::random::Random;
use pfp_tests::{figure, fuzz, size};

fn assets() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets")
}

fn asset(name: &str) -> Vec<u8> {
    std::fs::read(assets().join(name)).expect("the asset is there")
}

/// Calls a fuzzer's function; if it panics, the message names the seed of the input.
fn run(what: &str, count: u64, look: fn(&[u8]), mut input: impl FnMut(&mut Random) -> Vec<u8>) {
    let start = Instant::now();
    for seed in 0..count {
        let input = input(&mut Random::new(seed));
        if let Err(panic) = std::panic::catch_unwind(|| look(&input)) {
            eprintln!("{what}: seed {seed}, {} bytes", input.len());
            std::panic::resume_unwind(panic);
        }
    }
    let rate = count as f64 / start.elapsed().as_secs_f64();
    figure(&format!("any bytes, {what}: {count} inputs, {rate:.0} a second"));
}

#[test]
fn reading_a_segment_with_changed_words_does_not_panic() {
    run("words of a segment", size(20_000, 10_000_000), fuzz::segment, |random| {
        let changes = 1 + random.below(16);
        (0..changes * 11).map(|_| random.word() as u8).collect()
    });
}

#[test]
fn reading_an_arbitrary_header_does_not_panic() {
    let golden = asset("segment-v3.pfp");
    run("headers", size(2_000, 200_000), fuzz::copy, |random| {
        let mut bytes = golden.clone();
        bytes.truncate(random.below(golden.len() + 1));
        for _ in 0..random.below(6) {
            let at = random.below(256);
            let edge = random.edge().to_le_bytes();
            let byte = edge[random.below(8)];
            if let Some(to) = bytes.get_mut(at) {
                *to = byte;
            }
        }
        bytes
    });
}

#[test]
fn reading_arbitrary_files_does_not_panic() {
    let files = [
        "snapshot-v1.json.zst",
        "segment-copy-v3.pfp.zst",
        "recording-v1.pfprec",
        "recording-v1-amounts.pfprec",
    ];
    let files = files.map(asset);
    let texts = ["snapshot-v1.json", "snapshot-v1-amounts.json"].map(asset);
    run("files", size(150, 20_000), fuzz::file, |random| {
        let all: Vec<&Vec<u8>> = files.iter().chain(&texts).collect();
        let mut bytes = all[random.below(all.len())].clone();
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len());
            match random.below(4) {
                // A digit is replaced by a digit, which keeps the number valid more often than a
                // random byte would.
                0 => bytes[at] = b'0' + random.below(10) as u8,
                1 => bytes[at] = random.word() as u8,
                2 => bytes.truncate(at + 1),
                _ => {
                    let from = random.below(bytes.len());
                    bytes[at] = bytes[from];
                }
            }
        }
        bytes
    });
}

#[test]
fn reading_arbitrary_descriptors_does_not_panic() {
    let unchanged = fuzz::unchanged_descriptors();
    run("descriptors", size(20_000, 10_000_000), fuzz::descriptors, |random| {
        let mut bytes = unchanged.clone();
        bytes.truncate(random.below(2 * unchanged.len()));
        for _ in 0..random.below(8) {
            // A word, or part of one at the end of the input.
            let at = random.below(unchanged.len() / 8) * 8;
            let word = if random.below(2) == 0 { random.edge() } else { random.word() };
            let to = bytes.iter_mut().skip(at);
            to.zip(word.to_le_bytes()).for_each(|(to, byte)| *to = byte);
        }
        bytes
    });
}

#[test]
fn inputs_found_by_fuzzers_do_not_panic() {
    for (target, look) in fuzz::TARGETS {
        let folder = assets().join("fuzz").join(target);
        let entries = std::fs::read_dir(&folder).expect("each target has a corpus");
        let mut files: Vec<PathBuf> =
            entries.map(|entry| entry.expect("it can be read").path()).collect();
        files.sort();
        assert!(files.len() >= 10, "{}: {} files", folder.display(), files.len());
        let start = Instant::now();
        for file in &files {
            let input = std::fs::read(file).expect("it can be read");
            if let Err(panic) = std::panic::catch_unwind(|| look(&input)) {
                eprintln!("{target}: {}", file.display());
                std::panic::resume_unwind(panic);
            }
        }
        let took = start.elapsed();
        figure(&format!("corpus of {target}: {} inputs in {took:.1?}", files.len()));
    }
}
