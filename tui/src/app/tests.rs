//! Tests of the app, driven by keys, on made-up processes.

mod diff;
mod files;
mod filter;
mod keys;
mod late;
mod leaving;
mod load;
mod log;
mod picker;
mod replay;
mod several;
mod switches;
pub(crate) mod timeline;

use std::cell::{RefCell, RefMut};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use anyhow::Result;
use crossterm::event::{KeyCode, KeyModifiers, MouseButton, MouseEventKind};

use super::*;
use crate::common::{Errand, FREEZE, MouseTarget, Prompt, PromptSubject, Question};
use crate::view;
use pfp_model::columns::sorting::Sorting;
use pfp_model::columns::{Available, Column};
use pfp_model::filter::Filter;
use pfp_read::files::json::read;
use pfp_read::snapshot::{PointState, Process, Snapshot};
use pfp_read::source::synthetic::Synthetic;
use pfp_read::source::{Acted, Candidate, Change, Discovery, ProcessGroup, Selector};

/// Number of rows of a list that fit on the test's terminal.
const ROWS: usize = 5;
const AREA: Rect = Rect::new(0, 0, 120, 3 + ROWS as u16);

/// A made-up process that the test can access while the app owns it.
#[derive(Clone, Default)]
pub(crate) struct Shared(pub(crate) Rc<RefCell<Synthetic>>);

impl Shared {
    fn made(&self) -> RefMut<'_, Snapshot> {
        RefMut::map(self.0.borrow_mut(), Synthetic::snapshot_mut)
    }

    fn state(&self, id: usize) -> PointState {
        self.made().points[id].state
    }
}

impl Source for Shared {
    fn picture(&mut self) -> Result<Snapshot> {
        self.0.borrow_mut().poll()
    }

    fn act(&mut self, change: Change) -> Result<Acted> {
        self.0.borrow_mut().act(change)
    }
}

/// Finds the processes that the test provides.
#[derive(Clone, Default)]
pub(crate) struct Stage(pub(crate) Rc<RefCell<Discovery>>);

impl Finder for Stage {
    fn discover(&mut self) -> Result<Discovery> {
        Ok(self.0.borrow().clone())
    }

    fn attach(&mut self, _: &Candidate) -> Result<Box<dyn Source>> {
        Ok(Box::new(Synthetic::new()))
    }

    fn attach_group(
        &mut self,
        group: &ProcessGroup,
        _: Option<Duration>,
    ) -> Result<Box<dyn Source>> {
        let Selector::Segments(ids) = &group.members else { anyhow::bail!("not asked for") };
        let mut several = Synthetic::new();
        let process = &mut several.snapshot_mut().process;
        let member = |id: &String| Process { segment_id: id.clone(), ..Process::default() };
        process.members = ids.iter().map(member).collect();
        Ok(Box::new(several))
    }
}

pub(crate) fn candidate(pid: u32) -> Candidate {
    Candidate {
        name: format!("app{pid}"),
        pid,
        segment_id: format!("{pid:04x}{:028}", 0),
        started_unix_ns: u64::from(pid),
        ..Candidate::default()
    }
}

pub(crate) struct Desk {
    pub(crate) app: App,
    pub(crate) process: Shared,
    pub(crate) now: Instant,
}

pub(crate) fn desk() -> Desk {
    desk_with(Options::default())
}

pub(crate) fn desk_with(options: Options) -> Desk {
    let (process, now) = (Shared::default(), Instant::now());
    let mut app = App::new(options, Box::new(Stage::default()), now);
    app.watch(Box::new(process.clone()), now);
    let mut desk = Desk { app, process, now };
    desk.wait(3);
    desk
}

impl Deref for Desk {
    type Target = App;

    fn deref(&self) -> &App {
        &self.app
    }
}

impl DerefMut for Desk {
    fn deref_mut(&mut self) -> &mut App {
        &mut self.app
    }
}

