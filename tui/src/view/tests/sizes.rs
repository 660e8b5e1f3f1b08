//! Tests that draw every screen and every overlay at any size of the terminal.

use super::*;
use crate::app::tests::timeline::records;

/// All sizes of small terminals, and some of large ones.
fn sizes() -> impl Iterator<Item = (u16, u16)> {
    let small = (0..=32).flat_map(|width| (0..=18).map(move |height| (width, height)));
    let large = (0..=400).step_by(40).flat_map(|width| {
        let heights = (0..=12).chain((20..=100).step_by(20));
        heights.map(move |height| (width, height))
    });
    small.chain(large)
}

/// Draws at each size, and looks up the mouse's target at each corner and in the middle.
fn draw_all(desk: &mut Desk) {
    for (width, height) in sizes() {
        drawn(desk, Styles::new(true, width % 2 == 0), (width, height));
        let area = Rect::new(0, 0, width, height);
        for x in [0, width / 2, width.saturating_sub(1)] {
            for y in [0, height / 2, height.saturating_sub(1)] {
                hit(&desk.app, area, (x, y).into());
            }
        }
    }
}

/// A process with records, a baseline, and a notice above the body.
fn full() -> Desk {
    let mut desk = changed();
    records(&mut desk);
    desk.made().losses[Loss::BeginsRefused] = 12;
    desk.screens.roofline.ceilings = Some(pfp_model::roofline::made_up_ceilings());
    desk.made().waits = Some(Arc::new(super::waits::report()));
    let dot = |label: &str| pfp_model::roofline::Dot {
        label: label.into(),
        intensity: 0.5,
        flops_per_second: 6e9,
        seconds: 1.0,
    };
    desk.screens.roofline.dots = vec![(1, dot("triad")), (2, dot("stencil"))];
    desk.wait(1);
    desk
}

#[test]
fn every_screen_can_be_drawn_at_any_size() {
    std::thread::scope(|scope| {
        for tab in Screen::TABS {
            scope.spawn(move || {
                let mut desk = full();
                let place = tab.screen.tab().unwrap() + 1;
                // Draw the screen as it is first shown, and again after keys that move the cursor
                // and, on some screens, the visible time.
                for keys in [format!("{place}"), "jjjj-h".into()] {
                    desk.press(&keys);
                    assert_eq!(desk.screen, tab.screen);
                    draw_all(&mut desk);
                }
            });
        }
    });
}

/// A source whose snapshots are all the same.
struct Still(Snapshot);

impl Source for Still {
    fn picture(&mut self) -> anyhow::Result<Snapshot> {
        Ok(self.0.clone())
    }
}

/// Draws the table without points, the timeline without records, the comparison without a baseline.
#[test]
fn every_screen_without_figures_can_be_drawn_at_any_size() {
    std::thread::scope(|scope| {
        for place in 1..=Screen::TABS.len() {
            scope.spawn(move || {
                let mut desk = desk();
                let process = desk.snapshot().process.clone();
                let empty = Snapshot { process, ..Snapshot::default() };
                desk.app.watch(Box::new(Still(empty)), desk.now);
                desk.press(&place.to_string());
                draw_all(&mut desk);
            });
        }
    });
}

#[test]
fn every_overlay_can_be_drawn_at_any_size() {
    std::thread::scope(|scope| {
        for keys in ["?", "/io.", "//io(", "c", "s", "E", "r", "w", "a", "8f", "8c", "4/x", "qq"] {
            scope.spawn(move || {
                let mut desk = full();
                desk.press("1");
                desk.press(keys);
                draw_all(&mut desk);
            });
        }
    });
}

#[test]
fn waiting_and_picking_can_be_drawn_at_any_size() {
    let (stage, now) = (Stage::default(), Instant::now());
    let mut app = App::new(Options::default(), Box::new(stage.clone()), now);
    for pids in [0, 1, 40] {
        stage.0.borrow_mut().candidates = (1..=pids).map(candidate).collect();
        app.poll(now + Duration::from_secs(u64::from(pids)));
        for size in sizes() {
            drawn_at(&mut app, now, size);
        }
    }
}

#[test]
fn the_row_to_choose_is_seen_in_a_terminal_of_few_rows() {
    for keys in ["c", "s"] {
        for height in 5..=24 {
            let mut desk = full();
            desk.press("1");
            desk.press(keys);
            let found = screen(&mut desk, false, (30, height));
            let cursor = desk.common.styles.glyphs.cursor;
            let is_chosen = |line: &str| line.contains(cursor) && line.contains("Load%");
            assert!(found.lines().any(is_chosen), "{keys} {height}:\n{found}");
        }
    }
}
