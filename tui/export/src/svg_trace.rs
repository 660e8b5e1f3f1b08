//! The last moments of every thread as a picture: a row for each level of regions, a colour for
//! each of the points that take the most time, time from left to right.
//!
//! A bar is paler if its thread was off the CPU for more of it. Bars too narrow to see are drawn as
//! one, so that the picture does not grow with the rings. Time that a ring no longer holds is
//! hatched.

use std::collections::HashMap;
use std::io::{self, Write};

use super::subject::Subject;
use super::svg::{COLOURS, FONT_SIZE, LETTER, OTHERS, QUIET, SvgPicture, cut, px, step};
use super::tracks::{Cpu, ExportTrack, TrackSlice, tracks};
use pfp_read::units;

const WIDTH: f64 = 1280.0;
const MARGIN: f64 = 14.0;
/// Width for the names of threads.
const LEFT: f64 = 190.0;
/// Height for the title and the axis.
const TOP: f64 = 62.0;
/// Height of a row.
const ROW: f64 = 15.0;
/// Height of the gap between threads.
const GAP: f64 = 7.0;
/// Width below which bars are drawn as one.
const NARROWEST: f64 = 0.6;
/// Approximate number of bars that a browser shows without delay; if there are many rows, wider
/// bars are drawn as one, too.
const MAX_BARS: f64 = 60_000.0;
/// Opacity of a bar whose regions were never on a CPU.
const PALEST: f64 = 0.25;
/// Distance of two strokes of a hatching.
const STROKES: f64 = 6.0;
/// Height of a line of the legend.
const LEGEND_ROW: f64 = 18.0;

/// The visible time, nanoseconds, and its position in the picture.
struct TraceWindow {
    from: u64,
    to: u64,
    /// Width below which bars are drawn as one, pixels.
    narrowest: f64,
}

impl TraceWindow {
    /// The longest window that at least half of the rings with lost records still cover completely.
    fn of(subject: &Subject<'_>, tracks: &[ExportTrack]) -> Self {
        let slices = || tracks.iter().flat_map(|track| &track.slices);
        let taken = subject.whole_ns(subject.snapshot().elapsed_ticks);
        let to = slices().map(|slice| slice.end_ns).max().unwrap_or(taken);
        let first = slices().map(|slice| slice.start_ns).min().unwrap_or(0);
        let mut lost: Vec<u64> = tracks
            .iter()
            .filter(|track| !track.slices.is_empty())
            .filter_map(|track| track.lost.map(|lost| lost.until_ns))
            .collect();
        lost.sort_unstable();
        let from = lost.get(lost.len() / 2).copied().unwrap_or(first).max(first);
        let rows: usize = tracks.iter().map(levels).sum();
        let narrowest = NARROWEST.max(rows as f64 * (WIDTH - LEFT - MARGIN) / MAX_BARS);
        Self { from: from.min(to.saturating_sub(1)), to: to.max(1), narrowest }
    }

    fn ns(&self) -> f64 {
        self.to.saturating_sub(self.from).max(1) as f64
    }

    fn x(&self, ns: u64) -> f64 {
        let since = ns.clamp(self.from, self.to) - self.from;
        LEFT + since as f64 / self.ns() * (WIDTH - LEFT - MARGIN)
    }
}

/// Rows of a track; at least one.
fn levels(track: &ExportTrack) -> usize {
    track.slices.iter().map(|slice| slice.level + 1).max().unwrap_or(1)
}

/// One region, or several drawn as one bar.
struct TraceBar<'a> {
    x: f64,
    end: f64,
    slices: Vec<&'a TrackSlice>,
}

