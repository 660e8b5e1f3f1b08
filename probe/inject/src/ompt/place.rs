//! Points for places, which are addresses in the program's code. Each point is made once and never
//! freed.

use std::ffi::{OsStr, c_int, c_void};
use std::fmt;
use std::path::Path;

use pfp::c::Loaded;
use pfp::own::heap;
use pfp::table::{Table, mix};
use pfp::{Point, past};

/// Prefix of an object's path. A point has the prefix and the path in place of a source file. The
/// viewer finds the source line by the path and by the address in the point's name.
const SYSTEM: &str = "openmp";

/// Maximum number of places. Further places are not measured, and count as refused.
const PLACES: usize = 1 << 12;

/// An address in the code, and its points.
pub(super) struct Place {
    address: usize,
    kind: EventKind,
    pub(super) points: Points,
}

/// Kind of event at a place. One place can have events of several kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventKind {
    Region,
    /// A wait for a mutex, with the mutex's kind as its name.
    Mutex(&'static str),
}

pub(super) enum Points {
    Region(Region),
    Mutex(Point),
}

/// A parallel region in the source.
pub(super) struct Region {
    address: usize,
    /// Wall time from the fork to the join, recorded by the thread that forks.
    pub(super) wall: Point,
    /// Time in which a thread of the region works.
    pub(super) busy: Point,
    /// Time from the fork to the join in which a thread of the region does not work.
    pub(super) wait: Point,
}

impl Region {
    /// Whether a barrier, given by its kind and its address, is the one at the end of the region.
    ///
    /// Before OpenMP 5.1, runtimes have one kind for this barrier and for the barriers at the ends
    /// of loops. Only the region's last barrier has no address, or the address of the region.
    pub(super) fn is_last(&self, kind: c_int, code: *const c_void) -> bool {
        match kind {
            9 => true,
            1 | 2 => code.is_null() || code.addr() == self.address,
            _ => false,
        }
    }
}

static ALL: Table<Place, { 2 * PLACES }> = Table::new();

/// The points of an address. `None` if there are too many addresses, or memory runs out.
pub(super) fn at(address: *const c_void, kind: EventKind) -> Option<&'static Points> {
    let address = address.addr();
    let is = |place: &Place| place.address == address && place.kind == kind;
    let found = ALL.try_get(mix(address as u64), PLACES, is, || make(address, kind));
    if found.is_none() {
        pfp::c::count_refusal();
    }
    found.map(|place| &place.points)
}

/// Creates the points of a place. `None` if memory runs out.
#[cold]
fn make(address: usize, kind: EventKind) -> Option<Place> {
    let (object, name) = locate(address)?;
    let kept = |text: fmt::Arguments<'_>| -> Option<&'static str> {
        Some(heap::format(text).ok()?.leak())
    };
    let object = kept(format_args!("{SYSTEM}:{object}"))?;
    let points = match kind {
        EventKind::Region => Points::Region(Region {
            address,
            wall: past::wall_point(kept(format_args!("{name}"))?, object, 0),
            busy: Point::at(kept(format_args!("{name} busy"))?, object, 0),
            wait: Point::at(kept(format_args!("{name} wait"))?, object, 0),
        }),
        EventKind::Mutex(mutex) => {
            Points::Mutex(Point::at(kept(format_args!("{name} {mutex} wait"))?, object, 0))
        }
    };
    Some(Place { address, kind, points })
}

/// The object that an address is in, and the address as `objdump` prints it for that object. `None`
/// if memory runs out.
fn locate(address: usize) -> Option<(String, String)> {
    let Some(loaded) = Loaded::around(address) else {
        // The code was generated at run time, or the runtime did not report its address.
        return Some((String::new(), heap::format(format_args!("{address:#x}")).ok()?));
    };
    let mut room = [0; libc::PATH_MAX as usize];
    let path = match loaded.path().to_bytes() {
        // The path of the executable itself is empty.
        [] => {
            let link = c"/proc/self/exe";
            // SAFETY: a NUL-terminated path; the call writes at most `room.len()` bytes to `room`.
            let len =
                unsafe { libc::readlink(link.as_ptr(), room.as_mut_ptr().cast(), room.len()) };
            &room[..usize::try_from(len).unwrap_or(0)]
        }
        path => path,
    };
    let object = heap::lossy(path).ok()?;
    let file = Path::new(&object).file_name().and_then(OsStr::to_str).unwrap_or_default();
    let name = heap::format(format_args!("{file}+{:#x}", address - loaded.base)).ok()?;
    Some((object, name))
}
