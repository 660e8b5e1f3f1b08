//! The files that a program is loaded from, and the functions in them.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};

use libc::{dl_phdr_info, size_t};
use probe::Point;

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

/// What the loader knows of the object around an address.
struct Loaded {
    address: usize,
    base: usize,
    /// Empty for the program itself.
    path: *const c_char,
}

impl Loaded {
    fn around(address: usize) -> Option<Self> {
        let mut found = Self { address, base: 0, path: ptr::null() };
        // SAFETY: the function gets a pointer to what it expects.
        let there = unsafe { libc::dl_iterate_phdr(Some(look_at), (&raw mut found).cast()) };
        (there != 0).then_some(found)
    }

    fn path(&self) -> &CStr {
        if self.path.is_null() {
            return c"";
        }
        // SAFETY: a string of the loader's; the object is loaded, since one of its
        // functions just runs.
        unsafe { CStr::from_ptr(self.path) }
    }
}

unsafe extern "C" fn look_at(info: *mut dl_phdr_info, _size: size_t, found: *mut c_void) -> c_int {
    // SAFETY: as `dl_iterate_phdr` and `Loaded::around` promise.
    let (info, found) = unsafe { (&*info, &mut *found.cast::<Loaded>()) };
    let within = found.address.wrapping_sub(info.dlpi_addr as usize);
    for number in 0..usize::from(info.dlpi_phnum) {
        // SAFETY: there are that many.
        let part = unsafe { &*info.dlpi_phdr.add(number) };
        if part.p_type == libc::PT_LOAD
            && part.p_flags & libc::PF_X != 0
            && within.wrapping_sub(part.p_vaddr as usize) < part.p_memsz as usize
        {
            found.base = info.dlpi_addr as usize;
            found.path = info.dlpi_name;
            return 1;
        }
    }
    0
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
