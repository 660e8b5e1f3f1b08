//! Threads compete for a CPU while other code in the process, as an allocator may, overwrites the
//! restartable-sequence area all the time.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use pfp_tests::script::{pause, say};
use pfp_tests::{os, stolen};

/// CPU time of each thread.
const EACH: Duration = Duration::from_millis(200);
const PIECE: Duration = Duration::from_micros(200);

/// The kernel's `struct rseq_cs`, for a section that is never executed.
#[repr(C, align(32))]
struct Section {
    version: u32,
    flags: u32,
    start_ip: *const u32,
    post_commit_offset: u64,
    abort_ip: *const u32,
}

// SAFETY: the data is constant.
unsafe impl Sync for Section {}

/// A placeholder for the section's code. Before `abort_ip`, the kernel requires the signature with
/// which the C library has registered the area.
static NOWHERE: [u32; 4] = [0x5305_3053; 4];
static SECTION: Section = Section {
    version: 0,
    flags: 0,
    start_ip: &raw const NOWHERE[0],
    post_commit_offset: 4,
    abort_ip: &raw const NOWHERE[2],
};

/// The word `rseq_cs` of the calling thread's area, or `None` if it has no area.
fn word() -> Option<&'static AtomicU64> {
    // SAFETY: the name is NUL-terminated.
    let offset = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()) };
    // SAFETY: the name is NUL-terminated.
    let size = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()) };
    if offset.is_null() || size.is_null() {
        return None;
    }
    let pointer: *const u8;
    // SAFETY: by the ABI, the word at the thread pointer holds the thread pointer itself.
    unsafe { std::arch::asm!("mov {}, fs:0", out(reg) pointer) };
    // SAFETY: the C library declares both symbols with these types, and the area lives as long as
    // the thread.
    unsafe {
        let (offset, size) = (*offset.cast::<isize>(), *size.cast::<u32>());
        (size != 0).then(|| &*pointer.wrapping_offset(offset + 8).cast::<AtomicU64>())
    }
}

/// Uses the area as an allocator would: sets a section of its own, then clears it.
fn overwrite(round: u64) {
    let Some(word) = word() else { return };
    let own = (&raw const SECTION).addr() as u64;
    word.store(if round.is_multiple_of(2) { own } else { 0 }, Relaxed);
}

/// Unregisters the calling thread's area, so that the kernel no longer writes to it. Returns false
/// if the thread has no area, or the kernel refuses.
fn give_back() -> bool {
    const UNREGISTER: libc::c_int = 1;
    const SIGNATURE: u32 = 0x5305_3053;
    let Some(word) = word() else { return false };
    let area = word.as_ptr().wrapping_byte_sub(8);
    // The C library has registered 32 bytes, or as many as the kernel requires.
    (32..=256).step_by(4).any(|len: libc::c_long| {
        // SAFETY: unregisters this thread's own area, which stays allocated.
        unsafe { libc::syscall(libc::SYS_rseq, area, len, UNREGISTER, SIGNATURE) == 0 }
    })
}

/// Continues to measure after the kernel has stopped reporting switches.
pub(crate) fn unwatched() {
    const SLEEP: Duration = Duration::from_millis(50);
    pfp::init().ok();
    {
        pfp::scope!("before");
    }
    say("given_back", &[&give_back()]);
    thread::sleep(SLEEP);
    {
        pfp::scope!("after");
    }
    {
        pfp::scope!("asleep");
        thread::sleep(SLEEP);
    }
    pause("done");
}

pub(crate) fn run(threads: usize) {
    let cpus = os::cpus();
    os::pin(*cpus.last().expect("there is a CPU"));
    pfp::init().ok();
    say("area", &[&word().is_some()]);
    let (begin, end) = (Barrier::new(threads), Barrier::new(threads + 1));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                begin.wait();
                let cpu = os::thread_cpu();
                {
                    pfp::scope!("everything");
                    let mut round = 0;
                    while os::thread_cpu() - cpu < EACH {
                        overwrite(round);
                        pfp::scope!("piece");
                        overwrite(round / 2);
                        os::burn(PIECE);
                        overwrite(round / 3);
                        if round % 64 == 5 {
                            thread::sleep(Duration::from_millis(1));
                        }
                        round += 1;
                    }
                }
                let cpu = os::thread_cpu() - cpu;
                let stolen = stolen::so_far().as_nanos();
                say("thread", &[&os::tid(), &cpu.as_nanos(), &stolen]);
                end.wait();
                // The thread waits here, so that it owns its lane until the test has read it.
                end.wait();
            });
        }
        end.wait();
        say("ticks_per_second", &[&pfp::ticks_per_second()]);
        pause("done");
        end.wait();
    });
}
