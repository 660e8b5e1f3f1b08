//! The call tree: the call paths on which the time was spent, as lines to unfold or as a flame
//! graph.
//!
//! ```text
//! Total%  Self%            Total    Self   Calls  Name
//!   61.0    2.1 ######     1.2 s   41 ms     318  v main
//!   58.9   12.4 #####      1.1 s  240 ms    1.2k    v parse
//!   46.5   46.5 ####       910 ms  910 ms   48k       lex
//! ```
//!
//! The weights are CPU time or allocated bytes, computed from the program's edges, or samples of
//! open stacks, which include waiting.

mod draw;
mod flame;

use std::collections::HashMap;
use std::sync::Arc;

use ratatui::Frame as Canvas;

use crate::screens::prelude::*;
use pfp_model::columns::Available;
use pfp_model::compare::Baseline;
use pfp_model::recent::Recent;
use pfp_model::tree::{Direction, Samples, Tree, TreeRow};
use pfp_model::{Frame, Model, OpenRegion, Stacks, WeighedBy};
use pfp_read::waits::WaitsReport;

/// Number of lines above the rows: the heading, and the titles of the columns.
const HEADS: u16 = 2;
/// Nodes below a fiftieth of the whole start folded.
const UNFOLDED_PART: u64 = 50;

groups! {
    TREE = own {
        Flame [Char('f')] "flame/lines", "as a flame graph, or as lines";
        Callers [Char('i')] "callers", "callers below each point, or callees";
        TreeSource [Char('v')] "source", "CPU time, samples of open regions, or allocated bytes"
            + "CPU time and allocations are measured by the program; samples of the open regions \
               are taken many times a second, and include waiting threads, with what they wait \
               for if that is known";
        Window [Char('H')] "window", "CPU time or bytes: all, the last 10 s, since the mark";
        Moment [Char('m')] "", "mark: show the CPU time or bytes since now";
        ByThread [Char('T')] "", "a tree for each thread, or one for all";
    }

    FOLD = own {
        Unfold [Named(Right), Char('l')] "", "unfold; flame: the next bar to the right";
        Fold [Named(Left), Char('h')] "", "fold; flame: the next bar to the left";
        UnfoldAll [Char('*')] "", "unfold all below, or fold it";
        Zoom [Char('z')] "zoom", "show only this frame and its callees, or all again";
    }
}

/// The source of the weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum WeightSource {
    /// The edges and cells of the snapshot: exclusive CPU time.
    #[default]
    Time,
    /// Sampled stacks of open regions.
    Samples,
    /// The edges and cells of the snapshot: allocated bytes.
    AllocBytes,
}

impl WeightSource {
    fn weighed_by(self) -> WeighedBy {
        if self == Self::AllocBytes { WeighedBy::AllocBytes } else { WeighedBy::Time }
    }
}

/// The window of the CPU time or the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TreeWindow {
    /// From the start of the process.
    #[default]
    All,
    /// The last seconds.
    Recent,
    /// From the moment that the user marked.
    Mark,
}

/// The call tree, as lines or as a flame graph.
#[derive(Debug, Default)]
pub struct TreeView {
    direction: Direction,
    source: WeightSource,
    window: TreeWindow,
    by_thread: bool,
    is_flame: bool,
    tree: Tree,
    /// The model of the baseline.
    baseline: Option<Model>,
    /// Each path's share of the whole in the baseline. The key has the names of the path's frames.
    was: Option<HashMap<Vec<String>, f64>>,
    /// Seconds in which the weights were spent, if known.
    seconds: Option<f64>,
    /// The paths that the user has folded (false) or unfolded (true).
    folds: HashMap<Vec<Frame>, bool>,
    /// The path of the frame under the cursor.
    cursor: Vec<Frame>,
    /// The path of the frame that is shown alone with its children; empty to show all.
    zoom: Vec<Frame>,
    rows: Vec<TreeRow>,
    recent: Recent,
    samples: Samples,
    /// The report of waits whose stacks were counted last.
    report: Option<Arc<WaitsReport>>,
    /// The columns, and the order of the nodes of each level.
    table: ChosenColumns,
}

