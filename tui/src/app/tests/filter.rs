//! Tests of the filter, and of the rows that pass it.

use super::*;

fn shown(desk: &Desk) -> Vec<u32> {
    let mut ids = desk.common.order.clone();
    ids.sort_unstable();
    ids
}

#[test]
fn a_filter_applies_while_it_is_typed_and_escape_returns_to_the_one_before() {
    let mut desk = desk();
    desk.press("o/io.");
    assert_eq!(shown(&desk), [1, 2, 3]);
    desk.press("r");
    assert_eq!((shown(&desk), desk.common.selected), (vec![2], Some(2)));
    desk.press("\n");
    desk.wait(2);
    assert_eq!((shown(&desk), desk.overlay.as_ref()), (vec![2], None));
    // The next prompt starts with the present filter.
    desk.press("/");
    desk.code(KeyCode::Backspace);
    assert_eq!(shown(&desk), [1, 2, 3]);
    desk.press("\x1b");
    assert_eq!((shown(&desk), desk.overlay.as_ref()), (vec![2], None));
    // Esc also drops a recalled text and a text that is not a valid filter.
    desk.press("/");
    desk.clear();
    desk.press("net\n/");
    desk.code(KeyCode::Up);
    assert_eq!(desk.common.filter.text(), "io.r");
    desk.press(" /(\x1b");
    assert_eq!((desk.common.filter.text(), shown(&desk)), ("net", vec![7]));
    // Without a prompt, Esc removes the filter. In a prompt that was opened without a filter, Esc
    // shows all points again.
    desk.press("\x1b");
    assert_eq!((desk.common.order.len(), desk.common.selected), (9, Some(7)));
    desk.press("/net\x1b");
    assert_eq!((desk.common.order.len(), desk.common.filter.is_on()), (9, false));
}

#[test]
fn an_invalid_filter_keeps_the_rows_and_the_text() {
    let mut desk = desk();
    desk.press("//io");
    assert_eq!(shown(&desk), [1, 2, 3]);
    desk.press("(\n");
    let Some(Overlay::Typed(prompt)) = &desk.overlay else { panic!("it was closed") };
    assert_eq!(prompt.text(), "/io(");
    assert!(prompt.error.as_ref().is_some_and(|why| why.contains("open group")));
    assert_eq!(shown(&desk), [1, 2, 3]);
    desk.press(".p)");
    assert_eq!(shown(&desk), [1]);
}

#[test]
fn a_point_shown_in_full_stays_when_the_filter_drops_its_row() {
    let mut desk = desk();
    desk.press("/thread:main\n");
    desk.open(1);
    desk.made().lanes[0].name = "other".into();
    desk.wait(3);
    assert_eq!((desk.screen, desk.common.selected), (Screen::Detail, Some(1)));
    assert!(!desk.common.order.contains(&1));
}

#[test]
fn a_point_that_appears_while_rows_stand_still_comes_last_if_it_passes() {
    let mut desk = desk();
    desk.press("/io\nj");
    let before = desk.common.order.clone();
    desk.made().points[8].name = "io.new".into();
    desk.app.poll(desk.now + Duration::from_millis(1000));
    assert_eq!(desk.common.order, [before, vec![8]].concat());
}

#[test]
fn filters_typed_before_come_back() {
    let mut desk = desk();
    for text in ["io", "lz", "io"] {
        desk.press("/");
        desk.clear();
        desk.press(text);
        desk.press("\n");
    }
    desk.press("\x1b");
    assert!(!desk.common.filter.is_on());
    desk.press("/");
    let mut seen = Vec::new();
    for key in [KeyCode::Up, KeyCode::Up, KeyCode::Up, KeyCode::Down, KeyCode::Down, KeyCode::Down]
    {
        desk.code(key);
        seen.push(desk.common.filter.text().to_owned());
    }
    assert_eq!(seen, ["io", "lz", "lz", "io", "", ""]);
}

#[test]
fn a_filter_can_be_typed_on_every_screen() {
    for (keys, screen) in
        [("5", Screen::Diff), ("6", Screen::Points), ("7", Screen::Roofline), ("2", Screen::Detail)]
    {
        let mut desk = desk();
        desk.press("b");
        desk.wait(1);
        desk.press(keys);
        desk.press("/read");
        assert_eq!((desk.screen, desk.common.filter.text()), (screen, "read"), "{keys}");
        let resets = desk.made().points.clone();
        assert!(resets.iter().all(|point| point.resets == 0), "what is typed is no command");
        if screen == Screen::Diff {
            assert_eq!(desk.screens.diff.order, [2]);
        }
    }
}
