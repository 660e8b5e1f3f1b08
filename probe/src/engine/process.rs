//! The process: one segment, made when the first point is met.
//!
//! Everything here is off the hot path. A thread that needs the process while another
//! one is making it waits a millisecond at most, and then measures nothing, which is
//! counted.

use std::io;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    fence,
};

use pfp_shm_layout::beacon::{Beacon, Info, MAX_NAME};
use pfp_shm_layout::control::{self, Change, Control};
use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::failure::{self, Failure, Stage};
use pfp_shm_layout::find;
use pfp_shm_layout::header::{Facts, Ledger, ProcessState};
use pfp_shm_layout::object::Name;
use pfp_shm_layout::segment::{Geometry, Segment};
use pfp_shm_layout::share::Share;

use super::point::{FIRST_NAMED, Kind};
use super::settings::{self, Settings};
use super::thread::{self, Thread};
use super::turn::Turn;
use super::{cold, copies, image, owner};
use crate::clock::{self, calibrate, counter};
use crate::errno;
use crate::snapshot;
use crate::{InitError, Point};

const PAGE: usize = 4096;
/// Pairs that the automatic calibration runs.
const CALIBRATION_PAIRS: u32 = 512;

/// A process's segment and what belongs to it.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) segment: Segment,
    /// Taken out and put out when the process ends in order. Null, or a box.
    beacon: AtomicPtr<Beacon>,
    pid: libc::pid_t,
    /// Ends with the threads: its destructor releases their lanes.
    pub(crate) exit_key: libc::pthread_key_t,
    /// The private state of each lane, kept over the lane's owners.
    pub(crate) lanes: Box<[AtomicPtr<Thread>]>,
    /// Whether measuring costs something else than what is known.
    outdated: AtomicBool,
    /// The counter before which no space is asked for again.
    no_space_until: AtomicU64,
    /// A block that was taken and could not be backed; 0 for none.
    spare_block: AtomicU64,
    settings: &'static Settings,
    /// That of the parent that this process was forked from, if it had one.
    _inherited: AtomicPtr<Process>,
    /// Where the last figures go when the process ends in order.
    snapshot: Option<PathBuf>,
    /// Held by the thread that clears a cell which threads without a lane share.
    pub(super) clearing: Turn,
}

/// Keeps what is never freed within reach of a leak checker, which does not look
/// behind the gate.
static NEWEST: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// Points to the process through a page that reads zero in a forked child, also
/// after a raw clone that runs no handler: what a child inherits is not its own.
static GATE: AtomicPtr<AtomicPtr<Process>> = AtomicPtr::new(ptr::null_mut());

/// Stack that making the process takes, with room to spare: 8 KiB as it is built for a
/// release, half of it in what makes and opens objects.
const STACK: usize = 16 << 10;

/// Held by the thread that makes the process.
static MAKING: Turn = Turn::new();
/// Why it cannot be made here: what could not be made and the system's error, as
/// [`Failed`] packs them. 0 while it may still be made.
static FAILED: AtomicU64 = AtomicU64::new(0);

/// Begins that were missed while there was no segment to count them in, of points
/// that start on.
static MISSED: AtomicU64 = AtomicU64::new(0);

/// The points of this process, a list through [`Point::next`].
pub(crate) static POINTS: AtomicPtr<Point> = AtomicPtr::new(ptr::null_mut());

/// The name the program gave itself. Two threads that do so at once may mix theirs, and
/// nobody ever waits.
static NAME: [AtomicU8; MAX_NAME] = [const { AtomicU8::new(0) }; MAX_NAME];
static NAME_LEN: AtomicUsize = AtomicUsize::new(0);

/// The process, if it was made by this process and not by a parent.
#[inline]
pub(crate) fn current() -> Option<&'static Process> {
    let gate = GATE.load(Acquire);
    if gate.is_null() {
        return None;
    }
    // SAFETY: the gate's page is never unmapped, and its pointer is null or to
    // a process that is never freed.
    unsafe { (*gate).load(Acquire).as_ref() }
}

/// The process, made if need be; none if it cannot be or must not be now.
pub(crate) fn get() -> Option<&'static Process> {
    if let Some(process) = current() {
        return Some(process);
    }
    if FAILED.load(Relaxed) != 0 || MAKING.is_hopeless() {
        return None;
    }
    cold::section(make_or_wait)
}

