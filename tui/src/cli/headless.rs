//! The table on standard output, without a screen.

use std::time::Duration;

use anyhow::{Result, bail};

use super::missing::Missing;
use super::options::{ShowArgs, UpdateFormat};
use super::output::print as print_text;
use crate::interrupt::{INTERRUPTED, Interrupt};
use pfp_export::{rows, table};
use pfp_model::columns::{Available, Column};
use pfp_model::compare::report;
use pfp_model::compare::{Baseline, Comparison};
use pfp_model::{Figures, Model};
use pfp_read::snapshot::ProcessState;
use pfp_read::source::Source;
use pfp_read::waits::WaitNeeds;

/// Prints the requested number of tables, one by default. Returns the exit status.
///
/// Rates need two polls, so a running process is polled once before the first table. A recording
/// has a table for each snapshot from the cursor on.
pub(super) fn print(
    mut source: Box<dyn Source>,
    show: &ShowArgs,
    interrupt: &Interrupt,
) -> Result<u8> {
    let mut missing = Missing::default();
    let baseline = show.baseline()?;
    let mut model = Model::new(show.tau.as_secs_f64());
    let mut show = show.clone();
    let sort = show.sort.iter().map(|sort| sort.0);
    if show.columns.iter().copied().chain(sort).any(Column::is_of_waits) {
        source.need_waits(WaitNeeds::Reasons);
    }
    if let Some(recording) = source.recording() {
        // Rates are over the time since the previous snapshot.
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
    let mut printer = Printer::new(&show, baseline.as_ref())?;
    for round in 0..show.tables().unwrap_or(1) {
        let runs = model.snapshot().is_some_and(|s| s.process.state == ProcessState::Running);
        if let Some(recording) = source.recording() {
            // For the first table, the snapshot was already folded above.
            if round > 0 {
                let next = recording.cursor() + 1;
                if next == recording.len() {
                    break;
                }
                if interrupt.raised() {
                    return Ok(INTERRUPTED);
                }
                recording.seek(next);
                printer.interval = recording.since_before(next);
                model.fold(source.poll()?);
            }
        } else if source.is_process() && runs {
            if !interrupt.sleep(show.interval) {
                return Ok(INTERRUPTED);
            }
            model.fold(source.poll()?);
        } else if round > 0 {
            break;
        }
        missing.look(source.as_ref(), || ());
        if !printer.print(&model)? {
            break;
        }
    }
    Ok(if source.is_process() { missing.status() } else { 0 })
}

/// Prints successive updates.
pub(super) struct Printer<'a> {
    show: &'a ShowArgs,
    baseline: Option<&'a Baseline>,
    /// The comparison that the previous update printed.
    comparison: Option<Comparison>,
    columns: Option<Vec<Column>>,
    /// Time since the previous update.
    interval: Duration,
    printed: u64,
}

impl<'a> Printer<'a> {
    /// Makes a printer. Fails if the options exclude each other.
    pub(super) fn new(show: &'a ShowArgs, baseline: Option<&'a Baseline>) -> Result<Self> {
        if baseline.is_some() && show.form() == UpdateFormat::Csv {
            bail!("a comparison with a baseline has no form as CSV: use --json or --table");
        }
        let mut columns: Vec<Column> = Vec::new();
        for column in &show.columns {
            // Leave out drawn columns, such as bars: they are of no use to programs.
            if !column.is_drawn() && !columns.contains(column) {
                columns.push(*column);
            }
        }
        if columns.is_empty() && !show.columns.is_empty() {
            bail!("expected columns that can be printed, found bar and trend alone: name others");
        }
        let columns = Some(columns).filter(|columns| !columns.is_empty());
        let (interval, comparison) = (show.interval, None);
        Ok(Self { show, baseline, comparison, columns, interval, printed: 0 })
    }

    /// Prints the model's figures. Returns false if the reader has closed the output, as `head`
    /// does.
    pub(super) fn print(&mut self, model: &Model) -> Result<bool> {
        let text = self.text(model)?;
        self.printed += 1;
        Ok(print_text(&text)?)
    }

    fn text(&mut self, model: &Model) -> Result<String> {
        let show = self.show;
        let rows = self.rows(model);
        let first = self.printed == 0;
        let blank = if first || show.form() != UpdateFormat::Table { "" } else { "\n" };
        let text = match (self.baseline.zip(model.snapshot()), show.form()) {
            (Some((baseline, snapshot)), form) => {
                let before = self.comparison.take();
                let Some(mut comparison) = Comparison::renewed(baseline, snapshot, before) else {
                    bail!("the baseline is of the same process, and not earlier");
                };
                self.comparison = Some(comparison.clone());
                if show.filter.is_on() {
                    comparison.rows.retain(|row| rows.iter().any(|shown| shown.id() == row.id));
                }
                match form {
                    UpdateFormat::Json => report::json_line(baseline, &comparison)?,
                    UpdateFormat::Table | UpdateFormat::Csv => {
                        report::render(baseline, &comparison)
                    }
                }
            }
            (None, UpdateFormat::Table) => {
                let columns = self.columns(model);
                table::render(model, &rows, &columns, show.unit.into(), self.interval)
            }
            (None, UpdateFormat::Json) => {
                rows::json(model, &rows, &self.columns(model), show.unit.into())?
            }
            (None, UpdateFormat::Csv) => {
                rows::csv(model, &rows, &self.columns(model), show.unit.into(), first)?
            }
        };
        Ok(format!("{blank}{text}"))
    }

    /// The points that pass the filter, in the requested order.
    fn rows<'m>(&self, model: &'m Model) -> Vec<&'m Figures> {
        let order = self.show.sorting().order(model.points());
        let rows = order.iter().filter_map(|id| model.point(*id));
        rows.filter(|figures| self.show.filter.admits(figures)).collect()
    }

    /// The columns that the user named. If none are named, a table has the columns of the screen,
    /// and JSON and CSV have [`Column::PRINTED`].
    fn columns(&self, model: &Model) -> Vec<Column> {
        if let Some(columns) = &self.columns {
            return columns.clone();
        }
        let all = match self.show.form() {
            UpdateFormat::Table => &Column::DEFAULT[..],
            UpdateFormat::Json | UpdateFormat::Csv => &Column::PRINTED[..],
        };
        let mut columns = Column::shown(all, Available::of(model));
        columns.retain(|column| !column.is_drawn());
        columns
    }
}
