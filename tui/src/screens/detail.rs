//! One point in full.

mod load;
mod load_view;
mod text;

use std::time::Duration;

use self::text::{DetailText, TABLES, heading};
use super::sums;
use crate::screens::prelude::*;
use pfp_model::{HistogramWindow, Model, WindowHistory, WindowStats};

pub use self::load_view::LoadView;
pub(crate) use self::text::losses;

/// The windows of the histogram, the longest first.
const WINDOWS: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(10)];

groups! {
    /// Enter opens the screen and also closes it.
    CLOSE = own {
        Back [Named(Esc), Named(Enter)] "back", "back to where you came from";
    }

    LOAD = own {
        ZoomIn [Char('+'), Char('=')] "closer", "load: closer, half the time or less";
        ZoomOut [Char('-')] "wider", "load: wider, twice the time or more";
        Earlier [Named(Left), Char('h')] "earlier", "load: earlier; it pauses there until End";
        Later [Named(Right), Char('l')] "", "load: later";
        Oldest [Named(Home)] "", "load: the oldest known";
        Newest [Named(End)] "now", "load: go to now, and follow it";
    }

    WINDOW = own {
        Window [Char('H')] "window", "choose the window of the histogram"
            + "the window: since the reset, since pfp-top was opened, since the mark, or the last \
               10 or 60 seconds";
        Moment [Char('m')] "mark", "mark: the histogram counts from now on";
    }

    PAGE = own {
        PageUp [Named(PageUp), Ctrl('b')] "", "one screen up";
        PageDown [Named(PageDown), Ctrl('f')] "", "one screen down";
        Top [Twice('g')] "", "to the first point";
        Bottom [Char('G')] "", "to the last point";
    }
}

/// One point in full.
pub struct DetailView {
    /// Number of lines scrolled out at the top.
    pub offset: usize,
    /// The part of the load history that is shown.
    pub load: LoadView,
    /// The measurements that the histogram shows.
    pub window: HistogramWindow,
    /// The point's figures at earlier polls, at which windows of the histogram begin.
    history: WindowHistory,
    /// The point that was shown last.
    shown: Option<u32>,
    /// The user's choices for the tables of this screen.
    tables: [TableLayout; 3],
}

impl Default for DetailView {
    fn default() -> Self {
        Self {
            offset: 0,
            load: LoadView::default(),
            window: HistogramWindow::default(),
            history: WindowHistory::default(),
            shown: None,
            tables: TABLES.map(sums::unsorted),
        }
    }
}

impl DetailView {
    /// Stores the point's figures at this poll.
    pub(crate) fn follow(&mut self, common: &Common) {
        let snapshot = common.model.snapshot();
        if let (Some(figures), Some(snapshot)) = (common.selected(), snapshot) {
            let rate = snapshot.clock.ticks_per_second;
            self.history.follow(figures, snapshot.elapsed_ticks, rate);
        }
    }

    /// Sets the mark to the present, and shows the window that begins at the mark.
    fn mark(&mut self, common: &Common) {
        self.follow(common);
        let snapshot = common.model.snapshot();
        if let (Some(figures), Some(snapshot)) = (common.selected(), snapshot) {
            self.history.mark(figures, snapshot.elapsed_ticks);
            self.window = HistogramWindow::Mark;
        }
    }

    /// The point's measurements in the window. `None` if the window has all measurements, or if its
    /// measurements are unknown.
    pub fn window_stats(&self, common: &Common) -> Option<WindowStats> {
        let snapshot = common.model.snapshot()?;
        let rate = snapshot.clock.ticks_per_second;
        self.history.stats(self.window, common.selected()?, snapshot.elapsed_ticks, rate)
    }

    /// Draws the top of the screen, for the point that is selected in another screen.
    pub(crate) fn draw_beside(&self, frame: &mut Frame, area: Rect, common: &Common) {
        self.draw_from(frame, area, common, 0);
    }

    fn draw_from(&self, frame: &mut Frame, body: Rect, common: &Common, offset: usize) {
        let styles = &common.styles;
        let heading = match common.selected() {
            Some(figures) => heading(figures, styles),
            None => Line::styled(
                " no points yet: press 1; the table shows each once the program reaches it",
                styles.theme.faint,
            ),
        };
        let lines = self.text(body, common).lines.into_iter().map(|(line, _)| line);
        draw_scrolled(frame, body, heading, lines.collect(), offset);
    }

    /// The content below the heading, on a body of this size.
    fn text(&self, body: Rect, common: &Common) -> DetailText {
        DetailText::new(self, common, body.as_size())
    }
}

impl View for DetailView {
    fn keys(&self) -> KeyMap {
        &[
            &[keys::RUN, CLOSE, keys::POINT, LOAD, keys::TUNE, keys::COPY, keys::FILTER],
            &[keys::SAVE, keys::TABLE, WINDOW, keys::BASELINE, keys::WALK, PAGE, keys::SHOW],
            &[keys::TURN, keys::LEAVE, keys::TERMINAL],
        ]
    }

    fn forget(&mut self) {
        self.load = LoadView::default();
    }

