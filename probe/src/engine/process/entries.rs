//! Enters points into the segment's table.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pfp_shm_layout::control::{self, Change, Control};
use pfp_shm_layout::segment::Segment;

use super::{FAILED, MISSED, Process, current, miss};
use crate::clock::calibrate;
use crate::engine::common;
use crate::engine::copies::by_leader;
use crate::engine::metered::{AmountList, MeteredPoint};
use crate::point::{NUMERIC, Point};

/// The first number of a point that is named in the source.
const FIRST_NAMED: usize = NUMERIC as usize;

/// Why a point was not entered into the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotEntered {
    /// The table is full.
    NoPlace,
    /// Memory ran out just now.
    NoMemory,
    /// The process was forked in between, and this is the child.
    Forked,
}

impl Process {
    /// Whether a point measures from the start.
    fn starts_on(&self, point: &Point) -> bool {
        let (name, ..) = point.description();
        (point.starts_on() && self.settings.on_by_default) || self.settings.enabled_names.have(name)
    }

    /// Reserves the wanted number in the table, or any if `None`. If memory runs out, calls fail at
    /// once for 0.1 s, and then ask the system again.
    fn reserve(&self, wanted: Option<u32>) -> Result<usize, NotEntered> {
        let wanted = wanted.map(|number| number as usize);
        let reserve = |segment: &Segment| segment.reserve_point(wanted, FIRST_NAMED);
        if wanted.unwrap_or(self.segment.next_point(FIRST_NAMED))
            >= self.segment.geometry().points()
        {
            return reserve(&self.segment).ok_or(NotEntered::NoPlace);
        }
        self.ask_for_space(reserve).ok_or(NotEntered::NoMemory)
    }

    /// Enters a point and returns its control word. A parent's point keeps its number and starts
    /// with the parent's word. Several threads may enter a point at once: one of them decides its
    /// number, and numbers that others have reserved stay unused.
    pub(crate) fn enter(
        &self,
        point: &'static Point,
        inherited: Option<Control>,
    ) -> Result<&AtomicU64, NotEntered> {
        let wanted = point.wanted_number();
        let (name, file, line) = point.description();
        let line = u64::from(line) | point.time_source();
        let number = self.reserve(wanted)?;
        let control = self.segment.control(number).ok_or(NotEntered::NoPlace)?;
        let calibration = wanted == Some(0);
        let initial = if let Some(before) = inherited {
            before
        } else if calibration || self.starts_on(point) {
            Control::default().with(Change::Enable)
        } else {
            Control::default()
        };
        let is_fenced = !calibration && (self.settings.fence || point.is_fenced());
        let initial = if is_fenced { initial.with(Change::Fence(true)) } else { initial };
        let counts = !calibration && (self.settings.allocs || point.is_counting_allocs());
        let initial = if counts { initial.with(Change::CountAllocs(true)) } else { initial };
        let initial = if initial.enabled() && !calibration && common::PAUSED.load(Relaxed) {
            point.start_paused();
            initial.with(Change::Disable)
        } else {
            initial
        };
        // The exchange fails if a viewer has already written the word.
        let _ = control.compare_exchange(0, initial.0, Relaxed, Relaxed);
        // An inherited point may have been reset before this segment existed. Its figures begin
        // now.
        if let Some(time) = self.segment.reset_time(number)
            && initial.epoch() != 0
        {
            let now = control::reset_word(initial.epoch(), calibrate::shared_ns());
            let _ = time.compare_exchange(0, now, Relaxed, Relaxed);
        }
        let number = self.decide_number(point, number)?;
        let amounts = point.metered().map(MeteredPoint::listed_names);
        let amounts = amounts.as_ref().map_or("", AmountList::as_str);
        self.segment.announce_point(number, name, file, line, amounts);
        self.segment.control(number).ok_or(NotEntered::NoPlace)
    }

    /// Enters a tuple of the metered point whose number is `of`. Returns the control word of the
    /// metered point, because the tuple follows it.
    pub(crate) fn enter_tuple(
        &self,
        tuple: &Point,
        of: usize,
        amounts: &str,
    ) -> Result<&AtomicU64, NotEntered> {
        let number = self.reserve(tuple.wanted_number())?;
        let number = self.decide_number(tuple, number)?;
        self.segment.announce_tuple(number, of, amounts);
        self.segment.control(of).ok_or(NotEntered::NoPlace)
    }

    /// Decides the number of a point. Fails in a child that was forked in between, because the
    /// number is one of its parent's.
    fn decide_number(&self, point: &Point, reserved: usize) -> Result<usize, NotEntered> {
        if !self.is_current() {
            return Err(NotEntered::Forked);
        }
        Ok(point.decide_number(reserved as u32) as usize)
    }
}

/// Counts a missed begin whose point is not known, if points that the source names start on.
#[cold]
pub(crate) fn miss_unknown() {
    by_leader!(miss());
    match current() {
        Some(process) if process.settings.on_by_default => miss(),
        Some(_) => {}
        None if FAILED.load(Relaxed) == 0 => {
            MISSED.fetch_add(1, Relaxed);
        }
        None => {}
    }
}

/// Counts a begin whose point could not be registered: a signal handler has interrupted the
/// registration, or the making of the process, on its own thread. The point cannot have been
/// switched on or off by then.
#[cold]
pub(crate) fn miss_unregistered(point: &'static Point) {
    match current() {
        Some(process) if process.starts_on(point) => miss(),
        Some(_) => {}
        None if point.starts_on() && FAILED.load(Relaxed) == 0 => {
            MISSED.fetch_add(1, Relaxed);
        }
        None => {}
    }
}
