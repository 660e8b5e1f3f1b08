//! Reads recordings: a file with many snapshots, and a cursor at one of them.
//!
//! Opening reads only the headers of the frames. A snapshot is read on demand, together with its
//! key frame.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::frames::{FileEnd, Frames, Growth, HeaderTimes, MAX_FRAMES};
use crate::local_time;
use crate::snapshot::{BadPlace, Drained, Snapshot};
use crate::units;

const NS: u64 = 1_000_000_000;
const DAY: u64 = 86_400;

/// A moment of a recording, as the user names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Time of day by the local clock, seconds since midnight.
    TimeOfDay(u64),
    /// Time after the first snapshot.
    After(Duration),
    /// Number of a snapshot, from 1.
    Number(u64),
}

impl Moment {
    /// Reads `12:03:41`, `+34s` or `#34`.
    ///
    /// # Errors
    ///
    /// If the text is not a moment. The error says what was expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let wrong = || "expected a moment such as 12:03:41, +34s or #34".to_owned();
        if let Some(number) = text.strip_prefix('#') {
            let number = number.parse().ok().filter(|number| *number > 0);
            return number.map(Self::Number).ok_or_else(wrong);
        }
        if let Some(after) = text.strip_prefix('+') {
            return units::parse_duration(after).map(Self::After);
        }
        let parts: Vec<u64> = text
            .split(':')
            .map(|part| part.parse().map_err(|_| wrong()))
            .collect::<Result<_, _>>()?;
        match parts[..] {
            [h, m] if h < 24 && m < 60 => Ok(Self::TimeOfDay(h * 3600 + m * 60)),
            [h, m, s] if h < 24 && m < 60 && s < 60 => Ok(Self::TimeOfDay(h * 3600 + m * 60 + s)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimeOfDay(t) => {
                write!(f, "{:02}:{:02}:{:02}", t / 3600, t / 60 % 60, t % 60)
            }
            Self::After(time) => write!(f, "+{}s", time.as_secs_f64()),
            Self::Number(number) => write!(f, "#{number}"),
        }
    }
}

/// A recording. The methods that read the file wait for it; a screen has [`Self::start`] instead.
#[derive(Debug)]
pub struct Recording {
    frames: Arc<Mutex<Frames>>,
    times: Vec<HeaderTimes>,
    /// The end of the file at the last [`Self::refresh`].
    end: FileEnd,
    cursor: usize,
    /// Places that were late in the snapshot that was shown last.
    late: Vec<BadPlace>,
}

/// A job that reads a recording in a thread of its own.
#[derive(Debug)]
pub struct ReadingJob<T>(Receiver<T>);

impl<T> ReadingJob<T> {
    /// The result, or `None` while the job runs. Never waits.
    ///
    /// # Errors
    ///
    /// If the job has panicked.
    pub fn result(&self) -> Option<Result<T>> {
        match self.0.try_recv() {
            Ok(result) => Some(Ok(result)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(anyhow!("reading the recording failed"))),
        }
    }
}

impl Recording {
    /// Reads the headers of all whole frames, and moves the cursor to the last frame.
    ///
    /// # Errors
    ///
    /// If the file is not a recording, has another version, or has no snapshot yet.
    pub fn read(file: File, path: &Path) -> Result<Self> {
        let shown = path.display();
        let frames = Frames::read(file);
        let (frames, Growth { times, end }) =
            frames.with_context(|| format!("{shown} is not a recording that can be shown"))?;
        let Some(cursor) = times.len().checked_sub(1) else {
            bail!(
                "expected a recording with a snapshot, found that {shown} has no whole one ({} \
                 bytes behind its header); record again",
                end.rest
            );
        };
        let frames = Arc::new(Mutex::new(frames));
        Ok(Self { frames, times, end, cursor, late: Vec::new() })
    }

