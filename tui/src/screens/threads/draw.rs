//! Draws the list of threads, and below it the points of the thread under the cursor.

use super::super::sums;
use super::super::sums::{Sums, TextLine};
use super::super::view::{draw_empty, why_none};
use super::ThreadsView;
use super::list::{TABLE, amiss, ended, name_of, open_for};
use crate::screens::prelude::*;
use pfp_model::threads::{Thread, find, parts, state_word};

/// Minimum height for showing the list above the points of a thread.
const HIGH: u16 = 10;

/// The area of the list's rows on a body.
pub(super) fn rows(view: &ThreadsView, body: Rect) -> Rect {
    let list = halves(view, body)[0];
    Rect { y: list.y + 1, height: list.height.saturating_sub(1), ..list }
}

/// Maximum number of lines of the opened thread that can be scrolled out.
pub(super) fn most_below(view: &ThreadsView, common: &Common, body: Rect) -> usize {
    let below = halves(view, body)[1];
    let lines = part_lines(view, common, below.width.into()).filter(|_| view.opened);
    let seen = usize::from(below.height.saturating_sub(1));
    lines.map_or(0, |(_, lines)| lines.len()).saturating_sub(seen)
}

/// The areas of the list and of the points of a thread.
fn halves(view: &ThreadsView, body: Rect) -> [Rect; 2] {
    let below = match (view.opened, body.height >= HIGH) {
        (false, _) => 0,
        (true, true) => body.height / 2,
        (true, false) => body.height,
    };
    vertical![*=1, ==below].areas(body)
}

pub(super) fn draw(view: &ThreadsView, frame: &mut Frame, area: Rect, common: &Common) {
    let [list, below] = halves(view, area);
    if !list.is_empty() {
        draw_list(view, frame, list, common);
    }
    if !below.is_empty() {
        draw_parts(view, frame, below, common);
    }
}

/// Columns of the mark and the blank that follows.
const MARK: usize = 2;
/// Minimum width of a name.
const MIN_NAME: usize = 12;
/// Maximum width of a name, if there are other columns.
const MAX_NAME: usize = 24;

const NO_THREAD: &str = " no threads yet: each appears here once it reaches a point; `pfp-top \
                         doctor PID` explains what may be missing";

/// The columns that fit into a list of this width.
pub(super) fn fit(
    view: &ThreadsView,
    common: &Common,
    width: usize,
    ellipsis: char,
) -> Fitted<Thread, Common> {
    let is_offered = |key: &str| view.offers(key, common);
    TABLE.fit_offered(&view.table, is_offered, MARK - 1, width, ellipsis)
}

fn draw_list(view: &ThreadsView, frame: &mut Frame, area: Rect, common: &Common) {
    let styles = &common.styles;
    let theme = &styles.theme;
    let fit = fit(view, common, area.width.into(), styles.glyphs.ellipsis);
    let threads = common.model.thread_figures();
    let Some(snapshot) = common.model.snapshot() else { return };
    let lines = view.order.iter().filter_map(|lane| find(threads, *lane)).map(|thread| {
        let is_selected = view.selected == Some(thread.lane.id);
        let mark = if is_selected { styles.glyphs.cursor } else { ' ' };
        let style = match state_word(snapshot, &thread.lane) {
            _ if is_selected => theme.selected,
            _ if !amiss(thread).is_empty() => theme.warn,
            "live" | "shared" => theme.header,
            _ => theme.faint,
        };
        Line::styled(fit.line(mark.into(), thread, common, styles), style)
    });
    let lines: Vec<Line> = lines.collect();
    if lines.is_empty() {
        return draw_empty(frame, area, &why_none("thread", &view.filter, NO_THREAD), common);
    }
    draw_scrolled(frame, area, fit.heading(&view.table, styles), lines, common.scroll.offset);
}

/// The open regions of a thread, a line each, below a heading.
fn stack(common: &Common, thread: &Thread, width: usize) -> Vec<Line<'static>> {
    let styles = &common.styles;
    if thread.lane.open.is_empty() {
        return Vec::new();
    }
    let name_width = width.saturating_sub(MARK + 2 * 10).clamp(MIN_NAME, MAX_NAME * 2);
    let grid = Grid::new(styles.glyphs.ellipsis).left("", 1).left("", name_width);
    let grid = grid.right("", 9).right("", 9);
    let row = |cells: [&str; 4]| text::fit(&grid.line(cells), width, styles.glyphs.ellipsis);
    let ended = ended(common, thread);
    let heading = match ended {
        Some(when) => row(["", &format!("Was in {when}"), "Began at", ""]),
        None => row(["", "In", "For", "On CPU"]),
    };
    let mut lines = vec![Line::styled(heading, styles.theme.heading)];
    lines.extend(thread.lane.open.iter().enumerate().map(|(level, open)| {
        // A wider indent would leave no room for the name.
        let indent = " ".repeat(level.min(8));
        let name = format!("{indent}{}", common.point_name(open.point));
        let [first, second] = match ended {
            Some(_) => [common.scale().ticks(open.start as f64), String::new()],
            None => {
                let ticks = |ticks: u64| common.scale().ticks(ticks as f64);
                [open_for(common, open), open.on_cpu.map_or(NONE.into(), ticks)]
            }
        };
        Line::raw(row(["", &name, &first, &second]))
    }));
    lines
}

fn draw_parts(view: &ThreadsView, frame: &mut Frame, area: Rect, common: &Common) {
    let styles = &common.styles;
    let Some((said, lines)) = part_lines(view, common, area.width.into()) else { return };
    let lines = lines.into_iter().map(|(line, _)| line).collect();
    draw_scrolled(frame, area, Line::styled(said, styles.theme.process), lines, view.below);
}

/// The heading at a position in the table of points of the opened thread.
pub(super) fn heading_of_parts(
    view: &ThreadsView,
    at: Position,
    body: Rect,
    common: &Common,
) -> Option<&'static str> {
    let below = halves(view, body)[1];
    let (_, lines) = part_lines(view, common, below.width.into())?;
    sums::heading_at(&lines, view.below, at, below)
}

/// Lines on the opened thread: its open regions and its points.
fn part_lines(
    view: &ThreadsView,
    common: &Common,
    width: usize,
) -> Option<(String, Vec<TextLine>)> {
    let styles = &common.styles;
    let thread = find(common.model.thread_figures(), view.selected?)?;
    let snapshot = common.model.snapshot()?;
    let name = match thread.lane.name.as_str() {
        "" => name_of(thread, common),
        name => name.to_owned(),
    };
    let mut said = format!(" {name} [{}], its points since their reset", thread.lane.tid);
    let amiss = amiss(thread);
    if !amiss.is_empty() {
        said += &format!("; {amiss}");
    }
    let all = thread.exclusive.max(1) as f64;
    let rows = parts(snapshot, thread.lane.id).into_iter().map(|part| Sums {
        name: common.point_name(part.point),
        share: Some(part.total.exclusive as f64 / all),
        total: part.total,
        allocs: [part.allocs.allocs, part.allocs.bytes],
        ..Sums::default()
    });
    let rows: Vec<Sums> = rows.collect();
    let (table, scale) = (&sums::POINTS, common.scale());
    let stack = stack(common, thread, width).into_iter().map(|line| (line, None));
    let parts = sums::lines(table, &view.parts, &rows, None, (MARK - 1, width), &scale, styles);
    Some((text::cut(&said, width, styles.glyphs.ellipsis), stack.chain(parts).collect()))
}
