//! Spans of the [`tracing`](https://docs.rs/tracing) crate as profile points: how much CPU time
//! each takes itself, live, with nested spans, pre-emption and waiting taken out.
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
//! Run `pfp-top` beside the program. Each place that makes spans is a point with the span's target
//! and name (`hyper::proto::h1::role::parse_headers`), its file and line. A span that is entered
//! and left ten times, as an instrumented future is that is polled ten times, is ten measurements.
//! What a future waits for between its polls is not counted.
//!
//! # Two ways
//!
//! [`init`] sets a subscriber that makes points of spans and nothing else. It is the cheaper one.
//! [`layer`] stands beside other layers on a registry of `tracing-subscriber`:
//!
//! ```no_run
//! use tracing_subscriber::layer::SubscriberExt;
//!
//! let all = tracing_subscriber::registry().with(pfp_tracing::layer());
//! tracing::subscriber::set_global_default(all).expect("there is no other");
//! ```
//!
//! Events are not measured, and cost what they cost without pfp.
//!
//! # Which spans
//!
//! All that the environment's `PFP_TRACING` lets pass: a level, targets, or both, as
//! `info,hyper=off,my_app::db=trace`. Without it, all.
//!
//! A point that is switched off in `pfp-top` costs its callsite one load and a branch, as one does
//! that nobody subscribes to. Callsites are told of switches ten times a second, by a thread that
//! runs while a point is off; this needs nothing of the program. Other layers lose nothing by it.
//! A forked child keeps off what was off when it was forked.
//!
//! # Amounts
//!
//! Fields with numbers can be amounts, such as bytes: those that [`Options::amounts`] names, or the
//! span itself does:
//!
//! ```
//! # let n = 17;
//! let _span = tracing::info_span!("read", bytes = n, pfp.amounts = "bytes").entered();
//! ```
//!
//! They belong to each entry of the span; of a field that is recorded later, to the entries after
//! that. A point has at most four.
//!
//! # Fields in names
//!
//! All spans of a callsite are one point, unless fields distinguish them: with
//! `PFP_SPAN_FIELDS=system{name}`, or [`Options::fields`], each system of bevy has a point
//! `bevy_ecs::system::function_system::system{my_game::walk}`.
//!
//! # What is not measured
//!
//! - A guard that is held across an `.await`: use `Instrument` instead. If the task goes on in another
//!   thread, or has a span of its own, the entry is not recorded, and counted as a mismatch, which
//!   `pfp-top` shows. In a task without a span, which the same thread goes on with, it looks as any
//!   other: it is recorded with what the thread does between the polls.
//! - A guard that is dropped before those that were made inside it: the region ends with the last of
//!   them. Exclusive times stay right; the inclusive time is longer. It is counted as a mismatch.
//! - More than 4,096 callsites, 1,024 spans inside one another, or 16,384 spans with amounts at a time:
//!   what is beyond is counted as refused.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_macros))]

mod fields;
mod layer;
mod live;
mod site;
mod subscriber;
mod threads;
mod watch;

use std::ffi::CStr;
use std::fmt;

