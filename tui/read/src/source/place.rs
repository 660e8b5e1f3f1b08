//! Names OpenMP parallel regions by their place in the source: function, file and line.
//!
//! An OpenMP runtime names a region by an address in the program. The program reports the object
//! and the address in it, `app+0x1234`. This module looks up the function and the line, if the
//! object's file has them. An upgrade may have replaced that file in the meantime. A new file is
//! not read, since its names would be wrong.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use addr2line::gimli::{Dwarf, EndianSlice, RunTimeEndian};
use object::read::{ReadCache, ReadRef};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

use super::symbol::readable;
use crate::files::input;
use crate::snapshot::{OPENMP, Point};

/// Whether a point is a parallel region that is named by its address.
pub(super) fn is_region(point: &Point) -> bool {
    Address::of(point).is_some()
}

/// The places in the source of parallel regions, by the indices of their points. Each object is
/// read once.
pub(super) fn locate(points: &[Point], loaded: Objects) -> Vec<(usize, String)> {
    let mut objects: BTreeMap<&str, Vec<(usize, Address)>> = BTreeMap::new();
    for (number, point) in points.iter().enumerate() {
        if let Some((object, address)) = Address::of(point) {
            objects.entry(object).or_default().push((number, address));
        }
    }
    let mut found = Vec::new();
    for (path, addresses) in objects {
        let Some(file) = loaded.open(path) else { continue };
        let places = places(file, &addresses).unwrap_or_default();
        found.extend(places);
    }
    found
}

/// The process whose loaded objects are opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Objects {
    /// The process's id in our /proc while it runs.
    pub(super) running: Option<u32>,
    /// Start of the process, in nanoseconds since the Unix epoch. `None` if the process is in
    /// another pid namespace, where a path may lead to another file.
    pub(super) started_unix_ns: Option<u64>,
}

/// The text that the kernel appends to the name of a file that has been removed or replaced.
const DELETED: &str = " (deleted)";

impl Objects {
    /// Opens the file that the process has loaded from this path. `None` if the path may lead to
    /// another file now.
    pub(super) fn open(self, path: &str) -> Option<File> {
        if let Some(pid) = self.running {
            let process = Path::new("/proc").join(pid.to_string());
            let found = program(&process, path).or_else(|| library(&process, path));
            if found.is_some() || fs::read_link(process.join("exe")).is_ok() {
                return found;
            }
            // The process has ended in the meantime, or its files in `/proc` may not be read.
        }
        let started = i128::from(self.started_unix_ns?);
        let file = input::file(Path::new(path)).ok()?;
        // The kernel updates this time when the file is changed or renamed to this path.
        let about = file.metadata().ok()?;
        let changed = i128::from(about.ctime()) * 1_000_000_000 + i128::from(about.ctime_nsec());
        (changed < started).then_some(file)
    }
}

/// The executable of a running process, if it has this name. `/proc/PID/exe` opens the original
/// file, even if that was replaced.
fn program(process: &Path, path: &str) -> Option<File> {
    let link = process.join("exe");
    let named = fs::read_link(&link).ok()?;
    let named = named.to_str()?;
    let is_it = named.trim_end_matches(DELETED) == path.trim_end_matches(DELETED);
    is_it.then(|| input::file(&link).ok()).flatten()
}

/// A library of a running process: the file of this name in the process's root, if the process has
/// that file loaded.
fn library(process: &Path, path: &str) -> Option<File> {
    let maps = fs::read_to_string(process.join("maps")).ok()?;
    let file = input::file(&process.join("root").join(path.trim_start_matches('/')));
    let is_file = |it: &Mapping<'_>| it.path.starts_with('/');
    // The device is not compared: on an overlay, the mapping shows another device than the file.
    let is_loaded = |file: &File| {
        let inode = file.metadata().map_or(0, |about| about.ino());
        mappings(&maps).any(|it| it.inode == inode && is_file(&it) && !it.path.ends_with(DELETED))
    };
    file.ok().filter(is_loaded).or_else(|| {
        // If the file was replaced, the loaded one can still be opened through `map_files`, with
        // the right to read it.
        let it = mappings(&maps).find(|it| it.path.strip_suffix(DELETED) == Some(path))?;
        input::file(&process.join("map_files").join(it.range)).ok()
    })
}

