//! A subscriber with nothing else behind it.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tracing_core::span::{Attributes, Current, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Event, LevelFilter, Metadata, Subscriber};

use crate::fields::{Amounts, MOST};
use crate::site::{SITES, Site};
use crate::{live, settings, threads};

/// Makes profile points of spans, and nothing else: events are not looked at. See
/// [`Options::subscriber`](crate::Options::subscriber).
#[derive(Debug)]
pub struct PointSubscriber(());

impl PointSubscriber {
    pub(crate) fn new() -> Self {
        Self(())
    }
}

/// A number of a span: its site in the low bits, whether something is kept of it, and which
/// span of all it is.
const SITE_BITS: u32 = SITES.trailing_zeros() + 1;
const IS_KEPT: u64 = 1 << (SITE_BITS - 1);

/// Numbers that a thread takes at once.
const BLOCK: u64 = 1 << 20;
static BLOCKS: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

#[inline]
fn number() -> u64 {
    NEXT.with(|next| {
        let mut number = next.get();
        if number % BLOCK == 0 {
            number = BLOCKS.fetch_add(1, Relaxed) * BLOCK;
        }
        next.set(number + 1);
        number
    })
}

#[inline]
fn site(id: &Id) -> Option<&'static Site> {
    Site::numbered(id.into_u64() as usize % SITES)
}

/// The span of this id, if it is alive and keeps measurements.
#[inline]
fn kept(id: &Id) -> Option<&'static live::Live> {
    (id.into_u64() & IS_KEPT != 0).then(|| live::find(id.into_u64())).flatten()
}

impl Subscriber for PointSubscriber {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        match Site::register(metadata).is_some_and(Site::answer) {
            true => Interest::always(),
            false => Interest::never(),
        }
    }

    /// Asked where several subscribers are at work.
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && settings().lets_pass(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        settings().max_level()
    }

    #[inline]
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        // A number that is no site's, where there are too many: such a span is not measured.
        let Some(site) = Site::of(span.metadata()) else { return Id::from_u64(u64::MAX - 1) };
        let id = number() << SITE_BITS | site.number as u64;
        match site.amounts(span) {
            None => Id::from_u64(id),
            Some(amounts) => {
                live::keep(id | IS_KEPT, site, Some(&amounts));
                Id::from_u64(id | IS_KEPT)
            }
        }
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let Some(live) = kept(span) else { return };
        let Some(site) = live.site() else { return };
        let mut amounts = Amounts::of(site.names());
        values.record(&mut amounts);
        live.amend(&amounts);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    #[inline]
    fn enter(&self, span: &Id) {
        let Some(site) = site(span) else { return };
        let id = span.into_u64();
        threads::enter(id, site, || live::find(id).map_or([0; MOST], live::Live::amounts));
    }

    #[inline]
    fn exit(&self, span: &Id) {
        threads::exit(span.into_u64());
    }

    #[inline]
    fn clone_span(&self, span: &Id) -> Id {
        if let Some(live) = kept(span) {
            live.share();
        }
        span.clone()
    }

    #[inline]
    fn try_close(&self, span: Id) -> bool {
        let is_gone = kept(&span).filter(|live| live.release());
        is_gone.map(live::Live::forget).is_some()
    }

    fn current_span(&self) -> Current {
        let innermost = pfp::stack::innermost().map(|owner| Id::from_u64(owner as u64));
        match innermost.and_then(|id| Some((site(&id)?, id))) {
            Some((site, id)) => Current::new(id, site.metadata),
            None => Current::none(),
        }
    }
}
