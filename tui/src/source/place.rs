//! Parallel regions by their place in the source.
//!
//! A runtime names them by an address in the program. The program reports the object and the
//! address in it, `app+0x1234`; the function and the line are looked up here, as far as the object
//! has them.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use addr2line::gimli::{Dwarf, EndianSlice, RunTimeEndian};
use object::read::{ReadCache, ReadRef};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

use super::symbol::readable;
use crate::files::input;
use crate::snapshot::{OPENMP, Point};

/// Gives points of parallel regions their places as names. Each object is read once. `which` has
/// the places of the points to look at.
pub(super) fn locate(points: &[Point], which: &[usize]) -> Vec<(usize, String)> {
    let mut objects: BTreeMap<&str, Vec<(usize, Address)>> = BTreeMap::new();
    for &number in which {
        if let Some((object, address)) = points.get(number).and_then(Address::of) {
            objects.entry(object).or_default().push((number, address));
        }
    }
    let mut found = Vec::new();
    for (path, addresses) in objects {
        // The file may be gone, or another program's by now.
        let Ok(file) = input::file(Path::new(path)) else { continue };
        let places = places(file, &addresses).unwrap_or_default();
        found.extend(places);
    }
    found
}

/// An address in an object, in a point's name.
struct Address<'a> {
    /// The object's name and the address as text.
    whole: &'a str,
    address: u64,
    /// The text behind it.
    rest: &'a str,
}

impl<'a> Address<'a> {
    /// The object of a point, and the address in it.
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
        // The address is where the call returns to.
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

/// The function that contains an address by its length. The nearest one before it may be megabytes
/// away.
fn function<'data, R: ReadRef<'data>>(object: &object::File<'data, R>, at: u64) -> Option<String> {
    let holds = |symbol: &object::Symbol<'data, '_, R>| {
        symbol.kind() == SymbolKind::Text
            && (symbol.address()..symbol.address().saturating_add(symbol.size())).contains(&at)
    };
    let symbol = object.symbols().chain(object.dynamic_symbols()).find(holds)?;
    let name = symbol.name().ok()?;
    Some(readable(name).unwrap_or_else(|| name.to_owned()))
}

type Slice<'data> = EndianSlice<'data, RunTimeEndian>;

fn lines<'data, R: ReadRef<'data>>(
    object: &object::File<'data, R>,
) -> Option<addr2line::Context<Slice<'data>>> {
    let endian = if object.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let dwarf = Dwarf::load(|id| {
        let data = object.section_by_name(id.name()).and_then(|section| section.data().ok());
        Ok::<_, addr2line::gimli::Error>(EndianSlice::new(data.unwrap_or_default(), endian))
    });
    addr2line::Context::from_dwarf(dwarf.ok()?).ok()
}