impl Desk {
    /// Polls this many times. At each poll, the app's clock has advanced by two seconds, and the
    /// process has grown a second older.
    pub(crate) fn wait(&mut self, polls: usize) {
        for _ in 0..polls {
            self.now += Duration::from_secs(2);
            if self.app.next_poll().is_some_and(|due| due <= self.now) {
                self.app.poll(self.now);
            }
            self.settle();
        }
    }

    fn poll_again(&mut self) {
        self.now += Duration::from_secs(1);
        self.app.poll(self.now);
    }

    fn settle(&mut self) {
        view::settle(&mut self.app, AREA, self.now);
    }

    /// Waits until the file that is being saved was written or refused.
    pub(crate) fn wait_until_saved(&mut self) {
        let start = Instant::now();
        while self.app.next_saving().is_some() {
            assert!(start.elapsed() < Duration::from_secs(60), "it is never written");
            self.app.go_on_saving(self.now);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Presses these keys; a line end is Enter, an escape is Esc.
    pub(crate) fn press(&mut self, keys: &str) {
        for c in keys.chars() {
            self.code(match c {
                '\n' => KeyCode::Enter,
                '\x1b' => KeyCode::Esc,
                c => KeyCode::Char(c),
            });
        }
    }

    pub(crate) fn code(&mut self, code: KeyCode) {
        self.app.key(KeyEvent::from(code), self.now);
        self.settle();
    }

    /// Clears the line that is being typed.
    pub(crate) fn clear(&mut self) {
        self.app.key(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL), self.now);
    }

    pub(crate) fn click(&mut self, target: MouseTarget) -> bool {
        self.app.mouse(MouseEventKind::Down(MouseButton::Left), target, self.now)
    }

    /// Drags with the left button from one object to another.
    fn drag(&mut self, from: MouseTarget, to: MouseTarget) -> bool {
        self.click(from);
        self.app.mouse(MouseEventKind::Drag(MouseButton::Left), to, self.now)
    }

    /// Turns the wheel by a notch over an object.
    fn wheel(&mut self, up: bool, target: MouseTarget) -> bool {
        let kind = if up { MouseEventKind::ScrollUp } else { MouseEventKind::ScrollDown };
        self.app.mouse(kind, target, self.now)
    }

    /// Puts the cursor on the row at this place.
    pub(crate) fn walk_to(&mut self, place: usize) {
        let (view, common) = self.view_mut();
        view.select(place, common);
    }

    /// Opens a point on the Detail screen.
    pub(crate) fn open(&mut self, point: u32) {
        self.common.selected = Some(point);
        self.press("\n");
    }

    /// The state of the process for the next poll.
    pub(crate) fn made(&self) -> RefMut<'_, Snapshot> {
        self.process.made()
    }

    /// The state of the process at the last poll.
    pub(crate) fn snapshot(&self) -> &Snapshot {
        self.common.model.snapshot().unwrap()
    }

    pub(crate) fn point(&self, id: u32) -> &Figures {
        self.common.model.point(id).unwrap()
    }

    /// The message in the last line.
    pub(crate) fn said(&self) -> Option<&str> {
        self.common.toast.as_ref().map(|toast| toast.text.as_str())
    }

    /// The row that was just copied.
    fn copied(&mut self) -> String {
        match self.common.errand.take() {
            Some(Errand::Copy(text)) => text,
            other => panic!("nothing was copied: {other:?}"),
        }
    }
}

#[test]
fn the_cursor_stays_on_its_point_while_the_order_moves() {
    let mut desk = desk();
    desk.press("jj");
    let selected = desk.common.selected;
    for _ in 0..12 {
        desk.press(">");
        assert_eq!(desk.common.selected, selected);
        let (place, _) = desk.cursor();
        assert!((desk.common.scroll.offset..desk.common.scroll.offset + 5).contains(&place));
    }
}

#[test]
fn rows_stand_still_while_the_cursor_moves_and_settle_after() {
    let mut desk = desk();
    desk.press("<<<<k");
    let order = desk.common.order.clone();
    // Reverse the order of the rows while the cursor is on one of them.
    desk.screens.points.table_mut().unwrap().click("on");
    desk.app.poll(desk.now + Duration::from_millis(1000));
    assert_eq!(desk.common.order, order);
    assert!(view::settle(&mut desk.app, AREA, desk.now + FREEZE));
    assert_ne!(desk.common.order, order);
}

