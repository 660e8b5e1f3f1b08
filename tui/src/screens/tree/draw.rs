//! Draws the call tree as lines, and the lines above it.

use ratatui::Frame as Canvas;

use super::{TreeView, TreeWindow, WeightSource};
use crate::screens::prelude::*;
use pfp_model::grid::Sorted;
use pfp_model::tree::{Direction, Frame, Node, TreeRow};

/// Minimum change of a share since the baseline that is coloured.
const CHANGED: f64 = 0.05;

/// Keys of columns that need their own drawing.
pub(super) const TOTAL: &str = "total";
const WAS: &str = "was";
const BAR: &str = "bar";
const CALLS: &str = "calls";
const BYTES: &str = "alloc-bytes";
const SELF_BYTES: &str = "self-alloc-bytes";
const ALLOCS: &str = "allocs";
const NAME: &str = "name";

/// The figures of a frame for its columns.
pub(super) struct FrameFigures {
    /// The frame's inclusive time, as a share of everything that is shown.
    share: f64,
    /// The frame's exclusive time, as a share of the same whole.
    own: f64,
    /// The inclusive share in the baseline; 0 without a baseline.
    was: f64,
    inclusive: u64,
    exclusive: u64,
    count: u64,
    name: String,
}

pub(super) static TABLE: Table<FrameFigures, Scale> = table! {
    FrameFigures, Scale;
    TOTAL, "Total%", 7, Share(|it, _| Some(it.share)).stays(), "share, with callees";
    "self", "Self%", 6, Share(|it, _| Some(it.own)).rank(1), "share spent in the frame itself";
    WAS, "Was%", 6, Share(|it, _| Some(it.was)).rank(0), "share in the baseline";
    BAR, "", 10, Picture(|_, _| None).left(10).rank(3), "the shares as a bar";
    "time", "Total", 7, Sum(|it, _| Some(it.inclusive as f64)).rank(2), "CPU time, with callees";
    "self-time", "Self", 7, Sum(|it, _| Some(it.exclusive as f64)).rank(5), "CPU time of the frame itself";
    BYTES, "Alloc B", 7, Count(|it, _| Some(it.inclusive as f64)).rank(2),
        "allocated bytes, with callees";
    SELF_BYTES, "Self B", 7, Count(|it, _| Some(it.exclusive as f64)).rank(5),
        "allocated bytes of the frame itself";
    ALLOCS, "Allocs", 7, Count(|it, _| Some(it.count as f64)).rank(4),
        "allocations of the frame itself";
    CALLS, "Calls", 7, Rate(|it, _| Some(it.count as f64).filter(|count| *count > 0.0)).rank(4), "calls";
    "samples", "Samples", 8, Count(|it, _| Some(it.inclusive as f64)).rank(0),
        "samples, with callees";
    NAME, "   Name", 16, Text(|it, _| it.name.clone()).left(usize::MAX).stays(), "its name";
};

/// Whether a column has something to show.
pub(super) fn offers(tree: &TreeView, key: &str) -> bool {
    match key {
        WAS => tree.was.is_some(),
        "self" => tree.direction == Direction::Callees,
        "self-time" => tree.direction == Direction::Callees && tree.source == WeightSource::Time,
        "time" | CALLS => tree.source == WeightSource::Time,
        BYTES | ALLOCS => tree.source == WeightSource::AllocBytes,
        SELF_BYTES => {
            tree.direction == Direction::Callees && tree.source == WeightSource::AllocBytes
        }
        "samples" => tree.source == WeightSource::Samples,
        _ => true,
    }
}

/// The columns that fit, and their grid.
pub(super) fn fit(tree: &TreeView, width: usize, ellipsis: char) -> Fitted<FrameFigures, Scale> {
    TABLE.fit_offered(&tree.table.0, |key| offers(tree, key), None, width, ellipsis)
}

/// Puts the nodes of each level in the order that was chosen.
pub(super) fn sort(tree: &mut TreeView, common: &Common) {
    let Sorted { key, descending } = tree.table.0.sorted();
    let Some(column) = TABLE.column(key) else { return };
    let all = 0..tree.tree.nodes().len() as u32;
    let cells: Vec<FrameFigures> = all.map(|id| cells(tree, id, common)).collect();
    let scale = common.scale();
    tree.tree.sort_by(|a, b| {
        let (a, b) = if descending { (b, a) } else { (a, b) };
        column.compare(&cells[a as usize], &cells[b as usize], &scale)
    });
}

