//! How segments are made, named, found and removed.

pub mod beacon;
pub mod collector;
pub mod directory;
#[allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "only viewers ask for it")]
pub mod end;
pub mod failure;
pub mod find;
pub mod group_file;
pub(crate) mod held;
pub mod liveness;
pub mod name;
pub mod object;
pub mod share;
pub(crate) mod stat;
#[allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "only viewers have notes")]
pub mod switched;
pub(crate) mod system;
pub mod time_namespace;
