//! The installed libpfp: pkg-config and CMake find it, and it exports only pfp's symbols.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use pfp_tests::c::{self, Compiler};
use pfp_tests::place::{Place, pfp_top, text};
use pfp_tests::target::Target;
use pfp_tests::{figure, lacks};

const PROBE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../probe");

/// Whether all of some tools are installed; prints which is missing.
fn are_there(tools: &[&str]) -> bool {
    !tools.iter().any(|tool| lacks("libpfp as it is installed", tool))
}

fn cmake(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> String {
    let mut command = Command::new("cmake");
    // Drop the flags with which this test was built.
    for variable in ["CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS", "DESTDIR"] {
        command.env_remove(variable);
    }
    c::run(command.args(arguments))
}

fn folder(name: &str) -> PathBuf {
    c::scratch().join("packaging").join(name)
}

/// The folder in which CMake has built libpfp.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let build = folder("build");
        cmake(["-S", PROBE, "-B", text(&build)]);
        cmake(["--build", text(&build)]);
        build
    })
}

/// Installs libpfp and moves it to another folder: no installed file may contain its original path.
fn install(name: &str) -> PathBuf {
    let (first, moved) = (folder(&format!("{name}-before")), folder(name));
    for old in [&first, &moved] {
        let _ = std::fs::remove_dir_all(old);
    }
    cmake(["--install", text(built()), "--prefix", text(&first)]);
    std::fs::rename(&first, &moved).expect("both are beside each other");
    moved
}

/// Runs the program `hello.c`, which checks its own results.
fn greet(program: &Path) {
    let place = Place::new();
    let mut target = place.start(program, &[]);
    assert_eq!(target.reach("measured").one::<u64>("count"), 1000, "{program:?}");
    assert!(place.entry(target.pid()).is_some(), "{program:?} has a segment");
    target.end_well();
}

/// The defined, exported symbols that a tool lists.
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
        // The folder's name has blanks, which pkg-config escapes with backslashes.
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
        // The library is unchanged, so cargo need not compile it again.
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

/// Installs to a prefix that no tool searches, with the commands from the documentation page.
#[test]
fn an_installation_at_home_is_found_as_the_page_says() {
    const PAGE: &str = include_str!("../../../docs/installing.md");
    if !are_there(&["cmake", "pkg-config", "cc"]) {
        return;
    }
    let prefix = install("home/.local");
    let home = prefix.parent().expect("it is in a folder");
    let main = format!("#include \"{}/hello.c\"\n", c::SOURCES);
    std::fs::write(home.join("main.c"), main).expect("there is room");
    let lines = PAGE.lines().skip_while(|line| !line.starts_with("export PKG_CONFIG_PATH="));
    let lines = lines.take_while(|line| *line != "```").filter(|line| !line.is_empty());
    let [finds, builds, loads, builds_once] = lines.collect::<Vec<_>>()[..] else {
        panic!("four lines for a prefix in {PAGE}")
    };
    let shell = |place: &Place, lines: &[&str]| {
        let mut command = place.command("bash");
        command.args(["-euc", &lines.join("\n")]).current_dir(home).env("HOME", home);
        command.env_remove("PKG_CONFIG_PATH").env_remove("LD_LIBRARY_PATH");
        command
    };
    for lines in [[finds, builds, loads], [finds, builds_once, ""]] {
        let place = Place::new();
        let [finds, builds, loads] = lines;
        let mut target = Target::start(&mut shell(&place, &[finds, builds, loads, "exec ./main"]));
        assert_eq!(target.reach("measured").one::<u64>("count"), 1000, "{lines:?}");
        assert!(place.entry(target.pid()).is_some(), "{lines:?}");
        target.end_well();
        // The program only starts with the page's settings.
        let without = shell(&place, &["exec ./main </dev/null"]).output().expect("bash starts");
        assert_eq!(without.status.success(), loads.is_empty(), "{lines:?}: {without:?}");
    }
}

