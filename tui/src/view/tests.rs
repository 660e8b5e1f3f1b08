//! Every screen as text, on a made-up process, beside the text it should be.
//!
//! After an intended change, `PFP_UPDATE_SCREENS=1 cargo test -p pfp-top`
//! writes the files anew; the difference is then there to be read.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossterm::event::KeyCode;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};

use super::*;
use crate::app::mouse::Target;
use crate::app::tests::{Desk, Stage, candidate, desk};
use crate::app::{App, Options};
use crate::columns::Column;
use crate::snapshot::{ClockKind, PointState, ProcessState};

const SIZES: [(u16, u16); 3] = [(120, 30), (80, 24), (40, 8)];

/// The whole screen, mended and drawn as the event loop does it.
fn drawn(app: &mut App, now: Instant, look: &Look, size: (u16, u16)) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
    app.settle(room(app, look, Rect::new(0, 0, size.0, size.1)), now);
    terminal.draw(|frame| draw(frame, app, look)).unwrap();
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
                skip = crate::text::width(cell.symbol());
            }
            skip = skip.saturating_sub(1);
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn screen(desk: &mut Desk, ascii: bool, size: (u16, u16)) -> String {
    let now = desk.now;
    text(&drawn(&mut desk.app, now, &Look::new(true, ascii), size))
}

/// Compares with `screens/NAME-WIDTHxHEIGHT.txt`.
#[track_caller]
fn check(name: &str, found: &str, (width, height): (u16, u16)) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/view/screens");
    let path = folder.join(format!("{name}-{width}x{height}.txt"));
    if std::env::var_os("PFP_UPDATE_SCREENS").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "{} differs; found:\n{found}", path.display());
}

#[track_caller]
fn check_all(name: &str, desk: &mut Desk) {
    for size in SIZES {
        check(name, &screen(desk, false, size), size);
    }
}

#[test]
fn the_table() {
    check_all("points", &mut desk());
}

#[test]
fn the_table_in_ascii() {
    let text = screen(&mut desk(), true, (120, 30));
    assert!(text.is_ascii());
    check("points-ascii", &text, (120, 30));
}

#[test]
fn a_point_in_full() {
    let mut desk = desk();
    desk.wait(20);
    desk.app.selected = Some(1);
    desk.code(KeyCode::Enter);
    check_all("detail", &mut desk);
}

#[test]
fn the_help() {
    let mut desk = desk();
    desk.press("?");
    check_all("help", &mut desk);
}

#[test]
fn trouble_is_said_in_words() {
    let mut desk = desk();
    {
        let mut process = desk.process.0.borrow_mut();
        let snapshot = process.snapshot_mut();
        snapshot.clock.kind = ClockKind::Wall;
        snapshot.points[2].state = PointState::InvalidBeginBegin;
        snapshot.losses.begins_refused = 12;
        snapshot.losses.mismatched_ends = 3;
    }
    desk.wait(1);
    desk.process.0.borrow_mut().snapshot_mut().process.state = ProcessState::Crashed;
    desk.wait(1);
    check_all("trouble", &mut desk);
}

