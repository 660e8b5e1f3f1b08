//! The messages between a viewer and an agent.
//!
//! ```text
//! agent:   MAGIC | reply | reply | ...
//! viewer:          request | request | ...
//!
//! message: whole length u32 | length of the head u32 | head, JSON | rest
//! ```
//!
//! Numbers are little-endian. Each request has a number and gets one reply, in order. In a message
//! with a picture, `rest` begins with JSON that has the kernel's figures of the process, since
//! recordings do not contain these. The text of a frame follows, as in a recording. The first
//! picture is a key frame. Each further one has the differences from the previous one, and after
//! them the [growth](growth) of its cells and edges.
//!
//! All pictures of a process are one Zstandard stream, flushed after each. Records are JSON; each
//! answer is a stream of its own.

mod growth;

use std::io::{self, Read, Write};

use anyhow::{Context as _, Result, bail, ensure};
use growth::Growth;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use pfp_read::files::recording;
use pfp_read::snapshot::{PointState, Snapshot, Usage};
use pfp_read::source::{Change, Discovery, ProcessGroup, Refusal};
use pfp_read::text::counted;
use pfp_read::waits::WaitNeeds;

/// The first bytes that an agent sends. A shell may print something before them.
pub(crate) const MAGIC: [u8; 9] = *b"\x89PFPVIA\r\n";
/// The version of the protocol. Both ends must have the same version.
pub(crate) const VERSION: u32 = 11;

/// Maximum length of a message, in bytes.
const LIMIT: u32 = 64 << 20;
/// Maximum number of bytes before [`MAGIC`].
const NOISE: usize = 64 << 10;
/// Level of Zstandard: the library's default compromise between time and size.
const LEVEL: i32 = 3;
/// The base-2 logarithm of the compression window's size in bytes.
const WINDOW: u32 = 21;

/// A viewer's request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Asks for the agent's version; always the first request. With `keep`, toggled points stay
    /// toggled if the line is lost.
    Hello { keep: bool },
    /// Asks for the processes at the place.
    Discover,
    /// Starts to watch a process, under this number.
    Attach { source: u32, segment_id: String },
    /// Starts to watch several processes as one.
    AttachGroup { source: u32, group: ProcessGroup },
    /// Stops watching the process or the group that has this number.
    Detach { source: u32 },
    /// Asks for the next picture, with as much of the waits as `waits` says. If no further request
    /// arrives and no part of a reply is written within `within_s` seconds, the line counts as lost
    /// until a request arrives.
    Picture { source: u32, within_s: Option<u64>, waits: WaitNeeds },
    /// Asks for the records of these lanes' rings from these numbers on, up to the last picture.
    NewRecords { source: u32, from: Vec<(u32, u64)> },
    /// Makes changes, in this order.
    Act { source: u32, changes: Vec<Change> },
    /// Ends the line. The agent leaves all points as they are.
    Goodbye,
}

/// A request and its number.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) number: u32,
    pub(crate) ask: Ask,
}

/// An agent's answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The versions of the protocol and of the program.
    Hello { version: u32, program: String },
    /// The processes at the place.
    Found(Discovery),
    /// The process is watched. If it cannot be changed, `read_only` is the reason.
    Attached { read_only: Option<String> },
    /// A picture follows the head. A key frame can be read without the previous picture.
    Picture { is_key: bool },
    /// Compressed records follow the head.
    Records,
    /// The request was carried out.
    Done,
    /// For each change: the state to restore later, if it switched a point; or why it failed.
    Changed { results: Vec<Result<Option<PointState>, Failure>> },
    /// The request failed, for this reason.
    Failed(Failure),
}

/// An answer and the number of its request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub(crate) number: u32,
    pub(crate) answer: Answer,
}

/// Data that files do not have: the kernel's figures of a process.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Extra {
    usage: Option<Usage>,
    /// CPU time by lane, nanoseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cpu_ns: Vec<(u32, u64)>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    has_died: bool,
}

