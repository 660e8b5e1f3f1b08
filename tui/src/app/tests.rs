//! The app driven by keys, on made-up processes.

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::Result;
use crossterm::event::{KeyCode, KeyModifiers};

use super::*;
use crate::export::json::read;
use crate::snapshot::{PointState, Process, Snapshot};
use crate::source::synthetic::Synthetic;
use crate::source::{Change, Members};

const ROOM: Room = Room { rows: 5, lines: 0, load: None };

/// A made-up process that the test can look into while the app has it.
#[derive(Clone, Default)]
pub(crate) struct Shared(pub(crate) Rc<RefCell<Synthetic>>);

impl Shared {
    fn state(&self, id: usize) -> PointState {
        self.0.borrow_mut().snapshot_mut().points[id].state
    }
}

impl Source for Shared {
    fn poll(&mut self) -> Result<Snapshot> {
        self.0.borrow_mut().poll()
    }

    fn act(&mut self, change: Change) -> Result<()> {
        self.0.borrow_mut().act(change)
    }

    fn is_process(&self) -> bool {
        true
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

    fn attach_together(&mut self, together: &Together) -> Result<Box<dyn Source>> {
        let Members::Segments(ids) = &together.members else { anyhow::bail!("not asked for") };
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
        segment_id: format!("{pid:032}"),
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
            self.app.settle(self.room(), self.now);
        }
    }

    fn room(&self) -> Room {
        let is_log = self.app.screen == Screen::Log;
        Room { lines: if is_log { self.app.log.entries().len() } else { 0 }, ..ROOM }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        for c in keys.chars() {
            self.code(KeyCode::Char(c));
        }
    }

    pub(crate) fn code(&mut self, code: KeyCode) {
        self.app.key(KeyEvent::from(code), self.now);
        self.app.settle(self.room(), self.now);
    }
}

#[test]
fn the_cursor_stays_on_its_point_while_the_order_moves() {
    let mut desk = desk();
    desk.press("jj");
    let selected = desk.app.selected;
    for _ in 0..12 {
        desk.press(">");
        assert_eq!(desk.app.selected, selected);
        let (place, _) = desk.app.cursor();
        assert!((desk.app.offset..desk.app.offset + 5).contains(&place));
    }
}

#[test]
fn rows_stand_still_while_the_cursor_moves_and_settle_after() {
    let mut desk = desk();
    desk.press("<<<<");
    desk.press("k");
    let order = desk.app.order.clone();
    // What the rows are sorted by is turned upside down under the cursor.
    desk.app.sorting = desk.app.sorting.inverted();
    desk.app.poll(desk.now + Duration::from_millis(1000));
    assert_eq!(desk.app.order, order);
    assert!(desk.app.settle(ROOM, desk.now + FREEZE));
    assert_ne!(desk.app.order, order);
}

#[test]
fn toggles_reach_the_process_and_are_put_back() {
    let mut desk = desk();
    desk.app.selected = Some(3);
    desk.press("e");
    assert_eq!(desk.process.state(3), PointState::Off);
    assert_eq!(desk.app.model.point(3).unwrap().state(), PointState::Off);
    desk.app.selected = Some(8);
    desk.press("e");
    assert_eq!(desk.process.state(8), PointState::On);
    let process = desk.process.clone();
    drop(desk);
    assert_eq!((process.state(3), process.state(8)), (PointState::On, PointState::Off));
}

#[test]
fn toggles_are_put_back_even_by_a_panic() {
    let process = Shared::default();
    let watched = process.clone();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let mut session = Session::new(Box::new(watched), false);
        session.toggle(3, PointState::On).unwrap();
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    assert_eq!(process.state(3), PointState::On);
}

#[test]
fn toggles_stay_with_keep() {
    let mut desk = desk_with(Options { keep: true, ..Options::default() });
    desk.app.selected = Some(3);
    desk.press("e");
    let process = desk.process.clone();
    drop(desk);
    assert_eq!(process.state(3), PointState::Off);
}

#[test]
fn what_others_changed_since_is_not_put_back() {
    let mut desk = desk();
    desk.app.selected = Some(8);
    desk.press("e");
    desk.process.0.borrow_mut().snapshot_mut().points[8].state = PointState::InvalidBeginBegin;
    let process = desk.process.clone();
    drop(desk);
    assert_eq!(process.state(8), PointState::InvalidBeginBegin);
}

