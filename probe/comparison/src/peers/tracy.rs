//! tracy-client: the `span!` macro, as `tracy_client::span!`'s own documentation
//! shows, with the default features ("enables the Tracy client" and all that comes
//! with it, says FEATURES.mkd). A span waits in memory until a viewer connects and
//! fetches it; none does here, which is the state a program without a viewer is in.
//! `only-localhost` is added, so that the comparison does not open itself to the
//! network; it is no part of what a span costs.
//!
//! Off is the feature `ondemand` ("start collecting traces only when a server
//! connects to the client") without a viewer: the binding has no other switch that
//! works at run time. It makes a span dearer when a viewer is there.

use crate::row::{Row, Subject};

pub(crate) fn row() -> Row {
    Row {
        name: "Tracy, `span!`",
        packages: &["tracy-client"],
        on: Subject::Apart("tracy"),
        off: Some(Subject::Apart("tracy-on-demand")),
        switch: "built with `ondemand`: off until a viewer connects",
        records: "every span with its begin and end; the viewer, in another process, makes self \
                  time and histograms of them, and with privileges takes out time off the CPU",
    }
}
