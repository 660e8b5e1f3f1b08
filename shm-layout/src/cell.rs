//! The cell: one lane's statistics of one point, and how they are written and
//! read at the same time.
//!
//! ```text
//!   0 +--------------------------------------------------------------+
//!     | seq | control | count | exclusive | inclusive | squares 2x | |
//!     | last                                                         |  every end
//!  64 +--------------------------------------------------------------+
//!     | average | min | max | off_cpu | switches | owner | commit |  |
//!     | version                                                      |  some ends
//! 128 +--------------------------------------------------------------+
//!     | parts[42]: chunk number of each histogram part, 0 for none   |  once each
//! 296 | point                                                        |  never
//! 304 +--------------------------------------------------------------+
//!     | settled[2]: what was before, two copies, one in force        |  restarts
//!     | (of a shared cell: settled[1].past_*: what there ever was)   |  every end
//! 496 | amounts: chunk number of the sums of amounts, 0 for none      |  once
//! 504 +--------------------------------------------------------------+
//! ```
//!
//! One thread writes a cell, in place, between an odd and an even value of
//! `seq`; any number of readers copy it and know by `seq` whether the copy is
//! whole. There is no read-modify-write instruction.
//!
//! **Restart.** When the point was reset, or the lane has a new owner, the next
//! `begin` moves what the cell holds into `settled` and starts afresh. Because a
//! process can be killed between any two instructions, the sum is prepared in
//! the copy of `settled` that is not in force and then put in force by one store
//! to `commit`. From that store on the live figures are void until `version`
//! equals `commit` again. So at every instruction the sum of what a reader takes
//! is the truth.
//!
//! **The histogram is one behind.** What is counted with a measurement is the
//! bucket of the one before. The bucket of this one would be known only after the
//! counter was read and the octave was found, and a store whose address is known
//! that late holds up everything behind it: half of the floor on a Zen 4. The
//! address of the bucket before is known early. The last measurement is not
//! forgotten: its ticks are in `last`, and readers add it.
//!
//! The orderings come in named pairs:
//!
//! | site | meets | makes visible |
//! |---|---|---|
//! | `cell-open` fence | `cell-recheck` fence | a reader that saw any new figure sees the odd `seq`, and in the histogram all before it |
//! | `cell-close` store | `cell-recheck` fence | a reader that saw a measurement whole sees it in the histogram |
//! | `cell-close` store | `cell-enter` load | an even `seq` brings all figures before it |
//! | `cell-part` store | `cell-recheck` fence | the chunk is backed and zeroed |
//! | `cell-void` fence | `cell-recheck` fence | a reader that saw a zeroed bucket sees the new `commit` |
//! | `cell-commit` store | death | a copy in force is complete |
//! | `cell-void` fence | death | figures are zeroed only once they are void |
//! | `cell-version` store | death | figures that are not void were zeroed |
//!
//! Death is the end of a process that was killed: what it leaves in memory is
//! some set of its stores, closed under the order that the writer's side of
//! these pairs imposes. A reader who knows of the death needs no order of its
//! own, since nothing changes under its eyes; one who does not has `seq`.

use crate::amounts::{self, Amounts, SumWords, SumsPicture};
use crate::control::{ALPHA_BITS, Control};
use crate::histogram::PARTS;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence_at, ord};

/// In place of the last measurement's ticks: there is none. Beyond every
/// histogram.
pub const NO_LAST: u64 = u64::MAX;

/// Fraction bits of the exponential average as kept in a cell.
pub const AVERAGE_FRACTION_BITS: u32 = 16;

/// One lane's statistics of one point; see the module for the drawing.
///
/// Written by the lane's thread only.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Cell {
    seq: AtomicU64,
    control: AtomicU64,
    count: AtomicU64,
    exclusive: AtomicU64,
    inclusive: AtomicU64,
    squares_low: AtomicU64,
    squares_high: AtomicU64,
    last: AtomicU64,

    average: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
    off_cpu: AtomicU64,
    switches: AtomicU64,
    /// Generation of the lane's owner that the live figures are of.
    owner: AtomicU64,
    /// Number of restarts; its lowest bit tells the copy in force.
    commit: AtomicU64,
    /// The value of `commit` that the live figures belong to.
    version: AtomicU64,

    parts: [AtomicU32; PARTS],
    /// The point, constant; release-published before the cell is reachable.
    point: AtomicU64,

    settled: [Settled; 2],

    /// Chunk number of the sums of amounts, see [`crate::amounts`]; 0 for none.
    amounts: AtomicU64,
}

