//! Tests of several processes on the screen: their column, and processes that come and go.

use super::*;

/// Two processes; the second has the points from 5 on.
fn desk_of_two() -> Desk {
    let desk = desk();
    {
        let mut snapshot = desk.made();
        for point in &mut snapshot.points {
            point.process = Some(u32::from(point.id >= 5));
        }
        let process = |name: &str, pid: u32| Process {
            name: name.into(),
            pid,
            segment_id: name.into(),
            ..Process::default()
        };
        snapshot.process.members = vec![process("second", 9), process("first", 7)];
    }
    desk
}

fn members(desk: &Desk, change: impl Fn(&mut Vec<Process>)) {
    change(&mut desk.made().process.members);
}

#[test]
fn rows_are_sorted_by_process_where_there_are_several() {
    let mut desk = desk();
    desk.screens.points.table_mut().unwrap().sort_by("on", None);
    desk.press(">");
    assert_eq!(
        desk.screens.points.sorting().column,
        Column::Name,
        "of one process it is passed over"
    );
    let mut desk = desk_of_two();
    desk.wait(2);
    desk.press("o");
    desk.screens.points.table_mut().unwrap().sort_by("on", None);
    desk.press(">");
    assert_eq!(desk.screens.points.sorting().column, Column::Process);
    let places = |desk: &Desk| -> Vec<u32> {
        let of = |id: &u32| desk.point(*id).point().process.unwrap();
        desk.common.order.iter().map(of).collect()
    };
    assert_eq!(places(&desk), [1, 1, 1, 1, 0, 0, 0, 0, 0], "by name");
    let loads = |desk: &Desk| -> Vec<Option<f64>> {
        desk.common.order.iter().map(|id| desk.point(*id).load()).collect()
    };
    let of_first = &loads(&desk)[..4];
    assert!(of_first.is_sorted_by(|a, b| a >= b), "{of_first:?}");
    desk.press("I");
    assert_eq!(places(&desk), [0, 0, 0, 0, 0, 1, 1, 1, 1]);
    assert!(loads(&desk)[..5].is_sorted_by(|a, b| a >= b), "what burns stays on top");
    desk.press("<");
    assert_eq!(desk.screens.points.sorting().column, Column::On);
}

#[test]
fn processes_that_join_or_end_are_reported_at_once() {
    let mut desk = desk_of_two();
    desk.wait(1);
    let toast = |desk: &Desk| desk.common.toast.clone().map(|toast| (toast.text, toast.is_error));
    desk.common.toast = None;
    members(&desk, |all| all[1].state = ProcessState::Exited);
    desk.wait(1);
    assert_eq!(toast(&desk), Some(("first[7] ended in order".into(), false)));
    assert_eq!(desk.common.log.unread(), 0);
    // An end is also reported while the figures are paused.
    desk.press("p");
    members(&desk, |all| all[0].state = ProcessState::Crashed);
    desk.wait(1);
    assert_eq!(toast(&desk), Some(("second[9] crashed or was killed".into(), true)));
    assert_eq!(desk.common.log.unread(), 1);
}

#[test]
fn the_detail_of_a_point_that_is_gone_closes() {
    let mut desk = desk_of_two();
    desk.wait(1);
    desk.common.selected = Some(8);
    desk.press("2");
    desk.made().points.pop();
    desk.wait(1);
    assert_eq!(desk.screen, Screen::Points);
    assert!(desk.common.toast.clone().unwrap().text.contains("ended a while ago"));
    assert!(desk.common.selected.is_some_and(|id| desk.common.order.contains(&id)));
}

#[test]
fn machines_have_a_column_and_a_filter() {
    let mut desk = desk_of_two();
    members(&desk, |all| all[0].host = "node3".into());
    desk.wait(2);
    let available = |desk: &Desk| Available::of(&desk.common.model).hosts;
    assert!(available(&desk));
    desk.press("o");
    let shown = |desk: &mut Desk, filter: &str| -> Vec<u32> {
        desk.common.filter = Filter::new(filter).unwrap();
        desk.wait(1);
        desk.common.order.iter().map(|id| u32::from(*id >= 5)).collect()
    };
    assert_eq!(shown(&mut desk, "host:node3"), [0; 5]);
    assert_eq!(shown(&mut desk, "!host:node3"), [1; 4]);
    assert_eq!(shown(&mut desk, "process:first"), [1; 4]);
    // The part of a process's name after the @ is its place, named by the command of `--via`.
    members(&desk, |all| all[1].name = "first@db".into());
    assert_eq!(shown(&mut desk, "host:\"db\""), [1; 4]);
    members(&desk, |all| all[0].host.clear());
    desk.wait(1);
    assert!(!available(&desk), "one machine needs no column");
}
