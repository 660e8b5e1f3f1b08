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
//! order. A picture is a frame of a recording, which stands behind the head; the first is a
//! key, and any other has what is different from the one before.

use std::io::{self, Read, Write};

use anyhow::{Context as _, Result, bail, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::snapshot::{Drained, Record, Snapshot, Usage};
use crate::source::{Change, Discovery, Refusal, Together};

/// What an agent says first. Before it may stand what a shell prints as it starts.
pub(crate) const MAGIC: [u8; 9] = *b"\x89PFPVIA\r\n";
/// The version of all that follows; both ends have to have the same.
pub(crate) const VERSION: u32 = 1;

/// Bytes that a message has at most.
const LIMIT: u32 = 64 << 20;
/// Bytes that may stand before [`MAGIC`].
const NOISE: usize = 64 << 10;

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
    AttachTogether { source: u32, together: Together },
    /// To watch it no more.
    Detach { source: u32 },
    /// The next picture.
    Picture { source: u32 },
    /// The last finished measurements, as of the last picture.
    Records { source: u32 },
    /// What rings brought since these records of these lanes, up to the last picture.
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
    /// A picture, which stands behind the head, and what its file does not have.
    Picture { extra: Extra },
    /// Measurements.
    Records(Vec<Record>),
    /// Measurements that are new.
    NewRecords(Vec<Drained>),
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

/// What the kernel says of a process, which no file has.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Extra {
    usage: Option<Usage>,
    /// CPU time by lane, nanoseconds.
    cpu_ns: Vec<(u32, u64)>,
    has_died: bool,
}

impl Extra {
    pub(crate) fn of(snapshot: &Snapshot, has_died: bool) -> Self {
        let of_lane = |lane: &crate::snapshot::Lane| Some((lane.id, lane.cpu_ns?));
        let cpu_ns = snapshot.lanes.iter().filter_map(of_lane).collect();
        Self { usage: snapshot.usage, cpu_ns, has_died }
    }

    /// Puts it into the picture; whether the process has died.
    pub(crate) fn put(self, snapshot: &mut Snapshot) -> bool {
        snapshot.usage = self.usage;
        for (id, cpu_ns) in self.cpu_ns {
            if let Ok(place) = snapshot.lanes.binary_search_by_key(&id, |lane| lane.id) {
                snapshot.lanes[place].cpu_ns = Some(cpu_ns);
            }
        }
        self.has_died
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

/// Writes a message, and what stands behind its head.
pub(crate) fn write(out: &mut impl Write, head: &impl Serialize, rest: &[u8]) -> io::Result<()> {
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
    out.write_all(&message)?;
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
