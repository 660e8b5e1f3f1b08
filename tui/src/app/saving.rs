//! Saves a snapshot, or the segment of the process, in a file.
//!
//! The records may still be on their way from another place, and the disk may hang. So a file is
//! saved in steps, and the thread that reads keys only checks how far it is. For records it waits as
//! long as [`Source::add_records`](pfp_read::source::Source::add_records) does: up to 40 ms for each
//! far process.
//!
//! ```text
//! Enter -> a job reads the records of a recording, or another place sends them
//!       -> a thread writes the file -> the last line, or a question about an existing file
//! ```

use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::replay::Placed;
use super::{App, CHECK};
use crate::common::{Overlay, Prompt, Severity};
use pfp_read::files::json::{self, Existing};
use pfp_read::files::{self, zstd_file};
use pfp_read::snapshot::Snapshot;
use pfp_read::text;

/// How long records that are on their way are awaited. Then the file is written without them.
pub(super) const FOR_RECORDS: Duration = Duration::from_secs(1);
/// After this time, the screen says that the file is still being written.
const LATE: Duration = Duration::from_secs(1);

/// A file that is being saved.
pub(super) struct Saving {
    prompt: Prompt,
    existing: Existing,
    /// The segment id of the process whose figures are saved.
    segment_id: String,
    step: Step,
    /// Start of the step.
    since: Instant,
    /// Moment of the next check. `None` while a job reads the recording.
    next: Option<Instant>,
    /// Whether the screen has said that the file is late.
    is_late: bool,
    /// Whether the user has tried to leave before the file was written.
    was_warned: bool,
}

enum Step {
    /// A job reads the records of this snapshot of a recording.
    Read(Placed<Arc<Snapshot>>),
    /// The records of this snapshot are on their way from another place.
    Await(Arc<Snapshot>),
    /// A thread writes the file.
    Write(Receiver<io::Result<()>>),
}

/// A function that writes the file.
type Write = Box<dyn FnOnce(&Path, Existing) -> io::Result<()> + Send>;

/// Writes a file in a thread. Returns the receiver of the result.
fn start_writing(
    write: Write,
    path: PathBuf,
    existing: Existing,
) -> io::Result<Receiver<io::Result<()>>> {
    let (sender, result) = channel();
    // If the user has left in the meantime, the result is dropped.
    let job = move || drop(sender.send(write(&path, existing)));
    thread::Builder::new().name("pfp-save".to_owned()).spawn(job)?;
    Ok(result)
}

/// Whether a file of this name becomes a copy of the segment: `NAME.pfp` or `NAME.pfp.zst`.
fn is_raw(path: &Path) -> bool {
    let ends = |path: &Path| path.extension().is_some_and(|end| end == "pfp");
    ends(path) || zstd_file::is_named(path) && ends(&path.with_extension(""))
}

impl App {
    /// Begins to save the figures on the screen in the file that the user has named.
    pub(super) fn save(&mut self, prompt: Prompt, existing: Existing) {
        let why = match self.saving {
            _ if prompt.text().is_empty() => Some("a name is needed"),
            Some(_) => Some("the file before this one is still being written: try again"),
            None => None,
        };
        if let Some(why) = why {
            return self.overlay = Some(prompt.refused(why.into()));
        }
        let Some(snapshot) = self.common.model.shared_snapshot() else { return };
        let segment_id = snapshot.process.segment_id.clone();
        let (step, next) = match &self.common.replay {
            Some(replay) => {
                let Some(at) = replay.at else { return };
                (Step::Read((at, snapshot)), None)
            }
            None => (Step::Await(snapshot), Some(self.common.now)),
        };
        let since = self.common.now;
        self.saving = Some(Saving {
            prompt,
            existing,
            segment_id,
            step,
            since,
            next,
            is_late: false,
            was_warned: false,
        });
        match next {
            Some(now) => self.go_on_saving(now),
            None => self.read_soon(),
        }
    }

    /// The moment of the next call of [`Self::go_on_saving`]. `None` if no file is being saved.
    pub(crate) fn next_saving(&self) -> Option<Instant> {
        self.saving.as_ref()?.next
    }

    /// Begins the next step of the file that is being saved, if the step before it is done.
    pub(crate) fn go_on_saving(&mut self, now: Instant) {
        self.common.now = now;
        let Some(saving) = &mut self.saving else { return };
        let waited = now.saturating_duration_since(saving.since);
        saving.next = Some(now + if waited < LATE { CHECK } else { 10 * CHECK });
        let result = match &saving.step {
            Step::Read(_) => return,
            Step::Await(snapshot) => {
                let snapshot = Arc::clone(snapshot);
                return self.add_records(&snapshot, waited);
            }
            Step::Write(result) => result.try_recv(),
        };
        match result {
            Ok(result) => self.saved(result),
            Err(TryRecvError::Disconnected) => {
                self.saved(Err(io::Error::other("the thread that wrote it has failed")));
            }
            Err(TryRecvError::Empty) if waited >= LATE && !saving.is_late => {
                saving.is_late = true;
                let said = format!("{} is still being written", shown(&saving.prompt));
                self.common.say(said);
            }
            Err(TryRecvError::Empty) => {}
        }
    }

