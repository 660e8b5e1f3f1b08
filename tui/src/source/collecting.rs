//! Collects the segments of processes that end while all are watched: each is read once more and
//! then removed. Of the processes of a program that did not end in order, the last few stay.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Acquire;
use std::time::{Duration, Instant};

use pfp_shm_layout::collector::{self, Collector};
use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::find;
use pfp_shm_layout::header::ProcessState;
use pfp_shm_layout::name::Name;
use pfp_shm_layout::segment::Segment;

use super::{Candidate, Discovery};

/// Maximum time between a process's recorded exit and its end, after which all leftovers can be
/// removed.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// While this value exists, processes that end in order leave their segments for it.
#[derive(Debug)]
pub struct Collecting {
    collectors: Vec<(Directory, Collector)>,
    /// Ids of the segments of processes that had ended before.
    before: HashSet<String>,
    /// Of each program, the segments that stay, the oldest first.
    staying: RefCell<HashMap<PathBuf, VecDeque<Name>>>,
}

impl Collecting {
    /// Starts in every folder in which programs may announce themselves. If that fails, only
    /// processes that run during a look are found.
    pub fn start() -> Self {
        // Create the folder that programs will choose, if it is missing.
        Directory::for_this_process().ok();
        let ended = |candidate: Candidate| (!candidate.runs()).then_some(candidate.segment_id);
        let found = super::discover().map(|discovery| discovery.candidates).unwrap_or_default();
        let before = found.into_iter().filter_map(ended).collect();
        let places = Directory::candidates().into_iter().filter_map(|at| Directory::open(&at).ok());
        let start = |dir| Collector::start(&dir).ok().map(|collector| (dir, collector));
        Self { collectors: places.filter_map(start).collect(), before, staying: RefCell::default() }
    }

    /// Marks the found processes that have ended since the start.
    pub fn note(&self, discovery: &mut Discovery) {
        if self.collectors.is_empty() {
            return;
        }
        for candidate in &mut discovery.candidates {
            candidate.awaited = !candidate.runs() && !self.before.contains(&candidate.segment_id);
        }
    }

    /// Removes a process's segment that was read for the last time, unless another viewer may still
    /// want it. If the process did not end in order, its segment stays, and the oldest one that stays
    /// of the same program is removed in its place where there are more than [`find::KEEP`].
    pub fn let_go(&self, segment_id: &str) {
        let Some(object) = Name::from_hex(segment_id.as_bytes()) else { return };
        for (dir, collector) in &self.collectors {
            let Some(entry) = find::find_one(dir, &object) else { continue };
            if !collector.is_alone() {
                continue;
            }
            let surplus = match has_ended_in_order(&object) {
                true => Some(object),
                false => self.stays(entry.info.exe, object),
            };
            // If removing fails, it is removed later, like the segments of crashed processes.
            surplus.map(|object| find::remove_one(dir, &object).ok());
        }
    }

    /// Notes that a segment stays. Returns the one that need not stay any longer.
    fn stays(&self, program: PathBuf, object: Name) -> Option<Name> {
        let mut staying = self.staying.borrow_mut();
        let of_program = staying.entry(program).or_default();
        of_program.push_back(object);
        if of_program.len() > find::KEEP { of_program.pop_front() } else { None }
    }
}

/// Whether a process ended in order and left its segment for viewers alone, as the segment says.
fn has_ended_in_order(object: &Name) -> bool {
    let state = |segment: &Segment| segment.counters().state.load(Acquire);
    Segment::open(object).is_ok_and(|(segment, _)| state(&segment) == ProcessState::Exited as u64)
}

impl Drop for Collecting {
    fn drop(&mut self) {
        // Drop each collector, so that it does not count as another viewer's.
        let mut dirs: Vec<Directory> = self.collectors.drain(..).map(|(dir, _)| dir).collect();
        let start = Instant::now();
        while remove_ended(&mut dirs) && start.elapsed() < LAST_WORDS {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Removes leftovers of processes that ended in order, unless another viewer collects them. Returns
/// whether a process is just ending.
fn remove_ended(dirs: &mut Vec<Directory>) -> bool {
    let Ok(discovery) = super::discover() else { return false };
    // Check after the look: a viewer that starts later does not need the found processes.
    dirs.retain(|dir| !collector::sweep(dir));
    let mut one_is_ending = false;
    for candidate in discovery.candidates.iter().filter(|candidate| !candidate.runs()) {
        let Some(object) = Name::from_hex(candidate.segment_id.as_bytes()) else { continue };
        if !has_ended_in_order(&object) {
            continue;
        }
        for dir in &*dirs {
            let removed = find::remove_one(dir, &object).unwrap_or(true);
            one_is_ending |= !removed && find::find_one(dir, &object).is_some();
        }
    }
    one_is_ending
}
