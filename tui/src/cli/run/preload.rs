//! Programs built with `-finstrument-functions`: they call hooks that libpfp has, so it is loaded
//! with them.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::places;
use crate::files::input;
use crate::variables;

/// The symbol that such a program needs.
const HOOK: &[u8] = b"__cyg_profile_func_enter";
/// The library, as it is found where programs are built, and where they run.
const NAMES: [&str; 2] = ["libpfp.so", "libpfp.so.0"];
/// Where it is, if it is neither named nor near.
const VARIABLE: &str = variables::LIBRARY;

/// Where libpfp may be.
pub(in crate::cli) fn places() -> Vec<PathBuf> {
    places::of(&NAMES, VARIABLE)
}

/// The library to load with a program, if the program needs it. Says what is done and why.
pub(super) fn library(
    program: &OsStr,
    given: Option<&Path>,
    mut say: impl FnMut(&str),
) -> Result<Option<PathBuf>> {
    let name = Path::new(program).display();
    let library = match given {
        Some(library) => {
            if !library.is_file() {
                bail!("--preload {}: there is no such file", library.display());
            }
            say(&format!("preloading {}", library.display()));
            library.to_owned()
        }
        None if !calls_hooks(program) => return Ok(None),
        None => {
            let places = places();
            let Some(library) = places.iter().find(|place| place.is_file()) else {
                let list: Vec<_> = places.iter().map(|it| it.display().to_string()).collect();
                say(&format!(
                    "{name} is instrumented for functions, and goes on without: libpfp.so is \
                     none of {}; name it with --preload or {VARIABLE}",
                    list.join(", ")
                ));
                return Ok(None);
            };
            say(&format!("{name} is instrumented for functions; preloading {}", library.display()));
            library.clone()
        }
    };
    // The program may have another working directory, and its loader looks
    // elsewhere for what has no folder.
    Ok(Some(fs::canonicalize(&library).unwrap_or(library)))
}

/// The loader's variable with these libraries added.
pub(super) fn preloading(libraries: &[PathBuf]) -> OsString {
    let mut value = env::var_os("LD_PRELOAD").unwrap_or_default();
    for library in libraries {
        if !value.is_empty() {
            value.push(":");
        }
        value.push(library);
    }
    value
}

/// Whether a program, or what interprets it, calls the hooks and is not linked
/// with libpfp.
fn calls_hooks(program: &OsStr) -> bool {
    let mut program = find(program);
    // An interpreter's interpreter is not followed further.
    for _ in 0..2 {
        let Some(file) = program.and_then(|path| input::file(&path).ok()) else { return false };
        let Some(start) = piece(&file, 0, FIRST_LINE) else { return false };
        let Some(line) = start.strip_prefix(b"#!") else {
            let read = |at, len| piece(&file, at, len).filter(|found| found.len() as u64 == len);
            return Object::of(read).is_some_and(|object| object.lacks(HOOK));
        };
        let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let mut words = line.split(|byte| byte.is_ascii_whitespace()).filter(|it| !it.is_empty());
        let first = words.next().unwrap_or_default();
        let interpreter = if first.ends_with(b"/env") { words.next() } else { Some(first) };
        program = interpreter.and_then(|it| find(OsStr::from_bytes(it)));
    }
    false
}

/// The file that is started by a name.
pub(super) fn find(program: &OsStr) -> Option<PathBuf> {
    let path = Path::new(program);
    if program.as_bytes().contains(&b'/') {
        return Some(path.to_owned());
    }
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(path)).find(|path| path.is_file())
}

/// As many bytes of a file as there are from a place on, up to a length; none where it
/// cannot be read.
fn piece(file: &File, at: u64, len: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len).ok()?];
    let found = file.read_at(&mut bytes, at).ok()?;
    bytes.truncate(found);
    Some(bytes)
}

/// An object file of this machine's kind, read by a function. Broken parts count as missing.
struct Object<R> {
    read: R,
    /// Kind, place, length and related section of each.
    sections: Vec<Section>,
}

#[derive(Clone, Copy)]
struct Section {
    kind: u32,
    offset: u64,
    size: u64,
    link: u32,
}

const DYNAMIC: u32 = 6;
const DYNAMIC_SYMBOLS: u32 = 11;
const NEEDED: u64 = 1;
/// Bytes of a header of a file, and of a section.
const HEADER: u64 = 64;
/// No section with symbols is longer.
const MAX_SECTION: u64 = 64 << 20;
/// The line that names an interpreter is no longer.
const FIRST_LINE: u64 = 4096;

