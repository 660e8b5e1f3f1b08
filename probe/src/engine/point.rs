//! Points as the engine knows them: how one is steered, and how it comes into the tables.

use std::borrow::Cow;
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use pfp_shm_layout::control::{self, Control};
pub(crate) use pfp_shm_layout::control::{Alpha, Change};
use pfp_shm_layout::point::{DEVICE, WALL};
use pfp_shm_layout::ring::POINT_SHIFT;

use super::cold;
use super::figures::{self, Histogram};
use super::process::{self, NotEntered};
use super::thread;
use super::turn::{Denied, Turn};
use crate::clock::calibrate::monotonic_ns;
use crate::timed::{self, REST, Timed};
use crate::{NUMERIC, Point, Stats};

/// The first number of a point that is named in the source.
pub(crate) const FIRST_NAMED: usize = NUMERIC as usize;

/// The word of a point that no process knows yet. It reads as "on", so that the
/// first begin goes on to look for its cell and finds none: not being
/// registered needs no test of its own.
static UNREGISTERED: AtomicU64 = AtomicU64::new(crate::c::UNREGISTERED);

/// In the place of the next point: it is not in the list.
const UNLISTED: *mut Point = ptr::without_provenance_mut(1);

/// What a point keeps.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct State {
    /// The word that steers it, in the segment. First, as C's inline functions
    /// expect it.
    control: AtomicPtr<AtomicU64>,
    /// Its number in the point table, as an offset in a thread's.
    offset: AtomicU32,
    /// Held by the thread that registers it.
    registering: Turn,
    /// The next one in the process's list, or [`UNLISTED`].
    pub(crate) next: AtomicPtr<Point>,
    name: Name,
    file: &'static str,
    line: u32,
    /// Whether it measures without being switched on.
    starts_on: bool,
    /// Whether its stamps wait for the work before them from the start.
    fenced: bool,
    device: bool,
    wall: bool,
    /// Whether it is the whole of a [`Timed`]: what is begun of it is recorded by its
    /// variants.
    is_whole: bool,
    /// Whether [`crate::set_enabled`] has switched it off.
    paused: AtomicBool,
}

impl State {
    /// Where another copy of pfp must expect what it reads of a point.
    pub(super) const LAYOUT: [usize; 3] =
        [size_of::<Self>(), offset_of!(Self, offset), offset_of!(Self, is_whole)];
}

/// Where a point's name comes from.
#[derive(Debug)]
enum Name {
    Literal(&'static str),
    /// A path is not known before the program runs.
    Function(fn() -> &'static str),
    Number,
    /// Of what it is a variant, once it is one, and its place there.
    Variant(AtomicPtr<Timed>, u8),
}

impl Name {
    /// The name in the source, if it has one.
    fn known(&self) -> &'static str {
        match self {
            Self::Literal(name) => name,
            Self::Function(name) => name(),
            Self::Number | Self::Variant(..) => "",
        }
    }
}

/// What a point is.
pub(crate) enum Kind<'a> {
    Plain,
    /// What measures certain amounts of another one.
    Variant {
        of: &'a AtomicPtr<Timed>,
        place: u8,
    },
}

impl State {
    /// A point that is named by a literal.
    pub(crate) const fn literal(name: &'static str, file: &'static str, line: u32) -> Self {
        Self::named(Name::Literal(name), 0, file, line)
    }

    /// A point that has the name of its function.
    pub(crate) const fn function(
        name: fn() -> &'static str,
        file: &'static str,
        line: u32,
    ) -> Self {
        Self::named(Name::Function(name), 0, file, line)
    }

    /// The point, switched off from the start.
    pub(crate) const fn starts_off(self) -> Self {
        Self { starts_on: false, ..self }
    }

    /// The point, fenced from the start.
    pub(crate) const fn fenced(self) -> Self {
        Self { fenced: true, ..self }
    }

    pub(crate) const fn file(&self) -> &'static str {
        self.file
    }

    pub(crate) const fn line(&self) -> u32 {
        self.line
    }

    const fn named(name: Name, number: u32, file: &'static str, line: u32) -> Self {
        let starts_on = !matches!(name, Name::Number) || number == 0;
        Self {
            control: AtomicPtr::new((&raw const UNREGISTERED).cast_mut()),
            offset: AtomicU32::new(number << POINT_SHIFT),
            registering: Turn::new(),
            next: AtomicPtr::new(UNLISTED),
            name,
            file,
            line,
            starts_on,
            fenced: false,
            device: false,
            wall: false,
            is_whole: false,
            paused: AtomicBool::new(false),
        }
    }
}

impl Point {
    pub(crate) fn is_fenced(&self) -> bool {
        self.state.fenced
    }

