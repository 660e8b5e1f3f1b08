//! Programs built with `-finstrument-functions`: every function is a point, without changes to the
//! source.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use pfp_shm_layout::control::Change;
use pfp_shm_layout::reader::Picture;
use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::{Place, pfp_top};
use pfp_tests::target::Target;
use pfp_tests::watch::{self, Watch};
use pfp_tests::{figure, lacks, size, skipped, well};

const FLAG: &str = "-finstrument-functions";

/// The way in which a program gets the hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hooked {
    Linked(Link),
    Preloaded,
}

const WAYS: [Hooked; 3] =
    [Hooked::Linked(Link::Static), Hooked::Linked(Link::Shared), Hooked::Preloaded];

/// A program, and the way to start it.
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
        Target::start(self.command(place, scenario).env("PFP_ENABLE", enable))
    }

    fn command(&self, place: &Place, scenario: &str) -> Command {
        let mut command = place.command(self.path.to_str().expect("it is plain text"));
        command.arg(scenario);
        if self.way == Hooked::Preloaded {
            command.env("LD_PRELOAD", c::library().join("libpfp.so"));
        }
        command
    }

    /// Runs a scenario with the functions in `enable` enabled, and checks the points.
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

/// C compilers, without duplicate names.
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
            // `catches` is called 1,000 times. Each call leaves one to five calls of `jumps` by a
            // longjmp. `catches_often` is called once, and leaves 200,000 more calls of `jumps` by
            // a longjmp.
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

#[test]
fn calls_switched_in_the_middle_of_recursion_are_finished() {
    for compiler in c_compilers() {
        for optimised in ["-O0", "-O2"] {
            let way = Hooked::Linked(Link::Static);
            let program = build(compiler, "functions.c", way, optimised, &[optimised]);
            let place = Place::new();
            let mut target = program.start(&place, "toggled", "");
            target.reach("begun");
            let mut watch = Watch::attach(&place, &target);
            target.go();
            // At each stop, five calls of `toggled` are in progress, and five follow. The counted
            // calls are those that begin after the first stop, and those that are in progress at
            // the second.
            for change in [Change::Enable, Change::Disable] {
                target.reach("middle");
                let picture = watch.poll();
                assert!(picture.points.iter().all(|point| point.name != "twice"), "not called");
                let toggled = watch::id(picture, "toggled");
                assert_eq!(watch::named(picture, "leaf").count, 0, "off until asked for");
                watch.change(toggled, change);
                target.go();
            }
            target.reach("done");
            let picture = watch.poll();
            let toggled = watch::named(picture, "toggled");
            assert_eq!(toggled.count, 10, "{compiler:?} {optimised}");
            assert!(toggled.inclusive >= toggled.exclusive, "{compiler:?} {optimised}");
            assert_eq!(picture.losses.mismatched_ends, 0, "{compiler:?} {optimised}");
            target.end_well();
        }
    }
}

#[test]
fn a_forked_child_counts_its_own_function_calls() {
    let program = build(Compiler::C, "functions.c", Hooked::Preloaded, "fork", &[]);
    let place = Place::new();
    let mut target = program.start(&place, "fork", "leaf,twi?e");
    target.reach("begun");
    target.go();
    let child = target.reach("forked").one::<u32>("child");
    let mut watch = Watch::attach_to(&place, child);
    let picture = watch.poll();
    let count = |picture: &Picture, name| watch::named(picture, name).count;
    assert_eq!((count(picture, "twice"), count(picture, "leaf")), (10, 20));
    target.go();
    target.reach("done");
    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    assert_eq!(count(picture, "leaf"), 2, "before main, and once");
    assert!(picture.points.iter().all(|point| point.name != "twice"), "the child's alone");
    let off = picture.points.iter().find(|point| point.name == "early").expect("it was called");
    assert!(!off.control.enabled(), "not named by PFP_ENABLE");
    target.end_well();
}

