//! The cell: one lane's statistics of one point, and how they are written and
//! read at the same time.
//!
//! ```text
//!   0 +--------------------------------------------------------------+
//!     | seq | control | commit | point | amounts                     |
//!  40 | parts[42]: chunk number of each histogram part, 0 for none   |  once each
//! 208 | rare[2]: squares, upper half | average | off_cpu | switches  |  seldom
//!     |          version | owner                                     |
//! 320 +--------------------------------------------------------------+
//!     | live[2]: count | exclusive | inclusive | squares | last      |  a fold
//!     |          min | max | folded                                  |
//! 448 +--------------------------------------------------------------+
//!     | retired[2]: what was before, two copies, one in force        |  restarts
//!     | (of a shared cell: retired[1].past_*: what there ever was)   |  every end
//! 640 +--------------------------------------------------------------+
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
//! Each copy of the live figures is a cache line of what every fold changes, and some rare words. As
//! long as the copies agree in those, a fold of one record leaves them alone.
//!
//! **Restart.** When the point was reset, or the lane has a new owner, the next
//! `begin` moves what the cell holds into `retired` and starts afresh. The sum is prepared
//! in the copy of `retired` that is not in force and then put in force by one store
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
//! | `cell-commit` store | `cell-commit-seen` load | the retired copy in force is complete |
//! | `cell-part` store | `cell-recheck` fence | the chunk is backed and zeroed |
//! | `cell-void` fence | `cell-recheck` fence | a reader that saw a zeroed bucket sees the new `commit` |
//! | `cell-commit` store | death | a copy in force is complete |
//! | `cell-close` store | death | a copy in force is complete |
//!
//! Death is the end of a process that was killed: what it leaves in memory is
//! some set of its stores, closed under the order that the writer's side of
//! these pairs imposes.

mod read;
mod sums;

use core::mem::offset_of;

use crate::layout::amounts::{self, Amounts, SumWords};
use crate::layout::control::Control;
use crate::layout::histogram::PARTS;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence_at, ord};

pub use read::{CellPicture, CellRead, Parts};
pub use sums::{AVERAGE_FRACTION_BITS, Sums, variance};

/// One lane's statistics of one point; see the module for the drawing.
///
/// Written by the lane's thread only.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Cell {
    seq: AtomicU64,
    control: AtomicU64,
    /// Number of restarts; its lowest bit tells the copy of `retired` in force.
    commit: AtomicU64,
    /// The point, constant, and beside it [`KEPT_CPU`]; release-published before the cell is
    /// reachable.
    point: AtomicU64,
    /// Chunk number of the sums of amounts, see [`crate::layout::amounts`]; 0 for none.
    amounts: AtomicU64,
    parts: [AtomicU32; PARTS],
    rare: [Rare; 2],
    live: [Live; 2],
    retired: [Retired; 2],
}

/// Figures that each fold adds to. Ticks where not said otherwise.
#[repr(C, align(64))]
#[derive(Debug)]
struct Live {
    count: AtomicU64,
    exclusive: AtomicU64,
    inclusive: AtomicU64,
    squares_low: AtomicU64,
    last: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
    /// Records of the lane's ring up to here are in these figures.
    folded: AtomicU64,
}

/// Live figures that seldom change.
#[repr(C)]
#[derive(Debug)]
struct Rare {
    squares_high: AtomicU64,
    average: AtomicU64,
    off_cpu: AtomicU64,
    switches: AtomicU64,
    /// The number of restarts that these figures belong to.
    version: AtomicU64,
    /// Generation of the lane's owner that they are of.
    owner: AtomicU64,
}

/// One copy of the live figures.
#[derive(Clone, Copy)]
struct Half<'a> {
    live: &'a Live,
    rare: &'a Rare,
}

/// Which copy is in force, beside which something is staged.
#[derive(Clone, Copy, Debug)]
pub struct Staged {
    seq: u64,
}

/// A bucket of a histogram, and what it holds.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    bucket: &'a AtomicU64,
    count: u64,
}

