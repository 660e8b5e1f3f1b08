//! Programs built with `-finstrument-functions`: they call hooks that libpfp defines, so libpfp is
//! preloaded.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use object::elf::DT_NEEDED;
use object::read::{Object, ObjectSymbol, ReadCache, ReadRef};

use super::{places, stubs};
use crate::variables;
use pfp_read::files::input;

/// The symbol that a program built with `-finstrument-functions` imports.
const HOOK: &[u8] = b"__cyg_profile_func_enter";
/// The symbol of a program that is built with MemorySanitizer.
const MEMORY_SANITIZER: &[u8] = b"__msan_init";
/// The library's names: in a build folder, and where it is installed.
const NAMES: [&str; 2] = ["libpfp.so", "libpfp.so.0"];
/// The variable that names the library, if it is not in one of the usual places.
const VARIABLE: &str = variables::LIBRARY;
/// Maximum length of a script's line that names its interpreter, in bytes.
const FIRST_LINE: u64 = 4096;

/// libpfp, or a list of the places that were searched.
pub(in crate::cli) fn find() -> Result<PathBuf, String> {
    places::find(&NAMES, VARIABLE)
}

/// The library to preload into a program, if the program needs it. Reports which library is loaded
/// and why.
pub(super) fn library(
    program: &OsStr,
    given: Option<&Path>,
    mut say: impl FnMut(&str),
) -> Result<Option<PathBuf>> {
    let name = Path::new(program).display();
    let library = match given {
        None if !calls_hooks(program) => return Ok(None),
        _ if has_memory_sanitizer(program) => {
            say(&format!(
                "{name} is built with MemorySanitizer, which rejects libraries built without it: \
                 libpfp.so is not preloaded, and no function is measured"
            ));
            return Ok(None);
        }
        Some(library) => {
            if !library.is_file() {
                bail!("--preload {}: no such file", library.display());
            }
            say(&format!("preloading {}", library.display()));
            library.to_owned()
        }
        None => match find() {
            Ok(library) => {
                let shown = library.display();
                say(&format!("{name} is instrumented for functions; preloading {shown}"));
                library
            }
            Err(places) => {
                say(&format!(
                    "{name} is instrumented for functions, but they are not measured: libpfp.so \
                     not found (searched: {places}); name it with --preload or {VARIABLE}"
                ));
                return Ok(None);
            }
        },
    };
    Ok(Some(places::resolved(&library)))
}

/// The variables that preload these libraries into a program and its children.
pub(super) fn preloading(libraries: &[PathBuf]) -> [(&'static str, OsString); 2] {
    let mut preloaded = env::var_os("LD_PRELOAD").unwrap_or_default();
    for library in libraries {
        if !preloaded.is_empty() {
            preloaded.push(":");
        }
        preloaded.push(stubs::path_for(library));
    }
    // AddressSanitizer refuses to start unless it is loaded first. This check can be switched off
    // for libpfp, which does not replace any function that the sanitizer replaces.
    let mut asan = OsString::from("verify_asan_link_order=0");
    if let Some(set) = env::var_os("ASAN_OPTIONS").filter(|set| !set.is_empty()) {
        asan.push(":");
        asan.push(set);
    }
    [("LD_PRELOAD", preloaded), ("ASAN_OPTIONS", asan)]
}

/// Whether a program, or its interpreter, calls the hooks and is not linked with libpfp.
fn calls_hooks(program: &OsStr) -> bool {
    let mut program = executable(program);
    // Look at the program and, if it is a script, at its interpreter. If the interpreter is a
    // script as well, assume that it does not call the hooks.
    for _ in 0..2 {
        let Some(file) = program.and_then(|path| input::file(&path).ok()) else { return false };
        let mut start = Vec::new();
        if (&file).take(FIRST_LINE).read_to_end(&mut start).is_err() {
            return false;
        }
        let Some(line) = start.strip_prefix(b"#!") else {
            return lacks(&ReadCache::new(file), HOOK);
        };
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|it| !it.is_empty());
        let first = words.next().unwrap_or_default();
        let interpreter = if first.ends_with(b"/env") { words.next() } else { Some(first) };
        program = interpreter.and_then(|it| executable(OsStr::from_bytes(it)));
    }
    false
}

/// The file that this command would execute.
pub(super) fn executable(program: &OsStr) -> Option<PathBuf> {
    let path = Path::new(program);
    if program.as_bytes().contains(&b'/') {
        return Some(path.to_owned());
    }
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(path)).find(|path| path.is_file())
}

fn has_memory_sanitizer(program: &OsStr) -> bool {
    let found = || {
        let cache = ReadCache::new(input::file(&executable(program)?).ok()?);
        let object = object::File::parse(&cache).ok()?;
        let mut symbols = object.dynamic_symbols();
        Some(symbols.any(|it| it.is_definition() && it.name_bytes() == Ok(MEMORY_SANITIZER)))
    };
    found() == Some(true)
}

/// Whether an object for this machine imports a symbol and is not linked with libpfp. Damaged parts
/// count as missing.
fn lacks<'a>(bytes: impl ReadRef<'a>, symbol: &[u8]) -> bool {
    let Ok(object::File::Elf64(elf)) = object::File::parse(bytes) else { return false };
    let is_libpfp = |name: &[u8]| name.starts_with(b"libpfp.so");
    let is_linked = elf.elf_dynamic_table().is_ok_and(|table| {
        let mut needed = table.iter().filter(|entry| entry.tag == DT_NEEDED);
        needed.any(|entry| table.string(entry).is_ok_and(is_libpfp))
    });
    let mut undefined = elf.dynamic_symbols().filter(ObjectSymbol::is_undefined);
    !is_linked && undefined.any(|it| it.name_bytes() == Ok(symbol))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_objects_do_not_count_as_calling_hooks() {
        let own = std::fs::read(env::current_exe().unwrap()).unwrap();
        assert!(lacks(own.as_slice(), b"malloc") && !lacks(own.as_slice(), HOOK));
        assert!(!calls_hooks(OsStr::new("/no/such/program")) && !calls_hooks(OsStr::new("/")));
        // Objects that are truncated anywhere, or have a changed word in the header.
        for end in (0..own.len()).step_by(own.len() / 64) {
            assert!(!lacks(&own[..end], HOOK));
        }
        for word in (0x18..0x40).step_by(2) {
            let mut changed = own.clone();
            changed[word..word + 2].copy_from_slice(&[0xff; 2]);
            assert!(!lacks(changed.as_slice(), HOOK));
        }
    }
}