/// Writes the picture.
pub fn write(subject: &Subject<'_>, out: &mut dyn Write) -> io::Result<()> {
    let tracks = tracks(subject);
    let window = TraceWindow::of(subject, &tracks);
    let legend = legend(&tracks, &window);
    let rows: f64 = tracks.iter().map(|track| levels(track) as f64 * ROW + GAP).sum();
    let names: Vec<String> = legend.iter().map(|(id, _)| label(subject, *id)).collect();
    let (places, legend_height) = places(&names);
    let height = TOP + rows + 26.0 + legend_height + 22.0 + MARGIN;
    let process = &subject.snapshot().process;
    let title = format!("{process}: the last {}", units::duration(window.ns() / 1e9));
    let colours: HashMap<u32, &str> =
        legend.iter().zip(COLOURS).map(|((id, _), colour)| (*id, colour)).collect();
    SvgPicture::write(out, (WIDTH, height), &title, |picture| {
        picture.element("style", &[], Some(".lost{fill:none;stroke:#c3c8cf}"), None)?;
        picture.element(
            "text",
            &[("x", &px(MARGIN)), ("y", "24"), ("font-size", "15"), ("font-weight", "600")],
            Some(&title),
            None,
        )?;
        let mut y = TOP;
        axis(picture, &window, TOP + rows)?;
        for track in &tracks {
            let height = levels(track) as f64 * ROW;
            let name = row_name(subject, &tracks, track);
            picture.text((MARGIN, y + ROW - 4.0), "start", "#1f2328", &name)?;
            lost(picture, track, &window, (y, height))?;
            for level in 0..levels(track) {
                let y = y + level as f64 * ROW;
                for bar in bars(track, &window, level) {
                    draw(subject, picture, &bar, &colours, &window, y)?;
                }
            }
            y += height + GAP;
        }
        y += 26.0;
        for ((name, place), colour) in names.iter().zip(places).zip(COLOURS) {
            let at = (place.0, y + place.1);
            picture.bar((at.0, at.1 - 9.0), (10.0, 10.0), colour, 1.0, name)?;
            picture.text((at.0 + 15.0, at.1), "start", "#1f2328", name)?;
        }
        let mut note =
            String::from("other points grey; paler: off the CPU; hatched: no longer in the ring");
        if tracks.iter().any(|track| track.device.is_some()) {
            note += "; devices: measured by their own clocks, drawn at the earliest possible time";
        }
        picture.text((MARGIN, y + legend_height + 14.0), "start", QUIET, &note)
    })
}

/// The points that take the most time of the window, with their time.
fn legend(tracks: &[ExportTrack], window: &TraceWindow) -> Vec<(u32, u64)> {
    let mut taken: HashMap<u32, u64> = HashMap::new();
    for slice in tracks.iter().flat_map(|track| &track.slices) {
        let seen = slice.end_ns.min(window.to).saturating_sub(slice.start_ns.max(window.from));
        let seen_of = taken.entry(slice.region.point).or_default();
        *seen_of = seen_of.saturating_add(seen);
    }
    let mut taken: Vec<_> = taken.into_iter().filter(|(_, ns)| *ns > 0).collect();
    taken.sort_by_key(|(id, ns)| (std::cmp::Reverse(*ns), *id));
    taken.truncate(COLOURS.len());
    taken
}

/// The positions of the legend's names, and its height.
fn places(names: &[String]) -> (Vec<(f64, f64)>, f64) {
    let (mut x, mut y) = (MARGIN, 0.0);
    let mut places = Vec::new();
    for name in names {
        let width = 15.0 + name.chars().count() as f64 * LETTER + 20.0;
        if x > MARGIN && x + width > WIDTH {
            (x, y) = (MARGIN, y + LEGEND_ROW);
        }
        places.push((x, y));
        x += width;
    }
    (places, y + LEGEND_ROW)
}

fn label(subject: &Subject<'_>, id: u32) -> String {
    subject.point(id).map_or_else(String::new, |shown| cut(&shown.label, 400.0).into_owned())
}

/// The name of a row, with the thread's number where another thread has the same name.
fn row_name(subject: &Subject<'_>, tracks: &[ExportTrack], track: &ExportTrack) -> String {
    const ROOM: f64 = LEFT - 24.0;
    let (lane, name) = (&track.lane, track.name(subject));
    let is_twin = |other: &ExportTrack| other.lane.id != lane.id && other.lane.name == lane.name;
    if !tracks.iter().any(is_twin) || lane.name.is_empty() {
        return cut(&name, ROOM).into_owned();
    }
    let number = format!(" [{}]", lane.tid);
    cut(&name, ROOM - number.len() as f64 * LETTER).into_owned() + &number
}

fn axis(picture: &mut SvgPicture<'_>, window: &TraceWindow, bottom: f64) -> io::Result<()> {
    let step = step(window.ns(), 7.0);
    let mut since = 0.0;
    while since <= window.ns() {
        let x = window.x(window.from.saturating_add(since as u64));
        picture.line((x, TOP - 6.0), (x, bottom), "#e3e6ea", None)?;
        let label = if since == 0.0 { "0".into() } else { units::duration(since / 1e9) };
        picture.text((x, TOP - 10.0), "middle", QUIET, &label)?;
        since += step;
    }
    Ok(())
}

