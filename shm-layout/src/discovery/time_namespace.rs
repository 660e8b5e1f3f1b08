//! Times since boot, as the first time namespace of the machine counts them.
//!
//! A process in its own time namespace reads shifted monotonic clocks, and `/proc` shows it shifted
//! start times. So the writer and the readers of a segment subtract the shift from every such time
//! that they store or compare.

use crate::discovery::stat::{inode_of, read_small};

const SECOND: i64 = 1_000_000_000;

/// The offsets that the time namespace of the calling process adds to the clocks, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Offsets {
    monotonic: i64,
    boot: i64,
}

/// The offset to subtract from CLOCK_MONOTONIC or CLOCK_MONOTONIC_RAW in the calling process, to
/// get the reading in the first time namespace. Zero if the kernel does not report it.
pub fn monotonic_offset_ns() -> i64 {
    Offsets::here().unwrap_or_default().monotonic
}

/// Converts a start time that `/proc` shows here to the first time namespace. `None` if the shift
/// is unknown, or is not a whole number of clock ticks, since rounded times cannot be compared.
pub(crate) fn start_in_first(start: u64) -> Option<u64> {
    let boot = Offsets::here()?.boot;
    if boot == 0 {
        return Some(start);
    }
    // SAFETY: the argument is a plain number.
    let tick = SECOND / unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1);
    let shift = (boot % tick == 0).then_some(boot / tick)?;
    start.checked_add_signed(shift.checked_neg()?)
}

impl Offsets {
    /// The offsets of this process. They are unknown between its `unshare` and its next `exec`,
    /// when the file shows the namespace of future children.
    fn here() -> Option<Self> {
        let offsets = Self::parse(read_small("/proc/self/timens_offsets", &mut [0; 256]));
        if offsets == Self::default() {
            return Some(offsets);
        }
        let own = inode_of("/proc/self/ns/time")?;
        (inode_of("/proc/self/ns/time_for_children")? == own).then_some(offsets)
    }

    fn parse(text: &[u8]) -> Self {
        let mut offsets = Self::default();
        for line in str::from_utf8(text).unwrap_or_default().lines() {
            let mut words = line.split_ascii_whitespace();
            let name = words.next();
            let mut number = || words.next()?.parse::<i64>().ok();
            let (Some(seconds), Some(ns)) = (number(), number()) else { continue };
            let offset = seconds.saturating_mul(SECOND).saturating_add(ns);
            match name {
                Some("monotonic") => offsets.monotonic = offset,
                Some("boottime") => offsets.boot = offset,
                _ => {}
            }
        }
        offsets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_read_as_the_kernel_writes_them() {
        let text = "monotonic           86400         0\nboottime              -10 990000000\n";
        let expected = Offsets { monotonic: 86_400 * SECOND, boot: -9_010_000_000 };
        assert_eq!(Offsets::parse(text.as_bytes()), expected);
        for none in ["", "monotonic", "boottime x y\n", "\u{0}"] {
            assert_eq!(Offsets::parse(none.as_bytes()), Offsets::default(), "{none}");
        }
    }
}
