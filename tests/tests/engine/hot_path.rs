//! The hot path allocates no memory, and makes no system call except for reading the thread's CPU
//! time after a switch. In the program under test, any other system call and any allocation kills
//! the process.

use std::os::unix::process::ExitStatusExt;

use pfp_tests::place::Place;
use pfp_tests::watch::{self, Watch};
use pfp_tests::{figure, size};

const STRICT: &str = env!("CARGO_BIN_EXE_strict");

const PAIRS: u64 = size(2_000_000, 100_000_000);
/// Growth of memory that is allowed: pages that the process itself touches for the first time.
const SLACK: u64 = 16 << 10;

#[test]
fn a_region_makes_no_request_except_for_its_cpu_time() {
    let place = Place::new();
    let mut target = place.start(STRICT, &["hot", &PAIRS.to_string()]);
    let said = target.reach("done").clone();
    let rounds: u64 = said.one("rounds");
    let resident = said.all::<u64>("resident").remove(0);
    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    let warm = watch::named(picture, "outer").count - rounds;
    for name in ["inner", "lap one", "lap two", "by hand", "numbered"] {
        assert_eq!(watch::named(picture, name).count, rounds + warm, "{name}");
    }
    assert_eq!(watch::named(picture, "off").count, 0);
    let losses = picture.losses;
    assert_eq!((losses.begins_missed, losses.records_missed, losses.space_refused), (0, 0, 0));
    assert!(resident[1] <= resident[0] + SLACK, "resident memory grows: {resident:?}");
    let switches = picture.lanes.iter().map(|lane| lane.switches).max().unwrap_or_default();
    figure(&format!(
        "hot_path: {} pairs with no system call but {switches} readings of the clock or a few \
         more, and no allocation; resident memory {} to {} KiB",
        6 * rounds,
        resident[0] >> 10,
        resident[1] >> 10,
    ));
    target.go();
    target.end_well();
}

/// Shows that the test above would notice an allocation or a system call.
#[test]
fn a_forbidden_request_kills_the_process() {
    let place = Place::new();
    for (scenario, signal) in
        [("asks-for-memory", libc::SIGABRT), ("asks-the-kernel", libc::SIGSYS)]
    {
        let ended = place.start(STRICT, &[scenario]).end();
        assert_eq!(ended.status.signal(), Some(signal), "{scenario}: {ended:?}");
    }
}