/// A line of `/proc/PID/maps`.
pub(super) struct Mapping<'a> {
    /// The first address, and the one after the last, as text.
    range: &'a str,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) is_code: bool,
    /// Position of the first byte in the file.
    pub(super) offset: u64,
    inode: u64,
    /// The path of the file, or a name such as `[heap]`; empty without a file.
    pub(super) path: &'a str,
}

/// The mappings of a process.
pub(super) fn mappings(maps: &str) -> impl Iterator<Item = Mapping<'_>> {
    maps.lines().filter_map(|line| {
        let mut fields = line.splitn(6, ' ');
        let range = fields.next()?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let (start, end) = range.split_once('-')?;
        let is_code = fields.next()?.contains('x');
        let (start, end, offset) = (hex(start)?, hex(end)?, hex(fields.next()?)?);
        let inode = fields.nth(1)?.parse().ok()?;
        let path = fields.next()?.trim_start();
        Some(Mapping { range, start, end, is_code, offset, inode, path })
    })
}

/// An address in an object, parsed from a point's name.
struct Address<'a> {
    /// The object's name and the address as text.
    whole: &'a str,
    address: u64,
    /// The text that follows the address.
    rest: &'a str,
}

impl<'a> Address<'a> {
    /// The object and the address that a point's name has. `None` if the point is not a parallel
    /// region.
    fn of(point: &'a Point) -> Option<(&'a str, Self)> {
        let object = point.file.strip_prefix(OPENMP)?.strip_prefix(':')?;
        let (name, _) = point.name.split_once("+0x")?;
        let digits = &point.name[name.len() + 3..];
        let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
        let address = u64::from_str_radix(&digits[..end], 16).ok()?;
        let (whole, rest) = point.name.split_at(name.len() + 3 + end);
        Some((object, Self { whole, address, rest }))
    }
}

fn places(file: File, addresses: &[(usize, Address)]) -> Option<Vec<(usize, String)>> {
    let cache = ReadCache::new(file);
    let object = object::File::parse(&cache).ok()?;
    let lines = lines(&object);
    let place = |address: &Address| {
        // The address is the return address, so look up the instruction before it.
        let at = address.address.checked_sub(1)?;
        let function = function(&object, at)?;
        let line = lines.as_ref().and_then(|lines| lines.find_location(at).ok()?);
        let line = line.and_then(|line| Some((line.file?, line.line?)));
        let place = match line {
            Some((file, line)) => {
                let file = Path::new(file).file_name()?.to_string_lossy();
                format!("{function} {file}:{line}")
            }
            None => format!("{function} {}", address.whole),
        };
        Some(format!("{place}{}", address.rest))
    };
    Some(addresses.iter().filter_map(|(number, it)| Some((*number, place(it)?))).collect())
}

/// The function that contains an address. The symbol's size is checked, since the nearest symbol
/// before the address may be megabytes away.
fn function<'data, R: ReadRef<'data>>(object: &object::File<'data, R>, at: u64) -> Option<String> {
    let holds = |symbol: &object::Symbol<'data, '_, R>| {
        symbol.kind() == SymbolKind::Text
            && (symbol.address()..symbol.address().saturating_add(symbol.size())).contains(&at)
    };
    let symbol = object.symbols().chain(object.dynamic_symbols()).find(holds)?;
    let name = symbol.name().ok()?;
    Some(readable(name).unwrap_or_else(|| name.to_owned()))
}

type DwarfSlice<'data> = EndianSlice<'data, RunTimeEndian>;

fn lines<'data, R: ReadRef<'data>>(
    object: &object::File<'data, R>,
) -> Option<addr2line::Context<DwarfSlice<'data>>> {
    let endian = if object.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let dwarf = Dwarf::load(|id| {
        let data = object.section_by_name(id.name()).and_then(|section| section.data().ok());
        Ok::<_, addr2line::gimli::Error>(EndianSlice::new(data.unwrap_or_default(), endian))
    });
    addr2line::Context::from_dwarf(dwarf.ok()?).ok()
}