#[cold]
#[inline(never)]
fn make_or_wait() -> Option<&'static Process> {
    if owner::is_anothers() {
        return None;
    }
    leave_parents();
    // Done without a process behind the gate: this is a forked child.
    let turn = MAKING.take_anew().ok();
    if let Some(process) = current() {
        // Whoever has made it was waited for, or taken the turn from.
        if let Some(turn) = turn {
            turn.done();
        }
        return Some(process);
    }
    // A handler on a small stack leaves it to whoever comes next.
    let turn = turn.filter(|_| FAILED.load(Relaxed) == 0 && !cold::has_less_stack(STACK))?;
    // Before another copy refers to this one.
    image::prepare();
    if let Some(joined) = copies::join() {
        match joined {
            Some(_) => turn.done(),
            None => FAILED.store(copies::failure(), Relaxed),
        }
        return joined;
    }
    let gate = Gate::map();
    if let (Some(process), Ok(gate)) = (make(&gate), gate) {
        // A child that was forked meanwhile, and has come back into this, has no process.
        let is_ours = gate.is_ours();
        gate.keep();
        turn.done();
        return is_ours.then_some(process);
    }
    // Another thread may have taken the turn over, and been faster.
    current()
}

/// Puts private memory in the place of a parent's segment, if there is one in this
/// process: a copy of the parent's memory.
fn leave_parents() {
    // SAFETY: null, or a process that is never freed.
    let newest = unsafe { NEWEST.load(Acquire).as_ref() };
    if let Some(parents) = newest.filter(|process| !process.is_callers()) {
        parents.detach();
    }
}

/// Whose segment was detached last. Once is enough, also for the children of children.
static DETACHED: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// In a forked child, before it comes back: whatever its thread was in the middle of, it
/// writes to its parent's segment no more. Only what signal handlers may do.
pub(super) extern "C" fn in_child() {
    errno::kept(|| {
        // None of the parent's threads is here.
        MAKING.forget(|_| true);
        super::calibrate::forget();
        // A handler of another copy, or of the host, may have measured already.
        if current().is_some() {
            return;
        }
        // SAFETY: null, or a process that is never freed. Only the copy that made it has it.
        if let Some(parents) = unsafe { NEWEST.load(Acquire).as_ref() } {
            parents.detach();
        }
        thread::forget();
    });
}

/// A page that a forked child sees as zeros: of what is made, and whether it is this
/// process that makes it.
struct Gate {
    page: *mut GatePage,
    /// What there was before, in place of which it opens.
    before: *mut AtomicPtr<Process>,
    newest_before: *mut Process,
}

#[repr(C)]
struct GatePage {
    process: AtomicPtr<Process>,
    is_ours: AtomicU64,
}

impl Gate {
    fn map() -> io::Result<Self> {
        let (before, newest_before) = (GATE.load(Acquire), NEWEST.load(Acquire));
        let page = uninterrupted(|| map_private(PAGE))?.cast();
        let gate = Self { page, before, newest_before };
        gate.page().is_ours.store(1, Relaxed);
        Ok(gate)
    }

    fn page(&self) -> &'static GatePage {
        // SAFETY: a page of our own, and of atomics. It is unmapped only if nobody has
        // seen it.
        unsafe { &*self.page }
    }

    /// False in a child that was forked since, and has come back into the middle of this.
    fn is_ours(&self) -> bool {
        self.page().is_ours.load(Relaxed) != 0
    }

    /// From here on a child that is forked has private memory in place of the segment; one that
    /// was forked before writes nothing. False if another thread has made a process meanwhile.
    fn announce(&self, process: &'static Process) -> bool {
        let new = ptr::from_ref(process).cast_mut();
        NEWEST.compare_exchange(self.newest_before, new, Release, Relaxed).is_ok()
    }

    /// Leads to the process from now on. False if another thread has made one meanwhile.
    fn open(&self, process: &'static Process) -> bool {
        let page = self.page();
        let new = ptr::from_ref(process).cast_mut();
        page.process.store(new, Release);
        if !self.is_ours() {
            page.process.store(ptr::null_mut(), Relaxed);
        }
        let gate = (&raw const page.process).cast_mut();
        // Meets the load in `current`.
        let is_first = GATE.compare_exchange(self.before, gate, Release, Relaxed).is_ok();
        if is_first {
            // Another thread may have announced one that it finds to be the second.
            NEWEST.store(new, Release);
        } else {
            let _ = NEWEST.compare_exchange(new, self.newest_before, Release, Relaxed);
        }
        is_first
    }

    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // SAFETY: the page that was mapped, which nobody has seen.
        unsafe { libc::munmap(self.page.cast(), PAGE) };
    }
}

