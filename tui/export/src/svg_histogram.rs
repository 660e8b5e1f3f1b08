//! The histograms of exclusive time as a picture: a panel for each point, the
//! duration of a call on a logarithmic axis, calls upwards, percentiles marked.
//!
//! If there are many points, only those that took the most time are drawn; the picture says how
//! many are left out.

use std::io::{self, Write};

use super::subject::{ExportedPoint, Subject};
use super::svg::{COLOURS, LETTER, QUIET, SvgPicture, cut, px};
use pfp_model::histogram::{HistogramBar, log_bars};
use pfp_read::units;

/// Maximum number of panels in one picture.
const MAX_POINTS: usize = 24;
const WIDTH: f64 = 960.0;
const MARGIN: f64 = 16.0;
/// Width for the counts.
const LEFT: f64 = 64.0;
const TOP: f64 = 44.0;
/// Height of a panel: its head, its plot and its axis.
const PANEL: f64 = 224.0;
/// Height of the part of a panel above its plot.
const HEAD: f64 = 64.0;
const PLOT: f64 = 120.0;
/// Maximum number of bars in a panel.
const BARS: usize = 96;
const MARKS: [(f64, &str); 4] = [(0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (0.999, "p99.9")];

/// Writes the picture.
pub fn write(subject: &Subject<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut shown: Vec<&ExportedPoint<'_>> =
        subject.points().iter().filter(|shown| shown.figures.is_used()).collect();
    shown.sort_by_key(|shown| std::cmp::Reverse(shown.figures.total().exclusive));
    let left_out = shown.len().saturating_sub(MAX_POINTS);
    shown.truncate(MAX_POINTS);
    let note = match left_out {
        0 => String::new(),
        n => format!("; {n} points that took less time are left out"),
    };
    let process = &subject.snapshot().process;
    let title = format!("{process}: exclusive time of single calls{note}");
    let height = TOP + shown.len() as f64 * PANEL + MARGIN;
    SvgPicture::write(out, (WIDTH, height), &title, |picture| {
        picture.heading((MARGIN, 26.0), &title)?;
        for (place, shown) in shown.iter().enumerate() {
            panel(subject, picture, shown, TOP + place as f64 * PANEL)?;
        }
        Ok(())
    })
}

/// The axis of durations in ticks.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn of(bars: &[HistogramBar]) -> Option<Self> {
        let (first, last) = (bars.first()?, bars.last()?);
        // The first bar also counts all shorter calls, but it is drawn as wide as the others.
        let ratio = bars.get(1).map_or(2.0, |next| next.high / next.low);
        let low = first.high / ratio;
        Some(Self { low, high: last.high.max(low * 1.01) })
    }

    fn x(&self, ticks: f64) -> f64 {
        let share = (ticks.max(self.low) / self.low).ln() / (self.high / self.low).ln();
        LEFT + share.min(1.0) * (WIDTH - LEFT - MARGIN)
    }
}

fn panel(
    subject: &Subject<'_>,
    picture: &mut SvgPicture<'_>,
    shown: &ExportedPoint<'_>,
    top: f64,
) -> io::Result<()> {
    let duration = |ticks: f64| units::duration(subject.ns(ticks) / 1e9);
    let figures = shown.figures;
    let bars = log_bars(&figures.buckets(), BARS);
    let Some(axis) = Axis::of(&bars) else { return Ok(()) };
    let most = bars.iter().map(|bar| bar.count).max().unwrap_or(0).max(1);
    let (plot, bottom) = (top + HEAD, top + HEAD + PLOT);
    let head = [("x", &*px(MARGIN)), ("y", &*px(top + 12.0)), ("font-weight", "600")];
    let name = cut(&shown.label, 420.0);
    picture.element("text", &head, Some(&name), None)?;
    let summary = format!(
        "{} calls, mean {}, min {}, max {}",
        units::count(figures.total().count),
        duration(figures.mean().unwrap_or(0.0)),
        duration(figures.total().min as f64),
        duration(figures.total().max as f64)
    );
    picture.text((WIDTH - MARGIN, top + 12.0), "end", QUIET, &summary)?;

    for share in [0.5, 1.0] {
        let y = bottom - PLOT * share;
        picture.line((LEFT, y), (WIDTH - MARGIN, y), "#e3e6ea", None)?;
        let count = units::si(most as f64 * share);
        picture.text((LEFT - 6.0, y + 4.0), "end", QUIET, &count)?;
    }
    decades(subject, picture, &axis, bottom)?;
    for bar in bars.iter().filter(|bar| bar.count > 0) {
        let (x, end) = (axis.x(bar.low), axis.x(bar.high));
        // Even a small count is visible.
        let height = (PLOT * bar.count as f64 / most as f64).max(1.0);
        let title = format!(
            "{} to {}: {} calls, {} % of all up to here",
            duration(bar.low),
            duration(bar.high),
            bar.count,
            units::percent(bar.cumulative)
        );
        let size = ((end - x - 0.5).max(0.5), height);
        picture.bar((x, bottom - height), size, COLOURS[0], 1.0, &title)?;
    }
    picture.line((LEFT, bottom), (WIDTH - MARGIN, bottom), QUIET, None)?;
    marks(subject, picture, shown, &axis, (plot, bottom))
}

