//! What the viewer noticed, and what measuring costs.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};

use super::{Look, detail};
use crate::app::App;
use crate::local_time::time_of_day;
use crate::model::cost::{Cost, Costs};
use crate::text;
use crate::units;

/// Points whose cost is told, at most.
const POINTS: u16 = 6;
/// Room for the name of a point among the costs.
const NAME: usize = 32;

struct Parts {
    cost: Rect,
    points: Rect,
    heading: Rect,
    entries: Rect,
}

impl Parts {
    fn of(area: Rect) -> Self {
        // The log is what most room goes to.
        let points = (area.height / 4).min(POINTS);
        let points = if points < 2 { 0 } else { points + 1 };
        let [cost, points, heading, entries] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(points),
            Constraint::Length(1),
            Constraint::Fill(1),
        ])
        .areas(area);
        Self { cost, points, heading, entries }
    }
}

/// How many entries a body of this size shows.
pub(super) fn rows(area: Rect) -> usize {
    Parts::of(area).entries.height.into()
}

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App, look: &Look) {
    let parts = Parts::of(area);
    let costs = Costs::of(&app.model);
    let theme = &look.theme;
    let width = usize::from(area.width);
    let total = format!(
        " measuring costs {} % of a CPU: {} measurements/s, {} each",
        precise(costs.share),
        units::si(costs.rate),
        detail::scale(app).ticks(costs.pair_ticks),
    );
    let total = text::cut(&total, width, look.glyphs.ellipsis);
    frame.render_widget(Line::styled(total, theme.process), parts.cost);
    draw_costs(frame, parts.points, &costs.points, look);

    let (len, rows) = (app.log.entries().len(), usize::from(parts.entries.height));
    let end = len.saturating_sub(app.log_back);
    let first = end.saturating_sub(rows);
    let heading = format!(" Time     {:<1} {}", "", "What was noticed, newest last");
    let heading = text::fit(&heading, width, look.glyphs.ellipsis);
    frame.render_widget(Line::styled(heading, theme.heading), parts.heading);
    if len > rows {
        let follows = if app.log_back == 0 { "" } else { "  G follows" };
        let place = format!("{}-{end}/{len}{follows} ", first + 1);
        let place = Line::from(Span::styled(place, theme.heading)).right_aligned();
        frame.render_widget(place, parts.heading);
    }
    let entries = app.log.entries().range(first..end);
    for (area, entry) in parts.entries.rows().zip(entries) {
        let (mark, style) =
            if entry.is_problem { (look.glyphs.invalid, theme.warn) } else { (' ', theme.header) };
        let line = format!(" {} {mark} {}", time_of_day(entry.unix_ns), entry.text);
        let line = text::cut(&line, width, look.glyphs.ellipsis);
        frame.render_widget(Line::styled(line, style), area);
    }
}

fn draw_costs(frame: &mut Frame, area: Rect, costs: &[Cost], look: &Look) {
    let mut rows = area.rows();
    let Some(head) = rows.next() else { return };
    let width = usize::from(area.width);
    let heading = format!(" {:>7} {:>5} {:>12}  Point", "Cost%", "/s", "of its time");
    let heading = text::fit(&heading, width, look.glyphs.ellipsis);
    frame.render_widget(Line::styled(heading, look.theme.heading), head);
    for (area, cost) in rows.zip(costs) {
        let of = cost.of_its_time.map_or(units::NONE.into(), |of| units::percent(of) + " %");
        let name = text::cut(&cost.name, NAME, look.glyphs.ellipsis);
        let (share, rate) = (precise(cost.share), units::si(cost.rate));
        let line = format!(" {share:>7} {rate:>5} {of:>12}  {name}");
        frame.render_widget(Line::raw(text::cut(&line, width, look.glyphs.ellipsis)), area);
    }
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
