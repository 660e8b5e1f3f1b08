//! Spans of the [`tracing`](https://docs.rs/tracing) crate as profile points: the exclusive CPU
//! time of each span, live, without nested spans, pre-emption and waiting.
//!
//! ```
//! # fn main() -> Result<(), pfp_tracing::InitError> {
//! pfp_tracing::init()?;
//! let _span = tracing::info_span!("parse").entered();
//! // ...
//! # Ok(())
//! # }
//! ```
//!
//! Run `pfp-top` beside the program. Each callsite of spans is a point with the span's target and
//! name (`hyper::proto::h1::role::parse_headers`), its file and its line. Each entry of a span is
//! one measurement: an instrumented future that is polled ten times has ten. The time between polls
//! does not count.
//!
//! # Subscriber or layer
//!
//! [`init`] sets a subscriber that only makes points of spans, which is the cheaper choice.
//! [`layer`] works beside other layers on a registry of `tracing-subscriber`:
//!
//! ```no_run
//! use tracing_subscriber::layer::SubscriberExt;
//!
//! let all = tracing_subscriber::registry().with(pfp_tracing::layer());
//! tracing::subscriber::set_global_default(all).expect("there is no other");
//! ```
//!
//! Events are not measured, and pfp does not change their cost.
//!
//! # Which spans
//!
//! By default all spans are measured. The environment variable `PFP_TRACING` selects some by level,
//! target, or both: `info,hyper=off,my_app::db=trace`.
//!
//! While a point is switched off in `pfp-top`, its callsite costs one load and one branch, as
//! without a subscriber. A thread updates callsites ten times a second while any point is off; the
//! program does not have to do anything. Other layers still see all spans. In a forked child,
//! points that were off at the fork stay off.
//!
//! # Amounts
//!
//! Fields with numbers can be amounts, such as bytes. [`Options::amounts`] names these fields, or
//! the span does:
//!
//! ```
//! # let n = 17;
//! let _span = tracing::info_span!("read", bytes = n, pfp.amounts = "bytes").entered();
//! ```
//!
//! Amounts belong to each entry of the span. A field that is recorded later counts for the later
//! entries. A point has at most four amounts.
//!
//! # Fields in names
//!
//! All spans of a callsite share one point, unless fields distinguish them: with
//! `PFP_SPAN_FIELDS=system{name}`, or [`Options::fields`], each system of bevy has a point of its
//! own, such as `bevy_ecs::system::function_system::system{my_game::walk}`. A callsite has points
//! for at most 256 texts of these fields. Spans with further texts, and spans without a text, share
//! the point of the callsite itself.
//!
//! bevy needs the features `trace` and `debug`: from 0.18 to 0.20, `trace` alone gives all systems
//! one point, `system{<Enable the debug feature to see the name>}`. With bevy's `DefaultPlugins`,
//! `LogPlugin { custom_layer: |_| Some(Box::new(pfp_tracing::layer())), ..default() }` adds the
//! layer.
//!
//! # Limitations
//!
//! - A guard that is held across an `.await` gives wrong entries: use `Instrument` instead. If the
//!   task continues on another thread, or has a span of its own, the entry is not recorded, and
//!   counts as a mismatch in `pfp-top`. In a task without a span that continues on the same thread,
//!   the entry is recorded, and includes the thread's work between the polls.
//! - If a guard is dropped before guards that were created inside it, the dropped guard's region
//!   ends with the last of the inner guards. Exclusive times stay correct, but the inclusive time
//!   is too long. This counts as a mismatch.
//! - If memory runs out, pfp does not end the program: spans of new callsites are not measured, and
//!   count as refused. The crates `tracing-core` and `tracing-subscriber` end the program.
//! - At most 4,096 callsites, 1,024 nested spans, and 16,384 simultaneous spans with amounts are
//!   measured. Further ones count as refused.

// As in the probe, no function may end its host when memory runs out; see ../clippy.toml.
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_macros))]

mod fields;
mod layer;
mod live;
mod site;
mod subscriber;
mod threads;
mod watch;