#[test]
fn a_pause_freezes_the_figures_but_not_the_keys() {
    let mut desk = desk();
    desk.press(" ");
    assert_eq!(desk.app.status(), Status::Paused);
    let before = desk.app.model.snapshot().unwrap().clone();
    desk.wait(3);
    desk.press("jj>I");
    assert_eq!(desk.app.model.snapshot(), Some(&before));
    desk.press("p");
    desk.wait(1);
    assert_eq!(desk.app.status(), Status::Live);
    assert_ne!(desk.app.model.snapshot(), Some(&before));
}

#[test]
fn the_end_of_a_process_is_seen_in_a_pause_and_its_figures_after_it() {
    let mut desk = desk();
    desk.press(" ");
    let frozen = desk.app.model.snapshot().unwrap().clone();
    desk.wait(2);
    assert_eq!(desk.app.ended_unseen(), None);
    desk.process.0.borrow_mut().snapshot_mut().process.state = ProcessState::Crashed;
    desk.wait(2);
    assert_eq!(desk.app.ended_unseen(), Some(ProcessState::Crashed));
    assert_eq!((desk.app.status(), desk.app.next_poll()), (Status::Paused, None));
    assert_eq!(desk.app.model.snapshot(), Some(&frozen));
    desk.press(" ");
    desk.wait(1);
    assert_eq!((desk.app.status(), desk.app.ended_unseen()), (Status::Crashed, None));
    assert_ne!(desk.app.model.snapshot(), Some(&frozen));
}

#[test]
fn a_reset_starts_the_point_afresh() {
    let mut desk = desk();
    desk.app.selected = Some(8);
    desk.press("r");
    desk.wait(1);
    assert_eq!(desk.app.model.point(8).unwrap().point().resets, 1);
}

#[test]
fn the_last_figures_of_a_process_that_died_stay() {
    let mut desk = desk();
    desk.process.0.borrow_mut().snapshot_mut().process.state = ProcessState::Crashed;
    desk.wait(2);
    assert_eq!(desk.app.status(), Status::Crashed);
    assert!(desk.app.model.point(1).unwrap().is_used());
    assert_eq!(desk.app.next_poll(), None);
}

#[test]
fn snapshots_are_written_and_never_over_another_file_unasked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    let mut desk = desk();
    let save = |desk: &mut Desk| {
        desk.press("w");
        let clear = KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL);
        desk.app.key(clear, desk.now);
        desk.press(path.to_str().unwrap());
        desk.code(KeyCode::Enter);
    };
    save(&mut desk);
    let first = read(&path).unwrap();
    assert_eq!(Some(&first), desk.app.model.snapshot());

    std::fs::write(&path, "precious").unwrap();
    save(&mut desk);
    assert!(matches!(desk.app.overlay, Some(Overlay::Replace(_))));
    desk.press("n");
    assert!(matches!(desk.app.overlay, Some(Overlay::Write(_))));
    desk.code(KeyCode::Esc);
    assert_eq!(desk.app.overlay, None);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");

    save(&mut desk);
    desk.press("y");
    assert_eq!(read(&path).unwrap(), first);
}

#[test]
fn the_name_says_in_which_form_a_snapshot_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut desk = desk();
    let mut save = |name: &str| {
        let path = folder.path().join(name);
        desk.press("w");
        let clear = KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL);
        desk.app.key(clear, desk.now);
        desk.press(path.to_str().unwrap());
        desk.code(KeyCode::Enter);
        (path, desk.app.toast.as_ref().map(|toast| toast.text.clone()).unwrap_or_default())
    };
    let (plain, _) = save("a.json");
    let (packed, _) = save("a.json.zst");
    assert_eq!(read(&plain).unwrap(), read(&packed).unwrap());
    assert!(std::fs::read(&packed).unwrap().starts_with(&[0x28, 0xb5, 0x2f, 0xfd]));
    // This process has no segment, and nothing else is written in its place.
    for raw in ["a.pfp", "a.pfp.zst"] {
        let (path, message) = save(raw);
        assert!(message.contains("not written: expected one process"), "{message}");
        assert!(!path.exists());
    }
    let (path, message) = save("no-such-folder/a.json");
    assert!(message.contains("not written") && !path.exists(), "{message}");
}

