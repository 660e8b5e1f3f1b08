//! libpfp as it is installed: found by pkg-config and by CMake, with nothing in it
//! that is seen but pfp's.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use pfp_tests::c::{self, Compiler};
use pfp_tests::place::Place;
use pfp_tests::{figure, lacks};

const PROBE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../probe");

/// Whether all of some tools are there; says so if not.
fn are_there(tools: &[&str]) -> bool {
    !tools.iter().any(|tool| lacks("libpfp as it is installed", tool))
}

fn cmake(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> String {
    let mut command = Command::new("cmake");
    // Not the flags that this test is built with.
    for variable in ["CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS", "DESTDIR"] {
        command.env_remove(variable);
    }
    c::run(command.args(arguments))
}

fn folder(name: &str) -> PathBuf {
    c::scratch().join("packaging").join(name)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("it is plain text")
}

/// Where CMake has built libpfp.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let build = folder("build");
        cmake(["-S", PROBE, "-B", text(&build)]);
        cmake(["--build", text(&build)]);
        build
    })
}

/// Installs libpfp and moves what was installed to another place: nothing in it
/// may know where it was.
fn install(name: &str) -> PathBuf {
    let (first, moved) = (folder(&format!("{name}-before")), folder(name));
    for old in [&first, &moved] {
        let _ = std::fs::remove_dir_all(old);
    }
    cmake(["--install", text(built()), "--prefix", text(&first)]);
    std::fs::rename(&first, &moved).expect("both are beside each other");
    moved
}

/// Runs the program `hello.c`, which checks itself.
fn greet(program: &Path) {
    let place = Place::new();
    let mut target = place.start(text(program), &[]);
    assert_eq!(target.reach("measured").one::<u64>("count"), 1000, "{program:?}");
    assert!(place.entry(target.pid()).is_some(), "{program:?} has a segment");
    target.end_well();
}

/// The names that a tool lists, of symbols that are defined and seen outside.
fn symbols(flags: &[&str], library: &Path) -> BTreeSet<String> {
    let listed = c::run(Command::new("nm").args(["-g", "--defined-only"]).args(flags).arg(library));
    let names =
        listed.lines().filter_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
            [_, _, name] => Some(name.to_owned()),
            _ => None,
        });
    names.collect()
}

#[test]
fn pkg_config_finds_both_libraries_wherever_they_are() {
    if !are_there(&["cmake", "pkg-config"]) {
        return;
    }
    let prefix = install("by pkg-config");
    let found = |arguments: &[&str]| -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).args(arguments).arg("pfp");
        // The folder's name has blanks, which come with backslashes.
        let flags = c::run(&mut command).trim().replace("\\ ", "\0");
        flags.split_whitespace().map(|flag| flag.replace('\0', " ")).collect()
    };
    assert_eq!(found(&["--modversion"]), [env!("CARGO_PKG_VERSION")]);
    let source = Path::new(c::SOURCES).join("hello.c");
    for compiler in Compiler::all().filter(|compiler| !compiler.is_cxx()) {
        for is_static in [false, true] {
            let program = folder(&format!("pkg-config-{}-{is_static}", compiler.name));
            let mut command = Command::new(compiler.name);
            command.arg(compiler.standard).arg(&source).arg("-o").arg(&program);
            if is_static {
                command.arg("-static").args(found(&["--cflags", "--libs", "--static"]));
            } else {
                let folder = prefix.join("lib");
                command.args(found(&["--cflags", "--libs"]));
                command.arg(format!("-Wl,-rpath,{}", text(&folder)));
            }
            c::run(&mut command);
            greet(&program);
        }
    }
}