/// Hatches the time that a ring has lost.
fn lost(
    picture: &mut SvgPicture<'_>,
    track: &ExportTrack,
    window: &TraceWindow,
    (y, height): (f64, f64),
) -> io::Result<()> {
    let Some(lost) = track.lost else { return Ok(()) };
    let (from, to) = (window.x(window.from), window.x(lost.until_ns));
    if to - from < 1.0 {
        return Ok(());
    }
    let mut path = String::new();
    // Strokes rise to the right; the first ones begin left of the hatched time.
    let mut x = from - height;
    while x < to {
        let (begin, end) = (x.max(from), (x + height).min(to));
        let low = y + height - (begin - x);
        path += &format!("M{} {}l{} -{}", px(begin), px(low), px(end - begin), px(end - begin));
        x += STROKES;
    }
    let title = format!("{} records lost before this", lost.records);
    picture.element("path", &[("d", &path), ("class", "lost")], None, Some(&title))
}

/// The visible bars of a level, from left to right.
fn bars<'a>(track: &'a ExportTrack, window: &TraceWindow, level: usize) -> Vec<TraceBar<'a>> {
    let mut bars: Vec<TraceBar<'a>> = Vec::new();
    let seen = |slice: &&TrackSlice| {
        slice.level == level && slice.end_ns > window.from && slice.start_ns < window.to
    };
    for slice in track.slices.iter().filter(seen) {
        let (x, end) = (window.x(slice.start_ns), window.x(slice.end_ns));
        let is_narrow = |from: f64, to: f64| to - from < window.narrowest;
        match bars.last_mut() {
            // Merge regions until the bar is wide enough to be visible.
            Some(last)
                if is_narrow(x, end) && is_narrow(last.x, last.end) && is_narrow(last.x, x) =>
            {
                last.end = end;
                last.slices.push(slice);
            }
            _ => bars.push(TraceBar { x, end, slices: vec![slice] }),
        }
    }
    bars
}

impl TraceBar<'_> {
    /// The point that takes most of the bar's time.
    fn point(&self) -> u32 {
        let mut taken: HashMap<u32, u64> = HashMap::new();
        for slice in &self.slices {
            let of_point = taken.entry(slice.region.point).or_default();
            // Regions without measurable time count too.
            *of_point = of_point.saturating_add((slice.end_ns - slice.start_ns).max(1));
        }
        let most = taken.into_iter().max_by_key(|(id, ns)| (*ns, std::cmp::Reverse(*id)));
        most.map_or(0, |(id, _)| id)
    }
}

fn draw(
    subject: &Subject<'_>,
    picture: &mut SvgPicture<'_>,
    bar: &TraceBar<'_>,
    colours: &HashMap<u32, &str>,
    window: &TraceWindow,
    y: f64,
) -> io::Result<()> {
    let point = bar.point();
    let name = subject.point(point).map_or("", |shown| &shown.label);
    let title = match bar.slices.as_slice() {
        [slice] => slice_title(subject, slice, name, window),
        many => format!("{} regions, most time in {name}", many.len()),
    };
    let on: f64 = bar.slices.iter().map(|slice| slice.region.on_share()).sum::<f64>()
        / bar.slices.len() as f64;
    let opacity = PALEST + (1.0 - PALEST) * on;
    let width = (bar.end - bar.x).max(NARROWEST);
    let colour = colours.get(&point).copied().unwrap_or(OTHERS);
    picture.bar((bar.x, y), (width, ROW - 1.0), colour, opacity, &title)?;
    // A name cut to a letter or two is useless.
    if width > 5.0 * LETTER {
        let ink = if opacity > 0.6 { "#ffffff" } else { "#1f2328" };
        let baseline = y + (ROW - 1.0 + FONT_SIZE) / 2.0 - 2.0;
        picture.text((bar.x + 3.0, baseline), "start", ink, &cut(name, width - 5.0))?;
    }
    Ok(())
}

