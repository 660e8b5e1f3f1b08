//! Tests of the comparison with a baseline, as text.

use super::*;

#[test]
fn the_comparison_with_a_baseline() {
    let mut desk = changed();
    for size in [(180, 30), (120, 30), (80, 24), (40, 8)] {
        check("diff", &without_times(&screen(&mut desk, false, size)), size);
    }
    assert!(screen(&mut desk, true, (180, 30)).is_ascii());
}

#[test]
fn only_a_difference_has_a_colour() {
    let mut desk = changed();
    // Move the cursor away from the rows under test.
    desk.code(KeyCode::End);
    let buffer = drawn(&mut desk, Styles::new(true, false), (180, 30));
    let lines = text(&buffer);
    let mut seen = [0, 0];
    let rows = lines.lines().zip(buffer.content().chunks(180)).skip(3);
    for (line, cells) in rows.filter(|(line, _)| line.contains('●') && !line.starts_with('>')) {
        let coloured = cells.iter().map(|cell| match cell.fg {
            Color::Reset => " ",
            _ => cell.symbol(),
        });
        let coloured: String = coloured.collect();
        for word in ["slower", "more", "no difference", "same"] {
            let differs = matches!(word, "slower" | "more");
            assert_eq!(coloured.contains(word), differs && line.contains(word), "{line}");
            seen[usize::from(differs)] += usize::from(line.contains(word));
        }
        let name = line.split_whitespace().nth(1).unwrap();
        assert!(!coloured.contains(name), "{line}");
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{lines}");
}

#[test]
fn without_a_baseline_the_screen_says_how_to_take_one() {
    let mut desk = desk();
    desk.press("5");
    for size in SIZES {
        assert!(screen(&mut desk, false, size).contains("press b to take one"));
    }
    let text = screen(&mut desk, false, (100, 24));
    assert!(text.lines().last().unwrap().contains(" b baseline "), "{text}");
    // With a baseline and a filter that no point passes, a message says so.
    desk.press("b");
    desk.wait(2);
    desk.press("/zzz\n");
    for _ in 0..2 {
        let text = screen(&mut desk, false, (80, 24));
        assert!(text.contains("no point passes the filter"), "{text}");
        desk.press("7");
    }
}
