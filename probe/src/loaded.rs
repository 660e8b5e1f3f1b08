//! The objects from which the program is loaded, found without a lock.
//!
//! `dl_iterate_phdr` takes a lock of the loader. In a forked child, a thread that only the parent
//! has may hold that lock for ever. So the program itself is found by its program headers, whose
//! address the kernel passes, and other objects by the C library's `_dl_find_object`, which takes
//! no lock. If that function is missing, the kernel's list of mappings is used.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{self, MaybeUninit};
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use crate::file::File;

#[cfg(target_pointer_width = "32")]
use libc::Elf32_Phdr as ProgramHeader;
#[cfg(target_pointer_width = "64")]
use libc::Elf64_Phdr as ProgramHeader;

/// Maximum length of a path in the list of mappings. Longer ones are cut.
const MAX_PATH: usize = 1024;

/// The program or a shared library.
#[derive(Debug)]
pub struct Loaded {
    /// Difference between its addresses in memory and in its file.
    pub base: usize,
    path: Path,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nothing here may allocate")]
enum Path {
    Program,
    /// A string of the loader, which is valid as long as the object is loaded.
    Lent(*const c_char),
    Copied([u8; MAX_PATH]),
}

impl Loaded {
    /// Finds the object that contains a code address. The object must stay loaded while the result
    /// is used. `None` for code that was generated at run time.
    #[must_use]
    pub fn around(code: usize) -> Option<Self> {
        program(code).or_else(|| match FIND_OBJECT.load(Relaxed) {
            find if find.is_null() => by_mappings(code),
            find => by_loader(code, find),
        })
    }

