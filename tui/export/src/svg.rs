//! Shapes, colours and axes for all pictures. They are plain SVG that browsers show without a
//! script or an embedded font; tooltips are `title` elements.

use std::borrow::Cow;
use std::io::{self, Write};

use quick_xml::Writer;
use quick_xml::events::BytesText;

/// The assumed width of a letter, pixels, at [`FONT_SIZE`].
pub(super) const LETTER: f64 = 6.6;
/// Font size, pixels.
pub(super) const FONT_SIZE: f64 = 11.0;

/// Colours of bars, distinguishable for colour-blind people too (after Okabe and Ito, and paler).
pub(super) const COLOURS: [&str; 10] = [
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#b8a800", "#7a5195",
    "#8c6d31", "#4d7f8c",
];
/// The colour of everything without a colour of its own.
pub(super) const OTHERS: &str = "#9aa0a6";
/// The colour of less important lines and letters.
pub(super) const QUIET: &str = "#6b7280";
const INK: &str = "#1f2328";
const PAPER: &str = "#ffffff";
const FONTS: &str = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace";

/// A picture that is being written.
pub(super) struct SvgPicture<'a>(Writer<&'a mut dyn Write>);

/// A length with as many digits as are visible.
pub(super) fn px(length: f64) -> String {
    format!("{length:.1}")
}

impl<'a> SvgPicture<'a> {
    /// Writes a picture of this size, pixels, with a background.
    pub(super) fn write(
        out: &'a mut dyn Write,
        (width, height): (f64, f64),
        title: &str,
        draw: impl FnOnce(&mut SvgPicture<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let (w, h) = (px(width), px(height));
        let mut writer = Writer::new(out);
        writer
            .create_element("svg")
            .with_attribute(("xmlns", "http://www.w3.org/2000/svg"))
            .with_attribute(("width", w.as_str()))
            .with_attribute(("height", h.as_str()))
            .with_attribute(("viewBox", format!("0 0 {w} {h}").as_str()))
            .with_attribute(("font-family", FONTS))
            .with_attribute(("font-size", px(FONT_SIZE).as_str()))
            .with_attribute(("fill", INK))
            .write_inner_content(|writer| {
                let mut picture = SvgPicture(Writer::new(&mut **writer.get_mut()));
                picture.element("title", &[], Some(title), None)?;
                let ground = [("width", w.as_str()), ("height", &h), ("fill", PAPER)];
                picture.element("rect", &ground, None, None)?;
                draw(&mut picture)
            })?;
        writer.get_mut().write_all(b"\n")
    }

    /// The title above a picture.
    pub(super) fn heading(&mut self, (x, y): (f64, f64), text: &str) -> io::Result<()> {
        let [x, y] = [x, y].map(px);
        let attributes = [("x", &*x), ("y", &*y), ("font-size", "15"), ("font-weight", "600")];
        self.element("text", &attributes, Some(text), None)
    }

    /// An element with its text, or with a title as tooltip.
    pub(super) fn element(
        &mut self,
        name: &str,
        attributes: &[(&str, &str)],
        text: Option<&str>,
        title: Option<&str>,
    ) -> io::Result<()> {
        self.0.get_mut().write_all(b"\n")?;
        let attributes: Vec<_> = attributes.iter().map(|(key, value)| (*key, fit(value))).collect();
        let element =
            attributes.iter().fold(self.0.create_element(name), |element, (key, value)| {
                element.with_attribute((*key, value.as_ref()))
            });
        match (text, title) {
            (Some(text), _) => element.write_text_content(BytesText::new(&fit(text)))?,
            (_, Some(title)) => element.write_inner_content(|writer| {
                let title = fit(title);
                writer.create_element("title").write_text_content(BytesText::new(&title))?;
                Ok(())
            })?,
            (None, None) => element.write_empty()?,
        };
        Ok(())
    }

    /// A rectangle with a tooltip.
    pub(super) fn bar(
        &mut self,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        fill: &str,
        opacity: f64,
        title: &str,
    ) -> io::Result<()> {
        let [x, y, width, height] = [x, y, width, height].map(px);
        let opacity = format!("{opacity:.2}");
        let mut attributes =
            vec![("x", &*x), ("y", &*y), ("width", &*width), ("height", &*height), ("fill", fill)];
        if opacity != "1.00" {
            attributes.push(("fill-opacity", &opacity));
        }
        self.element("rect", &attributes, None, Some(title))
    }

    /// A line; `dashes` is its `stroke-dasharray`.
    pub(super) fn line(
        &mut self,
        (x1, y1): (f64, f64),
        (x2, y2): (f64, f64),
        stroke: &str,
        dashes: Option<&str>,
    ) -> io::Result<()> {
        let [x1, y1, x2, y2] = [x1, y1, x2, y2].map(px);
        let mut attributes =
            vec![("x1", &*x1), ("y1", &*y1), ("x2", &*x2), ("y2", &*y2), ("stroke", stroke)];
        attributes.extend(dashes.map(|dashes| ("stroke-dasharray", dashes)));
        self.element("line", &attributes, None, None)
    }

    /// Text that starts at `x`, is centred on it, or ends at it: `start`, `middle` or `end`.
    pub(super) fn text(
        &mut self,
        (x, y): (f64, f64),
        anchor: &str,
        fill: &str,
        text: &str,
    ) -> io::Result<()> {
        let [x, y] = [x, y].map(px);
        let attributes = [("x", &*x), ("y", &*y), ("text-anchor", anchor), ("fill", fill)];
        self.element("text", &attributes, Some(text), None)
    }
}

/// The text without characters that XML forbids even when escaped.
fn fit(text: &str) -> Cow<'_, str> {
    let unfit = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    match text.contains(unfit) {
        true => text.replace(unfit, "\u{fffd}").into(),
        false => text.into(),
    }
}

/// The text shortened to `width` pixels; a shortened text ends with an ellipsis.
pub(super) fn cut(text: &str, width: f64) -> Cow<'_, str> {
    let room = (width / LETTER).max(0.0) as usize;
    match text.chars().count() <= room {
        true => text.into(),
        false => pfp_read::text::cut(text, room, '…').into(),
    }
}

/// The greatest step of 1, 2 or 5 times a power of ten that divides a range into at least `parts`
/// parts.
pub(super) fn step(range: f64, parts: f64) -> f64 {
    let most = (range / parts).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(most.log10().floor());
    [5.0, 2.0].into_iter().map(|times| times * power).find(|step| *step <= most).unwrap_or(power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        for (range, parts, expected) in
            [(1000.0, 5.0, 200.0), (999.0, 5.0, 100.0), (0.7, 6.0, 0.1), (26.0, 5.0, 5.0)]
        {
            assert!((step(range, parts) / expected - 1.0).abs() < 1e-9, "{range} {parts}");
        }
    }

    #[test]
    fn nothing_that_xml_cannot_hold_comes_through() {
        let mut out = Vec::new();
        SvgPicture::write(&mut out, (10.0, 10.0), "<a> & \u{0}\u{b}\u{ffff}\"", |picture| {
            picture.bar((0.0, 0.0), (1.0, 1.0), "red", 1.0, "</title><script>")
        })
        .unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("&lt;a&gt; &amp; \u{fffd}\u{fffd}\u{fffd}"), "{text}");
        assert!(!text.contains("<script>"), "{text}");
    }
}
