//! Tests of points that are switched, reset and put back.

use super::*;
use pfp_read::snapshot::Point;

#[test]
fn toggles_reach_the_process_and_are_put_back() {
    let mut desk = desk();
    desk.common.selected = Some(3);
    desk.press("e");
    assert_eq!(desk.process.state(3), PointState::Off);
    assert_eq!(desk.point(3).state(), PointState::Off);
    desk.common.selected = Some(8);
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
        session.switch(3, PointState::On, false).unwrap();
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    assert_eq!(process.state(3), PointState::On);
}

#[test]
fn toggles_stay_with_keep() {
    let mut desk = desk_with(Options { keep: true, ..Options::default() });
    desk.common.selected = Some(3);
    desk.press("e");
    let process = desk.process.clone();
    drop(desk);
    assert_eq!(process.state(3), PointState::Off);
}

#[test]
fn changes_by_others_are_not_put_back() {
    let mut desk = desk();
    desk.common.selected = Some(8);
    desk.press("e");
    desk.made().points[8].state = PointState::InvalidBeginBegin;
    let process = desk.process.clone();
    drop(desk);
    assert_eq!(process.state(8), PointState::InvalidBeginBegin);
}

#[test]
fn a_reset_starts_the_point_afresh() {
    let mut desk = desk();
    desk.common.selected = Some(8);
    desk.press("r");
    assert_eq!(desk.overlay, Some(Overlay::Ask(Question::Reset { ids: vec![8] })));
    desk.press("n");
    desk.wait(1);
    assert_eq!(desk.point(8).point().resets, 0, "it asks first");
    desk.common.selected = Some(8);
    desk.press("ry");
    desk.wait(1);
    assert_eq!(desk.point(8).point().resets, 1);
}

#[test]
fn switching_all_off_and_on_keeps_points_off_that_were_off() {
    let mut desk = desk();
    desk.press("o");
    desk.made().points[2].state = PointState::Off;
    desk.wait(1);
    let states = |desk: &Desk| [1, 2, 3].map(|id| desk.process.state(id));
    use PointState::{Off, On};
    assert_eq!(states(&desk), [On, Off, On]);
    desk.press("Ey");
    assert_eq!(states(&desk), [Off; 3]);
    desk.press("Ey");
    assert_eq!(states(&desk), [On, Off, On]);
    // If all points are off, and this viewer has switched off none of them, E switches all on.
    desk.press("Ey");
    let process = desk.process.clone();
    let mut other = super::desk();
    other.press("o");
    for point in &mut other.process.0.borrow_mut().snapshot_mut().points {
        point.state = Off;
    }
    other.wait(1);
    other.press("Ey");
    assert_eq!(other.process.state(2), On);
    drop(process);
}

#[test]
fn all_points_shown_are_switched_after_a_yes_and_put_back() {
    let mut desk = desk();
    desk.press("/io\nE");
    let asked = Question::Switch { ids: desk.common.order.clone(), on: false };
    assert_eq!(desk.overlay, Some(Overlay::Ask(asked)));
    desk.press("n");
    assert_eq!((desk.overlay.as_ref(), desk.process.state(1)), (None, PointState::On));
    desk.press("Ey");
    let states = |desk: &Desk| [1, 2, 3, 4].map(|id| desk.process.state(id));
    use PointState::{Off, On};
    assert_eq!(states(&desk), [Off, Off, Off, On]);
    // A point that is on already is not in the question.
    desk.common.selected = Some(1);
    desk.press("eE");
    assert_eq!((states(&desk), desk.overlay.as_ref()), ([Off, Off, Off, On], None));
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
    desk.press("/^lz\n");
    let resets = |desk: &Desk| {
        let mut process = desk.process.0.borrow_mut();
        process.snapshot_mut().points.iter().map(|point| point.resets).collect::<Vec<_>>()
    };
    desk.press("R\x1b");
    assert_eq!(resets(&desk), [0; 9]);
    desk.press("Ry");
    assert_eq!(resets(&desk), [0, 0, 0, 0, 1, 1, 0, 0, 0]);
}

#[test]
fn the_fences_of_a_point_go_to_the_process_and_back() {
    let mut desk = desk();
    let fenced = |desk: &Desk| desk.made().points[3].fenced;
    desk.common.selected = Some(3);
    desk.press("F");
    assert!(fenced(&desk));
    desk.wait(1);
    desk.press("F");
    assert!(!fenced(&desk));
}

