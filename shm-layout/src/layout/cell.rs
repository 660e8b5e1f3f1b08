//! The cell: one lane's statistics of one point, and how they are written and
//! read at the same time.
//!
//! ```text
//!   0 +--------------------------------------------------------------+
//!     | seq | control | commit | point | amounts                     |
//!  40 +--------------------------------------------------------------+
//!     | live[2]: count | exclusive | inclusive | squares 2x | last   |  a fold
//!     |          average | min | max | off_cpu | switches            |
//!     |          folded | version | owner                            |
//! 264 +--------------------------------------------------------------+
//!     | parts[42]: chunk number of each histogram part, 0 for none   |  once each
//! 432 +--------------------------------------------------------------+
//!     | settled[2]: what was before, two copies, one in force        |  restarts
//!     | (of a shared cell: settled[1].past_*: what there ever was)   |  every end
//! 624 +--------------------------------------------------------------+
//! ```
//!
//! A cell is a fold of its lane's ring ([`crate::layout::ring`]): it holds the records of its
//! point up to number `folded`, and whoever reads it adds the later ones.
//!
//! One thread writes a cell; any number of readers copy it. The live figures stand there
//! twice. A fold **stages** what it adds, writes it to the copy that is not in force, and
//! puts that in force by one store to `seq`, whose second bit tells which one that is. Its lowest bit
//! says that something is staged: then the histogram, of which there is one copy, may hold
//! some of what is being added. So the figures are whole at every instruction, whether the
//! writer goes on, is stopped in the middle, or is killed.
//!
//! **Restart.** When the point was reset, or the lane has a new owner, the next
//! `begin` moves what the cell holds into `settled` and starts afresh. The sum is prepared
//! in the copy of `settled` that is not in force and then put in force by one store
//! to `commit`. From that store on the live figures are void until those of the same
//! `version` are in force.
//!
//! The orderings come in named pairs:
//!
//! | site | meets | makes visible |
//! |---|---|---|
//! | `cell-open` fence | `cell-recheck` fence | a reader that saw any figure of a staged copy, or a new one in the histogram, sees the `seq` that went before it |
//! | `cell-close` store | `cell-enter` load | a copy in force is complete, and so is the histogram of an even `seq` |
//! | `cell-stage` store | `cell-enter` load | the copy in force beside a staged one is complete |
//! | `cell-commit` store | `cell-commit-seen` load | the settled copy in force is complete |
//! | `cell-part` store | `cell-recheck` fence | the chunk is backed and zeroed |
//! | `cell-void` fence | `cell-recheck` fence | a reader that saw a zeroed bucket sees the new `commit` |
//! | `cell-commit` store | death | a copy in force is complete |
//! | `cell-close` store | death | a copy in force is complete |
//!
//! Death is the end of a process that was killed: what it leaves in memory is
//! some set of its stores, closed under the order that the writer's side of
//! these pairs imposes.

use std::mem::offset_of;
use std::ops::Range;

use crate::layout::amounts::{self, Amounts, SumWords, SumsPicture};
use crate::layout::control::{ALPHA_BITS, Control};
use crate::layout::histogram::PARTS;
use crate::layout::ring::Added;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence_at, ord};

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
    /// Number of restarts; its lowest bit tells the copy of `settled` in force.
    commit: AtomicU64,
    /// The point, constant, and beside it [`KEPT_CPU`]; release-published before the cell is
    /// reachable.
    point: AtomicU64,
    /// Chunk number of the sums of amounts, see [`crate::layout::amounts`]; 0 for none.
    amounts: AtomicU64,
    live: [Live; 2],
    parts: [AtomicU32; PARTS],
    settled: [Settled; 2],
}

/// Figures that are added to. Ticks where not said otherwise.
#[repr(C)]
#[derive(Debug)]
struct Live {
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
    /// Records of the lane's ring up to here are in these figures.
    folded: AtomicU64,
    /// The number of restarts that these figures belong to.
    version: AtomicU64,
    /// Generation of the lane's owner that they are of.
    owner: AtomicU64,
}

/// In `seq`: something is staged.
const STAGED: u64 = 1;
/// What a copy in force adds to `seq`.
const FLIP: u64 = 2;

