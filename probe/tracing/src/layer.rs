//! A layer beside others.

use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{LevelFilter, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, Filter};
use tracing_subscriber::registry::LookupSpan;

use crate::fields::{Amounts, MOST};
use crate::site::Site;
use crate::{live, settings, threads};

/// Makes profile points of spans, beside other layers. See [`layer`](crate::layer).
#[derive(Debug)]
pub(crate) struct PointLayer;

/// Lets spans pass whose points are on.
#[derive(Debug)]
pub(crate) struct PointFilter;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for PointLayer {
    fn on_new_span(&self, span: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
        if let Some(site) = Site::of(span.metadata()) {
            live::keep(id.into_u64(), site, site.amounts(span).as_ref());
        }
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
        if let Some(live) = live::find(id)
            && let Some(site) = live.site()
        {
            return threads::enter(id, site, || live.amounts());
        }
        // One of which nothing could be kept.
        if let Some(site) = context.metadata(span).and_then(Site::of) {
            threads::enter(id, site, || [0; MOST]);
        }
    }

    fn on_exit(&self, span: &Id, _: Context<'_, S>) {
        threads::exit(span.into_u64());
    }

    fn on_close(&self, span: Id, _: Context<'_, S>) {
        if let Some(live) = live::find(span.into_u64()) {
            live.forget();
        }
    }
}

impl<S> Filter<S> for PointFilter {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        metadata.is_span() && settings().lets_pass(metadata)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        match Site::register(metadata).is_some_and(Site::answer) {
            true => Interest::always(),
            false => Interest::never(),
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        settings().max_level()
    }
}
