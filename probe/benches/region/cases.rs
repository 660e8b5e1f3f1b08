//! The cases that are measured.

use std::alloc::{GlobalAlloc, Layout, System};
use std::future::{Future, pending};
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use pfp_bench::{Case, case};

pub(crate) const FLOOR: &str = "two bare rdtsc";
pub(crate) const SCOPE: &str = "enabled: scope!";
pub(crate) const TIMED: &str = "with two amounts";
pub(crate) const TIMED_IN_TURN: &str = "with two amounts, eight in turn";
pub(crate) const BY_HAND: &str = "enabled: Point::begin, end";
pub(crate) const BY_NUMBER: &str = "enabled: begin(id), end(id)";
pub(crate) const BY_NUMBER_OFF: &str = "disabled: begin(id), end(id)";
pub(crate) const OFF: &str = "disabled: Point::measure";
pub(crate) const EMPTY_LOOP: &str = "an empty loop";
pub(crate) const ASYNC_OFF: &str = "disabled: async function, ready at once";
pub(crate) const ASYNC_EMPTY: &str = "an async function without a region";
/// Names of the cases for each [kind](WORK_KINDS) of work: the work alone, between two `rdtsc`, and
/// in a region.
pub(crate) const WORK: [[&str; 3]; 3] = [
    ["work", "work between two rdtsc", "work in a region"],
    ["work in flight", "work in flight, between two rdtsc", "work in flight, in a region"],
    ["fenced work", "fenced work between two rdtsc", "fenced work in a region"],
];
/// The kinds of work, by how each depends on the work before it. With each kind, the maximum ratio
/// of the time that a region adds to the time that two bare `rdtsc` add.
pub(crate) const WORK_KINDS: [(&str, Option<f64>); 3] = [
    ("one chain through all calls", None),
    ("a chain of its own in each call, several in flight", Some(2.0)),
    ("a fence on either side", Some(1.3)),
];

/// A row of the table.
pub(crate) struct Row {
    pub(crate) case: Case,
    /// Maximum cost of a region on a quiet machine, as a multiple of two bare `rdtsc`.
    pub(crate) bar: Option<f64>,
}

/// An allocator that counts, as in a program whose regions show their allocations.
#[global_allocator]
static COUNTED: pfp::Alloc = pfp::Alloc::new(System);

static OFF_POINT: pfp::Point = pfp::Point::new("off");
static HAND: pfp::Point = pfp::Point::new("by hand");
static POLLED: pfp::Point = pfp::Point::new("polled");
static IN_TURN: [pfp::Point; 1000] = [const { pfp::Point::new("in turn") }; 1000];
const NUMBER: u32 = 5;

/// Prevents the compiler from merging or moving the code around this call.
#[inline(always)]
fn nothing() {
    black_box(());
}

#[pfp::function]
#[inline(always)]
fn attribute() {}

fn with_amounts(n: u64) {
    let n = black_box(n);
    pfp::scope!("amounts", bytes = n * 24, flops = n * 2);
    nothing();
}

/// Fills the eight slots for tuples of amounts in the point of [`with_rest`], so that further
/// tuples have no figures of their own.
fn of_the_rest() {
    (1..9).for_each(with_rest);
}

fn with_rest(n: u64) {
    let n = black_box(n);
    pfp::scope!("rest", bytes = n * 24, flops = n * 2);
    nothing();
}

fn two_rdtsc() {
    let first = pfp::ticks();
    black_box(pfp::ticks().wrapping_sub(first));
}

/// Runs 200 independent instructions between the two readings, somewhat more than a region has.
/// This row is slow if the core's other hyperthread is busy, or if no instruction executes in
/// parallel with a reading of the counter.
fn two_rdtsc_and_instructions() {
    let first = pfp::ticks();
    #[cfg(target_arch = "x86_64")]
    // SAFETY: changes only registers that are declared as outputs.
    unsafe {
        std::arch::asm!(
            ".rept 25",
            "inc rax", "inc rcx", "inc rdx", "inc rsi", "inc rdi", "inc r8", "inc r9", "inc r10",
            ".endr",
            out("rax") _, out("rcx") _, out("rdx") _, out("rsi") _, out("rdi") _, out("r8") _,
            out("r9") _, out("r10") _,
            options(nomem, nostack)
        );
    }
    black_box(pfp::ticks().wrapping_sub(first));
}

fn two_thread_cpu_times() {
    black_box((thread_cpu_time(), thread_cpu_time()));
}

fn thread_cpu_time() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a local variable that the call fills.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_nsec
}

