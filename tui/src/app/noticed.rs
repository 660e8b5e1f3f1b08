//! The log on the screen: where it is scrolled to, and when what happens.

use std::time::Instant;

use super::{App, Screen};
use crate::snapshot::Snapshot;

impl App {
    pub(super) fn begin_log(&mut self) {
        self.log_back = 0;
        self.common.log.read();
    }

    /// Tells the log of a snapshot.
    pub(super) fn observe(&mut self, snapshot: &Snapshot, now: Instant) {
        let before = self.common.log.pushed();
        let turns = self.common.log.observe(self.common.unix_ns(now), snapshot);
        if !turns.is_empty() {
            let texts: Vec<&str> = turns.iter().map(|turn| turn.text.as_str()).collect();
            self.common.say(now, texts.join("; "));
            if let Some(toast) = &mut self.common.toast {
                toast.is_error = turns.iter().any(|turn| turn.is_problem);
            }
        }
        // Whoever reads what is further up goes on seeing it.
        if self.log_back > 0 {
            self.log_back += (self.common.log.pushed() - before) as usize;
        }
        if self.screen == Screen::Log {
            self.common.log.read();
        }
    }

    /// Scrolls by lines; down is positive.
    pub(super) fn scroll_log(&mut self, lines: isize) {
        // Kept within the log when the screen's size is next known.
        self.log_back = self.log_back.saturating_add_signed(lines.saturating_neg());
    }
}
