//! All colours, and all characters for drawing.

use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::border;

use pfp_read::snapshot::PointState;

/// The style of each element on the screen.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    /// The first line, and other plain text.
    pub header: Style,
    /// The watched process, in the first line.
    pub process: Style,
    /// Style of a live state: the figures follow the process.
    pub live: Style,
    /// Style of states that need care, such as paused figures.
    pub warn: Style,
    /// Style of failures.
    pub error: Style,
    /// Headings of columns and sections.
    pub heading: Style,
    /// The heading of the column by which rows are sorted.
    pub sorted: Style,
    /// The row under the cursor.
    pub selected: Style,
    /// The parts of a name that the filter finds, added to the style of the name.
    pub found: Style,
    /// Elements that are off or have no figure.
    pub faint: Style,
    /// Bars, trends and charts.
    pub bar: Style,
    /// Loads, from nearly idle to a full CPU.
    pub heat: [Style; 3],
    /// Keys, where they are named.
    pub key: Style,
    /// Colours that distinguish points on the timeline. `None` without colours.
    pub points: Option<[Color; 8]>,
    /// Letters on the colours of points.
    pub letters: Color,
}

/// Colours of points: without red, which means an error, and cyan, which is for the cursor. All are
/// bright enough for black letters.
const POINTS: [Color; 8] = [
    Color::Green,
    Color::Yellow,
    Color::Magenta,
    Color::Gray,
    Color::LightGreen,
    Color::LightYellow,
    Color::LightBlue,
    Color::LightMagenta,
];

/// Colours of points on a light background, dark enough for white letters. Some occur twice, since
/// the sixteen colours have no others that are dark enough.
const POINTS_ON_LIGHT: [Color; 8] = [
    Color::Magenta,
    Color::DarkGray,
    Color::LightBlue,
    Color::Black,
    Color::LightMagenta,
    Color::Blue,
    Color::Magenta,
    Color::DarkGray,
];

impl Theme {
    /// The colour of a point on the timeline; the same name always has the same colour. `None`
    /// without colours.
    pub fn point(&self, name: &str) -> Option<Color> {
        // FNV-1a: the standard library's hashes may change with a release.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        let points = self.points?;
        Some(points[(hash >> 32) as usize % points.len()])
    }

    /// The style of a load, a share of one CPU.
    pub fn heat(&self, load: f64) -> Style {
        const WARM: f64 = 0.25;
        const HOT: f64 = 0.75;
        self.heat[usize::from(load >= WARM) + usize::from(load >= HOT)]
    }

    /// The theme of the terminal's sixteen colours, which users usually have set to be readable.
    pub fn color() -> Self {
        let plain = Style::new();
        Self {
            header: plain,
            process: plain.add_modifier(Modifier::BOLD),
            live: plain.fg(Color::Green).add_modifier(Modifier::BOLD),
            warn: plain.fg(Color::Yellow).add_modifier(Modifier::BOLD),
            error: plain.fg(Color::Red).add_modifier(Modifier::BOLD),
            heading: plain.fg(Color::Black).bg(Color::Green),
            sorted: plain.fg(Color::Black).bg(Color::Cyan),
            selected: plain.fg(Color::Black).bg(Color::Cyan),
            found: plain.add_modifier(Modifier::UNDERLINED),
            faint: plain.add_modifier(Modifier::DIM),
            bar: plain.fg(Color::Cyan),
            heat: [Color::Cyan, Color::Yellow, Color::Red].map(|color| plain.fg(color)),
            key: plain.add_modifier(Modifier::BOLD),
            points: Some(POINTS),
            letters: Color::Black,
        }
    }

    /// The theme of the terminal's sixteen colours for a light background.
    pub fn color_on_light() -> Self {
        let plain = Style::new();
        let bold = |color| plain.fg(color).add_modifier(Modifier::BOLD);
        Self {
            live: bold(Color::Blue),
            warn: bold(Color::Magenta),
            error: bold(Color::Red),
            sorted: plain.fg(Color::White).bg(Color::Blue),
            selected: plain.fg(Color::White).bg(Color::Blue),
            bar: plain.fg(Color::Blue),
            heat: [Color::Blue, Color::Magenta, Color::Red].map(|color| plain.fg(color)),
            points: Some(POINTS_ON_LIGHT),
            letters: Color::White,
            ..Self::color()
        }
    }

    /// A theme without colours.
    ///
    /// Under `NO_COLOR`, crossterm writes each change of colours as `ESC[;m`. This sequence also
    /// resets bold and reverse, which would make the cursor's row invisible, so this theme sets no
    /// colour at all.
    pub fn monochrome() -> Self {
        let plain = Style::new();
        let bold = plain.add_modifier(Modifier::BOLD);
        let reversed = plain.add_modifier(Modifier::REVERSED);
        Self {
            header: plain,
            process: bold,
            live: bold,
            warn: bold,
            error: bold,
            heading: bold.add_modifier(Modifier::UNDERLINED),
            sorted: reversed,
            selected: reversed,
            found: plain.add_modifier(Modifier::UNDERLINED),
            faint: plain,
            bar: plain,
            heat: [plain, plain, bold],
            key: bold,
            points: None,
            letters: Color::Reset,
        }
    }

    #[cfg(test)]
    fn styles(&self) -> Vec<Style> {
        let mut all = vec![
            self.header,
            self.process,
            self.live,
            self.warn,
            self.error,
            self.heading,
            self.sorted,
            self.selected,
            self.found,
            self.faint,
            self.bar,
            self.key,
        ];
        all.extend(self.heat);
        all
    }
}

