//! The call tree as a flame graph, its roots at the top.
//!
//! ```text
//! main 61 %                              idle 39 %
//! parse 58 %                       emit
//! lex 46 %             scan
//! ```

use ratatui::Frame as Canvas;

use super::{TreeView, draw};
use crate::screens::prelude::*;
use pfp_model::tree::Tree;

/// Minimum width of a bar with a name.
const NAMED: u16 = 4;

/// A node that is wide enough to be visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FlameBar {
    node: u32,
    level: usize,
    left: u16,
    width: u16,
}

/// The bars of a tree, or of a node with its ancestors and descendants, on this many columns.
fn bars(tree: &Tree, zoom: Option<u32>, width: u16) -> Vec<FlameBar> {
    let mut bars = Vec::new();
    let mut next = Vec::new();
    let around: Vec<u32> = match zoom {
        None => Vec::new(),
        Some(zoom) => tree.ancestors(tree.node(zoom).parent).collect(),
    };
    for (level, node) in around.iter().rev().enumerate() {
        bars.push(FlameBar { node: *node, level, left: 0, width });
    }
    let whole = zoom.map_or(tree.total(), |zoom| tree.node(zoom).inclusive);
    let whole = u128::from(whole.max(1));
    let column =
        |weight: u64| ((u128::from(weight) * u128::from(width) + whole / 2) / whole) as u16;
    let mut place = |nodes: &[u32], level: usize, mut from: u64, next: &mut Vec<_>| {
        for node in nodes {
            let to = from.saturating_add(tree.node(*node).inclusive);
            let left = column(from);
            let bar = FlameBar { node: *node, level, left, width: column(to) - left };
            if bar.width > 0 {
                bars.push(bar);
                next.push((*node, level + 1, from));
            }
            from = to;
        }
    };
    let first = zoom.as_ref().map_or(tree.roots(), std::slice::from_ref);
    place(first, around.len(), 0, &mut next);
    while let Some((node, level, from)) = next.pop() {
        place(&tree.node(node).children, level, from, &mut next);
    }
    bars
}

impl TreeView {
    fn bars(&self, width: u16) -> Vec<FlameBar> {
        bars(&self.tree, self.tree.find(&self.zoom), width)
    }

    /// Moves the cursor down by `levels`, to the heaviest child each time. If `levels` is negative,
    /// moves the cursor up to the parents.
    pub(super) fn step_in(&mut self, levels: isize, common: &mut Common) {
        for _ in 0..levels.unsigned_abs().min(self.rows.len()) {
            let Some(node) = self.node() else { return };
            let node = self.tree.node(node);
            let next = if levels > 0 { node.children.first().copied() } else { node.parent };
            match next {
                Some(next) => self.go_to(next, common),
                None => return,
            }
        }
    }

    /// Goes to the next frame of the same level.
    pub(super) fn step_aside(&mut self, bars: isize, common: &mut Common) {
        let Some(node) = self.node() else { return };
        // Use the greatest width, at which nearly every frame has a bar.
        let mut level = self.bars(u16::MAX);
        let Some(own) = level.iter().find(|bar| bar.node == node).copied() else { return };
        level.retain(|bar| bar.level == own.level);
        level.sort_by_key(|bar| bar.left);
        let place = level.iter().position(|bar| bar.node == node);
        let next = place.and_then(|place| place.checked_add_signed(bars));
        if let Some(next) = next.and_then(|next| level.get(next)) {
            self.go_to(next.node, common);
        }
    }
}

/// The node in a column of a level, with bars of this total width.
pub(super) fn at(tree: &TreeView, column: u16, level: usize, width: u16) -> Option<u32> {
    let hit =
        |bar: &&FlameBar| bar.level == level && (bar.left..bar.left + bar.width).contains(&column);
    tree.bars(width).iter().find(hit).map(|bar| bar.node)
}

/// Draws the bars.
pub(super) fn draw(tree: &TreeView, canvas: &mut Canvas, area: Rect, common: &Common) {
    let styles = &common.styles;
    let cursor = tree.node();
    let all = tree.tree.total().max(1) as f64;
    for bar in tree.bars(area.width) {
        let Some(line) = bar.level.checked_sub(common.scroll.offset) else { continue };
        if line >= usize::from(area.height) {
            continue;
        }
        let node = tree.tree.node(bar.node);
        let name = super::name(node.frame, &common.model);
        let share = units::percent(node.inclusive as f64 / all);
        let label = format!("{} {share} %", draw::name(node, common));
        // A free column separates adjacent bars.
        let width = bar.width.max(2) - 1;
        let area = Rect { x: area.x + bar.left, y: area.y + line as u16, width, height: 1 };
        let style = match styles.theme.point(&name) {
            _ if cursor == Some(bar.node) => styles.theme.selected,
            Some(color) => Style::new().bg(color).fg(styles.theme.letters),
            None => styles.theme.heading,
        };
        canvas.buffer_mut().set_style(area, style);
        let label = match bar.width < NAMED {
            true => String::new(),
            false => text::fit(&label, width.into(), styles.glyphs.ellipsis),
        };
        canvas.buffer_mut().set_stringn(area.x, area.y, label, width.into(), style);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pfp_model::Frame;
    use pfp_model::tree::Direction;

    fn tree() -> Tree {
        let point = Frame::Point;
        let mut tree = Tree::new(Direction::Callees);
        tree.add(&[point(1)], 10, 1);
        tree.add(&[point(1), point(2)], 60, 1);
        tree.add(&[point(1), point(2), point(3)], 20, 1);
        tree.add(&[point(4)], 10, 1);
        tree.sort();
        tree
    }

    fn positions(bars: &[FlameBar], tree: &Tree) -> Vec<(usize, u16, u16, Frame)> {
        let mut positions: Vec<_> = bars
            .iter()
            .map(|bar| (bar.level, bar.left, bar.width, tree.node(bar.node).frame))
            .collect();
        positions.sort();
        positions
    }

    #[test]
    fn bars_match_their_weight_and_lie_below_their_parents() {
        let tree = tree();
        let expected = [
            (0, 0, 45, Frame::Point(1)),
            (0, 45, 5, Frame::Point(4)),
            (1, 0, 40, Frame::Point(2)),
            (2, 0, 10, Frame::Point(3)),
        ];
        assert_eq!(positions(&bars(&tree, None, 50), &tree), expected);
    }

    #[test]
    fn the_zoomed_frame_has_the_whole_width() {
        let tree = tree();
        let two = tree.find(&[Frame::Point(1), Frame::Point(2)]);
        let expected =
            [(0, 0, 80, Frame::Point(1)), (1, 0, 80, Frame::Point(2)), (2, 0, 20, Frame::Point(3))];
        assert_eq!(positions(&bars(&tree, two, 80), &tree), expected);
    }

    #[test]
    fn too_narrow_bars_are_left_out_with_their_children() {
        let mut tree = Tree::new(Direction::Callees);
        tree.add(&[Frame::Point(1)], 1000, 1);
        tree.add(&[Frame::Point(2), Frame::Point(3)], 1, 1);
        tree.sort();
        assert_eq!(positions(&bars(&tree, None, 80), &tree), [(0, 0, 80, Frame::Point(1))]);
        assert_eq!(bars(&Tree::new(Direction::Callees), None, 80), []);
    }
}
