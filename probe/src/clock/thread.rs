//! One thread's clock: the word that it watches, and how it updates the off-CPU time after a
//! context switch. "Both clocks" are the counter and the thread's CPU time.

use std::mem::offset_of;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

use pfp_shm_layout::header::ClockKind;

use super::counter::{self, stamp};
use super::ladder;
use super::shared::{self, state};
use super::{perf, source};
use crate::marker::{self, Holder};
use crate::word;

/// Off-CPU time below this is only jitter between the two clocks, because no switch is as short as
/// 500 ns.
const LEAST_SWITCH_NS: u64 = 500;

/// Error of the off-CPU time of one switch: the kernel counts a part of each switch as the thread's
/// time. In virtual machines under load, 3.9 us were seen.
const SWITCH_ERROR_NS: u64 = 10_000;

/// A further error, as a share of the off-CPU time (1/256, as a shift). If a hypervisor steals
/// time, the kernel shortens the CPU time of the thread that runs next, whichever that is. The
/// error is limited to ten times [`SWITCH_ERROR_NS`].
const STOLEN_SHIFT: u32 = 8;

/// Each reading without a switch reduces [`ThreadClock::late`] by this share, as a shift: a
/// sixteenth. So `late` is about 16 times the ticks that such a reading adds on average, and one
/// reading rarely adds more than `late`.
const LATE_SHIFT: u32 = 4;

/// A thread that measures reads its CPU time at least after this many ticks, about once a
/// millisecond. The CPU time also lacks time during which the watched word does not change: time
/// that a hypervisor stole and, on some kernels, the time of interrupts. Only a reading of the CPU
/// time shows such a loss. With frequent readings, the first stamp after a long loss finds it, and
/// no other region is charged for it. The readings cost half a thousandth of the time.
///
/// This is a constant, because every stamp compares with it.
const STALE: u64 = if cfg!(target_arch = "x86_64") { 1 << 21 } else { 1 << 18 };

/// Whether a region of `elapsed` ticks can be due. Only the mock clock has regions that cannot.
#[cfg(not(test))]
#[inline(always)]
pub(super) fn can_be_due(_elapsed: u64) -> bool {
    true
}

/// Ticks after which a thread that measures reads its CPU time.
#[inline(always)]
pub(crate) fn stale_after() -> u64 {
    STALE
}

/// Maximum number of ticks of a reading of both clocks, which is several seconds. A longer reading
/// means that the counter has jumped.
const LONGEST_READING: u64 = 1 << 34;
/// Number of attempts to read both clocks at one moment.
const READ_ATTEMPTS: u32 = 8;
/// A reading is good if it took at most this many times as long as the shortest one.
const WIDEST: u64 = 3;
/// The duration of the shortest reading of both clocks in this process, in ticks.
static LEAST_WIDTH: AtomicU64 = AtomicU64::new(u64::MAX);

/// About half a minute in ticks. If a thread was not switched out for this long, the clock checks
/// whether its source has missed a switch.
const LONG: u64 = 1 << 36;

/// A clock source counts as broken if a thread lost more than this time, and more than this share
/// (a twentieth) of its CPU time, without a noticed switch. Less is normal: interrupts take some
/// time without a switch, and the counter's rate is not known exactly.
const LEAST_MISSED_NS: u128 = 1_000_000;
const MISSED_SHARE: u128 = 20;

/// Number of bits of [`ThreadClock::switches`] that count switches. The bits above are the number
/// of the context's run.
const COUNTING: u32 = 40;

