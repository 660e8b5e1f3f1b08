//! A full `/dev/shm` or point table costs figures, but never disturbs the host: its output and exit
//! status are those without pfp.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Output};
use std::{fs, io};

use pfp_shm_layout::object;
use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::faults::own_shm;
use pfp_tests::place::Place;
use pfp_tests::watch::Watch;
use pfp_tests::{cells, figure, lacks, size, skipped};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

/// Runs the host, in a private `/dev/shm` if flags and options are given.
fn host(place: &Place, shm: Option<(libc::c_ulong, String)>) -> io::Result<Output> {
    let mut command: Command = place.command(TARGET);
    command.arg("host");
    if let Some((flags, options)) = shm {
        let options = CString::new(options).expect("no zero in it");
        // SAFETY: the closure makes only system calls between fork and exec.
        unsafe { command.pre_exec(move || own_shm(flags, &options)) };
    }
    command.output()
}

#[test]
fn the_host_does_not_notice_a_full_dev_shm() {
    let place = Place::new();
    let plain = host(&place, None).expect("the target can be started");
    assert!(plain.status.success(), "{plain:?}");
    // The sizes go from one page to more than needed, so that every step of the start fails once:
    // page by page until the first regions have memory, then in larger steps.
    let pages = (1..=size(64, 768)).map(|pages| pages * 4);
    let wider = (5..=40).map(|step| step * 64);
    let mebibytes = (1..=size(3, 64)).map(|mebibytes| mebibytes * 1024);
    let sizes = pages.chain(wider).chain(mebibytes);
    let mut tried = 0;
    for kib in sizes {
        let squeezed = match host(&place, Some((0, format!("size={kib}k")))) {
            Ok(output) => output,
            Err(error) => return skipped("a full /dev/shm", &error.to_string()),
        };
        let signal = squeezed.status.signal();
        assert_eq!(signal, None, "{kib} KiB: ended by a signal: {squeezed:?}");
        assert_eq!(squeezed, plain, "{kib} KiB");
        tried += 1;
    }
    figure(&format!("no_space: {tried} sizes of /dev/shm, the host as ever"));
}

/// Each page that the probe requests is refused once, in one run each. The probe must not touch the
/// refused page: in a full `/dev/shm`, that would raise SIGBUS.
#[test]
fn a_page_that_is_refused_is_not_touched() {
    if lacks("pages that are refused", "cc") {
        return;
    }
    let flags = ["-shared", "-fPIC"];
    let sources = ["refused_page.c"];
    let preload = c::compile(Compiler::C, "refused_page.so", &sources, Link::Without, flags);
    let place = Place::new();
    let report = place.path("report");
    // The snapshot at the end reads all pages in use.
    let snapshot = place.path("snapshot");
    let run = |refused: Option<u64>| -> (Output, BTreeSet<u64>) {
        let mut command = place.command(TARGET);
        command.arg("host").env("LD_PRELOAD", &preload).env("PFP_TEST_REPORT", &report);
        command.env("PFP_SNAPSHOT", &snapshot);
        command.envs(refused.map(|page| ("PFP_TEST_REFUSED", page.to_string())));
        let output = command.output().expect("the target can be started");
        let said = fs::read_to_string(&report).unwrap_or_default();
        let pages = |word: &str| -> BTreeSet<u64> {
            let page = |line: &str| line.strip_prefix(word)?.trim().parse().ok();
            said.lines().filter_map(page).collect()
        };
        assert_eq!(pages("touched"), BTreeSet::new(), "refused: {refused:?}");
        let _ = fs::remove_file(&report);
        (output, pages("backed"))
    };
    let (plain, backed) = run(None);
    assert!(plain.status.success() && plain.stderr.is_empty(), "{plain:?}");
    assert!(backed.len() > 20, "too few pages were backed: {backed:?}");
    let some = &mut backed.iter().take(size(60, 1_000) as usize);
    let tried = some.len();
    for &page in some {
        let (output, pages) = run(Some(page));
        assert_eq!(output, plain, "refused: {page}");
        assert!(!pages.contains(&page), "{page} was not refused");
    }
    figure(&format!("no_space: {tried} pages refused in turn, none touched"));
}

/// There is free memory, but no inode for a file.
#[test]
fn the_host_does_not_notice_a_dev_shm_without_inodes() {
    let place = Place::new();
    let plain = host(&place, None).expect("the target can be started");
    // The first inode is the folder itself.
    for inodes in 1..=2 {
        match host(&place, Some((0, format!("size=64m,nr_inodes={inodes}")))) {
            Ok(output) => assert_eq!(output, plain, "{inodes} inodes"),
            Err(error) => return skipped("a /dev/shm without inodes", &error.to_string()),
        }
    }
}

