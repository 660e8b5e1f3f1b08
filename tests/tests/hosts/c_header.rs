//! `pfp.h` and the library agree in functions, layout and constants; with `PFP_DISABLE` a program
//! contains nothing of them.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::lacks;
use pfp_tests::place::Place;
use pfp_tests::watch::{self, Watch};

/// The functions that a header declares, as the compiler lists them.
fn declared() -> BTreeSet<String> {
    let folder = c::scratch().join("c");
    std::fs::create_dir_all(&folder).expect("there is room");
    let listed = folder.join("declared");
    let mut command = Command::new("gcc");
    command.args(["-fsyntax-only", "-x", "c", "-aux-info"]).arg(&listed);
    c::run(command.arg(Path::new(c::INCLUDE).join("pfp.h")));
    let listed = std::fs::read_to_string(listed).expect("the compiler has written it");
    // "/* pfp.h:134:NC */ extern int pfpCreate (void);"
    let of_ours = listed.lines().filter(|line| line.contains("/pfp.h:"));
    let external = of_ours.filter_map(|line| line.split_once("*/ extern "));
    let names = external.filter_map(|(_, declaration)| {
        declaration.split_once(" (")?.0.rsplit([' ', '*']).next().map(str::to_owned)
    });
    names.collect()
}

#[test]
fn the_header_declares_what_the_library_has_and_nothing_else() {
    if lacks("the functions that the header declares", "gcc") {
        return;
    }
    let listed = c::run(
        Command::new("nm").args(["-D", "--defined-only"]).arg(c::library().join("libpfp.so")),
    );
    let exported: BTreeSet<String> = listed
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .map(str::to_owned)
        .collect();
    let declared = declared();
    assert!(declared.len() > 40, "{declared:?}");
    assert_eq!(declared, exported);
}

#[test]
fn the_header_and_the_library_agree_on_each_field() {
    for compiler in Compiler::all() {
        let program = c::compile(compiler, "layout", &["layout.c"], Link::Static, ["-lm"]);
        let place = Place::new();
        let mut target = place.start(&program, &[]);
        let said = target.reach("done").clone();
        let mut watch = Watch::attach(&place, &target);
        // Use the cell of the program's only thread, since a sum of several cells has no last
        // value.
        let cell = watch::cells(watch.poll(), 1).next().expect("it has measured");
        let total = cell.live.clone();
        for (field, value) in [
            ("c_total", total.exclusive),
            ("n_count", total.count),
            ("c_min", total.min),
            ("c_max", total.max),
            ("c_last", total.last),
            ("c_inclusive", total.inclusive),
            ("c_off_cpu", total.off_cpu),
            ("n_switches", total.switches),
            ("ids", u64::from(pfp::NUMERIC)),
        ] {
            assert_eq!(said.one::<u64>(field), value, "{compiler:?} {field}");
        }
        assert!(total.off_cpu > 0 && total.inclusive > total.exclusive, "{total:?}");
        for (field, value) in [
            ("alpha", 0.25),
            ("c_average", total.average_ticks()),
            ("c_mean", total.mean().expect("it has measured")),
            ("c_deviation", total.variance().expect("more than once").sqrt()),
        ] {
            let said: f64 = said.one(field);
            assert!((said - value).abs() <= 1.0, "{compiler:?} {field}: {said}, not {value}");
        }
        target.end_well();
    }
}

#[test]
fn with_pfp_disable_a_program_has_no_pfp_symbols() {
    for compiler in Compiler::all() {
        // These programs use the whole interface. They are not run, as they measure nothing.
        for (name, source, flags) in [
            ("hello-without", "hello.c", ["-DPFP_DISABLE", "-O2"]),
            ("rules-without", "rules.c", ["-DPFP_DISABLE", "-lm"]),
            ("threads-without", "threads.c", ["-DPFP_DISABLE", "-lpthread"]),
        ] {
            let program = c::compile(compiler, name, &[source], Link::Without, flags);
            let symbols = c::run(Command::new("nm").arg("--undefined-only").arg(&program));
            assert!(!symbols.contains("pfp"), "{compiler:?} {name}: {symbols}");
            if source == "hello.c" {
                let symbols = c::run(Command::new("nm").arg(&program));
                assert!(!symbols.contains("pfp"), "{compiler:?} {name}: {symbols}");
            }
        }
    }
}

#[test]
fn files_with_and_without_pfp_disable_link_into_one_program() {
    for compiler in Compiler::all() {
        let sources = ["mixed.c", "mixed_without.c"];
        let program = c::compile(compiler, "mixed", &sources, Link::Static, [""; 0]);
        let place = Place::new();
        let mut target = place.start(&program, &[]);
        assert_eq!(target.reach("done").one::<u64>("sum"), 10_000);
        let mut watch = Watch::attach(&place, &target);
        let picture = watch.poll();
        assert_eq!(watch::total(picture, 1).count, 100, "{compiler:?}");
        assert_eq!(watch::named(picture, "with").count, 100, "{compiler:?}");
        assert!(picture.points.iter().all(|point| point.name != "without"), "{compiler:?}");
        target.end_well();
    }
}

#[test]
fn the_header_causes_no_warnings() {
    const C: [&str; 4] = ["-Wconversion", "-Wsign-conversion", "-Wcast-qual", "-Wundef"];
    const CXX: [&str; 2] = ["-Wold-style-cast", "-Wzero-as-null-pointer-constant"];
    for compiler in Compiler::all() {
        let (source, more) =
            if compiler.is_cxx() { ("warned.cpp", &CXX[..]) } else { ("warned.c", &[][..]) };
        for how in ["-UPFP_DISABLE", "-DPFP_DISABLE"] {
            let flags = C.iter().chain(more).copied().chain([how]);
            c::compile(compiler, "warned", &[source], Link::Shared, flags);
        }
    }
}

/// A point has at most four amounts; a fifth is a compile error.
#[test]
fn a_fifth_amount_is_refused_by_the_compiler() {
    let place = Place::new();
    let source = place.path("five.c");
    for compiler in Compiler::all() {
        let compiled = |amounts: &str| {
            let text = format!(
                "#include <pfp.h>\nint main(void) {{ PFP_AMOUNTS(\"x\", {amounts}); return 0; }}\n"
            );
            std::fs::write(&source, text).expect("there is room");
            let mut command = Command::new(compiler.name);
            command.arg(if compiler.is_cxx() { "-xc++" } else { "-xc" });
            command.arg("-I").arg(c::INCLUDE).arg("-fsyntax-only").arg(&source);
            let output = command.output().expect("it starts");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            (output.status.success(), said)
        };
        let (good, said) = compiled("\"a,b,c,d\", 1, 2, 3, 4");
        assert!(good, "{compiler:?}: {said}");
        let (good, said) = compiled("\"a,b,c,d,e\", 1, 2, 3, 4, 5");
        assert!(!good && said.contains("at most four amounts"), "{compiler:?}: {said}");
    }
}