impl<R: Fn(u64, u64) -> Option<Vec<u8>>> Object<R> {
    fn of(read: R) -> Option<Self> {
        let header = read(0, HEADER)?;
        // 64 bits, in this machine's byte order.
        let order = if cfg!(target_endian = "little") { 1 } else { 2 };
        if !header.starts_with(&[0x7f, b'E', b'L', b'F', 2, order]) {
            return None;
        }
        let first = u64::from_ne_bytes(at(&header, 0x28)?);
        let length = u64::from(u16::from_ne_bytes(at(&header, 0x3a)?));
        let count = u64::from(u16::from_ne_bytes(at(&header, 0x3c)?));
        let section = |number: u64| {
            let section = read(first.checked_add(number * length)?, HEADER)?;
            Some(Section {
                kind: u32::from_ne_bytes(at(&section, 4)?),
                offset: u64::from_ne_bytes(at(&section, 24)?),
                size: u64::from_ne_bytes(at(&section, 32)?),
                link: u32::from_ne_bytes(at(&section, 40)?),
            })
        };
        let sections = (0..count).map_while(section).collect();
        Some(Self { read, sections })
    }

    /// Whether a symbol must come from elsewhere, and libpfp is not linked.
    fn lacks(&self, symbol: &[u8]) -> bool {
        let undefined = self.any(DYNAMIC_SYMBOLS, 24, |entry, names| {
            let section = at(entry, 6).map(u16::from_ne_bytes);
            let name = at(entry, 0).map(u32::from_ne_bytes);
            section == Some(0) && name.is_some_and(|name| text(names, name.into()) == symbol)
        });
        undefined
            && !self.any(DYNAMIC, 16, |entry, names| {
                let value = at(entry, 8).map(u64::from_ne_bytes);
                at(entry, 0).map(u64::from_ne_bytes) == Some(NEEDED)
                    && value.is_some_and(|name| text(names, name).starts_with(b"libpfp.so"))
            })
    }

    /// Whether any entry of the sections of a kind is as asked, with the strings that it
    /// refers to.
    fn any(&self, kind: u32, length: usize, is: impl Fn(&[u8], &[u8]) -> bool) -> bool {
        self.sections.iter().filter(|section| section.kind == kind).any(|section| {
            let names = self.sections.get(section.link as usize).map(|names| self.content(*names));
            let names = names.unwrap_or_default();
            self.content(*section).chunks_exact(length).any(|entry| is(entry, &names))
        })
    }

    fn content(&self, section: Section) -> Vec<u8> {
        let size = Some(section.size).filter(|size| *size <= MAX_SECTION);
        size.and_then(|size| (self.read)(section.offset, size)).unwrap_or_default()
    }
}

/// Bytes at a place; none beyond the end.
fn at<const N: usize>(bytes: &[u8], place: u64) -> Option<[u8; N]> {
    bytes.get(usize::try_from(place).ok()?..)?.first_chunk().copied()
}

/// The string at a place among others.
fn text(strings: &[u8], place: u64) -> &[u8] {
    let from = usize::try_from(place).ok().and_then(|place| strings.get(place..));
    from.and_then(|from| from.split(|&byte| byte == 0).next()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_as_it_should_be_calls_no_hooks() {
        let own = fs::read(env::current_exe().unwrap()).unwrap();
        let object = |bytes: &[u8]| {
            let bytes = bytes.to_vec();
            Object::of(move |at, len| {
                let (at, len) = (usize::try_from(at).ok()?, usize::try_from(len).ok()?);
                bytes.get(at..)?.get(..len).map(<[u8]>::to_vec)
            })
        };
        assert!(object(&own).is_some_and(|object| object.lacks(b"malloc")));
        assert!(object(&own).is_some_and(|object| !object.lacks(HOOK)));
        assert!(!calls_hooks(OsStr::new("/no/such/program")) && !calls_hooks(OsStr::new("/")));
        // Cut anywhere, and with any word of the header changed.
        for end in (0..own.len()).step_by(own.len() / 64) {
            if let Some(object) = object(&own[..end]) {
                assert!(!object.lacks(HOOK));
            }
        }
        for word in (0x18..0x40).step_by(2) {
            let mut changed = own.clone();
            changed[word..word + 2].copy_from_slice(&[0xff; 2]);
            if let Some(object) = object(&changed) {
                assert!(!object.lacks(HOOK));
            }
        }
    }
}
