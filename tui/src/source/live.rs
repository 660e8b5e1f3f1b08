//! The processes of this machine, through their segments.

use anyhow::{Result, bail};

use super::{Candidate, Discovery, Source};

/// Looks for segments.
pub(super) fn discover() -> Result<Discovery> {
    Ok(Discovery::default())
}

/// Attaches to the segment of one process.
pub(super) fn attach(candidate: &Candidate) -> Result<Box<dyn Source>> {
    bail!("{} cannot be attached to", candidate.name)
}

/// Removes the segments of processes that have ended.
pub(super) fn gc() -> Result<Vec<String>> {
    Ok(Vec::new())
}
