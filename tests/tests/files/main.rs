//! Everything that the viewer exports: snapshots, recordings, and figures that others scrape or
//! receive.

mod fleet;
mod push;
mod recording;
mod resets;
mod schemas;
mod serve;
mod slow;
mod snapshots;
mod versions;
