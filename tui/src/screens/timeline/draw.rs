//! Draws the timeline.
//!
//! ```text
//! Thread      |-150ms          |-100ms        v |-50ms          |now
//! worker 1    ▏compress██████████████████▏rest░░░░░░▏compress██████
//!              ▏deflate██▏deflate███ ▏sort█▏         ▏deflate██
//! >worker 2   ╱lost╱╱▏inflate████████████████
//!  deflate  on worker 1 [1234]  began 52.1ms ago  ...
//! ```
//!
//! A bar is solid while its thread ran, and sparse while it did not. Adjacent regions that are too
//! short for bars of their own share one bar, which shows their number.

use ratatui::buffer::Buffer;
use ratatui::macros::line;
use ratatui::style::Modifier;

use super::super::name::NameCell;
use super::TimelineView;
use super::place::step_above;
use crate::screens::prelude::*;
use pfp_model::timeline as model;
use pfp_model::timeline::columns::{ColumnRun, TimelineColumn, TimelineWindow, columns, runs};
use pfp_model::timeline::{ThreadTrack, TimelineLevel};

/// Minimum number of columns between two marks of the axis.
const BETWEEN_MARKS: u64 = 14;
/// Minimum height for a second line about the region under the cursor.
const HIGH: u16 = 10;

const NO_EVENTS: &str = " This recording has no calls: `pfp-top record --events` keeps them.";
const NO_RECORDS: &str = " This file has no calls.";

/// The area of the picture's lines on a body.
pub(super) fn rows(body: Rect) -> Rect {
    parts(body)[1]
}

/// The moment at a column of a body. `None` left of the bars.
pub(super) fn moment_at(view: &TimelineView, body: Rect, column: usize) -> Option<u64> {
    let label = usize::from(label_width(body.width));
    let columns = usize::from(body.width).saturating_sub(label);
    let window = view.at.window(columns);
    let behind = column.checked_sub(label)? as u64;
    Some(window.from + (window.ticks as f64 * behind as f64 / columns.max(1) as f64) as u64)
}

/// The areas of the axis, of the lines, and of the text about the region under the cursor.
fn parts(body: Rect) -> [Rect; 3] {
    vertical![==1, *=1, ==if body.height >= HIGH { 2 } else { 1 }].areas(body)
}

/// Width of the names of the threads.
fn label_width(width: u16) -> u16 {
    match width {
        100.. => 16,
        60.. => 12,
        _ => 8,
    }
}

pub(super) fn draw(view: &TimelineView, frame: &mut Frame, area: Rect, common: &Common) {
    let styles = &common.styles;
    let [axis, rows, about] = parts(area);
    let Some(timeline) = view.at.picture() else { return };
    let label = label_width(area.width);
    let window = view.at.window(usize::from(area.width.saturating_sub(label)));
    let seen = rows.height;
    let picture = TimelinePicture { view, common, styles, timeline, window, label, seen };
    // A part is empty if the body is too low for it.
    if !axis.is_empty() {
        picture.axis(frame.buffer_mut(), axis);
    }
    if !rows.is_empty() {
        picture.rows(frame.buffer_mut(), rows);
    }
    picture.about(frame, about);
}

struct TimelinePicture<'a> {
    view: &'a TimelineView,
    common: &'a Common,
    styles: &'a Styles,
    timeline: &'a model::Timeline,
    window: TimelineWindow,
    label: u16,
    /// Number of lines that fit.
    seen: u16,
}

