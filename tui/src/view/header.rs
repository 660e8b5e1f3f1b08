//! The first line: the watched process, its clock, and the kind of figures. Below it, if needed, a
//! line about losses and about places that do not answer.

use std::borrow::Cow;
use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::macros::span;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use crate::app::App;
use crate::common::{Screen, Status};
use pfp_model::headline::{Headline, ended_word, rhythm};
use pfp_model::left_over::LeftOver;
use pfp_model::{Figures, lost};
use pfp_read::source::BadPlace;
use pfp_read::text;

/// A part of the line. If room is short, the part with the greatest rank is dropped first.
struct HeaderPart {
    text: String,
    style: Style,
    rank: u8,
}

/// The text that follows the losses, if Enter explains them.
const EXPLAINS: &str = ": Enter explains";
/// Minimum width of a screen with that text.
const EXPLAINS_FROM: usize = 50;

/// Minimum number of columns for the reason why a place does not answer.
const REASON: usize = 12;

/// Maximum number of columns for the text of the filter.
const FILTER: usize = 24;

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App) {
    let styles = &app.common.styles;
    let theme = &styles.theme;
    let line = app.common.session.as_ref().and_then(|session| session.source.line());
    let process = app.common.model.snapshot().map(|snapshot| &snapshot.process);
    let (word, style) = match app.common.status() {
        Status::Live if process.is_some_and(|process| process.stopped) => ("STOPPED", theme.warn),
        Status::Waiting if app.common.discovery.is_over => ("ENDED", theme.warn),
        Status::Waiting => ("WAITING", theme.warn),
        Status::Live => ("LIVE", theme.live),
        Status::Paused => ("PAUSED", theme.warn),
        Status::Exited => ("EXITED", theme.warn),
        Status::Crashed => ("CRASHED", theme.error),
        Status::File => ("FILE", theme.warn),
        Status::Replay => ("REPLAY", theme.warn),
    };
    let late = line.as_ref().and_then(|line| line.late);
    let (word, style) = match (&app.common.replay, late) {
        (Some(replay), _) => (replay.words(), style),
        (None, Some(late)) => (format!("LATE {} s", late.as_secs()), theme.error),
        (None, None) => (how_it_ended(app).unwrap_or_else(|| word.into()), style),
    };
    let mut words = vec![Span::styled(word, style)];
    if let Some(line) = line.filter(|line| line.late.is_none())
        && app.common.status() == Status::Live
        && line.age > app.common.interval * 2
    {
        let age = format!("{:.1} s old  ", line.age.as_secs_f64());
        words.insert(0, Span::styled(age, theme.warn));
    }
    // Without the line of tabs, the header shows the name of the screen, except for the table.
    if let Some(tab @ 1..) = app.screen.tab()
        && !super::tabs::has_room(app, frame.area().height)
    {
        let name = Screen::TABS[tab].name;
        words.insert(0, span!(theme.key; "{} {name}  ", tab + 1));
    }
    if let Some(ended) = app.common.ended_unseen().and_then(|state| ended_word(state, None)) {
        words.insert(0, span!(theme.error; "{ended}  "));
    }
    let words = Line::from(words).right_aligned();
    let mut parts = parts(app, frame.area().height);
    let room = usize::from(area.width).saturating_sub(words.width() + 2);
    let used = |parts: &[HeaderPart]| parts.iter().map(|p| text::width(&p.text) + 2).sum::<usize>();
    while used(&parts) > room && parts.len() > 1 {
        let last = parts.iter().map(|part| part.rank).max();
        if last == Some(0) {
            break;
        }
        parts.retain(|part| Some(part.rank) != last);
    }
    // All remaining parts are needed, so the process name is cut.
    let too_much = used(&parts).saturating_sub(room);
    if let [process, _, ..] = parts.as_mut_slice()
        && too_much > 0
    {
        let left = text::width(&process.text).saturating_sub(too_much);
        process.text = text::cut(&process.text, left, styles.glyphs.ellipsis);
    }
    let spans = parts.iter().flat_map(|part| {
        let shown = text::cut(&part.text, room.max(2) - 2, styles.glyphs.ellipsis);
        [Span::styled(shown, part.style), Span::raw("  ")]
    });
    frame.render_widget(Line::from_iter(std::iter::once(Span::raw(" ")).chain(spans)), area);
    // Style the spans and not the line: a styled line would style the whole area.
    frame.render_widget(words, area);
}

/// How the process ended, if the figures are its last.
fn how_it_ended(app: &App) -> Option<String> {
    let is_over = matches!(app.common.status(), Status::Exited | Status::Crashed);
    let process = &app.common.model.snapshot().filter(|_| is_over)?.process;
    ended_word(process.state, process.end.as_ref()).map(Cow::into_owned)
}

