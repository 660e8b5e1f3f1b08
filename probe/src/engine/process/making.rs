//! Making the process: the segment, its beacon, and a note if that fails.
//!
//! A thread that needs the process while another one is making it waits a millisecond at most, and
//! then makes one, too. The first one to be announced is the process of all threads, and any thread
//! can publish it, so none depends on another thread getting the CPU.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU64,
    Ordering::{Relaxed, Release},
};

use pfp_shm_layout::beacon::{self, Beacon, Info, MAX_NAME};
use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::failure::{self, Failure, Stage};
use pfp_shm_layout::find;
use pfp_shm_layout::geometry::Geometry;
use pfp_shm_layout::header::{Facts, ProcessCounters};
use pfp_shm_layout::heap::{self, NoMemory};
use pfp_shm_layout::name::Name;
use pfp_shm_layout::segment::Segment;
use pfp_shm_layout::share::Share;

use super::failed::{Failed, STACK};
use super::memory::uninterrupted;
use super::name::program_name;
use super::publishing::{self, NewPage};
use super::switches;
use super::{FAILED, MISSED, NEWEST, Process, current, newest, thousand_seconds};
use crate::clock::{self, calibrate, counter};
use crate::engine::lease::{Lease, NotAcquired};
use crate::engine::settings::{self, Settings};
use crate::engine::thread::lane;
use crate::engine::{calibrate as costs, cold, common, copies, owner, registry};

/// Held by the thread that others expect to make the process.
static MAKING: Lease = Lease::new();

/// The number of threads that are making the process now. The upper half counts all threads that
/// have begun to make it.
static MAKERS: AtomicU64 = AtomicU64::new(0);
const ONE_MORE: u64 = 1 << 32 | 1;

/// Set if a thread failed to make the process while another thread was making it, too: one thread
/// may have lacked a resource that the other held, such as a descriptor. From then on only the
/// holder of the lease makes the process.
static IS_CROWDED: AtomicBool = AtomicBool::new(false);

/// The process, which the first call makes. `None` if it cannot be made, or must not be made now.
pub(in crate::engine) fn get() -> Option<&'static Process> {
    if let Some(process) = current() {
        return Some(process);
    }
    if FAILED.load(Relaxed) != 0 {
        return None;
    }
    let process = cold::section(wait_or_make)?;
    while registry::enter_inherited(process) {}
    Some(process)
}

#[cold]
#[inline(never)]
fn wait_or_make() -> Option<&'static Process> {
    if owner::is_anothers() {
        return None;
    }
    leave_parents();
    // In a forked child, the parent may have marked the work as done, so the lease is acquired
    // anew.
    let lease = match MAKING.acquire_anew() {
        Ok(lease) => Some(lease),
        // It may take long until the thread that makes the process gets the CPU again, so this
        // thread makes it, too.
        Err(NotAcquired::HeldByOther) if !IS_CROWDED.load(Relaxed) => None,
        Err(_) => return current(),
    };
    // A thread may have announced a process without having published it yet.
    publishing::publish_announced();
    // A handler on a small stack leaves the work to a later begin, and so does a thread without
    // memory.
    let can_be = || FAILED.load(Relaxed) == 0 && !cold::has_less_stack(STACK) && heap::has_room();
    let process = current().or_else(|| if can_be() { make_first() } else { None });
    if let Some(lease) = lease
        && process.is_some()
    {
        lease.complete();
    }
    process
}

/// Makes the process, unless another thread is faster.
#[inline(never)]
fn make_first() -> Option<&'static Process> {
    if !copies::leads() {
        return None;
    }
    let before = MAKERS.fetch_add(ONE_MORE, Relaxed);
    let is_alone = || before as u32 == 0 && MAKERS.load(Relaxed) == before.wrapping_add(ONE_MORE);
    make(&NewPage::map(), is_alone);
    // The count is 0 in a child that was forked in between.
    let _ =
        MAKERS.fetch_update(Relaxed, Relaxed, |makers| (makers as u32 != 0).then(|| makers - 1));
    // Another thread may have been faster. In a child that was forked in between, this is `None`.
    current()
}

