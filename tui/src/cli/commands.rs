//! Each command, from its words to its exit status.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::control::{self, Deed};
use super::{
    Cli, Command, Show, Target, demo, doctor, export, gate, headless, manual, run as program, serve,
};
use crate::app::{self, App};
use crate::export::diff;
use crate::export::json::{self, Overwrite, WriteError};
use crate::export::list;
use crate::interrupt::Interrupt;
use crate::model::compare::{Baseline, Comparison};
use crate::snapshot::ProcessState;
use crate::source::{self, Choice, Machine, Moment, Refusal, Source, Wanted, choose};
use crate::text;

/// Exit status of a comparison that found more than it was to allow.
const SLOWER: u8 = 1;
/// Exit status of everything that has none of its own.
const TROUBLE: u8 = 2;
/// Exit status of what finds nothing to show, as of [`Refusal::NoTarget`].
pub(super) const NO_TARGET: u8 = 3;
/// Exit status of a program that a signal asked to end, as shells have it.
pub(super) const INTERRUPTED: u8 = 130;

/// Does what the command line asks for; returns the exit status.
pub fn run(cli: Cli) -> Result<u8> {
    match cli.command {
        None => watch(&cli.show, &cli.target),
        Some(Command::Demo { show }) => demo::run(&show),
        Some(Command::Run(run)) => program::run(&run),
        Some(Command::Open { file, at, show }) => open(&file, at.as_ref(), &show),
        Some(Command::Record(record)) => super::record::run(&record),
        Some(Command::Snapshot { target, output, force }) => {
            snapshot(&target, &output, overwrite(force))
        }
        Some(Command::SaveRaw { target, output, force }) => {
            let saved = resolve(&target)?.save_raw(&output, overwrite(force));
            written(saved, &output)
        }
        Some(Command::Diff { before, now, from, at, json, markdown, fail_over }) => {
            let form = match (json, markdown) {
                (true, _) => diff_json,
                (_, true) => diff_markdown,
                _ => diff_table,
            };
            diff((&before, from.as_ref()), (&now, at.as_ref()), form, fail_over)
        }
        Some(Command::Export(export)) => export::run(&export),
        Some(Command::Serve(serve)) => serve::run(&serve),
        Some(Command::Gate(asked)) => gate::run(&asked),
        Some(Command::Enable(points)) => control::run(&points, Deed::Enable),
        Some(Command::Disable(points)) => control::run(&points, Deed::Disable),
        Some(Command::Reset(points)) => control::run(&points, Deed::Reset),
        Some(Command::Alpha { weight, points }) => control::run(&points, weight),
        Some(Command::List { json }) => list_processes(json),
        Some(Command::Gc) => gc(),
        Some(Command::Doctor { part, json }) => doctor::run(part, json),
        Some(Command::Completions { shell }) => manual::completions(shell),
        Some(Command::Man { folder }) => manual::man(folder.as_deref()),
        Some(Command::DemoWorkload) => bail!("the demo's program is started by `pfp-top demo`"),
    }
}

/// The exit status that tells scripts why the program failed.
pub fn exit_status(error: &anyhow::Error) -> u8 {
    let refusal = error.chain().find_map(|cause| cause.downcast_ref::<Refusal>());
    refusal.map_or(TROUBLE, Refusal::exit_status)
}

fn watch(show: &Show, target: &Target) -> Result<u8> {
    if is_headless(show) {
        return show_source(show, resolve(target)?);
    }
    let mut options = show.options(target.wanted());
    options.together = target.together();
    let mut app = App::new(options, Box::new(Machine), Instant::now());
    if let Some(file) = &show.baseline {
        app.compare_with(baseline(file)?);
    }
    interact(&mut app, show)
}

/// Shows one source, on the screen or as text.
pub(super) fn show_source(show: &Show, source: Box<dyn Source>) -> Result<u8> {
    if is_headless(show) {
        let slept = headless::print(source, show, &Interrupt::install()?)?;
        return Ok(if slept { 0 } else { INTERRUPTED });
    }
    let now = Instant::now();
    let mut app = App::new(show.options(Wanted::default()), Box::new(Machine), now);
    if let Some(file) = &show.baseline {
        app.compare_with(baseline(file)?);
    }
    app.watch(source, now);
    interact(&mut app, show)
}

/// Shows a file: on the screen a recording begins with its first snapshot, as text it
/// is the last one, where no moment is asked for.
fn open(file: &Path, at: Option<&Moment>, show: &Show) -> Result<u8> {
    let mut source = source::open_at(file, at)?;
    if let Some(recording) = source.recording() {
        if let Some(remark) = recording.remark().filter(|_| is_headless(show)) {
            // Whether anybody reads it changes nothing.
            let _ = writeln!(io::stderr(), "pfp-top: {}: {remark}", file.display());
        }
        if at.is_none() && !is_headless(show) {
            recording.seek(0);
        }
    }
    show_source(show, source)
}

fn interact(app: &mut App, show: &Show) -> Result<u8> {
    app::run(app, &show.look(), &Interrupt::install()?)?;
    Ok(0)
}

