//! A box: what explains one slow call.
//!
//! A point may have a [limit](crate::control::Limit). The thread that ends a call that reaches the
//! limit copies what it knows of the call to a box:
//!
//! ```text
//!     0 +-----------------------------------------------------------+
//!       | state | facts of the call | number of regions, of records |
//!       | why: a text of up to 64 bytes                             |
//!   256 | the enclosing regions, outermost first: point, begin      |
//!  1024 | the thread's last records, as in its ring                 |
//! 32768 +-----------------------------------------------------------+
//! ```
//!
//! The process has [`BOXES`] boxes. A box gets its memory when a call first needs it. Any thread
//! may claim any box. `state` is twice the number of the call in the box, or 0 without a call. While
//! a thread writes, it is twice the thread's kernel id, plus 1. If a signal handler jumps out of the
//! write, the thread gives the box up at its next busy work, or when it ends. If the thread is killed
//! during the write, the box stays claimed.
//!
//! | site | pairs with | makes visible |
//! |---|---|---|
//! | `box-open` fence | `box-recheck` fence | a reader that saw a word of the next call sees that the box was claimed |
//! | `box-close` store | `box-enter` load | the words of the call are complete |

use std::slice;

use crate::heap::{self, NoMemory};
use crate::layout::ring::{Record, Slot};
use crate::sync::{AtomicU64, Ordering, fence_at, ord};

/// Number of boxes of a process.
pub const BOXES: usize = 8;
/// Maximum number of enclosing regions in a box.
pub const MAX_ENCLOSING: usize = 48;
/// Maximum number of records in a box.
pub const MAX_RECORDS: usize = 992;
const FACTS: usize = 20;
/// The index of [`BoxFacts::span`] among the words.
const SPAN: usize = 5;
const WHY_WORDS: usize = 8;

/// Declares the facts, in the order of their words in a box.
macro_rules! facts {
    ($($(#[$about:meta])* $name:ident,)*) => {
        /// The facts of a call. All are numbers; times are in ticks of the process's counter.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct BoxFacts {
            $($(#[$about])* pub $name: u64,)*
        }

        impl BoxFacts {
            fn words(self) -> [u64; FACTS] {
                let mut words = [0; FACTS];
                let facts = [$(self.$name),*];
                words[..facts.len()].copy_from_slice(&facts);
                words
            }

            fn of(words: [u64; FACTS]) -> Self {
                let mut words = words.into_iter();
                $(let $name = words.next().unwrap_or_default();)*
                Self { $($name),* }
            }
        }
    };
}

facts! {
    /// The point.
    point,
    /// The lane of the thread.
    lane,
    /// Kernel id of the thread.
    tid,
    /// The context on the thread; 0 for the thread's own.
    context,
    /// Begin of the call, as a value of the counter.
    start,
    /// Ticks from begin to end, or until the call was kept; time off the CPU included.
    span,
    /// Ticks on a CPU, nested regions included.
    inclusive,
    /// Ticks on a CPU, without nested regions.
    exclusive,
    /// Ticks off the CPU.
    off_cpu,
    /// Times that the thread was off the CPU.
    switches,
    /// The point's [control word](crate::control), with its limit; 0 if the program asked to keep the
    /// call.
    control,
    /// 1 if the next five figures are known.
    is_usage_known,
    /// Times that the thread gave up the CPU to wait.
    waits,
    /// Times that another thread took the CPU.
    preemptions,
    /// Page faults that needed no disk.
    minor_faults,
    /// Page faults that waited for a disk.
    major_faults,
    /// Ticks before the begin of the call that the four counts contain.
    before,
    /// When the call was kept: milliseconds since the Unix epoch.
    unix_ms,
    /// Number of regions around the call, also those that have no room in the box.
    depth,
}

/// A box; see the module for the drawing. The words are zeros at first. Only models have fewer
/// records.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct BlackBox<const RECORDS: usize = MAX_RECORDS> {
    state: AtomicU64,
    facts: [AtomicU64; FACTS],
    enclosing_count: AtomicU64,
    record_count: AtomicU64,
    why: [AtomicU64; WHY_WORDS],
    spare: AtomicU64,
    enclosing: [[AtomicU64; 2]; MAX_ENCLOSING],
    records: [Slot; RECORDS],
}

/// An enclosing region that was open when a box was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Enclosing {
    /// The point.
    pub point: u32,
    /// Its begin, as a value of the counter.
    pub start: u64,
}

/// A copy of a box.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BoxPicture {
    /// The number of the call among those that the process has kept, from 1.
    pub number: u64,
    /// The facts of the call.
    pub facts: BoxFacts,
    /// The reason of a program that asked to keep the call; empty if it reached its limit.
    pub why: String,
    /// The regions around the call, outermost first.
    pub enclosing: Vec<Enclosing>,
    /// The last records of the thread, oldest first.
    pub records: Vec<Record>,
}

