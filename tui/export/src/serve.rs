//! Serves the figures of this machine's processes over HTTP, as OpenMetrics, for Prometheus and
//! others.
//!
//! ```text
//! sources -> lifetime -> model -> export::openmetrics -> http -> scraper
//!    \-- polled for a request, at most once in an interval --/
//! ```
//!
//! | file | content |
//! |---|---|
//! | `pool` | the served processes, and their figures in the negotiated forms |
//! | `negotiate` | the form that a request asks for, and whether it may be answered |
//! | `http` | connections: their number, their time limits, and the answers |

pub mod http;
pub mod negotiate;
mod pool;

#[cfg(feature = "otlp")]
pub(crate) use pool::packed;
pub use pool::{Pool, STAYS, Scope};
