//! pfp and its peers, one file for each.

use crate::row::Row;

mod fastrace;
mod hdr;
pub(crate) mod hotpath;
mod metrics;
mod pfp;
mod puffin;
mod tracing;
mod tracy;

/// Rows in the table's order.
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

/// Number of regions in a frame (puffin) or a trace (fastrace). The documentation of both asks
/// programs to end these groups often; their own benchmarks have groups of at least this size.
const GROUP: u64 = 1_000;

/// Makes `calls` calls in groups. `group` makes as many calls as its argument states.
#[inline(always)]
fn in_groups(calls: u64, group: impl Fn(u64)) {
    let mut left = calls;
    while left > 0 {
        let now = left.min(GROUP);
        group(now);
        left -= now;
    }
}