/// The user's choices for the tree's table.
#[derive(Clone, Debug)]
struct ChosenColumns(TableLayout);

impl Default for ChosenColumns {
    fn default() -> Self {
        Self(draw::TABLE.usual(draw::TOTAL))
    }
}

impl TreeView {
    /// Rebuilds the tree from the model's figures.
    fn rebuild(&mut self, common: &Common) {
        let Some(snapshot) = common.model.snapshot() else { return };
        let mut tree = Tree::new(self.direction);
        self.seconds = None;
        match (self.source, self.window) {
            (WeightSource::Samples, _) => {
                for (path, count) in self.samples.stacks() {
                    let is_region = |frame: &&Frame| !matches!(frame, Frame::Wait(_));
                    let region = path.iter().rfind(is_region).copied();
                    if admits(&common.model, &common.filter, region) {
                        tree.add(self.frames(path), count, 0);
                    }
                }
            }
            (_, TreeWindow::All) => {
                let open = common.model.open_regions();
                self.add_measured(&mut tree, &common.model, &common.filter, snapshot, open);
                self.seconds =
                    Some(snapshot.elapsed_ticks as f64 / snapshot.clock.ticks_per_second);
            }
            (_, window) => {
                let model = &common.model;
                if let Some(window) = self.recent.window(model, window == TreeWindow::Mark) {
                    let (snapshot, open) = (&window.snapshot, &window.open);
                    self.add_measured(&mut tree, model, &common.filter, snapshot, open);
                    self.seconds = Some(window.seconds);
                }
            }
        }
        tree.sort();
        self.tree = tree;
        if self.table.0.sorted() != ChosenColumns::default().0.sorted() {
            draw::sort(self, common);
        }
        self.lay_out();
    }

    fn add_measured(
        &self,
        tree: &mut Tree,
        model: &Model,
        filter: &Filter,
        from: &Snapshot,
        open: &[OpenRegion],
    ) {
        let by = self.source.weighed_by();
        let open = if by == WeighedBy::Time { open } else { &[] };
        let passes = |id| admits(model, filter, Some(Frame::Point(id)));
        let stacks = Stacks::of(from, by, open, passes);
        for weight in stacks.weights() {
            tree.add(self.frames(&stacks.path(weight)), weight.exclusive, weight.count);
        }
    }

    /// Computes the baseline's shares. Threads of another process have other numbers, so trees by
    /// thread have no shares of the baseline.
    fn look_at_baseline(&mut self, common: &Common) {
        self.was = None;
        let Some(model) = self.baseline.as_ref().filter(|_| !self.by_thread) else { return };
        let Some(snapshot) = model.snapshot() else { return };
        let mut tree = Tree::new(self.direction);
        self.add_measured(&mut tree, model, &common.filter, snapshot, model.open_regions());
        let all = tree.total().max(1) as f64;
        let share = |row: TreeRow| {
            let path = tree.path(row.node);
            let names = path.iter().map(|frame| name(*frame, model)).collect();
            (names, tree.node(row.node).inclusive as f64 / all)
        };
        self.was = Some(tree.rows(None, |_| true).into_iter().map(share).collect());
    }

    /// Starts over with another tree.
    fn start_over(&mut self, common: &mut Common) {
        self.zoom.clear();
        self.cursor.clear();
        self.folds.clear();
        common.scroll = Scroll::default();
        self.look_at_baseline(common);
        self.rebuild(common);
    }

