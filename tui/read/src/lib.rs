//! Reads the profile points of running and ended programs, and the files that pfp writes.
//!
//! [`discover`] finds the processes of this user. [`attach`] watches one of them, and [`open()`]
//! reads a file; both return a [`Source`]. Its [`poll`](Source::poll) takes a [`Snapshot`]: plain
//! data, of the same form for processes and files. Nothing that comes from a process or a file is
//! trusted; the data that `poll` returns is checked, and safe to print.
//!
//! The ten hottest points of the process that started last:
//!
//! ```
//! use pfp_read::{attach, discover, total};
//!
//! fn main() -> anyhow::Result<()> {
//!     let found = discover()?;
//!     let Some(process) = found.candidates.iter().max_by_key(|it| it.started_unix_ns) else {
//!         println!("{}", found.nothing_found());
//!         return Ok(());
//!     };
//!     let snapshot = attach(process)?.poll()?;
//!     let mut points: Vec<_> = (snapshot.points.iter())
//!         .map(|point| (total(snapshot.cells_of(point.id)), &point.name))
//!         .collect();
//!     points.sort_by_key(|(total, _)| std::cmp::Reverse(total.exclusive));
//!     for (total, name) in points.iter().take(10) {
//!         let seconds = total.exclusive as f64 / snapshot.clock.ticks_per_second;
//!         println!("{seconds:>10.3} s  {:>10} calls  {name}", total.count);
//!     }
//!     Ok(())
//! }
//! ```
//!
//! | module | what it is | must not know |
//! |---|---|---|
//! | [`source`] | processes and files that snapshots come from | the views that show them |
//! | [`snapshot`] | an immutable picture of one process, plain data | everything else but the data of [`waits`] |
//! | [`files`] | snapshots and recordings, read and written | where snapshots come from |
//! | [`waits`] | what threads wait for, sampled from outside, by open region | files |
//! | [`session`] | a source, and what this program changed in it | the user interface |
//! | [`pattern`] | how points, threads and processes are named | what the names belong to |
//! | [`text`], [`units`], [`local_time`] | words, numbers and times for people | what the texts describe |

pub mod files;
pub mod local_time;
pub mod pattern;
pub mod session;
pub mod snapshot;
pub mod source;
pub mod text;
pub mod units;
pub mod waits;

pub use snapshot::{Snapshot, total};
pub use source::{Source, attach, discover, open};
