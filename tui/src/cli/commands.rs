//! Each command, from its words to its exit status.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::slice;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::control::{self, Deed};
use super::kept::{Kept, tables};
use super::missing::missing;
use super::{
    Cli, Command, Saving, Show, Target, Via, demo, doctor, export, gate, headless, manual,
    roofline, run as program, serve,
};
use crate::app::{self, App};
use crate::compare::report;
use crate::compare::{Baseline, Comparison};
use crate::export::list;
use crate::files::json::{self, Overwrite, WriteError};
use crate::interrupt::Interrupt;
use crate::snapshot::Snapshot;
use crate::source::{
    self, Candidate, Choice, EveryProcess, Finder, Machine, Moment, Refusal, Source, Span, Wanted,
    choose,
};
use crate::text;

/// Exit status of a comparison that found more than it was to allow.
const SLOWER: u8 = 1;
/// Exit status of everything that has none of its own.
const TROUBLE: u8 = 2;
/// Exit status of what finds nothing to show, as of [`Refusal::NoTarget`].
pub(super) const NO_TARGET: u8 = 3;
/// Does what the command line asks for; returns the exit status.
pub fn run(cli: Cli) -> Result<u8> {
    match cli.command {
        None => watch(&cli.show, &cli.target),
        Some(Command::Demo { show }) => demo::run(&show),
        Some(Command::Run(run)) => program::run(&run),
        Some(Command::Open { files, sum, at, show }) => open(&files, sum, at.as_ref(), &show),
        Some(Command::Record(record)) => super::record::run(&record),
        Some(Command::Snapshot(saving)) => snapshot(&saving),
        Some(Command::SaveRaw(Saving { target, output, force })) => {
            let saved = resolve(&target)?.save_raw(&output, overwrite(force));
            written(saved, &output)
        }
        Some(Command::Diff {
            files,
            target,
            baseline: before,
            from,
            to,
            baseline_from,
            baseline_to,
            json,
            markdown,
            fail_over,
        }) => {
            let form = match (json, markdown) {
                (true, _) => diff_json,
                (_, true) => diff_markdown,
                _ => diff_table,
            };
            let baseline = Span { from: baseline_from, to: baseline_to };
            if target.is_given() {
                let files = [before, files].concat();
                if files.is_empty() || from.or(to).is_some() {
                    bail!(
                        "expected a process and the files to compare it with, found no file, or a \
                         moment to look for in the process"
                    );
                }
                return diff_process((&files, baseline), &target, form, fail_over);
            }
            let (before, now) = match (before.as_slice(), files.as_slice()) {
                ([], [before, now]) => (slice::from_ref(before), slice::from_ref(now)),
                ([], files) => bail!(
                    "expected two files, or --baseline with those to compare with, found {}",
                    files.len()
                ),
                sides => sides,
            };
            diff((before, baseline), (now, Span { from, to }), form, fail_over)
        }
        Some(Command::Export(export)) => export::run(&export),
        Some(Command::Serve(serve)) => serve::run(&serve),
        Some(Command::Roofline(asked)) => roofline::run(&asked),
        #[cfg(feature = "otlp")]
        Some(Command::Push(push)) => super::push::run(&push),
        Some(Command::Gate(asked)) => gate::run(&asked),
        Some(Command::Enable(points)) => control::run(&points, Deed::Enable),
        Some(Command::Disable(points)) => control::run(&points, Deed::Disable),
        Some(Command::Reset(points)) => control::run(&points, Deed::Reset),
        Some(Command::Alpha { weight, points }) => control::run(&points, weight),
        Some(Command::List { json, via }) => list_processes(json, &via),
        Some(Command::Gc) => gc(),
        Some(Command::Doctor { part, json }) => doctor::run(part, json),
        Some(Command::Completions { shell }) => manual::completions(shell),
        Some(Command::Man { folder }) => manual::man(folder.as_deref()),
        Some(Command::Agent { enter }) => agent(enter),
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
    let finder: Box<dyn Finder> = match options.together {
        Some(_) if target.via.is_here() => Box::new(EveryProcess::from_now_on(show.keep)),
        _ => source::finder(&target.via.routes()?, show.keep, source::IN_TIME_FOR_SCREENS)?,
    };
    let mut app = App::new(options, finder, Instant::now());
    if let Some(file) = &show.baseline {
        app.compare_with(baseline(file)?);
    }
    interact(&mut app, show)
}

/// Shows one source, on the screen or as text.
pub(super) fn show_source(show: &Show, source: Box<dyn Source>) -> Result<u8> {
    if is_headless(show) {
        return headless::print(source, show, &Interrupt::install()?);
    }
    let now = Instant::now();
    let mut app = App::new(show.options(Wanted::default()), Box::new(Machine::all(show.keep)), now);
    if let Some(file) = &show.baseline {
        app.compare_with(baseline(file)?);
    }
    app.watch(source, now);
    interact(&mut app, show)
}

/// Shows a file. Of a recording that is its end, where no moment is asked for; several
/// tables begin with its first snapshot.
fn open(files: &[PathBuf], sum: bool, at: Option<&Moment>, show: &Show) -> Result<u8> {
    let [file] = files else {
        return show_source(show, source::open_together(files, sum, at)?);
    };
    let mut source = source::open_at(file, at)?;
    if let Some(recording) = source.recording() {
        if let Some(remark) = recording.remark().filter(|_| is_headless(show)) {
            complain(&format!("{}: {remark}", file.display()));
        }
        if !is_headless(show) && show.updates.is_some() {
            bail!(
                "-n counts tables: nothing on the screen of a recording comes by itself; leave it \
                 out, or print tables with --table"
            );
        }
        if at.is_none() && is_headless(show) && show.tables().is_some() {
            recording.seek(0);
        }
    }
    show_source(show, source)
}

fn interact(app: &mut App, show: &Show) -> Result<u8> {
    on_screen(app, show, &Interrupt::install()?)?;
    Ok(0)
}

/// Runs the screen to its end, and keeps what was chosen there.
pub(super) fn on_screen(app: &mut App, show: &Show, interrupt: &Interrupt) -> Result<()> {
    Kept::load().restore(app);
    let before = tables(app);
    app::run(app, &show.look(), interrupt)?;
    if let Err(error) = Kept::read() {
        complain(&format!("{error:#}"));
    }
    Kept::keep(&before, &tables(app));
    Ok(())
}

pub(super) fn is_headless(show: &Show) -> bool {
    let is_asked = show.once || show.batch || show.json || show.csv || show.table;
    is_asked || !io::stdout().is_terminal()
}

/// Answers the viewer that has started this.
fn agent(enter: Option<u32>) -> Result<u8> {
    let ignore_interrupt = || {
        // It ends with its input: a Ctrl-C at the viewer's terminal is for the viewer.
        // SAFETY: to ignore a signal runs nothing.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
    };
    ignore_interrupt();
    let machine = match enter {
        Some(pid) => {
            source::enter(pid)?;
            Machine::default()
        }
        None => Machine::all(false),
    };
    // This starts a thread, and who enters a room may have only one.
    let interrupt = Interrupt::install()?;
    ignore_interrupt();
    let mut finder = EveryProcess::of(machine);
    crate::agent::run(io::stdin(), io::stdout(), &mut finder, interrupt)?;
    Ok(0)
}

/// The one process that is wanted, or why there is none.
pub(super) fn resolve(target: &Target) -> Result<Box<dyn Source>> {
    let mut finder = target.finder()?;
    if let Some(together) = target.together() {
        return finder.attach_together(&together);
    }
    let (discovery, wanted) = (finder.discover()?, target.wanted());
    match choose(&discovery, &wanted) {
        Choice::One(candidate) => finder.attach(&candidate),
        Choice::Several(several) => {
            let shown = |c: &Candidate| {
                format!("{} {}[{}]", discovery.number_of(c), c.name, c.visible_pid())
            };
            let first = several.first().map(|c| discovery.number_of(c)).unwrap_or_default();
            bail!(
                "expected one process, found {}: choose with -p PID, with -p and a number, as \
                 -p {first}, or --all",
                several.iter().map(shown).collect::<Vec<_>>().join(", ")
            )
        }
        Choice::None => Err(discovery.why_none(&wanted).into()),
    }
}

fn snapshot(Saving { target, output, force }: &Saving) -> Result<u8> {
    let mut source = resolve(target)?;
    let mut snapshot = source.poll()?;
    source.add_records(&mut snapshot);
    // What is begun is finished, if that does not take long.
    let _interrupt = Interrupt::install()?;
    written(json::write(&snapshot, output, overwrite(*force)), output)?;
    Ok(missing(source.as_ref()))
}

pub(super) fn overwrite(force: bool) -> Overwrite {
    if force { Overwrite::Yes } else { Overwrite::No }
}

/// The exit status of writing a file.
pub(super) fn written(result: Result<(), WriteError>, path: &Path) -> Result<u8> {
    match result {
        Ok(()) => Ok(0),
        Err(WriteError::Exists) => Err(exists(path)),
        Err(WriteError::Io(error)) => {
            Err(error).with_context(|| format!("{} was not written", path.display()))
        }
    }
}

/// Refuses a file that is there and not to be replaced: a name that cannot be used costs nobody a
/// wait.
pub(super) fn check_new(path: &Path, force: bool) -> Result<()> {
    if force || path.symlink_metadata().is_err() { Ok(()) } else { Err(exists(path)) }
}

fn exists(path: &Path) -> anyhow::Error {
    anyhow::anyhow!("{} exists already: give another name, or --force", path.display())
}

/// A snapshot file as what is compared with.
pub(super) fn baseline(file: &Path) -> Result<Baseline> {
    Ok(baseline_of(file, source::open(file)?.poll()?))
}

/// The files of a side, in a message.
fn shown(files: &[PathBuf]) -> String {
    files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn baseline_of(file: &Path, snapshot: Snapshot) -> Baseline {
    let name = file.file_name().map(|name| text::clean(&name.to_string_lossy()).into_owned());
    Baseline::of(snapshot, name)
}

fn diff_table(baseline: &Baseline, comparison: &Comparison) -> Result<String> {
    Ok(report::render(baseline, comparison))
}

fn diff_json(baseline: &Baseline, comparison: &Comparison) -> Result<String> {
    Ok(report::json(baseline, comparison)?)
}

fn diff_markdown(baseline: &Baseline, comparison: &Comparison) -> Result<String> {
    Ok(report::markdown(baseline, comparison))
}

fn diff(
    before: (&[PathBuf], Span),
    now: (&[PathBuf], Span),
    form: fn(&Baseline, &Comparison) -> Result<String>,
    fail_over: Option<f64>,
) -> Result<u8> {
    let (baseline, new) = match (before, now) {
        (([before], first), ([now], last)) => {
            let (old, new) = sides((before, first), (now, last))?;
            (baseline_of(before, old), new)
        }
        _ => sums(before, now)?,
    };
    compare(&baseline, &new, (&shown(before.0), &shown(now.0)), form, fail_over)
}

/// A process as it is now, beside files.
fn diff_process(
    before: (&[PathBuf], Span),
    target: &Target,
    form: fn(&Baseline, &Comparison) -> Result<String>,
    fail_over: Option<f64>,
) -> Result<u8> {
    let baseline = match before {
        ([file], span) => baseline_of(file, source::read(file, &span, false)?),
        (files, span) => {
            Baseline::of(source::read_sum(files, &span)?, Some(format!("{} files", files.len())))
        }
    };
    let mut source = resolve(target)?;
    let new = source.poll()?;
    let status = missing(source.as_ref());
    let (olds, news) = (ids(baseline.until()), ids(&new));
    let is_one = olds.len() == 1 && olds == news;
    if !is_one && news.iter().any(|id| olds.contains(id)) {
        bail!(
            "expected other processes than in {}, found one of them, whose measurements would be \
             on both sides",
            shown(before.0)
        );
    }
    Ok(compare(&baseline, &new, (&shown(before.0), "the process"), form, fail_over)?.max(status))
}

fn compare(
    baseline: &Baseline,
    new: &Snapshot,
    (before, now): (&str, &str),
    form: fn(&Baseline, &Comparison) -> Result<String>,
    fail_over: Option<f64>,
) -> Result<u8> {
    let Some(comparison) = Comparison::new(baseline, new) else {
        bail!(
            "expected a later moment than that of {before}, found {now}, of the same process and not \
             later: swap them"
        );
    };
    say(&form(baseline, &comparison)?)?;
    let fails = fail_over
        .is_some_and(|percent| report::slower_than(&comparison, percent / 100.0).next().is_some());
    Ok(if fails { SLOWER } else { 0 })
}

/// The segments that are in a snapshot.
fn ids(snapshot: &Snapshot) -> Vec<String> {
    let process = &snapshot.process;
    match process.members.as_slice() {
        [] => vec![process.segment_id.clone()],
        members => members.iter().map(|member| member.segment_id.clone()).collect(),
    }
}

/// Each side as the sum of its files.
fn sums(before: (&[PathBuf], Span), now: (&[PathBuf], Span)) -> Result<(Baseline, Snapshot)> {
    let old = source::read_sum(before.0, &before.1)?;
    let new = source::read_sum(now.0, &now.1)?;
    let olds = ids(&old);
    if ids(&new).iter().any(|id| olds.contains(id)) {
        bail!(
            "expected other processes in {} than in {}, found one in both, whose measurements \
             would be on both sides",
            shown(now.0),
            shown(before.0)
        );
    }
    let name = match before.0 {
        [file] => return Ok((baseline_of(file, old), new)),
        files => format!("{} files", files.len()),
    };
    Ok((Baseline::of(old, Some(name)), new))
}

/// What is compared with what. Of two runs each has its own span. Of one process, what
/// is compared is what it has more than the baseline, unless that has a span of its own:
/// then they are two windows, which share no measurement.
fn sides(before: (&Path, Span), now: (&Path, Span)) -> Result<(Snapshot, Snapshot)> {
    let (mut first, mut last) = (before.1, now.1);
    let id = |file| Ok::<_, anyhow::Error>(source::open(file)?.poll()?.process.segment_id);
    if first.from.or(first.to).or(last.from).is_none() || id(before.0)? != id(now.0)? {
        return Ok((source::read(before.0, &first, false)?, source::read(now.0, &last, false)?));
    }
    first.to = first.to.or(last.from);
    let until = source::read(before.0, &Span { from: None, to: first.to }, false)?;
    if first.from.is_none() && (last.from.is_none() || last.from == first.to) {
        return Ok((until, source::read(now.0, &Span { from: None, to: last.to }, false)?));
    }
    last.from = last.from.or(first.to);
    let since = match &last.from {
        Some(from) => source::open_at(now.0, Some(from))?.poll()?.elapsed_ticks,
        None => 0,
    };
    if since < until.elapsed_ticks {
        bail!(
            "expected a window that begins after the baseline has ended, found that they overlap"
        );
    }
    let mut old = source::read(before.0, &first, false)?;
    let new = source::read(now.0, &last, false)?;
    // Two windows stand beside each other as two runs do: neither is a part of the other.
    old.process.segment_id.clear();
    Ok((old, new))
}

fn list_processes(json: bool, via: &Via) -> Result<u8> {
    let discovery = via.finder()?.discover()?;
    if json {
        say(&list::json(&discovery)?)?;
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
        let state = c.state.word();
        let (number, pid) = (discovery.number_of(c), c.visible_pid());
        text += &format!("{number:<7} {pid:<8} {state:<8} {:>6}  {}\n", c.points, c.label());
    }
    say(&text)?;
    discovery.not_shown().for_each(|why| complain(&why));
    Ok(0)
}

fn gc() -> Result<u8> {
    let removed = source::gc()?;
    // What a program was called, it chose.
    let text: String = removed.iter().map(|line| text::clean(line).into_owned() + "\n").collect();
    say(if text.is_empty() { "nothing to remove\n" } else { &text })?;
    Ok(0)
}

/// Writes a line to standard error. Nobody may be there to read it.
pub(super) fn complain(line: &str) {
    let line = text::clean_lines(line);
    let _ = writeln!(io::stderr(), "pfp-top: {line}");
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
