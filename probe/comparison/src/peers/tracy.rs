//! tracy-client: the `span!` macro, as in the documentation of `tracy_client::span!`, with the
//! default features ("enables the Tracy client" and everything that belongs to it, says
//! FEATURES.mkd). Spans stay in memory until a viewer connects and fetches them; here no viewer
//! connects. `only-localhost` is added, so that the comparison does not open a port to the network;
//! it does not affect the cost of a span.
//!
//! To switch Tracy off, the case uses the feature `ondemand` ("start collecting traces only when a
//! server connects to the client") without a viewer, because the binding has no other switch that
//! works at run time. With a viewer, the feature makes spans more expensive.

use crate::row::{Row, Subject};

pub(crate) fn row() -> Row {
    Row {
        name: "Tracy, `span!`",
        packages: &["tracy-client"],
        on: Subject::Apart("tracy"),
        off: Some(Subject::Apart("tracy-on-demand")),
        switch: "built with `ondemand`: off until a viewer connects",
        records: "every span with its begin and end; the viewer, in another process, computes self \
                  time and histograms from them, and with privileges subtracts off-CPU time",
    }
}
