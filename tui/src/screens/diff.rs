//! The points beside their baseline, the greatest change of load first.

use std::collections::HashSet;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::view::{self, Outcome, View};
use crate::common::keys::{self, KeyMap};
use crate::common::{Action, Common, Screen};
use crate::compare::columns::{LOAD_CHANGE, NAME, TABLE, VERDICT, caption, stresses};
use crate::compare::{Baseline, Comparison, DIFFERS, Row, Verdict};
use crate::grid::{Chosen, Column, Grid, Scroll};
use crate::snapshot::PointState;
use crate::styles::Styles;
use crate::text;
use crate::units::Scale;

/// Lines above the rows: what is compared, and the heading.
const HEAD: u16 = 2;
/// The cursor and the state.
const MARK: usize = 2;

const SIGNS: &str = "what changed: of a load in points, else in per cent of the baseline";
const VERDICTS: &str = "most measurements are, by 5 % or more, statistically significant: Mann-Whitney test, 1 % of \
                       what is found may be none (Benjamini-Hochberg)";

/// The points beside their baseline.
#[derive(Debug)]
pub struct Diff {
    /// None until one is taken or read from a file.
    pub baseline: Option<Baseline>,
    /// None without a baseline, or before anything was measured since.
    pub comparison: Option<Comparison>,
    /// Ids of the points in the order of the rows.
    pub order: Vec<u32>,
    /// The columns, and what the rows are sorted by.
    table: Chosen,
}

impl Default for Diff {
    fn default() -> Self {
        let table = TABLE.usual(LOAD_CHANGE);
        Self { baseline: None, comparison: None, order: Vec::new(), table }
    }
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
        &[
            &[keys::RUN, keys::OPEN, keys::BASELINE, keys::TO_TABLE],
            keys::CHANGE,
            &[keys::TABLE, keys::SAVE, keys::POLL, keys::WALK, keys::PAGE, keys::SHOW],
            &[keys::TURN, keys::LEAVE, keys::TERMINAL],
        ]
    }

    fn compare_with(&mut self, baseline: &Baseline, _: &Common) {
        self.baseline = Some(baseline.clone());
        self.comparison = None;
    }

    fn legend(&self, _: &Styles) -> Vec<(String, &'static str)> {
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

    fn begin(&mut self, common: &mut Common) {
        common.scroll = Scroll::default();
        self.compare(common);
        self.arrange(common);
    }

    fn update(&mut self, common: &mut Common) -> Outcome {
        self.compare(common);
        Outcome::Done
    }

    fn arrange(&mut self, common: &mut Common) {
        let all = self.comparison.as_ref().map_or(&[][..], |comparison| &comparison.rows);
        // A filter cannot test points that only the baseline has.
        let passes = |row: &&Row| match common.model.point(row.id) {
            Some(figures) => common.filter.admits(figures),
            None => !common.filter.is_on(),
        };
        let mut rows: Vec<&Row> = all.iter().filter(passes).collect();
        if let Some(comparison) = &self.comparison {
            TABLE.sort(&self.table, &mut rows, &scale(comparison, common));
        }
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

    fn act(&mut self, action: Action, common: &mut Common) -> Outcome {
        if action != Action::Open {
            return Outcome::Pass;
        }
        match (common.selected, common.selected()) {
            (None, _) => Outcome::Done,
            (Some(_), Some(_)) => Outcome::Show(Screen::Detail),
            (Some(_), None) => {
                common.say("only the baseline has that point");
                Outcome::Done
            }
        }
    }

    fn cursor(&self, common: &Common) -> (usize, usize) {
        common.place_in(&self.order)
    }

    fn select(&mut self, place: usize, common: &mut Common) {
        common.select(self.order.get(place).copied());
    }

    fn is_filtered(&self) -> bool {
        true
    }

    fn table(&self) -> Option<&Chosen> {
        Some(&self.table)
    }

    fn table_mut(&mut self) -> Option<&mut Chosen> {
        Some(&mut self.table)
    }

    fn grid(&self, width: usize, _: &Common) -> Option<Grid> {
        Some(TABLE.fit(&self.table, MARK, width, ' ').1)
    }

    fn copied(&self, common: &Common) -> Option<(String, String)> {
        let comparison = self.comparison.as_ref()?;
        let row = comparison.row(common.selected?)?;
        let text = TABLE.row(&self.table, row, &scale(comparison, common));
        Some((row.name.clone(), text))
    }

    fn rows(&self, body: Rect) -> Rect {
        Rect { y: body.y + HEAD, height: body.height.saturating_sub(HEAD), ..body }
    }

    fn draw(&self, frame: &mut Frame, area: Rect, common: &Common) {
        let styles = &common.styles;
        let [top, head, body] =
            Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Fill(1)])
                .areas(area);
        let caption = match &self.baseline {
            None => " no baseline".into(),
            Some(baseline) => format!(" {}", caption(baseline, self.comparison.as_ref(), DIFFERS)),
        };
        let caption = text::cut(&caption, area.width.into(), styles.glyphs.ellipsis);
        frame.render_widget(Line::styled(caption, styles.theme.process), top);
        let (columns, grid) =
            TABLE.fit(&self.table, MARK, area.width.into(), styles.glyphs.ellipsis);
        let heading = grid.heading(Some(self.table.sorted()), area.width.into(), styles);
        frame.render_widget(heading, head);
        let Some(comparison) = &self.comparison else {
            let text = match &self.baseline {
                None => " no baseline yet: b takes one, and what comes is compared with it",
                Some(_) if common.replay.is_some() => {
                    " nothing was measured between the baseline and this moment; a later one is compared"
                }
                Some(_) => " nothing was measured since the baseline",
            };
            return frame.render_widget(Line::styled(text, styles.theme.faint), body);
        };
        if self.order.is_empty() && common.filter.is_on() {
            let text = view::nothing_passes(common, area.width.into());
            return frame.render_widget(text, body);
        }
        let scale = scale(comparison, common);
        let seen =
            self.order.iter().skip(common.scroll.offset).filter_map(|id| comparison.row(*id));
        for (area, row) in body.rows().zip(seen) {
            let line = line(common, row, &columns, &grid, &scale);
            if common.selected == Some(row.id) {
                frame.buffer_mut().set_style(area, styles.theme.selected);
            }
            frame.render_widget(line, area);
        }
    }
}