/// The state of a box to which the thread with this kernel id writes.
const fn claimed_by(tid: u32) -> u64 {
    (tid as u64) << 1 | 1
}

impl<const RECORDS: usize> BlackBox<RECORDS> {
    /// The box's state, which [`Self::claim`] expects, and the number and the span (ticks) of its
    /// call, which decide whether the call may be replaced. `None` while a thread writes.
    #[must_use]
    pub fn content(&self) -> Option<(u64, u64, u64)> {
        let state = self.state.load(Ordering::Relaxed);
        let span = self.facts[SPAN].load(Ordering::Relaxed);
        (state & 1 == 0).then_some((state, state / 2, span))
    }

    /// Claims the box for the thread with this kernel id, if its state is still this one.
    #[must_use]
    pub fn claim(&self, state: u64, tid: u32) -> bool {
        // Acquire pairs with `box-close`: the words of the thread that had the box before are
        // stored before this thread's. No model shows this, since loom keeps stores in the order in
        // which they were made.
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        let claimed = claimed_by(tid);
        let is_claimed = self.state.compare_exchange(state, claimed, success, failure).is_ok();
        // Pairs with `box-recheck`.
        fence_at!("box-open", Release);
        is_claimed
    }

    /// Gives up the box, if the thread with this kernel id has claimed it. The box has no call then.
    pub fn give_up(&self, tid: u32) {
        // Pairs with the claim of the next thread, like `box-close`.
        let (success, failure) = (Ordering::Release, Ordering::Relaxed);
        let _ = self.state.compare_exchange(claimed_by(tid), 0, success, failure);
    }

    /// Fills a claimed box, and publishes it as the call of this number, which must be above 0. Of
    /// `why`, 64 bytes are stored; of the regions, the innermost ones; of the records, the last
    /// ones.
    pub fn publish<'a>(
        &self,
        number: u64,
        facts: BoxFacts,
        why: &str,
        enclosing: impl ExactSizeIterator<Item = Enclosing>,
        records: impl ExactSizeIterator<Item = &'a Slot>,
    ) {
        let put = |word: &AtomicU64, value: u64| word.store(value, Ordering::Relaxed);
        self.facts.iter().zip(facts.words()).for_each(|(word, fact)| put(word, fact));
        let mut bytes = why.bytes();
        for word in &self.why {
            put(word, u64::from_le_bytes(std::array::from_fn(|_| bytes.next().unwrap_or(0))));
        }
        let more = enclosing.len().saturating_sub(MAX_ENCLOSING);
        put(&self.enclosing_count, (enclosing.len() - more) as u64);
        for ([point, start], region) in self.enclosing.iter().zip(enclosing.skip(more)) {
            put(point, u64::from(region.point));
            put(start, region.start);
        }
        let more = records.len().saturating_sub(RECORDS);
        put(&self.record_count, (records.len() - more) as u64);
        for (to, from) in self.records.iter().zip(records.skip(more)) {
            to.take(from);
        }
        // Pairs with `box-enter`.
        self.state.store(number.wrapping_mul(2), ord!("box-close", Release));
    }

    /// The number of the call in the box; 0 if it has none, or a thread writes.
    #[must_use]
    pub fn number(&self) -> u64 {
        // Pairs with `box-close`.
        let state = self.state.load(ord!("box-enter", Acquire));
        if state & 1 == 0 { state / 2 } else { 0 }
    }

    /// Copies the whole box of another segment. The copy has no call if the box has none, if a
    /// thread is writing to it, or if its call was replaced during each attempt.
    pub(crate) fn take(&self, from: &Self, attempts: usize) {
        for _ in 0..attempts {
            let number = from.number();
            if number == 0 {
                break;
            }
            let pairs = |these: &[AtomicU64], those: &[AtomicU64]| {
                for (to, from) in these.iter().zip(those) {
                    to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
                }
            };
            pairs(&self.facts, &from.facts);
            pairs(&self.why, &from.why);
            pairs(slice::from_ref(&self.enclosing_count), slice::from_ref(&from.enclosing_count));
            pairs(slice::from_ref(&self.record_count), slice::from_ref(&from.record_count));
            pairs(self.enclosing.as_flattened(), from.enclosing.as_flattened());
            self.records.iter().zip(&from.records).for_each(|(to, from)| to.take(from));
            if from.is_still(number) {
                return self.state.store(number.wrapping_mul(2), Ordering::Relaxed);
            }
        }
        self.state.store(0, Ordering::Relaxed);
    }

    /// Whether the box still has the call of this number, after its words were read.
    fn is_still(&self, number: u64) -> bool {
        // Pairs with `box-open`: if a word that was read was of a later call, the load below sees
        // that the box was claimed.
        fence_at!("box-recheck", Acquire);
        self.state.load(Ordering::Relaxed) == number.wrapping_mul(2)
    }

    /// A copy of the box. `None` if it has no call, or a thread writes.
    ///
    /// # Errors
    ///
    /// Memory runs out.
    pub fn read(&self) -> Result<Option<BoxPicture>, NoMemory> {
        let number = self.number();
        let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let count = |word: &AtomicU64, most: usize| (get(word) as usize).min(most);
        let why = self.why.iter().flat_map(|word| get(word).to_le_bytes());
        let why = heap::collect(why.take_while(|&byte| byte != 0))?;
        let enclosing = &self.enclosing[..count(&self.enclosing_count, MAX_ENCLOSING)];
        let enclosing = enclosing
            .iter()
            .map(|[point, start]| Enclosing { point: get(point) as u32, start: get(start) });
        let records = &self.records[..count(&self.record_count, RECORDS)];
        let copy = BoxPicture {
            number,
            facts: BoxFacts::of(self.facts.each_ref().map(get)),
            why: heap::lossy(&why)?,
            enclosing: heap::collect(enclosing)?,
            records: heap::collect(records.iter().map(Slot::copy))?,
        };
        Ok((number != 0 && self.is_still(number)).then_some(copy))
    }
}

