//! The call tree as lines, and what stands above it.

use ratatui::Frame as Canvas;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::{CallTree, Source, Window};
use crate::app::Common;
use crate::grid::Grid;
use crate::look::{Look, chart};
use crate::model::tree::{Direction, Node, Row};
use crate::text;
use crate::units::{self, NONE};

/// Columns of the bar.
const BAR: usize = 10;
/// A share that has changed by this much since the baseline is coloured.
const CHANGED: f64 = 0.05;
/// Columns left of the names, at least.
const NAME: usize = 16;

/// A column left of the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Total,
    Own,
    Was,
    Bar,
    TotalTime,
    OwnTime,
    Calls,
    Samples,
}

impl Column {
    fn title(self) -> &'static str {
        match self {
            Self::Total => "Total%",
            Self::Own => "Self%",
            Self::Was => "Was%",
            Self::Bar => "",
            Self::TotalTime => "Total",
            Self::OwnTime => "Self",
            Self::Calls => "Calls",
            Self::Samples => "Samples",
        }
    }

    fn width(self) -> usize {
        match self {
            Self::Total | Self::Own | Self::Was => 6,
            Self::Bar => BAR,
            Self::TotalTime | Self::OwnTime | Self::Calls | Self::Samples => 7,
        }
    }
}

/// The columns that a body of this width has room for, the least important left out first.
fn columns(tree: &CallTree, width: usize) -> Vec<Column> {
    use Column::{Bar, Calls, Own, OwnTime, Samples, Total, TotalTime, Was};
    let mut columns = match (tree.source, tree.direction) {
        (Source::Samples, Direction::Callees) => vec![Total, Own, Was, Bar, Samples],
        (Source::Samples, Direction::Callers) => vec![Total, Was, Bar, Samples],
        (Source::Time, Direction::Callees) => {
            vec![Total, Own, Was, Bar, TotalTime, OwnTime, Calls]
        }
        (Source::Time, Direction::Callers) => vec![Total, Was, Bar, TotalTime, Calls],
    };
    if tree.was.is_none() {
        columns.retain(|column| *column != Was);
    }
    for spare in [OwnTime, Calls, Bar, TotalTime, Own] {
        let used: usize = columns.iter().map(|column| column.width() + 1).sum();
        if used + NAME > width {
            columns.retain(|column| *column != spare);
        }
    }
    columns
}

/// Where the weights come from, and the titles of the columns or the frame under the cursor.
pub(super) fn head(tree: &CallTree, canvas: &mut Canvas, body: Rect, common: &Common, look: &Look) {
    let width = usize::from(body.width);
    let lines = [
        Line::styled(told(tree, common), look.theme.process),
        match tree.is_flame {
            true => Line::styled(selected(tree, common), look.theme.header),
            false => titles(tree, width, look),
        },
    ];
    for (line, area) in lines.into_iter().zip(body.rows()) {
        canvas.render_widget(line, area);
    }
}

fn told(tree: &CallTree, common: &Common) -> String {
    let mut told = match (tree.source, tree.window, tree.seconds) {
        (Source::Samples, ..) => {
            let (taken, outside) = (tree.samples.taken(), tree.samples.outside());
            let share = units::percent(outside as f64 / taken.max(1) as f64);
            format!(
                " where threads are, waiting or not: {taken} samples, {share} % outside all regions"
            )
        }
        (_, Window::All, _) => " CPU time since the start".into(),
        (_, Window::Recent, Some(seconds)) => format!(" CPU time of the last {seconds:.0} s"),
        (_, Window::Mark, Some(seconds)) => format!(" CPU time since the mark, {seconds:.0} s"),
        (_, _, None) => " CPU time".into(),
    };
    if let Some(seconds) = tree.seconds.filter(|seconds| *seconds > 0.0) {
        let cpus = tree.tree.total() as f64 / common.scale().ticks_per_second / seconds;
        told += &format!(", {} % of one CPU", units::percent(cpus));
    }
    if tree.direction == Direction::Callers {
        told += "; callers below";
    }
    if let Some(frame) = tree.zoom.last() {
        told += &format!("; only {}, Esc shows all", super::name(*frame, &common.model));
    }
    told
}

/// The frame under the cursor, in full.
pub(super) fn selected(tree: &CallTree, common: &Common) -> String {
    let Some(id) = tree.node() else { return String::new() };
    let node = tree.tree.node(id);
    let share = |weight: u64| units::percent(weight as f64 / tree.tree.total().max(1) as f64);
    let time = |weight: u64| match tree.source {
        Source::Time => common.scale().ticks(weight as f64),
        Source::Samples => units::count(weight),
    };
    let mut told = format!(
        " {}: {} % {}",
        super::name(node.frame, &common.model),
        share(node.inclusive),
        time(node.inclusive),
    );
    if tree.direction == Direction::Callees {
        told += &format!(", self {} % {}", share(node.exclusive), time(node.exclusive));
    }
    if node.count > 0 {
        told += &format!(", {} calls", units::si(node.count as f64));
    }
    told
}