#[test]
fn functions_have_names_wherever_they_are_loaded_from() {
    let way = Hooked::Linked(Link::Shared);
    for (name, flags) in [("fixed", "-no-pie"), ("moved", "-pie"), ("exported", "-rdynamic")] {
        let mut all = vec![flags];
        if name == "exported" {
            all.push("-s");
        }
        let program = build(Compiler::C, "functions.c", way, name, &all);
        let file = program.path.file_name().unwrap().to_str().unwrap().to_owned();
        program.judge("plain", "*", |picture, _| {
            let id = watch::id(picture, "recursive");
            let point = picture.points.iter().find(|point| point.id == id).unwrap();
            assert_eq!((point.file.as_str(), point.line), (file.as_str(), 0));
        });
    }
    // Without symbols, functions are named by their address in the file.
    let program = build(Compiler::C, "functions.c", way, "stripped", &["-s", "-no-pie"]);
    let file = program.path.file_name().unwrap().to_str().unwrap().to_owned();
    program.judge("plain", "*", |picture, _| {
        let mut counts: Vec<u64> = picture
            .points
            .iter()
            .filter(|point| point.name.starts_with(&format!("{file}+0x")))
            .map(|point| watch::total(picture, point.id).count)
            .filter(|&count| count >= 1000)
            .collect();
        counts.sort_unstable();
        assert_eq!(counts, [1000, 2001, 5500]);
    });
}

#[test]
fn functions_left_by_an_exception_have_ended() {
    for compiler in Compiler::all().filter(|compiler| compiler.is_cxx()) {
        for optimised in ["-O0", "-O2", "-O3"] {
            let way = Hooked::Linked(Link::Shared);
            let program = build(compiler, "throws.cpp", way, optimised, &[optimised]);
            program.judge("", "*", |picture, target| {
                assert_eq!(target.said().one::<u64>("caught"), 500);
                for name in ["_ZN4shop4paysEj", "_ZN4shop6Basket3buyEj", "_ZL5triesj"] {
                    let sums = watch::named(picture, name);
                    assert_eq!(sums.count, 1000, "{name} {compiler:?} {optimised}");
                }
                assert_eq!(watch::named(picture, "_ZN4shop4mostIjEET_S1_S1_").count, 1);
                assert_eq!(picture.losses.mismatched_ends, 0, "{compiler:?} {optimised}");
            });
        }
    }
}

#[test]
fn functions_beyond_the_room_for_points_are_counted_and_left_alone() {
    const FUNCTIONS: u64 = 11_000;
    let place = Place::new();
    let source = place.path("many.c");
    let mut text =
        String::from("#include <stdio.h>\n#include \"script.h\"\nstatic volatile unsigned sink;\n");
    for number in 0..FUNCTIONS {
        text.push_str(&format!("static void f{number}(void) {{ sink = sink + 1; }}\n"));
    }
    text.push_str("__attribute__((no_instrument_function)) int main(void)\n{\n");
    text.push_str("    reach(\"begun\");\n    for (unsigned i = 0; i < 3; i++) {\n");
    for number in 0..FUNCTIONS {
        text.push_str(&format!("        f{number}();\n"));
    }
    text.push_str("    }\n    reach(\"done\");\n    return 0;\n}\n");
    std::fs::write(&source, text).expect("there is room");
    let include = format!("-I{}", c::SOURCES);
    let path = source.to_str().expect("it is plain text");
    let all = [FLAG, "-O0", &include];
    let path = c::compile(Compiler::C, "many", &[path], Link::Shared, all);
    let program = Program { path, way: Hooked::Linked(Link::Shared) };
    program.judge("", "f1*", |picture, _| {
        let functions = picture.points.iter().filter(|point| point.name.starts_with('f'));
        let entered = functions.filter(|point| point.file == "many").count() as u64;
        assert_eq!(entered + picture.losses.points_refused, FUNCTIONS);
        assert!(entered > 10_000, "{entered}");
        for (name, count) in [("f1", 3), ("f1999", 3), ("f9999", 0)] {
            assert_eq!(watch::named(picture, name).count, count, "{name}");
        }
    });
}

