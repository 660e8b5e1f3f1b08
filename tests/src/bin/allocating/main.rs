//! A program that knows what its regions allocate: `allocating CASE FILE` runs a case, and writes
//! the figures that pfp should show into a file.
//!
//! The allocator below `pfp::Alloc` notes each allocation when it happens: for the innermost open
//! region, and once for each point that has an open region. So it subtracts nothing, unlike pfp.
//!
//! ```text
//! program --> pfp::Alloc --> Noting --> System
//!             pfp's count    this program's count
//! ```

mod leaks;
mod server;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::panic::{catch_unwind, resume_unwind};
use std::pin::Pin;
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Barrier, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;

use pfp::{ExecutionContext, Guard, MeteredPoint, Point};
use pfp_tests::random::Random;
use pfp_tests::script::in_turn;

#[global_allocator]
static ALLOCATOR: pfp::Alloc<Noting> = pfp::Alloc::new(Noting);

struct Noting;

// SAFETY: each method passes its arguments to the system's allocator and returns its result.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size(), 0);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size(), 0);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(1, size, layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        note(0, 0, layout.size());
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// A point, and what its regions should show: calls; allocations, bytes and freed bytes, exclusive
/// and inclusive; and the largest allocation.
struct Known {
    point: &'static Point,
    name: String,
    counts: AtomicBool,
    resets: AtomicU64,
    figures: [AtomicU64; 8],
}

const CALLS: usize = 0;
const EXCLUSIVE: usize = 1;
const INCLUSIVE: usize = 4;
const LARGEST: usize = 7;

/// An open region of a point that counts allocations, and the number of resets when it began.
#[derive(Clone, Copy)]
struct Open {
    of: &'static Known,
    resets: u64,
}

/// The innermost region is last.
type Stack = [Option<Open>; 64];

thread_local! {
    static STACK: Cell<Stack> = const { Cell::new([None; 64]) };
    /// Whether pfp's own code runs, whose allocations count for no region.
    static IS_IN_PFP: Cell<bool> = const { Cell::new(false) };
}

fn note(allocs: u64, bytes: usize, freed: usize) {
    if IS_IN_PFP.get() {
        return;
    }
    let more = [allocs, bytes as u64, freed as u64];
    let stack = STACK.get();
    if let Some(innermost) = stack.iter().flatten().last() {
        innermost.add(EXCLUSIVE, more);
    }
    for (level, open) in stack.iter().flatten().enumerate() {
        let is_same = |outer: &Open| ptr::eq(outer.of, open.of) && outer.counts();
        if !stack.iter().flatten().take(level).any(is_same) {
            open.add(INCLUSIVE, more);
        }
    }
}

/// Runs a function of pfp.
fn pfp<R>(call: impl FnOnce() -> R) -> R {
    let before = IS_IN_PFP.replace(true);
    let result = call();
    IS_IN_PFP.set(before);
    result
}

impl Open {
    /// Whether the point was not reset since the region began.
    fn counts(&self) -> bool {
        self.of.resets.load(SeqCst) == self.resets
    }

    fn add(&self, first: usize, more: [u64; 3]) {
        if self.counts() {
            let figures = &self.of.figures;
            figures[first..]
                .iter()
                .zip(more)
                .for_each(|(sum, more)| _ = sum.fetch_add(more, SeqCst));
            figures[LARGEST].fetch_max(more[1], SeqCst);
        }
    }
}

/// All points of the case.
static ALL: Mutex<Vec<&'static Known>> = Mutex::new(Vec::new());

fn known(name: &str) -> &'static Known {
    let name: &'static str = name.to_owned().leak();
    known_as(name, Box::leak(Box::new(Point::new(name).counting_allocs())))
}

