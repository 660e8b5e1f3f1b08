//! The tick counter and the thread's CPU time, per architecture.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::errno;

/// Reads a word by instructions that write it to `{word}`. This is assembly, because no stable
/// function reads system registers or memory relative to the thread pointer.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! read_by {
    ($($instruction:literal),+ $(; $($operand:tt)*)?) => {{
        let word: usize;
        // SAFETY: the instructions write `{word}`, the operands and the flags only. Linux lets user
        // code read the registers, and the memory is the thread's own or a static.
        unsafe {
            std::arch::asm!(
                $($instruction),+,
                word = out(reg) word,
                $($($operand)*,)?
                options(nostack)
            );
        }
        word
    }};
}
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", not(miri)))]
pub(crate) use read_by;

/// Reads the tick counter.
///
/// The reading is deliberately not fenced, since a fence would cost as much as the reading. The
/// compiler moves no memory access across the reading, so the program's work stays in its region.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    // The compiler's intrinsic leaves the sum in a register that `Point::end` needs next, so one
    // more instruction moves it. This assembly saves that instruction.
    #[cfg(target_arch = "x86_64")]
    {
        read_by!("rdtsc", "shl rdx, 32", "lea {word}, [rax + rdx]"; out("rax") _, out("rdx") _)
            as u64
    }
    #[cfg(target_arch = "aarch64")]
    {
        read_by!("mrs {word}, cntvct_el0") as u64
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        monotonic_ns()
    }
}

/// Reads the tick counter once all earlier instructions are done, including loads that miss the
/// caches, and before any later instruction begins.
#[inline(always)]
pub(crate) fn fenced_ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::_mm_lfence;

        #[allow(unused_unsafe, reason = "safe in newer compilers than the oldest that builds this")]
        // SAFETY: each processor of this architecture has the instruction.
        unsafe {
            _mm_lfence();
            let now = ticks();
            _mm_lfence();
            now
        }
    }
    #[cfg(target_arch = "aarch64")]
    {
        read_by!("dsb ld", "isb", "mrs {word}, cntvct_el0", "isb") as u64
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        ticks()
    }
}

/// Reads the tick counter, and the CPU on which it was read. If no instruction reads both, the CPU
/// is read first.
pub(crate) fn ticks_and_cpu() -> (u64, Option<u32>) {
    #[cfg(target_arch = "x86_64")]
    if has_rdtscp() {
        let mut which = 0;
        // SAFETY: this processor has the instruction, which writes `which` only.
        let ticks = unsafe { std::arch::x86_64::__rdtscp(&raw mut which) };
        // Linux stores the CPU's number in the lower 12 bits, and the node's above them.
        return (ticks, Some(which & 0xfff));
    }
    let cpu = cpu();
    (ticks(), cpu)
}

/// The CPU that the calling thread runs on.
pub(crate) fn cpu() -> Option<u32> {
    // SAFETY: the function has no arguments and no preconditions.
    u32::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Whether reading the counter raises SIGSEGV, as it does after `prctl(PR_SET_TSC)` or strict
/// seccomp. The kernel is asked only once, so a later change is not noticed.
#[inline(always)]
pub(crate) fn is_forbidden() -> bool {
    match FORBIDDEN.load(Relaxed) {
        ALLOWED => false,
        _ => ask(),
    }
}

/// 0: not asked yet; 1: [`ALLOWED`]; 2: forbidden.
static FORBIDDEN: AtomicU8 = AtomicU8::new(0);
const ALLOWED: u8 = 1;

#[cold]
#[inline(never)]
fn ask() -> bool {
    if FORBIDDEN.load(Relaxed) == 0 {
        let mut found: libc::c_int = 0;
        // SAFETY: the call writes `found` only. It fails if the processor or the kernel lacks the
        // setting.
        errno::preserve(|| unsafe { libc::prctl(libc::PR_GET_TSC, &raw mut found) });
        let is_forbidden = found == libc::PR_TSC_SIGSEGV;
        FORBIDDEN.store(ALLOWED + u8::from(is_forbidden), Relaxed);
    }
    FORBIDDEN.load(Relaxed) != ALLOWED
}

#[cfg(target_arch = "x86_64")]
fn cpuid(leaf: u32) -> std::arch::x86_64::CpuidResult {
    #[allow(unused_unsafe, reason = "safe in newer compilers than the oldest that builds this")]
    // SAFETY: each processor of this architecture has the instruction.
    unsafe {
        std::arch::x86_64::__cpuid(leaf)
    }
}

#[cfg(target_arch = "x86_64")]
fn has_rdtscp() -> bool {
    /// 0: not asked yet; 1: no; 2: yes. The answer is stored, because in a virtual machine `cpuid`
    /// exits to the hypervisor.
    static KNOWN: AtomicU8 = AtomicU8::new(0);
    match KNOWN.load(Relaxed) {
        0 => {
            let highest = cpuid(0x8000_0000).eax;
            let has = highest >= 0x8000_0001 && cpuid(0x8000_0001).edx & 1 << 27 != 0;
            KNOWN.store(1 + u8::from(has), Relaxed);
            has
        }
        known => known == 2,
    }
}

/// The thread pointer. Null on architectures where it is not known how to read it.
#[inline(always)]
pub(crate) fn thread_pointer() -> *const u8 {
    // The first word of a thread's control block is its own address.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    let pointer = read_by!("mov {word}, qword ptr fs:[0]"; options(preserves_flags, readonly));
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    let pointer = read_by!("mrs {word}, tpidr_el0");
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    let pointer = 0;
    std::ptr::with_exposed_provenance(pointer)
}

/// Whether the thread pointer is set. A static program calls the resolvers of indirect functions
/// before it sets the pointer.
pub(crate) fn has_thread_pointer() -> bool {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        const ARCH_GET_FS: u64 = 0x1003;
        let (mut pointer, mut result) = (0u64, libc::SYS_arch_prctl);
        // This is assembly, because a resolver may run before this library is relocated, and then
        // the C library's function cannot be called.
        // SAFETY: the system call writes `pointer` only.
        unsafe {
            std::arch::asm!(
                "syscall", inout("rax") result, in("rdi") ARCH_GET_FS, in("rsi") &raw mut pointer,
                out("rcx") _, out("r11") _, options(nostack)
            );
        }
        // If a filter refuses the call, the program has set the pointer already, by the same call.
        result != 0 || pointer != 0
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        !thread_pointer().is_null()
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    {
        true
    }
}

/// Whether the processor reports that the counter has a constant rate, independent of the core's.
pub(crate) fn is_invariant() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        cpuid(0x8000_0000).eax >= 0x8000_0007 && cpuid(0x8000_0007).edx & 1 << 8 != 0
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        true
    }
}

