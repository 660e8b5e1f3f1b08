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
    // SAFETY: a new mapping, at a place of the kernel's choice.
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
    // A core dump does not need them.
    // SAFETY: advice about pages that we have just mapped.
    #[cfg(not(miri))]
    unsafe {
        libc::madvise(pages, bytes, libc::MADV_DONTDUMP)
    };
    // The stacks of contexts are found by their addresses.
    let _ = pages.expose_provenance();
    Ok(pages.cast())
}

pub(super) fn map_private(bytes: usize) -> io::Result<*mut u8> {
    let pages = map_pages(bytes)?.cast::<libc::c_void>();
    // Miri knows neither that flag nor forks.
    if cfg!(miri) {
        return Ok(pages.cast());
    }
    // SAFETY: as above.
    if unsafe { libc::madvise(pages, bytes, libc::MADV_WIPEONFORK) } != 0 {
        let error = io::Error::last_os_error();
        // SAFETY: nobody has seen them yet.
        unsafe { libc::munmap(pages, bytes) };
        return Err(error);
    }
    Ok(pages.cast())
}

/// Repeats a call that a signal interrupted. A call that fails must leave nothing behind.
pub(super) fn uninterrupted<R>(mut ask: impl FnMut() -> io::Result<R>) -> io::Result<R> {
    /// None of these waits for anything, so no signal can keep it from its end for long.
    const TRIES: u32 = 16;
    for _ in 1..TRIES {
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
    /// Takes blocks of the pool in a row, whose pages are to be
    /// [backed](Self::back); none if there are no more.
    pub(crate) fn take_blocks(&self, count: u64) -> Option<u64> {
        self.ask_for_space(|segment| segment.reserve_blocks(count).ok())
    }

    /// Takes one block, which can be [given back](Self::give_back).
    pub(crate) fn take_block(&self) -> Option<u64> {
        match self.spare_block.swap(0, Relaxed) {
            0 => self.take_blocks(1),
            block => Some(block),
        }
    }

    /// Takes back a block that nobody has used. There is place for one: more are
    /// lost, as many as threads fail at the same moment.
    pub(crate) fn give_back(&self, block: u64) {
        let _ = self.spare_block.compare_exchange(0, block, Relaxed, Relaxed);
    }

    /// Backs a range of the segment before it is touched. None if there is no
    /// space.
    pub(crate) fn back(&self, offset: usize, len: usize) -> Option<()> {
        self.ask_for_space(|segment| segment.back_or_count(offset, len).ok())
    }

    /// Asks for space, unless there was none just now: to ask costs the host a system call, or a
    /// contended word.
    pub(in crate::engine) fn ask_for_space<R>(
        &self,
        ask: impl FnOnce(&Segment) -> Option<R>,
    ) -> Option<R> {
        let now = counter::stamp();
        let a_while = (calibrate::ticks_per_second() / 10.0) as u64;
        // No longer than that, also if the counter ran backwards.
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
