//! The points and their changes since a baseline, the greatest change of load first.

use crate::screens::prelude::*;
use crate::styles::Theme;
use pfp_model::compare::columns::{
    LOAD_CHANGE, NAME, TABLE, VERDICT, caption, is_offered, stresses, volume,
};
use pfp_model::compare::volume::Volume;
use pfp_model::compare::{Baseline, Comparison, DIFFERS, DiffRow, Verdict};

/// Lines above the rows: the two sides of the comparison, and the heading.
const HEAD: u16 = 2;
/// Columns of the cursor and the state.
const MARK: usize = 2;

const SIGNS: &str = "the change: percentage points for a load, otherwise % of the baseline";
const VERDICTS: &str = "most calls changed by 5 % or more, statistically significant: Mann-Whitney \
                        test, false discovery rate 1 % (Benjamini-Hochberg)";

const VOLUMES: &str = "calls per second, and load: changed by a quarter or more, beyond their \
                       variation between polls (taken as 10 % if unknown: fewer than 10 polls, \
                       another process); unsure: a change by half is possible";

/// The comparison of the points with a baseline.
#[derive(Debug)]
pub struct DiffView {
    /// The baseline. `None` until one is taken or read from a file.
    pub baseline: Option<Baseline>,
    /// The comparison. `None` without a baseline, or if nothing was measured since the baseline.
    pub comparison: Option<Comparison>,
    /// Ids of the points in the order of the rows.
    pub order: Vec<u32>,
    /// The columns, and the order of the rows.
    table: TableLayout,
}

impl Default for DiffView {
    fn default() -> Self {
        let table = TABLE.usual(LOAD_CHANGE);
        Self { baseline: None, comparison: None, order: Vec::new(), table }
    }
}

impl DiffView {
    /// The columns that fit and have something to show.
    fn fit(&self, width: usize, ellipsis: char) -> Fitted<DiffRow, Scale> {
        let rows = self.comparison.as_ref().map_or(&[][..], |comparison| &comparison.rows);
        TABLE.fit_offered(&self.table, |key| is_offered(key, rows), MARK, width, ellipsis)
    }

    /// Brings the comparison up to date.
    fn compare(&mut self, common: &Common) {
        let snapshots = self.baseline.as_ref().zip(common.model.snapshot());
        let known = self.comparison.take();
        self.comparison = snapshots
            .and_then(|(baseline, snapshot)| Comparison::new_after(baseline, snapshot, known));
        for row in self.comparison.iter_mut().flat_map(|comparison| &mut comparison.rows) {
            if let Some(figures) = common.model.point(row.id) {
                row.name = common.pid_before(row.id) + &figures.name();
            }
        }
    }
}

