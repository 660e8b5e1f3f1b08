//! The files that a program is loaded from, and the functions in them.

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
    /// What its own addresses are moved by.
    base: usize,
    /// The length of its path, and its name without the folder: enough to tell
    /// it from another one that is loaded at its place later.
    path_length: usize,
    name: &'static str,
    symbols: Symbols,
    next: *const Object,
}

/// All objects that had a function, linked; they stay.
static OBJECTS: AtomicPtr<Object> = AtomicPtr::new(ptr::null_mut());

/// Makes the point of a function; none without memory.
pub(super) fn point(function: usize) -> Option<&'static Point> {
    let (name, file) = describe(function)?;
    arena::keep(Point::at(name, file, 0).starts_off())
}

/// The function's name and that of the file that it is in.
fn describe(function: usize) -> Option<(&'static str, &'static str)> {
    let mut hexadecimal = [0; 2 + 16];
    let Some(loaded) = Loaded::around(function) else {
        // Made while the program runs.
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

/// A number as `0x1f`.
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

/// The object that is loaded there, its symbols read if they were not.
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
        // Somebody else may have been faster; the symbols are then there twice.
        let new = arena::keep(Object {
            base: loaded.base,
            path_length: path.len(),
            name,
            symbols,
            next: first,
        })?;
        let link = ptr::from_ref(new).cast_mut();
        // Meets `Acquire` in `objects`: the object is filled.
        if OBJECTS.compare_exchange(first, link, Release, Relaxed).is_ok() {
            return Some(new);
        }
    }
}

fn objects() -> impl Iterator<Item = &'static Object> {
    // SAFETY: null, or an object, which is never given back.
    let at = |object: *const Object| unsafe { object.as_ref() };
    std::iter::successors(at(OBJECTS.load(Acquire)), move |object| at(object.next))
}

/// Where the program lies.
fn link(target: &mut [u8]) -> &[u8] {
    // SAFETY: writes so many bytes at most.
    let length = unsafe {
        libc::readlink(c"/proc/self/exe".as_ptr(), target.as_mut_ptr().cast(), target.len())
    };
    &target[..usize::try_from(length).unwrap_or(0)]
}
