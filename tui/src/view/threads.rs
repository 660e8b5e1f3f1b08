//! The threads.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::{Look, draw_scrolled};
use crate::app::App;
use crate::text;

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App, look: &Look) {
    let width = usize::from(area.width);
    let lanes = app.model.snapshot().map_or(&[][..], |snapshot| &snapshot.lanes);
    let heading =
        text::fit(" Thread            Tid  Switches  Records", width, look.glyphs.ellipsis);
    let lines = lanes.iter().map(|lane| {
        let name = text::fit(&lane.name, 14, look.glyphs.ellipsis);
        let row =
            format!(" {name} {:>6} {:>9} {:>8}", lane.tid, lane.switches, lane.records_written);
        Line::from(text::fit(&row, width, look.glyphs.ellipsis))
    });
    draw_scrolled(
        frame,
        area,
        Line::styled(heading, look.theme.heading),
        lines.collect(),
        app.offset,
    );
}
