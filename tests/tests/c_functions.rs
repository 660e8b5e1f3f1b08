//! Programs built with `-finstrument-functions`: every function a point, without a
//! change of the source.

use std::path::PathBuf;

use pfp_shm_layout::reader::Picture;
use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::target::{Place, Target};
use pfp_tests::watch::{self, Watch};

const FLAG: &str = "-finstrument-functions";

/// How the hooks come into a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hooked {
    Linked(Link),
    Preloaded,
}

const WAYS: [Hooked; 3] =
    [Hooked::Linked(Link::Static), Hooked::Linked(Link::Shared), Hooked::Preloaded];

/// A program that was built, and how it is started.
struct Program {
    path: PathBuf,
    way: Hooked,
}

fn build(compiler: Compiler, source: &str, way: Hooked, name: &str, flags: &[&str]) -> Program {
    let link = match way {
        Hooked::Linked(link) => link,
        Hooked::Preloaded => Link::Without,
    };
    let mut all = vec![FLAG];
    // The hooks are nobody's until they are preloaded.
    if way == Hooked::Preloaded {
        all.push("-Wl,--unresolved-symbols=ignore-all");
    }
    all.extend(flags);
    if way != Hooked::Linked(Link::Static) {
        all.push("-pthread");
    }
    let stem = source.split('.').next().expect("it has a name");
    let program = format!("{stem}-{name}-{way:?}").replace(['(', ')'], "-");
    Program { path: c::compile(compiler, &program, &[source], link, all), way }
}

impl Program {
    fn start(&self, place: &Place, scenario: &str, enable: &str) -> Target {
        let mut command = place.command(self.path.to_str().expect("it is plain text"));
        command.arg(scenario).env("PFP_ENABLE", enable);
        if self.way == Hooked::Preloaded {
            command.env("LD_PRELOAD", c::library().join("libpfp.so"));
        }
        Target::start(&mut command)
    }

    /// Runs a scenario with what is named switched on, and judges the points.
    fn judge(&self, scenario: &str, enable: &str, judge: impl FnOnce(&Picture, &mut Target)) {
        let place = Place::new();
        let mut target = self.start(&place, scenario, enable);
        target.reach("begun");
        target.go();
        target.reach("done");
        let mut watch = Watch::attach(&place, &target);
        judge(watch.poll(), &mut target);
        target.end_well();
    }

    fn counts(&self, scenario: &str, expected: &[(&str, u64)]) {
        self.judge(scenario, "*", |picture, _| {
            for &(name, count) in expected {
                let found = watch::named(picture, name).count;
                assert_eq!(found, count, "{scenario}: {name} in {:?}", self.path);
            }
            let lost = (picture.losses.mismatched_ends, picture.losses.begins_refused);
            assert_eq!(lost, (0, 0), "{scenario} in {:?}", self.path);
        });
    }
}

/// C compilers, without a name that comes twice.
fn c_compilers() -> impl Iterator<Item = Compiler> {
    Compiler::all().filter(|compiler| !compiler.is_cxx())
}

#[test]
fn every_call_is_counted_however_the_hooks_come_into_the_program() {
    for compiler in c_compilers() {
        for way in WAYS {
            let program = build(compiler, "functions.c", way, "ways", &[]);
            program.counts(
                "plain",
                &[("recursive", 5500), ("twice", 1000), ("leaf", 2001), ("early", 1)],
            );
        }
    }
}

#[test]
fn every_way_out_of_a_function_is_seen() {
    for compiler in c_compilers() {
        for optimised in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
            let way = Hooked::Linked(Link::Shared);
            let program = build(compiler, "functions.c", way, optimised, &[optimised]);
            let check = |scenario: &str, expected: &[(&str, u64)]| {
                program.counts(scenario, expected);
            };
            check("tail", &[("tail_even", 5000), ("tail_odd", 5000)]);
            // The depths are 0 to 4.
            check(
                "longjmp",
                &[("catches", 1000), ("jumps", 203_000), ("leaf", 1002), ("catches_often", 1)],
            );
            check("grows", &[("grows", 1000), ("leaf", 1001)]);
            check(
                "signals",
                &[
                    ("raises", 100),
                    ("handler", 1000),
                    ("in_handler", 2000),
                    ("jumping_handler", 1000),
                    ("raises_and_comes_back", 1000),
                    ("leaf", 2000 + 1000 + 2),
                ],
            );
            check("threads", &[("thread", 4), ("twice", 4000), ("leaf", 8001)]);
            check("deep", &[("recursive", 1001)]);
        }
    }
}
