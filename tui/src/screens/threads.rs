//! The list of threads, and below it the points of the thread under the cursor.

mod draw;
mod list;

use self::list::{TABLE, name_of};
use super::sums;
use crate::screens::prelude::*;
use pfp_model::columns::sorting::SteadyLoads;
use pfp_model::grid::Sorted;
use pfp_model::threads::{Thread, find};

const CPU: &str = "share of a CPU as the kernel counts it, smoothed; - in files and recordings";

/// Key of the column by which the rows are sorted at first.
const LOAD: &str = "load";

groups! {
    BELOW = own {
        Below [Char('d')] "its points below", "show or hide this thread's points below the list";
    }
}

/// The list of threads, and the points of one of them.
#[derive(Debug)]
pub struct ThreadsView {
    /// Lanes in the order of the rows.
    pub order: Vec<u32>,
    /// Lane of the thread under the cursor.
    pub selected: Option<u32>,
    /// Whether the points of that thread are shown, too.
    pub opened: bool,
    /// The columns, and the order of the rows.
    table: TableLayout,
    /// The filter: the threads that pass have a row.
    filter: Filter,
    /// Number of lines scrolled out at the top of the opened thread.
    below: usize,
    /// The user's choices for the table of the opened thread's points.
    parts: TableLayout,
    loads: SteadyLoads,
}

impl Default for ThreadsView {
    fn default() -> Self {
        Self {
            order: Vec::new(),
            selected: None,
            opened: false,
            table: TABLE.usual(LOAD),
            filter: Filter::default(),
            below: 0,
            parts: sums::unsorted(&sums::POINTS),
            loads: SteadyLoads::default(),
        }
    }
}

impl ThreadsView {
    /// Shows the points that the thread under the cursor has measured.
    fn show_points(&self, common: &Common) -> Outcome {
        let threads = common.model.thread_figures();
        let Some(thread) = self.selected.and_then(|lane| find(threads, lane)) else {
            return Outcome::Done;
        };
        let lane = &thread.lane;
        let named = threads.iter().filter(|other| other.lane.name == lane.name).count();
        let filter = Filter::of_thread(&lane.name, lane.tid, named == 1);
        let name = if lane.name.is_empty() { filter.text() } else { &lane.name };
        let text =
            format!("points that {name} measured, with the figures of all threads; Esc shows all");
        Outcome::ShowPoints(filter, text)
    }
}

impl View for ThreadsView {
    fn keys(&self) -> KeyMap {
        &[
            &[keys::RUN, keys::OPEN, BELOW, keys::BACK, keys::COPY, keys::FILTER, keys::TABLE],
            keys::TAIL,
        ]
    }

    fn legend(&self, _: &Styles) -> Vec<(String, &'static str)> {
        vec![
            ("CPU%".into(), CPU),
            ("Load%".into(), "the part of CPU% in points, smoothed the same way"),
            ("Outside%".into(), "the part outside all points: CPU% less Load%"),
        ]
    }

    fn forget(&mut self) {
        let (table, parts) = (self.table.clone(), self.parts.clone());
        *self = Self { table, parts, ..Self::default() };
    }

    fn arrange(&mut self, common: &mut Common) {
        common.select_among(&[]);
        let threads = common.model.thread_figures();
        let passes = |thread: &&Thread| {
            self.filter.admits_words(&[&thread.lane.name, &thread.lane.tid.to_string()])
        };
        let mut shown: Vec<&Thread> = threads.iter().filter(passes).collect();
        TABLE.sort(&self.table, &mut shown, common);
        self.loads.follow(threads.iter().map(|thread| (thread.lane.id, thread.load)));
        let Sorted { key, descending } = self.table.sorted();
        if key == LOAD {
            shown.sort_by(|a, b| {
                let order = self.loads.compare(a.lane.id, b.lane.id);
                if descending { order.reverse() } else { order }
            });
        }
        let sorted = shown.iter().map(|thread| thread.lane.id).collect();
        self.order = common.placed(&self.order, sorted);
        if self.selected.is_none_or(|lane| !self.order.contains(&lane)) {
            self.selected = self.order.first().copied();
        }
    }

    fn act(&mut self, action: Action, common: &mut Common) -> Outcome {
        match action {
            Action::Open => return self.show_points(common),
            Action::Below => (self.opened, self.below) = (!self.opened, 0),
            Action::Back if self.opened => self.opened = false,
            Action::PageUp if self.opened => self.below = self.below.saturating_sub(common.rows),
            // `settle` limits `below` to the length of the text.
            Action::PageDown if self.opened => self.below += common.rows,
            _ => return Outcome::Pass,
        }
        Outcome::Done
    }

    fn cursor(&self, _: &Common) -> (usize, usize) {
        let place = self.order.iter().position(|lane| Some(*lane) == self.selected);
        (place.unwrap_or(0), self.order.len())
    }

    fn select(&mut self, place: usize, common: &mut Common) {
        self.selected = self.order.get(place).copied();
        self.below = 0;
        common.freeze();
    }

    fn own_filter(&mut self) -> Option<(&mut Filter, &'static str)> {
        Some((&mut self.filter, "threads"))
    }

    has_table!(self.table);

    fn offers(&self, key: &str, common: &Common) -> bool {
        match key {
            "process" => common.model.snapshot().is_some_and(|it| !it.process.members.is_empty()),
            "waits" => common.waits().is_some(),
            _ => true,
        }
    }

    fn grid(&self, width: usize, common: &Common) -> Option<Grid> {
        Some(draw::fit(self, common, width, ' ').grid)
    }

    fn copied(&self, common: &Common) -> Option<(String, String)> {
        let thread = find(common.model.thread_figures(), self.selected?)?;
        Some((name_of(thread, common), TABLE.row(&self.table, thread, common)))
    }

    fn rows(&self, body: Rect) -> Rect {
        draw::rows(self, body)
    }

    fn hit(&self, at: Position, body: Rect, common: &Common) -> MouseTarget {
        match draw::heading_of_parts(self, at, body, common) {
            Some(key) => MouseTarget::Heading(key),
            None => view::hit_table(self, at, body, common),
        }
    }

    fn click(&mut self, target: MouseTarget, common: &mut Common) -> Outcome {
        if let MouseTarget::Heading(key) = target {
            self.parts.click(key);
        }
        view::click_table(self, target, common)
    }

    fn settle(&mut self, body: Rect, common: &mut Common) {
        self.below = self.below.min(draw::most_below(self, common, body));
    }

    fn draw(&self, frame: &mut Frame, body: Rect, common: &Common) {
        draw::draw(self, frame, body, common);
    }
}
