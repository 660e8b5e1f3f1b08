//! OpenMP: parallel regions, as a runtime reports them through OMPT.
//!
//! ```text
//! place:  from an address in the program to its points
//! team:   regions that have not ended yet
//! member: time that each thread of a region is busy or waits
//! ```
//!
//! The code here takes no lock, and allocates memory only when it sees a place for the first time.

mod abi;
mod member;
mod place;
mod team;

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use abi::{Data, Lookup, OmptFunction, SetCallback, callback};
use pfp::own::heap::ShortText;
use place::{EventKind, Points};
use team::Team;

/// Value in the data word of an implicit task. The word of an explicit task is 0.
const IMPLICIT: u64 = 1;

static TOOL: abi::StartToolResult =
    abi::StartToolResult { initialize, finalize, data: Data { value: 0 } };

/// OpenMP's runtime looks up this function in each library in `OMP_TOOL_LIBRARIES`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn ompt_start_tool(
    _version: c_uint,
    _runtime: *const c_char,
) -> *const abi::StartToolResult {
    &raw const TOOL
}

/// Whether a runtime reports its regions to us.
static IS_ON: AtomicBool = AtomicBool::new(false);

pub(crate) fn is_on() -> bool {
    IS_ON.load(Relaxed)
}

unsafe extern "C" fn initialize(lookup: Option<Lookup>, _device: c_int, _data: *mut Data) -> c_int {
    let Some(lookup) = lookup else { return 0 };
    // SAFETY: `lookup` is a function of the runtime, and its argument is a static string that ends
    // with NUL.
    let Some(found) = (unsafe { lookup(c"ompt_set_callback".as_ptr()) }) else { return 0 };
    // SAFETY: OMPT defines this signature for the function of this name.
    let set = unsafe { std::mem::transmute::<OmptFunction, SetCallback>(found) };
    macro_rules! set {
        ($($number:ident: $kind:ident = $function:ident;)*) => {
            // SAFETY: the type of each function is OMPT's signature for the callback's number.
            $(unsafe {
                set(callback::$number, std::mem::transmute::<abi::$kind, OmptFunction>($function));
            })*
        };
    }
    set! {
        THREAD_BEGIN: ThreadBegin = thread_begin;
        THREAD_END: ThreadEnd = thread_end;
        PARALLEL_BEGIN: ParallelBegin = parallel_begin;
        PARALLEL_END: ParallelEnd = parallel_end;
        IMPLICIT_TASK: ImplicitTask = implicit_task;
        TASK_SCHEDULE: TaskSchedule = task_schedule;
        SYNC_REGION: SyncRegion = sync_region;
        MUTEX_ACQUIRE: MutexAcquire = mutex_acquire;
        MUTEX_ACQUIRED: MutexAcquired = mutex_acquired;
    }
    IS_ON.store(true, Relaxed);
    crate::get_ready();
    1
}

unsafe extern "C" fn finalize(_data: *mut Data) {
    // Leaves the regions of this thread only. Other members leave theirs in `thread_end`.
    member::with(|member| member.leave());
}

unsafe extern "C" fn thread_begin(kind: c_int, _thread: *mut Data) {
    if kind == abi::WORKER {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let number = NUMBER.fetch_add(1, Relaxed);
        let name = ShortText::<32>::of(format_args!("omp {number}"));
        pfp::c::keeping_errno(|| pfp::register_thread(name.as_str()));
    }
}

unsafe extern "C" fn thread_end(_thread: *mut Data) {
    member::with(|member| member.leave());
}

unsafe extern "C" fn parallel_begin(
    _task: *mut Data,
    _frame: *const c_void,
    parallel: *mut Data,
    _requested: c_uint,
    flags: c_int,
    code: *const c_void,
) {
    let mut taken = None;
    if flags & abi::LEAGUE == 0
        && let Some(Points::Region(region)) = place::at(code, EventKind::Region)
    {
        member::with(|member| taken = Team::take(region, member.fork(), code.addr() >> 4));
    }
    // SAFETY: null, or the data word of this region, which only the tool writes.
    if let Some(parallel) = unsafe { parallel.as_mut() } {
        parallel.ptr = taken.map_or(ptr::null_mut(), |team| ptr::from_ref(team).cast_mut().cast());
    }
}

/// The team that `parallel_begin` stored in the data word of a region.
///
/// # Safety
///
/// `parallel` is null or the data word of a region that has not ended.
unsafe fn team(parallel: *mut Data) -> Option<&'static Team> {
    // SAFETY: the caller passes null or a valid word, which holds null or the address of a static.
    unsafe { parallel.as_ref()?.ptr.cast::<Team>().as_ref() }
}

unsafe extern "C" fn parallel_end(
    parallel: *mut Data,
    _task: *mut Data,
    _flags: c_int,
    _code: *const c_void,
) {
    // SAFETY: null, or the data word of a region that is valid until this callback returns.
    if let Some(team) = unsafe { team(parallel) } {
        member::with(|member| member.join(team));
    }
}

unsafe extern "C" fn implicit_task(
    endpoint: c_int,
    parallel: *mut Data,
    task: *mut Data,
    _threads: c_uint,
    index: c_uint,
    flags: c_int,
) {
    if flags & abi::TASK_INITIAL != 0 {
        return;
    }
    if endpoint != abi::BEGIN {
        return member::with(|member| member.end());
    }
    // SAFETY: null, or the data word of this task, which only the tool writes.
    if let Some(task) = unsafe { task.as_mut() } {
        task.value = IMPLICIT;
    }
    // SAFETY: null, or the data word of a region, which does not end before its members have begun.
    let team = unsafe { team(parallel) };
    member::with(|member| member.begin(team, index == 0));
}

unsafe extern "C" fn task_schedule(_prior: *mut Data, _status: c_int, next: *mut Data) {
    // SAFETY: null, or the data word of the task that runs next.
    if let Some(next) = unsafe { next.as_ref() } {
        // SAFETY: both fields of the union are 64 bits wide and valid for any bits.
        let is_one = unsafe { next.value } != IMPLICIT;
        member::with(|member| member.task(is_one));
    }
}

unsafe extern "C" fn sync_region(
    kind: c_int,
    endpoint: c_int,
    _parallel: *mut Data,
    _task: *mut Data,
    code: *const c_void,
) {
    if !abi::is_barrier(kind) {
        return;
    }
    member::with(|member| match endpoint {
        abi::BEGIN => member.barrier(|begun| begun.region.is_last(kind, code)),
        _ => member.leave_barrier(),
    });
}

unsafe extern "C" fn mutex_acquire(
    kind: c_int,
    _hint: c_uint,
    _implementation: c_uint,
    wait: u64,
    code: *const c_void,
) {
    if mutex(kind, code).is_some_and(|point| point.is_enabled()) {
        member::with(|member| member.wait_begins(wait));
    }
}

unsafe extern "C" fn mutex_acquired(kind: c_int, wait: u64, code: *const c_void) {
    if let Some(point) = mutex(kind, code) {
        member::with(|member| member.acquired(wait, point));
    }
}

/// The point that measures waits for a mutex at this address of the code.
fn mutex(kind: c_int, code: *const c_void) -> Option<&'static pfp::Point> {
    let what = EventKind::Mutex(abi::mutex_name(kind));
    match place::at(code, what).filter(|_| !abi::is_a_try(kind))? {
        Points::Mutex(point) => Some(point),
        Points::Region(_) => None,
    }
}
