//! The process: one segment, made when the first point is met.
//!
//! Everything here is off the hot path. A thread that needs the process while
//! another is just making it waits for that (below a millisecond); a signal
//! handler that interrupts the making on its own thread measures nothing
//! instead.

use std::io;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    fence,
};

use pfp_shm_layout::beacon::{Beacon, Info};
use pfp_shm_layout::control::{Change, Control};
use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::failure::{self, Failure, Stage};
use pfp_shm_layout::find;
use pfp_shm_layout::header::{Facts, ProcessState};
use pfp_shm_layout::object::Name;
use pfp_shm_layout::point::DEVICE;
use pfp_shm_layout::segment::{Config, Segment};

use super::copies;
use super::names::Names;
use super::owner;
use super::thread::{self, Thread};
use crate::clock::{self, calibrate, counter};
use crate::errno;
use crate::point::{FIRST_NAMED, Kind, Point};
use crate::snapshot;

const PAGE: usize = 4096;
/// What a more exact rate may differ from the first one by, which is good to some
/// 100 ppm. As a share.
const RATE_NEAR: f64 = 0.005;
/// Pairs that the automatic calibration runs.
const CALIBRATION_PAIRS: u32 = 512;

/// A process's segment and what belongs to it.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) segment: Segment,
    /// Taken out and put out when the process ends in order.
    beacon: Mutex<Option<Beacon>>,
    pid: libc::pid_t,
    /// Ends with the threads: its destructor releases their lanes.
    pub(crate) exit_key: libc::pthread_key_t,
    /// The private state of each lane, kept over the lane's owners.
    pub(crate) lanes: Box<[AtomicPtr<Thread>]>,
    /// First instant on both clocks: the longer ago, the better the rate. In two
    /// words, which whoever has set `refined_ns` may write.
    origin_ticks: AtomicU64,
    origin_ns: AtomicU64,
    /// When the rate was last made more exact, nanoseconds after the origin.
    refined_ns: AtomicU64,
    /// Whether measuring costs something else than what is known.
    outdated: AtomicBool,
    /// The counter before which no space is asked for again.
    no_space_until: AtomicU64,
    /// A block that was taken and could not be backed; 0 for none.
    spare_block: AtomicU64,
    /// Whether points named in the source measure from the start.
    on_by_default: bool,
    /// Which do in any case, by name.
    enabled_names: Names,
    /// That of the parent that this process was forked from, if it had one.
    _inherited: AtomicPtr<Process>,
    /// Where the last figures go when the process ends in order.
    snapshot: Option<PathBuf>,
}

/// Keeps what is never freed within reach of a leak checker, which does not look
/// behind the gate.
static NEWEST: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// Points to the process through a page that reads zero in a forked child, also
/// after a raw clone that runs no handler: what a child inherits is not its own.
static GATE: AtomicPtr<AtomicPtr<Process>> = AtomicPtr::new(ptr::null_mut());

const UNMADE: i32 = 0;
const FAILED: i32 = -1;
/// `UNMADE`, `FAILED`, `MADE`, or the thread that is making it.
static MAKING: AtomicI32 = AtomicI32::new(UNMADE);
const MADE: i32 = i32::MAX;

/// Begins that were missed while there was no segment to count them in, of points
/// that start on.
static MISSED: AtomicU64 = AtomicU64::new(0);

/// The points of this process, a list through [`Point::next`].
pub(crate) static POINTS: AtomicPtr<Point> = AtomicPtr::new(ptr::null_mut());

/// The name the program gave itself before there was a segment. Only ever tried,
/// not waited for: a fork may have left it locked.
static NAME: Mutex<Option<String>> = Mutex::new(None);

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
    if MAKING.load(Acquire) == FAILED {
        return None;
    }
    errno::kept(make_or_wait)
}

#[cold]
fn make_or_wait() -> Option<&'static Process> {
    if owner::is_anothers() {
        return None;
    }
    let me = thread::tid() as i32;
    for () in turns() {
        if let Some(process) = current() {
            return Some(process);
        }
        let state = MAKING.load(Acquire);
        if state == FAILED || state == me {
            return None;
        }
        // `MADE` without a process behind the gate: we are a forked child.
        if (state == UNMADE || state == MADE)
            && MAKING.compare_exchange(state, me, Acquire, Relaxed).is_ok()
        {
            let made = copies::join().unwrap_or_else(make);
            let state = match made {
                Some(_) => MADE,
                None if copies::may_come() => UNMADE,
                None => FAILED,
            };
            MAKING.store(state, Release);
            return made;
        }
        // The maker may have been forked away from us: its child never makes
        // it. Only a thread that lives in this process can be waited for.
        if state > 0 && state != MADE && !thread::exists(state as u32) {
            let _ = MAKING.compare_exchange(state, UNMADE, Relaxed, Relaxed);
        }
        // SAFETY: yields.
        unsafe { libc::sched_yield() };
    }
    None
}

