//! Compares every screen of a made-up process, as text, with the expected text.
//!
//! After an intended change, `INSTA_UPDATE=always cargo test -p pfp-top` rewrites the files, so
//! that the difference can be reviewed.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossterm::event::KeyCode;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Position;
use ratatui::style::{Color, Modifier};

use super::*;
use crate::app::App;
use crate::app::tests::{Desk, Stage, candidate, desk};
use crate::common::{Action, MouseTarget, Options, Prompt, Screen, keys};
use crate::styles::Styles;
use pfp_read::snapshot::{ClockKind, Loss, Open, PointState, ProcessState, Snapshot, Usage};
use pfp_read::source::synthetic::{Synthetic, TICKS_PER_SECOND};
use pfp_read::source::{BadPlace, Source};
use pfp_read::units::Unit;

const SIZES: [(u16, u16); 3] = [(120, 30), (80, 24), (40, 8)];

/// The whole screen, settled and drawn as the event loop does it.
fn drawn(desk: &mut Desk, styles: Styles, size: (u16, u16)) -> Buffer {
    desk.common.styles = styles;
    drawn_at(&mut desk.app, desk.now, size)
}

fn drawn_at(app: &mut App, now: Instant, size: (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    settle(app, Rect::new(0, 0, size.0, size.1), now);
    terminal.draw(|frame| draw(frame, app)).unwrap();
    terminal.backend().buffer().clone()
}

fn text(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width);
    let mut text = String::new();
    for row in buffer.content().chunks(width) {
        let mut line = String::new();
        let mut skip = 0;
        for cell in row {
            // A wide character leaves an empty cell behind it.
            if skip == 0 {
                line.push_str(cell.symbol());
                skip = pfp_read::text::width(cell.symbol());
            }
            skip = skip.saturating_sub(1);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn screen(desk: &mut Desk, ascii: bool, size: (u16, u16)) -> String {
    text(&drawn(desk, Styles::new(true, ascii), size))
}

/// Compares with `screens/NAME-WIDTHxHEIGHT.snap`.
fn check(name: &str, found: &str, (width, height): (u16, u16)) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("screens");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(format!("{name}-{width}x{height}"), found));
}

/// Whether the expected files are to be rewritten.
fn is_renewed() -> bool {
    std::env::var_os("INSTA_UPDATE").is_some_and(|how| how == "always")
}

#[track_caller]
fn check_all(name: &str, desk: &mut Desk) {
    for size in SIZES {
        check(name, &screen(desk, false, size), size);
    }
}

/// The words of the line that begins with `first`.
fn words<'a>(text: &'a str, first: &str) -> Vec<&'a str> {
    let line = text.lines().find(|line| line.trim_start().starts_with(first));
    line.unwrap_or_else(|| panic!("{first} in {text}")).split_whitespace().collect()
}

/// A process in which one point has become slower since its baseline.
fn changed() -> Desk {
    let mut desk = desk();
    desk.wait(20);
    desk.press("b");
    desk.wait(20);
    {
        let mut process = desk.process.0.borrow_mut();
        // Half of the new measurements of io.parse took twice as long.
        let snapshot = process.snapshot_mut();
        for cell in snapshot.cells.iter_mut().filter(|cell| cell.point == 1) {
            let cell = std::sync::Arc::make_mut(cell);
            let mut longer = pfp_read::source::synthetic::bucket_of(400_000);
            longer.count = cell.stats.count / 4;
            cell.stats.count += longer.count;
            cell.stats.exclusive += longer.count * 400_000;
            let place = cell.histogram.partition_point(|bucket| bucket.low < longer.low);
            match cell.histogram.get_mut(place) {
                Some(same) if same.low == longer.low => same.count += longer.count,
                _ => cell.histogram.insert(place, longer),
            }
        }
    }
    desk.wait(1);
    desk.press("5");
    desk
}

#[test]
fn the_table() {
    let mut desk = desk();
    desk.made().usage = Some(Usage { cpu_ns: 0, memory_bytes: 14_876_672, threads: 5, cpus: 2 });
    desk.wait(20);
    check_all("points", &mut desk);
}

#[test]
fn the_table_in_ascii() {
    let text = screen(&mut desk(), true, (120, 30));
    assert!(text.is_ascii());
    check("points-ascii", &text, (120, 30));
}