#[test]
fn a_pause_freezes_the_figures_but_not_the_keys() {
    let mut desk = desk();
    desk.press(" ");
    assert_eq!(desk.common.status(), Status::Paused);
    let before = desk.snapshot().clone();
    desk.wait(3);
    desk.press("jj>I");
    assert_eq!(desk.common.model.snapshot(), Some(&before));
    desk.press("p");
    desk.wait(1);
    assert_eq!(desk.common.status(), Status::Live);
    assert_ne!(desk.common.model.snapshot(), Some(&before));
}

#[test]
fn the_end_of_a_process_is_seen_in_a_pause_and_its_figures_after_it() {
    let mut desk = desk();
    desk.press(" ");
    let frozen = desk.snapshot().clone();
    desk.wait(2);
    assert_eq!(desk.common.ended_unseen(), None);
    desk.made().process.state = ProcessState::Crashed;
    desk.wait(2);
    assert_eq!(desk.common.ended_unseen(), Some(ProcessState::Crashed));
    assert_eq!((desk.common.status(), desk.next_poll()), (Status::Paused, None));
    assert_eq!(desk.common.model.snapshot(), Some(&frozen));
    desk.press(" ");
    desk.wait(1);
    assert_eq!((desk.common.status(), desk.common.ended_unseen()), (Status::Crashed, None));
    assert_ne!(desk.common.model.snapshot(), Some(&frozen));
}

#[test]
fn the_last_figures_of_a_process_that_died_stay() {
    let mut desk = desk();
    desk.made().process.state = ProcessState::Crashed;
    desk.wait(2);
    assert_eq!(desk.common.status(), Status::Crashed);
    assert!(desk.point(1).is_used());
    assert_eq!(desk.next_poll(), None);
}

#[test]
fn the_interval_walks_through_its_steps_and_stops_at_the_ends() {
    let mut desk = desk();
    desk.press("+");
    assert_eq!(desk.common.interval, Duration::from_millis(500));
    desk.press("+++++++++");
    assert_eq!(desk.common.interval, Duration::from_millis(100));
    desk.press("------------");
    assert_eq!(desk.common.interval, Duration::from_secs(10));
}

#[test]
fn screens_are_selected_by_number_and_by_tab() {
    let mut desk = desk();
    for (place, tab) in Screen::TABS.iter().enumerate().rev() {
        desk.press(&(place + 1).to_string());
        assert_eq!((desk.screen, desk.screen.tab()), (tab.screen, Some(place)));
    }
    let mut seen = Vec::new();
    for _ in Screen::TABS {
        seen.push(desk.screen);
        desk.code(KeyCode::Tab);
    }
    assert!(seen.iter().eq(Screen::TABS.iter().map(|tab| &tab.screen)));
    assert_eq!(desk.screen, Screen::Points);
    desk.code(KeyCode::BackTab);
    assert_eq!(Some(desk.screen), Screen::TABS.last().map(|tab| tab.screen));
    desk.press("\x1b");
    assert_eq!(desk.screen, Screen::Points);
    // The list of processes has no tab, so Tab and the numbers of screens do nothing on it.
    desk.press("P\t3");
    assert_eq!(desk.screen, Screen::Picker);
}