use std::ffi::{CStr, OsStr};
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use pfp::own::heap::{self, NoMemory};
use pfp::table::Once;
use tracing_core::dispatcher::{self, Dispatch};
use tracing_core::{LevelFilter, Metadata, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::Filter;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

use fields::FieldsOf;
pub use subscriber::PointSubscriber;

/// Environment variable for the filter.
const VARIABLE: &CStr = c"PFP_TRACING";
/// Environment variable for the fields that are part of names.
const FIELDS_VARIABLE: &CStr = c"PFP_SPAN_FIELDS";

/// Makes a profile point of each callsite of spans, in all threads, from now on.
///
/// # Errors
///
/// Fails if the program has already set a subscriber, which stays, or if `PFP_TRACING` is invalid.
/// In both cases, no spans are measured; a program can ignore the error and continue.
pub fn init() -> Result<(), InitError> {
    Options::default().init()
}

/// Returns a layer that makes points of spans, for a registry with other layers.
///
/// An invalid `PFP_TRACING` counts as `off`, and so does a lack of memory; [`Options::layer`]
/// reports them instead.
pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    let settings = Options::default().settings();
    // If the settings cannot be stored, no spans are measured.
    let _ = settings.unwrap_or(OFF).hold();
    layer::PointLayer::new().with_filter(layer::PointFilter)
}

/// Options of the measurement. The first options used apply to the whole process.
#[derive(Clone, Debug, Default)]
pub struct Options {
    filter: Option<String>,
    amounts: Vec<String>,
    fields: Option<String>,
    per_span: bool,
    lifetimes: bool,
    /// Whether memory ran out for an option.
    is_short: bool,
}

impl Options {
    /// Measures only the spans that this filter selects, such as `info,hyper=off`. `PFP_TRACING`
    /// overrides this option.
    #[must_use]
    pub fn filter(mut self, filter: &str) -> Self {
        self.filter = self.kept(heap::text(filter));
        self
    }

    /// Counts the numbers in fields of these names as amounts, such as `["bytes", "items"]`. If a
    /// span has more than four, the first four count.
    #[must_use]
    pub fn amounts<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.amounts = self.kept(fields::texts(names)).unwrap_or_default();
        self
    }

    /// Makes fields part of the names of points: `system{name}` creates a point for each text of
    /// the field `name` of spans named `system`. Commas separate spans, and spaces separate fields.
    /// A span's name may be preceded by its target and `::`; without a name, the fields apply to
    /// all spans. A callsite has at most 256 such points; spans with further texts share the
    /// callsite's own point. These spans cost more, since each occupies memory while it lives.
    /// `PFP_SPAN_FIELDS` overrides this option.
    #[must_use]
    pub fn fields(mut self, fields: &str) -> Self {
        self.fields = self.kept(heap::text(fields));
        self
    }

    /// Makes all entries of a span one measurement, recorded when the span closes: the sum over all
    /// polls of an instrumented future. This costs more. Spans with amounts, and spans beyond
    /// 16,384 at a time, are still measured entry by entry. So is an entry that ends at the same
    /// time as an entry of the same span on another thread.
    #[must_use]
    pub fn per_span(mut self) -> Self {
        self.per_span = true;
        self
    }

    /// Also measures the lifetime of each span by the wall clock, such as the whole duration of a
    /// request. The point has the same name, and `pfp-top` marks it `(wall)`.
    #[must_use]
    pub fn lifetimes(mut self) -> Self {
        self.lifetimes = true;
        self
    }

    fn kept<T>(&mut self, option: Result<T, NoMemory>) -> Option<T> {
        self.is_short |= option.is_err();
        option.ok()
    }

    /// Sets the subscriber like [`init`], but with these options.
    ///
    /// # Errors
    ///
    /// Fails if the program has already set a subscriber, if the filter or the fields are invalid,
    /// or if memory runs out.
    pub fn init(self) -> Result<(), InitError> {
        dispatcher::set_global_default(Dispatch::new(self.subscriber()?))
            .map_err(|_| InitError::NotTheFirst)
    }

    /// Returns the subscriber that [`init`](Self::init) sets, for programs that set or wrap it
    /// themselves.
    ///
    /// # Errors
    ///
    /// Fails if the filter or the fields are invalid, or if memory runs out.
    pub fn subscriber(self) -> Result<PointSubscriber, InitError> {
        self.settings()?.hold()?;
        Ok(PointSubscriber::new())
    }

    /// Returns a layer like [`layer`], but with these options.
    ///
    /// # Errors
    ///
    /// Fails if the filter or the fields are invalid, or if memory runs out.
    pub fn layer<S>(self) -> Result<impl Layer<S>, InitError>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        self.settings()?.hold()?;
        Ok(layer::PointLayer::new().with_filter(layer::PointFilter))
    }

    fn settings(self) -> Result<Settings, InitError> {
        let set = |variable| -> Result<Option<String>, NoMemory> {
            let value = pfp::c::environment(variable).map(OsStr::as_bytes);
            let text = value.map(heap::lossy).transpose()?;
            Ok(text.filter(|text| !text.trim().is_empty()))
        };
        let Self { filter, amounts, fields, per_span, lifetimes, is_short } = self;
        // The parser of filters ends the program if it finds no memory.
        if is_short || !heap::has_room() {
            return Err(InitError::NoMemory);
        }
        let filter = set(VARIABLE)?
            .or(filter)
            .map(|text| text.parse::<Targets>().map_err(|_| InitError::Filter { found: text }))
            .transpose()?;
        let fields = match set(FIELDS_VARIABLE)?.or(fields) {
            None => Vec::new(),
            Some(text) => fields::parse(&text)?.ok_or(InitError::Fields { found: text })?,
        };
        Ok(Settings { filter, amounts, fields, per_span, lifetimes, is_off: false })
    }
}

