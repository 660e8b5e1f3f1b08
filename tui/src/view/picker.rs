//! The processes to choose from.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Wrap};

use super::{Look, draw_scrolled};
use crate::app::App;
use crate::snapshot::ProcessState;
use crate::source::Candidate;
use crate::text;

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App, look: &Look) {
    let width = usize::from(area.width);
    let heading =
        text::fit("   Number  PID     State    Points  Name", width, look.glyphs.ellipsis);
    if app.candidates.is_empty() {
        let text = format!(" {}", app.common.discovery.nothing_found());
        return frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }), area);
    }
    let (cursor, _) = app.cursor();
    let lines = app.candidates.iter().enumerate().map(|(place, candidate)| {
        let selected = place == cursor;
        let marked = app.marked.contains(&candidate.segment_id);
        let mark = if selected { look.glyphs.cursor } else { ' ' };
        let row = text::fit(&row(app, candidate, mark, marked), width, look.glyphs.ellipsis);
        let style = match (selected, candidate.state) {
            (true, _) => look.theme.selected,
            (false, ProcessState::Running) => look.theme.header,
            (false, ProcessState::Exited | ProcessState::Crashed) => look.theme.faint,
        };
        Line::styled(row, style)
    });
    let heading = Line::styled(heading, look.theme.heading);
    draw_scrolled(frame, area, heading, lines.collect(), app.offset);
}

fn row(app: &App, candidate: &Candidate, mark: char, marked: bool) -> String {
    let star = if marked { '*' } else { ' ' };
    let state = candidate.state.word();
    let Candidate { points, name, exe, .. } = candidate;
    let (number, pid) = (app.common.discovery.number_of(candidate), candidate.visible_pid());
    format!("{mark}{star} {number:<7} {pid:<7} {state:<8} {points:>6}  {name}  {exe}")
}
