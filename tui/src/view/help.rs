//! The help: every key and what it does, from the table that dispatches them.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::{Look, draw_scrolled};
use crate::app::keys::{BINDINGS, Binding};
use crate::app::{App, Screen};
use crate::text;

/// Columns for the names of the keys, and for those of a narrow screen.
const KEYS: usize = 19;
const KEYS_NARROW: usize = 12;
/// From this width on the keys get their full room.
const WIDE: usize = 60;

/// Keys that work on so many screens at most are a screen's own.
const OWN: usize = 5;

const LOAD: &str = "exclusive time as a share of one CPU, smoothed over --tau; of what has ended, \
                    over its whole life";
const SCALE: &str = "bar and trend: the load, and that of the last polls, a column each, not \
                     smoothed; what fills them is the same in all rows, and stands over the bar";
const CHANGED: &str = "the load has risen, or fallen, within the last minute: by 5 points and by \
                       half as much again, or more";

const NOTHING_LEFT: &str = "nothing is left once the cost of measuring is taken out";

const SHORT: &str = "a mean below ten times the cost of measuring: up to all of such a region's time \
                     may be shown in the region around it; its count is exact";

const CLOCK: &str = "of a thread: how its process learns of switches, for all its threads alike: rseq, perf, \
                     cputime, or wall, which leaves time off the CPU in";
const VERDICT: &str = "most measurements are, by 5 % or more, statistically significant: Mann-Whitney test, 1 % of \
                       what is found may be none (Benjamini-Hochberg)";
const TIMELINE_RAN: &str = "its thread ran nearly always, at times, hardly; the rest it \
                            was off the CPU, or in another context";
const TIMELINE_MANY: &str = "nine regions of a point, too short to be told apart";

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App, offset: usize, look: &Look) {
    let name = app.screen.tab().map_or("", |tab| Screen::TABS[tab].1);
    let heading = Line::styled(format!(" Keys {name}").trim_end().to_owned(), look.theme.process);
    let lines = lines(app, look, area.width.into());
    draw_scrolled(frame, area, heading, lines, offset);
}

pub(super) fn lines(app: &App, look: &Look, width: usize) -> Vec<Line<'static>> {
    let mut lines: Vec<Line> = Vec::new();
    let here = app.mode_below();
    // First what works here alone or nearly so, then what works on most screens.
    let works = |binding: &&Binding| binding.modes.contains(&here);
    let is_own = |binding: &&Binding| binding.modes.len() <= OWN;
    let in_recording = app.common.replay.is_some();
    let fits = |binding: &&Binding| in_recording || !binding.is_of_recordings();
    let all = || BINDINGS.iter().filter(fits);
    let own = all().filter(works).filter(is_own);
    let common = all().filter(works).filter(|binding| !is_own(binding));
    let mut list = |title: &str, bindings: &mut dyn Iterator<Item = &'static Binding>| {
        let found: Vec<&Binding> = bindings.collect();
        if !title.is_empty() && !found.is_empty() {
            lines.push(Line::default());
            lines.push(Line::styled(format!(" {title}"), look.theme.process));
        }
        for binding in found {
            let names: Vec<String> = binding.keys.iter().map(|key| key.name()).collect();
            lines.extend(entry(&names.join(" "), binding.help, width, look));
        }
    };
    list("", &mut own.into_iter());
    list("On all screens", &mut common.into_iter());
    let legend = legend(app.screen, look);
    if !legend.is_empty() {
        lines.push(Line::default());
        lines.push(Line::styled(" What stands there", look.theme.process));
    }
    for (term, meaning) in legend {
        lines.extend(entry(&term, meaning, width, look));
    }
    lines
}

/// What the signs and words of a screen mean.
fn legend(screen: Screen, look: &Look) -> Vec<(String, &'static str)> {
    let glyphs = &look.glyphs;
    let of = |signs: &[char]| signs.iter().map(char::to_string).collect::<Vec<_>>().join(" ");
    match screen {
        Screen::Points => vec![
            (of(&[glyphs.on]), "the point measures"),
            (of(&[glyphs.off]), "the point is off"),
            (
                of(&[glyphs.invalid]),
                "the point is invalid: begun twice without an end; e makes it valid",
            ),
            (of(&glyphs.changed), CHANGED),
            ("Load%".into(), LOAD),
            ("0   50%".into(), SCALE),
            ("/s".into(), "measurements per second since the last poll"),
            ("<1ns".into(), NOTHING_LEFT),
            ("~20ns".into(), SHORT),
            ("#5".into(), "a point that the program gave a number and no name"),
        ],
        Screen::Threads => vec![
            ("Load%".into(), "exclusive time of its points, as a share of one CPU, smoothed"),
            ("Kept".into(), "its last records, which its ring still holds"),
            ("Clock".into(), CLOCK),
        ],
        Screen::Diff => vec![
            (
                "dLoad dMean dp99".into(),
                "what changed: of a load in points, else in per cent of the baseline",
            ),
            ("slower faster".into(), VERDICT),
            (
                "slower tail".into(),
                "only the longest hundredth takes longer, or there are more of such",
            ),
            ("too few".into(), "a difference that matters could not be told from none yet"),
            ("new gone".into(), "the baseline does not have the point; only the baseline has it"),
            (
                "A".into(),
                "how likely a measurement now takes longer than one of the baseline; 0.5: even",
            ),
        ],
        Screen::Timeline => vec![
            (of(&glyphs.ran), TIMELINE_RAN),
            (format!("{}name", glyphs.edge), "where a region begins; by its initials if short"),
            (format!("{}name{}9", glyphs.many, glyphs.times), TIMELINE_MANY),
            (of(&[glyphs.lost]), "the thread's ring holds no more of this time"),
        ],
        _ => Vec::new(),
    }
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