#[test]
fn one_process_is_attached_to_as_soon_as_it_appears() {
    let (stage, mut now) = (Stage::default(), Instant::now());
    let mut app = App::new(Options::default(), Box::new(stage.clone()), now);
    app.poll(now);
    assert_eq!((app.screen, app.status()), (Screen::Waiting, Status::Waiting));
    stage.0.borrow_mut().candidates.push(candidate(7));
    now += Duration::from_secs(1);
    app.poll(now);
    assert_eq!((app.screen, app.status()), (Screen::Points, Status::Live));
}

#[test]
fn among_the_dead_the_first_that_lives_is_attached_to() {
    let (stage, mut now) = (Stage::default(), Instant::now());
    let dead = |pid| Candidate { state: ProcessState::Crashed, ..candidate(pid) };
    stage.0.borrow_mut().candidates = vec![dead(1), dead(2)];
    let mut app = App::new(Options::default(), Box::new(stage.clone()), now);
    app.poll(now);
    assert_eq!((app.screen, app.candidates.len()), (Screen::Picker, 2));
    stage.0.borrow_mut().candidates.push(candidate(3));
    now += Duration::from_secs(1);
    app.poll(now);
    assert_eq!((app.screen, app.status()), (Screen::Points, Status::Live));
}

#[test]
fn several_processes_are_offered() {
    let (stage, now) = (Stage::default(), Instant::now());
    stage.0.borrow_mut().candidates = vec![candidate(1), candidate(2), candidate(3)];
    let mut app = App::new(Options::default(), Box::new(stage.clone()), now);
    app.poll(now);
    assert_eq!(app.screen, Screen::Picker);
    app.key(KeyEvent::from(KeyCode::Down), now);
    assert_eq!(app.picked, Some(candidate(2).segment_id));
    // It is the process that is picked, not the row.
    stage.0.borrow_mut().candidates.push(candidate(9));
    app.poll(now);
    assert_eq!(app.cursor(), (2, 4));
    app.key(KeyEvent::from(KeyCode::Enter), now);
    assert_eq!((app.screen, app.status()), (Screen::Points, Status::Live));
}

#[test]
fn the_interval_walks_through_its_steps_and_stops_at_the_ends() {
    let mut desk = desk();
    desk.press("-");
    assert_eq!(desk.app.interval, Duration::from_millis(500));
    desk.press("---------");
    assert_eq!(desk.app.interval, Duration::from_millis(100));
    desk.press("++++++++++++");
    assert_eq!(desk.app.interval, Duration::from_secs(10));
}

#[test]
fn the_screens_are_reached_by_number_and_in_turn() {
    let mut desk = desk();
    for (place, (screen, _)) in Screen::TABS.iter().enumerate().rev() {
        desk.press(&(place + 1).to_string());
        assert_eq!((desk.app.screen, desk.app.screen.tab()), (*screen, Some(place)));
    }
    let mut seen = Vec::new();
    for _ in Screen::TABS {
        seen.push(desk.app.screen);
        desk.code(KeyCode::Tab);
    }
    assert!(seen.iter().eq(Screen::TABS.iter().map(|(screen, _)| screen)));
    assert_eq!(desk.app.screen, Screen::Points);
    desk.code(KeyCode::BackTab);
    assert_eq!(Some(desk.app.screen), Screen::TABS.last().map(|(screen, _)| *screen));
    desk.code(KeyCode::Esc);
    assert_eq!(desk.app.screen, Screen::Points);
    // What is no screen of a process has none of this.
    desk.press("P\t3");
    assert_eq!(desk.app.screen, Screen::Picker);
}

fn shown(desk: &Desk) -> Vec<u32> {
    let mut ids = desk.app.order.clone();
    ids.sort_unstable();
    ids
}

#[test]
fn a_filter_is_in_force_while_it_is_typed_and_stays_until_escape() {
    let mut desk = desk();
    desk.press("/");
    desk.press("io.");
    assert_eq!(shown(&desk), [1, 2, 3]);
    desk.press("r");
    assert_eq!((shown(&desk), desk.app.selected), (vec![2], Some(2)));
    desk.code(KeyCode::Enter);
    desk.wait(2);
    assert_eq!((shown(&desk), desk.app.overlay.as_ref()), (vec![2], None));
    // The next one goes on from it.
    desk.press("/");
    desk.code(KeyCode::Backspace);
    assert_eq!(shown(&desk), [1, 2, 3]);
    desk.code(KeyCode::Esc);
    assert_eq!((desk.app.order.len(), desk.app.selected), (9, Some(2)));
    desk.press("/net");
    desk.code(KeyCode::Enter);
    desk.code(KeyCode::Esc);
    assert_eq!(desk.app.order.len(), 9);
}