/// Figures that are no longer added to. Ticks where not said otherwise.
#[repr(C)]
#[derive(Debug)]
struct Settled {
    /// Reset epoch of the window, also of the live figures.
    epoch: AtomicU64,
    count: AtomicU64,
    exclusive: AtomicU64,
    inclusive: AtomicU64,
    off_cpu: AtomicU64,
    switches: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
    squares_low: AtomicU64,
    squares_high: AtomicU64,
    /// Measurements in windows that a reset has ended.
    /// In the second copy of a shared cell: measurements in all windows.
    past_count: AtomicU64,
    /// Exclusive ticks in windows that a reset has ended; as above.
    past_exclusive: AtomicU64,
}

/// Sums over measurements; ticks where not said otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sums {
    /// Finished measurements.
    pub count: u64,
    /// Ticks of the regions themselves.
    pub exclusive: u64,
    /// Ticks with nested regions, recursion counted once.
    pub inclusive: u64,
    /// Ticks between begin and end off the CPU.
    pub off_cpu: u64,
    /// Switches noticed between begin and end.
    pub switches: u64,
    /// Least exclusive ticks, `u64::MAX` while there is no measurement.
    pub min: u64,
    /// Most exclusive ticks.
    pub max: u64,
    /// Exclusive ticks of the last measurement.
    pub last: u64,
    /// Sum of the squares of exclusive ticks.
    pub squares: u128,
    /// Exponential average, in 2^-[`AVERAGE_FRACTION_BITS`] ticks.
    pub average_fixed: u64,
}

impl Default for Sums {
    fn default() -> Self {
        Self {
            count: 0,
            exclusive: 0,
            inclusive: 0,
            off_cpu: 0,
            switches: 0,
            min: u64::MAX,
            max: 0,
            last: 0,
            squares: 0,
            average_fixed: 0,
        }
    }
}

impl Sums {
    /// Adds what is added up, and keeps the extremes.
    pub fn merge(&mut self, other: &Self) {
        self.count = self.count.wrapping_add(other.count);
        self.exclusive = self.exclusive.wrapping_add(other.exclusive);
        self.inclusive = self.inclusive.wrapping_add(other.inclusive);
        self.off_cpu = self.off_cpu.wrapping_add(other.off_cpu);
        self.switches = self.switches.wrapping_add(other.switches);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.squares = self.squares.wrapping_add(other.squares);
    }

    /// Mean exclusive ticks; none without a measurement.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.exclusive as f64 / self.count as f64)
    }

    /// The exponential average in ticks, 0 while averaging is off.
    #[must_use]
    pub fn average(&self) -> f64 {
        self.average_fixed as f64 / f64::from(1u32 << AVERAGE_FRACTION_BITS)
    }

    /// Sample variance of exclusive ticks, `(S2 - S1^2 / n) / (n - 1)`; none
    /// below two measurements. The sums are exact integers, so the difference
    /// loses nothing.
    #[must_use]
    pub fn variance(&self) -> Option<f64> {
        if self.count < 2 {
            return None;
        }
        let (n, sum) = (u128::from(self.count), u128::from(self.exclusive));
        let (whole, rest) = (sum * sum / n, sum * sum % n);
        let spread = self.squares.saturating_sub(whole) as f64 - rest as f64 / n as f64;
        Some(spread.max(0.0) / (n - 1) as f64)
    }
}

/// What a cell held at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellPicture {
    /// The point the cell is of.
    pub point: u32,
    /// Reset epoch of the figures.
    pub epoch: u32,
    /// Generation of the lane's owner that `live` is of.
    pub owner: u32,
    /// Figures of that owner.
    pub live: Sums,
    /// Figures of owners before, in the same epoch.
    pub settled: Sums,
    /// Measurements in windows that a reset has ended.
    pub past_count: u64,
    /// Exclusive ticks in windows that a reset has ended.
    pub past_exclusive: u64,
    /// Chunk number of each histogram part, 0 for none.
    pub parts: Parts,
    /// Ticks of the last measurement, if the histogram does not count it yet. Of
    /// a shared cell it always does.
    pub uncounted: Option<u64>,
    /// Sums of amounts, of a cell that has them.
    pub amounts: SumsPicture,
    /// Number of restarts; a histogram read beside this picture is of the same
    /// window if the number is still the same afterwards.
    pub restarts: u64,
}

