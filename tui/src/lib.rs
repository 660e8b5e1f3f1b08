//! `pfp-top`, the viewer of pfp: the profile points of a running program,
//! live in a terminal.
//!
//! The flow of data through this crate:
//!
//! ```text
//! source -> snapshot -> model -> common -> screens -> app -> view -> event_loop
//!                            \-> export
//! ```
//!
//! | module | what it is | must not know |
//! |---|---|---|
//! | [`source`] | processes and files that snapshots come from | the screen |
//! | [`snapshot`] | an immutable picture of one process, plain data | everything else |
//! | [`files`] | snapshots and recordings, read and written | where snapshots come from |
//! | [`model`] | snapshots folded into the figures that are shown | terminals, shared memory |
//! | [`pattern`] | how points, threads and processes are named | what has names |
//! | [`session`] | a source, and what this viewer changed in it | the screen |
//! | [`columns`] | the columns of the table: what they show, how they sort | who draws them |
//! | [`filter`] | which points pass, as people type it | who asks |
//! | [`summing`] | sums of a snapshot, for a viewer far away | the line |
//! | [`compare`] | figures beside a baseline: verdicts, columns, as text | the screen |
//! | [`common`] | what the app shares with its screens: actions, keys, prompts, the model | which screens there are |
//! | [`screens`] | one type a screen: its state, keys, clicks, rows and drawing | one another |
//! | [`app`] | what actions do: on the screen that is shown, and everywhere | how it is drawn |
//! | [`view`] | what stands around a screen | how anything changes |
//! | [`event_loop`] | polls, keys and frames on a real terminal | what is shown |
//! | [`styles`] | colours, signs and charts, which all screens draw with | what is drawn |
//! | [`grid`] | tables of aligned cells, and where they are scrolled to | what is in them |
//! | [`export`] | the same figures as text and files | the screen |
//! | [`roofline`] | what the machine can do at most | processes, the screen |
//! | `agent` | a place's processes for a viewer elsewhere | the screen |
//! | [`serve`] | the same figures over HTTP | the screen |
//! | `push` | the same figures to a collector; with the feature `otlp` | the screen |

mod agent;
mod alpha;
pub mod app;
pub mod cli;
pub mod columns;
pub mod common;
pub mod compare;
pub mod event_loop;
pub mod export;
pub mod files;
pub mod filter;
pub mod grid;
pub mod headline;
pub mod interrupt;
pub mod local_time;
pub mod model;
mod modes;
pub mod pattern;
#[cfg(feature = "otlp")]
pub mod push;
pub mod roofline;
pub mod screens;
pub mod serve;
pub mod session;
mod signals;
pub mod snapshot;
pub mod source;
pub mod styles;
pub mod summing;
pub mod text;
pub mod units;
pub mod variables;
pub mod view;