/// Beside the point's number: the minimum is of regions that kept the CPU.
const KEPT_CPU: u64 = 1 << 32;

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
    #[inline(always)]
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

    /// Adds a measurement under a control word, without its time off the CPU.
    #[inline(always)]
    pub fn add(&mut self, control: Control, exclusive: u64, inclusive: u64) {
        self.take_into_average(control, self.count == 0, exclusive);
        self.count = self.count.wrapping_add(1);
        self.exclusive = self.exclusive.wrapping_add(exclusive);
        self.inclusive = self.inclusive.wrapping_add(inclusive);
        self.min = self.min.min(exclusive);
        self.max = self.max.max(exclusive);
        self.last = exclusive;
        // Exact integers instead of Welford's recurrence, whose division would
        // be the longest chain of all.
        let square = u128::from(exclusive) * u128::from(exclusive);
        self.squares = self.squares.wrapping_add(square);
    }

    /// Adds what a record says, but for the average.
    #[inline(always)]
    pub fn add_short(&mut self, added: Added) {
        let exclusive = added.exclusive();
        self.count = self.count.wrapping_add(1);
        self.exclusive = self.exclusive.wrapping_add(exclusive);
        self.inclusive = self.inclusive.wrapping_add(added.inclusive());
        self.min = self.min.min(exclusive);
        self.max = self.max.max(exclusive);
        self.last = exclusive;
        // The square of 32 bits fits.
        self.squares = self.squares.wrapping_add(u128::from(exclusive * exclusive));
    }

    /// Adds what comes after these; the average has it already.
    #[inline(always)]
    pub fn append(&mut self, later: &Self) {
        self.merge(later);
        if later.count > 0 {
            self.last = later.last;
        }
    }

    /// With a minimum that is not above the mean: see [`Cell::credible`].
    #[must_use]
    #[inline(always)]
    fn consistent(mut self) -> Self {
        if let Some(mean) = self.exclusive.checked_div(self.count) {
            self.min = self.min.min(mean);
        }
        self
    }

    /// Moves the average by a measurement, the first one or not; the first part of
    /// [`Self::add`].
    #[inline(always)]
    pub fn take_into_average(&mut self, control: Control, is_first: bool, exclusive: u64) {
        let alpha = i64::from(control.alpha_fixed());
        if alpha != 0 {
            // The average starts at the first measurement instead of climbing up from zero.
            let before = (!is_first).then_some(self.average_fixed);
            self.average_fixed = averaged(before, exclusive, alpha);
        }
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
    /// Records of the lane's ring up to here are in `live`.
    pub folded: u64,
    /// Something is or was staged: the histogram may hold some of the records that follow.
    pub staged: bool,
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

/// What was found in the live figures.
struct Looked<R> {
    found: R,
    /// The sequence word that puts them in force.
    before: u64,
    /// Something was staged, or put in force meanwhile.
    staged: bool,
    /// They were not written to meanwhile.
    is_whole: bool,
}

/// How a cell was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellRead {
    /// The figures are of one moment.
    Whole,
    /// The cell was written to meanwhile.
    Torn,
}

/// One finished measurement, in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    /// Ticks of the region itself.
    pub exclusive: u64,
    /// Ticks with nested regions, less what nested regions of the point have added.
    pub inclusive: u64,
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

fn zero() -> AtomicU64 {
    AtomicU64::new(0)
}

fn live() -> Live {
    Live {
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
        folded: zero(),
        version: zero(),
        owner: zero(),
    }
}

fn settled() -> Settled {
    Settled {
        epoch: zero(),
        count: zero(),
        exclusive: zero(),
        inclusive: zero(),
        off_cpu: zero(),
        switches: zero(),
        min: zero(),
        max: zero(),
        squares_low: zero(),
        squares_high: zero(),
        past_count: zero(),
        past_exclusive: zero(),
    }
}

