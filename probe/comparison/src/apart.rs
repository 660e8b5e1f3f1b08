//! Separate programs for cases that cannot run in this one: Tracy starts before `main` in every
//! program that is linked with it, and Cargo builds each package for a program with one set of
//! features.

use std::io;
use std::path::PathBuf;
use std::process::Command;

/// Packages of these programs, which have the same names.
const PROGRAMS: [&str; 3] = ["compiled-out", "tracy", "tracy-on-demand"];

/// Name of the only case in these programs.
pub(crate) const CASE: &str = "region";

/// Builds the programs in the same way and folder as this one, one after the other, because Cargo
/// would unify their features in a common build.
pub(crate) fn build() -> io::Result<()> {
    for program in PROGRAMS {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--release", "--locked", "--manifest-path", manifest])
            .args(["--package", program])
            .status()?;
        if !built.success() {
            return Err(io::Error::other(format!("{program} was not built")));
        }
    }
    Ok(())
}

/// Path of one of these programs, which is in the folder of this one.
pub(crate) fn path(program: &str) -> io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name(program))
}