    /// Path of the object's file; empty for the program itself.
    #[must_use]
    pub fn path(&self) -> &CStr {
        match &self.path {
            Path::Program => c"",
            // SAFETY: the loader's string is NUL-terminated, and valid while the object is loaded,
            // as the caller of `around` has promised.
            Path::Lent(text) => unsafe { CStr::from_ptr(*text) },
            Path::Copied(text) => CStr::from_bytes_until_nul(text).unwrap_or_default(),
        }
    }
}

/// The program itself, if it contains the code.
fn program(code: usize) -> Option<Loaded> {
    // SAFETY: the calls take plain numbers and write no memory.
    let (headers, count, size) = unsafe {
        (
            libc::getauxval(libc::AT_PHDR) as usize,
            libc::getauxval(libc::AT_PHNUM) as usize,
            libc::getauxval(libc::AT_PHENT) as usize,
        )
    };
    if headers == 0 || size != size_of::<ProgramHeader>() {
        return None;
    }
    // SAFETY: the kernel has loaded `count` headers with the program, which stays loaded.
    let parts = unsafe { slice::from_raw_parts(ptr::with_exposed_provenance(headers), count) };
    let is_loaded = |part: &&ProgramHeader| part.p_type == libc::PT_LOAD;
    // The program headers follow the file's header, in the first page.
    let first = parts.iter().filter(is_loaded).find(|part| part.p_offset == 0)?;
    let base = (headers & !0xfff).wrapping_sub(first.p_vaddr as usize);
    let is_around = |part: &ProgramHeader| {
        let within = code.wrapping_sub(base).wrapping_sub(part.p_vaddr as usize);
        part.p_flags & libc::PF_X != 0 && within < part.p_memsz as usize
    };
    let is_own = parts.iter().filter(is_loaded).any(is_around);
    is_own.then_some(Loaded { base, path: Path::Program })
}

/// Address of `_dl_find_object` of glibc from 2.35 on; null in other C libraries.
static FIND_OBJECT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

type FindObject = unsafe extern "C" fn(*mut c_void, *mut Found) -> c_int;

/// The first fields of `struct dl_find_object` in `dlfcn.h`, which are equal on all architectures.
#[repr(C)]
struct Found {
    flags: u64,
    start: *mut c_void,
    end: *mut c_void,
    map: *const Map,
    rest: [u64; 16],
}

/// The public part of the loader's `struct link_map`.
#[repr(C)]
struct Map {
    base: usize,
    path: *const c_char,
}

/// Looks up `_dl_find_object` by its name. Called once, when the program is loaded, because the
/// lookup takes a lock.
pub(crate) fn look_up() {
    // SAFETY: the name is NUL-terminated.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_dl_find_object".as_ptr()) };
    FIND_OBJECT.store(found, Relaxed);
}

fn by_loader(code: usize, find: *mut c_void) -> Option<Loaded> {
    // SAFETY: the C library's function of that name has this type.
    let find = unsafe { mem::transmute::<*mut c_void, FindObject>(find) };
    let mut found = MaybeUninit::<Found>::uninit();
    // SAFETY: the function accepts any address, and `found` is large enough for the result.
    if unsafe { find(ptr::without_provenance_mut(code), found.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call has filled `found`, whose `map` is valid as long as the object is loaded.
    let Map { base, path } = unsafe { ptr::read((*found.as_ptr()).map) };
    // SAFETY: the pointer is not null here, and the text has at least its NUL.
    let is_program = path.is_null() || unsafe { *path } == 0;
    Some(Loaded { base, path: if is_program { Path::Program } else { Path::Lent(path) } })
}

/// Finds the object in the kernel's list of mappings. The object begins at its last mapping of file
/// offset 0 that is at or below the code.
#[cold]
#[inline(never)]
fn by_mappings(code: usize) -> Option<Loaded> {
    let mut first = Loaded { base: 0, path: Path::Copied([0; MAX_PATH]) };
    let mut is_found = false;
    each_mapping(|&Mapping { start, end, offset, path }| {
        let Path::Copied(text) = &mut first.path else { return };
        let path = &path[..path.len().min(MAX_PATH - 1)];
        let (known, rest) = text.split_at_mut(path.len());
        if !is_found && start <= code && offset == 0 && path.starts_with(b"/") {
            known.copy_from_slice(path);
            rest.fill(0);
            first.base = start;
        }
        is_found |=
            (start..end).contains(&code) && !path.is_empty() && known == path && rest[0] == 0;
    });
    is_found.then_some(first)
}

/// One line of the kernel's list of mappings.
#[derive(Clone, Copy, Debug)]
pub struct Mapping<'a> {
    /// The first address.
    pub start: usize,
    /// One past the last address.
    pub end: usize,
    /// Offset of the first byte in the file.
    pub offset: usize,
    /// The file, or a word in brackets for a mapping of the kernel; empty for anonymous memory.
    pub path: &'a [u8],
}

impl<'a> Mapping<'a> {
    /// Parses `start-end rights offset device inode   path`.
    fn of(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.splitn(6, |&byte| byte == b' ');
        let mut range = fields.next()?.splitn(2, |&byte| byte == b'-').map(number);
        let (start, end) = (range.next()??, range.next()??);
        let offset = number(fields.nth(1)?)?;
        let path = fields.nth(2).unwrap_or_default().trim_ascii_start();
        Some(Self { start, end, offset, path })
    }
}

fn number(digits: &[u8]) -> Option<usize> {
    usize::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

/// Calls a function for each mapping of the process.
pub fn each_mapping(mut each: impl FnMut(&Mapping<'_>)) {
    let Some(file) = File::open(c"/proc/self/maps") else { return };
    let mut bytes = [0u8; 1024];
    let mut line = [0u8; MAX_PATH + 128];
    let mut length = 0;
    while let Some(got @ 1..) = file.read_next(&mut bytes) {
        for &byte in bytes.iter().take(got) {
            if byte == b'\n' {
                Mapping::of(&line[..length]).iter().for_each(&mut each);
                length = 0;
            } else if let Some(place) = line.get_mut(length) {
                *place = byte;
                length += 1;
            }
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn code_of_the_program_is_known_as_such() {
        let own = code_of_the_program_is_known_as_such as fn() as usize;
        assert!(Loaded::around(own).is_some_and(|it| it.path().is_empty()));
        let path = by_mappings(own).expect("it is mapped").path().to_bytes().to_vec();
        let program = std::env::current_exe().expect("it runs");
        assert_eq!(str::from_utf8(&path).map(std::path::PathBuf::from), Ok(program));
    }

    /// Code of the program, of the C library, and of a library that is loaded later.
    #[cfg(target_env = "gnu")]
    fn codes() -> [usize; 3] {
        // SAFETY: the names are NUL-terminated.
        let loaded = unsafe {
            let library = libc::dlopen(c"libm.so.6".as_ptr(), libc::RTLD_NOW);
            libc::dlsym(library, c"cbrt".as_ptr())
        };
        let own = codes as fn() -> [usize; 3];
        [own as usize, libc::getpid as *const () as usize, loaded.addr()]
    }

    /// Finds the object with `dl_iterate_phdr`, which takes the loader's lock.
    #[cfg(target_env = "gnu")]
    fn by_list(code: usize) -> Option<(usize, Vec<u8>)> {
        struct Lookup(usize, Option<(usize, Vec<u8>)>);
        unsafe extern "C" fn look(
            info: *mut libc::dl_phdr_info,
            _: libc::size_t,
            search: *mut c_void,
        ) -> c_int {
            // SAFETY: `dl_iterate_phdr` passes a valid `dl_phdr_info`, and `search` is the caller's
            // `Lookup`.
            let (info, search) = unsafe { (&*info, &mut *search.cast::<Lookup>()) };
            // SAFETY: the loader states the number of headers, and the name ends in zero.
            let (parts, path) = unsafe {
                let count = usize::from(info.dlpi_phnum);
                (slice::from_raw_parts(info.dlpi_phdr, count), CStr::from_ptr(info.dlpi_name))
            };
            let base = info.dlpi_addr as usize;
            let within = search.0.wrapping_sub(base);
            let is_around = |part: &ProgramHeader| {
                part.p_type == libc::PT_LOAD
                    && within.wrapping_sub(part.p_vaddr as usize) < part.p_memsz as usize
            };
            if parts.iter().any(is_around) {
                search.1 = Some((base, path.to_bytes().to_vec()));
            }
            0
        }
        let mut search = Lookup(code, None);
        // SAFETY: the callback gets the `Lookup` that it expects.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
        search.1
    }

    /// Excluded on musl, where programs are static by default and have no loader.
    #[cfg(target_env = "gnu")]
    #[test]
    fn every_way_finds_what_the_loader_has_listed() {
        let of = |loaded: Loaded| (loaded.base, loaded.path().to_bytes().to_vec());
        for (code, is_own) in codes().into_iter().zip([true, false, false]) {
            let listed = by_list(code).expect("the loader knows it");
            assert_eq!(listed.1.is_empty(), is_own);
            assert_eq!(Loaded::around(code).map(of), Some(listed.clone()));
            assert_eq!(program(code).map(of), is_own.then(|| listed.clone()));
            let (base, path) = by_mappings(code).map(of).expect("it is mapped");
            // The mappings contain resolved paths, which may differ from the path by which the
            // program was started.
            let real = |path: &[u8]| match str::from_utf8(path).expect("plain text") {
                "" => std::env::current_exe().expect("it runs"),
                path => std::fs::canonicalize(path).expect("it is there"),
            };
            // An emulator has the files below a folder of its own.
            let is_same = real(&path) == real(&listed.1) || path.ends_with(&listed.1);
            assert!(is_same && base == listed.0, "{path:?} at {base:#x}, and not {listed:?}");
            let find = FIND_OBJECT.load(Relaxed);
            if !find.is_null() {
                assert_eq!(by_loader(code, find).map(of), Some(listed));
            }
        }
        for nowhere in [0, 1 << 12, (&raw const FIND_OBJECT).addr()] {
            assert!(Loaded::around(nowhere).is_none_or(|it| it.path().is_empty()), "{nowhere:#x}");
        }
        let here = 0u8;
        assert!(by_mappings((&raw const here).addr()).is_none(), "a stack is no object");
    }

    #[test]
    fn lines_of_the_list_are_read() {
        let line = b"7f00-8a00 r-xp 0000b000 fe:01 123456                     /a b/c (deleted)";
        let mapping = Mapping::of(line).expect("it is one");
        assert_eq!((mapping.start, mapping.end, mapping.offset), (0x7f00, 0x8a00, 0xb000));
        assert_eq!(mapping.path, b"/a b/c (deleted)");
        let anonymous = Mapping::of(b"7f00-8a00 rw-p 00000000 00:00 0 ").expect("it is one");
        assert_eq!(anonymous.path, b"");
        for end in 0..line.len() {
            // Incomplete lines cause no panic.
            let _ = Mapping::of(&line[..end]);
        }
    }
}
