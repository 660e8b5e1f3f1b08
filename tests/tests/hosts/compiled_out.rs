//! Without its feature, the API compiles to nothing: the program contains not one instruction of
//! it. Also tests facts that only the compiler knows: the macros' code causes no warning, and the
//! macros refuse what they should.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pfp_tests::c::run;
use pfp_tests::lacks;

const PROBE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../probe");
const LOCK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock");

/// Copies a folder next to the build's other files, with the workspace's own lock file, whose
/// packages are available without a network.
fn copied(name: &str) -> PathBuf {
    copied_to(name, name)
}

/// Copies the program under another name, so that tests that build it at the same time do not
/// interfere.
fn copied_to(name: &str, to: &str) -> PathBuf {
    let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join(to);
    copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join(name), &to);
    write(&to.join("Cargo.lock"), &fs::read_to_string(LOCK).expect("it is text"));
    to
}

/// Copies a folder, and sets the probe's path in its manifests.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("there is room");
    for entry in fs::read_dir(from).expect("it is there") {
        let from = entry.expect("it can be read").path();
        let to = to.join(from.file_name().expect("it has a name"));
        if from.is_dir() {
            copy(&from, &to);
            continue;
        }
        let mut text = fs::read_to_string(&from).expect("it is text");
        if from.ends_with("Cargo.toml") {
            let probe = fs::canonicalize(PROBE).expect("it is there");
            let probe = format!("\"{}", probe.to_str().expect("it is plain text"));
            text = text.replace("\"../../../probe", &probe).replace("\"../../probe", &probe);
        }
        write(&to, &text);
    }
}

/// Writes a file unless it has this content already, so that cargo does not build it again.
fn write(to: &Path, text: &str) {
    if fs::read_to_string(to).is_ok_and(|there| there == text) {
        return;
    }
    fs::write(to, text).expect("there is room");
}

fn cargo(at: &Path, arguments: &[&str]) -> String {
    run(&mut cargo_command(at, arguments))
}

fn cargo_command(at: &Path, arguments: &[&str]) -> Command {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(cargo);
    // Drop the flags with which this test was built.
    for variable in ["CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS", "CARGO_BUILD_TARGET"] {
        command.env_remove(variable);
    }
    command.env("CARGO_TARGET_DIR", at.join("target")).current_dir(at);
    command.args(arguments).arg("--offline");
    command
}

/// Builds the crate and keeps the program under another name.
fn build(at: &Path, features: &[&str]) -> PathBuf {
    let mut arguments = vec!["build", "--release"];
    arguments.extend(features);
    cargo(at, &arguments);
    let program = at.join(format!("program-{}", features.len()));
    pfp_tests::os::copy_program(at.join("target/release/compiled-out"), &program);
    program
}

/// The instructions of `measured`, without their addresses.
fn instructions(program: &Path) -> Vec<String> {
    let listing = run(Command::new("objdump")
        .args(["--disassemble=measured", "--no-show-raw-insn", "--no-addresses"])
        .arg(program));
    let lines: Vec<String> = listing
        .lines()
        .skip_while(|line| !line.contains("<measured>:"))
        .skip(1)
        .map(|line| line.trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect();
    assert!(lines.len() > 10, "{listing}");
    lines
}

#[test]
fn without_the_feature_no_instruction_is_left() {
    let at = copied("compiled-out");
    let with = build(&at, &["--features", "points"]);
    let without = build(&at, &[]);
    let said = run(&mut Command::new(&with));
    assert_eq!(said, run(&mut Command::new(&without)));

    // Only the probe and its macros would be linked, and none of the probe's dependencies.
    let tree = cargo(&at, &["tree", "--edges", "normal", "--prefix", "none"]);
    assert!(tree.contains("pfp-probe"));
    for absent in ["pfp-shm-layout", "shared_memory", "libc"] {
        assert!(!tree.contains(absent), "{absent} is linked:\n{tree}");
    }
    // The probe's strings, such as the names of points or of variables, are not in the program
    // either.
    let bytes = fs::read(&with).expect("it was built");
    for text in ["PFP_", "a point", "restartable"] {
        let found = bytes.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(!found, "{text:?} is in the program");
    }
    const WHAT: &str = "the instructions of a point compiled out";
    if lacks(WHAT, "objdump") || lacks(WHAT, "nm") {
        return;
    }
    assert_eq!(instructions(&with), instructions(&without));
    let symbols = run(Command::new("nm").arg("--demangle").arg(&with));
    for absent in ["pfp_shm_layout", "pfp::engine", "pfp::clock", "pfp::point"] {
        assert!(!symbols.contains(absent), "{absent} is in the program");
    }
}

/// Checks programs that use the macros with every lint of the compiler and of clippy: these
/// programs contain `#![deny]`.
#[test]
fn the_macros_cause_no_warning_and_refuse_what_they_cannot_measure() {
    let at = copied("attribute");
    cargo(&at, &["check", "--workspace"]);
    if !lacks("clippy's lints on the macros", "cargo-clippy") {
        cargo(&at, &["clippy", "--workspace"]);
    }
    for (refused, message) in [
        ("a-const-fn", "a const fn cannot be measured"),
        ("an-opaque-future", "only the making of this future would be measured"),
        ("a-boxed-future", "only the making of this future would be measured"),
        ("a-future-in-one-branch", "only the making of this future would be measured"),
        ("a-lap-without-a-name", "expected string literal"),
    ] {
        let check = ["check", "--package", "refused", "--features", refused];
        let found = cargo_command(&at, &check).output().expect("cargo starts");
        let said = String::from_utf8_lossy(&found.stderr);
        assert!(!found.status.success(), "{refused} is not refused");
        assert!(said.contains(message), "{refused}:\n{said}");
    }
    cargo(&at, &["check", "--package", "refused"]);
}

/// The macros find the crate if the program's manifest or the workspace gives it another name: the
/// programs check the points that they have used.
#[test]
fn the_macros_find_a_renamed_crate() {
    let at = copied_to("attribute", "attribute-renamed");
    for program in ["renamed", "inherited"] {
        cargo(&at, &["run", "--package", program]);
    }
}

/// Types that must stay on their thread do: each of these expressions is ambiguous, and so does not
/// compile, if the type is `Send`.
mod bound_to_their_thread {
    trait AmbiguousIfSend<Marker> {
        fn resolve() {}
    }

    impl<T: ?Sized> AmbiguousIfSend<()> for T {}
    impl<T: ?Sized + Send> AmbiguousIfSend<u8> for T {}

    const _: fn() = || {
        let _ = <pfp::Guard as AmbiguousIfSend<_>>::resolve;
        let _ = <pfp::Entered as AmbiguousIfSend<_>>::resolve;
    };
}

/// Types that may move between threads are `Send`.
#[test]
fn contexts_and_points_are_send() {
    fn travels<T: Send + Sync>() {}
    travels::<pfp::ExecutionContext>();
    travels::<pfp::Point>();
    travels::<pfp::Stats>();
}