impl TimelinePicture<'_> {
    /// Draws the axis: moments before now, at round distances.
    fn axis(&self, buffer: &mut Buffer, area: Rect) {
        let style = self.styles.theme.heading;
        buffer.set_style(area, style);
        // The axis also shows how many lines are out of view.
        let (_, lines) = self.view.at.cursor();
        let (first, seen) = (self.common.scroll.offset, usize::from(self.seen));
        let title = match seen < lines {
            true => format!(" {}-{}/{lines}", first + 1, (first + seen).min(lines)),
            false => " Thread".to_owned(),
        };
        let title = text::cut(&title, self.label.into(), self.styles.glyphs.ellipsis);
        buffer.set_stringn(area.x, area.y, title, self.label.into(), style);
        let graph = self.graph(area);
        if graph.is_empty() {
            return;
        }
        let columns = u64::from(graph.width);
        let span = self.view.at.span_ns();
        let step = step_above((span.saturating_mul(BETWEEN_MARKS) / columns).max(1));
        let step_ticks = self.timeline.ticks(step);
        let now = self.timeline.taken;
        let right = self.window.from.saturating_add(self.window.ticks);
        let farthest = now.saturating_sub(self.window.from) as f64 / self.timeline.ticks_per_second;
        let cursor = self.view.at.region().and_then(|(_, region)| {
            self.window.column(region.start.max(self.window.from).min(region.end))
        });
        let first = now.saturating_sub(right).div_ceil(step_ticks);
        // Start of the label to the right.
        let mut limit = usize::from(graph.width);
        for mark in first..=first + columns {
            let at = now.saturating_sub(mark.saturating_mul(step_ticks));
            if at < self.window.from {
                break;
            }
            let shown = match mark {
                0 => self.common.status().edge().into(),
                _ => moment(mark.saturating_mul(step), step, farthest),
            };
            let width = shown.len() as u16 + 1;
            let Some(column) = self.window.column(at) else {
                // A mark at the right end of the window has no column, so its label ends at the
                // right edge.
                if at == right && width <= graph.width {
                    buffer.set_string(graph.right() - width, area.y, format!("{shown}|"), style);
                    limit = usize::from(graph.width - width);
                }
                continue;
            };
            let covers = |cursor: usize| (column..column + usize::from(width)).contains(&cursor);
            let room = limit.saturating_sub(column);
            limit = limit.min(column);
            let shown = match cursor {
                Some(cursor) if covers(cursor) => "|".to_owned(),
                _ if usize::from(width) > room && room > 0 => "|".to_owned(),
                _ if room == 0 => continue,
                _ => format!("|{shown}"),
            };
            buffer.set_string(graph.x + column as u16, area.y, shown, style);
        }
        if let Some(column) = cursor {
            let mark = &mut buffer[(graph.x + column as u16, area.y)];
            mark.set_char(self.styles.glyphs.down).set_style(self.styles.theme.selected);
        }
    }

    /// The part of a line to the right of its label.
    fn graph(&self, area: Rect) -> Rect {
        let label = self.label.min(area.width);
        Rect { x: area.x + label, width: area.width - label, ..area }
    }

    fn rows(&self, buffer: &mut Buffer, area: Rect) {
        let why_empty = match self.common.status() {
            Status::Replay => Some(NO_EVENTS),
            Status::File => Some(NO_RECORDS),
            _ => None,
        };
        if let Some(why) = why_empty.filter(|_| self.timeline.lacks_records) {
            buffer.set_stringn(area.x, area.y, why, area.width.into(), self.styles.theme.faint);
            return;
        }
        let (cursor, _) = self.view.at.cursor();
        let seen = self.common.scroll.offset..self.common.scroll.offset + usize::from(area.height);
        let mut place = 0;
        for track in &self.timeline.tracks {
            let lines = place..place + track.levels.len();
            place = lines.end;
            if lines.end <= seen.start || lines.start >= seen.end {
                continue;
            }
            let columns = columns(track, self.window);
            for (line, (level, columns)) in lines.clone().zip(track.levels.iter().zip(&columns)) {
                if !seen.contains(&line) {
                    continue;
                }
                let y = area.y + (line - seen.start) as u16;
                let area = Rect { y, height: 1, ..area };
                let is_first = line == lines.start || line == seen.start;
                self.draw_label(buffer, area, track, level, is_first, line == cursor);
                let graph = self.graph(area);
                self.draw_lost(buffer, graph, track, line == lines.start);
                let selected = (line == cursor).then(|| self.view.at.region()).flatten();
                for run in runs(level, columns, self.window) {
                    let has = |column| run.columns.contains(&column);
                    let selected = selected.is_some_and(|(place, region)| {
                        let is_among = || self.window.column(region.start).is_some_and(has);
                        run.region == place || run.many.is_some() && is_among()
                    });
                    self.draw_run(buffer, graph, level, columns, &run, selected);
                }
            }
        }
        if place == 0 {
            let text = " no region has ended yet; press 8, then v for the open regions";
            buffer.set_stringn(area.x, area.y, text, area.width.into(), self.styles.theme.faint);
        }
    }

    fn draw_label(
        &self,
        buffer: &mut Buffer,
        area: Rect,
        track: &ThreadTrack,
        level: &TimelineLevel,
        is_first: bool,
        is_cursor: bool,
    ) {
        let glyphs = &self.styles.glyphs;
        let room = usize::from(self.label.saturating_sub(1).min(area.width));
        let mark = if is_cursor { glyphs.cursor } else { ' ' };
        let name = match (is_first, level.device, level.strand) {
            (true, ..) => name_in(self.timeline, track, room.saturating_sub(1), glyphs.ellipsis),
            (false, Some(1), _) => "  device".into(),
            (false, Some(device), _) => format!("  device {device}"),
            (false, None, 0) => String::new(),
            (false, None, strand) => format!("  task {strand}"),
        };
        let label = text::fit(&format!("{mark}{name}"), room, glyphs.ellipsis);
        let theme = &self.styles.theme;
        let style = if is_cursor { theme.selected } else { theme.header };
        buffer.set_stringn(area.x, area.y, label, room, style);
    }

    fn draw_lost(&self, buffer: &mut Buffer, area: Rect, track: &ThreadTrack, is_first: bool) {
        let Some(until) = track.lost_until else { return };
        let columns = self.window.place(until).clamp(0.0, f64::from(area.width)) as u16;
        let style = self.styles.theme.faint;
        for x in area.x..area.x + columns {
            // The first line has the text; the other lines continue its pattern.
            if is_first || x % 4 == 0 {
                buffer[(x, area.y)].set_char(self.styles.glyphs.lost).set_style(style);
            }
        }
        if is_first && columns >= 8 {
            buffer.set_string(area.x + 1, area.y, " lost ", style);
        }
    }

    fn draw_run(
        &self,
        buffer: &mut Buffer,
        area: Rect,
        level: &TimelineLevel,
        columns: &[TimelineColumn],
        run: &ColumnRun,
        selected: bool,
    ) {
        let glyphs = &self.styles.glyphs;
        let region = &level.regions[run.region];
        let name = self.common.point_name(region.point);
        let width = run.columns.len();
        let room = width - usize::from(width > 1);
        let counted = run.many.filter(|n| *n > 1).map(|n| format!("{name}{}{n}", glyphs.times));
        let counted = counted.filter(|counted| text::width(counted) <= room);
        let is_counted = counted.is_some();
        let text = counted.unwrap_or_else(|| name.clone());
        let mut shown = NameCell::new(text, &name, self.view.at.sought());
        match room {
            _ if is_counted => {}
            // Four letters are clearer than fewer letters and an ellipsis.
            0..=4 => shown.cut_to_initials(room),
            _ => shown.cut_end(room, glyphs.ellipsis),
        }
        if width > 1 {
            let edge = match (selected, run.many) {
                (true, _) => glyphs.cursor,
                (false, Some(_)) => glyphs.many,
                (false, None) => glyphs.edge,
            };
            shown.prefix(edge.encode_utf8(&mut [0; 4]));
        }
        let written = text::width(&shown.text);
        let color = self.styles.theme.point(&name);
        let style = |share: f64| {
            let style = Style::new();
            match color {
                _ if selected => self.styles.theme.selected,
                Some(color) => style.fg(color),
                None if share >= 0.75 => style,
                None => self.styles.theme.faint,
            }
        };
        // The letters of a bar have the bar's colour as background, so that the start of the bar is
        // visible, unless the region hardly ran.
        let letters = |share: f64| match color {
            _ if selected || share < 0.25 => style(share),
            Some(color) if share < 0.75 => {
                Style::new().fg(color).add_modifier(Modifier::REVERSED | Modifier::DIM)
            }
            Some(color) => Style::new().fg(self.styles.theme.letters).bg(color),
            None => style(share).add_modifier(Modifier::REVERSED),
        };
        for column in run.columns.clone() {
            let share = columns[column].on_share();
            let fill = glyphs.ran[usize::from(share < 0.75) + usize::from(share < 0.25)];
            // For the selected bar, reverse video already fills the background.
            let fill = if selected && share >= 0.75 { ' ' } else { fill };
            let cell = &mut buffer[(area.x + column as u16, area.y)];
            cell.set_char(fill).set_style(style(share));
        }
        let x = area.x + run.columns.start as u16;
        buffer.set_stringn(x, area.y, &shown.text, written, Style::new());
        for column in run.columns.clone().take(written) {
            let style = letters(columns[column].on_share());
            buffer[(area.x + column as u16, area.y)].set_style(style);
        }
        shown.mark(buffer, area, Position { x, y: area.y }, self.styles.theme.found);
    }

    /// The region under the cursor, in words.
    fn about(&self, frame: &mut Frame, area: Rect) {
        let (theme, glyphs) = (&self.styles.theme, &self.styles.glyphs);
        let view = &self.view.at;
        let span = units::duration(view.span_ns() as f64 / 1e9);
        let state = match view.follows() {
            true => format!("{span} wide "),
            false => format!("{span} wide, paused: End resumes "),
        };
        let state = Line::styled(state, theme.faint);
        let mut lines = vec![Line::default(), Line::default()];
        let scale = self.common.scale();
        if let (Some((_, region)), Some(line)) = (view.region(), view.line()) {
            let ago = self.timeline.taken.saturating_sub(region.start);
            let ago = units::duration(ago as f64 / self.timeline.ticks_per_second);
            let track = self.timeline.track(line.lane).map_or(String::new(), |track| {
                name_in(self.timeline, track, usize::MAX, glyphs.ellipsis)
            });
            let own = scale.single(region.exclusive as f64);
            // Exclusive time longer than the span means that the program has latched earlier
            // regions of the point: their time is part of this record.
            let latched = match region.exclusive > region.span() {
                true => " (latched, with earlier parts)",
                false => "",
            };
            let state = match self.common.model.point(region.point).map(Figures::state) {
                Some(PointState::On) | None => "",
                Some(PointState::Off) => " (off now)",
                Some(PointState::InvalidBeginBegin) => " (invalid now)",
            };
            let is_device = self.timeline.level(line).is_some_and(|level| level.device.is_some());
            let details = match is_device {
                true => format!(" on a device, for {track}, began {ago} ago at the earliest"),
                false => format!(", {own} exclusive{latched}, began {ago} ago on {track}"),
            };
            lines[0] = line![
                span!(theme.process; " {}", self.common.point_name(region.point)),
                Span::styled(state, theme.warn),
                format!("  {} long", scale.single(region.span() as f64)),
                details
            ];
            let away = match region.away {
                Some(away) => scale.ticks(away as f64),
                None => "unknown (records are lost)".to_owned(),
            };
            let nested = scale.ticks(region.nested as f64);
            let mut more = format!(" off the CPU in itself: {away}; in nested regions: {nested}");
            more += &format!("; depth {}", line.depth);
            if region.context != 0 {
                more += &format!("; context {}", region.context);
            }
            if is_device {
                more = " measured by its own clock; drawn at the earliest possible time".to_owned();
            }
            lines[1] = Line::from(more);
        } else if view.line().is_some() {
            lines[0] = Line::styled(" nothing is known on this line", theme.faint);
        }
        let rows: Vec<Rect> = area.rows().collect();
        for (row, line) in rows.iter().zip(lines) {
            let room = usize::from(row.width);
            let text: String = line.spans.iter().map(|span| span.content.as_ref()).collect();
            if text::width(&text) > room {
                frame.render_widget(Line::from(text::cut(&text, room, glyphs.ellipsis)), *row);
            } else {
                frame.render_widget(line, *row);
            }
        }
        if let [_, .., last] = rows[..] {
            frame.render_widget(state.right_aligned(), last);
        }
    }
}