use pfp::table::Once;
use tracing_core::dispatcher::{self, Dispatch};
use tracing_core::{LevelFilter, Metadata, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::Filter;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

use fields::FieldsOf;
pub use subscriber::PointSubscriber;

/// The environment's filter.
const VARIABLE: &CStr = c"PFP_TRACING";
/// The environment's fields that are part of names.
const FIELDS_VARIABLE: &CStr = c"PFP_SPAN_FIELDS";

/// Makes a profile point of each callsite that makes spans, from now on and in all threads.
///
/// # Errors
///
/// Another subscriber was set before; the program's stays. Or `PFP_TRACING` cannot be understood;
/// then no spans are measured. A program that is to run in any case ignores both.
pub fn init() -> Result<(), InitError> {
    Options::default().init()
}

/// A layer that makes points, for a registry with other layers.
///
/// A `PFP_TRACING` that cannot be understood counts as `off`; [`Options::layer`] says so instead.
pub fn layer<S: Subscriber + for<'a> LookupSpan<'a>>() -> impl Layer<S> {
    let settings = Options::default().settings();
    settings.unwrap_or_else(|_| Settings::off()).hold();
    layer::PointLayer::new().with_filter(layer::PointFilter)
}

/// How spans are measured. The first ones that are used hold for the whole process.
#[derive(Clone, Debug, Default)]
pub struct Options {
    filter: Option<String>,
    amounts: Vec<String>,
    fields: Option<String>,
    per_span: bool,
    lifetimes: bool,
}

impl Options {
    /// Lets only these spans pass, unless `PFP_TRACING` says something else: `info,hyper=off`.
    #[must_use]
    pub fn filter(mut self, filter: &str) -> Self {
        self.filter = Some(filter.to_owned());
        self
    }

    /// Takes the numbers in fields of these names as amounts, such as `["bytes", "items"]`. The
    /// first four that a span has count.
    #[must_use]
    pub fn amounts<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.amounts = names.into_iter().map(str::to_owned).collect();
        self
    }

    /// Makes fields part of the names of spans' points: `system{name}` makes a point for each text
    /// of the field `name` of spans that are called `system`. Commas separate several spans, and
    /// spaces separate several fields. A span's name may follow its target; without a name, all
    /// spans are meant. A callsite has at most 256 such points, and spans with other texts are
    /// measured together. These spans cost more, since something is kept of each while it lives.
    /// `PFP_SPAN_FIELDS` overrides this option.
    #[must_use]
    pub fn fields(mut self, fields: &str) -> Self {
        self.fields = Some(fields.to_owned());
        self
    }

    /// Makes all entries of a span one measurement, recorded as the span closes: of an instrumented
    /// future, what all its polls took together. It costs more. Spans with amounts, and spans beyond
    /// 16,384 at a time, are measured entry by entry; so is an entry that ends at the same moment as
    /// one of the same span on another thread.
    #[must_use]
    pub fn per_span(mut self) -> Self {
        self.per_span = true;
        self
    }

    /// Also measures how long each span lives, by the wall clock, at a point of the same name that
    /// `pfp-top` marks `(wall)`: what a request took, with all that it waited for.
    #[must_use]
    pub fn lifetimes(mut self) -> Self {
        self.lifetimes = true;
        self
    }

    /// As [`init`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn init(self) -> Result<(), InitError> {
        dispatcher::set_global_default(Dispatch::new(self.subscriber()?))
            .map_err(|_| InitError::NotTheFirst)
    }

    /// The subscriber that [`init`](Self::init) sets, for programs that set or wrap it themselves.
    ///
    /// # Errors
    ///
    /// The filter cannot be understood.
    pub fn subscriber(self) -> Result<PointSubscriber, InitError> {
        self.settings()?.hold();
        Ok(PointSubscriber::new())
    }

    /// As [`layer`].
    ///
    /// # Errors
    ///
    /// The filter cannot be understood.
    pub fn layer<S>(self) -> Result<impl Layer<S>, InitError>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        self.settings()?.hold();
        Ok(layer::PointLayer::new().with_filter(layer::PointFilter))
    }

    fn settings(self) -> Result<Settings, InitError> {
        let set = |variable| {
            let text = pfp::c::environment(variable)?.to_string_lossy().into_owned();
            (!text.trim().is_empty()).then_some(text)
        };
        let Self { filter, amounts, fields, per_span, lifetimes } = self;
        let filter = set(VARIABLE)
            .or(filter)
            .map(|text| text.parse::<Targets>().map_err(|_| InitError::Filter { found: text }));
        let fields = set(FIELDS_VARIABLE)
            .or(fields)
            .map(|text| fields::parse(&text).ok_or(InitError::Fields { found: text }));
        let (filter, fields) = (filter.transpose()?, fields.transpose()?.unwrap_or_default());
        Ok(Settings { filter, amounts, fields, per_span, lifetimes })
    }
}

/// Why no spans are measured.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InitError {
    /// The program has set another subscriber: use [`layer`] with that.
    NotTheFirst,
    /// A filter that cannot be understood.
    Filter {
        /// What was given.
        found: String,
    },
    /// The text of the fields could not be parsed.
    Fields {
        /// What was given.
        found: String,
    },
}

impl fmt::Display for InitError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotTheFirst => out.write_str(
                "expected no subscriber before pfp's, found one; add pfp_tracing::layer() to it",
            ),
            Self::Filter { found } => write!(
                out,
                "expected levels and targets such as info,hyper=off, found {found:?}; correct \
                 {} or the program's filter",
                VARIABLE.to_string_lossy()
            ),
            Self::Fields { found } => write!(
                out,
                "expected spans and their fields such as system{{name}}, found {found:?}; correct \
                 {} or the program's fields",
                FIELDS_VARIABLE.to_string_lossy()
            ),
        }
    }
}

impl std::error::Error for InitError {}

/// What holds for the process.
#[derive(Default)]
struct Settings {
    /// None lets all pass.
    filter: Option<Targets>,
    amounts: Vec<String>,
    fields: Vec<FieldsOf>,
    per_span: bool,
    lifetimes: bool,
}

static SETTINGS: Once<Settings> = Once::new();

fn settings() -> &'static Settings {
    SETTINGS.get_or_make(Settings::default)
}

impl Settings {
    /// They hold for the process if they are the first.
    fn hold(self) {
        SETTINGS.get_or_make(|| self);
        pfp::c::get_ready();
    }

    fn off() -> Self {
        Self { filter: Some(Targets::new()), ..Self::default() }
    }

    /// Whether something is kept of spans without amounts.
    fn keep_spans(&self) -> bool {
        self.per_span || self.lifetimes
    }

    /// The fields of a callsite whose texts are part of names.
    fn fields_of(&self, metadata: &'static Metadata<'static>) -> &'static [&'static str] {
        let mut wanted = self.fields.iter().filter(|fields| fields.are_of(metadata)).peekable();
        if wanted.peek().is_none() {
            return &[];
        }
        let wanted: Vec<&str> = wanted.flat_map(FieldsOf::names).collect();
        let names = metadata.fields().iter().map(|field| field.name());
        names.filter(|name| wanted.contains(name)).collect::<Vec<_>>().leak()
    }

    fn lets_pass(&self, metadata: &Metadata<'_>) -> bool {
        let passes = |filter: &Targets| filter.would_enable(metadata.target(), metadata.level());
        self.filter.as_ref().is_none_or(passes)
    }

    fn max_level(&self) -> Option<LevelFilter> {
        Filter::<Registry>::max_level_hint(self.filter.as_ref()?)
    }
}
