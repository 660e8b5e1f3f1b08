//! The points beside their baseline, the greatest change of load first.

use std::collections::HashSet;
use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::{Outcome, Screen, View};
use crate::app::keys::{self, KeyMap};
use crate::app::{Action, Common};
use crate::comparison::{COLUMNS, Column, VERDICT, VERDICT_WIDTH, caption};
use crate::grid::{Grid, Scroll, Sorted};
use crate::look::Look;
use crate::model::compare::{Baseline, Comparison, DIFFERS, Row, Verdict};
use crate::snapshot::PointState;
use crate::text;
use crate::units::Scale;

/// Lines above the rows: what is compared, and the heading.
const HEAD: u16 = 2;
/// Room for a name, at least and at most.
const NAME: (usize, usize) = (8, 32);
/// The column that the rows are sorted by.
const BY: &str = "dLoad";
/// The cursor, the state and a blank.
const MARK: usize = 3;

const SIGNS: &str = "what changed: of a load in points, else in per cent of the baseline";
const VERDICTS: &str = "most measurements are, by 5 % or more, statistically significant: Mann-Whitney test, 1 % of \
                       what is found may be none (Benjamini-Hochberg)";

/// What the figures are compared with, and how they do.
#[derive(Debug, Default)]
pub struct Diff {
    /// None until one is taken or read from a file.
    pub baseline: Option<Baseline>,
    /// None without a baseline, and until something can have been measured since.
    pub comparison: Option<Comparison>,
    /// Ids of the points in the order of the rows.
    pub order: Vec<u32>,
}

impl Diff {
    /// Brings the comparison up to date.
    fn compare(&mut self, common: &Common) {
        let snapshots = self.baseline.as_ref().zip(common.model.snapshot());
        let known = self.comparison.take();
        self.comparison = snapshots
            .and_then(|(baseline, snapshot)| Comparison::new_after(baseline, snapshot, known));
    }
}

impl View for Diff {
    fn keys(&self) -> KeyMap {
        &[&[keys::RUN, keys::OPEN, keys::TO_TABLE], keys::CHANGE, keys::TAIL]
    }

    fn compare_with(&mut self, baseline: &Baseline, _: &Common) {
        self.baseline = Some(baseline.clone());
        self.comparison = None;
    }

    fn legend(&self, _: &Look) -> Vec<(String, &'static str)> {
        vec![
            ("dLoad dMean dp99".into(), SIGNS),
            ("slower faster".into(), VERDICTS),
            (
                "slower tail".into(),
                "only the longest hundredth takes longer, or there are more of such",
            ),
            ("too few".into(), "a difference that matters could not be told from none yet"),
            ("new gone".into(), "the baseline does not have the point; only the baseline has it"),
            (
                "A".into(),
                "how likely a measurement now takes longer than one of the baseline; 0.5: even",
            ),
        ]
    }

    fn begin(&mut self, common: &mut Common, _: Instant) {
        common.scroll = Scroll::default();
        self.compare(common);
        self.arrange(common);
    }

    fn update(&mut self, common: &mut Common, _: Instant) -> Outcome {
        self.compare(common);
        Outcome::Done
    }

    fn arrange(&mut self, common: &mut Common) {
        let all = self.comparison.as_ref().map_or(&[][..], |comparison| &comparison.rows);
        // What only the baseline has cannot be looked at by a filter.
        let passes = |row: &&Row| match common.model.point(row.id) {
            Some(figures) => common.filter.admits(figures),
            None => !common.filter.is_on(),
        };
        let rows: Vec<&Row> = all.iter().filter(passes).collect();
        if common.frozen_until.is_some() {
            let there: HashSet<u32> = rows.iter().map(|row| row.id).collect();
            self.order.retain(|id| there.contains(id));
            if self.order.len() < rows.len() {
                let placed: HashSet<u32> = self.order.iter().copied().collect();
                self.order.extend(rows.iter().map(|row| row.id).filter(|id| !placed.contains(id)));
            }
        } else {
            self.order = rows.iter().map(|row| row.id).collect();
        }
        common.select_among(&self.order);
    }

    fn act(&mut self, action: Action, common: &mut Common, now: Instant) -> Outcome {
        if action != Action::Open {
            return Outcome::Pass;
        }
        match (common.selected, common.selected()) {
            (None, _) => Outcome::Done,
            (Some(_), Some(_)) => Outcome::Show(Screen::Detail),
            (Some(_), None) => {
                common.say(now, "only the baseline has that point");
                Outcome::Done
            }
        }
    }

    fn cursor(&self, common: &Common) -> (usize, usize) {
        common.place_in(&self.order)
    }

    fn select(&mut self, place: usize, common: &mut Common, now: Instant) {
        common.select(self.order.get(place).copied(), now);
    }

    fn is_filtered(&self) -> bool {
        true
    }

    fn rows(&self, body: Rect) -> Rect {
        Rect { y: body.y + HEAD, height: body.height.saturating_sub(HEAD), ..body }
    }

