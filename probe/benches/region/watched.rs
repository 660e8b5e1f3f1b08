//! Cost of a region while a viewer watches the program.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use pfp_bench::{Worker, interleave, median};
use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::find::find;
use pfp_shm_layout::reader::Reader;
use pfp_shm_layout::segment::Segment;

use crate::cases::SCOPE;

/// The viewer's default interval between polls.
const INTERVAL: Duration = Duration::from_millis(100);

/// Ratio of a region's cost in a process that is polled to its cost in one without a viewer.
pub(crate) fn ratio(rounds: usize, calls: u64) -> io::Result<f64> {
    let mut workers = [Worker::spawn(SCOPE)?, Worker::spawn(SCOPE)?];
    for worker in &mut workers {
        worker.run(0, 1)?;
    }
    let watched = workers[0].pid();
    let mut reader = attach(watched)?;
    let done = AtomicBool::new(false);
    let samples = thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                reader.poll();
                thread::sleep(INTERVAL);
            }
        });
        let samples = interleave(&mut workers, rounds, |worker| Ok(worker.run(calls, 1)?.ns));
        done.store(true, Relaxed);
        samples
    })?;
    let [watched, alone] = [&samples[0], &samples[1]].map(|ns| median(&mut ns.clone()));
    Ok(watched / alone)
}

fn attach(pid: u32) -> io::Result<Reader> {
    let found = find(&Directory::for_this_process()?)?;
    let entry = found.entries.iter().find(|entry| entry.info.process.pid == pid);
    let entry = entry.ok_or_else(|| io::Error::other("the worker's segment is not to be found"))?;
    let (segment, facts) = Segment::open(&entry.info.object).map_err(io::Error::other)?;
    Ok(Reader::new(segment, facts))
}
