//! A program that saves its own figures.

use std::path::Path;
use std::thread;

use pfp_tests::script::{pause, say};

/// A name that needs escapes, and has characters that a terminal must not receive.
static NASTY: pfp::Point = pfp::Point::new("\"quoted\\ → \u{1b}[2J\n\u{202e}name");
static RESET: pfp::Point = pfp::Point::new("reset in between");
static OFF: pfp::Point = pfp::Point::new("never on").starts_off();

fn work(rounds: u64) {
    for _ in 0..rounds {
        pfp::scope!("outer");
        {
            pfp::scope!("inner");
            std::hint::black_box(rounds);
        }
        drop(NASTY.measure());
        drop(RESET.measure());
        drop(OFF.measure());
    }
}

/// Measures, and prints its own counts.
fn measure() {
    pfp::set_program_name("the \"saving\" one");
    RESET.set_alpha(0.25).expect("it is a weight");
    work(100);
    RESET.reset();
    work(50);
    thread::scope(|scope| {
        // The threads run one after the other on one lane. They are joined, since the end of the
        // scope waits only for their work.
        for _ in 0..2 {
            scope.spawn(|| work(1_000)).join().expect("the work is sound");
        }
        let last = scope.spawn(|| {
            pfp::register_thread("second");
            work(3_000);
        });
        last.join().expect("the work is sound");
    });
    pfp::Point::numbered(3).begin_once();
    pfp::Point::numbered(3).end();
    for (name, point) in [("nasty", &NASTY), ("reset", &RESET)] {
        let stats = point.stats().expect("it has measured");
        say(name, &[&stats.count, &stats.exclusive, &stats.min, &stats.max]);
    }
}

/// Saves its figures to a file, and prints the result.
pub(crate) fn saved(path: &Path) {
    measure();
    let kind = |result: std::io::Result<()>| match result {
        Ok(()) => "saved".to_owned(),
        Err(error) => format!("{:?}", error.kind()),
    };
    say("first", &[&kind(pfp::snapshot_to(path))]);
    say("second", &[&kind(pfp::snapshot_to(path))]);
    pause("saved");
    work(7);
    say("over", &[&kind(pfp::snapshot_over(path))]);
    say("nowhere", &[&kind(pfp::snapshot_over("/proc/nowhere/a"))]);
    pause("done");
}

/// Ends in an orderly way: without children, after its forked children, or under a limit on the
/// size of files.
pub(crate) fn ends(how: &str) {
    measure();
    match how {
        "alone" => {}
        "with-children" => {
            for rounds in [5, 0] {
                // SAFETY: the other threads have ended, so the child inherits no lock that is held.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    work(rounds);
                    std::process::exit(0);
                }
                say("child", &[&child]);
                // SAFETY: the process is our child, and a null pointer skips its status.
                unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
            }
        }
        "with-a-file-limit" => {
            let limit = libc::rlimit { rlim_cur: 4096, rlim_max: 4096 };
            // SAFETY: `limit` is initialized and outlives the call.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
        }
        other => panic!("there is no way to end {other:?}"),
    }
    // Change to another folder than the one where the process was started.
    std::env::set_current_dir("/").expect("there is a root");
}