    /// Starts a job in a thread of its own, which waits for earlier jobs. This function does not
    /// wait for the file.
    ///
    /// # Errors
    ///
    /// If there is no thread.
    pub fn start<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Frames) -> T + Send + 'static,
    ) -> io::Result<ReadingJob<T>> {
        let (frames, (sender, result)) = (Arc::clone(&self.frames), channel());
        let read = move || drop(sender.send(job(&mut lock(&frames))));
        thread::Builder::new().name("pfp-recording".to_owned()).spawn(read)?;
        Ok(ReadingJob(result))
    }

    /// Adds the frames that a job has found by [`Frames::refresh`].
    pub fn grow(&mut self, growth: Growth) {
        self.times.extend(growth.times);
        self.end = growth.end;
    }

    /// Number of snapshots; never 0.
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Always false: a recording has at least one snapshot.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// The index of the current snapshot.
    pub fn cursor(&self) -> usize {
        self.cursor
    }

    /// Moves the cursor to the snapshot with this index, at most to the last one.
    pub fn seek(&mut self, place: usize) {
        self.cursor = place.min(self.times.len() - 1);
    }

    /// The times of the frame with this index, or of the last one.
    fn at(&self, place: usize) -> HeaderTimes {
        self.times[place.min(self.times.len() - 1)]
    }

    /// The time of the snapshot with this index, nanoseconds since the Unix epoch.
    pub fn taken_unix_ns(&self, place: usize) -> u64 {
        self.at(place).taken_unix_ns
    }

    /// The time from the first snapshot to this one, by a monotonic clock. The wall clock is only a
    /// label, since it may be set during the recording.
    pub fn since_first(&self, place: usize) -> Duration {
        let (last, times) = (self.at(usize::MAX), self.at(place));
        // Older files have only the wall clock.
        let is_older = last.since_first_ns == 0;
        let by_label = times.taken_unix_ns.saturating_sub(self.taken_unix_ns(0));
        Duration::from_nanos(if is_older { by_label } else { times.since_first_ns })
    }

    /// The time from the previous snapshot to this one, to the millisecond; zero for the first.
    pub fn since_before(&self, place: usize) -> Duration {
        let before = self.since_first(place.saturating_sub(1));
        let gap = self.since_first(place).saturating_sub(before);
        Duration::from_millis((gap.as_micros() as u64 + 500) / 1000)
    }

    /// Bytes up to the end of the last whole frame.
    pub fn whole_bytes(&self) -> u64 {
        self.end.end
    }

    /// Whether bytes that are not a frame follow the last frame.
    pub fn is_damaged(&self) -> bool {
        self.end.damaged
    }

    /// Whether a recorder is writing to the file now.
    pub fn grows(&self) -> bool {
        lock(&self.frames).grows()
    }

    /// A remark if the recording does not end with a whole frame, or is too long to be shown whole.
    pub fn remark(&self) -> Option<String> {
        self.remark_while(self.end.rest > 0 && self.grows())
    }

    /// Like [`Self::remark`], if a recorder writes to the file or not.
    pub fn remark_while(&self, grows: bool) -> Option<String> {
        let (FileEnd { end, damaged, rest }, n) = (self.end, self.times.len());
        if n == MAX_FRAMES {
            return Some(format!(
                "a recording is shown up to snapshot #{n}; record into several files"
            ));
        }
        if rest == 0 || (!damaged && grows) {
            None
        } else if damaged {
            Some(format!(
                "the recording is damaged after {n} snapshots: the {rest} bytes from byte {end} on \
                 cannot be read"
            ))
        } else {
            Some(format!(
                "the recording ends within a snapshot: its last {rest} bytes are left out, the \
                 recorder ended while it wrote them"
            ))
        }
    }

    /// Adds the frames that were appended since the last call. Returns whether there are any.
    ///
    /// # Errors
    ///
    /// If the file cannot be read any more.
    pub fn refresh(&mut self) -> io::Result<bool> {
        let growth = lock(&self.frames).refresh()?;
        let has_grown = !growth.times.is_empty();
        self.grow(growth);
        Ok(has_grown)
    }

    /// The index of the snapshot at the user's moment.
    ///
    /// # Errors
    ///
    /// If the recording has no such moment.
    pub fn find(&self, moment: &Moment) -> Result<usize> {
        let (last, n) = (self.times.len() - 1, self.times.len());
        let (first_ns, last_ns) = (self.taken_unix_ns(0), self.taken_unix_ns(last));
        let end = self.since_first(last);
        let outside = || {
            let time = |ns| local_time::time_of_day(ns);
            format!(
                "expected a moment from {} (#1) to {} (#{n}, +{}s), found {moment}",
                time(first_ns),
                time(last_ns),
                end.as_secs_f64()
            )
        };
        match *moment {
            Moment::Number(number) => {
                let place = number.checked_sub(1).and_then(|place| usize::try_from(place).ok());
                place.filter(|place| *place <= last).with_context(outside)
            }
            Moment::After(wanted) => {
                // Users type whole seconds, so the typed time may be up to a second after the last
                // snapshot.
                ensure!(wanted <= end + Duration::from_secs(1), outside());
                let far = |place: &usize| self.since_first(*place).abs_diff(wanted);
                (0..n).min_by_key(far).with_context(outside)
            }
            Moment::TimeOfDay(second) => {
                let since = (second + DAY - local_time::second_of_day(first_ns)) % DAY;
                let wanted = (first_ns / NS).saturating_add(since);
                let taken = |place: usize| self.taken_unix_ns(place) / NS;
                // The first snapshot of that second, or else the last one before it.
                let place = (0..n).find(|&place| taken(place) >= wanted).with_context(outside)?;
                Ok(place.saturating_sub(usize::from(taken(place) > wanted)))
            }
        }
    }

    /// Cuts the recording between two snapshots into parts of about the length `long`. Returns the
    /// indices of the snapshots at the cuts, beginning with `first`.
    pub fn cut(&self, first: usize, last: usize, long: Duration) -> Vec<usize> {
        let long = long.max(Duration::from_nanos(1));
        let mut wanted = self.since_first(first).saturating_add(long);
        let mut places = vec![first];
        for place in first + 1..=last {
            let taken = self.since_first(place);
            let next = self.since_first((place + 1).min(last));
            if place < last && next.abs_diff(wanted) <= taken.abs_diff(wanted) {
                continue;
            }
            // Do not cut here if the part would be more than a tenth too short, for instance the
            // rest before the last snapshot.
            let reached = taken.saturating_add(long / 10);
            if reached >= wanted {
                places.push(place);
                let parts = (reached - wanted).as_nanos() / long.as_nanos() + 1;
                let more = u32::try_from(parts).map_or(Duration::MAX, |n| long.saturating_mul(n));
                wanted = wanted.saturating_add(more);
            }
        }
        places
    }

    /// The rings' records in the frame with this index.
    ///
    /// # Errors
    ///
    /// If the frame is damaged.
    pub fn events(&self, place: usize) -> Result<Vec<Drained>> {
        lock(&self.frames).events(place.min(self.times.len() - 1))
    }

    /// The snapshot at the cursor.
    ///
    /// # Errors
    ///
    /// If its frame is damaged.
    pub fn shown(&mut self) -> Result<Snapshot> {
        let snapshot = lock(&self.frames).picture(self.cursor)?;
        self.late = snapshot.late_places();
        Ok(snapshot)
    }

    /// Moves the cursor to the snapshot with this index, which a job has read.
    pub fn show(&mut self, place: usize, snapshot: &Snapshot) {
        self.seek(place);
        self.late = snapshot.late_places();
    }

    /// Adds the last recorded records of each lane to a snapshot, as the rings may have held them
    /// at the cursor's moment.
    pub fn add_records(&self, snapshot: &mut Snapshot) {
        lock(&self.frames).add_records(self.cursor, snapshot);
    }

    /// Places that were late in the snapshot that was shown last.
    pub fn late_places(&self) -> &[BadPlace] {
        &self.late
    }
}

/// Locks the frames. A job that has panicked has not changed the file, so its frames stay usable.
fn lock(frames: &Mutex<Frames>) -> MutexGuard<'_, Frames> {
    frames.lock().unwrap_or_else(PoisonError::into_inner)
}