    /// A path, with its thread if there is a tree for each thread, and otherwise without its
    /// thread.
    fn frames<'a>(&self, path: &'a [Frame]) -> &'a [Frame] {
        if self.by_thread { path } else { &path[1..] }
    }

    /// Computes the lines and puts the cursor on one of them.
    fn lay_out(&mut self) {
        let root = self.tree.find(&self.zoom);
        if root.is_none() {
            self.zoom.clear();
        }
        let tree = &self.tree;
        let least = tree.total() / UNFOLDED_PART;
        let is_open = |node| {
            let by_itself =
                tree.direction() == Direction::Callees && tree.node(node).inclusive > least;
            self.folds.get(&tree.path(node)).copied().unwrap_or(by_itself)
        };
        self.rows = tree.rows(root, is_open);
        // If the frame under the cursor is folded away or gone, the cursor moves to the nearest
        // parent on the screen.
        let mut cursor = self.cursor.as_slice();
        while !cursor.is_empty() && self.place_of(cursor).is_none() {
            cursor = &cursor[..cursor.len() - 1];
        }
        self.cursor = match (cursor, self.rows.first()) {
            ([], Some(first)) => self.tree.path(first.node),
            (cursor, _) => cursor.to_vec(),
        };
    }

    fn place_of(&self, path: &[Frame]) -> Option<usize> {
        let node = self.tree.find(path)?;
        self.rows.iter().position(|row| row.node == node)
    }

    /// The node under the cursor.
    fn node(&self) -> Option<u32> {
        self.tree.find(&self.cursor)
    }

    /// Puts the cursor on a node.
    fn go_to(&mut self, node: u32, common: &mut Common) {
        self.cursor = self.tree.path(node);
        common.freeze();
        if let Some(&Frame::Point(id)) = self.cursor.last() {
            common.selected = Some(id);
        }
    }

    /// Unfolds the node under the cursor, or goes to its first child.
    fn unfold(&mut self, common: &mut Common) {
        let Some(place) = self.place_of(&self.cursor) else { return };
        let row = self.rows[place];
        match (row.is_open, self.tree.node(row.node).children.first()) {
            (true, Some(child)) => self.go_to(*child, common),
            (false, Some(_)) => {
                self.folds.insert(self.cursor.clone(), true);
                self.lay_out();
            }
            (_, None) => {}
        }
    }

    /// Folds the node under the cursor, or goes to its parent.
    fn fold(&mut self, common: &mut Common) {
        let Some(place) = self.place_of(&self.cursor) else { return };
        let row = self.rows[place];
        if row.is_open {
            self.folds.insert(self.cursor.clone(), false);
            self.lay_out();
        } else if let Some(parent) = self.tree.node(row.node).parent
            && row.depth > 0
        {
            self.go_to(parent, common);
        }
    }

    /// Unfolds all nodes below the node under the cursor or, if all are unfolded already, folds
    /// them.
    fn unfold_all(&mut self) {
        let Some(node) = self.node() else { return };
        let all: Vec<u32> =
            self.tree.rows(Some(node), |_| true).into_iter().map(|row| row.node).collect();
        let shown: std::collections::HashSet<u32> =
            self.rows.iter().filter(|row| row.is_open).map(|row| row.node).collect();
        let has_children = |node: &&u32| !self.tree.node(**node).children.is_empty();
        let unfold = all.iter().filter(has_children).any(|node| !shown.contains(node));
        for node in all {
            self.folds.insert(self.tree.path(node), unfold);
        }
        self.lay_out();
    }

    /// Shows only the subtree of the node under the cursor. If only that is shown, shows
    /// everything.
    fn zoom(&mut self, common: &mut Common) {
        self.zoom = match self.zoom == self.cursor {
            true => Vec::new(),
            false => self.cursor.clone(),
        };
        common.scroll = Scroll::default();
        self.lay_out();
    }

    /// Goes to the next window; skips the mark if there is none.
    fn next_window(&mut self) {
        self.window = match self.window {
            TreeWindow::All => TreeWindow::Recent,
            TreeWindow::Recent if self.recent.is_marked() => TreeWindow::Mark,
            TreeWindow::Recent | TreeWindow::Mark => TreeWindow::All,
        };
        if self.source == WeightSource::Samples {
            self.source = WeightSource::Time;
        }
    }
}

/// Whether the time of the frame itself is shown.
fn admits(model: &Model, filter: &Filter, frame: Option<Frame>) -> bool {
    let Some(Frame::Point(id)) = frame else { return false };
    // A device's time is not CPU time.
    model.point(id).is_some_and(|figures| !figures.point().device && filter.admits(figures))
}