/// The name of a thread, cut to some columns. If other threads have the same name, the thread's id
/// is added. If the name is empty, the id replaces it.
fn name_in(
    timeline: &model::Timeline,
    track: &ThreadTrack,
    columns: usize,
    ellipsis: char,
) -> String {
    let lane = &track.lane;
    if lane.name.is_empty() {
        return format!("[{}]", lane.tid);
    }
    // With several processes, a name is `PROCESS[PID] THREAD`. Show only the id and the thread's
    // name, since the processes often have the same name.
    if lane.process.is_some()
        && let Some((process, thread)) = lane.name.split_once("] ")
        && let Some((_, pid)) = process.rsplit_once('[')
    {
        return text::cut_middle(&format!("{pid} {thread}"), columns, ellipsis);
    }
    if !timeline.has_twin(track) {
        return lane.name.clone();
    }
    let number = format!(" [{}]", lane.tid);
    text::cut(&lane.name, columns.saturating_sub(number.len()), ellipsis) + &number
}

/// A time before now, in the unit of the most distant mark, and as precise as the distance between
/// two marks.
fn moment(ago_ns: u64, step_ns: u64, farthest_seconds: f64) -> String {
    if ago_ns == 0 {
        return "now".into();
    }
    let (unit, name) = match farthest_seconds {
        ..1e-6 => (1_u64, "ns"),
        ..1e-3 => (1_000, "us"),
        ..1.0 => (1_000_000, "ms"),
        _ => (1_000_000_000, "s"),
    };
    let mut decimals = 0;
    while decimals < 9 && step_ns.saturating_mul(10_u64.pow(decimals)) < unit {
        decimals += 1;
    }
    format!("-{:.*}{name}", decimals as usize, ago_ns as f64 / unit as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_as_exact_as_the_marks_are_apart() {
        assert_eq!(moment(0, 1000, 1.0), "now");
        assert_eq!(moment(150_000_000, 50_000_000, 0.2), "-150ms");
        assert_eq!(moment(800_000, 200_000, 1e-3), "-0.8ms");
        assert_eq!(moment(5_324_800_000, 200_000, 5.3), "-5.3248s");
        assert_eq!(moment(20, 10, 1e-7), "-20ns");
    }
}