#[test]
fn alpha_is_set_and_invalid_text_stays_in_the_prompt() {
    let mut desk = desk();
    let alpha = |desk: &Desk| desk.made().points[1].alpha;
    desk.common.selected = Some(1);
    desk.press("a1\n");
    assert_eq!(alpha(&desk), Some(0.21));
    desk.wait(1);
    desk.press("a");
    for _ in 0..4 {
        desk.code(KeyCode::Backspace);
    }
    desk.press("5s/1s\n");
    let Some(Overlay::Typed(prompt)) = &desk.overlay else { panic!("it was closed") };
    assert_eq!((prompt.text().as_str(), prompt.error.is_some()), ("5s/1s", true));
    assert_eq!(prompt.asked, PromptSubject::Alpha(1));
    assert_eq!(alpha(&desk), Some(0.21));
    desk.press("0");
    let Some(Overlay::Typed(prompt)) = &desk.overlay else { panic!("it was closed") };
    assert_eq!(prompt.error, None);
    desk.press("\x1ba");
    for _ in 0..4 {
        desk.code(KeyCode::Backspace);
    }
    desk.press("off\n");
    assert_eq!(alpha(&desk), None);
}

#[test]
fn a_row_is_copied_with_its_titles() {
    let mut desk = desk();
    desk.common.selected = Some(1);
    desk.press("y");
    let text = desk.copied();
    assert!(
        text.starts_with("io.parse  src/work.rs:88  On on  Load% 42.5  Count 33.7k  /s 9.28k"),
        "{text}"
    );
    assert!(desk.common.toast.as_ref().is_some_and(|toast| toast.text.contains("OSC 52")));
}

#[test]
fn the_mouse_selects_opens_sorts_and_scrolls() {
    let mut desk = desk();
    let now = desk.now;
    let wanted = desk.common.order[3];
    assert!(desk.click(MouseTarget::Row(3)));
    assert_eq!((desk.common.selected, desk.screen), (Some(wanted), Screen::Points));
    assert!(desk.click(MouseTarget::Row(3)));
    assert_eq!(desk.screen, Screen::Detail);
    desk.mouse(MouseEventKind::ScrollDown, MouseTarget::Nothing, now);
    assert_eq!((desk.screens.detail.offset, desk.common.selected), (3, Some(wanted)));
    desk.press("\x1b");
    desk.mouse(MouseEventKind::ScrollUp, MouseTarget::Nothing, now);
    assert_eq!(desk.cursor().0, 0);
    desk.click(MouseTarget::Heading("avg"));
    assert_eq!(desk.screens.points.sorting(), Sorting::by(Column::Avg));
    desk.click(MouseTarget::Heading("avg"));
    let inverted = Sorting { descending: false, ..Sorting::by(Column::Avg) };
    assert_eq!(desk.screens.points.sorting(), inverted);
    assert!(!desk.mouse(MouseEventKind::Moved, MouseTarget::Row(1), now));
    assert!(!desk.drag(MouseTarget::Row(1), MouseTarget::Row(2)));
    // The question is answered by a key, so a click on a row does nothing.
    desk.press("E");
    assert!(!desk.click(MouseTarget::Row(1)));
}

#[test]
fn a_click_on_the_mark_of_a_point_switches_it() {
    let mut desk = desk();
    let id = desk.common.order[3];
    for (state, said) in [(PointState::Off, "off"), (PointState::On, "on")] {
        assert!(desk.click(MouseTarget::Mark(3)));
        assert_eq!(desk.process.state(id as usize), state);
        assert_eq!((desk.common.selected, desk.screen), (Some(id), Screen::Points));
        let name = desk.point(id).name();
        assert_eq!(desk.said(), Some(format!("{name} is {said}").as_str()));
    }
    // An event without an effect leaves the message.
    let now = desk.now;
    assert!(!desk.mouse(MouseEventKind::Moved, MouseTarget::Row(1), now));
    assert!(desk.said().is_some());
}

