//! Tests of the call tree, as text.

use super::*;
use pfp_read::waits::{SampledStack, WaitsReport};
use ratatui::layout::Position;

/// A desk that shows the call tree of the made-up process, after these keys.
fn tree(keys: &str) -> Desk {
    let mut desk = desk();
    desk.press("t");
    desk.press(keys);
    desk
}

fn shown(desk: &mut Desk) -> Vec<String> {
    screen(desk, false, (120, 30)).lines().map(str::to_owned).collect()
}

/// The line with the cursor, from the mark on.
fn under_cursor(desk: &mut Desk) -> String {
    let lines = shown(desk);
    let found: Vec<_> = lines.iter().filter_map(|line| line.split_once(" >")).collect();
    assert_eq!(found.len(), 1, "{lines:#?}");
    found[0].1.trim().to_owned()
}

#[test]
fn the_tree() {
    check_all("tree", &mut tree(""));
}

#[test]
fn the_tree_as_a_flame_graph() {
    check_all("flame", &mut tree("f"));
}

/// `v` goes from CPU time to samples, to bytes if some were counted, and back.
#[test]
fn the_tree_of_allocated_bytes() {
    let mut desk = tree("v");
    assert!(shown(&mut desk)[1].contains(" samples, "));
    desk.press("v");
    assert!(shown(&mut desk)[1].starts_with(" CPU time since"), "nothing was counted");
    let mut process = desk.process.0.borrow_mut();
    let counted = process.snapshot_mut().cells.iter_mut().filter(|cell| cell.point == 3);
    for cell in counted {
        let allocs = &mut Arc::make_mut(cell).allocs;
        (allocs.allocs, allocs.bytes, allocs.bytes_inclusive) = (6, 3_000, 3_000);
    }
    drop(process);
    desk.wait(1);
    desk.press("vv");
    let lines = shown(&mut desk);
    assert!(lines[1].starts_with(" allocated bytes since the start, "), "{lines:#?}");
    let heading = "Total% Self% Alloc B Self B Allocs Name";
    let flat =
        |line: &String| line.replace('▼', " ").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(lines.iter().any(|line| flat(line) == heading), "{lines:#?}");
    let has_bytes = |line: &String| flat(line).contains(" 6.00k 6.00k 12 io.crc");
    assert!(lines.iter().any(has_bytes), "{lines:#?}");
    desk.press("v");
    assert!(shown(&mut desk)[1].starts_with(" CPU time since"));
}

#[test]
fn the_tree_of_callers() {
    let mut desk = tree("i*");
    check("tree-callers", &screen(&mut desk, true, (120, 30)), (120, 30));
}

#[test]
fn bars_are_distinguishable_without_colours() {
    let mut desk = tree("f");
    let drawn = drawn(&mut desk, Styles::new(false, false), (80, 24));
    let marked = |x: u16, y: u16| !drawn[(x, y)].modifier.is_empty();
    assert!(marked(0, 3) && marked(0, 4), "bars are marked");
    assert_ne!(drawn[(0, 3)].modifier, drawn[(0, 4)].modifier, "the cursor is another");
}

#[test]
fn lines_fold_and_unfold() {
    let mut desk = tree("");
    let all = shown(&mut desk).len();
    let root = under_cursor(&mut desk);
    assert!(root.starts_with('▾'), "{root}");
    desk.press("h");
    assert!(under_cursor(&mut desk).starts_with('▸'));
    let folded = shown(&mut desk);
    desk.press("l");
    assert_eq!(under_cursor(&mut desk), root);
    assert_ne!(shown(&mut desk), folded);
    assert_eq!(shown(&mut desk).len(), all);
    // Right on an unfolded line goes to its first child, Left goes back.
    desk.press("l");
    assert_ne!(under_cursor(&mut desk), root);
    desk.press("hh");
    assert_eq!(under_cursor(&mut desk).trim_start_matches(['▸', '▾']), &root[3..]);
}

#[test]
fn a_line_opens_its_point_and_esc_comes_back() {
    let mut desk = tree("j");
    let name = under_cursor(&mut desk).trim_start_matches(['▸', '▾', ' ']).to_owned();
    desk.press("\n");
    assert!(shown(&mut desk)[1].contains(&name), "{name}: {:?}", shown(&mut desk)[1]);
    desk.press("\x1b");
    assert!(under_cursor(&mut desk).ends_with(&name));
}

#[test]
fn zooming_shows_a_part_of_the_tree() {
    for keys in ["", "f"] {
        let mut desk = tree(keys);
        let whole = shown(&mut desk);
        desk.press("jz");
        let zoomed = shown(&mut desk);
        assert!(
            zoomed[1].contains("; only ") && zoomed[1].contains("Esc shows all"),
            "{zoomed:#?}"
        );
        assert_ne!(zoomed[4], whole[4]);
        desk.press("\x1b");
        assert!(!shown(&mut desk)[1].contains("; only "));
        assert_eq!(shown(&mut desk).last().unwrap(), whole.last().unwrap(), "the tree is shown");
    }
}

