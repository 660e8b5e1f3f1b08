//! Reads the frames of a recording's file.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use anyhow::{Context, Result, bail, ensure};

use super::format::{FILE_HEADER, FRAME_HEADER, FileHeader, FrameHeader};
use crate::snapshot::{Drained, Record, Snapshot};
use crate::source::guard;

/// Maximum number of records of a lane that are shown: the capacity of its ring.
const RING: usize = 2_047;
/// Maximum number of snapshots of a recording: two weeks at three a second.
pub(super) const MAX_FRAMES: usize = 1 << 22;
/// Number of frames that [`Frames::add_records`] searches for records.
const LOOKED_AT: usize = 60;

/// The offset of a frame, and its header.
#[derive(Clone, Copy, Debug)]
struct FramePosition {
    offset: u64,
    header: FrameHeader,
}

/// The times of a frame, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeaderTimes {
    pub(super) taken_unix_ns: u64,
    pub(super) since_first_ns: u64,
}

/// The state of a recording's file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FileEnd {
    /// Offset at which the next frame will begin.
    pub(super) end: u64,
    /// Whether the bytes at `end` are neither a frame nor the start of one.
    pub(super) damaged: bool,
    /// Number of bytes after `end`.
    pub(super) rest: u64,
}

/// The frames that were appended to a recording, and the end of its file.
#[derive(Debug)]
pub struct Growth {
    pub(super) times: Vec<HeaderTimes>,
    pub(super) end: FileEnd,
}

/// The file of a recording, and the positions of its frames.
#[derive(Debug)]
pub struct Frames {
    file: File,
    index: Vec<FramePosition>,
    end: FileEnd,
    /// The last key frame that was read, and its index.
    key: Option<(usize, Snapshot)>,
}

impl Frames {
    /// Reads the headers of all whole frames.
    pub(super) fn read(file: File) -> Result<(Self, Growth)> {
        let mut header = [0; FILE_HEADER];
        let len = read_up_to(&file, &mut header)?;
        let header = FileHeader::decode(&header[..len])?;
        let end = FileEnd { end: header.bytes.into(), ..FileEnd::default() };
        let mut frames = Self { file, index: Vec::new(), end, key: None };
        let mut growth = frames.refresh()?;
        // After a power failure, the file may end with frames whose content was never written.
        while let Some(last) = frames.index.last().copied() {
            if frames.payload(last).is_ok() {
                break;
            }
            frames.index.pop();
            frames.end.rest += frames.end.end - last.offset;
            frames.end.end = last.offset;
        }
        growth.times.truncate(frames.index.len());
        growth.end = frames.end;
        Ok((frames, growth))
    }

    /// The snapshot with this index.
    ///
    /// # Errors
    ///
    /// If its frame is damaged, or there is none.
    pub fn snapshot(&mut self, place: usize) -> Result<Snapshot> {
        let mut snapshot = self.picture(place)?;
        guard::clean_snapshot(&mut snapshot);
        Ok(snapshot)
    }

    /// Adds the last recorded records of each lane to the snapshot with this index, as the rings
    /// may have held them at its moment.
    pub fn add_records(&self, place: usize, snapshot: &mut Snapshot) {
        let mut wanted: HashMap<u32, usize> =
            snapshot.lanes.iter().map(|lane| (lane.id, RING)).collect();
        let mut parts: Vec<Vec<Record>> = Vec::new();
        for place in (0..=place).rev().take(LOOKED_AT) {
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

    /// Finds the frames that were appended since the last call.
    ///
    /// # Errors
    ///
    /// If the file cannot be read any more.
    pub fn refresh(&mut self) -> io::Result<Growth> {
        let (known, len) = (self.index.len(), self.file.metadata()?.len());
        while self.end.end.saturating_add(FRAME_HEADER as u64) <= len
            && self.index.len() < MAX_FRAMES
        {
            let mut bytes = [0; FRAME_HEADER];
            self.file.read_exact_at(&mut bytes, self.end.end)?;
            let number = self.index.len();
            let header = FrameHeader::decode(&bytes).filter(|header| {
                let is_next = header.number == number as u64;
                let key = number.checked_sub(header.back as usize);
                let has_key =
                    header.back == 0 || key.is_some_and(|key| self.index[key].header.back == 0);
                is_next && has_key
            });
            self.end.damaged = header.is_none();
            let Some(header) = header else { break };
            let next = self.end.end.checked_add(FRAME_HEADER as u64 + header.payload());
            let Some(next) = next.filter(|next| *next <= len) else { break };
            self.index.push(FramePosition { offset: self.end.end, header });
            self.end.end = next;
        }
        self.end.rest = len.saturating_sub(self.end.end);
        let times = |frame: &FramePosition| HeaderTimes {
            taken_unix_ns: frame.header.taken_unix_ns,
            since_first_ns: frame.header.since_first_ns,
        };
        Ok(Growth { times: self.index[known..].iter().map(times).collect(), end: self.end })
    }

    /// The rings' records in the frame with this index.
    pub(super) fn events(&self, place: usize) -> Result<Vec<Drained>> {
        let found = self.at(place)?;
        if !found.header.has_events() {
            return Ok(Vec::new());
        }
        found.header.events(&self.payload(found)?).with_context(|| damaged(&found))
    }

    fn at(&self, place: usize) -> Result<FramePosition> {
        let count = self.index.len();
        let frame = self.index.get(place).copied();
        frame.with_context(|| format!("expected one of {count} snapshots, found #{}", place + 1))
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

    fn payload(&self, place: FramePosition) -> Result<Vec<u8>> {
        // The index contains only frames within the file, so this allocates at most the size of the
        // file.
        let mut payload = vec![0; usize::try_from(place.header.payload())?];
        let offset = place.offset + FRAME_HEADER as u64;
        self.file.read_exact_at(&mut payload, offset).with_context(|| damaged(&place))?;
        ensure!(place.header.fits(&payload), damaged(&place));
        Ok(payload)
    }

    /// The snapshot with this index, not yet validated.
    pub(super) fn picture(&mut self, at: usize) -> Result<Snapshot> {
        let place = self.at(at)?;
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
