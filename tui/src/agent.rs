//! The far end of `--via`: shows the processes of this place to a viewer elsewhere.
//!
//! It is started by the viewer's command, reads requests from its standard input and answers on
//! its standard output, one after the other: see [`wire`]. When the input ends without a goodbye,
//! or the viewer is silent for longer than it promised, the line was lost, and points that were
//! toggled over it are put back. So they are when a signal ends the agent.

use std::collections::HashMap;
use std::io::{BufReader, Read, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};

use crate::app::Session;
use crate::interrupt::Interrupt;
use crate::model::Summing;
use crate::snapshot::{Extent, PointState, Snapshot};
use crate::source::via::wire::{self, Answer, Ask, Failure, Packer, Reply, Request};
use crate::source::{Change, Finder, Refusal, Source};

/// Answers until the viewer says goodbye, or the line ends.
///
/// # Errors
///
/// If the line breaks, or brings what is no request.
pub(crate) fn run(
    input: impl Read + Send + 'static,
    mut output: impl Write,
    finder: &mut dyn Finder,
    interrupt: Interrupt,
) -> Result<()> {
    output.write_all(&wire::MAGIC)?;
    output.flush()?;
    let mut agent = Agent { finder, watched: HashMap::new(), keep: false, within: None };
    let (sender, requests) = mpsc::sync_channel(0);
    let ends = sender.clone();
    thread::spawn(move || {
        while interrupt.sleep(Duration::MAX) {}
        ends.send(Ok(None))
    });
    thread::spawn(move || {
        let mut input = BufReader::new(input);
        let mut is_more = true;
        while is_more {
            let request = wire::read(&mut input);
            is_more = matches!(request, Ok(Some(_)));
            is_more &= sender.send(request).is_ok();
        }
    });
    loop {
        let request = match agent.within {
            Some(within) => requests.recv_timeout(within),
            None => requests.recv().map_err(Into::into),
        };
        let Request { number, ask } = match request {
            Ok(request) => match request? {
                Some((request, _)) => request,
                None => return Ok(()),
            },
            Err(RecvTimeoutError::Timeout) => {
                agent.watched.values_mut().for_each(|watched| watched.session.restore());
                agent.within = None;
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        if matches!(ask, Ask::Goodbye) {
            agent.watched.values_mut().for_each(|watched| watched.session.leave_as_is());
            return Ok(());
        }
        let answer = agent.answer(ask);
        let (answer, rest) =
            answer.unwrap_or_else(|error| (Answer::Failed(Failure::of(&error)), Vec::new()));
        wire::write(&mut output, &Reply { number, answer }, &rest)?;
    }
}

struct Agent<'a> {
    finder: &'a mut dyn Finder,
    watched: HashMap<u32, Watched>,
    /// Toggled points stay when the line is lost.
    keep: bool,
    /// It counts as lost when no request comes within this time.
    within: Option<Duration>,
}

/// What the viewer watches.
struct Watched {
    session: Session,
    packer: Packer,
    /// Makes sums while the viewer looks at nothing else.
    summing: Option<Summing>,
    /// The last picture that was sent.
    last: Option<Snapshot>,
}

impl Agent<'_> {
    fn answer(&mut self, ask: Ask) -> Result<(Answer, Vec<u8>)> {
        let answer = match ask {
            Ask::Hello { keep } => {
                self.keep = keep;
                let program = env!("CARGO_PKG_VERSION").to_owned();
                Answer::Hello { version: wire::VERSION, program }
            }
            Ask::Discover => {
                let mut discovery = self.finder.discover()?;
                if discovery.candidates.is_empty() {
                    discovery.instead = Some(discovery.nothing_found());
                }
                Answer::Found(discovery)
            }
            Ask::Attach { source, segment_id } => {
                let found = self.finder.discover()?.candidates;
                let candidate = found.iter().find(|it| it.segment_id == segment_id);
                let candidate = candidate.ok_or_else(|| {
                    anyhow!(Refusal::NoTarget("the process has ended meanwhile".into()))
                })?;
                let attached = self.finder.attach(candidate)?;
                self.watch(source, attached)?
            }
            Ask::AttachTogether { source, together } => {
                let attached = self.finder.attach_together(&together)?;
                self.watch(source, attached)?
            }
            Ask::Detach { source } => {
                // What was to be put back has been.
                if let Some(mut watched) = self.watched.remove(&source) {
                    watched.session.leave_as_is();
                }
                Answer::Done
            }
            Ask::Picture { source, extent, within_s } => {
                self.within = within_s.map(Duration::from_secs);
                let watched = self.watched(source)?;
                let is_key = watched.last.is_none();
                return Ok((Answer::Picture { is_key }, watched.picture(extent)?));
            }
            Ask::Records { source } => {
                let watched = self.watched(source)?;
                let last = watched.last.clone().context("there is no picture yet")?;
                let records = watched.session.whole(&last).records;
                return Ok((Answer::Records, Packer::pack_one(&records)?));
            }
            Ask::NewRecords { source, from } => {
                let watched = self.watched(source)?;
                let last = watched.last.as_ref().context("there is no picture yet")?;
                let from: HashMap<u32, u64> = from.into_iter().collect();
                let first = |lane| from.get(&lane).copied().unwrap_or(0);
                let lanes = watched.session.new_records(last, &first);
                return Ok((Answer::Records, Packer::pack_one(&lanes)?));
            }
            Ask::Act { source, change } => {
                self.watched(source)?.act(change)?;
                Answer::Done
            }
            Ask::Goodbye => Answer::Done,
        };
        Ok((answer, Vec::new()))
    }

    fn watch(&mut self, source: u32, attached: Box<dyn Source>) -> Result<Answer> {
        let session = Session::new(attached, self.keep);
        let read_only = session.read_only().map(str::to_owned);
        let watched = Watched { session, packer: Packer::new()?, summing: None, last: None };
        self.watched.insert(source, watched);
        Ok(Answer::Attached { read_only })
    }

    fn watched(&mut self, source: u32) -> Result<&mut Watched> {
        self.watched.get_mut(&source).context("nothing is watched under this number")
    }
}

impl Watched {
    /// The next picture: the first whole, and any other as what is different from the one before.
    fn picture(&mut self, extent: Extent) -> Result<Vec<u8>> {
        let mut snapshot = self.session.poll()?;
        match extent {
            Extent::All => self.summing = None,
            _ => snapshot = self.summing.get_or_insert_default().sum(&snapshot, extent),
        }
        let has_died = self.session.has_died();
        let packed = self.packer.pack(&snapshot, self.last.as_ref(), has_died)?;
        self.last = Some(snapshot);
        Ok(packed)
    }

    fn act(&mut self, change: Change) -> Result<()> {
        let state = |id: u32| {
            let last = self.last.as_ref()?;
            let place = last.points.binary_search_by_key(&id, |point| point.id).ok()?;
            Some(last.points[place].state)
        };
        match change {
            Change::Enable(id) | Change::Disable(id) => {
                let on = matches!(change, Change::Enable(_));
                let found = state(id).unwrap_or(PointState::Off);
                self.session.switch(id, found, on).map(drop)
            }
            Change::Reset(id) => self.session.reset(id),
            Change::SetAlpha(id, alpha) => self.session.set_alpha(id, alpha),
            Change::Fence(id, fenced) => self.session.fence(id, fenced),
        }
    }
}
