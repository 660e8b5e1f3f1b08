//! Tests of the threads and the timeline, driven by keys.

use super::*;
use pfp_read::snapshot::Record;
use pfp_read::source::synthetic::TICKS_PER_SECOND;

const MS: u64 = TICKS_PER_SECOND / 1000;

/// Puts the records of one second into the rings for the next poll. The thread of lane 1 runs a
/// region of 50 ms every 100 ms, with two regions inside.
pub(crate) fn records(desk: &mut Desk) {
    let now = desk.snapshot().elapsed_ticks + TICKS_PER_SECOND;
    let mut snapshot = desk.made();
    snapshot.lanes[1].records_written = 100;
    snapshot.lanes[2].records_written = 3;
    snapshot.records.clear();
    let record = |lane, point, start_ms: u64, span: u64, exclusive: u64, depth| Record {
        lane,
        point,
        start: now - 1000 * MS + start_ms * MS,
        span: span * MS,
        exclusive: exclusive * MS,
        depth,
        context: 0,
    };
    for hundred in 3..10 {
        let at = hundred * 100;
        snapshot.records.extend([
            record(1, 2, at, 10, 10, 1),
            record(1, 3, at + 20, 20, 2, 1),
            record(1, 1, at, 50, 20, 0),
        ]);
    }
    snapshot.records.push(record(2, 4, 100, 350, 350, 0));
    snapshot.records.push(record(2, 7, 500, 450, 1, 0));
    snapshot.records.push(record(2, 4, 960, 40, 40, 0));
}

fn timeline() -> Desk {
    let mut desk = desk();
    records(&mut desk);
    desk.press("4");
    desk
}

/// How long before now the region under the cursor began, and its point.
fn under_cursor(desk: &Desk) -> (u64, u32) {
    let now = desk.screens.timeline.at.picture().unwrap().taken;
    let (_, region) = desk.screens.timeline.at.region().unwrap();
    ((now - region.start) / MS, region.point)
}

#[test]
fn the_timeline_follows_until_the_user_goes_back_in_time() {
    let mut desk = timeline();
    assert!(desk.screens.timeline.at.follows());
    assert_eq!(desk.screens.timeline.at.cursor(), (1, 4));
    assert_eq!(under_cursor(&desk), (100, 1));
    let before = desk.screens.timeline.at.picture().unwrap().taken;
    desk.wait(1);
    assert_eq!(under_cursor(&desk), (1100, 1));

    desk.code(KeyCode::Left);
    assert_eq!(under_cursor(&desk), (1200, 1));
    // The picture stays, whatever happens to the rings.
    desk.made().records.clear();
    desk.wait(2);
    assert_eq!(under_cursor(&desk), (1200, 1));
    desk.code(KeyCode::Right);
    assert_eq!(under_cursor(&desk), (1100, 1));
    assert!(!desk.screens.timeline.at.follows());

    records(&mut desk);
    desk.code(KeyCode::End);
    desk.wait(1);
    assert_eq!(under_cursor(&desk), (100, 1));
    assert!(desk.screens.timeline.at.picture().unwrap().taken > before);
}

#[test]
fn a_pause_holds_the_moment_it_began_at() {
    let mut desk = desk();
    records(&mut desk);
    desk.press(" ");
    let snapshot = desk.snapshot().elapsed_ticks;
    desk.made().records.clear();
    desk.wait(2);
    desk.press("4");
    desk.wait(1);
    let picture = desk.screens.timeline.at.picture().unwrap();
    assert_eq!(picture.taken, snapshot + TICKS_PER_SECOND);
    assert_eq!(picture.tracks[1].levels[0].regions.len(), 7);
    desk.press(" ");
    desk.wait(1);
    let picture = desk.screens.timeline.at.picture().unwrap();
    assert!(picture.tracks[1].levels[0].regions.is_empty());
    assert!(picture.taken > snapshot + 2 * TICKS_PER_SECOND);
}

