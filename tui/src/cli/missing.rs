//! Places (machines, containers, users) whose figures are missing in a command's output.

use anyhow::Result;

use super::output::NO_TARGET;
use pfp_read::source::{BadPlace, Source};
use pfp_read::text::warn;

/// Reports the places that are missing in the source's last snapshot. Returns the exit status.
pub(super) fn missing(source: &dyn Source) -> u8 {
    let mut missing = Missing::default();
    missing.look(source, || ());
    missing.status()
}

/// The missing places. Each is reported when it goes missing and when it is back.
#[derive(Default)]
pub(super) struct Missing {
    places: Vec<String>,
    /// Whether the connection to the only place is lost.
    is_down: bool,
}

impl Missing {
    /// Reports a failed poll once, if the source opens a lost connection again. Calls `clear` before
    /// the message.
    ///
    /// # Errors
    ///
    /// The error of any other poll.
    pub(super) fn lose(
        &mut self,
        error: anyhow::Error,
        source: &dyn Source,
        clear: impl Fn(),
    ) -> Result<()> {
        let Some(why) = source.line().and_then(|line| line.why) else { return Err(error) };
        if !std::mem::replace(&mut self.is_down, true) {
            clear();
            warn(&format!("{why}; trying again"));
        }
        Ok(())
    }

    /// Notes that a poll has brought a new snapshot.
    pub(super) fn line_is_back(&mut self) {
        self.is_down = false;
    }

    /// Reports changes after a poll. Calls `clear` before each message, to remove a progress line.
    pub(super) fn look(&mut self, source: &dyn Source, clear: impl Fn()) {
        let warn = |text: &str| {
            clear();
            warn(text);
        };
        let bad = source.bad_places();
        for BadPlace { name, age, why } in &bad {
            if !self.places.contains(name) {
                let silence = || format!("it has been silent for {} s", age.as_secs());
                warn(&format!("{name} is missing: {}", why.clone().unwrap_or_else(silence)));
            }
        }
        for name in self.places.iter().filter(|name| bad.iter().all(|place| place.name != **name)) {
            warn(&format!("{name} is back"));
        }
        self.places = bad.into_iter().map(|place| place.name).collect();
    }

    /// The exit status of a command that ends now.
    pub(super) fn status(&self) -> u8 {
        if self.places.is_empty() { 0 } else { NO_TARGET }
    }

    /// The words about missing places for the final message of `record`; empty if none is missing.
    pub(super) fn words(&self) -> String {
        match self.places.as_slice() {
            [] => String::new(),
            names => format!("; {} missing at the end", names.join(", ")),
        }
    }
}
