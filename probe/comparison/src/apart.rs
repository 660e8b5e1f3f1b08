//! Programs of their own, for what cannot be in this one: Tracy starts before
//! `main` in whatever is linked with it, and Cargo gives a program each package
//! with one set of features.

use std::io;
use std::path::PathBuf;
use std::process::Command;

/// The packages, whose programs have the same names.
const PROGRAMS: [&str; 3] = ["compiled-out", "tracy", "tracy-on-demand"];

/// What the one case of such a program is called.
pub(crate) const CASE: &str = "region";

/// Builds them, as and where this program was built. One after the other: built
/// together they would share their features after all.
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

/// Where such a program lies: beside this one.
pub(crate) fn path(program: &str) -> io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name(program))
}
