//! Names of the functions of an object file.
//!
//! The tables are copied, not mapped: if a file is truncated while the program runs, access to the
//! lost part of a mapping would kill the program.

use std::ffi::CStr;
use std::slice;

#[cfg(target_pointer_width = "32")]
use libc::{Elf32_Ehdr as Header, Elf32_Shdr as Section, Elf32_Sym as Symbol};
#[cfg(target_pointer_width = "64")]
use libc::{Elf64_Ehdr as Header, Elf64_Shdr as Section, Elf64_Sym as Symbol};

use probe::c::File;

use crate::arena;

// Constants of the ELF format.
const SYMBOLS: u32 = 2;
const DYNAMIC_SYMBOLS: u32 = 11;
const FUNCTION: u8 = 2;
const INDIRECT_FUNCTION: u8 = 10;
const LOCAL: u8 = 0;

/// Maximum size of a symbol table in bytes.
const MAX_BYTES: usize = 1 << 30;

/// Functions by address. Empty if the file is stripped or cannot be read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Symbols {
    /// Sorted by address. Of several symbols at an address, the preferred one is last.
    functions: &'static [Symbol],
    names: &'static [u8],
}

/// Reads the symbols of a file.
pub(super) fn read(path: &CStr) -> Symbols {
    File::open(path).and_then(|file| of(&file)).unwrap_or_default()
}

fn of(file: &File) -> Option<Symbols> {
    let mut header = Copied::<Header>::read(file, 0, 1)?;
    let header = &header.all()[0];
    let native_class = if cfg!(target_pointer_width = "64") { 2 } else { 1 };
    if header.e_ident[..5] != [0x7f, b'E', b'L', b'F', native_class]
        || usize::from(header.e_shentsize) != size_of::<Section>()
    {
        return None;
    }
    let mut sections =
        Copied::<Section>::read(file, header.e_shoff as usize, usize::from(header.e_shnum))?;
    let sections = sections.all();
    let table = [SYMBOLS, DYNAMIC_SYMBOLS]
        .into_iter()
        .find_map(|kind| sections.iter().find(|section| section.sh_type == kind))?;
    let names = sections.get(table.sh_link as usize)?;
    let length = table.sh_size as usize / size_of::<Symbol>();
    let functions = Copied::<Symbol>::read(file, table.sh_offset as usize, length)?;
    let names = Copied::<u8>::read(file, names.sh_offset as usize, names.sh_size as usize)?;
    let functions = functions.leak();
    let count = partition(functions);
    let functions = &mut functions[..count];
    functions.sort_unstable_by_key(|symbol| {
        // Prefers a name that is visible to other files.
        let global = symbol.st_info >> 4 != LOCAL;
        (symbol.st_value, global, symbol.st_name)
    });
    Some(Symbols { functions, names: names.leak() })
}

/// Moves functions that have an address to the front, and returns their number. In a program at a
/// fixed address, an undefined function may have an address, too: the address of its stub in the
/// PLT.
fn partition(symbols: &mut [Symbol]) -> usize {
    let mut count = 0;
    for at in 0..symbols.len() {
        let symbol = &symbols[at];
        if matches!(symbol.st_info & 0xf, FUNCTION | INDIRECT_FUNCTION) && symbol.st_value != 0 {
            symbols.swap(count, at);
            count += 1;
        }
    }
    count
}

impl Symbols {
    /// The name of the function at an address in the file.
    pub(super) fn name(&self, address: usize) -> Option<&'static str> {
        let after = self.functions.partition_point(|it| it.st_value as usize <= address);
        let symbol = self.functions[..after].last()?;
        let within = address - symbol.st_value as usize;
        if within != 0 && within >= symbol.st_size as usize {
            return None;
        }
        let text = CStr::from_bytes_until_nul(self.names.get(symbol.st_name as usize..)?).ok()?;
        // Ignores a symbol with an empty name.
        text.to_str().ok().filter(|name| !name.is_empty())
    }
}

/// A copied part of a file.
struct Copied<T: Plain> {
    pages: *mut T,
    count: usize,
}

/// A type for which any bytes are a valid value.
///
/// # Safety
///
/// Every bit pattern is a valid value of the type, and a page is aligned for it.
unsafe trait Plain: 'static {}
// SAFETY: an integer.
unsafe impl Plain for u8 {}
// SAFETY: a struct of integers, aligned to at most 8 bytes.
unsafe impl Plain for Header {}
// SAFETY: a struct of integers, aligned to at most 8 bytes.
unsafe impl Plain for Section {}
// SAFETY: a struct of integers, aligned to at most 8 bytes.
unsafe impl Plain for Symbol {}

impl<T: Plain> Copied<T> {
    fn read(file: &File, offset: usize, count: usize) -> Option<Self> {
        let bytes =
            count.checked_mul(size_of::<T>()).filter(|bytes| (1..=MAX_BYTES).contains(bytes))?;
        let copied = Self { pages: arena::map(bytes)?.cast(), count };
        // SAFETY: `map` returned `bytes` zero bytes, to which there is no other reference.
        let pages = unsafe { slice::from_raw_parts_mut(copied.pages.cast(), bytes) };
        file.read(offset, pages)?;
        Some(copied)
    }

    fn all(&mut self) -> &mut [T] {
        // SAFETY: `count` values were read to the pages, and any bytes are a valid `T`.
        unsafe { slice::from_raw_parts_mut(self.pages, self.count) }
    }

    /// Returns the values without ever unmapping them.
    fn leak(self) -> &'static mut [T] {
        let kept = std::mem::ManuallyDrop::new(self);
        // SAFETY: `count` values were read to the pages, which `ManuallyDrop` keeps mapped for
        // ever.
        unsafe { slice::from_raw_parts_mut(kept.pages, kept.count) }
    }
}

impl<T: Plain> Drop for Copied<T> {
    fn drop(&mut self) {
        // SAFETY: `pages` were mapped with this length, and `drop` has the only reference.
        unsafe { arena::unmap(self.pages.cast(), self.count * size_of::<T>()) };
    }
}