/// The table in docs/keys.md has every action with its keys.
#[test]
fn the_page_of_keys_has_every_action() {
    let screens = crate::screens::Screens::default();
    let mut rows: Vec<([String; 3], Vec<&str>)> = Vec::new();
    for screen in Screen::ALL {
        for binding in keys::bindings(screens.get(screen).keys()) {
            let names: Vec<String> =
                binding.keys.iter().map(|key| format!("`{}`", key.name())).collect();
            let what =
                [format!("`{}`", binding.action.word()), names.join(" "), binding.help.into()];
            let name = screen.tab().map_or("Chooser", |tab| Screen::TABS[tab].name);
            match rows.iter_mut().find(|(row, _)| *row == what) {
                Some((_, names)) if names.last() == Some(&name) => {}
                Some((_, names)) => names.push(name),
                None => rows.push((what, vec![name])),
            }
        }
    }
    let table: String = rows
        .iter()
        .map(|([action, keys, help], names)| {
            let names = if names.len() < 5 { names.join(", ") } else { "most".into() };
            format!("| {action} | {} | {names} | {help} |\n", keys.replace('|', "\\|"))
        })
        .collect();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/keys.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let begin = page.find("|---|---|---|---|\n").unwrap() + "|---|---|---|---|\n".len();
    let end = page.find("\n## Colours").unwrap();
    if is_renewed() {
        let page = format!("{}{table}{}", &page[..begin], &page[end..]);
        std::fs::write(&path, page).unwrap();
    } else {
        assert!(page[begin..end] == table, "docs/keys.md is not what the keys are:\n{table}");
    }
}

#[test]
fn the_help() {
    let mut desk = desk();
    desk.press("?");
    check_all("help", &mut desk);
    desk.press("G");
    assert!(screen(&mut desk, false, (120, 30)).contains("\n Mouse        a click selects a row"));
    desk.common.options.mouse = false;
    assert!(!screen(&mut desk, false, (120, 30)).contains(" Mouse "));
}

#[test]
fn problems_are_shown_in_words() {
    let mut desk = desk();
    {
        let mut snapshot = desk.made();
        snapshot.clock.kind = ClockKind::Wall;
        snapshot.points[2].state = PointState::InvalidBeginBegin;
        snapshot.losses[Loss::BeginsRefused] = 12;
        snapshot.losses[Loss::MismatchedEnds] = 3;
    }
    desk.wait(1);
    desk.made().process.state = ProcessState::Crashed;
    desk.wait(1);
    check_all("trouble", &mut desk);
}

#[test]
fn the_question_before_a_file_is_replaced() {
    let mut desk = desk();
    desk.press("w");
    if let Some(Overlay::Typed(prompt)) = desk.overlay.take() {
        desk.overlay = Some(Overlay::Replace(Prompt::new(prompt.asked, "a.json")));
    }
    let text = screen(&mut desk, false, (80, 24));
    assert!(text.ends_with(" a.json exists.  y replace it  n another name\n"), "{text}");
}

#[test]
fn a_filter_is_said_with_how_many_rows_it_shows() {
    let mut desk = desk();
    desk.press("/io.");
    for size in SIZES {
        let text = screen(&mut desk, false, size);
        assert!(text.lines().next().unwrap().contains("filter io. 3/9"), "{text}");
        assert!(text.lines().last().unwrap().starts_with(" filter: io."), "{text}");
    }
    desk.made().process.name = "a_quite_long_name_of_one".into();
    desk.wait(1);
    let text = screen(&mut desk, false, (40, 8));
    let first = text.lines().next().unwrap();
    assert!(first.starts_with(" a_quite") && first.contains("filter io. 3/9"), "{text}");
    assert!(first.ends_with("LIVE"), "{text}");
    desk.press("zzz");
    assert!(screen(&mut desk, false, (80, 24)).contains("no point passes the filter"));
    desk.press("\x1b//io(");
    for size in SIZES {
        let text = screen(&mut desk, false, size);
        let last = text.lines().last().unwrap();
        assert!(last.contains("/io(") && last.contains("open group"), "{text}");
    }
}