/// The characters to draw with.
#[derive(Clone, Copy, Debug)]
pub struct Glyphs {
    /// A point that measures.
    pub on: char,
    /// A point that is off.
    pub off: char,
    /// A point that is invalid.
    pub invalid: char,
    /// The row under the cursor.
    pub cursor: char,
    /// Sign for cut text.
    pub ellipsis: char,
    /// Mark of a column that is sorted with the greatest first.
    pub down: char,
    /// Mark of a column that is sorted with the least first.
    pub up: char,
    /// Characters that fill an eighth to all of a cell, from the bottom.
    pub levels: [char; 8],
    /// Characters that fill an eighth to all of a cell, from the left.
    pub parts: [char; 8],
    /// Sign between two values of a range.
    pub to: &'static str,
    /// Sign before a standard deviation.
    pub plus_minus: &'static str,
    /// The empty part of a bar that shows a share.
    pub rest: char,
    /// The part of a column from the mean up to the peak.
    pub peak: char,
    /// Characters of bars of regions whose thread ran nearly always, sometimes, or hardly ever.
    pub ran: [char; 3],
    /// The start of a bar.
    pub edge: char,
    /// The start of a bar that combines many regions.
    pub many: char,
    /// Marks of a load that has increased, and of a load that has decreased.
    pub changed: [char; 2],
    /// Time whose records are lost.
    pub lost: char,
    /// Multiplication sign.
    pub times: char,
    /// Mark of a line whose children are shown.
    pub unfolded: char,
    /// Mark of a line whose children are hidden.
    pub folded: char,
    /// Mark of a recursive frame.
    pub recursive: char,
}

impl Glyphs {
    /// The sign of a point's state.
    pub fn state(&self, state: PointState) -> char {
        match state {
            PointState::On => self.on,
            PointState::Off => self.off,
            PointState::InvalidBeginBegin => self.invalid,
        }
    }

    /// Characters with block elements.
    pub const UNICODE: Self = Self {
        on: '●',
        off: '○',
        invalid: '!',
        cursor: '>',
        ellipsis: '…',
        down: '▼',
        up: '▲',
        levels: ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'],
        parts: ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'],
        to: "–",
        plus_minus: "±",
        rest: '░',
        peak: '░',
        ran: ['█', '▒', '░'],
        edge: '▏',
        many: '≡',
        changed: ['↑', '↓'],
        lost: '╱',
        times: '×',
        unfolded: '▾',
        folded: '▸',
        recursive: '↻',
    };

    /// Characters for terminals and fonts without block elements.
    pub const ASCII: Self = Self {
        on: '*',
        off: 'o',
        invalid: '!',
        cursor: '>',
        ellipsis: '~',
        down: 'v',
        up: '^',
        levels: ['_', '.', ':', '-', '=', '+', '#', '#'],
        parts: ['-', '-', '-', '=', '=', '=', '#', '#'],
        to: "-",
        plus_minus: "+-",
        rest: '.',
        peak: '|',
        ran: ['#', '=', '.'],
        edge: '[',
        many: '*',
        changed: ['^', 'v'],
        lost: '/',
        times: 'x',
        unfolded: '-',
        folded: '+',
        recursive: '@',
    };
}

/// A border for terminals without line-drawing characters.
const ASCII_BORDER: border::Set<'static> = border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};

/// Colours and characters together.
#[derive(Clone, Copy, Debug)]
pub struct Styles {
    /// The style of each element on the screen.
    pub theme: Theme,
    /// The characters to draw with.
    pub glyphs: Glyphs,
}

impl Styles {
    /// The characters of a border.
    pub(crate) fn border(&self) -> border::Set<'static> {
        if self.glyphs.on.is_ascii() { ASCII_BORDER } else { border::PLAIN }
    }

    /// With or without colours, and with or without characters beyond ASCII.
    pub fn new(color: bool, ascii: bool) -> Self {
        Self {
            theme: if color { Theme::color() } else { Theme::monochrome() },
            glyphs: if ascii { Glyphs::ASCII } else { Glyphs::UNICODE },
        }
    }

    /// With this theme, and with or without characters beyond ASCII.
    pub fn with(theme: Theme, ascii: bool) -> Self {
        Self { theme, ..Self::new(true, ascii) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monochrome_names_no_colour_and_still_shows_the_cursor() {
        let theme = Theme::monochrome();
        for style in theme.styles() {
            assert!(matches!(style.fg, None | Some(Color::Reset)), "{style:?}");
            assert!(matches!(style.bg, None | Some(Color::Reset)), "{style:?}");
        }
        assert!(theme.selected.add_modifier.contains(Modifier::REVERSED));
    }

    #[test]
    fn every_glyph_takes_one_column() {
        for glyphs in [Glyphs::UNICODE, Glyphs::ASCII] {
            let mut all = vec![
                glyphs.on,
                glyphs.off,
                glyphs.invalid,
                glyphs.cursor,
                glyphs.ellipsis,
                glyphs.down,
                glyphs.up,
                glyphs.edge,
                glyphs.many,
                glyphs.unfolded,
                glyphs.folded,
                glyphs.recursive,
                glyphs.lost,
                glyphs.times,
            ];
            all.extend(glyphs.ran);
            all.extend(glyphs.changed);
            all.extend(glyphs.levels.iter().chain(&glyphs.parts));
            for glyph in all {
                assert_eq!(pfp_read::text::width(&glyph.to_string()), 1, "{glyph}");
            }
        }
    }
}
