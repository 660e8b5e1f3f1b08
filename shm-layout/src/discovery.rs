//! How segments are made, named, found and swept away.

pub mod beacon;
pub mod collector;
pub mod directory;
pub mod failure;
pub mod find;
pub mod group;
pub(crate) mod held;
pub mod liveness;
pub mod name;
pub mod object;
pub mod share;
pub mod switched;
pub(crate) mod system;