fn measure() {
    static POINT: pfp::Point = pfp::Point::new("measure");
    let _guard = POINT.measure();
    nothing();
}

fn fenced() {
    static POINT: pfp::Point = pfp::Point::new("fenced").fenced();
    let _guard = POINT.measure();
    nothing();
}

static LIMITED: pfp::Point = pfp::Point::new("limited");

/// Gives the point a limit that no call reaches.
fn limit() {
    LIMITED.keep_over(Duration::from_secs(90));
}

fn limited() {
    let _guard = LIMITED.measure();
    nothing();
}

static LONG: pfp::Point = pfp::Point::new("long");
static SLOW: pfp::Point = pfp::Point::new("slow");

/// Gives the point a limit that all calls exceed.
fn limit_all() {
    SLOW.keep_over(Duration::from_micros(1));
}

/// Some 10 us of work in a region. Never inlined, so that both cases run the same instructions.
#[inline(never)]
fn long(point: &'static pfp::Point) {
    let _guard = point.measure();
    (0..40_000_u64).fold(0, |sum, next| black_box(sum + next));
}

fn counting_allocs() {
    static POINT: pfp::Point = pfp::Point::new("counting").counting_allocs();
    let _guard = POINT.measure();
    nothing();
}

/// A region that allocates.
fn counted_allocation() {
    static POINT: pfp::Point = pfp::Point::new("allocating").counting_allocs();
    let _guard = POINT.measure();
    allocate(&COUNTED);
}

/// An allocation of 64 bytes, and its release.
fn allocate(allocator: &impl GlobalAlloc) {
    const LAYOUT: Layout = Layout::new::<[u64; 8]>();
    // SAFETY: the size is not 0.
    let memory = black_box(unsafe { allocator.alloc(LAYOUT) });
    if !memory.is_null() {
        // SAFETY: the memory is from this allocator, with this layout.
        unsafe { allocator.dealloc(memory, LAYOUT) };
    }
}

fn by_hand() {
    HAND.begin();
    nothing();
    HAND.end();
}

fn by_number() {
    pfp::Point::numbered(NUMBER).begin_once();
    nothing();
    pfp::Point::numbered(NUMBER).end();
}

fn in_turn(points: &'static [pfp::Point]) {
    for point in points {
        let _guard = point.measure();
        nothing();
    }
}

fn four_deep() {
    pfp::scope!("first");
    nothing();
    {
        pfp::scope!("second");
        nothing();
        {
            pfp::scope!("third");
            nothing();
            {
                pfp::scope!("fourth");
                nothing();
            }
        }
    }
}

/// Two regions per call, without anything between them.
fn laps(calls: u64) {
    pfp::laps!();
    for _ in 0..calls {
        pfp::lap!("lap one");
        nothing();
        pfp::lap!("lap two");
        nothing();
    }
}

/// Polls a future that is never ready.
fn polls(calls: u64) {
    let mut future = pin!(POLLED.measure_async(pending::<()>()));
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..calls {
        black_box(future.as_mut().poll(&mut context).is_pending());
    }
}

#[pfp::function]
async fn at_once(number: u64) -> u64 {
    number
}

async fn at_once_without(number: u64) -> u64 {
    number
}

/// Polls a future that is ready at its first poll.
#[inline(always)]
fn poll_once(future: impl Future<Output = u64>) {
    let polled = pin!(future).poll(&mut Context::from_waker(Waker::noop()));
    black_box(polled.is_ready());
}

