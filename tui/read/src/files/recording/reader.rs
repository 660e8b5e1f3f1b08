//! Reads recordings: a file with many snapshots, and a cursor at one of them.
//!
//! Opening reads only the headers of the frames. A snapshot is read on demand, together with its
//! key frame.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::format::{FILE_HEADER, FRAME_HEADER, FileHeader, FrameHeader};
use crate::local_time;
use crate::snapshot::{BadPlace, Drained, Record, Snapshot};
use crate::units;

const NS: u64 = 1_000_000_000;
const DAY: u64 = 86_400;
/// Maximum number of records of a lane that are shown: the capacity of its ring.
const RING: usize = 2_047;
/// Maximum number of snapshots of a recording: two weeks at three a second.
const MAX_FRAMES: usize = 1 << 22;
/// Number of frames that [`Recording::add_records`] searches for records.
const LOOKED_AT: usize = 60;

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

/// The offset of a frame, and its header.
#[derive(Clone, Copy, Debug)]
struct FramePosition {
    offset: u64,
    header: FrameHeader,
}

/// A recording.
#[derive(Debug)]
pub struct Recording {
    file: File,
    index: Vec<FramePosition>,
    /// Offset at which the next frame will begin.
    end: u64,
    /// Whether the bytes at `end` are neither a frame nor the start of one.
    damaged: bool,
    /// Number of bytes beyond `end` at the last check.
    rest: u64,
    cursor: usize,
    /// The last key frame that was read, and its index.
    key: Option<(usize, Snapshot)>,
    /// Places that were late in the snapshot that [`Recording::shown`] has returned last.
    late: Vec<BadPlace>,
}

impl Recording {
    /// Reads the headers of all whole frames, and moves the cursor to the last frame.
    ///
    /// # Errors
    ///
    /// If the file is not a recording, has another version, or has no snapshot yet.
    pub fn read(file: File, path: &Path) -> Result<Self> {
        let shown = path.display();
        let refused = || format!("{shown} is not a recording that can be shown");
        let mut header = [0; FILE_HEADER];
        let len = read_up_to(&file, &mut header).with_context(refused)?;
        let header = FileHeader::decode(&header[..len]).with_context(refused)?;
        let mut recording = Self {
            file,
            index: Vec::new(),
            end: header.bytes.into(),
            damaged: false,
            rest: 0,
            cursor: 0,
            key: None,
            late: Vec::new(),
        };
        recording.refresh().with_context(refused)?;
        // After a power failure, the file may end with frames whose content was never written.
        while let Some(last) = recording.index.last().copied() {
            if recording.payload(last).is_ok() {
                break;
            }
            recording.index.pop();
            recording.rest += recording.end - last.offset;
            recording.end = last.offset;
        }
        if recording.index.is_empty() {
            bail!(
                "expected a recording with a snapshot, found that {shown} has no whole one ({} \
                 bytes behind its header); record again",
                recording.rest
            );
        }
        recording.cursor = recording.index.len() - 1;
        Ok(recording)
    }

    /// Number of snapshots; never 0.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Always false: a recording has at least one snapshot.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The index of the current snapshot.
    pub fn cursor(&self) -> usize {
        self.cursor
    }

    /// Moves the cursor to the snapshot with this index, at most to the last one.
    pub fn seek(&mut self, place: usize) {
        self.cursor = place.min(self.index.len() - 1);
    }

    /// The frame with this index, or the last one if the index is too large.
    fn at(&self, place: usize) -> &FramePosition {
        &self.index[place.min(self.index.len() - 1)]
    }

    /// The time of the snapshot with this index, nanoseconds since the Unix epoch.
    pub fn taken_unix_ns(&self, place: usize) -> u64 {
        self.at(place).header.taken_unix_ns
    }

    /// The time from the first snapshot to this one, by a monotonic clock. The wall clock is only a
    /// label, since it may be set during the recording.
    pub fn since_first(&self, place: usize) -> Duration {
        let (last, header) = (&self.at(usize::MAX).header, &self.at(place).header);
        // Older files have only the wall clock.
        let is_older = last.since_first_ns == 0;
        let by_label = header.taken_unix_ns.saturating_sub(self.taken_unix_ns(0));
        Duration::from_nanos(if is_older { by_label } else { header.since_first_ns })
    }

    /// The time from the previous snapshot to this one, to the millisecond; zero for the first.
    pub fn since_before(&self, place: usize) -> Duration {
        let before = self.since_first(place.saturating_sub(1));
        let gap = self.since_first(place).saturating_sub(before);
        Duration::from_millis((gap.as_micros() as u64 + 500) / 1000)
    }

    /// Bytes up to the end of the last whole frame.
    pub fn whole_bytes(&self) -> u64 {
        self.end
    }

    /// Whether bytes that are not a frame follow the last frame.
    pub fn is_damaged(&self) -> bool {
        self.damaged
    }

    /// Whether a recorder is writing to the file now.
    pub fn grows(&self) -> bool {
        let fd = self.file.as_raw_fd();
        // SAFETY: `fd` is the descriptor of `self.file`, which is open.
        let locked = unsafe { libc::flock(fd, libc::LOCK_SH | libc::LOCK_NB) } != 0;
        if !locked {
            // SAFETY: `fd` is the descriptor of `self.file`, which is open.
            unsafe { libc::flock(fd, libc::LOCK_UN) };
        }
        locked
    }

