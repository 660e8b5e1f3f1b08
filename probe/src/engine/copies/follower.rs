//! The follower's side of calls to the leader.

use std::ffi::c_void;
use std::io::{self, Write};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

use pfp_shm_layout::amounts::{Amounts, MAX_AMOUNTS};
use pfp_shm_layout::control::{Change, Limit};
use pfp_shm_layout::heap::Grow;

use super::{Declaration, FunctionTable, RawText, Sink};
use crate::Overhead;
use crate::engine::guard::Guard;
use crate::engine::measure::{FUNCTION, HAND};
use crate::engine::overhead::{CALIBRATING, overhead};
use crate::engine::state::Name;
use crate::engine::{numeric, room};
use crate::point::Point;
use crate::stats::{Bucket, FIGURES, Stats};

/// Whether a thread has measured the cost of this copy's regions, or is measuring it.
static IS_CALIBRATED: AtomicBool = AtomicBool::new(false);

/// The cost of this copy's regions in addition to the leader's: inside a region, and in total.
fn costs() -> [&'static AtomicU64; 2] {
    [&overhead().inside, &overhead().pair]
}

impl Point {
    /// Declares the point to the leader, and returns the leader's point. Null if memory runs out,
    /// or if the stack has too little room.
    #[cold]
    #[inline(never)]
    fn declare(&'static self, leader: &'static FunctionTable) -> *const c_void {
        let made = if room::has_room() { self.declare_to(leader) } else { ptr::null() };
        if made.is_null() {
            leader.miss();
            return made;
        }
        let other = &self.state.other;
        // Pairs with the load in `FunctionTable::point`. If another thread was faster, the point
        // that was made here stays unused.
        let _ = other.compare_exchange(ptr::null_mut(), made.cast_mut(), AcqRel, Relaxed);
        self.publish();
        if !IS_CALIBRATED.swap(true, Relaxed) && !leader.measure_own() {
            IS_CALIBRATED.store(false, Relaxed);
        }
        other.load(Acquire)
    }

    fn declare_to(&'static self, leader: &FunctionTable) -> *const c_void {
        let state = &self.state;
        let amounts = self.metered().map_or(&[][..], |metered| metered.names());
        let is_numeric = matches!(state.name, Name::Number);
        let declaration = Declaration {
            control: &raw const state.control,
            name: RawText::of(state.name.known()),
            file: RawText::of(state.file),
            line: state.line,
            number: if is_numeric { self.index() as u32 } else { Declaration::NAMED },
            starts_on: state.starts_on,
            fenced: state.fenced,
            counts_allocs: state.counts_allocs,
            device: state.device,
            wall: state.wall,
            amounts: std::array::from_fn(|at| RawText::of(*amounts.get(at).unwrap_or(&""))),
        };
        // SAFETY: the declaration describes a static. Everything that it points to lives as long as
        // the process.
        unsafe { (leader.declare)(&declaration) }
    }
}

impl FunctionTable {
    /// The leader's point for this copy's point, declared if needed. Null if that fails.
    #[inline(always)]
    pub(super) fn point(&'static self, point: &'static Point) -> *const c_void {
        // Pairs with the exchange in `declare`.
        let known = point.state.other.load(Acquire);
        if known.is_null() { point.declare(self) } else { known }
    }

    /// Whether a point has been declared to the leader.
    pub(crate) fn knows(&self, point: &Point) -> bool {
        !point.state.other.load(Relaxed).is_null()
    }

    /// Begins a region; see [`crate::engine::measure::begin`].
    #[inline(always)]
    pub(in crate::engine) fn begin(
        &'static self,
        point: &'static Point,
        how: u64,
        amounts: Option<&Amounts>,
    ) -> u64 {
        let [inside, pair] = match how {
            FUNCTION => [&overhead().hooks_inside, &overhead().hooks_pair],
            _ => costs(),
        };
        self.begin_region(point, how == HAND, inside.load(Relaxed), pair.load(Relaxed), amounts)
    }

    /// Ends the region of a tag and begins a region of another point; see [`Guard::lap_to`].
    pub(in crate::engine) fn lap_to(&'static self, next: &'static Point, tag: u64) -> u64 {
        // Without the leader's point, the leader's `lap` would do nothing, not even end the region.
        if self.point(next).is_null() {
            self.end(tag);
            return 0;
        }
        self.lap(next, tag, overhead().inside())
    }