/// A thread's clock. All words are private to the thread. They are atomics because a signal handler
/// of the thread may read and change them at any moment.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct ThreadClock {
    /// Address of the word that changes when the thread is switched out.
    watch: AtomicU64,
    /// Value of the watched word as long as the thread was not switched out; [`NEVER`] while the
    /// clock is disturbed.
    expect: AtomicU64,
    /// Ticks to subtract from the counter to get the clock of the current context: time off the
    /// CPU, and time in which the context was suspended or did not exist.
    off: AtomicU64,
    /// The counter when both clocks were last read, or when a reading failed. [`DISTURBED`] is set
    /// while the clock must not be trusted.
    looked: AtomicU64,
    /// Number of switches in the current context. The bits from [`COUNTING`] on are the number of
    /// the context's run, which changes each time that a context is resumed.
    switches: AtomicU64,
    /// Number of switches of the thread.
    all_switches: AtomicU64,
    /// An end must take the slow path if its region took at least this many ticks: [`STALE`], or
    /// the least [limit](pfp_shm_layout::control::Limit) of a point, if that is shorter.
    due: AtomicU64,

    /// Value of the watched word when it was armed, even while the clock is disturbed.
    armed: AtomicU64,
    kind: AtomicU64,
    /// The process's clock source when this thread last chose `kind`. `kind` may be lower on the
    /// ladder.
    asked: AtomicU64,
    perf_page: AtomicU64,
    /// The last two readings of both clocks, so that one store publishes a new reading. Reading
    /// number `anchored`, modulo 2, is the published one.
    anchors: [Anchor; 2],
    anchored: AtomicU64,
    /// Ticks off the CPU without a switch in the last readings, because of interrupts and a
    /// hypervisor. See [`LATE_SHIFT`].
    late: AtomicU64,
    /// A [`marker`] while the clock is being refreshed. A signal handler that runs during the
    /// refresh uses the state as it is.
    pub(crate) refreshing: AtomicU64,
}

/// A reading of both clocks, and its result.
#[repr(C)]
#[derive(Debug)]
struct Anchor {
    ticks: AtomicU64,
    ns: AtomicU64,
    /// Ticks off the CPU until this reading that are not in `off`, in units of 2^-32: a remainder
    /// of jitter. It is signed, and each reading replaces it, so errors do not add up.
    residue: AtomicU64,
    /// The ticks that this reading adds to `off`, and the value of `off` before.
    more: AtomicU64,
    before: AtomicU64,
}

/// Flag in [`ThreadClock::looked`]: the clock was changed by other code than the begin or end that
/// reads it, or is changing now, so the next stamp takes the slow path. Each such change also adds
/// 1 to the word, so that a refresh notices a change that a signal handler makes during the
/// refresh.
const DISTURBED: u64 = 1 << 63;

/// A value that no watched word has.
const NEVER: u64 = u64::MAX;

/// A stamp that was taken on the slow path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamps {
    /// The counter before the CPU time was read, for an end.
    pub(crate) early: u64,
    /// The counter after the CPU time was read, for a begin.
    pub(crate) late: u64,
    /// The counter has gone astray since the last stamp: it has decreased, or stood still while the
    /// thread ran.
    pub(crate) astray: bool,
    /// The clock source has missed a switch, so another one is used from now on.
    pub(crate) missed: bool,
}

impl Stamps {
    /// The stamp of an end and a begin at the same moment.
    fn one(now: u64) -> Self {
        Self { early: now, late: now, astray: false, missed: false }
    }
}

/// A reading of both clocks at nearly the same moment.
struct Reading {
    stamps: Stamps,
    cpu_ns: u64,
    /// Whether the thread was switched out before the reading.
    switched: bool,
}

impl Reading {
    /// A reading of the counter alone, because the CPU time cannot be read.
    fn without(now: u64) -> Self {
        Self { stamps: Stamps::one(now), cpu_ns: 0, switched: false }
    }
}

/// Maximum difference of the CPU time and the counter after `ran_ns` of CPU time, in units of 2^-32
/// ticks. Beyond it, one of the clocks is wrong.
fn tolerance(ran_ns: u64) -> u128 {
    let rate = u128::from(source::ticks_per_ns_fixed());
    rate * LEAST_MISSED_NS.max(u128::from(ran_ns) / MISSED_SHARE)
}

/// Number of switches of a context between two values of [`ThreadClock::switches`], on any thread.
pub(crate) fn switches_between(first: u64, second: u64) -> u64 {
    second.wrapping_sub(first) & ((1 << COUNTING) - 1)
}

impl ThreadClock {
    /// Whether a stamp at `now` must call [`Self::refresh`]: the thread was switched out, the last
    /// reading is too old, or the counter is behind the last reading.
    #[inline(always)]
    pub(crate) fn is_outdated(&self, now: u64) -> bool {
        self.was_switched()
            || word::minus::<Self, { offset_of!(Self, looked) }>(self, now) > source::stale_after()
    }

