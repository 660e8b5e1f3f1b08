//! A line about the process above the table: its use of the machine, what holds it up more than it
//! runs, and the hottest point.
//!
//! ```text
//!  CPU 131 % of 2 ██████▌░░░  parse 56.8 % for 12 s  memory 14.2 MiB  8 threads
//! ```

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::macros::span;
use ratatui::text::{Line, Span};

use crate::app::App;
use crate::styles::{Styles, chart};
use pfp_model::{Basis, Figures};
use pfp_read::snapshot::Heap;
use pfp_read::text;
use pfp_read::units;
use pfp_read::waits::held_up;

/// Minimum height of a screen with this line.
const HIGH: u16 = 16;
/// Width of the bar.
const BAR: usize = 10;
/// Maximum width of the hottest point's name.
const NAME: usize = 32;

/// Whether a screen of this height has the line.
pub(super) fn has_room(app: &App, height: u16) -> bool {
    height >= HIGH && app.view().is_table() && app.common.model.snapshot().is_some()
}

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App) {
    if area.is_empty() {
        return;
    }
    let mut parts = parts(app);
    let width = |parts: &[Vec<Span>]| {
        let widths = parts.iter().map(|part| part.iter().map(Span::width).sum::<usize>() + 2);
        widths.sum::<usize>()
    };
    while width(&parts) > usize::from(area.width) && parts.len() > 1 {
        parts.pop();
    }
    let spans =
        parts.into_iter().flat_map(|part| part.into_iter().chain(std::iter::once(Span::raw("  "))));
    frame.render_widget(Line::from_iter(std::iter::once(Span::raw(" ")).chain(spans)), area);
}

/// The parts of the line, the most important first.
fn parts(app: &App) -> Vec<Vec<Span<'static>>> {
    let styles = &app.common.styles;
    let theme = &styles.theme;
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let usage = app.common.model.snapshot().and_then(|snapshot| snapshot.usage);
    let mut parts = Vec::new();
    if let Some((busy, usage)) = app.common.model.busy_cpus().zip(usage) {
        let share = busy / f64::from(usage.cpus.max(1));
        let [bar, rest] = chart::bar_in(share, 1.0, BAR, &styles.glyphs);
        parts.push(vec![
            Span::styled("CPU ", theme.faint),
            Span::styled(percent(busy), theme.process),
            Span::raw(format!(" of {} ", usage.cpus)),
            Span::styled(bar, theme.heat(share)),
            Span::styled(rest, theme.faint),
        ]);
    }
    let of_cpus = app.common.model.points().iter().filter(|figures| !figures.point().device);
    let loads = of_cpus.filter_map(Figures::load);
    let in_points = loads.reduce(|sum, more| sum + more);
    if parts.is_empty()
        && let Some(load) = in_points
    {
        parts.push(in_regions(&percent(load), styles));
    }
    if let Some(words) = app.common.waits().and_then(|report| held_up(report)) {
        parts.push(vec![Span::styled(text::clean(&words).into_owned(), theme.warn)]);
    }
    if let Some(hottest) = app.common.model.hottest() {
        parts.push(hot(app, hottest));
    }
    let heap = app.common.model.snapshot().and_then(|snapshot| snapshot.heap);
    if let Some(Heap { live_bytes, peak_bytes, .. }) = heap {
        let [live, peak] = [live_bytes, peak_bytes].map(units::bytes);
        let peak = format!(" (peak {peak})");
        parts.push(vec![
            Span::styled("heap ", theme.faint),
            Span::raw(live),
            Span::styled(peak, theme.faint),
        ]);
    }
    if let Some(usage) = usage {
        let memory = units::bytes(usage.memory_bytes);
        parts.push(vec![Span::styled("memory ", theme.faint), Span::raw(memory)]);
        parts.push(vec![text::counted(app.common.model.threads(), "thread").into()]);
        if let Some(load) = in_points {
            parts.push(in_regions(&percent(load), styles));
        }
    }
    parts
}

fn in_regions(load: &str, styles: &Styles) -> Vec<Span<'static>> {
    vec![Span::raw(load.to_owned()), Span::styled(" in points", styles.theme.faint)]
}

/// The hottest point, and for how long it has had at least half of its present load.
fn hot(app: &App, hottest: &Figures) -> Vec<Span<'static>> {
    let styles = &app.common.styles;
    let load = hottest.load().unwrap_or(0.0);
    let name = text::cut_middle(&hottest.name(), NAME, styles.glyphs.ellipsis);
    let mut spans = vec![
        Span::styled(name, styles.theme.process),
        span!(styles.theme.heat(load); " {} %", units::percent(load)),
    ];
    if let (Basis::Interval, false, Some(snapshot)) =
        (app.common.model.basis(), hottest.is_ended(), app.common.model.snapshot())
        && let Some(since) = hottest.history().since(load / 2.0)
    {
        let ticks = snapshot.elapsed_ticks.saturating_sub(since) as f64;
        let time = for_how_long(ticks / snapshot.clock.ticks_per_second);
        // If the known history begins at `since`, the load may have been as high even before.
        let more = if hottest.history().from() == Some(since) { "over " } else { "" };
        spans.push(span!(styles.theme.faint; " for {more}{time}"));
    }
    spans
}

fn for_how_long(seconds: f64) -> String {
    if seconds < 99.5 { format!("{seconds:.0} s") } else { units::duration(seconds.round()) }
}

#[cfg(test)]
mod tests {
    use super::for_how_long;

    #[test]
    fn durations_are_whole_seconds_then_minutes() {
        let found = [3.2, 60.4, 99.4, 99.6, 125.0].map(for_how_long);
        assert_eq!(found, ["3 s", "60 s", "99 s", "1m40s", "2m05s"]);
    }
}
