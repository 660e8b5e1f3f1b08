//! The load of a point over time.
//!
//! ```text
//!  Load, last 1 min: peak 51.2%, mean 33.3%
//!  51.2%                    ░  █
//!            █▄   ░     ▂▆▃▂█▃▂█▄
//!          ▄▆██▃▃▄█▂▃▃▃▂█████████
//!     0%   ██████████████████████
//!         |-60s    |-50s    |-40s    |-30s        now|
//! ```

use super::load_view::LoadView;
use ratatui::macros::line;

use crate::screens::prelude::*;
use pfp_model::LoadSlice;
use pfp_read::local_time::time_of_day;

/// Height of the picture, in lines.
const ROWS: usize = 4;
/// Columns of the labels on the left.
const LABEL: usize = 8;
/// Minimum number of columns between two marks of the axis.
const BETWEEN_MARKS: u64 = 12;
/// Maximum number of marks.
const MARKS: u64 = 12;
/// Possible distances between the axis's marks, seconds.
const STEPS: [u64; 15] =
    [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400];
const NS: f64 = 1e9;

/// The lines about a point's load: title, picture and axis. Without a history, a line that says so.
pub(super) fn lines(
    view: &LoadView,
    common: &Common,
    figures: &Figures,
    width: usize,
) -> Vec<Line<'static>> {
    let styles = &common.styles;
    let Some(snapshot) = common.model.snapshot() else { return Vec::new() };
    if figures.history().is_empty() && matches!(common.status(), Status::File | Status::Replay) {
        let text = match common.status() {
            Status::Replay => " Load: nothing was recorded before this moment",
            _ => " Load: a file has its figures at one moment, and no history",
        };
        return vec![Line::styled(text, styles.theme.faint)];
    }
    let picture = LoadPicture::new(view, common.status(), figures, snapshot, columns_of(width));
    let rows = picture.rows(styles);
    let has_peaks = rows.iter().any(|row| row.to_string().contains(styles.glyphs.peak));
    let mut lines = vec![picture.title(has_peaks, styles)];
    lines.extend(rows);
    lines.push(picture.axis(styles));
    lines
}

/// The moment at a column of the screen. `None` beside the picture, and before the program began.
pub(super) fn moment_at(
    view: &LoadView,
    common: &Common,
    width: usize,
    column: usize,
) -> Option<u64> {
    let (figures, snapshot) = (common.selected()?, common.model.snapshot()?);
    let columns = columns_of(width);
    let column = column.checked_sub(LABEL).filter(|column| *column < columns)?;
    let picture = LoadPicture::new(view, common.status(), figures, snapshot, columns);
    u64::try_from(picture.from + column as i128 * i128::from(picture.ticks)).ok()
}

/// Number of columns of the picture on a screen of this width.
fn columns_of(width: usize) -> usize {
    width.saturating_sub(LABEL + 1).max(1)
}

struct LoadPicture<'a> {
    view: &'a LoadView,
    status: Status,
    figures: &'a Figures,
    snapshot: &'a Snapshot,
    columns: usize,
    /// Ticks of a column.
    ticks: u64,
    /// The start of the first column and the end of the last one, ticks since the segment was
    /// created. Columns begin at multiples of `ticks`, so a column does not change while it moves
    /// to the left.
    from: i128,
    until: i128,
    slices: Vec<Option<LoadSlice>>,
    /// The whole visible part as one slice.
    whole: Option<LoadSlice>,
}

impl<'a> LoadPicture<'a> {
    fn new(
        view: &'a LoadView,
        status: Status,
        figures: &'a Figures,
        snapshot: &'a Snapshot,
        columns: usize,
    ) -> Self {
        let span = view.span_seconds() as f64 * snapshot.clock.ticks_per_second;
        let ticks = ((span / columns as f64).ceil() as u64).max(1);
        let end = view.until(snapshot.elapsed_ticks).div_ceil(ticks);
        let until = i128::from(end) * i128::from(ticks);
        let all = i128::from(ticks) * columns as i128;
        let from = until - all;
        let slices = figures.history().columns(from, ticks, columns);
        let whole = u64::try_from(all).unwrap_or(u64::MAX);
        let whole = figures.history().columns(from, whole, 1)[0];
        Self { view, status, figures, snapshot, columns, ticks, from, until, slices, whole }
    }

    fn seconds(&self, ticks: f64) -> f64 {
        ticks / self.snapshot.clock.ticks_per_second
    }