    /// Whether an end must take the slow path, `elapsed` ticks after its begin found the clock up
    /// to date: the last reading may be too old, the counter ran backwards, or the region may have
    /// exceeded a limit. An end tests this and [`Self::was_switched`] instead of
    /// [`Self::is_outdated`].
    #[inline(always)]
    pub(crate) fn is_due_after(&self, elapsed: u64) -> bool {
        !word::is_above::<Self, { offset_of!(Self, due) }>(self, elapsed)
            && source::can_be_due(elapsed)
    }

    /// Sets the shortest limit of a point, in ticks.
    pub(crate) fn set_shortest_limit(&self, ticks: Option<u64>) {
        self.due.store(STALE.min(ticks.unwrap_or(STALE)), Relaxed);
    }

    /// Whether other code has changed the clock since the last stamp.
    #[inline]
    pub(crate) fn is_disturbed(&self) -> bool {
        self.looked.load(Relaxed) & DISTURBED != 0
    }

    /// Makes the next stamp take the slow path, because a begin or end in progress may have read a
    /// state that the clock no longer has. A signal handler may call this during a refresh. Returns
    /// the new value of `looked`.
    pub(crate) fn disturb(&self) -> u64 {
        let disturbed = self.looked.load(Relaxed).wrapping_add(1) | DISTURBED;
        self.looked.store(disturbed, Relaxed);
        self.expect.store(NEVER, Relaxed);
        disturbed
    }

    /// Whether the thread was switched out since the word was armed, or the clock is disturbed.
    #[inline(always)]
    pub(crate) fn was_switched(&self) -> bool {
        !word::is::<Self, { offset_of!(Self, expect) }>(self, self.watched())
    }

    /// Whether the word still has its armed value, even while the clock is disturbed.
    fn is_armed(&self) -> bool {
        self.watched() == self.armed.load(Relaxed)
    }

    /// The current value of the watched word.
    #[inline(always)]
    fn watched(&self) -> u64 {
        let watch = self.watch.load(Relaxed) as *const AtomicU64;
        // SAFETY: `start` has set `watch` to a static word, or to one that lives as long as the
        // thread. A clock that was not started is not read.
        unsafe { &*watch }.load(Relaxed)
    }

    /// Ticks to subtract from the counter.
    #[inline(always)]
    pub(crate) fn off(&self) -> u64 {
        self.off.load(Relaxed)
    }

    /// Number of switches of the current context so far, with the number of its run in the upper
    /// bits.
    #[inline(always)]
    pub(crate) fn switches(&self) -> u64 {
        self.switches.load(Relaxed)
    }

    /// Number of switches of the thread so far.
    pub(crate) fn all_switches(&self) -> u64 {
        self.all_switches.load(Relaxed)
    }

    /// Maximum error of a region's off-CPU time, in ticks. It is the sum of the error of a switch,
    /// an error for time that a hypervisor stole, the time between reading the counter and reading
    /// the CPU time, and time off the CPU that was noticed late and may belong to earlier regions.
    pub(crate) fn error(&self, off: u64) -> u64 {
        let switch = u128::from(SWITCH_ERROR_NS) * u128::from(source::ticks_per_ns_fixed());
        let switch = (switch >> 32) as u64;
        let stolen = (off >> STOLEN_SHIFT).min(10 * switch);
        let width = LEAST_WIDTH.load(Relaxed).saturating_mul(WIDEST).min(STALE);
        switch + stolen + width + self.late.load(Relaxed)
    }

    /// Sets the number of switches of the context that becomes current, and the number of the run
    /// that it begins.
    pub(crate) fn set_switches(&self, switches: u64, run: u64) {
        let counted = switches & ((1 << COUNTING) - 1);
        self.switches.store(counted | run << COUNTING, Relaxed);
    }

    /// Sets the ticks to subtract, so that the clock of a resumed context continues from where it
    /// stopped.
    pub(crate) fn set_off(&self, off: u64) {
        self.off.store(off, Relaxed);
    }