impl View for DiffView {
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
                "only the slowest 1 % got slower, or slow calls became more frequent",
            ),
            ("too few".into(), "too few calls to detect a change that matters"),
            ("more less same".into(), VOLUMES),
            ("new gone".into(), "not in the baseline; only in the baseline"),
            (
                "A".into(),
                "chance that a call now is slower than one of the baseline; 0.5: no change",
            ),
        ]
    }

    fn begin(&mut self, common: &mut Common) {
        common.scroll = Scroll::default();
        self.compare(common);
    }

    fn update(&mut self, common: &mut Common) -> Outcome {
        self.compare(common);
        Outcome::Done
    }

    fn arrange(&mut self, common: &mut Common) {
        let all = self.comparison.as_ref().map_or(&[][..], |comparison| &comparison.rows);
        // A filter cannot test points that only the baseline has, so it hides them.
        let passes = |row: &&DiffRow| match common.model.point(row.id) {
            Some(figures) => common.filter.admits(figures),
            None => !common.filter.is_on(),
        };
        let mut rows: Vec<&DiffRow> = all.iter().filter(passes).collect();
        if let Some(comparison) = &self.comparison {
            TABLE.sort(&self.table, &mut rows, &scale(comparison, common));
        }
        let sorted = rows.iter().map(|row| row.id).collect();
        self.order = common.placed(&self.order, sorted);
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

    fn points(&self, _: &Common) -> Option<Vec<u32>> {
        Some(self.order.clone())
    }

    has_table!(self.table);

    fn grid(&self, width: usize, _: &Common) -> Option<Grid> {
        Some(self.fit(width, ' ').grid)
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
        let [top, head, body] = vertical![==1, ==1, *=1].areas(area);
        let caption = match &self.baseline {
            None => " no baseline".into(),
            Some(baseline) => format!(" {}", caption(baseline, self.comparison.as_ref(), DIFFERS)),
        };
        let caption = text::cut(&caption, area.width.into(), styles.glyphs.ellipsis);
        frame.render_widget(Line::styled(caption, styles.theme.process), top);
        let fit = self.fit(area.width.into(), styles.glyphs.ellipsis);
        frame.render_widget(fit.heading(&self.table, styles), head);
        let Some(comparison) = &self.comparison else {
            let text = match &self.baseline {
                None => " no baseline yet: press b to take one; later figures are compared with it",
                Some(_) if common.replay.is_some() => {
                    " nothing was measured between the baseline and this moment; go to a later one"
                }
                Some(_) => " nothing was measured since the baseline",
            };
            return view::draw_empty(frame, body, text, common);
        };
        if self.order.is_empty() {
            return view::draw_empty(frame, body, &view::why_no_point(common, ""), common);
        }
        let rows = self.order.iter().skip(common.scroll.offset);
        for (area, row) in body.rows().zip(rows.filter_map(|id| comparison.row(*id))) {
            let is_selected = common.selected == Some(row.id);
            if is_selected {
                frame.buffer_mut().set_style(area, styles.theme.selected);
            }
            let cells = fit.cells(mark(row, common), row, &scale(comparison, common), styles);
            let spans = cells.into_iter().zip(styles_of(row, &fit, &styles.theme));
            let spans = spans.map(|(cell, own)| {
                // The row under the cursor has a single style; its words have all the information.
                Span::styled(cell + " ", if is_selected { styles.theme.selected } else { own })
            });
            frame.render_widget(Line::from_iter(spans), area);
        }
    }
}

/// The scale of ticks on both sides.
fn scale(comparison: &Comparison, common: &Common) -> Scale {
    Scale { ticks_per_second: comparison.ticks_per_second, unit: common.scale().unit }
}

/// The cursor, and the state of the point.
fn mark(row: &DiffRow, common: &Common) -> String {
    let glyphs = &common.styles.glyphs;
    let cursor = if common.selected == Some(row.id) { glyphs.cursor } else { ' ' };
    let state = common.model.point(row.id).map_or(' ', |point| glyphs.state(point.state()));
    String::from_iter([cursor, state])
}

/// The styles of a row's cells, its mark first.
fn styles_of(
    row: &DiffRow,
    fit: &Fitted<DiffRow, Scale>,
    theme: &Theme,
) -> impl Iterator<Item = Style> {
    let of_verdict = match row.verdict {
        Verdict::Slower | Verdict::SlowerTail => theme.error,
        Verdict::Faster | Verdict::FasterTail => theme.live,
        Verdict::NoDifference | Verdict::AsTheRest => theme.header,
        Verdict::New | Verdict::Gone => theme.warn,
        Verdict::TooFew => theme.faint,
    };
    let plain = match row.verdict {
        Verdict::TooFew | Verdict::Gone => theme.faint,
        _ => theme.header,
    };
    let cells = fit.columns.iter().map(move |column| match column.heading.key {
        VERDICT => of_verdict,
        NAME => plain,
        key if stresses(key).contains(&row.verdict) => of_verdict,
        key => match volume(key, row) {
            Some(Volume::More | Volume::Less) => theme.warn,
            Some(Volume::Unsure) => theme.faint,
            _ => plain,
        },
    });
    std::iter::once(theme.header).chain(cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_fits_the_verdict_and_the_main_columns() {
        let chosen = TABLE.usual(LOAD_CHANGE);
        for width in 0..320 {
            let fit = TABLE.fit(&chosen, MARK, width, '~');
            assert!(
                text::width(&fit.grid.titles()) < (width + 1).max(MARK + 1 + 9 + 14),
                "{width}"
            );
            let has = |key: &str| fit.columns.iter().any(|column| column.heading.key == key);
            assert!(has(NAME) && has(VERDICT), "{width}");
            assert!(width < 40 || has(LOAD_CHANGE), "{width}");
        }
        assert_eq!(TABLE.fit(&chosen, MARK, 319, '~').columns.len(), TABLE.0.len());
    }
}
