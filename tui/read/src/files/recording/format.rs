//! The headers and frames of a recording.

use std::io::{self, Read};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::de::DeserializeOwned;

use super::delta::Delta;
use crate::files::input::MAX_BYTES;
use crate::files::{Refusal, json};
use crate::snapshot::{Drained, Snapshot};

/// The first bytes of a recording. They include a byte that is not ASCII and a line end: a copy in
/// text mode changes these two, so that readers reject the copy.
pub const MAGIC: [u8; 8] = *b"\x89PFPREC\n";
/// The version of the format. A file of another major version is refused; a file of a later minor
/// version only adds fields.
pub(super) const VERSION: [u16; 2] = [1, 0];
/// Size of the file header in this version, in bytes.
pub const FILE_HEADER: usize = 32;
/// Size of a frame header, in bytes.
pub const FRAME_HEADER: usize = 64;

/// The first bytes of every frame.
const FRAME: [u8; 4] = *b"FRAM";
/// Zstandard's compression level: the library's default compromise between time and size.
const LEVEL: i32 = 3;
/// Maximum size of a part of a frame, packed or unpacked, in bytes. Without a limit, a small file
/// could request more memory than any machine has.
const LIMIT: u32 = MAX_BYTES as u32;

/// The header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileHeader {
    /// Major and minor version.
    pub version: [u16; 2],
    /// Offset of the first frame.
    pub bytes: u32,
    /// The requested time between two snapshots, nanoseconds.
    pub interval_ns: u64,
}

impl FileHeader {
    /// A header for a new file.
    pub(super) fn new(interval_ns: u64) -> Self {
        Self { version: VERSION, bytes: FILE_HEADER as u32, interval_ns }
    }

    /// The header's bytes in the file.
    pub(super) fn encode(&self) -> [u8; FILE_HEADER] {
        let mut bytes = [0; FILE_HEADER];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&self.version[0].to_le_bytes());
        bytes[10..12].copy_from_slice(&self.version[1].to_le_bytes());
        bytes[12..16].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.interval_ns.to_le_bytes());
        let sum = crc32fast::hash(&bytes[..28]);
        bytes[28..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads the header from the first bytes of a file.
    ///
    /// # Errors
    ///
    /// If the bytes are not a header, or of another major version.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self> {
        ensure!(
            bytes.starts_with(&MAGIC),
            "expected a recording as `pfp-top record` writes it, found other data"
        );
        let Some(bytes) = bytes.first_chunk::<FILE_HEADER>() else {
            bail!(
                "expected a header of {FILE_HEADER} bytes, found that the file ends after {}; it \
                 was truncated: copy it again",
                bytes.len()
            );
        };
        // Check the version before the checksum, whose offset depends on it.
        let version = [u16_at(bytes, 8), u16_at(bytes, 10)];
        if version[0] != VERSION[0] {
            let advice = if version[0] > VERSION[0] { "use a newer" } else { "use an older" };
            return Err(Refusal::Version(format!(
                "expected version {} of the format of recordings, found {}; {advice} pfp-top",
                VERSION[0], version[0]
            ))
            .into());
        }
        ensure!(
            u32_at(bytes, 28) == crc32fast::hash(&bytes[..28]),
            "expected a header that agrees with its checksum, found a damaged one; copy the file again"
        );
        let header = Self { version, bytes: u32_at(bytes, 12), interval_ns: u64_at(bytes, 16) };
        ensure!(
            header.bytes as usize >= FILE_HEADER,
            "expected a header of at least {FILE_HEADER} bytes, found one of {}",
            header.bytes
        );
        Ok(header)
    }
}

/// The header of a frame, which precedes its two parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    /// Number of the frame, from 0.
    pub number: u64,
    /// Distance to its key frame, in frames; 0 for a key frame.
    pub back: u32,
    /// Time of the snapshot, nanoseconds since the Unix epoch.
    pub taken_unix_ns: u64,
    /// Age of the process at the snapshot, ticks since the segment was created.
    pub elapsed_ticks: u64,
    /// Time since the first snapshot, nanoseconds, by a monotonic clock; 0 in all frames of
    /// older files.
    pub since_first_ns: u64,
    snapshot: PartLengths,
    events: PartLengths,
    sum: u32,
}

