//! Async functions with `#[pfp::function]`: all polls of a future count as one measurement, without
//! the time between the polls, whichever threads poll it.

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

/// CPU time of a step. The begin of a first region takes CPU time that counts for no region; a step
/// is much longer.
const STEP: Duration = Duration::from_millis(24);
/// Tolerance of the figures relative to the CPU time of the polls. Reading that time takes a system
/// call before and after each poll.
const NEAR: f64 = 0.02;

/// A future that is pending once.
#[derive(Default)]
struct Once(bool);

impl Future for Once {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Polls once, and adds the CPU time of the poll, by the kernel's account, to `cpu`.
fn poll<F: Future + ?Sized>(future: Pin<&mut F>, cpu: &mut Duration) -> Poll<F::Output> {
    // The thread's first use of the probe must not fall into the poll.
    pfp::register_thread("polls");
    let before = thread_cpu();
    let polled = future.poll(&mut Context::from_waker(Waker::noop()));
    *cpu += thread_cpu() - before;
    polled
}

/// Polls until the future is ready, and sleeps in between; returns the CPU time of the polls.
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

/// `stolen` is the time stolen from the threads that polled the future.
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
    // The sleep between polls counts neither as on-CPU time nor as off-CPU time.
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
fn nested_regions_are_subtracted_across_awaits() {
    // CPU time burnt in the outer region, in the inner one, and in the scope.
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
    // The thread's first use of the probe must not fall into the poll.
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
fn a_future_continues_on_another_thread() {
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

/// A dropped future still counts, since the time of its polls has already been subtracted from the
/// surrounding regions.
#[test]
fn a_future_that_is_dropped_early_keeps_its_time_so_far() {
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
    // Another thread drops the future. The drop is that thread's first use of the probe.
    let mut future = unfinished();
    assert!(poll(future.as_mut(), &mut cpu).is_pending());
    thread::spawn(move || drop(future)).join().expect("it only drops");
    let stats = DROPPED.stats().expect("it was measured");
    assert_eq!(stats.count, 2);
    assert_near("two that were dropped", stats.exclusive, cpu, stolen::since(before));
    // The next future of the point does not include the time of the dropped ones.
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

/// As with recursive calls, inclusive time counts a nested future of the same point only once.
#[test]
fn recursion_counts_once_in_inclusive_time() {
    #[pfp::function("down")]
    fn down(levels: u32, pending: bool) -> Pin<Box<dyn Future<Output = Duration>>> {
        Box::pin(async move {
            let own = burn(STEP / 4);
            if pending {
                Once::default().await;
            }
            if levels == 0 { own } else { own + down(levels - 1, pending).await }
        })
    }
    const LEVELS: u32 = 9;
    let (mut all, before) = (Duration::ZERO, stolen::so_far());
    let mut calls = 0;
    for pending in [false, true] {
        let (_, cpu) = drive(down(LEVELS, pending));
        (all, calls) = (all + cpu, calls + u64::from(LEVELS + 1));
        let sums = figures("down");
        assert_eq!(sums.count, calls);
        let stolen = stolen::since(before);
        assert_near("recursion, exclusive", sums.exclusive, all, stolen);
        assert_near("recursion, inclusive", sums.inclusive, all, stolen);
    }
    // The future is dropped with all levels begun and none ended.
    let mut cpu = Duration::ZERO;
    let mut future = down(LEVELS, true);
    for _ in 0..=LEVELS {
        assert!(poll(future.as_mut(), &mut cpu).is_pending());
    }
    drop(future);
    let (sums, stolen) = (figures("down"), stolen::since(before));
    assert_eq!(sums.count, calls + u64::from(LEVELS + 1));
    assert_near("recursion that was dropped, exclusive", sums.exclusive, all + cpu, stolen);
    assert_near("recursion that was dropped, inclusive", sums.inclusive, all + cpu, stolen);
}

/// A future may be polled inside another future of its point, and at other times outside of any.
#[test]
fn inclusive_time_includes_the_polls_of_nested_futures() {
    static POINT: pfp::Point = pfp::Point::new("in and out");
    let (mut cpu, before) = (Duration::ZERO, stolen::so_far());
    let mut inner = Box::pin(POINT.measure_async(async {
        for _ in 0..3 {
            burn(STEP);
            Once::default().await;
        }
    }));
    // Polled alone, inside another future, and alone again.
    assert!(poll(inner.as_mut(), &mut cpu).is_pending());
    let mut outer = Box::pin(POINT.measure_async(async {
        burn(STEP);
        assert!(inner.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }));
    assert!(poll(outer.as_mut(), &mut cpu).is_ready());
    drop(outer);
    assert!(poll(inner.as_mut(), &mut cpu).is_pending());
    assert!(poll(inner.as_mut(), &mut cpu).is_ready());
    let (stats, stolen) = (POINT.stats().expect("it was measured"), stolen::since(before));
    assert_eq!(stats.count, 2);
    assert_near("in and out, exclusive", stats.exclusive, cpu, stolen);
    assert_near("in and out, inclusive", stats.inclusive, cpu, stolen);
}

/// The attribute on a function that returns a future measures the future, but not the work and the
/// sleep before the function returns it.
#[test]
fn the_future_is_measured_but_not_its_construction() {
    #[async_trait::async_trait]
    trait Serve: Sync {
        async fn required(&self, steps: u32) -> Result<Duration, String>;

        #[pfp::function("async_trait, provided")]
        async fn provided(&self) -> Duration {
            self.required(2).await.unwrap_or_default()
        }
    }

    struct Server(Duration);

    #[async_trait::async_trait]
    impl Serve for Server {
        #[pfp::function("async_trait, required", items = steps)]
        async fn required(&self, steps: u32) -> Result<Duration, String> {
            let mut burnt = Duration::ZERO;
            for _ in 0..steps {
                burnt += burn(self.0);
                Once::default().await;
            }
            if steps > 2 { Err("too many".into()) } else { Ok(burnt) }
        }
    }

    #[pfp::function("opaque")]
    fn opaque(server: &Server) -> impl Future<Output = Duration> + Send {
        // This work comes before the future is made, and is not measured.
        let _ = burn(2 * STEP);
        async move { server.required(1).await.unwrap_or_default() + burn(STEP) }
    }

    #[pfp::function("boxed")]
    fn boxed<'a>(server: &'a Server, twice: bool) -> Pin<Box<dyn Future<Output = Duration> + 'a>> {
        if twice {
            return Box::pin(async { burn(STEP) });
        }
        match server.0 {
            STEP => Box::pin(async move { burn(server.0) }),
            _ => Box::pin(async move { burn(STEP / 2) }),
        }
    }

    let server = Server(STEP);
    let before = stolen::so_far();
    let (_, cpu) = drive(server.provided());
    let [provided, required] = ["async_trait, provided", "async_trait, required"].map(figures);
    assert_eq!((provided.count, required.count), (1, 1));
    assert_near("async_trait", required.exclusive, cpu, stolen::since(before));
    assert_near("async_trait, all in all", provided.inclusive, cpu, stolen::since(before));
    assert!(drive(server.required(3)).0.is_err());
    assert_eq!(figures("async_trait, required").count, 2);

    let (before, required) = (stolen::so_far(), figures("async_trait, required").exclusive);
    let (_, cpu) = drive(opaque(&server));
    let required = figures("async_trait, required").exclusive - required;
    let sums = figures("opaque");
    assert_eq!(sums.count, 1);
    let stolen = stolen::since(before);
    assert_near("impl Future", sums.exclusive + required, cpu, stolen);
    assert_near("impl Future, all in all", sums.inclusive, cpu, stolen);

    let before = stolen::so_far();
    let (_, cpu) = drive(boxed(&server, false));
    let sums = figures("boxed");
    assert_eq!(sums.count, 1);
    assert_near("Pin<Box<dyn Future>>", sums.exclusive, cpu, stolen::since(before));
    // As documented, a future that is returned early is not measured.
    let _ = drive(boxed(&server, true));
    assert_eq!(figures("boxed").count, 1);
}