pub(super) fn is_headless(show: &Show) -> bool {
    let is_asked = show.once || show.batch || show.json || show.csv || show.table;
    is_asked || !io::stdout().is_terminal()
}

/// The one process that is wanted, or why there is none.
pub(super) fn resolve(target: &Target) -> Result<Box<dyn Source>> {
    if let Some(together) = target.together() {
        return source::attach_together(&together);
    }
    let (discovery, wanted) = (source::discover()?, target.wanted());
    match choose(&discovery, &wanted) {
        Choice::One(candidate) => source::attach(&candidate),
        Choice::Several(several) => {
            let names: Vec<_> = several.iter().map(|c| format!("{}[{}]", c.name, c.pid)).collect();
            bail!("expected one process, found {}: choose with -p PID, or --all", names.join(", "))
        }
        Choice::None => Err(discovery.why_none(&wanted).into()),
    }
}

fn snapshot(target: &Target, path: &Path, overwrite: Overwrite) -> Result<u8> {
    let interrupt = Interrupt::install()?;
    let mut source = resolve(target)?;
    let mut snapshot = source.poll()?;
    source.add_records(&mut snapshot);
    if interrupt.raised() {
        return Ok(INTERRUPTED);
    }
    written(json::write(&snapshot, path, overwrite), path)
}

fn overwrite(force: bool) -> Overwrite {
    if force { Overwrite::Yes } else { Overwrite::No }
}

/// The exit status of writing a file.
fn written(result: Result<(), WriteError>, path: &Path) -> Result<u8> {
    let shown = path.display();
    match result {
        Ok(()) => Ok(0),
        Err(WriteError::Exists) => bail!("{shown} exists already: give another name, or --force"),
        Err(WriteError::Io(error)) => {
            Err(error).with_context(|| format!("{shown} was not written"))
        }
    }
}

/// A snapshot file as what is compared with.
pub(super) fn baseline(file: &Path) -> Result<Baseline> {
    baseline_at(file, None)
}

fn baseline_at(file: &Path, moment: Option<&Moment>) -> Result<Baseline> {
    let snapshot = source::open_at(file, moment)?.poll()?;
    let name = file.file_name().map(|name| text::clean(&name.to_string_lossy()).into_owned());
    Ok(Baseline::of(snapshot, name))
}

fn diff_table(baseline: &Baseline, comparison: &Comparison) -> Result<String> {
    Ok(diff::render(baseline, comparison))
}

fn diff_json(baseline: &Baseline, comparison: &Comparison) -> Result<String> {
    Ok(diff::json(baseline, comparison)?)
}

fn diff_markdown(baseline: &Baseline, comparison: &Comparison) -> Result<String> {
    Ok(diff::markdown(baseline, comparison))
}

fn diff(
    before: (&Path, Option<&Moment>),
    now: (&Path, Option<&Moment>),
    form: fn(&Baseline, &Comparison) -> Result<String>,
    fail_over: Option<f64>,
) -> Result<u8> {
    let baseline = baseline_at(before.0, before.1)?;
    let Some(comparison) = Comparison::new(&baseline, &source::open_at(now.0, now.1)?.poll()?)
    else {
        let (before, now) = (before.0.display(), now.0.display());
        bail!(
            "expected a later moment than that of {before}, found {now}, of the same process and not \
             later: swap them"
        );
    };
    say(&form(&baseline, &comparison)?)?;
    let fails = fail_over
        .is_some_and(|percent| diff::slower_than(&comparison, percent / 100.0).next().is_some());
    Ok(if fails { SLOWER } else { 0 })
}

fn list_processes(json: bool) -> Result<u8> {
    let discovery = source::discover()?;
    if json {
        say(&list::json(&discovery.candidates)?)?;
    }
    if discovery.candidates.is_empty() {
        return Err(Refusal::NoTarget(discovery.nothing_found()).into());
    }
    if json {
        return Ok(0);
    }
    let mut text = format!("{:<8} {:<8} {:>6}  {}\n", "PID", "State", "Points", "Name");
    for c in &discovery.candidates {
        let state = match c.state {
            ProcessState::Running => "running",
            ProcessState::Exited => "exited",
            ProcessState::Crashed => "crashed",
        };
        text += &format!("{:<8} {state:<8} {:>6}  {}  {}\n", c.pid, c.points, c.name, c.exe);
    }
    say(&text)?;
    Ok(0)
}

fn gc() -> Result<u8> {
    let removed = source::gc()?;
    let text: String = removed.iter().map(|line| format!("{line}\n")).collect();
    say(if text.is_empty() { "nothing to remove\n" } else { &text })?;
    Ok(0)
}

/// Writes to standard output. A reader that has gone, like `head`, is fine.
pub(super) fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_their_exit_status_however_they_are_wrapped() {
        let wrapped =
            |refusal: Refusal| exit_status(&anyhow::Error::from(refusal).context("while trying"));
        assert_eq!(wrapped(Refusal::NoTarget(String::new())), 3);
        assert_eq!(wrapped(Refusal::Permission(String::new())), 4);
        assert_eq!(wrapped(Refusal::Version(String::new())), 5);
        assert_eq!(exit_status(&anyhow::anyhow!("else")), 2);
    }
}