    /// Adds the records to a snapshot. Once all have arrived, starts to write the file.
    fn add_records(&mut self, snapshot: &Snapshot, waited: Duration) {
        let Some(session) = &mut self.common.session else { return };
        let mut whole = snapshot.clone();
        session.source.add_records(&mut whole);
        if waited >= FOR_RECORDS || !session.source.awaits_records(snapshot) {
            self.write(whole);
        }
    }

    /// The snapshot of a recording that is being saved, and whose records are to be read.
    pub(super) fn snapshot_to_read(&self) -> Option<Placed<Arc<Snapshot>>> {
        match &self.saving.as_ref()?.step {
            Step::Read(placed) => Some(placed.clone()),
            Step::Await(_) | Step::Write(_) => None,
        }
    }

    /// Starts to write the file that is being saved: this snapshot, or the segment of the process,
    /// as the name of the file says.
    pub(super) fn write(&mut self, snapshot: Snapshot) {
        let (Some(saving), Some(session)) = (&mut self.saving, &mut self.common.session) else {
            return;
        };
        let path = files::with_home(saving.prompt.text());
        let existing = saving.existing;
        let write: io::Result<Write> = match is_raw(&path) {
            true => session.source.copy_raw().map(|copy| {
                Box::new(move |path: &Path, existing| copy.write(path, existing)) as Write
            }),
            false => Ok(Box::new(move |path, existing| json::write(&snapshot, path, existing))),
        };
        match write.and_then(|write| start_writing(write, path, existing)) {
            Ok(result) => {
                (saving.step, saving.since) = (Step::Write(result), self.common.now);
                saving.next = Some(self.common.now);
            }
            Err(error) => self.saved(Err(error)),
        }
    }

    /// Gives up the file whose figures are not complete yet, since their source is given up.
    pub(super) fn give_up_saving(&mut self) {
        let lacks_figures = |saving: &mut Saving| !matches!(saving.step, Step::Write(_));
        if let Some(saving) = self.saving.take_if(lacks_figures) {
            let why = format!("{} was not written", shown(&saving.prompt));
            self.common.notify(Severity::Error, why);
        }
    }

    /// Reports whether the file was written.
    fn saved(&mut self, result: io::Result<()>) {
        let Some(Saving { prompt, segment_id, .. }) = self.saving.take() else { return };
        let name = shown(&prompt);
        let Err(error) = result else {
            self.common.log.note(self.common.unix_ns(), format!("wrote {name}"));
            return self.common.say(format!("wrote {name}"));
        };
        // The user may be typing something else by now, or watch another process.
        let watched = self.common.model.snapshot().map(|snapshot| &snapshot.process.segment_id);
        if self.overlay.is_some() || watched != Some(&segment_id) {
            return self.common.notify(Severity::Error, format!("{name} not written: {error}"));
        }
        if error.kind() == io::ErrorKind::AlreadyExists {
            return self.overlay = Some(Overlay::Replace(prompt));
        }
        // The text stays so that the user can correct it.
        self.overlay = Some(prompt.refused(format!("not written: {error}")));
        self.common.log.note(self.common.unix_ns(), format!("{name} not written: {error}"));
    }

    /// Whether a file waits to be written that the user was not warned about. From now on, the user
    /// was.
    pub(super) fn must_warn_of_saving(&mut self) -> bool {
        self.saving.as_mut().is_some_and(|saving| !mem::replace(&mut saving.was_warned, true))
    }
}

