//! What the kernel counts of a thread: when it waited, was pre-empted, and had page faults. It is
//! noted only while a point has a limit, so that a box can say what happened during its call.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::Thread;
use crate::clock::{calibrate, ticks_or_stamp};
use crate::errno;

/// Number of notes, each some time after the one before.
const NOTES: usize = 32;
/// Notes in a second, at most. A note takes half a microsecond.
const PER_SECOND: f64 = 2500.0;

/// Waits, pre-emptions, minor and major page faults of a thread so far.
pub(in crate::engine) type Usage = [u64; 4];

/// The last notes of a thread.
#[repr(C)]
#[derive(Debug)]
pub(in crate::engine) struct UsageNotes {
    /// 1 if a point has a limit.
    is_on: AtomicU64,
    /// Number of notes so far.
    count: AtomicU64,
    /// The counter, and the usage.
    notes: [[AtomicU64; 5]; NOTES],
}

/// The usage of the calling thread. `None` if a filter refuses the system call.
fn usage() -> Option<Usage> {
    let mut found = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the call writes the structure that it gets.
    let result =
        errno::preserve(|| unsafe { libc::getrusage(libc::RUSAGE_THREAD, found.as_mut_ptr()) });
    if result != 0 {
        return None;
    }
    // SAFETY: the call has succeeded, so it has written the structure.
    let found = unsafe { found.assume_init() };
    let counts = [found.ru_nvcsw, found.ru_nivcsw, found.ru_minflt, found.ru_majflt];
    Some(counts.map(|count| count as u64))
}

impl Thread {
    /// Finds the least limit of all points that the thread has measured.
    #[cold]
    pub(super) fn follow_limits(&self) {
        let entries = self.entries(self.points.load(Relaxed));
        let limits = entries.filter_map(|(_, entry)| entry.follows().limit());
        let least = limits.map(|limit| limit.ns()).min();
        let per_ns = calibrate::ticks_per_second() / 1e9;
        self.clock.set_least_limit(least.map(|ns| (ns as f64 * per_ns) as u64));
        self.usage.is_on.store(u64::from(least.is_some()), Relaxed);
        self.note_usage(ticks_or_stamp());
    }

    /// Notes the usage, if a point has a limit and the last note is not newer than it need be.
    #[inline(always)]
    pub(in crate::engine) fn note_usage(&self, now: u64) {
        if self.usage.is_on.load(Relaxed) != 0 {
            self.note_usage_now(now);
        }
    }

    #[cold]
    fn note_usage_now(&self, now: u64) {
        let notes = &self.usage;
        let count = notes.count.load(Relaxed);
        let last = notes.notes[(count as usize).wrapping_sub(1) % NOTES][0].load(Relaxed);
        let is_recent =
            (now.wrapping_sub(last) as f64) < calibrate::ticks_per_second() / PER_SECOND;
        if count > 0 && is_recent {
            return;
        }
        let Some(found) = usage() else { return };
        let words = [now].into_iter().chain(found);
        let note = &notes.notes[count as usize % NOTES];
        note.iter().zip(words).for_each(|(word, value)| word.store(value, Relaxed));
        notes.count.store(count + 1, Relaxed);
    }

    /// The usage since the last note before `start`. `None` if all notes are later.
    pub(in crate::engine) fn usage_since(&self, start: u64) -> Option<Usage> {
        let count = self.usage.count.load(Relaxed) as usize;
        let last = (count.saturating_sub(NOTES)..count).rev();
        let notes = last.map(|number| &self.usage.notes[number % NOTES]);
        let is_before =
            |note: &&[AtomicU64; 5]| (start.wrapping_sub(note[0].load(Relaxed)) as i64) >= 0;
        let [_, then @ ..] =
            notes.into_iter().find(is_before)?.each_ref().map(|it| it.load(Relaxed));
        let now = usage()?;
        Some(std::array::from_fn(|at| now[at].wrapping_sub(then[at])))
    }
}
