//! Points by name and place in the source. Code that is created repeatedly with the same name and
//! place always gets the same point.

use std::borrow::Cow;
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use pfp::Point;
use pfp::table::Once;

use crate::Kept;

type ByPlace = HashMap<(&'static str, &'static str, u32), &'static Point>;

static ALL: Kept<Option<ByPlace>> = Kept(UnsafeCell::new(None));

/// The working directory when the library was loaded. Relative paths of code start there.
static START: Once<PathBuf> = Once::new();

/// Stores the working directory.
pub(crate) fn look_at_directory() {
    START.get_or_make(|| std::env::current_dir().unwrap_or_default());
}

/// The point of a name and a place, created if it is new.
pub(crate) fn point(name: &str, file: &str, line: u32) -> &'static Point {
    // SAFETY: the caller holds the interpreter's lock, and this function does not release it.
    let all = unsafe { &mut *ALL.0.get() }.get_or_insert_default();
    // Generated code has a label such as `<string>` in place of a file. Its line has no meaning,
    // and the label can be new each time, such as `<ipython-input-7>`.
    let is_made = file.starts_with('<');
    let shown = absolute(file);
    let place = if is_made { ("<", 0) } else { (&*shown, line) };
    let known = all as &HashMap<(&str, &str, u32), &'static Point>;
    if let Some(known) = known.get(&(name, place.0, place.1)) {
        return known;
    }
    let name: &'static str = name.to_owned().leak();
    let file: &'static str = shown.into_owned().leak();
    let point: &'static Point = Box::leak(Box::new(Point::at(name, file, line)));
    let key = if is_made { (name, "<", 0) } else { (name, file, line) };
    all.insert(key, point);
    point
}

/// The absolute path of a file, which is also valid in new interpreters started by
/// `multiprocessing`.
pub(crate) fn absolute(file: &str) -> Cow<'_, str> {
    if file.is_empty() || file.starts_with(['/', '<']) {
        return file.into();
    }
    let Some(start) = START.get() else { return file.into() };
    let mut path = start.clone();
    for part in Path::new(file).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(path.pop()),
            part => path.push(part),
        }
    }
    path.to_string_lossy().into_owned().into()
}
