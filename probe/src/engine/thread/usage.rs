//! The kernel's counts of a thread: how often it waited, was pre-empted, and had page faults. While
//! a point has a limit, a thread notes them from time to time, so that a box has the counts of its
//! call.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pfp_shm_layout::control::{Control, Limit};

use super::Thread;
use crate::clock::{calibrate, stale_after, ticks_or_stamp};
use crate::engine::process;
use crate::errno;

/// Levels of notes. Kept notes that are `d` notes old are at most `d / 3` apart. The oldest note is
/// older than the longest limit, 99 s, at [`PER_SECOND`].
const LEVELS: usize = 18;
/// Notes of a level.
const OF_LEVEL: usize = 4;
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
    /// Number of notes so far.
    count: AtomicU64,
    /// The counter at the last note.
    last: AtomicU64,
    /// The notes at their [`place`]s: each has the counter and the usage. The counter of a place
    /// without a note is 0.
    notes: [[AtomicU64; 5]; LEVELS * OF_LEVEL],
}

/// The place of a note. A note whose number can be halved `n` times is on level `n`, which has every
/// 2^(n + 1)th note. The last level has all others.
fn place(number: u64) -> usize {
    let level = (number.trailing_zeros() as usize).min(LEVELS - 1);
    level * OF_LEVEL + (number >> (level + 1).min(LEVELS - 1)) as usize % OF_LEVEL
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
    /// Finds the shortest limit of all points that the thread has measured.
    #[cold]
    pub(super) fn follow_limits(&self) {
        let entries = self.entries(self.points.load(Relaxed));
        let limited = entries.filter(|(_, entry)| entry.follows().limit().is_some());
        let limits = limited.filter_map(|(number, _)| Some((limit_of(number)?.ns(), number)));
        let (shortest, point) = limits.min().unzip();
        let per_ns = calibrate::ticks_per_second() / 1e9;
        self.clock.set_shortest_limit(shortest.map(|ns| (ns as f64 * per_ns) as u64));
        self.usage.of_point.store(point.map_or(0, |point| u64::from(point) + 1), Relaxed);
        self.note_usage(ticks_or_stamp());
    }

    /// Forgets the limits and notes of the lane's earlier owner.
    pub(super) fn forget_limits(&self) {
        self.clock.set_shortest_limit(None);
        let UsageNotes { of_point, count, last, notes } = &self.usage;
        let counters = notes.iter().map(|note| &note[0]);
        counters.chain([of_point, count, last]).for_each(|word| word.store(0, Relaxed));
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
        let UsageNotes { count, last, notes, .. } = &self.usage;
        let least = calibrate::ticks_per_second() / PER_SECOND;
        if (now.wrapping_sub(last.load(Relaxed)) as f64) < least {
            return;
        }
        // The thread notices a removed limit only when it next begins the point, so the control
        // word is checked.
        let point = self.usage.of_point.load(Relaxed).wrapping_sub(1);
        if limit_of(point as u32).is_none() {
            return self.follow_limits();
        }
        let Some(found) = usage() else { return };
        let number = count.load(Relaxed);
        let [counter, words @ ..] = &notes[place(number)];
        // A handler that interrupts this may keep a call, so the counter is 0 until the note is
        // whole. If the handler takes a note, this note is mixed of two readings.
        counter.store(0, Relaxed);
        words.iter().zip(found).for_each(|(word, value)| word.store(value, Relaxed));
        counter.store(now, Relaxed);
        last.store(now, Relaxed);
        count.store(number.wrapping_add(1), Relaxed);
    }

    /// The usage since the last note before a call of `elapsed` ticks began, and how many ticks
    /// before. `None` without a note shortly before, or if `getrusage` fails.
    pub(in crate::engine) fn usage_since(&self, start: u64, elapsed: u64) -> Option<(Usage, u64)> {
        let age = |note: &[AtomicU64; 5]| start.wrapping_sub(note[0].load(Relaxed));
        let notes = self.usage.notes.iter().filter(|note| (age(note) as i64) >= 0);
        let note = notes.min_by_key(|note| age(note))?;
        let before = age(note);
        if before > (elapsed / 2).max(2 * stale_after()) {
            return None;
        }
        let [_, then @ ..] = note.each_ref().map(|it| it.load(Relaxed));
        let now = usage()?;
        let since = |at: usize| now[at].checked_sub(then[at]);
        Some(([since(0)?, since(1)?, since(2)?, since(3)?], before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_notes_are_a_third_of_their_age_apart() {
        let mut kept = [0; LEVELS * OF_LEVEL];
        for number in 1..300_000_u64 {
            kept[place(number)] = number;
            if number % 997 != 0 {
                continue;
            }
            let ages = std::iter::successors(Some(1), |age| Some(age + 1 + age / 7));
            for age in ages.take_while(|age| *age < number) {
                let start = number - age;
                let last = kept.iter().filter(|kept| **kept <= start).max().unwrap();
                assert!(start - last <= age / 3, "{number}: {age} ago: {last}");
            }
        }
    }
}
