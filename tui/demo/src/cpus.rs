//! Selects the CPUs on which the demo runs.

use std::mem;

/// Confines the calling thread, and the threads that it will start, to the first `most` of the CPUs
/// that it may use. Returns the number of CPUs that are left to the thread.
pub(crate) fn confine_to(most: usize) -> usize {
    // SAFETY: a `cpu_set_t` is plain bits; all zeros is the empty set.
    let mut allowed: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: `allowed` is valid for writes of the size given; 0 is the calling thread.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&allowed), &mut allowed) } != 0 {
        return unconfined();
    }

    // SAFETY: a `cpu_set_t` is plain bits; all zeros is the empty set.
    let mut chosen: libc::cpu_set_t = unsafe { mem::zeroed() };
    let mut count = 0;
    for cpu in 0..libc::CPU_SETSIZE as usize {
        // SAFETY: `cpu` is below CPU_SETSIZE, the number of bits in both sets.
        unsafe {
            if count < most && libc::CPU_ISSET(cpu, &allowed) {
                libc::CPU_SET(cpu, &mut chosen);
                count += 1;
            }
        }
    }
    // SAFETY: `chosen` is valid for reads of the size given.
    if unsafe { libc::sched_setaffinity(0, size_of_val(&chosen), &chosen) } != 0 {
        return unconfined();
    }
    count
}

/// The number of CPUs by the standard library, for machines with more CPUs than a CPU set can hold,
/// and for sandboxes that hide the set.
fn unconfined() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confined_to_one_cpu_sees_one_cpu() {
        // In a thread of its own, so that the other tests keep their CPUs.
        let (confined, seen) = std::thread::spawn(|| (confine_to(1), unconfined())).join().unwrap();
        assert_eq!((confined, seen), (1, 1));
    }
}
