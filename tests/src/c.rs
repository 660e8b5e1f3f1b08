//! Builds programs in C and C++ as a user would: with the installed compilers, every warning an
//! error, against libpfp.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

use crate::{lacks, tools};

/// The folder with the sources of the tests' programs.
pub const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/c");
/// The folder with `pfp.h`.
pub const INCLUDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../probe/include");

/// Warnings that no source of ours may cause.
const WARNINGS: [&str; 5] = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-Wshadow"];

/// Runs a command, asserts that it succeeds, and returns its output.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    tools::of_good_end(&format!("{command:?}"), &output)
}

/// A folder for the tests' build products, beside cargo's.
#[must_use]
pub fn scratch() -> PathBuf {
    // The test's own path ends in TARGET/PROFILE/deps/TEST.
    let test = std::env::current_exe().expect("a test knows its own path");
    test.ancestors().nth(3).expect("tests lie in PROFILE/deps").join("tmp")
}

/// The plugin in Rust, with its own copy of pfp; built if necessary.
pub fn rust_plugin() -> PathBuf {
    library().join("libpfp_test_plugin.so")
}

/// The plugin in C, which contains all of `libpfp.a`.
pub fn c_plugin() -> PathBuf {
    let flags = ["-shared", "-fPIC", "-fvisibility=hidden", "-Wl,--exclude-libs,ALL"];
    compile(Compiler::C, "copy.so", &["copy.c"], Link::Static, flags)
}

/// The library that runtimes load for annotated programs; built if necessary.
pub fn inject() -> PathBuf {
    library().join("libpfp_inject.so")
}

/// The library that counts allocations; built if necessary.
pub fn alloc() -> PathBuf {
    library().join("libpfp_alloc.so")
}

/// The native half of the Python package, built if necessary.
pub fn python() -> PathBuf {
    library().join("lib_pfp.so")
}

/// The folder with `libpfp.a` and `libpfp.so`, built if necessary.
pub fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        // A separate target folder, so that this build waits for no other.
        let target = scratch().join("libpfp");
        std::fs::create_dir_all(&target).expect("there is room");
        let _alone = alone(&target.join(".lock"));
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        let mut command = Command::new(cargo);
        // Drop the flags with which this test was built.
        for variable in ["CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS", "CARGO_BUILD_TARGET"] {
            command.env_remove(variable);
        }
        command
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(["build", "--quiet", "--locked", "--profile", "c"])
            .args(
                ["pfp-c", "pfp-inject", "pfp-alloc", "pfp-python", "pfp-test-plugin"]
                    .map(|it| format!("-p{it}")),
            )
            .arg("--target-dir")
            .arg(&target);
        run(&mut command);
        // Cargo removes a library before it writes the new one. A program of another test may be
        // starting with the library at that moment, so tests use copies in another folder.
        let (built, shown) = (target.join("c"), target.join("shown"));
        std::fs::create_dir_all(&shown).expect("there is room");
        for name in [
            "libpfp.a",
            "libpfp.so",
            "libpfp_inject.so",
            "libpfp_alloc.so",
            "lib_pfp.so",
            "libpfp_test_plugin.so",
        ] {
            let (new, place) = (built.join(name), shown.join(name));
            if std::fs::read(&new).expect("it was built")
                != std::fs::read(&place).unwrap_or_default()
            {
                let copy = shown.join(unique(name));
                std::fs::copy(&new, &copy).expect("there is room");
                put(&copy, &place);
            }
        }
        // The name that programs linked with the library look for.
        let _ = std::os::unix::fs::symlink("libpfp.so", shown.join("libpfp.so.0"));
        shown
    })
}

/// A language and a compiler for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compiler {
    /// The command's name.
    pub name: &'static str,
    /// The standard that sources must follow.
    pub standard: &'static str,
}

impl Compiler {
    /// The system's default C compiler.
    pub const C: Self = Self { name: "cc", standard: "-std=c99" };
    /// The system's default C++ compiler.
    pub const CXX: Self = Self { name: "c++", standard: "-std=c++11" };

    /// The installed compilers of GCC and LLVM.
    pub fn all() -> impl Iterator<Item = Self> {
        static FOUND: OnceLock<Vec<Compiler>> = OnceLock::new();
        let found = FOUND.get_or_init(|| {
            let c = ["gcc", "clang"].map(|name| Self { name, ..Self::C });
            let cxx = ["g++", "clang++"].map(|name| Self { name, ..Self::CXX });
            let is_there =
                |compiler: &Self| !lacks(&format!("what {} builds", compiler.name), compiler.name);
            c.into_iter().chain(cxx).filter(is_there).collect()
        });
        found.iter().copied()
    }

    /// Whether it compiles C++.
    #[must_use]
    pub fn is_cxx(self) -> bool {
        self.standard.contains("++")
    }

    /// The language of the sources, in the compiler's terms.
    fn language(self) -> &'static str {
        if self.is_cxx() { "c++" } else { "c" }
    }
}

/// How a program is linked with the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// With `libpfp.a`.
    Static,
    /// With `libpfp.so`.
    Shared,
    /// Without the library.
    Without,
}

