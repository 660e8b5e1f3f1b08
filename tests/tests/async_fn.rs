//! Async functions under `#[pfp::function]`: one measurement over all polls, in
//! which waiting is not counted, whoever polls and on whatever thread.

use std::cell::Cell;
use std::future::Future;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use pfp_tests::os::{burn, thread_cpu};
use pfp_tests::own::figures;
use pfp_tests::{figure, stolen};

const STEP: Duration = Duration::from_millis(8);
/// How near figures are to the CPU time of the polls, whose oracle is read with
/// a system call on either side.
const NEAR: f64 = 0.02;

/// Is pending once.
#[derive(Default)]
struct Once(bool);

impl Future for Once {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Polls once, and adds what the kernel says that took to `cpu`.
fn poll<F: Future + ?Sized>(future: Pin<&mut F>, cpu: &mut Duration) -> Poll<F::Output> {
    // A thread's first look at the probe is no region's.
    pfp::register_thread("polls");
    let before = thread_cpu();
    let polled = future.poll(&mut Context::from_waker(Waker::noop()));
    *cpu += thread_cpu() - before;
    polled
}

/// Polls until it is ready, asleep in between; the CPU time of the polls.
fn drive<F: Future>(future: F) -> (F::Output, Duration) {
    let mut future = pin!(future);
    let mut cpu = Duration::ZERO;
    loop {
        if let Poll::Ready(output) = poll(future.as_mut(), &mut cpu) {
            return (output, cpu);
        }
        thread::sleep(STEP);
    }
}

/// `stolen` from the threads that polled it.
fn assert_near(what: &str, ticks: u64, cpu: Duration, stolen: Duration) {
    let found = ticks as f64 / pfp::ticks_per_second();
    let off = found / cpu.as_secs_f64() - 1.0;
    let said = format!("{what}: {off:+.5} from {cpu:?}, {stolen:?} stolen");
    figure(&format!("async_fn {said}"));
    assert!(off.abs() < NEAR + stolen.div_duration_f64(cpu), "{said}");
}

#[test]
fn all_polls_are_one_measurement_without_the_waiting() {
    #[pfp::function]
    async fn in_five_steps(of: u32) -> u32 {
        for _ in 0..4 {
            burn(STEP);
            Once::default().await;
        }
        burn(STEP);
        of + 1
    }
    let stolen = stolen::so_far();
    let (output, cpu) = drive(in_five_steps(41));
    let stolen = stolen::since(stolen);
    assert_eq!(output, 42);
    assert!(cpu >= 5 * STEP);
    let sums = figures("in_five_steps");
    assert_eq!(sums.count, 1);
    assert_near("five steps", sums.exclusive, cpu, stolen);
    assert_eq!((sums.min, sums.max), (sums.exclusive, sums.exclusive));
    // The sleep between polls is neither on the CPU nor off it: nobody's.
    let waited = sums.off_cpu as f64 / pfp::ticks_per_second();
    figure(&format!("async_fn five steps: {waited:.6} s off the CPU"));
}

#[test]
fn an_early_return_and_a_question_mark_keep_their_meaning() {
    #[pfp::function("early")]
    async fn early(number: Result<u32, String>) -> Result<u32, String> {
        let number = number?;
        Once::default().await;
        if number > 1 {
            return Ok(number);
        }
        Ok(0)
    }
    assert_eq!(drive(early(Ok(7))).0, Ok(7));
    assert_eq!(drive(early(Ok(1))).0, Ok(0));
    assert_eq!(drive(early(Err("no".into()))).0, Err("no".into()));
    assert_eq!(figures("early").count, 3);
}

#[test]
fn regions_inside_are_taken_out_also_across_waiting() {
    // What was burnt around, within, and in the scope.
    type Burnt = [Cell<Duration>; 3];
    #[pfp::function("around")]
    async fn around(burnt: &Burnt) {
        let mut own = burn(STEP);
        within(burnt).await;
        {
            pfp::scope!("between two waits");
            burnt[2].set(burn(STEP));
        }
        Once::default().await;
        own += burn(STEP);
        burnt[0].set(own);
    }
    #[pfp::function("within")]
    async fn within(burnt: &Burnt) {
        let before = burn(STEP);
        Once::default().await;
        burnt[1].set(before + burn(STEP));
    }
    let burnt = Burnt::default();
    let stolen = stolen::so_far();
    let ((), cpu) = drive(around(&burnt));
    let stolen = stolen::since(stolen);
    let [around, within, scope] = ["around", "within", "between two waits"].map(figures);
    assert_eq!([around.count, within.count, scope.count], [1, 1, 1]);
    assert_near("a future inside", within.exclusive, burnt[1].get(), stolen);
    assert_near("a scope inside", scope.exclusive, burnt[2].get(), stolen);
    assert_near("the future around", around.exclusive, burnt[0].get(), stolen);
    assert_near("the future around, all in all", around.inclusive, cpu, stolen);
}

#[test]
fn a_panic_in_a_poll_ends_the_measurement_and_nothing_else() {
    #[pfp::function("panics")]
    async fn panics() {
        burn(STEP);
        Once::default().await;
        burn(STEP);
        if black_box(true) {
            std::panic::panic_any("as intended");
        }
    }
    // As in `poll`.
    pfp::register_thread("polls");
    let mut cpu = Duration::ZERO;
    let (start, stolen) = (thread_cpu(), stolen::so_far());
    {
        pfp::scope!("around the panic");
        let mut future = Box::pin(panics());
        assert!(poll(future.as_mut(), &mut cpu).is_pending());
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| ()));
        let before = thread_cpu();
        let mut discarded = Duration::ZERO;
        let panicked = catch_unwind(AssertUnwindSafe(|| poll(future.as_mut(), &mut discarded)));
        cpu += thread_cpu() - before;
        std::panic::set_hook(hook);
        assert!(panicked.is_err());
        burn(STEP);
    }
    let (all, stolen) = (thread_cpu() - start, stolen::since(stolen));
    let sums = figures("panics");
    assert_eq!(sums.count, 1);
    assert_near("a panic", sums.exclusive, cpu, stolen);
    let around = figures("around the panic");
    assert_eq!(around.count, 1);
    assert_near("around a panic", around.exclusive, all - cpu, stolen);
}