fn shown(prompt: &Prompt) -> String {
    text::clean(&prompt.text()).into_owned()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use anyhow::Result;

    use super::*;
    use crate::app::tests::{Desk, desk};
    use pfp_read::snapshot::{ProcessState, Record};
    use pfp_read::source::Source;
    use pfp_read::source::synthetic::Synthetic;

    fn save(desk: &mut Desk, path: &Path) {
        desk.press("w");
        desk.clear();
        desk.press(&format!("{}\n", path.display()));
    }

    #[test]
    fn keys_are_answered_while_the_disk_hangs() {
        let (mut desk, folder) = (desk(), tempfile::tempdir().unwrap());
        save(&mut desk, &folder.path().join("a.json"));
        let (disk, result) = channel();
        desk.saving.as_mut().unwrap().step = Step::Write(result);
        let selected = desk.common.selected;
        desk.press("j");
        assert_ne!(desk.common.selected, selected);
        // The file is checked often at first.
        let next = desk.next_saving().unwrap();
        assert!(next <= desk.now + CHECK && desk.next_change().unwrap() <= next);
        let now = desk.now + LATE;
        desk.go_on_saving(now);
        assert!(desk.said().unwrap().ends_with("a.json is still being written"));
        assert!(desk.next_saving().unwrap() > now + CHECK);
        save(&mut desk, &folder.path().join("b.json"));
        let Some(Overlay::Typed(prompt)) = &desk.overlay else { panic!("it is refused") };
        assert!(prompt.error.as_ref().unwrap().contains("still being written"));
        desk.press("\x1bq");
        assert!(!desk.quit, "the user is warned first");
        // A message in the meantime does not hide the result.
        desk.press("/");
        disk.send(Err(io::Error::other("the disk is gone"))).unwrap();
        desk.go_on_saving(now);
        let said = desk.said().unwrap();
        assert!(said.ends_with("a.json not written: the disk is gone"), "{said}");
        desk.press("\x1bq");
        assert!(desk.quit);
    }

    const RECORD: Record =
        Record { lane: 0, point: 0, start: 1, span: 1, exclusive: 1, depth: 0, context: 0 };

    /// A process of another place, whose records arrive some time after they were requested.
    struct Far(Synthetic, Rc<Cell<bool>>);

    impl Source for Far {
        fn picture(&mut self) -> Result<Snapshot> {
            self.0.picture()
        }

        fn add_records(&mut self, snapshot: &mut Snapshot) {
            snapshot.records.clear();
            if self.1.get() {
                snapshot.records.push(RECORD);
            }
        }

        fn awaits_records(&self, _: &Snapshot) -> bool {
            !self.1.get()
        }
    }

    #[test]
    fn a_file_has_the_records_that_arrive_within_a_second() {
        let (mut desk, folder) = (desk(), tempfile::tempdir().unwrap());
        for arrives in [true, false] {
            let arrived = Rc::new(Cell::new(false));
            let now = desk.now;
            desk.watch(Box::new(Far(Synthetic::new(), arrived.clone())), now);
            let path = folder.path().join(format!("{arrives}.json"));
            save(&mut desk, &path);
            desk.now += FOR_RECORDS / 2;
            let now = desk.now;
            desk.go_on_saving(now);
            assert!(matches!(desk.saving.as_ref().unwrap().step, Step::Await(_)));
            arrived.set(arrives);
            desk.now += if arrives { CHECK } else { FOR_RECORDS };
            desk.wait_until_saved();
            assert_eq!(json::read(&path).unwrap().records.len(), usize::from(arrives));
        }
        // Without a place that sends the records, there is nothing to write.
        let now = desk.now;
        desk.watch(Box::new(Far(Synthetic::new(), Rc::default())), now);
        save(&mut desk, &folder.path().join("left.json"));
        desk.watch(Box::new(Synthetic::new()), now);
        assert!(desk.said().unwrap().ends_with("left.json was not written"));
        assert!(desk.next_saving().is_none());
    }

    #[test]
    fn records_of_an_ended_process_are_shown_when_they_arrive() {
        let (mut desk, arrived) = (desk(), Rc::new(Cell::new(false)));
        let mut ended = Synthetic::new();
        ended.snapshot_mut().process.state = ProcessState::Crashed;
        let now = desk.now;
        desk.watch(Box::new(Far(ended, arrived.clone())), now);
        desk.press("4");
        assert!(desk.next_check().is_some());
        arrived.set(true);
        desk.check(now + CHECK);
        assert!(desk.next_check().is_none());
        // If they never arrive, nothing is awaited after a second.
        arrived.set(false);
        desk.press("14");
        assert!(desk.next_check().is_some());
        desk.check(now + 2 * FOR_RECORDS);
        assert!(desk.next_check().is_none());
    }

    #[test]
    fn the_result_for_another_process_is_only_a_message() {
        let (mut desk, folder) = (desk(), tempfile::tempdir().unwrap());
        save(&mut desk, &folder.path().join("a.json"));
        let (disk, result) = channel();
        desk.saving.as_mut().unwrap().step = Step::Write(result);
        let mut other = Synthetic::new();
        other.snapshot_mut().process.segment_id = "f".repeat(32);
        let now = desk.now;
        desk.watch(Box::new(other), now);
        disk.send(Err(io::ErrorKind::AlreadyExists.into())).unwrap();
        desk.go_on_saving(now);
        assert_eq!(desk.overlay, None, "the question would be about other figures");
        assert!(desk.said().unwrap().contains("a.json not written"));
    }
}
