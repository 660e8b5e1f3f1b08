//! Why the process could not be made.

use std::sync::atomic::Ordering::Relaxed;

use pfp_shm_layout::failure::Stage;

use super::FAILED;
use crate::InitError;
use crate::engine::{cold, owner};

/// Free stack that making the process requires: twice the 8 KiB that a release build uses. The code
/// that makes and opens objects uses half of the 8 KiB.
pub(super) const STACK: usize = 16 << 10;

/// The part of the process that could not be made, and the system's error.
pub(super) struct Failed {
    pub(super) stage: Stage,
    pub(super) errno: i32,
}

impl Failed {
    /// Packs the failure into a word. The word is never 0, because 0 means that nothing has failed.
    pub(super) fn pack(&self) -> u64 {
        let stage = if self.stage == Stage::Process { 2 } else { 1 };
        stage << 32 | u64::from(self.errno.cast_unsigned())
    }

    fn unpack(word: u64) -> Self {
        let stage = if word >> 32 == 2 { Stage::Process } else { Stage::Segment };
        Self { stage, errno: (word as u32).cast_signed() }
    }
}

const BUSY: u64 = 1;
const BORROWED_MEMORY: u64 = 2;
const SMALL_STACK: u64 = 3;

/// Why there is no process, for a caller that has just failed to make one. The reason is a word,
/// which copies of pfp can pass to one another.
pub(in crate::engine) fn why_none() -> u64 {
    match FAILED.load(Relaxed) {
        0 if owner::is_anothers() => BORROWED_MEMORY,
        0 if cold::has_less_stack(STACK) => SMALL_STACK,
        0 => BUSY,
        failed => failed,
    }
}

/// The public error for a reason that [`why_none`] returned.
pub(in crate::engine) fn error(why: u64) -> InitError {
    match why {
        BUSY => InitError::Busy,
        BORROWED_MEMORY => InitError::BorrowedMemory,
        SMALL_STACK => InitError::SmallStack,
        failed => match Failed::unpack(failed) {
            Failed { stage: Stage::Process, errno } => InitError::NoPrivateMemory { errno },
            Failed { errno, .. } => InitError::NoSharedMemory { errno },
        },
    }
}
