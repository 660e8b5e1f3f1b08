//! The overhead of measuring, which is subtracted from all figures.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::lease::Lease;
use super::region::{ALLOCS, FENCED};

/// The overhead of measuring, in ticks. The fast path reads the first cache line.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct OverheadWords {
    /// Overhead inside a region.
    pub(super) inside: AtomicU64,
    /// Overhead of a begin and end pair, including `inside`.
    pub(super) pair: AtomicU64,
    /// Overhead inside a region that a lap began, which includes recording the region that the lap
    /// ended.
    pub(super) lap: AtomicU64,
    /// Ticks by which a region that a lap began starts after the lap's stamp: `lap` minus `inside`.
    /// The late start and subtracting `inside` together remove all of `lap`.
    pub(super) late: AtomicU64,
    /// Overhead, beyond `inside`, inside a function that a compiler's hooks begin and end.
    pub(super) hooks_inside: AtomicU64,
    /// Overhead, beyond `pair`, of a function with hooks in the enclosing region.
    pub(super) hooks_pair: AtomicU64,
    /// Overhead of a fenced region.
    pub(super) fence: Beyond,
    /// Overhead of a region that counts its allocations.
    pub(super) allocs: Beyond,
}

/// Overhead of a region with a flag, in addition to the overhead of a scope.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Beyond {
    /// Inside the region.
    pub(super) inside: AtomicU64,
    /// In the enclosing region.
    pub(super) pair: AtomicU64,
}

impl Beyond {
    const fn none() -> Self {
        Self { inside: AtomicU64::new(0), pair: AtomicU64::new(0) }
    }
}

/// Held by the thread that calibrates.
pub(super) static CALIBRATING: Lease = Lease::new();

/// The result of a calibration, in ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    /// Overhead inside a region.
    pub(crate) inside: u64,
    /// Overhead of a begin and end pair.
    pub(crate) pair: u64,
    /// Overhead inside a region that a lap began.
    pub(crate) lap: u64,
}

impl Costs {
    pub(crate) const NONE: Self = Self { inside: 0, pair: 0, lap: 0 };
    pub(super) const UNKNOWN: Self = Self { inside: u64::MAX, pair: u64::MAX, lap: u64::MAX };

    /// The lower of each cost.
    pub(super) fn least(self, other: Self) -> Self {
        Self {
            inside: self.inside.min(other.inside),
            pair: self.pair.min(other.pair),
            lap: self.lap.min(other.lap),
        }
    }
}

static OVERHEAD: OverheadWords = OverheadWords {
    inside: AtomicU64::new(0),
    pair: AtomicU64::new(1),
    lap: AtomicU64::new(0),
    late: AtomicU64::new(0),
    hooks_inside: AtomicU64::new(0),
    hooks_pair: AtomicU64::new(0),
    fence: Beyond::none(),
    allocs: Beyond::none(),
};

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
mod arch {
    use std::arch::asm;

    use super::OVERHEAD;

    /// Runs instructions that read the overhead's field at offset `{at}` as an operand. Without
    /// assembly an end would have four instructions more: the compiler would load the address of
    /// the static before each field, because another object may define the static, too. Here the
    /// static is hidden from other objects.
    macro_rules! apply {
        ($($instruction:literal),+; $at:expr, $($operand:tt)*) => {
            // SAFETY: the instructions only read an aligned word of a static.
            unsafe {
                asm!(
                    ".hidden {overhead}",
                    $($instruction),+,
                    overhead = sym OVERHEAD,
                    at = const $at,
                    $($operand)*,
                    options(nostack, readonly, pure)
                )
            }
        };
    }

    #[inline(always)]
    pub(super) fn less_inside(mut ticks: u64) -> (u64, u64) {
        let mut positive = 0;
        apply!(
            "sub {ticks}, qword ptr [rip + {overhead} + {at}]", "cmovg {positive}, {ticks}";
            std::mem::offset_of!(super::OverheadWords, inside),
            ticks = inout(reg) ticks, positive = inout(reg) positive
        );
        (ticks, positive)
    }

    /// Ticks plus the field at an offset.
    #[inline(always)]
    pub(super) fn plus<const AT: usize>(mut ticks: u64) -> u64 {
        apply!(
            "add {ticks}, qword ptr [rip + {overhead} + {at}]";
            AT,
            ticks = inout(reg) ticks
        );
        ticks
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
mod arch {
    use super::{AtomicU64, OVERHEAD};

    #[inline(always)]
    pub(super) fn less_inside(ticks: u64) -> (u64, u64) {
        let net = ticks.wrapping_sub(OVERHEAD.inside());
        (net, (net as i64).max(0) as u64)
    }

    /// Ticks plus the field at an offset.
    #[inline(always)]
    pub(super) fn plus<const AT: usize>(ticks: u64) -> u64 {
        // SAFETY: `AT` is the offset of a field that is an `AtomicU64`.
        let word = unsafe { &*(&raw const OVERHEAD).cast::<AtomicU64>().byte_add(AT) };
        ticks.wrapping_add(word.load(super::Relaxed))
    }
}

/// The overhead that is subtracted from all figures.
#[inline(always)]
pub(crate) fn overhead() -> &'static OverheadWords {
    &OVERHEAD
}

/// The ticks of a region minus the overhead inside it. The first result may be negative; the second
/// is the same, but at least 0.
#[inline(always)]
pub(super) fn less_inside(ticks: u64) -> (u64, u64) {
    arch::less_inside(ticks)
}

/// Ticks plus the overhead of a begin and end pair.
#[inline(always)]
pub(super) fn with_pair(ticks: u64) -> u64 {
    arch::plus::<{ offset_of!(OverheadWords, pair) }>(ticks)
}

/// Ticks plus the overhead inside a region that a lap began.
#[inline(always)]
pub(super) fn with_lap(ticks: u64) -> u64 {
    arch::plus::<{ offset_of!(OverheadWords, lap) }>(ticks)
}

/// The stamp of a lap plus the ticks by which its region starts later.
#[inline(always)]
pub(super) fn with_late(stamp: u64) -> u64 {
    arch::plus::<{ offset_of!(OverheadWords, late) }>(stamp)
}

impl OverheadWords {
    #[inline(always)]
    pub(crate) fn inside(&self) -> u64 {
        self.inside.load(Relaxed)
    }

    #[inline(always)]
    pub(super) fn pair(&self) -> u64 {
        self.pair.load(Relaxed)
    }

    #[inline(always)]
    pub(super) fn late(&self) -> u64 {
        self.late.load(Relaxed)
    }

    /// What the flags of a tag add to the overhead of a scope: inside the region, and in the enclosing
    /// one.
    pub(super) fn beyond(&self, flags: u64) -> [u64; 2] {
        let both = [(FENCED, &self.fence), (ALLOCS, &self.allocs)];
        let set = both.into_iter().filter(|(flag, _)| flags & flag != 0);
        set.fold([0; 2], |[inside, pair], (_, beyond)| {
            [inside + beyond.inside.load(Relaxed), pair + beyond.pair.load(Relaxed)]
        })
    }

    /// Stores costs, and returns the previous costs.
    pub(crate) fn replace(&self, costs: Costs) -> Costs {
        let inside = self.inside.swap(costs.inside, Relaxed);
        let pair = self.pair.swap(costs.pair, Relaxed);
        let lap = self.lap.swap(costs.lap, Relaxed);
        self.late.store(costs.lap.saturating_sub(costs.inside), Relaxed);
        Costs { inside, pair, lap }
    }
}
