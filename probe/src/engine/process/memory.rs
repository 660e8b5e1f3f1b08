//! The segment's blocks and pages, and private pages.

use std::sync::atomic::Ordering::Relaxed;
use std::{io, ptr};

use pfp_shm_layout::failure;
use pfp_shm_layout::segment::Segment;

use super::Process;
use crate::clock::{calibrate, counter};
use crate::errno;

/// Maps private memory that reads zero in a forked child.
pub(crate) fn private_pages(bytes: usize) -> Option<*mut u8> {
    errno::preserve(|| map_private(bytes).ok())
}

/// Maps private memory of zeros.
pub(crate) fn pages(bytes: usize) -> Option<*mut u8> {
    errno::preserve(|| map_pages(bytes).ok())
}

fn map_pages(bytes: usize) -> io::Result<*mut u8> {
    // SAFETY: a new mapping, at an address that the kernel chooses.
    let pages = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE
                | libc::MAP_ANONYMOUS
                | if cfg!(miri) { 0 } else { libc::MAP_NORESERVE },
            -1,
            0,
        )
    };
    if pages == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // A core dump does not need the pages.
    // SAFETY: advice about pages that were mapped just now.
    #[cfg(not(miri))]
    unsafe {
        libc::madvise(pages, bytes, libc::MADV_DONTDUMP)
    };
    // The address is exposed, because `Thread::region` computes the addresses of regions from it.
    let _ = pages.expose_provenance();
    Ok(pages.cast())
}

pub(super) fn map_private(bytes: usize) -> io::Result<*mut u8> {
    let pages = map_pages(bytes)?.cast::<libc::c_void>();
    // Miri does not know the flag, and cannot fork.
    if cfg!(miri) {
        return Ok(pages.cast());
    }
    // SAFETY: advice about pages that were mapped just now.
    if unsafe { libc::madvise(pages, bytes, libc::MADV_WIPEONFORK) } != 0 {
        let error = io::Error::last_os_error();
        // SAFETY: the pages were mapped just now, and no other code has their address.
        unsafe { libc::munmap(pages, bytes) };
        return Err(error);
    }
    Ok(pages.cast())
}

/// Repeats a call that a signal interrupted. A call that fails must leave nothing behind.
pub(super) fn uninterrupted<R>(mut ask: impl FnMut() -> io::Result<R>) -> io::Result<R> {
    /// The calls do not wait for anything, so signals cannot interrupt them for long.
    const CALL_ATTEMPTS: u32 = 16;
    for _ in 1..CALL_ATTEMPTS {
        match ask() {
            Err(error) if failure::errno_of(&error) == libc::EINTR => {}
            result => return result,
        }
    }
    ask()
}

/// Sets all counters of a chunk to 0.
pub(in crate::engine) fn clear_chunk(segment: &Segment, chunk: u32) {
    if let Some(chunk) = segment.chunk(chunk) {
        for bucket in &chunk.0 {
            bucket.store(0, Relaxed);
        }
    }
}

impl Process {
    /// Takes consecutive blocks of the pool, whose pages must be [backed](Self::back); `None` if
    /// the pool is used up.
    pub(crate) fn take_blocks(&self, count: u64) -> Option<u64> {
        self.ask_for_space(|segment| segment.reserve_blocks(count).ok())
    }

    /// Takes one block, which can be [released](Self::release_block).
    pub(crate) fn take_block(&self) -> Option<u64> {
        match self.spare_block.swap(0, Relaxed) {
            0 => self.take_blocks(1),
            block => Some(block),
        }
    }

    /// Releases an unused block, for the next call of [`Self::take_block`]. The process remembers
    /// only one released block; blocks that are released before it is taken again are lost.
    pub(crate) fn release_block(&self, block: u64) {
        let _ = self.spare_block.compare_exchange(0, block, Relaxed, Relaxed);
    }

    /// Backs a range of the segment before it is touched. `None` if memory runs out.
    pub(crate) fn back(&self, offset: usize, len: usize) -> Option<()> {
        self.ask_for_space(|segment| segment.back_or_count(offset, len).ok())
    }

    /// Requests space, unless there was none a moment ago: a request costs the host a system call,
    /// or a contended word.
    pub(in crate::engine) fn ask_for_space<R>(
        &self,
        ask: impl FnOnce(&Segment) -> Option<R>,
    ) -> Option<R> {
        let now = counter::stamp();
        let a_while = (calibrate::ticks_per_second() / 10.0) as u64;
        // The requests resume after `a_while` even if the counter ran backwards.
        if (1..=a_while).contains(&self.no_space_until.load(Relaxed).wrapping_sub(now)) {
            return None;
        }
        let found = errno::preserve(|| ask(&self.segment));
        if found.is_none() {
            self.no_space_until.store(now.wrapping_add(a_while), Relaxed);
        }
        found
    }
}
