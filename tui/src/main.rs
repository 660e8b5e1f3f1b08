//! `pfp-top`: the live viewer of pfp. See the library for how it is made.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pfp_top::cli::{self, Command};
use pfp_top::text::clean_lines;

fn main() -> ExitCode {
    let cli = cli::parse();
    let done = match cli.command {
        Some(Command::DemoWorkload { trial }) => demo_workload(trial).map(|()| 0),
        _ => cli::run(cli),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            let words = clean_lines(&format!("{error:#}"));
            // Who could read it may have gone; the status stays.
            let _ = writeln!(std::io::stderr(), "pfp-top: {words}");
            ExitCode::from(cli::exit_status(&error))
        }
    }
}

/// Runs the instrumented program that `demo` watches, until its standard input
/// ends: the viewer holds the other end, and no death of the viewer can leave it
/// open.
fn demo_workload(trial: bool) -> anyhow::Result<()> {
    if trial {
        pfp_demo::trial();
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        return Ok(());
    }
    let options = pfp_demo::Options::default();
    let stop = Arc::clone(&options.stop);
    std::thread::spawn(move || {
        // Nothing is ever sent; an error ends the reading just as well.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        stop.store(true, Ordering::Relaxed);
    });
    pfp_demo::run(&options)?;
    Ok(())
}
