//! `pfp-top`: the live viewer of pfp. See the library for how it is made.

use std::process::ExitCode;

use clap::Parser;
use pfp_top::cli::{self, Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Some(Command::DemoWorkload) => {
            end_with_the_viewer();
            demo_workload().map(|()| 0)
        }
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

/// Ends this process when its standard input does: the viewer holds the other
/// end, and no death of the viewer can leave it open.
fn end_with_the_viewer() {
    std::thread::spawn(|| {
        // Nothing is ever sent; an error ends the reading just as well.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
}

/// Runs the instrumented program that `demo` watches.
fn demo_workload() -> anyhow::Result<()> {
    anyhow::bail!("this build carries no demo")
}