/// Waits for an exclusive lock of a file, and holds it until the file is dropped. Other tests, in
/// this process or another one, may want to build the same program at the same time.
pub(crate) fn alone(file: &Path) -> File {
    let mut options = File::options();
    let lock = options.read(true).write(true).create(true).truncate(false).open(file);
    let lock = lock.expect("there is room");
    // SAFETY: the descriptor is open during the call, which takes no pointers.
    assert_eq!(unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) }, 0, "it can be locked");
    lock
}

/// Renames a build product into place in one step: a process that starts a program or loads a
/// library gets all of the old file or all of the new one.
fn put(built: &Path, name: &Path) {
    std::fs::rename(built, name).expect("both are in one folder");
}

/// Builds a program of sources in [`SOURCES`], or of absolute paths, unless an up-to-date one
/// exists, and returns its path. `program` must be unique among the tests.
pub fn compile(
    compiler: Compiler,
    program: &str,
    sources: &[&str],
    link: Link,
    flags: impl IntoIterator<Item = impl AsRef<OsStr>>,
) -> PathBuf {
    let folder = scratch().join("c").join(compiler.name);
    std::fs::create_dir_all(&folder).expect("there is room");
    let (place, built) = (folder.join(program), folder.join(unique(program)));
    let mut command = Command::new(compiler.name);
    command
        .arg(compiler.standard)
        .arg("-D_GNU_SOURCE")
        .args(["-O2", "-g"])
        .args(WARNINGS)
        .arg(format!("-I{INCLUDE}"))
        .args(flags)
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
    // The note records the ingredients of the existing program.
    let mut note = alone(&folder.join(format!(".{program}")));
    let mut noted = String::new();
    note.read_to_string(&mut noted).expect("it is text");
    let made_of = ingredients(compiler, &command, link);
    if noted != made_of || !place.exists() {
        run(command.arg("-o").arg(&built));
        put(&built, &place);
        note.rewind().expect("it is a file");
        note.write_all(made_of.as_bytes()).expect("there is room");
    }
    place
}

/// Hashes all ingredients of a program: the command, the compiler, the files that the command names
/// and those that they may include. A file is represented by its size and modification time, and
/// the system's headers by the modification times of their folders.
fn ingredients(compiler: Compiler, command: &Command, link: Link) -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let compiler = std::env::split_paths(&path).map(|folder| folder.join(compiler.name));
    let compiler = compiler.filter_map(|file| file.canonicalize().ok()).take(1);
    let named = command.get_args().map(PathBuf::from).filter(|path| path.is_file());
    let own = [SOURCES, INCLUDE].map(|folder| std::fs::read_dir(folder).expect("it is there"));
    let mut own: Vec<_> = own.into_iter().flatten().flatten().map(|file| file.path()).collect();
    own.sort();
    let shared = (link == Link::Shared).then(|| library().join("libpfp.so"));
    let folder = |argument: &OsStr| Some(argument.to_str()?.strip_prefix("-isystem")?.into());
    let system = command.get_args().filter_map(folder).chain(["/usr/include".into()]);

    let mut all = DefaultHasher::new();
    format!("{command:?}").hash(&mut all);
    for file in compiler.chain(named).chain(own).chain(shared).chain(system) {
        let found = std::fs::metadata(&file).ok();
        let found = found.and_then(|found| Some((found.len(), found.modified().ok()?)));
        (file, found).hash(&mut all);
    }
    format!("{:016x}", all.finish())
}

/// A name that no other test, in any process, uses at the same time.
fn unique(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{name}.{}.{}", std::process::id(), NEXT.fetch_add(1, Relaxed))
}

/// Whether a compiler builds an empty program with a flag that needs `package`. If it does not, the
/// test fails under `CI`.
#[track_caller]
#[must_use]
pub fn builds_with(compiler: Compiler, flag: &str, package: &str) -> bool {
    static KNOWN: Mutex<Option<HashMap<(&str, String), bool>>> = Mutex::new(None);
    let try_it = || {
        let folder = scratch().join("c");
        std::fs::create_dir_all(&folder).expect("there is room");
        let (source, program) = (folder.join(unique("empty.c")), folder.join(unique("empty")));
        std::fs::write(&source, "int main(void) { return 0; }\n").expect("there is room");
        let mut command = Command::new(compiler.name);
        command.arg(flag).arg("-o").arg(&program).args(["-x", "c"]).arg(&source);
        let works = command.output().is_ok_and(|output| output.status.success());
        for file in [source, program] {
            let _ = std::fs::remove_file(file);
        }
        works
    };
    let works = *KNOWN
        .lock()
        .expect("nobody fails in it")
        .get_or_insert_default()
        .entry((compiler.name, flag.to_owned()))
        .or_insert_with(try_it);
    if !works {
        let what = format!("{} with {flag}", compiler.name);
        tools::missing(&what, "it does not build", &format!("apt-get install {package}"));
    }
    works
}

/// Whether a compiler supports OpenMP. If it does not, the test fails under `CI`.
#[track_caller]
#[must_use]
pub fn has_openmp(compiler: Compiler) -> bool {
    builds_with(compiler, "-fopenmp", "libomp-dev")
}
