//! Tests of the roofline screen, as text.

use super::*;

/// A desk that shows the roofline of a made-up machine with made-up points.
fn roofline_desk(ceilings: bool) -> Desk {
    let mut desk = desk();
    desk.press("7");
    if ceilings {
        desk.screens.roofline.ceilings = Some(pfp_model::roofline::made_up_ceilings());
    }
    let dot = |label: &str, intensity, flops_per_second| pfp_model::roofline::Dot {
        label: label.into(),
        intensity,
        flops_per_second,
        seconds: 1.0,
    };
    desk.screens.roofline.dots = vec![
        (1, dot("triad", 1.0 / 12.0, 1.5e9)),
        (2, dot("matrix.multiply", 8.0, 42e9)),
        (3, dot("stencil", 0.5, 6e9)),
    ];
    desk.common.selected = Some(2);
    desk
}

#[test]
fn the_roofline() {
    check_all("roofline", &mut roofline_desk(true));
    check("roofline-unmeasured", &screen(&mut roofline_desk(false), false, SIZES[1]), SIZES[1]);
}

/// Letters are at the positions of their points: as far below the roof as the point's share
/// requires.
#[test]
fn letters_of_the_roofline_stand_where_their_points_are() {
    let lines = screen(&mut roofline_desk(true), true, (200, 60));
    let lines: Vec<&str> = lines.lines().skip(2).collect();
    // The letter of a point has no other letter next to it, unlike a letter in the name of a roof.
    let alone = |line: &str, letter: char| {
        let around = |place: usize| line.as_bytes().get(place).is_some_and(u8::is_ascii_alphabetic);
        line.match_indices(letter)
            .map(|(place, _)| place)
            .find(|&place| !around(place + 1) && !place.checked_sub(1).is_some_and(around))
    };
    let at = |letter: char| {
        let mut found = lines.iter().enumerate();
        found.find_map(|(row, line)| Some((row, alone(line, letter)?))).unwrap()
    };
    let roof = |column: usize| {
        let is_roof = |line: &&str| matches!(line.as_bytes().get(column), Some(b'/' | b'-'));
        lines.iter().position(is_roof).unwrap()
    };
    let [triad, multiply, stencil] = ['a', 'b', 'c'].map(at);
    assert!(triad.1 < stencil.1 && stencil.1 < multiply.1, "by intensity");
    assert!(multiply.0 < stencil.0 && stencil.0 < triad.0, "by operations a second");
    // `triad` reaches 90 % of 20 GB/s, `stencil` 60 % of 20 GB/s, and `multiply` 84 % of 50
    // Gflop/s.
    let below = |(row, column): (usize, usize)| row - roof(column);
    assert!(below(triad) <= below(stencil), "{lines:#?}");
    assert!(below(multiply) <= below(stencil), "{lines:#?}");
    assert!(below(stencil) > 0, "{lines:#?}");
}

#[test]
fn without_amounts_the_roofline_says_how_to_have_them() {
    let mut desk = desk();
    desk.press("7");
    let text = screen(&mut desk, false, (100, 30));
    assert!(text.contains("press m to measure this machine's ceilings"), "{text}");
    assert!(text.contains("no points that report bytes and flops"), "{text}");
}
