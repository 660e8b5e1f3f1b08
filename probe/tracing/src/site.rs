//! Callsites of spans. Each one is a point.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use pfp::own::{self, heap};
use pfp::stack::Open;
use pfp::table::{Once, Table, mix};
use pfp::{MeteredPoint, Point, past};
use tracing_core::Metadata;
use tracing_core::span::Attributes;
use tracing_core::subscriber::Interest;

use crate::fields::{Amounts, FieldText, MAX_AMOUNTS};
use crate::{live, settings, watch};

/// Maximum number of callsites with a point. Spans of other callsites are not measured.
pub(crate) const SITES: usize = 4096;

/// Maximum number of texts for which a callsite has points. Spans with further texts are measured
/// at the callsite's own point.
const TEXTS: usize = 256;

/// Field with the names of the fields whose numbers are amounts.
const AMOUNTS: &str = "pfp.amounts";
/// Span name that the crate `profiling` gives to all functions. The function's name is in the field
/// `message`.
const FUNCTION: &str = "function_scope";
const MESSAGE: &str = "message";

/// A callsite of spans, or the spans of a callsite whose fields have the same text. It has a point.
pub(crate) struct Site {
    pub(crate) metadata: &'static Metadata<'static>,
    /// Number of the site. Only sites with numbers below [`SITES`] are used.
    pub(crate) number: usize,
    /// Point of the spans. Created with the first span if its fields determine the name or the
    /// amounts.
    measured: Once<Measured>,
    /// Point of the spans' lifetimes, by the wall clock.
    lifetime: Once<Point>,
    /// Whether the last update of callsites enabled these spans.
    is_wanted: AtomicBool,
    /// Fields whose texts are part of the names of the spans' points.
    fields: Vec<&'static str>,
    /// Number of texts of these fields that have a site of their own.
    texts: AtomicUsize,
    /// Fields' text that the spans have in common; `None` for the site of a whole callsite.
    part: Option<Part>,
}

/// The spans of a callsite whose fields have the same text.
struct Part {
    whole: &'static Site,
    text: String,
}

enum Measured {
    Point(Point),
    /// A point without amounts, for whose spans data are stored in a [`live::Live`].
    Kept(Point),
    MeteredPoint {
        metered: &'static MeteredPoint,
        names: &'static [&'static str],
    },
}

static BY_METADATA: Table<Site, { 4 * SITES }> = Table::new();
static BY_TEXT: Table<Site, { 4 * SITES }> = Table::new();
static BY_NUMBER: [AtomicPtr<Site>; SITES] = [const { AtomicPtr::new(ptr::null_mut()) }; SITES];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether a callsite makes spans that pass the filter.
fn passes(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && settings().lets_pass(metadata)
}

#[inline]
fn hash(metadata: &Metadata<'_>) -> u64 {
    mix(ptr::from_ref(metadata).addr() as u64)
}

impl Site {
    /// Whether the spans of a callsite are wanted, for the callsite's cache. If the callsite has no
    /// point because there are too many, `tracing` asks for each span, so that each counts as
    /// refused.
    #[cold]
    pub(crate) fn interest(metadata: &'static Metadata<'static>) -> Interest {
        if !passes(metadata) {
            return Interest::never();
        }
        match Self::register(metadata).map(Self::answer) {
            Some(true) => Interest::always(),
            Some(false) => Interest::never(),
            None => Interest::sometimes(),
        }
    }

    /// Whether a span is wanted, if the callsite's cache does not contain the answer.
    pub(crate) fn wants(metadata: &Metadata<'_>) -> bool {
        if !passes(metadata) {
            return false;
        }
        let is = |site: &Self| ptr::eq(site.metadata, metadata);
        match BY_METADATA.get(hash(metadata), 0, is, || unreachable!("none is made")) {
            Some(site) if site.is_numbered() => site.is_on() || site.notice(),
            // Another thread is registering the callsite.
            None if COUNT.load(Relaxed) < SITES => true,
            _ => {
                pfp::c::count_refusal();
                false
            }
        }
    }