    /// Starts the clock of the calling thread.
    pub(crate) fn start(&self) {
        let mut marker = marker::new();
        marker::set(&mut marker, &self.refreshing);
        self.take_source();
        self.off.store(0, Relaxed);
        let read = self.read_both().unwrap_or_else(|| Reading::without(stamp()));
        self.anchor(read.stamps.late, read.cpu_ns, 0, 0);
        self.looked.store(read.stamps.late, Relaxed);
        self.expect.store(self.armed.load(Relaxed), Relaxed);
        compiler_fence(SeqCst);
        self.refreshing.store(0, Relaxed);
    }

    /// Stops watching, on the thread itself.
    pub(crate) fn stop(&self) {
        if self.kind.load(Relaxed) == ClockKind::Rseq as u64
            && let Some(word) = state().rseq.word()
            && word.load(Relaxed) == state().rseq.armed()
        {
            // Clear the word, because the thread may outlive the library that contains the section.
            word.store(0, Relaxed);
        }
        self.forget();
    }

    /// Stops watching, on another thread, after the clock's thread has ended.
    pub(crate) fn forget(&self) {
        self.watch_nothing(0);
        self.release_page();
    }

    /// Stops watching in a forked child, which has no copy of the event's page. If the parent's
    /// thread was about to read the page when it forked, the child finds zeros there, and takes the
    /// slow path.
    pub(crate) fn forget_in_child(&self) {
        self.watch_nothing(0);
        let page = self.perf_page.swap(0, Relaxed);
        if page != 0 {
            perf::stand_in(page);
        }
    }

    /// Reads both clocks and updates `off`. This is needed after a switch, and harmless otherwise.
    #[cold]
    pub(crate) fn refresh(&self) -> Stamps {
        self.refresh_and_verify(false)
    }

    /// Like [`Self::refresh`]. With `verify`, or after a long time, it also checks whether the
    /// clock source has missed a switch.
    pub(crate) fn refresh_and_verify(&self, verify: bool) -> Stamps {
        let holder = marker::holder(&self.refreshing);
        if holder == Holder::Live {
            return Stamps::one(stamp());
        }
        let was_left = holder == Holder::Gone;
        if !was_left && !verify && self.is_disturbed() && self.is_armed() {
            // The clock was disturbed, but nothing else happened, so no reading is needed.
            let disturbed = self.looked.load(Relaxed);
            let (now, looked) = (stamp(), disturbed & !DISTURBED);
            if now.wrapping_sub(looked) <= STALE {
                self.clear_disturbed(disturbed, looked);
                return Stamps::one(now);
            }
        }
        let mut marker = marker::new();
        marker::set(&mut marker, &self.refreshing);
        if was_left {
            self.recover();
        }
        // The clock is disturbed until the end of the refresh. If a signal handler jumps out of the
        // refresh, the clock stays disturbed.
        let disturbed = self.disturb();
        compiler_fence(SeqCst);
        let stamps = self.refresh_alone(verify, was_left);
        compiler_fence(SeqCst);
        self.clear_disturbed(disturbed, stamps.early);
        self.refreshing.store(0, Relaxed);
        stamps
    }

    /// Ends the disturbance after a reading, unless the clock was disturbed again in the meantime.
    fn clear_disturbed(&self, disturbed: u64, looked: u64) {
        // `expect` is stored first, so that a handler that disturbs the clock afterwards replaces
        // it.
        self.expect.store(self.armed.load(Relaxed), Relaxed);
        compiler_fence(SeqCst);
        let cleared = looked & !DISTURBED;
        if self.looked.compare_exchange(disturbed, cleared, Relaxed, Relaxed).is_err() {
            self.expect.store(NEVER, Relaxed);
        }
    }

    /// Completes a refresh that was cut off, if it had published its reading.
    fn recover(&self) {
        let last = self.last_anchor();
        if self.off() == last.before.load(Relaxed) {
            self.off.fetch_add(last.more.load(Relaxed), Relaxed);
        }
        // The refresh may have been about to choose another clock source, so choose again.
        self.asked.store(u64::MAX, Relaxed);
    }

    fn last_anchor(&self) -> &Anchor {
        &self.anchors[(self.anchored.load(Relaxed) & 1) as usize]
    }

