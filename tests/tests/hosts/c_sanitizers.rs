//! Programs in C and C++ run under the sanitizers without a finding and without suppressions. The
//! library itself is not instrumented: sanitizers see only its allocations and the functions of its
//! header.

use std::path::PathBuf;
use std::process::Command;

use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::{Place, text};
use pfp_tests::watch::{self, Watch};
use pfp_tests::{figure, size};

/// Sanitizers that can run together share a flag.
const SANITIZERS: [&str; 2] = ["-fsanitize=address,undefined", "-fsanitize=thread"];

/// Builds a program with each compiler that fits, and each sanitizer of that compiler.
fn programs(sources: &[&str], name: &str, fits: fn(Compiler) -> bool) -> Vec<PathBuf> {
    let mut programs = Vec::new();
    // gcc includes its own sanitizers.
    let has = |compiler, sanitizer| c::builds_with(compiler, sanitizer, "libclang-rt-dev");
    for (at, compiler) in Compiler::all().filter(|&compiler| fits(compiler)).enumerate() {
        for sanitizer in SANITIZERS.into_iter().filter(|&sanitizer| has(compiler, sanitizer)) {
            let name = format!("{name}{sanitizer}");
            let link = if at % 2 == 0 { Link::Shared } else { Link::Static };
            let flags = [sanitizer, "-fno-sanitize-recover=all", "-lm", "-lpthread", "-ldl"];
            programs.push(c::compile(compiler, &name, sources, link, flags));
        }
    }
    programs
}

#[test]
fn sanitizers_find_nothing_in_any_rule() {
    for program in programs(&["rules.c"], "rules", |_| true) {
        let scenarios = c::run(&mut Command::new(&program));
        for scenario in scenarios.lines().filter(|&name| name != "longer-than-32-bits") {
            let place = Place::new();
            // Asserts that standard error is empty, and that the exit status reports no finding.
            place.start(&program, &[scenario]).end_well();
        }
    }
}

#[test]
fn sanitizers_find_nothing_in_cxx_or_a_child() {
    let sources = ["scopes.cpp", "scopes_other.cpp", "scopes_without.cpp"];
    for program in programs(&sources, "scopes", Compiler::is_cxx) {
        Place::new().start(&program, &[]).end_well();
    }
    let flags = ["-shared", "-fPIC"];
    let plugin = c::compile(Compiler::C, "plugin-of-any.so", &["plugin.c"], Link::Shared, flags);
    for program in programs(&["host.c"], "host", |compiler| !compiler.is_cxx()) {
        Place::new().start(&program, &[text(&plugin), "forks"]).end_well();
    }
}

#[test]
fn sanitizers_find_nothing_in_eight_threads_and_all_is_counted() {
    let plain = Compiler::all().map(|compiler| {
        c::compile(compiler, "threads", &["threads.c"], Link::Static, ["-lpthread"])
    });
    for program in plain.chain(programs(&["threads.c"], "threads", |_| true)) {
        let place = Place::new();
        let mut target = place.start(&program, &[]);
        let each: u64 = target.reach("done").one("each");
        let mut watch = Watch::attach(&place, &target);
        let picture = watch.poll();
        for name in ["outer", "inner", "by hand"] {
            assert_eq!(watch::named(picture, name).count, each, "{program:?} {name}");
        }
        assert_eq!(watch::total(picture, 5).count, each / 4, "{program:?}");
        let workers = picture.lanes.iter().filter(|lane| lane.lane.name.starts_with(b"worker "));
        assert!(workers.count() > 0, "{program:?}: threads have their names");
        let losses = picture.losses;
        assert_eq!((losses.mismatched_ends, losses.begins_refused), (0, 0), "{program:?}");
        target.end_well();
    }
}

/// Only pfp's own synchronization orders these threads. ThreadSanitizer cannot see this
/// synchronization, since the library is not instrumented. So every access that ThreadSanitizer
/// could mistake for a race must be inside the library, and not in the header's code.
#[test]
fn sanitizers_find_nothing_in_threads_that_only_pfp_orders() {
    let runs = size(4, 200);
    let programs = programs(&["strangers.c"], "strangers", |_| true);
    for program in &programs {
        for _ in 0..runs {
            let place = Place::new();
            let files = ["0.json", "1.json"].map(|name| place.path(name));
            place.start(program, &["4", text(&files[0]), text(&files[1])]).end_well();
        }
    }
    figure(&format!("sanitizers: {} runs of strangers", runs * programs.len() as u64));
}
