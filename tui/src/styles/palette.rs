//! Themes by name, and the choice of a theme for a terminal.

use std::env;

use clap::ValueEnum;
use ratatui::style::{Color, Modifier, Style};

use super::theme::Theme;

/// A theme that the user can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ThemeName {
    /// Chosen by what the terminal reports.
    Auto,
    /// Light text on a dark background.
    Dark,
    /// Dark text on a light background.
    Light,
    /// The terminal's own sixteen colours.
    #[value(name = "16")]
    Sixteen,
    /// No colours.
    Mono,
}

/// Properties of a terminal, as it reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal {
    depth: Depth,
    /// Whether its background is light. `None` if unknown.
    light: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    None,
    Sixteen,
    Indexed,
    Full,
}

impl Terminal {
    /// The terminal of this process, as its environment describes it.
    pub fn from_env() -> Self {
        let of = |name| env::var(name).unwrap_or_default();
        Self::from_values(&of("COLORTERM"), &of("TERM"), &of("COLORFGBG"))
    }

    fn from_values(colorterm: &str, term: &str, colorfgbg: &str) -> Self {
        let depth = match (colorterm, term) {
            (_, "dumb") => Depth::None,
            (_, term) if term.starts_with("vt1") || term.starts_with("vt2") => Depth::None,
            ("truecolor" | "24bit", _) => Depth::Full,
            (_, term) if term.contains("direct") => Depth::Full,
            (_, term) if term.contains("256") => Depth::Indexed,
            _ => Depth::Sixteen,
        };
        // COLORFGBG has the numbers of text and background among the sixteen colours: `0;15`.
        let ground = colorfgbg.rsplit(';').next().and_then(|number| number.parse::<u8>().ok());
        Self { depth, light: ground.map(|ground| ground == 7 || ground > 8) }
    }
}

impl ThemeName {
    /// The theme for this terminal. With an unknown background it is the dark theme, whose colours
    /// are also readable on a light background.
    pub fn theme(self, terminal: Terminal) -> Theme {
        match (self, terminal.depth) {
            (Self::Mono, _) | (Self::Auto, Depth::None) => Theme::monochrome(),
            (Self::Light, Depth::Sixteen | Depth::None) => Theme::color_on_light(),
            (Self::Sixteen, _) | (Self::Auto, Depth::Sixteen) if terminal.light == Some(true) => {
                Theme::color_on_light()
            }
            (Self::Sixteen, _) | (_, Depth::Sixteen | Depth::None) => Theme::color(),
            (Self::Light, depth) => LIGHT.theme(depth),
            (Self::Auto, depth) if terminal.light == Some(true) => LIGHT.theme(depth),
            (Self::Auto | Self::Dark, depth) => DARK.theme(depth),
        }
    }
}

/// Red, green, blue.
type Rgb = [u8; 3];

/// The colours of a theme. Pairs are text and background.
struct Palette {
    live: Rgb,
    warn: Rgb,
    error: Rgb,
    bar: Rgb,
    heading: (Rgb, Rgb),
    sorted: (Rgb, Rgb),
    selected: (Rgb, Rgb),
    /// Colours that distinguish points.
    points: [Rgb; 8],
    /// Colour of letters on the colours of points.
    letters: Rgb,
}

const DARK: Palette = Palette {
    live: [0x22, 0xa5, 0x59],
    warn: [0xc9, 0x8a, 0x1b],
    error: [0xe5, 0x53, 0x4b],
    bar: [0x3f, 0x9b, 0xd6],
    heading: ([0xee, 0xee, 0xee], [0x26, 0x4d, 0x3a]),
    sorted: ([0xff, 0xff, 0xff], [0x00, 0x5f, 0x87]),
    selected: ([0xff, 0xff, 0xff], [0x00, 0x5f, 0xaf]),
    points: [
        [0x57, 0xb8, 0x6b],
        [0xd2, 0xa3, 0x2c],
        [0xc6, 0x78, 0xc4],
        [0xa8, 0xa8, 0xa8],
        [0x8f, 0xc4, 0x4a],
        [0xe0, 0x8f, 0x5c],
        [0x7a, 0xa7, 0xf0],
        [0x4f, 0xb5, 0xb0],
    ],
    letters: [0, 0, 0],
};

