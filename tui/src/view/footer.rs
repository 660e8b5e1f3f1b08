//! The last line: a message, a question, or the keys that work now.

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::macros::{line, span};
use ratatui::text::{Line, Span};

use crate::app::App;
use crate::common::keys::Binding;
use crate::common::{Action, Overlay, Prompt, Replay, Toast};
use crate::styles::Styles;
use pfp_read::text;

/// Minimum width of an error about typed text.
const MIN_ERROR: usize = 20;

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App) {
    let styles = &app.common.styles;
    let (bindings, width) = (bindings(app), usize::from(area.width));
    if let Some(prompt) = app.overlay.as_ref().and_then(Overlay::prompt) {
        return draw_prompt(frame, area, prompt, &bindings, styles);
    }
    match (&app.overlay, &app.common.toast) {
        (Some(Overlay::Replace(prompt)), _) => {
            let question = format!(" {} exists. ", text::clean(&prompt.text()));
            draw_question(frame, area, &question, width / 2, &bindings, styles);
        }
        (Some(Overlay::Ask(question)), _) => {
            let question = format!(" {} ", app.asked(question));
            draw_question(frame, area, &question, width / 2, &bindings, styles);
        }
        (Some(Overlay::Leave(program)), _) => {
            let question = format!(" {} still runs. ", text::clean(program));
            // The answers are more important than the name.
            draw_question(frame, area, &question, width / 5 * 4, &bindings, styles);
        }
        (_, Some(toast)) => draw_toast(frame, area, toast, styles),
        (_, None) => {
            frame.render_widget(hints(&bindings, width, styles, app.common.replay.as_ref()), area);
            if let Some(half) = app.half_typed() {
                let half = Line::from(span!(styles.theme.key; " {half}"));
                frame.render_widget(half.right_aligned(), area);
            }
        }
    }
}

/// Draws a question and its answers, which get at least `for_hints` columns.
fn draw_question(
    frame: &mut Frame,
    area: Rect,
    question: &str,
    for_hints: usize,
    bindings: &[Binding],
    styles: &Styles,
) {
    let width = usize::from(area.width);
    let room = width.saturating_sub(text::width(question)).max(for_hints);
    let hints = hints(bindings, room, styles, None);
    let room = width.saturating_sub(hints.width());
    let question = text::cut(question, room, styles.glyphs.ellipsis);
    let mut line = Line::from(Span::styled(question, styles.theme.warn));
    line.extend(hints.spans);
    frame.render_widget(line, area);
}

fn draw_toast(frame: &mut Frame, area: Rect, toast: &Toast, styles: &Styles) {
    let style = if toast.is_error { styles.theme.error } else { styles.theme.process };
    let text = text::cut(&format!(" {}", toast.text), area.width.into(), styles.glyphs.ellipsis);
    frame.render_widget(Line::styled(text, style), area);
}

/// Draws the line that is being typed; its end is always visible.
fn draw_prompt(
    frame: &mut Frame,
    area: Rect,
    prompt: &Prompt,
    bindings: &[Binding],
    styles: &Styles,
) {
    let label = format!(" {}: ", prompt.label());
    let (before, behind) = prompt.halves();
    let (before, behind) = (text::clean(&before).into_owned(), text::clean(&behind).into_owned());
    let room = usize::from(area.width).saturating_sub(text::width(&label) + 1);
    let seen = text::end(&before, room);
    let column = text::width(&label) + text::width(seen);
    let line = line![Span::styled(label, styles.theme.key), seen.to_owned(), behind];
    let left = usize::from(area.width).saturating_sub(line.width());
    match &prompt.error {
        Some(error) => {
            let error = format!("  {}", text::clean(error));
            let error = text::cut(&error, left.max(MIN_ERROR), styles.glyphs.ellipsis);
            // The error is more important than the end of the text.
            let error = Span::styled(error, styles.theme.error);
            frame.render_widget(line, area);
            frame.render_widget(Line::from(error).right_aligned(), area);
        }
        None => {
            let hints = hints(bindings, left, styles, None);
            let fit = hints.width() < left;
            frame.render_widget(line, area);
            if fit {
                frame.render_widget(hints.right_aligned(), area);
            }
        }
    }
    let x = area.x.saturating_add(column as u16);
    frame.set_cursor_position(Position::new(x, area.y));
}

/// The keys that have an effect now.
fn bindings(app: &App) -> Vec<Binding<'_>> {
    app.bindings().filter(|binding| app.overlay.is_some() || app.is_of_use(binding)).collect()
}

/// The action of the hint at this column.
pub(super) fn hit(app: &App, width: usize, column: usize) -> Option<Action> {
    if app.common.toast.is_some() {
        return None;
    }
    let mut right = 1;
    let bindings = bindings(app);
    let found = hinted(&bindings, width, app.common.replay.as_ref()).into_iter().find(|binding| {
        right += room(binding, app.common.replay.as_ref());
        (1..right).contains(&column)
    });
    found.map(|binding| binding.action)
}

/// The name of a key, and a word for its action.
fn hint(binding: &Binding, replay: Option<&Replay>) -> (String, &'static str) {
    let key = binding.key_name();
    let word = match (binding.action, replay) {
        (Action::Pause, Some(replay)) if !replay.playing => "play",
        (Action::Pause, Some(_)) => "stop",
        _ => binding.hint,
    };
    (key, word)
}

/// Number of columns that the hint takes, including the blanks that follow.
fn room(binding: &Binding, replay: Option<&Replay>) -> usize {
    let (key, word) = hint(binding, replay);
    text::width(&key) + 1 + word.len() + 2
}

/// As many hints as fit; those for help and for quitting are always included.
fn hinted<'a>(
    bindings: &'a [Binding<'a>],
    width: usize,
    replay: Option<&Replay>,
) -> Vec<&'a Binding<'a>> {
    let fits_in = |b: &&Binding| !b.hint.is_empty() && !b.keys.is_empty();
    let is_last =
        |action| matches!(action, Action::Help | Action::Back | Action::Unfilter | Action::Quit);
    let last = |b: &&Binding| is_last(b.action);
    let (must, may): (Vec<&Binding>, Vec<&Binding>) =
        bindings.iter().filter(fits_in).partition(last);
    let mut left = width.saturating_sub(1 + must.iter().map(|b| room(b, replay)).sum::<usize>());
    let fits = may.into_iter().take_while(|binding| {
        let fits = room(binding, replay) <= left;
        left = left.saturating_sub(room(binding, replay));
        fits
    });
    fits.chain(must.iter().copied()).collect()
}

fn hints(
    bindings: &[Binding],
    width: usize,
    styles: &Styles,
    replay: Option<&Replay>,
) -> Line<'static> {
    let spans = hinted(bindings, width, replay).into_iter().flat_map(|binding| {
        let (key, word) = hint(binding, replay);
        [Span::styled(key, styles.theme.key), Span::raw(format!(" {word}  "))]
    });
    Line::from_iter(std::iter::once(Span::raw(" ")).chain(spans))
}