/// About 70 ns of one kind of work; see [`WORK_KINDS`].
#[inline(always)]
fn work<const KIND: usize>(value: u64) -> u64 {
    let is_chained = KIND == 0;
    let mut value = if is_chained { value } else { black_box_register(3) };
    let is_fenced = KIND == 2;
    if is_fenced {
        fence();
    }
    for _ in 0..85 {
        value = black_box_register(value.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
    if is_fenced {
        fence();
    }
    value
}

/// Waits until all preceding instructions have completed.
#[inline(always)]
fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has this instruction.
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: the instruction changes no register and no memory.
    unsafe {
        std::arch::asm!("isb", options(nostack, preserves_flags))
    };
}

/// Hides the value from the compiler, but keeps it in its register.
#[inline(always)]
fn black_box_register(value: u64) -> u64 {
    let mut value = value;
    // SAFETY: the assembly contains no instruction.
    unsafe {
        std::arch::asm!("/* {0} */", inout(reg) value, options(nomem, nostack, preserves_flags))
    };
    value
}

fn works<const KIND: usize>(calls: u64) {
    let mut value = black_box(3);
    for _ in 0..calls {
        value = work::<KIND>(value);
    }
    black_box(value);
}

fn works_in_rdtsc<const KIND: usize>(calls: u64) {
    let mut value = black_box(3);
    for _ in 0..calls {
        let first = pfp::ticks();
        value = work::<KIND>(value);
        black_box(pfp::ticks().wrapping_sub(first));
    }
    black_box(value);
}

fn works_in_regions<const KIND: usize>(calls: u64) {
    let mut value = black_box(3);
    for _ in 0..calls {
        pfp::scope!("work");
        value = work::<KIND>(value);
    }
    black_box(value);
}

/// The three cases for one kind of work; see [`WORK_KINDS`].
fn of_work<const KIND: usize>() -> [Case; 3] {
    let batches = [works::<KIND>, works_in_rdtsc::<KIND>, works_in_regions::<KIND>];
    let case = |place: usize| Case {
        name: WORK[KIND][place],
        regions: 1,
        prepare: || (),
        batch: batches[place],
    };
    [case(0), case(1), case(2)]
}

fn row(bar: impl Into<Option<f64>>, case: Case) -> Row {
    Row { case, bar: bar.into() }
}

/// Rows of the table.
pub(crate) fn rows() -> Vec<Row> {
    let enable = || pfp::Point::numbered(NUMBER).enable();
    let off = || OFF_POINT.disable();
    vec![
        row(None, case!(FLOOR, 1, two_rdtsc())),
        row(None, case!("two rdtsc, 200 instructions between", 1, two_rdtsc_and_instructions())),
        row(None, case!("one stamp of the on-CPU clock", 1, black_box(pfp::on_cpu_ticks()))),
        row(
            1.15,
            case!(SCOPE, 1, {
                pfp::scope!("scope");
                nothing();
            }),
        ),
        row(1.45, case!(TIMED, 1, with_amounts(100))),
        row(1.45, case!(TIMED_IN_TURN, 8, (1..9).for_each(with_amounts))),
        row(None, case!("with two amounts, of the rest", 1, of_the_rest, with_rest(9))),
        row(1.15, case!("enabled: #[pfp::function]", 1, attribute())),
        row(1.15, case!("enabled: Point::measure", 1, measure())),
        row(None, case!("enabled: a fenced point", 1, fenced())),
        row(1.15, case!("enabled: a point with a limit", 1, limit, limited())),
        row(None, case!("10 us of work in a region", 1, long(&LONG))),
        row(None, case!("10 us of work in a region beyond its limit", 1, limit_all, long(&SLOW))),
        row(None, case!("enabled: a point that counts allocations", 1, counting_allocs())),
        row(None, case!("an allocation and its release", 1, allocate(&System))),
        row(None, case!("an allocation and its release, counted", 1, allocate(&COUNTED))),
        row(None, case!("both in a region that counts", 1, counted_allocation())),
        row(1.6, case!(BY_HAND, 1, by_hand())),
        row(1.6, case!(BY_NUMBER, 1, enable, by_number())),
        row(0.7, Case { name: "enabled: lap!", regions: 2, prepare: || (), batch: laps }),
        row(1.4, case!("64 points in turn", 64, in_turn(&IN_TURN[..64]))),
        row(1.4, case!("1,000 points in turn", 1000, in_turn(&IN_TURN))),
        row(1.4, case!("four deep, per region", 4, four_deep())),
        row(
            1.6,
            Case { name: "async function, per poll", regions: 1, prepare: || (), batch: polls },
        ),
        row(1.8, case!("async function, ready at once", 1, poll_once(at_once(black_box(1))))),
        row(
            None,
            case!(OFF, 1, off, {
                let _guard = OFF_POINT.measure();
                nothing();
            }),
        ),
        row(None, case!(EMPTY_LOOP, 1, nothing())),
        row(None, case!("two Instant::now", 1, black_box(Instant::now().elapsed()))),
        row(None, case!("two CLOCK_THREAD_CPUTIME_ID", 1, two_thread_cpu_times())),
    ]
}

/// All cases: the rows of the table, and cases from which further rows are calculated.
pub(crate) fn all() -> Vec<Case> {
    let rows = rows().into_iter().map(|row| row.case);
    rows.chain([
        case!(BY_NUMBER_OFF, 1, || pfp::Point::numbered(NUMBER).disable(), by_number()),
        case!(ASYNC_OFF, 1, || pfp::set_enabled(false), poll_once(at_once(black_box(1)))),
        case!(ASYNC_EMPTY, 1, poll_once(at_once_without(black_box(1)))),
    ])
    .chain(of_work::<0>())
    .chain(of_work::<1>())
    .chain(of_work::<2>())
    .collect()
}
