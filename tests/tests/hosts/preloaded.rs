//! The library that `pfp-top run` preloads: programs with a sanitizer still start, and children
//! that cannot load the library run as they do without it.

use std::path::{Path, PathBuf};

use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::{Place, pfp_top, text};

const FLAG: &str = "-finstrument-functions";
const GCC: Compiler = Compiler { name: "gcc", ..Compiler::C };
const CLANG: Compiler = Compiler { name: "clang", ..Compiler::C };
const MUSL: Compiler = Compiler { name: "musl-gcc", ..Compiler::C };

/// Status, output and messages of a program that the viewer has started with every function
/// enabled.
fn run(program: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let place = Place::new();
    let mut command = place.command(pfp_top());
    command.args(["run", "--once", "--inherit", "--sum", "--enable", "*", "--"]).arg(program);
    command.env("XDG_STATE_HOME", place.path("state"));
    command.env("PFP_LIBRARY", c::library().join("libpfp.so")).args(arguments);
    let output = command.output().expect("the viewer starts");
    let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), words(&output.stdout), words(&output.stderr))
}

/// Builds the program with a sanitizer. `None` if the compiler does not have the sanitizer.
fn sanitized(compiler: Compiler, flags: &[&str]) -> Option<PathBuf> {
    if !c::builds_with(compiler, flags[0], "libclang-rt-dev") {
        return None;
    }
    let name = format!("steps{}", flags.concat());
    let all = [FLAG].iter().chain(flags);
    Some(c::compile(compiler, &name.replace(['/', ','], "-"), &["steps.c"], Link::Without, all))
}

#[test]
fn a_program_with_address_sanitizer_is_measured() {
    // With clang, the sanitizer's runtime is a shared library that demands to be loaded before all
    // others.
    let runtime = std::process::Command::new("clang")
        .arg("-print-file-name=libclang_rt.asan-x86_64.so")
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let folder = runtime.ok().and_then(|path| Some(Path::new(&path).parent()?.to_owned()));
    let found = format!("-Wl,-rpath,{}", folder.unwrap_or_default().display());
    let shared = ["-fsanitize=address", "-shared-libasan", &found];
    let programs = [
        sanitized(GCC, &["-fsanitize=address"]),
        sanitized(GCC, &["-fsanitize=thread"]),
        Compiler::all().any(|it| it.name == "clang").then(|| sanitized(CLANG, &shared)).flatten(),
    ];
    for program in programs.into_iter().flatten() {
        let (status, table, said) = run(&program, &[]);
        assert_eq!(status, Some(7), "{program:?}: {said}");
        assert!(table.contains("hello") && table.contains(" step "), "{program:?}:\n{table}{said}");
    }
}

#[test]
fn a_program_with_memory_sanitizer_runs_unmeasured() {
    if !Compiler::all().any(|it| it.name == "clang") {
        return;
    }
    let Some(program) = sanitized(CLANG, &["-fsanitize=memory"]) else { return };
    let (status, table, said) = run(&program, &[]);
    assert_eq!(status, Some(7), "{said}");
    assert!(said.contains("MemorySanitizer") && table.contains("hello"), "{table}{said}");
    // The child of an instrumented program inherits the preloaded library.
    let parent = c::compile(GCC, "parent", &["parent.c"], Link::Without, [FLAG]);
    let (_, out, said) = run(&parent, &[text(&program)]);
    assert!(out.starts_with("hello\nstatus 7\n") && out.contains(" main "), "{out}{said}");
    assert!(said.lines().all(|line| line.starts_with("pfp-top: ")), "{said}");
}

#[test]
fn children_that_cannot_load_libpfp_run_unchanged() {
    if cfg!(not(target_arch = "x86_64")) {
        return pfp_tests::skipped("children of 32 bits", "they are of x86");
    }
    let parent = c::compile(GCC, "parent", &["parent.c"], Link::Without, [FLAG]);
    let child = |compiler: Compiler, flag: &str, package: &str| {
        let name = format!("child{flag}");
        c::builds_with(compiler, flag, package)
            .then(|| c::compile(compiler, &name, &["child.c"], Link::Without, [flag]))
    };
    let children = [
        child(GCC, "-m64", "gcc"),
        child(GCC, "-m32", "gcc-multilib"),
        child(GCC, "-static", "libc6-dev"),
        child(MUSL, "-O1", "musl-tools"),
    ];
    for child in children.into_iter().flatten() {
        let bits = if child.ends_with("child-m32") { 32 } else { 64 };
        let (status, out, said) = run(&parent, &[text(&child)]);
        assert_eq!(status, Some(0), "{said}");
        assert!(out.starts_with(&format!("child of {bits} bits\nstatus 3\n")), "{child:?}:\n{out}");
        let quiet = said.lines().all(|line| line.starts_with("pfp-top: "));
        assert!(quiet, "{child:?}:\n{said}");
    }
    // An instrumented child of a program without hooks is measured.
    let steps = c::compile(GCC, "steps", &["steps.c"], Link::Without, [FLAG]);
    let (_, out, said) = run(&parent, &[text(&steps)]);
    assert!(out.starts_with("hello\nstatus 7\n") && out.contains(" step "), "{out}{said}");
}
