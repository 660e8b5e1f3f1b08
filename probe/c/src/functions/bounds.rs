//! Where the stack of a thread lies.
//!
//! The C library would say, but allocates for it; the kernel's list of mappings
//! can be read anywhere.

use super::file::File;
use super::frames::Range;

/// Space below the main thread's stack that is taken for its own: it grows, and
/// nobody says how far.
const GROWTH: usize = 1 << 30;

/// The stack of the calling thread, while `sp` is the stack pointer; empty where
/// nobody knows.
pub(super) fn own(sp: usize) -> Range {
    // SAFETY: no preconditions.
    let (this, pid, tid) =
        unsafe { (libc::pthread_self() as usize, libc::getpid(), libc::syscall(libc::SYS_gettid)) };
    // The thread's own data lie at the upper end of a stack that the C library
    // has made; the process's first thread has a stack that the kernel has made.
    let first = libc::c_long::from(pid) == tid;
    let mut labelled = Range::EMPTY;
    let mut last_end = 0;
    let mut found = Range::EMPTY;
    each_mapping(|start, end, is_stack| {
        if (start..end).contains(&this) && (!first || (start..end).contains(&sp)) {
            // What lies above may be mapped together with it.
            found = Range { start, end: this };
        }
        if is_stack {
            labelled = Range { start: last_end.max(end.saturating_sub(GROWTH)), end };
        }
        last_end = end;
    });
    if found.end != 0 || !first { found } else { labelled }
}

/// Goes over the mappings of the process: start, end, and whether it is the stack
/// that the kernel has made.
fn each_mapping(mut each: impl FnMut(usize, usize, bool)) {
    let Some(file) = File::open(c"/proc/self/maps") else { return };
    let mut lines = Lines::default();
    let mut bytes = [0u8; 1024];
    while let Some(got @ 1..) = file.read_next(&mut bytes) {
        for &byte in bytes.iter().take(got) {
            if byte == b'\n' {
                let (start, end, is_stack) = lines.taken();
                each(start, end, is_stack);
            } else {
                lines.push(byte);
            }
        }
    }
}

/// A line of the list, `start-end rights ... label`, as it comes in.
#[derive(Default)]
struct Lines {
    numbers: [usize; 2],
    /// Which of the two comes; more than 1 behind them.
    field: usize,
    /// The last bytes.
    tail: [u8; 7],
}

impl Lines {
    fn push(&mut self, byte: u8) {
        self.tail.rotate_left(1);
        self.tail[6] = byte;
        if let Some(number) = self.numbers.get_mut(self.field) {
            match (byte as char).to_digit(16) {
                Some(digit) => *number = number.wrapping_mul(16) | digit as usize,
                None => self.field += 1,
            }
        }
    }

    fn taken(&mut self) -> (usize, usize, bool) {
        let Self { numbers: [start, end], tail, .. } = std::mem::take(self);
        (start, end, &tail == b"[stack]")
    }
}
