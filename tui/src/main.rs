//! `pfp-top`: the live viewer of pfp. See the library for how it is made.

use std::process::ExitCode;

use clap::Parser;
use pfp_top::cli::{self, Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Some(Command::DemoWorkload) => demo_workload().map(|()| 0),
        _ => cli::run(cli),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("pfp-top: {error:#}");
            ExitCode::from(cli::exit_status(&error))
        }
    }
}

/// Runs the instrumented program that `demo` watches, until it is killed or
/// its standard input ends.
fn demo_workload() -> anyhow::Result<()> {
    anyhow::bail!("this build carries no demo")
}