/// The lengths of a part of a frame, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PartLengths {
    packed: u32,
    whole: u32,
}

impl FrameHeader {
    /// Number of bytes that follow the header.
    pub(super) fn payload(&self) -> u64 {
        u64::from(self.snapshot.packed) + u64::from(self.events.packed)
    }

    /// Whether the frame has records of the rings.
    pub(super) fn has_events(&self) -> bool {
        self.events.packed > 0
    }

    fn encode(&self) -> [u8; FRAME_HEADER] {
        let mut bytes = [0; FRAME_HEADER];
        bytes[..4].copy_from_slice(&FRAME);
        bytes[4..8].copy_from_slice(&self.back.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.taken_unix_ns.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.elapsed_ticks.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.snapshot.packed.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.snapshot.whole.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.events.packed.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.events.whole.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.since_first_ns.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.sum.to_le_bytes());
        let sum = crc32fast::hash(&bytes[..60]);
        bytes[60..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a header. `None` if these bytes are not a header.
    pub(super) fn decode(bytes: &[u8; FRAME_HEADER]) -> Option<Self> {
        let part = |at| PartLengths { packed: u32_at(bytes, at), whole: u32_at(bytes, at + 4) };
        let header = Self {
            back: u32_at(bytes, 4),
            number: u64_at(bytes, 8),
            taken_unix_ns: u64_at(bytes, 16),
            elapsed_ticks: u64_at(bytes, 24),
            snapshot: part(32),
            events: part(40),
            since_first_ns: u64_at(bytes, 48),
            sum: u32_at(bytes, 56),
        };
        let is_whole = bytes.starts_with(&FRAME)
            && u32_at(bytes, 60) == crc32fast::hash(&bytes[..60])
            && u64::from(header.back) <= header.number
            && [header.snapshot, header.events]
                .iter()
                .all(|part| part.packed <= LIMIT && part.whole <= LIMIT);
        is_whole.then_some(header)
    }

    /// Whether this payload belongs to the frame and is undamaged.
    pub(super) fn fits(&self, payload: &[u8]) -> bool {
        payload.len() as u64 == self.payload() && crc32fast::hash(payload) == self.sum
    }

    /// The snapshot of a frame. `key` is the snapshot of the frame's key frame, or `None` if the
    /// frame is a key frame itself.
    ///
    /// # Errors
    ///
    /// If the payload has the right checksum but not the right format.
    pub(super) fn snapshot(&self, payload: &[u8], key: Option<&Snapshot>) -> Result<Snapshot> {
        let packed = payload.get(..self.snapshot.packed as usize).context("it is not whole")?;
        read_text(&unpack(packed, self.snapshot.whole)?, key)
    }

    /// The new records of the rings since the previous frame.
    ///
    /// # Errors
    ///
    /// Like [`Self::snapshot`].
    pub(super) fn events(&self, payload: &[u8]) -> Result<Vec<Drained>> {
        if !self.has_events() {
            return Ok(Vec::new());
        }
        let packed = payload.get(self.snapshot.packed as usize..).unwrap_or_default();
        let text = unpack(packed, self.events.whole)?;
        let mut all: Vec<Drained> = parse(&text).context("its records cannot be read")?;
        all.iter_mut().for_each(Drained::own);
        Ok(all)
    }
}

/// Makes frames.
pub(super) struct Encoder {
    packer: zstd::bulk::Compressor<'static>,
    text: Vec<u8>,
}

impl Encoder {
    /// A new encoder.
    ///
    /// # Errors
    ///
    /// If memory runs out.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { packer: zstd::bulk::Compressor::new(LEVEL)?, text: Vec::new() })
    }

    /// Makes the frame of a snapshot, header included. With `key`, a snapshot and its distance in
    /// frames, the frame has the differences from that snapshot. The field `records` of the
    /// snapshot is not written. Also returns the compressed size of the snapshot in bytes.
    ///
    /// # Errors
    ///
    /// If the frame exceeds its maximum size.
    pub(super) fn frame(
        &mut self,
        (number, since_first_ns): (u64, u64),
        snapshot: &Snapshot,
        key: Option<(u32, &Snapshot)>,
        events: &[Drained],
    ) -> io::Result<(Vec<u8>, usize)> {
        self.text.clear();
        write_text(snapshot, key.map(|(_, key)| key), &mut self.text)?;
        let (mut frame, snapshot_part) = (vec![0; FRAME_HEADER], self.pack()?);
        frame.extend_from_slice(&snapshot_part.0);
        let mut events_part = (Vec::new(), PartLengths { packed: 0, whole: 0 });
        if !events.is_empty() {
            self.text.clear();
            serde_json::to_writer(&mut self.text, events)?;
            events_part = self.pack()?;
            frame.extend_from_slice(&events_part.0);
        }
        let header = FrameHeader {
            number,
            back: key.map_or(0, |(back, _)| back),
            taken_unix_ns: snapshot.taken_unix_ns,
            elapsed_ticks: snapshot.elapsed_ticks,
            since_first_ns,
            snapshot: snapshot_part.1,
            events: events_part.1,
            sum: crc32fast::hash(&frame[FRAME_HEADER..]),
        };
        frame[..FRAME_HEADER].copy_from_slice(&header.encode());
        Ok((frame, snapshot_part.0.len()))
    }

    fn pack(&mut self) -> io::Result<(Vec<u8>, PartLengths)> {
        let whole = u32::try_from(self.text.len()).ok().filter(|whole| *whole <= LIMIT);
        let whole = whole.ok_or_else(|| {
            let (found, most) = (self.text.len() >> 20, LIMIT >> 20);
            io::Error::other(format!(
                "expected a snapshot of at most {most} MiB, found one of {found} MiB; record fewer \
                 processes in one file"
            ))
        })?;
        let packed = self.packer.compress(&self.text)?;
        let len = u32::try_from(packed.len()).map_err(io::Error::other)?;
        Ok((packed, PartLengths { packed: len, whole }))
    }
}

/// Writes a snapshot without its records, or its differences from another one.
pub fn write_text(
    snapshot: &Snapshot,
    key: Option<&Snapshot>,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    match key {
        Some(key) => serde_json::to_writer(out, &Delta::between(key, snapshot))?,
        None if snapshot.records.is_empty() => serde_json::to_writer(out, snapshot)?,
        None => {
            let without = Snapshot { records: Vec::new(), ..snapshot.clone() };
            serde_json::to_writer(out, &without)?;
        }
    }
    Ok(())
}

/// Reads the snapshot that [`write_text`] has written, given the same key.
///
/// # Errors
///
/// If the text is not a snapshot or a delta.
pub fn read_text(text: &[u8], key: Option<&Snapshot>) -> Result<Snapshot> {
    match key {
        None => parse(text).context("its snapshot cannot be read"),
        Some(key) => {
            let delta: Delta = parse(text).context("its changes cannot be read")?;
            Ok(delta.apply(key))
        }
    }
}

/// Parses a text. An error gives the reason why it cannot be parsed.
fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T> {
    serde_json::from_slice(text).map_err(|error| anyhow!(json::words(&error)))
}

/// Unpacks bytes. Memory grows with the unpacked bytes, whatever length the header claims.
fn unpack(packed: &[u8], whole: u32) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    zstd::stream::read::Decoder::with_buffer(packed)
        .and_then(|packed| packed.take(u64::from(whole) + 1).read_to_end(&mut bytes))
        .context("it cannot be unpacked")?;
    ensure!(
        bytes.len() == whole as usize,
        "expected {whole} bytes when unpacked, found {}",
        bytes.len()
    );
    Ok(bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
