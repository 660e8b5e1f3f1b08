//! The points beside their baseline, the greatest change of load first.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::{Look, detail};
use crate::app::App;
use crate::comparison::{COLUMNS, Column, VERDICT, VERDICT_WIDTH, caption};
use crate::model::compare::{DIFFERS, Row, Verdict};
use crate::snapshot::PointState;
use crate::text;
use crate::units::Scale;

/// Lines above the rows: what is compared, and the heading.
pub(super) const HEAD: u16 = 2;
/// Room for a name, at least and at most.
const NAME: (usize, usize) = (8, 32);
/// The cursor, the state and a blank.
const MARK: usize = 3;

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App, look: &Look) {
    let [top, head, body] =
        Layout::vertical([Constraint::Length(1), Constraint::Length(1), Constraint::Fill(1)])
            .areas(area);
    let caption = match &app.diff.baseline {
        None => " no baseline".into(),
        Some(baseline) => format!(" {}", caption(baseline, app.diff.comparison.as_ref(), DIFFERS)),
    };
    let caption = text::cut(&caption, area.width.into(), look.glyphs.ellipsis);
    frame.render_widget(Line::styled(caption, look.theme.process), top);
    let (columns, name_width) = fitting(area.width.into());
    frame.render_widget(heading(&columns, name_width, area.width.into(), look), head);
    let Some(comparison) = &app.diff.comparison else {
        let text = match &app.diff.baseline {
            None => " no baseline yet: b takes one, and what comes is compared with it",
            Some(_) if app.common.replay.is_some() => {
                " nothing was measured between the baseline and this moment; a later one is compared"
            }
            Some(_) => " nothing was measured since the baseline",
        };
        return frame.render_widget(Line::styled(text, look.theme.faint), body);
    };
    let scale =
        Scale { ticks_per_second: comparison.ticks_per_second, unit: detail::scale(app).unit };
    let seen = app.diff.order.iter().skip(app.offset).filter_map(|id| comparison.row(*id));
    for (area, row) in body.rows().zip(seen) {
        let line = line(app, row, &columns, name_width, &scale, look);
        if app.common.selected == Some(row.id) {
            frame.buffer_mut().set_style(area, look.theme.selected);
        }
        frame.render_widget(line, area);
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
    let is_selected = app.common.selected == Some(row.id);
    // The row under the cursor has one look; the words tell the rest.
    let style = |style: Style| if is_selected { theme.selected } else { style };
    let state = app.common.model.point(row.id).map(|point| point.state());
    let mark = [
        if is_selected { glyphs.cursor } else { ' ' },
        match state {
            Some(PointState::On) => glyphs.on,
            Some(PointState::Off) => glyphs.off,
            None => ' ',
            Some(PointState::InvalidBeginBegin) => glyphs.invalid,
        },
        ' ',
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
