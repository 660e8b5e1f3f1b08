//! `pfp-top run --alloc`: preloads a library that counts what the program allocates.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use object::read::ReadCache;
use object::{Object, ObjectSymbol};

use super::{places, preload};
use crate::variables;
use pfp_read::files::input;

/// File name of the library.
const LIBRARY: &str = "libpfp_alloc.so";
/// Symbols of programs built with a sanitizer that replaces the allocator.
const SANITIZERS: [(&str, &str); 4] = [
    ("__asan_init", "AddressSanitizer"),
    ("__msan_init", "MemorySanitizer"),
    ("__tsan_init", "ThreadSanitizer"),
    ("__lsan_init", "LeakSanitizer"),
];

/// Switches on the count of all points.
const COUNT_ALL: (&str, &str) = ("PFP_ALLOCS", "1");
/// Makes CPython allocate each object by `malloc` instead of its own allocator.
const PYTHON_MALLOC: (&str, &str) = ("PYTHONMALLOC", "malloc");

/// The library, or a list of the places that were searched.
pub(in crate::cli) fn find() -> Result<PathBuf, String> {
    places::find(&[LIBRARY], variables::ALLOC_LIBRARY)
}

/// The library to preload into a program. Fails if the library could not count the program's
/// allocations.
pub(super) fn library(program: &OsStr) -> Result<PathBuf> {
    let name = Path::new(program).display();
    if let Some(reason) = preload::executable(program).and_then(|file| obstacle(&file)) {
        bail!("--alloc cannot count what {name} allocates: {reason}");
    }
    match find() {
        Ok(library) => Ok(places::resolved(&library)),
        Err(places) => bail!(
            "--alloc needs {LIBRARY}, which was not found (searched: {places}); name it with {}",
            variables::ALLOC_LIBRARY
        ),
    }
}

/// Why the allocations of a program cannot be counted, if that can be seen in its file.
fn obstacle(program: &Path) -> Option<String> {
    let cache = ReadCache::new(input::file(program).ok()?);
    let file = object::File::parse(&cache).ok()?;
    if file.section_by_name(".interp").is_none() {
        return Some("it is linked statically, so no library can be preloaded".into());
    }
    for symbol in file.dynamic_symbols() {
        let Ok(name) = symbol.name() else { continue };
        // Libraries ask by a weak symbol whether there is a sanitizer.
        if symbol.is_weak() && symbol.is_undefined() {
            continue;
        }
        if let Some((_, sanitizer)) = SANITIZERS.iter().find(|(known, _)| *known == name) {
            return Some(format!("it is built with {sanitizer}, which replaces the allocator"));
        }
        if name == "malloc" && symbol.is_definition() {
            return Some(
                "it defines malloc itself; pfp_alloc and pfp_free, or pfp::Alloc in Rust, can \
                 count its allocations"
                    .into(),
            );
        }
    }
    None
}

/// [`COUNT_ALL`], and [`PYTHON_MALLOC`] unless the user has set it.
pub(super) fn environment() -> impl Iterator<Item = (&'static str, OsString)> {
    let (name, value) = PYTHON_MALLOC;
    let unset = std::env::var_os(name).is_none().then_some((name, value));
    [COUNT_ALL].into_iter().chain(unset).map(|(name, value)| (name, value.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_loads_libraries_has_no_obstacle() {
        assert_eq!(obstacle(&std::env::current_exe().unwrap()), None);
        assert_eq!(obstacle(Path::new("/no/such/program")), None);
    }
}
