//! The C interface: runs programs in C and C++, and checks their segments.

use std::path::Path;
use std::process::Command;

use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::Place;
use pfp_tests::watch::{self, Watch};

#[test]
fn a_program_in_either_language_linked_either_way_shows_its_points() {
    for compiler in Compiler::all() {
        for link in [Link::Static, Link::Shared] {
            let name = format!("hello-{link:?}");
            let program = c::compile(compiler, &name, &["hello.c"], link, [""; 0]);
            let place = Place::new();
            let mut target = place.start(&program, &[]);
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

/// The code blocks of one language on the documentation page for C.
fn page(language: &str) -> Vec<&'static str> {
    const PAGE: &str = include_str!("../../../docs/c-and-cpp.md");
    let open = format!("```{language}\n");
    PAGE.split(&open).skip(1).filter_map(|rest| rest.split("```\n").next()).collect()
}

#[test]
fn the_c_page_examples_work_with_and_without_pfp() {
    let blocks = page("c");
    assert!(!blocks.is_empty(), "the page has a program in C");
    for (number, block) in blocks.into_iter().enumerate() {
        let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("page-{number}.c"));
        std::fs::write(&source, block).expect("there is room");
        let source = source.to_str().expect("it is plain text");
        for compiler in Compiler::all() {
            let name = format!("page-{number}");
            let program = c::compile(compiler, &name, &[source], Link::Shared, [""; 0]);
            let place = Place::new();
            let said = c::run(&mut place.command(program.to_str().expect("it is plain text")));
            assert!(said.ends_with(": 1000 calls\n"), "{compiler:?}: {said}");

            // The page's programs compile without pfp, too.
            let program = c::compile(
                compiler,
                &format!("{name}-without"),
                &[source],
                Link::Without,
                ["-DPFP_DISABLE"],
            );
            let said = c::run(&mut Command::new(program));
            assert!(said.ends_with(": 0 calls\n"), "{compiler:?}: {said}");
        }
    }
}
