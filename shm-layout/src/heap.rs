//! Heap memory that may be refused.
//!
//! The containers of the standard library end the program if memory runs out. A library in a
//! program must not do that: all code that runs inside the host allocates by these functions, and
//! returns [`NoMemory`]. `clippy.toml` lists the methods that this code must not call.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::TryReserveError;
use std::ffi::CString;
use std::fmt::{self, Write};
use std::hint::black_box;
use std::io::{self, Read};
use std::path::PathBuf;

/// The heap is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

impl NoMemory {
    /// Whether an error was made from [`NoMemory`]. The system's ENOMEM is not such an error: it
    /// may also mean that address space or locked memory has run out.
    #[must_use]
    pub fn is_in(error: &io::Error) -> bool {
        error.kind() == io::ErrorKind::OutOfMemory && error.raw_os_error().is_none()
    }
}

impl fmt::Display for NoMemory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("out of memory")
    }
}

impl std::error::Error for NoMemory {}

impl From<TryReserveError> for NoMemory {
    fn from(_: TryReserveError) -> Self {
        Self
    }
}

impl From<NoMemory> for io::Error {
    /// The error has a kind only: a text would take memory.
    fn from(_: NoMemory) -> Self {
        io::ErrorKind::OutOfMemory.into()
    }
}

/// Whether memory is left for some small allocations. To be called before foreign code that ends
/// the program if it finds no memory.
#[must_use]
pub fn has_room() -> bool {
    const SPARE: Layout = Layout::new::<[u64; 2048]>();
    // SAFETY: the size is not 0, and the memory is freed with the layout that it was allocated
    // with.
    unsafe {
        let spare = black_box(alloc(SPARE));
        if !spare.is_null() {
            dealloc(spare, SPARE);
        }
        !spare.is_null()
    }
}

/// A list that grows if there is memory.
pub trait Grow<T> {
    /// Adds an item at the end.
    ///
    /// # Errors
    ///
    /// Memory runs out.
    fn try_push(&mut self, item: T) -> Result<(), NoMemory>;

    /// Inserts an item in front of the item at index `at`.
    ///
    /// # Errors
    ///
    /// Memory runs out.
    fn try_insert(&mut self, at: usize, item: T) -> Result<(), NoMemory>;

    /// Resizes the list to `len` items; `make` makes the new ones.
    ///
    /// # Errors
    ///
    /// Memory runs out.
    fn try_resize_with(&mut self, len: usize, make: impl FnMut() -> T) -> Result<(), NoMemory>;
}

impl<T> Grow<T> for Vec<T> {
    fn try_push(&mut self, item: T) -> Result<(), NoMemory> {
        self.try_reserve(1)?;
        self.push(item);
        Ok(())
    }

    fn try_insert(&mut self, at: usize, item: T) -> Result<(), NoMemory> {
        self.try_reserve(1)?;
        self.insert(at, item);
        Ok(())
    }

    fn try_resize_with(&mut self, len: usize, make: impl FnMut() -> T) -> Result<(), NoMemory> {
        self.try_reserve(len.saturating_sub(self.len()))?;
        self.resize_with(len, make);
        Ok(())
    }
}

/// Collects all items into a list.
///
/// # Errors
///
/// Memory runs out.
pub fn collect<T>(items: impl IntoIterator<Item = T>) -> Result<Vec<T>, NoMemory> {
    let items = items.into_iter();
    let mut list = Vec::new();
    list.try_reserve_exact(items.size_hint().0)?;
    for item in items {
        list.try_push(item)?;
    }
    Ok(list)
}

/// Moves a value into a box.
///
/// # Errors
///
/// Memory runs out.
pub fn boxed<T>(value: T) -> Result<Box<T>, NoMemory> {
    const { assert!(size_of::<T>() > 0, "it takes memory") };
    // SAFETY: the size of `T` is not 0.
    let place = unsafe { alloc(Layout::new::<T>()) }.cast::<T>();
    if place.is_null() {
        return Err(NoMemory);
    }
    // SAFETY: `place` was allocated just now with the layout of `T`, as boxes are, and has no other
    // owner.
    unsafe {
        place.write(value);
        Ok(Box::from_raw(place))
    }
}

/// Copies a text.
///
/// # Errors
///
/// Memory runs out.
pub fn text(of: &str) -> Result<String, NoMemory> {
    let mut text = String::new();
    text.try_reserve_exact(of.len())?;
    text.push_str(of);
    Ok(text)
}

