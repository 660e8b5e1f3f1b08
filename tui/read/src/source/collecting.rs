//! Collects the segments of processes that end while the viewer watches all processes: the viewer
//! reads each segment once more and then removes it. The segments of processes that did not exit
//! cleanly stay, but only the last few of each program.

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

/// Maximum time from a process's recorded exit to its end. The leftovers of a process can be
/// removed only after its end.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// While this value exists, a process that exits cleanly leaves its segment for the viewer instead
/// of removing it.
#[derive(Debug)]
pub struct Collecting {
    collectors: Vec<(Directory, Collector)>,
    /// Ids of the segments whose processes had ended before the start.
    before: HashSet<String>,
    /// The segments that stay, by the path of their program, the oldest first.
    staying: RefCell<HashMap<PathBuf, VecDeque<Name>>>,
}

impl Collecting {
    /// Starts in every folder in which programs may announce themselves. If that fails, the viewer
    /// only finds processes that run when it polls.
    pub fn start() -> Self {
        // Create the folder that programs will choose, if it does not exist.
        Directory::for_this_process().ok();
        let ended = |candidate: Candidate| (!candidate.runs()).then_some(candidate.segment_id);
        let found = super::discover().map(|discovery| discovery.candidates).unwrap_or_default();
        let before = found.into_iter().filter_map(ended).collect();
        let places = Directory::candidates().into_iter().filter_map(|at| Directory::open(&at).ok());
        let start = |dir| Collector::start(&dir).ok().map(|collector| (dir, collector));
        Self { collectors: places.filter_map(start).collect(), before, staying: RefCell::default() }
    }

    /// Marks the found processes that have ended since collecting started.
    pub fn note(&self, discovery: &mut Discovery) {
        if self.collectors.is_empty() {
            return;
        }
        for candidate in &mut discovery.candidates {
            candidate.awaited = !candidate.runs() && !self.before.contains(&candidate.segment_id);
        }
    }

    /// Removes a process's segment after the last read, unless another viewer may still want it. If
    /// the process did not exit cleanly, its segment stays. If more than [`find::KEEP`] segments of
    /// the program stay, the oldest of them is removed.
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
            // If removing fails, the segment is removed later, like those of crashed processes.
            surplus.map(|object| find::remove_one(dir, &object).ok());
        }
    }

    /// Records that a segment stays. Returns the segment to remove instead, if there are too many.
    fn stays(&self, program: PathBuf, object: Name) -> Option<Name> {
        let mut staying = self.staying.borrow_mut();
        let of_program = staying.entry(program).or_default();
        of_program.push_back(object);
        if of_program.len() > find::KEEP { of_program.pop_front() } else { None }
    }
}

/// Whether the segment records that its process exited cleanly and left it for viewers.
fn has_ended_in_order(object: &Name) -> bool {
    let state = |segment: &Segment| segment.counters().state.load(Acquire);
    Segment::open(object).is_ok_and(|(segment, _)| state(&segment) == ProcessState::Exited as u64)
}

impl Drop for Collecting {
    fn drop(&mut self) {
        // Drop the collectors first: `collector::sweep` below would take a living one for another
        // viewer's.
        let mut dirs: Vec<Directory> = self.collectors.drain(..).map(|(dir, _)| dir).collect();
        let start = Instant::now();
        while remove_ended(&mut dirs) && start.elapsed() < LAST_WORDS {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Removes the segments of processes that exited cleanly, unless another viewer collects them.
/// Returns whether a segment could not be removed yet, because its process is still ending.
fn remove_ended(dirs: &mut Vec<Directory>) -> bool {
    let Ok(discovery) = super::discover() else { return false };
    // Check after the discovery: a viewer that starts later does not need these processes.
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
