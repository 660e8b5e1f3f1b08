//! One thread's clock: what it watches, and how its time off the CPU is brought
//! up to date after a switch.

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

/// Off-CPU time below this is jitter of reading two clocks: no switch is as
/// short as 500 ns.
const LEAST_SWITCH_NS: u64 = 500;

/// How exactly it is known where a switch begins and ends: the kernel counts a part of it as the
/// thread's time, another part not. In virtual machines under load 3.9 us were seen.
const SWITCH_ERROR_NS: u64 = 10_000;

/// What else it may be wrong by, as a share of the time off the CPU: a hypervisor's time that the
/// kernel takes off whichever thread comes next. At most ten times as much as above.
const STOLEN_SHIFT: u32 = 8;

/// The share of [`ThreadClock::late`] that each reading takes off, as a shift: a sixteenth. In the
/// mean it holds 16 readings' worth, more than one reading finds but for a rare one.
const LATE_SHIFT: u32 = 4;

/// A thread that measures reads its CPU time at least this often, in ticks: about once
/// a millisecond. What the kernel takes off it without a switch (a hypervisor's time,
/// on some kernels interrupts') touches no word: of that only the CPU time tells. So all
/// of it but the shortest is known at the first stamp that comes after, and no region
/// pays for another one; and it costs a call in so long a time, half a thousandth of it.
///
/// A number that the compiler knows, since it stands at every stamp.
const STALE: u64 = if cfg!(target_arch = "x86_64") { 1 << 21 } else { 1 << 18 };

/// Ticks after which a thread that measures reads its CPU time.
#[inline(always)]
pub(super) fn stale_after() -> u64 {
    STALE
}

/// Reading both clocks takes less than this many ticks, seconds of them, or the counter
/// did not go on as it should.
const LONGEST_READING: u64 = 1 << 34;
/// Tries to read both clocks at one moment.
const TRIES: u32 = 8;
/// A reading is good if it took at most so many times as long as the shortest one.
const WIDEST: u64 = 3;
/// The least ticks that reading both has taken in this process.
static LEAST_WIDTH: AtomicU64 = AtomicU64::new(u64::MAX);

/// Half a minute or so in ticks: a thread that was not switched out for so long is to
/// be looked at more closely.
const LONG: u64 = 1 << 36;

/// Off-CPU time that nobody noticed, beyond which a clock source is not believed any
/// more: this much, and this share of the time on the CPU. Interrupts take some
/// without a switch, and the rate is not known exactly.
const LEAST_MISSED_NS: u128 = 1_000_000;
const MISSED_SHARE: u128 = 20;

/// Bits of the count of switches that count; those above have the run.
const COUNTING: u32 = 40;

/// A thread's clock. All words are private to the thread; they are atomics
/// because a signal handler of the same thread may come in between.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct ThreadClock {
    /// The word that tells whether the thread was switched out.
    watch: AtomicU64,
    /// Its value as long as it was not; [`NEVER`] while the clock is disturbed.
    expect: AtomicU64,
    /// Ticks to subtract from the counter: time off the CPU, and whatever
    /// shifts the current context's clock.
    off: AtomicU64,
    /// When both clocks were last read, or tried to be; with [`DISTURBED`] while that is
    /// not to be believed.
    looked: AtomicU64,
    /// Switches that the current context has seen, and above [`COUNTING`] bits the
    /// number of its run: another one each time that a context is resumed.
    switches: AtomicU64,
    /// Switches of the thread.
    all_switches: AtomicU64,

    /// The watched word as it was armed, whether the clock is disturbed or not.
    armed: AtomicU64,
    kind: AtomicU64,
    /// The clock source that the process used when this thread took its own, which may be a
    /// lower one.
    asked: AtomicU64,
    perf_page: AtomicU64,
    /// The last reading of both clocks and the one before, so that one store publishes
    /// a reading. The published one is number `anchored`, modulo 2.
    anchors: [Anchor; 2],
    anchored: AtomicU64,
    /// Ticks that were found off the CPU without a switch, in the last readings: interrupts and a
    /// hypervisor took them. See [`LATE_SHIFT`].
    late: AtomicU64,
    /// A [`marker`] while the clock is being refreshed: a signal handler that comes in
    /// between reads on with what there is.
    pub(crate) refreshing: AtomicU64,
}

