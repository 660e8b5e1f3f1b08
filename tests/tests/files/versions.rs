//! Files and segments of other versions: every command refuses another major version with both
//! versions in the message and exit status 5. Later minor versions and all earlier files can be
//! read.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use pfp_tests::figure;
use pfp_tests::place::Place;
use pfp_tests::target::wait_for;

const STEADY: &str = env!("CARGO_BIN_EXE_steady");

fn asset(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets").join(name)
}

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(asset(name)).expect("the asset is there")
}

/// CRC-32 as in zlib, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)))
    })
}

/// A segment with this layout version.
fn segment(major: u16, minor: u16) -> Vec<u8> {
    let mut bytes = bytes("segment-v3.pfp");
    bytes[12..14].copy_from_slice(&major.to_le_bytes());
    bytes[14..16].copy_from_slice(&minor.to_le_bytes());
    bytes
}

fn snapshot(version: u32) -> Vec<u8> {
    let text = String::from_utf8(bytes("snapshot-v1.json")).expect("it is text");
    assert!(text.contains("\"version\":1,"));
    text.replacen("\"version\":1,", &format!("\"version\":{version},"), 1).into_bytes()
}

/// A recording with this version, and a matching checksum in its header.
fn recording(major: u16, minor: u16) -> Vec<u8> {
    let mut bytes = bytes("recording-v1.pfprec");
    bytes[8..10].copy_from_slice(&major.to_le_bytes());
    bytes[10..12].copy_from_slice(&minor.to_le_bytes());
    let sum = crc32(&bytes[..28]);
    bytes[28..32].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Commands that take a file as their last argument.
const COMMANDS: [&[&str]; 4] =
    [&["open", "--once"], &["open", "--json"], &["export", "csv"], &["export", "openmetrics"]];

fn refused(output: &Output, names: &[&str], what: &str) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{what}: {error}");
    assert!(output.stdout.is_empty(), "{what} shows something");
    for name in names {
        assert!(error.contains(name), "{what}: no {name:?} in {error}");
    }
}

#[test]
fn files_of_another_major_version_are_refused_with_both_named() {
    let place = Place::new();
    let path = place.path("file");
    let mut tried = 0;
    for other in [0_u16, 3, 4, 255, u16::MAX] {
        // The current version of the segment layout is 3.
        let layout = if other == 3 { 2 } else { other };
        let files = [
            (segment(layout, 4), [format!("layout version {layout}.4"), "reads 3.x".into()]),
            (snapshot(other.into()), ["version 1 ".into(), format!("found {other}")]),
            (recording(other, 0), ["version 1 ".into(), format!("found {other}")]),
        ];
        for (file, names) in files {
            std::fs::write(&path, file).expect("there is room");
            for command in COMMANDS {
                let output = place.pfp_top(&[command, &[path.to_str().unwrap()]].concat());
                refused(&output, &names.each_ref().map(String::as_str), &format!("{command:?}"));
                tried += 1;
            }
        }
    }
    figure(&format!("versions: {tried} commands refused a file of another major version"));
}

#[test]
fn a_later_minor_version_is_read() {
    let place = Place::new();
    let path = place.path("file");
    let files = [
        (segment(3, 1), bytes("segment-v3.pfp")),
        (segment(3, u16::MAX), bytes("segment-v3.pfp")),
        (recording(1, 1), bytes("recording-v1.pfprec")),
        (recording(1, u16::MAX), bytes("recording-v1.pfprec")),
    ];
    for (later, known) in files {
        let [later, known] = [later, known].map(|file| {
            std::fs::write(&path, file).expect("there is room");
            let output = place.pfp_top(&["export", "csv", path.to_str().unwrap()]);
            assert!(output.status.success(), "{output:?}");
            output.stdout
        });
        assert!(later == known && !known.is_empty());
    }
}

/// `list` shows a running process of another major version as refused, and attaching to it fails.
#[test]
fn a_running_process_of_another_major_version_is_refused_with_both_named() {
    let place = Place::new();
    let target = place.start(STEADY, &[]);
    wait_for("the program to be found", || place.pfp_top(&["--once"]).status.success());
    let beacons = place.lit();
    let hex = beacons.iter().find_map(|name| name.strip_suffix(".beacon")).expect("one is lit");
    let object = std::fs::OpenOptions::new().write(true).open(format!("/dev/shm/pfp-{hex}"));
    let object = object.expect("it is ours");
    let pid = target.pid().to_string();
    let folder = place.path("out");
    let out = folder.to_str().unwrap();
    for (major, minor) in [(4_u16, 0_u16), (0, 9)] {
        object.write_all_at(&major.to_le_bytes(), 12).expect("it can be written to");
        object.write_all_at(&minor.to_le_bytes(), 14).expect("it can be written to");
        let found = format!("{major}.{minor}");
        let commands: [&[&str]; 6] = [
            &["--once"],
            &["--json", "-p", &pid],
            &["snapshot", "-p", &pid, "-o", out],
            &["export", "csv", "-p", &pid],
            &["save-raw", "-p", &pid, "-o", out],
            &["record", "-p", &pid, "-d", "1s", "-o", out],
        ];
        for command in commands {
            refused(&place.pfp_top(command), &[&found, "3.x"], &format!("{command:?}"));
        }
        let doctor = place.pfp_top(&["doctor"]);
        let text = String::from_utf8_lossy(&doctor.stdout).into_owned();
        assert!(text.contains(&found) && text.contains("3.x"), "{text}");
    }
    assert!(!folder.exists(), "something was written");
    // A segment of a later minor version can be watched.
    object.write_all_at(&3_u16.to_le_bytes(), 12).expect("it can be written to");
    object.write_all_at(&7_u16.to_le_bytes(), 14).expect("it can be written to");
    let output = place.pfp_top(&["--once"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("tick"), "{output:?}");
    object.write_all_at(&0_u16.to_le_bytes(), 14).expect("it can be written to");
    target.end_well();
}

/// Every kept file of an earlier version can be shown.
#[test]
fn every_golden_file_is_read() {
    let place = Place::new();
    let files = [
        ("segment-v3.pfp", "golden"),
        ("segment-v3-amounts.pfp", "golden amounts"),
        ("segment-copy-v3.pfp.zst", "the \"saving\" one"),
        ("snapshot-v1.json", "pfp-demo"),
        ("snapshot-v1.json.zst", "pfp-demo"),
        ("snapshot-v1-amounts.json", "golden amounts"),
        ("recording-v1.pfprec", "steady"),
        ("recording-v1-amounts.pfprec", "endless"),
    ];
    for (file, name) in files {
        let path = asset(file);
        let output = place.pfp_top(&["open", "--once", path.to_str().unwrap()]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains(name), "{file}: {output:?}");
    }
    // No kept file is missing from this list.
    let kept = std::fs::read_dir(asset("")).expect("the folder").flatten();
    let kept = kept.filter_map(|file| file.file_name().into_string().ok());
    let is_ours = |name: &String| {
        ["segment-", "snapshot-", "recording-", "beacon-"].iter().any(|kind| name.starts_with(kind))
    };
    for file in kept.filter(is_ours).filter(|file| !file.starts_with("beacon-")) {
        assert!(files.iter().any(|(known, _)| *known == file), "{file} is read by nobody");
    }
}
