//! Shows a source, either on the screen or as text.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail};

use super::headless;
use super::kept::{Kept, tables};
use super::options::ShowArgs;
use super::target::TargetArgs;
use crate::app::App;
use crate::event_loop;
use crate::interrupt::Interrupt;
use pfp_read::source::{self, Finder, Moment, Source, Wanted};
use pfp_read::text::warn;
use pfp_remote as remote;
use pfp_remote::Machine;

/// Shows the requested process.
pub(super) fn watch(show: &ShowArgs, target: &TargetArgs) -> Result<u8> {
    if show.is_headless() {
        return one(show, target.resolve()?);
    }
    let mut options = show.options(target.wanted());
    options.group = target.group();
    let mut finder: Box<dyn Finder> = match options.group {
        Some(_) if target.via.is_here() => Box::new(Machine::from_now_on(show.keep)),
        _ => remote::finder(&target.via.routes()?, show.keep, remote::IN_TIME_FOR_SCREENS)?,
    };
    finder.ready_for_screen();
    let mut app = App::new(options, finder, Instant::now());
    if let Some(baseline) = show.baseline()? {
        app.compare_with(baseline);
    }
    interact(&mut app, show)
}

/// Shows one source, on the screen or as text.
pub(super) fn one(show: &ShowArgs, source: Box<dyn Source>) -> Result<u8> {
    if show.is_headless() {
        return headless::print(source, show, &Interrupt::install()?);
    }
    let now = Instant::now();
    let mut app = App::new(show.options(Wanted::default()), Box::new(Machine::all(show.keep)), now);
    if let Some(baseline) = show.baseline()? {
        app.compare_with(baseline);
    }
    app.watch(source, now);
    interact(&mut app, show)
}

/// Shows a file. The screen shows a recording at its end unless the user names a moment; several
/// tables begin at its first snapshot.
pub(super) fn open(
    files: &[PathBuf],
    sum: bool,
    at: Option<&Moment>,
    show: &ShowArgs,
) -> Result<u8> {
    let [file] = files else {
        return one(show, remote::open_group(files, sum, at)?);
    };
    let mut source = source::open_at(file, at)?;
    if let Some(recording) = source.recording() {
        if let Some(remark) = recording.remark().filter(|_| show.is_headless()) {
            warn(&format!("{}: {remark}", file.display()));
        }
        if !show.is_headless() && show.updates.is_some() {
            bail!(
                "-n does not apply to the screen of a recording, which is not polled: leave it \
                 out, or print tables with --table"
            );
        }
        if at.is_none() && show.is_headless() && show.tables().is_some() {
            recording.seek(0);
        }
    }
    one(show, source)
}

fn interact(app: &mut App, show: &ShowArgs) -> Result<u8> {
    on_screen(app, show, &Interrupt::install()?)?;
    Ok(0)
}

/// Runs the screen to its end, and saves the choices made there.
pub(super) fn on_screen(app: &mut App, show: &ShowArgs, interrupt: &Interrupt) -> Result<()> {
    Kept::load().restore(app);
    let before = tables(app);
    app.common.styles = show.look();
    event_loop::run(app, interrupt)?;
    if let Err(error) = Kept::read() {
        warn(&format!("{error:#}"));
    }
    Kept::keep(&before, &tables(app));
    Ok(())
}