fn known_as(name: &str, point: &'static Point) -> &'static Known {
    let known = &*Box::leak(Box::new(Known {
        point,
        name: name.into(),
        counts: AtomicBool::new(true),
        resets: AtomicU64::new(0),
        figures: Default::default(),
    }));
    point.set_counting_allocs(true);
    ALL.lock().unwrap().push(known);
    known
}

/// Measures each point, so that no later region is lost because another thread registers its point
/// or claims its lane.
fn measure_once(points: &[&'static Known]) {
    in_turn(|| points.iter().for_each(|point| drop(point.measure())));
}

fn all<const N: usize>(names: [&str; N]) -> [&'static Known; N] {
    names.map(known)
}

impl Known {
    fn count(&'static self, counts: bool) -> &'static Self {
        self.point.set_counting_allocs(counts);
        self.counts.store(counts, SeqCst);
        self
    }

    fn reset(&self) {
        pfp(|| self.point.reset());
        self.resets.fetch_add(1, SeqCst);
        self.figures.iter().for_each(|figure| figure.store(0, SeqCst));
    }

    /// Notes that a region is open, from now on. False if it does not count.
    fn open(&'static self) -> bool {
        let counts = self.counts.load(SeqCst);
        if counts {
            let mut stack = STACK.get();
            let free = stack.iter_mut().find(|open| open.is_none());
            *free.expect("few regions are nested") =
                Some(Open { of: self, resets: self.resets.load(SeqCst) });
            STACK.set(stack);
        }
        counts
    }

    fn measure(&'static self) -> Region {
        self.region(|| self.point.measure())
    }

    fn region(&'static self, begin: impl FnOnce() -> Guard) -> Region {
        let guard = Some(pfp(begin));
        Region { guard, counts: self.open() }
    }

    fn begin(&'static self) {
        pfp(|| self.point.begin());
        self.open();
    }

    /// Ends the innermost region, which is of this point. `counted` is whether it counts.
    fn end(&'static self, counted: bool) {
        pfp(|| self.point.end());
        if counted {
            close(true);
        }
    }

    fn by_hand(&'static self, work: impl FnOnce()) {
        let counted = self.counts.load(SeqCst);
        self.begin();
        work();
        self.end(counted);
    }

    /// A future that is measured by pfp and noted here.
    fn polled<T>(
        &'static self,
        future: impl Future<Output = T> + Send,
    ) -> impl Future<Output = T> + Send {
        let mut future = Box::pin(future);
        // Inside of pfp's own code, the program's code runs again.
        let inner = poll_fn(move |context| {
            let was_in_pfp = IS_IN_PFP.replace(false);
            let counts = self.open();
            let polled = future.as_mut().poll(context);
            if counts {
                close(polled.is_ready());
            }
            IS_IN_PFP.set(was_in_pfp);
            polled
        });
        let mut outer = Box::pin(self.point.measure_async(inner));
        poll_fn(move |context| pfp(|| outer.as_mut().poll(context)))
    }
}

/// Notes that the innermost region ends.
fn close(is_call: bool) {
    let mut stack = STACK.get();
    let innermost = stack.iter_mut().rfind(|open| open.is_some()).expect("a region is open");
    if let Some(open) = innermost.take().filter(Open::counts) {
        open.of.figures[CALLS].fetch_add(u64::from(is_call), SeqCst);
    }
    STACK.set(stack);
}

struct Region {
    guard: Option<Guard>,
    counts: bool,
}

impl Region {
    fn lap(&mut self, next: &'static Known) {
        pfp(|| self.guard.as_mut().expect("it is open").lap(next.point));
        if self.counts {
            close(true);
        }
        self.counts = next.open();
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        pfp(|| self.guard = None);
        if self.counts {
            close(true);
        }
    }
}

/// A context with its own open regions.
struct Task {
    context: ExecutionContext,
    stack: Cell<Stack>,
}

// SAFETY: one thread at a time uses a task.
unsafe impl Sync for Task {}

impl Task {
    fn new() -> Self {
        Self { context: pfp(ExecutionContext::new), stack: Cell::new([None; 64]) }
    }

    /// Replaces the task that runs on this thread.
    fn switch(&self, next: &Self) {
        assert!(pfp(|| pfp::task_switch(&self.context, &next.context)));
        self.stack.set(STACK.replace(next.stack.get()));
    }

    /// Runs as an interrupt handler does.
    fn interrupt(&self, work: impl FnOnce()) {
        let entered = pfp(|| self.context.enter());
        let before = STACK.replace(self.stack.get());
        work();
        self.stack.set(STACK.replace(before));
        pfp(|| drop(entered));
    }
}

/// Allocates, reallocates and frees memory of several alignments.
fn allocate(size: usize) {
    let mut bytes: Vec<u8> = black_box(Vec::with_capacity(size + 1));
    bytes.push(7);
    bytes.reserve_exact(black_box(3 * size + 40));
    bytes.shrink_to(black_box(size / 2 + 1));
    drop(black_box(bytes));
    drop(black_box(vec![0_u64; size]));
    drop(black_box(String::from("some text").repeat(size % 5)));
    for align in [1, 16, 64, 4096] {
        let layout = Layout::from_size_align(size + 1, align).unwrap();
        // SAFETY: the layout has a size above 0, and the memory is freed with the layout that it has
        // by then.
        unsafe {
            let memory = std::alloc::alloc(layout);
            let larger = std::alloc::realloc(black_box(memory), layout, 2 * size + 100);
            let layout = Layout::from_size_align(2 * size + 100, align).unwrap();
            std::alloc::dealloc(black_box(larger), layout);
            let layout = Layout::from_size_align(size + 9, align).unwrap();
            std::alloc::dealloc(black_box(std::alloc::alloc_zeroed(layout)), layout);
        }
    }
}

fn nested() {
    let [outer, inner, other] = all(["outer", "inner", "other"]);
    let quiet = known("quiet").count(false);
    fn down(one: &'static Known, other: &'static Known, levels: usize) {
        let _region = one.measure();
        allocate(levels);
        if levels > 0 {
            down(other, one, levels - 1);
        }
        allocate(levels);
    }
    for round in 0..100 {
        let _outer = outer.measure();
        allocate(round);
        for of in [inner, other, quiet, inner] {
            let _region = of.measure();
            allocate(2 * round);
            let _inside = other.measure();
            allocate(3);
        }
        // Both points at once, and each in itself.
        down(inner, other, 20);
        down(outer, outer, 20);
    }
    allocate(1000);
}

fn by_hand() {
    let [outer, inner] = all(["outer", "inner"]);
    let fenced = known("fenced");
    fenced.point.set_fenced(true);
    let average = known("average");
    average.point.set_alpha(0.5).unwrap();
    for round in 0..1000 {
        outer.by_hand(|| {
            allocate(round);
            inner.by_hand(|| fenced.by_hand(|| average.by_hand(|| allocate(3))));
            inner.by_hand(|| outer.by_hand(|| allocate(4)));
        });
        let _fenced = fenced.measure();
        let _average = average.measure();
        allocate(5);
        // A measurement in two parts is one call.
        inner.begin();
        allocate(6);
        pfp(|| inner.point.end_latched());
        close(false);
        allocate(7);
        inner.by_hand(|| allocate(8));
    }
}

fn laps() {
    let [outer, one, other] = all(["outer", "one", "other"]);
    let quiet = known("quiet").count(false);
    for round in 0..1000 {
        let _outer = outer.measure();
        let mut lap = one.measure();
        for next in [other, one, one, quiet, quiet, other, outer, one] {
            allocate(round);
            lap.lap(next);
            allocate(1);
            let _inside = one.measure();
            allocate(2);
        }
    }
}

/// Several thousand regions of more points than a page has records.
fn many() {
    let points: Vec<_> = (0..400).map(|number| known(&format!("point {number}"))).collect();
    let _outer = known("around all").measure();
    for round in 0..40_000 {
        let _region = points[round % 400].measure();
        black_box(vec![1_u8; round % 100 + 1]);
        if round % 7 == 0 {
            let _inside = points[round % 399].measure();
            black_box(vec![1_u8; 3]);
        }
    }
}

fn switched() {
    let [outer, inner] = all(["outer", "inner"]);
    for round in 0..300 {
        // Whether a region counts is decided at its begin.
        outer.count(round % 2 == 0);
        let _outer = outer.measure();
        outer.count(round % 3 == 0);
        inner.count(round % 5 != 0);
        inner.by_hand(|| {
            let before = inner.counts.load(SeqCst);
            allocate(round);
            inner.count(round % 7 != 0);
            inner.by_hand(|| allocate(1));
            // The region around ends as it began, whatever its point does now.
            inner.count(before);
        });
        allocate(2);
        let mut lap = inner.measure();
        inner.count(round % 2 == 0);
        lap.lap(inner);
        allocate(3);
    }
}

fn reset() {
    let [outer, inner] = all(["outer", "inner"]);
    let (begun, is_reset) = (Barrier::new(2), Barrier::new(2));
    let round = |number| {
        let _outer = outer.measure();
        allocate(number);
        inner.by_hand(|| allocate(1));
    };
    thread::scope(|scope| {
        // Regions of another thread are open during the reset.
        scope.spawn(|| {
            (0..100).for_each(round);
            let _outer = outer.measure();
            let _inner = inner.measure();
            allocate(2);
            begun.wait();
            is_reset.wait();
            allocate(3);
            // These regions begin after the reset, in one that began before.
            (0..50).for_each(round);
        });
        begun.wait();
        (0..100).for_each(round);
        let _outer = outer.measure();
        allocate(100_000);
        outer.reset();
        allocate(4);
        inner.measure();
        (0..30).for_each(round);
        inner.reset();
        is_reset.wait();
        (0..30).for_each(round);
    });
}

fn panics() {
    let [outer, inner] = all(["outer", "inner"]);
    for round in 0..1000 {
        let _outer = outer.measure();
        let unwound = catch_unwind(|| {
            let _one = inner.measure();
            allocate(round);
            let mut other = outer.measure();
            other.lap(inner);
            allocate(1);
            resume_unwind(Box::new([1_u64; 9]));
        });
        allocate(2);
        drop(unwound);
    }
}

/// A future that is ready when it is polled the second time.
fn yielded() -> impl Future<Output = ()> {
    let mut is_ready = false;
    poll_fn(
        move |_| {
            if std::mem::replace(&mut is_ready, true) { Poll::Ready(()) } else { Poll::Pending }
        },
    )
}

/// Polls all tasks in turn, on several threads.
fn run(tasks: Vec<Pin<Box<dyn Future<Output = ()> + Send>>>, points: &[&'static Known]) {
    let queue = Mutex::new(tasks);
    let work = || {
        measure_once(points);
        loop {
            let Some(mut task) = queue.lock().unwrap().pop() else { return };
            if task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                queue.lock().unwrap().insert(0, task);
            }
            thread::yield_now();
        }
    };
    thread::scope(|scope| (0..3).for_each(|_| _ = scope.spawn(work)));
}

fn futures() {
    let [outer, inner, sync] = all(["outer", "inner", "sync"]);
    let task = |number: usize| async move {
        for round in 0..20 {
            let kept = black_box(vec![1_u8; number + 1]);
            let inside = async {
                allocate(round);
                yielded().await;
                drop(sync.measure());
                let _recursive = inner
                    .polled(async {
                        allocate(number);
                        yielded().await;
                        allocate(3);
                    })
                    .await;
                allocate(4);
            };
            inner.polled(inside).await;
            yielded().await;
            drop(kept);
        }
        allocate(5);
    };
    let tasks = (0..30).map(|number| Box::pin(outer.polled(task(number))) as _);
    run(tasks.collect(), &[outer, inner, sync]);
}

fn contexts() {
    let [outer, inner, handler] = all(["outer", "inner", "handler"]);
    let work = |step: usize| {
        match step % 8 {
            0 => outer.begin(),
            2 | 3 => inner.begin(),
            5 | 6 => inner.end(true),
            7 => outer.end(true),
            _ => {}
        }
        allocate(step);
    };
    let tasks = Mutex::new((0..6).map(|_| (Task::new(), 0)).collect::<Vec<_>>());
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                measure_once(&[outer, inner, handler]);
                let (idle, interrupt) = (Task::new(), Task::new());
                let entered = pfp(|| idle.context.enter());
                for round in 0..400 {
                    let _around = outer.measure();
                    allocate(1);
                    let Some((task, mut step)) = tasks.lock().unwrap().pop() else { continue };
                    idle.switch(&task);
                    work(step);
                    step += 1;
                    if round % 3 == 0 {
                        interrupt.interrupt(|| {
                            let _handler = handler.measure();
                            let _inner = inner.measure();
                            allocate(2);
                        });
                        allocate(3);
                    }
                    task.switch(&idle);
                    allocate(4);
                    tasks.lock().unwrap().insert(0, (task, step));
                    thread::yield_now();
                }
                pfp(|| drop(entered));
            });
        }
    });
    // Ends what is open.
    measure_once(&[outer, inner, handler]);
    for (task, step) in tasks.into_inner().unwrap() {
        task.interrupt(|| (step..step.next_multiple_of(8)).for_each(work));
    }
}

