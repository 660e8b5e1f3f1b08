//! The table of points.

mod draw;
mod idle;

use self::idle::Idle;
use crate::common::Options;
use crate::screens::prelude::*;
use pfp_model::columns;
use pfp_model::columns::sorting::{Sorting, SteadyLoads};
use pfp_model::columns::{Available, Column, Fit, TABLE};

/// Minimum height for a line of sums below the table.
const MIN_HEIGHT: u16 = 12;
/// Columns for warnings to the right of a name.
const WARNINGS: usize = 24;
/// Columns for the process id to the left of a name.
const PID: usize = 8;
/// Number of columns by which one key scrolls the names.
const SCROLL: usize = 8;

groups! {
    ALL = own {
        ToggleAll [Char('E')] "", "switch all points shown off, or back on; asks first";
        ResetAll [Char('R')] "", "reset all points shown; asks first";
    }

    TIMES = own {
        ShowTimes [Char('T')] "time", "next columns: time by the clock, allocations, CPU time";
    }

    LIVE = own {
        Moment [Char('m')] "", "mark: show the growth of live memory from now on (live-grown, live-growth)";
    }

    IDLE = own {
        ShowIdle [Char('o')] "", "show idle points (off, never measured), or hide them";
    }

    NAMES = own {
        Unfilter [Named(Esc)] "show all", "show all points again";
        ScrollLeft [Named(Left), Char('h')] "", "scroll long names to the left";
        ScrollRight [Named(Right), Char('l')] "", "scroll long names to the right";
    }
}
const LOAD: &str = "exclusive time as a share of one CPU, smoothed over --tau; after the end, the \
                    average over the lifetime";
const SCALE: &str = "bar: the load; trend: the load at the last polls, not smoothed; all rows \
                     share the scale over the bar";
const CHANGED: &str = "the load rose, or fell, within the last minute, by at least 5 percentage \
                       points and a factor of 1.5";

const NOTHING_LEFT: &str = "below 1 ns after subtracting the cost of measuring";

const SHORT: &str = "very short, below ten times the cost of measuring: its time may be charged to \
                     the enclosing region; the count is exact";

/// The table of points.
pub struct PointsView {
    /// The columns, and the order of the rows.
    table: TableLayout,
    /// The columns that were replaced by those about time by the clock.
    replaced: Option<Vec<&'static str>>,
    /// Number of columns of long names that are scrolled out at the left.
    name_offset: usize,
    /// Points that are off and never measured, whose rows may be hidden.
    idle: Idle,
    loads: SteadyLoads,
}

impl Default for PointsView {
    fn default() -> Self {
        Self::new(&Options::default())
    }
}

impl PointsView {
    /// Makes the table with the user's options.
    pub(crate) fn new(options: &Options) -> Self {
        let default = Column::DEFAULT.map(Column::word);
        let mut table = TableLayout::new(&TABLE.headings(), &default, Column::Load.word());
        table.show(&options.columns.iter().map(|column| column.word()).collect::<Vec<_>>());
        let Sorting { column, descending } = options.sorting;
        table.sort_by(column.word(), Some(descending));
        Self {
            table,
            replaced: None,
            name_offset: 0,
            idle: Idle::default(),
            loads: SteadyLoads::default(),
        }
    }

    /// The columns, from left to right.
    pub fn columns(&self) -> Vec<Column> {
        let columns = self.table.shown().into_iter().map(Column::of_word);
        columns.filter_map(Result::ok).collect()
    }

    /// Shows the next set of columns: those about time by the clock, those about allocations if
    /// some were counted, and then the earlier ones again.
    fn show_next(&mut self, has_allocs: bool) {
        let times = Column::TIMES.map(Column::word).to_vec();
        let allocs = Column::ALLOCS.map(Column::word).to_vec();
        let shown = self.table.shown();
        let columns = match () {
            () if shown == times && has_allocs => allocs,
            () if shown == times || shown == allocs => {
                self.replaced.take().unwrap_or_else(|| Column::DEFAULT.map(Column::word).into())
            }
            () => {
                self.replaced = Some(shown);
                times
            }
        };
        self.table.show(&columns);
    }

    /// The order of the rows.
    pub fn sorting(&self) -> Sorting {
        let sorted = self.table.sorted();
        let column = Column::of_word(sorted.key).unwrap_or(Column::Load);
        Sorting { column, descending: sorted.descending }
    }

    /// Sorts the points, or keeps their places while the cursor moves.
    pub(crate) fn order(&mut self, common: &mut Common) {
        let shows_allocs = self.table.shown() == Column::ALLOCS.map(Column::word);
        if shows_allocs && common.model.snapshot().is_some() && !Available::of(&common.model).allocs
        {
            // The columns may be from an earlier program that counted allocations.
            self.show_next(false);
        }
        self.idle.look(common.model.points(), common.filter.is_on());
        let points = common.model.points().iter();
        self.loads.follow(points.map(|figures| (figures.id(), figures.load())));
        let Common { model, filter, .. } = &*common;
        let has_row = |figures: &Figures| filter.admits(figures) && !self.idle.hides(figures);
        let shown = model.points().iter().filter(|figures| has_row(figures));
        let sorted = match common.frozen_until {
            Some(_) => shown.map(Figures::id).collect(),
            None => self.sorting().order_at_once(shown, &self.loads),
        };
        common.order = common.placed(&common.order, sorted);
    }