#[test]
fn columns_are_hidden_and_moved() {
    let mut desk = desk();
    desk.press("c");
    assert_eq!(desk.overlay, Some(Overlay::Columns("load")));
    desk.press(" ");
    assert!(!desk.screens.points.columns().contains(&Column::Load));
    // A column that is added again returns to its old place.
    desk.press(" ");
    assert_eq!(desk.screens.points.columns(), Column::DEFAULT);
    for _ in 0..30 {
        desk.press("K");
    }
    let first = |desk: &Desk| {
        Column::shown(&desk.screens.points.columns(), Available::default())[..4].to_vec()
    };
    let [on, load, name, bar] = [Column::On, Column::Load, Column::Name, Column::Bar];
    assert_eq!(first(&desk), [on, load, name, bar]);
    desk.press(">J<");
    assert_eq!(first(&desk), [on, name, load, bar]);
    desk.press("k ");
    assert!(desk.screens.points.columns().contains(&Column::Name), "the name stays");
    desk.press("\n");
    assert_eq!(desk.overlay, None);
    // Sorting moves through the columns in their present order.
    desk.press("<");
    assert_eq!(desk.screens.points.sorting().column, Column::Name);
    desk.press(">>");
    assert_eq!(desk.screens.points.sorting().column, Column::Count, "drawn columns are skipped");
}

#[test]
fn one_key_shows_the_columns_about_time_by_the_clock() {
    let mut desk = desk();
    desk.press("T");
    assert_eq!(desk.screens.points.columns(), Column::TIMES);
    desk.press("T");
    assert_eq!(desk.screens.points.columns(), Column::DEFAULT);
    // Columns that the user has chosen return, too.
    desk.press("cG \n");
    let own = desk.screens.points.columns();
    assert_ne!(own, Column::DEFAULT);
    desk.press("TT");
    assert_eq!(desk.screens.points.columns(), own);
}

#[test]
fn a_key_counts_allocations_and_another_one_shows_them() {
    let mut desk = desk();
    let counts = |desk: &Desk| desk.process.made().points.iter().any(|point| point.counts_allocs);
    desk.press("A");
    assert!(counts(&desk));
    assert!(desk.said().is_some_and(|said| said.contains("counts its allocations")));
    desk.press("A");
    assert!(!counts(&desk));
    let set = |desk: &mut Desk, allocs: u64| {
        for cell in &mut desk.process.made().cells {
            Arc::make_mut(cell).allocs.allocs = allocs;
        }
        desk.wait(1);
    };
    set(&mut desk, 7);
    desk.press("TT");
    assert_eq!(desk.screens.points.columns(), Column::ALLOCS);
    // Another program may count none.
    set(&mut desk, 0);
    assert_eq!(desk.screens.points.columns(), Column::DEFAULT);
}

#[test]
fn sorting_walks_through_the_columns_of_every_table_and_returns() {
    for (screen, columns) in [
        (Screen::Points, 11),
        (Screen::Threads, 10),
        (Screen::Diff, 25),
        (Screen::Roofline, 7),
        (Screen::Tree, 6),
    ] {
        let mut desk = desk();
        desk.app.act(Action::Show(screen), desk.now);
        let sorted = |desk: &Desk| desk.view().table().unwrap().sorted();
        let (start, mut seen) = (sorted(&desk), Vec::new());
        for _ in 0..columns {
            let now = sorted(&desk);
            desk.press("><");
            assert_eq!(sorted(&desk), now);
            assert!(!seen.contains(&now.key), "{} comes twice", now.key);
            seen.push(now.key);
            desk.press(">");
        }
        assert_eq!(sorted(&desk), start, "{screen:?}");
        desk.press("I");
        assert_ne!(sorted(&desk), start);
        desk.press("I");
        assert_eq!(sorted(&desk), start);
    }
}

#[test]
fn threads_are_sorted_by_a_menu_and_by_their_headings_and_copied() {
    let mut desk = desk();
    desk.press("3s");
    assert_eq!(desk.overlay, Some(Overlay::Sort("load")));
    desk.press("gg\n");
    let table = |desk: &Desk| desk.view().table().unwrap().clone();
    let sorted = |desk: &Desk| Some(table(desk).sorted()).map(|it| (it.key, it.descending));
    assert_eq!((desk.overlay.as_ref(), sorted(&desk)), (None, Some(("name", false))));
    assert!(desk.click(MouseTarget::Heading("tid")));
    assert_eq!(sorted(&desk), Some(("tid", false)));
    assert!(desk.click(MouseTarget::Heading("tid")));
    assert_eq!(desk.screens.threads.order, [2, 1, 0]);
    // The table of points has an order of its own.
    assert_eq!(desk.screens.points.sorting(), Sorting::by(Column::Load));
    desk.press("ggy");
    let text = desk.copied();
    assert!(text.starts_with("Thread ") && text.contains("  Tid 471"), "{text}");
}