#[test]
fn lines_are_walked_through_and_regions_opened() {
    let mut desk = timeline();
    desk.press("jh");
    assert_eq!(under_cursor(&desk), (100, 2));
    desk.press("l");
    assert_eq!(under_cursor(&desk), (80, 3));
    desk.press("j");
    // On the next line, the cursor is on the region at the same moment.
    assert_eq!(under_cursor(&desk), (500, 7));
    desk.press("gg");
    assert_eq!(under_cursor(&desk), (900, 4));
    desk.press("\n");
    assert_eq!((desk.screen, desk.common.selected), (Screen::Detail, Some(4)));
    desk.press("\x1b");
    assert_eq!(desk.screen, Screen::Timeline);
    assert_eq!(under_cursor(&desk), (900, 4));
    desk.press("\x1b");
    assert_eq!(desk.screen, Screen::Points);
}

#[test]
fn enter_on_a_thread_shows_the_points_it_was_in() {
    let mut desk = desk();
    desk.press("o3");
    desk.screens.threads.selected = Some(1);
    desk.press("\n");
    assert_eq!(desk.screen, Screen::Points);
    assert_eq!(desk.common.filter.text(), "thread:\"reader\"");
    let mut shown = desk.common.order.clone();
    shown.sort();
    assert_eq!(shown, [1, 2, 3, 6]);
    assert_eq!(desk.cursor().0, 0);
    assert!(desk.common.toast.is_some());
    desk.press("\x1b");
    assert!(!desk.common.filter.is_on());
    assert_eq!(desk.common.order.len(), 9);
    // If several threads have the same name, the id distinguishes them.
    for lane in &mut desk.made().lanes {
        lane.name = "worker".into();
    }
    desk.wait(1);
    desk.press("3\n");
    assert_eq!(desk.common.filter.text(), "tid:4712");
    let mut shown = desk.common.order.clone();
    shown.sort();
    assert_eq!(shown, [1, 2, 3, 6]);
}

#[test]
fn the_cursor_stays_in_view_after_panning_and_zooming() {
    let mut desk = timeline();
    // Zooming goes in steps of 1, 2 and 5, from 1 us to the process's whole life.
    let span = desk.screens.timeline.at.span_ns();
    desk.press("-");
    assert!((2..=3).contains(&(desk.screens.timeline.at.span_ns() / span)));
    desk.press("+");
    assert_eq!(desk.screens.timeline.at.span_ns(), span);
    let keys = "hh+++hl---+++++++++++++++++++++hhll---------------------------------hhll";
    desk.code(KeyCode::Home);
    for key in keys.chars().chain(keys.chars().rev()) {
        desk.press(&key.to_string());
        let window = desk.screens.timeline.at.window(100);
        let (_, region) = desk.screens.timeline.at.region().unwrap();
        assert!(window.column(region.start).is_some(), "{key} {window:?} {region:?}");
    }
    let span = desk.screens.timeline.at.span_ns();
    desk.press(&"-".repeat(40));
    let widest = desk.screens.timeline.at.window(100);
    assert!(widest.from < MS, "all of the process's life, and no more: {widest:?}");
    desk.press(&"+".repeat(40));
    assert_eq!(desk.screens.timeline.at.span_ns(), 1_000);
    assert!(span > 1_000);
}

#[test]
fn panning_moves_by_half_a_screen_and_back_to_now() {
    let mut desk = timeline();
    let right = |desk: &Desk| {
        desk.screens.timeline.at.window(1).from + desk.screens.timeline.at.window(1).ticks
    };
    let now = right(&desk);
    let half = desk.screens.timeline.at.window(1).ticks / 2;
    desk.code(KeyCode::PageUp);
    assert_eq!(right(&desk), now - half);
    desk.code(KeyCode::PageUp);
    assert_eq!(right(&desk), now - 2 * half);
    desk.code(KeyCode::PageDown);
    assert!(!desk.screens.timeline.at.follows());
    desk.code(KeyCode::PageDown);
    assert!(desk.screens.timeline.at.follows());
}

