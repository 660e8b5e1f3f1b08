//! Programs in C and C++, built as a user would: with the compilers there are,
//! every warning an error, against libpfp.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// Where the sources of the tests' programs are.
pub const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/c");
/// Where `pfp.h` is.
pub const INCLUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../probe/include");

/// What no source of ours may cause.
const WARNINGS: [&str; 5] = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-Wshadow"];

/// Runs a command to its end, which must be a good one; what it printed.
pub fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stdout = String::from_utf8_lossy(&stdout).into_owned();
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {status}\n{stdout}\n{stderr}");
    stdout
}

/// A folder for what tests build, beside what cargo builds.
#[must_use]
pub fn scratch() -> PathBuf {
    // TARGET/PROFILE/deps/TEST
    let test = std::env::current_exe().expect("a test knows its own path");
    test.ancestors().nth(3).expect("tests lie in PROFILE/deps").join("tmp")
}

/// The folder with `libpfp.a` and `libpfp.so`, built if need be.
pub fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        // In a folder of its own, so that it waits for no other build.
        let target = scratch().join("libpfp");
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let mut command = Command::new(cargo);
        // Not the flags that this test is built with.
        for variable in ["CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS", "CARGO_BUILD_TARGET"] {
            command.env_remove(variable);
        }
        command
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(["build", "--quiet", "--locked", "--profile", "c", "-p", "pfp-c"])
            .arg("--target-dir")
            .arg(&target);
        run(&mut command);
        let built = target.join("c");
        // By the name that programs linked with it ask for.
        let _ = std::os::unix::fs::symlink("libpfp.so", built.join("libpfp.so.0"));
        built
    })
}

/// A language and a compiler for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compiler {
    /// What it is called by.
    pub name: &'static str,
    /// The standard that sources are held to.
    pub standard: &'static str,
}

impl Compiler {
    /// C by whatever the system calls its compiler.
    pub const C: Self = Self { name: "cc", standard: "-std=c99" };
    /// C++ likewise.
    pub const CXX: Self = Self { name: "c++", standard: "-std=c++11" };

    /// All of those below that are there.
    pub fn all() -> impl Iterator<Item = Self> {
        let c = ["gcc", "clang"].map(|name| Self { name, ..Self::C });
        let cxx = ["g++", "clang++"].map(|name| Self { name, ..Self::CXX });
        c.into_iter().chain(cxx).filter(|compiler| is_there(compiler.name))
    }

    /// Whether it is one for C++.
    #[must_use]
    pub fn is_cxx(self) -> bool {
        self.standard.contains("++")
    }

    /// The language of sources, as compilers call it.
    fn language(self) -> &'static str {
        if self.is_cxx() { "c++" } else { "c" }
    }
}

/// Whether a program can be started.
#[must_use]
pub fn is_there(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// How a program gets the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// `libpfp.a`.
    Static,
    /// `libpfp.so`.
    Shared,
    /// Not at all.
    Without,
}

/// Builds a program of sources in [`SOURCES`], or of absolute paths, and returns where it
/// is. `program` must be a name of its own.
pub fn compile(
    compiler: Compiler,
    program: &str,
    sources: &[&str],
    link: Link,
    flags: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> PathBuf {
    let folder = scratch().join("c").join(compiler.name);
    std::fs::create_dir_all(&folder).expect("there is room");
    let built = folder.join(program);
    let mut command = Command::new(compiler.name);
    command
        .arg(compiler.standard)
        .arg("-D_GNU_SOURCE")
        .args(["-O2", "-g"])
        .args(WARNINGS)
        .arg(format!("-I{INCLUDE}"))
        .args(flags)
        .arg("-o")
        .arg(&built)
        .args(["-x", compiler.language()])
        .args(sources.iter().map(|source| Path::new(SOURCES).join(source)))
        .args(["-x", "none"]);
    match link {
        Link::Static => {
            command.arg(library().join("libpfp.a")).args(["-lpthread", "-ldl", "-lm"]);
        }
        Link::Shared => {
            let folder = library().display();
            command.arg(format!("-L{folder}")).arg("-lpfp").arg(format!("-Wl,-rpath,{folder}"));
        }
        Link::Without => {}
    }
    run(&mut command);
    built
}
