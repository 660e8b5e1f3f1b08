//! How a thread claims its lane and releases it. Only cold paths call this.

use std::io;
use std::ptr;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use pfp_shm_layout::calls::Calls;
use pfp_shm_layout::geometry::{CALLS_BLOCKS, RING_BLOCKS};
use pfp_shm_layout::lane::Lane;
use pfp_shm_layout::segment::Segment;

use super::calls::EdgeIndex;
use super::given;
use super::stack::STACK;
use super::{Entry, KEPT, TABLE, Thread};
use crate::clock;
use crate::clock::counter::stamp;
use crate::engine::boxes;
use crate::engine::current::thread as current;
use crate::engine::fold::{self, Batches};
use crate::engine::local::{self, Local, make_key};
use crate::engine::owner::{exists, tid};
use crate::engine::process::memory::private_pages;
use crate::engine::process::{self, Process};
use crate::engine::regions::NOTHING_COVERED;
use crate::engine::{cold, common, section, suspend};
use crate::errno;

/// Releases a lane that was claimed for the calling thread, if the thread has jumped out of the
/// code that claimed it.
fn release_claimed(local: &Local) {
    let (lane, generation) = local.claimed.replace((0, 0));
    let process = process::current().filter(|_| lane != 0);
    if let Some(lane) = process.and_then(|process| process.segment.lane(lane - 1)) {
        lane.release(generation);
    }
}

/// Removes the lane of the calling thread in a forked child, in which private memory has replaced
/// the parent's segment. The thread's clock stops watching for switches.
pub(in crate::engine) fn forget() {
    let Some(local) = local::known() else { return };
    local.claimed.set((0, 0));
    for wiped in [&local.thread, &local.moving_in].map(|state| state.replace(ptr::null())) {
        // SAFETY: the pointer is null, or leads to the pages of a lane, which are never unmapped
        // while a thread refers to them.
        let Some(thread) = (unsafe { wiped.as_ref() }) else { continue };
        thread.clock.forget_in_child();
    }
}

