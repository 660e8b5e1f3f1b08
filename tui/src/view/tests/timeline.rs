//! Tests of the threads and the timeline, as text.

use super::*;
use crate::app::tests::timeline::records;
use pfp_read::snapshot::Process;

fn with_records(keys: &str) -> Desk {
    let mut desk = desk();
    records(&mut desk);
    for key in keys.chars() {
        desk.code(if key == '\n' { KeyCode::Enter } else { KeyCode::Char(key) });
    }
    desk
}

#[test]
fn the_timeline() {
    check_all("timeline", &mut with_records("4"));
}

#[test]
fn the_timeline_held_in_ascii() {
    let mut desk = with_records("4-jh");
    let text = screen(&mut desk, true, (120, 30));
    assert!(text.is_ascii());
    check("timeline-ascii", &text, (120, 30));
}

#[test]
fn now_is_at_the_right_also_of_a_process_younger_than_the_time_looked_at() {
    let mut desk = with_records("4");
    for key in ["", "-", "+"] {
        desk.press(&key.repeat(40));
        let text = screen(&mut desk, false, (120, 30));
        let axis = text.lines().nth(1).unwrap_or_default();
        // The cursor may cover the last mark.
        let is_at_right =
            axis.rsplit_once("now").is_some_and(|(_, mark)| mark.chars().count() == 1);
        assert!(is_at_right && pfp_read::text::width(axis) == 120, "{key:?}: {axis}");
    }
}

#[test]
fn a_latched_region_says_that_it_has_earlier_parts() {
    let mut desk = with_records("");
    desk.made().records.last_mut().unwrap().exclusive *= 3;
    desk.press("4jj");
    for (key, latched) in [('l', true), ('h', false)] {
        desk.press(&key.to_string());
        let text = screen(&mut desk, false, (120, 30));
        let about = text.lines().find(|line| line.contains(" exclusive")).unwrap();
        assert_eq!(about.contains(" exclusive (latched, with earlier parts)"), latched, "{about}");
    }
}

#[test]
fn threads_of_one_name_have_their_numbers() {
    let mut desk = with_records("");
    {
        let mut process = desk.process.0.borrow_mut();
        let lanes = &mut process.snapshot_mut().lanes;
        lanes[0].tid = 71;
        lanes[1].name = lanes[0].name.clone();
        lanes[1].tid = 72;
    }
    desk.press("4");
    let text = screen(&mut desk, false, (120, 30));
    let line = |at: usize| text.lines().nth(at).unwrap_or_default();
    assert!(line(2).starts_with(" main [71]") && line(3).starts_with(">main [72] "), "{text}");
    assert!(text.contains(" ago on main [72]"), "{text}");
}

#[test]
fn a_region_whose_point_is_off_says_so() {
    let mut desk = with_records("4");
    assert!(screen(&mut desk, false, (80, 24)).contains(" io.parse  50.0ms long"));
    desk.press("e");
    desk.common.toast = None;
    assert!(screen(&mut desk, false, (80, 24)).contains(" io.parse (off now)  50.0ms long"));
}

#[test]
fn the_threads() {
    let mut desk = with_records("3");
    desk.made().usage = Some(Usage { cpu_ns: 0, memory_bytes: 14_876_672, threads: 5, cpus: 2 });
    desk.wait(20);
    check_all("threads", &mut desk);
    check_all("thread", &mut with_records("3jd"));
    check("thread-points", &screen(&mut with_records("3j\n"), false, (80, 24)), (80, 24));
}

#[test]
fn a_point_has_the_same_colour_everywhere_and_the_cursor_its_own() {
    let mut desk = with_records("4jjj");
    let styles = Styles::new(true, false);
    let buffer = drawn(&mut desk, styles, (120, 30));
    let colours = |y: u16, name: char| -> Vec<Color> {
        let cells = (16..120).map(|x| &buffer[(x, y)]);
        cells.filter(|cell| cell.symbol() == name.to_string()).map(|cell| cell.bg).collect()
    };
    let selected = styles.theme.selected.bg.unwrap();
    // The last line has lz.compress twice, once under the cursor.
    let found = colours(5, 'z');
    assert_eq!(found, [styles.theme.point("lz.compress").unwrap(), selected], "{}", text(&buffer));
    // A region off the CPU has no background: it is drawn sparsely.
    assert!(colours(5, 'w').iter().all(|color| *color == Color::Reset));

    let mono = drawn(&mut desk, Styles::new(false, false), (120, 30));
    let is_plain =
        |cell: &ratatui::buffer::Cell| cell.fg == Color::Reset && cell.bg == Color::Reset;
    assert!(mono.content().iter().all(is_plain));
    let line = text(&mono).lines().nth(5).unwrap().to_owned();
    assert!(line.starts_with(">packer") && line[1..].contains('>'), "{line}");
}