/// Makes the process; a note is left if it cannot be made. None in a forked child that comes
/// back into this, and where another thread was faster.
fn make(gate: &io::Result<Gate>) -> Option<&'static Process> {
    let settings = settings::get();
    let origin = calibrate::begin();
    let directory = uninterrupted(Directory::for_this_process);
    let exe = this_exe();
    let failed = |stage, error: &io::Error| {
        // Or another thread was faster, and has made one.
        if gate.as_ref().is_ok_and(|gate| !gate.is_ours()) || current().is_some() {
            return None;
        }
        FAILED.store(Failed { stage, errno: failure::errno_of(error) }.pack(), Relaxed);
        note_failure(&directory, &exe, stage, error);
        None
    };
    let gate = match gate {
        Ok(gate) => gate,
        Err(error) => return failed(Stage::Process, error),
    };
    /// Another name is tried where one is taken: a child that was forked just now, and
    /// has come back into this, may have been faster with it. A debugger or a handler of
    /// faults may fork that often; other signals wait meanwhile.
    const NAMES: u32 = 1000;
    for attempt in 1..=NAMES {
        match make_as_named(gate, settings, origin, &directory) {
            Ok(process) => return process,
            Err((Stage::Segment, error))
                if error.kind() == io::ErrorKind::AlreadyExists && attempt < NAMES => {}
            Err((stage, error)) => return failed(stage, &error),
        }
    }
    None
}