const LIGHT: Palette = Palette {
    live: [0x00, 0x70, 0x30],
    warn: [0x87, 0x57, 0x00],
    error: [0xc0, 0x20, 0x20],
    bar: [0x00, 0x5f, 0xaf],
    heading: ([0x1c, 0x1c, 0x1c], [0xc9, 0xe6, 0xd2]),
    sorted: ([0x1c, 0x1c, 0x1c], [0xaf, 0xd7, 0xff]),
    selected: ([0xff, 0xff, 0xff], [0x00, 0x5f, 0xaf]),
    points: [
        [0x1b, 0x7f, 0x3b],
        [0x8a, 0x5a, 0x00],
        [0x9c, 0x2f, 0x8f],
        [0x5a, 0x5a, 0x5a],
        [0x4a, 0x70, 0x00],
        [0xa8, 0x46, 0x14],
        [0x2a, 0x5f, 0xb0],
        [0x00, 0x6a, 0x70],
    ],
    letters: [0xff, 0xff, 0xff],
};

impl Palette {
    fn theme(&self, depth: Depth) -> Theme {
        let color = |rgb: Rgb| match depth {
            Depth::Full => Color::Rgb(rgb[0], rgb[1], rgb[2]),
            _ => Color::Indexed(nearest(rgb)),
        };
        let text = |rgb| Style::new().fg(color(rgb));
        let bold = |rgb| text(rgb).add_modifier(Modifier::BOLD);
        let pair = |(front, ground)| text(front).bg(color(ground));
        Theme {
            live: bold(self.live),
            warn: bold(self.warn),
            error: bold(self.error),
            bar: text(self.bar),
            heat: [self.bar, self.warn, self.error].map(text),
            heading: pair(self.heading),
            sorted: pair(self.sorted).add_modifier(Modifier::BOLD),
            selected: pair(self.selected),
            points: Some(self.points.map(color)),
            letters: color(self.letters),
            ..Theme::color()
        }
    }
}

/// The closest of the 256 colours, in the cube or the greys.
fn nearest(rgb: Rgb) -> u8 {
    let distance = |index: &u8| {
        let other = indexed(*index);
        rgb.iter().zip(other).map(|(a, b)| (i32::from(*a) - i32::from(b)).pow(2)).sum::<i32>()
    };
    (16..=255).min_by_key(distance).unwrap_or(16)
}

