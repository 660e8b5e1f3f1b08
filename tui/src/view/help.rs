//! The help: every key and what it does, from the table that dispatches them.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::{Look, draw_scrolled};
use crate::app::keys::BINDINGS;
use crate::text;

/// Columns for the names of the keys, and for those of a narrow screen.
const KEYS: usize = 19;
const KEYS_NARROW: usize = 12;
/// From this width on the keys get their full room.
const WIDE: usize = 60;

const LOAD: &str = "exclusive time as a share of one CPU, smoothed: a weight of a=T/tau for the \
                    last poll";
const TREND: &str = "load of the last polls, a column each, not smoothed; full height is the row's own greatest \
                     of the last 60, at least 5 % of a CPU";

const NOTHING_LEFT: &str = "nothing is left once the cost of measuring is taken out";

const SHORT: &str = "a mean below ten times the cost of measuring (ovh): up to all of such a region's time \
                     may be shown in the region around it; its count is exact";

const CLOCK: &str = "of a thread: how its process learns of switches, for all its threads alike: rseq, perf, \
                     cputime, or wall, which leaves time off the CPU in";
const VERDICT: &str = "most measurements are, by 5 % or more, beyond chance: Mann-Whitney test, 1 % of \
                       what is found may be none (Benjamini-Hochberg)";
const TIMELINE_RAN: &str = "timeline: its thread ran nearly always, at times, hardly; the rest it \
                            was off the CPU, or in another context";
const TIMELINE_MANY: &str = "timeline: nine regions of a point, too short to be told apart";

pub(super) fn draw(frame: &mut Frame, area: Rect, offset: usize, look: &Look) {
    let heading = Line::styled(" Keys", look.theme.process);
    let lines = lines(look, area.width.into());
    draw_scrolled(frame, area, heading, lines, offset);
}

pub(super) fn lines(look: &Look, width: usize) -> Vec<Line<'static>> {
    let glyphs = &look.glyphs;
    let signs = [
        (glyphs.on, "the point measures"),
        (glyphs.off, "the point is off"),
        (glyphs.invalid, "the point is invalid: begun twice without an end; e makes it valid"),
    ];
    let mut lines: Vec<Line> = Vec::new();
    for binding in BINDINGS {
        let names: Vec<String> = binding.keys.iter().map(|key| key.name()).collect();
        lines.extend(entry(&names.join(" "), binding.help, width, look));
    }
    lines.push(Line::default());
    for (glyph, meaning) in signs {
        lines.extend(entry(&glyph.to_string(), meaning, width, look));
    }
    let reading = [
        ("/s", "measurements per second since the last poll"),
        ("Load%", LOAD),
        ("Trend", TREND),
        ("<1ns", NOTHING_LEFT),
        ("~20ns", SHORT),
        ("#5", "a point that the program gave a number and no name"),
        ("Clock", CLOCK),
    ];
    let diff = [
        ("dLoad dMean dp99", "what changed: of a load in points, else in per cent of the baseline"),
        ("slower faster", VERDICT),
        ("slower tail", "only the longest hundredth takes longer, or there are more of such"),
        ("too few", "a difference that matters could not be told from none yet"),
        ("new gone", "the baseline does not have the point; only the baseline has it"),
        ("A", "how likely a measurement now takes longer than one of the baseline; 0.5: even"),
    ];
    lines.push(Line::default());
    for (term, meaning) in reading.into_iter().chain(diff) {
        lines.extend(entry(term, meaning, width, look));
    }
    let [ran, at_times, hardly] = glyphs.ran;
    let timeline = [
        (format!("{ran} {at_times} {hardly}"), TIMELINE_RAN),
        (
            format!("{}name", glyphs.edge),
            "timeline: where a region begins; by its initials if short",
        ),
        (format!("{}name{}9", glyphs.many, glyphs.times), TIMELINE_MANY),
        (glyphs.lost.to_string(), "timeline: the thread's ring holds no more of this time"),
    ];
    lines.push(Line::default());
    for (term, meaning) in timeline {
        lines.extend(entry(&term, meaning, width, look));
    }
    lines
}

/// Keys at the left, words at the right, both broken where they do not fit.
fn entry(keys: &str, words: &str, width: usize, look: &Look) -> Vec<Line<'static>> {
    let room = if width >= WIDE { KEYS } else { KEYS_NARROW };
    let keys = wrapped(keys, room);
    let words = wrapped(words, width.saturating_sub(room + 2).max(1));
    let line = |lines: &[String], row: usize| lines.get(row).cloned().unwrap_or_default();
    (0..keys.len().max(words.len()))
        .map(|row| {
            let keys = text::fit(&line(&keys, row), room, look.glyphs.ellipsis);
            Line::from(vec![
                Span::raw(" "),
                Span::styled(keys, look.theme.key),
                Span::raw(" "),
                Span::raw(line(&words, row)),
            ])
        })
        .collect()
}

/// The text in lines of at most `width` columns, broken between words.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if text::width(line) + 1 + text::width(word) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
