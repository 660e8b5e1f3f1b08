//! Programs that create tens of thousands of points at run time.

use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::figure;
use pfp_tests::place::Place;

/// Registering a new point is as fast with a hundred thousand points as with few. Signals are
/// blocked during a registration, so this also bounds their delay.
#[test]
fn a_new_point_takes_no_longer_with_many_points() {
    let sources = ["many_points.c"];
    let program = c::compile(Compiler::C, "many_points", &sources, Link::Static, [""; 0]);
    let place = Place::new();
    let said = place.start_with(&program, &[], "PFP_POINTS", "128").end_well();
    for (few, many) in [("few", "many"), ("few_amounts", "many_amounts")] {
        let [few, many] = [few, many].map(|it| said.one::<f64>(it));
        figure(&format!("a thousand new points: {few:.0} us, of many {many:.0} us"));
        // Walking over all points would take fifty times as long.
        assert!(many < 8.0 * few, "{few} us for a thousand, and {many} us where there are many");
    }
}
