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

const ROOM: Room = Room { rows: 5, lines: 0 };

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
            self.app.settle(ROOM, self.now);
        }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        for c in keys.chars() {
            self.code(KeyCode::Char(c));
        }
    }

    pub(crate) fn code(&mut self, code: KeyCode) {
        self.app.key(KeyEvent::from(code), self.now);
        self.app.settle(ROOM, self.now);
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