#[test]
fn the_question_before_many_points_change() {
    let mut desk = desk();
    desk.press("E");
    let text = screen(&mut desk, false, (40, 8));
    assert!(text.ends_with(" switch off 8 points?  y yes  n no\n"), "{text}");
}

#[test]
fn the_question_about_a_program_that_still_runs() {
    let mut desk = desk();
    desk.overlay = Some(Overlay::Leave("sim [4711]".into()));
    for (size, said) in [
        ((80, 24), " sim [4711] still runs.  l leave it running  e end it  Esc keep watching\n"),
        ((40, 8), " sim [47… l leave it running  e end it\n"),
    ] {
        let text = screen(&mut desk, false, size);
        assert!(text.ends_with(said), "{text}");
    }
}

#[test]
fn the_mouse_hits_the_drawn_object() {
    let mut desk = desk();
    for (width, height) in SIZES {
        let text = screen(&mut desk, false, (width, height));
        let area = Rect::new(0, 0, width, height);
        let at = |x, y| hit(&desk.app, area, (x, y).into());
        let heading = text.lines().position(|line| line.contains('▼')).unwrap();
        let load = text.lines().nth(heading).unwrap().chars().position(|c| c == '▼').unwrap();
        assert_eq!(at(load as u16, heading as u16), MouseTarget::Heading("load"));
        assert_eq!(at(1, heading as u16), MouseTarget::Heading("on"));
        for (place, id) in desk.common.order.iter().enumerate().take(4) {
            let name = desk.point(*id).name();
            let mut lines = text.lines().enumerate().skip(heading);
            let line = lines.find(|(_, line)| line.contains(&name[..7])).unwrap().0 as u16;
            assert_eq!(at(5, line), MouseTarget::Row(place));
            assert_eq!(at(1, line), MouseTarget::Mark(place));
        }
        assert_eq!(at(5, 0), MouseTarget::Nothing);
        assert_eq!(at(2, height - 1), MouseTarget::Key(Action::Pause));
        let last = text.lines().last().unwrap();
        let help = last.find("? help").unwrap() as u16;
        assert_eq!(at(help + 3, height - 1), MouseTarget::Key(Action::Help), "{last}");
        assert_eq!(at(width - 1, height - 1), MouseTarget::Nothing);
        if let Some(tabs) = text.lines().position(|line| line.contains("[1 Points]")) {
            let line = text.lines().nth(tabs).unwrap();
            let threads = line.find("Threads").unwrap() as u16;
            assert_eq!(at(threads, tabs as u16), MouseTarget::Tab(Screen::Threads));
            assert_eq!(at(width - 1, tabs as u16), MouseTarget::Nothing);
        }
    }
    let last = hit(&desk.app, Rect::new(0, 0, 80, 24), (5, 20).into());
    assert_eq!(last, MouseTarget::Nothing);
}

#[test]
fn the_columns_to_choose_from() {
    let mut desk = desk();
    desk.press("cG ");
    check_all("columns", &mut desk);
    desk.press("\x1b");
    let text = screen(&mut desk, false, (130, 30));
    assert!(text.lines().nth(2).unwrap().trim_end().ends_with("Off%   /Item"), "{text}");
}

#[test]
fn waiting_and_picking() {
    let (stage, now) = (Stage::default(), Instant::now());
    let mut app = App::new(Options::default(), Box::new(stage.clone()), now);
    stage.0.borrow_mut().stale = 1;
    stage.0.borrow_mut().searched.push("/run/user/1000/pfp".into());
    app.poll(now);
    for size in SIZES {
        let text = text(&drawn_at(&mut app, now, size));
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for said in [
            "no instrumented process for uid",
            "1 stale segment (`pfp-top gc`)",
            "looked in /run/user/1000/pfp",
            "q quits",
        ] {
            assert!(flat.contains(said), "{text}");
        }
    }
    stage.0.borrow_mut().candidates = (1..=12).map(candidate).collect();
    app.poll(now + Duration::from_secs(1));
    for size in SIZES {
        check("picker", &text(&drawn_at(&mut app, now, size)), size);
    }
}

