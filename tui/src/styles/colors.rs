//! The user's own colours, from the settings file.

use std::str::FromStr;

use ratatui::style::{Color, Modifier, Style};
use serde::{Deserialize, Deserializer, de::Error};

use super::theme::Theme;

/// The user's colours, by their names in [`Theme`], in place of the theme's own.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct ChosenColors {
    header: Option<Paint>,
    process: Option<Paint>,
    live: Option<Paint>,
    warn: Option<Paint>,
    error: Option<Paint>,
    heading: Option<Paint>,
    sorted: Option<Paint>,
    selected: Option<Paint>,
    found: Option<Paint>,
    faint: Option<Paint>,
    bar: Option<Paint>,
    heat: Option<[Paint; 3]>,
    key: Option<Paint>,
    points: Option<[Ink; 8]>,
    letters: Option<Ink>,
}

impl ChosenColors {
    /// The theme with these colours; a theme without colours stays unchanged.
    pub fn over(&self, theme: Theme) -> Theme {
        let Some(points) = theme.points else { return theme };
        let style = |chosen: Option<Paint>, own: Style| chosen.map_or(own, |paint| paint.0);
        Theme {
            header: style(self.header, theme.header),
            process: style(self.process, theme.process),
            live: style(self.live, theme.live),
            warn: style(self.warn, theme.warn),
            error: style(self.error, theme.error),
            heading: style(self.heading, theme.heading),
            sorted: style(self.sorted, theme.sorted),
            selected: style(self.selected, theme.selected),
            found: style(self.found, theme.found),
            faint: style(self.faint, theme.faint),
            bar: style(self.bar, theme.bar),
            heat: self.heat.map_or(theme.heat, |heat| heat.map(|paint| paint.0)),
            key: style(self.key, theme.key),
            points: Some(self.points.map_or(points, |points| points.map(|ink| ink.0))),
            letters: self.letters.map_or(theme.letters, |ink| ink.0),
        }
    }
}

/// A style, written as `red`, `#ff8700`, `208`, `white on blue`, `bold` or `black on green
/// underlined`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Paint(Style);

impl FromStr for Paint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut style = Style::new();
        let mut words = text.split_whitespace().peekable();
        if words.peek().is_none() {
            return Err(wrong(text));
        }
        while let Some(word) = words.next() {
            style = match word {
                "bold" => style.add_modifier(Modifier::BOLD),
                "dim" => style.add_modifier(Modifier::DIM),
                "italic" => style.add_modifier(Modifier::ITALIC),
                "underlined" => style.add_modifier(Modifier::UNDERLINED),
                "reversed" => style.add_modifier(Modifier::REVERSED),
                "on" if style.bg.is_none() => style.bg(color(words.next().unwrap_or(""), text)?),
                _ if style.fg.is_none() => style.fg(color(word, text)?),
                _ => return Err(wrong(text)),
            };
        }
        Ok(Self(style))
    }
}

/// A colour, without a background or modifiers.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ink(Color);

impl FromStr for Ink {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        color(text, text).map(Self)
    }
}

fn color(word: &str, all: &str) -> Result<Color, String> {
    word.parse().map_err(|_| wrong(all))
}

fn wrong(found: &str) -> String {
    format!(
        "expected a colour such as red, lightblue, 208 or #ff8700, optionally \"on\" a background \
         colour, and bold, dim, italic, underlined or reversed, found {found:?}"
    )
}

macro_rules! from_text {
    ($($type:ty)*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                String::deserialize(input)?.parse().map_err(D::Error::custom)
            }
        }
    )*};
}

from_text! { Paint Ink }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_read_as_people_write_them() {
        let paint = |text: &str| text.parse::<Paint>().map(|paint| paint.0);
        let plain = Style::new();
        assert_eq!(paint("red"), Ok(plain.fg(Color::Red)));
        assert_eq!(paint("208"), Ok(plain.fg(Color::Indexed(208))));
        assert_eq!(
            paint("white on #005faf bold"),
            Ok(plain.fg(Color::White).bg(Color::Rgb(0, 0x5f, 0xaf)).add_modifier(Modifier::BOLD))
        );
        assert_eq!(paint("reversed"), Ok(plain.add_modifier(Modifier::REVERSED)));
        assert_eq!(paint("on blue"), Ok(plain.bg(Color::Blue)));
        for wrong in ["", "pinkish", "red green", "red on", "red on blue on green", "#12", "300"] {
            assert!(paint(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_theme_without_colours_stays_without() {
        let chosen = ChosenColors { bar: Some("red".parse().unwrap()), ..Default::default() };
        assert_eq!(chosen.over(Theme::monochrome()).bar, Theme::monochrome().bar);
        assert_eq!(chosen.over(Theme::color()).bar.fg, Some(Color::Red));
        assert_eq!(chosen.over(Theme::color()).key, Theme::color().key);
    }
}