/// The name of a frame.
fn name(frame: Frame, model: &Model) -> String {
    match frame {
        Frame::Point(id) => model.point(id).map_or_else(|| format!("#{id}"), Figures::name),
        Frame::Others => "(other callers)".into(),
        Frame::Wait(reason) => format!("[{}]", model.reason(reason)),
        Frame::Thread(lane) => {
            let lanes = model.snapshot().map_or(&[][..], |snapshot| &snapshot.lanes);
            match lanes.iter().find(|known| known.id == lane) {
                Some(lane) if lane.name.is_empty() => format!("thread {}", lane.tid),
                Some(lane) => format!("{} {}", lane.name, lane.tid),
                None => format!("lane {lane}"),
            }
        }
    }
}

impl View for TreeView {
    fn keys(&self) -> KeyMap {
        &[
            &[keys::RUN, keys::OPEN, TREE, FOLD, keys::BACK],
            keys::CHANGE,
            &[keys::TABLE],
            keys::TAIL,
        ]
    }

    fn legend(&self, styles: &Styles) -> Vec<(String, &'static str)> {
        vec![
            ("Total%".into(), "share of the whole, with callees"),
            ("Self%".into(), "share spent in the frame itself: the solid part of the bar"),
            (
                styles.glyphs.recursive.to_string(),
                "recursive: its share counts only once, in the outer frame",
            ),
            (
                "Calls".into(),
                "pairs of caller and callee are exact; outer frames are estimated in proportion to \
                 the callers' times",
            ),
        ]
    }

    fn wait_needs(&self) -> WaitNeeds {
        match self.source {
            WeightSource::Samples => WaitNeeds::Stacks,
            WeightSource::Time | WeightSource::AllocBytes => WaitNeeds::Summary,
        }
    }

    fn copied(&self, common: &Common) -> Option<(String, String)> {
        let frame = *self.cursor.last()?;
        let text = draw::selected(self, common).trim_start().to_owned();
        Some((name(frame, &common.model), text))
    }

    fn begin(&mut self, common: &mut Common) {
        self.update(common);
    }

    fn forget(&mut self) {
        let Self { direction, source, by_thread, is_flame, .. } = *self;
        let table = std::mem::take(&mut self.table);
        *self = Self { direction, source, by_thread, is_flame, table, ..Self::default() };
    }

    fn compare_with(&mut self, baseline: &Baseline, common: &Common) {
        let mut model = Model::default();
        model.fold(baseline.until().clone());
        self.baseline = Some(model);
        self.recent.see(&common.model);
        self.recent.mark(&common.model);
        // Show the time since the baseline was taken, so that a share in the baseline is compared
        // with the share since then. For a baseline from a file, this process has no such moment.
        if baseline.file().is_none() || common.replay.is_some() {
            (self.source, self.window) = (WeightSource::Time, TreeWindow::Mark);
        }
        self.look_at_baseline(common);
    }

    fn update(&mut self, common: &mut Common) -> Outcome {
        self.recent.see(&common.model);
        let last = std::mem::replace(&mut self.report, common.waits().cloned());
        if let Some(report) = &self.report
            && let Some(stacks) = &report.stacks
        {
            // Several snapshots may have the same report.
            if last.is_none_or(|last| !last.is_same(report)) {
                self.samples.take(stacks, |reason| common.model.reason_number(reason));
            }
        } else if let Some(snapshot) = common.model.snapshot() {
            self.samples.take_snapshot(snapshot);
        }
        Outcome::Arrange
    }

    fn arrange(&mut self, common: &mut Common) {
        // Rows stay in place while the cursor moves.
        if common.frozen_until.is_none() || self.rows.is_empty() {
            self.rebuild(common);
        }
        common.select_among(&common.order.clone());
    }

    /// The points that pass the filter. The frames of other points have no time of their own.
    fn points(&self, common: &Common) -> Option<Vec<u32>> {
        Some(common.order.clone())
    }

    fn target_point(&self, _: &Common) -> Option<u32> {
        match self.cursor.last() {
            Some(Frame::Point(id)) => Some(*id),
            _ => None,
        }
    }

