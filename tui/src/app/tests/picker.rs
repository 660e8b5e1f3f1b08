//! Processes that come, and the choice among them.

use super::*;

#[test]
fn one_process_is_attached_to_as_soon_as_it_appears() {
    let (stage, mut now) = (Stage::default(), Instant::now());
    let mut app = App::new(Options::default(), Box::new(stage.clone()), now);
    app.poll(now);
    assert_eq!((app.screen, app.common.status()), (Screen::Waiting, Status::Waiting));
    stage.0.borrow_mut().candidates.push(candidate(7));
    now += Duration::from_secs(1);
    app.poll(now);
    assert_eq!((app.screen, app.common.status()), (Screen::Points, Status::Live));
}

#[test]
fn among_the_dead_the_first_that_lives_is_attached_to() {
    let (stage, mut now) = (Stage::default(), Instant::now());
    let dead = |pid| Candidate { state: ProcessState::Crashed, ..candidate(pid) };
    stage.0.borrow_mut().candidates = vec![dead(1), dead(2)];
    let mut app = App::new(Options::default(), Box::new(stage.clone()), now);
    app.poll(now);
    assert_eq!((app.screen, app.screens.picker.candidates.len()), (Screen::Picker, 2));
    stage.0.borrow_mut().candidates.push(candidate(3));
    now += Duration::from_secs(1);
    app.poll(now);
    assert_eq!((app.screen, app.common.status()), (Screen::Points, Status::Live));
}

#[test]
fn the_list_of_processes_is_filtered_sorted_and_copied() {
    let (stage, now) = (Stage::default(), Instant::now());
    stage.0.borrow_mut().candidates = vec![candidate(1), candidate(2), candidate(13)];
    let mut app = App::new(Options::default(), Box::new(stage.clone()), now);
    app.poll(now);
    let press = |app: &mut App, keys: &str| {
        keys.chars().for_each(|c| app.key(KeyEvent::from(KeyCode::Char(c)), now));
    };
    let pids = |app: &App| -> Vec<u32> {
        app.screens.picker.candidates.iter().map(|candidate| candidate.pid).collect()
    };
    assert_eq!(pids(&app), [13, 2, 1], "the youngest first");
    app.mouse(
        crossterm::event::MouseEventKind::Down(crossterm::event::MouseButton::Left),
        Target::Heading("pid"),
        now,
    );
    assert_eq!(pids(&app), [1, 2, 13]);
    press(&mut app, "/app1");
    app.key(KeyEvent::from(KeyCode::Enter), now);
    assert_eq!(pids(&app), [1, 13]);
    app.poll(now);
    assert_eq!(pids(&app), [1, 13], "also when they are looked for again");
    press(&mut app, "y");
    let Some(Errand::Copy(text)) = app.common.errand.take() else { panic!("no row") };
    assert!(text.contains("PID 1  State running"), "{text}");
    app.key(KeyEvent::from(KeyCode::Esc), now);
    assert_eq!((app.screen, pids(&app).len()), (Screen::Picker, 3));
}

#[test]
fn several_processes_are_offered() {
    let (stage, now) = (Stage::default(), Instant::now());
    stage.0.borrow_mut().candidates = vec![candidate(1), candidate(2), candidate(3)];
    let mut app = App::new(Options::default(), Box::new(stage.clone()), now);
    app.poll(now);
    assert_eq!(app.screen, Screen::Picker);
    app.key(KeyEvent::from(KeyCode::Down), now);
    assert_eq!(app.screens.picker.picked, Some(candidate(2).segment_id));
    // It is the process that is picked, not the row.
    stage.0.borrow_mut().candidates.push(candidate(9));
    app.poll(now);
    assert_eq!(app.cursor(), (2, 4));
    app.key(KeyEvent::from(KeyCode::Enter), now);
    assert_eq!((app.screen, app.common.status()), (Screen::Points, Status::Live));
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
        let ids = app
            .screens
            .picker
            .candidates
            .iter()
            .filter(|c| app.screens.picker.marked.contains(&c.segment_id));
        ids.map(|c| c.pid).collect::<Vec<_>>()
    };
    assert_eq!(marked(&app), [4, 2], "the second was unmarked, the third marked");
    // One that has gone is left out.
    stage.0.borrow_mut().candidates.retain(|c| c.pid != 2);
    app.poll(now);
    app.key(KeyEvent::from(KeyCode::Enter), now);
    assert_eq!((app.screen, app.screens.picker.marked.len()), (Screen::Points, 0));
    let members = &app.common.model.snapshot().unwrap().process.members;
    let ids: Vec<_> = members.iter().map(|member| member.segment_id.clone()).collect();
    assert_eq!(ids, [candidate(4).segment_id]);
}