fn cells(tree: &TreeView, id: u32, common: &Common) -> FrameFigures {
    let node = tree.tree.node(id);
    let all = tree.tree.total().max(1) as f64;
    let was = tree.was.as_ref().map_or(0.0, |was| {
        let path = tree.tree.path(id);
        let names: Vec<_> = path.iter().map(|frame| super::name(*frame, &common.model)).collect();
        was.get(&names).copied().unwrap_or(0.0)
    });
    FrameFigures {
        share: node.inclusive as f64 / all,
        own: node.exclusive as f64 / all,
        was,
        inclusive: node.inclusive,
        exclusive: node.exclusive,
        count: node.count,
        name: super::name(node.frame, &common.model),
    }
}

/// Draws the lines above the tree: the source of the weights, and below it the titles of the
/// columns or, for a flame graph, the frame under the cursor.
pub(super) fn head(tree: &TreeView, canvas: &mut Canvas, body: Rect, common: &Common) {
    let styles = &common.styles;
    let width = usize::from(body.width);
    let lines = [
        Line::styled(source_in_words(tree, common), styles.theme.process),
        match tree.is_flame {
            true => Line::styled(selected(tree, common), styles.theme.header),
            false => fit(tree, width, styles.glyphs.ellipsis).heading(&tree.table.0, styles),
        },
    ];
    for (line, area) in lines.into_iter().zip(body.rows()) {
        canvas.render_widget(line, area);
    }
}

fn source_in_words(tree: &TreeView, common: &Common) -> String {
    let what = match tree.source {
        WeightSource::AllocBytes => "allocated bytes",
        WeightSource::Time | WeightSource::Samples => "CPU time",
    };
    let mut text = match (tree.source, tree.window, tree.seconds) {
        (WeightSource::Samples, ..) => {
            let (taken, outside) = (tree.samples.taken(), tree.samples.outside());
            let share = units::percent(outside as f64 / taken.max(1) as f64);
            format!(
                " where threads are (running or waiting): {taken} samples, {share} % outside all \
                 regions"
            )
        }
        (_, TreeWindow::All, _) => format!(" {what} since the start"),
        (_, TreeWindow::Recent, Some(seconds)) => format!(" {what} of the last {seconds:.0} s"),
        (_, TreeWindow::Mark, Some(seconds)) => format!(" {what} since the mark, {seconds:.0} s"),
        (_, _, None) => format!(" {what}"),
    };
    if let Some(seconds) = tree.seconds.filter(|seconds| *seconds > 0.0) {
        let all = tree.tree.total() as f64 / seconds;
        text += &match tree.source {
            WeightSource::AllocBytes => format!(", {} B/s", units::si(all)),
            _ => {
                let cpus = all / common.scale().ticks_per_second;
                format!(", {} % of one CPU", units::percent(cpus))
            }
        };
    }
    if tree.direction == Direction::Callers {
        text += "; callers below";
    }
    if let Some(frame) = tree.zoom.last() {
        text += &format!("; only {}, Esc shows all", super::name(*frame, &common.model));
    }
    text
}

/// The frame under the cursor, in full.
pub(super) fn selected(tree: &TreeView, common: &Common) -> String {
    let Some(id) = tree.node() else { return String::new() };
    let node = tree.tree.node(id);
    let share = |weight: u64| units::percent(weight as f64 / tree.tree.total().max(1) as f64);
    let time = |weight: u64| match tree.source {
        WeightSource::Time => common.scale().ticks(weight as f64),
        WeightSource::Samples => units::count(weight),
        WeightSource::AllocBytes => format!("{} B", units::si(weight as f64)),
    };
    let mut text = format!(
        " {}: {} % {}",
        super::name(node.frame, &common.model),
        share(node.inclusive),
        time(node.inclusive),
    );
    if tree.direction == Direction::Callees {
        text += &format!(", self {} % {}", share(node.exclusive), time(node.exclusive));
    }
    if node.count > 0 {
        let of = if tree.source == WeightSource::AllocBytes { "allocations" } else { "calls" };
        text += &format!(", {} {of}", units::si(node.count as f64));
    }
    text
}