fn parts(app: &App, height: u16) -> Vec<HeaderPart> {
    let styles = &app.common.styles;
    let plain = styles.theme.header;
    let part = |text: String, rank| HeaderPart { text, style: plain, rank };
    let mut parts = vec![part("pfp-top".into(), 8)];
    if let Some(snapshot) = app.common.model.snapshot() {
        let line = app.common.session.as_ref().and_then(|session| session.source.line());
        let head = Headline::of(snapshot, app.common.model.threads());
        parts.push(HeaderPart { text: head.process, style: styles.theme.process, rank: 0 });
        if let Some(line) = line {
            parts.push(part(format!("via {}", text::clean(&line.via)), 1));
        }
        if head.wall_clock {
            parts.push(HeaderPart { text: "WALL CLOCK".into(), style: styles.theme.warn, rank: 1 });
        }
        parts.push(part(head.uptime, 2));
        if !super::summary::has_room(app, height) {
            let busy = app.common.model.busy_cpus();
            let busy = busy.map_or(String::new(), |cpus| format!("CPU {:.0} %", cpus * 100.0));
            parts.push(part(busy, 1));
            parts.push(part(head.threads, 4));
        }
        parts.push(part(rhythm(&app.common.model, app.common.interval), 3));
        parts.push(part(head.clock, 5));
    }
    if app.common.filter.is_on() {
        let (shown, all) = (app.common.order.len(), app.common.model.points().len());
        let by = text::cut(&text::clean(app.common.filter.text()), FILTER, styles.glyphs.ellipsis);
        let text = format!("filter {by} {shown}/{all}");
        parts.insert(parts.len().min(2), HeaderPart { text, style: styles.theme.warn, rank: 0 });
    }
    parts.retain(|part| !part.text.is_empty());
    parts
}

/// Places that do not answer, unread problems and losses in one line of this width. `None` if there
/// is nothing to report.
pub(super) fn notice(app: &App, width: usize, ellipsis: char) -> Option<String> {
    let losses = lost::reported(&app.common.model.snapshot()?.losses);
    let parts: Vec<_> =
        losses.map(|(kind, count)| format!("{count} {}", lost::words(kind, count))).collect();
    let lost = (!parts.is_empty()).then(|| format!("lost: {}", parts.join("; ")));
    let key = app.key_to(Screen::Log);
    let unread = match app.common.log.unread() {
        0 => None,
        1 => Some(format!("1 new problem (press {key})")),
        n => Some(format!("{n} new problems (press {key})")),
    };
    let left_over = LeftOver::of(app.common.model.points().iter().map(Figures::point))
        .map(|left| left.text_with_key(&app.key_to_toggle_all()));
    let mut said: Vec<String> = left_over.into_iter().chain(unread).chain(lost).collect();
    if app.common.had_bad_places {
        let bad = app.common.session.as_ref().map(|it| it.source.bad_places()).unwrap_or_default();
        let others: usize = said.iter().map(|text| text::width(text) + 2).sum();
        said.insert(0, places(&bad, width.saturating_sub(others + 1), ellipsis));
    }
    (!said.is_empty()).then(|| format!(" {}", said.join("; ")))
}

/// The places that do not answer, with as much of the reasons as fits.
fn places(bad: &[BadPlace], room: usize, ellipsis: char) -> String {
    if bad.is_empty() {
        return "all places answer".into();
    }
    let heads: Vec<String> = bad
        .iter()
        .map(|BadPlace { name, age: since, why }| {
            let word = if why.is_some() { "DOWN" } else { "LATE" };
            format!("{name} {word} {}", age(*since))
        })
        .collect();
    let used: usize = heads.iter().map(|head| text::width(head) + 2).sum();
    let reasons = bad.iter().filter(|place| place.why.is_some()).count().max(1);
    let room = (room.saturating_sub(used) / reasons).saturating_sub(" ()".len());
    let all = heads.into_iter().zip(bad).map(|(head, place)| match &place.why {
        Some(why) if room >= REASON => format!("{head} ({})", text::cut(why, room, ellipsis)),
        _ => head,
    });
    all.collect::<Vec<_>>().join(", ")
}

fn age(age: Duration) -> String {
    match age.as_secs() {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

/// Whether Enter opens an explanation of the losses in the notice.
fn explains(app: &App) -> bool {
    let lost = || app.common.model.snapshot().is_some_and(lost::is_any);
    app.view().is_table() && app.common.selected().is_some() && lost()
}

pub(super) fn draw_notice(frame: &mut Frame, area: Rect, app: &App) {
    let styles = &app.common.styles;
    let width = usize::from(area.width);
    if let Some(notice) = notice(app, width, styles.glyphs.ellipsis) {
        let explains = if explains(app) && width >= EXPLAINS_FROM { EXPLAINS } else { "" };
        let room = width.saturating_sub(explains.len());
        let notice = text::cut(&notice, room, styles.glyphs.ellipsis) + explains;
        frame.render_widget(Line::styled(notice, styles.theme.warn), area);
    }
}