    /// The number of points whose rows are hidden, since they are off and have never measured.
    pub fn hidden(&self) -> usize {
        self.idle.hidden()
    }

    /// Number of lines for the sums of all rows and for the number of hidden rows, if there is
    /// room.
    fn totals(&self, area: Rect) -> u16 {
        if area.height >= MIN_HEIGHT { 1 + u16::from(self.idle.hidden() > 0) } else { 0 }
    }

    /// The columns of the table, and the width of each.
    pub(crate) fn fit(&self, common: &Common, width: usize, ellipsis: char) -> Fit {
        let several = common.model.has_processes();
        let names = common.model.points().iter().map(|figures| {
            let said = match figures.warnings().is_empty() {
                false => WARNINGS,
                true if figures.point().device => columns::clock_mark(figures).len(),
                true => 0,
            };
            let pid = if several { PID } else { 0 };
            text::width(&figures.point().name) + said + pid
        });
        let (names, available) = (names.max().unwrap_or(0), Available::of(&common.model));
        Fit::new(&self.columns(), width, names, available, ellipsis)
    }
}

impl View for PointsView {
    fn keys(&self) -> KeyMap {
        &[
            &[keys::RUN, keys::OPEN, keys::POINT, ALL, keys::TUNE, IDLE, LIVE, keys::COPY],
            &[keys::FILTER, keys::TABLE, TIMES, NAMES],
            keys::TAIL,
        ]
    }

    fn legend(&self, styles: &Styles) -> Vec<(String, &'static str)> {
        let glyphs = &styles.glyphs;
        let of = |signs: &[char]| signs.iter().map(char::to_string).collect::<Vec<_>>().join(" ");
        vec![
            (
                of(&[glyphs.on, glyphs.off, glyphs.invalid]),
                "the point is on; off; invalid: begun twice without an end (e makes it valid)",
            ),
            (of(&glyphs.changed), CHANGED),
            ("Load%".into(), LOAD),
            ("0   50%".into(), SCALE),
            ("<1ns".into(), NOTHING_LEFT),
            ("~20ns".into(), SHORT),
            ("#5".into(), "a point with a number and no name"),
        ]
    }

    fn forget(&mut self) {
        self.idle.forget();
        self.loads = SteadyLoads::default();
    }

    fn act(&mut self, action: Action, common: &mut Common) -> Outcome {
        match action {
            Action::ShowIdle => {
                let shown = if self.idle.turn() { "shown" } else { "hidden" };
                common.say(format!("idle points (off, never measured) are {shown}"));
                return Outcome::Arrange;
            }
            Action::ScrollLeft => self.name_offset = self.name_offset.saturating_sub(SCROLL),
            Action::ShowTimes => {
                self.show_next(Available::of(&common.model).allocs);
                return Outcome::Arrange;
            }
            Action::Moment if !Available::of(&common.model).allocs => {
                common.say("nothing to mark: no allocations are counted");
            }
            Action::Moment => {
                common.model.mark_live();
                common.say("marked: Live + is the growth of live memory from now on");
                return Outcome::Arrange;
            }
            // `settle` limits the offset to the longest name.
            Action::ScrollRight => self.name_offset += SCROLL,
            _ => return Outcome::Pass,
        }
        Outcome::Done
    }

    fn points(&self, common: &Common) -> Option<Vec<u32>> {
        Some(common.order.clone())
    }

    fn is_table(&self) -> bool {
        true
    }

    fn rows(&self, body: Rect) -> Rect {
        Rect { y: body.y + 1, height: body.height.saturating_sub(1 + self.totals(body)), ..body }
    }

    has_table!(self.table);

    fn offers(&self, key: &str, common: &Common) -> bool {
        let available = Available::of(&common.model);
        Column::of_word(key).is_ok_and(|column| !Column::shown(&[column], available).is_empty())
    }

    fn grid(&self, width: usize, common: &Common) -> Option<Grid> {
        Some(self.fit(common, width, ' ').grid)
    }

    fn hit(&self, at: Position, body: Rect, common: &Common) -> MouseTarget {
        let column = || self.grid(body.width.into(), common)?.key_at((at.x - body.x).into());
        match view::hit_table(self, at, body, common) {
            MouseTarget::Row(place) if column() == Some(Column::On.word()) => {
                MouseTarget::Mark(place)
            }
            target => target,
        }
    }

    fn click(&mut self, target: MouseTarget, common: &mut Common) -> Outcome {
        let MouseTarget::Mark(place) = target else {
            return view::click_table(self, target, common);
        };
        self.select(place, common);
        Outcome::Act(Action::Toggle)
    }

    fn settle(&mut self, _: Rect, common: &mut Common) {
        if self.name_offset > 0 {
            let names = common.model.points().iter().map(|f| text::width(&f.point().name));
            self.name_offset = self.name_offset.min(names.max().unwrap_or(0));
        }
    }

    fn draw(&self, frame: &mut Frame, body: Rect, common: &Common) {
        draw::draw(self, frame, body, common);
    }
}
