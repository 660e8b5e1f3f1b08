//! Many threads: short ones one after the other, more at once than there are lanes, and threads
//! that measure while they end.

use std::cell::Cell;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use pfp_tests::script::{in_turn, pause};

const AT_ONCE: usize = 16;

/// Starts `count` threads, 16 at a time, each with ten calls.
pub(crate) fn short(count: u64) {
    pfp::init().ok();
    let batches = count.div_ceil(AT_ONCE as u64);
    // The point is registered first, so that no thread has to wait for its registration.
    short_region();
    batch();
    if !pause("warm") {
        return;
    }
    for _ in 1..batches {
        batch();
    }
    pause("done");
}

fn batch() {
    // All threads are alive at once, so that each batch needs equally many lanes.
    let together = Barrier::new(AT_ONCE);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                scope.spawn(|| {
                    in_turn(short_region);
                    (1..10).for_each(|_| short_region());
                    together.wait();
                })
            })
            .collect();
        // The end of the scope waits only for a thread's work, while a join waits for the whole
        // thread.
        threads.into_iter().for_each(|thread| thread.join().expect("it only counts"));
    });
}

fn short_region() {
    pfp::scope!("short");
}

/// Runs more threads at once than there are lanes.
pub(crate) fn many(threads: usize, calls: u64) {
    static HAND: pfp::Point = pfp::Point::new("by hand");
    pfp::Point::numbered(5).enable();
    pfp::Point::numbered(5).set_name("numbered");
    pfp::init().ok();
    let together = Barrier::new(threads);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let call = || {
                    pfp::scope!("outer");
                    {
                        pfp::scope!("inner");
                    }
                    HAND.begin();
                    HAND.end();
                    pfp::Point::numbered(5).begin_once();
                    pfp::Point::numbered(5).end();
                };
                in_turn(|| {
                    {
                        pfp::scope!("first");
                    }
                    call();
                });
                together.wait();
                (1..calls).for_each(|_| call());
                together.wait();
            });
        }
    });
    pause("done");
}

/// Measures while a thread ends: in the destructor of a thread-local value, and in destructors of
/// pthread keys that were created before the probe's key and after it.
pub(crate) fn at_exit(threads: u64) {
    let before = key();
    pfp::init().ok();
    let after = key();
    for _ in 0..threads {
        let work = move || {
            LAST_BREATH.with(|breath| breath.0.set(1));
            for key in [before, after] {
                // SAFETY: the key exists, and its destructor accepts any value that is not null.
                unsafe { libc::pthread_setspecific(key, (&raw const SOMETHING).cast()) };
            }
            pfp::scope!("work");
        };
        thread::spawn(work).join().expect("it only counts");
    }
    pause("done");
}

/// Measures in a key's destructor that sets its key again, so that the C library calls it as often
/// as it permits. The last call of this destructor comes after the last call of the probe's
/// destructor. Each thread ends before the next one starts.
pub(crate) fn after_exit(threads: u64) {
    pfp::init().ok();
    REPEATED_KEY.store(key_with(again), Relaxed);
    let alone = || std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1);
    for _ in 0..threads {
        thread::spawn(|| {
            set_again();
            work();
        })
        .join()
        .expect("it only counts");
        while !alone() {
            thread::sleep(Duration::from_millis(1));
        }
    }
    pause("done");
    // One more thread, which does not set the key.
    thread::spawn(work).join().expect("it only counts");
    pause("after");
}

fn work() {
    pfp::scope!("work");
}

static REPEATED_KEY: AtomicU32 = AtomicU32::new(0);

fn set_again() {
    // SAFETY: the key exists, and its destructor accepts any value that is not null.
    unsafe { libc::pthread_setspecific(REPEATED_KEY.load(Relaxed), (&raw const SOMETHING).cast()) };
}

unsafe extern "C" fn again(_value: *mut libc::c_void) {
    set_again();
    pfp::scope!("again and again");
}

static SOMETHING: AtomicU32 = AtomicU32::new(0);

struct LastBreath(Cell<u64>);

impl Drop for LastBreath {
    fn drop(&mut self) {
        pfp::scope!("in a destructor");
    }
}

thread_local! {
    static LAST_BREATH: LastBreath = const { LastBreath(Cell::new(0)) };
}

fn key() -> libc::pthread_key_t {
    key_with(at_key_end)
}

fn key_with(destructor: unsafe extern "C" fn(*mut libc::c_void)) -> libc::pthread_key_t {
    let mut key = 0;
    // SAFETY: the destructor has the type that the call requires, and accepts any value.
    let result = unsafe { libc::pthread_key_create(&raw mut key, Some(destructor)) };
    assert_eq!(result, 0, "there are keys left");
    key
}

unsafe extern "C" fn at_key_end(_value: *mut libc::c_void) {
    pfp::scope!("in a key's destructor");
}