#[test]
fn the_parts_of_names_that_the_search_finds_are_underlined() {
    for (keys, lines) in [
        // Not even the letters of net.wait, which hardly ran, are underlined without a search.
        ("4", [vec![], vec![], vec![], vec![]]),
        // The names of io.parse end with an ellipsis, or have only initials.
        ("4/io.p\n", [vec![], vec!["io.p"; 7], vec![], vec![]]),
        ("4/o\n", [vec![], vec!["o"; 7], vec!["o"; 7], vec!["o"]]),
    ] {
        let mut desk = with_records(keys);
        for styles in [Styles::new(false, false), Styles::new(true, true)] {
            let buffer = drawn(&mut desk, styles, (120, 30));
            let found = [2, 3, 4, 5].map(|row| underlined_in(&buffer, row));
            assert_eq!(found, lines, "{keys:?}: {}", text(&buffer));
        }
    }
}

#[test]
fn hostile_records_and_any_size_can_be_drawn() {
    let mut desk = with_records("");
    {
        let mut snapshot = desk.made();
        let most = pfp_read::snapshot::Record {
            lane: 1,
            point: u32::MAX,
            start: u64::MAX,
            span: u64::MAX,
            exclusive: u64::MAX,
            depth: u32::MAX,
            context: u32::MAX,
        };
        let everything = pfp_read::snapshot::Record { start: 0, depth: 255, ..most };
        let nothing = pfp_read::snapshot::Record { start: 0, span: 0, context: 0, ..most };
        snapshot.records.extend([most, everything, nothing]);
        snapshot.lanes[2].records_written = u64::MAX;
    }
    for keys in
        ["3", "d", "4", "jjj", "hhh", "++++++++++++++++++++", "----------------------------"]
    {
        desk.press(keys);
        for width in [1, 2, 3, 8, 9, 24, 40, 79, 80, 200] {
            for height in [1, 2, 3, 4, 8, 30] {
                let text = screen(&mut desk, false, (width, height));
                assert!(text.lines().all(|line| pfp_read::text::width(line) <= usize::from(width)));
            }
        }
    }
}

#[test]
fn threads_of_several_processes_have_their_process_and_their_whole_name() {
    let mut desk = desk();
    {
        let mut snapshot = desk.made();
        let process = |pid| Process { name: "pfp-demo".into(), pid, ..Process::default() };
        snapshot.process.members = vec![process(4711), process(4712)];
        let members = snapshot.process.members.clone();
        for (place, lane) in snapshot.lanes.iter_mut().enumerate() {
            let process = place % 2;
            lane.process = Some(process as u32);
            lane.name = format!("{} worker {place}", members[process]);
        }
    }
    desk.wait(1);
    desk.press("3");
    let text = screen(&mut desk, false, (120, 30));
    assert_eq!(words(&text, "Process")[..2], ["Process", "Thread"], "{text}");
    for row in ["pfp-demo[4711]       worker 0 ", "pfp-demo[4712]       worker 1 "] {
        assert!(text.contains(row), "{row} in {text}");
    }
    // A point's list of threads also has the processes in front of the names.
    desk.press("1");
    desk.open(1);
    let text = screen(&mut desk, false, (120, 60));
    let row = text.lines().find(|line| line.contains("worker 0")).unwrap_or_default();
    assert!(row.starts_with(" pfp-demo[4711]       worker 0 "), "{text}");
}

#[test]
fn points_of_several_processes_have_the_process_in_the_diff_and_the_tree() {
    let mut desk = desk();
    {
        let mut snapshot = desk.made();
        let process = |pid| Process { pid, ..Process::default() };
        snapshot.process.members = vec![process(4711), process(4712)];
        for point in &mut snapshot.points {
            point.process = Some(point.id % 2);
        }
    }
    desk.wait(2);
    desk.press("b");
    desk.wait(2);
    for key in ["5", "8"] {
        desk.press(key);
        let text = screen(&mut desk, false, (120, 30));
        for row in [" 4711 lz.compress", " 4712 io.parse"] {
            assert!(text.contains(row), "{key}: {row} in {text}");
        }
    }
}