/// Maps private memory in place of the parent's segment, if this process is a forked child.
fn leave_parents() {
    if let Some(parents) = newest().filter(|process| !process.is_callers()) {
        switches::leave_parents();
        parents.detach();
    }
}

/// Resets this module's statics in a forked child, where no thread of the parent makes the process.
pub(in crate::engine) fn forget() {
    MAKING.release_if(|_| true);
    MAKERS.store(0, Relaxed);
    IS_CROWDED.store(false, Relaxed);
}

/// Makes the process and publishes it, or leaves a note of the failure. Has no effect in a child
/// that was forked during the call, or if another thread was faster.
fn make(new_page: &io::Result<NewPage>, is_alone: impl Fn() -> bool) {
    // Without memory the next begin tries again.
    let (Ok(settings), Ok(exe)) = (settings::get(), this_exe()) else { return };
    let origin = calibrate::begin();
    calibrate::find_offset();
    let directory = uninterrupted(Directory::for_this_process);
    if directory.as_ref().is_err_and(NoMemory::is_in) {
        return;
    }
    let failed = |stage, error: &io::Error| {
        // Another thread may have been faster, and may have made the process.
        if new_page.as_ref().is_ok_and(|page| !page.is_ours()) || current().is_some() {
            return;
        }
        // The next begin tries again, because the heap may have room then.
        if NoMemory::is_in(error) {
            return;
        }
        if !is_alone() {
            IS_CROWDED.store(true, Relaxed);
            return;
        }
        FAILED.store(Failed { stage, errno: failure::errno_of(error) }.pack(), Relaxed);
        // Another thread may have made the process since the check above.
        if current().is_some() {
            FAILED.store(0, Relaxed);
            return;
        }
        note_failure(&directory, &exe, stage, error);
    };
    let new_page = match new_page {
        Ok(new_page) => new_page,
        Err(error) => return failed(Stage::Process, error),
    };
    /// Maximum number of attempts with new names. A child that is forked during the call may take
    /// the name first. Only a debugger or a handler of faults can fork that often, because other
    /// signals are blocked.
    const NAMES: u32 = 1000;
    /// Maximum number of attempts if the beacon fails. Here a sweep by another process may also
    /// remove the draft of the beacon.
    const DRAFTS: u32 = 100;
    for attempt in 1..=NAMES {
        match make_as_named(new_page, settings, origin, &directory, &is_alone) {
            Ok(()) => return,
            Err((stage, error)) => {
                let most = if stage == Stage::Beacon { DRAFTS } else { NAMES };
                if error.kind() != io::ErrorKind::AlreadyExists || attempt >= most {
                    return failed(stage, &error);
                }
            }
        }
    }
}

