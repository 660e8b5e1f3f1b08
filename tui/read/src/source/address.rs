//! Names the functions and variables at addresses of a running process.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::time::{Duration, Instant};

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
    /// The mappings of the process, the least address first.
    maps: Vec<Range>,
    /// When they were read. `None` if they are to be read again.
    read: Option<Instant>,
}

/// A mapping of the process.
#[derive(Clone, Debug, PartialEq)]
struct Range {
    start: u64,
    end: u64,
    offset: u64,
    is_code: bool,
    /// The file. `None` for memory without one. Memory of a stack or the heap is left out.
    path: Option<String>,
}

impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Addresses").field("pid", &self.pid).finish_non_exhaustive()
    }
}

/// An object file that the process has loaded.
struct Loaded {
    /// Where it is loaded: its first address, and the one after its last.
    range: (u64, u64),
    /// An address of the process less the address that the file's symbols have.
    bias: u64,
    file: ReadCache<File>,
}

impl Addresses {
    pub(crate) fn of(pid: u32) -> Self {
        let (objects, known) = (Vec::new(), HashMap::new());
        Self { pid, objects, known, maps: Vec::new(), read: None }
    }

    /// Reads the mappings again at the next question, if they are a second old: the process may have
    /// loaded another object.
    pub(crate) fn refresh(&mut self) {
        if self.read.is_some_and(|read| read.elapsed() > Duration::from_secs(1)) {
            self.read = None;
        }
    }

    /// Whether an address is in code.
    pub(crate) fn is_code(&mut self, address: u64) -> bool {
        self.range(address).is_some_and(|range| self.maps[range].is_code)
    }

    /// Index of the mapping that holds an address.
    fn range(&mut self, address: u64) -> Option<usize> {
        if self.read.is_none() {
            self.read = Some(Instant::now());
            let maps = fs::read(format!("/proc/{}/maps", self.pid)).unwrap_or_default();
            let maps = ranges(&String::from_utf8_lossy(&maps));
            if maps != self.maps {
                // What was not found may be in an object that is new.
                self.known.retain(|_, found| found.is_some());
                self.maps = maps;
            }
        }
        let next = self.maps.partition_point(|range| range.start <= address);
        next.checked_sub(1).filter(|at| address < self.maps[*at].end)
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
        let at = self.range(address)?;
        // The variables without an initial value lie in a mapping without a file, behind the others.
        let its = self.maps[..=at].iter().rev().find(|range| range.path.is_some())?;
        // The address is beyond the end of an object that is open already.
        if self.objects.iter().any(|it| (it.range.0..it.range.1).contains(&its.start)) {
            return None;
        }
        let object = Loaded::open(self.pid, its)?;
        let is_there = holds(&object);
        self.objects.push(object);
        is_there.then(|| self.objects.len() - 1)
    }
}

/// The mappings of files, and of memory without a name.
fn ranges(maps: &str) -> Vec<Range> {
    let all = mappings(maps).filter(|it| it.path.is_empty() || it.path.starts_with('/'));
    all.map(|it| Range {
        start: it.start,
        end: it.end,
        offset: it.offset,
        is_code: it.is_code,
        path: (!it.path.is_empty()).then(|| it.path.to_owned()),
    })
    .collect()
}

impl Loaded {
    fn open(pid: u32, its: &Range) -> Option<Self> {
        let path = its.path.as_deref()?;
        let file =
            ReadCache::new(Objects { running: Some(pid), started_unix_ns: None }.open(path)?);
        let object = object::File::parse(&file).ok()?;
        // The segment of the mapping. The kernel maps whole pages, so the last page of one segment
        // may contain the start of the next one, which then is the mapping's.
        let holds = |(at, bytes): (u64, u64)| {
            (at & !0xfff..at.saturating_add(bytes.max(1))).contains(&its.offset)
        };
        let segments = object.segments().filter(|segment| holds(segment.file_range()));
        let first = segments.max_by_key(|segment| segment.file_range().0)?;
        // The address that the file's symbols have at the mapping's offset.
        let there = first.address().wrapping_sub(first.file_range().0).wrapping_add(its.offset);
        let bias = its.start.wrapping_sub(there);
        let end = object.segments().map(|it| it.address().saturating_add(it.size())).max()?;
        let start = object.segments().map(|it| it.address()).min()?;
        Some(Self { range: (start.wrapping_add(bias), end.wrapping_add(bias)), bias, file })
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
    fn memory_with_another_name_than_a_file_is_left_out() {
        let maps = "1000-2000 r-xp 00000000 08:01 5 /bin/app\n\
                    2000-3000 rw-p 00001000 08:01 5 /bin/app\n\
                    3000-4000 rw-p 00000000 00:00 0 \n\
                    4000-5000 rw-p 00000000 00:00 0                          [heap]\n";
        let found: Vec<_> =
            ranges(maps).into_iter().map(|it| (it.start, it.is_code, it.path)).collect();
        let app = || Some("/bin/app".to_owned());
        assert_eq!(found, [(0x1000, true, app()), (0x2000, false, app()), (0x3000, false, None)]);
    }
}
