//! The points beside their baseline, the greatest change of load first.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::{Look, detail};
use crate::app::App;
use crate::local_time::time_of_day;
use crate::model::compare::{Comparison, Row, TEST, Verdict};
use crate::snapshot::PointState;
use crate::text;
use crate::units::{self, NONE, Scale};

/// Lines above the rows: what is compared, and the heading.
pub(super) const HEAD: u16 = 2;
/// Room for a name, at least and at most.
const NAME: (usize, usize) = (8, 32);
/// The cursor, the state and a blank.
const MARK: usize = 3;

/// A column, all of whose cells are aligned to the right.
struct Column {
    title: &'static str,
    width: usize,
    /// Those with the greatest rank give way first.
    rank: u8,
    cell: fn(&Row, &Scale) -> String,
    /// The verdicts that this figure is the reason for, and gets their colour.
    stresses: &'static [Verdict],
}

const SHIFTED: &[Verdict] = &[Verdict::Slower, Verdict::Faster];
const TAIL: &[Verdict] = &[Verdict::SlowerTail, Verdict::FasterTail];

const fn column(
    title: &'static str,
    width: usize,
    rank: u8,
    cell: fn(&Row, &Scale) -> String,
) -> Column {
    Column { title, width, rank, cell, stresses: &[] }
}

const COLUMNS: &[Column] = &[
    column("Load%", 5, 4, |row, _| share(row.before.load())),
    column("now", 5, 4, |row, _| share(row.since.load())),
    column("dLoad", 6, 1, |row, _| points(row.load_change())),
    column("Mean", 7, 5, |row, scale| ticks(row.before.mean(), scale)),
    column("now", 7, 5, |row, scale| ticks(row.since.mean(), scale)),
    Column { stresses: SHIFTED, ..column("dMean", 6, 2, |row, _| change(row.mean_change())) },
    Column { stresses: SHIFTED, ..column("dp50", 6, 6, |row, _| change(row.quantile_change(0.5))) },
    column("dp90", 6, 7, |row, _| change(row.quantile_change(0.9))),
    column("p99", 7, 8, |row, scale| ticks(row.before.quantile(0.99), scale)),
    column("now", 7, 8, |row, scale| ticks(row.since.quantile(0.99), scale)),
    Column { stresses: TAIL, ..column("dp99", 6, 3, |row, _| change(row.quantile_change(0.99))) },
    column("/s", 5, 10, |row, _| rate(row.before.rate())),
    column("now", 5, 10, |row, _| rate(row.since.rate())),
    column("d/s", 6, 9, |row, _| change(row.rate_change())),
    column("A", 4, 11, |row, _| row.superiority.map_or(NONE.into(), |a| format!("{a:.2}"))),
    column("Count", 5, 12, |row, _| units::count(row.before.count)),
    column("now", 5, 12, |row, _| units::count(row.since.count)),
];

const VERDICT: &str = "Verdict";
/// Room for the longest verdict.
const VERDICT_WIDTH: usize = 13;

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App, look: &Look) {
    let [top, head, body] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Fill(1)])
            .areas(area);
    let caption = text::cut(&caption(app), area.width.into(), look.glyphs.ellipsis);
    frame.render_widget(Line::styled(caption, look.theme.process), top);
    let (columns, name_width) = fitting(area.width.into());
    frame.render_widget(heading(&columns, name_width, area.width.into(), look), head);
    let Some(comparison) = &app.diff.comparison else {
        let text = match &app.diff.baseline {
            None => " no baseline yet: b takes one, and what comes is compared with it",
            Some(_) => " nothing was measured since the baseline",
        };
        return frame.render_widget(Line::styled(text, look.theme.faint), body);
    };
    let scale =
        Scale { ticks_per_second: comparison.ticks_per_second, unit: detail::scale(app).unit };
    let seen = app.diff.order.iter().skip(app.offset).filter_map(|id| comparison.row(*id));
    for (area, row) in body.rows().zip(seen) {
        let line = line(app, row, &columns, name_width, &scale, look);
        if app.selected == Some(row.id) {
            frame.buffer_mut().set_style(area, look.theme.selected);
        }
        frame.render_widget(line, area);
    }
}