#[cfg(test)]
impl<const RECORDS: usize> BlackBox<RECORDS> {
    /// A box of zeros, like fresh shared memory.
    pub(crate) fn blank() -> Box<Self> {
        let zero = || AtomicU64::new(0);
        Box::new(Self {
            state: zero(),
            facts: std::array::from_fn(|_| zero()),
            enclosing_count: zero(),
            record_count: zero(),
            why: std::array::from_fn(|_| zero()),
            spare: zero(),
            enclosing: std::array::from_fn(|_| [zero(), zero()]),
            records: std::array::from_fn(|_| Slot::new()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_has_the_last_call_that_was_published() {
        let found: Box<BlackBox> = BlackBox::blank();
        assert_eq!(found.read(), Ok(None));
        assert_eq!(found.content(), Some((0, 0, 0)));
        let facts = BoxFacts { point: 3, span: 900, unix_ms: 77, ..BoxFacts::default() };
        let enclosing = (0..60).map(|at| Enclosing { point: at, start: u64::from(at) * 10 });
        let ring: Vec<Slot> = (0..1000).map(|_| Slot::new()).collect();
        for (at, slot) in ring.iter().enumerate() {
            slot.fill(at as u64, 5, 4, 4, Default::default());
        }
        assert!(found.claim(0, 9));
        assert_eq!((found.content(), found.read()), (None, Ok(None)), "a thread writes");
        assert!(!found.claim(0, 8), "another thread has it");
        let why = "a text that is longer than the sixty-four bytes that there are for it";
        found.publish(7, facts, why, enclosing, ring.iter());
        let copy = found.read().expect("there is memory").expect("it is published");
        assert_eq!((copy.number, copy.facts, copy.why.as_str()), (7, facts, &why[..64]));
        assert_eq!(copy.enclosing.len(), MAX_ENCLOSING);
        assert_eq!(copy.enclosing[0], Enclosing { point: 12, start: 120 });
        assert_eq!(copy.records.len(), MAX_RECORDS);
        assert_eq!((copy.records[0].start, copy.records[MAX_RECORDS - 1].start), (8, 999));
        assert_eq!(found.content(), Some((14, 7, 900)));
        let other: Box<BlackBox> = BlackBox::blank();
        other.take(&found, 2);
        assert_eq!(other.read(), Ok(Some(copy)));
        assert!(found.claim(14, 9));
        other.take(&found, 2);
        assert_eq!(other.read(), Ok(None));
        found.give_up(8);
        assert_eq!(found.content(), None, "another thread has it");
        found.give_up(9);
        assert_eq!((found.content(), found.read()), (Some((0, 0, 900)), Ok(None)));
        assert!(found.claim(0, 8));
    }
}