#[test]
fn hostile_names_stay_in_their_column() {
    let mut desk = desk();
    desk.made().points[1].name =
        pfp_read::text::clean("\x1b[2J解析解析解析解析解析解析解析解析解析\u{202e}\r\n")
            .into_owned();
    desk.wait(1);
    for size in SIZES {
        let text = screen(&mut desk, false, size);
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
        let row = text.lines().find(|line| line.contains('解')).unwrap();
        assert!(pfp_read::text::width(row) <= usize::from(size.0), "{row}");
    }
}

#[test]
fn the_cursor_is_seen_without_colour() {
    let mut desk = desk();
    let buffer = drawn(&mut desk, Styles::new(false, false), (80, 24));
    assert!(buffer.content().iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    let row = usize::from(3_u16 + desk.cursor().0 as u16);
    let cells = &buffer.content()[row * 80..row * 80 + 60];
    assert!(cells.iter().all(|cell| cell.modifier.contains(Modifier::REVERSED)));
    assert_eq!(cells[0].symbol(), ">");
}

/// The underlined texts of the row of a point.
fn underlined(desk: &mut Desk, size: (u16, u16), id: u32) -> Vec<String> {
    let buffer = drawn(desk, Styles::new(false, false), size);
    let place = desk.common.order.iter().position(|it| *it == id).unwrap();
    let heading = text(&buffer).lines().position(|line| line.contains(" Name")).unwrap();
    underlined_in(&buffer, heading + 1 + place)
}

/// The underlined texts of a row of the screen.
fn underlined_in(buffer: &Buffer, row: usize) -> Vec<String> {
    let width = usize::from(buffer.area.width);
    let cells: Vec<_> = buffer.content()[row * width..][..width].iter().collect();
    let is_found = |cell: &&ratatui::buffer::Cell| cell.modifier.contains(Modifier::UNDERLINED);
    let runs = cells.chunk_by(|a, b| is_found(a) == is_found(b)).filter(|run| is_found(&run[0]));
    runs.map(|run| run.iter().map(|cell| cell.symbol()).collect()).collect()
}

#[test]
fn the_parts_of_names_that_the_filter_finds_are_underlined() {
    let mut desk = desk();
    desk.made().points[1].name = "äh::io.collections::btree::map::insert_recursing".into();
    desk.wait(1);
    assert!(underlined(&mut desk, (80, 24), 1).is_empty());
    desk.press("/io e load>0 file:rs");
    assert_eq!(underlined(&mut desk, (120, 30), 2), ["io", "e"]);
    desk.press("\n");
    for selected in [2, 3] {
        desk.common.selected = Some(selected);
        assert_eq!(underlined(&mut desk, (120, 30), 2), ["io", "e"]);
    }
    // If a name does not fit, its visible parts are underlined.
    assert_eq!(underlined(&mut desk, (80, 24), 1), ["io", "e"]);
    desk.press("l");
    assert_eq!(underlined(&mut desk, (80, 24), 1), ["e", "io"]);
    desk.press("h");
    // The process to the left of a name and the words to its right are not underlined.
    desk.common.filter = pfp_model::filter::Filter::new("io e").unwrap();
    {
        let mut snapshot = desk.made();
        snapshot.points[2].state = PointState::InvalidBeginBegin;
        let process = |pid| pfp_read::snapshot::Process { pid, ..Default::default() };
        snapshot.process.members = vec![process(4711), process(4712)];
        for point in &mut snapshot.points {
            point.process = Some(0);
        }
    }
    desk.wait(1);
    for (width, parts) in [(40, &["io"][..]), (80, &["io", "e"]), (120, &["io", "e"])] {
        let found = underlined(&mut desk, (width, 30), 2);
        assert_eq!(found, parts, "{}", screen(&mut desk, false, (width, 30)));
    }
}

#[test]
fn columns_keep_their_places_while_figures_change() {
    let mut desk = desk();
    let shape = |text: &str| {
        let heading = text.lines().nth(2).unwrap();
        // The load of a full bar may change, but not its position in the heading.
        heading.replace(|c: char| c.is_ascii_digit() || matches!(c, '▼' | '▲'), " ")
    };
    let before = shape(&screen(&mut desk, false, (120, 30)));
    for _ in 0..30 {
        desk.wait(1);
        let text = screen(&mut desk, false, (120, 30));
        assert_eq!(shape(&text), before);
        assert!(
            text.lines().skip(3).take(7).all(|line| pfp_read::text::width(line) == 120),
            "{text}"
        );
    }
}

#[test]
fn the_rows_of_every_list_can_be_clicked() {
    let mut desk = changed();
    let area = Rect::new(0, 0, 120, 30);
    for (keys, name) in [("5", "io.parse"), ("3", "reader"), ("1", "io.read")] {
        desk.press(keys);
        let text = screen(&mut desk, false, (120, 30));
        let line = text.lines().position(|line| line.contains(name)).unwrap() as u16;
        let MouseTarget::Row(place) = hit(&desk.app, area, (6, line).into()) else {
            panic!("no row of {name} in {text}")
        };
        desk.walk_to(place);
        let text = screen(&mut desk, false, (120, 30));
        assert!(text.lines().nth(line.into()).unwrap().starts_with('>'), "{text}");
    }
}

/// A wide screen shows the selected point beside the table, if the table loses no column by that.
#[test]
fn the_point_beside_the_table() {
    let mut desk = desk();
    let wide = (200, 30);
    let shown = screen(&mut desk, false, wide);
    check("points", &shown, wide);
    assert!(screen(&mut desk, true, wide).is_ascii());
    let is_beside = |desk: &mut Desk| screen(desk, false, wide).contains("Exclusive, all");
    assert!(is_beside(&mut desk));
    desk.press("?");
    assert!(!is_beside(&mut desk));
    desk.press("\x1bc");
    for _ in 0..40 {
        desk.press("j ");
    }
    desk.press("\n");
    assert!(!is_beside(&mut desk), "{}", screen(&mut desk, false, wide));
}

#[test]
fn the_columns_to_sort_by() {
    let mut desk = desk();
    desk.press("s");
    check_all("sort", &mut desk);
    assert!(screen(&mut desk, true, (120, 30)).is_ascii());
}

#[test]
fn the_actions_that_match_words() {
    let mut desk = desk();
    desk.press(":sort");
    check_all("palette", &mut desk);
    assert!(screen(&mut desk, true, (120, 30)).is_ascii());
}

#[test]
fn names_that_do_not_fit_keep_their_end_and_scroll() {
    let mut desk = desk();
    desk.made().points[1].name =
        "alloc::collections::btree::map::BTreeMap<K, V>::insert_recursing".into();
    desk.wait(1);
    let row = |desk: &mut Desk| {
        let text = screen(desk, false, (80, 24));
        text.lines().nth(3).unwrap().to_owned()
    };
    let first = row(&mut desk);
    assert!(first.contains("●  alloc::c…ecursing "), "{first}");
    desk.code(KeyCode::Right);
    let right = row(&mut desk);
    assert!(right.contains("●  …ollections::btr… "), "{right}");
    (0..20).for_each(|_| desk.press("l"));
    let end = row(&mut desk);
    assert!(end.contains("●  …insert_recursing "), "{end}");
    (0..20).for_each(|_| desk.press("h"));
    assert_eq!(row(&mut desk), first);
}

#[test]
fn an_ended_process_has_a_load_over_its_life_and_no_rates() {
    let mut desk = desk();
    desk.wait(20);
    desk.made().process.state = ProcessState::Crashed;
    desk.wait(3);
    let text = screen(&mut desk, false, (120, 30));
    assert!(text.contains("averages over its lifetime"), "{text}");
    let row = text.lines().find(|line| line.contains("io.read")).unwrap();
    let cells: Vec<&str> = row.split_whitespace().collect();
    let place = cells.iter().position(|cell| *cell == "io.read").unwrap();
    let (figures, snapshot) = (desk.point(2), desk.common.model.snapshot());
    let life = figures.total().exclusive as f64 / snapshot.unwrap().elapsed_ticks as f64;
    assert_eq!(cells[place + 1], pfp_read::units::percent(life), "{row}");
    assert!(cells.contains(&"-"), "no rate in {row}");
    let buffer = drawn(&mut desk, Styles::new(true, false), (120, 30));
    let row = text.lines().position(|line| line.contains("io.read")).unwrap();
    assert!(buffer[(5, row as u16)].modifier.contains(Modifier::DIM));
    desk.press("3");
    let threads = screen(&mut desk, false, (120, 30));
    assert!(!threads.contains(" live ") && threads.contains("crashed"), "{threads}");
    // Ended threads have no rates and are dim. They are also in the detail of a point.
    let mut row = words(&threads, "reader");
    // A bar has no heading.
    row.retain(|it| *it != "▏");
    let heading = words(&threads, "Thread");
    let cell = |title: &str| row[heading.iter().position(|it| *it == title).unwrap()];
    assert_eq!([cell("CPU%"), cell("Outside%"), cell("Switch/s")], ["-"; 3], "{threads}");
    let buffer = drawn(&mut desk, Styles::new(true, false), (120, 30));
    let row = threads.lines().position(|line| line.contains("  reader")).unwrap();
    assert!(buffer[(5, row as u16)].modifier.contains(Modifier::DIM));
    desk.press("2");
    let detail = screen(&mut desk, false, (120, 44));
    assert!(detail.contains("crashed") && !detail.contains(" live "), "{detail}");
    // Keys without an effect are not offered.
    let last = detail.lines().last().unwrap();
    assert!(
        !last.contains("pause") && !last.contains("on/off") && last.contains("w save"),
        "{last}"
    );
}

#[test]
fn all_rows_share_one_scale() {
    let mut desk = desk();
    desk.wait(20);
    let text = screen(&mut desk, false, (120, 30));
    let bar = |name: &str| {
        let line = text.lines().find(|line| line.contains(name) && line.contains('●')).unwrap();
        line.chars().filter(|c| *c == '█').count()
    };
    // `lz.compress` has a load of 49 %, and `io.read` of 9 %.
    let (most, less) = (bar("lz.compress"), bar("io.read"));
    assert!(most >= 3 && less * 4 <= most, "{text}");
}

/// Times of day depend on where the test runs.
fn without_times(text: &str) -> String {
    let mut text = text.to_owned();
    while let Some(place) = text
        .match_indices("baseline ")
        .map(|(at, word)| at + word.len())
        .find(|&at| text[at..].starts_with(|c: char| c.is_ascii_digit()) && text.len() >= at + 8)
    {
        text.replace_range(place..place + 8, "HH:MM:SS");
    }
    text
}

mod detail;
mod diff;
mod load;
mod log;
mod roofline;
mod sizes;
mod timeline;
mod tree;
mod waits;
mod way_out;

/// A process that is watched at several places, some of which are unreachable.
struct Far(Synthetic, Rc<RefCell<Vec<BadPlace>>>);

impl Source for Far {
    fn picture(&mut self) -> anyhow::Result<Snapshot> {
        self.0.poll()
    }

    fn bad_places(&self) -> Vec<BadPlace> {
        self.1.borrow().clone()
    }
}

#[test]
fn bad_places_are_named_with_their_age_and_reason() {
    let bad = |name: &str, seconds: u64, why: Option<&str>| BadPlace {
        name: name.into(),
        age: Duration::from_secs(seconds),
        why: why.map(str::to_owned),
    };
    let (mut desk, places) = (desk(), Rc::default());
    desk.app.watch(Box::new(Far(Synthetic::new(), Rc::clone(&places))), desk.now);
    desk.wait(1);
    let line = |text: &str, words: &str| text.lines().position(|line| line.contains(words));
    let text = screen(&mut desk, false, (120, 30));
    assert!(line(&text, "places").is_none(), "{text}");

    let reason = "no route to host, and then a long story about the network of the house";
    *places.borrow_mut() = vec![bad("node2", 200, Some(reason)), bad("node3", 150, None)];
    desk.wait(1);
    let text = screen(&mut desk, false, (120, 30));
    let (said, head) = ("node2 DOWN 3 min (no route to host, and then", line(&text, " Name"));
    assert!(line(&text, said).is_some() && line(&text, "node3 LATE 2 min").is_some(), "{text}");
    let narrow = screen(&mut desk, false, (50, 30));
    assert!(narrow.contains("node2 DOWN 3 min, node3 LATE 2 min"), "{narrow}");

    // No line moves when the places are reachable again.
    places.borrow_mut().clear();
    desk.wait(1);
    let text = screen(&mut desk, false, (120, 30));
    assert!(text.contains(" all places answer"), "{text}");
    assert_eq!(line(&text, " Name"), head);
}
