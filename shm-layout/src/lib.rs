//! pfp segment.

#[cfg(target_os = "linux")]
pub mod beacon;
#[cfg(target_os = "linux")]
pub mod directory;
#[cfg(target_os = "linux")]
pub mod find;
#[cfg(target_os = "linux")]
pub mod liveness;
#[cfg(target_os = "linux")]
pub mod object;