impl Live {
    #[inline(always)]
    fn put(&self, sums: &Sums) {
        for (word, value) in [
            (&self.count, sums.count),
            (&self.exclusive, sums.exclusive),
            (&self.inclusive, sums.inclusive),
            (&self.squares_low, sums.squares as u64),
            (&self.squares_high, (sums.squares >> 64) as u64),
            (&self.last, sums.last),
            (&self.average, sums.average_fixed),
            (&self.min, sums.min),
            (&self.max, sums.max),
            (&self.off_cpu, sums.off_cpu),
            (&self.switches, sums.switches),
        ] {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// The figures.
    #[inline(always)]
    fn sums(&self) -> Sums {
        let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
        Sums {
            count: get(&self.count),
            exclusive: get(&self.exclusive),
            inclusive: get(&self.inclusive),
            off_cpu: get(&self.off_cpu),
            switches: get(&self.switches),
            min: get(&self.min),
            max: get(&self.max),
            last: get(&self.last),
            squares: u128::from(get(&self.squares_high)) << 64 | u128::from(get(&self.squares_low)),
            average_fixed: get(&self.average),
        }
    }
}

/// The exponential average after a measurement of so many ticks; see
/// [`AVERAGE_FRACTION_BITS`]. `alpha` is in 2^-[`ALPHA_BITS`].
fn averaged(before: Option<u64>, ticks: u64, alpha: i64) -> u64 {
    // Another process may have written more than 1.
    let alpha = alpha.min(1 << ALPHA_BITS);
    let fixed = (ticks << AVERAGE_FRACTION_BITS) as i64;
    let average = before.map_or(fixed, |before| before as i64);
    let step = (i128::from(fixed - average) * i128::from(alpha)) >> ALPHA_BITS;
    (average + step as i64) as u64
}

impl Cell {
    /// A cell of zeros, as a cell in fresh shared memory is.
    #[must_use]
    pub fn new() -> Self {
        Self {
            seq: zero(),
            control: zero(),
            commit: zero(),
            point: zero(),
            amounts: zero(),
            live: [live(), live()],
            parts: core::array::from_fn(|_| AtomicU32::new(0)),
            settled: [settled(), settled()],
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
        let live = self.in_force(0);
        live.min.store(u64::MAX, Ordering::Relaxed);
        live.owner.store(u64::from(owner), Ordering::Relaxed);
        self.control.store(control.0, Ordering::Relaxed);
    }

    /// The control word that the cell follows.
    #[inline(always)]
    #[must_use]
    pub fn control(&self) -> Control {
        Control(self.control.load(Ordering::Relaxed))
    }

    /// The point that the cell is of.
    #[inline(always)]
    #[must_use]
    pub fn point(&self) -> u32 {
        self.point.load(Ordering::Relaxed) as u32
    }

    /// The owner leaves: the next one will find that the cell follows no control
    /// word, and make it its own.
    pub fn abandon(&self) {
        self.control.store(0, Ordering::Relaxed);
    }

    /// The chunk number of a histogram part, 0 for none.
    ///
    /// `part` is below [`PARTS`], as [`crate::layout::histogram::locate`] gives it.
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

    /// The copy of the live figures that a sequence word puts in force.
    #[inline(always)]
    fn in_force(&self, seq: u64) -> &Live {
        &self.live[((seq / FLIP) & 1) as usize]
    }

    /// The live figures, to be added to and put in force by [`Self::put_in_force`]. What is
    /// added meanwhile to the histogram belongs to them.
    #[inline(always)]
    pub fn stage(&self) -> Sums {
        let seq = self.seq.load(Ordering::Relaxed);
        self.mark_staged(seq);
        self.in_force(seq).sums()
    }

    #[inline(always)]
    fn mark_staged(&self, seq: u64) {
        // Nobody else stages: what is staged already was left by a jump. Meets `cell-enter`.
        self.seq.store(seq | STAGED, ord!("cell-stage", Release));
        // Meets `cell-recheck`.
        fence_at!("cell-open", Release);
    }

    /// Puts figures in force, which hold the lane's records up to a number.
    ///
    /// `sums` are the sums of amounts of a cell that has them.
    #[inline(always)]
    pub fn put_in_force(&self, live: &Sums, sums: Option<&SumWords>, folded: u64) {
        let seq = self.seq.load(Ordering::Relaxed);
        if let Some(sums) = sums {
            amounts::stage(sums, seq / FLIP);
        }
        let (commit, owner) = self.window(seq);
        self.put(seq, live, folded, (commit, owner));
    }

    /// The number of restarts that the figures in force belong to, and their owner.
    #[inline(always)]
    fn window(&self, seq: u64) -> (u64, u64) {
        let live = self.in_force(seq);
        (live.version.load(Ordering::Relaxed), live.owner.load(Ordering::Relaxed))
    }

    /// Meets `cell-enter`, and death.
    #[inline(always)]
    fn put(&self, seq: u64, live: &Sums, folded: u64, (version, owner): (u64, u64)) {
        let staged = self.in_force(seq + FLIP);
        staged.put(live);
        staged.folded.store(folded, Ordering::Relaxed);
        staged.version.store(version, Ordering::Relaxed);
        staged.owner.store(owner, Ordering::Relaxed);
        self.seq.store((seq | STAGED) + STAGED, ord!("cell-close", Release));
    }

    /// The ticks by which a region of so many exclusive ones counts in the extremes and the
    /// histogram if it was off the CPU, and how long that was is known no better than `error`.
    ///
    /// Some of the time off the CPU is learnt late, too, so such a region may be told as nothing
    /// at all. Sums are right, since another region has that time too much. What is told as
    /// nothing, or as so little less than the shortest region that kept the CPU, counts as that.
    #[must_use]
    pub fn credible(&self, exclusive: u64, error: u64) -> u64 {
        if self.point.load(Ordering::Relaxed) & KEPT_CPU == 0 {
            return exclusive;
        }
        let live = self.in_force(self.seq.load(Ordering::Relaxed));
        let least = live.min.load(Ordering::Relaxed);
        let is_near = (exclusive..=exclusive.saturating_add(error)).contains(&least);
        if is_near || exclusive == 0 { least } else { exclusive }
    }

    /// A region that kept the CPU comes: from the first one on, the minimum is of such.
    #[inline(always)]
    pub fn keep_minimum(&self, live: &mut Sums) {
        let point = self.point.load(Ordering::Relaxed);
        if point & KEPT_CPU == 0 {
            self.point.store(point | KEPT_CPU, Ordering::Relaxed);
            live.min = u64::MAX;
        }
    }

    /// Records one measurement, in its bucket too if it has one; the lane's records up to
    /// `folded` are in the cell, then. The cell has no sums of amounts.
    pub fn record(&self, measured: Measurement, bucket: Option<&AtomicU64>, folded: u64) {
        self.record_amounts(measured, bucket, None, folded);
    }

    /// Records one measurement in a cell that may have sums of amounts, with the region's amounts.
    pub fn record_amounts(
        &self,
        measured: Measurement,
        bucket: Option<&AtomicU64>,
        sums: Option<(&SumWords, &Amounts)>,
        folded: u64,
    ) {
        self.record_as(measured, (measured.exclusive, false), bucket, sums, folded);
    }

    /// The same of a region that counts by as many ticks in the extremes and the histogram; and
    /// whether it kept the CPU, see [`Self::keep_minimum`].
    pub fn record_as(
        &self,
        measured: Measurement,
        (credible, kept_cpu): (u64, bool),
        bucket: Option<&AtomicU64>,
        sums: Option<(&SumWords, &Amounts)>,
        folded: u64,
    ) {
        let seq = self.seq.load(Ordering::Relaxed);
        self.mark_staged(seq);
        let mut live = self.in_force(seq).sums();
        if kept_cpu {
            self.keep_minimum(&mut live);
        }
        let (min, max) = (live.min.min(credible), live.max.max(credible));
        live.add(self.control(), measured.exclusive, measured.inclusive);
        (live.min, live.max, live.last) = (min, max, credible);
        if let Some(away) = measured.away {
            live.off_cpu = live.off_cpu.wrapping_add(away.off_cpu);
            live.switches = live.switches.wrapping_add(away.switches);
        }
        if let Some((sums, amounts)) = sums {
            amounts::add(sums, seq / FLIP, amounts);
        }
        // Before the bucket, for `mend`.
        self.in_force(seq + FLIP).last.store(live.last, Ordering::Relaxed);
        if let Some(bucket) = bucket {
            add(bucket, 1);
        }
        self.put(seq, &live, folded, self.window(seq));
    }

    /// Follows a new control word, and a new owner of the lane: starts afresh if
    /// the point was reset or the owner has changed. `clear` is called for each
    /// histogram part that has to be zeroed, with its chunk number. The lane has no
    /// records that are not folded.
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
        let seq = self.seq.load(Ordering::Relaxed);
        self.mark_staged(seq);
        let mut live = self.in_force(seq).sums();
        let folded = self.in_force(seq).folded.load(Ordering::Relaxed);
        let window = self.window(seq);
        // Not the epoch of `control`, which an owner takes along.
        let commit = self.commit.load(Ordering::Relaxed);
        let epoch = self.settled[(commit & 1) as usize].epoch.load(Ordering::Relaxed);
        let reset = u64::from(control.epoch()) != epoch;
        let moved = u64::from(owner) != window.1;
        if reset || moved {
            let (mut settled, mut past) = self.settled_sums(commit);
            settled.merge(&live);
            if reset {
                past.0 = past.0.wrapping_add(settled.count);
                past.1 = past.1.wrapping_add(settled.exclusive);
                settled = Sums::default();
            }
            self.settle(commit + 1, control.epoch(), &settled, past);
            if let Some(sums) = sums {
                amounts::settle(sums, (seq / FLIP, commit + 1), reset);
            }
            // Meets `cell-commit-seen`, and death: the copy is complete before it is in force.
            self.commit.store(commit + 1, ord!("cell-commit", Release));
            // Meets `cell-recheck`: nothing is zeroed in the histogram before the live
            // figures are void.
            fence_at!("cell-void", Release);
            self.control.store(control.0, Ordering::Relaxed);
            return self.restart(seq, u64::from(owner), sums, reset, &mut clear);
        }
        if control.alpha_fixed() == 0 {
            live.average_fixed = 0;
        } else if self.control().alpha_fixed() == 0 {
            // Averaging was just switched on: start at the mean so far.
            live.average_fixed = (live.exclusive / live.count.max(1)) << AVERAGE_FRACTION_BITS;
        }
        if let Some(sums) = sums {
            amounts::stage(sums, seq / FLIP);
        }
        self.control.store(control.0, Ordering::Relaxed);
        self.put(seq, &live, folded, window);
    }

    /// Puts the empty figures of a window in force; what came before is settled.
    fn restart(
        &self,
        seq: u64,
        owner: u64,
        sums: Option<&SumWords>,
        reset: bool,
        clear: &mut impl FnMut(u32),
    ) {
        if reset {
            self.for_each_part(clear);
        }
        if let Some(sums) = sums {
            amounts::clear(sums, seq / FLIP + 1);
        }
        self.point.store(u64::from(self.point()), Ordering::Relaxed);
        let folded = self.in_force(seq).folded.load(Ordering::Relaxed);
        let commit = self.commit.load(Ordering::Relaxed);
        self.put(seq, &Sums::default(), folded, (commit, owner));
    }

    /// Ends a change that was cut off in the middle and that nobody will go on with, as a
    /// jump out of a signal handler leaves one: what was staged is dropped, and a restart
    /// is brought to its end. `held` has the measurements in a histogram part, and `clear`
    /// zeroes it.
    ///
    /// Returns how many measurements the histogram holds of what was dropped, if any was, and
    /// the ticks of the last one: the caller takes them out, and then calls [`Self::mended`].
    pub fn mend(
        &self,
        sums: Option<&SumWords>,
        mut held: impl FnMut(u32) -> u64,
        mut clear: impl FnMut(u32),
    ) -> (u64, u64) {
        let seq = self.seq.load(Ordering::Relaxed);
        if seq & STAGED == 0 {
            return (0, 0);
        }
        let last = self.in_force(seq + FLIP).last.load(Ordering::Relaxed);
        // It may have been cut off before this was done.
        self.mark_staged(seq);
        let (version, owner) = self.window(seq);
        let commit = self.commit.load(Ordering::Relaxed);
        let (settled, _) = self.settled_sums(commit);
        if version != commit {
            // As in `follow_with`: only a reset leaves nothing settled.
            self.restart(seq, owner, sums, settled.count == 0, &mut clear);
            return (0, 0);
        }
        let counted = settled.count.wrapping_add(self.in_force(seq).count.load(Ordering::Relaxed));
        let mut in_parts = 0u64;
        self.for_each_part(|chunk| in_parts = in_parts.wrapping_add(held(chunk)));
        (in_parts.saturating_sub(counted), last)
    }

    /// How many records of the lane's ring are in the figures in force, for its owner.
    #[must_use]
    pub fn folded(&self) -> u64 {
        self.in_force(self.seq.load(Ordering::Relaxed)).folded.load(Ordering::Relaxed)
    }

    /// Ends [`Self::mend`], if it was needed.
    pub fn mended(&self, sums: Option<&SumWords>) {
        if self.seq.load(Ordering::Relaxed) & STAGED != 0 {
            self.put_in_force(&self.stage(), sums, self.folded());
        }
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

    /// Copies the cell once.
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
        let commit = self.restarts();
        let (settled, past) = self.settled_sums(commit);
        let settled = settled.consistent();
        picture.epoch = self.settled[(commit & 1) as usize].epoch.load(Ordering::Relaxed) as u32;
        picture.point = self.point.load(Ordering::Relaxed) as u32;
        (picture.past_count, picture.past_exclusive) = past;
        picture.restarts = commit;
        for (to, from) in picture.parts.0.iter_mut().zip(&self.parts) {
            *to = from.load(Ordering::Relaxed);
        }
        let looked = self.look(|live, copy| {
            let void = live.version.load(Ordering::Relaxed) != commit;
            picture.live = if void { Sums::default() } else { live.sums().consistent() };
            picture.amounts = self.amounts_sums((copy, commit), void, find);
            picture.folded = live.folded.load(Ordering::Relaxed);
            picture.owner = live.owner.load(Ordering::Relaxed) as u32;
            void
        });
        // Only a reset clears the histogram, and it leaves nothing settled.
        if looked.found && settled.count == 0 {
            picture.parts = Parts::default();
        }
        picture.settled = settled;
        picture.staged = looked.staged;
        // No restart came in between.
        let same = looked.is_whole && self.commit.load(Ordering::Relaxed) == commit;
        if same { CellRead::Whole } else { CellRead::Torn }
    }

    /// Copies the live figures alone, with the sums of amounts and the number of records that
    /// they hold, behind the sequence word that goes with them: as long as nothing restarts,
    /// the rest is as it was. None if the cell was written to meanwhile, has something staged,
    /// or has restarted since a picture with this number of restarts.
    #[inline]
    pub fn read_live<'a>(
        &self,
        restarts: u64,
        find: impl FnOnce(u32) -> Option<&'a SumWords>,
    ) -> Option<(u64, Sums, u64, SumsPicture)> {
        let looked = self.look(|live, copy| {
            let same = self.commit.load(Ordering::Relaxed) == restarts
                && live.version.load(Ordering::Relaxed) == restarts;
            let amounts = self.amounts_sums((copy, restarts), false, find);
            same.then(|| (live.sums().consistent(), live.folded.load(Ordering::Relaxed), amounts))
        });
        let (live, folded, amounts) = looked.found.filter(|_| !looked.staged)?;
        Some((looked.before, live, folded, amounts))
    }

    /// The sums of amounts, of a cell that has them.
    #[inline]
    fn amounts_sums<'a>(
        &self,
        copies: (u64, u64),
        void: bool,
        find: impl FnOnce(u32) -> Option<&'a SumWords>,
    ) -> SumsPicture {
        let sums = Some(self.amounts_to_read()).filter(|&chunk| chunk != 0).and_then(find);
        sums.map_or_else(SumsPicture::default, |sums| amounts::read(sums, copies, void))
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
    /// own, and `sums` those of its sums of amounts. What is staged is not whole in it. With a
    /// whole copy comes the number of restarts.
    pub(crate) fn copy(
        &self,
        (words, to): (&[AtomicU64], &mut [u64]),
        (sums, sums_to): (&[AtomicU64], &mut [u64]),
    ) -> Option<u64> {
        const LIVE: Range<usize> = offset_of!(Cell, live) / 8..offset_of!(Cell, parts) / 8;
        let copy = |to: &mut [u64], words: &[AtomicU64]| {
            for (to, word) in to.iter_mut().zip(words) {
                *to = word.load(Ordering::Relaxed);
            }
        };
        let restarts = self.restarts();
        copy(to, words);
        let looked = self.look(|_, _| {
            copy(&mut to[LIVE], &words[LIVE]);
            copy(sums_to, sums);
        });
        // The copy in force is the one that was.
        to[0] = looked.before;
        let same = looked.is_whole && self.commit.load(Ordering::Relaxed) == restarts;
        same.then_some(restarts)
    }

    /// The number of restarts.
    fn restarts(&self) -> u64 {
        // Meets `cell-commit`.
        self.commit.load(ord!("cell-commit-seen", Acquire))
    }

    /// What `read` reads of the live figures in force, whose copy has that number, and whether
    /// they were whole all the while. It must look into no chunk.
    #[inline]
    fn look<R>(&self, read: impl FnOnce(&Live, u64) -> R) -> Looked<R> {
        // Meets `cell-close` and `cell-stage`.
        let before = self.seq.load(ord!("cell-enter", Acquire));
        let found = read(self.in_force(before), before / FLIP);
        // Meets `cell-open`: if any figure above was newer than `before`, the
        // load below sees at least the word that went before it. Meets
        // `cell-part` too, since nobody looks into a chunk before this.
        fence_at!("cell-recheck", Acquire);
        let after = self.seq.load(Ordering::Relaxed);
        let staged = before != after || before & STAGED != 0;
        // The next copy may be in force by now: this one is written to once it is staged.
        let is_whole = after.wrapping_sub(before & !STAGED) <= FLIP;
        Looked { found, before, staged, is_whole }
    }

    /// The sequence word: equal and even at two readings means that nothing was
    /// written in between. Relaxed: it only tells whether to call
    /// [`Self::read`], which asks again; that a word never goes back is enough.
    #[inline]
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.seq.load(Ordering::Relaxed)
    }