#[test]
fn run_preloads_libpfp_unless_the_program_links_it() {
    let program = build(Compiler::C, "functions.c", Hooked::Preloaded, "run", &[]);
    let linked = build(Compiler::C, "functions.c", Hooked::Linked(Link::Shared), "run", &[]);
    let library = c::library().join("libpfp.so");
    let place = Place::new();
    let run = |program: &Program, set: &dyn Fn(&mut Command), arguments: &[&str]| {
        let mut command = place.command(pfp_top());
        command.args(["run", "--once", "--inherit", "--sort", "name"]).args(arguments);
        // Delays the end, so that the viewer attaches before it.
        let mut later = Command::new("sleep").arg("1").stdout(Stdio::piped()).spawn().unwrap();
        command.arg("--").arg(&program.path).arg("plain").stdin(later.stdout.take().unwrap());
        set(&mut command);
        let output = command.output().expect("the viewer starts");
        let _ = later.wait();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    };
    let found = |command: &mut Command| {
        command.env("PFP_LIBRARY", &library);
    };
    let (table, said) = run(&program, &found, &["--enable", "rec*"]);
    let loads = format!("is instrumented for functions; preloading {}", library.display());
    assert!(said.contains(&loads), "{said}");
    let row = |name: &str| {
        let line = table.lines().find(|line| line.split_whitespace().any(|word| word == name));
        line.unwrap_or_else(|| panic!("no {name} in\n{table}")).to_owned()
    };
    assert!(row("recursive").contains(" 5.50k "), "{table}");
    assert!(row("twice").starts_with("off"), "there to be switched on:\n{table}");

    let (table, said) = run(&linked, &found, &["--enable", "rec*"]);
    assert!(!said.contains("preloading") && table.contains(" 5.50k "), "{said}\n{table}");

    let preload = ["--enable", "*", "--preload", library.to_str().expect("it is plain text")];
    let (table, said) = run(&program, &|_| (), &preload);
    assert!(said.contains("preloading") && table.contains(" 1.00k "), "{said}\n{table}");
}

#[test]
fn without_the_library_the_program_runs_and_its_status_is_passed_on() {
    let program = build(Compiler::C, "functions.c", Hooked::Preloaded, "alone", &[]);
    let place = Place::new();
    let mut command = place.command(pfp_top());
    command.args(["run", "--once", "--inherit", "--"]).arg(&program.path).arg("status");
    let output = command
        .env("PFP_LIBRARY", "/no/such/libpfp.so")
        .stdin(Stdio::null())
        .output()
        .expect("the viewer starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("/no/such/libpfp.so") && said.contains("PFP_LIBRARY"), "{said}");
}

/// Number of instructions that callgrind counts below a function of the program `hooks_cost`.
fn instructions(program: &Program, of: &str, enable: &str) -> u64 {
    let place = Place::new();
    let output = place
        .command("valgrind")
        .args(["--tool=callgrind", &format!("--toggle-collect={of}")])
        .arg(format!("--callgrind-out-file={}", place.path("callgrind.out").display()))
        .arg(&program.path)
        .arg("10000")
        .env("PFP_CLOCK", "wall")
        .env("PFP_ENABLE", enable)
        .stdin(Stdio::null())
        .output()
        .expect("valgrind is there");
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines()
        .find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok())
        .unwrap_or_else(|| panic!("no count from valgrind: {said}"))
}

