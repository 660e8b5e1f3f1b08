//! A preloaded library for programs of every kind.
//!
//! Children inherit `LD_PRELOAD`. In a 32-bit program, glibc's loader cannot load the library and
//! prints an error into the program's output; musl's loader ends the program. So the variable
//! contains a path that leads each loader to an object that it can load:
//!
//! ```text
//! FOLDER/$PLATFORM/libpfp.so
//!        x86_64/libpfp.so -> the library    glibc, 64 bits
//!        i686/libpfp.so      an empty one   glibc, 32 bits
//!        $PLATFORM/libpfp.so an empty one   musl, which does not expand the word
//! ```

use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::log;
use pfp_read::files::atomic_file::{self, Existing};

/// A word that glibc replaces by the processor's name in paths; musl does not replace it.
const WORD: &str = "$PLATFORM";
/// The processor's names in glibc's 64-bit loader. Some versions have special names for newer
/// processors.
const WIDE: [&str; 3] = ["x86_64", "haswell", "xeon_phi"];
/// The names that the kernel reports for the processor in 32-bit programs.
const NARROW: [&str; 4] = ["i686", "i586", "i486", "i386"];

/// Word size of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bits {
    B32,
    B64,
}

/// A path by which any program can preload the library. The library's own path if the links cannot
/// be made.
pub(super) fn path_for(library: &Path) -> PathBuf {
    let made = cfg!(target_arch = "x86_64").then(|| make(&log::folder().ok()?, library).ok());
    made.flatten().unwrap_or_else(|| library.to_owned())
}

/// Makes the objects and links for a library, unless they exist.
fn make(state: &Path, library: &Path) -> io::Result<PathBuf> {
    let name = library.file_name().unwrap_or(OsStr::new("libpfp.so"));
    let mut hash = DefaultHasher::new();
    library.hash(&mut hash);
    let folder = state.join("preload").join(format!("{:016x}", hash.finish()));
    let place = |platform: &str| -> io::Result<PathBuf> {
        let folder = folder.join(platform);
        std::fs::create_dir_all(&folder)?;
        Ok(folder.join(name))
    };
    let unless_there = |made: io::Result<()>| match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    };
    for platform in WIDE {
        unless_there(symlink(library, place(platform)?))?;
    }
    for (platform, bits) in NARROW.map(|it| (it, Bits::B32)).into_iter().chain([(WORD, Bits::B64)])
    {
        let fill = |out: &mut dyn io::Write| out.write_all(&empty(bits));
        unless_there(atomic_file::write(&place(platform)?, Existing::Keep, fill))?;
    }
    place(WORD)
}

/// An x86 shared object without code, dependencies and symbols; see elf(5).
fn empty(bits: Bits) -> Vec<u8> {
    const LOAD: u32 = 1;
    const DYNAMIC: u32 = 2;
    const READABLE: u32 = 4;
    let (class, machine, header, segment, entry, symbol) = match bits {
        Bits::B32 => (1_u8, 3_u16, 52_u32, 32_u32, 8_u32, 16_u32),
        Bits::B64 => (2, 62, 64, 56, 16, 24),
    };
    // After the headers: the dynamic table of six entries, a symbol, a name, a hash table.
    let table = header + 2 * segment;
    let symbols = table + 6 * entry;
    let names = symbols + symbol;
    let hashes = (names + 1).next_multiple_of(4);
    let end = hashes + 16;

    let mut object = Vec::new();
    let word = |number: u32| match bits {
        Bits::B32 => number.to_le_bytes().to_vec(),
        Bits::B64 => u64::from(number).to_le_bytes().to_vec(),
    };
    object.extend([0x7f, b'E', b'L', b'F', class, 1, 1]);
    object.resize(16, 0);
    // An ELF shared object (type 3) of version 1.
    object.extend([3_u16, machine].map(u16::to_le_bytes).concat());
    object.extend(1_u32.to_le_bytes());
    object.extend([word(0), word(header), word(0)].concat());
    object.extend(0_u32.to_le_bytes());
    let sizes = [header as u16, segment as u16, 2, 0, 0, 0];
    object.extend(sizes.map(u16::to_le_bytes).concat());
    for (kind, from, until, align) in [(LOAD, 0, end, 4096), (DYNAMIC, table, symbols, 8)] {
        let place = [word(from), word(from), word(from), word(until - from), word(until - from)];
        object.extend(kind.to_le_bytes());
        if bits == Bits::B64 {
            object.extend(READABLE.to_le_bytes());
        }
        object.extend(place.concat());
        if bits == Bits::B32 {
            object.extend(READABLE.to_le_bytes());
        }
        object.extend(word(align));
    }
    // DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_NULL.
    for (tag, value) in [(4, hashes), (5, names), (6, symbols), (10, 1), (11, symbol), (0, 0)] {
        object.extend([word(tag), word(value)].concat());
    }
    object.resize(hashes as usize, 0);
    // One bucket and one symbol, the null symbol.
    object.extend([1_u32, 1, 0, 0].map(u32::to_le_bytes).concat());
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::{Object, ObjectKind};

    #[test]
    fn the_empty_objects_are_shared_objects_of_either_size() {
        for (bits, is_64) in [(Bits::B32, false), (Bits::B64, true)] {
            let bytes = empty(bits);
            let object = object::File::parse(bytes.as_slice()).expect("an object");
            assert_eq!((object.is_64(), object.kind()), (is_64, ObjectKind::Dynamic));
            assert_eq!(object.dynamic_symbols().count(), 0);
        }
    }

    #[test]
    fn existing_stubs_are_reused() {
        let state = tempfile::tempdir().expect("a folder");
        let library = Path::new("/lib/libx.so");
        let made = make(state.path(), library).expect("there is room");
        assert_eq!(make(state.path(), library).expect("it is there"), made);
        let wide = made.to_str().expect("plain text").replace(WORD, "x86_64");
        assert_eq!(std::fs::read_link(wide).expect("a link"), library);
        assert_ne!(make(state.path(), Path::new("/lib64/libx.so")).expect("another"), made);
    }
}