/// Chunk numbers of a histogram's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts(pub [u32; PARTS]);

impl Default for Parts {
    fn default() -> Self {
        Self([0; PARTS])
    }
}

/// The words of a cell that many threads write.
pub(crate) struct SharedWords<'a> {
    pub(crate) control: &'a AtomicU64,
    pub(crate) count: &'a AtomicU64,
    pub(crate) exclusive: &'a AtomicU64,
    pub(crate) inclusive: &'a AtomicU64,
    pub(crate) squares_low: &'a AtomicU64,
    pub(crate) squares_high: &'a AtomicU64,
    pub(crate) last: &'a AtomicU64,
    pub(crate) average: &'a AtomicU64,
    pub(crate) min: &'a AtomicU64,
    pub(crate) max: &'a AtomicU64,
    pub(crate) off_cpu: &'a AtomicU64,
    pub(crate) switches: &'a AtomicU64,
    pub(crate) epoch: &'a AtomicU64,
    pub(crate) ever_count: &'a AtomicU64,
    pub(crate) ever_exclusive: &'a AtomicU64,
}

/// How a cell was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellRead {
    /// The picture is whole.
    Whole,
    /// The writer was in the middle of a change; the picture is not whole.
    Torn,
}

/// One finished measurement, in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    /// Ticks of the region itself.
    pub exclusive: u64,
    /// The cell's inclusive total after this measurement.
    pub inclusive_total: u64,
    /// The time off the CPU between begin and end; none if there was none.
    pub away: Option<Away>,
}

/// Time off the CPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Away {
    /// Ticks.
    pub off_cpu: u64,
    /// Switches noticed.
    pub switches: u64,
}

impl Default for Cell {
    fn default() -> Self {
        Self::new()
    }
}

fn settled() -> Settled {
    Settled {
        epoch: AtomicU64::new(0),
        count: AtomicU64::new(0),
        exclusive: AtomicU64::new(0),
        inclusive: AtomicU64::new(0),
        off_cpu: AtomicU64::new(0),
        switches: AtomicU64::new(0),
        min: AtomicU64::new(0),
        max: AtomicU64::new(0),
        squares_low: AtomicU64::new(0),
        squares_high: AtomicU64::new(0),
        past_count: AtomicU64::new(0),
        past_exclusive: AtomicU64::new(0),
    }
}

