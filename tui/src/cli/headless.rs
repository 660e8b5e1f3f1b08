//! The table as text on standard output, without a screen.

use anyhow::{Result, bail};

use super::Show;
use super::commands::{baseline, say};
use crate::columns::Sorting;
use crate::export::{diff, table};
use crate::interrupt::Interrupt;
use crate::model::Model;
use crate::model::compare::{Baseline, Comparison};
use crate::snapshot::ProcessState;
use crate::source::Source;

/// Prints the table as often as asked, once unless told otherwise. Returns
/// whether it came to its end without being interrupted.
///
/// Rates need two polls; a process that runs is polled once before the first
/// table.
pub(super) fn print(
    mut source: Box<dyn Source>,
    show: &Show,
    interrupt: &Interrupt,
) -> Result<bool> {
    let baseline = show.baseline.as_deref().map(baseline).transpose()?;
    let mut model = Model::new(show.tau.as_secs_f64());
    let mut show = show.clone();
    if let Some(recording) = source.recording() {
        // Rates are those since the snapshot before.
        model = Model::new(0.0);
        let cursor = recording.cursor();
        recording.seek(cursor.saturating_sub(1));
        if cursor > 0 {
            model.fold(source.poll()?);
        }
        if let Some(recording) = source.recording() {
            recording.seek(cursor);
            show.interval = recording.since_before(cursor);
        }
    }
    model.fold(source.poll()?);
    for round in 0..show.updates.unwrap_or(1) {
        let runs = model.snapshot().is_some_and(|s| s.process.state == ProcessState::Running);
        if source.is_process() && runs {
            if !interrupt.sleep(show.interval) {
                return Ok(false);
            }
            model.fold(source.poll()?);
        } else if round > 0 {
            break;
        }
        let blank = if round > 0 { "\n" } else { "" };
        say(&format!("{blank}{}", text(&model, baseline.as_ref(), &show)?))?;
    }
    Ok(true)
}

/// The table, or the points beside a baseline.
pub(super) fn text(model: &Model, baseline: Option<&Baseline>, show: &Show) -> Result<String> {
    let Some((baseline, snapshot)) = baseline.zip(model.snapshot()) else {
        return Ok(table::render(model, Sorting::by(show.sort), show.unit, show.interval));
    };
    match Comparison::new(baseline, snapshot) {
        Some(comparison) => Ok(diff::render(baseline, &comparison)),
        None => bail!("the baseline is of the same process, and not earlier"),
    }
}