/// What is compared with what, and how.
fn caption(app: &App) -> String {
    let Some(baseline) = &app.diff.baseline else {
        return " no baseline".into();
    };
    let until = baseline.until();
    let mut text = match baseline.file() {
        Some(file) => format!(" {file}: {}[{}]", until.process.name, until.process.pid),
        None => format!(" baseline {}", time_of_day(until.taken_unix_ns)),
    };
    text += &format!(", {} long", units::duration(baseline.seconds()));
    if let Some(Comparison { seconds, gone, .. }) = &app.diff.comparison {
        text += &format!("; now: {} since", units::duration(*seconds));
        if *gone > 0 {
            text += &format!("; {gone} points only in the baseline");
        }
    }
    format!("{text}; {TEST}")
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

fn heading(columns: &[&Column], name_width: usize, width: usize, look: &Look) -> Line<'static> {
    let ellipsis = look.glyphs.ellipsis;
    let mut text = " ".repeat(MARK) + &text::fit("Name", name_width, ellipsis);
    text += &format!(" {VERDICT:<VERDICT_WIDTH$}");
    for column in columns {
        let title = match column.title {
            "dLoad" => format!("dLoad{}", look.glyphs.down),
            title => title.into(),
        };
        text += &format!(" {title:>width$}", width = column.width);
    }
    Line::styled(text::fit(&text, width, ellipsis), look.theme.heading)
}

fn line(
    app: &App,
    row: &Row,
    columns: &[&Column],
    name_width: usize,
    scale: &Scale,
    look: &Look,
) -> Line<'static> {
    let (theme, glyphs) = (&look.theme, &look.glyphs);
    let is_selected = app.selected == Some(row.id);
    // The row under the cursor has one look; the words tell the rest.
    let style = |style: Style| if is_selected { theme.selected } else { style };
    let state = app.model.point(row.id).map(|point| point.state());
    let mark = [
        if is_selected { glyphs.cursor } else { ' ' },
        match state {
            Some(PointState::On) => glyphs.on,
            Some(PointState::Off) | None => glyphs.off,
            Some(PointState::InvalidBeginBegin) => glyphs.invalid,
        },
        ' ',
    ];
    let verdict_style = match row.verdict {
        Verdict::Slower | Verdict::SlowerTail => theme.error,
        Verdict::Faster | Verdict::FasterTail => theme.live,
        Verdict::NoDifference => theme.header,
        Verdict::TooFew => theme.faint,
    };
    let plain = if row.verdict == Verdict::TooFew { theme.faint } else { theme.header };
    let mut spans = vec![
        Span::styled(String::from_iter(mark), style(theme.header)),
        Span::styled(text::fit(&row.name, name_width, glyphs.ellipsis), style(plain)),
        Span::styled(format!(" {:<VERDICT_WIDTH$}", row.verdict.words()), style(verdict_style)),
    ];
    for column in columns {
        let cell = format!(" {:>width$}", (column.cell)(row, scale), width = column.width);
        let is_reason = column.stresses.contains(&row.verdict);
        spans.push(Span::styled(cell, style(if is_reason { verdict_style } else { plain })));
    }
    Line::from(spans)
}

fn share(share: Option<f64>) -> String {
    share.map_or(NONE.into(), units::percent)
}

fn ticks(ticks: Option<f64>, scale: &Scale) -> String {
    ticks.map_or(NONE.into(), |ticks| scale.single(ticks))
}

fn rate(rate: Option<f64>) -> String {
    rate.map_or(NONE.into(), units::si)
}

/// Points of a percentage, with their sign, in at most six columns.
fn points(change: Option<f64>) -> String {
    let Some(change) = change.map(|share| share * 100.0).filter(|points| points.is_finite()) else {
        return NONE.into();
    };
    match change.abs() {
        ..0.05 => "0.0".into(),
        0.05..999.95 => format!("{change:+.1}"),
        0.0..99_999.5 => format!("{change:+.0}"),
        _ => if change > 0.0 { ">+99k" } else { "<-99k" }.into(),
    }
}

/// A change as a share of what was before, in at most six columns: `+3.2%`,
/// `-41%`, `x12`.
fn change(change: Option<f64>) -> String {
    let Some(change) = change.filter(|share| share.is_finite()) else {
        return NONE.into();
    };
    match change.abs() {
        ..0.0005 => "0.0%".into(),
        0.0005..0.0995 => format!("{:+.1}%", change * 100.0),
        0.0..9.995 => format!("{:+.0}%", change * 100.0),
        9.995..9999.0 => format!("x{:.0}", change + 1.0),
        _ => ">x9999".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_change_bursts_its_column() {
        for sign in [1.0, -1.0] {
            let mut size = 1e-6;
            while size < 1e9 {
                assert!(points(Some(sign * size)).len() <= 6, "{}", points(Some(sign * size)));
                let share = (sign * size).max(-1.0);
                assert!(change(Some(share)).len() <= 6, "{}", change(Some(share)));
                size *= 1.07;
            }
        }
        assert_eq!(change(Some(0.25)), "+25%");
        assert_eq!(change(Some(-0.031)), "-3.1%");
        assert_eq!(change(Some(11.0)), "x12");
        assert_eq!(points(Some(-0.1234)), "-12.3");
        assert_eq!((change(None), points(Some(f64::NAN))), (NONE.into(), NONE.into()));
    }

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
