//! Tests of the load of a point over time, as text.

use super::*;

fn detail(polls: usize, keys: &str) -> Desk {
    let mut desk = desk();
    desk.wait(polls);
    desk.open(1);
    desk.press(keys);
    desk.now += Duration::from_secs(10);
    desk
}

/// The title of the load, and the lines below it.
fn load(desk: &mut Desk, size: (u16, u16)) -> Vec<String> {
    let text = screen(desk, false, size);
    let lines = text.lines().skip_while(|line| !line.starts_with(" Load,"));
    lines.take(6).map(str::to_owned).collect()
}

#[test]
fn now_is_at_the_right_whatever_the_width() {
    for size in [(300, 60), (120, 30), (80, 24)] {
        let mut desk = detail(150, "");
        let lines = load(&mut desk, size);
        assert!(lines[0].starts_with(" Load, last 1 min: peak "), "{lines:#?}");
        assert!(lines[5].contains("|-30s") && lines[5].ends_with("now|"), "{lines:#?}");
        assert_eq!(pfp_read::text::width(&lines[5]), usize::from(size.0) - 1);
        assert_eq!(pfp_read::text::width(&lines[4]), usize::from(size.0) - 1, "{lines:#?}");
        let before = lines[2].clone();
        desk.press("-");
        let wider = load(&mut desk, size);
        assert!(wider[0].starts_with(" Load, last 2 min: peak "), "{wider:#?}");
        assert!(wider[5].contains("|-60s"), "{wider:#?}");
        assert_ne!(wider[2], before);
    }
}

#[test]
fn time_passing_shifts_the_columns_unchanged() {
    let mut desk = detail(150, "");
    let graph = |desk: &mut Desk| -> Vec<Vec<char>> {
        let lines = load(desk, (128, 40));
        lines[1..5].iter().map(|line| format!("{line:119}").chars().skip(8).collect()).collect()
    };
    // A second is two columns. The newest columns may still change.
    let before = graph(&mut desk);
    desk.wait(1);
    let after = graph(&mut desk);
    for (before, after) in before.iter().zip(&after) {
        let moved = (1..=3).find(|by| before[*by..110] == after[..110 - by]);
        assert!(moved.is_some(), "{before:?}\n{after:?}");
    }
}

#[test]
fn a_held_load_is_marked_and_does_not_move() {
    let mut desk = detail(300, "hhhh");
    let before = load(&mut desk, (120, 30));
    assert!(before[0].starts_with(" Load, 1 min until 60.0s ago, paused: End resumes: peak "));
    // The axis has the time of day, since the time before now would change while the user reads it.
    assert!(before[5].matches(':').count() >= 10 && !before[5].contains("now"), "{before:#?}");
    let process = screen(&mut desk, false, (120, 30)).lines().next().unwrap().to_owned();
    desk.wait(30);
    let after = load(&mut desk, (120, 30));
    assert_ne!(process, screen(&mut desk, false, (120, 30)).lines().next().unwrap());
    assert!(after[0].starts_with(" Load, 1 min until 90.0s ago, paused: End resumes: peak "));
    assert_eq!(before[1..], after[1..]);
    let narrow = load(&mut desk, (40, 40));
    assert!(narrow[0].starts_with(" Load, 1 min until 90.0s ago, paused"), "{narrow:#?}");
}

#[test]
fn long_spans_show_mean_and_peaks() {
    let mut desk = detail(9_000, "------");
    let lines = load(&mut desk, (120, 30));
    assert!(lines[0].starts_with(" Load, last 2 h: peak "), "{lines:#?}");
    assert!(lines[0].ends_with("; ░ peak"), "{lines:#?}");
    assert!(lines[1].contains('░') && lines[4].contains('█'), "{lines:#?}");
    assert!(lines[5].contains("|-60m") || lines[5].contains("|-1h"), "{lines:#?}");
    let ascii = screen(&mut desk, true, (120, 30));
    assert!(ascii.is_ascii() && ascii.contains("; | peak"), "{ascii}");
}

#[test]
fn the_end_of_a_process_is_not_now() {
    let mut desk = detail(10, "");
    desk.made().process.state = ProcessState::Exited;
    desk.wait(2);
    let lines = load(&mut desk, (120, 30));
    assert!(lines[5].ends_with("end|"), "{lines:#?}");
}

#[test]
fn any_part_of_the_time_can_be_drawn_at_any_size() {
    let mut desk = detail(400, "");
    for keys in ["", "hh", "++++++", "hhhhhhhhhhhhhhhhhhh", "-------"] {
        desk.press(keys);
        for width in [1, 2, 3, 8, 9, 10, 24, 40, 79, 80, 200] {
            for height in [1, 2, 3, 4, 8, 30] {
                let text = screen(&mut desk, false, (width, height));
                assert!(text.lines().all(|line| pfp_read::text::width(line) <= usize::from(width)));
            }
        }
    }
    // Clocks with invalid values do no harm.
    for (elapsed, rate) in [(u64::MAX, 1e9), (0, 0.0), (1, f64::INFINITY), (u64::MAX, 1e300)] {
        let mut snapshot = desk.snapshot().clone();
        snapshot.elapsed_ticks = elapsed;
        snapshot.clock.ticks_per_second = rate;
        desk.common.model.fold(snapshot);
        desk.press("+-h-l+");
        desk.code(KeyCode::Home);
        screen(&mut desk, false, (80, 24));
    }
}
