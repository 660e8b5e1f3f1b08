//! The screen that is shown until there is a process to watch. It explains why there is none, and
//! what to do.

use ratatui::layout::Margin;
use ratatui::widgets::{Paragraph, Wrap};

use crate::screens::prelude::*;
use pfp_read::source::{Choice, choose};

/// The screen that is shown until there is a process to watch.
#[derive(Default)]
pub struct WaitingView;

impl View for WaitingView {
    fn keys(&self) -> KeyMap {
        &[&[keys::LEAVE, keys::TERMINAL]]
    }

    /// Watches the only process that fits, or offers several.
    fn discovered(&mut self, common: &mut Common) -> Outcome {
        if let Some(group) = &common.options.group {
            let all = &common.discovery.candidates;
            return match all.iter().any(|candidate| group.admits(candidate, all)) {
                true => Outcome::AttachGroup(group.clone()),
                false => Outcome::Done,
            };
        }
        match choose(&common.discovery, common.wanted()) {
            Choice::None => Outcome::Done,
            Choice::One(only) => Outcome::Attach(only),
            Choice::Several(_) => Outcome::Show(Screen::Picker),
        }
    }

    fn draw(&self, frame: &mut Frame, area: Rect, common: &Common) {
        let waiting = if common.discovery.instead.is_some() { "" } else { "waiting, " };
        // There may be processes that do not fit the request.
        let others = !common.discovery.candidates.is_empty() && !common.wanted().is_any();
        let mut lines = if others {
            let why = common.discovery.why_none(common.wanted());
            vec![Line::from(format!("{why}; {waiting}q quits"))]
        } else {
            vec![Line::from(format!("{}; {waiting}q quits", common.discovery.nothing_found()))]
        };
        if !common.wanted().is_any() && !others {
            let (wanted, why) =
                (common.wanted().describe(), common.discovery.why_none(common.wanted()));
            lines.push(Line::default());
            lines.push(Line::from(format!("Asked for {wanted}: {why}")));
        }
        lines.push(Line::default());
        lines.push(Line::from("`pfp-top demo` runs a built-in demo program."));
        let text = Paragraph::new(lines).wrap(Wrap { trim: true });
        let margin = Margin::new(2, u16::from(area.height > 8));
        frame.render_widget(text, area.inner(margin));
    }
}