/// Makes the process under a name of chance; none in a forked child that comes back into
/// this, and where another thread was faster.
///
/// # Errors
///
/// What could not be made, and what the system answered.
fn make_as_named(
    gate: &Gate,
    settings: &'static Settings,
    origin: calibrate::Instant,
    directory: &io::Result<Directory>,
) -> Result<Option<&'static Process>, (Stage, io::Error)> {
    let object = Name::random().map_err(|error| (Stage::Segment, error))?;
    let mut name = [0; MAX_NAME];
    let name = program_name(&mut name);
    // The beacon first: killed at any moment, the process leaves no object that
    // nobody can find.
    let info = Info::of_this_process(object, name);
    if !gate.is_ours() {
        return Ok(None);
    }
    let share = Share::of_this_process();
    let config = settings.config(share);
    // What crashed processes left may take as much again, and no more.
    let left = share.bytes.max(Geometry::new(config).len() as u64);
    let beacon = match directory {
        Ok(directory) => uninterrupted(|| light_beacon(directory, &info, left)),
        Err(error) => Err(io::Error::from_raw_os_error(failure::errno_of(error))),
    };
    let facts = facts(object.id(), origin);
    if !gate.is_ours() {
        return Ok(None);
    }
    let fill = |ledger: &Ledger| fill(ledger, settings, name);
    let made = uninterrupted(|| Segment::create(object, config, &facts, fill))
        .map_err(|error| (Stage::Segment, error))
        .and_then(|segment| of_segment(segment, settings).map_err(|error| (Stage::Process, error)));
    if !gate.is_ours() {
        return Ok(None);
    }
    let process = match made {
        Ok(process) => process,
        Err((stage, error)) => {
            let is_taken = stage == Stage::Segment && error.kind() == io::ErrorKind::AlreadyExists;
            // What has that name already is somebody's; what cannot be removed stays to be
            // found.
            if is_taken || pfp_shm_layout::object::unlink_if_there(&object) {
                beacon.ok().map(Beacon::extinguish);
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
        process.beacon.store(Box::into_raw(Box::new(beacon)), Release);
    }
    if !gate.is_ours() || !gate.announce(process) || !gate.open(process) {
        if gate.is_ours() {
            process.give_up();
        }
        return Ok(None);
    }
    let missed = MISSED.swap(0, Relaxed);
    if settings.on_by_default {
        process.segment.ledger().begins_missed.fetch_add(missed, Relaxed);
    }
    enter_again(process);
    copies::lead(GATE.load(Acquire));
    copies::calibrate();
    Ok(Some(process))
}

/// Points of the parent this process was forked from keep their numbers.
fn enter_again(process: &'static Process) {
    // Variants after what they are variants of.
    for variants in [false, true] {
        let which = |point: &&Point| matches!(point.kind(), Kind::Variant { .. }) == variants;
        points().filter(which).for_each(|point| point.enter_again(process));
    }
}

/// For [`copies`]: the gate to the process, which is made if need be; null if it cannot be.
pub(super) extern "C" fn gate_for_followers() -> *mut AtomicPtr<Process> {
    get().map_or(ptr::null_mut(), |_| GATE.load(Acquire))
}

/// For [`copies`]: why there will be no process, however often it is asked for; 0 while
/// there may be one.
pub(super) extern "C" fn failure_here() -> u64 {
    FAILED.load(Relaxed)
}

/// A start that failed, as one word.
struct Failed {
    stage: Stage,
    errno: i32,
}

impl Failed {
    /// Never 0.
    fn pack(&self) -> u64 {
        let stage = if self.stage == Stage::Process { 2 } else { 1 };
        stage << 32 | u64::from(self.errno.cast_unsigned())
    }

    fn unpack(word: u64) -> Self {
        let stage = if word >> 32 == 2 { Stage::Process } else { Stage::Segment };
        Self { stage, errno: (word as u32).cast_signed() }
    }
}

/// For [`crate::init`].
pub(crate) fn init() -> Result<(), InitError> {
    get().map(drop).ok_or_else(why_none)
}

/// For [`crate::ticks_per_second`].
pub(crate) fn ticks_per_second() -> f64 {
    match get() {
        Some(process) => process.refine_rate(),
        None => calibrate::refine(),
    }
    calibrate::ticks_per_second()
}

/// Why there is no process, for a caller that has just asked for it in vain.
fn why_none() -> InitError {
    match FAILED.load(Relaxed) {
        0 if owner::is_anothers() => InitError::BorrowedMemory,
        0 if cold::has_less_stack(STACK) => InitError::SmallStack,
        0 => InitError::Busy,
        failed => match Failed::unpack(failed) {
            Failed { stage: Stage::Process, errno } => InitError::NoPrivateMemory { errno },
            Failed { errno, .. } => InitError::NoSharedMemory { errno },
        },
    }
}

/// For [`copies`]: the process behind this gate becomes that of this copy too. False if
/// it was.
pub(super) extern "C" fn follow(gate: *mut AtomicPtr<Process>) -> bool {
    // Meets the loads in `current`, here and in the copy that made it.
    if GATE.swap(gate, AcqRel) == gate {
        return false;
    }
    if let Some(process) = current() {
        let missed = MISSED.swap(0, Relaxed);
        if process.settings.on_by_default {
            process.segment.ledger().begins_missed.fetch_add(missed, Relaxed);
        }
        enter_again(process);
    }
    true
}

/// Asks again where a signal came in between; whoever asks leaves nothing behind when it
/// fails.
fn uninterrupted<R>(mut ask: impl FnMut() -> io::Result<R>) -> io::Result<R> {
    /// None of these waits for anything, so no signal can keep it from its end for long.
    const TRIES: u32 = 16;
    for _ in 1..TRIES {
        match ask() {
            Err(error) if failure::errno_of(&error) == libc::EINTR => {}
            result => return result,
        }
    }
    ask()
}

fn this_exe() -> PathBuf {
    std::env::current_exe().unwrap_or_default()
}

/// Leaves a note of a start that came to nothing, or of a beacon that could not be made:
/// the host is not told, but whoever asks `pfp-top doctor` is.
fn note_failure(directory: &io::Result<Directory>, exe: &Path, stage: Stage, error: &io::Error) {
    // SAFETY: no preconditions.
    let pid = unsafe { libc::getpid() } as u32;
    let failure = Failure { pid, exe: exe.to_owned(), stage, errno: failure::errno_of(error) };
    // What keeps this from being noted is most often seen without a note.
    let _ = match directory {
        Ok(directory) => failure.note(directory),
        Err(_) => Directory::candidates()
            .iter()
            .map(|path| failure.note_at(path))
            .find(Result::is_ok)
            .unwrap_or(Ok(())),
    };
}

/// Makes a process of a new segment.
///
/// # Errors
///
/// What the system answered: it has no key for threads.
fn of_segment(segment: Segment, settings: &'static Settings) -> io::Result<&'static Process> {
    let exit_key = image::exit_key()?;
    let lanes = (0..=segment.geometry().lanes()).map(|_| AtomicPtr::default()).collect();
    Ok(Box::leak(Box::new(Process {
        segment,
        beacon: AtomicPtr::default(),
        // SAFETY: no preconditions.
        pid: unsafe { libc::getpid() },
        exit_key,
        lanes,
        outdated: AtomicBool::new(false),
        no_space_until: AtomicU64::new(0),
        spare_block: AtomicU64::new(0),
        settings,
        _inherited: AtomicPtr::new(NEWEST.load(Relaxed)),
        snapshot: settings.snapshot.as_ref().and_then(snapshot::Asked::path_at_exit),
        clearing: Turn::new(),
    })))
}

/// Fills the ledger of a segment that nobody can open yet.
fn fill(ledger: &Ledger, settings: &Settings, name: &str) {
    // Before a rung is chosen: the counter may turn out to stand still.
    let rate = calibrate::ticks_per_second();
    let kind = clock::choose(settings.clock.as_deref());
    ledger.set_name(name);
    ledger.run.store(settings.run, Relaxed);
    ledger.debug.store(u64::from(cfg!(debug_assertions)), Relaxed);
    ledger.clock_kind.store(kind as u64, Relaxed);
    ledger.system_clock.store(u64::from(counter::is_replaced()), Relaxed);
    ledger.invariant.store(u64::from(calibrate::is_invariant()), Relaxed);
    ledger.ticks_per_1000_s.store(thousand_seconds(rate), Relaxed);
    let reported = calibrate::reported_rate().map_or(0, thousand_seconds);
    ledger.reported_ticks_per_1000_s.store(reported, Relaxed);
    ledger.core_hz.store(calibrate::core_hz(rate).map_or(0, |hz| hz as u64), Relaxed);
}

/// A rate as the segment has it.
fn thousand_seconds(rate: f64) -> u64 {
    (rate * 1000.0) as u64
}

/// Maps private memory that reads zero in a forked child.
pub(crate) fn private_pages(bytes: usize) -> Option<*mut u8> {
    errno::kept(|| map_private(bytes).ok())
}

fn map_private(bytes: usize) -> io::Result<*mut u8> {
    // SAFETY: a new mapping, at a place of the kernel's choice.
    let pages = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE
                | libc::MAP_ANONYMOUS
                | if cfg!(miri) { 0 } else { libc::MAP_NORESERVE },
            -1,
            0,
        )
    };
    if pages == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // Miri knows neither that flag nor forks.
    if cfg!(miri) {
        return Ok(pages.cast());
    }
    // What is in there is nothing for a core dump; refused, it is in one.
    // SAFETY: advice about pages that we have just mapped.
    unsafe { libc::madvise(pages, bytes, libc::MADV_DONTDUMP) };
    // SAFETY: as above.
    if unsafe { libc::madvise(pages, bytes, libc::MADV_WIPEONFORK) } != 0 {
        let error = io::Error::last_os_error();
        // SAFETY: nobody has seen them yet.
        unsafe { libc::munmap(pages, bytes) };
        return Err(error);
    }
    Ok(pages.cast())
}

