//! What a thread that waits for a futex waits for.
//!
//! The arguments of the call and the words at the address show some purposes. For the others, the
//! stack shows the library function that called the kernel; see `names`.

use std::collections::HashMap;

use super::Kind;
use super::process::Process;

/// Commands of the futex call, without its flags.
const COMMAND: u64 = 0x7f;
const PRIVATE: u64 = 128;
const LOCK_PI: u64 = 6;
const LOCK_PI2: u64 = 13;

/// The owner's thread id in the word of a lock with priority inheritance.
const OWNER: u32 = 0x3fff_ffff;

/// What the arguments of a call show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Purpose {
    /// The kind. `None` if only the stack can show it.
    pub(super) kind: Option<Kind>,
    /// The thread that owns the lock, or that is joined. `None` if unknown.
    pub(super) owner: Option<u32>,
}

/// The threads of a process: each id in the process's own pid namespace, with the id in our
/// `/proc`.
#[derive(Debug, Default)]
pub(super) struct Threads(HashMap<u32, u32>);

impl Threads {
    pub(super) fn new(ids: &[(u32, u32)]) -> Self {
        Self(ids.iter().copied().collect())
    }

    /// The id in our `/proc`. `None` if the process has no such thread.
    fn find(&self, id_inside: u32) -> Option<u32> {
        self.0.get(&id_inside).copied()
    }
}

/// The purpose of a futex call with these arguments.
pub(super) fn purpose(process: &Process, arguments: &[u64; 6], threads: &Threads) -> Purpose {
    let [address, operation, value, ..] = *arguments;
    let value = value as u32;
    if matches!(operation & COMMAND, LOCK_PI | LOCK_PI2) {
        let owner = process.words::<1>(address).map(|[word]| word & OWNER);
        let owner = owner.and_then(|id| threads.find(id));
        return Purpose { kind: Some(Kind::Lock), owner };
    }
    // `pthread_join` waits for a word with the joined thread's id, which the kernel clears.
    if operation & PRIVATE == 0
        && let Some(joined) = threads.find(value)
    {
        return Purpose { kind: Some(Kind::Join), owner: Some(joined) };
    }
    Purpose { kind: None, owner: owner(process, address, threads) }
}

/// Whether a futex call ends by itself after a time.
pub(super) fn is_timed(arguments: &[u64; 6]) -> bool {
    arguments[3] != 0
}

/// The thread that owns a lock, if the lock is a `pthread_mutex_t` of glibc: its words are the
/// lock, the depth, the owner, the number of its users, and its type with flags.
fn owner(process: &Process, address: u64, threads: &Threads) -> Option<u32> {
    const TYPES: u32 = 0x3ff;
    let [lock, depth, owner, users, kind] = process.words::<5>(address)?;
    let most = threads.0.len() as u32;
    let is_mutex =
        lock != 0 && kind & !TYPES == 0 && (1..=most).contains(&users) && depth < 1 << 20;
    threads.find(owner).filter(|_| is_mutex)
}

/// The kind of a wait in a library's function, and whether what it waits for has several futexes.
type Known = (Kind, bool);

/// What a library's function of this name waits for. `None` for a function that only passes the
/// wait on.
pub(super) fn known_function(name: &str) -> Option<Known> {
    const STARTS: [(&str, Known); 10] = [
        ("pthread_mutex_", (Kind::Lock, false)),
        ("pthread_rwlock_", (Kind::Lock, true)),
        ("pthread_cond_", (Kind::Condition, true)),
        ("cnd_", (Kind::Condition, true)),
        ("mtx_", (Kind::Lock, false)),
        ("sem_", (Kind::Semaphore, true)),
        ("pthread_barrier_wait", (Kind::Barrier, true)),
        ("pthread_join", (Kind::Join, false)),
        ("pthread_timedjoin", (Kind::Join, false)),
        ("pthread_clockjoin", (Kind::Join, false)),
    ];
    // In names of Rust's standard library and of parking_lot.
    const PARTS: [(&str, Known); 6] = [
        ("::mutex::", (Kind::Lock, false)),
        ("::rwlock::", (Kind::Lock, true)),
        ("::raw_mutex::", (Kind::Lock, false)),
        ("::raw_rwlock::", (Kind::Lock, true)),
        ("::condvar::", (Kind::Condition, true)),
        ("::Condvar::", (Kind::Condition, true)),
    ];
    // A library may have several names for one function.
    let plain = name.trim_start_matches('_');
    let starts = STARTS.iter().find(|(start, _)| plain.starts_with(start));
    let found = starts.or_else(|| {
        let is_library = name.contains("std::") || name.contains("parking_lot");
        PARTS.iter().find(|(part, _)| is_library && name.contains(part))
    });
    found.map(|(_, known)| *known)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use super::*;

    #[test]
    fn arguments_show_the_purpose() {
        let process = Process::of(std::process::id()).unwrap();
        let threads = Threads::new(&[(7, 7), (8, 80)]);
        let word = AtomicU32::new(7 | 1 << 31);
        let address = word.as_ptr().addr() as u64;
        let purpose = |operation, value| {
            let found = super::purpose(&process, &[address, operation, value, 0, 0, 0], &threads);
            (found.kind, found.owner)
        };
        assert_eq!(purpose(LOCK_PI | PRIVATE, 0), (Some(Kind::Lock), Some(7)));
        let readers = 8 | 1 << 30 | 1 << 31;
        assert_eq!(purpose(PRIVATE, readers), (None, None), "a read-write lock of Rust");
        assert_eq!(purpose(9 | 256, 8), (Some(Kind::Join), Some(80)));
        assert_eq!(purpose(9 | 256 | PRIVATE, 8), (None, None));
        word.store(9, Relaxed);
        assert_eq!(purpose(LOCK_PI, 0), (Some(Kind::Lock), None), "no thread has the id 9");
    }

    #[test]
    fn a_mutex_shows_its_owner() {
        let process = Process::of(std::process::id()).unwrap();
        let threads = Threads::new(&[(5, 5), (6, 6)]);
        let owner = |words: [u32; 5]| owner(&process, words.as_ptr().addr() as u64, &threads);
        assert_eq!(owner([2, 0, 6, 1, 0]), Some(6));
        assert_eq!(owner([2, 1, 6, 1, 1]), Some(6), "recursive");
        assert_eq!(owner([2, 0, 6, 1, 0x200]), Some(6), "its type was set");
        assert_eq!(owner([6, 1, 6, 1, 0x290]), Some(6), "robust");
        for other in [[2, 0, 7, 1, 0], [0, 0, 6, 1, 0], [2, 0, 6, 0, 0], [2, 0, 6, 1, 0x4000]] {
            assert_eq!(owner(other), None, "{other:?}");
        }
    }

    #[test]
    fn functions_show_the_kind() {
        for (name, kind) in [
            ("pthread_cond_timedwait", Some(Kind::Condition)),
            ("sem_wait", Some(Kind::Semaphore)),
            ("__pthread_mutex_lock", Some(Kind::Lock)),
            ("std::sys::sync::mutex::futex::Mutex::lock_contended", Some(Kind::Lock)),
            ("std::sys::sync::condvar::futex::Condvar::wait", Some(Kind::Condition)),
            ("app::mutex::hold", None),
            ("main", None),
        ] {
            assert_eq!(known_function(name).map(|(kind, _)| kind), kind, "{name}");
        }
    }
}
