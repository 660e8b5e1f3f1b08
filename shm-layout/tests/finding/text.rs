//! Tests of the beacon's text.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use pfp_shm_layout::beacon::{Info, MAX_BYTES, MAX_EXE, MAX_NAME, Malformed};
use pfp_shm_layout::name::Name;

/// Whatever characters the names contain, the text of each field stays on one line and parses to
/// the original.
#[test]
fn a_beacons_text_parses_to_what_was_written() {
    let worst = "\u{7f}".repeat(MAX_NAME);
    for (exe, name) in [
        (&b"/usr/bin/x"[..], "plain"),
        (b"", ""),
        (b"/a b/%25\n\x1b[31m\xff\xfe", "new\nline\tand \u{7f} and %0a"),
        (b"/\xc3\xa9", "\u{e9}\u{202e}\u{1f600} "),
        (&[b'\n'; MAX_EXE], &worst),
    ] {
        let mut info = Info::of_this_process(Name::random().unwrap(), name).unwrap();
        info.exe = PathBuf::from(OsString::from_vec(exe.to_vec()));
        let text = info.to_text().unwrap();
        assert!(text.len() <= MAX_BYTES, "{} bytes", text.len());
        assert!(text.bytes().all(|b| b == b'\n' || (b' '..=b'~').contains(&b)));
        assert_eq!(text.lines().count(), 9);
        assert_eq!(Info::parse(text.as_bytes()), Ok(info));
    }
    for long in ["\u{e9}x".repeat(MAX_NAME), "a\0b".repeat(MAX_NAME)] {
        let long = Info::of_this_process(Name::random().unwrap(), &long).unwrap();
        assert!(long.name.len() <= MAX_NAME);
        assert_eq!(Info::parse(long.to_text().unwrap().as_bytes()), Ok(long));
    }
}

/// The parser never panics, and accepts only texts that `to_text` writes, so no two texts have the
/// same meaning.
#[test]
fn the_parser_never_panics_and_accepts_only_written_texts() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let text = Info::of_this_process(Name::from_id(7), "a name\n").unwrap().to_text().unwrap();
    let check = |bytes: &[u8]| {
        if let Ok(info) = Info::parse(bytes) {
            assert_eq!(info.to_text().unwrap().as_bytes(), bytes);
        }
    };
    for cut in 0..text.len() {
        assert!(Info::parse(&text.as_bytes()[..cut]).is_err(), "cut at {cut}");
    }
    for _ in 0..100_000 {
        let length = random.below(300);
        let bytes: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
        check(&bytes);
        let mut mutant = text.clone().into_bytes();
        for _ in 0..1 + random.below(4) {
            let place = random.below(mutant.len());
            match random.below(4) {
                0 => mutant[place] = random.below(256) as u8,
                1 => mutant[place] = b"0%\n=/ 9a"[random.below(8)],
                2 => drop(mutant.remove(place)),
                _ => mutant.insert(place, b"0%\n=/ 9a"[random.below(8)]),
            }
        }
        check(&mutant);
    }
    let newer = Info::parse(b"pfp-beacon 2\nanything");
    assert_eq!(newer, Err(Malformed::Version(2)));
    assert!(Info::parse(&vec![b'x'; 1 << 20]).is_err());
}

/// xorshift, which yields one sequence of bytes in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}