fn facts(id: u128, origin: calibrate::Instant) -> Facts {
    let identity = pfp_shm_layout::liveness::Identity::of_this_process();
    let exe = std::env::current_exe().unwrap_or_default();
    let mut host = [0u8; 64];
    // SAFETY: fills our array; the last byte stays zero.
    unsafe { libc::gethostname(host.as_mut_ptr().cast(), host.len() - 1) };
    let end = host.iter().position(|&byte| byte == 0).unwrap_or(0);
    Facts {
        id,
        boot_id: identity.boot,
        pid: identity.pid,
        start_time: identity.start,
        pid_namespace: identity.pidns,
        created_unix_ns: calibrate::unix_ns(),
        created_ticks: origin.ticks,
        created_monotonic_ns: origin.ns,
        exe: exe.to_string_lossy().into_owned(),
        host: String::from_utf8_lossy(&host[..end]).into_owned(),
    }
}

fn light_beacon(directory: &Directory, info: &Info, left: u64) -> io::Result<Beacon> {
    // What earlier runs left, before memory is taken; trouble with that is not this run's.
    let _ = find::sweep(directory, &info.exe, find::KEEP, left);
    Beacon::light(directory, info)
}

pub(super) extern "C" fn at_process_exit() {
    // Those that follow leave it to the copy that made it.
    if let Some(process) = current().filter(|_| !copies::follows()) {
        cold::section(|| process.end());
    }
}

/// Names the program, now or when its segment is made.
pub(crate) fn set_name(name: &str) {
    if !copies::name(name) {
        keep_name(name);
    }
}

/// For [`copies`].
///
/// # Safety
///
/// There are so many bytes, and they are UTF-8.
pub(super) unsafe extern "C" fn set_name_here(name: *const u8, bytes: usize) {
    // SAFETY: as the caller promises.
    keep_name(unsafe { str::from_utf8_unchecked(std::slice::from_raw_parts(name, bytes)) });
}