#[test]
fn the_point_of_the_region_is_switched_reset_and_averaged() {
    let mut desk = timeline();
    desk.common.selected = Some(4);
    desk.press("jh");
    assert_eq!(under_cursor(&desk), (100, 2));
    desk.press("e");
    assert_eq!((desk.process.state(2), desk.process.state(4)), (PointState::Off, PointState::On));
    desk.press("lry");
    let resets = |desk: &Desk, id: usize| desk.made().points[id].resets;
    assert_eq!([2, 3, 4].map(|id| resets(&desk, id)), [0, 1, 0]);
    desk.press("y");
    assert!(matches!(&desk.common.errand, Some(Errand::Copy(row)) if row.starts_with("io.crc")));
    desk.press("a0.5\n");
    let alpha = |id: usize| desk.made().points[id].alpha;
    assert_eq!([2, 3, 4].map(alpha), [None, Some(0.5), None]);
    // The cursor of the table does not affect this screen.
    assert_eq!(desk.common.selected, Some(4));
}

#[test]
fn toggling_twice_affects_the_same_point() {
    let mut desk = timeline();
    assert_eq!(under_cursor(&desk), (100, 1));
    desk.press("e");
    assert_eq!(desk.process.state(1), PointState::Off);
    // From here on, only other points measure.
    desk.made().records.retain(|record| record.point != 1);
    desk.wait(2);
    assert!(!desk.screens.timeline.at.follows());
    desk.press("e");
    assert_eq!(desk.process.state(1), PointState::On);
}

#[test]
fn without_a_region_there_is_nothing_to_switch() {
    let mut desk = desk();
    desk.press("4e");
    let said = desk.said();
    assert_eq!(said, Some("there is no region under the cursor"));
    assert!((1..8).all(|id| desk.process.state(id) == PointState::On));
}

#[test]
fn a_thread_opened_before_the_first_rates_stays_open() {
    let (process, now) = (Shared::default(), Instant::now());
    let mut app = App::new(Options::default(), Box::new(Stage::default()), now);
    app.watch(Box::new(process.clone()), now);
    let mut desk = Desk { app, process, now };
    assert_eq!(desk.common.model.basis(), Basis::Life);
    records(&mut desk);
    desk.press("4j");
    let (_, point) = under_cursor(&desk);
    desk.press("\n");
    desk.wait(2);
    assert_eq!((desk.screen, desk.common.selected), (Screen::Detail, Some(point)));
    assert_ne!(desk.common.order.first(), Some(&point));
}

#[test]
fn records_are_read_only_for_screens_that_show_them() {
    let mut desk = desk();
    records(&mut desk);
    desk.wait(2);
    assert!(desk.screens.timeline.at.picture().is_none());
    desk.press("4");
    assert!(desk.screens.timeline.at.picture().is_some());
}

#[test]
fn threads_are_sorted_selected_and_opened() {
    let mut desk = desk();
    desk.press("3");
    let loads = |desk: &Desk| -> Vec<f64> {
        let thread = |lane: &u32| {
            pfp_model::threads::find(desk.common.model.thread_figures(), *lane).unwrap().load
        };
        desk.screens.threads.order.iter().filter_map(thread).collect()
    };
    assert_eq!(loads(&desk).len(), 3);
    assert!(loads(&desk).is_sorted_by(|a, b| a >= b));
    desk.press("I");
    assert!(loads(&desk).is_sorted_by(|a, b| a <= b));
    desk.press("<<<");
    assert_eq!(desk.view().table().unwrap().sorted().key, "tid");
    assert_eq!(desk.screens.threads.order, [0, 1, 2]);
    // The table of points has an order of its own.
    assert_eq!(desk.screens.points.sorting(), Sorting::by(Column::Load));
    desk.press("jj");
    assert_eq!(desk.screens.threads.selected, Some(2));
    desk.press("d");
    assert!(desk.screens.threads.opened);
    desk.press("\x1b");
    assert_eq!((desk.screens.threads.opened, desk.screen), (false, Screen::Threads));
    desk.press("\x1b");
    assert_eq!(desk.screen, Screen::Points);
}