/// A region that ends on a thread that has not measured its point before.
fn moved() {
    let outer = known("outer");
    let task = Task::new();
    let begin = || {
        outer.begin();
        allocate(1);
    };
    thread::scope(|scope| _ = scope.spawn(|| task.interrupt(begin)));
    task.interrupt(|| {
        allocate(2);
        outer.end(true);
    });
}

/// pfp counts the first eight tuples of a point separately, and all others together.
fn metered() {
    static METERED: MeteredPoint = MeteredPoint::new("metered", &["items"]);
    static FEW: MeteredPoint = MeteredPoint::new("few", &["items", "bytes"]);
    let [metered, few] =
        [("metered", &METERED), ("few", &FEW)].map(|(name, point)| known_as(name, point.point()));
    let other = known("other");
    for round in 0..3000_u64 {
        let _metered = metered.region(|| METERED.measure([round % 20]));
        allocate(round as usize % 10);
        let mut few = few.region(|| FEW.measure([round % 3, 1]));
        allocate(1);
        few.lap(other);
        allocate(2);
    }
}

/// Memory that one thread allocates and another one frees.
static POOL: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// Does random things in random regions.
fn walk(random: &mut Random, points: &[&'static Known], levels: usize) {
    for _ in 0..random.below(6) {
        let of = points[random.below(points.len())];
        let inside = |random: &mut Random| {
            if levels > 0 {
                walk(random, points, levels - 1);
            }
            allocate(random.below(50));
        };
        match random.below(8) {
            0 => allocate(random.below(1000)),
            1 => POOL.lock().unwrap().push(black_box(vec![1; 1 + random.below(100)])),
            2 => _ = black_box(POOL.lock().unwrap().pop()),
            3 => of.by_hand(|| inside(random)),
            4 => {
                let unwound = catch_unwind(std::panic::AssertUnwindSafe(|| {
                    let _region = of.measure();
                    inside(random);
                    resume_unwind(Box::new(*b"bytes"));
                }));
                drop(unwound);
            }
            5 => {
                let mut lap = of.measure();
                inside(random);
                lap.lap(points[random.below(points.len())]);
                inside(random);
            }
            6 => {
                let mut future = Box::pin(of.polled(async { inside(random) }));
                let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                assert!(polled.is_ready());
            }
            _ => {
                let _region = of.measure();
                inside(random);
            }
        }
    }
}

/// Threads that end, and others that take their lanes.
fn threads() {
    let mut points: Vec<_> = (0..12).map(|number| known(&format!("point {number}"))).collect();
    points.push(known("quiet").count(false));
    for generation in 0..6 {
        thread::scope(|scope| {
            for number in 0..4 {
                let points = &points;
                scope.spawn(move || {
                    measure_once(points);
                    let mut random = Random::new(generation * 10 + number);
                    (0..60).for_each(|_| walk(&mut random, points, 7));
                });
            }
        });
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let [case, file] = [(); 2].map(|()| arguments.next().expect("allocating CASE FILE"));
    pfp::init().expect("there is room for a segment");
    match case.as_str() {
        "nested" => nested(),
        "by_hand" => by_hand(),
        "laps" => laps(),
        "many" => many(),
        "switched" => switched(),
        "reset" => reset(),
        "panics" => panics(),
        "futures" => futures(),
        "contexts" => contexts(),
        "moved" => moved(),
        "metered" => metered(),
        "threads" => threads(),
        "server" => server::serve(),
        "leaks" => leaks::leaks(),
        "cache" => leaks::cache(),
        _ => panic!("there is no case {case}"),
    }
    let of = |known: &&Known| {
        let figures: Vec<u64> = known.figures.iter().map(|figure| figure.load(Relaxed)).collect();
        (known.name.clone(), figures)
    };
    let all: BTreeMap<_, _> = ALL.lock().unwrap().iter().map(of).collect();
    std::fs::write(&file, serde_json::to_string(&all).unwrap()).expect("there is room");
}
