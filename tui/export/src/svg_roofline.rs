//! The roofline as a picture: operations per second over operations per byte, both logarithmic;
//! ceilings are lines, and points are circles, larger for more time.

use std::io::{self, Write};

use super::svg::{COLOURS, FONT_SIZE, LETTER, QUIET, SvgPicture, cut, px};
use pfp_model::roofline::{Ceilings, Dot, Flops, Roof};
use pfp_read::units;

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 600.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 176.0;
const TOP: f64 = 76.0;
const BOTTOM: f64 = 56.0;
/// Maximum number of points that are drawn. The points that took the most time are drawn, and the
/// others are counted.
const MAX_POINTS: usize = 40;

/// Writes the picture. `whose` names the program of the dots, if any.
pub fn write(
    ceilings: &Ceilings,
    dots: &[Dot],
    whose: Option<&str>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut shown: Vec<&Dot> = dots.iter().filter(|dot| is_drawable(dot)).collect();
    shown.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    let left_out = shown.len().saturating_sub(MAX_POINTS);
    shown.truncate(MAX_POINTS);
    let axes = SvgAxes::of(ceilings, &shown);
    let title = match whose {
        None => format!("Roofline of {}", ceilings.cpu),
        Some(whose) => format!("{whose}: roofline of {}", ceilings.cpu),
    };
    SvgPicture::write(out, (WIDTH, HEIGHT), &title, |picture| {
        picture.heading((16.0, 26.0), &cut(&title, WIDTH))?;
        let mut note = String::from(
            "double precision; one thread, per second of its own CPU time; larger dots took more \
             CPU time",
        );
        if left_out > 0 {
            note += &format!("; {left_out} points that took less time are left out");
        }
        picture.text((16.0, 44.0), "start", QUIET, &note)?;
        grid(picture, &axes)?;
        if ceilings.together.threads > 1 {
            let share = ceilings.together.of_a_thread();
            roof(
                picture,
                &axes,
                &share,
                Some("5 4"),
                &format!(", 1 of {}", ceilings.together.threads),
                &ceilings.alone.flops,
            )?;
        }
        roof(picture, &axes, &ceilings.alone, None, "", &[])?;
        let most = shown.first().map_or(1.0, |dot| dot.seconds).max(f64::MIN_POSITIVE);
        shown.iter().enumerate().try_for_each(|(place, dot)| {
            let colour = COLOURS[place % COLOURS.len()];
            mark(picture, &axes, dot, &ceilings.alone, colour, most)
        })
    })
}

/// Whether a dot can be drawn on logarithmic axes.
fn is_drawable(dot: &Dot) -> bool {
    [dot.intensity, dot.flops_per_second].iter().all(|value| value.is_finite() && *value > 0.0)
}

/// The ranges of the axes, as powers of ten.
#[derive(Clone, Copy, Debug)]
struct SvgAxes {
    x: (f64, f64),
    y: (f64, f64),
}

impl SvgAxes {
    /// The ranges that contain all dots, and the ridge of one thread's roof.
    fn of(ceilings: &Ceilings, dots: &[&Dot]) -> Self {
        let roof = &ceilings.alone;
        let xs =
            dots.iter().map(|dot| dot.intensity).chain([roof.ridge() * 4.0, roof.ridge() / 64.0]);
        let ys = dots
            .iter()
            .map(|dot| dot.flops_per_second)
            .chain([roof.peak(), roof.at(roof.ridge() / 64.0)]);
        Self { x: decades(xs), y: decades(ys) }
    }

    fn x(&self, intensity: f64) -> f64 {
        let share = (intensity.log10() - self.x.0) / (self.x.1 - self.x.0);
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, flops: f64) -> f64 {
        let share = (flops.log10() - self.y.0) / (self.y.1 - self.y.0);
        HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - BOTTOM - TOP)
    }
}

/// The powers of ten around all values.
fn decades(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let logs: Vec<f64> = values.map(f64::log10).filter(|log| log.is_finite()).collect();
    let low = logs.iter().copied().fold(f64::INFINITY, f64::min);
    let high = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if logs.is_empty() { (0.0, 1.0) } else { (low.floor(), high.ceil().max(low.floor() + 1.0)) }
}

fn grid(picture: &mut SvgPicture<'_>, axes: &SvgAxes) -> io::Result<()> {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for power in axes.x.0 as i32..=axes.x.1 as i32 {
        let value = 10_f64.powi(power);
        let x = axes.x(value);
        picture.line((x, TOP), (x, bottom), "#e3e6ea", None)?;
        picture.text((x, bottom + 16.0), "middle", QUIET, &format!("{value}"))?;
    }
    for power in axes.y.0 as i32..=axes.y.1 as i32 {
        let value = 10_f64.powi(power);
        let y = axes.y(value);
        picture.line((LEFT, y), (right, y), "#e3e6ea", None)?;
        picture.text((LEFT - 6.0, y + 4.0), "end", QUIET, &units::si(value))?;
    }
    let middle = (LEFT + right) / 2.0;
    picture.text((middle, bottom + 38.0), "middle", QUIET, "operations per byte")?;
    picture.text((LEFT - 6.0, TOP - 8.0), "end", QUIET, "FLOP/s")
}

