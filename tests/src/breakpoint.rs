//! An action at one instruction of some work, as of a signal handler that comes just there.
//!
//! The trap flag brings a signal after each instruction, which takes some ten microseconds; a
//! breakpoint takes two. So a run steps only instructions that are new to it. It goes at full
//! speed from one breakpoint to the next, at instructions that earlier runs have noted, to a
//! checkpoint shortly before the one to act at.
//!
//! ```text
//!  trace    1 2 3 4 5 ......... link ......... link = checkpoint ..... at
//!           | at full speed     | at full speed     | stepped, noted | the action
//! ```
//!
//! The instruction of a link is executed nowhere between it and the link before: a loop has one
//! or more for each time round.
//!
//! One thread at a time runs such work, and the program has [`on_trap`] handle `SIGTRAP`.

use std::arch::asm;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

const TRAP_FLAG: i64 = 0x100;

/// `int3`, after which the processor is one byte further.
const INT3: u8 = 0xcc;

/// Instructions that a trace has at most; behind them all are stepped.
const MAX_STEPS: usize = 1 << 16;

/// Breakpoints on the way to a checkpoint, at most.
const MAX_LINKS: usize = 1 << 12;

/// How many breakpoints take as long as one step.
const STEP_IN_LINKS: usize = 6;

/// The address of each instruction, by the number of its step, as far as it is noted. 0 where
/// no breakpoint may be.
static TRACE: [AtomicU64; MAX_STEPS] = [const { AtomicU64::new(0) }; MAX_STEPS];
static NOTED: AtomicUsize = AtomicUsize::new(0);

/// The step that the work is at, the one to act at, and whether it came.
static STEP: AtomicUsize = AtomicUsize::new(0);
static AT: AtomicUsize = AtomicUsize::new(0);
static CAME: AtomicBool = AtomicBool::new(false);
static ACTION: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// The steps of the breakpoints, the last one first; how many there are, and how many of them
/// are to come.
static LINKS: [AtomicUsize; MAX_LINKS] = [const { AtomicUsize::new(0) }; MAX_LINKS];
static OF_LINKS: AtomicUsize = AtomicUsize::new(0);
static LEFT: AtomicUsize = AtomicUsize::new(0);

/// Whether the work is over, so that no trap counts any more.
static IS_OVER: AtomicBool = AtomicBool::new(true);

/// Where the breakpoint is, 0 if it is not there; and the byte that belongs there.
static PLANTED: AtomicU64 = AtomicU64::new(0);
static BYTE: AtomicU8 = AtomicU8::new(0);

/// Steps that are forgotten when the next breakpoint is missed.
static BACK: AtomicUsize = AtomicUsize::new(1);

/// Whether the work waits for a time to pass. It does so in as many instructions as it takes,
/// at which no breakpoint may be.
pub static WAITS: AtomicBool = AtomicBool::new(false);

static WAYS: Mutex<Option<Ways>> = Mutex::new(None);

/// What came of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The action came.
    Came,
    /// The run took another way, without one of the breakpoints. The next one trusts less.
    Missed,
    /// The work was over before.
    Over,
}

/// Runs some work, with the action at one of its instructions.
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
    // SAFETY: sets the flag or leaves it, and takes it away.
    unsafe {
        asm!("pushfq", "or qword ptr [rsp], {flag}", "popfq", flag = in(reg) flag);
        work();
        IS_OVER.store(true, Relaxed);
        asm!("pushfq", "and qword ptr [rsp], -257", "popfq");
    }
    compiler_fence(SeqCst);
    take_out();
}

/// Whether the action of the last run came.
pub fn came() -> bool {
    CAME.load(Relaxed)
}

/// What came of the last run, which the action may have left by a jump. To be asked once.
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

/// The ways by breakpoints to the steps of a trace.
#[derive(Default)]
struct Ways {
    steps: Vec<Step>,
    /// The last step at each address.
    last: HashMap<u64, usize>,
    /// Steps that the last run has left as they were.
    kept: usize,
    /// Whether a page takes breakpoints.
    pages: HashMap<u64, bool>,
}

/// A step of a trace.
struct Step {
    address: u64,
    /// The last step before it at the same address, 0 if there is none.
    before: usize,
    /// How many breakpoints lead to it, and the step of the one before the last.
    links: (usize, usize),
}

/// No breakpoint leads there.
const NO_WAY: (usize, usize) = (usize::MAX / 2, 0);

impl Ways {
    /// Takes over what has been noted since.
    fn follow(&mut self, noted: usize) {
        if self.steps.is_empty() {
            // The start, to which nothing leads.
            self.steps.push(Step { address: 0, before: 0, links: (0, 0) });
        }
        let known = self.steps.len();
        let is_same = |at: usize| at <= noted && self.steps[at].address == address_of(at);
        let same = (self.kept.min(noted) + 1..known).find(|at| !is_same(*at)).unwrap_or(known);
        for Step { address, before, .. } in self.steps.drain(same..).rev() {
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
            self.steps.push(Step { address, before, links });
        }
    }
}

fn address_of(step: usize) -> u64 {
    TRACE[step].load(Relaxed)
}

/// Prepares the cheapest way to a step; the step of the last breakpoint, 0 for none.
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

/// Whether breakpoints can be planted in a page.
fn make_writable(page: &u64) -> bool {
    let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    // SAFETY: the page stays readable and executable.
    unsafe { libc::mprotect((page << 12) as *mut libc::c_void, 0x1000, all) == 0 }
}

/// Plants the next breakpoint, if there is one to come.
fn plant_next() -> bool {
    let left = LEFT.load(Relaxed);
    if left == 0 {
        return false;
    }
    LEFT.store(left - 1, Relaxed);
    let address = address_of(LINKS[left - 1].load(Relaxed));
    let place = address as *mut u8;
    // SAFETY: `make_writable` has found this instruction, which was executed before.
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
        // SAFETY: as in `plant_next`, which has kept this byte.
        unsafe { (address as *mut u8).write_volatile(BYTE.load(Relaxed)) }
    }
}

/// The handler of `SIGTRAP`.
pub extern "C" fn on_trap(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands over such a context.
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
        // SAFETY: `run` has put a function there.
        unsafe { std::mem::transmute::<*mut (), fn()>(action)() };
    }
}

fn note(step: usize, address: u64) {
    if step < MAX_STEPS && step == NOTED.load(Relaxed) + 1 {
        TRACE[step].store(if WAITS.load(Relaxed) { 0 } else { address }, Relaxed);
        NOTED.store(step, Relaxed);
    }
}
