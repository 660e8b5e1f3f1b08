//! What a viewer and an agent say to each other over a pipe.
//!
//! ```text
//! agent:   MAGIC | reply | reply | ...
//! viewer:          request | request | ...
//!
//! message: whole length u32 | length of the head u32 | head, JSON | rest
//! ```
//!
//! Numbers are little-endian. Each request has a number, and each gets one reply, in their
//! order. Behind the head of a picture stand a line of what no file has and the text of a
//! recording's frame: the first is a key, and any other has what is different from the one
//! before. All pictures of a process are one stream of Zstandard, flushed after each. Records are
//! JSON, each answer a stream of its own.

use std::io::{self, Read, Write};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::files::recording;
use crate::snapshot::{Snapshot, Summed, Usage};
use crate::source::{Change, Discovery, ProcessGroup, Refusal};
use crate::summing::Sight;

/// What an agent says first. Before it may stand what a shell prints as it starts.
pub(crate) const MAGIC: [u8; 9] = *b"\x89PFPVIA\r\n";
/// The version of all that follows; both ends have to have the same.
pub(crate) const VERSION: u32 = 4;

/// Bytes that a message has at most.
const LIMIT: u32 = 64 << 20;
/// Bytes that may stand before [`MAGIC`].
const NOISE: usize = 64 << 10;
/// Level of Zstandard: the library's own middle between time and size.
const LEVEL: i32 = 3;
/// Bytes that a picture may be like earlier ones in, as a power of two.
const WINDOW: u32 = 21;

/// What a viewer asks.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Which version the agent is; always the first. With `keep`, a line that is lost leaves
    /// toggled points as they are.
    Hello { keep: bool },
    /// Which processes there are.
    Discover,
    /// To watch a process from now on, under this number.
    Attach { source: u32, segment_id: String },
    /// To watch several processes as one.
    AttachGroup { source: u32, group: ProcessGroup },
    /// To watch it no more.
    Detach { source: u32 },
    /// The next picture, of which this is enough. If no request follows, and nothing of a reply
    /// goes, within so many seconds, the line counts as lost until a request comes.
    Picture {
        source: u32,
        #[serde(flatten)]
        sight: Sight,
        within_s: Option<u64>,
    },
    /// What rings of these lanes brought since these records, up to the last picture.
    NewRecords { source: u32, from: Vec<(u32, u64)> },
    /// To change something.
    Act { source: u32, change: Change },
    /// To leave everything as it is now. The line ends.
    Goodbye,
}

/// A request and its number.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) number: u32,
    pub(crate) ask: Ask,
}

/// What an agent answers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The version of the wire, and that of the program.
    Hello { version: u32, program: String },
    /// The processes that there are.
    Found(Discovery),
    /// It is watched; why it cannot be changed, if that is so.
    Attached { read_only: Option<String> },
    /// A picture stands behind the head; a key says all by itself.
    Picture { is_key: bool },
    /// Measurements, packed, stand behind the head.
    Records,
    /// It is done.
    Done,
    /// It is not, for this reason.
    Failed(Failure),
}

/// An answer and the number of its request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub(crate) number: u32,
    pub(crate) answer: Answer,
}

/// What no file has: what the kernel says of a process, and what stands beside sums.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Extra {
    usage: Option<Usage>,
    /// CPU time by lane, nanoseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cpu_ns: Vec<(u32, u64)>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    has_died: bool,
    /// Beside sums, with the quantiles that have changed since the picture before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    summed: Option<Summed>,
}

impl Extra {
    /// What goes with a picture that follows another one.
    fn of(snapshot: &Snapshot, before: Option<&Snapshot>, has_died: bool) -> Self {
        let of_lane = |lane: &crate::snapshot::Lane| Some((lane.id, lane.cpu_ns?));
        let summed = snapshot.summed.as_deref().map(|summed| {
            let mut new = summed.clone();
            let before = before.and_then(|last| last.summed.as_deref());
            if let Some(before) = before.filter(|before| before.has_rows) {
                new.quantiles.retain(|id, now| before.quantiles.get(id) != Some(now));
            }
            new
        });
        // Only the threads' screen shows it.
        let cpu_ns = match snapshot.has_threads() {
            true => snapshot.lanes.iter().filter_map(of_lane).collect(),
            false => Vec::new(),
        };
        Self { usage: snapshot.usage, cpu_ns, has_died, summed }
    }

    /// Completes a picture that follows another one. Returns whether the process has died.
    fn put(self, snapshot: &mut Snapshot, before: Option<&Snapshot>) -> bool {
        snapshot.usage = self.usage;
        snapshot.summed = self.summed.map(|mut summed| {
            let points = &snapshot.points;
            let is_there = |id: &u32| points.binary_search_by_key(id, |point| point.id).is_ok();
            let before = before.and_then(|before| before.summed.as_deref());
            if let Some(before) = before.filter(|_| summed.has_rows) {
                for (id, quantiles) in &before.quantiles {
                    summed.quantiles.entry(*id).or_insert(*quantiles);
                }
            }
            summed.quantiles.retain(|id, _| is_there(id));
            Arc::new(summed)
        });
        for (id, cpu_ns) in self.cpu_ns {
            if let Ok(place) = snapshot.lanes.binary_search_by_key(&id, |lane| lane.id) {
                snapshot.lanes[place].cpu_ns = Some(cpu_ns);
            }
        }
        self.has_died
    }
}

