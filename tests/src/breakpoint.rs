//! An action at one instruction of some work, as of a signal handler that comes just there.
//!
//! The trap flag brings a signal after each instruction, which takes microseconds. So a run
//! steps only the last instructions. It goes to a checkpoint before them at full speed: a
//! breakpoint at an instruction that an earlier run has noted.
//!
//! ```text
//!  trace    1 2 3 4 5 ......... checkpoint ..... at
//!           | at full speed     | stepped, noted | the action, then at full speed
//! ```
//!
//! One thread runs such work at a time, and the program has [`on_trap`] handle `SIGTRAP`.

use std::arch::asm;
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

/// The address of each instruction, by the number of its step, as far as it is noted. 0 where
/// no breakpoint may be.
static TRACE: [AtomicU64; MAX_STEPS] = [const { AtomicU64::new(0) }; MAX_STEPS];
static NOTED: AtomicUsize = AtomicUsize::new(0);

/// The step that the work is at, the one to act at, and whether it came.
static STEP: AtomicUsize = AtomicUsize::new(0);
static AT: AtomicUsize = AtomicUsize::new(0);
static CAME: AtomicBool = AtomicBool::new(false);
static ACTION: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// The step at which the full speed ends, 0 for the start; how often the instruction there is
/// passed before that; and whether it is passed just now.
static CHECKPOINT: AtomicUsize = AtomicUsize::new(0);
static PASSES: AtomicUsize = AtomicUsize::new(0);
static IS_PASSED: AtomicBool = AtomicBool::new(false);

/// Whether the work is over, so that no trap counts any more.
static IS_OVER: AtomicBool = AtomicBool::new(true);

/// Where the breakpoint is, 0 if it is not there; and the byte that belongs there.
static PLANTED: AtomicU64 = AtomicU64::new(0);
static BYTE: AtomicU8 = AtomicU8::new(0);

/// Steps that are forgotten when the next checkpoint is missed.
static BACK: AtomicUsize = AtomicUsize::new(1);

/// Whether the work waits for a time to pass. It does so in as many instructions as it takes,
/// which are no checkpoints.
pub static WAITS: AtomicBool = AtomicBool::new(false);

/// What came of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The action came.
    Came,
    /// The run took another way, without the checkpoint. The next one looks for an earlier.
    Missed,
    /// The work was over before.
    Over,
}

/// Runs some work, with the action at one of its instructions.
pub fn run(at: u64, action: fn(), work: fn()) {
    let at = at as usize;
    let (step, passes) = checkpoint(at);
    NOTED.store(step, Relaxed);
    STEP.store(0, Relaxed);
    AT.store(at, Relaxed);
    CAME.store(false, Relaxed);
    ACTION.store(action as *mut (), Relaxed);
    CHECKPOINT.store(step, Relaxed);
    PASSES.store(passes, Relaxed);
    IS_PASSED.store(false, Relaxed);
    WAITS.store(false, Relaxed);
    IS_OVER.store(false, Relaxed);
    let flag = if step == 0 { TRAP_FLAG } else { 0 };
    if step != 0 {
        plant(TRACE[step].load(Relaxed));
    }
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
    let (step, checkpoint) = (STEP.load(Relaxed), CHECKPOINT.load(Relaxed));
    if checkpoint != 0 && step == 0 {
        let back = BACK.load(Relaxed);
        BACK.store(2 * back, Relaxed);
        NOTED.store(checkpoint.saturating_sub(back), Relaxed);
        return Outcome::Missed;
    }
    BACK.store(1, Relaxed);
    if came() { Outcome::Came } else { Outcome::Over }
}

/// The step from which stepping costs the fewest traps, and how often its instruction comes
/// before that.
fn checkpoint(at: usize) -> (usize, usize) {
    let (mut best, mut fewest) = ((0, 0), at);
    let last = NOTED.load(Relaxed).min(at);
    for step in (1..=last).rev() {
        if at - step >= fewest {
            break;
        }
        let address = TRACE[step].load(Relaxed);
        let is_same = |other: &&AtomicU64| other.load(Relaxed) == address;
        let passes = TRACE[1..step].iter().filter(is_same).count();
        let traps = at - step + 2 * passes;
        if address != 0 && traps < fewest && make_writable(address) {
            (best, fewest) = ((step, passes), traps);
        }
    }
    best
}

/// Whether a breakpoint can be planted there.
fn make_writable(address: u64) -> bool {
    let page = address & !0xfff;
    let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    // SAFETY: the page stays readable and executable.
    unsafe { libc::mprotect(page as *mut libc::c_void, 0x1000, all) == 0 }
}

fn plant(address: u64) {
    let place = address as *mut u8;
    // SAFETY: `make_writable` has found this instruction, which was executed before.
    unsafe {
        BYTE.store(place.read_volatile(), Relaxed);
        place.write_volatile(INT3);
    }
    PLANTED.store(address, Relaxed);
}

fn take_out() {
    let address = PLANTED.swap(0, Relaxed);
    if address != 0 {
        // SAFETY: as in `plant`, which has kept this byte.
        unsafe { (address as *mut u8).write_volatile(BYTE.load(Relaxed)) }
    }
}

/// The handler of `SIGTRAP`.
pub extern "C" fn on_trap(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands over such a context.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let (ip, flags) = (libc::REG_RIP as usize, libc::REG_EFL as usize);
    let checkpoint = CHECKPOINT.load(Relaxed);
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
        registers[flags] |= TRAP_FLAG;
        if PASSES.load(Relaxed) > 0 {
            IS_PASSED.store(true, Relaxed);
            return;
        }
        STEP.store(checkpoint, Relaxed);
    } else if IS_PASSED.swap(false, Relaxed) {
        PASSES.fetch_sub(1, Relaxed);
        registers[flags] &= !TRAP_FLAG;
        return plant(TRACE[checkpoint].load(Relaxed));
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
