//! A subscriber that only makes points.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tracing_core::span::{Attributes, Current, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Event, LevelFilter, Metadata, Subscriber};

use crate::fields::Amounts;
use crate::site::{SITES, Site};
use crate::{live, settings, threads};

/// Subscriber that makes profile points of spans, and ignores events. See
/// [`Options::subscriber`](crate::Options::subscriber).
#[derive(Debug)]
pub struct PointSubscriber(());

impl PointSubscriber {
    pub(crate) fn new() -> Self {
        Self(())
    }
}

/// Bit of a span's id that is set if data of the span may be stored in [`live`]. The bits below it
/// are the span's number, and the bits above it are the number of the span's site.
const IS_KEPT: u64 = 1 << 50;
const SITE_SHIFT: u32 = 51;
/// Number in place of a site's, for spans without a site.
const NO_SITE: u64 = SITES as u64;
const _: () = assert!(NO_SITE < 1 << (u64::BITS - SITE_SHIFT));

/// Number of span numbers that a thread reserves at a time.
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
    Site::numbered((id.into_u64() >> SITE_SHIFT) as usize)
}

/// The id of a new span. Stores the span's data if its site needs them.
#[inline(never)]
fn kept_id(site: &'static Site, span: &Attributes<'_>, number: u64) -> u64 {
    let id = (site.number as u64) << SITE_SHIFT | number;
    if site.keep(span, id | IS_KEPT) { id | IS_KEPT } else { id }
}

/// The data of the span with this id, if it is alive and has any.
#[inline]
fn kept(id: &Id) -> Option<&'static live::Live> {
    (id.into_u64() & IS_KEPT != 0).then(|| live::find(id.into_u64())).flatten()
}

impl Subscriber for PointSubscriber {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        Site::interest(metadata)
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        Site::wants(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        settings().max_level()
    }

    #[inline]
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let Some(site) = Site::of(span.metadata()) else {
            pfp::c::count_refusal();
            return Id::from_u64(NO_SITE << SITE_SHIFT);
        };
        let number = number();
        let id = match site.is_plain() {
            true => (site.number as u64) << SITE_SHIFT | number,
            false => kept_id(site.part(span), span, number),
        };
        Id::from_non_zero_u64(NonZeroU64::new(id).unwrap_or(NonZeroU64::MIN))
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
        if let Some(site) = site(span) {
            threads::enter(span.into_u64(), site);
        }
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