    /// Publishes a reading of both clocks, and adds the `more` ticks off the CPU that it found.
    fn anchor(&self, ticks: u64, ns: u64, residue: u64, more: u64) {
        let next = self.anchored.load(Relaxed).wrapping_add(1);
        let anchor = &self.anchors[(next & 1) as usize];
        anchor.ticks.store(ticks, Relaxed);
        anchor.ns.store(ns, Relaxed);
        anchor.residue.store(residue, Relaxed);
        anchor.more.store(more, Relaxed);
        anchor.before.store(self.off(), Relaxed);
        compiler_fence(SeqCst);
        self.anchored.store(next, Relaxed);
        compiler_fence(SeqCst);
        // Added in one instruction, because a signal handler's hooks may shift `off`, too.
        self.off.fetch_add(more, Relaxed);
    }

    /// The reading and update of a refresh. `again` is set if a previous refresh was cut off,
    /// because that refresh may have noticed a switch.
    fn refresh_alone(&self, verify: bool, again: bool) -> Stamps {
        if self.asked.load(Relaxed) != shared::kind() as u64 {
            self.take_source();
        }
        if self.kind.load(Relaxed) == ClockKind::Wall as u64 {
            return Stamps::one(stamp());
        }
        // If the CPU time cannot be read now, a later reading finds the time off the CPU.
        let Some(Reading { stamps, cpu_ns, switched }) = self.read_both() else {
            return Stamps::one(stamp());
        };
        let switched = switched || again;
        let last = self.last_anchor();
        let (last_ticks, last_ns) = (last.ticks.load(Relaxed), last.ns.load(Relaxed));
        let residue = last.residue.load(Relaxed);
        // A thread's CPU time never decreases. If it is less than before, the caller is a child in
        // its parent's memory, as after `vfork`. The reading is then the child's, but this clock
        // belongs to the parent's thread, which waits for the child.
        if (cpu_ns.wrapping_sub(last_ns) as i64) < 0 {
            return stamps;
        }
        if last_ns == 0 {
            // The CPU time could not be read before, so the thread's clock starts here.
            self.anchor(stamps.early, cpu_ns, residue, 0);
            return stamps;
        }
        let passed = stamps.early.wrapping_sub(last_ticks);
        let ran_ns = cpu_ns.saturating_sub(last_ns);
        let rate = source::ticks_per_ns_fixed();
        // In units of 2^-32 ticks, and signed, because the two clocks are not read at the same
        // moment.
        let ran = i128::from(ran_ns) * i128::from(rate);
        let away = (i128::from(passed as i64) << 32) - ran;
        if away < -(tolerance(ran_ns) as i128) {
            // The thread ran longer than the counter shows. Its clock advances by the CPU time
            // instead, so that open regions lose nothing.
            self.anchor(stamps.early, cpu_ns, 0, (away >> 32) as u64);
            return Stamps { astray: true, ..stamps };
        }
        let kind = ClockKind::from_word(self.kind.load(Relaxed));
        let missed = (verify || passed >= LONG)
            && matches!(kind, ClockKind::Rseq | ClockKind::Perf)
            && away > tolerance(ran_ns) as i128
            && !switched
            && self.is_armed();
        if missed {
            ladder::demote(kind);
        }
        let off = away + i128::from(residue as i64);
        let whole = (off >> 32).clamp(0, i128::from(i64::MAX)) as u64;
        let rest = (off - (i128::from(whole) << 32)).clamp(i64::MIN.into(), i64::MAX.into());
        self.anchor(stamps.early, cpu_ns, rest as i64 as u64, whole);
        let is_switch = (u128::from(whole) << 32) > u128::from(LEAST_SWITCH_NS) * u128::from(rate);
        // Time that was lost without a switch counts as off-CPU, but not as a switch.
        if !switched {
            let late = self.late.load(Relaxed);
            self.late.store(late - (late >> LATE_SHIFT) + whole.min(STALE), Relaxed);
        } else if is_switch {
            self.switches.store(self.switches().wrapping_add(1), Relaxed);
            self.all_switches.store(self.all_switches().wrapping_add(1), Relaxed);
        }
        Stamps { missed, ..stamps }
    }

