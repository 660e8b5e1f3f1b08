//! Declarations of OpenMP's tool interface (`omp-tools.h`) that this library uses.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// Data word for the tool, which the runtime stores for each region, task and thread.
#[repr(C)]
pub(crate) union Data {
    pub(super) value: u64,
    pub(super) ptr: *mut c_void,
}

pub(super) type OmptFunction = unsafe extern "C" fn();
pub(super) type Lookup = unsafe extern "C" fn(*const c_char) -> Option<OmptFunction>;
pub(super) type SetCallback = unsafe extern "C" fn(c_int, OmptFunction) -> c_int;

/// Result of `ompt_start_tool`. The runtime keeps the pointer, so this must be a static.
#[repr(C)]
pub(crate) struct StartToolResult {
    pub(super) initialize: unsafe extern "C" fn(Option<Lookup>, c_int, *mut Data) -> c_int,
    pub(super) finalize: unsafe extern "C" fn(*mut Data),
    pub(super) data: Data,
}

// SAFETY: function pointers, and a data word that is never written, by this library or a runtime.
unsafe impl Sync for StartToolResult {}

/// Numbers of callbacks.
pub(super) mod callback {
    use super::c_int;

    pub(in crate::ompt) const THREAD_BEGIN: c_int = 1;
    pub(in crate::ompt) const THREAD_END: c_int = 2;
    pub(in crate::ompt) const PARALLEL_BEGIN: c_int = 3;
    pub(in crate::ompt) const PARALLEL_END: c_int = 4;
    pub(in crate::ompt) const TASK_SCHEDULE: c_int = 6;
    pub(in crate::ompt) const IMPLICIT_TASK: c_int = 7;
    pub(in crate::ompt) const SYNC_REGION: c_int = 23;
    pub(in crate::ompt) const MUTEX_ACQUIRE: c_int = 26;
    pub(in crate::ompt) const MUTEX_ACQUIRED: c_int = 27;
}

/// `ompt_scope_begin`.
pub(super) const BEGIN: c_int = 1;

/// `ompt_thread_worker`.
pub(super) const WORKER: c_int = 2;

/// `ompt_task_initial`: the initial task of the program or of a team in a league.
pub(super) const TASK_INITIAL: c_int = 1;
/// `ompt_parallel_league`: a `teams` construct.
pub(super) const LEAGUE: c_int = 0x4000_0000;

/// Whether a synchronization is a barrier of a parallel region. The barrier of `teams` does not
/// count, and `taskwait`, `taskgroup` and `reduction` are not barriers.
pub(super) fn is_barrier(kind: c_int) -> bool {
    matches!(kind, 1..=4 | 8 | 9)
}

/// Whether a lock is only tried. A try does not wait, and the runtime reports it again only if the
/// try succeeds.
pub(super) fn is_a_try(mutex: c_int) -> bool {
    matches!(mutex, 2 | 4)
}

/// Name of this kind of mutex in the viewer.
pub(super) fn mutex_name(mutex: c_int) -> &'static str {
    match mutex {
        5 => "critical",
        6 => "atomic",
        7 => "ordered",
        _ => "lock",
    }
}

pub(super) type ThreadBegin = unsafe extern "C" fn(c_int, *mut Data);
pub(super) type ThreadEnd = unsafe extern "C" fn(*mut Data);
pub(super) type ParallelBegin =
    unsafe extern "C" fn(*mut Data, *const c_void, *mut Data, c_uint, c_int, *const c_void);
pub(super) type ParallelEnd = unsafe extern "C" fn(*mut Data, *mut Data, c_int, *const c_void);
pub(super) type ImplicitTask =
    unsafe extern "C" fn(c_int, *mut Data, *mut Data, c_uint, c_uint, c_int);
pub(super) type TaskSchedule = unsafe extern "C" fn(*mut Data, c_int, *mut Data);
pub(super) type SyncRegion =
    unsafe extern "C" fn(c_int, c_int, *mut Data, *mut Data, *const c_void);
pub(super) type MutexAcquire = unsafe extern "C" fn(c_int, c_uint, c_uint, u64, *const c_void);
pub(super) type MutexAcquired = unsafe extern "C" fn(c_int, u64, *const c_void);