#[test]
fn the_host_does_not_notice_a_dev_shm_that_is_read_only() {
    let place = Place::new();
    let plain = host(&place, None).expect("the target can be started");
    match host(&place, Some((libc::MS_RDONLY, "size=1m".into()))) {
        Ok(output) => assert_eq!(output, plain),
        Err(error) => skipped("a read-only /dev/shm", &error.to_string()),
    }
    assert!(place.entries().is_empty(), "a beacon without a segment");
}

#[test]
fn points_beyond_the_table_are_refused_and_counted() {
    const POINTS: u64 = 100;
    // 64 of the point table's entries are for numbered points.
    for (places, room) in [("64", 0), ("128", 64), ("164", 100)] {
        let place = Place::new();
        let mut target = place.start_with(TARGET, &["many-points", "4"], "PFP_POINTS", places);
        let said = target.reach("done").clone();
        // Four threads with 100 rounds of a guard and a region by hand each.
        assert_eq!(said.one::<u64>("measured"), room * 4 * 100 * 2, "{places} places");
        assert_eq!(said.one::<u64>("stats"), room);
        let mut watch = Watch::attach(&place, &target);
        let picture = watch.poll();
        assert_eq!(picture.losses.points_refused, POINTS - room);
        let entered = picture.points.iter().filter(|point| point.name == "one of many").count();
        assert_eq!(entered as u64, room);
        target.end_well();
    }
}

/// A host that locks all its memory has pfp's pages locked one by one, as they are used, and not
/// everything that pfp has reserved.
#[test]
fn a_host_that_locks_its_memory_locks_only_pages_in_use() {
    let place = Place::new();
    let mut target = place.start(TARGET, &["life"]);
    target.reach("done");
    let backed = |pid| {
        let entry = place.entry(pid).expect("it was found");
        object::backed_bytes(&entry.info.object).expect("one can ask").expect("it is there")
    };
    let plain = backed(target.pid());
    target.end_well();
    let mut target = place.start(TARGET, &["locked"]);
    let said = target.reach("done");
    if said.has("refused") {
        return skipped("a host that locks its memory", "it may not");
    }
    let locked = backed(target.pid());
    assert!(locked < 16 << 20, "{locked} bytes, {plain} without locking");
    figure(&format!("no_space: {} KiB of a segment of a host that locks its memory", locked >> 10));
    target.end_well();
}

/// Little memory for cells and histograms: regions that get memory are counted exactly, and all
/// others are counted as missed.
#[test]
fn a_small_pool_measures_what_fits() {
    const THREADS: u64 = 40;
    // Each thread makes 100 rounds over 100 points, with a guard and a region by hand each.
    const CALLS: u64 = THREADS * 100 * 100 * 2;
    let place = Place::new();
    let arguments = ["many-points", &THREADS.to_string()];
    let mut target = place.start_with(TARGET, &arguments, "PFP_MEMORY_MB", "1");
    let measured: u64 = target.reach("done").one("measured");
    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    let mut shown = 0;
    for cell in picture.cells.iter().filter(|cell| cell.point != 0) {
        // Part of a histogram may get no memory although its cell did.
        assert!(cells::in_histogram(cell) <= cell.lifetime_count, "{cell:?}");
        shown += cell.lifetime_count;
    }
    assert_eq!(shown, measured);
    assert_eq!(measured + picture.losses.begins_missed, CALLS);
    assert!(0 < measured && measured < CALLS, "{measured}: nobody was short of memory");
    figure(&format!("no_space: {measured} of {CALLS} calls measured in 1 MiB"));
    target.end_well();
}

/// A refusal is not permanent: as soon as there is memory again, everything is measured.
#[test]
fn measuring_goes_on_when_there_is_memory_again() {
    let place = Place::new();
    let mut command = place.command(TARGET);
    command.arg("full-for-a-while").stdin(std::process::Stdio::null());
    let options = CString::new("size=600k").expect("no zero in it");
    // SAFETY: the closure makes only system calls between fork and exec.
    unsafe { command.pre_exec(move || own_shm(0, &options)) };
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return skipped("a /dev/shm that is full for a while", &error.to_string()),
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = |word: &str| -> Option<u64> {
        let line = said.lines().find(|line| line.starts_with(word))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    assert!(number("refused").is_some_and(|refused| refused > 20_000), "{output:?}");
    assert_eq!(number("meanwhile"), Some(1_000), "{output:?}");
    assert_eq!(number("later"), Some(1_000), "{output:?}");
}