fn slice_title(
    subject: &Subject<'_>,
    slice: &TrackSlice,
    name: &str,
    window: &TraceWindow,
) -> String {
    let duration = |ns: u64| units::duration(ns as f64 / 1e9);
    let at = match slice.start_ns.checked_sub(window.from) {
        Some(since) => format!("from {}", duration(since)),
        None => "from before".into(),
    };
    let off = match slice.cpu(subject) {
        Cpu::Device => {
            return format!(
                "{name}: {} by the device's clock, {at} at the earliest",
                duration(slice.end_ns - slice.start_ns)
            );
        }
        Cpu::On => String::new(),
        Cpu::Off(ns) => format!(", {} off the CPU", duration(ns)),
        Cpu::Unknown => ", regions inside it lost".into(),
    };
    format!(
        "{name}: {}, {at}, exclusive {}{off}",
        duration(slice.end_ns - slice.start_ns),
        duration(subject.whole_ns(slice.region.exclusive))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Format;
    use crate::tests::{self, US};
    use pfp_read::snapshot::{Record, Snapshot};

    fn exported(change: impl FnOnce(&mut Snapshot)) -> String {
        String::from_utf8(tests::exported(Format::SvgTrace, change)).unwrap()
    }

    #[test]
    fn every_region_has_its_bar_where_and_as_long_as_it_was() {
        // Nothing lost: all of the 400 us are shown.
        let svg = exported(|snapshot| snapshot.lanes[1].records_written = 2);
        let room = WIDTH - LEFT - MARGIN;
        let (x, width) = (LEFT + room * 150.0 / 400.0, room * 40.0 / 400.0);
        let crc = format!("<rect x=\"{x:.1}\" y=\"77.0\" width=\"{width:.1}\" height=\"14.0\"");
        let line =
            svg.lines().find(|line| line.starts_with(&crc)).unwrap_or_else(|| panic!("{svg}"));
        assert!(line.contains("fill-opacity=\"0.44\""), "a quarter on the CPU: {line}");
        let title =
            "<title>io.crc: 40.0us, from 150us, exclusive 10.0us, 30.0us off the CPU</title>";
        assert!(line.contains(title), "{line}");
        assert!(svg.contains("my_app[4711]: the last 400us"), "{svg}");
        assert!(!svg.contains("class=\"lost\""));
    }

    #[test]
    fn lost_time_is_hatched() {
        let svg = exported(|snapshot| {
            snapshot.lanes[0].records_written = 9;
            snapshot.lanes[2].records_written = 0;
        });
        // The window begins where half of the rings hold everything: at 320 us.
        assert!(svg.contains("the last 80.0us"), "{svg}");
        let svg = exported(|snapshot| {
            snapshot.lanes[0].records_written = 9;
            snapshot.records.push(Record {
                lane: 2,
                point: 5,
                start: 350 * US,
                span: US,
                exclusive: US,
                depth: 0,
                context: 0,
            });
            snapshot.lanes[2].records_written = 100;
        });
        assert!(svg.contains("<title>99 records lost before this</title>"), "{svg}");
    }

    /// Sixty thousand regions become at most as many bars as there are pixels.
    #[test]
    fn the_picture_does_not_grow_with_the_rings() {
        let svg = exported(|snapshot| {
            snapshot.records = (0..60_000)
                .map(|n| Record {
                    lane: 0,
                    point: 1 + n % 3,
                    start: u64::from(n) * 100,
                    span: 90,
                    exclusive: 90,
                    depth: 0,
                    context: 0,
                })
                .collect();
        });
        let bars = svg.lines().filter(|line| line.starts_with("<rect")).count();
        assert!((500..2_000).contains(&bars), "{bars}");
        assert!(svg.contains(" regions, most time in "), "drawn together");
    }

    #[test]
    fn threads_of_one_name_have_their_numbers() {
        let svg = exported(|snapshot| {
            snapshot.lanes[1].name = snapshot.lanes[0].name.clone();
            snapshot.lanes[0].tid = 71;
            snapshot.lanes[1].tid = 72;
        });
        for row in [">main [71]<", ">main, tasks 1 [71]<", ">main [72]<", ">packer<"] {
            assert!(svg.contains(row), "{row}: {svg}");
        }
    }

    #[test]
    fn hostile_names_stay_text() {
        let svg = exported(|snapshot| {
            snapshot.points[4].name = "</title><script>alert(1)</script>".into();
            snapshot.lanes[0].name = "<b>&\u{0}".into();
        });
        assert!(!svg.contains("<script") && !svg.contains("<b>"), "{svg}");
        assert!(svg.contains("&lt;b&gt;&amp;\u{fffd}"), "{svg}");
    }
}