/// A message for an empty tree, with advice.
pub(super) fn empty(tree: &TreeView, canvas: &mut Canvas, area: Rect, common: &Common) {
    let styles = &common.styles;
    let text = match (tree.source, tree.window) {
        _ if common.filter.is_on() => " no region ends with a point that passes the filter",
        (WeightSource::Samples, _) => " no region was open at any poll yet; v shows CPU time",
        (WeightSource::Time, TreeWindow::All) => " no region has ended yet; v shows which are open",
        (WeightSource::AllocBytes, TreeWindow::All) => {
            " no region has allocated yet; v shows CPU time"
        }
        (WeightSource::Time | WeightSource::AllocBytes, _) => {
            " nothing was measured in this window yet; H shows another"
        }
    };
    canvas.render_widget(Line::styled(text, styles.theme.faint), area);
}

/// Draws the lines.
pub(super) fn rows(tree: &TreeView, canvas: &mut Canvas, area: Rect, common: &Common) {
    let styles = &common.styles;
    let fit = fit(tree, area.width.into(), styles.glyphs.ellipsis);
    let cursor = tree.node();
    for (area, row) in area.rows().zip(tree.rows.iter().skip(common.scroll.offset)) {
        let is_selected = cursor == Some(row.node);
        if is_selected {
            canvas.buffer_mut().set_style(area, styles.theme.selected);
        }
        canvas.render_widget(line(tree, row, is_selected, &fit, common), area);
    }
}

fn line(
    tree: &TreeView,
    row: &TreeRow,
    is_selected: bool,
    Fitted { columns, grid, .. }: &Fitted<FrameFigures, Scale>,
    common: &Common,
) -> Line<'static> {
    let styles = &common.styles;
    let (theme, glyphs) = (&styles.theme, &styles.glyphs);
    let node = tree.tree.node(row.node);
    let cells = cells(tree, row.node, common);
    let style = |style: Style| if is_selected { theme.selected } else { style };
    let mut spans = Vec::new();
    for (column, slot) in columns.iter().zip(&grid.slots) {
        let (text, own) = match column.heading.key {
            NAME => {
                let mark = match node.children.is_empty() {
                    true => ' ',
                    false if row.is_open => glyphs.unfolded,
                    false => glyphs.folded,
                };
                let cursor = if is_selected { glyphs.cursor } else { ' ' };
                let indent = "  ".repeat(row.depth.min(slot.width / 2));
                let before = text::cut(&format!("{cursor}{indent}{mark} "), slot.width, ' ');
                let left = slot.width - text::width(&before);
                spans.push(Span::styled(before, style(theme.faint)));
                let pid = match (row.depth, node.frame) {
                    (0, Frame::Point(id)) => common.pid_before(id),
                    _ => String::new(),
                };
                let name = text::cut_middle(&(pid + &name(node, common)), left, glyphs.ellipsis);
                (text::fit(&name, left, glyphs.ellipsis), theme.header)
            }
            BAR => (bar(tree, cells.share, cells.own, styles), theme.heat(cells.share)),
            key => {
                let style = match key {
                    TOTAL => theme.heat(cells.share),
                    WAS if cells.share - cells.was >= CHANGED => theme.warn,
                    WAS if cells.share - cells.was <= -CHANGED => theme.live,
                    WAS => theme.faint,
                    CALLS if cells.count == 0 => theme.faint,
                    _ => theme.header,
                };
                (column.cell(&cells, &common.scale()), style)
            }
        };
        let text = if column.heading.key == NAME { text } else { grid.aligned(slot, &text) };
        spans.push(Span::styled(text + " ", style(own)));
    }
    Line::from(spans)
}

/// The share of a frame as a bar; the exclusive part is solid.
fn bar(tree: &TreeView, share: f64, own: f64, styles: &Styles) -> String {
    match tree.direction {
        Direction::Callers => chart::bar(share, 10, &styles.glyphs),
        Direction::Callees => chart::bar_in(own, share, 10, &styles.glyphs).concat(),
    }
}

/// The name, with a mark for recursion.
pub(super) fn name(node: &Node, common: &Common) -> String {
    let styles = &common.styles;
    let name = super::name(node.frame, &common.model);
    match node.is_recursive {
        true => format!("{name} {}", styles.glyphs.recursive),
        false => name,
    }
}