/// Of the instructions that a function costs, 10 are in the function itself: the compiler inserts
/// the calls of both hooks with their arguments.
#[test]
fn a_function_that_is_off_costs_a_few_instructions() {
    const WHAT: &str = "instructions of a function that is off";
    if cfg!(not(target_arch = "x86_64")) {
        return skipped(WHAT, "they are counted for x86-64");
    }
    if lacks(WHAT, "valgrind") {
        return;
    }
    let way = Hooked::Linked(Link::Shared);
    let program = build(Compiler::C, "hooks_cost.c", way, "cost", &["-O2"]);
    let plain = instructions(&program, "count_plain", "");
    // The cost is the same whether or not another function is enabled.
    for enable in ["", "other"] {
        let more = (instructions(&program, "count_hooked", enable) - plain) as f64 / 10_000.0;
        figure(&format!("{WHAT}: {more:.1} with {enable:?} on"));
        assert!(more > 2.0 && more <= 33.0, "{more} more instructions");
    }
}

/// A signal handler interrupts each instruction of a measured function and of the hooks that the
/// function calls.
#[test]
fn hooks_can_be_interrupted_at_each_instruction() {
    if cfg!(not(target_arch = "x86_64")) {
        return skipped("single steps", "they are for x86-64");
    }
    // The functions of the test itself are not measured.
    const PLAIN: &str =
        "-finstrument-functions-exclude-file-list=breakpoint.h,single_step.h,script.h";
    const GCC: Compiler = Compiler { name: "gcc", ..Compiler::C };
    let mut all = 0;
    for way in WAYS {
        let program = build(GCC, "hooked.c", way, "interrupted", &[PLAIN]);
        for (how, each) in [("measures", 1), ("forks", 5), ("vforks", 5), ("jumps", 1)] {
            let each = if size(0, 1) == 1 { 1 } else { each };
            let place = Place::new();
            let mut command = program.command(&place, how);
            command.arg(each.to_string()).env("PFP_ENABLE", "*").env("PFP_CLOCK", "wall");
            let mut target = Target::start(&mut command);
            let said = target.reach("done").clone();
            let what = format!("{how} {way:?}");
            let tried = said.all::<u64>("tried")[0][0];
            let [outer, inner, handled, vforked] = said.all::<u64>("calls")[0][..] else {
                panic!("{said:?}")
            };
            assert_eq!(said.one::<u64>("harmed"), 0, "{what}");
            assert!(tried * each > 200, "{what}: {tried}");
            let mut watch = Watch::attach(&place, &target);
            let picture = watch.poll();
            // A call that a jump left may be counted or not, and so may a child's call in shared
            // memory.
            let left = if how == "jumps" { tried } else { 0 };
            for (name, least, most) in [
                ("outer", outer.saturating_sub(left), outer),
                ("inner", inner.saturating_sub(left), inner),
                ("in_handler", handled, handled + vforked),
            ] {
                let found = watch::named(picture, name).count;
                assert!((least..=most).contains(&found), "{what}: {name} {found}, {least} {most}");
            }
            assert_eq!(picture.losses.begins_refused, 0, "{what}");
            all += tried;
            target.end_well();
        }
    }
    figure(&format!("hooks: {all} handlers at each instruction"));
}

/// The resolver of an indirect function is instrumented as other functions are. It is called before
/// the program's thread-local storage is initialized, and in a static program before the storage is
/// allocated.
#[test]
fn an_instrumented_resolver_does_no_harm() {
    for compiler in Compiler::all().filter(|compiler| !compiler.is_cxx()) {
        for (link, is_static) in
            [(Link::Static, false), (Link::Shared, false), (Link::Static, true)]
        {
            let name = format!("resolver-{link:?}-{is_static}");
            // The linker warns that a static program still loads glibc's libraries.
            let flags = is_static.then_some(["-static", "-Wl,--no-warnings"]).into_iter().flatten();
            let flags = [FLAG].into_iter().chain(flags);
            let program = c::compile(compiler, &name, &["resolver.c"], link, flags);
            for enable in ["", "*"] {
                let place = Place::new();
                let output = place.command(&program).env("PFP_ENABLE", enable).output();
                let said = well(&output.expect("it was built"));
                assert_eq!(said, "42 6\n", "{} {name} {enable:?}", compiler.name);
            }
        }
    }
}
