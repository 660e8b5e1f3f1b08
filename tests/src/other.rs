//! Builds the Rust plugin with another copy of pfp: one of another version, or one built by the
//! oldest supported compiler.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::c::{alone, run, scratch};
use crate::tools::missing;

/// The oldest supported compiler, as `rustup` names it.
const OLDEST: &str = concat!(env!("CARGO_PKG_RUST_VERSION"), ".0");
/// A version that is never released.
const VERSION: &str = "0.1.999";

/// The plugin with another version of pfp, built if necessary.
#[must_use]
pub fn version() -> PathBuf {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    build("version", VERSION, Command::new(cargo))
}

/// The plugin as the oldest supported compiler builds it, built if necessary. `None` if that
/// compiler is not installed.
#[track_caller]
#[must_use]
pub fn compiler(what: &str) -> Option<PathBuf> {
    let mut command = Command::new("rustup");
    command.args(["run", OLDEST]);
    let found = Command::new("rustup").args(["run", OLDEST, "rustc", "--version"]).output();
    if !found.is_ok_and(|output| output.status.success()) {
        let remedy = format!("rustup toolchain install {OLDEST} --profile minimal");
        missing(what, &format!("Rust {OLDEST} is not installed"), &remedy);
        return None;
    }
    command.arg("cargo");
    Some(build("compiler", env!("CARGO_PKG_VERSION"), command))
}

/// Builds the plugin in a workspace of its own, which has the members of this one and another
/// version.
fn build(name: &str, version: &str, mut cargo: Command) -> PathBuf {
    let folder = scratch().join("other").join(name);
    std::fs::create_dir_all(&folder).expect("there is room");
    let _alone = alone(&folder.join(".lock"));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it is in the workspace");
    for member in ["fuzz", "probe", "shm-layout", "tests", "tui"] {
        // The link may exist already.
        let _ = symlink(root.join(member), folder.join(member));
    }
    let read = |name: &str| std::fs::read_to_string(root.join(name)).expect("it is there");
    let [before, after] =
        [env!("CARGO_PKG_VERSION"), version].map(|it| format!("version = \"{it}\""));
    let manifest = read("Cargo.toml").replacen(&before, &after, 1);
    assert!(manifest.contains(&after), "the workspace names its version");
    for (name, text) in [("Cargo.toml", manifest), ("Cargo.lock", read("Cargo.lock"))] {
        std::fs::write(folder.join(name), text).expect("there is room");
    }
    // Drop the flags and the compiler with which this test was built.
    for variable in [
        "CARGO_BUILD_TARGET",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_TARGET_DIR",
        "LD_LIBRARY_PATH",
        "RUSTC",
        "RUSTFLAGS",
    ] {
        cargo.env_remove(variable);
    }
    cargo
        .current_dir(&folder)
        .args(["build", "--quiet", "--offline", "--release", "-p", "pfp-test-plugin"])
        .args(["--target-dir", "target"]);
    run(&mut cargo);
    folder.join("target/release/libpfp_test_plugin.so")
}
