//! Switches: words that a *client*, code with the annotations of another tool such as ITT, reads as
//! the flags of its *domains*, groups of annotations.
//!
//! ```text
//! 63        32 31              0
//! +-----------+-----------------+
//! | resting   | flag: 0 is off  |    the last word of a page of control words
//! +-----------+-----------------+
//! ```
//!
//! A client reads the flag of a domain before each call to pfp. While the flag is 0, the client
//! makes no call, so the domain costs the program nothing, but pfp also gets no call in which it
//! could set the flag again. So pfp makes a switch rest when all points of the domain are off and
//! no region of it is open. The program or viewer that switches a point on
//! [wakes](crate::layout::segment::Segment::wake) all resting switches.
//!
//! A switch is the last word of its page, so that the program can map that page in front of private
//! memory with the rest of the domain, where no other process can write. A flag that the program
//! itself has set to 0 does not rest, and is left alone.

use crate::sync::{AtomicU64, Ordering};

/// The client makes the domain's calls.
pub const ON: u64 = 1;
/// The client makes no calls of the domain until the switch is woken.
const RESTING: u64 = 1 << 32;

/// Makes a switch rest; false if it is not on.
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
