//! Points: named places in the program.

use std::borrow::Cow;
use std::panic::Location;
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::time::Duration;

use pfp_shm_layout::control::{self, Alpha, Change, Control};

use crate::engine::ending;
use crate::engine::measure::Guard;
use crate::engine::process::{self, NotEntered};
use crate::engine::turn::{Denied, Turn};
use crate::engine::{cold, thread};
use crate::numeric;
use crate::stats::{self, Histogram, Stats};
use crate::timed::{self, REST, Timed};
use crate::{AlphaError, alpha_of};

/// Points that are named by a number: `0..NUMERIC`. Point 0 is the
/// calibration's.
pub const NUMERIC: u32 = 64;
/// The first number of a point that is named in the source.
pub(crate) const FIRST_NAMED: usize = NUMERIC as usize;

/// The word of a point that no process knows yet. It reads as "on", so that the
/// first begin goes on to look for its cell and finds none: not being
/// registered needs no test of its own.
static UNREGISTERED: AtomicU64 = AtomicU64::new(crate::c::UNREGISTERED);

/// In the place of the next point: it is not in the list.
const UNLISTED: *mut Point = ptr::without_provenance_mut(1);

/// A profile point: a region of the program with statistics of its own.
///
/// ```
/// static PARSE: pfp::Point = pfp::Point::new("parse");
///
/// fn parse(line: &str) -> usize {
///     let _guard = PARSE.measure();
///     line.split(',').count()
/// }
/// assert_eq!(parse("a,b"), 2);
/// ```
///
/// A point must be a `static`: the viewer steers it for as long as the program
/// runs. It measures from the start, unless it [starts off](Self::starts_off) or
/// the environment has `PFP_DEFAULT=off`, and `PFP_ENABLE` does not name it.
///
/// # What its times hold
///
/// Exclusive time is the region's own: without the regions inside it and without what
/// measuring those took. Inclusive time has both, so it grows with the number of regions
/// inside. A region whose point is off is none: its time is that of the region around it, in
/// both figures. Switching a point off therefore moves its time to its callers.
#[derive(Debug)]
#[repr(C)]
pub struct Point {
    /// The word that steers it, in the segment. First, as C's inline functions
    /// expect it.
    control: AtomicPtr<AtomicU64>,
    /// Its number in the point table.
    index: AtomicU32,
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
    /// Whether what it measures is a device's time.
    device: bool,
    /// Whether it is the whole of a [`Timed`]: what is begun of it is recorded by its
    /// variants.
    is_whole: bool,
    /// Whether [`crate::set_enabled`] has switched it off.
    paused: AtomicBool,
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

impl Point {
    /// A point of this name; the place is where this is called.
    #[must_use]
    #[track_caller]
    pub const fn new(name: &'static str) -> Self {
        let here = Location::caller();
        Self::named(Name::Literal(name), 0, here.file(), here.line())
    }

    /// A point of this name at a place of the source that is not this one: for
    /// generated code, and for bindings of other languages. An empty `file` says
    /// that the place is not known.
    ///
    /// ```
    /// static LEXER: pfp::Point = pfp::Point::at("lexer", "grammar.y", 12);
    /// let _guard = LEXER.measure();
    /// ```
    #[must_use]
    pub const fn at(name: &'static str, file: &'static str, line: u32) -> Self {
        Self::named(Name::Literal(name), 0, file, line)
    }

    /// The point of a number below [`NUMERIC`], which needs no static of the program's: for
    /// code that has numbers instead of names, as generated code and real-time systems do.
    ///
    /// It is off until it is enabled, and has no name until it is given one. Point 0 is the
    /// calibration's. A number beyond the range leads to a point that is never on, and is
    /// counted as a refused point.
    ///
    /// ```
    /// use pfp::Point;
    ///
    /// Point::numbered(3).set_name("control loop");
    /// Point::numbered(3).enable();
    /// for _ in 0..10 {
    ///     Point::numbered(3).begin_once();
    ///     Point::numbered(3).end();
    /// }
    /// # #[cfg(not(miri))]
    /// assert_eq!(Point::numbered(3).stats().map(|stats| stats.count), Some(10));
    /// ```
    #[inline]
    #[must_use]
    pub fn numbered(id: u32) -> &'static Self {
        numeric::point_or_none(id)
    }

    /// The point, switched off from the start: it measures once it is enabled
    /// here, in the viewer, or by `PFP_ENABLE` in the environment.
    ///
    /// ```
    /// static DETAIL: pfp::Point = pfp::Point::new("detail").starts_off();
    /// assert!(!DETAIL.is_enabled());
    /// ```
    #[must_use]
    pub const fn starts_off(self) -> Self {
        Self { starts_on: false, ..self }
    }