    pub(in crate::engine) fn change(&'static self, point: &'static Point, change: Change) {
        match change {
            Change::Enable => self.set_enabled(point, true),
            // The leader marks points as invalid itself, at a begin.
            Change::Disable | Change::Invalidate => self.set_enabled(point, false),
            Change::Reset => self.reset(point),
            Change::Fence(fenced) => self.set_fenced(point, fenced),
            Change::CountAllocs(counting) => self.set_counting_allocs(point, counting),
            Change::Limit(limit) => {
                self.set_limit(point, limit.map_or(0, Limit::ns), limit.is_some_and(Limit::is_cpu))
            }
            Change::Alpha(alpha) => self.set_alpha(point, alpha.get()),
        }
    }

    /// The bytes that a function of the leader writes.
    fn written(write: impl FnOnce(&Sink)) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&Sink::to(&mut bytes));
        bytes
    }

    pub(in crate::engine) fn name_of(&'static self, point: &'static Point) -> Option<String> {
        let name = Self::written(|to| self.write_name(point, to));
        String::from_utf8(name).ok().filter(|name| !name.is_empty())
    }

    /// The figures of a point. Without a histogram nothing is allocated.
    pub(in crate::engine) fn stats(
        &'static self,
        point: &'static Point,
        histogram: bool,
    ) -> Option<Stats> {
        let (mut figures, mut found) = ([0; FIGURES], false);
        let mut read = |to: Option<&Sink>| found = self.read_stats(point, &mut figures, to);
        let buckets = match histogram {
            true => Self::written(|to| read(Some(to))),
            false => {
                read(None);
                Vec::new()
            }
        };
        let (mut stats, mut figures) = (Stats::default(), figures.into_iter());
        stats.each_figure(|_| figures.next().unwrap_or(0));
        for bucket in buckets.as_chunks::<24>().0 {
            let mut words = bucket.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
            let [low, width, count] = std::array::from_fn(|_| words.next().unwrap_or(0));
            stats.histogram.try_push(Bucket { low, width, count }).ok()?;
        }
        found.then_some(stats)
    }

    pub(in crate::engine) fn sums(&'static self, point: &'static Point) -> [u128; MAX_AMOUNTS] {
        let mut sums = [[0; 2]; MAX_AMOUNTS];
        self.read_sums(point, &mut sums);
        sums.map(|[low, high]| u128::from(high) << 64 | u128::from(low))
    }

    /// Measures the cost of regions: the leader's and this copy's.
    pub(in crate::engine) fn overhead(&'static self, pairs: u32) -> Option<Overhead> {
        let mut leaders = [0; 3];
        if !self.calibrate(pairs, &mut leaders) || !self.measure_own() {
            return None;
        }
        let [inside, pair, lap] = leaders;
        let [more_inside, more] = costs().map(|cost| cost.load(Relaxed));
        Some(Overhead { inside: inside + more_inside, pair: pair + more, lap: lap + more_inside })
    }

    /// Measures the cost of this copy's regions in addition to the leader's.
    fn measure_own(&'static self) -> bool {
        fn region() {
            drop(Guard::begin(&numeric::POINTS[0]));
        }
        // The lease is exclusive, because a second thread would mistake the zeros that are stored
        // below for the costs.
        let Ok(_lease) = CALIBRATING.acquire_exclusive() else { return false };
        // No additional cost is subtracted while it is measured.
        let [inside, pair] = costs().map(|cost| cost.swap(0, Relaxed));
        let is_measured = self.measure_call(region, false, costs());
        if !is_measured {
            overhead().inside.store(inside, Relaxed);
            overhead().pair.store(pair, Relaxed);
        }
        is_measured
    }

    /// Measures the cost of a call in addition to the cost of a scope in the leader, like
    /// [`crate::engine::calibrate::calibrate_call`].
    pub(in crate::engine) fn measure_call(
        &'static self,
        call: fn(),
        again: bool,
        [inside, pair]: [&AtomicU64; 2],
    ) -> bool {
        unsafe extern "C" fn run(call: *const c_void) {
            // SAFETY: `call` points to the function pointer that is passed below.
            unsafe { (*call.cast::<fn()>())() };
        }
        self.calibrate_call(run, (&raw const call).cast(), again, inside, pair)
    }

    pub(in crate::engine) fn write_snapshot(
        &'static self,
        path: &Path,
        replaces: bool,
    ) -> io::Result<()> {
        result(self.snapshot(path.as_os_str().as_encoded_bytes(), replaces))
    }

    pub(in crate::engine) fn show_to(&'static self, out: &mut impl Write) -> io::Result<()> {
        let mut errno = 0;
        let text = Self::written(|to| errno = self.show(to));
        result(errno).and_then(|()| out.write_all(&text))
    }
}

/// Converts the leader's return value, which is 0 or the system's error number.
fn result(errno: i32) -> io::Result<()> {
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}
