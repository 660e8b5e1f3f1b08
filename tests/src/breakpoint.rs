//! Runs an action at a chosen instruction of some work, like a signal handler that interrupts the
//! work there.
//!
//! The trap flag raises a signal after each instruction, which takes some ten microseconds; a
//! breakpoint takes two. So a run goes at full speed from one breakpoint to the next, at
//! instructions that earlier runs have recorded, up to a checkpoint shortly before the chosen
//! instruction. From there on the run single-steps, and records the instructions.
//!
//! ```text
//!  trace    1 2 3 4 5 ......... link ......... link = checkpoint ..... at
//!           | at full speed     | at full speed     | stepped, noted | the action
//! ```
//!
//! A link is one of these breakpoints. Between two links, the instruction of the second one is not
//! executed, so a loop has at least one link for each iteration.
//!
//! One thread at a time runs the work, and the program installs [`on_trap`] for `SIGTRAP`.

use std::arch::asm;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

const TRAP_FLAG: i64 = 0x100;

/// The `int3` instruction. When it traps, the instruction pointer is one byte after it.
const INT3: u8 = 0xcc;

/// Maximum number of instructions of a trace; the instructions after it are all single-stepped.
const MAX_STEPS: usize = 1 << 16;

/// Maximum number of breakpoints on the way to a checkpoint.
const MAX_LINKS: usize = 1 << 12;

/// Number of breakpoints that take as long as one step.
const STEP_IN_LINKS: usize = 6;

/// The address of each instruction by its step number, as far as the trace is recorded; 0 where a
/// breakpoint is not allowed.
static TRACE: [AtomicU64; MAX_STEPS] = [const { AtomicU64::new(0) }; MAX_STEPS];
static NOTED: AtomicUsize = AtomicUsize::new(0);

/// The current step of the work, the step of the action, and whether the action ran.
static STEP: AtomicUsize = AtomicUsize::new(0);
static AT: AtomicUsize = AtomicUsize::new(0);
static CAME: AtomicBool = AtomicBool::new(false);
static ACTION: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// The steps of the breakpoints, the last one first; their number, and the number of those still
/// ahead.
static LINKS: [AtomicUsize; MAX_LINKS] = [const { AtomicUsize::new(0) }; MAX_LINKS];
static OF_LINKS: AtomicUsize = AtomicUsize::new(0);
static LEFT: AtomicUsize = AtomicUsize::new(0);

/// Whether the work is over, so that further traps are ignored.
static IS_OVER: AtomicBool = AtomicBool::new(true);

/// The address of the planted breakpoint, or 0 if there is none; and the byte that it replaced.
static PLANTED: AtomicU64 = AtomicU64::new(0);
static BYTE: AtomicU8 = AtomicU8::new(0);

/// Number of steps to discard from the trace when the next breakpoint is missed.
static BACK: AtomicUsize = AtomicUsize::new(1);

/// Whether the work waits for a time to pass. The wait takes a varying number of instructions, so
/// no breakpoint is allowed there.
pub static WAITS: AtomicBool = AtomicBool::new(false);

static WAYS: Mutex<Option<Ways>> = Mutex::new(None);

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The action ran.
    Came,
    /// The run took another path and missed one of the breakpoints. The next run trusts less of the
    /// trace.
    Missed,
    /// The work ended before the chosen instruction.
    Over,
}

/// Runs `work`, with `action` at its `at`-th instruction.
pub fn run(at: u64, action: fn(), work: fn()) {
    let at = at as usize;
    let checkpoint = link(at);
    NOTED.store(checkpoint, Relaxed);
    STEP.store(0, Relaxed);
    AT.store(at, Relaxed);
    CAME.store(false, Relaxed);
    ACTION.store(action as *mut (), Relaxed);
    WAITS.store(false, Relaxed);
    IS_OVER.store(false, Relaxed);
    let flag = if checkpoint == 0 { TRAP_FLAG } else { 0 };
    plant_next();
    compiler_fence(SeqCst);
    // SAFETY: the assembly only sets or clears the trap flag.
    unsafe {
        asm!("pushfq", "or qword ptr [rsp], {flag}", "popfq", flag = in(reg) flag);
        work();
        IS_OVER.store(true, Relaxed);
        asm!("pushfq", "and qword ptr [rsp], -257", "popfq");
    }
    compiler_fence(SeqCst);
    take_out();
}

/// Whether the action ran in the last run.
pub fn came() -> bool {
    CAME.load(Relaxed)
}

/// The outcome of the last run, which the action may have left by a jump. Call it once per run.
pub fn outcome() -> Outcome {
    if OF_LINKS.load(Relaxed) != 0 && STEP.load(Relaxed) == 0 {
        let missed = LINKS[LEFT.load(Relaxed)].load(Relaxed);
        let back = BACK.load(Relaxed);
        BACK.store(2 * back, Relaxed);
        NOTED.store(missed.saturating_sub(back), Relaxed);
        return Outcome::Missed;
    }
    BACK.store(1, Relaxed);
    if came() { Outcome::Came } else { Outcome::Over }
}

/// For each step of a trace, the shortest sequence of breakpoints that leads to it.
#[derive(Default)]
struct Ways {
    steps: Vec<TraceStep>,
    /// The last step at each address.
    last: HashMap<u64, usize>,
    /// Number of steps that the last run left unchanged.
    kept: usize,
    /// Whether a breakpoint may be planted in a page.
    pages: HashMap<u64, bool>,
}

