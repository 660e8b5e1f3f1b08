//! Switches: words that clients of other tools read as the flag of a domain of theirs.
//!
//! ```text
//! 63        32 31              0
//! +-----------+-----------------+
//! | resting   | flag: 0 is off  |    the last word of a page of control words
//! +-----------+-----------------+
//! ```
//!
//! A client looks at its flag before each call. While it is 0, the domain costs the program
//! nothing, and nobody calls who could set it again. So the program puts it to rest when all
//! points of the domain are off and nothing in it is open, and whoever switches a point on,
//! in a viewer's process too, [wakes](crate::layout::segment::Segment::wake) all that rest.
//!
//! It is the last word of its page, so that the program can map that page in front of private
//! memory, which has the rest of the domain. Nobody else can write there. A flag that the
//! program itself has set to 0 does not rest, and is left alone.

use crate::sync::{AtomicU64, Ordering};

/// The domain is called.
pub const ON: u64 = 1;
/// It is not, until it is woken.
const RESTING: u64 = 1 << 32;

/// Puts a switch to rest; false if it is not on.
pub fn rest(word: &AtomicU64) -> bool {
    word.compare_exchange(ON, RESTING, Ordering::SeqCst, Ordering::Relaxed).is_ok()
}

/// Whether a switch rests.
pub fn rests(word: &AtomicU64) -> bool {
    word.load(Ordering::Relaxed) == RESTING
}

/// Wakes a switch, if it rests.
pub fn wake(word: &AtomicU64) {
    let _ = word.compare_exchange(RESTING, ON, Ordering::SeqCst, Ordering::Relaxed);
}