impl Extra {
    fn of(snapshot: &Snapshot, has_died: bool) -> Self {
        let of_lane = |lane: &pfp_read::snapshot::Lane| Some((lane.id, lane.cpu_ns?));
        let cpu_ns = snapshot.lanes.iter().filter_map(of_lane).collect();
        Self { usage: snapshot.usage, cpu_ns, has_died }
    }

    /// Adds the data to a picture. Returns whether the process has died.
    fn put(self, snapshot: &mut Snapshot) -> bool {
        snapshot.usage = self.usage;
        for (id, cpu_ns) in self.cpu_ns {
            if let Ok(place) = snapshot.lanes.binary_search_by_key(&id, |lane| lane.id) {
                snapshot.lanes[place].cpu_ns = Some(cpu_ns);
            }
        }
        self.has_died
    }
}

/// Compresses data for the line: the pictures of a process, or a single message.
pub(crate) struct Packer(zstd::stream::write::Encoder<'static, Vec<u8>>);

impl Packer {
    pub(crate) fn new() -> io::Result<Self> {
        let mut stream = zstd::stream::write::Encoder::new(Vec::new(), LEVEL)?;
        stream.window_log(WINDOW)?;
        Ok(Self(stream))
    }

    /// Compresses a list as a single message. If the list is too long for a message, the end of the
    /// list is left out.
    pub(crate) fn pack_list(items: &[impl Serialize]) -> io::Result<Vec<u8>> {
        let mut text = vec![b'['];
        for (number, item) in items.iter().enumerate() {
            let item = serde_json::to_vec(item)?;
            if text.len() + item.len() + 2 > LIMIT as usize {
                break;
            }
            if number > 0 {
                text.push(b',');
            }
            text.extend(item);
        }
        text.push(b']');
        Self::new()?.add(&text)
    }

    fn add(&mut self, text: &[u8]) -> io::Result<Vec<u8>> {
        self.0.write_all(text)?;
        self.0.flush()?;
        Ok(std::mem::take(self.0.get_mut()))
    }

    /// Compresses the next picture; `before` is the previous one.
    pub(crate) fn pack(
        &mut self,
        snapshot: &Snapshot,
        before: Option<&Snapshot>,
        has_died: bool,
    ) -> io::Result<Vec<u8>> {
        let mut text = serde_json::to_vec(&Extra::of(snapshot, has_died))?;
        text.push(b'\n');
        match before.map(|before| (Growth::between(before, snapshot), before)) {
            Some(((growth, others), before)) => {
                recording::write_text(&others, Some(before), &mut text)?;
                text.push(b'\n');
                text = postcard::to_extend(&growth, text).map_err(io::Error::other)?;
            }
            None => recording::write_text(snapshot, None, &mut text)?,
        }
        if text.len() > LIMIT as usize {
            // Nothing was added to the stream, so the next picture can still continue it.
            return Err(io::Error::other(format!(
                "expected a picture of at most {} MiB for the connection, found one of {} MiB of \
                 {}, {} and {}: watch fewer processes at once, or run pfp-top there",
                LIMIT >> 20,
                text.len().div_ceil(1 << 20),
                counted(snapshot.points.len(), "point"),
                counted(snapshot.lanes.len(), "thread"),
                counted(snapshot.cells.len(), "cell"),
            )));
        }
        self.add(&text)
    }
}

/// Decompresses the outputs of a [`Packer`], in the order in which the packer made them.
pub(crate) struct Unpacker(zstd::stream::write::Decoder<'static, BoundedBuffer>);

impl Unpacker {
    pub(crate) fn new() -> io::Result<Self> {
        let mut stream = zstd::stream::write::Decoder::new(BoundedBuffer(Vec::new()))?;
        stream.window_log_max(WINDOW)?;
        Ok(Self(stream))
    }

    /// Decompresses the output of [`Packer::pack_list`].
    ///
    /// # Errors
    ///
    /// If the data is not such a message.
    pub(crate) fn unpack_one<T: DeserializeOwned>(packed: &[u8]) -> Result<T> {
        Ok(serde_json::from_slice(&Self::new()?.next(packed)?)?)
    }

    fn next(&mut self, packed: &[u8]) -> Result<Vec<u8>> {
        self.0.write_all(packed).and_then(|()| self.0.flush()).context("it cannot be unpacked")?;
        Ok(std::mem::take(&mut self.0.get_mut().0))
    }

    /// Decompresses the next picture; also returns whether its process has died.
    ///
    /// # Errors
    ///
    /// If the data is not a picture. The stream cannot continue after this error.
    pub(crate) fn unpack(
        &mut self,
        packed: &[u8],
        before: Option<&Snapshot>,
        is_key: bool,
    ) -> Result<(Snapshot, bool)> {
        let text = self.next(packed)?;
        let is_end = |byte: &u8| *byte == b'\n';
        let mut parts = text.splitn(3, is_end);
        let mut part = || parts.next().context("it is not whole");
        let extra: Extra = serde_json::from_slice(part()?)?;
        let (mut snapshot, growth) = match (is_key, before) {
            (true, _) => (recording::read_text(part()?, None)?, None),
            (false, None) => bail!("there is none before it"),
            (false, Some(before)) => {
                let snapshot = recording::read_text(part()?, Some(before))?;
                (snapshot, Some((postcard::from_bytes::<Growth>(part()?)?, before)))
            }
        };
        if let Some((growth, before)) = growth {
            growth.add_to(&mut snapshot, before)?;
        }
        let has_died = extra.put(&mut snapshot);
        Ok((snapshot, has_died))
    }
}

/// A buffer limited to the size of a picture.
struct BoundedBuffer(Vec<u8>);

impl Write for BoundedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > LIMIT as usize {
            return Err(io::Error::other("it is too large"));
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The reason for a failure.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    refusal: Option<Refusal>,
    words: String,
}

impl Failure {
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        let refusal = error.chain().find_map(|cause| cause.downcast_ref::<Refusal>()).cloned();
        Self { refusal, words: format!("{error:#}") }
    }

    pub(crate) fn into_error(self) -> anyhow::Error {
        match self.refusal {
            Some(refusal) => refusal.into(),
            None => anyhow::anyhow!(self.words),
        }
    }
}

/// Builds a message from its head and its rest.
///
/// # Errors
///
/// If it exceeds the maximum length of a message.
pub(crate) fn message(head: &impl Serialize, rest: &[u8]) -> io::Result<Vec<u8>> {
    let head = serde_json::to_vec(head)?;
    let whole = u32::try_from(head.len() + rest.len()).ok().filter(|whole| *whole <= LIMIT);
    let Some(whole) = whole else {
        return Err(io::Error::other(format!(
            "expected a message of at most {} MiB, found one of {} MiB",
            LIMIT >> 20,
            (head.len() + rest.len()) >> 20
        )));
    };
    let mut message = Vec::with_capacity(8 + whole as usize);
    message.extend_from_slice(&whole.to_le_bytes());
    message.extend_from_slice(&(head.len() as u32).to_le_bytes());
    message.extend_from_slice(&head);
    message.extend_from_slice(rest);
    Ok(message)
}

/// Reads a message. `None` if the input ends before a message begins.
///
/// # Errors
///
/// If the input ends within a message, or is not a message.
pub(crate) fn read<T: DeserializeOwned>(input: &mut impl Read) -> Result<Option<(T, Vec<u8>)>> {
    let mut lengths = [0; 8];
    let mut have = 0;
    while have < lengths.len() {
        match input.read(&mut lengths[have..]) {
            Ok(0) if have == 0 => return Ok(None),
            Ok(0) => bail!("it ended in the middle of a message"),
            Ok(more) => have += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    let at = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| lengths[at + byte]));
    let (whole, head) = (at(0), at(4));
    ensure!(
        whole <= LIMIT && head <= whole,
        "expected a message of at most {} MiB, found other data",
        LIMIT >> 20
    );
    // Memory grows with the bytes that arrive, whatever length the message claims.
    let mut bytes = Vec::new();
    input.take(u64::from(whole)).read_to_end(&mut bytes)?;
    ensure!(bytes.len() == whole as usize, "it ended in the middle of a message");
    let rest = bytes.split_off(head as usize);
    let said = serde_json::from_slice(&bytes).context("a message cannot be read")?;
    Ok(Some((said, rest)))
}

/// Reads up to and including [`MAGIC`].
///
/// # Errors
///
/// If the input has no [`MAGIC`].
pub(crate) fn skip_to_magic(input: &mut impl Read) -> Result<()> {
    let mut noise = Vec::new();
    let mut byte = [0];
    while noise.len() < NOISE {
        if input.read(&mut byte)? == 0 {
            break;
        }
        noise.push(byte[0]);
        if noise.ends_with(&MAGIC) {
            return Ok(());
        }
    }
    let text = String::from_utf8_lossy(&noise);
    let last = text.lines().rfind(|line| !line.trim().is_empty());
    match last {
        Some(last) => bail!(
            "the command did not start `pfp-top agent`, but printed \
                             {:?}",
            last.trim()
        ),
        None => bail!("the command did not start `pfp-top agent`, and printed nothing"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use pfp_read::snapshot::{Bucket, Cell, Drained};
    use pfp_read::source::Source;
    use pfp_read::source::synthetic::Synthetic;

    #[test]
    fn a_picture_that_is_too_large_is_refused_in_words_and_the_next_one_follows_the_last() {
        let mut source = Synthetic::new();
        let all: Vec<Snapshot> = source.polls(2);
        let (mut packer, mut unpacker) = (Packer::new().unwrap(), Unpacker::new().unwrap());
        let packed = packer.pack(&all[0], None, false).unwrap();
        let (first, _) = unpacker.unpack(&packed, None, true).unwrap();
        let mut large = all[0].clone();
        for point in &mut large.points {
            point.name = "x".repeat(LIMIT as usize / 8);
        }
        let error = packer.pack(&large, Some(&all[0]), false).unwrap_err().to_string();
        assert!(error.contains("at most 64 MiB") && error.contains("9 points"), "{error}");
        let packed = packer.pack(&all[1], Some(&all[0]), false).unwrap();
        let (second, _) = unpacker.unpack(&packed, Some(&first), false).unwrap();
        assert_eq!(second.cells, all[1].cells);
    }

    /// Between pictures, cells and edges grow, disappear and appear, and a cell is reset.
    #[test]
    fn pictures_arrive_as_they_were_sent() {
        let mut source = Synthetic::new();
        let (mut packer, mut unpacker) = (Packer::new().unwrap(), Unpacker::new().unwrap());
        let mut last: Option<(Snapshot, Snapshot)> = None;
        for picture in 0..12 {
            let mut sent = source.poll().unwrap();
            sent.records.clear();
            match picture {
                3 => drop(sent.cells.remove(1)),
                5 => drop(sent.edges.remove(0)),
                6 => {
                    let cell = Arc::make_mut(&mut sent.cells[2]);
                    (cell.stats, cell.histogram) = (cell.retired.clone(), Vec::new());
                }
                8 => {
                    let cell = Arc::make_mut(&mut sent.cells[0]);
                    (cell.stats.min, cell.stats.squares) = (u64::MAX, u128::MAX);
                }
                9 => sent.edges[1].exclusive = u64::MAX,
                10 => (sent.cells, sent.edges) = (Vec::new(), Vec::new()),
                _ => {}
            }
            let before = last.as_ref().map(|(sent, _)| sent);
            let packed = packer.pack(&sent, before, false).unwrap();
            let before = last.as_ref().map(|(_, came)| came);
            let (came, _) = unpacker.unpack(&packed, before, before.is_none()).unwrap();
            assert_eq!(came, sent, "picture {picture}");
            last = Some((sent, came));
        }
    }

    /// Each of 64 threads measures each of 100 points a few times between two pictures.
    #[test]
    fn a_cell_that_has_measured_takes_few_bytes() {
        let mut snapshot = Synthetic::new().poll().unwrap();
        let few = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
        let cell = |number: u64| {
            let (point, lane) = ((number / 64) as u32, (number % 64) as u32);
            let bucket = |low| Bucket { low, width: 16, count: few(low) };
            let histogram = (20..40).map(|at| bucket(at * 16)).collect();
            Arc::new(Cell { point, lane, histogram, ..Cell::default() })
        };
        snapshot.cells = (0..6400).map(cell).collect();
        let mut packer = Packer::new().unwrap();
        let mut bytes = packer.pack(&snapshot, None, false).unwrap().len();
        for picture in 1..5 {
            let before = snapshot.clone();
            for (number, cell) in snapshot.cells.iter_mut().enumerate() {
                let number = number as u64 * picture;
                let (cell, calls) = (Arc::make_mut(cell), 1 + few(number));
                let ticks = 400 + few(number + 1) * 16;
                cell.stats.count += calls;
                cell.stats.exclusive += calls * ticks;
                cell.stats.inclusive += calls * (ticks + few(number + 2));
                cell.stats.squares += u128::from(calls * ticks * ticks);
                (cell.stats.last, cell.stats.average) = (ticks, ticks << 16);
                cell.histogram[few(number + 1) as usize].count += calls;
            }
            bytes = packer.pack(&snapshot, Some(&before), false).unwrap().len();
        }
        assert!(bytes < 6400 * 20, "{} bytes a cell", bytes as f64 / 6400.0);
    }

    #[test]
    fn growth_of_what_is_not_there_is_refused() {
        let before = Synthetic::new().poll().unwrap();
        let grown = |cells: usize, edges: usize| {
            let mut now = before.clone();
            for cell in &mut now.cells {
                Arc::make_mut(cell).stats.count += 1;
            }
            now.edges.iter_mut().for_each(|edge| edge.count += 1);
            let (growth, mut others) = Growth::between(&before, &now);
            let mut base = before.clone();
            base.cells.truncate(cells);
            base.edges.truncate(edges);
            growth.add_to(&mut others, &base).map(|()| others == now)
        };
        let (cells, edges) = (before.cells.len(), before.edges.len());
        assert!(cells > 1 && edges > 1);
        assert!(grown(cells, edges).unwrap());
        assert!(grown(cells - 1, edges).is_err() && grown(cells, edges - 1).is_err());
    }

    #[test]
    fn records_are_sent_as_far_as_a_message_holds_them() {
        let lane = |lane| Drained { lane, from: 0, lost: 0, records: Vec::new() };
        let few: Vec<Drained> = (0..3).map(lane).collect();
        let unpacked = |packed: Vec<u8>| Unpacker::unpack_one::<Vec<Drained>>(&packed).unwrap();
        assert_eq!(unpacked(Packer::pack_list(&few).unwrap()), few);
        assert_eq!(unpacked(Packer::pack_list(&[0_u8; 0]).unwrap()), []);
        // The four items do not fit into one message, so only the first two are sent.
        let text = "y".repeat(LIMIT as usize / 3);
        let packed = Packer::pack_list(&[text.as_str(); 4]).unwrap();
        let found: Vec<String> = Unpacker::unpack_one(&packed).unwrap();
        assert_eq!(found, [text.as_str(), text.as_str()]);
    }
}