    /// The site of a callsite, created by the first call. `None` if the filter rejects its spans,
    /// if there are too many sites, or if memory runs out.
    #[cold]
    fn register(metadata: &'static Metadata<'static>) -> Option<&'static Self> {
        if !passes(metadata) {
            return None;
        }
        Self::find(metadata, SITES).filter(|site| site.is_numbered()).map(Self::publish)
    }

    /// The site of a new span. Registers the callsite if needed: if two threads reach a callsite at
    /// once, one registers it, and the other can create its span before the registration.
    #[inline]
    pub(crate) fn of(metadata: &'static Metadata<'static>) -> Option<&'static Self> {
        match Self::find(metadata, 0) {
            Some(site) if site.is_numbered() => Some(site),
            _ => Self::register(metadata),
        }
    }

    #[inline]
    fn find(metadata: &'static Metadata<'static>, most: usize) -> Option<&'static Self> {
        let is = |site: &Self| ptr::eq(site.metadata, metadata);
        BY_METADATA.try_get(hash(metadata), most, is, || Self::new(metadata))
    }

    /// Whether the number is small enough for a point. Several threads that create the same site at
    /// once take a number each, so numbers can run out early.
    #[inline]
    fn is_numbered(&self) -> bool {
        self.number < SITES
    }

    /// The site with this number.
    #[inline]
    pub(crate) fn numbered(number: usize) -> Option<&'static Self> {
        // Acquire pairs with the release in `publish`.
        let site = BY_NUMBER.get(number)?.load(Acquire);
        // SAFETY: null, or a site that is never freed.
        unsafe { site.as_ref() }
    }

    pub(crate) fn all() -> impl Iterator<Item = &'static Self> {
        (0..COUNT.load(Relaxed).min(SITES)).filter_map(Self::numbered)
    }

    /// `None` if memory runs out.
    fn new(metadata: &'static Metadata<'static>) -> Option<Self> {
        let fields = settings().fields_of(metadata).ok()?;
        let measured = Once::new();
        let has = |name| metadata.fields().field(name).is_some();
        let is_function = metadata.name() == FUNCTION && has(MESSAGE);
        if !is_function && !has(AMOUNTS) && fields.is_empty() {
            let name = format_args!("{}::{}", metadata.target(), metadata.name());
            let keeps = settings().keep_spans();
            measured.get_or_try(|| Measured::new(metadata, name, default_amounts(), keeps))?;
        }
        Some(Self { measured, ..Self::unmeasured(metadata, fields, None) })
    }

    fn unmeasured(
        metadata: &'static Metadata<'static>,
        fields: Vec<&'static str>,
        part: Option<Part>,
    ) -> Self {
        Self {
            metadata,
            number: COUNT.fetch_add(1, Relaxed),
            measured: Once::new(),
            lifetime: Once::new(),
            is_wanted: AtomicBool::new(true),
            fields,
            texts: AtomicUsize::new(0),
            part,
        }
    }

    /// Whether all spans are measured at one point, and no data of them are stored.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.measured.get(), Some(Measured::Point(_)))
    }

    /// Whether texts of fields are part of the names of points.
    #[inline]
    pub(crate) fn has_parts(&self) -> bool {
        !self.fields.is_empty()
    }

    /// The site of a new span of this callsite: the site for its fields' text, or else the
    /// callsite's own.
    pub(crate) fn part(&'static self, span: &Attributes<'_>) -> &'static Self {
        if !self.has_parts() {
            return self;
        }
        let Some(text) = FieldText::together(span, &self.fields) else { return self };
        let text = text.as_str();
        let mut hasher = DefaultHasher::new();
        (self.number, text).hash(&mut hasher);
        let is = |site: &Self| {
            site.part.as_ref().is_some_and(|it| ptr::eq(it.whole, self) && it.text == text)
        };
        let most = if self.texts.load(Relaxed) < TEXTS { SITES } else { 0 };
        let make = || {
            let part = Part { whole: self, text: heap::text(text).ok()? };
            self.texts.fetch_add(1, Relaxed);
            Some(Self::unmeasured(self.metadata, Vec::new(), Some(part)))
        };
        let found = BY_TEXT.try_get(hasher.finish(), most, is, make);
        found.filter(|site| site.is_numbered()).map_or(self, Self::publish)
    }

    /// Makes the site available to `numbered`.
    fn publish(&'static self) -> &'static Self {
        if let Some(place) = BY_NUMBER.get(self.number) {
            // Release pairs with the acquire in `numbered`.
            place.store(ptr::from_ref(self).cast_mut(), Release);
        }
        self
    }

    /// Creates the point of a callsite at its first span. `None` if memory runs out.
    #[cold]
    fn make(&self, first: &Attributes<'_>) -> Option<&Measured> {
        let text_of = |field| FieldText::by(first, field);
        let (target, name) = (self.metadata.target(), self.metadata.name());
        let function =
            (name == FUNCTION && self.part.is_none()).then(|| text_of(MESSAGE)).flatten();
        // A layer needs the stored data to find the site of a span that belongs to a part.
        let keeps = settings().keep_spans() || self.has_parts() || self.part.is_some();
        let made = |name: fmt::Arguments<'_>| {
            self.measured.get_or_try(|| match text_of(AMOUNTS) {
                Some(listed) => {
                    let amounts = listed.as_str().split(',').map(str::trim);
                    Measured::new(self.metadata, name, amounts, keeps)
                }
                None => Measured::new(self.metadata, name, default_amounts(), keeps),
            })
        };
        match (&self.part, function) {
            (Some(Part { text, .. }), _) => made(format_args!("{target}::{name}{{{text}}}")),
            (None, Some(function)) => made(format_args!("{}", function.as_str())),
            (None, None) => made(format_args!("{target}::{name}")),
        }
    }

    /// Whether spans are wanted. Callsites cache the answer.
    fn answer(&'static self) -> bool {
        let is_on = self.is_on();
        self.is_wanted.store(is_on, Relaxed);
        if !is_on {
            watch::begin();
        }
        is_on
    }

    fn is_on(&'static self) -> bool {
        let is_on = match self.measured.get() {
            None => !self.has_parts(),
            Some(measured) => pfp::c::may_measure(measured.point()),
        };
        // A callsite is on while one of its parts is on, and before it has parts.
        is_on
            || self.has_parts() && self.parts().next().is_none_or(|_| self.parts().any(Self::is_on))
    }

    fn parts(&'static self) -> impl Iterator<Item = &'static Self> {
        let is_its = |part: &Part| ptr::eq(part.whole, self);
        Self::all().filter(move |site| site.part.as_ref().is_some_and(is_its))
    }

    /// Whether spans were switched on or off since callsites were last updated.
    pub(crate) fn has_changed(&'static self) -> bool {
        self.part.is_none() && self.is_on() != self.is_wanted.load(Relaxed)
    }

    /// Whether callsites make no spans of this site.
    pub(crate) fn is_off(&self) -> bool {
        !self.is_wanted.load(Relaxed)
    }

    /// The point of the spans, if it has no amounts and data of the spans are stored.
    pub(crate) fn point(&'static self) -> Option<&'static Point> {
        match self.measured.get() {
            Some(Measured::Kept(point)) => Some(point),
            _ => None,
        }
    }

    /// Records the lifetime of a span that was created when the counter was at `begun`. Counts a
    /// refusal if memory runs out.
    pub(crate) fn record_lifetime(&'static self, begun: u64) {
        let Some(measured) = self.measured.get() else { return };
        let point = self.lifetime.get_or_try(|| {
            let place = measured.point();
            let name = heap::text(&place.name()).ok()?.leak();
            Some(past::wall_point(name, place.file(), place.line()))
        });
        let Some(point) = point else { return pfp::c::count_refusal() };
        // The lifetime is 0 if the counter of this CPU is behind the counter of the CPU on which
        // the span was created.
        let lived = (pfp::ticks().wrapping_sub(begun) as i64).max(0) as u64;
        past::record_wall(point, begun, lived);
    }

    /// Stores data of a new span if its point needs them. Returns whether it needs them. If memory
    /// for the point runs out, this counts a refusal.
    #[inline(never)]
    pub(crate) fn keep(&'static self, span: &Attributes<'_>, id: u64) -> bool {
        let Some(measured) = self.measured.get().or_else(|| self.make(span)) else {
            pfp::c::count_refusal();
            return false;
        };
        match measured {
            Measured::Point(_) => return false,
            Measured::Kept(_) => live::keep(id, self, &Amounts::of(&[])),
            Measured::MeteredPoint { names, .. } => {
                let mut amounts = Amounts::of(names);
                span.record(&mut amounts);
                live::keep(id, self, &amounts);
            }
        }
        true
    }

    /// The names of the amounts.
    pub(crate) fn names(&'static self) -> &'static [&'static str] {
        match self.measured.get() {
            Some(Measured::MeteredPoint { names, .. }) => names,
            _ => &[],
        }
    }

    /// Begins a region for an entry of the span with this id.
    #[inline]
    pub(crate) fn begin(&'static self, open: &mut Open, id: u64) {
        let is_measured = match self.measured.get() {
            Some(Measured::Point(point)) if pfp::c::may_measure(point) => {
                return open.measure(point);
            }
            Some(Measured::Point(_)) => false,
            Some(Measured::Kept(point)) => begin_kept(open, point),
            Some(Measured::MeteredPoint { metered, names }) => {
                begin_metered(open, metered, names.len(), id)
            }
            None => true,
        };
        if !is_measured {
            self.notice();
        }
    }

    /// Requests an update of callsites after a span found its point switched off. Returns false,
    /// the result that its callers need.
    #[cold]
    fn notice(&'static self) -> bool {
        let whole = self.part.as_ref().map_or(self, |part| part.whole);
        if whole.is_wanted.load(Relaxed) && !whole.is_on() {
            watch::begin();
        }
        false
    }
}

/// Begins a region of a span with data. Returns whether its point is on.
#[inline(never)]
fn begin_kept(open: &mut Open, point: &'static Point) -> bool {
    match settings().per_span {
        false => open.measure(point),
        true => open.measure_part(point, live::lend),
    }
    open.is_measured()
}

/// Begins a region with amounts. Returns whether its point is on.
#[inline(never)]
fn begin_metered(open: &mut Open, metered: &'static MeteredPoint, most: usize, id: u64) -> bool {
    let amounts = live::find(id).map_or([0; MAX_AMOUNTS], live::Live::amounts);
    match most {
        1 | 2 => open.measure_with(metered, [amounts[0], amounts[1]]),
        _ => open.measure_with(metered, amounts),
    }
    pfp::c::may_measure(metered.point())
}

/// Names of the amounts of spans without the field [`AMOUNTS`].
fn default_amounts() -> impl Iterator<Item = &'static str> {
    settings().amounts.iter().map(String::as_str)
}

impl Measured {
    /// `None` if memory runs out.
    fn new<'a>(
        metadata: &'static Metadata<'static>,
        name: fmt::Arguments<'_>,
        amounts: impl Iterator<Item = &'a str>,
        keeps: bool,
    ) -> Option<Self> {
        let fields = metadata.fields();
        let field = |wanted| fields.iter().map(|field| field.name()).find(|name| *name == wanted);
        let names = heap::collect(amounts.filter_map(field).take(MAX_AMOUNTS)).ok()?;
        let room = own::room::<MeteredPoint>()?;
        let name = heap::format(name).ok()?.leak();
        let point = Point::at(name, metadata.file().unwrap_or(""), metadata.line().unwrap_or(0));
        if names.is_empty() {
            return Some(if keeps { Self::Kept(point) } else { Self::Point(point) });
        }
        let names: &'static [&'static str] = names.leak();
        let metered = Box::leak(Box::write(room, past::metered(point, names)));
        Some(Self::MeteredPoint { metered, names })
    }

    fn point(&'static self) -> &'static Point {
        match self {
            Self::Point(point) | Self::Kept(point) => point,
            Self::MeteredPoint { metered, .. } => metered.point(),
        }
    }
}