/// How ticks of both sides are shown.
fn scale(comparison: &Comparison, common: &Common) -> Scale {
    Scale { ticks_per_second: comparison.ticks_per_second, unit: common.scale().unit }
}

fn line(
    common: &Common,
    row: &Row,
    columns: &[&Column<Row, Scale>],
    grid: &Grid,
    scale: &Scale,
) -> Line<'static> {
    let styles = &common.styles;
    let (theme, glyphs) = (&styles.theme, &styles.glyphs);
    let is_selected = common.selected == Some(row.id);
    // The row under the cursor has one style; its words say the rest.
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
    let styles = columns.iter().map(|column| match column.heading.key {
        VERDICT => verdict_style,
        NAME => plain,
        key if stresses(key).contains(&row.verdict) => verdict_style,
        _ => plain,
    });
    let styles = std::iter::once(theme.header).chain(styles);
    let figures = columns.iter().map(|column| column.cell(row, scale));
    let cells = std::iter::once(String::from_iter(mark)).chain(figures);
    let cells = grid.cells(cells).into_iter();
    let spans = cells.zip(styles).map(|(cell, of)| Span::styled(cell + " ", style(of)));
    Line::from_iter(spans)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_has_room_for_the_verdict_and_what_matters_most() {
        let chosen = TABLE.usual(LOAD_CHANGE);
        for width in 0..320 {
            let (columns, grid) = TABLE.fit(&chosen, MARK, width, '~');
            assert!(text::width(&grid.titles()) < (width + 1).max(MARK + 1 + 9 + 14), "{width}");
            let has = |key: &str| columns.iter().any(|column| column.heading.key == key);
            assert!(has(NAME) && has(VERDICT), "{width}");
            assert!(width < 40 || has(LOAD_CHANGE), "{width}");
        }
        assert_eq!(TABLE.fit(&chosen, MARK, 300, '~').0.len(), TABLE.0.len());
    }
}