/// Draws the lines of a roof: a rising line for each bandwidth, up to the best arithmetic rate; and
/// a level line for each arithmetic rate, from the point where the best bandwidth reaches it.
fn roof(
    picture: &mut SvgPicture<'_>,
    axes: &SvgAxes,
    roof: &Roof,
    dashes: Option<&str>,
    suffix: &str,
    named: &[Flops],
) -> io::Result<()> {
    let (first, last) = (10_f64.powf(axes.x.0), 10_f64.powf(axes.x.1));
    let lowest = 10_f64.powf(axes.y.0);
    let fastest = roof.bandwidths.iter().map(|b| b.bytes_per_second).fold(0.0, f64::max);
    let stroke = if dashes.is_some() { QUIET } else { "#1f2328" };
    // The lines with their labels. If the label of a line would overlap another line's label, the
    // text is added to the other label.
    let mut labels: Vec<([(f64, f64); 2], String)> = Vec::new();
    for bandwidth in &roof.bandwidths {
        let rate = bandwidth.bytes_per_second;
        // The line enters the picture at the left or the lower edge.
        let from = first.max(lowest / rate);
        let to = (roof.peak() / rate).min(last);
        if from >= to {
            continue;
        }
        let ends = [from, to].map(|x| (axes.x(x), axes.y(x * rate)));
        picture.line(ends[0], ends[1], stroke, dashes)?;
        if dashes.is_none() {
            let label = format!("{} {}B/s", bandwidth.level, units::si(rate));
            let is_near = |line: &[(f64, f64); 2]| (across(*line, ends[0])).abs() < FONT_SIZE;
            match labels.iter_mut().find(|(line, _)| is_near(line)) {
                Some((_, known)) => *known += &format!(", {label}"),
                None => labels.push((ends, label)),
            }
        }
    }
    for (ends, label) in &labels {
        along(picture, *ends, stroke, label)?;
    }
    for flops in &roof.flops {
        let from = (flops.per_second / fastest).clamp(first, last);
        let y = axes.y(flops.per_second);
        picture.line((axes.x(from), y), (axes.x(last), y), stroke, dashes)?;
        // A dashed line near a labelled line has no label, since the labels would overlap.
        let is_near = |other: f64| (axes.y(other) - y).abs() < FONT_SIZE;
        if dashes.is_some() && named.iter().any(|flops| is_near(flops.per_second)) {
            continue;
        }
        let label = format!("{}{suffix} {}", flops.kind, units::si(flops.per_second));
        let label = cut(&label, RIGHT - 12.0);
        picture.text((WIDTH - RIGHT + 6.0, y + 4.0), "start", stroke, &label)?;
    }
    Ok(())
}

/// The distance of a point from the line through two others.
fn across([from, to]: [(f64, f64); 2], point: (f64, f64)) -> f64 {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    ((point.0 - from.0) * dy - (point.1 - from.1) * dx) / dx.hypot(dy).max(f64::MIN_POSITIVE)
}

/// A halo lets letters stand out from lines.
const HALO: [(&str, &str); 3] =
    [("stroke", "#ffffff"), ("stroke-width", "3"), ("paint-order", "stroke")];

/// Text above the start of a line, along its slope.
fn along(
    picture: &mut SvgPicture<'_>,
    [from, to]: [(f64, f64); 2],
    fill: &str,
    text: &str,
) -> io::Result<()> {
    let angle = (to.1 - from.1).atan2(to.0 - from.0).to_degrees();
    let (x, y) = (px(from.0), px(from.1));
    let turned = format!("rotate({angle:.1} {x} {y}) translate(10 -4)");
    let attributes = [("x", &*x), ("y", &*y), ("fill", fill), ("transform", &turned)];
    picture.element("text", &[&attributes[..], &HALO].concat(), Some(text), None)
}

