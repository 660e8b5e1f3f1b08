//! The Python package as a wheel installs it, and the scripts of the tests.

use std::path::{Path, PathBuf};

use crate::c;
use crate::place::Place;

/// Assembles the package, and returns the folder for `PYTHONPATH`.
#[must_use]
pub fn package(place: &Place) -> PathBuf {
    let folder = place.path("packages");
    let own = folder.join("pfp");
    std::fs::create_dir_all(&own).expect("there is room");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../probe/python/pfp");
    for entry in std::fs::read_dir(source).expect("it is there").flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "py") {
            std::fs::copy(entry.path(), own.join(entry.file_name())).expect("there is room");
        }
    }
    std::fs::copy(c::python(), own.join("_pfp.abi3.so")).expect("there is room");
    folder
}

/// A script of the tests.
#[must_use]
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("python").join(name)
}