#[test]
fn cmake_finds_both_libraries_wherever_they_are_and_in_the_source() {
    if !are_there(&["cmake"]) {
        return;
    }
    let prefix = install("by CMake");
    let consumer = Path::new(c::SOURCES).join("consumer");
    let ways = [
        ("installed", format!("-DCMAKE_PREFIX_PATH={}", text(&prefix))),
        ("source", format!("-DPFP_SOURCE={PROBE}")),
    ];
    for (name, way) in ways {
        let build = folder(&format!("consumer-{name}"));
        let _ = std::fs::remove_dir_all(&build);
        // It is the same library: cargo need not compile it once more.
        std::fs::create_dir_all(build.join("pfp")).expect("there is room");
        std::os::unix::fs::symlink(built().join("cargo"), build.join("pfp/cargo"))
            .expect("the folder is new");
        cmake(["-S", text(&consumer), "-B", text(&build), &way]);
        cmake(["--build", text(&build)]);
        for program in ["shared", "static"] {
            greet(&build.join(program));
        }
    }
}

#[test]
fn a_package_is_made_in_a_folder_of_its_own() {
    if !are_there(&["cmake"]) {
        return;
    }
    let stage = folder("stage");
    let _ = std::fs::remove_dir_all(&stage);
    let mut command = Command::new("cmake");
    command.args(["--install", text(built()), "--prefix", "/usr"]).env("DESTDIR", &stage);
    c::run(&mut command);
    let version = env!("CARGO_PKG_VERSION");
    let lib = stage.join("usr/lib");
    for file in ["libpfp.a", &format!("libpfp.so.{version}")] {
        assert!(lib.join(file).is_file(), "{file}");
    }
    for (link, to) in
        [("libpfp.so", "libpfp.so.0"), ("libpfp.so.0", &format!("libpfp.so.{version}"))]
    {
        assert_eq!(std::fs::read_link(lib.join(link)).expect("it is a link"), Path::new(to));
    }
    for header in ["pfp.h", "pfp.hpp"] {
        assert!(stage.join("usr/include").join(header).is_file(), "{header}");
    }
}

#[test]
fn nothing_is_seen_of_the_libraries_but_what_is_pfps() {
    if !are_there(&["cmake"]) {
        return;
    }
    let shared = symbols(&["-D"], &built().join("libpfp.so"));
    let in_archive = symbols(&[], &built().join("libpfp.a"));
    assert!(shared.contains("pfpCreate"), "{shared:?}");
    for name in &shared {
        assert!(name.starts_with("pfp") || name.starts_with("__cyg_profile_func_"), "{name}");
    }
    assert_eq!(shared, in_archive, "both libraries have the same functions");

    let dynamic = c::run(Command::new("readelf").arg("-dW").arg(built().join("libpfp.so")));
    assert!(dynamic.contains("Library soname: [libpfp.so.0]"), "{dynamic}");
    assert!(dynamic.contains("NODELETE"), "a plugin that is unloaded leaves it: {dynamic}");
    for name in ["libpfp.so", "libpfp.a"] {
        let bytes = std::fs::metadata(built().join(name)).expect("it was built").len();
        figure(&format!("{name}: {} KiB", bytes >> 10));
    }
}

#[test]
fn another_library_made_with_rust_fits_beside_it() {
    if !are_there(&["cmake", "rustc"]) {
        return;
    }
    std::fs::create_dir_all(folder("other")).expect("there is room");
    let other = folder("other").join("libother.a");
    // Of the same compiler, so that all names are the same.
    let mut command = Command::new("rustc");
    command.args(["--edition=2024", "--crate-type=staticlib", "-O", "-o"]).arg(&other);
    c::run(command.arg(Path::new(c::SOURCES).join("other.rs")));
    let pfp = built().join("libpfp.a");
    for (name, libraries) in [("first", [&pfp, &other]), ("last", [&other, &pfp])] {
        let program = folder("other").join(name);
        let mut command = Command::new("cc");
        command.arg(format!("-I{}", c::INCLUDE)).arg("-o").arg(&program);
        command.arg(Path::new(c::SOURCES).join("two_libraries.c")).args(libraries);
        c::run(command.args(["-lpthread", "-ldl", "-lm"]));
        let place = Place::new();
        c::run(&mut place.command(text(&program)));
    }
}
