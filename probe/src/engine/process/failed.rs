//! Why there is no process.

use std::sync::atomic::Ordering::Relaxed;

use pfp_shm_layout::failure::Stage;

use super::FAILED;
use crate::InitError;
use crate::engine::{cold, owner};

/// Stack that making the process takes, with room to spare: 8 KiB as it is built for a
/// release, half of it in what makes and opens objects.
pub(super) const STACK: usize = 16 << 10;

/// What failed as the process was made, and the system's error.
pub(super) struct Failed {
    pub(super) stage: Stage,
    pub(super) errno: i32,
}

impl Failed {
    /// Never 0, which says that none has failed.
    pub(super) fn pack(&self) -> u64 {
        let stage = if self.stage == Stage::Process { 2 } else { 1 };
        stage << 32 | u64::from(self.errno.cast_unsigned())
    }

    fn unpack(word: u64) -> Self {
        let stage = if word >> 32 == 2 { Stage::Process } else { Stage::Segment };
        Self { stage, errno: (word as u32).cast_signed() }
    }
}

/// Why there is no process, for a caller that has just asked for it in vain.
pub(in crate::engine) fn why_none() -> InitError {
    match FAILED.load(Relaxed) {
        0 if owner::is_anothers() => InitError::BorrowedMemory,
        0 if cold::has_less_stack(STACK) => InitError::SmallStack,
        0 => InitError::Busy,
        failed => Failed::unpack(failed).into(),
    }
}

/// What [`crate::init`] returned, as one word for another copy of pfp.
pub(in crate::engine) fn to_word(result: Result<(), InitError>) -> u64 {
    match result {
        Ok(()) => 0,
        Err(InitError::BorrowedMemory) => BORROWED,
        Err(InitError::SmallStack) => SMALL_STACK,
        Err(InitError::NoPrivateMemory { errno }) => Failed { stage: Stage::Process, errno }.pack(),
        Err(InitError::NoSharedMemory { errno }) => Failed { stage: Stage::Segment, errno }.pack(),
        Err(_) => BUSY,
    }
}

/// The reverse of [`to_word`].
pub(in crate::engine) fn from_word(word: u64) -> Result<(), InitError> {
    match word {
        0 => Ok(()),
        BORROWED => Err(InitError::BorrowedMemory),
        SMALL_STACK => Err(InitError::SmallStack),
        _ if word >> 32 == 0 => Err(InitError::Busy),
        failed => Err(Failed::unpack(failed).into()),
    }
}

const BUSY: u64 = 1;
const BORROWED: u64 = 2;
const SMALL_STACK: u64 = 3;

impl From<Failed> for InitError {
    fn from(Failed { stage, errno }: Failed) -> Self {
        match stage {
            Stage::Process => Self::NoPrivateMemory { errno },
            _ => Self::NoSharedMemory { errno },
        }
    }
}