    /// The point, of a device's time: viewers count it as no CPU's.
    #[cfg(feature = "cuda")]
    pub(crate) const fn of_a_device(self) -> Self {
        Self { state: State { device: true, ..self.state } }
    }

    /// The point, of the clock's time: spans that no thread has for itself.
    pub(crate) const fn of_the_clock(self) -> Self {
        Self { state: State { device: true, wall: true, ..self.state } }
    }

    /// The point, which comes first in a [`Timed`].
    pub(crate) const fn of_amounts(self) -> Self {
        Self { state: State { is_whole: true, ..self.state } }
    }

    /// The point of a number.
    pub(crate) const fn numeric(number: u32) -> Self {
        Self { state: State::named(Name::Number, number, "", 0) }
    }

    /// A point that is off for good.
    pub(crate) const fn never() -> Self {
        Self {
            state: State {
                control: AtomicPtr::new((&raw const process::REFUSED).cast_mut()),
                registering: Turn::done_already(),
                ..State::literal("", "", 0)
            },
        }
    }

    /// A place for a variant of a point with amounts.
    pub(crate) const fn variant(place: u8) -> Self {
        let name = Name::Variant(AtomicPtr::new(ptr::null_mut()), place);
        Self { state: State::named(name, 0, "", 0) }
    }

    /// Whether the point measures.
    pub(crate) fn is_on(&'static self) -> bool {
        self.word().is_some_and(|word| Control(word.load(Relaxed)).enabled())
    }

    /// The weight of a new value in the exponential average; none while that is off.
    pub(crate) fn weight(&'static self) -> Option<f64> {
        Control(self.word()?.load(Relaxed)).alpha()
    }

