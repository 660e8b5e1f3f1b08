//! Tests of annotated programs that also have points of their own.

use pfp_tests::c::Link;

use crate::{nvtx, run};

#[test]
fn points_and_annotations_are_in_one_segment_and_nest() {
    const ROUNDS: u64 = 1000;
    for link in [Link::Static, Link::Shared] {
        let Some(program) = nvtx::compiled("both", link) else { return };
        let ran = run(&[], &program, &[&ROUNDS.to_string()]);
        let sum = |name: &str| {
            let point = ran.snapshot.points.iter().find(|point| point.name == name);
            let point = point.unwrap_or_else(|| panic!("no {name} with {link:?}"));
            let threads = ran.threads(&point.file, name);
            let sum = |part: fn(&pfp_read::snapshot::Stats) -> u64| threads.iter().map(part).sum();
            let [count, exclusive, inclusive]: [u64; 3] =
                [sum(|it| it.count), sum(|it| it.exclusive), sum(|it| it.inclusive)];
            (count, exclusive, inclusive)
        };
        let [around, annotated, within] = ["own around", "annotated", "own within"].map(sum);
        for (count, ..) in [around, annotated, within] {
            assert_eq!(count, ROUNDS, "{link:?}");
        }
        // Nested regions are subtracted, whichever copy of pfp measured them.
        assert!(annotated.1 <= annotated.2 && annotated.2 >= within.2, "{link:?}");
        assert!(around.2 >= annotated.2 && around.1 + annotated.2 <= around.2 + ROUNDS, "{link:?}");
        ran.lost_nothing();
    }
}