/// For [`copies`]: hands the name over that was given before there was a leader.
pub(super) fn pass_name_on() {
    let mut name = [0; MAX_NAME];
    let name = program_name(&mut name);
    if !name.is_empty() {
        copies::name(name);
    }
}

fn keep_name(name: &str) {
    let mut end = name.len().min(MAX_NAME);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    NAME.iter().zip(name[..end].bytes()).for_each(|(to, byte)| to.store(byte, Relaxed));
    // Meets the load in `program_name`.
    NAME_LEN.store(end, Release);
    if let Some(process) = current() {
        process.segment.ledger().set_name(name);
    }
}

/// The name that the program has given itself; empty for none.
fn program_name(to: &mut [u8; MAX_NAME]) -> &str {
    // Meets the store in `set_name`.
    let len = NAME_LEN.load(Acquire);
    to.iter_mut().zip(&NAME).for_each(|(to, byte)| *to = byte.load(Relaxed));
    str::from_utf8(&to[..len]).unwrap_or_default()
}

/// Switches every point off that is on, and those on again that this has switched
/// off; points that are registered meanwhile wait too.
pub(crate) fn pause(pause: bool) {
    copies::pause(pause);
}

/// The same of the points of this copy.
pub(super) extern "C" fn pause_here(pause: bool) {
    paused().store(pause, Relaxed);
    // Meets `pause_latecomer`: the point is in the list, or finds this.
    fence(SeqCst);
    points().filter(is_paused_with_all).for_each(|point| point.pause(pause));
}

/// Switches a point off or on that has just come into the list, if [`pause`] has gone
/// through that since it was entered into the table.
pub(crate) fn pause_latecomer(point: &'static Point) {
    /// Another one while this one is followed is rare, and a second one rarer.
    const TURNS: u32 = 64;
    if !is_paused_with_all(&point) {
        return;
    }
    for _ in 0..TURNS {
        // Meets `pause`.
        fence(SeqCst);
        let was_paused = paused().load(Relaxed);
        point.pause(was_paused);
        // It may have gone through the list before this was done.
        fence(SeqCst);
        if paused().load(Relaxed) == was_paused {
            return;
        }
    }
}

/// Whether [`pause`] has switched everything off.
fn paused() -> &'static AtomicBool {
    &copies::common().paused
}

/// Variants follow their whole, and the calibration is nobody's region.
fn is_paused_with_all(point: &&'static Point) -> bool {
    point.number() != Some(0) && !matches!(point.kind(), Kind::Variant { .. })
}

/// Whether [`pause`] has not switched everything off.
pub(crate) fn is_enabled() -> bool {
    !paused().load(Relaxed)
}

/// All points of this process.
pub(crate) fn points() -> impl Iterator<Item = &'static Point> {
    // SAFETY: the list holds statics only, and links are set before a point is
    // published in it.
    let at = |point: *mut Point| unsafe { point.as_ref() };
    std::iter::successors(at(POINTS.load(Acquire)), move |point| at(point.state.next.load(Acquire)))
}

/// The program's own points of these.
pub(crate) fn listed() -> impl Iterator<Item = &'static Point> {
    points().filter(|point| point.is_listed())
}

impl Process {
    /// Where another copy of pfp must expect what it uses.
    pub(super) const LAYOUT: [usize; 11] = [
        size_of::<Self>(),
        offset_of!(Self, pid),
        offset_of!(Self, exit_key),
        offset_of!(Self, lanes),
        offset_of!(Self, outdated),
        offset_of!(Self, no_space_until),
        offset_of!(Self, spare_block),
        offset_of!(Self, settings),
        offset_of!(Self, _inherited),
        offset_of!(Self, snapshot),
        offset_of!(Self, clearing),
    ];

    /// Whether regions are measured into it: not in a forked child.
    pub(crate) fn is_current(&self) -> bool {
        current().is_some_and(|process| ptr::eq(process, self))
    }

    /// Puts private memory in the place of the segment, in a forked child.
    fn detach(&self) {
        let this = ptr::from_ref(self).cast_mut();
        if DETACHED.swap(this, Relaxed) != this {
            self.segment.detach();
        }
    }

    /// Another thread has made the process meanwhile: nothing is left of this one but some of its
    /// memory, which others may look at.
    fn give_up(&self) {
        self.segment.unlink();
        let beacon = self.beacon.swap(ptr::null_mut(), Acquire);
        if !beacon.is_null() {
            // SAFETY: the box that was left there, taken by nobody else.
            let _ = unsafe { Box::from_raw(beacon) }.extinguish();
        }
        // What it has touched is given back.
        self.segment.detach();
    }

