//! Tests of the log screen: events, and the cost of measuring.

use super::*;

/// The text of the log, with all times replaced.
fn log_text(desk: &mut Desk, ascii: bool, size: (u16, u16)) -> String {
    let text = screen(desk, ascii, size);
    let is_time = |line: &str| {
        let time = line.get(1..9).unwrap_or("");
        time.bytes().enumerate().all(|(at, byte)| match at {
            2 | 5 => byte == b':',
            _ => byte.is_ascii_digit(),
        }) && time.len() == 8
    };
    let line = |line: &str| match is_time(line) {
        true => format!(" HH:MM:SS{}\n", &line[9..]),
        false => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

#[test]
fn the_log_and_the_cost_of_measuring() {
    let mut desk = desk();
    desk.common.selected = Some(3);
    desk.press("e");
    desk.made().points[8].state = PointState::On;
    desk.wait(1);
    desk.made().losses[Loss::BeginsRefused] = 12;
    desk.made().clock.kind = ClockKind::Cputime;
    desk.wait(1);
    let notice = screen(&mut desk, false, (80, 24));
    assert!(notice.contains(" 2 new problems (press 6); lost: 12 begins"), "{notice}");
    desk.press("6");
    for size in SIZES {
        check("log", &log_text(&mut desk, false, size), size);
    }
    assert!(screen(&mut desk, true, (120, 30)).is_ascii());
}

#[test]
fn long_entries_of_the_log_are_seen_to_their_end() {
    let mut desk = desk();
    let path = "/a/very/long/path".repeat(6);
    for n in 0..30 {
        let text = format!("entry {n} was not written to {path}: there is no room, end {n}");
        desk.common.log.problem(1_000_000_000 * n, text);
    }
    desk.press("6");
    for size in [(40, 12), (62, 24), (80, 24), (130, 34), (300, 100)] {
        let now = desk.now;
        let press = |desk: &mut Desk, code: KeyCode| desk.key(code.into(), now);
        press(&mut desk, KeyCode::End);
        let mut seen = String::new();
        // Scroll from the newest to the oldest entry; each is fully visible at some step.
        for _ in 0..40 {
            let text = screen(&mut desk, false, size);
            assert!(text.lines().all(|line| pfp_read::text::width(line) <= usize::from(size.0)));
            seen += &text.split_whitespace().collect::<String>();
            press(&mut desk, KeyCode::Up);
        }
        for n in 0..30 {
            assert!(seen.contains(&format!("noroom,end{n}")), "{n} at {size:?}");
        }
        // The log does not scroll beyond the oldest entry, which is at the top.
        let text = screen(&mut desk, false, size);
        let mut entries = text.lines().skip_while(|line| !line.contains("  Log,"));
        assert!(entries.nth(1).unwrap().contains("watching my_app"), "{text}");
    }
}