/// Makes the process under a random name, and publishes it. Has no effect in a child that was
/// forked during the call, or if another thread was faster.
///
/// # Errors
///
/// The part that could not be made, and the system's error.
fn make_as_named(
    new_page: &NewPage,
    settings: &'static Settings,
    origin: calibrate::Instant,
    directory: &io::Result<Directory>,
    is_alone: impl Fn() -> bool,
) -> Result<(), (Stage, io::Error)> {
    let object = Name::random().map_err(|error| (Stage::Segment, error))?;
    let mut name = [0; MAX_NAME];
    let name = program_name(&mut name);
    // The beacon is prepared first, so that a process that is killed at any moment leaves no object
    // that a sweep cannot find. It is lit once this process is announced, so that viewers find only
    // the first of the processes that several threads make.
    let info = Info::of_this_process(object, name).map_err(|error| (Stage::Segment, error))?;
    if !new_page.is_ours() {
        return Ok(());
    }
    let share = Share::of_this_process();
    let config = settings.config(share);
    // The objects that crashed processes left may take as much memory as this process may take, but
    // not more.
    let left = share.bytes.max(Geometry::new(config).len() as u64);
    let beacon = match directory {
        Ok(directory) => uninterrupted(|| prepare_beacon(directory, &info, left)),
        Err(error) => Err(io::Error::from_raw_os_error(failure::errno_of(error))),
    };
    let beacon = match beacon {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err((Stage::Beacon, error));
        }
        // Another thread is making a process, too. That process may get a beacon, by which viewers
        // find it.
        Err(error) if !is_alone() => return Err((Stage::Beacon, error)),
        // The next begin tries again, because the heap may have room then.
        Err(error) if NoMemory::is_in(&error) => return Err((Stage::Beacon, error)),
        beacon => beacon,
    };
    let folder = directory.as_ref().ok().filter(|_| beacon.is_ok()).map(Directory::path);
    let facts = facts(&info, origin, folder).map_err(|error| (Stage::Segment, error.into()))?;
    if !new_page.is_ours() {
        return Ok(());
    }
    let fill = |counters: &ProcessCounters| fill(counters, settings, name);
    let made = uninterrupted(|| Segment::create(object, config, &facts, fill))
        .map_err(|error| (Stage::Segment, error))
        .and_then(|segment| {
            of_segment(segment, new_page, settings).map_err(|error| (Stage::Process, error))
        });
    if !new_page.is_ours() {
        return Ok(());
    }
    let process = match made {
        Ok(process) => process,
        Err((stage, error)) => {
            let is_taken = stage == Stage::Segment && error.kind() == io::ErrorKind::AlreadyExists;
            // If the name was taken, the object is another process's and stays. If our own object
            // cannot be removed, the beacon stays, so that a sweep finds the object.
            if is_taken || pfp_shm_layout::object::unlink_if_there(&object) {
                beacon.ok().map(|beacon| beacon.extinguish());
            }
            return Err((stage, error));
        }
    };
    match (&beacon, directory) {
        (Err(error), _) => note_failure(directory, &info.exe, Stage::Beacon, error),
        (Ok(_), Ok(directory)) => failure::forget(directory, &info.exe),
        (Ok(_), Err(_)) => {}
    }
    if let Ok(beacon) = beacon {
        process.beacon.store(Box::into_raw(beacon), Release);
    }
    // The numbers of inherited points are reserved first, so that no other thread of a forked child
    // gives them to new points.
    if let Some(last) = common::last_point() {
        process.segment.reserve_point(Some(last as usize), 0);
    }
    if !new_page.is_ours() {
        return Ok(());
    }
    let process = match new_page.announce(process) {
        Ok(process) => process,
        Err(late) => {
            late.discard();
            publishing::publish_announced();
            return Ok(());
        }
    };
    let lit = publishing::publish(process);
    if !new_page.is_ours() {
        return Ok(());
    }
    if let Err(error) = lit {
        note_failure(directory, &info.exe, Stage::Beacon, &error);
    }
    let missed = MISSED.swap(0, Relaxed);
    if settings.on_by_default {
        process.segment.counters().begins_missed.fetch_add(missed, Relaxed);
    }
    registry::inherit();
    costs::calibrate_again();
    Ok(())
}

/// Makes a process with a new segment.
///
/// # Errors
///
/// The system's error if no key of thread-specific data is free, or an error that says that memory
/// ran out.
fn of_segment(
    segment: Segment,
    new_page: &NewPage,
    settings: &'static Settings,
) -> io::Result<Box<Process>> {
    let exit_key = lane::exit_key()?;
    let lanes = (0..=segment.geometry().lanes()).map(|_| AtomicPtr::default());
    // The list is reserved in one step, so that it has the right size.
    let lanes = heap::collect(lanes)?.into_boxed_slice();
    let snapshot = settings.snapshot.as_ref().map(settings::Asked::path_at_exit).transpose()?;
    let process = Process {
        segment,
        beacon: AtomicPtr::default(),
        page: new_page.page(),
        // SAFETY: no preconditions.
        pid: unsafe { libc::getpid() },
        exit_key,
        lanes,
        outdated: AtomicBool::new(false),
        no_space_until: AtomicU64::new(0),
        spare_block: AtomicU64::new(0),
        spare_box: AtomicU64::new(0),
        kept_lately: super::KeptLately::default(),
        settings,
        _inherited: AtomicPtr::new(NEWEST.load(Relaxed)),
        snapshot,
        clearing: Lease::new(),
    };
    Ok(heap::boxed(process)?)
}