/// Copies bytes to a text, in which bytes that are not UTF-8 are replaced.
///
/// # Errors
///
/// Memory runs out.
pub fn lossy(bytes: &[u8]) -> Result<String, NoMemory> {
    let mut text = String::new();
    text.try_reserve_exact(bytes.len())?;
    for chunk in bytes.utf8_chunks() {
        let replacement = if chunk.invalid().is_empty() { "" } else { "\u{fffd}" };
        text.try_reserve(chunk.valid().len() + replacement.len())?;
        text.push_str(chunk.valid());
        text.push_str(replacement);
    }
    Ok(text)
}

/// Formats a text.
///
/// # Errors
///
/// Memory runs out.
pub fn format(text: fmt::Arguments<'_>) -> Result<String, NoMemory> {
    struct Growing(String);

    impl Write for Growing {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.try_reserve(text.len()).map_err(|_| fmt::Error)?;
            self.0.push_str(text);
            Ok(())
        }
    }

    let mut growing = Growing(String::new());
    growing.write_fmt(text).map_err(|_| NoMemory)?;
    Ok(growing.0)
}

/// Reads a file, at most `limit` bytes of it.
///
/// # Errors
///
/// `OutOfMemory`; else the system's error.
pub fn read(file: impl Read, limit: usize) -> io::Result<Vec<u8>> {
    /// Spare bytes of the buffer. With these, the standard library finds the end of the file
    /// without growing the buffer.
    const SPARE: usize = 64;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(limit.saturating_add(SPARE)).map_err(NoMemory::from)?;
    file.take(limit as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Joins parts to a path.
///
/// # Errors
///
/// Memory runs out.
pub fn path(parts: &[&[u8]]) -> Result<PathBuf, NoMemory> {
    use std::os::unix::ffi::OsStringExt;
    Ok(std::ffi::OsString::from_vec(bytes(parts)?).into())
}

/// Joins parts to a C string.
///
/// # Errors
///
/// `OutOfMemory`; `InvalidInput` if a part has a zero byte.
pub fn c_string(parts: &[&[u8]]) -> io::Result<CString> {
    let mut bytes = joined(parts, 1)?;
    bytes.push(0);
    // The capacity equals the length, so the bytes are moved and not copied.
    CString::from_vec_with_nul(bytes).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Joins parts.
///
/// # Errors
///
/// Memory runs out.
pub fn bytes(parts: &[&[u8]]) -> Result<Vec<u8>, NoMemory> {
    joined(parts, 0)
}

fn joined(parts: &[&[u8]], more: usize) -> Result<Vec<u8>, NoMemory> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(parts.iter().map(|part| part.len()).sum::<usize>() + more)?;
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    Ok(bytes)
}

/// A text of at most `N` bytes that takes no heap; the rest is cut off.
#[derive(Clone, Copy, Debug)]
pub struct ShortText<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> ShortText<N> {
    /// Formats a text.
    #[must_use]
    pub fn of(text: fmt::Arguments<'_>) -> Self {
        let mut short = Self { bytes: [0; N], len: 0 };
        // Writing never fails: the text is cut.
        let _ = short.write_fmt(text);
        short
    }

    /// The bytes of the text.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The text, up to the last whole character.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.as_bytes().utf8_chunks().next().map_or("", |chunk| chunk.valid())
    }
}

impl<const N: usize> Write for ShortText<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.len..];
        let len = text.len().min(room.len());
        room[..len].copy_from_slice(&text.as_bytes()[..len]);
        self.len += len;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_what_they_were_made_of() {
        assert_eq!(lossy(b"a\xff\xfeb\xc3").unwrap(), "a\u{fffd}\u{fffd}b\u{fffd}");
        assert_eq!(lossy("ö".as_bytes()).unwrap(), "ö");
        assert_eq!(c_string(&[b"a/", b"b"]).unwrap().as_bytes(), b"a/b");
        assert_eq!(c_string(&[b"a\0"]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(path(&[b"a/", b"\xff"]).unwrap().as_os_str().len(), 3);
        assert_eq!(ShortText::<4>::of(format_args!("{}{}", 12, 345)).as_bytes(), b"1234");
        assert_eq!(format(format_args!("{}{}", 12, 345)).unwrap(), "12345");
        assert_eq!(read(&b"12345"[..], 4).unwrap(), b"1234");
        assert_eq!(collect(0..3).unwrap(), [0, 1, 2]);
        let mut list = collect([1, 3]).unwrap();
        list.try_insert(1, 2).unwrap();
        list.try_resize_with(4, || 4).unwrap();
        assert_eq!(list, [1, 2, 3, 4]);
    }

    #[test]
    fn a_refusal_of_the_system_is_not_the_heap_that_is_used_up() {
        assert!(NoMemory::is_in(&NoMemory.into()));
        assert!(!NoMemory::is_in(&io::Error::from_raw_os_error(libc::ENOMEM)));
    }
}
