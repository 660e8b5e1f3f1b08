//! Tests workers: this program starts itself once per case, so it needs a `main` of its own.

use std::hint::black_box;
use std::thread::sleep;
use std::time::Duration;

use pfp_bench::{Worker, case, interleave};

/// Allocates a MiB that is never freed.
fn keep() {
    black_box(vec![1_u8; 1 << 20].leak());
}

fn main() -> std::io::Result<()> {
    let cases = [
        case!("sleeps", 2, sleep(Duration::from_millis(2))),
        case!("grows", 1, || (), keep()),
        case!("ends", 1, std::process::exit(0)),
    ];
    pfp_bench::serve_if_asked(&cases);

    let mut workers = [Worker::spawn("sleeps")?, Worker::spawn("grows")?];
    let turns = interleave(&mut workers, 3, |worker| Ok((worker.run(0, 2)?, worker.run(4, 2)?)))?;
    for (before, after) in &turns[0] {
        assert_eq!(before.ns, 0.0);
        assert!((0.9e6..2e7).contains(&after.ns), "half of 2 ms each, not {} ns", after.ns);
        assert!(after.cpu_ns < after.ns / 2.0, "asleep, not {} ns on a CPU", after.cpu_ns);
    }
    for (before, after) in &turns[1] {
        let growth = after.rss - before.rss;
        assert!((10 << 20..11 << 20).contains(&growth), "4 + 1 MiB on each of 2 threads: {growth}");
    }
    assert!(Worker::spawn("ends")?.run(0, 1).is_err());
    assert!(Worker::spawn("of no such name")?.run(0, 1).is_err());
    println!("test worker ... ok");
    Ok(())
}
