//! Tests of the log of events.

use super::*;

fn noticed(desk: &Desk) -> Vec<&str> {
    desk.common.log.entries().iter().map(|entry| entry.text.as_str()).collect()
}

#[test]
fn the_log_names_the_author_of_a_switch() {
    let mut desk = desk();
    assert_eq!(noticed(&desk), ["watching my_app[4711]: 9 points, clock rseq"]);
    desk.common.selected = Some(3);
    desk.press("eryb");
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
    assert_eq!(desk.common.log.unread(), 0);
}

#[test]
fn problems_count_as_unread_until_the_log_is_shown() {
    let mut desk = desk();
    desk.press(" ");
    desk.made().losses[pfp_read::snapshot::Loss::SpaceRefused] = 5;
    desk.wait(2);
    assert_eq!((desk.common.status(), desk.common.log.unread()), (Status::Paused, 1));
    desk.press("6");
    assert_eq!((desk.screen, desk.common.log.unread()), (Screen::Log, 0));
    // An entry that is added while the log is shown counts as read.
    desk.made().losses[pfp_read::snapshot::Loss::BeginsRefused] = 5;
    desk.wait(2);
    assert_eq!(desk.common.log.unread(), 0);
    desk.press("\x1b");
    assert_eq!(desk.screen, Screen::Points);
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
    assert_eq!(desk.screens.log.back, 0);
    toggle(&mut desk);
    desk.wait(1);
    assert_eq!(desk.screens.log.back, 0);
    desk.press("kk");
    toggle(&mut desk);
    desk.wait(1);
    assert_eq!(desk.screens.log.back, 3, "what is read stays where it is");
    let shown = desk.common.rows;
    desk.press("gg");
    assert_eq!(desk.screens.log.back, desk.common.log.entries().len() - shown);
    desk.press("j");
    assert_eq!(desk.screens.log.back, desk.common.log.entries().len() - shown - 1);
    desk.press("G");
    assert_eq!(desk.screens.log.back, 0);
}
