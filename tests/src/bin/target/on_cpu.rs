//! Many threads on one CPU. One region covers all of a thread's work: computing, computing in a
//! nested region, sleeping, and waiting for a pipe.

use std::io::{Read, Write, pipe};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use pfp_tests::script::{pause, say};
use pfp_tests::{os, stolen};

/// CPU time of each thread: so long that the delay between two clock readings is negligible.
const EACH: Duration = Duration::from_millis(300);
/// CPU time of one region. It is much longer than a reading of the slowest clock source, which is
/// inside the region but belongs to no work.
const PIECE: Duration = Duration::from_micros(1500);

pub(crate) fn run(threads: usize) {
    let cpus = os::cpus();
    os::pin(*cpus.last().expect("there is a CPU"));
    pfp::init().ok();
    let (begin, end) = (Barrier::new(threads), Barrier::new(threads + 1));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                measured(&begin);
                end.wait();
                // The thread waits here, so that it owns its lane until the test has read it.
                end.wait();
            });
        }
        end.wait();
        // The rate is read at the end, since it becomes more exact the longer the program runs.
        say("ticks_per_second", &[&pfp::ticks_per_second()]);
        pause("done");
        end.wait();
    });
}

fn measured(begin: &Barrier) {
    let (asked, mut ask) = pipe().expect("there are descriptors left");
    let (mut answered, answer) = pipe().expect("there are descriptors left");
    let echo = thread::spawn(move || echo(asked, answer));
    begin.wait();

    // The thread may wait for the CPU while the region begins or ends, so the region's wall time is
    // between `inside` and `outside`.
    let (cpu, outside) = (os::thread_cpu(), os::wall());
    let inside;
    {
        pfp::scope!("everything");
        let begun = os::wall();
        let mut round = 0;
        while os::thread_cpu() - cpu < EACH {
            pfp::scope!("round");
            os::burn(PIECE);
            {
                pfp::scope!("inside");
                os::burn(PIECE);
            }
            if round % 8 == 1 {
                pfp::scope!("asleep");
                thread::sleep(Duration::from_millis(2));
            }
            if round % 8 == 5 {
                pfp::scope!("waiting for a pipe");
                ask.write_all(&[0]).expect("the other end is open");
                answered.read_exact(&mut [0]).expect("the other end is open");
            }
            round += 1;
        }
        inside = os::wall() - begun;
    }
    let outside = os::wall() - outside;
    let cpu = os::thread_cpu() - cpu;
    let stolen = stolen::so_far().as_nanos();
    let times = [cpu, inside, outside].map(|time| time.as_nanos());
    say("thread", &[&os::tid(), &times[0], &times[1], &times[2], &stolen]);
    drop(ask);
    echo.join().expect("it only echoes");
}

/// Answers each byte after a short delay.
fn echo(mut asked: impl Read, mut answer: impl Write) {
    let mut byte = [0];
    while asked.read_exact(&mut byte).is_ok() {
        thread::sleep(Duration::from_millis(2));
        if answer.write_all(&byte).is_err() {
            return;
        }
    }
}
