//! `pfp-top`: the live viewer of pfp. See the library for how it is made.

use std::process::ExitCode;

use pfp_read::text::warn;
use pfp_top::cli::{self, Command};

fn main() -> ExitCode {
    let cli = cli::parse();
    let done = match cli.command {
        Some(Command::DemoWorkload { trial }) => {
            if trial {
                pfp_demo::measure_once();
                Ok(0)
            } else {
                pfp_demo::run_until_input_ends().map(|_| 0).map_err(Into::into)
            }
        }
        _ => cli::run(cli),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            warn(&format!("{error:#}"));
            ExitCode::from(cli::exit_status(&error))
        }
    }
}