/// A reading of both clocks, and what came of it.
#[repr(C)]
#[derive(Debug)]
struct Anchor {
    ticks: AtomicU64,
    ns: AtomicU64,
    /// Ticks off the CPU until then that are not in `off`, in 2^-32: what jitter has left
    /// over. It is signed and telescopes, so it does not add up.
    residue: AtomicU64,
    /// What was to be added to `off`, and what that was before.
    more: AtomicU64,
    before: AtomicU64,
}

/// In [`ThreadClock::looked`]: the clock was changed by somebody else than the begin or
/// end that reads it, or is being changed, so that the next stamp takes the cold path. What
/// is below counts how often.
const DISTURBED: u64 = 1 << 63;

/// No word that is watched has this value.
const NEVER: u64 = u64::MAX;

/// A stamp that was taken on the cold path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamps {
    /// Before the CPU time was read: for an end.
    pub(crate) early: u64,
    /// After it: for a begin.
    pub(crate) late: u64,
    /// The counter went astray since the last one: it was less than before, or stood
    /// still while the thread ran.
    pub(crate) astray: bool,
    /// The clock source has missed a switch: it does not do what it claims, and another one is
    /// used now.
    pub(crate) missed: bool,
}

impl Stamps {
    /// One stamp for both.
    fn one(now: u64) -> Self {
        Self { early: now, late: now, astray: false, missed: false }
    }
}

/// Both clocks at nearly one moment.
struct Reading {
    stamps: Stamps,
    cpu_ns: u64,
    /// Whether the thread was switched out before.
    switched: bool,
}

impl Reading {
    /// Where the CPU time cannot be read.
    fn without(now: u64) -> Self {
        Self { stamps: Stamps::one(now), cpu_ns: 0, switched: false }
    }
}

/// What the CPU time and the counter may disagree by after so much of the former, in
/// 2^-32 ticks, before one of them is not believed.
fn tolerance(ran_ns: u64) -> u128 {
    let rate = u128::from(source::ticks_per_ns_fixed());
    rate * LEAST_MISSED_NS.max(u128::from(ran_ns) / MISSED_SHARE)
}

/// Switches that a context has seen between two readings of [`ThreadClock::switches`], on
/// whatever threads.
pub(crate) fn switches_between(first: u64, second: u64) -> u64 {
    second.wrapping_sub(first) & ((1 << COUNTING) - 1)
}

impl ThreadClock {
    /// Whether [`Self::refresh`] may have something to tell a stamp taken at `now`:
    /// the thread was switched out, the last look is too long ago, or the counter is
    /// behind it.
    #[inline(always)]
    pub(crate) fn is_outdated(&self, now: u64) -> bool {
        self.was_switched()
            || word::minus::<Self, { offset_of!(Self, looked) }>(self, now) > source::stale_after()
    }

    /// Whether the last look is too long ago so many ticks after a begin that has found the clock up
    /// to date, or the counter ran backwards: the half of [`Self::is_outdated`] that an end asks,
    /// beside [`Self::was_switched`].
    #[inline(always)]
    pub(crate) fn is_due_after(elapsed: u64) -> bool {
        elapsed > source::stale_after()
    }

    /// Whether somebody else has changed the clock since the last stamp.
    #[inline]
    pub(crate) fn is_disturbed(&self) -> bool {
        self.looked.load(Relaxed) & DISTURBED != 0
    }

    /// Has the next stamp take the cold path, and whatever goes on there now start again:
    /// the clock is not what a begin or end has read that this may have interrupted.
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

    /// Whether the word is as it was armed, also while the clock is disturbed.
    fn is_armed(&self) -> bool {
        self.watched() == self.armed.load(Relaxed)
    }

    /// The watched word as it is now.
    #[inline(always)]
    fn watched(&self) -> u64 {
        let watch = self.watch.load(Relaxed) as *const AtomicU64;
        // SAFETY: `start` has set `watch` to a word that lives as long as the
        // thread, or to a static one; a clock that was not started is not read.
        unsafe { &*watch }.load(Relaxed)
    }

    /// Ticks to subtract from the counter.
    #[inline(always)]
    pub(crate) fn off(&self) -> u64 {
        self.off.load(Relaxed)
    }

    /// Switches that the current context has seen so far, with the run.
    #[inline(always)]
    pub(crate) fn switches(&self) -> u64 {
        self.switches.load(Relaxed)
    }

    /// Switches of the thread so far.
    pub(crate) fn all_switches(&self) -> u64 {
        self.all_switches.load(Relaxed)
    }

