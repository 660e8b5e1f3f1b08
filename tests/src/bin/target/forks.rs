//! A process that forks while its threads measure.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use pfp_tests::script::{pause, say};

/// Calls in each child.
pub(crate) const IN_CHILD: u64 = 1000;

static STOP: AtomicBool = AtomicBool::new(false);
static ACROSS: pfp::Point = pfp::Point::new("across the fork by hand");

fn call() {
    pfp::scope!("call");
}

/// Forks so often, in all ways in turn, while two threads measure; the children
/// measure too, or not, and end in all ways in turn.
pub(crate) fn run(forks: u64) {
    pfp::init();
    let workers: Vec<_> = (0..2)
        .map(|_| {
            thread::spawn(|| {
                let mut calls = 0;
                while !STOP.load(Relaxed) {
                    call();
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    for number in 0..forks {
        let child = {
            pfp::scope!("across the fork");
            ACROSS.begin();
            let child = if number % 2 == 0 { fork() } else { raw_clone() };
            ACROSS.end();
            child
        };
        if child == 0 {
            if number % 3 != 0 {
                (0..IN_CHILD).for_each(|_| call());
            }
            match number % 4 {
                // In order, as far as a child of a raw clone may do that.
                0 | 2 => std::process::exit(0),
                1 => quit(),
                // SAFETY: ends the process.
                _ => unsafe {
                    libc::raise(libc::SIGKILL);
                },
            }
        }
        // SAFETY: waits for the child, whatever becomes of it.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    }
    STOP.store(true, Relaxed);
    let calls: u64 = workers.into_iter().map(|worker| worker.join().expect("it counts")).sum();
    say("calls", &[&calls]);
    pause("done");
}

/// Forks two children, one of each kind, that measure and then stay.
pub(crate) fn and_live() {
    pfp::init();
    call();
    for child in [fork, raw_clone] {
        let child = child();
        if child == 0 {
            (0..IN_CHILD).for_each(|_| call());
            // Long enough for any test; the test ends it.
            thread::sleep(Duration::from_secs(600));
            quit();
        }
        say("child", &[&child]);
    }
    pause("done");
}

fn quit() -> ! {
    // SAFETY: ends the process without handlers.
    unsafe { libc::_exit(0) }
}

fn fork() -> libc::pid_t {
    // SAFETY: the other threads hold no lock that the child takes: they only
    // call points.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "a process can be made");
    child
}

/// A fork that runs none of the handlers that a library could have installed.
fn raw_clone() -> libc::pid_t {
    // SAFETY: as in `fork`; no stack is given, so the child has a copy.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    assert!(child >= 0, "a process can be made");
    child as libc::pid_t
}