/// Packs for the line: the pictures of a process, or one thing else.
pub(crate) struct Packer(zstd::stream::write::Encoder<'static, Vec<u8>>);

impl Packer {
    pub(crate) fn new() -> io::Result<Self> {
        let mut stream = zstd::stream::write::Encoder::new(Vec::new(), LEVEL)?;
        stream.window_log(WINDOW)?;
        Ok(Self(stream))
    }

    /// Packs what is no picture.
    pub(crate) fn pack_one(told: &impl Serialize) -> io::Result<Vec<u8>> {
        Self::new()?.add(&serde_json::to_vec(told)?)
    }

    fn add(&mut self, text: &[u8]) -> io::Result<Vec<u8>> {
        self.0.write_all(text)?;
        self.0.flush()?;
        Ok(std::mem::take(self.0.get_mut()))
    }

    /// Packs the next picture; `before` is the one before it.
    pub(crate) fn pack(
        &mut self,
        snapshot: &Snapshot,
        before: Option<&Snapshot>,
        has_died: bool,
    ) -> io::Result<Vec<u8>> {
        let mut text = serde_json::to_vec(&Extra::of(snapshot, before, has_died))?;
        text.push(b'\n');
        recording::write_text(snapshot, before, &mut text)?;
        self.add(&text)
    }
}

/// Unpacks what a [`Packer`] has packed, in the same order.
pub(crate) struct Unpacker(zstd::stream::write::Decoder<'static, Bounded>);

impl Unpacker {
    pub(crate) fn new() -> io::Result<Self> {
        let mut stream = zstd::stream::write::Decoder::new(Bounded(Vec::new()))?;
        stream.window_log_max(WINDOW)?;
        Ok(Self(stream))
    }

    /// What [`Packer::pack_one`] has packed.
    ///
    /// # Errors
    ///
    /// If it is something else.
    pub(crate) fn unpack_one<T: DeserializeOwned>(packed: &[u8]) -> Result<T> {
        Ok(serde_json::from_slice(&Self::new()?.next(packed)?)?)
    }

    fn next(&mut self, packed: &[u8]) -> Result<Vec<u8>> {
        self.0.write_all(packed).and_then(|()| self.0.flush()).context("it cannot be unpacked")?;
        Ok(std::mem::take(&mut self.0.get_mut().0))
    }

    /// The next picture, and whether its process has died.
    ///
    /// # Errors
    ///
    /// If it is none. No other can follow then.
    pub(crate) fn unpack(
        &mut self,
        packed: &[u8],
        before: Option<&Snapshot>,
        is_key: bool,
    ) -> Result<(Snapshot, bool)> {
        let text = self.next(packed)?;
        let end = text.iter().position(|byte| *byte == b'\n').context("it is not whole")?;
        let extra: Extra = serde_json::from_slice(&text[..end])?;
        let key = match (is_key, before) {
            (true, _) => None,
            (false, None) => bail!("there is none before it"),
            (false, before) => before,
        };
        let mut snapshot = recording::read_text(&text[end + 1..], key)?;
        let has_died = extra.put(&mut snapshot, key);
        Ok((snapshot, has_died))
    }
}

/// Takes no more bytes than a picture may have.
struct Bounded(Vec<u8>);

impl Write for Bounded {
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

/// Why something was not done.
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

/// A message, and what stands behind its head.
///
/// # Errors
///
/// If it is longer than a message may be.
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

/// Writes a message that nothing stands behind.
pub(crate) fn write(out: &mut impl Write, head: &impl Serialize) -> io::Result<()> {
    out.write_all(&message(head, &[])?)?;
    out.flush()
}

/// Reads a message; none if the line ends before it.
///
/// # Errors
///
/// If the line ends within it, or it is none.
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
    // Memory is taken as bytes come, not as a length says.
    let mut bytes = Vec::new();
    input.take(u64::from(whole)).read_to_end(&mut bytes)?;
    ensure!(bytes.len() == whole as usize, "it ended in the middle of a message");
    let rest = bytes.split_off(head as usize);
    let said = serde_json::from_slice(&bytes).context("a message cannot be read")?;
    Ok(Some((said, rest)))
}

/// Reads up to [`MAGIC`] and over it.
///
/// # Errors
///
/// If it does not come.
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
        Some(last) => bail!("expected an agent of pfp-top, found {:?}", last.trim()),
        None => bail!("expected an agent of pfp-top, found nothing"),
    }
}