    /// What a region's time off the CPU may be wrong by, in ticks: what a switch is, what a
    /// hypervisor has taken meanwhile, how far apart the two clocks are read, and what was taken
    /// from regions before and is found only now.
    pub(crate) fn error(&self, off: u64) -> u64 {
        let switch = u128::from(SWITCH_ERROR_NS) * u128::from(source::ticks_per_ns_fixed());
        let switch = (switch >> 32) as u64;
        let stolen = (off >> STOLEN_SHIFT).min(10 * switch);
        let width = LEAST_WIDTH.load(Relaxed).saturating_mul(WIDEST).min(STALE);
        switch + stolen + width + self.late.load(Relaxed)
    }

    /// Sets the switches that the context which becomes current has seen, and the
    /// number of the run that it begins.
    pub(crate) fn set_switches(&self, switches: u64, run: u64) {
        let counted = switches & ((1 << COUNTING) - 1);
        self.switches.store(counted | run << COUNTING, Relaxed);
    }

    /// Shifts the clock, so that a context that was put aside reads on from
    /// where it stopped.
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

    /// Stops watching.
    pub(crate) fn stop(&self) {
        if self.kind.load(Relaxed) == ClockKind::Rseq as u64
            && let Some(word) = state().rseq.word()
            && word.load(Relaxed) == state().rseq.armed()
        {
            // The section must not be named by a thread whose library may go.
            word.store(0, Relaxed);
        }
        self.forget();
    }

    /// The same for a thread that is no more.
    pub(crate) fn forget(&self) {
        self.watch_nothing(0);
        self.release_page();
    }

    /// In a forked child, which the kernel gives no copy of the page: what was about to read
    /// it as the thread forked finds zeros there, and goes to the cold path.
    pub(crate) fn forget_in_child(&self) {
        self.watch_nothing(0);
        let page = self.perf_page.swap(0, Relaxed);
        if page != 0 {
            perf::stand_in(page);
        }
    }

    /// Brings `off` up to date after a switch, or whenever asked.
    #[cold]
    pub(crate) fn refresh(&self) -> Stamps {
        self.refresh_and_verify(false)
    }

    /// As [`Self::refresh`]. With `verify`, or after long enough, it also looks whether
    /// there was a switch that was not noticed.
    pub(crate) fn refresh_and_verify(&self, verify: bool) -> Stamps {
        let holder = marker::holder(&self.refreshing);
        if holder == Holder::Live {
            return Stamps::one(stamp());
        }
        let was_left = holder == Holder::Gone;
        if !was_left && !verify && self.is_disturbed() && self.is_armed() {
            // Nothing but that: there is no need to ask.
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
        // Until the end, so that whoever jumps out in between leaves it so.
        let disturbed = self.disturb();
        compiler_fence(SeqCst);
        let stamps = self.refresh_alone(verify, was_left);
        compiler_fence(SeqCst);
        self.clear_disturbed(disturbed, stamps.early);
        self.refreshing.store(0, Relaxed);
        stamps
    }

    /// The clock was looked at, and is to be believed unless it was disturbed again.
    fn clear_disturbed(&self, disturbed: u64, looked: u64) {
        // First, so that a handler that disturbs the clock after it has the last word.
        self.expect.store(self.armed.load(Relaxed), Relaxed);
        compiler_fence(SeqCst);
        let cleared = looked & !DISTURBED;
        if self.looked.compare_exchange(disturbed, cleared, Relaxed, Relaxed).is_err() {
            self.expect.store(NEVER, Relaxed);
        }
    }

    /// After a refresh that was cut off: completes what it had published.
    fn recover(&self) {
        let last = self.last_anchor();
        if self.off() == last.before.load(Relaxed) {
            self.off.fetch_add(last.more.load(Relaxed), Relaxed);
        }
        // It may have been about to take another one.
        self.asked.store(u64::MAX, Relaxed);
    }

    fn last_anchor(&self) -> &Anchor {
        &self.anchors[(self.anchored.load(Relaxed) & 1) as usize]
    }

    /// Publishes a reading of both clocks, with what there is more off the CPU.
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
        // In one instruction: the hooks of a signal handler shift it too.
        self.off.fetch_add(more, Relaxed);
    }

