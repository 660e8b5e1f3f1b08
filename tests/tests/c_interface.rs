//! The C interface: programs in C and C++, judged by their segments.

use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::target::Place;
use pfp_tests::watch::{self, Watch};

#[test]
fn a_program_in_either_language_linked_either_way_shows_its_points() {
    for compiler in Compiler::all() {
        for link in [Link::Static, Link::Shared] {
            let name = format!("hello-{link:?}");
            let program = c::compile(compiler, &name, &["hello.c"], link, [""; 0]);
            let place = Place::new();
            let mut target = place.start(program.to_str().expect("it is plain text"), &[]);
            let said = target.reach("measured");
            let (count, inclusive) = (said.one::<u64>("count"), said.one::<u64>("inclusive"));
            let mut watch = Watch::attach(&place, &target);
            let picture = watch.poll();
            let outer = watch::total(picture, 1);
            assert_eq!((outer.count, outer.inclusive), (count, inclusive), "{compiler:?} {link:?}");
            let inner = watch::named(picture, "work");
            assert_eq!(inner.count, 1000, "{compiler:?} {link:?}");
            target.end_well();
        }
    }
}
