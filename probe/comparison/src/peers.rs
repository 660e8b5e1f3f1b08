//! pfp and its peers: a file each.

use crate::row::Row;

mod fastrace;
mod hdr;
pub(crate) mod hotpath;
mod metrics;
mod pfp;
mod puffin;
mod tracing;
mod tracy;

/// The rows, in the table's order.
pub(crate) fn rows() -> Vec<Row> {
    vec![
        pfp::row(),
        pfp::compiled_out(),
        tracy::row(),
        hotpath::row(),
        fastrace::row(),
        puffin::row(),
        tracing::row(),
        metrics::row(),
        hdr::row(),
    ]
}

/// Regions in a frame (puffin) or a trace (fastrace). Both ask for such groups to
/// be ended often; their own benchmarks have groups of this size and more.
const GROUP: u64 = 1_000;

/// Makes so many calls in groups. `group` makes the calls that it is told.
#[inline(always)]
fn in_groups(calls: u64, group: impl Fn(u64)) {
    let mut left = calls;
    while left > 0 {
        let now = left.min(GROUP);
        group(now);
        left -= now;
    }
}
