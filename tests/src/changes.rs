//! Watches the bytes of a shared-memory object for changes. It maps the object without pfp's code,
//! and compares it page by page with the earlier content.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use pfp_shm_layout::name::Name;

const PAGE: usize = 4096;
const WORDS: usize = PAGE / 8;

/// An object whose writers pause during every comparison.
#[derive(Debug)]
pub struct Changes {
    file: File,
    map: *const u8,
    len: usize,
    /// Memory of the object, in blocks of the file system.
    blocks: u64,
    pages: Vec<Page>,
    /// The digest of all pages together.
    digest: u64,
}

#[derive(Debug)]
struct Page {
    offset: usize,
    words: Box<[u64; WORDS]>,
    digest: u64,
}

impl Changes {
    /// Maps an object; `None` while it does not exist, or its length is zero.
    #[must_use]
    pub fn of(name: &Name) -> Option<Self> {
        let file = File::open(Path::new("/dev/shm").join(&name.as_str()[1..])).ok()?;
        let len = file.metadata().ok()?.len() as usize;
        if len == 0 {
            return None;
        }
        // SAFETY: creates a mapping at an address that the kernel chooses.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(map, libc::MAP_FAILED, "{name}: {}", io::Error::last_os_error());
        let map = map.cast_const().cast();
        Some(Self { file, map, len, blocks: 0, pages: Vec::new(), digest: 0 })
    }

    /// Lists the changes since the last call: offset, old and new value of each word.
    pub fn look(&mut self) -> Vec<(usize, u64, u64)> {
        let blocks = self.file.metadata().map_or(0, |facts| facts.blocks());
        if blocks != self.blocks {
            self.blocks = blocks;
            self.take_new_pages();
        }
        let mut changed = Vec::new();
        for page in &mut self.pages {
            // SAFETY: the page is within the mapping, which lives as long as `self`, and the
            // writers pause during this call.
            let now = unsafe { &*self.map.add(page.offset).cast::<[u64; WORDS]>() };
            if *page.words == *now {
                continue;
            }
            for (at, (old, new)) in page.words.iter_mut().zip(now).enumerate() {
                if old != new {
                    changed.push((page.offset + at * 8, *old, *new));
                    *old = *new;
                }
            }
            self.digest = self.digest.wrapping_sub(page.digest);
            page.digest = digest(page.offset, &page.words);
            self.digest = self.digest.wrapping_add(page.digest);
        }
        changed
    }

    /// A number for the whole content: equal for equal bytes, and almost certainly different for
    /// different bytes.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Adds pages that have memory now. It does not touch other pages, since touching a page
    /// allocates it.
    fn take_new_pages(&mut self) {
        let seek = |from: usize, what| {
            // SAFETY: the call takes no pointers.
            let at = unsafe { libc::lseek(self.file.as_raw_fd(), from as libc::off_t, what) };
            usize::try_from(at).ok()
        };
        let mut from = 0;
        while let Some(start) = seek(from, libc::SEEK_DATA) {
            let end = seek(start, libc::SEEK_HOLE).unwrap_or(self.len).min(self.len);
            for offset in (start..end).step_by(PAGE) {
                if let Err(at) = self.pages.binary_search_by_key(&offset, |page| page.offset) {
                    let words = Box::new([0; WORDS]);
                    self.pages.insert(at, Page { offset, words, digest: 0 });
                }
            }
            from = end;
        }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        // SAFETY: `of` made the mapping, and only `self` refers to it.
        unsafe { libc::munmap(self.map.cast_mut().cast(), self.len) };
    }
}

/// The digest of a page of zeros is 0, so that allocating a page changes nothing.
fn digest(offset: usize, words: &[u64; WORDS]) -> u64 {
    words.iter().enumerate().filter(|(_, word)| **word != 0).fold(0, |sum, (at, &word)| {
        u64::wrapping_add(sum, mix((offset + at * 8) as u64 ^ mix(word)))
    })
}

/// The finalizer of SplitMix64.
fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}