    /// Exclusive ticks of a measurement that is staged and in no record. It is in the
    /// histogram only after that.
    pub(crate) fn staged_beside(&self) -> u64 {
        let seq = self.seq.load(Ordering::Relaxed);
        self.in_force(seq.wrapping_add(FLIP)).last.load(Ordering::Relaxed)
    }

    /// Whether the cell still has this sequence word, and had it while the histogram was
    /// read.
    #[inline]
    #[must_use]
    pub fn is_still(&self, sequence: u64) -> bool {
        // Meets `cell-open`.
        fence_at!("cell-recheck", Acquire);
        self.seq.load(Ordering::Relaxed) == sequence
    }

    /// Where the words lie that [`Self::read_live`] reads of the copy that a sequence word puts
    /// in force.
    pub(crate) fn live_range(&self, sequence: u64) -> Range<*const u8> {
        let live = self.in_force(sequence);
        let first = std::ptr::from_ref(&live.count).cast::<u8>();
        first..std::ptr::from_ref(&live.version).wrapping_add(1).cast::<u8>()
    }

    /// Whether the cell was restarted since a picture with this number of
    /// restarts. A reader asks after it has read the histogram.
    #[must_use]
    pub fn restarted_since(&self, restarts: u64) -> bool {
        // Meets `cell-void`, and `cell-open` of the next window's records.
        fence_at!("cell-recheck", Acquire);
        self.commit.load(Ordering::Relaxed) != restarts
    }

    // ---- for the shared writer, `crate::layout::shared_cell` ----

    /// The words that many threads write: those of the first copy, which stays in force.
    pub(crate) fn shared_words(&self) -> SharedWords<'_> {
        let live = &self.live[0];
        SharedWords {
            control: &self.control,
            count: &live.count,
            exclusive: &live.exclusive,
            inclusive: &live.inclusive,
            squares_low: &live.squares_low,
            squares_high: &live.squares_high,
            last: &live.last,
            average: &live.average,
            min: &live.min,
            max: &live.max,
            off_cpu: &live.off_cpu,
            switches: &live.switches,
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
pub fn add(word: &AtomicU64, value: u64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
}

#[cfg(test)]
// By its path: `tests/loom` has this file as a module of another place.
#[path = "cell/tests.rs"]
mod tests;
