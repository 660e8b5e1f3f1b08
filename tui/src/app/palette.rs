//! The palette: the actions of the screen, found by words.

use std::cmp::Reverse;

use fuzzy_matcher::FuzzyMatcher;
use fuzzy_matcher::skim::SkimMatcherV2;

use super::App;
use crate::common::keys::{self, Binding};
use crate::common::{Action, Status};

impl App {
    /// The actions that have an effect on the screen now, and whose words match `text`, the best
    /// match first. Matches that are half as good as the best or worse are left out.
    pub fn palette(&self, text: &str) -> Vec<Binding<'_>> {
        let matcher = SkimMatcherV2::default().ignore_case();
        let score = |binding: &Binding| {
            let words = format!("{} {}", binding.help, binding.hint);
            matcher.fuzzy_match(&words, text)
        };
        let all = keys::bindings(self.view().keys()).map(|binding| self.chosen(binding));
        let of_use = all.filter(|it| it.action != Action::Palette && self.is_of_use(it));
        let mut found: Vec<_> = of_use.filter_map(|it| Some((score(&it)?, it))).collect();
        found.sort_by_key(|(score, _)| Reverse(*score));
        let best = found.first().map_or(0, |(score, _)| *score);
        let good = found.into_iter().take_while(|(score, _)| *score * 2 > best || best == 0);
        good.map(|(_, binding)| binding).collect()
    }

    /// Whether the action of a screen's binding has an effect now. Some actions have none in an
    /// ended process, a file or a recording.
    pub(crate) fn is_of_use(&self, binding: &Binding) -> bool {
        let status = self.common.status();
        let is_over = matches!(status, Status::File | Status::Exited | Status::Crashed);
        match binding.action {
            Action::Pause => !is_over,
            Action::Toggle
            | Action::Reset
            | Action::Weight
            | Action::Limit
            | Action::Fence
            | Action::CountAllocs
            | Action::Undo => !is_over && status != Status::Replay,
            Action::Quit => self.way_back().is_none(),
            Action::Back | Action::Unfilter => self.way_back() == Some(binding.action),
            _ => status == Status::Replay || !binding.is_of_recordings(),
        }
    }
}