/// Every table has a menu of columns, and keeps the choice when another process is opened.
#[test]
fn every_table_has_columns_to_choose_and_keeps_them() {
    for (screen, key) in [
        (Screen::Points, "load"),
        (Screen::Threads, "tid"),
        (Screen::Diff, "dp90"),
        (Screen::Roofline, "bytes"),
        (Screen::Tree, "calls"),
        (Screen::Detail, "thread-max"),
    ] {
        let mut desk = desk();
        desk.app.act(Action::Show(screen), desk.now);
        let shows = |desk: &Desk| desk.screens.get(screen).table().unwrap().shows(key);
        assert!(shows(&desk), "{key}");
        desk.press("cgg");
        while desk.overlay != Some(Overlay::Columns(key)) {
            desk.press("j");
        }
        desk.press(" \n");
        assert!(!shows(&desk) && desk.overlay.is_none(), "{key}");
        desk.app.watch(Box::new(desk.process.clone()), desk.now);
        assert!(!shows(&desk), "{key} is back");
    }
}

#[test]
fn threads_are_filtered_by_their_names_where_they_are() {
    let mut desk = desk();
    desk.press("3/pack\n");
    assert_eq!((desk.screen, desk.screens.threads.order.len()), (Screen::Threads, 1));
    desk.press("/");
    let Some(Overlay::Typed(prompt)) = &desk.overlay else { panic!("no line to type in") };
    assert_eq!(prompt.text(), "pack");
    desk.press("\x1b");
    // Esc first shows all rows, then goes back.
    desk.press("\x1b");
    assert_eq!((desk.screen, desk.screens.threads.order.len()), (Screen::Threads, 3));
    desk.press("\x1b");
    assert_eq!(desk.screen, Screen::Points);
}

#[test]
fn unknown_prefixes_are_reported_on_every_screen() {
    for screen in ["1", "2", "5", "8"] {
        let mut desk = desk();
        desk.press(screen);
        desk.press("/!thraed:x\n");
        let toast = desk.common.toast.clone().expect("it is said");
        assert!(toast.text.starts_with("thraed: is none of thread:"), "{}", toast.text);
    }
}

#[test]
fn a_column_to_sort_by_is_chosen_from_all() {
    let mut desk = desk();
    desk.press("s");
    assert_eq!(desk.overlay, Some(Overlay::Sort("load")));
    desk.press("j");
    assert_eq!(desk.overlay, Some(Overlay::Sort("count")), "no bar, no trend");
    desk.press("\n");
    assert_eq!(
        (desk.overlay.as_ref(), desk.screens.points.sorting().column),
        (None, Column::Count)
    );
    desk.press("sI");
    assert_eq!((desk.overlay.as_ref(), desk.screens.points.sorting().descending), (None, false));
    desk.press("sG\x1b");
    assert_eq!(desk.screens.points.sorting().column, Column::Count);
}

#[test]
fn the_mouse_works_on_tabs_and_hints() {
    let mut desk = desk();
    assert!(desk.click(MouseTarget::Tab(Screen::Threads)));
    assert_eq!(desk.screen, Screen::Threads);
    assert!(desk.click(MouseTarget::Key(Action::Help)));
    assert!(matches!(desk.overlay, Some(Overlay::Help(_))));
    assert!(desk.click(MouseTarget::Key(Action::Back)));
    assert_eq!(desk.overlay, None);
}

#[test]
fn leaving_the_picker_returns_to_the_screen_before() {
    let mut desk = desk();
    desk.press("4P");
    assert_eq!(desk.screen, Screen::Picker);
    desk.press("\x1b");
    assert_eq!(desk.screen, Screen::Timeline);
    desk.press("12P\x1b");
    assert_eq!(desk.screen, Screen::Points, "below the detail");
}
