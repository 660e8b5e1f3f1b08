//! Runs a thread of another process one instruction at a time.
//!
//! The thread itself asks to be traced ([`trace_me`]), and marks the start and the end of each
//! section by stopping itself ([`stop_here`]). Other threads of the process continue to run, so a
//! program that wants them idle must make them wait.

use std::io;

/// The reason why a thread stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// It executed one instruction, or is before or after a system call.
    Step,
    /// It is in [`stop_here`].
    Stop,
    /// The thread has ended; its process as well, if it was the last.
    Ended,
}

/// A thread that the calling thread traces, and that is stopped now.
#[derive(Debug)]
pub struct Stepper {
    tid: libc::pid_t,
}

/// Makes the thread that started this process the tracer of the calling thread.
///
/// # Panics
///
/// Panics if tracing is not permitted; see [`why_not`].
pub fn trace_me() {
    assert!(ask(libc::PTRACE_TRACEME, 0, 0).is_ok(), "this thread may be traced");
}

/// Stops the calling thread, if it is traced, until the tracer continues it.
#[inline(never)]
pub fn stop_here() {
    // [`Stepper`] recognizes this stop by the `si_code` of its signal. A breakpoint always sets
    // `si_code`, but a sent signal loses its `si_code` if this user has too many pending signals.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the process is traced, so the tracer takes the breakpoint's signal before it is
    // delivered.
    unsafe {
        std::arch::asm!("int3")
    };
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the process is traced, so the tracer takes the signal before it is delivered.
    unsafe {
        libc::raise(libc::SIGTRAP)
    };
}

/// The reason why threads cannot be traced here, or `None`.
#[must_use]
pub fn why_not() -> Option<String> {
    // SAFETY: the child makes only system calls, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = i32::from(ask(libc::PTRACE_TRACEME, 0, 0).is_err());
        // SAFETY: ends the child at once, without running any clean-up.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: `status` is valid for writes.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    (child < 0 || status != 0).then(|| "ptrace is refused".to_owned())
}

impl Stepper {
    /// Attaches to a thread that has called [`trace_me`] and waits in its first stop.
    #[must_use]
    pub fn take(tid: u32) -> Self {
        let stepper = Self { tid: tid as libc::pid_t };
        assert_eq!(stepper.wait(), Halt::Stop, "the thread stops itself first");
        let options = libc::PTRACE_O_TRACESYSGOOD;
        ask(libc::PTRACE_SETOPTIONS, stepper.tid, options as usize).expect("it halts");
        stepper
    }

    /// Executes one instruction.
    pub fn step(&mut self) -> Halt {
        self.go(libc::PTRACE_SINGLESTEP)
    }

    /// Runs until just before or after a system call.
    pub fn to_system_call(&mut self) -> Halt {
        self.go(libc::PTRACE_SYSCALL)
    }

    /// Runs until the thread stops itself.
    pub fn run(&mut self) -> Halt {
        self.go(libc::PTRACE_CONT)
    }

    /// Continues the thread and returns at once. Call [`Self::wait`] later.
    pub fn run_on(&self) {
        ask(libc::PTRACE_CONT, self.tid, 0).expect("it halts");
    }

    /// Continues the thread without tracing it any longer.
    pub fn let_go(self) {
        let _ = ask(libc::PTRACE_DETACH, self.tid, 0);
    }

    /// Whether the next instruction is a system call, which may change files.
    #[cfg(target_arch = "x86_64")]
    #[must_use]
    pub fn calls_system(&self) -> bool {
        // SAFETY: the registers are plain numbers, for which zero is valid.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        let to = (&raw mut registers).addr();
        if ask_at(libc::PTRACE_GETREGS, self.tid, to).is_err() {
            return false;
        }
        // `syscall` is encoded as 0f 05.
        ask(libc::PTRACE_PEEKTEXT, self.tid, registers.rip as usize)
            .is_ok_and(|word| word as u16 == 0x050f)
    }

    /// On other processors any instruction counts as a possible system call.
    #[cfg(not(target_arch = "x86_64"))]
    #[must_use]
    pub fn calls_system(&self) -> bool {
        true
    }

    fn go(&self, how: libc::c_uint) -> Halt {
        match ask(how, self.tid, 0) {
            Ok(_) => self.wait(),
            Err(_) => Halt::Ended,
        }
    }

    /// Waits until the thread stops.
    pub fn wait(&self) -> Halt {
        loop {
            let mut status = 0;
            // SAFETY: `status` is valid for writes.
            let found = unsafe { libc::waitpid(self.tid, &raw mut status, libc::__WALL) };
            if found < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
                continue;
            }
            if found < 0 || !libc::WIFSTOPPED(status) {
                return Halt::Ended;
            }
            match libc::WSTOPSIG(status) {
                libc::SIGTRAP if self.stopped_itself() => return Halt::Stop,
                libc::SIGTRAP => return Halt::Step,
                signal if signal == libc::SIGTRAP | 0x80 => return Halt::Step,
                signal => panic!("the traced thread took signal {signal}"),
            }
        }
    }

    /// Whether [`stop_here`] raised the signal, and not the tracing itself.
    fn stopped_itself(&self) -> bool {
        const OF_A_BREAKPOINT: libc::c_int = 0x80;
        let own = if cfg!(target_arch = "x86_64") { OF_A_BREAKPOINT } else { libc::SI_TKILL };
        // SAFETY: the structure holds plain numbers, for which zero is valid.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let to = (&raw mut info).addr();
        ask_at(libc::PTRACE_GETSIGINFO, self.tid, to).is_ok() && info.si_code == own
    }
}

/// Makes a request whose last argument is a number, or whose result is a word of memory.
fn ask(request: libc::c_uint, tid: libc::pid_t, value: usize) -> io::Result<i64> {
    // `value` is the address in a peek, and the data in all other requests.
    let peek = request == libc::PTRACE_PEEKTEXT;
    let (address, data) = if peek { (value, 0) } else { (0, value) };
    // The C library's function returns the word that was read.
    // SAFETY: these requests write no memory of this process except errno.
    let answer = unsafe {
        *libc::__errno_location() = 0;
        libc::ptrace(request, tid, address, data)
    };
    let error = io::Error::last_os_error();
    if answer == -1 && error.raw_os_error() != Some(0) { Err(error) } else { Ok(answer) }
}

/// Makes a request that writes to an address of this process.
fn ask_at(request: libc::c_uint, tid: libc::pid_t, to: usize) -> io::Result<()> {
    // SAFETY: both callers pass the address of a structure that the request may fill.
    let answer = unsafe { libc::ptrace(request, tid, 0usize, to) };
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