#[test]
fn cmake_install_respects_destdir() {
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

/// Builds the package as `.ci/package` does, but with the viewer under test.
#[test]
fn a_debian_package_has_the_viewer_and_the_library() {
    if !are_there(&["cmake", "dpkg-deb", "pkg-config"]) {
        return;
    }
    let (build, root) = (folder("package"), folder("package-unpacked"));
    for old in [&build, &root] {
        let _ = std::fs::remove_dir_all(old);
    }
    // The library is unchanged, so cargo need not compile it again.
    std::fs::create_dir_all(&build).expect("there is room");
    std::os::unix::fs::symlink(built().join("cargo"), build.join("cargo")).expect("it is new");
    let viewer = format!("-DPFP_VIEWER={}", pfp_top().display());
    cmake(["-S", PROBE, "-B", text(&build), &viewer]);
    cmake(["--build", text(&build), "--target", "package"]);
    let files = std::fs::read_dir(&build).expect("it was built").flatten();
    let is_package = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "deb");
    let packages: Vec<PathBuf> = files.map(|file| file.path()).filter(is_package).collect();
    let [package] = &packages[..] else { panic!("one package: {packages:?}") };
    c::run(Command::new("dpkg-deb").arg("-x").args([package, &root]));

    let usr = root.join("usr");
    for file in [
        "include/pfp.hpp",
        "lib/libpfp.a",
        "lib/libpfp_inject.so",
        "lib/libpfp_alloc.so",
        "share/doc/pfp/LICENSE-MIT",
    ] {
        assert!(usr.join(file).is_file(), "{file}");
    }
    let viewer = usr.join("bin/pfp-top");
    let version = c::run(Command::new(&viewer).arg("--version"));
    assert_eq!(version.trim(), concat!("pfp-top ", env!("CARGO_PKG_VERSION")));
    let pages = std::fs::read_dir(usr.join("share/man/man1")).expect("there are pages").count();
    assert!(pages > 10, "a page for each command: {pages}");
    for (file, words) in [
        ("man/man1/pfp-top.1", ".TH pfp-top 1"),
        ("bash-completion/completions/pfp-top", "COMPREPLY"),
        ("zsh/vendor-completions/_pfp-top", "#compdef pfp-top"),
        ("fish/vendor_completions.d/pfp-top.fish", "complete -c pfp-top"),
    ] {
        // On systems other than Debian, the completions for zsh are in another folder.
        let path = usr.join("share").join(file);
        let elsewhere = usr.join("share/zsh/site-functions/_pfp-top");
        let path = if path.exists() { path } else { elsewhere };
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(found.contains(words), "{file} has {words}");
    }

    // Builds and watches a program with the package's files only.
    let program = folder("package-hello");
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", usr.join("lib/pkgconfig")).args(["--cflags", "--libs", "pfp"]);
    let flags = c::run(&mut command).replace("\\ ", "\0");
    let flags = flags.split_whitespace().map(|flag| flag.replace('\0', " "));
    let mut command = Command::new("cc");
    command.arg(Path::new(c::SOURCES).join("hello.c")).arg("-o").arg(&program).args(flags);
    c::run(command.arg(format!("-Wl,-rpath,{}", text(&usr.join("lib")))));
    let place = Place::new();
    let mut target = place.start(&program, &[]);
    let count = target.reach("measured").one::<u64>("count");
    let mut watching = place.command(text(&viewer));
    let table = c::run(watching.args(["--once", "--csv", "--columns", "name,count"]));
    assert!(table.lines().any(|line| line.ends_with(&format!(",{count}"))), "{count}: {table}");
    target.end_well();
}

#[test]
fn the_libraries_export_only_pfps_symbols() {
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
fn libpfp_links_beside_another_rust_static_library() {
    if !are_there(&["cmake", "rustc"]) {
        return;
    }
    std::fs::create_dir_all(folder("other")).expect("there is room");
    let other = folder("other").join("libother.a");
    // One compiler builds both, so that the mangled names are equal.
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