    fn act(&mut self, action: Action, common: &mut Common) -> Outcome {
        match action {
            Action::Open if self.is_flame => self.zoom(common),
            Action::Open => match self.target_point(common) {
                Some(id) => {
                    common.selected = Some(id);
                    return Outcome::Show(Screen::Detail);
                }
                None => self.unfold(common),
            },
            Action::Zoom => self.zoom(common),
            Action::Back if !self.zoom.is_empty() => {
                self.zoom.clear();
                self.lay_out();
            }
            Action::Back => return Outcome::Back,
            Action::Flame => {
                self.is_flame = !self.is_flame;
                common.scroll = Scroll::default();
            }
            Action::Callers => {
                self.direction = match self.direction {
                    Direction::Callees => Direction::Callers,
                    Direction::Callers => Direction::Callees,
                };
                self.start_over(common);
            }
            Action::ByThread => {
                self.by_thread = !self.by_thread;
                self.start_over(common);
            }
            Action::TreeSource => {
                self.source = match self.source {
                    WeightSource::Time => {
                        // Older samples are from another time.
                        self.samples = Samples::default();
                        WeightSource::Samples
                    }
                    WeightSource::Samples if Available::of(&common.model).allocs => {
                        WeightSource::AllocBytes
                    }
                    WeightSource::Samples | WeightSource::AllocBytes => WeightSource::Time,
                };
                self.look_at_baseline(common);
                self.rebuild(common);
            }
            Action::Window => {
                self.next_window();
                self.rebuild(common);
            }
            Action::Moment => {
                self.recent.mark(&common.model);
                if self.source == WeightSource::Samples {
                    self.source = WeightSource::Time;
                }
                self.window = TreeWindow::Mark;
                let what = match self.source {
                    WeightSource::AllocBytes => "allocated bytes",
                    _ => "CPU time",
                };
                common
                    .say(format!("marked: showing the {what} from now on; H shows other windows"));
                self.rebuild(common);
            }
            Action::Unfold if self.is_flame => self.step_aside(1, common),
            Action::Fold if self.is_flame => self.step_aside(-1, common),
            Action::Unfold => self.unfold(common),
            Action::Fold => self.fold(common),
            Action::UnfoldAll => self.unfold_all(),
            _ => return Outcome::Pass,
        }
        Outcome::Done
    }

    fn cursor(&self, _: &Common) -> (usize, usize) {
        (self.place_of(&self.cursor).unwrap_or(0), self.rows.len())
    }

    fn select(&mut self, place: usize, common: &mut Common) {
        if let Some(row) = self.rows.get(place) {
            self.go_to(row.node, common);
        }
    }

    fn walk(&mut self, rows: isize, common: &mut Common) {
        if self.is_flame {
            return self.step_in(rows, common);
        }
        let (place, len) = self.cursor(common);
        let place = place.saturating_add_signed(rows).min(len.saturating_sub(1));
        self.select(place, common);
    }

    fn rows(&self, body: Rect) -> Rect {
        let heads = HEADS.min(body.height);
        Rect { y: body.y + heads, height: body.height - heads, ..body }
    }

    has_table!(self.table.0);

    fn offers(&self, key: &str, _: &Common) -> bool {
        draw::offers(self, key)
    }

    fn grid(&self, width: usize, _: &Common) -> Option<Grid> {
        (!self.is_flame).then(|| draw::fit(self, width, ' ').grid)
    }

    fn hit(&self, at: Position, body: Rect, common: &Common) -> MouseTarget {
        let rows = self.rows(body);
        if !self.is_flame || !rows.contains(at) {
            return view::hit_table(self, at, body, common);
        }
        let line = common.scroll.offset + usize::from(at.y - rows.y);
        let place = flame::at(self, at.x - rows.x, line, rows.width)
            .and_then(|node| self.rows.iter().position(|row| row.node == node));
        place.map_or(MouseTarget::Nothing, MouseTarget::Row)
    }

    fn in_sight(&self, common: &Common) -> (usize, usize) {
        match self.is_flame {
            true => (self.cursor.len().saturating_sub(1), usize::MAX),
            false => self.cursor(common),
        }
    }

    fn draw(&self, canvas: &mut Canvas, body: Rect, common: &Common) {
        draw::head(self, canvas, body, common);
        let rest = View::rows(self, body);
        if self.rows.is_empty() {
            draw::empty(self, canvas, rest, common);
        } else if self.is_flame {
            flame::draw(self, canvas, rest, common);
        } else {
            draw::rows(self, canvas, rest, common);
        }
    }
}
