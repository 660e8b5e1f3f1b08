//! Serves the figures of this machine's processes over HTTP, as OpenMetrics, for Prometheus and
//! others.
//!
//! ```text
//! sources -> lifetime -> model -> export::openmetrics -> http -> scraper
//!    \-- polled when somebody asks, once an interval at most --/
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `pool` | the processes that come and go, and their figures in the forms asked for |
//! | `negotiate` | which form a request wants, and whether it may ask at all |
//! | `http` | connections: how many, how long, and the answers |

pub mod http;
pub mod negotiate;
mod pool;

#[cfg(feature = "otlp")]
pub(crate) use pool::packed;
pub use pool::{Pool, STAYS, Scope};