#[test]
fn futures_take_turns_on_one_thread() {
    #[pfp::function("short turns")]
    async fn short() {
        for _ in 0..3 {
            burn(STEP);
            Once::default().await;
        }
    }
    #[pfp::function("long turns")]
    async fn long() {
        for _ in 0..3 {
            burn(2 * STEP);
            Once::default().await;
        }
    }
    type Boxed = Pin<Box<dyn Future<Output = ()>>>;
    let mut futures: [(Boxed, Duration, bool); 4] = [
        (Box::pin(short()), Duration::ZERO, false),
        (Box::pin(long()), Duration::ZERO, false),
        (Box::pin(short()), Duration::ZERO, false),
        (Box::pin(long()), Duration::ZERO, false),
    ];
    let stolen = stolen::so_far();
    {
        pfp::scope!("the executor");
        while futures.iter().any(|(.., ready)| !ready) {
            for (future, cpu, ready) in futures.iter_mut().filter(|(.., ready)| !ready) {
                *ready = poll(future.as_mut(), cpu).is_ready();
            }
            thread::sleep(STEP);
        }
    }
    let stolen = stolen::since(stolen);
    let [short, long] = ["short turns", "long turns"].map(figures);
    assert_eq!([short.count, long.count], [2, 2]);
    assert_near("short turns", short.exclusive, futures[0].1 + futures[2].1, stolen);
    assert_near("long turns", long.exclusive, futures[1].1 + futures[3].1, stolen);
    let executor = figures("the executor");
    assert!(executor.exclusive < long.exclusive / 4, "the futures are not the executor's");
}

#[test]
fn a_future_goes_on_on_another_thread() {
    #[pfp::function("travels")]
    async fn travels() {
        for _ in 0..4 {
            burn(STEP);
            Once::default().await;
        }
    }
    let mut future = Box::pin(travels());
    let (mut cpu, before) = (Duration::ZERO, stolen::so_far());
    assert!(poll(future.as_mut(), &mut cpu).is_pending());
    let mut stolen = stolen::since(before);
    for turn in 0..4 {
        let (there, used, lost, ready) = thread::spawn(move || {
            let mut cpu = Duration::ZERO;
            let ready = poll(future.as_mut(), &mut cpu).is_ready();
            (future, cpu, stolen::so_far(), ready)
        })
        .join()
        .expect("it only polls");
        future = there;
        cpu += used;
        stolen += lost;
        assert_eq!(ready, turn == 3);
    }
    let sums = figures("travels");
    assert_eq!(sums.count, 1);
    assert_near("another thread", sums.exclusive, cpu, stolen);
}

/// What its polls took is taken out of the regions around, so it is kept.
#[test]
fn a_future_that_is_dropped_early_is_measured_so_far() {
    static DROPPED: pfp::Point = pfp::Point::new("dropped early");
    let mut cpu = Duration::ZERO;
    let before = stolen::so_far();
    let unfinished = || {
        Box::pin(DROPPED.measure_async(async {
            burn(STEP);
            Once::default().await;
        }))
    };
    drop(unfinished());
    assert!(DROPPED.stats().is_none(), "it was not polled");
    let mut future = unfinished();
    assert!(poll(future.as_mut(), &mut cpu).is_pending());
    assert!(DROPPED.stats().is_none(), "it may go on");
    drop(future);
    let stats = DROPPED.stats().expect("it was measured");
    assert_eq!(stats.count, 1);
    assert_near("one that was dropped", stats.exclusive, cpu, stolen::since(before));
    // By another thread, whose first measurement that is.
    let mut future = unfinished();
    assert!(poll(future.as_mut(), &mut cpu).is_pending());
    thread::spawn(move || drop(future)).join().expect("it only drops");
    let stats = DROPPED.stats().expect("it was measured");
    assert_eq!(stats.count, 2);
    assert_near("two that were dropped", stats.exclusive, cpu, stolen::since(before));
    // The next one begins from nothing.
    let ((), last) = drive(DROPPED.measure_async(async {
        burn(STEP);
    }));
    let stats = DROPPED.stats().expect("it was measured");
    assert_eq!(stats.count, 3);
    assert_near(
        "after those that were dropped",
        stats.exclusive,
        cpu + last,
        stolen::since(before),
    );
    assert_near("the last of them", stats.last, last, stolen::since(before));
}