    /// What is left to do when the calling process ends in order.
    fn end(&self) {
        if !self.is_callers() {
            return;
        }
        self.segment.ledger().state.store(ProcessState::Exited as u64, Release);
        if let Some(path) = &self.snapshot {
            snapshot::write_at_exit(self, path);
        }
        // SAFETY: null, or the box that was left there, which is taken only below.
        let beacon = unsafe { self.beacon.load(Acquire).as_ref() };
        // Who watches all removes it after the last look.
        if beacon.is_some_and(Beacon::is_awaited) {
            return;
        }
        // What cannot be removed stays to be found.
        if self.is_current() && self.segment.unlink() {
            let beacon = self.beacon.swap(ptr::null_mut(), Acquire);
            if !beacon.is_null() {
                // SAFETY: the box that was left there, taken by nobody else.
                let _ = unsafe { Box::from_raw(beacon) }.remove();
            }
        }
    }

    /// Id of the process whose memory it is in.
    pub(super) fn pid(&self) -> libc::pid_t {
        self.pid
    }

    fn publish_rate(&self, ticks_per_second: f64) {
        let word = &self.segment.ledger().ticks_per_1000_s;
        word.store(thousand_seconds(ticks_per_second), Relaxed);
    }

    /// Takes blocks of the pool in a row, whose pages are to be
    /// [backed](Self::back); none if there are no more.
    pub(crate) fn take_blocks(&self, count: u64) -> Option<u64> {
        self.ask_for_space(|segment| segment.reserve_blocks(count).ok())
    }

    /// The same for one block, which can be [given back](Self::give_back).
    pub(crate) fn take_block(&self) -> Option<u64> {
        match self.spare_block.swap(0, Relaxed) {
            0 => self.take_blocks(1),
            block => Some(block),
        }
    }

    /// Takes back a block that nobody has used. There is place for one: more are
    /// lost, as many as threads fail at the same moment.
    pub(crate) fn give_back(&self, block: u64) {
        let _ = self.spare_block.compare_exchange(0, block, Relaxed, Relaxed);
    }

    /// Backs a range of the segment before it is touched. None if there is no
    /// space.
    pub(crate) fn back(&self, offset: usize, len: usize) -> Option<()> {
        self.ask_for_space(|segment| segment.back_or_count(offset, len).ok())
    }

    /// Asks unless there was none just now: each asking is a system call, or a
    /// fight for one word, in the host's regions.
    pub(super) fn ask_for_space<R>(&self, ask: impl FnOnce(&Segment) -> Option<R>) -> Option<R> {
        let now = counter::stamp();
        let a_while = self.segment.ledger().ticks_per_1000_s.load(Relaxed) / 1000 / 10;
        // No longer than that, also if the counter ran backwards.
        if (1..=a_while).contains(&self.no_space_until.load(Relaxed).wrapping_sub(now)) {
            return None;
        }
        let found = errno::kept(|| ask(&self.segment));
        if found.is_none() {
            self.no_space_until.store(now.wrapping_add(a_while), Relaxed);
        }
        found
    }

    /// Makes the rate more exact, if enough time has passed for that to be
    /// worth it. Cold paths call this.
    pub(crate) fn refine_rate(&self) {
        calibrate::refine();
        self.publish_rate(calibrate::ticks_per_second());
    }

    /// Says which rung of the clock is in force, and what measuring costs on it:
    /// a rung has turned out not to work.
    pub(crate) fn take_rung(&self) {
        self.tell_rung();
        copies::calibrate();
    }

    /// Whether a point measures without being switched on.
    fn starts_on(&self, point: &Point) -> bool {
        let (name, ..) = point.description();
        (point.starts_on() && self.settings.on_by_default) || self.settings.enabled_names.have(name)
    }

    /// The same, for whoever is in the middle of something: what measuring costs is
    /// left to the [next that is not](Self::catch_up).
    pub(crate) fn take_rung_later(&self) {
        self.tell_rung();
        self.outdated.store(true, Relaxed);
    }

    /// Measures what measuring costs, if that has changed.
    pub(crate) fn catch_up(&self) {
        if self.outdated.load(Relaxed) && self.outdated.swap(false, Relaxed) {
            copies::calibrate();
        }
    }

    fn tell_rung(&self) {
        let ledger = self.segment.ledger();
        ledger.clock_kind.store(clock::kind() as u64, Relaxed);
        ledger.system_clock.store(u64::from(counter::is_replaced()), Relaxed);
    }

