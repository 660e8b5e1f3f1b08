//! Finds the tools that tests start, and skips or fails a test whose tool is missing.
//!
//! If the environment variable `CI` is set, the test fails and prints how to install the tool.
//! Otherwise it prints on the terminal that it was skipped, and the last line of the run counts the
//! skipped tests ([`skips`]).

// The path is spelled out because another package includes this file as a module, too.
#[path = "skips.rs"]
pub mod skips;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Tools whose package has a different name.
const PACKAGES: [(&str, &str); 11] = [
    ("ssh", "openssh-client"),
    ("chroot", "coreutils"),
    ("setpriv", "util-linux"),
    ("unshare", "util-linux"),
    ("objdump", "binutils"),
    ("nm", "binutils"),
    ("c++", "g++"),
    ("clang++", "clang"),
    ("promtool", "prometheus"),
    ("cc", "gcc"),
    ("cargo-clippy", "rust-clippy"),
];

/// Prints on the terminal why a test covers less on this machine. It writes to standard error
/// directly, because the harness captures what a passing test prints with `eprintln!`.
pub fn skipped(what: &str, why: &str) {
    skip(what, why, "");
}

fn skip(what: &str, why: &str, remedy: &str) {
    let more = if remedy.is_empty() { String::new() } else { format!("; {remedy}") };
    let _ = writeln!(std::io::stderr(), "\nSKIPPED {what}: {why}{more}");
    skips::record(why, remedy);
}

/// The output of a program, which must have succeeded.
#[track_caller]
pub fn well(output: &Output) -> String {
    of_good_end("a program", output)
}

/// [`well`], with the name of the program in the message.
#[track_caller]
pub(crate) fn of_good_end(program: &str, output: &Output) -> String {
    let Output { status, stdout, stderr } = output;
    let [stdout, stderr] = [stdout, stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(status.success(), "{program}: expected a good end, found {status}\n{stdout}\n{stderr}");
    stdout.into_owned()
}

/// Whether a program can be started.
#[must_use]
pub fn is_there(tool: &str) -> bool {
    // `tmux` and `ssh` do not support `--version`.
    let version = if matches!(tool, "tmux" | "ssh") { "-V" } else { "--version" };
    Command::new(tool).arg(version).output().is_ok_and(|output| output.status.success())
}

/// Whether a tool that a test needs is missing; fails under `CI` if so.
#[track_caller]
#[must_use]
pub fn lacks(what: &str, tool: &str) -> bool {
    let is_missing = !is_there(tool);
    if is_missing {
        let package = PACKAGES.iter().find(|(name, _)| *name == tool).map_or(tool, |it| it.1);
        missing(what, &format!("{tool} is not installed"), &format!("apt-get install {package}"));
    }
    is_missing
}

/// Whether a test cannot create namespaces with these options of `unshare`, as in a chroot or
/// without rights.
#[track_caller]
#[must_use]
pub fn lacks_namespaces(what: &str, options: &[&str]) -> bool {
    if lacks(what, "unshare") {
        return true;
    }
    let tried = Command::new("unshare").args(options).arg("true").current_dir("/").output();
    let works = tried.is_ok_and(|output| output.status.success());
    if !works {
        skipped(what, &format!("`unshare {}` is refused here", options.join(" ")));
    }
    !works
}

/// The Python with packages that read exported files. `None` if it is not installed; under `CI`,
/// that fails the test.
#[track_caller]
#[must_use]
pub fn readers(what: &str) -> Option<PathBuf> {
    python(what, "readers", "tui/tests/readers.txt")
}

/// The Python with the packages that are annotated for other tools. `None` if it is not installed;
/// under `CI`, that fails the test.
#[track_caller]
#[must_use]
pub fn annotated(what: &str) -> Option<PathBuf> {
    python(what, "annotated", "tests/annotated/requirements.txt")
}

/// The Python with the packages that a file lists. `None` if it is not installed; under `CI`, that
/// fails the test.
#[track_caller]
#[must_use]
pub fn python(what: &str, name: &str, packages: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace is above");
    let python = root.join("target/tools").join(name).join("bin/python3");
    if python.exists() {
        return Some(python);
    }
    let folder = format!("target/tools/{name}");
    // The package of this repository, for its own tests.
    let own = format!(" && {folder}/bin/pip install -q ./probe/python");
    let more = if name == "python" { own.as_str() } else { "" };
    let remedy =
        format!("python3 -m venv {folder} && {folder}/bin/pip install -q -r {packages}{more}");
    missing(what, &format!("{packages} is not installed"), &remedy);
    None
}

/// Skips a test that lacks something installable; fails under `CI`.
///
/// # Panics
///
/// Panics under `CI`.
#[track_caller]
pub fn missing(what: &str, why: &str, remedy: &str) {
    let is_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    assert!(!is_ci, "{what}: {why}; {remedy}");
    skip(what, why, remedy);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "its fate is judged by the test below"]
    fn needs_a_tool() {
        assert!(lacks("a test", "objdump"), "there are no tools");
    }

    #[test]
    fn a_missing_tool_fails_under_ci_and_is_named_elsewhere() {
        let run = |ci: &str| {
            let mut test = Command::new(std::env::current_exe().expect("it knows its path"));
            test.args(["--ignored", "--exact", "tools::tests::needs_a_tool"]);
            test.env("PATH", "/nowhere").env("CI", ci).env_remove("RUST_BACKTRACE");
            let output = test.output().expect("it starts");
            let said = [output.stdout, output.stderr].concat();
            (output.status.success(), String::from_utf8_lossy(&said).into_owned())
        };
        let why = "a test: objdump is not installed; apt-get install binutils";
        let (passed, said) = run("true");
        assert!(!passed && said.contains(why), "{said}");
        let (passed, said) = run("");
        assert!(passed && said.contains(&format!("SKIPPED {why}")), "{said}");
        // The test that was run above is a child of this process, as test binaries are children of
        // cargo.
        let recorded = skips::taken(std::process::id());
        let line = "1 test was skipped, or tested less: binutils (1); this installs what is \
                    missing: apt-get install binutils";
        assert_eq!(recorded, line);
    }
}
