//! The kernel's counts of a thread: how often it waited, was pre-empted, and had page faults. While
//! a point has a limit, a thread notes them from time to time, so that a box has the counts of its
//! call.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pfp_shm_layout::control::{Control, Limit};

use super::Thread;
use crate::clock::{calibrate, ticks_or_stamp};
use crate::engine::process;
use crate::errno;

/// Maximum number of notes.
const NOTES: usize = 32;
/// Notes in a second, at most. A note takes half a microsecond.
const PER_SECOND: f64 = 2500.0;

/// Waits, pre-emptions, minor and major page faults of a thread so far.
pub(in crate::engine) type Usage = [u64; 4];

/// The last notes of a thread.
#[repr(C)]
#[derive(Debug)]
pub(in crate::engine) struct UsageNotes {
    /// The number of the point with the shortest limit, plus 1; 0 without one.
    of_point: AtomicU64,
    /// Number of notes.
    count: AtomicU64,
    /// The notes, oldest first: each has the counter and the usage.
    notes: [[AtomicU64; 5]; NOTES],
}

/// The present limit of a point, by its number.
fn limit_of(point: u32) -> Option<Limit> {
    let word = process::current()?.segment.control(point as usize)?;
    Control(word.load(Relaxed)).limit()
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
        let limited = entries.filter(|(_, entry)| entry.follows().limit().is_some());
        let limits = limited.filter_map(|(number, _)| Some((limit_of(number)?.ns(), number)));
        let (least, point) = limits.min().unzip();
        let per_ns = calibrate::ticks_per_second() / 1e9;
        self.clock.set_least_limit(least.map(|ns| (ns as f64 * per_ns) as u64));
        self.usage.of_point.store(point.map_or(0, |point| u64::from(point) + 1), Relaxed);
        self.note_usage(ticks_or_stamp());
    }

    /// Forgets the limits and notes of the lane's earlier owner.
    pub(super) fn forget_limits(&self) {
        self.clock.set_least_limit(None);
        self.usage.of_point.store(0, Relaxed);
        self.usage.count.store(0, Relaxed);
    }

    /// Notes the usage if a point has a limit, unless the last note is less than 1 / [`PER_SECOND`]
    /// seconds old.
    #[inline(always)]
    pub(in crate::engine) fn note_usage(&self, now: u64) {
        if self.usage.of_point.load(Relaxed) != 0 {
            self.note_usage_now(now);
        }
    }

    #[cold]
    fn note_usage_now(&self, now: u64) {
        let UsageNotes { count: of_notes, notes, .. } = &self.usage;
        // A handler that interrupts this may add a note, too. Then a note may be lost.
        let mut count = (of_notes.load(Relaxed) as usize).min(NOTES);
        let last = count.checked_sub(1).map(|last| notes[last][0].load(Relaxed));
        let least = calibrate::ticks_per_second() / PER_SECOND;
        if last.is_some_and(|last| (now.wrapping_sub(last) as f64) < least) {
            return;
        }
        // A thread follows a limit that was removed when it next begins the point; until then, the
        // control word shows it.
        let point = self.usage.of_point.load(Relaxed).wrapping_sub(1);
        if limit_of(point as u32).is_none() {
            return self.follow_limits();
        }
        let Some(found) = usage() else { return };
        if count == NOTES {
            count = self.thin_out();
        }
        let words = [now].into_iter().chain(found);
        notes[count].iter().zip(words).for_each(|(word, value)| word.store(value, Relaxed));
        of_notes.store(count as u64 + 1, Relaxed);
    }

    /// Removes every second note of the older half, so that old notes are ever further apart.
    /// Returns the number that is left.
    fn thin_out(&self) -> usize {
        let notes = &self.usage.notes;
        let kept = (0..NOTES / 2).step_by(2).chain(NOTES / 2..NOTES);
        for (to, from) in notes.iter().zip(kept) {
            to.iter()
                .zip(&notes[from])
                .for_each(|(to, from)| to.store(from.load(Relaxed), Relaxed));
        }
        NOTES / 4 * 3
    }

    /// The usage since the last note before `start`. `None` if all notes are later.
    pub(in crate::engine) fn usage_since(&self, start: u64) -> Option<Usage> {
        let count = (self.usage.count.load(Relaxed) as usize).min(NOTES);
        let notes = self.usage.notes[..count].iter().rev();
        let is_before =
            |note: &&[AtomicU64; 5]| (start.wrapping_sub(note[0].load(Relaxed)) as i64) >= 0;
        let [_, then @ ..] =
            notes.into_iter().find(is_before)?.each_ref().map(|it| it.load(Relaxed));
        let now = usage()?;
        let since = |at: usize| now[at].checked_sub(then[at]);
        Some([since(0)?, since(1)?, since(2)?, since(3)?])
    }
}