/// By default, points that are off and never measured have no row. With figures they have one, and
/// a row does not disappear under the cursor.
#[test]
fn idle_points_are_hidden_behind_a_count() {
    let mut desk = desk();
    let all = desk.common.model.points().len();
    let idle = |desk: &Desk| {
        let points = desk.common.model.points().iter();
        points.filter(|it| it.state() == PointState::Off && !it.is_used()).count()
    };
    let rows = |desk: &Desk| (desk.common.order.len(), desk.screens.points.hidden());
    let hidden = idle(&desk);
    assert!(hidden > 0 && hidden < all, "{hidden} of {all}");
    assert_eq!(rows(&desk), (all - hidden, hidden));
    desk.press("o");
    assert_eq!(rows(&desk), (all, 0));
    let of_one = desk.common.model.points().iter().find(|it| it.state() == PointState::Off);
    let (id, name) = of_one.map(|it| (it.id(), it.name())).unwrap();
    desk.press("o");
    assert_eq!(rows(&desk), (all - hidden, hidden));

    // A filter shows the row.
    desk.press(&format!("/{name}"));
    desk.press("\n");
    assert!(desk.common.order.contains(&id) && desk.screens.points.hidden() == 0);
    desk.common.selected = Some(id);
    // After switching it on and off again, its row stays.
    desk.press("e");
    desk.wait(1);
    desk.press("e\x1b");
    desk.wait(1);
    assert!(desk.common.order.contains(&id));
}

/// If all points of a program start off, all are shown.
#[test]
fn idle_points_are_shown_if_all_points_are_idle() {
    let process = Shared::default();
    {
        let mut snapshot = process.made();
        for point in snapshot.points.iter_mut().skip(1) {
            point.state = PointState::Off;
        }
    }
    let mut app = App::new(Options::default(), Box::new(Stage::default()), Instant::now());
    app.watch(Box::new(process.clone()), Instant::now());
    let all = process.0.borrow_mut().snapshot_mut().points.len();
    assert_eq!((app.common.order.len(), app.screens.points.hidden()), (all, 0));
}

/// Points that appear later in a domain that was switched off are off, too, until a point in that
/// domain is switched on again.
#[test]
fn new_points_of_a_switched_off_domain_are_switched_off() {
    use PointState::{Off, On};
    const DOMAIN: &str = "nvtx:app";
    let bring = |desk: &mut Desk, state| {
        let mut process = desk.process.0.borrow_mut();
        let points = &mut process.snapshot_mut().points;
        let id = points.len() as u32;
        let (name, file) = (format!("name {id}"), DOMAIN.to_owned());
        points.push(Point { id, name, file, line: 0, state, ..points[1].clone() });
        id as usize
    };
    let mut desk = desk();
    let before = [bring(&mut desk, On), bring(&mut desk, On)];
    desk.wait(1);
    // Switching off a single point does not switch off its domain.
    desk.common.selected = Some(before[0] as u32);
    desk.press("e");
    let alone = bring(&mut desk, On);
    desk.wait(2);
    assert_eq!(desk.process.state(alone), On);
    desk.press(&format!("/domain:^{DOMAIN}$"));
    desk.press("\nEy");
    assert_eq!(before.map(|id| desk.process.state(id)), [Off, Off]);
    let (later, is_off) = (bring(&mut desk, On), bring(&mut desk, Off));
    desk.wait(1);
    assert_eq!([later, is_off].map(|id| desk.process.state(id)), [Off, Off]);
    let other = desk.made().points[1].state;
    assert_eq!(other, On, "of no domain");
    desk.common.selected = Some(later as u32);
    desk.press("e");
    desk.wait(1);
    let last = bring(&mut desk, On);
    desk.wait(1);
    assert_eq!([later, last].map(|id| desk.process.state(id)), [On, On]);
    let process = desk.process.clone();
    drop(desk);
    let all = [before[0], before[1], alone, later, is_off, last];
    assert_eq!(all.map(|id| process.state(id)), [On, On, On, On, Off, On]);
}

/// Another viewer may have switched the point since the last poll.
#[test]
fn a_switch_that_changes_nothing_is_not_put_back() {
    let mut desk = desk();
    for (id, found) in [(3, PointState::Off), (8, PointState::On)] {
        desk.made().points[id].state = found;
        desk.common.selected = Some(id as u32);
        desk.press("e");
        assert_eq!(desk.process.state(id), found, "it was so already");
    }
    desk.wait(1);
    let process = desk.process.clone();
    drop(desk);
    assert_eq!((process.state(3), process.state(8)), (PointState::Off, PointState::On));
}

