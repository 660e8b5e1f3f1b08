//! The position in a recording.

use std::time::Duration;

use pfp_read::local_time::time_of_day;

/// Speeds of playing, as multiples of the speed at which the recording was made.
pub(crate) const SPEEDS: [f64; 10] = [0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0];
/// Index of the original speed in [`SPEEDS`].
pub(crate) const NORMAL: usize = 3;

/// The position in a recording.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Index of the snapshot on the screen. `None` before the first one is shown.
    pub(crate) at: Option<usize>,
    /// Index of the snapshot that is to be read and shown next.
    pub(crate) goal: Option<usize>,
    /// Whether the screen shows records or windows of the snapshot that were not read.
    pub(crate) lacks_parts: bool,
    /// How long the screen has waited for the file, if that is long.
    pub(crate) late: Option<Duration>,
    pub(crate) len: usize,
    /// Time at which the snapshot on the screen was taken, nanoseconds since the Unix epoch.
    pub(crate) unix_ns: u64,
    /// Time from the first snapshot to the one on the screen.
    pub(crate) since_first: Duration,
    /// Time from the first snapshot to the one after the cursor. `None` at the end.
    pub(crate) next: Option<Duration>,
    /// Index in [`SPEEDS`].
    pub(crate) speed: usize,
    /// Whether the cursor moves by itself.
    pub(crate) playing: bool,
    /// Whether the recording is still being written. `None` before the first check.
    pub(crate) grows: Option<bool>,
}

impl Replay {
    /// The position in words, such as `REPLAY 12:03:41 (34 of 600)`.
    pub fn words(&self) -> String {
        let word = match (self.playing, self.speed) {
            (false, _) => "REPLAY".into(),
            (true, NORMAL) => "PLAYING".into(),
            (true, speed) => format!("PLAYING {}x", SPEEDS[speed]),
        };
        let more = if self.grows == Some(true) { "+" } else { "" };
        let number = self.at.map_or(0, |at| at + 1);
        let late = self.late.map(|late| format!(", waiting for the file: {} s", late.as_secs()));
        let late = late.unwrap_or_default();
        format!("{word} {} ({number} of {}{more}){late}", time_of_day(self.unix_ns), self.len)
    }

    /// Whether the position will change without a key.
    pub(crate) fn is_due(&self) -> bool {
        self.playing || self.grows != Some(false)
    }
}