impl<'a> Held<'a> {
    /// What a bucket holds now.
    #[must_use]
    pub fn new(bucket: &'a AtomicU64) -> Self {
        Self { bucket, count: bucket.load(Ordering::Relaxed) }
    }
}

/// In `seq`: something is staged.
const STAGED: u64 = 1;
/// What a copy in force adds to `seq`.
const FLIP: u64 = 2;

/// Beside the point's number: the minimum is of regions that kept the CPU.
const KEPT_CPU: u64 = 1 << 32;
/// Beside the point's number: [`Cell::append_one`] may be called.
const SIMPLE: u64 = 1 << 33;

/// A sum of squares below this has room for one more, of less than 2^31 ticks.
const NEARLY_FULL: u64 = 1 << 63;

/// Figures that are no longer added to. Ticks where not said otherwise.
#[repr(C)]
#[derive(Debug)]
struct Retired {
    /// Reset epoch of the window, also of the live figures.
    /// In the second copy of a shared cell: with the measurements under way, times 2^32.
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
    pub(crate) under_way: &'a AtomicU64,
    pub(crate) ever_count: &'a AtomicU64,
    pub(crate) ever_exclusive: &'a AtomicU64,
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
        last: zero(),
        min: zero(),
        max: zero(),
        folded: zero(),
    }
}

fn rare() -> Rare {
    Rare {
        squares_high: zero(),
        average: zero(),
        off_cpu: zero(),
        switches: zero(),
        version: zero(),
        owner: zero(),
    }
}

