//! The log on the screen: where it is scrolled to, and when what happens.

use std::time::Instant;

use super::{App, Screen};
use crate::snapshot::Snapshot;

impl App {
    pub(super) fn begin_log(&mut self) {
        self.log_back = 0;
        self.log.read();
    }

    /// Tells the log of a snapshot.
    pub(super) fn observe(&mut self, snapshot: &Snapshot, now: Instant) {
        let before = self.log.pushed();
        let turns = self.log.observe(self.unix_ns(now), snapshot);
        if !turns.is_empty() {
            let texts: Vec<&str> = turns.iter().map(|turn| turn.text.as_str()).collect();
            self.say(now, texts.join("; "));
            if let Some(toast) = &mut self.toast {
                toast.is_error = turns.iter().any(|turn| turn.is_problem);
            }
        }
        // Whoever reads what is further up goes on seeing it.
        if self.log_back > 0 {
            self.log_back += (self.log.pushed() - before) as usize;
        }
        if self.screen == Screen::Log {
            self.log.read();
        }
    }

    /// Scrolls by lines; down is positive.
    pub(super) fn scroll_log(&mut self, lines: isize) {
        // Kept within the log when the screen's size is next known.
        self.log_back = self.log_back.saturating_add_signed(lines.saturating_neg());
    }

    /// The time on the wall at a moment, nanoseconds since the Unix epoch. In a recording it is the time of the moment that is shown.
    pub(super) fn unix_ns(&self, now: Instant) -> u64 {
        if let Some(replay) = &self.replay {
            return replay.unix_ns();
        }
        let (moment, unix_ns) = self.began;
        unix_ns + now.saturating_duration_since(moment).as_nanos() as u64
    }
}
