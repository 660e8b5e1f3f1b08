//! Tests of the comparison with a baseline, driven by keys.

use super::*;

#[test]
fn points_that_only_the_baseline_has_can_be_walked_over() {
    use pfp_model::compare::{Baseline, Verdict};
    let mut base = Synthetic::new();
    base.snapshot_mut().points[3].name = "io.old".into();
    base.snapshot_mut().process.segment_id = "f".repeat(32);
    let mut desk = desk();
    desk.compare_with(Baseline::of(base.poll().unwrap(), None));
    desk.press("5");
    let verdicts = |verdict: Verdict| -> Vec<u32> {
        let rows = &desk.screens.diff.comparison.as_ref().unwrap().rows;
        rows.iter().filter(|row| row.verdict == verdict).map(|row| row.id).collect()
    };
    assert_eq!(verdicts(Verdict::New), [3]);
    let gone = verdicts(Verdict::Gone);
    assert_eq!(gone.len(), 1);
    desk.common.selected = Some(gone[0]);
    desk.wait(2);
    assert_eq!(desk.common.selected, Some(gone[0]), "the cursor stays on it");
    desk.press("\n");
    assert_eq!(desk.screen, Screen::Diff);
    assert!(desk.common.toast.clone().unwrap().text.contains("only the baseline has that point"));
    desk.press("p1");
    assert!(desk.common.selected().is_some(), "the table has a cursor of its own at once");
}

fn row(desk: &Desk, id: u32) -> pfp_model::compare::DiffRow {
    desk.screens.diff.comparison.as_ref().unwrap().row(id).unwrap().clone()
}

#[test]
fn a_baseline_is_compared_with_later_measurements_only() {
    let mut desk = desk();
    desk.press("5");
    assert_eq!((desk.screen, desk.cursor()), (Screen::Diff, (0, 0)));
    desk.press("b");
    assert!(desk.screens.diff.comparison.is_none(), "nothing was measured since");
    let counted = desk.point(1).total().count;
    desk.wait(4);
    let now = desk.point(1).total().count;
    let found = row(&desk, 1);
    assert_eq!((found.before.count, found.since.count), (counted, now - counted));
    assert_eq!(found.since.length.unwrap().seconds, 4.0);

    // The next baseline is the window up to now, not everything up to now.
    desk.press("b");
    desk.wait(2);
    let found = row(&desk, 1);
    assert_eq!((found.before.count, found.before.length.unwrap().seconds), (now - counted, 4.0));
    assert_eq!(found.since.count, desk.point(1).total().count - now);
}

#[test]
fn a_second_baseline_at_once_keeps_the_first() {
    let mut desk = desk();
    desk.press("bb");
    assert!(desk.common.toast.as_ref().is_some_and(|toast| toast.is_error));
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
    let (order, selected) = (desk.screens.diff.order.clone(), desk.common.selected);
    assert_eq!(Some(order[1]), selected);
    desk.screens.diff.order.swap(1, 3);
    let swapped = desk.screens.diff.order.clone();
    desk.app.poll(desk.now + Duration::from_millis(1000));
    assert_eq!(desk.screens.diff.order, swapped);
    assert!(view::settle(&mut desk.app, AREA, desk.now + FREEZE));
    assert_ne!(desk.screens.diff.order, swapped);
    assert_eq!(desk.common.selected, selected);
    desk.press("\n");
    assert_eq!(desk.screen, Screen::Detail);
    desk.press("\x1b");
    assert_eq!((desk.screen, desk.common.selected), (Screen::Diff, selected));
    desk.press("\x1b");
    assert_eq!(desk.screen, Screen::Points);
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
    assert_eq!(desk.cursor().0, 2);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.json");
    desk.press("w");
    desk.clear();
    desk.press(path.to_str().unwrap());
    desk.press("\n");
    desk.wait_until_saved();
    // The saved snapshot is the one on the screen, not the present state.
    assert_eq!(Some(&read(&path).unwrap()), desk.common.model.snapshot());
    desk.press("Z");
    desk.wait(1);
    assert!(row(&desk, 1).since.count > before.count);
}

#[test]
fn the_baseline_outlives_its_process() {
    let mut desk = desk();
    desk.press("b");
    let old = desk.point(1).total().count;
    desk.made().process.segment_id = "f".repeat(32);
    desk.wait(2);
    desk.press("5");
    let found = row(&desk, 1);
    assert_eq!(found.before.count, old);
    assert_eq!(found.since.count, desk.point(1).total().count);
}
