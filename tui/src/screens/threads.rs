//! The threads, and below them the points of the one under the cursor.

mod draw;
mod list;

use std::time::Instant;

use crossterm::event::KeyCode;
use ratatui::Frame;
use ratatui::layout::Rect;

use self::list::{COLUMNS, Seen, name_of, order_of};
use super::{Outcome, View};
use crate::app::keys::Key::{Char, Named};
use crate::app::keys::{self, Group, KeyMap, bind, own};
use crate::app::{Action, Common, Filter};
use crate::grid::{SortColumn, Sorted};
use crate::look::Look;
use crate::model::threads::{Thread, find};

const CLOCK: &str = "of a thread: how its process learns of switches, for all its threads alike: rseq, perf, \
                     cputime, or wall, which leaves time off the CPU in";

const CPU: &str = "share of a CPU as the kernel counts it, smoothed; what it has more than Load% was spent \
                   outside all regions";

const BELOW: Group = own(&[bind(
    Action::Below,
    &[Char('d')],
    "its points below",
    "this thread's points below the list, or not",
)]);

const SORT: Group = own(&[
    bind(Action::SortLeft, &[Char('<')], "", "sort by the column to the left"),
    bind(Action::Sort, &[Char('s'), Named(KeyCode::F(6))], "sort", "choose the column to sort by"),
    bind(Action::SortRight, &[Char('>')], "", "sort by the column to the right"),
    bind(Action::Invert, &[Char('I')], "invert", "sort the other way round"),
]);

/// The threads, and the points of one.
#[derive(Debug)]
pub struct Threads {
    /// Lanes in the order of the rows.
    pub order: Vec<u32>,
    /// Lane of the thread under the cursor.
    pub selected: Option<u32>,
    /// The points of that thread are shown, too.
    pub opened: bool,
    sorted: Sorted,
    /// Lines scrolled out at the top of the opened thread.
    below: usize,
}

impl Default for Threads {
    fn default() -> Self {
        Self {
            order: Vec::new(),
            selected: None,
            opened: false,
            sorted: Sorted { key: "load", descending: true },
            below: 0,
        }
    }
}

impl Threads {
    /// Place of the cursor's row, and how many there are.
    fn place(&self) -> (usize, usize) {
        let place = self.order.iter().position(|lane| Some(*lane) == self.selected);
        (place.unwrap_or(0), self.order.len())
    }

    /// The points that the thread under the cursor was in.
    fn show_points(&self, common: &Common) -> Outcome {
        let threads = common.model.thread_figures();
        let Some(thread) = self.selected.and_then(|lane| find(threads, lane)) else {
            return Outcome::Done;
        };
        let lane = &thread.lane;
        let named = threads.iter().filter(|other| other.lane.name == lane.name).count();
        let filter = Filter::of_thread(&lane.name, lane.tid, named == 1);
        let name = if lane.name.is_empty() { filter.text() } else { &lane.name };
        let text = format!("points that {name} was in, with what others did; Esc shows all");
        Outcome::ShowPoints(filter, text)
    }
}

impl View for Threads {
    fn keys(&self) -> KeyMap {
        &[&[keys::RUN, keys::OPEN, BELOW, keys::BACK, keys::COPY, keys::FILTER, SORT], keys::TAIL]
    }

    fn legend(&self, _: &Look) -> Vec<(String, &'static str)> {
        vec![
            ("CPU%".into(), CPU),
            ("Load%".into(), "exclusive time of its points, as a share of one CPU, smoothed"),
            ("Clock".into(), CLOCK),
        ]
    }

    fn forget(&mut self) {
        *self = Self::default();
    }

    fn begin(&mut self, common: &mut Common, _: Instant) {
        self.arrange(common);
    }

    /// Puts the rows in order, or, while they stand still, only drops those that
    /// are gone and adds new ones at the end.
    fn arrange(&mut self, common: &mut Common) {
        common.select_among(&[]);
        let threads = common.model.thread_figures();
        if common.frozen_until.is_some() {
            self.order.retain(|lane| find(threads, *lane).is_some());
            let known: Vec<u32> = self.order.clone();
            let new = threads.iter().map(|thread| thread.lane.id);
            self.order.extend(new.filter(|lane| !known.contains(lane)));
        } else {
            let mut sorted: Vec<&Thread> = threads.iter().collect();
            if let Some(order) = order_of(self.sorted.key) {
                sorted.sort_by(|a, b| match self.sorted.descending {
                    true => (order.compare)(b, a),
                    false => (order.compare)(a, b),
                });
            }
            self.order = sorted.into_iter().map(|thread| thread.lane.id).collect();
        }
        if self.selected.is_none_or(|lane| find(threads, lane).is_none()) {
            self.selected = self.order.first().copied();
        }
    }

    fn act(&mut self, action: Action, common: &mut Common, _: Instant) -> Outcome {
        match action {
            Action::Open => return self.show_points(common),
            Action::Below => (self.opened, self.below) = (!self.opened, 0),
            Action::Back if self.opened => self.opened = false,
            Action::PageUp if self.opened => self.below = self.below.saturating_sub(common.rows),
            // Kept within the text when the size of the screen is next known.
            Action::PageDown if self.opened => self.below += common.rows,
            _ => return Outcome::Pass,
        }
        Outcome::Done
    }

    fn cursor(&self, _: &Common) -> (usize, usize) {
        self.place()
    }

    fn select(&mut self, place: usize, common: &mut Common, now: Instant) {
        self.selected = self.order.get(place).copied();
        self.below = 0;
        common.freeze(now);
    }

    fn sort_columns(&self, _: &Common) -> Vec<SortColumn> {
        let column = |column: &list::Column| {
            let order = column.order.as_ref()?;
            let (key, meaning) = (order.key, order.meaning);
            Some(SortColumn { key, title: column.title, meaning, is_shown: true })
        };
        COLUMNS.iter().filter_map(column).collect()
    }

    fn sorted(&self) -> Option<Sorted> {
        Some(self.sorted)
    }

    fn sort_by(&mut self, key: &str, descending: Option<bool>) {
        if let Some(order) = order_of(key) {
            let descending = descending.unwrap_or(!order.least_first);
            self.sorted = Sorted { key: order.key, descending };
        }
    }

    fn copied(&self, common: &Common) -> Option<(String, String)> {
        let thread = find(common.model.thread_figures(), self.selected?)?;
        // Pictures have no title, and are left out.
        let look = &Look::new(false, true);
        let seen = Seen { common, look };
        let titled = COLUMNS.iter().filter(|column| !column.title.is_empty());
        let cells =
            titled.map(|column| format!("{} {}", column.title, (column.text)(&seen, thread)));
        Some((name_of(thread), cells.collect::<Vec<_>>().join("  ")))
    }

    fn rows(&self, body: Rect) -> Rect {
        draw::rows(self, body)
    }

    fn heading_at(&self, x: u16, body: Rect, _: &Common) -> Option<&'static str> {
        draw::grid(body.width.into(), ' ').0.key_at(x.into())
    }

    fn settle(&mut self, body: Rect, common: &mut Common, _: &Look) -> bool {
        common.rows = usize::from(self.rows(body).height).max(1);
        let last = draw::lines(self, common, body).saturating_sub(common.rows);
        self.below = self.below.min(last);
        common.scroll.settle(common.rows, self.place())
    }

    fn draw(&self, frame: &mut Frame, body: Rect, common: &Common, look: &Look) {
        draw::draw(self, frame, body, common, look);
    }
}