fn mark(
    picture: &mut SvgPicture<'_>,
    axes: &SvgAxes,
    dot: &Dot,
    alone: &Roof,
    colour: &str,
    most: f64,
) -> io::Result<()> {
    let (x, y) = (axes.x(dot.intensity), axes.y(dot.flops_per_second));
    // The radius grows with the square root of the time, from a size that can be pointed at.
    let radius = 4.0 + 8.0 * (dot.seconds / most).sqrt();
    let held = dot.limit(alone).map_or(String::new(), |limit| format!(", below {limit}"));
    let title = format!(
        "{}: {}FLOP/s, {}B/s, {:.3} operations per byte, {} % of what memory allows{held}",
        dot.label,
        units::si(dot.flops_per_second),
        units::si(dot.bytes_per_second()),
        dot.intensity,
        units::percent(dot.share_of(alone)),
    );
    let (cx, cy, r) = (px(x), px(y), px(radius));
    let attributes = [
        ("cx", &*cx),
        ("cy", &*cy),
        ("r", &*r),
        ("fill", colour),
        ("fill-opacity", "0.75"),
        ("stroke", "#ffffff"),
    ];
    picture.element("circle", &attributes, None, Some(&title))?;
    let room = WIDTH - x - radius - 4.0;
    let label = cut(&dot.label, room.max(LETTER * 4.0));
    let (x, y) = (px(x + radius + 4.0), px(y + 4.0));
    let attributes = [("x", &*x), ("y", &*y), ("fill", colour)];
    picture.element("text", &[&attributes[..], &HALO].concat(), Some(&label), None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pfp_model::roofline::made_up_ceilings as ceilings;

    fn written(dots: &[Dot]) -> String {
        let mut out = Vec::new();
        write(&ceilings(), dots, Some("app[7]"), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn attribute(line: &str, name: &str) -> f64 {
        let (_, rest) = line.split_once(&format!(" {name}=\"")).unwrap();
        rest.split('"').next().unwrap().parse().unwrap()
    }

    fn dot(label: &str, intensity: f64, flops_per_second: f64, seconds: f64) -> Dot {
        Dot { label: label.into(), intensity, flops_per_second, seconds }
    }

    /// Dots that use all of the memory's bandwidth are on the line of the memory. Dots that use
    /// half of it are below that line, by the same distance at any intensity.
    #[test]
    fn dots_lie_where_their_rates_are() {
        let full = [0.05, 0.5].map(|intensity| dot("full", intensity, 20e9 * intensity, 1.0));
        let half = [0.05, 0.5].map(|intensity| dot("half", intensity, 10e9 * intensity, 0.25));
        let svg = written(&[full, half].concat());
        let circles: Vec<&str> = svg.lines().filter(|line| line.starts_with("<circle")).collect();
        assert_eq!(circles.len(), 4);
        let at = |place: usize| (attribute(circles[place], "cx"), attribute(circles[place], "cy"));
        let slope = |a: (f64, f64), b: (f64, f64)| (b.1 - a.1) / (b.0 - a.0);
        let line = svg.lines().filter(|line| line.starts_with("<line")).find(|line| {
            let (x1, y1) = (attribute(line, "x1"), attribute(line, "y1"));
            let (x2, y2) = (attribute(line, "x2"), attribute(line, "y2"));
            let on = |(x, y): (f64, f64)| (y1 + (x - x1) * (y2 - y1) / (x2 - x1) - y).abs() < 0.5;
            y1 != y2 && x1 != x2 && on(at(0)) && on(at(1))
        });
        assert!(line.is_some(), "no ceiling goes through the full ones: {svg}");
        assert!((slope(at(0), at(1)) - slope(at(2), at(3))).abs() < 0.01);
        assert!((at(2).1 - at(0).1 - (at(3).1 - at(1).1)).abs() < 0.2 && at(2).1 > at(0).1);
        assert!(attribute(circles[0], "r") > attribute(circles[2], "r"), "by their time");
        assert!(svg.contains("100.0 % of what memory allows, below memory"), "{svg}");
    }

    #[test]
    fn ceilings_that_lie_on_each_other_have_one_label() {
        let mut ceilings = ceilings();
        let level = |name: &str, rate: f64| pfp_model::roofline::Bandwidth {
            level: name.into(),
            working_set: 1 << 20,
            bytes_per_second: rate,
        };
        ceilings.alone.bandwidths =
            vec![level("L2", 100e9), level("L3", 20.2e9), level("memory", 20e9)];
        let mut out = Vec::new();
        write(&ceilings, &[], None, &mut out).unwrap();
        let svg = String::from_utf8(out).unwrap();
        assert!(svg.contains(">L2 100GB/s<"), "{svg}");
        assert!(svg.contains(">L3 20.2GB/s, memory 20.0GB/s<"), "{svg}");
    }

    #[test]
    fn undrawable_points_are_left_out_and_names_are_escaped() {
        let svg = written(&[
            dot("<b>", 1.0, 1e9, 1.0),
            dot("no bytes", f64::INFINITY, 1e9, 1.0),
            dot("no work", 0.0, 0.0, 1.0),
        ]);
        assert_eq!(svg.matches("<circle").count(), 1);
        assert!(svg.contains("&lt;b&gt;") && !svg.contains("<b>"));
        let many: Vec<Dot> =
            (1..=50).map(|n| dot(&format!("p{n}"), 1.0, 1e9, f64::from(n))).collect();
        let svg = written(&many);
        assert!(svg.contains("10 points that took less time are left out"), "{svg}");
        assert!(svg.contains(">p50<") && !svg.contains(">p1<"));
    }
}
