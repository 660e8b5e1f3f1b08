//! Names the functions and variables at addresses of a running process.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};

use object::read::ReadCache;
use object::{Object, ObjectSegment, ObjectSymbol, SymbolKind};

use super::place::{Objects, mappings};
use super::symbol::readable;
use crate::text::clean;

/// Maximum number of addresses whose names are kept.
const MOST: usize = 10_000;

/// A function or a variable: its name, its distance from the address, and its size, in bytes.
type Found = Option<(String, u64, u64)>;

/// Names addresses of a running process.
pub(crate) struct Addresses {
    pid: u32,
    objects: Vec<Loaded>,
    /// What was found at each address.
    known: HashMap<(u64, bool), Found>,
}

impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Addresses").field("pid", &self.pid).finish_non_exhaustive()
    }
}

/// An object file that the process has loaded.
struct Loaded {
    /// Its path, as in `/proc/PID/maps`.
    path: String,
    /// Where it is loaded: its first address, and the one after its last.
    range: (u64, u64),
    /// An address of the process less the address that the file's symbols have.
    bias: u64,
    file: ReadCache<File>,
}

impl Addresses {
    pub(crate) fn of(pid: u32) -> Self {
        Self { pid, objects: Vec::new(), known: HashMap::new() }
    }

    /// The function at an address. `None` if unknown.
    pub(crate) fn function(&mut self, address: u64) -> Option<String> {
        self.find(address, true).map(|(name, ..)| name)
    }

    /// The variable at an address: its name, the distance of the address from its start, and its
    /// size. `None` if unknown, as on a stack or in memory that was allocated.
    pub(crate) fn variable(&mut self, address: u64) -> Found {
        self.find(address, false)
    }

    fn find(&mut self, address: u64, is_code: bool) -> Found {
        if let Some(known) = self.known.get(&(address, is_code)) {
            return known.clone();
        }
        let object = self.object(address).map(|at| &self.objects[at]);
        let found = object.and_then(|object| object.symbol(address, is_code));
        if self.known.len() >= MOST {
            self.known.clear();
        }
        self.known.insert((address, is_code), found.clone());
        found
    }

    /// The object at an address, which is opened if it was not yet.
    fn object(&mut self, address: u64) -> Option<usize> {
        let holds = |object: &Loaded| (object.range.0..object.range.1).contains(&address);
        if let Some(at) = self.objects.iter().position(holds) {
            return Some(at);
        }
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid)).ok()?;
        let path = path_at(&maps, address)?;
        if self.objects.iter().any(|object| object.path == path) {
            return None;
        }
        let object = Loaded::open(self.pid, path, &maps)?;
        let is_there = holds(&object);
        self.objects.push(object);
        is_there.then(|| self.objects.len() - 1)
    }
}

/// The file that is mapped at an address, or right before it: the variables without an initial
/// value lie in a mapping without a file, behind the others.
fn path_at(maps: &str, address: u64) -> Option<&str> {
    let mut last = None;
    for it in mappings(maps) {
        if address < it.start {
            return None;
        }
        let is_file = it.path.starts_with('/');
        if is_file {
            last = Some(it.path);
        }
        if address < it.end {
            return if is_file || it.path.is_empty() { last } else { None };
        }
    }
    None
}

impl Loaded {
    fn open(pid: u32, path: &str, maps: &str) -> Option<Self> {
        let its = mappings(maps).find(|it| it.path == path)?;
        let file =
            ReadCache::new(Objects { running: Some(pid), started_unix_ns: None }.open(path)?);
        let object = object::File::parse(&file).ok()?;
        // The segment that contains the mapping's offset: the kernel maps whole pages.
        let first = object.segments().find(|segment| {
            let (at, bytes) = segment.file_range();
            (at & !0xfff..at.saturating_add(bytes.max(1))).contains(&its.offset)
        })?;
        // The address that the file's symbols have at the mapping's offset.
        let there = first.address().wrapping_sub(first.file_range().0).wrapping_add(its.offset);
        let bias = its.start.wrapping_sub(there);
        let end = object.segments().map(|it| it.address().saturating_add(it.size())).max()?;
        Some(Self { path: path.to_owned(), range: (its.start, end.wrapping_add(bias)), bias, file })
    }

    fn symbol(&self, address: u64, is_code: bool) -> Found {
        let object = object::File::parse(&self.file).ok()?;
        let at = address.wrapping_sub(self.bias);
        let wanted = if is_code { SymbolKind::Text } else { SymbolKind::Data };
        let symbol = object.symbols().chain(object.dynamic_symbols()).find(|symbol| {
            symbol.kind() == wanted
                && (symbol.address()..symbol.address().saturating_add(symbol.size())).contains(&at)
        })?;
        let name = clean(symbol.name().ok()?).into_owned();
        let name = readable(&name).unwrap_or(name);
        Some((name, at - symbol.address(), symbol.size()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static VARIABLE: [u8; 100] = [1; 100];

    #[test]
    fn own_functions_and_variables_are_named() {
        let mut addresses = Addresses::of(std::process::id());
        let address = (&raw const VARIABLE[7]).addr() as u64;
        let (name, distance, bytes) = addresses.variable(address).expect("the test has symbols");
        assert!(name.ends_with("VARIABLE") && (distance, bytes) == (7, 100), "{name} {distance}");
        let code = own_functions_and_variables_are_named as fn() as usize as u64;
        let name = addresses.function(code).expect("the test has symbols");
        assert!(name.contains("own_functions"), "{name}");
        let local = 0_u8;
        assert_eq!(addresses.variable((&raw const local).addr() as u64), None);
        assert_eq!(addresses.function(8), None);
    }

    #[test]
    fn variables_without_a_value_belong_to_the_file_before_them() {
        let maps = "1000-2000 r-xp 00000000 08:01 5 /bin/app\n\
                    2000-3000 rw-p 00001000 08:01 5 /bin/app\n\
                    3000-4000 rw-p 00000000 00:00 0 \n\
                    4000-5000 rw-p 00000000 00:00 0                          [heap]\n";
        assert_eq!(path_at(maps, 0x1800), Some("/bin/app"));
        assert_eq!(path_at(maps, 0x3800), Some("/bin/app"));
        assert_eq!(path_at(maps, 0x4800), None);
        assert_eq!(path_at(maps, 0x800), None);
        assert_eq!(path_at(maps, 0x9000), None);
    }
}
