//! What happens between `begin` and `end`, and what has to be there for it.
//!
//! ```text
//! process: one segment, its beacon          made at the first point, or by `init`
//! thread:  one lane, private state           claimed at the thread's first region
//!          its ring, the space of its cells, its calls, how it comes to its lane
//! current: the word that leads to it
//! measure: begin, end                        the hot path
//! guard:   regions that last as long as a value; lap: one after the other in one guard
//! fold:    what the thread's ring holds, added to its cells
//! calibrate, overhead: what measuring costs
//! ending:  the ends of guards that the hot path leaves to its doors
//! by_hand: regions that are begun and ended by hand
//! polls:   regions of futures, one a poll
//! elsewhere: what a device or the clock has measured
//! finish:  the end of all of these that are not on the hot path
//! moment, busy: how a thread reads its clock, and keeps its handlers out
//! regions: what a context keeps
//! context: tasks of the program's own
//! copies:  several copies of pfp in one process, which share all of this
//! settings, names: what the environment says
//! cold, turn: how what is done once is done, and by one thread
//! point, figures, future, numeric, reading, named, group, gpu: behind the public types
//! image:   what is done as the program is loaded, and as it ends
//! owner:   whose memory this is
//! ```
//!
//! The public types call what is here by the names that `none.rs` has too: the engine of a
//! build that does not measure.

mod busy;
pub(crate) mod by_hand;
pub(crate) mod calibrate;

pub(crate) mod cold;
pub(crate) mod context;
pub(crate) mod copies;
mod current;
pub(crate) mod elsewhere;
mod ending;
pub(crate) mod figures;
mod finish;
mod fold;
pub(crate) mod future;
#[cfg(feature = "cuda")]
pub(crate) mod gpu;
pub(crate) mod group;
pub(crate) mod guard;
mod image;
mod lap;
pub(crate) mod measure;
mod moment;
pub(crate) mod named;
mod names;
pub(crate) mod numeric;
#[cfg(all(test, not(miri)))]
pub(crate) mod oracle;
pub(crate) mod overhead;
mod owner;
pub(crate) mod point;
pub(crate) mod polls;
pub(crate) mod process;
pub(crate) mod reading;
mod regions;
pub(crate) mod settings;
pub(crate) mod thread;
pub(crate) mod turn;

pub use self::guard::Guard;
#[cfg(feature = "cuda")]
pub(crate) use crate::errno;
pub use crate::frame::__finish_frame;
pub(crate) use crate::snapshot;
pub use crate::timed::{Timed, TimedGuard};

/// What to do where the system refuses shared memory, or private memory.
pub(crate) fn advice(is_private: bool, errno: i32) -> String {
    use pfp_shm_layout::failure::Stage;

    if is_private { Stage::Process } else { Stage::Segment }.advice(errno)
}