#[test]
fn a_filter_that_cannot_be_read_leaves_the_rows_and_the_text() {
    let mut desk = desk();
    desk.press("//io");
    assert_eq!(shown(&desk), [1, 2, 3]);
    desk.press("(");
    desk.code(KeyCode::Enter);
    let Some(Overlay::Filter(prompt)) = &desk.app.overlay else { panic!("it was closed") };
    assert_eq!(prompt.text(), "/io(");
    assert!(prompt.trouble.as_ref().is_some_and(|why| why.contains("unclosed")));
    assert_eq!(shown(&desk), [1, 2, 3]);
    desk.press(".p)");
    assert_eq!(shown(&desk), [1]);
}

#[test]
fn a_point_shown_in_full_stays_when_the_filter_drops_its_row() {
    let mut desk = desk();
    desk.press("/thread:main");
    desk.code(KeyCode::Enter);
    desk.app.selected = Some(1);
    desk.code(KeyCode::Enter);
    desk.process.0.borrow_mut().snapshot_mut().lanes[0].name = "other".into();
    desk.wait(3);
    assert_eq!((desk.app.screen, desk.app.selected), (Screen::Detail, Some(1)));
    assert!(!desk.app.order.contains(&1));
}

#[test]
fn all_points_shown_are_switched_after_a_yes_and_put_back() {
    let mut desk = desk();
    desk.press("/io");
    desk.code(KeyCode::Enter);
    desk.press("E");
    let asked = Question::Switch { ids: desk.app.order.clone(), on: false };
    assert_eq!(desk.app.overlay, Some(Overlay::Ask(asked)));
    desk.press("n");
    assert_eq!((desk.app.overlay.as_ref(), desk.process.state(1)), (None, PointState::On));
    desk.press("Ey");
    let states = |desk: &Desk| [1, 2, 3, 4].map(|id| desk.process.state(id));
    use PointState::{Off, On};
    assert_eq!(states(&desk), [Off, Off, Off, On]);
    // One that is on already is not asked about.
    desk.app.selected = Some(1);
    desk.press("e");
    desk.press("E");
    assert_eq!((states(&desk), desk.app.overlay.as_ref()), ([Off, Off, Off, On], None));
    desk.press("Ey");
    assert_eq!(states(&desk), [On, On, On, On]);
    desk.press("Ey");
    let process = desk.process.clone();
    drop(desk);
    assert_eq!([1, 2, 3].map(|id| process.state(id)), [On, On, On]);
}

#[test]
fn all_points_shown_are_reset_after_a_yes() {
    let mut desk = desk();
    desk.press("/^lz");
    desk.code(KeyCode::Enter);
    let resets = |desk: &Desk| {
        let mut process = desk.process.0.borrow_mut();
        process.snapshot_mut().points.iter().map(|point| point.resets).collect::<Vec<_>>()
    };
    desk.press("R");
    desk.code(KeyCode::Esc);
    assert_eq!(resets(&desk), [0; 9]);
    desk.press("Ry");
    assert_eq!(resets(&desk), [0, 0, 0, 0, 1, 1, 0, 0, 0]);
}

#[test]
fn a_weight_is_set_and_a_wrong_one_stays_to_be_mended() {
    let mut desk = desk();
    let alpha = |desk: &Desk| desk.process.0.borrow_mut().snapshot_mut().points[1].alpha;
    desk.app.selected = Some(1);
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
    let Some(Overlay::Weight(1, prompt)) = &desk.app.overlay else { panic!("it was closed") };
    assert_eq!((prompt.text().as_str(), prompt.trouble.is_some()), ("5s/1s", true));
    assert_eq!(alpha(&desk), Some(0.21));
    desk.press("0");
    let Some(Overlay::Weight(1, prompt)) = &desk.app.overlay else { panic!("it was closed") };
    assert_eq!(prompt.trouble, None);
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
    desk.app.selected = Some(1);
    desk.press("y");
    let text = desk.app.take_clipboard().unwrap();
    assert!(
        text.starts_with("io.parse  src/work.rs:88  On on  ID 1  Count 33.7k  /s 9.28k"),
        "{text}"
    );
    assert_eq!(desk.app.take_clipboard(), None);
}

