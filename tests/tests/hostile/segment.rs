//! Hostile segments and files: changed at random, cut at every length, and overwritten while a
//! viewer polls. `pfp-top` does not crash or hang, needs little memory, and sends none of their
//! control characters to a terminal.
//!
//! A separate process reads them (`src/bin/hostile.rs`), so that the test notices any kind of
//! crash.

use std::path::{Path, PathBuf};

use pfp_shm_layout::segment::Segment;
use pfp_tests::c::{Compiler, Link, compile, scratch};
use pfp_tests::place::Place;
use pfp_tests::target::{Said, Target};
use pfp_tests::{figure, size};

const HOSTILE: &str = env!("CARGO_BIN_EXE_hostile");
/// Number of mutations over all kinds of segments.
const MUTATIONS: u64 = size(400, 100_000);
/// One in this many mutations is also written in every format. A quarter of these are shown on all
/// screens as well.
const FORMS: u64 = size(8, 4);
/// Number of permutations of the header.
const HEADERS: u64 = size(200, 1_000);

fn asset(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets").join(name)
}

/// A copy of the segment of a program that is killed once it has printed this line, in the middle
/// of its work.
fn caught(name: &str, program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> PathBuf {
    let place = Place::new();
    let mut command = place.command(program.to_str().expect("paths are text here"));
    let mut target = Target::start(command.args(arguments).envs(environment.iter().copied()));
    let is_c = environment.iter().any(|(name, _)| *name == "PFP_ENABLE");
    if is_c {
        target.reach("begun");
        target.go();
        target.reach("done");
    } else {
        target.reach("ready");
    }
    let entry = place.entry(target.pid()).expect("it has a segment");
    target.kill();
    let (segment, _) = Segment::open(&entry.info.object).expect("the segment can be read");
    let folder = scratch().join("hostile");
    std::fs::create_dir_all(&folder).expect("there is room");
    let copy = folder.join(format!("{name}.pfp"));
    std::fs::write(&copy, segment.to_copy().expect("there is memory")).expect("there is room");
    copy
}

/// Segments of several kinds, in a folder of this test: written by hand with every part of the
/// layout; of threads, rings and contexts; of threads that share the overflow lane; of functions of
/// a program in C.
fn kinds(name: &str) -> Vec<(&'static str, PathBuf)> {
    let attacked = Path::new(env!("CARGO_BIN_EXE_attacked"));
    let flags = ["-finstrument-functions", "-pthread"];
    let functions =
        compile(Compiler::C, &format!("hostile_{name}"), &["functions.c"], Link::Shared, flags);
    let of = |kind: &str| format!("{name}-{kind}");
    vec![
        ("by hand", asset("segment-v3.pfp")),
        ("threads and contexts", caught(&of("contexts"), attacked, &["3"], &[])),
        ("a lane for many", caught(&of("shared"), attacked, &["3"], &[("PFP_LANES", "2")])),
        ("functions of C", caught(&of("c"), &functions, &["threads"], &[("PFP_ENABLE", "*")])),
    ]
}

/// Runs one part of the program, which must succeed.
fn looked(arguments: &[&str]) -> Said {
    let place = Place::new();
    let target = place.start(HOSTILE, arguments);
    let ended = target.end();
    let last = |key| ended.said.all::<u64>(key).last().cloned();
    assert!(
        ended.status.success() && ended.said.has("done"),
        "{arguments:?}: {} after seed {:?}, length {:?}: {}",
        ended.status,
        last("seed"),
        last("length"),
        ended.errors
    );
    ended.said
}

/// The number of polls, the longest CPU time of a poll in microseconds, and the largest memory of a
/// poll in bytes.
fn cost(said: &Said) -> String {
    let polls = said.all::<u64>("polls").concat();
    let [polls, longest, bytes] = polls[..] else { panic!("it always says so") };
    format!("{polls} polls, the longest {longest} us of a processor, the most {} KiB", bytes >> 10)
}

#[test]
fn changed_segments_are_shown_or_refused() {
    let kinds = kinds("changed");
    // Runs in parts, so that the message of a crash covers few seeds.
    let (part, mut shown) = (MUTATIONS / kinds.len() as u64 / 5, 0);
    let (mut attached, mut opened, mut formed, mut seen) = (0, 0, 0, 0);
    for (kind, copy) in &kinds {
        let copy = copy.to_str().expect("paths are text here");
        for at in 0..5 {
            let numbers = [at * part, part, FORMS].map(|number| number.to_string());
            let said = looked(&["mutations", copy, &numbers[0], &numbers[1], &numbers[2]]);
            let looked = said.all::<u64>("looked").concat();
            shown += looked[0];
            attached += looked[1];
            opened += looked[2];
            formed += looked[3];
            seen += looked[4];
            if at == 4 {
                figure(&format!("hostile segment, {kind}, last part: {}", cost(&said)));
            }
        }
    }
    figure(&format!(
        "hostile segment: {shown} mutations; {attached} watched as a process, {opened} opened as \
         a file, the rest refused; {formed} written in every form, {seen} seen on every screen"
    ));
    assert_eq!(shown, part * 5 * kinds.len() as u64);
    assert!(attached > shown / 2 && opened > shown / 4, "most are refused: {attached} {opened}");
}

#[test]
fn segments_cut_short_are_refused_before_and_while_they_are_mapped() {
    for (kind, copy) in kinds("cut").into_iter().take(size(1, 4) as usize) {
        let step = size(40_009, 1_009).to_string();
        let said = looked(&["lengths", copy.to_str().expect("paths are text here"), &step]);
        let looked = said.all::<u64>("looked").concat();
        figure(&format!("hostile segment, {kind}: cut to {} lengths; {}", looked[0], cost(&said)));
    }
}

#[test]
fn files_cut_short_are_shown_as_far_as_they_go_or_refused() {
    let files = [
        ("segment-v3.pfp", size(997, 1)),
        ("segment-copy-v3.pfp.zst", size(97, 1)),
        ("snapshot-v1.json", size(997, 1)),
        ("snapshot-v1.json.zst", size(97, 1)),
        ("recording-v1.pfprec", size(97, 1)),
    ];
    for (file, step) in files {
        let path = asset(file);
        let path = path.to_str().expect("paths are text here");
        let said = looked(&["files", path, &step.to_string()]);
        let looked = said.all::<u64>("looked").concat();
        let [tried, shown] = looked[..] else { panic!("it always says so") };
        // Only a recording can be shown after it was cut.
        let parts = file.ends_with(".pfprec");
        // A JSON file is also complete without its last newline.
        assert!(if parts { shown > 9 } else { shown <= 1 }, "{file}: {shown} of {tried} shown");
        figure(&format!("hostile files, {file}: {tried} lengths, {shown} shown; {}", cost(&said)));
    }
}

#[test]
fn headers_in_another_order_are_refused() {
    let copy = asset("segment-v3.pfp");
    let copy = copy.to_str().expect("paths are text here");
    let said = looked(&["headers", copy, &HEADERS.to_string()]);
    let looked = said.all::<u64>("looked").concat();
    figure(&format!("headers: {} orders, {} of them still right", looked[0], looked[1]));
}
