//! The rules of the original interface, in C and C++: each program checks the results of its calls,
//! and its segment must agree.

use std::path::{Path, PathBuf};
use std::process::Command;

use pfp_shm_layout::control::Control;
use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::Place;
use pfp_tests::watch::{self, Watch};

/// The programs by each installed compiler, linked both ways.
fn programs() -> impl Iterator<Item = PathBuf> {
    Compiler::all().enumerate().map(|(at, compiler)| {
        let link = if at % 2 == 0 { Link::Static } else { Link::Shared };
        c::compile(compiler, "rules", &["rules.c"], link, ["-lm", "-lpthread"])
    })
}

/// Compares a scenario's own points and losses with the segment.
fn holds(program: &Path, scenario: &str) {
    let place = Place::new();
    let mut target = place.start(program, &[scenario]);
    if scenario == "begin-after-begin" {
        target.reach("invalid");
        let mut watch = Watch::attach(&place, &target);
        let picture = watch.poll();
        let point = picture.points.iter().find(|point| point.id == 1).expect("it is there");
        let control: Control = point.control;
        assert!(control.invalid() && !control.enabled(), "{program:?}: {control:?}");
        target.go();
    }
    let said = target.reach("done").clone();
    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    for point in said.all::<u64>("point") {
        let [id, count, exclusive, inclusive] = point[..] else { panic!("{point:?}") };
        let total = watch::total(picture, u32::try_from(id).expect("it is a number of a point"));
        assert_eq!(
            (total.count, total.exclusive, total.inclusive),
            (count, exclusive, inclusive),
            "{program:?} {scenario}: point {id}"
        );
    }
    let losses = picture.losses;
    assert_eq!(
        [vec![losses.points_refused, losses.begins_refused, losses.mismatched_ends]],
        said.all::<u64>("losses")[..],
        "{program:?} {scenario}"
    );
    target.end_well();
}

#[test]
fn every_interface_rule_holds_with_every_compiler() {
    for (at, program) in programs().enumerate() {
        let scenarios = c::run(&mut Command::new(&program));
        assert!(scenarios.lines().count() >= 16, "{scenarios}");
        for scenario in scenarios.lines() {
            // This scenario takes seconds and does not depend on the compiler, so it runs once.
            if scenario != "longer-than-32-bits" || at == 0 {
                holds(&program, scenario);
            }
        }
    }
}
