//! Where the user is in a recording.

use std::time::Duration;

use crate::local_time::time_of_day;

/// How fast it can be played.
pub(crate) const SPEEDS: [f64; 10] = [0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0];
/// As it was.
pub(crate) const NORMAL: usize = 3;

/// Where the user is in a recording.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Place of the snapshot that is shown; none before the first.
    pub(crate) at: Option<usize>,
    pub(crate) len: usize,
    /// When it was taken, nanoseconds since the Unix epoch.
    pub(crate) unix_ns: u64,
    /// How long after the first one it was taken, and the next one.
    pub(crate) since_first: Duration,
    pub(crate) next: Option<Duration>,
    pub(crate) speed: usize,
    /// The cursor moves by itself.
    pub(crate) playing: bool,
    pub(crate) grows: bool,
}

impl Replay {
    /// `REPLAY 12:03:41 (34 of 600)`.
    pub fn words(&self) -> String {
        let word = match (self.playing, self.speed) {
            (false, _) => "REPLAY".into(),
            (true, NORMAL) => "PLAYING".into(),
            (true, speed) => format!("PLAYING {}x", SPEEDS[speed]),
        };
        let more = if self.grows { "+" } else { "" };
        let number = self.at.map_or(0, |at| at + 1);
        format!("{word} {} ({number} of {}{more})", time_of_day(self.unix_ns), self.len)
    }

    /// Whether something will change without a key.
    pub(crate) fn is_due(&self) -> bool {
        self.playing || self.grows
    }
}
