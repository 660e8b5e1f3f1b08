//! The files from which a program is loaded, and the functions in them.

use std::ptr;
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};

use probe::Point;
use probe::c::Loaded;

use super::symbols::{self, Symbols};
use crate::arena;

/// A loaded file.
struct Object {
    /// Difference between an address in memory and the address in the file.
    base: usize,
    /// Length of the path. Together with `name`, the file name without its folder, it distinguishes
    /// this object from another that is loaded at its address later.
    path_length: usize,
    name: &'static str,
    symbols: Symbols,
    next: *const Object,
}

/// Linked list of all objects with a called function. Objects are never removed.
static OBJECTS: AtomicPtr<Object> = AtomicPtr::new(ptr::null_mut());

/// Creates the point of a function. `None` if memory runs out.
pub(super) fn point(function: usize) -> Option<&'static Point> {
    let (name, file) = describe(function)?;
    arena::keep(Point::at(name, file, 0).starts_off())
}

/// The name of the function, and of the file that contains it.
fn describe(function: usize) -> Option<(&'static str, &'static str)> {
    let mut hexadecimal = [0; 2 + 16];
    let Some(loaded) = Loaded::around(function) else {
        // The function was generated at run time.
        return Some((arena::keep_text(&[hex(function, &mut hexadecimal)])?, ""));
    };
    let object = object(&loaded)?;
    let within = function.wrapping_sub(object.base);
    let name = match object.symbols.name(within) {
        Some(name) => name,
        None => arena::keep_text(&[object.name, "+", hex(within, &mut hexadecimal)])?,
    };
    Some((name, object.name))
}

/// Formats a number as in `0x1f`.
fn hex(mut number: usize, text: &mut [u8; 18]) -> &str {
    let mut at = text.len();
    loop {
        at -= 1;
        text[at] = b"0123456789abcdef"[number % 16];
        number /= 16;
        if number == 0 {
            break;
        }
    }
    at -= 2;
    text[at..at + 2].copy_from_slice(b"0x");
    str::from_utf8(&text[at..]).unwrap_or_default()
}

/// The object of a loaded file. Its symbols are read the first time.
fn object(loaded: &Loaded) -> Option<&'static Object> {
    let mut target = [0u8; libc::PATH_MAX as usize / 4];
    let (path, from) = match loaded.path() {
        path if path.is_empty() => (link(&mut target), c"/proc/self/exe"),
        path => (path.to_bytes(), path),
    };
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let name = str::from_utf8(name).unwrap_or("?");
    let same = |object: &Object| {
        object.base == loaded.base && object.path_length == path.len() && object.name == name
    };
    if let Some(known) = objects().find(|object| same(object)) {
        return Some(known);
    }
    let name = arena::keep_text(&[name])?;
    let symbols = symbols::read(from);
    loop {
        let first = OBJECTS.load(Acquire);
        // Another thread may have added the same object since the search above. Its symbols are
        // then in memory twice, which is harmless.
        let new = arena::keep(Object {
            base: loaded.base,
            path_length: path.len(),
            name,
            symbols,
            next: first,
        })?;
        let link = ptr::from_ref(new).cast_mut();
        // Release publishes the object; it pairs with the acquire in `objects`.
        if OBJECTS.compare_exchange(first, link, Release, Relaxed).is_ok() {
            return Some(new);
        }
    }
}

fn objects() -> impl Iterator<Item = &'static Object> {
    // SAFETY: null, or an object in memory that is never freed.
    let at = |object: *const Object| unsafe { object.as_ref() };
    std::iter::successors(at(OBJECTS.load(Acquire)), move |object| at(object.next))
}

/// The path of the executable.
fn link(target: &mut [u8]) -> &[u8] {
    // SAFETY: writes at most `target.len()` bytes to `target`.
    let length = unsafe {
        libc::readlink(c"/proc/self/exe".as_ptr(), target.as_mut_ptr().cast(), target.len())
    };
    &target[..usize::try_from(length).unwrap_or(0)]
}
