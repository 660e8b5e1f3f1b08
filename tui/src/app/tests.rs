//! The app driven by keys, on made-up processes.

mod diff;
mod files;
mod filter;
mod keys;
mod load;
mod log;
mod picker;
mod several;
mod switches;
pub(crate) mod timeline;

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::Result;
use crossterm::event::{KeyCode, KeyModifiers};

use super::*;
use crate::columns::sorting::Sorting;
use crate::columns::{Column, There};
use crate::common::{Errand, FREEZE, Prompt, Question, Target};
use crate::files::json::read;
use crate::filter::Filter;
use crate::snapshot::{PointState, Process, Snapshot};
use crate::source::synthetic::Synthetic;
use crate::source::{Change, Discovery, Selector};
use crate::view;

/// A terminal with room for so many rows of a list.
const ROWS: usize = 5;
const AREA: Rect = Rect::new(0, 0, 120, 3 + ROWS as u16);

fn look() -> Styles {
    Styles::new(true, false)
}

/// A made-up process that the test can look into while the app has it.
#[derive(Clone, Default)]
pub(crate) struct Shared(pub(crate) Rc<RefCell<Synthetic>>);

impl Shared {
    fn state(&self, id: usize) -> PointState {
        self.0.borrow_mut().snapshot_mut().points[id].state
    }
}

impl Source for Shared {
    fn picture(&mut self) -> Result<Snapshot> {
        self.0.borrow_mut().poll()
    }

    fn open_stacks(&mut self) -> Option<Vec<(u32, Vec<u32>)>> {
        self.0.borrow_mut().open_stacks()
    }

    fn act(&mut self, change: Change) -> Result<()> {
        self.0.borrow_mut().act(change)
    }
}

/// Finds what the test lays out.
#[derive(Clone, Default)]
pub(crate) struct Stage(pub(crate) Rc<RefCell<Discovery>>);

impl Finder for Stage {
    fn discover(&mut self) -> Result<Discovery> {
        Ok(self.0.borrow().clone())
    }

    fn attach(&mut self, _: &Candidate) -> Result<Box<dyn Source>> {
        Ok(Box::new(Synthetic::new()))
    }