/// Reason why no spans are measured.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InitError {
    /// The program has already set a subscriber. Add [`layer`] to it.
    NotTheFirst,
    /// The filter is invalid.
    Filter {
        /// The filter's text.
        found: String,
    },
    /// The fields are invalid.
    Fields {
        /// The fields' text.
        found: String,
    },
    /// Memory ran out.
    NoMemory,
}

impl From<NoMemory> for InitError {
    fn from(_: NoMemory) -> Self {
        Self::NoMemory
    }
}

impl fmt::Display for InitError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMemory => out.write_str("out of memory"),
            Self::NotTheFirst => out.write_str(
                "expected no subscriber before pfp's, found one; add pfp_tracing::layer() to it",
            ),
            Self::Filter { found } => write!(
                out,
                "expected levels and targets such as info,hyper=off, found {found:?}; correct \
                 {} or the program's filter",
                VARIABLE.to_str().unwrap_or_default()
            ),
            Self::Fields { found } => write!(
                out,
                "expected spans and their fields such as system{{name}}, found {found:?}; correct \
                 {} or the program's fields",
                FIELDS_VARIABLE.to_str().unwrap_or_default()
            ),
        }
    }
}

impl std::error::Error for InitError {}

/// Options that apply to the process.
struct Settings {
    /// Spans to measure; `None` for all.
    filter: Option<Targets>,
    amounts: Vec<String>,
    fields: Vec<FieldsOf>,
    per_span: bool,
    lifetimes: bool,
    /// Whether no spans are measured.
    is_off: bool,
}

static SETTINGS: Once<Settings> = Once::new();

/// Settings that apply until `SETTINGS` has a value.
static NONE: Settings = OFF;
const OFF: Settings = Settings {
    filter: None,
    amounts: Vec::new(),
    fields: Vec::new(),
    per_span: false,
    lifetimes: false,
    is_off: true,
};

fn settings() -> &'static Settings {
    SETTINGS.get().unwrap_or(&NONE)
}

impl Settings {
    /// Applies the options to the process, unless others already apply.
    fn hold(self) -> Result<(), NoMemory> {
        SETTINGS.get_or_try(|| Some(self)).ok_or(NoMemory)?;
        pfp::c::get_ready();
        Ok(())
    }

    /// Whether data of spans without amounts are stored, too, in a [`live::Live`].
    fn keep_spans(&self) -> bool {
        self.per_span || self.lifetimes
    }

    /// Fields of a callsite whose texts are part of the names of its points.
    fn fields_of(
        &self,
        metadata: &'static Metadata<'static>,
    ) -> Result<Vec<&'static str>, NoMemory> {
        let wanted = || self.fields.iter().filter(|fields| fields.are_of(metadata));
        let names = metadata.fields().iter().map(|field| field.name());
        heap::collect(names.filter(|name| wanted().flat_map(FieldsOf::names).any(|it| it == *name)))
    }

    fn lets_pass(&self, metadata: &Metadata<'_>) -> bool {
        let passes = |filter: &Targets| filter.would_enable(metadata.target(), metadata.level());
        !self.is_off && self.filter.as_ref().is_none_or(passes)
    }

    fn max_level(&self) -> Option<LevelFilter> {
        if self.is_off {
            return Some(LevelFilter::OFF);
        }
        Filter::<Registry>::max_level_hint(self.filter.as_ref()?)
    }
}