    fn draw(&self, frame: &mut Frame, area: Rect, common: &Common, look: &Look) {
        let [top, head, body] =
            Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Fill(1)])
                .areas(area);
        let caption = match &self.baseline {
            None => " no baseline".into(),
            Some(baseline) => format!(" {}", caption(baseline, self.comparison.as_ref(), DIFFERS)),
        };
        let caption = text::cut(&caption, area.width.into(), look.glyphs.ellipsis);
        frame.render_widget(Line::styled(caption, look.theme.process), top);
        let (columns, name_width) = fitting(area.width.into());
        let grid = grid(&columns, name_width, look);
        let sorted = Sorted { key: BY, descending: true };
        frame.render_widget(grid.heading(Some(sorted), area.width.into(), look), head);
        let Some(comparison) = &self.comparison else {
            let text = match &self.baseline {
                None => " no baseline yet: b takes one, and what comes is compared with it",
                Some(_) if common.replay.is_some() => {
                    " nothing was measured between the baseline and this moment; a later one is compared"
                }
                Some(_) => " nothing was measured since the baseline",
            };
            return frame.render_widget(Line::styled(text, look.theme.faint), body);
        };
        let scale =
            Scale { ticks_per_second: comparison.ticks_per_second, unit: common.scale().unit };
        let seen =
            self.order.iter().skip(common.scroll.offset).filter_map(|id| comparison.row(*id));
        for (area, row) in body.rows().zip(seen) {
            let line = line(common, row, &columns, &grid, &scale, look);
            if common.selected == Some(row.id) {
                frame.buffer_mut().set_style(area, look.theme.selected);
            }
            frame.render_widget(line, area);
        }
    }
}

/// The columns that a screen of this width has room for, and the room for names.
fn fitting(width: usize) -> (Vec<&'static Column>, usize) {
    let fixed = MARK + 1 + VERDICT_WIDTH;
    let mut columns: Vec<&Column> = COLUMNS.iter().collect();
    loop {
        let used = fixed + columns.iter().map(|column| column.width + 1).sum::<usize>();
        let last = columns.iter().map(|column| column.rank).max();
        match width.checked_sub(used) {
            Some(left) if left >= NAME.0 => return (columns, left.min(NAME.1)),
            _ if last.is_none() => return (columns, width.saturating_sub(used)),
            _ => columns.retain(|column| Some(column.rank) != last),
        }
    }
}

/// The mark, the name, the verdict, and what else there is room for.
fn grid(columns: &[&Column], name_width: usize, look: &Look) -> Grid {
    let grid = Grid::new(look.glyphs.ellipsis).left("", MARK - 1).left("Name", name_width);
    columns.iter().fold(grid.left(VERDICT, VERDICT_WIDTH), |grid, column| {
        let grid = grid.right(column.title, column.width);
        if column.title == BY { grid.sorts(BY) } else { grid }
    })
}

fn line(
    common: &Common,
    row: &Row,
    columns: &[&Column],
    grid: &Grid,
    scale: &Scale,
    look: &Look,
) -> Line<'static> {
    let (theme, glyphs) = (&look.theme, &look.glyphs);
    let is_selected = common.selected == Some(row.id);
    // The row under the cursor has one look; the words tell the rest.
    let style = |style: Style| if is_selected { theme.selected } else { style };
    let state = common.model.point(row.id).map(|point| point.state());
    let mark = [
        if is_selected { glyphs.cursor } else { ' ' },
        match state {
            Some(PointState::On) => glyphs.on,
            Some(PointState::Off) => glyphs.off,
            None => ' ',
            Some(PointState::InvalidBeginBegin) => glyphs.invalid,
        },
    ];
    let verdict_style = match row.verdict {
        Verdict::Slower | Verdict::SlowerTail => theme.error,
        Verdict::Faster | Verdict::FasterTail => theme.live,
        Verdict::NoDifference | Verdict::AsTheRest => theme.header,
        Verdict::New | Verdict::Gone => theme.warn,
        Verdict::TooFew => theme.faint,
    };
    let plain = if matches!(row.verdict, Verdict::TooFew | Verdict::Gone) {
        theme.faint
    } else {
        theme.header
    };
    let first = [String::from_iter(mark), row.name.clone(), row.verdict.words().to_owned()];
    let figures = columns.iter().map(|column| (column.cell)(row, scale));
    let reason = |column: &&Column| match column.stresses.contains(&row.verdict) {
        true => verdict_style,
        false => plain,
    };
    let styles = [theme.header, plain, verdict_style].into_iter();
    let styles = styles.chain(columns.iter().map(reason));
    let cells = grid.cells(first.into_iter().chain(figures)).into_iter();
    let spans = cells.zip(styles).map(|(cell, of)| Span::styled(cell + " ", style(of)));
    Line::from_iter(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_has_room_for_the_verdict_and_what_matters_most() {
        for width in 0..320 {
            let (columns, name) = fitting(width);
            let used: usize = columns.iter().map(|column| column.width + 1).sum();
            let all = MARK + name + 1 + VERDICT_WIDTH + used;
            assert!(all <= width.max(MARK + 1 + VERDICT_WIDTH), "{width}");
            if width >= 40 {
                assert!(columns.iter().any(|column| column.title == "dLoad"), "{width}");
            }
        }
        assert_eq!(fitting(300).0.len(), COLUMNS.len());
    }
}