    fn title(&self, has_peaks: bool, styles: &Styles) -> Line<'static> {
        let theme = &styles.theme;
        let span = words(self.view.span_seconds());
        let now = self.snapshot.elapsed_ticks;
        let (title, held) = match self.view.follows() {
            true => (format!(" Load, last {span}"), String::new()),
            false => {
                let ago = now.saturating_sub(self.view.until(now));
                let ago = units::duration(self.seconds(ago as f64));
                (format!(" Load, {span} until {ago} ago"), ", paused: End resumes".into())
            }
        };
        let mut more = match self.whole {
            Some(LoadSlice { mean, peak }) => {
                format!(": peak {}%, mean {}%", units::percent(peak), units::percent(mean))
            }
            None => ": no data".into(),
        };
        let first = self.figures.history().from().map(i128::from);
        if let Some(first) = first.filter(|first| self.from < *first && *first < self.until) {
            let known = units::duration(self.seconds((i128::from(now) - first) as f64));
            more += &format!(", watched for {known}");
        }
        if has_peaks {
            more += &format!("; {} peak", styles.glyphs.peak);
        }
        line![Span::styled(title, theme.process), Span::styled(held, theme.warn), more]
    }

    fn rows(&self, styles: &Styles) -> Vec<Line<'static>> {
        let theme = &styles.theme;
        let top = chart::top(self.slices.iter().map(|slice| slice.map(|slice| slice.peak)));
        let drawn = chart::columns(&self.slices, ROWS, top, &styles.glyphs);
        let line = |(row, pieces): (usize, Vec<(String, bool)>)| {
            let label = match row {
                0 => format!("{}%", units::percent(top)),
                _ if row + 1 == ROWS => "0%".into(),
                _ => String::new(),
            };
            let label = span!(theme.faint; "{label:>7} ");
            let pieces = pieces.into_iter().map(|(text, is_peak)| {
                Span::styled(text, if is_peak { theme.faint } else { theme.bar })
            });
            Line::from_iter(std::iter::once(label).chain(pieces))
        };
        drawn.into_iter().enumerate().map(line).collect()
    }

    /// The axis. It shows the time before now while the picture follows the present. While the
    /// picture is held, it shows the time of day, which does not change as time passes.
    fn axis(&self, styles: &Styles) -> Line<'static> {
        let span = self.view.span_seconds();
        let marks = (self.columns as u64 / BETWEEN_MARKS).clamp(1, MARKS);
        let step = STEPS.into_iter().find(|step| step * marks >= span);
        let step = step.unwrap_or(STEPS[STEPS.len() - 1]);
        let mut axis = vec![' '; self.columns];
        let mut put = |column: usize, text: &str| {
            for (cell, letter) in axis.iter_mut().skip(column).zip(text.chars()) {
                *cell = letter;
            }
        };
        if self.view.follows() {
            let now = format!("{}|", self.status.edge());
            for mark in 1..=span / step {
                let back = mark as f64 * step as f64 * self.snapshot.clock.ticks_per_second;
                let back = (back / self.ticks as f64).round() as usize;
                let text = format!("|-{}", before(mark * step, step));
                let column = self.columns.checked_sub(back.max(1));
                if let Some(column) =
                    column.filter(|column| column + text.len() + now.len() < self.columns)
                {
                    put(column, &text);
                }
            }
            put(self.columns.saturating_sub(now.len()), &now);
        } else {
            let rate = self.snapshot.clock.ticks_per_second;
            // The start of the segment's clock, by the wall clock.
            let zero =
                self.snapshot.taken_unix_ns as f64 - self.snapshot.elapsed_ticks as f64 / rate * NS;
            let step_ns = step as f64 * NS;
            let mut mark = ((self.from as f64 / rate * NS + zero) / step_ns).ceil() * step_ns;
            for _ in 0..=span / step {
                let ticks = (mark - zero) / NS * rate;
                let column = (ticks - self.from as f64) / self.ticks as f64;
                let text = format!("|{}", time_of_day(mark.max(0.0) as u64));
                if (0.0..(self.columns.saturating_sub(text.len() - 1)) as f64).contains(&column) {
                    put(column as usize, &text);
                }
                mark += step_ns;
            }
        }
        let axis: String = axis.into_iter().collect();
        Line::styled(format!("{:LABEL$}{}", "", axis.trim_end()), styles.theme.faint)
    }
}

/// The length of a part of the time in words: `30 s`, `2 min`, `6 h`.
fn words(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// The time before now, in the unit of the distance between the marks.
fn before(seconds: u64, step: u64) -> String {
    match step {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_shown_in_whole_units() {
        let lengths = [10, 60, 120, 1800, 3600, 21_600, 86_400, 604_800];
        let said = ["10 s", "1 min", "2 min", "30 min", "1 h", "6 h", "1 d", "7 d"];
        assert_eq!(lengths.map(words), said);
        assert_eq!((before(90, 30), before(5400, 1800)), ("90s".into(), "90m".into()));
        assert_eq!((before(86_400, 7200), before(172_800, 86_400)), ("24h".into(), "2d".into()));
    }
}