/// The turns that a thread takes while it waits for another one of its process: a
/// second of them, so that nothing can hang the host. In time and not in number, since
/// on a busy machine the other one may be off its CPU for long, and a region of whoever
/// gives up is not measured; in number as well, in case the clock stands still.
pub(crate) fn turns() -> impl Iterator<Item = ()> {
    const NS: u64 = 1_000_000_000;
    const MOST: u32 = 100_000_000;
    let start = calibrate::monotonic_ns();
    (0..MOST)
        .take_while(move |turn| {
            !turn.is_multiple_of(64) || calibrate::monotonic_ns().saturating_sub(start) < NS
        })
        .map(|_| ())
}

fn make() -> Option<&'static Process> {
    if !counter::is_steady_here() {
        // From here on a tick is a nanosecond.
        counter::replace(calibrate::monotonic_ns());
    }
    let origin = calibrate::instant();
    let name = NAME.try_lock().ok().and_then(|name| name.clone());
    let directory = uninterrupted(Directory::for_this_process);
    let object = match Name::random() {
        Ok(object) => object,
        Err(error) => {
            note_failure(&directory, &this_exe(), Stage::Segment, &error);
            return None;
        }
    };
    // The beacon first: killed at any moment, the process leaves no object that
    // nobody can find.
    let info = Info::of_this_process(object, name.as_deref().unwrap_or(""));
    let beacon = match &directory {
        Ok(directory) => uninterrupted(|| light_beacon(directory, &info)),
        Err(error) => Err(io::Error::from_raw_os_error(failure::errno_of(error))),
    };
    let facts = facts(object.id(), origin);
    let made = uninterrupted(|| Segment::create(object, config(), &facts))
        .map_err(|error| (Stage::Segment, error))
        .and_then(|segment| {
            let made = publish(segment, origin, name.as_deref());
            made.map_err(|error| (Stage::Process, error))
        });
    let trouble = match (&made, &beacon) {
        (Err((stage, error)), _) => Some((*stage, error)),
        (Ok(_), Err(error)) => Some((Stage::Beacon, error)),
        (Ok(_), Ok(_)) => None,
    };
    match (trouble, &directory) {
        (Some((stage, error)), _) => note_failure(&directory, &info.exe, stage, error),
        (None, Ok(directory)) => failure::forget(directory, &info.exe),
        (None, Err(_)) => {}
    }
    let is_taken = matches!(&made, Err((Stage::Segment, error)) if error.kind() == io::ErrorKind::AlreadyExists);
    let beacon = beacon.ok();
    let Ok((process, gate)) = made else {
        // What has that name already is somebody's; what cannot be removed stays to be
        // found.
        if is_taken || pfp_shm_layout::object::unlink_if_there(&object) {
            beacon.map(Beacon::extinguish);
        }
        return None;
    };
    if let Ok(mut kept) = process.beacon.try_lock() {
        *kept = beacon;
    }
    // SAFETY: the gate is a page of our own.
    unsafe { (*gate).store((&raw const *process).cast_mut(), Release) };
    GATE.store(gate, Release);
    let missed = MISSED.swap(0, Relaxed);
    if process.on_by_default {
        process.segment.ledger().begins_missed.fetch_add(missed, Relaxed);
    }
    // SAFETY: registers a function that may be called at any time.
    unsafe { libc::atexit(at_process_exit) };

    enter_again(process);
    copies::lead(gate);
    super::measure::calibrate(CALIBRATION_PAIRS);
    Some(process)
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

/// For [`copies`]: whether there will be no process, however often it is asked for.
pub(super) extern "C" fn has_failed() -> bool {
    MAKING.load(Acquire) == FAILED
}