    /// The name in the table, or before it is there, the one in the source.
    pub(crate) fn known_name(&'static self) -> Cow<'static, str> {
        match self.name_in_the_table() {
            Some(name) => Cow::Owned(name),
            None => Cow::Borrowed(self.state.name.known()),
        }
    }

    /// Gives the point another name.
    pub(crate) fn rename(&'static self, name: &str) {
        if self.word().is_some()
            && let Some(process) = process::current()
        {
            process.segment.rename_point(self.index(), name);
        }
    }

    /// For [`Point::stats`].
    pub(crate) fn figures(&'static self) -> Option<Stats> {
        self.stats_with(Histogram::Read)
    }

    /// [`Point::stats`], with or without the histogram.
    pub(crate) fn stats_with(&'static self, histogram: Histogram) -> Option<Stats> {
        match self.timed() {
            Some(timed) => timed.stats_with(histogram),
            None => figures::of_point(self, histogram),
        }
    }

    /// The word that steers the point. Enabled also while not registered.
    #[inline(always)]
    pub(crate) fn control(&self) -> Control {
        // Pairs with `lead_to`: whoever sees the word in the segment sees the point's number.
        // SAFETY: the pointer is to a static or into the segment, which is
        // never unmapped.
        Control(unsafe { (*self.state.control.load(Acquire)).load(Relaxed) })
    }

    /// Number of the point; 0 while not registered.
    #[inline(always)]
    pub(crate) fn index(&self) -> usize {
        (self.offset() >> POINT_SHIFT) as usize
    }

    /// Number of the point times the size of a thread's entry of it.
    #[inline(always)]
    pub(crate) fn offset(&self) -> u32 {
        self.state.offset.load(Relaxed)
    }

    /// Number that the point must have.
    pub(crate) fn number(&self) -> Option<u32> {
        let index = self.index() as u32;
        // A refused point has none.
        let known = index != 0 && self.state.registering.is_done();
        (self.is_numeric() || known).then_some(index)
    }

    /// Number that the point is to have in a table, also if it was not registered to the
    /// end: the one that it has in the parent's.
    pub(crate) fn wanted_number(&self) -> Option<u32> {
        let index = self.index() as u32;
        (self.is_numeric() || index != 0).then_some(index)
    }

    pub(crate) fn description(&self) -> (&str, &str, u32) {
        let is_calibration = self.is_numeric() && self.index() == 0;
        let name = if is_calibration { "overhead" } else { self.state.name.known() };
        (name, self.state.file, self.state.line)
    }

    /// The name that the point was given since it was registered, or then.
    fn name_in_the_table(&'static self) -> Option<String> {
        let segment = &process::current()?.segment;
        let name = segment.entry(self.number()? as usize)?.read()?.name;
        let text = segment.text(name.offset as usize, name.len as usize)?;
        let text: Vec<u8> = text.iter().map(|byte| byte.load(Relaxed)).collect();
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    /// Whether it is one of the program's points: no variant, not the calibration's, and not
    /// refused.
    pub(crate) fn is_listed(&'static self) -> bool {
        self.number().is_some_and(|number| number != 0)
            && !matches!(self.kind(), Kind::Variant { .. })
    }

    pub(crate) fn kind(&self) -> Kind<'_> {
        match &self.state.name {
            Name::Variant(of, place) => Kind::Variant { of, place: *place },
            Name::Literal(_) | Name::Function(_) | Name::Number => Kind::Plain,
        }
    }

    /// Says of what it is a variant, before it is registered.
    pub(crate) fn belong_to(&self, timed: &'static Timed) {
        if let Name::Variant(of, _) = &self.state.name {
            of.store(ptr::from_ref(timed).cast_mut(), Release);
        }
    }

    /// The point with amounts that this is the whole of.
    pub(crate) fn timed(&'static self) -> Option<&'static Timed> {
        // A reference to the part is none to the whole: that was exposed in
        // `Timed::point`.
        let timed = ptr::with_exposed_provenance::<Timed>((&raw const *self).addr());
        // SAFETY: such a point is the first field of a `Timed`, which is a static as
        // this is, and `repr(C)`.
        self.state.is_whole.then(|| unsafe { &*timed })
    }

    /// Whether its cells have sums of amounts: those of its regions differ.
    pub(crate) fn has_sums(&self) -> bool {
        matches!(self.state.name, Name::Variant(_, place) if usize::from(place) == REST)
    }

    /// Whether it measured when everything was switched off; forgets it if asked for
    /// the point to be switched on again.
    pub(crate) fn pause(&'static self, pause: bool) {
        if !pause {
            if self.state.paused.swap(false, Relaxed) {
                self.enable();
            }
        } else if self.is_enabled() {
            self.state.paused.store(true, Relaxed);
            self.disable();
        }
    }

    /// Switches it off until [`crate::set_enabled`] switches all on: it would have
    /// started on.
    pub(crate) fn start_paused(&self) {
        self.state.paused.store(true, Relaxed);
    }

    /// Measures no more: what belongs to it found no room.
    pub(crate) fn refuse(&self) {
        self.state.control.store((&raw const process::REFUSED).cast_mut(), Release);
    }

    fn is_numeric(&self) -> bool {
        matches!(self.state.name, Name::Number)
    }

    /// Whose time it measures, as it stands beside its line in the segment.
    pub(crate) fn time_source(&self) -> u64 {
        let device = if self.state.device { DEVICE } else { 0 };
        device | if self.state.wall { WALL } else { 0 }
    }

    /// Whether it measures without being switched on.
    pub(crate) fn starts_on(&self) -> bool {
        self.state.starts_on
    }

    pub(crate) fn change(&'static self, change: Change) {
        let Some(word) = self.word() else { return };
        match self.reset_time(word).filter(|_| change == Change::Reset) {
            Some(time) => control::reset(word, time, monotonic_ns()),
            None => control::apply(word, change),
        };
        if change == Change::Enable
            && let Some(process) = process::current()
        {
            process.segment.wake();
        }
    }

    /// Where a reset leaves its time; none where the word is not of this process's segment.
    fn reset_time(&'static self, word: &AtomicU64) -> Option<&'static AtomicU64> {
        let segment = &process::current()?.segment;
        let is_here = segment.control(self.index()).is_some_and(|here| ptr::eq(here, word));
        segment.reset_time(self.index()).filter(|_| is_here)
    }

    /// The point's word, registered if need be; none if it was refused.
    pub(crate) fn word(&'static self) -> Option<&'static AtomicU64> {
        if !self.register() {
            return None;
        }
        let word = self.state.control.load(Acquire);
        // SAFETY: as in `control`.
        (!ptr::eq(word, &raw const process::REFUSED)).then(|| unsafe { &*word })
    }

    /// Enters the point into the process's table, once; false if that cannot be
    /// done now.
    #[cold]
    pub(crate) fn register(&'static self) -> bool {
        let Some(process) = process::get() else { return false };
        if self.state.registering.is_done() {
            return true;
        }
        // A thread that the process does not know of must not keep others waiting.
        process.is_callers_threads(thread::tid())
            && cold::section(|| self.register_in_turn(process))
    }

    fn register_in_turn(&'static self, process: &'static process::Process) -> bool {
        // A thread that has waited enough registers the point too, at the price of a number.
        let _turn = match self.state.registering.take() {
            Ok(turn) => Some(turn),
            Err(Denied::Done) => return true,
            Err(Denied::Others) => None,
            Err(Denied::Own) => return false,
        };
        let entered = self.enter(process, None);
        // Where there is no memory the next begin tries again, and this one is counted. Of
        // a child that was forked meanwhile nothing of this is true.
        if matches!(entered, Err(NotEntered::NoMemory)) || !self.lead_to(process, entered) {
            return false;
        }
        self.publish();
        self.state.registering.set_done();
        process::pause_latecomer(self);
        true
    }

    /// Enters a registered point into the table of a forked child.
    pub(crate) fn enter_again(&'static self, process: &'static process::Process) {
        // The parent's words are there as they were; a refused point has no word there
        // and tries anew.
        let refused = ptr::eq(self.state.control.load(Relaxed), &raw const process::REFUSED);
        let entered = self.enter(process, (!refused).then(|| self.control()));
        if let (Err(_), false, Some((timed, _))) = (&entered, refused, timed::variant_of(self)) {
            timed.point().refuse();
        }
        self.lead_to(process, entered);
    }

    fn enter(
        &'static self,
        process: &'static process::Process,
        inherited: Option<Control>,
    ) -> Result<&'static AtomicU64, NotEntered> {
        match self.kind() {
            Kind::Plain => process.enter(self, inherited),
            Kind::Variant { .. } => timed::enter(process, self),
        }
    }

    /// Leads to the point's word, or to one that says that it measures no more. False in a
    /// child that was forked meanwhile.
    fn lead_to(
        &self,
        process: &'static process::Process,
        entered: Result<&'static AtomicU64, NotEntered>,
    ) -> bool {
        if !process.is_current() {
            return false;
        }
        let word = entered.unwrap_or(&process::REFUSED);
        self.state.control.store((&raw const *word).cast_mut(), Release);
        true
    }

    /// The number of the point: this one, unless another thread was faster.
    pub(crate) fn decide_number(&self, reserved: u32) -> u32 {
        let offset = reserved << POINT_SHIFT;
        match self.state.offset.compare_exchange(0, offset, Relaxed, Relaxed) {
            Ok(_) => reserved,
            Err(found) => found >> POINT_SHIFT,
        }
    }

    /// Links the point into the process's list, if it is not there. Two threads may do
    /// this at once, where one has taken the turn from the other.
    fn publish(&'static self) {
        let me = (&raw const *self).cast_mut();
        loop {
            let next = self.state.next.load(Acquire);
            // Read before the list is searched: whoever links it to what `next` was can do
            // so only as long as that is the head.
            let head = process::POINTS.load(Acquire);
            if process::points().any(|point| ptr::eq(point, self)) {
                return;
            }
            if next == head || self.state.next.compare_exchange(next, head, AcqRel, Relaxed).is_ok()
            {
                let linked = process::POINTS.compare_exchange(head, me, Release, Relaxed);
                if linked.is_ok() {
                    return;
                }
            }
        }
    }
}

// Miri has no system to ask.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// As a child finds a point that a thread of its parent's was registering: not yet in
    /// the list, or in it already. Then it is there once, or the list had no end.
    #[test]
    fn what_another_has_begun_to_register_is_registered_once() {
        static EARLY: Point = Point::new("early");
        static LATE: Point = Point::new("late");
        let _one = crate::engine::oracle::one_at_a_time();
        assert!(LATE.register());
        for point in [&EARLY, &LATE] {
            point.state.registering.left_by_nobody();
            assert!(point.register());
            assert!(point.number().is_some() && point.is_enabled());
            let same = |&found: &&Point| ptr::eq(found, point);
            assert_eq!(process::points().take(1 << 16).filter(same).count(), 1);
        }
        assert!(process::points().count() < 1 << 16);
    }

    /// A thread that is stopped while it registers a point does not keep others from
    /// registering it, and the point has one number and one name.
    #[test]
    fn who_has_waited_enough_registers_a_point_beside_a_thread_that_stands_still() {
        static SLOW: Point = Point::new("slow");
        let _one = crate::engine::oracle::one_at_a_time();
        let process = process::get().expect("there is a segment");
        let _turn = SLOW.state.registering.take().expect("nobody else registers it");
        let other = std::thread::spawn(|| {
            assert!(SLOW.register());
            SLOW.number().expect("it is registered")
        });
        let number = other.join().expect("it does not wait");
        // The stopped thread goes on where it was.
        assert!(SLOW.lead_to(process, SLOW.enter(process, None)) && SLOW.is_enabled());
        assert_eq!(SLOW.number(), Some(number));
        let numbers = 0..process.segment.geometry().points();
        let entries = numbers.filter_map(|at| process.segment.entry(at)?.read());
        let is_slow = |entry: &pfp_shm_layout::point::EntryPicture| {
            let (offset, len) = (entry.name.offset as usize, entry.name.len as usize);
            process
                .segment
                .text(offset, len)
                .is_some_and(|text| text.iter().map(|byte| byte.load(Relaxed)).eq(*b"slow"))
        };
        assert_eq!(entries.filter(is_slow).count(), 1);
    }
}