#[test]
fn points_left_by_a_killed_viewer_are_put_back_first() {
    use PointState::{Off, On};
    let mut desk = desk();
    for id in [2, 3] {
        let mut snapshot = desk.made();
        (snapshot.points[id].state, snapshot.points[id].left_over) = (Off, true);
    }
    desk.wait(1);
    let newest = desk.common.log.entries().back().unwrap().text.clone();
    assert_eq!(newest, "2 points are off, left by a viewer that was killed");
    // `E` switches all points that were left over, even those that the filter hides.
    desk.press("/crc\nE");
    let asked = Question::Switch { ids: vec![2, 3], on: true };
    assert_eq!(desk.overlay, Some(Overlay::Ask(asked)));
    desk.press("y");
    let states = [1, 2, 3].map(|id| desk.process.state(id));
    assert_eq!(states, [On; 3]);
    for id in [2, 3] {
        desk.made().points[id].left_over = false;
    }
    desk.wait(1);
    desk.press("\x1bE");
    assert!(matches!(&desk.overlay, Some(Overlay::Ask(Question::Switch { on: false, .. }))));
}

#[test]
fn the_log_names_this_viewer_for_alpha_and_fences() {
    let mut desk = desk();
    desk.common.selected = Some(3);
    desk.press("Fa0.3\n");
    desk.wait(2);
    let of_3 = |desk: &Desk| {
        let name = desk.point(3).name();
        let texts = desk.common.log.entries().iter().map(|entry| entry.text.clone());
        texts.filter(|text| text.contains(&name)).collect::<Vec<_>>()
    };
    let own = ["io.crc fenced by this viewer", "alpha of io.crc set to 0.3 by this viewer"];
    assert_eq!(of_3(&desk), own);
    {
        let point = &mut desk.made().points[3];
        (point.alpha, point.fenced) = (None, false);
    }
    desk.wait(1);
    let others = [
        "alpha of io.crc set to off by another viewer or the program",
        "fences of io.crc removed by another viewer or the program",
    ];
    assert_eq!(of_3(&desk)[2..], others);
}

#[test]
fn the_last_change_is_undone_first() {
    let mut desk = desk();
    desk.press("/^lz\nEy");
    desk.common.selected = Some(4);
    desk.press("F");
    desk.wait(1);
    desk.common.selected = Some(4);
    desk.press("a");
    desk.clear();
    desk.press("0.5\n");
    desk.wait(1);
    let state = |desk: &Desk| {
        let point = desk.made().points[4].clone();
        (desk.process.state(5), point.state, point.fenced, point.alpha)
    };
    let alpha = desk.process.0.borrow_mut().poll().unwrap().points[5].alpha;
    use PointState::{Off, On};
    assert_eq!(state(&desk), (Off, Off, true, Some(0.5)));
    desk.press("U");
    assert_eq!(desk.said(), Some("undone: set alpha of lz.compress"));
    desk.wait(1);
    desk.press("U");
    assert_eq!(desk.said(), Some("undone: fenced lz.compress"));
    desk.wait(1);
    assert_eq!(state(&desk), (Off, Off, false, alpha));
    desk.press("U");
    assert_eq!(desk.said(), Some("undone: switched off 2 points"));
    desk.wait(1);
    assert_eq!(state(&desk), (On, On, false, alpha));
    desk.press("U");
    assert_eq!(desk.said(), Some("there is no change of yours to undo"));
}

/// Undoing a reset adds the figures from before the reset to the figures since then. The log names
/// this viewer for the reset and for the undo. Another reset removes all figures.
#[test]
fn a_reset_is_undone() {
    let mut desk = desk();
    let count = |desk: &Desk| desk.point(1).total().count;
    let before = count(&desk);
    desk.common.selected = Some(1);
    desk.press("ry");
    desk.wait(1);
    let since = count(&desk);
    assert!(before > 0 && since < before, "{before}, {since}");
    desk.press("U");
    desk.wait(1);
    let shown = count(&desk);
    assert!(shown > before + since, "{before}, {since}, {shown}");
    assert!(desk.common.model.point(1).unwrap().load().is_none_or(|load| load < 2.0));
    let entries: Vec<_> = desk.common.log.entries().iter().map(|it| it.text.clone()).collect();
    assert!(entries.iter().all(|it| !it.contains("reset") || it.contains("by this viewer")));
    desk.common.selected = Some(1);
    desk.press("ry");
    desk.wait(1);
    assert!(count(&desk) < before);
}