    fn begin(&mut self, common: &mut Common) {
        if self.shown != common.selected {
            (self.shown, self.offset) = (common.selected, 0);
        }
        self.follow(common);
    }

    fn update(&mut self, common: &mut Common) -> Outcome {
        // With several processes, the rows of an ended process disappear after a while.
        if common.selected.is_some() && common.selected().is_none() {
            common.say("the process of that point ended a while ago: its rows are gone");
            return Outcome::Show(Screen::Points);
        }
        self.follow(common);
        Outcome::Done
    }

    fn jump(&mut self, _: &mut Common) {
        self.history.rewind();
    }

    fn windows(&self) -> &'static [Duration] {
        &WINDOWS
    }

    /// Stores the point's earlier figures, from which the windows of its histogram begin.
    fn look_back(&mut self, begins: Vec<Snapshot>, common: &mut Common) {
        self.history.rewind();
        for snapshot in begins {
            let (elapsed, rate) = (snapshot.elapsed_ticks, snapshot.clock.ticks_per_second);
            let mut then = Model::new(0.0);
            then.fold(snapshot);
            if let Some(figures) = common.selected.and_then(|id| then.point(id)) {
                self.history.follow(figures, elapsed, rate);
            }
        }
        self.follow(common);
    }

    fn holds_point(&self) -> bool {
        true
    }

    /// The rows of the table of points, through which Up and Down walk.
    fn points(&self, common: &Common) -> Option<Vec<u32>> {
        Some(common.order.clone())
    }

    fn arrange(&mut self, common: &mut Common) {
        if common.selected().is_none() {
            common.select_among(&[]);
        }
    }

    fn act(&mut self, action: Action, common: &mut Common) -> Outcome {
        match action {
            Action::Back => return Outcome::Back,
            Action::Window => self.window = self.window.next(),
            Action::Moment => self.mark(common),
            Action::Earlier => self.load.pan(false, common),
            Action::Later => self.load.pan(true, common),
            Action::Oldest => self.load.oldest(common),
            Action::Newest => self.load.newest(),
            Action::ZoomIn => self.load.zoom(true, None, common),
            Action::ZoomOut => self.load.zoom(false, None, common),
            _ => return Outcome::Pass,
        }
        Outcome::Done
    }

    fn select(&mut self, place: usize, common: &mut Common) {
        common.selected = common.order.get(place).copied();
        common.freeze();
        self.offset = 0;
        self.begin(common);
    }

    fn scroll(&mut self, lines: isize, _: &mut Common) {
        // `settle` limits the offset to the length of the text.
        self.offset = self.offset.saturating_add_signed(lines);
    }

    /// The threads' table, whose columns can be chosen.
    fn table(&self) -> Option<&TableLayout> {
        self.tables.first()
    }

    fn table_mut(&mut self) -> Option<&mut TableLayout> {
        self.tables.first_mut()
    }

    fn grid(&self, width: usize, _: &Common) -> Option<Grid> {
        Some(TABLES[0].fit(&self.tables[0], 0, width, ' ').grid)
    }

    fn hit(&self, at: Position, body: Rect, common: &Common) -> MouseTarget {
        let text = self.text(body, common);
        if let Some(heading) = sums::heading_at(&text.lines, self.offset, at, body) {
            return MouseTarget::Heading(heading);
        }
        // The first line of the body is the heading, and the first line about the load its title.
        let line = self.offset + usize::from(at.y - body.y);
        let is_on_load = at.y > body.y && (text.load.0 + 2..=text.load.1).contains(&line);
        let column = usize::from(at.x - body.x);
        match load::moment_at(&self.load, common, body.width.into(), column) {
            Some(moment) if is_on_load => MouseTarget::Moment(None, moment),
            _ => MouseTarget::Nothing,
        }
    }

    fn wheel(&mut self, up: bool, target: MouseTarget, common: &mut Common) -> Outcome {
        let MouseTarget::Moment(_, moment) = target else { return Outcome::Pass };
        self.load.zoom(up, Some(moment), common);
        Outcome::Done
    }

    fn drag(&mut self, from: MouseTarget, to: MouseTarget, common: &mut Common) -> Outcome {
        let (MouseTarget::Moment(_, from), MouseTarget::Moment(_, to)) = (from, to) else {
            return Outcome::Pass;
        };
        self.load.drag(from, to, common);
        Outcome::Done
    }

    fn click(&mut self, target: MouseTarget, _: &mut Common) -> Outcome {
        let MouseTarget::Heading(key) = target else { return Outcome::Pass };
        self.tables.iter_mut().for_each(|table| table.click(key));
        Outcome::Done
    }

    fn settle(&mut self, body: Rect, common: &mut Common) {
        let rows = usize::from(body.height.saturating_sub(1)).max(1);
        common.rows = rows;
        let text = self.text(body, common);
        if std::mem::take(&mut self.load.wanted) {
            let (first, behind) = text.load;
            self.offset = self.offset.clamp(behind.saturating_sub(rows).min(first), first);
        }
        self.offset = self.offset.min(text.lines.len().saturating_sub(rows));
    }

    fn draw(&self, frame: &mut Frame, body: Rect, common: &Common) {
        self.draw_from(frame, body, common, self.offset);
    }
}
