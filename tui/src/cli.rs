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
mod slow;
mod target;
mod waits;
mod words;

pub use command_line::{Cli, Command, Saving, parse};
pub use commands::{exit_status, run};
pub use control::{PointCommand, PointsArgs};
pub use diff::DiffArgs;
pub use export::ExportArgs;
pub use gate::GateArgs;
pub use options::{ShowArgs, When};
#[cfg(feature = "otlp")]
pub use push::PushArgs;
pub use record::RecordArgs;
pub use roofline::RooflineArgs;
pub use run::RunArgs;
pub use serve::ServeArgs;
pub use target::{TargetArgs, ViaArgs};
