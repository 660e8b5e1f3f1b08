//! Signals: handlers that use points and land anywhere, in the middle of the
//! probe's own work and of each other, lose no call of anybody and hang nothing.

use pfp_tests::figure;
use pfp_tests::target::Place;
use pfp_tests::watch::{self, Watch};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

#[test]
fn a_storm_of_signals_loses_nothing() {
    let place = Place::new();
    let mut target = place.start(TARGET, &["signals", "60000"]);
    let said = target.reach("done").clone();
    let (calls, handled): (u64, u64) = (said.one("calls"), said.one("handled"));
    let nested: u64 = said.one("nested");
    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    figure(&format!("signals: {calls} rounds, {handled} handlers, {nested} of them nested"));
    for (name, expected) in [
        ("outer", calls),
        ("inner", calls),
        ("by hand", calls),
        ("numbered", calls),
        ("handler", handled),
        ("handler inside", handled),
        ("handler by hand", handled),
    ] {
        assert_eq!(watch::named(picture, name).count, expected, "{name}");
    }
    let losses = picture.losses;
    assert_eq!((losses.mismatched_ends, losses.begins_refused), (0, 0));
    target.end_well();
}