#[test]
fn the_mouse_selects_opens_sorts_and_scrolls() {
    use super::mouse::Target;
    use crossterm::event::{MouseButton, MouseEventKind};
    let mut desk = desk();
    let click = MouseEventKind::Down(MouseButton::Left);
    let now = desk.now;
    let wanted = desk.app.order[3];
    assert!(desk.app.mouse(click, Target::Row(3), now));
    assert_eq!((desk.app.selected, desk.app.screen), (Some(wanted), Screen::Points));
    assert!(desk.app.mouse(click, Target::Row(3), now));
    assert_eq!(desk.app.screen, Screen::Detail);
    desk.app.mouse(MouseEventKind::ScrollDown, Target::Nothing, now);
    assert_eq!((desk.app.detail_offset, desk.app.selected), (3, Some(wanted)));
    desk.code(KeyCode::Esc);
    desk.app.mouse(MouseEventKind::ScrollUp, Target::Nothing, now);
    assert_eq!(desk.app.cursor().0, 0);
    desk.app.mouse(click, Target::Heading(Column::Avg), now);
    assert_eq!(desk.app.sorting, Sorting::by(Column::Avg));
    desk.app.mouse(click, Target::Heading(Column::Avg), now);
    assert_eq!(desk.app.sorting, Sorting::by(Column::Avg).inverted());
    assert!(!desk.app.mouse(click, Target::Heading(Column::Trend), now));
    assert!(!desk.app.mouse(MouseEventKind::Moved, Target::Row(1), now));
    // A question is answered by a key.
    desk.press("E");
    assert!(!desk.app.mouse(click, Target::Row(1), now));
}

#[test]
fn columns_are_taken_left_and_moved() {
    let mut desk = desk();
    desk.press("c");
    assert_eq!(desk.app.overlay, Some(Overlay::Columns(Column::Load)));
    desk.press(" ");
    assert!(!desk.app.columns.contains(&Column::Load));
    // Taken again, it stands where it stood.
    desk.press(" ");
    assert_eq!(desk.app.columns, Column::DEFAULT);
    for _ in 0..30 {
        desk.press("K");
    }
    assert_eq!(desk.app.columns[..2], [Column::On, Column::Load]);
    desk.press(">J<");
    let shown = Column::shown(&desk.app.columns, false);
    assert_eq!(shown[..4], [Column::On, Column::Id, Column::Load, Column::Name]);
    desk.press("j ");
    assert!(desk.app.columns.contains(&Column::Name), "the name stays");
    desk.code(KeyCode::Enter);
    assert_eq!(desk.app.overlay, None);
    // Sorting walks through the columns as they stand.
    desk.press("<");
    assert_eq!(desk.app.sorting.column, Column::Id);
    desk.press(">>");
    assert_eq!(desk.app.sorting.column, Column::Name);
}

#[test]
fn points_that_only_the_baseline_has_can_be_walked_over() {
    use crate::model::compare::{Baseline, Verdict};
    let mut base = Synthetic::new();
    base.snapshot_mut().points[3].name = "io.old".into();
    base.snapshot_mut().process.segment_id = "f".repeat(32);
    let mut desk = desk();
    desk.app.compare_with(Baseline::of(base.poll().unwrap(), None));
    desk.press("5");
    let verdicts = |verdict: Verdict| -> Vec<u32> {
        let rows = &desk.app.diff.comparison.as_ref().unwrap().rows;
        rows.iter().filter(|row| row.verdict == verdict).map(|row| row.id).collect()
    };
    assert_eq!(verdicts(Verdict::New), [3]);
    let gone = verdicts(Verdict::Gone);
    assert_eq!(gone.len(), 1);
    desk.app.selected = Some(gone[0]);
    desk.wait(2);
    assert_eq!(desk.app.selected, Some(gone[0]), "the cursor stays on it");
    desk.code(KeyCode::Enter);
    assert_eq!(desk.app.screen, Screen::Diff);
    assert!(desk.app.toast.clone().unwrap().text.contains("only the baseline has that point"));
    desk.press("p1");
    assert!(desk.app.selected().is_some(), "the table has a cursor of its own at once");
}

fn row(desk: &Desk, id: u32) -> crate::model::compare::Row {
    desk.app.diff.comparison.as_ref().unwrap().row(id).unwrap().clone()
}