    /// The point, fenced: its stamps wait for the work before them.
    ///
    /// Otherwise a processor reads the end of a short region while its last loads and chains
    /// of instructions are still under way, and up to some 50 ns of it are counted for the
    /// region around. Fences cost some 20 ns, which are taken out of the figures, and the work on
    /// both sides of a stamp no longer overlaps: the program becomes that much slower.
    /// `PFP_FENCE=1` fences all points. Futures, regions with amounts that are begun by hand,
    /// and threads without a lane of their own have no fences.
    ///
    /// ```
    /// static LOOKUP: pfp::Point = pfp::Point::new("lookup").fenced();
    /// let _guard = LOOKUP.measure();
    /// ```
    #[must_use]
    pub const fn fenced(self) -> Self {
        Self { fenced: true, ..self }
    }

    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// Has the point's stamps wait for the work before them, or not, as
    /// [`fenced`](Self::fenced); takes effect at the next begin.
    pub fn set_fenced(&'static self, fenced: bool) {
        self.change(Change::Fence(fenced));
    }

    /// The point, of a device's time or of the clock's: viewers count it as no CPU's.
    pub(crate) const fn of_a_device(self) -> Self {
        Self { device: true, ..self }
    }

    /// The point, which comes first in a [`Timed`].
    pub(crate) const fn of_amounts(self) -> Self {
        Self { is_whole: true, ..self }
    }

    /// For [`crate::function_scope!`].
    #[doc(hidden)]
    #[must_use]
    #[track_caller]
    pub const fn in_function(name: fn() -> &'static str) -> Self {
        let here = Location::caller();
        Self::named(Name::Function(name), 0, here.file(), here.line())
    }

    /// The point of a number.
    pub(crate) const fn numeric(number: u32) -> Self {
        Self::named(Name::Number, number, "", 0)
    }

    /// A point that is off for good.
    pub(crate) const fn never() -> Self {
        Self {
            control: AtomicPtr::new((&raw const process::REFUSED).cast_mut()),
            registering: Turn::done_already(),
            ..Self::named(Name::Literal(""), 0, "", 0)
        }
    }

    /// A place for a variant of a point with amounts.
    pub(crate) const fn variant(place: u8) -> Self {
        Self::named(Name::Variant(AtomicPtr::new(ptr::null_mut()), place), 0, "", 0)
    }

    const fn named(name: Name, number: u32, file: &'static str, line: u32) -> Self {
        let starts_on = !matches!(name, Name::Number) || number == 0;
        Self {
            control: AtomicPtr::new((&raw const UNREGISTERED).cast_mut()),
            index: AtomicU32::new(number),
            registering: Turn::new(),
            next: AtomicPtr::new(UNLISTED),
            name,
            file,
            line,
            starts_on,
            fenced: false,
            device: false,
            is_whole: false,
            paused: AtomicBool::new(false),
        }
    }

    /// Measures until the guard is dropped.
    #[inline(always)]
    pub fn measure(&'static self) -> Guard {
        Guard::begin(self)
    }

    /// Begins the region, to be ended with [`Self::end`] or
    /// [`Self::end_latched`] in the same thread or [context](crate::ExecutionContext).
    ///
    /// A point may be begun again inside itself. Up to 32 regions that were begun by
    /// hand may be open at a time in a thread or context; a begin beyond that is not
    /// measured, and counted as refused. Inclusive time counts recursion once, but for
    /// a guard of the point inside its region that was begun by hand: that is counted
    /// twice there. Exclusive time is right in any case.
    #[inline]
    pub fn begin(&'static self) {
        ending::begin(self, false);
    }

    /// Begins the region as [`begin`](Self::begin) does, but only once: if it is open in this
    /// thread or [context](crate::ExecutionContext) already, the point is switched off as invalid.
    ///
    /// That is the rule of points by [number](Self::numbered), where a begin without an end is
    /// a mistake and not recursion. The viewer shows the point as invalid; enabling it makes
    /// it valid again.
    #[inline]
    pub fn begin_once(&'static self) {
        ending::begin(self, true);
    }

    /// Ends the region. Without a begin it does nothing, so that a loop may
    /// start with an end. If other regions were begun inside and not ended, they
    /// are given up, which the viewer counts as a mismatch.
    #[inline]
    pub fn end(&'static self) {
        ending::end(self, false);
    }

