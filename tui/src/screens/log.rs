//! The log of events, and the cost of measuring.

use crate::screens::prelude::*;
use pfp_model::cost::{Cost, Costs};
use pfp_model::log::LogEntry;
use pfp_read::local_time::time_of_day;

/// Maximum number of points whose cost is shown.
const POINTS: u16 = 6;
/// Minimum width for indenting further lines of an entry below its text.
const WIDE: usize = 60;
/// Width of the name of a point among the costs.
const NAME: usize = 32;

/// The log, and the cost of measuring.
#[derive(Default)]
pub struct LogView {
    /// Number of entries scrolled out at the bottom; 0 follows the newest.
    pub back: usize,
    /// Number of entries added from the start to the last update.
    pushed: u64,
}

impl LogView {
    /// The number of entries that fit on a body of this size, and how many must be scrolled out at
    /// the bottom to show the oldest.
    fn rows(&self, common: &Common, area: Rect) -> (usize, usize) {
        let styles = &common.styles;
        let [.., area] = parts(area);
        let fits = |entries: &mut dyn Iterator<Item = &LogEntry>| {
            let mut left = usize::from(area.height);
            let lines = entries.map(|entry| wrapped(entry, area.width.into(), styles).len());
            let fit = lines.take_while(|lines| {
                let fits = *lines <= left;
                left = left.saturating_sub(*lines);
                fits
            });
            // An entry that is longer than the screen is cut.
            fit.count().max(1)
        };
        let entries = common.log.entries();
        let end = entries.len().saturating_sub(self.back);
        let seen = fits(&mut entries.range(..end).rev()).min(end);
        (seen, entries.len().saturating_sub(fits(&mut entries.iter())))
    }
}

impl View for LogView {
    fn keys(&self) -> KeyMap {
        &[&[keys::RUN, keys::TO_TABLE, keys::FILTER], keys::TAIL]
    }

    fn begin(&mut self, common: &mut Common) {
        self.back = 0;
        self.pushed = common.log.pushed();
        common.log.read();
    }

    fn update(&mut self, common: &mut Common) -> Outcome {
        // New entries must not move the entries on the screen.
        if self.back > 0 {
            self.back += common.log.pushed().saturating_sub(self.pushed) as usize;
        }
        self.pushed = common.log.pushed();
        common.log.read();
        Outcome::Done
    }

    fn jump(&mut self, common: &mut Common) {
        self.back = 0;
        self.pushed = common.log.pushed();
    }

    fn walk(&mut self, lines: isize, _: &mut Common) {
        // `settle` limits `back` to the length of the log.
        self.back = self.back.saturating_add_signed(lines.saturating_neg());
    }

    fn settle(&mut self, body: Rect, common: &mut Common) {
        let (rows, most) = self.rows(common, body);
        common.rows = rows.max(1);
        self.back = self.back.min(most);
    }

    fn draw(&self, frame: &mut Frame, area: Rect, common: &Common) {
        let styles = &common.styles;
        let [cost, points, head, rest] = parts(area);
        let costs = Costs::of(&common.model);
        let theme = &styles.theme;
        let width = usize::from(area.width);
        let total = format!(
            " measuring costs {} % of a CPU: {} measurements/s, {} each",
            precise(costs.share),
            units::si(costs.rate),
            common.scale().ticks(costs.pair_ticks),
        );
        let total = text::cut(&total, width, styles.glyphs.ellipsis);
        frame.render_widget(Line::styled(total, theme.process), cost);
        draw_costs(frame, points, &costs.points, styles);

        let len = common.log.entries().len();
        let end = len.saturating_sub(self.back);
        let first = end.saturating_sub(self.rows(common, area).0);
        let heading = format!(" Time     {:<1} {}", "", "Log, newest last");
        let heading = text::fit(&heading, width, styles.glyphs.ellipsis);
        frame.render_widget(Line::styled(heading, theme.heading), head);
        if end - first < len {
            let follows = if self.back == 0 { "" } else { "  G follows" };
            let place = format!("{}-{end}/{len}{follows} ", first + 1);
            let place = Line::from(Span::styled(place, theme.heading)).right_aligned();
            frame.render_widget(place, head);
        }
        let lines = common.log.entries().range(first..end).flat_map(|entry| {
            let style = if entry.is_problem { theme.warn } else { theme.header };
            wrapped(entry, width, styles).into_iter().map(move |line| Line::styled(line, style))
        });
        for (area, line) in rest.rows().zip(lines) {
            frame.render_widget(line, area);
        }
    }
}

/// The areas of the line of costs, the points, the heading and the entries.
fn parts(area: Rect) -> [Rect; 4] {
    // The log gets most of the height.
    let points = (area.height / 4).min(POINTS);
    let points = if points < 2 { 0 } else { points + 1 };
    vertical![==1, ==points, ==1, *=1].areas(area)
}

/// An entry, wrapped into lines so that its end is visible.
fn wrapped(entry: &LogEntry, width: usize, styles: &Styles) -> Vec<String> {
    let mark = if entry.is_problem { styles.glyphs.invalid } else { ' ' };
    let head = format!(" {} {mark} ", time_of_day(entry.unix_ns));
    let indent = if width >= WIDE { text::width(&head) } else { 2 };
    text::wrapped_behind(&head, &" ".repeat(indent), &entry.text, width)
}

fn draw_costs(frame: &mut Frame, area: Rect, costs: &[Cost], styles: &Styles) {
    let (width, ellipsis) = (usize::from(area.width), styles.glyphs.ellipsis);
    let grid = Grid::new(ellipsis).left("", 0).right("Cost%", 7).right("/s", 5);
    let grid = grid.right("of its time", 12).left(" Point", NAME + 1);
    let lines = costs.iter().take(usize::from(area.height.saturating_sub(1))).map(|cost| {
        let of = match cost.of_its_time {
            None => units::NONE.into(),
            // A share above 1 means that the point has hardly any time of its own.
            Some(of) if of > 1.0 => "> 100 %".into(),
            Some(of) => units::percent(of) + " %",
        };
        let name = format!(" {}", text::cut(&cost.name, NAME, ellipsis));
        let line = grid.line(["", &precise(cost.share), &units::si(cost.rate), &of, &name]);
        Line::raw(text::cut(line.trim_end(), width, ellipsis))
    });
    draw_scrolled(frame, area, grid.heading(None, width, styles), lines.collect(), 0);
}

/// A small share in per cent: `0.0123`, `1.25`.
fn precise(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        0.0 => "0".into(),
        0.0..0.0001 => "<0.0001".into(),
        0.0..1.0 => format!("{percent:.4}"),
        1.0..100.0 => format!("{percent:.2}"),
        _ => units::percent(share),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_shares_keep_their_digits_and_their_column() {
        let mut share = 1e-12;
        while share < 1e4 {
            assert!(precise(share).len() <= 7, "{}", precise(share));
            share *= 1.13;
        }
        assert_eq!((precise(0.0), precise(0.000_123)), ("0".into(), "0.0123".into()));
    }
}
