//! The viewer on a made-up process: to look at the screen without a program
//! to watch. With an argument it writes a snapshot to that file instead.
//!
//! ```text
//! cargo run -p pfp-top --example synthetic
//! ```

use std::path::Path;
use std::time::Instant;

use pfp_read::files::json::{self, Existing};
use pfp_read::source::Source;
use pfp_read::source::synthetic::Synthetic;
use pfp_remote::Machine;
use pfp_top::app::App;
use pfp_top::common::Options;
use pfp_top::event_loop;
use pfp_top::interrupt::Interrupt;
use pfp_top::styles::Styles;

fn main() -> anyhow::Result<()> {
    if let Some(file) = std::env::args().nth(1) {
        json::write(&Synthetic::new().poll()?, Path::new(&file), Existing::Keep)?;
        return Ok(());
    }
    let now = Instant::now();
    let mut app = App::new(Options::default(), Box::new(Machine::default()), now);
    app.watch(Box::new(Synthetic::new()), now);
    let color = std::env::var_os("NO_COLOR").is_none();
    app.common.styles = Styles::new(color, false);
    event_loop::run(&mut app, &Interrupt::install()?)
}
