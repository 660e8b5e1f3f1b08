//! The names of an object's functions, from its file.
//!
//! The tables are copied, not mapped: a file may be written anew under a program
//! that runs, and reading what is gone from it would be the program's end.

use std::ffi::CStr;
use std::slice;

#[cfg(target_pointer_width = "32")]
use libc::{Elf32_Ehdr as Header, Elf32_Shdr as Section, Elf32_Sym as Symbol};
#[cfg(target_pointer_width = "64")]
use libc::{Elf64_Ehdr as Header, Elf64_Shdr as Section, Elf64_Sym as Symbol};

use probe::c::File;

use crate::arena;

// Of the format of object files.
const SYMBOLS: u32 = 2;
const DYNAMIC_SYMBOLS: u32 = 11;
const FUNCTION: u8 = 2;
const INDIRECT_FUNCTION: u8 = 10;
const LOCAL: u8 = 0;

/// No table of symbols is longer than this.
const MAX_BYTES: usize = 1 << 30;

/// Functions by address; empty if the file has been stripped, or cannot be read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Symbols {
    /// By address, and of several at one address the best last.
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
        // Of the names of one function, one that other files may use.
        let global = symbol.st_info >> 4 != LOCAL;
        (symbol.st_value, global, symbol.st_name)
    });
    Some(Symbols { functions, names: names.leak() })
}

/// Brings functions that have an address to the front; how many there are. In a
/// program at a fixed place, so may be those of its libraries.
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
    /// The name of the function at an address of the object's own.
    pub(super) fn name(&self, address: usize) -> Option<&'static str> {
        let after = self.functions.partition_point(|it| it.st_value as usize <= address);
        let symbol = self.functions[..after].last()?;
        let within = address - symbol.st_value as usize;
        if within != 0 && within >= symbol.st_size as usize {
            return None;
        }
        let text = CStr::from_bytes_until_nul(self.names.get(symbol.st_name as usize..)?).ok()?;
        // A symbol without a name is none.
        text.to_str().ok().filter(|name| !name.is_empty())
    }
}

/// Part of a file, copied.
struct Copied<T: Plain> {
    pages: *mut T,
    count: usize,
}

/// What any bytes are a value of.
///
/// # Safety
///
/// That it is so, and that its alignment is at most that of a page.
unsafe trait Plain: 'static {}
// SAFETY: integers only, as in the three below.
unsafe impl Plain for u8 {}
// SAFETY: see above.
unsafe impl Plain for Header {}
// SAFETY: see above.
unsafe impl Plain for Section {}
// SAFETY: see above.
unsafe impl Plain for Symbol {}

impl<T: Plain> Copied<T> {
    fn read(file: &File, offset: usize, count: usize) -> Option<Self> {
        let bytes =
            count.checked_mul(size_of::<T>()).filter(|bytes| (1..=MAX_BYTES).contains(bytes))?;
        let copied = Self { pages: arena::map(bytes)?.cast(), count };
        // SAFETY: the pages just mapped.
        let pages = unsafe { slice::from_raw_parts_mut(copied.pages.cast(), bytes) };
        file.read(offset, pages)?;
        Some(copied)
    }

    fn all(&mut self) -> &mut [T] {
        // SAFETY: read, and any bytes will do.
        unsafe { slice::from_raw_parts_mut(self.pages, self.count) }
    }

    /// Keeps it for good.
    fn leak(self) -> &'static mut [T] {
        let kept = std::mem::ManuallyDrop::new(self);
        // SAFETY: as in `all`; nobody gives them back.
        unsafe { slice::from_raw_parts_mut(kept.pages, kept.count) }
    }
}

impl<T: Plain> Drop for Copied<T> {
    fn drop(&mut self) {
        // SAFETY: mapped with this length, and borrowed no more.
        unsafe { arena::unmap(self.pages.cast(), self.count * size_of::<T>()) };
    }
}
