//! Points by name and place in the source. Code that is created repeatedly with the same name and
//! place always gets the same point.

use std::borrow::Cow;
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use pfp::Point;
use pfp::own;
use pfp::own::heap::{self, NoMemory};
use pfp::table::Once;

use crate::Kept;
use crate::object::no_memory;

type ByPlace = HashMap<(&'static str, &'static str, u32), &'static Point>;

static ALL: Kept<Option<ByPlace>> = Kept(UnsafeCell::new(None));

/// The working directory when the library was loaded. Relative paths of code start there.
static START: Once<PathBuf> = Once::new();

/// Stores the working directory.
pub(crate) fn look_at_directory() {
    // Without memory, relative paths stay as they are.
    START.get_or_try(pfp::c::current_folder);
}

/// The point of a name and a place, created if it is new. `None`, with an error set, if memory runs
/// out.
pub(crate) fn point(name: &str, file: &str, line: u32) -> Option<&'static Point> {
    find_or_make(name, file, line).or_else(no_memory)
}

fn find_or_make(name: &str, file: &str, line: u32) -> Option<&'static Point> {
    // SAFETY: the caller holds the interpreter's lock, and this function does not release it.
    let all = unsafe { &mut *ALL.0.get() }.get_or_insert_default();
    // Generated code has a label such as `<string>` in place of a file. Its line has no meaning,
    // and the label can be new each time, such as `<ipython-input-7>`.
    let is_made = file.starts_with('<');
    let shown = absolute(file).ok()?;
    let place = if is_made { ("<", 0) } else { (&*shown, line) };
    let known = all as &HashMap<(&str, &str, u32), &'static Point>;
    if let Some(known) = known.get(&(name, place.0, place.1)) {
        return Some(known);
    }
    all.try_reserve(1).ok()?;
    let room = own::room::<Point>()?;
    let (name, file) = (heap::text(name).ok()?, heap::text(&shown).ok()?);
    let (name, file): (&'static str, &'static str) = (name.leak(), file.leak());
    let point: &'static Point = Box::leak(Box::write(room, Point::at(name, file, line)));
    let key = if is_made { (name, "<", 0) } else { (name, file, line) };
    all.insert(key, point);
    Some(point)
}

/// The absolute path of a file, which is also valid in new interpreters started by
/// `multiprocessing`.
pub(crate) fn absolute(file: &str) -> Result<Cow<'_, str>, NoMemory> {
    if file.is_empty() || file.starts_with(['/', '<']) {
        return Ok(file.into());
    }
    let Some(start) = START.get() else { return Ok(file.into()) };
    let mut path = heap::path(&[start.as_os_str().as_bytes()])?;
    // Room for all parts, and for a slash before the first one.
    path.try_reserve(1 + file.len())?;
    for part in Path::new(file).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(path.pop()),
            part => path.push(part),
        }
    }
    Ok(heap::lossy(path.as_os_str().as_bytes())?.into())
}