/// The calling thread's state, with a lane claimed if needed.
pub(in crate::engine) fn of(process: &'static Process) -> Option<&'static Thread> {
    match current().filter(|thread| thread.is_alive()) {
        Some(thread) => Some(thread),
        None => claim(process),
    }
}

fn claim(process: &'static Process) -> Option<&'static Thread> {
    // A child in its parent's memory must not claim a lane: the lane would belong to the parent's
    // thread, but have the name and id of the child, which will end.
    if !process.is_callers_threads(tid()) {
        return None;
    }
    let local = local::get()?;
    cold::section(|| claim_alone(process, local))
}

#[inline(never)]
fn claim_alone(process: &'static Process, local: &'static Local) -> Option<&'static Thread> {
    // A signal handler may have claimed a lane before signals were blocked.
    if let Some(thread) = current().filter(|thread| thread.is_alive()) {
        return Some(thread);
    }
    // Drops a parent's state, whose table may have fewer entries than this process needs.
    local.thread.set(ptr::null());
    // If a fault interrupts the claim, its handler measures nothing.
    if local.is_claiming.replace(true) {
        if !section::is_outermost() {
            return None;
        }
        release_claimed(local);
    }
    let claimed = claim_lane(process, local).or_else(|| claim_overflow(process, local));
    local.claimed.set((0, 0));
    local.moving_in.set(ptr::null());
    // In a child that was forked in the meantime, the lane belongs to the parent.
    let claimed = claimed.filter(|thread| {
        let is_ours = process.is_current();
        if !is_ours {
            thread.alive.store(0, Relaxed);
        }
        is_ours
    });
    if let Some(thread) = claimed {
        local.thread.set(thread);
        // SAFETY: the key was made with the process. The value is not null, so that the destructor
        // runs.
        unsafe { libc::pthread_setspecific(process.exit_key, (&raw const *thread).cast()) };
    }
    local.is_claiming.set(false);
    claimed
}

fn claim_lane(process: &'static Process, local: &Local) -> Option<&'static Thread> {
    let segment = &process.segment;
    let lanes = segment.geometry().lanes();
    // The search for lanes of ended threads checks every lane. If many threads find no lane, only
    // some of them search.
    let overflowed = segment.counters().lanes_overflowed.load(Relaxed);
    let mut reaps = overflowed == 0 || overflowed.is_power_of_two();
    let mut next = 0;
    loop {
        let number = next;
        next += 1;
        let used = segment.lanes_used();
        if reaps && number as u64 >= used {
            reaps = false;
            // Ended threads are searched for each time the number of used lanes has doubled, so
            // that the cost of a lane does not grow with the number of lanes.
            if (used.is_power_of_two() || number == lanes) && reap_dead(process) {
                next = 0;
                continue;
            }
        }
        if number == lanes {
            return None;
        }
        let lane = if (number as u64) < used {
            segment.lane(number)?
        } else {
            segment.back_lane(number).ok()??
        };
        // If a handler has made a child by a bare clone, the child continues here, and must not
        // write to its parent's lane.
        if !process.is_current() {
            return None;
        }
        let Some(generation) = lane.claim() else { continue };
        local.claimed.set((number + 1, generation));
        let Some(thread) = furnished(process, lane, number) else {
            if process.is_current() {
                lane.release(generation);
            }
            return None;
        };
        if let Some(calls) = thread.calls() {
            calls.claim(stamp(), clock::cpu_time_ns().unwrap_or(0));
        }
        thread.counters.store((&raw const lane.counters).cast_mut(), Relaxed);
        thread.move_in(local, segment, number, generation);
        if !process.is_current() {
            return None;
        }
        // Pairs with the load in `reap_dead`.
        thread.holder.store(u64::from(generation) << 32 | u64::from(tid()), Release);
        lane.announce(generation, tid(), stamp(), &thread_name());
        given::take_name(tid(), lane);
        return Some(thread);
    }
}

/// The private pages of a lane that the calling thread has claimed, with a ring and calls. `None`
/// if memory runs out, and in a child of a bare clone.
fn furnished(process: &'static Process, lane: &Lane, number: usize) -> Option<&'static Thread> {
    let segment = &process.segment;
    let thread = pages_of(process, number)?;
    if !process.is_current() {
        return None;
    }
    if thread.ring.load(Relaxed).is_null() {
        let block = process.take_blocks(RING_BLOCKS + CALLS_BLOCKS)?;
        let (slots, calls) = (segment.ring(block)?, segment.calls(block + RING_BLOCKS)?);
        process.back(segment.block_offset(block + RING_BLOCKS)?, Calls::NEEDED)?;
        if !process.is_current() {
            return None;
        }
        lane.set_ring_block(block);
        lane.set_calls_block(block + RING_BLOCKS);
        thread.calls.store((&raw const *calls).cast_mut(), Relaxed);
        thread.ring.store(slots.as_ptr().cast_mut(), Relaxed);
    }
    process.is_current().then_some(thread)
}

fn claim_overflow(process: &'static Process, local: &Local) -> Option<&'static Thread> {
    let segment = &process.segment;
    let number = segment.overflow_lane();
    let lane = segment.back_lane(number).ok()??;
    let thread = map_pages(table_of(process))?;
    if !process.is_current() {
        return None;
    }
    segment.counters().lanes_overflowed.fetch_add(1, Relaxed);
    thread.counters.store((&raw const lane.counters).cast_mut(), Relaxed);
    thread.move_in(local, segment, number, 0);
    Some(thread)
}

impl Thread {
    fn move_in(&self, local: &Local, segment: &Segment, lane: usize, generation: u32) {
        local.moving_in.set(self);
        let (first, count) = segment.chunk_numbers();
        self.segment.store(segment.base().cast_mut(), Relaxed);
        self.first_chunk.store(u64::from(first), Relaxed);
        self.chunk_count.store(u64::from(count), Relaxed);
        self.tid.store(u64::from(tid()), Relaxed);
        self.lane.store(lane as u64, Relaxed);
        self.generation.store(u64::from(generation), Relaxed);
        self.set_current(ptr::null_mut());
        self.own.clear();
        self.own.paused.is_paused.store(false, Relaxed);
        self.set_covered(NOTHING_COVERED);
        self.begin_run(common::next_run(), 0, 0);
        self.done();
        self.suspended.store(0, Relaxed);
        self.allocs.clear();
        self.forget_limits();
        for word in self.roomy_pages.iter().chain(&self.signal_stack) {
            word.store(0, Relaxed);
        }
        self.claimed.store(stamp(), Relaxed);
        self.clock.start();
        self.alive.store(1, Relaxed);
    }
}

/// The private pages of a lane, which the lane's first owner maps.
fn pages_of(process: &'static Process, lane: usize) -> Option<&'static Thread> {
    let kept = &process.lanes[lane];
    let known = kept.load(Acquire);
    // SAFETY: the pointer is null, or leads to pages that stay mapped as long as the process runs.
    if let Some(thread) = unsafe { known.as_ref() } {
        return Some(thread);
    }
    let thread = map_pages(table_of(process))?;
    kept.store((&raw const *thread).cast_mut(), Release);
    Some(thread)
}

/// Number of entries of a thread's table: enough for all numbers that the process may give to
/// points, and for those that its parents gave, whose tables may have been larger.
fn table_of(process: &Process) -> usize {
    let last = common::last_point().map_or(0, |last| last as usize + 1);
    process.segment.geometry().points().max(last)
}

/// Maps a thread's state with a table of `points` entries.
fn map_pages(points: usize) -> Option<&'static Thread> {
    let behind = size_of::<EdgeIndex>() + size_of::<Batches>();
    let bytes = STACK + size_of::<Thread>().max(TABLE + points * size_of::<Entry>() + behind);
    const { assert!(align_of::<EdgeIndex>() <= align_of::<Entry>()) };
    const { assert!(size_of::<EdgeIndex>().is_multiple_of(align_of::<Batches>())) };
    let pages = private_pages(bytes)?;
    // The address is exposed for `Thread::entry_at`, which reaches the table by its address.
    let _ = pages.expose_provenance();
    // If the system refuses this, a child must not be forked in the middle of a region.
    #[cfg(not(miri))]
    // SAFETY: advice about pages that were mapped just now.
    errno::preserve(|| unsafe { libc::madvise(pages.cast(), STACK + KEPT, libc::MADV_KEEPONFORK) });
    // SAFETY: the pages are new and full of zeros, which are a valid value of atomics and null
    // pointers. The stack, which comes first, fills whole pages.
    let thread = unsafe { &*pages.add(STACK).cast::<Thread>() };
    thread.own.furnish(pages);
    thread.bytes.store(bytes as u64, Relaxed);
    thread.points.store(points as u64, Relaxed);
    Some(thread)
}

/// The kernel's name of the calling thread.
fn thread_name() -> [u8; 16] {
    let mut name = [0u8; 16];
    // SAFETY: the kernel writes at most 16 bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    name
}

/// Names the lane of the calling thread, and backs its ring.
pub(in crate::engine) fn register(thread: &Thread, process: &Process, name: &str) {
    thread.back_ring();
    if !thread.overflows()
        && let Some(lane) = process.segment.lane(thread.lane.load(Relaxed) as usize)
    {
        lane.set_name(name.as_bytes());
    }
}

/// Runs last in a thread that has a lane, after the destructors of thread-local values, so that
/// regions in those still count. If a region begins even later, it claims a lane again, and this
/// function may not run again: the threads library runs destructors at most four times, and stops
/// once no key is set. See [`reap_dead`].
pub(crate) unsafe extern "C" fn at_thread_exit(value: *mut libc::c_void) {
    cold::section(|| {
        if let Some(local) = local::known() {
            local.thread.set(ptr::null());
        }
        // SAFETY: the value is the state that `claim_alone` has set, in this process or in a
        // parent.
        let thread = unsafe { &*value.cast::<Thread>() };
        if let Some(process) = process::current().filter(|_| thread.is_alive()) {
            leave(process, thread);
        }
    });
}

/// Releases the lane and the state of the calling thread.
fn leave(process: &Process, thread: &Thread) {
    thread.publish_switches();
    thread.clock.stop();
    // Only the thread itself does this: another thread may have the kernel id of a dead one.
    boxes::give_up(process, thread);
    if thread.overflows() {
        suspend::release_all(thread);
        let bytes = thread.bytes.load(Relaxed) as usize;
        // SAFETY: only this thread has used the pages, and it has finished with them. A child that
        // was forked in between has no such pages.
        unsafe { libc::munmap(thread.pages().cast(), bytes) };
        return;
    }
    thread.holder.store(0, Relaxed);
    release_lane(process, thread);
}

/// One more than the key whose destructor releases a thread's lane; 0 before the key is made.
static KEY: AtomicU32 = AtomicU32::new(0);

/// The key whose destructor releases a thread's lane. It is made once, later than the keys whose
/// destructors may measure.
pub(in crate::engine) fn exit_key() -> io::Result<libc::pthread_key_t> {
    make_key(&KEY, at_thread_exit)
}

/// Releases the lanes of ended threads that could not release them: a signal handler, or a
/// destructor that requested its own repetition, has measured after the last call of
/// [`at_thread_exit`]. Called before a thread takes a lane that had no owner yet. Returns whether
/// it has released a lane.
fn reap_dead(process: &Process) -> bool {
    let mut any = false;
    for kept in &process.lanes {
        // SAFETY: the pointer is null, or leads to pages that stay mapped as long as the process
        // runs.
        let Some(thread) = (unsafe { kept.load(Acquire).as_ref() }) else { continue };
        // Pairs with the store in `claim_lane`: the lane has this owner.
        let holder = thread.holder.load(Acquire);
        if holder == 0 || exists(holder as u32) {
            continue;
        }
        // In a child of a bare clone these threads do not exist, but they may still run in the
        // parent.
        if !process.is_current() {
            return false;
        }
        // Only one thread may reap the lane, and only if it was not claimed anew.
        if thread.holder.compare_exchange(holder, 0, Acquire, Relaxed).is_ok() {
            thread.publish_switches();
            thread.clock.forget();
            release_lane(process, thread);
            any = true;
        }
    }
    any
}

/// Releases a thread's lane for its next owner. The thread has stopped writing.
fn release_lane(process: &Process, thread: &Thread) {
    suspend::release_all(thread);
    fold::recover(process, thread);
    // Makes the next owner of the lane take over the cells.
    for (_, entry) in thread.entries(process.segment.points_used()) {
        if let Some(cell) = entry.cell() {
            entry.follows.store(0, Relaxed);
            cell.abandon();
        }
    }
    if let Some(lane) = process.segment.lane(thread.lane.load(Relaxed) as usize) {
        lane.release(thread.generation.load(Relaxed) as u32);
    }
}

#[cfg(test)]
mod tests {
    use pfp_shm_layout::cell::Cell;

    use super::*;
    use crate::point::Point;

    /// All entries of the table are found by its exposed address, because a reference to the
    /// `Thread` does not reach the entries beyond it. Miri checks this.
    #[test]
    fn the_table_is_reached_to_its_end() {
        const POINTS: usize = 700;
        const LAST: u32 = POINTS as u32 - 1;
        static POINT: Point = Point::numeric(LAST);
        let thread = map_pages(POINTS).expect("there is memory");
        let cells = [Cell::new(), Cell::new()];
        let cell = |number| thread.entry_of(number).and_then(Entry::cell);
        assert!((0..=LAST).all(|number| cell(number).is_none()));
        assert!(thread.entry_of(LAST + 1).is_none() && thread.entry_of(u32::MAX).is_none());
        thread.entry_of(0).expect("it is in the table").set_cell(&cells[0]);
        thread.entry(&POINT).set_cell(&cells[1]);
        for (number, one) in [(0, &cells[0]), (LAST, &cells[1])] {
            assert!(cell(number).is_some_and(|found| ptr::eq(found, one)));
        }
        assert!(thread.cell_of_any(&POINT).is_some_and(|found| ptr::eq(found, &cells[1])));
        assert_eq!(thread.entries(u64::MAX).count(), POINTS);
        assert!(cell(1).is_none() && thread.counters.load(Relaxed).is_null());
        let bytes = thread.bytes.load(Relaxed) as usize;
        // SAFETY: the test keeps no reference to the pages.
        unsafe { libc::munmap(thread.pages().cast(), bytes) };
    }
}