    /// `again` after one that was cut off, which may have seen a switch.
    fn refresh_alone(&self, verify: bool, again: bool) -> Stamps {
        if self.asked.load(Relaxed) != shared::kind() as u64 {
            self.take_source();
        }
        if self.kind.load(Relaxed) == ClockKind::Wall as u64 {
            return Stamps::one(stamp());
        }
        // Nothing is learned where the CPU time cannot be read; the next one tells.
        let Some(Reading { stamps, cpu_ns, switched }) = self.read_both() else {
            return Stamps::one(stamp());
        };
        let switched = switched || again;
        let last = self.last_anchor();
        let (last_ticks, last_ns) = (last.ticks.load(Relaxed), last.ns.load(Relaxed));
        let residue = last.residue.load(Relaxed);
        // No thread's CPU time runs backwards. This one belongs to a child in its
        // parent's memory, which the thread waits for: what it reads is not ours.
        if (cpu_ns.wrapping_sub(last_ns) as i64) < 0 {
            return stamps;
        }
        if last_ns == 0 {
            // It could not be read before: the thread's clock starts here.
            self.anchor(stamps.early, cpu_ns, residue, 0);
            return stamps;
        }
        let passed = stamps.early.wrapping_sub(last_ticks);
        let ran_ns = cpu_ns.saturating_sub(last_ns);
        let rate = source::ticks_per_ns_fixed();
        // In 2^-32 ticks, and signed: the two clocks are not read at one moment.
        let ran = i128::from(ran_ns) * i128::from(rate);
        let away = (i128::from(passed as i64) << 32) - ran;
        if away < -(tolerance(ran_ns) as i128) {
            // The thread ran longer than the counter did. Its own clock goes on with the
            // CPU time, so what is open loses nothing.
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
        // Time that was taken without a switch is off the CPU as well, but is none.
        if !switched {
            let late = self.late.load(Relaxed);
            self.late.store(late - (late >> LATE_SHIFT) + whole.min(STALE), Relaxed);
        } else if is_switch {
            self.switches.store(self.switches().wrapping_add(1), Relaxed);
            self.all_switches.store(self.all_switches().wrapping_add(1), Relaxed);
        }
        Stamps { missed, ..stamps }
    }

    /// Arms the word and reads counter and CPU time at nearly one moment: with no
    /// switch in between, and no interrupt or exit to a hypervisor either. Of
    /// those only the time tells; it would be charged to the region open now and
    /// taken from the next one.
    ///
    /// None where the CPU time cannot be read.
    fn read_both(&self) -> Option<Reading> {
        let mut width = u64::MAX;
        let mut read = None;
        let mut switched = false;
        for tried in 1..=TRIES {
            switched |= self.arm();
            compiler_fence(SeqCst);
            let early = stamp();
            let ns = source::cpu_time_ns()?;
            let late = stamp();
            // On the clock source that reads the CPU time always, the word tells nothing.
            let always = self.kind.load(Relaxed) == ClockKind::Cputime as u64;
            if !always && !self.is_armed() && tried < TRIES {
                // What was read before this switch is no good any more either.
                width = u64::MAX;
                continue;
            }
            if read.is_none() || late.wrapping_sub(early) < width {
                width = late.wrapping_sub(early);
                read = Some((Stamps { early, late, astray: false, missed: false }, ns));
            }
            let least = LEAST_WIDTH.load(Relaxed);
            // Neither of a counter that stands still.
            if (1..least).contains(&width) {
                // Not a read-modify-write: on the clock source that comes by at every
                // stamp, threads would fight for it, and a lost one does no harm.
                LEAST_WIDTH.store(width, Relaxed);
            }
            if width <= least.saturating_mul(WIDEST) {
                break;
            }
        }
        let (mut stamps, cpu_ns) = read?;
        if stamps.late.wrapping_sub(stamps.early) >= LONGEST_READING {
            // The counter jumped in between: what begins here begins where the thread's
            // clock was read.
            stamps.late = stamps.early;
            stamps.astray = true;
        }
        Some(Reading { stamps, cpu_ns, switched })
    }

    /// Arms the word, and tells whether the thread was switched out since it last was.
    fn arm(&self) -> bool {
        match ClockKind::from_word(self.kind.load(Relaxed)) {
            // In one instruction: a switch before it is told, one after it is in the word.
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

    /// Takes the clock source that the process uses, or the next lower one that this thread
    /// can have.
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
            // A value that the still word never has.
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
            // SAFETY: the address was stored by `take_source`, and its word is no
            // longer watched.
            unsafe { perf::Page::release(page) };
        }
    }
}