#[test]
fn the_question_before_a_file_is_replaced() {
    let mut desk = desk();
    desk.press("w");
    if let Some(Overlay::Write(prompt)) = desk.app.overlay.take() {
        desk.app.overlay = Some(Overlay::Replace(crate::app::Prompt::new(prompt.label, "a.json")));
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
    desk.process.0.borrow_mut().snapshot_mut().process.name = "a_quite_long_name_of_one".into();
    desk.wait(1);
    let text = screen(&mut desk, false, (40, 8));
    let first = text.lines().next().unwrap();
    assert!(first.starts_with(" a_quite") && first.contains("filter io. 3/9"), "{text}");
    assert!(first.ends_with("LIVE"), "{text}");
    desk.press("zzz");
    assert!(screen(&mut desk, false, (80, 24)).contains("no point passes the filter"));
    desk.code(KeyCode::Esc);
    desk.press("//io(");
    for size in SIZES {
        let text = screen(&mut desk, false, size);
        let last = text.lines().last().unwrap();
        assert!(last.contains("/io(") && last.contains("unclosed"), "{text}");
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
fn the_mouse_hits_what_is_drawn_there() {
    let mut desk = desk();
    for (width, height) in SIZES {
        let text = screen(&mut desk, false, (width, height));
        let area = Rect::new(0, 0, width, height);
        let at = |x, y| hit(&desk.app, &Look::new(true, false), area, (x, y).into());
        let heading = text.lines().nth(1).unwrap();
        let load = heading.chars().position(|c| c == '▼').unwrap() as u16;
        assert_eq!(at(load, 1), Target::Heading(Column::Load));
        assert_eq!(at(1, 1), Target::Heading(Column::On));
        for (place, id) in desk.app.order.iter().enumerate().take(4) {
            let name = desk.app.model.point(*id).unwrap().name();
            let line = text.lines().position(|line| line.contains(&name[..7])).unwrap() as u16;
            assert_eq!(at(5, line), Target::Row(place));
        }
        for nothing in [0, height - 1] {
            assert_eq!(at(5, nothing), Target::Nothing);
        }
    }
    let look = Look::new(true, false);
    let last = hit(&desk.app, &look, Rect::new(0, 0, 80, 24), (5, 20).into());
    assert_eq!(last, Target::Nothing);
}

#[test]
fn what_is_wrong_with_a_point_is_explained_in_its_detail() {
    let mut desk = desk();
    {
        let mut process = desk.process.0.borrow_mut();
        let snapshot = process.snapshot_mut();
        snapshot.points[5].state = PointState::InvalidBeginBegin;
        snapshot.lanes[1].kind = crate::snapshot::LaneKind::Overflow;
        let cell = snapshot.cells.iter_mut().find(|cell| cell.point == 4).unwrap();
        std::sync::Arc::make_mut(cell).in_flight = true;
    }
    desk.wait(1);
    check_all("anomalies", &mut desk);
    for (id, said) in [
        (5, "The key e makes it valid again."),
        (4, "died in the middle of a measurement"),
        (1, "More threads ran than the segment has lanes."),
    ] {
        desk.app.selected = Some(id);
        desk.code(KeyCode::Enter);
        for size in SIZES {
            let mut text = screen(&mut desk, false, size);
            desk.app.detail_offset = 3;
            text += &screen(&mut desk, false, size);
            desk.app.detail_offset = 0;
            let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(flat.contains(said), "{said} in {text}");
        }
        desk.code(KeyCode::Esc);
    }
}

#[test]
fn the_columns_to_choose_from() {
    let mut desk = desk();
    desk.press("cG ");
    check_all("columns", &mut desk);
    desk.code(KeyCode::Esc);
    let text = screen(&mut desk, false, (130, 30));
    assert!(text.lines().nth(1).unwrap().trim_end().ends_with("Off%   Thr"), "{text}");
}

#[test]
fn waiting_and_picking() {
    let (stage, now) = (Stage::default(), Instant::now());
    let mut app = App::new(Options::default(), Box::new(stage.clone()), now);
    stage.0.borrow_mut().stale = 1;
    stage.0.borrow_mut().searched.push("/run/user/1000/pfp".into());
    app.poll(now);
    let look = Look::new(true, false);
    for size in SIZES {
        let text = text(&drawn(&mut app, now, &look, size));
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
        check("picker", &text(&drawn(&mut app, now, &look, size)), size);
    }
}

#[test]
fn any_size_can_be_drawn() {
    let mut desk = desk();
    for keys in ["", "\n", "?"] {
        for c in keys.chars() {
            desk.code(if c == '\n' { KeyCode::Enter } else { KeyCode::Char(c) });
        }
        for width in [1, 2, 3, 9, 24, 40, 79, 80, 200] {
            for height in [1, 2, 3, 4, 8, 30] {
                screen(&mut desk, false, (width, height));
            }
        }
    }
}

#[test]
fn hostile_names_stay_in_their_column() {
    let mut desk = desk();
    desk.process.0.borrow_mut().snapshot_mut().points[1].name =
        crate::text::clean("\x1b[2J解析解析解析解析解析解析解析解析解析\u{202e}\r\n").into_owned();
    desk.wait(1);
    for size in SIZES {
        let text = screen(&mut desk, false, size);
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'));
        let row = text.lines().find(|line| line.contains('解')).unwrap();
        assert!(crate::text::width(row) <= usize::from(size.0), "{row}");
    }
}

#[test]
fn the_cursor_is_seen_without_colour() {
    let mut desk = desk();
    let now = desk.now;
    let buffer = drawn(&mut desk.app, now, &Look::new(false, false), (80, 24));
    assert!(buffer.content().iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    let row = usize::from(2_u16 + desk.app.cursor().0 as u16);
    let cells = &buffer.content()[row * 80..row * 80 + 60];
    assert!(cells.iter().all(|cell| cell.modifier.contains(Modifier::REVERSED)));
    assert_eq!(cells[0].symbol(), ">");
}

#[test]
fn no_row_changes_its_shape_while_figures_run() {
    let mut desk = desk();
    let shape = |text: &str| {
        let heading = text.lines().nth(1).unwrap();
        heading.replace(['▼', '▲'], " ")
    };
    let before = shape(&screen(&mut desk, false, (120, 30)));
    for _ in 0..30 {
        desk.wait(1);
        let text = screen(&mut desk, false, (120, 30));
        assert_eq!(shape(&text), before);
        assert!(text.lines().skip(2).take(7).all(|line| crate::text::width(line) == 120), "{text}");
    }
}
