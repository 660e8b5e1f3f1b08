//! What leaves the viewer: snapshots, recordings, and figures that others scrape or get.

mod fleet;
mod push;
mod recording;
mod resets;
mod schemas;
mod serve;
mod snapshots;
mod versions;