fn retired() -> Retired {
    Retired {
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

impl Rare {
    #[inline(always)]
    fn words(&self) -> [u64; 6] {
        let Self { squares_high, average, off_cpu, switches, version, owner } = self;
        [squares_high, average, off_cpu, switches, version, owner].map(get)
    }
}

impl Half<'_> {
    #[inline(always)]
    fn put(self, sums: &Sums) {
        let Self { live, rare } = self;
        for (word, value) in [
            (&live.count, sums.count),
            (&live.exclusive, sums.exclusive),
            (&live.inclusive, sums.inclusive),
            (&live.squares_low, sums.squares as u64),
            (&rare.squares_high, (sums.squares >> 64) as u64),
            (&live.last, sums.last),
            (&rare.average, sums.average_fixed),
            (&live.min, sums.min),
            (&live.max, sums.max),
            (&rare.off_cpu, sums.off_cpu),
            (&rare.switches, sums.switches),
        ] {
            put(word, value);
        }
    }

    /// The figures.
    #[inline(always)]
    fn sums(self) -> Sums {
        let Self { live, rare } = self;
        Sums {
            count: get(&live.count),
            exclusive: get(&live.exclusive),
            inclusive: get(&live.inclusive),
            off_cpu: get(&rare.off_cpu),
            switches: get(&rare.switches),
            min: get(&live.min),
            max: get(&live.max),
            last: get(&live.last),
            squares: u128::from(get(&rare.squares_high)) << 64 | u128::from(get(&live.squares_low)),
            average_fixed: get(&rare.average),
        }
    }
}

#[inline(always)]
fn get(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

#[inline(always)]
fn put(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
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
            parts: core::array::from_fn(|_| AtomicU32::new(0)),
            rare: [rare(), rare()],
            live: [live(), live()],
            retired: [retired(), retired()],
        }
    }

    /// Where the lines lie that a fold touches, in bytes from the start of a cell: the histogram
    /// parts of short durations, and the live figures.
    pub const FOLDED: [usize; 3] =
        [0, offset_of!(Self, live), offset_of!(Self, live) + size_of::<Live>()];

    // ---- writer: the lane's own thread ----

    /// Makes a zeroed cell one of a point, before the cell can be reached.
    pub fn prepare(&self, point: u32, control: Control, owner: u32) {
        self.point.store(u64::from(point), Ordering::Relaxed);
        for retired in &self.retired {
            retired.epoch.store(u64::from(control.epoch()), Ordering::Relaxed);
            retired.min.store(u64::MAX, Ordering::Relaxed);
        }
        let Half { live, rare } = self.in_force(0);
        live.min.store(u64::MAX, Ordering::Relaxed);
        rare.owner.store(u64::from(owner), Ordering::Relaxed);
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

    /// The copy of the live figures that a sequence word puts in force.
    #[inline(always)]
    fn in_force(&self, seq: u64) -> Half<'_> {
        let copy = ((seq / FLIP) & 1) as usize;
        Half { live: &self.live[copy], rare: &self.rare[copy] }
    }

    /// The live figures, to be added to and put in force by [`Self::put_in_force`]. What is
    /// added meanwhile to the histogram belongs to them.
    pub fn stage(&self) -> Sums {
        let Staged { seq } = self.stage_more();
        self.in_force(seq).sums()
    }

    /// Marks the cell as staged, for [`Self::append`]. Until then, the histogram may be added to.
    #[inline(always)]
    pub fn stage_more(&self) -> Staged {
        let staged = self.staged();
        self.mark_staged(staged.seq);
        staged
    }

    /// The copy in force, from which [`Self::record_as`] starts.
    #[inline(always)]
    #[must_use]
    pub fn staged(&self) -> Staged {
        Staged { seq: self.seq.load(Ordering::Relaxed) }
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
    pub fn put_in_force(&self, live: &Sums, sums: Option<&SumWords>, folded: u64) {
        let seq = self.seq.load(Ordering::Relaxed);
        if let Some(sums) = sums {
            amounts::stage(sums, seq / FLIP);
        }
        let (commit, owner) = self.window(seq);
        self.put(seq, live, folded, (commit, owner));
    }

    /// Adds `more`, of regions that kept the CPU, to the live figures, and puts the sum in force. It
    /// holds the lane's records up to `folded`, and the average of `more`.
    ///
    /// A forked child that repeats this for its parent writes the same words.
    pub fn append(
        &self,
        Staged { seq }: Staged,
        more: &Sums,
        sums: Option<&SumWords>,
        folded: u64,
    ) {
        if let Some(sums) = sums {
            amounts::stage(sums, seq / FLIP);
        }
        let mut live = self.in_force(seq).sums();
        live.min = self.least(live.min);
        live.merge(more);
        (live.last, live.average_fixed) = (more.last, more.average_fixed);
        self.put(seq, &live, folded, self.window(seq));
        let [first, second] = self.rare.each_ref().map(Rare::words);
        let is_simple = first == second
            && get(&self.amounts) == 0
            && self.control().alpha_fixed() == 0
            && (live.squares as u64) < NEARLY_FULL;
        if is_simple {
            put(&self.point, get(&self.point) | SIMPLE);
        }
    }

    /// Whether [`Self::append_one`] may be called: the copies agree in what seldom changes, the
    /// minimum is of regions that kept the CPU, there is neither an average nor amounts, and the
    /// squares have room for one more.
    #[inline(always)]
    #[must_use]
    pub fn is_simple(&self) -> bool {
        get(&self.point) & SIMPLE != 0
    }

    /// As [`Self::append`], of one measurement of less than 2^31 ticks. It leaves alone what seldom
    /// changes.
    #[inline(always)]
    pub fn append_one(&self, Staged { seq }: Staged, exclusive: u64, inclusive: u64, folded: u64) {
        let copy = ((seq / FLIP) & 1) as usize;
        let (from, to) = (&self.live[copy], &self.live[copy ^ 1]);
        put(&to.count, get(&from.count).wrapping_add(1));
        put(&to.exclusive, get(&from.exclusive).wrapping_add(exclusive));
        put(&to.inclusive, get(&from.inclusive).wrapping_add(inclusive));
        let square = exclusive.wrapping_mul(exclusive);
        let squares = get(&from.squares_low).wrapping_add(square);
        put(&to.squares_low, squares);
        if squares >= NEARLY_FULL {
            put(&self.point, u64::from(self.point()) | KEPT_CPU);
        }
        put(&to.last, exclusive);
        put(&to.min, get(&from.min).min(exclusive));
        put(&to.max, get(&from.max).max(exclusive));
        put(&to.folded, folded);
        self.close(seq);
    }

    /// The count and the average, for whoever takes more into that.
    #[must_use]
    pub fn averaged(&self, Staged { seq }: Staged) -> (u64, u64) {
        let Half { live, rare } = self.in_force(seq);
        (get(&live.count), get(&rare.average))
    }

    /// The number of restarts that the figures in force belong to, and their owner.
    #[inline(always)]
    fn window(&self, seq: u64) -> (u64, u64) {
        let rare = self.in_force(seq).rare;
        (get(&rare.version), get(&rare.owner))
    }

    /// Meets `cell-enter`, and death.
    #[inline(always)]
    fn put(&self, seq: u64, live: &Sums, folded: u64, (version, owner): (u64, u64)) {
        let point = get(&self.point);
        if point & SIMPLE != 0 {
            put(&self.point, point & !SIMPLE);
        }
        let staged = self.in_force(seq.wrapping_add(FLIP));
        staged.put(live);
        put(&staged.live.folded, folded);
        put(&staged.rare.version, version);
        put(&staged.rare.owner, owner);
        self.close(seq);
    }

    /// Publishes the staged copy.
    #[inline(always)]
    fn close(&self, seq: u64) {
        self.seq.store((seq | STAGED).wrapping_add(STAGED), ord!("cell-close", Release));
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
        let live = self.in_force(self.seq.load(Ordering::Relaxed)).live;
        let least = live.min.load(Ordering::Relaxed);
        let is_near = (exclusive..=exclusive.saturating_add(error)).contains(&least);
        if is_near || exclusive == 0 { least } else { exclusive }
    }

    /// The least ticks so far of regions that kept the CPU, where one comes that did: from the first
    /// one on, the minimum is of such.
    #[inline(always)]
    fn least(&self, min: u64) -> u64 {
        let point = self.point.load(Ordering::Relaxed);
        if point & KEPT_CPU == 0 {
            self.point.store(point | KEPT_CPU, Ordering::Relaxed);
            return u64::MAX;
        }
        min
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
        let bucket = bucket.map(Held::new);
        self.record_as(self.staged(), measured, (measured.exclusive, false), bucket, sums, folded);
    }

    /// Records a measurement that may count by other ticks in the extremes and the histogram than
    /// it was told; and whether it kept the CPU, which makes the minimum one of such. A forked child
    /// that repeats this from the same start writes the same words.
    pub fn record_as(
        &self,
        Staged { seq }: Staged,
        measured: Measurement,
        (credible, kept_cpu): (u64, bool),
        bucket: Option<Held<'_>>,
        sums: Option<(&SumWords, &Amounts)>,
        folded: u64,
    ) {
        self.mark_staged(seq);
        let mut live = self.in_force(seq).sums();
        if kept_cpu {
            live.min = self.least(live.min);
        }
        // Sums have what was told; extremes, last and average what can be believed.
        let (min, max) = (live.min.min(credible), live.max.max(credible));
        let mut believed = live.clone();
        believed.take_into_average(self.control(), live.count == 0, credible);
        live.add(self.control(), measured.exclusive, measured.inclusive);
        (live.min, live.max, live.last) = (min, max, credible);
        live.average_fixed = believed.average_fixed;
        if let Some(away) = measured.away {
            live.off_cpu = live.off_cpu.wrapping_add(away.off_cpu);
            live.switches = live.switches.wrapping_add(away.switches);
        }
        if let Some((sums, amounts)) = sums {
            amounts::add(sums, seq / FLIP, amounts);
        }
        // Before the bucket, for `mend`.
        self.in_force(seq.wrapping_add(FLIP)).live.last.store(live.last, Ordering::Relaxed);
        if let Some(Held { bucket, count }) = bucket {
            bucket.store(count.wrapping_add(1), Ordering::Relaxed);
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
        let folded = self.in_force(seq).live.folded.load(Ordering::Relaxed);
        let window = self.window(seq);
        // Not the epoch of `control`, which an owner takes along.
        let commit = self.commit.load(Ordering::Relaxed);
        let epoch = self.retired[(commit & 1) as usize].epoch.load(Ordering::Relaxed);
        let reset = u64::from(control.epoch()) != epoch;
        let moved = u64::from(owner) != window.1;
        if reset || moved {
            let (mut retired, mut past) = self.retired_sums(commit);
            retired.merge(&live);
            if reset {
                past.0 = past.0.wrapping_add(retired.count);
                past.1 = past.1.wrapping_add(retired.exclusive);
                retired = Sums::default();
            }
            self.retire(commit.wrapping_add(1), control.epoch(), &retired, past);
            if let Some(sums) = sums {
                amounts::retire(sums, (seq / FLIP, commit.wrapping_add(1)), reset);
            }
            // Pairs with `cell-commit-seen`: the copy is complete before it is published, even if
            // the process is killed in between.
            self.commit.store(commit.wrapping_add(1), ord!("cell-commit", Release));
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

    /// Puts the empty figures of a window in force; what came before is retired.
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
        let folded = self.in_force(seq).live.folded.load(Ordering::Relaxed);
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
        let last = self.in_force(seq.wrapping_add(FLIP)).live.last.load(Ordering::Relaxed);
        // It may have been cut off before this was done.
        self.mark_staged(seq);
        let (version, owner) = self.window(seq);
        let commit = self.commit.load(Ordering::Relaxed);
        let (retired, _) = self.retired_sums(commit);
        if version != commit {
            // As in `follow_with`: only a reset leaves nothing retired.
            self.restart(seq, owner, sums, retired.count == 0, &mut clear);
            return (0, 0);
        }
        let counted =
            retired.count.wrapping_add(self.in_force(seq).live.count.load(Ordering::Relaxed));
        let mut in_parts = 0u64;
        self.for_each_part(|chunk| in_parts = in_parts.wrapping_add(held(chunk)));
        (in_parts.saturating_sub(counted), last)
    }

    /// How many records of the lane's ring are in the figures in force, for its owner.
    #[must_use]
    pub fn folded(&self) -> u64 {
        self.in_force(self.seq.load(Ordering::Relaxed)).live.folded.load(Ordering::Relaxed)
    }

    /// Ends [`Self::mend`], if it was needed.
    pub fn mended(&self, sums: Option<&SumWords>) {
        if self.seq.load(Ordering::Relaxed) & STAGED != 0 {
            self.put_in_force(&self.stage(), sums, self.folded());
        }
    }

    fn retire(&self, commit: u64, epoch: u32, sums: &Sums, past: (u64, u64)) {
        let retired = &self.retired[(commit & 1) as usize];
        put(&retired.epoch, u64::from(epoch));
        put(&retired.count, sums.count);
        put(&retired.exclusive, sums.exclusive);
        put(&retired.inclusive, sums.inclusive);
        put(&retired.off_cpu, sums.off_cpu);
        put(&retired.switches, sums.switches);
        put(&retired.min, sums.min);
        put(&retired.max, sums.max);
        put(&retired.squares_low, sums.squares as u64);
        put(&retired.squares_high, (sums.squares >> 64) as u64);
        put(&retired.past_count, past.0);
        put(&retired.past_exclusive, past.1);
    }

    // ---- for the shared writer, `crate::layout::shared_cell` ----

    /// The words that many threads write: those of the first copy, which stays in force.
    pub(crate) fn shared_words(&self) -> SharedWords<'_> {
        let (live, rare) = (&self.live[0], &self.rare[0]);
        SharedWords {
            control: &self.control,
            count: &live.count,
            exclusive: &live.exclusive,
            inclusive: &live.inclusive,
            squares_low: &live.squares_low,
            squares_high: &rare.squares_high,
            last: &live.last,
            average: &rare.average,
            min: &live.min,
            max: &live.max,
            off_cpu: &rare.off_cpu,
            switches: &rare.switches,
            epoch: &self.retired[0].epoch,
            under_way: &self.retired[1].epoch,
            ever_count: &self.retired[1].past_count,
            ever_exclusive: &self.retired[1].past_exclusive,
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
