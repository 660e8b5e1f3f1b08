//! A layer to use beside other layers.

use std::cell::Cell;
use std::ptr;

use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{LevelFilter, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, Filter};
use tracing_subscriber::registry::LookupSpan;

use crate::fields::Amounts;
use crate::site::Site;
use crate::{live, settings, threads};

/// Layer that makes profile points of spans. See [`layer`](crate::layer).
#[derive(Debug)]
pub(crate) struct PointLayer {
    /// A non-zero size, so that each layer has its own address.
    _place: u8,
}

/// The address of a layer, the id of the span that it created last on this thread, and the span's
/// site. Most spans are entered right after they are created, and this value then saves a slower
/// look-up in the registry. The registry reuses ids, but while a thread runs, only that thread
/// creates spans with the same id. So no newer span of another thread can have the id stored here.
type Made = (usize, u64, Option<&'static Site>);

thread_local! {
    static LAST: Cell<Made> = const { Cell::new((0, 0, None)) };
}

impl PointLayer {
    pub(crate) fn new() -> Self {
        Self { _place: 0 }
    }

    fn place(&self) -> usize {
        ptr::from_ref(self).addr()
    }
}

/// Finds the site of a span, given its callsite's site.
#[inline]
fn part(whole: &'static Site, id: u64) -> &'static Site {
    match whole.has_parts() {
        true => live::find(id).and_then(live::Live::site).unwrap_or(whole),
        false => whole,
    }
}

/// Filter that enables the spans whose points are on.
#[derive(Debug)]
pub(crate) struct PointFilter;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for PointLayer {
    fn on_new_span(&self, span: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
        let (id, mut site) = (id.into_u64(), Site::of(span.metadata()));
        if let Some(whole) = site.filter(|site| !site.is_plain()) {
            let part = whole.part(span);
            part.keep(span, id);
            site = Some(part);
        }
        if site.is_none() {
            pfp::c::count_refusal();
        }
        LAST.set((self.place(), id, site));
    }

    fn on_record(&self, span: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let Some(live) = live::find(span.into_u64()) else { return };
        let Some(site) = live.site() else { return };
        let mut amounts = Amounts::of(site.names());
        values.record(&mut amounts);
        live.amend(&amounts);
    }

    fn on_enter(&self, span: &Id, context: Context<'_, S>) {
        let id = span.into_u64();
        let site = match LAST.get() {
            (place, last, site) if last == id && place == self.place() => site,
            _ => context.metadata(span).and_then(Site::of).map(|site| part(site, id)),
        };
        if let Some(site) = site {
            threads::enter(id, site);
        }
    }

    fn on_exit(&self, span: &Id, _: Context<'_, S>) {
        threads::exit(span.into_u64());
    }

    fn on_close(&self, span: Id, _: Context<'_, S>) {
        if live::is_used()
            && let Some(live) = live::find(span.into_u64())
        {
            live.forget();
        }
    }
}

impl<S> Filter<S> for PointFilter {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        Site::wants(metadata)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        Site::interest(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        settings().max_level()
    }
}