/// A step of a trace.
struct TraceStep {
    address: u64,
    /// The last step before it at the same address, 0 if there is none.
    before: usize,
    /// Number of breakpoints that lead to the step, and the step number of the last but one.
    links: (usize, usize),
}

/// No breakpoints lead to the step.
const NO_WAY: (usize, usize) = (usize::MAX / 2, 0);

impl Ways {
    /// Adds the steps that were recorded since the last call.
    fn follow(&mut self, noted: usize) {
        if self.steps.is_empty() {
            // The start, which needs no breakpoint.
            self.steps.push(TraceStep { address: 0, before: 0, links: (0, 0) });
        }
        let known = self.steps.len();
        let is_same = |at: usize| at <= noted && self.steps[at].address == address_of(at);
        let same = (self.kept.min(noted) + 1..known).find(|at| !is_same(*at)).unwrap_or(known);
        for TraceStep { address, before, .. } in self.steps.drain(same..).rev() {
            self.last.insert(address, before);
        }
        for step in same..=noted {
            let address = address_of(step);
            let before = self.last.insert(address, step).unwrap_or(0);
            let takes = |pages: &mut HashMap<u64, bool>| {
                *pages.entry(address >> 12).or_insert_with_key(make_writable)
            };
            let links = if address == 0 || !takes(&mut self.pages) {
                NO_WAY
            } else if before == 0 {
                (1, 0)
            } else {
                let between = (before + 1..step).map(|at| (self.steps[at].links.0, at)).min();
                between.map_or(NO_WAY, |(links, at)| (links + 1, at))
            };
            self.steps.push(TraceStep { address, before, links });
        }
    }
}

fn address_of(step: usize) -> u64 {
    TRACE[step].load(Relaxed)
}

/// Prepares the cheapest way to a step; returns the step of the last breakpoint, or 0 without one.
fn link(at: usize) -> usize {
    let mut ways = WAYS.lock().expect("nobody fails in it");
    let ways = ways.get_or_insert_default();
    let noted = NOTED.load(Relaxed);
    ways.follow(noted);
    let links = |step: usize| ways.steps[step].links;
    let cost = |step: usize| links(step).0 + STEP_IN_LINKS * (at - step);
    let last = (1..=noted.min(at)).rev().take(MAX_LINKS / STEP_IN_LINKS);
    let fits = last.filter(|step| links(*step).0 <= MAX_LINKS);
    let best = fits.min_by_key(|step| cost(*step)).filter(|step| cost(*step) < cost(0));
    let mut count = 0;
    let way = std::iter::successors(best, |step| Some(links(*step).1).filter(|step| *step != 0));
    for step in way {
        LINKS[count].store(step, Relaxed);
        count += 1;
    }
    OF_LINKS.store(count, Relaxed);
    LEFT.store(count, Relaxed);
    ways.kept = best.unwrap_or(0);
    ways.kept
}

/// Makes a page writable, so that breakpoints can be planted in it; returns whether that worked.
fn make_writable(page: &u64) -> bool {
    let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    // SAFETY: the page stays readable and executable.
    unsafe { libc::mprotect((page << 12) as *mut libc::c_void, 0x1000, all) == 0 }
}

/// Plants the next breakpoint, if there is one.
fn plant_next() -> bool {
    let left = LEFT.load(Relaxed);
    if left == 0 {
        return false;
    }
    LEFT.store(left - 1, Relaxed);
    let address = address_of(LINKS[left - 1].load(Relaxed));
    let place = address as *mut u8;
    // SAFETY: the work has executed this instruction before, and `make_writable` has made its page
    // writable.
    unsafe {
        BYTE.store(place.read_volatile(), Relaxed);
        place.write_volatile(INT3);
    }
    PLANTED.store(address, Relaxed);
    true
}

fn take_out() {
    let address = PLANTED.swap(0, Relaxed);
    if address != 0 {
        // SAFETY: the page is writable, since `plant_next` has written here, and `BYTE` holds the
        // byte that it replaced.
        unsafe { (address as *mut u8).write_volatile(BYTE.load(Relaxed)) }
    }
}

/// The handler of `SIGTRAP`.
pub extern "C" fn on_trap(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes the interrupted thread's context to the handler.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let (ip, flags) = (libc::REG_RIP as usize, libc::REG_EFL as usize);
    let is_breakpoint = PLANTED.load(Relaxed) != 0;
    if is_breakpoint {
        take_out();
        registers[ip] -= 1;
    }
    if IS_OVER.load(Relaxed) {
        registers[flags] &= !TRAP_FLAG;
        return;
    }
    if is_breakpoint {
        if plant_next() {
            return;
        }
        registers[flags] |= TRAP_FLAG;
        STEP.store(LINKS[0].load(Relaxed), Relaxed);
    } else {
        note(STEP.fetch_add(1, Relaxed) + 1, registers[ip] as u64);
    }
    if STEP.load(Relaxed) == AT.load(Relaxed) {
        CAME.store(true, Relaxed);
        registers[flags] &= !TRAP_FLAG;
        let action = ACTION.load(Relaxed);
        // SAFETY: `run` has stored a function of this type.
        unsafe { std::mem::transmute::<*mut (), fn()>(action)() };
    }
}

fn note(step: usize, address: u64) {
    if step < MAX_STEPS && step == NOTED.load(Relaxed) + 1 {
        TRACE[step].store(if WAITS.load(Relaxed) { 0 } else { address }, Relaxed);
        NOTED.store(step, Relaxed);
    }
}
