//! What happens between `begin` and `end`, and what has to be there for it.
//!
//! ```text
//! process: one segment, its beacon          made at the first point, or by `init`
//! thread:  one lane, private state           claimed at the thread's first region
//! measure: begin, end                        the hot path, and its cold doors
//! calibrate: what measuring costs
//! ending:  regions begun by hand, and the long way
//! regions: what a context keeps
//! context: tasks of the program's own
//! copies:  several copies of pfp in one process, which share all of this
//! settings, names: what the environment says
//! cold, turn: how what is done once is done, and by one thread
//! image:   what is done as the program is loaded, and as it ends
//! owner:   whose memory this is
//! ```

pub(crate) mod calibrate;
pub(crate) mod cold;
pub(crate) mod context;
pub(crate) mod copies;
pub(crate) mod ending;
mod image;
pub(crate) mod measure;
mod names;
#[cfg(all(test, not(miri)))]
pub(crate) mod oracle;
mod owner;
pub(crate) mod process;
mod regions;
pub(crate) mod settings;
pub(crate) mod thread;
pub(crate) mod turn;