/// Fills the counters of a segment that cannot be opened yet.
fn fill(counters: &ProcessCounters, settings: &Settings, name: &str) {
    // The rate is measured before a clock source is chosen, because the measurement can show that
    // the counter stands still.
    let rate = calibrate::ticks_per_second();
    let kind = clock::choose(settings.clock.as_deref());
    counters.set_name(name);
    counters.run.store(settings.run, Relaxed);
    counters.debug.store(u64::from(cfg!(debug_assertions)), Relaxed);
    counters.clock_kind.store(kind as u64, Relaxed);
    counters.system_clock.store(u64::from(counter::is_replaced()), Relaxed);
    counters.invariant.store(u64::from(calibrate::is_invariant()), Relaxed);
    counters.ticks_per_1000_s.store(thousand_seconds(rate), Relaxed);
    let reported = calibrate::reported_rate().map_or(0, thousand_seconds);
    counters.reported_ticks_per_1000_s.store(reported, Relaxed);
    counters.core_hz.store(calibrate::core_hz(rate).map_or(0, |hz| hz as u64), Relaxed);
}

fn facts(
    info: &Info,
    origin: calibrate::Instant,
    folder: Option<&Path>,
) -> Result<Facts, NoMemory> {
    let mut host = [0u8; 64];
    // SAFETY: the call writes at most the given number of bytes; the last byte of the array stays
    // zero.
    unsafe { libc::gethostname(host.as_mut_ptr().cast(), host.len() - 1) };
    let end = host.iter().position(|&byte| byte == 0).unwrap_or(0);
    Ok(Facts {
        id: info.object.id(),
        boot_id: info.process.boot,
        pid: info.process.pid,
        start_time: info.process.start,
        pid_namespace: info.process.pidns,
        created_unix_ns: info.created_unix_ns,
        created_ticks: origin.ticks,
        created_monotonic_ns: calibrate::to_shared(origin.ns),
        exe: heap::lossy(info.exe.as_os_str().as_bytes())?,
        host: heap::lossy(&host[..end])?,
        folder: folder.map_or(Ok(String::new()), absolute)?,
    })
}

/// The absolute path of a folder; empty if it is not known, or not UTF-8.
fn absolute(folder: &Path) -> Result<String, NoMemory> {
    let path = folder.as_os_str().as_bytes();
    if folder.is_absolute() {
        return heap::text(str::from_utf8(path).unwrap_or_default());
    }
    let current = settings::current_folder()?;
    if current.as_os_str().is_empty() {
        return Ok(String::new());
    }
    let joined = heap::bytes(&[current.as_os_str().as_bytes(), b"/", path])?;
    heap::text(str::from_utf8(&joined).unwrap_or_default())
}

fn prepare_beacon(directory: &Directory, info: &Info, left: u64) -> io::Result<Box<Beacon>> {
    // Removes what earlier runs left, before memory is taken; a failure does not affect this run.
    let _ = find::sweep(directory, &info.exe, find::KEEP, left);
    Beacon::prepare(directory, info)
}

fn this_exe() -> Result<PathBuf, NoMemory> {
    beacon::exe_of_this_process()
}

/// Leaves a note of a start that failed, or of a beacon that could not be made. The host is not
/// notified; `pfp-top doctor` shows the note.
fn note_failure(directory: &io::Result<Directory>, exe: &Path, stage: Stage, error: &io::Error) {
    // SAFETY: no preconditions.
    let pid = unsafe { libc::getpid() } as u32;
    let errno = failure::errno_of(error);
    let Ok(exe) = heap::path(&[exe.as_os_str().as_bytes()]) else { return };
    let failure = Failure { pid, exe, stage, errno };
    // A cause that also prevents the note is in most cases visible without it.
    let _ = match directory {
        Ok(directory) => failure.note(directory),
        Err(_) => Directory::candidates()
            .iter()
            .map(|path| failure.note_at(path))
            .find(Result::is_ok)
            .unwrap_or(Ok(())),
    };
}
