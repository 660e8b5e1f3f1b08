//! The load of a point over time, driven by keys.

use super::*;
use pfp_read::source::synthetic::TICKS_PER_SECOND;

/// The Detail screen of a point after `polls` more polls. The process grows a second older at each
/// poll.
fn detail(polls: usize) -> Desk {
    let mut desk = desk();
    desk.wait(polls);
    desk.open(1);
    assert_eq!(desk.screen, Screen::Detail);
    desk
}

/// Seconds from the end of the visible part to now.
fn ago(desk: &Desk) -> u64 {
    let now = desk.snapshot().elapsed_ticks;
    (now - desk.screens.detail.load.until(now)) / TICKS_PER_SECOND
}

#[test]
fn arrows_go_back_in_time_and_hold_it_there() {
    let mut desk = detail(300);
    assert_eq!((desk.screens.detail.load.span_seconds(), ago(&desk)), (60, 0));
    desk.code(KeyCode::Left);
    desk.press("h");
    assert_eq!(ago(&desk), 30);
    // Time passes, and the visible part does not move.
    desk.wait(10);
    assert_eq!(ago(&desk), 40);
    // Another point shows the same part of the time.
    desk.press("j");
    assert_ne!(desk.common.selected, Some(1));
    assert_eq!(ago(&desk), 40);
    desk.code(KeyCode::Right);
    assert_eq!(ago(&desk), 25);
    desk.press("ll");
    assert!(desk.screens.detail.load.follows());
    desk.press("l");
    assert_eq!(desk.common.toast, None);

    desk.code(KeyCode::Home);
    // At the oldest part, this is all known time, a bit over 300 s, minus the visible part.
    let most = ago(&desk);
    assert!((245..=260).contains(&most), "{most}");
    desk.press("h");
    assert_eq!(ago(&desk), most);
    let said = desk.said();
    assert_eq!(said, Some("its load is not known before this"));
    desk.code(KeyCode::End);
    assert!(desk.screens.detail.load.follows());
    desk.wait(2);
    assert_eq!(ago(&desk), 0);
}

#[test]
fn zoom_keeps_now_or_the_middle() {
    let mut desk = detail(1000);
    desk.press("-");
    assert_eq!((desk.screens.detail.load.span_seconds(), ago(&desk)), (120, 0));
    let interval = desk.common.interval;
    desk.press("hhhh");
    assert_eq!(ago(&desk), 120);
    // The middle of the part is 180 s ago.
    desk.press("+");
    assert_eq!((desk.screens.detail.load.span_seconds(), ago(&desk)), (60, 150));
    desk.press("=");
    assert_eq!((desk.screens.detail.load.span_seconds(), ago(&desk)), (30, 165));
    desk.press("---");
    assert_eq!((desk.screens.detail.load.span_seconds(), ago(&desk)), (300, 30));
    // Zooming out stops once the part covers all known time; zooming in stops at the shortest
    // length.
    desk.press("--------");
    assert_eq!(desk.screens.detail.load.span_seconds(), 1800);
    assert!(desk.screens.detail.load.follows());
    desk.press("++++++++++++");
    assert_eq!(desk.screens.detail.load.span_seconds(), 2);
    assert_eq!(desk.common.interval, interval);
}

#[test]
fn a_paused_load_can_be_panned_and_zoomed() {
    let mut desk = detail(300);
    desk.press(" hh");
    assert_eq!((desk.common.status(), ago(&desk)), (Status::Paused, 30));
    desk.wait(5);
    assert_eq!(ago(&desk), 30);
    desk.code(KeyCode::End);
    assert_eq!(ago(&desk), 0);
}

#[test]
fn without_a_history_the_keys_say_so() {
    let mut desk = detail(0);
    desk.common.model = Model::default();
    desk.press("-");
    let said = |desk: &Desk| desk.common.toast.as_ref().map(|toast| toast.text.clone());
    assert_eq!(said(&desk).as_deref(), Some("its load is not known yet"));
    desk.code(KeyCode::Home);
    assert_eq!(said(&desk).as_deref(), Some("its load is not known yet"));
}

#[test]
fn changing_the_load_view_scrolls_it_into_view() {
    let mut desk = detail(300);
    let settle = |desk: &mut Desk, height| {
        view::settle(&mut desk.app, Rect::new(0, 0, 120, height), desk.now);
        desk.screens.detail.offset
    };
    assert_eq!(settle(&mut desk, 8), 0);
    desk.app.key(KeyEvent::from(KeyCode::Char('-')), desk.now);
    let first = settle(&mut desk, 8);
    // Title, four lines and an axis do not fit, so the title is at the top.
    assert!(first > 0);
    // The text scrolls once, and only as far as needed.
    desk.screens.detail.offset = 0;
    assert_eq!(settle(&mut desk, 8), 0);
    desk.app.key(KeyEvent::from(KeyCode::Left), desk.now);
    assert_eq!(settle(&mut desk, 13), first + 6 - 10);
}

#[test]
fn the_mouse_zooms_and_moves_the_load() {
    const TALL: Rect = Rect::new(0, 0, 120, 40);
    let mut desk = detail(300);
    view::settle(&mut desk.app, TALL, desk.now);
    let at = |desk: &Desk, x: u16, y: u16| view::hit(&desk.app, TALL, (x, y).into());
    let is_moment = |target| matches!(target, MouseTarget::Moment(None, _));
    let rows: Vec<u16> = (0..TALL.height).filter(|y| is_moment(at(&desk, 60, *y))).collect();
    // The lines of the picture, and the axis.
    assert_eq!(rows.len(), 5, "{rows:?}");
    assert!(!is_moment(at(&desk, 7, rows[0])) && is_moment(at(&desk, 8, rows[0])));
    assert!(is_moment(at(&desk, 118, rows[0])) && !is_moment(at(&desk, 119, rows[0])));
    let moment_at = |desk: &Desk, x| match at(desk, x, rows[0]) {
        MouseTarget::Moment(_, moment) => moment,
        other => panic!("{other:?}"),
    };
    let moment = moment_at(&desk, 60);
    for (up, span) in [(true, 30), (true, 10), (false, 30)] {
        assert!(desk.wheel(up, at(&desk, 60, rows[0])));
        assert_eq!(desk.screens.detail.load.span_seconds(), span);
        // Columns begin at multiples of their length.
        let column = span * TICKS_PER_SECOND / 111;
        assert!(moment_at(&desk, 60).abs_diff(moment) <= 2 * column);
    }
    let moment = moment_at(&desk, 60);
    desk.drag(at(&desk, 60, rows[0]), at(&desk, 100, rows[0]));
    assert_eq!(moment_at(&desk, 100), moment);
    desk.drag(at(&desk, 100, rows[0]), at(&desk, 8, rows[4]));
    desk.drag(at(&desk, 100, rows[0]), at(&desk, 8, rows[4]));
    assert!(desk.screens.detail.load.follows());
    // Elsewhere, the wheel scrolls the text.
    desk.wheel(false, at(&desk, 60, rows[4] + 2));
    assert_eq!(desk.screens.detail.load.span_seconds(), 30);
    assert_eq!(desk.screens.detail.offset, 3);
}