/// The counter's rate as the processor or the hypervisor reports it, in ticks per
/// second. Many virtual machines report none.
pub(crate) fn reported_rate() -> Option<f64> {
    #[cfg(target_arch = "x86_64")]
    {
        let highest = cpuid(0).eax;
        if highest >= 0x15 {
            // Crystal frequency times the ratio ebx / eax.
            let leaf = cpuid(0x15);
            if leaf.eax != 0 && leaf.ebx != 0 && leaf.ecx != 0 {
                return Some(f64::from(leaf.ecx) * f64::from(leaf.ebx) / f64::from(leaf.eax));
            }
        }
        if cpuid(1).ecx & 1 << 31 != 0 && cpuid(0x4000_0000).eax >= 0x4000_0010 {
            // The hypervisors' leaf for timing, in kHz.
            let khz = cpuid(0x4000_0010).eax;
            if khz != 0 {
                return Some(f64::from(khz) * 1e3);
            }
        }
        None
    }
    #[cfg(target_arch = "aarch64")]
    {
        let hertz = read_by!("mrs {word}, cntfrq_el0");
        (hertz != 0).then_some(hertz as f64)
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        Some(1e9)
    }
}

/// Runs a chain of `$n` times 64 instructions, each of which needs the result of the previous one.
/// This is assembly, because a compiler may shorten such a chain, and without optimization it
/// stores each result in memory.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! chain {
    ($instruction:literal, $n:expr) => {{
        // The value is carried from round to round; otherwise the rounds would run in parallel.
        let mut result = 1u64;
        for _ in 0..$n {
            // SAFETY: the instructions change scratch registers only.
            unsafe {
                std::arch::asm!(
                    ".rept 64", $instruction, ".endr",
                    result = inout(reg) result, operand = in(reg) 3u64, options(nomem, nostack)
                );
            }
        }
        std::hint::black_box(result);
    }};
}
#[cfg(all(test, target_arch = "x86_64", not(miri)))]
pub(super) use chain;

/// Runs a chain of `n` times 64 dependent additions, one cycle each. The operand is a register,
/// because some processors (Intel's since Golden Cove) combine additions of constants, and then
/// execute several in a cycle.
#[inline(never)]
pub(crate) fn dependent_adds(n: u32) {
    #[cfg(target_arch = "x86_64")]
    chain!("add {result}, {operand}", n);
    #[cfg(target_arch = "aarch64")]
    chain!("add {result}, {result}, {operand}", n);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = n;
}

/// Whether [`dependent_adds`] measures anything here.
pub(crate) const HAS_DEPENDENT_ADDS: bool =
    cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// CLOCK_MONOTONIC_RAW in nanoseconds. It runs at the hardware's rate, which NTP does not adjust.
pub(crate) fn monotonic_ns() -> u64 {
    read_clock(libc::CLOCK_MONOTONIC_RAW).unwrap_or(0)
}

/// CLOCK_MONOTONIC in nanoseconds. NTP adjusts its rate, and it is never set back.
pub(crate) fn wall_ns() -> u64 {
    read_clock(libc::CLOCK_MONOTONIC).unwrap_or(0)
}

/// CLOCK_MONOTONIC_RAW by a system call. The C library would compute this clock from the counter,
/// which may be wrong.
pub(crate) fn system_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let clock = libc::CLOCK_MONOTONIC_RAW;
    // SAFETY: the kernel fills the structure that we own.
    let ask = || unsafe { libc::syscall(libc::SYS_clock_gettime, clock, &raw mut time) } != 0;
    if errno::preserve(ask) {
        return monotonic_ns();
    }
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CLOCK_REALTIME in nanoseconds since the Unix epoch.
pub(crate) fn unix_ns() -> u64 {
    read_clock(libc::CLOCK_REALTIME).unwrap_or(0)
}

/// CPU time of the calling thread in nanoseconds. It includes time that a hypervisor steals, unless
/// the kernel subtracts that time.
pub(crate) fn cpu_time_ns() -> Option<u64> {
    read_clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn read_clock(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let failed = errno::preserve(|| match is_forbidden() {
        // SAFETY: the kernel fills the structure that we own.
        false => unsafe { libc::clock_gettime(clock, &raw mut time) != 0 },
        // The C library would read the counter, so this is the bare system call.
        // SAFETY: the kernel fills the structure that we own.
        true => unsafe { libc::syscall(libc::SYS_clock_gettime, clock, &raw mut time) != 0 },
    });
    (!failed).then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