/// The colour of one of the 256; the first 16 depend on the user's settings.
fn indexed(index: u8) -> Rgb {
    const STEPS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    match index.saturating_sub(16) {
        cube @ 0..216 => [cube / 36, cube / 6 % 6, cube % 6].map(|step| STEPS[usize::from(step)]),
        grey => [8 + (grey - 216) * 10; 3],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contrast by the Web Content Accessibility Guidelines, 1 to 21.
    fn contrast(a: Rgb, b: Rgb) -> f64 {
        let luminance = |rgb: Rgb| {
            let [r, g, b] = rgb.map(|part| {
                let part = f64::from(part) / 255.0;
                if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
            });
            0.2126 * r + 0.7152 * g + 0.0722 * b
        };
        let (a, b) = (luminance(a) + 0.05, luminance(b) + 0.05);
        a.max(b) / a.min(b)
    }

    #[test]
    fn every_colour_can_be_read_on_its_ground() {
        const BLACK: Rgb = [0; 3];
        const WHITE: Rgb = [255; 3];
        let shown = |rgb| [rgb, indexed(nearest(rgb))];
        for (palette, ground) in [(DARK, BLACK), (LIGHT, WHITE)] {
            for text in [palette.live, palette.warn, palette.error, palette.bar] {
                for text in shown(text) {
                    assert!(contrast(text, ground) >= 4.5, "{text:?}");
                    // Terminals that report nothing get the dark theme, too.
                    assert!(contrast(text, WHITE) >= 2.8, "{text:?}");
                }
            }
            for point in palette.points {
                for (shown, letters) in shown(point).into_iter().zip(shown(palette.letters)) {
                    assert!(contrast(shown, ground) >= 4.5, "{point:?}");
                    assert!(contrast(shown, letters) >= 4.5, "{point:?}");
                }
            }
            for (text, ground) in [palette.heading, palette.sorted, palette.selected] {
                for (text, ground) in shown(text).into_iter().zip(shown(ground)) {
                    assert!(contrast(text, ground) >= 4.5, "{text:?} {ground:?}");
                }
            }
        }
    }

    /// xterm's values for the sixteen colours.
    fn of_xterm(color: Color) -> Rgb {
        match color {
            Color::Black => [0; 3],
            Color::Red => [0xcd, 0, 0],
            Color::Green => [0, 0xcd, 0],
            Color::Yellow => [0xcd, 0xcd, 0],
            Color::Blue => [0, 0, 0xee],
            Color::Magenta => [0xcd, 0, 0xcd],
            Color::Cyan => [0, 0xcd, 0xcd],
            Color::Gray => [0xe5; 3],
            Color::DarkGray => [0x7f; 3],
            Color::LightGreen => [0, 0xff, 0],
            Color::LightYellow => [0xff, 0xff, 0],
            Color::LightBlue => [0x5c, 0x5c, 0xff],
            Color::LightMagenta => [0xff, 0, 0xff],
            Color::White => [0xff; 3],
            other => panic!("{other:?} is not a colour of a theme"),
        }
    }

    #[test]
    fn the_sixteen_can_be_read_on_a_light_ground() {
        let theme = Theme::color_on_light();
        let on_white = |color| contrast(of_xterm(color), [255; 3]);
        let styles = [theme.live, theme.warn, theme.error, theme.bar].into_iter().chain(theme.heat);
        for style in styles {
            assert!(on_white(style.fg.unwrap()) >= 4.0, "{style:?}");
        }
        for point in theme.points.unwrap() {
            assert!(on_white(point) >= 3.0, "{point:?}");
            assert!(contrast(of_xterm(point), of_xterm(theme.letters)) >= 3.0, "{point:?}");
        }
        for style in [theme.heading, theme.sorted, theme.selected] {
            let [front, ground] = [style.fg, style.bg].map(|color| of_xterm(color.unwrap()));
            assert!(contrast(front, ground) >= 4.5, "{style:?}");
        }
    }

    #[test]
    fn the_theme_fits_the_terminal() {
        let theme = |name: ThemeName, colorterm, term, colorfgbg| {
            name.theme(Terminal::from_values(colorterm, term, colorfgbg)).selected.bg
        };
        use ThemeName::{Auto, Dark, Light, Mono, Sixteen};
        let (rgb, indexed) = (Some(Color::Rgb(0, 0x5f, 0xaf)), Some(Color::Indexed(25)));
        assert_eq!(theme(Auto, "truecolor", "xterm-256color", ""), rgb);
        assert_eq!(theme(Auto, "", "xterm-direct", ""), rgb);
        assert_eq!(theme(Auto, "", "tmux-256color", ""), indexed);
        assert_eq!(theme(Light, "", "tmux-256color", ""), indexed);
        assert_eq!(theme(Auto, "", "linux", ""), Theme::color().selected.bg);
        assert_eq!(theme(Dark, "", "linux", ""), Theme::color().selected.bg);
        assert_eq!(theme(Sixteen, "truecolor", "xterm", ""), Theme::color().selected.bg);
        assert_eq!(theme(Mono, "truecolor", "xterm", ""), None);
        assert_eq!(theme(Auto, "truecolor", "dumb", ""), None);
        let bar =
            |colorfgbg| Auto.theme(Terminal::from_values("truecolor", "xterm", colorfgbg)).bar;
        assert_eq!(bar("0;15"), LIGHT.theme(Depth::Full).bar);
        assert_eq!(bar("15;0"), DARK.theme(Depth::Full).bar);
        assert_eq!(bar("15;default;0"), DARK.theme(Depth::Full).bar);
        let sixteen = |name: ThemeName, colorfgbg| {
            name.theme(Terminal::from_values("", "linux", colorfgbg)).bar
        };
        let (dark, light) = (Theme::color().bar, Theme::color_on_light().bar);
        assert_ne!(dark, light);
        assert_eq!(
            [Auto, Sixteen, Dark, Light].map(|name| sixteen(name, "0;15"))[..],
            [light, light, dark, light]
        );
        assert_eq!(
            [Auto, Sixteen, Dark, Light].map(|name| sixteen(name, ""))[..],
            [dark, dark, dark, light]
        );
    }
}
