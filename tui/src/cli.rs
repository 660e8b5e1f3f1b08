//! The command line: commands, options and their texts.

mod arguments;
mod command_line;
mod commands;
mod config;
mod control;
mod demo;
mod diff;
mod doctor;
mod export;
mod gate;
mod headless;
mod kept;
mod manual;
mod missing;
mod options;
mod output;
#[cfg(feature = "otlp")]
mod push;
mod record;
mod roofline;
mod run;
mod serve;
mod show;
mod target;

pub use command_line::{Cli, Command, Saving, parse};
pub use commands::{exit_status, run};
pub use control::{PointCommand, Points};
pub use diff::Diff;
pub use export::Export;
pub use gate::Gate;
pub use options::{Show, When};
#[cfg(feature = "otlp")]
pub use push::Push;
pub use record::Record;
pub use roofline::Roofline;
pub use run::Run;
pub use serve::Serve;
pub use target::{Target, Via};
