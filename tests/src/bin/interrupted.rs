//! A program whose regions are interrupted at each instruction by a handler that measures, forks or
//! jumps out. It judges its own figures.
//!
//! ```text
//! interrupted ACTION CASE EACH LASTS  a handler at every EACHth instruction of the case
//! interrupted vfork CASE EACH LASTS   a child in the same memory, from inside the handler
//! interrupted switch CASE EACH LASTS  another fibre, from inside the handler
//! interrupted storm TIMES             jumps out of a handler at random instructions
//! ```
//!
//! With `NO_LANE` in the environment, another thread claims a lane first. If the segment has only
//! one lane, the program's regions use the overflow lane.
//!
//! LASTS is the number of ticks that each interrupted region works.
//!
//! The expected figures need no engine, only arithmetic: the exclusive ticks of an outer region and
//! of all regions inside it sum to the outer region's length less a fixed price for each region, to
//! the tick. The price comes from an uninterrupted run.

#[cfg(not(target_arch = "x86_64"))]
fn main() {
    println!("skipped");
}

#[cfg(target_arch = "x86_64")]
fn main() {
    stepping::main();
}

#[cfg(target_arch = "x86_64")]
mod stepping {
    use std::arch::naked_asm;
    use std::cell::UnsafeCell;
    use std::future::Future;
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering::Relaxed};
    use std::sync::{Barrier, LazyLock};
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use pfp::{MeteredPoint, Point};
    use pfp_tests::breakpoint::{self, Outcome};

    static OUTER: Point = Point::new("outer");
    static POINT: Point = Point::new("point");
    static INNER: Point = Point::new("inner");
    static OTHER: Point = Point::new("other");
    static TIMED: MeteredPoint = MeteredPoint::new("timed", &["items"]);

    /// The number of the numeric point.
    const NUMBER: u32 = 7;
    /// Number of records in a page; a full page is folded.
    const RECORDS_OF_A_PAGE: u32 = 128;

    /// Duration of a region's work in ticks, which exceeds the highest price of a region.
    const LONG: u64 = 4_000;
    /// Ticks of an outer region before and after the regions inside. The ticks of an interrupted
    /// fold are subtracted from the outer region's own ticks, so this exceeds them in cases that
    /// fold a page.
    static OUTSIDE_LASTS: AtomicU64 = AtomicU64::new(LONG);
    const LONG_OUTSIDE: u64 = 100_000;
    /// With wall time as the clock, a wait of at least this many ticks sleeps instead of using the
    /// CPU.
    const LONG_ENOUGH_TO_SLEEP: u64 = 1 << 21;
    static TIME_IS_ON_THE_WALL: AtomicBool = AtomicBool::new(false);

    // ---- an action at one instruction ----

    /// Ticks that each piece of work lasts. `stepped` sets them to `INTERRUPTED_LASTS` for the work
    /// that it interrupts; they are [`LONG`] otherwise.
    static LASTS: AtomicU64 = AtomicU64::new(LONG);
    static INTERRUPTED_LASTS: AtomicU64 = AtomicU64::new(LONG);
    static ACTION: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

    /// Runs `work`, with `action` at one of its instructions.
    fn stepped(at: u64, action: fn(), work: fn()) {
        ACTION.store(action as *mut (), Relaxed);
        LASTS.store(INTERRUPTED_LASTS.load(Relaxed), Relaxed);
        breakpoint::run(at, act, work);
        LASTS.store(LONG, Relaxed);
    }

    fn act() {
        LASTS.store(LONG, Relaxed);
        let action = ACTION.load(Relaxed);
        // SAFETY: `stepped` has stored a function of this type.
        unsafe { std::mem::transmute::<*mut (), fn()>(action)() };
        LASTS.store(INTERRUPTED_LASTS.load(Relaxed), Relaxed);
    }

    fn handle(signal: i32, on_a_stack_of_its_own: bool, handler: *const ()) {
        // SAFETY: the action and the stack's description outlive the calls, the stack is never
        // freed, and the handlers have the type that `SA_SIGINFO` requires.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
            if on_a_stack_of_its_own {
                action.sa_flags |= libc::SA_ONSTACK;
                let size = 256 << 10;
                let stack = Box::leak(vec![0u8; size].into_boxed_slice()).as_mut_ptr().cast();
                let stack = libc::stack_t { ss_sp: stack, ss_flags: 0, ss_size: size };
                assert_eq!(libc::sigaltstack(&raw const stack, std::ptr::null_mut()), 0);
            }
            assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
        }
    }

    // ---- a jump as siglongjmp does it ----

    /// The registers that a function must preserve for its caller.
    struct SavedRegisters(UnsafeCell<[u64; 8]>);
    // SAFETY: only one thread uses the registers.
    unsafe impl Sync for SavedRegisters {}
    static PLACE: SavedRegisters = SavedRegisters(UnsafeCell::new([0; 8]));

    /// Calls `work` and returns 0 when it returns, or 1 after a [`jump`].
    #[unsafe(naked)]
    unsafe extern "C" fn call(place: *mut [u64; 8], work: extern "C" fn()) -> u64 {
        naked_asm!(
            "mov [rdi], rbx",
            "mov [rdi + 8], rbp",
            "mov [rdi + 16], r12",
            "mov [rdi + 24], r13",
            "mov [rdi + 32], r14",
            "mov [rdi + 40], r15",
            "mov [rdi + 48], rsp",
            "sub rsp, 8",
            "call rsi",
            "add rsp, 8",
            "xor eax, eax",
            "ret",
        )
    }

    /// Returns to the caller of [`call`], which returns 1.
    #[unsafe(naked)]
    unsafe extern "C" fn jump(place: *const [u64; 8]) -> ! {
        naked_asm!(
            "mov rbx, [rdi]",
            "mov rbp, [rdi + 8]",
            "mov r12, [rdi + 16]",
            "mov r13, [rdi + 24]",
            "mov r14, [rdi + 32]",
            "mov r15, [rdi + 40]",
            "mov rsp, [rdi + 48]",
            "cld",
            "mov eax, 1",
            "ret",
        )
    }

    /// Whether a jump has a target.
    static ARMED: AtomicBool = AtomicBool::new(false);

    /// Runs `work`, which a handler may jump out of; returns whether a handler did.
    fn guarded(work: extern "C" fn()) -> bool {
        // SAFETY: the frames that a jump skips own nothing except regions.
        let jumped = unsafe { call(PLACE.0.get(), work) } != 0;
        ARMED.store(false, Relaxed);
        jumped
    }

    fn jump_out() {
        // SAFETY: the frame of [`call`] is still on the stack.
        unsafe { jump(PLACE.0.get()) }
    }

    // ---- interrupted work ----

    fn ticks() -> u64 {
        // SAFETY: every x86-64 processor has the counter, and Linux lets programs read it.
        unsafe { std::arch::x86_64::_rdtsc() }
    }

    fn work() {
        wait(LASTS.load(Relaxed));
    }

    fn wait(lasts: u64) {
        let start = ticks();
        breakpoint::WAITS.store(true, Relaxed);
        while ticks().wrapping_sub(start) < lasts {
            if lasts >= LONG_ENOUGH_TO_SLEEP && TIME_IS_ON_THE_WALL.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        breakpoint::WAITS.store(false, Relaxed);
    }

    fn scope() {
        let _guard = POINT.measure();
        work();
    }

    fn kept() {
        let _guard = POINT.measure();
        work();
        pfp::keep("a reason");
    }

    fn nested() {
        let _guard = INNER.measure();
        work();
        scope();
    }

    fn laps() {
        let mut guard = INNER.measure();
        work();
        guard.lap(&POINT);
        work();
        guard.lap(&INNER);
        work();
    }

    fn by_hand() {
        POINT.begin();
        work();
        POINT.end();
    }

    fn latched() {
        POINT.begin();
        work();
        POINT.end_latched();
        by_hand();
    }

    fn numbered() {
        Point::numbered(NUMBER).begin_once();
        work();
        Point::numbered(NUMBER).end();
    }

    fn amounts() {
        let _guard = TIMED.measure([3u64]);
        work();
    }

    fn amounts_by_hand() {
        TIMED.begin();
        work();
        TIMED.end([3u64]);
    }

    struct Twice(bool);
    impl Future for Twice {
        type Output = ();
        fn poll(mut self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            work();
            if std::mem::replace(&mut self.0, true) { Poll::Ready(()) } else { Poll::Pending }
        }
    }

    fn polls() {
        poll(POINT.measure_async(Twice(false)));
    }

    /// The most common form: the macro declares the point.
    fn by_macro() {
        pfp::scope!("by a macro", items = 3u64);
        work();
    }

    #[pfp::function]
    fn by_attribute() {
        work();
    }

    #[pfp::function]
    async fn by_attribute_in_polls() {
        Twice(false).await;
    }

    fn poll(future: impl Future<Output = ()>) {
        let mut future = pin!(future);
        let mut context = Context::from_waker(Waker::noop());
        while future.as_mut().poll(&mut context).is_pending() {}
    }

    fn lap_with_amounts() {
        let mut guard = INNER.measure();
        work();
        guard.lap_with(&TIMED, [3u64]);
        work();
    }

    fn latched_amounts() {
        TIMED.begin();
        work();
        TIMED.end_latched([4u64]);
        amounts_by_hand();
    }

    /// A region inside a context that the thread enters and leaves.
    fn in_context() {
        static CONTEXT: LazyLock<pfp::ExecutionContext> = LazyLock::new(Default::default);
        let entered = CONTEXT.enter();
        // A child that enters a context of its parent finds it unusable.
        assert!(entered.is_some() || IS_CHILD.load(Relaxed), "it is nobody else's");
        scope();
    }

    /// The measured work, and a handler that interrupts it and measures [`OTHER`] and, in most
    /// cases, the point of the case.
    struct Case {
        name: &'static str,
        /// Runs before each outer region.
        prepare: fn(),
        run: fn(),
        handler: fn(),
        /// Measurements in a run: of the point of the case, and of [`INNER`].
        counts: [u64; 2],
        /// Measurements of a handler: of the point of the case, and of [`INNER`].
        handled: [u64; 2],
        /// Whether a region of [`POINT`] contains no regions except a handler's.
        alone: bool,
    }

    impl Case {
        /// Whether the outer region is off the CPU while another context is current. Then the
        /// handler's share of the outer region is unknown.
        fn is_elsewhere(&self) -> bool {
            self.name == "in_context"
        }
    }

    static FILLING: [Point; 50] = [const { Point::new("filling") }; 50];

    /// Fills a page, so that the end of the next region folds it. The page holds records of
    /// `POINTS` points in turn.
    fn fill_page<const POINTS: usize>() {
        let mut filled = 0;
        let mut folds = || {
            let folded = pfp::c::folding();
            drop(FILLING[filled % POINTS].measure());
            filled += 1;
            pfp::c::folding() != folded
        };
        // A region that ends on the slow path folds, too. So the loop repeats until a fold comes
        // after exactly one page of records, and then writes all but one record of the next page.
        let mut since = 0;
        while since != RECORDS_OF_A_PAGE || (1..RECORDS_OF_A_PAGE).any(|_| folds()) {
            since = 1;
            while !folds() {
                since += 1;
            }
        }
    }

    fn by_scope() {
        {
            let _guard = OTHER.measure();
            work();
        }
        scope();
    }
    fn handler_by_hand() {
        OTHER.begin();
        work();
        OTHER.end();
        by_hand();
    }
    fn handler_other() {
        let _guard = OTHER.measure();
        work();
    }
    fn handler_amounts() {
        handler_other();
        amounts();
    }
    fn handler_amounts_by_hand() {
        handler_other();
        amounts_by_hand();
    }

    /// One region of [`POINT`], interrupted by a handler that measures a scope of the same point.
    const PLAIN: Case = Case {
        name: "",
        prepare: || (),
        run: scope,
        handler: by_scope,
        counts: [1, 0],
        handled: [1, 0],
        alone: true,
    };

    const CASES: [Case; 20] = [
        Case { name: "scope", run: scope, ..PLAIN },
        Case { name: "page", prepare: fill_page::<2>, run: scope, ..PLAIN },
        Case { name: "page of one", prepare: fill_page::<1>, run: scope, ..PLAIN },
        // With 50 points on the page, each record is folded into its cell alone.
        Case { name: "page of many", prepare: fill_page::<50>, run: scope, ..PLAIN },
        Case { name: "kept", run: kept, ..PLAIN },
        Case { name: "nested", run: nested, counts: [1, 1], ..PLAIN },
        Case { name: "laps", run: laps, counts: [1, 2], ..PLAIN },
        Case { name: "by_hand", run: by_hand, handler: handler_by_hand, ..PLAIN },
        Case { name: "latched", run: latched, handler: handler_by_hand, alone: false, ..PLAIN },
        Case { name: "numbered", run: numbered, handler: handler_other, handled: [0, 0], ..PLAIN },
        Case { name: "amounts", run: amounts, handler: handler_amounts, ..PLAIN },
        Case {
            name: "amounts_by_hand",
            run: amounts_by_hand,
            handler: handler_amounts_by_hand,
            ..PLAIN
        },
        Case { name: "polls", run: polls, alone: false, ..PLAIN },
        Case {
            name: "polls_with_amounts",
            run: || poll(TIMED.measure_async([3u64], Twice(false))),
            handler: handler_amounts,
            alone: false,
            ..PLAIN
        },
        Case {
            name: "by_macro",
            run: by_macro,
            handler: || {
                handler_other();
                by_macro();
            },
            ..PLAIN
        },
        Case {
            name: "by_attribute",
            run: by_attribute,
            handler: || {
                handler_other();
                by_attribute();
            },
            ..PLAIN
        },
        Case {
            name: "by_attribute_in_polls",
            run: || poll(by_attribute_in_polls()),
            handler: handler_other,
            handled: [0, 0],
            alone: false,
            ..PLAIN
        },
        Case {
            name: "lap_with_amounts",
            run: lap_with_amounts,
            handler: handler_amounts,
            counts: [1, 1],
            ..PLAIN
        },
        Case {
            name: "latched_amounts",
            run: latched_amounts,
            handler: handler_amounts_by_hand,
            alone: false,
            ..PLAIN
        },
        Case { name: "in_context", run: in_context, ..PLAIN },
    ];

    /// The figures of the point with this name, which has no static here.
    fn by_name(name: &str) -> Figures {
        pfp::points().find(|point| point.name() == name).map_or_else(Figures::default, of)
    }

    // ---- figures ----

    #[derive(Clone, Copy, Debug, Default)]
    struct Figures {
        count: u64,
        exclusive: u64,
        inclusive: u64,
        off_cpu: u64,
    }

    fn of(point: &'static Point) -> Figures {
        point.stats().map_or_else(Figures::default, |stats| Figures {
            count: stats.count,
            exclusive: stats.exclusive,
            inclusive: stats.inclusive,
            off_cpu: stats.off_cpu,
        })
    }

    #[derive(Clone, Copy, Debug, Default)]
    struct All {
        outer: Figures,
        point: Figures,
        inner: Figures,
        other: Figures,
    }

    fn all(case: &Case) -> All {
        let figures = |stats: Option<pfp::Stats>| {
            stats.map_or_else(Figures::default, |stats| Figures {
                count: stats.count,
                exclusive: stats.exclusive,
                inclusive: stats.inclusive,
                off_cpu: stats.off_cpu,
            })
        };
        let point = match case.name {
            "numbered" => figures(Point::numbered(NUMBER).stats()),
            name if name.contains("by_macro") => by_name("by a macro"),
            name if name.contains("by_attribute") => by_name(name),
            name if name.contains("amounts") => figures(TIMED.point().stats()),
            _ => of(&POINT),
        };
        All { outer: of(&OUTER), point, inner: of(&INNER), other: of(&OTHER) }
    }

    fn less(after: Figures, before: Figures) -> Figures {
        Figures {
            count: after.count - before.count,
            exclusive: after.exclusive.wrapping_sub(before.exclusive),
            inclusive: after.inclusive.wrapping_sub(before.inclusive),
            off_cpu: after.off_cpu - before.off_cpu,
        }
    }

    /// The figures of a run inside an outer region.
    #[derive(Clone, Copy, Debug, Default)]
    struct Run {
        of: All,
        /// The outer region's length less the exclusive ticks of all regions.
        price: i64,
        /// Ticks spent folding inside the outer region.
        folding: u64,
    }

    fn run(case: &Case, work_inside: impl FnOnce()) -> Run {
        measured(case, || outer(work_inside))
    }

    /// The thread's folding ticks when an outer region began or resumed, and the ticks spent
    /// folding inside that region since.
    static FOLDING: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

    /// The value of `FOLDING[0]` while no outer region runs.
    const NONE_RUNS: u64 = u64::MAX;

    fn goes_on() {
        FOLDING[0].store(pfp::c::folding(), Relaxed);
    }

    fn stops() {
        let since = FOLDING[0].swap(NONE_RUNS, Relaxed);
        if since != NONE_RUNS {
            FOLDING[1].fetch_add(pfp::c::folding() - since, Relaxed);
        }
    }

    fn outer(work_inside: impl FnOnce()) {
        let _outer = OUTER.measure();
        goes_on();
        wait(OUTSIDE_LASTS.load(Relaxed));
        work_inside();
        wait(OUTSIDE_LASTS.load(Relaxed));
        stops();
    }

    fn measured(case: &Case, run: impl FnOnce()) -> Run {
        (case.prepare)();
        let before = all(case);
        FOLDING[0].store(NONE_RUNS, Relaxed);
        FOLDING[1].store(0, Relaxed);
        run();
        let (after, folding) = (all(case), FOLDING[1].load(Relaxed));
        let of = All {
            outer: less(after.outer, before.outer),
            point: less(after.point, before.point),
            inner: less(after.inner, before.inner),
            other: less(after.other, before.other),
        };
        let own = of
            .outer
            .exclusive
            .wrapping_add(of.point.exclusive)
            .wrapping_add(of.inner.exclusive)
            .wrapping_add(of.other.exclusive);
        // Folding ticks inside the outer region belong to no region.
        let price = of.outer.inclusive.wrapping_sub(own).wrapping_sub(folding) as i64;
        Run { of, price, folding }
    }

    /// Describes the first error of a run, if there is one.
    fn judge(case: &Case, base: Run, one: i64, handled: bool, run: Run) -> Option<String> {
        judge_in(1, case, base, one, handled, run)
    }

    /// Judges a run that has `outer` outer regions.
    fn judge_in(
        outer: u64,
        case: &Case,
        base: Run,
        one: i64,
        handled: bool,
        run: Run,
    ) -> Option<String> {
        let h = i64::from(handled);
        let wanted = [case.counts[0] + h as u64 * case.handled[0], case.counts[1], h as u64];
        let found = [run.of.point.count, run.of.inner.count, run.of.other.count];
        if run.of.outer.count != outer || found != wanted {
            return Some(format!("counts {found:?} and not {wanted:?}"));
        }
        if case.is_elsewhere() {
            return None;
        }
        let prices = h * (1 + case.handled[0] as i64) * one;
        // An interruption may turn a lap into an end and a begin. Then the lap costs as much as a
        // pair.
        let laps = match case.name {
            "laps" => 2,
            "lap_with_amounts" => 1,
            _ => 0,
        };
        let more = if laps > 0 { one - (base.price - one) / laps } else { 0 };
        let off = run.price - prices - base.price;
        if (0..=laps).all(|slow| off != slow * more) {
            return Some(format!("off by {off} ticks, a pair is {one}: {run:?}"));
        }
        if case.alone {
            let more = run.of.point.inclusive.wrapping_sub(run.of.point.exclusive) as i64;
            let inside = run.of.other.exclusive as i64 + prices;
            // A handler runs inside the region or next to it, and so does a fold.
            let fits = |inside: i64| (inside..=inside + run.folding as i64).contains(&more);
            if !(fits(0) || handled && fits(inside)) {
                return Some(format!("inclusive: {more} more, not 0 or {inside}: {run:?}"));
            }
        }
        None
    }

    /// The cheapest of several runs without a handler: a higher price means that the kernel
    /// interrupted the run.
    fn uninterrupted(case: &Case) -> Run {
        let runs = (0..16).map(|_| run(case, case.run));
        runs.filter(|run| !is_disturbed(case, run))
            .min_by_key(|run| run.price)
            .expect("one goes well")
    }

    fn price_of_one() -> i64 {
        uninterrupted(&CASES[0]).price
    }

    /// Whether a run's figures may be inexact: off-CPU time that is detected late, or the kernel's
    /// time in a fold, is subtracted from the outer region, down to zero.
    fn is_disturbed(case: &Case, run: &Run) -> bool {
        run.of.outer.off_cpu != 0 && !case.is_elsewhere() || run.of.outer.exclusive == 0
    }

    struct Bad {
        count: u64,
        first: Option<(u64, String)>,
        last: u64,
    }

    impl Bad {
        fn add(&mut self, at: u64, what: String) {
            self.count += 1;
            self.last = at;
            self.first.get_or_insert((at, what));
        }
    }

    // ---- forks ----

    static CHILDREN: AtomicU64 = AtomicU64::new(0);
    static KILLED: AtomicU64 = AtomicU64::new(0);
    static IS_CHILD: AtomicBool = AtomicBool::new(false);
    /// Whether the C library makes the children. A bare `clone` bypasses it, so its fork handlers
    /// do not run, and such a child measures nothing.
    static IS_KNOWN: AtomicBool = AtomicBool::new(true);
    static SIGNAL: AtomicI32 = AtomicI32::new(0);

    fn forks() {
        // SAFETY: the child continues alone, and uses only memory that it inherited.
        fork_by(|| unsafe { libc::fork() });
    }

    fn clones() {
        IS_KNOWN.store(false, Relaxed);
        // SAFETY: the child continues alone, and uses only memory that it inherited. The C
        // library's fork handlers do not run.
        fork_by(|| unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32 });
    }

    fn fork_by(fork: impl FnOnce() -> i32) {
        let child = fork();
        assert!(child >= 0, "a child can be made");
        if child == 0 {
            IS_CHILD.store(true, Relaxed);
            return;
        }
        let mut status = 0;
        // SAFETY: `status` outlives the call, and the process is our child.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        CHILDREN.fetch_add(1, Relaxed);
        if status != 0 {
            KILLED.fetch_add(1, Relaxed);
            SIGNAL.store(status, Relaxed);
        }
    }

    /// The child measures on its own, if the C library knows about it, and ends.
    fn child_ends() {
        if IS_CHILD.load(Relaxed) {
            let before = of(&OTHER).count;
            for _ in 0..3 {
                handler_other();
            }
            let expected = if IS_KNOWN.load(Relaxed) { 3 } else { 0 };
            let is_right = of(&OTHER).count - before == expected;
            // SAFETY: ends the process at once, without running any clean-up.
            unsafe { libc::_exit(i32::from(!is_right)) }
        }
    }

    /// The handler's action in a child that shares its parent's memory and has its own stack.
    static IN_CHILD: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

    extern "C" fn child_in_same_memory(_: *mut libc::c_void) -> i32 {
        let action = IN_CHILD.load(Relaxed);
        // SAFETY: `vforks` has stored a function of this type.
        unsafe { std::mem::transmute::<*mut (), fn()>(action)() };
        0
    }

    fn vforks() {
        let case = &CASES[STEPPED[1].load(Relaxed) as usize];
        IN_CHILD.store(case.handler as *mut (), Relaxed);
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: the parent waits until the child has ended, so the child is the only user of that
        // stack.
        fork_by(|| unsafe {
            let top = STACKS.0.get().cast::<[u8; STACK]>().add(1).cast::<libc::c_void>();
            libc::clone(child_in_same_memory, top, flags, std::ptr::null_mut())
        });
    }

    // ---- fibres ----

    /// Bytes of a stack. The two stacks are so close together that pfp may take them for one.
    const STACK: usize = 64 << 10;
    #[repr(align(16))]
    struct Stacks(UnsafeCell<[[u8; STACK]; 2]>);
    // SAFETY: only one thread uses the stacks.
    unsafe impl Sync for Stacks {}
    static STACKS: Stacks = Stacks(UnsafeCell::new([[0; STACK]; 2]));

    /// Numbers of the program's own stack and the two fibres' stacks.
    const OWN: usize = 0;
    const LOWER: usize = 1;
    const UPPER: usize = 2;
    static SAVED: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
    static FIBRES: LazyLock<[pfp::ExecutionContext; 3]> = LazyLock::new(Default::default);

    /// Saves the registers that a function must preserve on this stack, and restores those of
    /// another stack.
    #[unsafe(naked)]
    unsafe extern "C" fn change_stacks(from: *mut u64, to: *mut u64) {
        naked_asm!(
            "push rbx",
            "push rbp",
            "push r12",
            "push r13",
            "push r14",
            "push r15",
            "mov [rdi], rsp",
            "mov rsp, [rsi]",
            "pop r15",
            "pop r14",
            "pop r13",
            "pop r12",
            "pop rbp",
            "pop rbx",
            "ret",
        )
    }

    fn change_fibres(from: usize, to: usize) {
        stops();
        assert!(pfp::task_switch(&FIBRES[from], &FIBRES[to]), "it is nobody else's");
        // SAFETY: the target stack holds registers that `change_stacks` saved there, or those that
        // `prepare` put there.
        unsafe { change_stacks(SAVED[from].as_ptr(), SAVED[to].as_ptr()) }
        goes_on();
    }

    /// Makes a fibre start with a function, which must not return.
    fn prepare(fibre: usize, begin: extern "C" fn()) {
        // SAFETY: the fibre does not run, so its stack is free. The function finds a return
        // address, and six registers below it.
        unsafe {
            let top = STACKS.0.get().cast::<[u8; STACK]>().add(fibre).cast::<usize>();
            top.sub(1).write(0);
            top.sub(2).write(begin as *const () as usize);
            SAVED[fibre].store(top.sub(8) as u64, Relaxed);
        }
    }

    extern "C" fn run_lower() {
        let [at, case] = STEPPED.each_ref().map(|word| word.load(Relaxed));
        outer(|| stepped(at, run_the_other, CASES[case as usize].run));
        change_fibres(LOWER, OWN);
    }

    extern "C" fn run_upper() {
        let case = &CASES[STEPPED[1].load(Relaxed) as usize];
        outer(case.handler);
        change_fibres(UPPER, LOWER);
    }

    fn run_the_other() {
        change_fibres(LOWER, UPPER);
    }

    // ---- the program ----

    /// The current instruction and case.
    static STEPPED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

    extern "C" fn stepped_as_asked() {
        let [at, case] = STEPPED.each_ref().map(|word| word.load(Relaxed));
        stepped(at, jump_out, CASES[case as usize].run);
    }

    pub(super) fn main() {
        if std::env::var_os("NO_LANE").is_some() {
            // The other thread holds the only lane until the program ends.
            static MEASURED: Barrier = Barrier::new(2);
            std::thread::spawn(|| {
                handler_other();
                MEASURED.wait();
                loop {
                    std::thread::park();
                }
            });
            MEASURED.wait();
        }
        let arguments: Vec<String> = std::env::args().collect();
        let arguments: Vec<&str> = arguments.iter().skip(1).map(String::as_str).collect();
        for at in 0..pfp::NUMERIC {
            Point::numbered(at).enable();
        }
        let number = |text: &str| text.parse::<u64>().expect("a number");
        let (action, what, each) = match arguments[..] {
            ["storm", times] => return storm(number(times)),
            [action, what, each, lasts] => {
                INTERRUPTED_LASTS.store(number(lasts), Relaxed);
                (action, what, number(each))
            }
            _ => panic!("ACTION CASE EACH LASTS"),
        };
        let index = CASES.iter().position(|case| case.name == what).expect("there is such a case");
        let case = &CASES[index];
        handle(libc::SIGTRAP, action == "jump_from_stack", breakpoint::on_trap as *const ());
        let clock = std::env::var("PFP_CLOCK");
        TIME_IS_ON_THE_WALL.store(clock.is_ok_and(|clock| clock == "wall"), Relaxed);
        // Durations of all lengths, so that histograms have all their parts.
        for _ in 0..200 {
            run(case, || {
                (case.run)();
                (case.handler)();
            });
        }
        let one = price_of_one();
        if case.name.starts_with("page") {
            OUTSIDE_LASTS.store(LONG_OUTSIDE, Relaxed);
        }
        let base = uninterrupted(case);
        assert!(base.folding > 0 || !case.name.starts_with("page"), "a page is folded: {base:?}");
        let mut bad = Bad { count: 0, first: None, last: 0 };
        // Each process begins at another instruction, so that different ones are tested.
        let (mut at, mut steps, mut missed) = (1 + u64::from(std::process::id()) % each, 0, 0);
        let (mut disturbed, mut over) = (0, 0);
        STEPPED[1].store(index as u64, Relaxed);
        while steps < 50_000 {
            STEPPED[0].store(at, Relaxed);
            // The error, if any, and the run that shows it.
            let (wrong, run) = match action {
                "measure" => {
                    let run = run(case, || stepped(at, case.handler, case.run));
                    (judge(case, base, one, breakpoint::came(), run), run)
                }
                "switch" => {
                    prepare(LOWER, run_lower);
                    prepare(UPPER, run_upper);
                    let run = measured(case, || change_fibres(OWN, LOWER));
                    let came = breakpoint::came();
                    (judge_in(1 + u64::from(came), case, base, one, came, run), run)
                }
                "vfork" => {
                    let run = run(case, || stepped(at, vforks, case.run));
                    // The child counts like its parent, or not at all.
                    let wrong = [true, false]
                        .map(|counts| judge(case, base, one, counts && breakpoint::came(), run));
                    (wrong.into_iter().reduce(|one, other| other.and(one)).flatten(), run)
                }
                "fork" | "clone" => {
                    let action = if action == "fork" { forks } else { clones };
                    let run = run(case, || {
                        stepped(at, action, case.run);
                        child_ends();
                    });
                    let counts = [run.of.point.count, run.of.inner.count, run.of.outer.count];
                    if counts != [case.counts[0], case.counts[1], 1] || run.of.other.count != 0 {
                        bad.add(at, format!("{run:?}"));
                    }
                    (None, run)
                }
                _ => {
                    let left = run(case, || {
                        guarded(stepped_as_asked);
                    });
                    LASTS.store(LONG, Relaxed);
                    let most = case.counts[0] + case.counts[1] + 1;
                    let counted = left.of.point.count + left.of.inner.count + left.of.outer.count;
                    if counted > most || left.of.outer.count != 1 {
                        bad.add(at, format!("left: {left:?}"));
                    }
                    // This run ends measurements that were latched. The next run is normal again.
                    run(case, case.run);
                    let first = run(case, case.run);
                    let wrong = judge(case, base, one, false, first);
                    (wrong.map(|what| format!("after: {what}")), first)
                }
            };
            let outcome = breakpoint::outcome();
            if wrong.is_some() && is_disturbed(case, &run) {
                disturbed += 1;
                assert!(disturbed < 100, "it is off the CPU all the time, at {at}: {wrong:?}");
                continue;
            }
            disturbed = 0;
            if let Some(what) = wrong {
                bad.add(at, what);
            }
            match outcome {
                Outcome::Came => (at, steps, over) = (at + each, steps + 1, 0),
                Outcome::Missed => missed += 1,
                // A single run may execute fewer instructions than others.
                Outcome::Over if over < 10 => over += 1,
                Outcome::Over => break,
            }
            // Shows progress to the test that waits.
            if steps % 32 == 0 {
                println!("at {at}");
            }
        }
        let (first, text) = bad.first.clone().unwrap_or_default();
        let [children, killed] = [&CHILDREN, &KILLED].map(|word| word.load(Relaxed));
        println!("steps {steps} {at} {missed}");
        println!("children {children} {killed} {}", SIGNAL.load(Relaxed));
        println!("bad {} {first} {} {text}", bad.count, bad.last);
        // The process waits, so that the test can read its figures from the segment.
        println!("done");
        let _ = std::io::stdin().read_line(&mut String::new());
    }

    // ---- jumps at random instructions ----

    extern "C" fn on_alarm(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
        if ARMED.swap(false, Relaxed) {
            jump_out();
        }
    }

    /// Number of calls that were begun: for [`POINT`] and [`INNER`], and for [`OTHER`].
    static CALLS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

    extern "C" fn many() {
        ARMED.store(true, Relaxed);
        loop {
            CALLS[0].fetch_add(1, Relaxed);
            {
                let _guard = POINT.measure();
                let _inner = INNER.measure();
            }
            CALLS[1].fetch_add(1, Relaxed);
            OTHER.begin();
            OTHER.end();
        }
    }

    fn storm(times: u64) {
        handle(libc::SIGALRM, false, on_alarm as *const ());
        let case = &CASES[0];
        for _ in 0..200 {
            run(case, scope);
        }
        let (base, one) = (uninterrupted(case), price_of_one());
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let (mut bad, mut jumped, mut first) = (0, 0, String::new());
        for _ in 0..times {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let soon = libc::timeval { tv_sec: 0, tv_usec: 50 + (random % 200) as i64 };
            // The timer repeats, since on a busy machine the first signal may come before the
            // program waits for it.
            let timer = libc::itimerval { it_interval: soon, it_value: soon };
            OTHER.begin();
            // SAFETY: the timer value outlives the call, and the null pointer is permitted.
            unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
            let before = [&POINT, &INNER, &OTHER].map(of);
            let calls = CALLS.each_ref().map(|word| word.load(Relaxed));
            jumped += u64::from(guarded(many));
            // This end also closes regions that the jump left open.
            OTHER.end();
            let after = [&POINT, &INNER, &OTHER].map(of);
            let calls = [0, 1].map(|at| CALLS[at].load(Relaxed) - calls[at]);
            let counts = [0, 1, 2].map(|at| after[at].count - before[at].count);
            // At most the last call of each point is missing.
            let wanted = [calls[0], calls[0], calls[1] + 1];
            let fits =
                |at: usize| (wanted[at].saturating_sub(1)..=wanted[at] + 1).contains(&counts[at]);
            if !(0..3).all(fits) {
                bad += 1;
                first = format!("counts {counts:?} and not {wanted:?}");
            }
            let undisturbed =
                (0..100).map(|_| run(case, scope)).find(|run| !is_disturbed(case, run));
            let Some(run) = undisturbed else { panic!("it is off the CPU all the time") };
            if let Some(what) = judge(case, base, one, false, run) {
                bad += 1;
                first = what;
            }
        }
        println!("steps {jumped} 0 0");
        println!("children 0 0 0");
        println!("bad {bad} 0 0 {first}");
        println!("done");
        let _ = std::io::stdin().read_line(&mut String::new());
    }
}