#[test]
fn windows_of_the_tree_show_their_measurements() {
    let mut desk = tree("H");
    desk.wait(1);
    assert!(shown(&mut desk)[1].starts_with(" CPU time of the last "), "{:?}", shown(&mut desk)[1]);
    desk.press("m");
    assert!(shown(&mut desk)[3].starts_with(" nothing was measured in this window"));
    desk.wait(2);
    let lines = shown(&mut desk);
    assert!(lines[1].starts_with(" CPU time since the mark, "), "{}", lines[1]);
    assert!(lines[3].contains("100.0") || lines[3].contains('%') || lines[3].contains('▾'));
    desk.press("H");
    assert!(shown(&mut desk)[1].starts_with(" CPU time since the start"));
}

#[test]
fn samples_show_open_stacks() {
    let mut desk = tree("v");
    assert!(shown(&mut desk)[3].starts_with(" no region was open"), "{:#?}", shown(&mut desk));
    {
        let mut process = desk.process.0.borrow_mut();
        let open = Open { point: 1, ..Open::default() };
        process.snapshot_mut().lanes[0].open = vec![open, Open { point: 2, ..open }];
    }
    desk.wait(2);
    let lines = shown(&mut desk);
    assert!(lines[1].starts_with(" where threads are (running or waiting): "), "{}", lines[1]);
    assert!(
        lines[3].starts_with("  100.0    0.0") && lines[3].contains("io.parse"),
        "{}",
        lines[3]
    );
    assert!(lines[4].starts_with("  100.0  100.0") && lines[4].contains("io.read"), "{}", lines[4]);
    // Stacks that were sampled with their reasons count once, however often the screen is drawn.
    let stack =
        SampledStack { lane: 0, points: vec![1], reason: Some("lock JOBS".into()), count: 40 };
    let report = WaitsReport { stacks: Some(vec![stack]), ..WaitsReport::default() };
    desk.made().waits = Some(Arc::new(report));
    desk.wait(3);
    let lines = shown(&mut desk);
    let jobs = lines.iter().find(|line| line.contains("[lock JOBS]"));
    assert!(jobs.is_some_and(|line| line.contains(" 40 ")), "{lines:#?}");
}

#[test]
fn shares_of_the_baseline_stand_beside_those_of_now() {
    let mut desk = tree("");
    assert!(!shown(&mut desk)[2].contains("Was%"));
    let figures = |line: &str| -> Vec<String> {
        line.split_whitespace().take(3).map(str::to_owned).collect()
    };
    let before = figures(&shown(&mut desk)[3]);
    desk.press("b");
    desk.wait(10);
    let lines = shown(&mut desk);
    assert!(lines[2].contains("Was%"), "{}", lines[2]);
    assert!(lines[1].starts_with(" CPU time since the mark, "), "of the same window: {}", lines[1]);
    let now = figures(&lines[3]);
    assert_eq!(now[2], before[0], "the share that it had: {}", lines[3]);
    assert_ne!(now[0], before[0], "the share that it has: {}", lines[3]);
}

#[test]
fn each_level_is_sorted_by_any_column_and_columns_can_be_left_out() {
    let mut desk = tree(">>>>");
    let names = |desk: &mut Desk| -> Vec<String> {
        let lines = shown(desk).into_iter().skip(3).take(7);
        lines.map(|line| line.split_whitespace().last().unwrap().to_owned()).collect()
    };
    assert!(shown(&mut desk)[2].contains("Calls▼"), "{}", shown(&mut desk)[2]);
    let by_calls = ["io.parse", "io.crc", "io.read", "lz.compress"];
    assert_eq!(names(&mut desk)[..4], by_calls);
    desk.press("I");
    assert_eq!(names(&mut desk)[0], "sort.recursive");
    // The bar is the third column in the menu.
    desk.press("cggjj \x1b");
    assert!(!shown(&mut desk)[3].contains('█'), "{}", shown(&mut desk)[3]);
}

#[test]
fn a_click_finds_a_bar() {
    let mut desk = tree("f");
    let lines = shown(&mut desk);
    let last = lines[5..].iter().take_while(|line| !line.trim().is_empty()).count() + 4;
    let at = Position { x: 0, y: last as u16 };
    let (app, area) = (&desk.app, Rect::new(0, 0, 120, 30));
    let target = crate::view::hit(app, area, at);
    desk.click(target);
    let said = shown(&mut desk)[2].clone();
    let name = lines[last].split(['…', ' ']).next().unwrap();
    assert!(said.starts_with(&format!(" {name}")), "{said}: {}", lines[last]);
}
