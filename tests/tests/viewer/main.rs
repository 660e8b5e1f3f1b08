//! The viewer as users run it: in a terminal, by its commands, and with many processes.

mod afar;
mod batch;
mod calls;
mod choosing;
mod diff;
mod docs;
mod ends;
mod killed_viewer;
mod live;
mod liveness;
mod many;
mod processes;
mod references;
mod replay;
mod rooms;
mod run;
mod several;
mod short_processes;
mod table;
mod terminal;
mod time;
mod timeline;
mod waits;
