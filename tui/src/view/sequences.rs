//! Replaces characters that take different numbers of columns on different terminals.
//!
//! A flag consists of two letters, and an emoji of several parts is joined by a zero-width
//! character. Some terminals show such a sequence as one picture, others show its parts. If a
//! terminal uses more or fewer columns than the frame assumes, parts of the old text stay on the
//! screen when the row changes. So only the first part of a sequence is drawn, and a flag is drawn
//! as its two letters.

use ratatui::buffer::{Buffer, CellWidth as _};
use ratatui::layout::Position;
use unicode_width::UnicodeWidthChar as _;

/// The letters that flags consist of.
const FLAG_LETTERS: std::ops::RangeInclusive<char> = '\u{1f1e6}'..='\u{1f1ff}';

/// Replaces sequences whose width depends on the terminal. The number of columns stays the same.
pub(super) fn simplify(buffer: &mut Buffer) {
    for at in buffer.area.positions() {
        let Some((first, second)) = simple(buffer[at].symbol()) else { continue };
        let style = buffer[at].style();
        buffer[at].set_symbol(&first);
        let behind = Position { x: at.x + 1, ..at };
        if let Some((second, cell)) = second.zip(buffer.cell_mut(behind)) {
            cell.set_char(second).set_style(style);
        }
    }
}

/// The text for a cell with a sequence, and the character for the next cell, if the text takes only
/// one of the two columns. `None` if all terminals agree on the width.
fn simple(symbol: &str) -> Option<(String, Option<char>)> {
    let mut chars = symbol.chars();
    let (first, next) = (chars.next()?, chars.next()?);
    let letter = |flag: char| {
        let place = u32::from(flag) - u32::from(*FLAG_LETTERS.start());
        char::from(b'A' + place as u8)
    };
    if FLAG_LETTERS.contains(&first) && FLAG_LETTERS.contains(&next) {
        return Some((letter(first).into(), Some(letter(next))));
    }
    let width = |c: char| c.width().unwrap_or(0);
    if symbol.chars().map(width).sum::<usize>() == usize::from(symbol.cell_width()) {
        return None;
    }
    let behind = (usize::from(symbol.cell_width()) > width(first)).then_some(' ');
    Some((first.into(), behind))
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    use super::*;

    /// Draws a text, and returns the cells that are sent to the terminal.
    fn drawn(text: &str) -> Vec<String> {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 12, 1));
        buffer.set_stringn(0, 0, text, 12, Style::new());
        simplify(&mut buffer);
        let empty = Buffer::empty(buffer.area);
        empty.diff_iter(&buffer).map(|(_, _, cell)| cell.symbol().to_owned()).collect()
    }

    #[test]
    fn only_sequences_of_one_width_are_drawn() {
        for (text, cells) in [
            ("🇩🇪x", &["D", "E", "x"][..]),
            ("🇩🇪🇫🇷", &["D", "E", "F", "R"]),
            ("👩\u{200d}💻x", &["👩", "x"]),
            ("👍🏽x", &["👍", "x"]),
            ("1\u{fe0f}\u{20e3}x", &["1", "x"]),
            ("❤\u{fe0f}x", &["❤", "x"]),
            ("e\u{301}x", &["e\u{301}", "x"]),
            ("解x", &["解", "x"]),
            ("🦀x", &["🦀", "x"]),
        ] {
            assert_eq!(drawn(text), cells, "{text}");
        }
    }

    #[test]
    fn every_part_of_a_flag_goes_with_it() {
        let frame = |text: &str| {
            let mut buffer = Buffer::empty(Rect::new(0, 0, 12, 1));
            buffer.set_stringn(0, 0, text, 12, Style::new());
            simplify(&mut buffer);
            buffer
        };
        let (before, after) = (frame("🇩🇪 b"), frame("a  b"));
        let columns: Vec<u16> = before.diff_iter(&after).map(|(x, ..)| x).collect();
        assert_eq!(columns, [0, 1]);
    }
}
