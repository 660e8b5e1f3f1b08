//! What the screen shows, for scripts, files and other programs: the same
//! data in other clothes, one file per form.

pub mod csv;
pub mod diff;
mod format;
mod hdr;
pub mod hgrm;
pub mod hlog;
pub mod json;
pub mod openmetrics;
mod subject;
pub mod table;
pub mod whole;

pub use format::Format;
pub use subject::Subject;
