//! The state that this copy of pfp stores for each thread, and how a thread finds its own.
//!
//! | this copy is part of | the state is in | the thread finds it by |
//! |---|---|---|
//! | the program, or a library that is loaded at its start | thread-local storage | a cached distance from `fs` |
//! | a library that is loaded later | thread-local storage if glibc has static room, else a [`pool`] | a cached distance from `fs`; in the pool, `pthread_getspecific` |
//!
//! An initial-exec variable would be simpler. It makes all thread-local storage of its object
//! static, though, and glibc has only some hundred bytes of static room for all libraries that are
//! loaded later. With a TLS descriptor, glibc decides whether the storage is static. The descriptor
//! is only read here and never called: for dynamic storage the call may lock and allocate, which
//! deadlocks a signal handler that interrupted `malloc`. `pthread_getspecific` has no lock and does
//! not allocate.

use std::cell::Cell;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering::Relaxed};

use super::lease::Lease;
use super::section::Section;
use super::thread::Thread;
use crate::alloc::Numbers;

#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", not(miri)))]
mod pool;

/// The state that this copy of pfp stores for a thread.
#[repr(C)]
pub(crate) struct Local {
    /// State of the thread's lane, which may be a wiped copy of a parent's; null before the first
    /// region.
    pub(super) thread: Cell<*const Thread>,
    pub(super) section: Section,
    /// The innermost lease that the thread holds.
    pub(super) lease: Cell<*const Lease>,
    /// Nanoseconds for which the thread has waited for other threads.
    pub(super) waited_ns: Cell<u64>,
    /// True while the thread claims a lane.
    pub(super) is_claiming: Cell<bool>,
    /// The lane that the thread has claimed but not moved into yet: its number plus one, and its
    /// generation. Zeros if there is none.
    pub(super) claimed: Cell<(usize, u32)>,
    /// The state of the lane that the thread is moving into; null at other times.
    pub(super) moving_in: Cell<*const Thread>,
    pub(crate) functions: Functions,
}

/// State of a thread for functions that a compiler instruments.
#[derive(Debug)]
#[repr(C)]
pub struct Functions {
    /// The innermost function that is measured; 0 if there is none.
    pub function: AtomicUsize,
    /// Stack pointer of that function: the highest address if there is none, 0 if the end of
    /// each function must search the frames.
    pub sp: AtomicUsize,
    /// The frames of functions that are measured; null before the first.
    pub frames: AtomicPtr<u8>,
    /// Stack pointer of a hook whose own calls are not measured; 0 if none is running.
    pub inside: Cell<usize>,
}

impl Local {
    const fn new() -> Self {
        Self {
            thread: Cell::new(ptr::null()),
            section: Section::new(),
            lease: Cell::new(ptr::null()),
            waited_ns: Cell::new(0),
            is_claiming: Cell::new(false),
            claimed: Cell::new((0, 0)),
            moving_in: Cell::new(ptr::null()),
            functions: Functions {
                function: AtomicUsize::new(0),
                sp: AtomicUsize::new(usize::MAX),
                frames: AtomicPtr::new(ptr::null_mut()),
                inside: Cell::new(0),
            },
        }
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", not(miri)))]
mod access {
    use std::arch::naked_asm;
    use std::mem::offset_of;
    use std::ptr;
    use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

    use super::super::section;
    use super::{Functions, Local, Thread, pool};
    use crate::clock::{self, read_by};

    /// Only its name is used, which differs between copies of pfp.
    static NAME: u8 = 0;

    const _: () = assert!(offset_of!(Local, thread) == 0);
    const _: () = assert!(offset_of!(Local, section) == 8);
    const SP: usize = offset_of!(Local, functions) + offset_of!(Functions, sp);

    /// The address of the descriptor of a thread's `Local` or, after the linker of a program has
    /// replaced the instruction, the distance of the `Local` from `fs`. This and the `Local` itself
    /// are assembly, because the compiler makes no TLS descriptors on this processor.
    #[unsafe(naked)]
    extern "C" fn descriptor_or_distance() -> isize {
        naked_asm!(
            "lea rax, [rip + {name}.local@TLSDESC]",
            "ret",
            // The words of `Local::new`.
            ".pushsection .tdata.{name}.local, \"awT\", @progbits",
            ".type {name}.local, @object",
            ".size {name}.local, {size}",
            ".p2align 3",
            "{name}.local:",
            ".quad 0",
            ".quad {none_blocked}",
            ".long {unchanged}",
            ".zero {to_sp}",
            ".quad -1",
            ".zero {behind_sp}",
            ".popsection",
            name = sym NAME,
            size = const size_of::<Local>(),
            none_blocked = const section::NONE_BLOCKED as i64,
            unchanged = const section::UNCHANGED,
            to_sp = const SP - 20,
            behind_sp = const size_of::<Local>() - SP - 8,
        )
    }

    /// Value of [`DISTANCE`] while the distance is not known. `fs:[UNKNOWN]` always reads 0,
    /// because only i386 uses that field of the C library's thread header. The field cannot move:
    /// compilers know the offsets of its neighbours, the thread's own address and the stack
    /// protector's value.
    const UNKNOWN: isize = 0x20;

    /// Distance of the calling thread's `Local` from `fs`. It remains [`UNKNOWN`] if the storage is
    /// dynamic or the processor's counter must not be read, so that each region reads a null
    /// pointer and takes the slow path.
    static DISTANCE: AtomicIsize = AtomicIsize::new(UNKNOWN);

    /// Distance of thread-local storage from `fs`, if the storage is static.
    pub(crate) fn distance() -> Option<isize> {
        let found = descriptor_or_distance();
        if found < 0 {
            return Some(found);
        }
        // SAFETY: in a library this is the address of a descriptor, two words that the loader
        // writes before any code runs: a function, and its argument. For static storage the
        // argument is the distance, which is negative on this processor. Otherwise it is an address
        // of user space, which is positive.
        let argument = unsafe { (found as *const isize).add(1).read() };
        (argument < 0).then_some(argument)
    }

    /// State of the calling thread's lane, found by the cached distance; null while the distance is
    /// not known.
    #[inline(always)]
    pub(crate) fn thread() -> *const Thread {
        // Reads the first word of the thread's `Local`, or `fs:[UNKNOWN]`. `DISTANCE` is hidden
        // from other objects: if another object could define it, too, the compiler would first load
        // its address from the global offset table.
        let thread = read_by!(
            ".hidden {distance}",
            "mov {word}, qword ptr [rip + {distance}]",
            "mov {word}, qword ptr fs:[{word}]";
            distance = sym DISTANCE, options(preserves_flags, readonly)
        );
        ptr::with_exposed_provenance(thread)
    }

    /// State of the calling thread's lane, in static storage or in the pool; null before the first
    /// region. Caches the distance, but only if the processor's counter may be read, because
    /// callers of [`thread`] read the counter once they find a lane.
    #[cold]
    #[inline(never)]
    pub(crate) fn find() -> *const Thread {
        if !clock::is_forbidden()
            && let Some(distance) = distance()
        {
            DISTANCE.store(distance, Relaxed);
        }
        known().map_or(ptr::null(), |local| local.thread.get())
    }

    /// The calling thread's state, if it exists.
    #[inline(always)]
    pub(crate) fn known() -> Option<&'static Local> {
        near().or_else(|| far(pool::known))
    }

    /// The calling thread's state. `None` if memory for it cannot be mapped.
    #[inline(always)]
    pub(crate) fn get() -> Option<&'static Local> {
        near().or_else(|| far(pool::get))
    }