#[test]
fn the_slowest_call_is_the_longest_by_wall_clock() {
    let mut desk = timeline();
    {
        let mut snapshot = desk.made();
        // Of two calls of a point, the longer one spent less time on a CPU.
        let [.., long, short] = &mut snapshot.records[..] else { panic!("two records") };
        (long.point, short.point) = (4, 4);
    }
    desk.wait(1);
    desk.press("jjj");
    assert_eq!(under_cursor(&desk).1, 4);
    desk.press("X");
    let (_, region) = desk.screens.timeline.at.region().unwrap();
    assert_eq!((region.span(), region.exclusive), (450 * MS, MS));
}

/// The object at column `x` of the terminal's middle line, which shows a line of the timeline.
fn at(desk: &Desk, x: u16) -> MouseTarget {
    view::hit(&desk.app, AREA, (x, AREA.height / 2).into())
}

fn moment_at(desk: &Desk, x: u16) -> u64 {
    match at(desk, x) {
        MouseTarget::Moment(Some(_), moment) => moment,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_wheel_zooms_around_the_mouse() {
    for x in [16, 70, 119] {
        let mut desk = timeline();
        let (span, moment) = (desk.screens.timeline.at.span_ns(), moment_at(&desk, x));
        for up in [true, true, true, true, false, false, false, false] {
            assert!(desk.wheel(up, at(&desk, x)));
            let column = desk.screens.timeline.at.window(104).ticks / 104;
            let now = moment_at(&desk, x);
            assert!(now.abs_diff(moment) <= column + 8, "{x} {up} {now} {moment} {column}");
            assert!(!desk.screens.timeline.at.follows());
        }
        assert_eq!(desk.screens.timeline.at.span_ns(), span);
        let window = desk.screens.timeline.at.window(104);
        let (_, region) = desk.screens.timeline.at.region().unwrap();
        assert!(window.column(region.start).is_some(), "{window:?} {region:?}");
    }
    // Nothing is newer than now, so a wider part still ends at the present.
    let mut desk = timeline();
    desk.wheel(false, at(&desk, 70));
    assert!(desk.screens.timeline.at.follows());
    // Over the names of the threads, the wheel scrolls.
    let span = desk.screens.timeline.at.span_ns();
    desk.wheel(false, at(&desk, 3));
    assert_eq!((desk.screens.timeline.at.span_ns(), desk.cursor().0), (span, 3));
}

#[test]
fn a_drag_moves_the_time_with_the_mouse() {
    let mut desk = timeline();
    let newest = desk.screens.timeline.at.picture().unwrap().taken;
    let right = |desk: &Desk| {
        desk.screens.timeline.at.window(1).from + desk.screens.timeline.at.window(1).ticks
    };
    let taken = moment_at(&desk, 60);
    desk.click(at(&desk, 60));
    for x in [61, 90, 119, 30, 75] {
        let (to, now) = (at(&desk, x), desk.now);
        assert!(desk.mouse(MouseEventKind::Drag(MouseButton::Left), to, now));
        // Nothing is newer than now, so the time does not follow the mouse to the left of column
        // 60.
        match x < 60 {
            true => assert_eq!(right(&desk), newest),
            false => assert_eq!(moment_at(&desk, x), taken, "{x}"),
        }
        assert!(!desk.screens.timeline.at.follows());
    }
    // Whatever the moments are, the part stays within the time of the process.
    for (from, to) in [(u64::MAX, 0), (0, u64::MAX)] {
        desk.drag(MouseTarget::Moment(None, from), MouseTarget::Moment(None, to));
        let window = desk.screens.timeline.at.window(104);
        assert!(right(&desk) <= newest && window.from + window.ticks <= newest, "{window:?}");
    }
    let before = right(&desk);
    assert!(!desk.drag(MouseTarget::Tab(Screen::Timeline), at(&desk, 60)));
    assert_eq!(right(&desk), before);
}
