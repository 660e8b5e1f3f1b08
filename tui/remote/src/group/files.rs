//! Combines several files into one source, as [`super`] combines several processes.

use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};

use super::GroupSource;
use pfp_model::span::{Span, read};
use pfp_read::snapshot::Snapshot;
use pfp_read::source::{
    Candidate, Discovery, FileSource, Finder, Moment, ProcessGroup, Selector, Source, open_at,
};

/// Maximum relative difference between the rates of two clocks of one machine.
const SAME_RATE: f64 = 0.01;

/// Opens several files as one, each at its last moment or the given one; with `sum`, points of one
/// name become one.
///
/// # Errors
///
/// Like [`open_at`]; also if two files are of one process, or their clocks cannot be summed.
pub fn open_group(
    paths: &[PathBuf],
    sum: bool,
    moment: Option<&Moment>,
) -> Result<Box<dyn Source>> {
    let mut files = FileGroup::default();
    for path in paths {
        let mut source = open_at(path, moment)?;
        let mut snapshot = source.poll()?;
        source.add_records(&mut snapshot);
        files.add(path, snapshot)?;
    }
    let mut group = files.together(sum)?;
    let mut snapshot = group.poll()?;
    group.add_records(&mut snapshot);
    Ok(Box::new(FileSource::of(snapshot)))
}

/// Reads several files, each as [`read`] does, and sums them: points of one name become one.
///
/// # Errors
///
/// Like [`read`] and [`open_group`].
pub fn read_sum(paths: &[PathBuf], span: &Span) -> Result<Snapshot> {
    let mut files = FileGroup::default();
    for path in paths {
        files.add(path, read(path, span, false)?)?;
    }
    files.together(true)?.poll()
}

/// Files of several processes.
#[derive(Default)]
pub(crate) struct FileGroup(Vec<Snapshot>);

impl FileGroup {
    /// Adds a file.
    ///
    /// # Errors
    ///
    /// If the files already contain the snapshot's process, or its clock differs from theirs.
    pub(crate) fn add(&mut self, path: &Path, snapshot: Snapshot) -> Result<()> {
        let (shown, process) = (path.display(), &snapshot.process);
        if self.0.iter().any(|known| known.process.segment_id == process.segment_id) {
            bail!("{shown} is another snapshot of {}: give only the later one", process);
        }
        let rate = snapshot.clock.ticks_per_second;
        if let Some(known) = self.0.first()
            && (rate / known.clock.ticks_per_second - 1.0).abs() > SAME_RATE
        {
            bail!(
                "expected files with the same clock rate, found {rate:.4e} ticks a second in \
                 {shown} and {:.4e} in that of {}: they are of different machines",
                known.clock.ticks_per_second,
                known.process
            );
        }
        self.0.push(snapshot);
        Ok(())
    }

    /// Makes one source of the files. With `sum`, points of the same name become one.
    pub(crate) fn together(self, sum: bool) -> Result<GroupSource> {
        let ids = self.0.iter().map(|file| file.process.segment_id.clone()).collect();
        let group = ProcessGroup { members: Selector::Segments(ids), sum };
        GroupSource::new(group, Box::new(self), None)
    }
}

impl Finder for FileGroup {
    fn discover(&mut self) -> Result<Discovery> {
        let candidate = |Snapshot { process, .. }: &Snapshot| Candidate {
            name: process.name.clone(),
            pid: process.pid,
            segment_id: process.segment_id.clone(),
            started_unix_ns: process.started_unix_ns,
            state: process.state,
            ..Candidate::default()
        };
        let candidates = self.0.iter().map(candidate).collect();
        Ok(Discovery { candidates, ..Discovery::default() })
    }

    fn attach(&mut self, candidate: &Candidate) -> Result<Box<dyn Source>> {
        let found = self.0.iter().find(|it| it.process.segment_id == candidate.segment_id);
        let snapshot = found.ok_or_else(|| anyhow!("there is no such file"))?;
        Ok(Box::new(FileSource::of(snapshot.clone())))
    }
}