    /// Ends the region, but keeps what it measured and adds it to the point's
    /// next measurement in this thread or [context](crate::ExecutionContext): the end
    /// that is not latched records the sum as one.
    #[inline]
    pub fn end_latched(&'static self) {
        ending::end(self, true);
    }

    /// Switches the point on; takes effect at the next begin.
    pub fn enable(&'static self) {
        self.change(Change::Enable);
    }

    /// Switches the point off; takes effect at the next begin.
    pub fn disable(&'static self) {
        self.change(Change::Disable);
    }

    /// Whether the point measures.
    #[must_use]
    pub fn is_enabled(&'static self) -> bool {
        self.word().is_some_and(|word| Control(word.load(Relaxed)).enabled())
    }

    /// Starts the point's statistics afresh; takes effect at the next begin.
    pub fn reset(&'static self) {
        self.change(Change::Reset);
    }

    /// Averages exponentially, `avg += alpha * (value - avg)` at each
    /// measurement.
    ///
    /// # Errors
    ///
    /// `alpha` is not in (0, 1].
    pub fn set_alpha(&'static self, alpha: f64) -> Result<(), AlphaError> {
        let alpha = Alpha::new(alpha).ok_or(AlphaError { alpha })?;
        self.change(Change::Alpha(alpha));
        Ok(())
    }

    /// Averages exponentially with the weight `period / tau`: `period` is how
    /// often the region runs, `tau` the time over which to average. 100 ms over
    /// 500 ms is a weight of 0.2.
    ///
    /// # Errors
    ///
    /// The weight is not in (0, 1]: `period` is zero or longer than `tau`.
    pub fn set_average(&'static self, period: Duration, tau: Duration) -> Result<(), AlphaError> {
        self.set_alpha(alpha_of(period, tau))
    }

    /// Averages no longer.
    pub fn clear_alpha(&'static self) {
        self.change(Change::Alpha(Alpha::OFF));
    }

    /// The weight of a new value in the exponential average, in (0, 1]; none while
    /// averaging is off.
    #[must_use]
    pub fn alpha(&'static self) -> Option<f64> {
        Control(self.word()?.load(Relaxed)).alpha()
    }