    /// Reserves a number in the table: the wanted one, or any. Whoever finds no memory for
    /// that may try again, and is not told to each time.
    fn reserve(&self, wanted: Option<u32>) -> Result<usize, NotEntered> {
        let wanted = wanted.map(|number| number as usize);
        let used = self.segment.ledger().points_used.load(Relaxed) as usize;
        let reserve = |segment: &Segment| segment.reserve_point(wanted, FIRST_NAMED);
        if wanted.unwrap_or(used.max(FIRST_NAMED)) >= self.segment.geometry().points() {
            return reserve(&self.segment).ok_or(NotEntered::NoPlace);
        }
        self.ask_for_space(reserve).ok_or(NotEntered::NoMemory)
    }

    /// Enters a point and returns its control word. A point of a parent's keeps its number
    /// and starts with the parent's word. Several threads may enter a point at once: one
    /// decides what its number is, and numbers that others have reserved stay unused.
    pub(crate) fn enter(
        &self,
        point: &Point,
        inherited: Option<Control>,
    ) -> Result<&AtomicU64, NotEntered> {
        let wanted = point.wanted_number();
        let (name, file, line) = point.description();
        let line = u64::from(line) | point.time_source();
        let number = self.reserve(wanted)?;
        let control = self.segment.control(number).ok_or(NotEntered::NoPlace)?;
        let calibration = wanted == Some(0);
        let initial = if let Some(before) = inherited {
            before
        } else if calibration || self.starts_on(point) {
            Control::default().with(Change::Enable)
        } else {
            Control::default()
        };
        let is_fenced = !calibration && (self.settings.fence || point.is_fenced());
        let initial = if is_fenced { initial.with(Change::Fence(true)) } else { initial };
        let initial = if initial.enabled() && !calibration && paused().load(Relaxed) {
            point.start_paused();
            initial.with(Change::Disable)
        } else {
            initial
        };
        // A viewer may have been faster.
        let _ = control.compare_exchange(0, initial.0, Relaxed, Relaxed);
        // Resets of a parent's point were before this segment: its figures begin now.
        if let Some(time) = self.segment.reset_time(number)
            && initial.epoch() != 0
        {
            let now = control::reset_word(initial.epoch(), calibrate::monotonic_ns());
            let _ = time.compare_exchange(0, now, Relaxed, Relaxed);
        }
        let number = self.decide_number(point, number)?;
        self.segment.announce_point(number, name, file, line);
        self.segment.control(number).ok_or(NotEntered::NoPlace)
    }

    /// Enters a variant of the point of that number and returns the control word, which is
    /// that point's.
    pub(crate) fn enter_variant(
        &self,
        variant: &Point,
        of: usize,
        amounts: &str,
    ) -> Result<&AtomicU64, NotEntered> {
        let number = self.reserve(variant.wanted_number())?;
        let number = self.decide_number(variant, number)?;
        self.segment.announce_variant(number, of, amounts);
        self.segment.control(of).ok_or(NotEntered::NoPlace)
    }

    /// The number that a point has from now on. In a child that was forked meanwhile it
    /// must not be the parent's.
    fn decide_number(&self, point: &Point, reserved: usize) -> Result<usize, NotEntered> {
        if !self.is_current() {
            return Err(NotEntered::Forked);
        }
        Ok(point.decide_number(reserved as u32) as usize)
    }
}

/// For [`copies`]: measures what measuring costs in this copy.
pub(super) extern "C" fn calibrate_here() {
    super::calibrate::calibrate(CALIBRATION_PAIRS);
}

/// Why a point is not in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotEntered {
    /// It is full.
    NoPlace,
    /// There was no memory for it just now.
    NoMemory,
    /// The process has been forked meanwhile, and this is the child.
    Forked,
}

/// Counts a begin that could not be measured.
#[cold]
pub(crate) fn miss() {
    if let Some(process) = current() {
        process.segment.ledger().begins_missed.fetch_add(1, Relaxed);
    }
}

/// The same for one whose point could not be registered: a signal handler has
/// interrupted that, or the making of the process, on its own thread. Nobody can have
/// switched the point on or off by then.
#[cold]
pub(crate) fn miss_unregistered(point: &'static Point) {
    match current() {
        Some(process) if process.starts_on(point) => miss(),
        Some(_) => {}
        None if point.starts_on() && FAILED.load(Relaxed) == 0 => {
            MISSED.fetch_add(1, Relaxed);
        }
        None => {}
    }
}

/// A word of a refused point: off for good.
pub(crate) static REFUSED: AtomicU64 = AtomicU64::new(0);