impl Cell {
    /// A cell of zeros, as a cell in fresh shared memory is.
    #[must_use]
    pub fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            seq: zero(),
            control: zero(),
            count: zero(),
            exclusive: zero(),
            inclusive: zero(),
            squares_low: zero(),
            squares_high: zero(),
            last: zero(),
            average: zero(),
            min: zero(),
            max: zero(),
            off_cpu: zero(),
            switches: zero(),
            owner: zero(),
            commit: zero(),
            version: zero(),
            parts: core::array::from_fn(|_| AtomicU32::new(0)),
            point: zero(),
            settled: [settled(), settled()],
            amounts: zero(),
        }
    }

    // ---- writer: the lane's own thread ----

    /// Makes a zeroed cell one of a point, before the cell can be reached.
    pub fn prepare(&self, point: u32, control: Control, owner: u32) {
        self.point.store(u64::from(point), Ordering::Relaxed);
        for settled in &self.settled {
            settled.epoch.store(u64::from(control.epoch()), Ordering::Relaxed);
            settled.min.store(u64::MAX, Ordering::Relaxed);
        }
        self.min.store(u64::MAX, Ordering::Relaxed);
        self.forget_last();
        self.owner.store(u64::from(owner), Ordering::Relaxed);
        self.control.store(control.0, Ordering::Relaxed);
    }

    /// The control word that the cell follows.
    #[inline(always)]
    #[must_use]
    pub fn control(&self) -> Control {
        Control(self.control.load(Ordering::Relaxed))
    }

    /// The cell's inclusive total, for `begin` to remember: the end of the
    /// region sets the total to it plus the region's own span, which drops what
    /// recursion has added in between.
    #[inline(always)]
    #[must_use]
    pub fn inclusive_total(&self) -> u64 {
        self.inclusive.load(Ordering::Relaxed)
    }

    /// The point that the cell is of.
    #[inline(always)]
    #[must_use]
    pub fn point(&self) -> u32 {
        self.point.load(Ordering::Relaxed) as u32
    }

    /// Exclusive ticks of the last measurement, which the histogram does not
    /// count yet; [`NO_LAST`] if there is none.
    #[inline(always)]
    #[must_use]
    pub fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// How many measurements the cell has, for its owner.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The last measurement is counted in the histogram now.
    pub fn forget_last(&self) {
        self.last.store(NO_LAST, Ordering::Relaxed);
    }

    /// The owner leaves: the next one will find that the cell follows no control
    /// word, and make it its own.
    pub fn abandon(&self) {
        self.control.store(0, Ordering::Relaxed);
    }

    /// The chunk number of a histogram part, 0 for none.
    ///
    /// `part` is below [`PARTS`], as [`crate::histogram::locate`] gives it.
    #[inline(always)]
    #[must_use]
    pub fn part(&self, part: usize) -> u32 {
        debug_assert!(part < PARTS);
        // SAFETY: `locate` gives no part beyond the last for a duration below
        // its limit, which its callers have tested; a bounds test here would
        // only add to the hot path.
        unsafe { self.parts.get_unchecked(part) }.load(Ordering::Relaxed)
    }

    /// The same for a reader, which goes on to read the chunk.
    pub(crate) fn part_to_read(&self, part: usize) -> u32 {
        debug_assert!(part < PARTS);
        // Meets `cell-part`: the zeros that the chunk began with.
        self.parts.get(part).map_or(0, |part| part.load(Ordering::Acquire))
    }

    /// Gives a histogram part its chunk of zeros.
    pub fn set_part(&self, part: usize, chunk: u32) {
        // Meets `cell-recheck`, and the load in `part_to_read`.
        self.parts[part].store(chunk, ord!("cell-part", Release));
    }

    /// Records one measurement. `bucket` is that of the measurement before, see
    /// the module; none if there is none to count.
    #[inline(always)]
    pub fn record(&self, measured: Measurement, bucket: Option<&AtomicU64>) {
        self.record_under(self.control(), measured, bucket);
    }

    /// The same for a caller who has read the cell's control word already.
    #[inline(always)]
    pub fn record_under(
        &self,
        control: Control,
        measured: Measurement,
        bucket: Option<&AtomicU64>,
    ) {
        self.record_also(control, measured, bucket, || ());
    }

    /// The same of a region with amounts, for a cell that has the sums of them.
    #[inline(always)]
    pub fn record_amounts(
        &self,
        control: Control,
        measured: Measurement,
        bucket: Option<&AtomicU64>,
        (sums, amounts): (&SumWords, &Amounts),
    ) {
        self.record_also(control, measured, bucket, || amounts::add(sums, amounts));
    }

    #[inline(always)]
    fn record_also(
        &self,
        control: Control,
        measured: Measurement,
        bucket: Option<&AtomicU64>,
        also: impl FnOnce(),
    ) {
        let own = measured.exclusive;
        let seq = self.seq.load(Ordering::Relaxed);
        self.seq.store(seq + 1, Ordering::Relaxed);
        // Meets `cell-recheck`. It also keeps the ring's slot, which is filled
        // after this, behind the position published before: see `ring-reuse`.
        fence_at!("cell-open", Release);

        add(&self.exclusive, own);
        self.inclusive.store(measured.inclusive_total, Ordering::Relaxed);
        self.last.store(own, Ordering::Relaxed);

        // Exact integers instead of Welford's recurrence, whose division would
        // be the longest chain of all.
        let square = u128::from(own) * u128::from(own);
        let low = self.squares_low.load(Ordering::Relaxed);
        let (sum, carry) = low.overflowing_add(square as u64);
        self.squares_low.store(sum, Ordering::Relaxed);
        add(&self.squares_high, (square >> 64) as u64 + u64::from(carry));

        let alpha = i64::from(control.alpha_fixed());
        if alpha != 0 {
            // Another process may have written more than 1.
            let alpha = alpha.min(1 << ALPHA_BITS);
            let fixed = (own << AVERAGE_FRACTION_BITS) as i64;
            // The average starts at the first measurement instead of climbing up
            // from zero.
            let first = self.count.load(Ordering::Relaxed) == 0;
            let average = if first { fixed } else { self.average.load(Ordering::Relaxed) as i64 };
            let step = (i128::from(fixed - average) * i128::from(alpha)) >> ALPHA_BITS;
            self.average.store((average + step as i64) as u64, Ordering::Relaxed);
        }

        if own < self.min.load(Ordering::Relaxed) {
            self.min.store(own, Ordering::Relaxed);
        }
        if own > self.max.load(Ordering::Relaxed) {
            self.max.store(own, Ordering::Relaxed);
        }
        if let Some(away) = measured.away {
            add(&self.off_cpu, away.off_cpu);
            add(&self.switches, away.switches);
        }
        if let Some(bucket) = bucket {
            add(bucket, 1);
        }
        also();
        // Last: a process killed in here has not counted what it did not finish.
        add(&self.count, 1);

        // Meets `cell-enter`.
        self.seq.store(seq + 2, ord!("cell-close", Release));
    }

    /// Sets the inclusive total without a measurement, which is yet to come: that of a
    /// future grows with each of its polls.
    pub fn set_inclusive_total(&self, total: u64) {
        let seq = self.open();
        self.inclusive.store(total, Ordering::Relaxed);
        self.close(seq);
    }

    /// Counts the last measurement in its bucket, before its time: none if it has no
    /// bucket. A process killed in here says that it was in the middle, since then
    /// the histogram may have it twice.
    pub fn count_last(&self, bucket: Option<&AtomicU64>) {
        let seq = self.open();
        if let Some(bucket) = bucket {
            add(bucket, 1);
        }
        self.forget_last();
        self.close(seq);
    }

    /// Begins a change; what the sequence word was is for [`Self::close`].
    fn open(&self) -> u64 {
        let seq = self.seq.load(Ordering::Relaxed);
        // A process that was killed in the middle leaves an odd number, but no
        // thread to come by here.
        self.seq.store(seq + 1, Ordering::Relaxed);
        Self::opened();
        seq
    }

    /// Stands between the sequence word that says so and the change itself.
    fn opened() {
        // Meets `cell-recheck`.
        fence_at!("cell-open", Release);
    }

    /// Ends a change. Meets `cell-enter`.
    fn close(&self, seq: u64) {
        self.seq.store(seq + 2, ord!("cell-close", Release));
    }

    /// Follows a new control word, and a new owner of the lane: starts afresh if
    /// the point was reset or the owner has changed. `clear` is called for each
    /// histogram part that has to be zeroed, with its chunk number. The caller
    /// has counted the last measurement in the histogram, see [`Self::count_last`].
    pub fn follow(&self, control: Control, owner: u32, clear: impl FnMut(u32)) {
        self.follow_with(control, owner, None, clear);
    }

    /// The same for a cell that has the sums of amounts.
    pub fn follow_with(
        &self,
        control: Control,
        owner: u32,
        sums: Option<&SumWords>,
        mut clear: impl FnMut(u32),
    ) {
        let seq = self.open();
        // Not the epoch of `control`, which an owner takes along.
        let commit = self.commit.load(Ordering::Relaxed);
        let epoch = self.settled[(commit & 1) as usize].epoch.load(Ordering::Relaxed);
        let reset = u64::from(control.epoch()) != epoch;
        let moved = u64::from(owner) != self.owner.load(Ordering::Relaxed);
        if reset || moved {
            let (mut settled, mut past) = self.settled_sums(commit);
            let live = self.live_sums();
            settled.merge(&live);
            if reset {
                past.0 = past.0.wrapping_add(settled.count);
                past.1 = past.1.wrapping_add(settled.exclusive);
                settled = Sums::default();
            }
            self.settle(commit + 1, control.epoch(), &settled, past);
            if let Some(sums) = sums {
                amounts::settle(sums, commit + 1, reset);
            }
            // Meets death: the copy is complete before it is in force.
            self.commit.store(commit + 1, ord!("cell-commit", Release));
            // Meets `cell-recheck`, and death: nothing is zeroed, here or in
            // the histogram, before the live figures are void.
            fence_at!("cell-void", Release);

            if reset {
                self.for_each_part(&mut clear);
            }
            if let Some(sums) = sums {
                amounts::clear(sums);
            }
            self.clear_live();
            self.owner.store(u64::from(owner), Ordering::Relaxed);
            self.put_in_force(commit + 1);
        } else if control.alpha_fixed() != 0 && self.control().alpha_fixed() == 0 {
            // Averaging was just switched on: start at the mean so far.
            let count = self.count.load(Ordering::Relaxed).max(1);
            let mean = self.exclusive.load(Ordering::Relaxed) / count;
            self.average.store(mean << AVERAGE_FRACTION_BITS, Ordering::Relaxed);
        } else if control.alpha_fixed() == 0 {
            self.average.store(0, Ordering::Relaxed);
        }
        self.control.store(control.0, Ordering::Relaxed);
        self.close(seq);
    }

    fn clear_live(&self) {
        for word in [
            &self.count,
            &self.exclusive,
            &self.inclusive,
            &self.squares_low,
            &self.squares_high,
            &self.average,
            &self.max,
            &self.off_cpu,
            &self.switches,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        self.min.store(u64::MAX, Ordering::Relaxed);
        self.forget_last();
    }

    /// Ends a change that was cut off in the middle and that nobody will go on with, as a
    /// jump out of a signal handler leaves one. What it had not counted stays uncounted, and
    /// the histogram has as many measurements as are counted. A restart that was in force
    /// is brought to its end.
    ///
    /// `held` has the measurements in a histogram part, and `clear` zeroes it.
    pub fn mend(
        &self,
        sums: Option<&SumWords>,
        mut held: impl FnMut(u32) -> u64,
        mut clear: impl FnMut(u32),
    ) {
        let seq = self.seq.load(Ordering::Relaxed);
        if seq & 1 == 0 {
            return;
        }
        // The cut may have been before this was done in `open`.
        Self::opened();
        let commit = self.commit.load(Ordering::Relaxed);
        let (settled, _) = self.settled_sums(commit);
        if self.version.load(Ordering::Relaxed) == commit {
            let counted = settled.count.wrapping_add(self.count.load(Ordering::Relaxed));
            let mut in_parts = 0u64;
            self.for_each_part(|chunk| in_parts = in_parts.wrapping_add(held(chunk)));
            // The last one is in its bucket, or whoever put it there is not counted.
            if in_parts >= counted {
                self.forget_last();
            }
        } else {
            // As in `follow_with`: only a reset leaves nothing settled.
            if settled.count == 0 {
                self.for_each_part(&mut clear);
            }
            if let Some(sums) = sums {
                amounts::clear(sums);
            }
            self.clear_live();
            self.put_in_force(commit);
        }
        self.close(seq - 1);
    }

    /// Has the live figures count beside the settled ones of that commit.
    fn put_in_force(&self, commit: u64) {
        // Meets death: figures that count are zeroed first.
        self.version.store(commit, ord!("cell-version", Release));
    }

    fn settle(&self, commit: u64, epoch: u32, sums: &Sums, past: (u64, u64)) {
        let settled = &self.settled[(commit & 1) as usize];
        let put = |word: &AtomicU64, value: u64| word.store(value, Ordering::Relaxed);
        put(&settled.epoch, u64::from(epoch));
        put(&settled.count, sums.count);
        put(&settled.exclusive, sums.exclusive);
        put(&settled.inclusive, sums.inclusive);
        put(&settled.off_cpu, sums.off_cpu);
        put(&settled.switches, sums.switches);
        put(&settled.min, sums.min);
        put(&settled.max, sums.max);
        put(&settled.squares_low, sums.squares as u64);
        put(&settled.squares_high, (sums.squares >> 64) as u64);
        put(&settled.past_count, past.0);
        put(&settled.past_exclusive, past.1);
    }

    // ---- reader: anybody ----

    /// Copies the cell once. A torn copy still holds what a dead process left:
    /// its count is of finished measurements only.
    pub fn read(&self, picture: &mut CellPicture) -> CellRead {
        self.read_with(picture, |_| None)
    }

    /// The same with the sums of amounts, which `find` finds by the number of their
    /// chunk.
    pub fn read_with<'a>(
        &self,
        picture: &mut CellPicture,
        find: impl FnOnce(u32) -> Option<&'a SumWords>,
    ) -> CellRead {
        // Meets `cell-close`.
        let before = self.seq.load(ord!("cell-enter", Acquire));
        let commit = self.commit.load(Ordering::Relaxed);
        let (settled, past) = self.settled_sums(commit);
        let settled_epoch = self.settled[(commit & 1) as usize].epoch.load(Ordering::Relaxed);
        let void = self.version.load(Ordering::Relaxed) != commit;
        picture.live = if void { Sums::default() } else { self.live_sums() };
        picture.amounts = self.amounts_sums(commit, void, find);
        let last = self.last.load(Ordering::Relaxed);
        picture.uncounted = (!void && last != NO_LAST).then_some(last);
        picture.parts = Parts::default();
        // Only a reset clears the histogram, and it leaves nothing settled.
        if !void || settled.count > 0 {
            for (to, from) in picture.parts.0.iter_mut().zip(&self.parts) {
                *to = from.load(Ordering::Relaxed);
            }
        }
        picture.owner = self.owner.load(Ordering::Relaxed) as u32;
        picture.point = self.point.load(Ordering::Relaxed) as u32;
        picture.epoch = settled_epoch as u32;
        picture.settled = settled;
        (picture.past_count, picture.past_exclusive) = past;
        picture.restarts = commit;
        // Meets `cell-open`: if any figure above was newer than `before`, the
        // load below sees at least the odd number that went before it. Meets
        // `cell-part` too, since nobody looks into a chunk before this.
        fence_at!("cell-recheck", Acquire);
        let after = self.seq.load(Ordering::Relaxed);
        if before == after && before & 1 == 0 { CellRead::Whole } else { CellRead::Torn }
    }

    /// Copies the live figures alone, behind the sequence word that goes with them, and
    /// the last measurement if the histogram does not count it yet: as long as nothing
    /// restarts, the rest is as it was. None if the cell was written to meanwhile, or
    /// has restarted since a picture with this number of restarts.
    pub fn read_live(&self, restarts: u64) -> Option<(u64, Sums, Option<u64>)> {
        let (sequence, live, last, _) = self.read_live_with(restarts, |_| None)?;
        Some((sequence, live, last))
    }

    /// The same with the sums of amounts, as in [`Self::read_with`].
    pub fn read_live_with<'a>(
        &self,
        restarts: u64,
        find: impl FnOnce(u32) -> Option<&'a SumWords>,
    ) -> Option<(u64, Sums, Option<u64>, SumsPicture)> {
        let looked = self.look(|| {
            let same = self.commit.load(Ordering::Relaxed) == restarts
                && self.version.load(Ordering::Relaxed) == restarts;
            let live = self.live_sums();
            let last = Some(self.last.load(Ordering::Relaxed)).filter(|&last| last != NO_LAST);
            let amounts = self.amounts_sums(restarts, false, find);
            same.then_some((live, last, amounts))
        });
        let (sequence, found) = looked?;
        let (live, last, amounts) = found?;
        Some((sequence, live, last, amounts))
    }

    /// The sums of amounts, of a cell that has them.
    fn amounts_sums<'a>(
        &self,
        commit: u64,
        void: bool,
        find: impl FnOnce(u32) -> Option<&'a SumWords>,
    ) -> SumsPicture {
        let sums = Some(self.amounts_to_read()).filter(|&chunk| chunk != 0).and_then(find);
        sums.map_or_else(SumsPicture::default, |sums| amounts::read(sums, commit, void))
    }

    /// The chunk number of the sums of amounts, 0 for none.
    #[inline(always)]
    #[must_use]
    pub fn amounts(&self) -> u32 {
        self.amounts.load(Ordering::Relaxed) as u32
    }

    /// The same for a reader, which goes on to read the chunk.
    pub(crate) fn amounts_to_read(&self) -> u32 {
        // Meets `cell-part`: the zeros that the chunk began with.
        self.amounts.load(Ordering::Acquire) as u32
    }

    /// Gives a cell the chunk of zeros for its sums of amounts, unless another
    /// thread was faster; returns the chunk that is in force.
    pub fn set_amounts(&self, chunk: u32) -> u32 {
        let won = self.amounts.compare_exchange(
            0,
            u64::from(chunk),
            ord!("cell-part", Release),
            Ordering::Relaxed,
        );
        won.map_or_else(|found| found as u32, |_| chunk)
    }

    /// Copies the words of the cell, as they lie in memory: `words` are the cell's
    /// own, and `sums` those of its sums of amounts. With a whole copy comes the
    /// number of restarts.
    pub(crate) fn copy(
        &self,
        (words, to): (&[AtomicU64], &mut [u64]),
        (sums, sums_to): (&[AtomicU64], &mut [u64]),
    ) -> Option<u64> {
        self.look(|| {
            let restarts = self.commit.load(Ordering::Relaxed);
            for (to, word) in sums_to.iter_mut().zip(sums) {
                *to = word.load(Ordering::Relaxed);
            }
            for (to, word) in to.iter_mut().zip(words) {
                *to = word.load(Ordering::Relaxed);
            }
            restarts
        })
        .map(|(_, restarts)| restarts)
    }

    /// What `read` reads while nothing is written, behind the sequence word; none if
    /// something was. It must look into no chunk.
    fn look<R>(&self, read: impl FnOnce() -> R) -> Option<(u64, R)> {
        // Meets `cell-close`.
        let before = self.seq.load(ord!("cell-enter", Acquire));
        let found = read();
        // Meets `cell-open`, as in `read`, and `cell-part`, for what looks into
        // chunks after this.
        fence_at!("cell-recheck", Acquire);
        let after = self.seq.load(Ordering::Relaxed);
        (before == after && before & 1 == 0).then_some((before, found))
    }

    /// The sequence word: equal and even at two readings means that nothing was
    /// written in between. Relaxed: it only tells whether to call
    /// [`Self::read`], which asks again; that a word never goes back is enough.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.seq.load(Ordering::Relaxed)
    }

    /// Looks at a word of each line of the live figures, so that they are near when
    /// they are read.
    #[must_use]
    pub(crate) fn fetch(&self) -> u64 {
        self.count.load(Ordering::Relaxed) ^ self.average.load(Ordering::Relaxed)
    }

    /// What a reader looks at after this is no older than what it has seen before:
    /// of the measurements that one thread has counted in a histogram, whoever has
    /// seen one sees those before it.
    pub fn look_further(&self) {
        // Meets `cell-open` of the measurement that was seen.
        fence_at!("cell-recheck", Acquire);
    }

    /// Whether the cell was restarted since a picture with this number of
    /// restarts. A reader asks after it has read the histogram.
    #[must_use]
    pub fn restarted_since(&self, restarts: u64) -> bool {
        // Meets `cell-void`, and `cell-open` of the next window's records.
        fence_at!("cell-recheck", Acquire);
        self.commit.load(Ordering::Relaxed) != restarts
    }

    // ---- for the shared writer, `crate::shared_cell` ----

    pub(crate) fn shared_words(&self) -> SharedWords<'_> {
        SharedWords {
            control: &self.control,
            count: &self.count,
            exclusive: &self.exclusive,
            inclusive: &self.inclusive,
            squares_low: &self.squares_low,
            squares_high: &self.squares_high,
            last: &self.last,
            average: &self.average,
            min: &self.min,
            max: &self.max,
            off_cpu: &self.off_cpu,
            switches: &self.switches,
            epoch: &self.settled[0].epoch,
            ever_count: &self.settled[1].past_count,
            ever_exclusive: &self.settled[1].past_exclusive,
        }
    }

    pub(crate) fn for_each_part(&self, mut visit: impl FnMut(u32)) {
        for part in &self.parts {
            let chunk = part.load(Ordering::Relaxed);
            if chunk != 0 {
                visit(chunk);
            }
        }
    }

    /// Gives a part of a shared cell its chunk, unless another thread was
    /// faster; returns the chunk that is in force.
    pub fn set_part_shared(&self, part: usize, chunk: u32) -> u32 {
        let won = self.parts[part].compare_exchange(
            0,
            chunk,
            ord!("cell-part", Release),
            Ordering::Relaxed,
        );
        won.map_or_else(|found| found, |_| chunk)
    }

    fn live_sums(&self) -> Sums {
        let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
        Sums {
            count: get(&self.count),
            exclusive: get(&self.exclusive),
            inclusive: get(&self.inclusive),
            off_cpu: get(&self.off_cpu),
            switches: get(&self.switches),
            min: get(&self.min),
            max: get(&self.max),
            last: Some(get(&self.last)).filter(|&last| last != NO_LAST).unwrap_or(0),
            squares: u128::from(get(&self.squares_high)) << 64 | u128::from(get(&self.squares_low)),
            average_fixed: get(&self.average),
        }
    }

    fn settled_sums(&self, commit: u64) -> (Sums, (u64, u64)) {
        let settled = &self.settled[(commit & 1) as usize];
        let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let sums = Sums {
            count: get(&settled.count),
            exclusive: get(&settled.exclusive),
            inclusive: get(&settled.inclusive),
            off_cpu: get(&settled.off_cpu),
            switches: get(&settled.switches),
            min: get(&settled.min),
            max: get(&settled.max),
            last: 0,
            squares: u128::from(get(&settled.squares_high)) << 64
                | u128::from(get(&settled.squares_low)),
            average_fixed: 0,
        };
        (sums, (get(&settled.past_count), get(&settled.past_exclusive)))
    }
}

/// `word += value` of a word that only this thread writes: a plain addition, not
/// a locked one.
#[inline(always)]
pub(crate) fn add(word: &AtomicU64, value: u64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
}

#[cfg(test)]
// By its path: `tests/loom` has this file as a module of another place.
#[path = "cell/tests.rs"]
mod tests;