#[test]
fn a_baseline_is_compared_with_what_comes_after_it_and_nothing_else() {
    let mut desk = desk();
    desk.press("5");
    assert_eq!((desk.app.screen, desk.app.cursor()), (Screen::Diff, (0, 0)));
    desk.press("b");
    assert!(desk.app.diff.comparison.is_none(), "nothing was measured since");
    let counted = desk.app.model.point(1).unwrap().total().count;
    desk.wait(4);
    let now = desk.app.model.point(1).unwrap().total().count;
    let found = row(&desk, 1);
    assert_eq!((found.before.count, found.since.count), (counted, now - counted));
    assert_eq!(found.since.length.unwrap().seconds, 4.0);

    // The next baseline is the window up to now, not everything up to now.
    desk.press("b");
    desk.wait(2);
    let found = row(&desk, 1);
    assert_eq!((found.before.count, found.before.length.unwrap().seconds), (now - counted, 4.0));
    assert_eq!(found.since.count, desk.app.model.point(1).unwrap().total().count - now);
}

#[test]
fn a_second_baseline_at_once_keeps_the_first() {
    let mut desk = desk();
    desk.press("bb");
    assert!(desk.app.toast.as_ref().is_some_and(|toast| toast.is_error));
    desk.wait(1);
    desk.press("5");
    assert!(row(&desk, 1).before.count > 0);
}

#[test]
fn rows_of_the_comparison_stand_still_while_the_cursor_moves() {
    let mut desk = desk();
    desk.press("b5");
    desk.wait(2);
    desk.press("ggj");
    let (order, selected) = (desk.app.diff.order.clone(), desk.app.selected);
    assert_eq!(Some(order[1]), selected);
    desk.app.diff.order.swap(1, 3);
    let swapped = desk.app.diff.order.clone();
    desk.app.poll(desk.now + Duration::from_millis(1000));
    assert_eq!(desk.app.diff.order, swapped);
    assert!(desk.app.settle(ROOM, desk.now + FREEZE));
    assert_ne!(desk.app.diff.order, swapped);
    assert_eq!(desk.app.selected, selected);
    desk.code(KeyCode::Enter);
    assert_eq!(desk.app.screen, Screen::Detail);
    desk.code(KeyCode::Esc);
    assert_eq!((desk.app.screen, desk.app.selected), (Screen::Diff, selected));
    desk.code(KeyCode::Esc);
    assert_eq!(desk.app.screen, Screen::Points);
}

#[test]
fn a_pause_freezes_the_comparison_too_and_the_keys_go_on() {
    let mut desk = desk();
    desk.press("b");
    desk.wait(3);
    desk.press("5Z");
    let before = row(&desk, 1).since;
    desk.wait(3);
    desk.press("jj");
    assert_eq!(row(&desk, 1).since, before);
    assert_eq!(desk.app.cursor().0, 2);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    desk.press("w");
    desk.app.key(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL), desk.now);
    desk.press(path.to_str().unwrap());
    desk.code(KeyCode::Enter);
    // What is saved is what is seen, not what is by now.
    assert_eq!(Some(&read(&path).unwrap()), desk.app.model.snapshot());
    desk.press("Z");
    desk.wait(1);
    assert!(row(&desk, 1).since.count > before.count);
}

#[test]
fn the_baseline_outlives_the_process_it_was_taken_of() {
    let mut desk = desk();
    desk.press("b");
    let old = desk.app.model.point(1).unwrap().total().count;
    desk.process.0.borrow_mut().snapshot_mut().process.segment_id = "f".repeat(32);
    desk.wait(2);
    desk.press("5");
    let found = row(&desk, 1);
    assert_eq!(found.before.count, old);
    assert_eq!(found.since.count, desk.app.model.point(1).unwrap().total().count);
}

fn noticed(desk: &Desk) -> Vec<&str> {
    desk.app.log.entries().iter().map(|entry| entry.text.as_str()).collect()
}

#[test]
fn the_log_tells_what_this_viewer_and_others_did() {
    let mut desk = desk();
    assert_eq!(noticed(&desk), ["watching my_app[4711]: 9 points, clock rseq"]);
    desk.app.selected = Some(3);
    desk.press("erb");
    desk.wait(1);
    desk.process.0.borrow_mut().act(Change::Enable(3)).unwrap();
    desk.wait(1);
    assert_eq!(
        noticed(&desk)[1..],
        [
            "io.crc switched off by this viewer",
            "io.crc reset by this viewer",
            "baseline taken",
            "io.crc switched on by another viewer or the program"
        ]
    );
    assert_eq!(desk.app.log.unread(), 0);
}

