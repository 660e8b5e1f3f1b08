//! Tests of the list of processes.

use super::*;

/// A desk that watches no process, and whose finder finds these candidates.
fn desk_among(candidates: Vec<Candidate>) -> (Stage, Desk) {
    let (stage, now) = (Stage::default(), Instant::now());
    stage.0.borrow_mut().candidates = candidates;
    let mut app = App::new(Options::default(), Box::new(stage.clone()), now);
    app.poll(now);
    (stage, Desk { app, process: Shared::default(), now })
}

#[test]
fn a_single_process_is_attached_to_when_it_appears() {
    let (stage, mut desk) = desk_among(Vec::new());
    assert_eq!((desk.screen, desk.common.status()), (Screen::Waiting, Status::Waiting));
    stage.0.borrow_mut().candidates.push(candidate(7));
    desk.poll_again();
    assert_eq!((desk.screen, desk.common.status()), (Screen::Points, Status::Live));
}

#[test]
fn the_first_running_process_is_attached_to() {
    let dead = |pid| Candidate { state: ProcessState::Crashed, ..candidate(pid) };
    let (stage, mut desk) = desk_among(vec![dead(1), dead(2)]);
    assert_eq!((desk.screen, desk.screens.picker.candidates.len()), (Screen::Picker, 2));
    stage.0.borrow_mut().candidates.push(candidate(3));
    desk.poll_again();
    assert_eq!((desk.screen, desk.common.status()), (Screen::Points, Status::Live));
}

#[test]
fn the_list_of_processes_is_filtered_sorted_and_copied() {
    let (_, mut desk) = desk_among(vec![candidate(1), candidate(2), candidate(13)]);
    let pids = |desk: &Desk| -> Vec<u32> {
        desk.screens.picker.candidates.iter().map(|candidate| candidate.pid).collect()
    };
    assert_eq!(pids(&desk), [13, 2, 1], "the youngest first");
    desk.click(MouseTarget::Heading("pid"));
    assert_eq!(pids(&desk), [1, 2, 13]);
    desk.press("/app1\n");
    assert_eq!(pids(&desk), [1, 13]);
    desk.poll_again();
    assert_eq!(pids(&desk), [1, 13], "also when they are looked for again");
    desk.press("y");
    let text = desk.copied();
    assert!(text.contains("PID 1  State running"), "{text}");
    desk.press("\x1b");
    assert_eq!((desk.screen, pids(&desk).len()), (Screen::Picker, 3));
}

#[test]
fn several_processes_are_offered() {
    let (stage, mut desk) = desk_among(vec![candidate(1), candidate(2), candidate(3)]);
    assert_eq!(desk.screen, Screen::Picker);
    desk.code(KeyCode::Down);
    assert_eq!(desk.screens.picker.picked, Some(candidate(2).segment_id));
    // The cursor stays on the process, not on the row.
    stage.0.borrow_mut().candidates.push(candidate(9));
    desk.poll_again();
    assert_eq!(desk.cursor(), (2, 4));
    desk.press("\n");
    assert_eq!((desk.screen, desk.common.status()), (Screen::Points, Status::Live));
}

#[test]
fn marked_processes_are_opened_as_one() {
    let (stage, mut desk) = desk_among((1..=4).map(candidate).collect());
    desk.press("S");
    assert_eq!(desk.screen, Screen::Picker, "nothing is marked yet");
    desk.press("  ");
    assert_eq!(desk.cursor(), (2, 4), "the cursor goes on by itself");
    desk.press("k  ");
    let marked = |desk: &Desk| {
        let ids = desk
            .screens
            .picker
            .candidates
            .iter()
            .filter(|c| desk.screens.picker.marked.contains(&c.segment_id));
        ids.map(|c| c.pid).collect::<Vec<_>>()
    };
    assert_eq!(marked(&desk), [4, 2], "the second was unmarked, the third marked");
    // A marked process that has disappeared is left out.
    stage.0.borrow_mut().candidates.retain(|c| c.pid != 2);
    desk.poll_again();
    desk.press("\n");
    assert_eq!((desk.screen, desk.screens.picker.marked.len()), (Screen::Points, 0));
    let members = &desk.common.model.snapshot().unwrap().process.members;
    let ids: Vec<_> = members.iter().map(|member| member.segment_id.clone()).collect();
    assert_eq!(ids, [candidate(4).segment_id]);
}

/// Finds processes in the background, as long as the test lets it.
#[derive(Clone, Default)]
struct Slow(Rc<RefCell<(bool, Discovery)>>);

impl Finder for Slow {
    fn discover(&mut self) -> Result<Discovery> {
        let (is_slow, found) = &*self.0.borrow();
        Ok(if *is_slow { Discovery::default() } else { found.clone() })
    }

    fn awaits(&mut self) -> bool {
        self.0.borrow().0
    }

    fn attach(&mut self, _: &Candidate) -> Result<Box<dyn Source>> {
        Ok(Box::new(Synthetic::new()))
    }
}

/// A search never blocks the keys. The first list may take any time. If a later search is late, the
/// screen shows the result of the previous search.
#[test]
fn a_long_search_does_not_block_keys() {
    let slow = Slow::default();
    let candidates = [4711, 4712].map(candidate).to_vec();
    *slow.0.borrow_mut() = (true, Discovery { candidates, ..Discovery::default() });
    let now = Instant::now();
    let app = App::new(Options::default(), Box::new(slow.clone()), now);
    let mut desk = Desk { app, process: Shared::default(), now };
    let listed = |desk: &Desk| desk.common.discovery.candidates.len();
    for _ in 0..100 {
        let due = desk.next_poll().unwrap();
        desk.now = desk.now.max(due);
        desk.app.poll(desk.now);
        assert!(desk.next_poll().unwrap() - desk.now <= Duration::from_millis(10));
        desk.press("?");
        assert_eq!(desk.overlay.take(), Some(Overlay::Help(0)));
    }
    slow.0.borrow_mut().0 = false;
    desk.wait(1);
    assert_eq!(listed(&desk), 2);
    // The next search is late: the poll stops waiting for it after a tenth of a second.
    slow.0.borrow_mut().0 = true;
    let polls = (1..).find(|_| {
        desk.now = desk.now.max(desk.next_poll().unwrap());
        desk.app.poll(desk.now);
        desk.next_poll().unwrap() - desk.now > Duration::from_millis(10)
    });
    assert!(polls.is_some_and(|polls| polls <= 12), "{polls:?}");
}