    /// The calling thread's state, found by the cached distance; `None` while that is not known.
    #[inline(always)]
    fn near() -> Option<&'static Local> {
        match DISTANCE.load(Relaxed) {
            UNKNOWN => None,
            distance => Some(at(distance)),
        }
    }

    #[cold]
    #[inline(never)]
    fn far(pool: fn() -> Option<&'static Local>) -> Option<&'static Local> {
        distance().map_or_else(pool, |distance| Some(at(distance)))
    }

    #[inline(always)]
    fn at(distance: isize) -> &'static Local {
        let local = clock::thread_pointer().wrapping_offset(distance).cast::<Local>();
        // SAFETY: the distance leads to the thread's `Local`, which `descriptor_or_distance`
        // defines. No other thread uses it, and it lasts as long as this thread.
        unsafe { &*local }
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", not(miri))))]
mod access {
    use std::ptr;

    use super::{Local, Thread};

    thread_local! {
        /// It has no destructor, so that it can be used to the very end of the thread.
        static LOCAL: Local = const { Local::new() };
    }

    /// State of the calling thread's lane; null before its first region.
    #[inline(always)]
    pub(crate) fn thread() -> *const Thread {
        LOCAL.with(|local| local.thread.get())
    }

    /// Always null: [`thread`] finds every state.
    #[inline(always)]
    pub(crate) fn find() -> *const Thread {
        std::ptr::null()
    }

    /// Always `None`: the compiler decides how storage is found.
    pub(crate) fn distance() -> Option<isize> {
        None
    }

    /// The calling thread's state.
    pub(crate) fn known() -> Option<&'static Local> {
        get()
    }

    /// The calling thread's state.
    pub(crate) fn get() -> Option<&'static Local> {
        // SAFETY: it lasts as long as the thread, because it has no destructor.
        LOCAL.with(|local| Some(unsafe { &*ptr::from_ref(local) }))
    }
}

pub(crate) use access::{distance, find, get, known, thread};

/// The counters of the calling thread's allocations, if a region has looked for them.
pub(super) fn counters() -> Option<&'static Numbers> {
    // SAFETY: the pointer is null, or leads to the pages of a lane, which are never unmapped while a
    // thread refers to them.
    unsafe { known()?.thread.get().as_ref() }?.allocs.known()
}

/// Makes a key of the threads library once. `known` is one more than the key; 0 before it is made.
pub(super) fn make_key(
    known: &AtomicU32,
    destructor: unsafe extern "C" fn(*mut libc::c_void),
) -> io::Result<libc::pthread_key_t> {
    if let Some(key) = known.load(Relaxed).checked_sub(1) {
        return Ok(key);
    }
    let mut key = 0;
    // SAFETY: `key` is valid for writes, and the destructor has the type that the call expects.
    let refused = unsafe { libc::pthread_key_create(&raw mut key, Some(destructor)) };
    if refused != 0 {
        return Err(io::Error::from_raw_os_error(refused));
    }
    known.compare_exchange(0, key + 1, Relaxed, Relaxed).map_or_else(
        |found| {
            // SAFETY: the key was created above and was not published.
            unsafe { libc::pthread_key_delete(key) };
            Ok(found - 1)
        },
        |_| Ok(key),
    )
}