#[test]
fn problems_are_counted_until_the_log_is_looked_at_also_in_a_pause() {
    let mut desk = desk();
    desk.press(" ");
    desk.process.0.borrow_mut().snapshot_mut().losses.space_refused = 5;
    desk.wait(2);
    assert_eq!((desk.app.status(), desk.app.log.unread()), (Status::Paused, 1));
    desk.press("6");
    assert_eq!((desk.app.screen, desk.app.log.unread()), (Screen::Log, 0));
    // What comes while it is looked at is seen.
    desk.process.0.borrow_mut().snapshot_mut().losses.begins_refused = 5;
    desk.wait(2);
    assert_eq!(desk.app.log.unread(), 0);
    desk.code(KeyCode::Esc);
    assert_eq!(desk.app.screen, Screen::Points);
}

#[test]
fn the_log_follows_its_end_unless_scrolled_back() {
    let mut desk = desk();
    let toggle = |desk: &mut Desk| {
        let mut process = desk.process.0.borrow_mut();
        let state = &mut process.snapshot_mut().points[8].state;
        *state = if *state == PointState::On { PointState::Off } else { PointState::On };
    };
    for _ in 0..20 {
        toggle(&mut desk);
        desk.wait(1);
    }
    desk.press("6");
    assert_eq!(desk.app.log_back, 0);
    toggle(&mut desk);
    desk.wait(1);
    assert_eq!(desk.app.log_back, 0);
    desk.press("kk");
    toggle(&mut desk);
    desk.wait(1);
    assert_eq!(desk.app.log_back, 3, "what is read stays where it is");
    desk.press("gg");
    assert_eq!(desk.app.log_back, desk.app.log.entries().len() - ROOM.rows);
    desk.press("j");
    assert_eq!(desk.app.log_back, desk.app.log.entries().len() - ROOM.rows - 1);
    desk.press("G");
    assert_eq!(desk.app.log_back, 0);
}

#[test]
fn a_point_that_appears_while_rows_stand_still_comes_last_if_it_passes() {
    let mut desk = desk();
    desk.press("/io");
    desk.code(KeyCode::Enter);
    desk.press("j");
    let before = desk.app.order.clone();
    desk.process.0.borrow_mut().snapshot_mut().points[8].name = "io.new".into();
    desk.app.poll(desk.now + Duration::from_millis(1000));
    assert_eq!(desk.app.order, [before, vec![8]].concat());
}

#[test]
fn marked_processes_are_opened_as_one() {
    let (stage, now) = (Stage::default(), Instant::now());
    stage.0.borrow_mut().candidates = (1..=4).map(candidate).collect();
    let mut app = App::new(Options::default(), Box::new(stage.clone()), now);
    app.poll(now);
    let press = |app: &mut App, c: char| app.key(KeyEvent::from(KeyCode::Char(c)), now);
    press(&mut app, 'S');
    assert_eq!(app.screen, Screen::Picker, "nothing is marked yet");
    press(&mut app, ' ');
    press(&mut app, ' ');
    assert_eq!(app.cursor(), (2, 4), "the cursor goes on by itself");
    press(&mut app, 'k');
    press(&mut app, ' ');
    press(&mut app, ' ');
    let marked = |app: &App| {
        let ids = app.candidates.iter().filter(|c| app.marked.contains(&c.segment_id));
        ids.map(|c| c.pid).collect::<Vec<_>>()
    };
    assert_eq!(marked(&app), [4, 2], "the second was unmarked, the third marked");
    // One that has gone is left out.
    stage.0.borrow_mut().candidates.retain(|c| c.pid != 2);
    app.poll(now);
    app.key(KeyEvent::from(KeyCode::Enter), now);
    assert_eq!((app.screen, app.marked.len()), (Screen::Points, 0));
    let members = &app.model.snapshot().unwrap().process.members;
    let ids: Vec<_> = members.iter().map(|member| member.segment_id.clone()).collect();
    assert_eq!(ids, [candidate(4).segment_id]);
}

mod load;
mod several;
pub(crate) mod timeline;