    /// A remark if the recording does not end with a whole frame, or is too long to be shown whole.
    pub fn remark(&self) -> Option<String> {
        let (rest, n) = (self.rest, self.index.len());
        if n == MAX_FRAMES {
            return Some(format!(
                "a recording is shown up to snapshot #{n}; record into several files"
            ));
        }
        if rest == 0 || (!self.damaged && self.grows()) {
            None
        } else if self.damaged {
            Some(format!(
                "the recording is damaged after {n} snapshots: the {rest} bytes from byte {} on \
                 cannot be read",
                self.end
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
        let (known, len) = (self.index.len(), self.file.metadata()?.len());
        while self.end.saturating_add(FRAME_HEADER as u64) <= len && self.index.len() < MAX_FRAMES {
            let mut bytes = [0; FRAME_HEADER];
            self.file.read_exact_at(&mut bytes, self.end)?;
            let number = self.index.len();
            let header = FrameHeader::decode(&bytes).filter(|header| {
                let is_next = header.number == number as u64;
                let key = number.checked_sub(header.back as usize);
                let has_key =
                    header.back == 0 || key.is_some_and(|key| self.index[key].header.back == 0);
                is_next && has_key
            });
            self.damaged = header.is_none();
            let Some(header) = header else { break };
            let next = self.end.checked_add(FRAME_HEADER as u64 + header.payload());
            let Some(next) = next.filter(|next| *next <= len) else { break };
            self.index.push(FramePosition { offset: self.end, header });
            self.end = next;
        }
        self.rest = len.saturating_sub(self.end);
        Ok(self.index.len() > known)
    }

    /// The index of the snapshot at the user's moment.
    ///
    /// # Errors
    ///
    /// If the recording has no such moment.
    pub fn find(&self, moment: &Moment) -> Result<usize> {
        let (last, n) = (self.index.len() - 1, self.index.len());
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
        let found = self.at(place);
        if !found.header.has_events() {
            return Ok(Vec::new());
        }
        found.header.events(&self.payload(*found)?).with_context(|| damaged(found))
    }

    /// The snapshot at the cursor.
    ///
    /// # Errors
    ///
    /// If its frame is damaged.
    pub fn shown(&mut self) -> Result<Snapshot> {
        let snapshot = self.snapshot(self.cursor)?;
        self.late = snapshot.late_places();
        Ok(snapshot)
    }

    /// Adds the last recorded records of each lane to a snapshot, as the rings may have held them
    /// at the cursor's moment.
    pub fn add_records(&mut self, snapshot: &mut Snapshot) {
        let mut wanted: HashMap<u32, usize> =
            snapshot.lanes.iter().map(|lane| (lane.id, RING)).collect();
        let mut parts: Vec<Vec<Record>> = Vec::new();
        for place in (0..=self.cursor).rev().take(LOOKED_AT) {
            // Skip a damaged frame; the others still have their records.
            let Ok(all) = self.events(place) else { continue };
            for mut drained in all {
                let Some(wanted) = wanted.get_mut(&drained.lane) else { continue };
                let more = drained.records.len().saturating_sub(*wanted);
                drained.records.drain(..more);
                *wanted -= drained.records.len();
                parts.push(drained.records);
            }
            if wanted.values().all(|wanted| *wanted == 0) {
                break;
            }
        }
        snapshot.records = parts.into_iter().rev().flatten().collect();
        snapshot.records.sort_by_key(|record| record.lane);
    }

    /// Places that were late in the snapshot that [`Self::shown`] has returned last.
    pub fn late_places(&self) -> &[BadPlace] {
        &self.late
    }

    fn payload(&self, place: FramePosition) -> Result<Vec<u8>> {
        // The index contains only frames within the file, so this allocates at most the size of the
        // file.
        let mut payload = vec![0; usize::try_from(place.header.payload())?];
        let offset = place.offset + FRAME_HEADER as u64;
        self.file.read_exact_at(&mut payload, offset).with_context(|| damaged(&place))?;
        ensure!(place.header.fits(&payload), damaged(&place));
        Ok(payload)
    }

    fn snapshot(&mut self, at: usize) -> Result<Snapshot> {
        let place = self.index[at];
        let key_at = at - place.header.back as usize;
        if self.key.as_ref().is_none_or(|(known, _)| *known != key_at) {
            let place = self.index[key_at];
            let key = place.header.snapshot(&self.payload(place)?, None);
            self.key = Some((key_at, key.with_context(|| damaged(&place))?));
        }
        let Some((_, key)) = &self.key else { bail!(damaged(&place)) };
        if key_at == at {
            return Ok(key.clone());
        }
        let payload = self.payload(place)?;
        place.header.snapshot(&payload, Some(key)).with_context(|| damaged(&place))
    }
}

fn damaged(place: &FramePosition) -> String {
    format!(
        "expected snapshot #{} at byte {} as it was written, found it damaged; others can be shown",
        place.header.number + 1,
        place.offset
    )
}

/// Reads the first bytes, up to the length of `bytes` or of the file.
fn read_up_to(file: &File, bytes: &mut [u8]) -> io::Result<usize> {
    let len = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX).min(bytes.len());
    file.read_exact_at(&mut bytes[..len], 0)?;
    Ok(len)
}