/// For [`copies`]: the process behind this gate becomes that of this copy too.
pub(super) extern "C" fn follow(gate: *mut AtomicPtr<Process>) {
    // Meets the loads in `current`, here and in the copy that made it.
    if GATE.swap(gate, AcqRel) == gate {
        return;
    }
    let Some(process) = current() else { return };
    let missed = MISSED.swap(0, Relaxed);
    if process.on_by_default {
        process.segment.ledger().begins_missed.fetch_add(missed, Relaxed);
    }
    enter_again(process);
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

/// Makes a process of a new segment, and the gate that will lead to it.
///
/// # Errors
///
/// What the system answered: it has no more private memory, or no key for threads.
fn publish(
    segment: Segment,
    origin: calibrate::Instant,
    name: Option<&str>,
) -> io::Result<(&'static Process, *mut AtomicPtr<Process>)> {
    let ledger = segment.ledger();
    ledger.set_name(name.unwrap_or(""));

    let rate = match calibrate::first_rate(origin) {
        _ if counter::is_replaced() => 1e9,
        Some(rate) => rate,
        None => {
            // It stood still or jumped, before anything was measured.
            counter::replace(origin.ticks);
            1e9
        }
    };
    let kind = clock::choose(std::env::var("PFP_CLOCK").ok().as_deref());
    ledger.clock_kind.store(kind as u64, Relaxed);
    ledger.system_clock.store(u64::from(counter::is_replaced()), Relaxed);
    ledger.invariant.store(u64::from(calibrate::is_invariant()), Relaxed);

    let gate = gate()?;
    let mut exit_key = 0;
    // SAFETY: makes a key with a destructor of the right type.
    let refused =
        unsafe { libc::pthread_key_create(&raw mut exit_key, Some(thread::at_thread_exit)) };
    if refused != 0 {
        // SAFETY: nobody has seen the page yet.
        unsafe { libc::munmap(gate.cast(), PAGE) };
        return Err(io::Error::from_raw_os_error(refused));
    }
    let lanes = (0..=segment.geometry().lanes()).map(|_| AtomicPtr::default()).collect();
    let process = Box::leak(Box::new(Process {
        segment,
        beacon: Mutex::new(None),
        // SAFETY: no preconditions.
        pid: unsafe { libc::getpid() },
        exit_key,
        lanes,
        origin_ticks: AtomicU64::new(origin.ticks),
        origin_ns: AtomicU64::new(origin.ns),
        refined_ns: AtomicU64::new(0),
        outdated: AtomicBool::new(false),
        no_space_until: AtomicU64::new(0),
        spare_block: AtomicU64::new(0),
        on_by_default: std::env::var_os("PFP_DEFAULT").is_none_or(|value| value != "off"),
        enabled_names: Names::new(&std::env::var("PFP_ENABLE").unwrap_or_default()),
        _inherited: AtomicPtr::new(NEWEST.load(Relaxed)),
        snapshot: snapshot::path_at_exit(),
    }));
    NEWEST.store(ptr::from_mut(process), Relaxed);
    process.set_rate(rate);
    let ledger = process.segment.ledger();
    let thousand_seconds = |rate: f64| (rate * 1000.0) as u64;
    let reported = calibrate::reported_rate().map_or(0, thousand_seconds);
    ledger.reported_ticks_per_1000_s.store(reported, Relaxed);
    ledger.core_hz.store(calibrate::core_hz(rate).map_or(0, |hz| hz as u64), Relaxed);
    Ok((process, gate))
}

/// A private page that a forked child sees as zeros.
fn gate() -> io::Result<*mut AtomicPtr<Process>> {
    uninterrupted(|| map_private(PAGE)).map(<*mut u8>::cast)
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
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if pages == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: advice about pages that we have just mapped.
    if unsafe { libc::madvise(pages, bytes, libc::MADV_WIPEONFORK) } != 0 {
        let error = io::Error::last_os_error();
        // SAFETY: nobody has seen them yet.
        unsafe { libc::munmap(pages, bytes) };
        return Err(error);
    }
    Ok(pages.cast())
}

fn config() -> Config {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    let standard = Config::default();
    Config {
        points: number("PFP_POINTS").unwrap_or(standard.points),
        lanes: number("PFP_LANES").unwrap_or(standard.lanes),
        blocks: number("PFP_MEMORY_MB").map_or(standard.blocks, |mb| mb.saturating_mul(64)),
        ..standard
    }
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

fn light_beacon(directory: &Directory, info: &Info) -> io::Result<Beacon> {
    // What earlier runs left; trouble with that is not this run's.
    let _ = find::sweep(directory, &info.exe, find::KEEP);
    Beacon::light(directory, info)
}

extern "C" fn at_process_exit() {
    let Some(process) = current() else { return };
    if !process.is_callers() {
        return;
    }
    process.segment.ledger().state.store(ProcessState::Exited as u64, Release);
    if let Some(path) = &process.snapshot {
        snapshot::write_at_exit(process, path);
    }
    // What cannot be removed stays to be found.
    if process.segment.unlink() {
        let beacon = process.beacon.try_lock().ok().and_then(|mut beacon| beacon.take());
        beacon.map(Beacon::extinguish);
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
    let name = NAME.try_lock().ok().and_then(|mut name| name.take());
    if let Some(name) = name {
        copies::name(&name);
    }
}

fn keep_name(name: &str) {
    if let Ok(mut kept) = NAME.try_lock() {
        *kept = Some(name.to_owned());
    }
    if let Some(process) = current() {
        process.segment.ledger().set_name(name);
    }
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
    std::iter::successors(at(POINTS.load(Acquire)), move |point| at(point.next.load(Acquire)))
}

impl Process {
    /// Where another copy of pfp must expect what it uses.
    pub(super) const LAYOUT: [usize; 6] = [
        size_of::<Self>(),
        offset_of!(Self, lanes),
        offset_of!(Self, no_space_until),
        offset_of!(Self, on_by_default),
        offset_of!(Self, enabled_names),
        size_of::<Names>(),
    ];

    /// Id of the process whose memory it is in.
    pub(super) fn pid(&self) -> libc::pid_t {
        self.pid
    }

    fn set_rate(&self, ticks_per_second: f64) {
        self.segment.ledger().ticks_per_1000_s.store((ticks_per_second * 1000.0) as u64, Relaxed);
        calibrate::set_ticks_per_ns(ticks_per_second / 1e9);
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
    fn ask_for_space<R>(&self, ask: impl FnOnce(&Segment) -> Option<R>) -> Option<R> {
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
        if counter::is_replaced() {
            return;
        }
        let origin = calibrate::Instant {
            ticks: self.origin_ticks.load(Relaxed),
            ns: self.origin_ns.load(Relaxed),
        };
        let now_ns = calibrate::monotonic_ns().saturating_sub(origin.ns);
        let refined_ns = self.refined_ns.load(Relaxed);
        if now_ns < refined_ns.saturating_mul(2).max(2_000_000)
            || self.refined_ns.compare_exchange(refined_ns, now_ns, Relaxed, Relaxed).is_err()
        {
            return;
        }
        let now = calibrate::instant();
        let known = self.segment.ledger().ticks_per_1000_s.load(Relaxed) as f64 / 1000.0;
        match calibrate::rate_between(origin, now) {
            Some(rate) if (rate / known - 1.0).abs() < RATE_NEAR => self.set_rate(rate),
            // One of the clocks went on while the other did not, as in a suspended
            // machine: what was known holds, and is made more exact from here on.
            _ => {
                self.origin_ticks.store(now.ticks, Relaxed);
                self.origin_ns.store(now.ns, Relaxed);
                self.refined_ns.store(0, Relaxed);
            }
        }
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
        (point.starts_on() && self.on_by_default) || self.enabled_names.have(name)
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

    /// Enters a point and returns its number and control word.
    /// A point of a parent's keeps its number and starts with the parent's word.
    pub(crate) fn enter(
        &self,
        point: &Point,
        inherited: Option<Control>,
    ) -> Option<(u32, &AtomicU64)> {
        let wanted = point.number();
        let (name, file, line) = point.description();
        let line = u64::from(line) | if point.is_device() { DEVICE } else { 0 };
        let number =
            self.segment.enter_point(wanted.map(|n| n as usize), FIRST_NAMED, name, file, line)?;
        let control = self.segment.control(number)?;
        let calibration = wanted == Some(0);
        let initial = if let Some(before) = inherited {
            before
        } else if calibration || self.starts_on(point) {
            Control::default().with(Change::Enable)
        } else {
            Control::default()
        };
        let initial = if initial.enabled() && !calibration && paused().load(Relaxed) {
            point.start_paused();
            initial.with(Change::Disable)
        } else {
            initial
        };
        // A viewer may have been faster.
        let _ = control.compare_exchange(0, initial.0, Relaxed, Relaxed);
        Some((number as u32, control))
    }

    /// Enters a variant of the point of that number and returns its number, and the
    /// control word, which is that point's.
    pub(crate) fn enter_variant(
        &self,
        variant: &Point,
        of: usize,
        amounts: &str,
    ) -> Option<(u32, &AtomicU64)> {
        let wanted = variant.number().map(|n| n as usize);
        let number = self.segment.enter_variant(wanted, FIRST_NAMED, of, amounts)?;
        Some((number as u32, self.segment.control(of)?))
    }
}

/// For [`copies`]: measures what measuring costs in this copy.
pub(super) extern "C" fn calibrate_here() {
    super::measure::calibrate(CALIBRATION_PAIRS);
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
        None if point.starts_on() && MAKING.load(Relaxed) != FAILED => {
            MISSED.fetch_add(1, Relaxed);
        }
        None => {}
    }
}

/// A word of a refused point: off for good.
pub(crate) static REFUSED: AtomicU64 = AtomicU64::new(0);