    fn attach_group(&mut self, group: &ProcessGroup) -> Result<Box<dyn Source>> {
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

impl Desk {
    /// Lets polls happen, a second apart.
    pub(crate) fn wait(&mut self, polls: usize) {
        for _ in 0..polls {
            self.now += Duration::from_secs(2);
            if self.app.next_poll().is_some_and(|due| due <= self.now) {
                self.app.poll(self.now);
            }
            view::settle(&mut self.app, &look(), AREA, self.now);
        }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        for c in keys.chars() {
            self.code(KeyCode::Char(c));
        }
    }

    pub(crate) fn code(&mut self, code: KeyCode) {
        self.app.key(KeyEvent::from(code), self.now);
        view::settle(&mut self.app, &look(), AREA, self.now);
    }
}

#[test]
fn the_cursor_stays_on_its_point_while_the_order_moves() {
    let mut desk = desk();
    desk.press("jj");
    let selected = desk.app.common.selected;
    for _ in 0..12 {
        desk.press(">");
        assert_eq!(desk.app.common.selected, selected);
        let (place, _) = desk.app.cursor();
        assert!(
            (desk.app.common.scroll.offset..desk.app.common.scroll.offset + 5).contains(&place)
        );
    }
}

#[test]
fn rows_stand_still_while_the_cursor_moves_and_settle_after() {
    let mut desk = desk();
    desk.press("<<<<");
    desk.press("k");
    let order = desk.app.common.order.clone();
    // What the rows are sorted by is turned upside down under the cursor.
    desk.app.screens.points.table_mut().unwrap().click("on");
    desk.app.poll(desk.now + Duration::from_millis(1000));
    assert_eq!(desk.app.common.order, order);
    assert!(view::settle(&mut desk.app, &look(), AREA, desk.now + FREEZE));
    assert_ne!(desk.app.common.order, order);
}

#[test]
fn a_pause_freezes_the_figures_but_not_the_keys() {
    let mut desk = desk();
    desk.press(" ");
    assert_eq!(desk.app.common.status(), Status::Paused);
    let before = desk.app.common.model.snapshot().unwrap().clone();
    desk.wait(3);
    desk.press("jj>I");
    assert_eq!(desk.app.common.model.snapshot(), Some(&before));
    desk.press("p");
    desk.wait(1);
    assert_eq!(desk.app.common.status(), Status::Live);
    assert_ne!(desk.app.common.model.snapshot(), Some(&before));
}

#[test]
fn the_end_of_a_process_is_seen_in_a_pause_and_its_figures_after_it() {
    let mut desk = desk();
    desk.press(" ");
    let frozen = desk.app.common.model.snapshot().unwrap().clone();
    desk.wait(2);
    assert_eq!(desk.app.common.ended_unseen(), None);
    desk.process.0.borrow_mut().snapshot_mut().process.state = ProcessState::Crashed;
    desk.wait(2);
    assert_eq!(desk.app.common.ended_unseen(), Some(ProcessState::Crashed));
    assert_eq!((desk.app.common.status(), desk.app.next_poll()), (Status::Paused, None));
    assert_eq!(desk.app.common.model.snapshot(), Some(&frozen));
    desk.press(" ");
    desk.wait(1);
    assert_eq!((desk.app.common.status(), desk.app.common.ended_unseen()), (Status::Crashed, None));
    assert_ne!(desk.app.common.model.snapshot(), Some(&frozen));
}

#[test]
fn the_last_figures_of_a_process_that_died_stay() {
    let mut desk = desk();
    desk.process.0.borrow_mut().snapshot_mut().process.state = ProcessState::Crashed;
    desk.wait(2);
    assert_eq!(desk.app.common.status(), Status::Crashed);
    assert!(desk.app.common.model.point(1).unwrap().is_used());
    assert_eq!(desk.app.next_poll(), None);
}

#[test]
fn the_interval_walks_through_its_steps_and_stops_at_the_ends() {
    let mut desk = desk();
    desk.press("+");
    assert_eq!(desk.app.common.interval, Duration::from_millis(500));
    desk.press("+++++++++");
    assert_eq!(desk.app.common.interval, Duration::from_millis(100));
    desk.press("------------");
    assert_eq!(desk.app.common.interval, Duration::from_secs(10));
}

#[test]
fn the_screens_are_reached_by_number_and_in_turn() {
    let mut desk = desk();
    for (place, tab) in Screen::TABS.iter().enumerate().rev() {
        desk.press(&(place + 1).to_string());
        assert_eq!((desk.app.screen, desk.app.screen.tab()), (tab.screen, Some(place)));
    }
    let mut seen = Vec::new();
    for _ in Screen::TABS {
        seen.push(desk.app.screen);
        desk.code(KeyCode::Tab);
    }
    assert!(seen.iter().eq(Screen::TABS.iter().map(|tab| &tab.screen)));
    assert_eq!(desk.app.screen, Screen::Points);
    desk.code(KeyCode::BackTab);
    assert_eq!(Some(desk.app.screen), Screen::TABS.last().map(|tab| tab.screen));
    desk.code(KeyCode::Esc);
    assert_eq!(desk.app.screen, Screen::Points);
    // What is no screen of a process has none of this.
    desk.press("P\t3");
    assert_eq!(desk.app.screen, Screen::Picker);
}

#[test]
fn a_weight_is_set_and_a_wrong_one_stays_to_be_mended() {
    let mut desk = desk();
    let alpha = |desk: &Desk| desk.process.0.borrow_mut().snapshot_mut().points[1].alpha;
    desk.app.common.selected = Some(1);
    desk.press("a");
    desk.press("1");
    desk.code(KeyCode::Enter);
    assert_eq!(alpha(&desk), Some(0.21));
    desk.wait(1);
    desk.press("a");
    for _ in 0..4 {
        desk.code(KeyCode::Backspace);
    }
    desk.press("5s/1s");
    desk.code(KeyCode::Enter);
    let Some(Overlay::Alpha(1, prompt)) = &desk.app.overlay else { panic!("it was closed") };
    assert_eq!((prompt.text().as_str(), prompt.error.is_some()), ("5s/1s", true));
    assert_eq!(alpha(&desk), Some(0.21));
    desk.press("0");
    let Some(Overlay::Alpha(1, prompt)) = &desk.app.overlay else { panic!("it was closed") };
    assert_eq!(prompt.error, None);
    desk.code(KeyCode::Esc);
    desk.press("a");
    for _ in 0..4 {
        desk.code(KeyCode::Backspace);
    }
    desk.press("off");
    desk.code(KeyCode::Enter);
    assert_eq!(alpha(&desk), None);
}

#[test]
fn a_row_is_copied_with_its_titles() {
    let mut desk = desk();
    desk.app.common.selected = Some(1);
    desk.press("y");
    let Some(Errand::Copy(text)) = desk.app.common.errand.take() else {
        panic!("nothing was copied")
    };
    assert!(
        text.starts_with("io.parse  src/work.rs:88  On on  Load% 42.5  Count 33.7k  /s 9.28k"),
        "{text}"
    );
    assert!(desk.app.common.toast.as_ref().is_some_and(|toast| toast.text.contains("OSC 52")));
}

#[test]
fn the_mouse_selects_opens_sorts_and_scrolls() {
    use crossterm::event::{MouseButton, MouseEventKind};
    let mut desk = desk();
    let click = MouseEventKind::Down(MouseButton::Left);
    let now = desk.now;
    let wanted = desk.app.common.order[3];
    assert!(desk.app.mouse(click, Target::Row(3), now));
    assert_eq!((desk.app.common.selected, desk.app.screen), (Some(wanted), Screen::Points));
    assert!(desk.app.mouse(click, Target::Row(3), now));
    assert_eq!(desk.app.screen, Screen::Detail);
    desk.app.mouse(MouseEventKind::ScrollDown, Target::Nothing, now);
    assert_eq!((desk.app.screens.detail.offset, desk.app.common.selected), (3, Some(wanted)));
    desk.code(KeyCode::Esc);
    desk.app.mouse(MouseEventKind::ScrollUp, Target::Nothing, now);
    assert_eq!(desk.app.cursor().0, 0);
    desk.app.mouse(click, Target::Heading("avg"), now);
    assert_eq!(desk.app.screens.points.sorting(), Sorting::by(Column::Avg));
    desk.app.mouse(click, Target::Heading("avg"), now);
    let inverted = Sorting { descending: false, ..Sorting::by(Column::Avg) };
    assert_eq!(desk.app.screens.points.sorting(), inverted);
    assert!(!desk.app.mouse(MouseEventKind::Moved, Target::Row(1), now));
    // A question is answered by a key.
    desk.press("E");
    assert!(!desk.app.mouse(click, Target::Row(1), now));
}

#[test]
fn columns_are_taken_left_and_moved() {
    let mut desk = desk();
    desk.press("c");
    assert_eq!(desk.app.overlay, Some(Overlay::Columns("load")));
    desk.press(" ");
    assert!(!desk.app.screens.points.columns().contains(&Column::Load));
    // Taken again, it stands where it stood.
    desk.press(" ");
    assert_eq!(desk.app.screens.points.columns(), Column::DEFAULT);
    for _ in 0..30 {
        desk.press("K");
    }
    let first = |desk: &Desk| {
        Column::shown(&desk.app.screens.points.columns(), There::default())[..4].to_vec()
    };
    let [on, load, name, bar] = [Column::On, Column::Load, Column::Name, Column::Bar];
    assert_eq!(first(&desk), [on, load, name, bar]);
    desk.press(">J<");
    assert_eq!(first(&desk), [on, name, load, bar]);
    desk.press("k ");
    assert!(desk.app.screens.points.columns().contains(&Column::Name), "the name stays");
    desk.code(KeyCode::Enter);
    assert_eq!(desk.app.overlay, None);
    // Sorting walks through the columns as they stand.
    desk.press("<");
    assert_eq!(desk.app.screens.points.sorting().column, Column::Name);
    desk.press(">>");
    assert_eq!(
        desk.app.screens.points.sorting().column,
        Column::Count,
        "what is drawn is passed over"
    );
}

#[test]
fn sorting_walks_through_the_columns_of_every_table_and_returns() {
    for (screen, columns) in [
        (Screen::Points, 11),
        (Screen::Threads, 10),
        (Screen::Diff, 19),
        (Screen::Roofline, 7),
        (Screen::Tree, 6),
    ] {
        let mut desk = desk();
        desk.app.act(Action::Show(screen), desk.now);
        let sorted = |desk: &Desk| desk.app.view().table().unwrap().sorted();
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
    use crossterm::event::{MouseButton, MouseEventKind};
    let mut desk = desk();
    desk.press("3s");
    assert_eq!(desk.app.overlay, Some(Overlay::Sort("load")));
    desk.press("gg");
    desk.code(KeyCode::Enter);
    let table = |desk: &Desk| desk.app.view().table().unwrap().clone();
    let sorted = |desk: &Desk| Some(table(desk).sorted()).map(|it| (it.key, it.descending));
    assert_eq!((desk.app.overlay.as_ref(), sorted(&desk)), (None, Some(("name", false))));
    let (click, now) = (MouseEventKind::Down(MouseButton::Left), desk.now);
    assert!(desk.app.mouse(click, Target::Heading("tid"), now));
    assert_eq!(sorted(&desk), Some(("tid", false)));
    assert!(desk.app.mouse(click, Target::Heading("tid"), now));
    assert_eq!(desk.app.screens.threads.order, [2, 1, 0]);
    // The table of points has its own order.
    assert_eq!(desk.app.screens.points.sorting(), Sorting::by(Column::Load));
    desk.press("ggy");
    let Some(Errand::Copy(text)) = desk.app.common.errand.take() else { panic!("no row") };
    assert!(text.starts_with("Thread ") && text.contains("  Tid 471"), "{text}");
}

/// Columns are chosen in every table, and stay when another process is opened.
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
        let shows = |desk: &Desk| desk.app.screens.get(screen).table().unwrap().shows(key);
        assert!(shows(&desk), "{key}");
        desk.press("cgg");
        while desk.app.overlay != Some(Overlay::Columns(key)) {
            desk.press("j");
        }
        desk.press(" ");
        desk.code(KeyCode::Enter);
        assert!(!shows(&desk) && desk.app.overlay.is_none(), "{key}");
        let now = desk.now;
        desk.app.watch(Box::new(desk.process.clone()), now);
        assert!(!shows(&desk), "{key} is back");
    }
}

#[test]
fn threads_are_filtered_by_their_names_where_they_are() {
    let mut desk = desk();
    desk.press("3/pack");
    desk.code(KeyCode::Enter);
    assert_eq!((desk.app.screen, desk.app.screens.threads.order.len()), (Screen::Threads, 1));
    desk.press("/");
    let Some(Overlay::Find(prompt)) = &desk.app.overlay else { panic!("no line to type in") };
    assert_eq!(prompt.text(), "pack");
    desk.code(KeyCode::Esc);
    // Esc shows all, and then goes back.
    desk.code(KeyCode::Esc);
    assert_eq!((desk.app.screen, desk.app.screens.threads.order.len()), (Screen::Threads, 3));
    desk.code(KeyCode::Esc);
    assert_eq!(desk.app.screen, Screen::Points);
}

#[test]
fn a_word_that_is_no_prefix_is_said_on_every_screen() {
    for screen in ["1", "2", "5", "8"] {
        let mut desk = desk();
        desk.press(screen);
        desk.press("/!thraed:x");
        desk.code(KeyCode::Enter);
        let toast = desk.app.common.toast.clone().expect("it is said");
        assert!(toast.text.starts_with("thraed: is none of thread:"), "{}", toast.text);
    }
}

#[test]
fn a_column_to_sort_by_is_chosen_from_all() {
    let mut desk = desk();
    desk.press("s");
    assert_eq!(desk.app.overlay, Some(Overlay::Sort("load")));
    desk.press("j");
    assert_eq!(desk.app.overlay, Some(Overlay::Sort("count")), "no bar, no trend");
    desk.code(KeyCode::Enter);
    assert_eq!(
        (desk.app.overlay.as_ref(), desk.app.screens.points.sorting().column),
        (None, Column::Count)
    );
    desk.press("sI");
    assert_eq!(
        (desk.app.overlay.as_ref(), desk.app.screens.points.sorting().descending),
        (None, false)
    );
    desk.press("sG");
    desk.code(KeyCode::Esc);
    assert_eq!(desk.app.screens.points.sorting().column, Column::Count);
}

#[test]
fn the_mouse_works_on_tabs_and_hints() {
    use crossterm::event::{MouseButton, MouseEventKind};
    let mut desk = desk();
    let (click, now) = (MouseEventKind::Down(MouseButton::Left), desk.now);
    assert!(desk.app.mouse(click, Target::Tab(Screen::Threads), now));
    assert_eq!(desk.app.screen, Screen::Threads);
    assert!(desk.app.mouse(click, Target::Key(Action::Help), now));
    assert!(matches!(desk.app.overlay, Some(Overlay::Help(_))));
    assert!(desk.app.mouse(click, Target::Key(Action::Back), now));
    assert_eq!(desk.app.overlay, None);
}

#[test]
fn the_picker_is_left_to_where_one_came_from() {
    let mut desk = desk();
    desk.press("4P");
    assert_eq!(desk.app.screen, Screen::Picker);
    desk.code(KeyCode::Esc);
    assert_eq!(desk.app.screen, Screen::Timeline);
    desk.press("12P");
    desk.code(KeyCode::Esc);
    assert_eq!(desk.app.screen, Screen::Points, "below the detail");
}