/// Draws the marks and labels of the axis: every power of ten and, if there are few, also 2 and 5
/// times each.
fn decades(
    subject: &Subject<'_>,
    picture: &mut SvgPicture<'_>,
    axis: &Axis,
    bottom: f64,
) -> io::Result<()> {
    let (low, high) = (subject.ns(axis.low), subject.ns(axis.high));
    let few = (high / low).log10() < 2.5;
    let mut power = 10_f64.powf(low.log10().floor());
    while power <= high {
        for times in [1.0, 2.0, 5.0] {
            let ns = power * times;
            if !(low..=high).contains(&ns) || (times > 1.0 && !few) {
                continue;
            }
            let x = axis.x(ns * subject.ticks_per_second() / 1e9);
            picture.line((x, bottom), (x, bottom + 4.0), QUIET, None)?;
            let label = units::duration(ns / 1e9);
            picture.text((x, bottom + 16.0), "middle", QUIET, &label)?;
        }
        power *= 10.0;
    }
    Ok(())
}

/// Draws the percentiles. Labels that would overlap are in different rows.
fn marks(
    subject: &Subject<'_>,
    picture: &mut SvgPicture<'_>,
    shown: &ExportedPoint<'_>,
    axis: &Axis,
    (plot, bottom): (f64, f64),
) -> io::Result<()> {
    let Some(values) = shown.figures.quantiles_at(MARKS.map(|(quantile, _)| quantile)) else {
        return Ok(());
    };
    // The position from which each row is free; labels are placed from left to right.
    let mut free = [LEFT; MARKS.len() - 1];
    for ((_, name), ticks) in MARKS.iter().zip(values) {
        let x = axis.x(ticks as f64);
        let label = format!("{name} {}", units::duration(subject.ns(ticks as f64) / 1e9));
        let width = label.chars().count() as f64 * LETTER;
        let left = (x - width / 2.0).clamp(LEFT, WIDTH - MARGIN - width);
        let row = free.iter().position(|free| *free <= left).unwrap_or(free.len() - 1);
        free[row] = left + width + LETTER;
        let y = plot - 6.0 - 13.0 * row as f64;
        picture.line((x, y + 2.0), (x, bottom), COLOURS[3], Some("3 2"))?;
        picture.text((left, y), "start", COLOURS[3], &label)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::tests::written;
    use pfp_model::Model;
    use pfp_read::snapshot::Snapshot;
    use pfp_read::source::Source;
    use pfp_read::source::synthetic::Synthetic;

    fn exported(change: impl Fn(&mut Snapshot), passes: impl Fn(u32) -> bool) -> String {
        let mut snapshot = Synthetic::new().poll().unwrap();
        change(&mut snapshot);
        String::from_utf8(written(Format::SvgHistogram, &Model::of(snapshot), passes)).unwrap()
    }

    #[test]
    fn the_bars_of_a_panel_are_all_calls() {
        let svg = exported(|_| {}, |id| id == 1);
        let counts = svg.lines().filter_map(|line| {
            let (_, title) = line.split_once("<title>")?;
            title.split_once(": ")?.1.split_once(" calls, ")?.0.parse::<u64>().ok()
        });
        let model = Model::of(Synthetic::new().poll().unwrap());
        assert_eq!(counts.sum::<u64>(), model.points()[1].total().count);
        let [p50] = model.points()[1].quantiles_at([0.5]).unwrap();
        let label = format!(">p50 {}</text>", units::duration(p50 as f64 / 2.6e9));
        assert!(svg.contains(&label), "{label} in {svg}");
        assert!(svg.contains(">50.0us</text>") && svg.contains(">100us</text>"), "{svg}");
    }

    #[test]
    fn the_points_with_the_most_time_are_drawn() {
        let svg = exported(
            |snapshot| {
                let point = snapshot.points[1].clone();
                let cell = snapshot.cells[0].as_ref().clone();
                for id in 100..140 {
                    snapshot.points.push(pfp_read::snapshot::Point { id, ..point.clone() });
                    let cell = pfp_read::snapshot::Cell { point: id, ..cell.clone() };
                    snapshot.cells.push(cell.into());
                }
            },
            |_| true,
        );
        assert!(svg.contains("23 points that took less time are left out"), "{svg}");
        assert_eq!(svg.matches(" calls, mean ").count(), MAX_POINTS);
    }

    #[test]
    fn hostile_names_stay_text() {
        let svg = exported(|snapshot| snapshot.points[1].name = "<script>&\u{1}".into(), |_| true);
        assert!(!svg.contains("<script>") && svg.contains("&lt;script&gt;&amp;\u{fffd}"), "{svg}");
    }
}
