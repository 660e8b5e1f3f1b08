//! What the screen shows, for scripts, files and other programs: the same
//! data in other clothes, one file per form.

pub mod diff;
pub mod json;
pub mod packed;
pub mod table;