    /// Arms the word, and reads the counter and the CPU time at nearly the same moment. If a
    /// switch, an interrupt or an exit to a hypervisor happens in between, the reading is repeated.
    /// Interrupts and exits show only in the time that the reading took. Without the repetition,
    /// their time would be charged to the current region and missing from the next one.
    ///
    /// `None` if the CPU time cannot be read.
    fn read_both(&self) -> Option<Reading> {
        let mut width = u64::MAX;
        let mut read = None;
        let mut switched = false;
        for tried in 1..=READ_ATTEMPTS {
            switched |= self.arm();
            compiler_fence(SeqCst);
            let early = stamp();
            let ns = source::cpu_time_ns()?;
            let late = stamp();
            // The clock source `cputime` reads the CPU time at every stamp, so its word shows
            // nothing.
            let always = self.kind.load(Relaxed) == ClockKind::Cputime as u64;
            if !always && !self.is_armed() && tried < READ_ATTEMPTS {
                // The readings before this switch are useless, too.
                width = u64::MAX;
                continue;
            }
            if read.is_none() || late.wrapping_sub(early) < width {
                width = late.wrapping_sub(early);
                read = Some((Stamps { early, late, astray: false, missed: false }, ns));
            }
            let least = LEAST_WIDTH.load(Relaxed);
            // The width of a counter that stands still is 0, which must not be stored.
            if (1..least).contains(&width) {
                // This is a plain store, because with the clock source `cputime`, threads reach
                // this at every stamp and would contend for the word. A lost update does no harm.
                LEAST_WIDTH.store(width, Relaxed);
            }
            if width <= least.saturating_mul(WIDEST) {
                break;
            }
        }
        let (mut stamps, cpu_ns) = read?;
        if stamps.late.wrapping_sub(stamps.early) >= LONGEST_READING {
            // The counter jumped during the reading. A region that begins here begins at the stamp
            // before the jump.
            stamps.late = stamps.early;
            stamps.astray = true;
        }
        Some(Reading { stamps, cpu_ns, switched })
    }

    /// Arms the word. Returns whether the thread was switched out since the word was last armed.
    fn arm(&self) -> bool {
        match ClockKind::from_word(self.kind.load(Relaxed)) {
            // One instruction reads and arms the word, so that no switch is lost: an earlier switch
            // shows in the result, and a later one in the word.
            ClockKind::Rseq => {
                let rseq = &state().rseq;
                rseq.word().is_some_and(|word| word.swap(rseq.armed(), Relaxed) != rseq.armed())
            }
            ClockKind::Perf => {
                let word = self.watched();
                self.armed.swap(word, Relaxed) != word
            }
            _ => !self.is_armed(),
        }
    }

    /// Takes the process's clock source, or `cputime` if that source does not work on this thread.
    fn take_source(&self) {
        self.watch_nothing(0);
        self.release_page();
        let mut kind = shared::kind();
        self.asked.store(kind as u64, Relaxed);
        if counter::is_replaced() && matches!(kind, ClockKind::Rseq | ClockKind::Perf) {
            kind = ClockKind::Cputime;
        }
        if kind == ClockKind::Rseq {
            match state().rseq.word() {
                Some(word) => {
                    word.store(state().rseq.armed(), Relaxed);
                    self.armed.store(state().rseq.armed(), Relaxed);
                    self.watch.store((&raw const *word).addr() as u64, Relaxed);
                }
                None => kind = ClockKind::Cputime,
            }
        }
        if kind == ClockKind::Perf {
            match crate::errno::preserve(perf::Page::open) {
                Some(page) => {
                    let word = page.word();
                    // SAFETY: the page was mapped just now.
                    self.armed.store(unsafe { (*word).load(Relaxed) }, Relaxed);
                    self.watch.store(word.expose_provenance() as u64, Relaxed);
                    self.perf_page.store(page.into_address(), Relaxed);
                }
                None => kind = ClockKind::Cputime,
            }
        }
        if kind == ClockKind::Cputime {
            // The word `still` is never 1, so every stamp reads the CPU time.
            self.watch_nothing(1);
        }
        self.kind.store(kind as u64, Relaxed);
    }

    fn watch_nothing(&self, expect: u64) {
        self.armed.store(expect, Relaxed);
        self.watch.store((&raw const state().still).expose_provenance() as u64, Relaxed);
    }

    fn release_page(&self) {
        let page = self.perf_page.swap(0, Relaxed);
        if page != 0 {
            // SAFETY: `take_source` stored the address, and the page's word is no longer watched.
            unsafe { perf::Page::release(page) };
        }
    }
}
