//! Dispatches the commands, and determines the exit status.

use std::io;

use anyhow::{Result, bail};

use super::command_line::{Cli, Command, Saving};
use super::control::{self, PointCommand};
use super::missing::missing;
use super::output::{overwrite, print, written};
use super::target::ViaArgs;
use super::{
    demo, diff, doctor, export, gate, manual, record, roofline, run as program, serve, show, slow,
    waits,
};
use crate::interrupt::Interrupt;
use pfp_export::list;
use pfp_read::files::json;
use pfp_read::source::{self, Refusal};
use pfp_read::text::{clean, warn};
use pfp_remote as remote;
use pfp_remote::Machine;

/// Exit status of failures whose cause is not a [`Refusal`].
const FAILURE: u8 = 2;

/// Runs the command; returns the exit status.
pub fn run(cli: Cli) -> Result<u8> {
    match cli.command {
        None => show::watch(&cli.show, &cli.target),
        Some(Command::Demo { show }) => demo::run(&show),
        Some(Command::Run(run)) => program::run(&run),
        Some(Command::Open { files, sum, at, show }) => show::open(&files, sum, at.as_ref(), &show),
        Some(Command::Record(record)) => record::run(&record),
        Some(Command::Snapshot(saving)) => snapshot(&saving),
        Some(Command::SaveRaw(Saving { target, output, force })) => {
            let copy = target.resolve()?.copy_raw();
            let saved = copy.and_then(|copy| copy.write(&output, overwrite(force)));
            written(saved, &output).map(|()| 0)
        }
        Some(Command::Diff(asked)) => diff::run(&asked),
        Some(Command::Export(export)) => export::run(&export),
        Some(Command::Serve(serve)) => serve::run(&serve),
        Some(Command::Roofline(asked)) => roofline::run(&asked),
        Some(Command::Waits(asked)) => waits::run(&asked),
        Some(Command::Slow(asked)) => slow::run(&asked),
        Some(Command::Watch(asked)) => control::watch(&asked),
        #[cfg(feature = "otlp")]
        Some(Command::Push(push)) => super::push::run(&push),
        Some(Command::Gate(asked)) => gate::run(&asked),
        Some(Command::Enable(points)) => control::switch(&points, true),
        Some(Command::Disable(points)) => control::switch(&points, false),
        Some(Command::Reset(points)) => control::run(&points, PointCommand::Reset),
        Some(Command::Alpha { weight, points }) => control::run(&points, weight),
        Some(Command::List { json, via }) => list_processes(json, &via),
        Some(Command::Gc) => gc(),
        Some(Command::Doctor { part, json }) => doctor::run(part, json),
        Some(Command::Completions { shell }) => manual::completions(shell),
        Some(Command::Man { folder }) => manual::man(folder.as_deref()),
        Some(Command::Agent { enter }) => agent(enter),
        Some(Command::DemoWorkload { .. }) => {
            bail!("the demo's program is started by `pfp-top demo`")
        }
    }
}

/// The exit status that names the cause of a failure for scripts.
pub fn exit_status(error: &anyhow::Error) -> u8 {
    let refusal = error.chain().find_map(|cause| cause.downcast_ref::<Refusal>());
    refusal.map_or(FAILURE, Refusal::exit_status)
}

/// Serves the viewer that has started this agent.
fn agent(enter: Option<u32>) -> Result<u8> {
    // Ctrl-C at the viewer's terminal is meant for the viewer; the agent ends when its input ends.
    // SAFETY: `signal` takes two plain numbers; SIG_IGN installs no handler.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
    let mut finder = match enter {
        Some(pid) => {
            remote::enter(pid)?;
            Machine::default()
        }
        None => Machine::all(false),
    };
    // Installed after `enter`, which requires a single-threaded process: this starts a thread.
    let interrupt = Interrupt::install()?;
    pfp_remote::agent::run(io::stdin(), io::stdout(), &mut finder, move || interrupt.wait())?;
    Ok(0)
}

fn snapshot(Saving { target, output, force }: &Saving) -> Result<u8> {
    let mut source = target.resolve()?;
    let mut snapshot = source.poll()?;
    source.add_records(&mut snapshot);
    // A signal now ends the process only after the file is written, unless that takes long.
    let _interrupt = Interrupt::install()?;
    written(json::write(&snapshot, output, overwrite(*force)), output)?;
    Ok(missing(source.as_ref()))
}

fn list_processes(json: bool, via: &ViaArgs) -> Result<u8> {
    let discovery = via.finder()?.discover()?;
    if json {
        print(&list::json(&discovery)?)?;
    }
    if discovery.candidates.is_empty() {
        return Err(Refusal::NoTarget(discovery.nothing_found()).into());
    }
    if json {
        return Ok(0);
    }
    let mut text =
        format!("{:<7} {:<8} {:<8} {:>6}  {}\n", "Number", "PID", "State", "Points", "Name");
    for c in &discovery.candidates {
        let state = c.state_word();
        let (number, pid) = (discovery.number_of(c), c.visible_pid());
        text += &format!("{number:<7} {pid:<8} {state:<8} {:>6}  {}\n", c.points, c.label());
    }
    print(&text)?;
    discovery.not_shown().for_each(|why| warn(&why));
    Ok(0)
}

fn gc() -> Result<u8> {
    let removed = source::gc()?;
    // Names come from other programs and may have control characters.
    let text: String = removed.iter().map(|line| clean(line).into_owned() + "\n").collect();
    print(if text.is_empty() { "nothing to remove\n" } else { &text })?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_keep_their_exit_status_in_wrapped_errors() {
        let wrapped =
            |refusal: Refusal| exit_status(&anyhow::Error::from(refusal).context("while trying"));
        assert_eq!(wrapped(Refusal::NoTarget(String::new())), 3);
        assert_eq!(wrapped(Refusal::Permission(String::new())), 4);
        assert_eq!(wrapped(Refusal::Version(String::new())), 5);
        assert_eq!(exit_status(&anyhow::anyhow!("else")), 2);
    }
}