    /// The point's name as the viewer shows it.
    #[must_use]
    pub fn name(&'static self) -> Cow<'static, str> {
        match self.name_in_the_table() {
            Some(name) => Cow::Owned(name),
            None => Cow::Borrowed(self.name.known()),
        }
    }

    /// Gives the point another name, of which 1024 bytes are kept. Each name takes its room
    /// for good, unless the point has it already: names are not for what changes all the
    /// time.
    pub fn set_name(&'static self, name: &str) {
        if self.word().is_some()
            && let Some(process) = process::current()
        {
            process.segment.rename_point(self.index(), name);
        }
    }

    /// The file that the point is in; empty where that is not known.
    #[must_use]
    pub const fn file(&'static self) -> &'static str {
        self.file
    }

    /// The line that the point is at; 0 where that is not known.
    #[must_use]
    pub const fn line(&'static self) -> u32 {
        self.line
    }

    /// The point's statistics since its last reset, over all threads; none if
    /// it has not measured yet. It allocates, so it is not for signal handlers.
    #[must_use]
    pub fn stats(&'static self) -> Option<Stats> {
        self.stats_with(Histogram::Read)
    }

    // ---- for the engine ----

    /// [`Self::stats`], with or without the histogram.
    pub(crate) fn stats_with(&'static self, histogram: Histogram) -> Option<Stats> {
        match self.timed() {
            Some(timed) => timed.stats_with(histogram),
            None => stats::of_point(self, histogram),
        }
    }

    /// The word that steers the point. Enabled also while not registered.
    #[inline(always)]
    pub(crate) fn control(&self) -> Control {
        // SAFETY: the pointer is to a static or into the segment, which is
        // never unmapped.
        Control(unsafe { (*self.control.load(Relaxed)).load(Relaxed) })
    }

    /// Number of the point; 0 while not registered.
    #[inline(always)]
    pub(crate) fn index(&self) -> usize {
        self.index.load(Relaxed) as usize
    }

    /// Number that the point must have.
    pub(crate) fn number(&self) -> Option<u32> {
        let index = self.index.load(Relaxed);
        // A refused point has none.
        let known = index != 0 && self.registering.is_done();
        (self.is_numeric() || known).then_some(index)
    }

    /// Number that the point is to have in a table, also if it was not registered to the
    /// end: the one that it has in the parent's.
    pub(crate) fn wanted_number(&self) -> Option<u32> {
        let index = self.index.load(Relaxed);
        (self.is_numeric() || index != 0).then_some(index)
    }

    pub(crate) fn description(&self) -> (&str, &str, u32) {
        let is_calibration = self.is_numeric() && self.index.load(Relaxed) == 0;
        let name = if is_calibration { "overhead" } else { self.name.known() };
        (name, self.file, self.line)
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
        match &self.name {
            Name::Variant(of, place) => Kind::Variant { of, place: *place },
            Name::Literal(_) | Name::Function(_) | Name::Number => Kind::Plain,
        }
    }

    /// Says of what it is a variant, before it is registered.
    pub(crate) fn belong_to(&self, timed: &'static Timed) {
        if let Name::Variant(of, _) = &self.name {
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
        self.is_whole.then(|| unsafe { &*timed })
    }

    /// Whether its cells have sums of amounts: those of its regions differ.
    pub(crate) fn has_sums(&self) -> bool {
        matches!(self.name, Name::Variant(_, place) if usize::from(place) == REST)
    }

    /// Whether it measured when everything was switched off; forgets it if asked for
    /// the point to be switched on again.
    pub(crate) fn pause(&'static self, pause: bool) {
        if !pause {
            if self.paused.swap(false, Relaxed) {
                self.enable();
            }
        } else if self.is_enabled() {
            self.paused.store(true, Relaxed);
            self.disable();
        }
    }

    /// Switches it off until [`crate::set_enabled`] switches all on: it would have
    /// started on.
    pub(crate) fn start_paused(&self) {
        self.paused.store(true, Relaxed);
    }

    /// Measures no more: what belongs to it found no room.
    pub(crate) fn refuse(&self) {
        self.control.store((&raw const process::REFUSED).cast_mut(), Release);
    }

    fn is_numeric(&self) -> bool {
        matches!(self.name, Name::Number)
    }

    /// Whether what it measures is a device's time.
    pub(crate) fn is_device(&self) -> bool {
        self.device
    }

    /// Whether it measures without being switched on.
    pub(crate) fn starts_on(&self) -> bool {
        self.starts_on
    }

    pub(crate) fn change(&'static self, change: Change) {
        if let Some(word) = self.word() {
            control::apply(word, change);
        }
    }

    /// The point's word, registered if need be; none if it was refused.
    pub(crate) fn word(&'static self) -> Option<&'static AtomicU64> {
        if !self.register() {
            return None;
        }
        let word = self.control.load(Acquire);
        // SAFETY: as in `control`.
        (!ptr::eq(word, &raw const process::REFUSED)).then(|| unsafe { &*word })
    }

    /// Enters the point into the process's table, once; false if that cannot be
    /// done now.
    #[cold]
    pub(crate) fn register(&'static self) -> bool {
        let Some(process) = process::get() else { return false };
        if self.registering.is_done() {
            return true;
        }
        // A thread that the process does not know of must not keep others waiting.
        process.is_callers_threads(thread::tid())
            && cold::section(|| self.register_in_turn(process))
    }

    fn register_in_turn(&'static self, process: &'static process::Process) -> bool {
        // A thread that has waited enough registers the point too, at the price of a number.
        let _turn = match self.registering.take() {
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
        self.registering.set_done();
        process::pause_latecomer(self);
        true
    }

    /// Enters a registered point into the table of a forked child.
    pub(crate) fn enter_again(&'static self, process: &'static process::Process) {
        // The parent's words are there as they were; a refused point has no word there
        // and tries anew.
        let refused = ptr::eq(self.control.load(Relaxed), &raw const process::REFUSED);
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
        self.control.store((&raw const *word).cast_mut(), Release);
        true
    }

    /// The number of the point: this one, unless another thread was faster.
    pub(crate) fn decide_number(&self, reserved: u32) -> u32 {
        match self.index.compare_exchange(0, reserved, Relaxed, Relaxed) {
            Ok(_) => reserved,
            Err(found) => found,
        }
    }

    /// Links the point into the process's list, if it is not there. Two threads may do
    /// this at once, where one has taken the turn from the other.
    fn publish(&'static self) {
        let me = (&raw const *self).cast_mut();
        loop {
            let next = self.next.load(Acquire);
            // Read before the list is searched: whoever links it to what `next` was can do
            // so only as long as that is the head.
            let head = process::POINTS.load(Acquire);
            if process::points().any(|point| ptr::eq(point, self)) {
                return;
            }
            if next == head || self.next.compare_exchange(next, head, AcqRel, Relaxed).is_ok() {
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
            point.registering.left_by_nobody();
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
        let _turn = SLOW.registering.take().expect("nobody else registers it");
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
