//! A thread of another process, run one instruction at a time.
//!
//! The thread asks for it itself ([`trace_me`]), and says where a stretch begins
//! and ends by stopping itself ([`stop_here`]). Its other threads run on, so whoever
//! wants them to rest must have them wait.

use std::io;

/// How a thread came to a halt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// After one instruction, or before or after a system call.
    Step,
    /// In [`stop_here`].
    Stop,
    /// The thread has ended; its process as well, if it was the last.
    Ended,
}

/// A thread that is traced by the calling one, and halts now.
#[derive(Debug)]
pub struct Stepper {
    tid: libc::pid_t,
}

/// Has the calling thread traced by the thread that has started this process.
///
/// # Panics
///
/// If it may not be traced; see [`why_not`].
pub fn trace_me() {
    assert!(ask(libc::PTRACE_TRACEME, 0, 0).is_ok(), "this thread may be traced");
}

/// Halts the calling thread, if it is traced, until it is let go on.
#[inline(never)]
pub fn stop_here() {
    // A signal that is sent comes without its cause where this user has too many
    // pending; that of an instruction always has it.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a breakpoint, whose signal never arrives; the tracer takes it.
    unsafe {
        std::arch::asm!("int3")
    };
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the signal never arrives; the tracer takes it.
    unsafe {
        libc::raise(libc::SIGTRAP)
    };
}

/// Why threads cannot be traced here; none where they can.
#[must_use]
pub fn why_not() -> Option<String> {
    // SAFETY: the child only makes system calls, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let code = i32::from(ask(libc::PTRACE_TRACEME, 0, 0).is_err());
        // SAFETY: as above.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: the status is valid for writes.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    (child < 0 || status != 0).then(|| "ptrace is refused".to_owned())
}

impl Stepper {
    /// Takes over a thread that has asked for it and come to its first stop.
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

    /// Runs until before or after a system call.
    pub fn to_system_call(&mut self) -> Halt {
        self.go(libc::PTRACE_SYSCALL)
    }

    /// Runs until it stops itself.
    pub fn run(&mut self) -> Halt {
        self.go(libc::PTRACE_CONT)
    }

    /// Lets it run on, to be [waited for](Self::wait) later.
    pub fn run_on(&self) {
        ask(libc::PTRACE_CONT, self.tid, 0).expect("it halts");
    }

    /// Lets it run on, traced no more.
    pub fn let_go(self) {
        let _ = ask(libc::PTRACE_DETACH, self.tid, 0);
    }

    /// Whether the next instruction is a system call, after which files may be
    /// others.
    #[cfg(target_arch = "x86_64")]
    #[must_use]
    pub fn calls_system(&self) -> bool {
        // SAFETY: the registers are plain numbers, for which zero is a value.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        let to = (&raw mut registers).addr();
        if ask_at(libc::PTRACE_GETREGS, self.tid, to).is_err() {
            return false;
        }
        // `syscall` is 0f 05.
        ask(libc::PTRACE_PEEKTEXT, self.tid, registers.rip as usize)
            .is_ok_and(|word| word as u16 == 0x050f)
    }

    /// Elsewhere any instruction may be one, as far as this is concerned.
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

    /// Waits until it halts.
    pub fn wait(&self) -> Halt {
        loop {
            let mut status = 0;
            // SAFETY: the status is valid for writes.
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

    /// Whether the signal is of [`stop_here`], not of the tracing.
    fn stopped_itself(&self) -> bool {
        const OF_A_BREAKPOINT: libc::c_int = 0x80;
        let own = if cfg!(target_arch = "x86_64") { OF_A_BREAKPOINT } else { libc::SI_TKILL };
        // SAFETY: plain numbers, for which zero is a value.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let to = (&raw mut info).addr();
        ask_at(libc::PTRACE_GETSIGINFO, self.tid, to).is_ok() && info.si_code == own
    }
}

/// A request whose last argument is a number, or whose answer is the word there.
fn ask(request: libc::c_uint, tid: libc::pid_t, value: usize) -> io::Result<i64> {
    // For a peek it is the address, for all others the data.
    let peek = request == libc::PTRACE_PEEKTEXT;
    let (address, data) = if peek { (value, 0) } else { (0, value) };
    // The C library's function returns the word that was peeked.
    // SAFETY: none of these requests writes to this process's memory, save its errno.
    let answer = unsafe {
        *libc::__errno_location() = 0;
        libc::ptrace(request, tid, address, data)
    };
    let error = io::Error::last_os_error();
    if answer == -1 && error.raw_os_error() != Some(0) { Err(error) } else { Ok(answer) }
}

/// A request that fills what is at an address of this process.
fn ask_at(request: libc::c_uint, tid: libc::pid_t, to: usize) -> io::Result<()> {
    // SAFETY: both callers give the address of what the request fills.
    let answer = unsafe { libc::ptrace(request, tid, 0usize, to) };
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