fn titles(tree: &CallTree, width: usize, look: &Look) -> Line<'static> {
    grid(&columns(tree, width), look).left("   Name", NAME).heading(None, width, look)
}

fn grid(columns: &[Column], look: &Look) -> Grid {
    columns.iter().fold(Grid::new(look.glyphs.ellipsis), |grid, column| match column {
        Column::Bar => grid.left(column.title(), column.width()),
        _ => grid.right(column.title(), column.width()),
    })
}

/// Why there are no lines, and what to do.
pub(super) fn empty(
    tree: &CallTree,
    canvas: &mut Canvas,
    area: Rect,
    common: &Common,
    look: &Look,
) {
    let text = match (tree.source, tree.window) {
        _ if common.filter.is_on() => " no region ends with a point that passes the filter",
        (Source::Samples, _) => " no region was open at any poll yet; v shows CPU time",
        (Source::Time, Window::All) => " no region has ended yet; v shows which are open",
        (Source::Time, _) => " nothing was measured in this window yet; H shows another",
    };
    canvas.render_widget(Line::styled(text, look.theme.faint), area);
}

/// The lines.
pub(super) fn rows(tree: &CallTree, canvas: &mut Canvas, area: Rect, common: &Common, look: &Look) {
    let columns = columns(tree, area.width.into());
    let cursor = tree.node();
    for (area, row) in area.rows().zip(tree.rows.iter().skip(common.scroll.offset)) {
        let is_selected = cursor == Some(row.node);
        if is_selected {
            canvas.buffer_mut().set_style(area, look.theme.selected);
        }
        let line = line(tree, row, is_selected, &columns, area.width.into(), common, look);
        canvas.render_widget(line, area);
    }
}

fn line(
    tree: &CallTree,
    row: &Row,
    is_selected: bool,
    columns: &[Column],
    width: usize,
    common: &Common,
    look: &Look,
) -> Line<'static> {
    let (theme, glyphs) = (&look.theme, &look.glyphs);
    let node = tree.tree.node(row.node);
    let all = tree.tree.total().max(1) as f64;
    let share = node.inclusive as f64 / all;
    let was = tree.was.as_ref().map(|was| {
        let path = tree.tree.path(row.node);
        let names: Vec<_> = path.iter().map(|frame| super::name(*frame, &common.model)).collect();
        was.get(&names).copied().unwrap_or(0.0)
    });
    let style = |style: Style| if is_selected { theme.selected } else { style };
    let (texts, styles): (Vec<String>, Vec<Style>) = columns
        .iter()
        .map(|column| match column {
            Column::Total => (units::percent(share), theme.heat(share)),
            Column::Own => (units::percent(node.exclusive as f64 / all), theme.header),
            Column::Was => {
                let was = was.unwrap_or(0.0);
                let style = match share - was {
                    more if more >= CHANGED => theme.warn,
                    less if less <= -CHANGED => theme.live,
                    _ => theme.faint,
                };
                (units::percent(was), style)
            }
            Column::Bar => (bar(tree, share, node.exclusive as f64 / all, look), theme.heat(share)),
            Column::TotalTime => (common.scale().ticks(node.inclusive as f64), theme.header),
            Column::OwnTime => (common.scale().ticks(node.exclusive as f64), theme.header),
            Column::Calls if node.count == 0 => (NONE.into(), theme.faint),
            Column::Calls => (units::si(node.count as f64), theme.header),
            Column::Samples => (units::count(node.inclusive), theme.header),
        })
        .unzip();
    let cells = grid(columns, look).cells(texts).into_iter().zip(styles);
    let mut spans: Vec<Span<'static>> =
        cells.map(|(text, own)| Span::styled(text + " ", style(own))).collect();
    let mark = match node.children.is_empty() {
        true => ' ',
        false if row.is_open => glyphs.unfolded,
        false => glyphs.folded,
    };
    let cursor = if is_selected { glyphs.cursor } else { ' ' };
    let indent = "  ".repeat(row.depth.min(width / 4));
    spans.push(Span::styled(format!("{cursor}{indent}{mark} "), style(theme.faint)));
    let left = width.saturating_sub(spans.iter().map(Span::width).sum());
    let name = text::cut_middle(&name(node, common, look), left, glyphs.ellipsis);
    spans.push(Span::styled(name, style(theme.header)));
    Line::from(spans)
}

/// The share of a frame, the part of it that is its own solid.
fn bar(tree: &CallTree, share: f64, own: f64, look: &Look) -> String {
    let whole = chart::bar(share, BAR, &look.glyphs);
    if tree.direction == Direction::Callers {
        return whole;
    }
    let solid = chart::bar(own, BAR, &look.glyphs);
    let light = text::width(&whole).saturating_sub(text::width(&solid));
    solid + &look.glyphs.rest.to_string().repeat(light)
}

/// The name, with a mark for recursion.
fn name(node: &Node, common: &Common, look: &Look) -> String {
    let name = super::name(node.frame, &common.model);
    match node.is_recursive {
        true => format!("{name} {}", look.glyphs.recursive),
        false => name,
    }
}
