//! A viewer with a fault: it panics in the middle of a poll once there is a file `now` in its
//! folder. A test checks that it restores the terminal.

use std::path::Path;
use std::time::{Duration, Instant};

use pfp_read::snapshot::Snapshot;
use pfp_read::source::synthetic::Synthetic;
use pfp_read::source::{Acted, Change, Source};
use pfp_remote::Machine;
use pfp_top::app::App;
use pfp_top::common::Options;
use pfp_top::event_loop;
use pfp_top::interrupt::Interrupt;

struct Faulty(Synthetic);

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

impl Source for Faulty {
    fn picture(&mut self) -> anyhow::Result<Snapshot> {
        assert!(!Path::new("now").exists(), "a fault in the midst of a poll");
        self.0.poll()
    }

    fn act(&mut self, change: Change) -> anyhow::Result<Acted> {
        self.0.act(change)
    }
}

fn main() -> Result<()> {
    let (now, interval) = (Instant::now(), Duration::from_millis(100));
    let mut app =
        App::new(Options { interval, ..Options::default() }, Box::new(Machine::default()), now);
    app.watch(Box::new(Faulty(Synthetic::new())), now);
    event_loop::run(&mut app, &Interrupt::install()?)?;
    Ok(())
}
