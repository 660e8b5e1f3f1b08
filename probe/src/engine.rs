//! The engine: measures from `begin` to `end`, and creates the state for that.
//!
//! | word | meaning |
//! |---|---|
//! | point | a place in the program that is measured; a static with a name, which gets a number |
//! | region | one call of a point, from begin to end |
//! | context | a thread, or a task, fibre or interrupt that the program names: it has a clock and a stack |
//! | stack | the open regions of a context |
//! | tag | the word that a begin returns and an end takes; it identifies a region and its stack |
//! | place | the tag of the region that would begin next on a stack |
//! | covered | the sum of a context's ended regions, in ticks; nested regions count once |
//! | lane | a thread's part of the segment: its ring, its cells, its calls |
//! | record | what an end writes: 32 bytes in the ring |
//! | cell | a thread's figures for a point |
//! | edge | a thread's sums for a point and the point that called it |
//! | overflow lane | the lane for threads without one and for handlers; its cells are shared |
//! | fold | adds a page of records to the cells |
//! | marker | the address of the stack frame of an end or fold in progress |
//! | control word | a point's word in the segment: whether it is on, and its reset epoch |
//! | window | the time between two resets of a point; its figures start at zero in each |
//! | latched part | a region that has ended and is added to the next measurement of its point |
//! | back | to allocate the memory of a page of the segment before the page is touched |
//! | child | a process that was forked; until it makes its own segment it measures nothing |
//!
//! Modules are listed in the order of imports: each uses only modules above it.
//!
//! ```text
//! process_page, owner: whose memory this is     settings, names: the settings in the environment
//! local: the state of a thread, for the modules below
//! section, spin, lease, cold: work that one thread does once, while signals are blocked
//! state, facts: the state of a point, and the facts that the engine reads of it
//! region, regions: an open region; the state of a context
//! thread: the private state that leads to a lane     current: the word that leads to it
//! common: counters that a forked child continues
//! copies: how a copy of pfp calls the copy that leads in the same process
//! process: one segment, its memory, and its beacon, the file by which viewers find it
//! thread::{ring, calls}: records and edges as they are written
//! room: whether the stack has room for a slow path
//! overhead, clock_reading, measure: the hot path
//! fold, thread::{record, space}, busy: how the records of the ring are added to cells
//! allocs: what regions allocate     suspend: suspending a context     thread::lane: how a thread claims its lane
//! guard, lap: a region that lasts as long as a value     metered: points with amounts
//! registry, process::making: how a point and the process are made
//! calibrate, leader, image: work that is done when this copy of pfp is loaded
//! prepare: makes the process, a lane and a cell for a begin that lacks them
//! finish, slow: the slow paths of begins and ends     by_hand: ends that search for their region
//! elsewhere: time that no region measured, such as a device's     polls, future: futures
//! context, point, figures, numeric, reading, program: behind the public types
//! ```
//!
//! Three kinds of calls lead to modules further down: making the process calibrates, which measures
//! regions; the first search for the leader looks for other copies; and the functions that a leader
//! provides for other copies call the modules behind the public types.
//!
//! The public types call the engine by names that also exist in `none.rs`, the engine of a build
//! without measuring.

mod allocs;
pub(crate) mod boxes;
mod busy;
pub(crate) mod by_hand;
pub(crate) mod calibrate;
mod clock_reading;
pub(crate) mod cold;
mod common;
pub(crate) mod context;
pub(crate) mod copies;
pub(crate) mod current;
pub(crate) mod elsewhere;
pub(crate) mod facts;
pub(crate) mod figures;
mod finish;
mod fold;
pub(crate) mod future;
pub(crate) mod guard;
pub(crate) mod image;
mod lap;
mod leader;
pub(crate) mod lease;
pub(crate) mod local;
pub(crate) mod measure;
pub(crate) mod metered;
mod names;
pub(crate) mod numeric;
#[cfg(all(test, not(miri)))]
pub(crate) mod oracle;
pub(crate) mod overhead;
mod owner;
pub(crate) mod point;
pub(crate) mod polls;
pub(crate) mod prepare;
pub(crate) mod process;
mod process_page;
pub(crate) mod program;
pub(crate) mod reading;
mod region;
mod regions;
mod registry;
pub(crate) mod room;
mod section;
pub(crate) mod settings;
mod slow;
pub(crate) mod spin;
pub(crate) mod state;
mod suspend;
pub(crate) mod thread;

pub use self::guard::Guard;
pub use self::metered::MeteredPoint;
pub use crate::frame::__finish_frame;

/// Advice for the user if the system refuses shared memory, or private memory.
pub(crate) fn advice(is_private: bool, errno: i32) -> String {
    use pfp_shm_layout::failure::Stage;

    if is_private { Stage::Process } else { Stage::Segment }.advice(errno)
}
