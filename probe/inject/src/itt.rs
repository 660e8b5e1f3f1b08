//! ITT: tasks, regions, frames, events, counters, markers, and waiting for what is shared.
//!
//! Each object of a program has a copy of the client, which loads this library when it is first
//! used and hands over a list of functions to be filled. Its macros look at the flags of a
//! domain before they call; [`rest`] clears them while all points of a domain are off.

mod abi;
mod counters;
mod rest;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use abi::{Global, Id};

use pfp::own::heap::{self, ShortText};
use pfp::stack;
use pfp::table::{Once, Table, mix};

use crate::names::{Domain, Kind, Named, ROOM, Text, named, paired};
use crate::{get_ready, name_thread, ompt, spans};

const SYSTEM: &str = "itt";
/// LLVM's OpenMP tells its regions here too.
const OF_OPENMP: &str = "$omp$";
/// So do its locks and barriers.
const OPENMP_KIND: &str = "OMP ";

/// Objects that clients and we have made, by their addresses.
const MAX_OBJECTS: usize = 8192;

/// Fills the functions of a client.
///
/// # Safety
///
/// The client's, which has not begun to use them.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __itt_api_init(all: *mut Global, _groups: c_int) {
    // SAFETY: the client's, or null.
    let Some(global) = (unsafe { all.as_ref() }) else { return };
    if global.magic != abi::MAGIC {
        return;
    }
    get_ready();
    let mut info = global.functions;
    // SAFETY: the list ends with an element without a name.
    while let Some(one) = unsafe { info.as_ref() }.filter(|one| !one.name.is_null()) {
        // SAFETY: the client's own text.
        let name = unsafe { CStr::from_ptr(one.name) };
        // SAFETY: the client's pointer to the function.
        unsafe { *one.function = function(name.to_bytes()).unwrap_or(one.null) };
        // SAFETY: that was not the last one.
        info = unsafe { info.add(1) };
    }
    if global.version[2] >= abi::LATER {
        // SAFETY: it is one of these.
        counters::adopt(unsafe { (*all.cast::<abi::Later>()).counters });
    }
}

/// Programs ask whether there is a collector at all.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __itt_api_version() -> *const c_char {
    c"pfp".as_ptr()
}

macro_rules! functions {
    ($($name:literal => $function:path;)*) => {
        /// Our function of a name.
        fn function(name: &[u8]) -> Option<*const c_void> {
            let name = name.strip_prefix(b"__itt_")?;
            $(if name == $name.as_bytes() { return Some($function as *const c_void); })*
            None
        }
    };
}

functions! {
    "api_version" => __itt_api_version;
    "domain_create" => domain_create;
    "domain_createA" => domain_create;
    "string_handle_create" => string_handle_create;
    "string_handle_createA" => string_handle_create;
    "task_begin" => task_begin;
    "task_begin_fn" => task_begin_function;
    "task_end" => task_end;
    "task_begin_overlapped" => span_begin;
    "task_end_overlapped" => span_end;
    "region_begin" => span_begin;
    "region_end" => span_end;
    "frame_begin_v3" => frame_begin;
    "frame_end_v3" => frame_end;
    "frame_submit_v3" => frame_submit;
    "get_timestamp" => get_timestamp;
    "marker" => marker;
    "event_create" => event_create;
    "event_createA" => event_create;
    "event_start" => event_start;
    "event_end" => event_end;
    "counter_create" => counters::create;
    "counter_createA" => counters::create;
    "counter_create_typed" => counters::create_typed;
    "counter_create_typedA" => counters::create_typed;
    "counter_create_v3" => counters::create_in;
    "counter_createA_v3" => counters::create_in;
    "counter_inc" => counters::inc;
    "counter_inc_delta" => counters::inc_delta;
    "counter_inc_v3" => counters::inc_in;
    "counter_inc_delta_v3" => counters::inc_delta_in;
    "counter_dec" => counters::dec;
    "counter_dec_delta" => counters::dec_delta;
    "counter_dec_v3" => counters::dec_in;
    "counter_dec_delta_v3" => counters::dec_delta_in;
    "counter_set_value" => counters::set_value;
    "counter_set_value_ex" => counters::set_value_at;
    "counter_set_value_v3" => counters::set_value;
    "thread_set_name" => thread_set_name;
    "thread_set_nameA" => thread_set_name;
    "sync_create" => sync_create;
    "sync_createA" => sync_create;
    "sync_set_name" => sync_create;
    "sync_set_nameA" => sync_create;
    "sync_rename" => sync_rename;
    "sync_renameA" => sync_rename;
    "sync_prepare" => sync_prepare;
    "sync_cancel" => sync_done;
    "sync_acquired" => sync_done;
    "fsync_prepare" => sync_prepare;
    "fsync_cancel" => sync_done;
    "fsync_acquired" => sync_done;
    "notify_sync_prepare" => sync_prepare;
    "notify_sync_cancel" => sync_done;
    "notify_sync_acquired" => sync_done;
}

/// What an object of a client's or ours stands for, by its address. It lives for ever.
struct Known<T: 'static> {
    address: usize,
    is: T,
}

static DOMAINS: Table<Known<Option<&'static Domain>>, { 2 * MAX_OBJECTS }> = Table::new();
static HANDLES: Table<Known<&'static Text>, { 2 * MAX_OBJECTS }> = Table::new();
static SYNCS: Table<Known<AtomicPtr<Text>>, { 2 * MAX_OBJECTS }> = Table::new();

#[inline]
fn known<T, const SLOTS: usize>(
    table: &Table<Known<T>, SLOTS>,
    address: usize,
    make: impl FnOnce() -> T,
) -> Option<&'static T> {
    let is = |it: &Known<T>| it.address == address;
    let found = table.get(mix(address as u64), MAX_OBJECTS, is, || Known { address, is: make() });
    found.map(|known| &known.is)
}

/// The domain of a client's; none if it is off, or OpenMP tells of the same to its own tools.
///
/// # Safety
///
/// It is null or a domain.
#[inline]
unsafe fn domain(its: *const abi::Domain) -> Option<&'static Domain> {
    // SAFETY: as the caller says.
    let its = unsafe { its.as_ref() }.filter(|its| is_on(its))?;
    let make = || {
        // SAFETY: the client's text, which stays.
        let name = unsafe { Text::of_c(its.rest.name) }.name();
        let is_told_twice = ompt::is_on() && name.contains(OF_OPENMP);
        (!is_told_twice).then(|| Domain::of(SYSTEM, name))
    };
    // One that has no room is found by its name each time.
    known(&DOMAINS, ptr::from_ref(its).addr(), make).map_or_else(make, |known| *known)
}

/// Whether the program has left a domain on.
#[inline]
fn is_on(its: &abi::Domain) -> bool {
    its.flags.load(Relaxed) != 0 || rest::of(its).is_some_and(|rest| rest.rests())
}

/// The text of a handle.
///
/// # Safety
///
/// It is null or a handle.
#[inline]
unsafe fn text(handle: *const abi::Handle) -> &'static Text {
    // SAFETY: as the caller says; the client's text, which stays.
    let make = || unsafe { handle.as_ref().map_or(Text::of(b""), |it| Text::of_c(it.name)) };
    known(&HANDLES, handle.addr(), make).copied().unwrap_or_else(make)
}

/// Something that clients look into, one for a text, for good.
struct Made<T> {
    text: &'static Text,
    /// The text as C has it.
    _name: CString,
    is: *const T,
}

// SAFETY: `is` points to an object that is never freed, and in which clients write only the flags,
// an atomic word.
unsafe impl<T> Sync for Made<T> {}
// SAFETY: an object of a client may be used on any thread, for the reason given for `Sync`.
unsafe impl<T> Send for Made<T> {}

impl<T> Made<T> {
    fn of(
        table: &Table<Self, { 2 * MAX_OBJECTS }>,
        name: *const c_char,
        make: impl FnOnce(*const c_char, &'static Text) -> Option<*const T>,
    ) -> *const T {
        // SAFETY: the client's text.
        let text = unsafe { Text::of_c(name) };
        let hash = mix(ptr::from_ref(text).addr() as u64);
        let made = table.try_get(
            hash,
            MAX_OBJECTS,
            |it| ptr::eq(it.text, text),
            || {
                let name = heap::c_string(&[text.name().as_bytes()]).ok()?;
                let is = make(name.as_ptr(), text)?;
                Some(Self { text, _name: name, is })
            },
        );
        made.map_or(ptr::null(), |made| made.is)
    }
}

unsafe extern "C" fn domain_create(name: *const c_char) -> *const abi::Domain {
    static MADE: Table<Made<abi::Domain>, { 2 * MAX_OBJECTS }> = Table::new();
    Made::of(&MADE, name, |name, text| rest::make(name, Domain::of(SYSTEM, text.name())))
}

unsafe extern "C" fn string_handle_create(name: *const c_char) -> *const abi::Handle {
    static MADE: Table<Made<abi::Handle>, { 2 * MAX_OBJECTS }> = Table::new();
    let none = ptr::null();
    Made::of(&MADE, name, |name, _| {
        let handle = abi::Handle { name, wide_name: none, extra: 0, more: none, next: ptr::null() };
        heap::boxed(handle).ok().map(|handle| Box::into_raw(handle).cast_const())
    })
}

/// Begins a task of a name.
#[inline]
fn begin_task(its: &abi::Domain, named: &'static Named) {
    let owner = ptr::from_ref(its).addr();
    let rest = rest::of(its);
    if let Some(rest) = rest {
        if !named.is_on() && rest.is_off() {
            return;
        }
        rest.task_begins();
    }
    if stack::push(owner, |open| named.begin(open, 0)).is_none()
        && let Some(rest) = rest
    {
        rest.task_ends();
    }
}

unsafe extern "C" fn task_begin(
    its: *const abi::Domain,
    _id: Id,
    _parent: Id,
    name: *const abi::Handle,
) {
    // SAFETY: as the client calls it.
    let find = || unsafe { named(domain(its)?, text(name), Kind::Region) };
    // One that is off now may be on later.
    // SAFETY: as above.
    if let Some(domain) = unsafe { its.as_ref() }.filter(|its| is_on(its))
        && let Some(named) = paired([its.addr(), name.addr()], Kind::Region.number(), find)
    {
        begin_task(domain, named);
    }
}

unsafe extern "C" fn task_begin_function(
    its: *const abi::Domain,
    _id: Id,
    _parent: Id,
    function: *const c_void,
) {
    let address = ShortText::<32>::of(format_args!("{function:p}"));
    // SAFETY: the client passes null, or a domain that this library made and never frees.
    if let Some((its, domain)) = unsafe { its.as_ref().zip(domain(its)) }
        && let Some(named) = named(domain, Text::of(address.as_bytes()), Kind::Region)
    {
        begin_task(its, named);
    }
}

unsafe extern "C" fn task_end(its: *const abi::Domain) {
    if stack::pop(its.addr()).is_some()
        // SAFETY: as the client calls it.
        && let Some(rest) = unsafe { its.as_ref() }.and_then(rest::of)
    {
        rest.task_ends();
    }
}

/// Begins a span of a domain, found again by an id of the client's.
///
/// # Safety
///
/// As [`domain`].
unsafe fn begin(its: *const abi::Domain, id: [u64; 3], text: &'static Text) {
    // SAFETY: as the caller says.
    if let Some((known, domain)) = unsafe { its.as_ref().zip(domain(its)) }
        && let Some(named) = named(domain, text, Kind::Span)
    {
        let rest = rest::of(known);
        if let Some(rest) = rest {
            if !named.is_on() && rest.is_off() {
                return;
            }
            rest.span_begins();
        }
        if !spans::begin(span(its, id), named, 0)
            && let Some(rest) = rest
        {
            rest.span_ends();
        }
    }
}

/// Ends a span of a domain.
///
/// # Safety
///
/// As [`domain`].
unsafe fn end(its: *const abi::Domain, id: [u64; 3]) {
    if spans::end(span(its, id))
        // SAFETY: as the caller says.
        && let Some(rest) = unsafe { its.as_ref() }.and_then(rest::of)
    {
        rest.span_ends();
    }
}

fn span(its: *const abi::Domain, [first, second, third]: [u64; 3]) -> u64 {
    spans::key(&[its.addr() as u64, first, second, third])
}

unsafe extern "C" fn span_begin(
    its: *const abi::Domain,
    id: Id,
    _parent: Id,
    name: *const abi::Handle,
) {
    // SAFETY: as the client calls it.
    unsafe { begin(its, id.words, text(name)) }
}

unsafe extern "C" fn span_end(its: *const abi::Domain, id: Id) {
    // SAFETY: as the client calls it.
    unsafe { end(its, id.words) }
}

/// A frame is named by its domain.
const FRAME: &[u8] = b"frame";

/// The id of a frame, which may have none.
///
/// # Safety
///
/// It is null or an id.
unsafe fn id_of(id: *const Id) -> [u64; 3] {
    // SAFETY: as the caller says.
    unsafe { id.as_ref() }.map_or([0; 3], |id| id.words)
}

unsafe extern "C" fn frame_begin(its: *const abi::Domain, id: *const Id) {
    // SAFETY: as the client calls it.
    unsafe { begin(its, id_of(id), Text::of(FRAME)) }
}

unsafe extern "C" fn frame_end(its: *const abi::Domain, id: *const Id) {
    // SAFETY: as the client calls it.
    unsafe { end(its, id_of(id)) }
}

unsafe extern "C" fn frame_submit(its: *const abi::Domain, _id: *const Id, begin: u64, end: u64) {
    const NONE: u64 = u64::MAX;
    let end = if end == NONE { pfp::ticks() } else { end };
    // SAFETY: as the client calls it.
    if let Some((its, domain)) = unsafe { its.as_ref().zip(domain(its)) }
        && begin != NONE
        && let Some(named) = named(domain, Text::of(FRAME), Kind::Span)
    {
        rest::calls(its, named);
        spans::record(named, 0, begin, end);
    }
}

unsafe extern "C" fn get_timestamp() -> u64 {
    pfp::ticks()
}

unsafe extern "C" fn marker(
    its: *const abi::Domain,
    _id: Id,
    name: *const abi::Handle,
    _scope: c_int,
) {
    // SAFETY: as the client calls it.
    if let Some((its, domain)) = unsafe { its.as_ref().zip(domain(its)) }
        // SAFETY: as above.
        && let Some(named) = named(domain, unsafe { text(name) }, Kind::Region)
    {
        rest::calls(its, named);
        stack::mark(|open| named.begin(open, 0));
    }
}

/// Events by their number less 1.
static EVENTS: [AtomicPtr<Named>; 1024] = [const { AtomicPtr::new(ptr::null_mut()) }; 1024];

unsafe extern "C" fn event_create(name: *const c_char, _length: c_int) -> c_int {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: the client's text.
    let text = unsafe { Text::of_c(name) };
    let Some(named) = named(Domain::of(SYSTEM, ""), text, Kind::Span) else { return 0 };
    let is_it = |event: &AtomicPtr<Named>| ptr::eq(event.load(Relaxed), named);
    let number = EVENTS.iter().position(is_it).unwrap_or_else(|| MADE.fetch_add(1, Relaxed));
    let Some(event) = EVENTS.get(number) else { return 0 };
    // Meets `event`.
    event.store(ptr::from_ref(named).cast_mut(), Release);
    number as c_int + 1
}

unsafe extern "C" fn event_start(number: c_int) -> c_int {
    let Some(event) = EVENTS.get((number as usize).wrapping_sub(1)) else {
        // There was no room when it was made.
        pfp::c::count_refusal();
        return 0;
    };
    // SAFETY: null, or never freed. Acquire meets `event_create`.
    if let Some(named) = unsafe { event.load(Acquire).as_ref() } {
        spans::begin(event_key(number), named, 0);
    }
    0
}

unsafe extern "C" fn event_end(number: c_int) -> c_int {
    spans::end(event_key(number));
    0
}

/// Threads have events for themselves.
fn event_key(number: c_int) -> u64 {
    // SAFETY: asks for a number.
    spans::key(&[0x6576_656e, number as u64, unsafe { libc::gettid() } as u64])
}

unsafe extern "C" fn thread_set_name(name: *const c_char) {
    // SAFETY: the client's text; asks for a number.
    unsafe { name_thread(libc::gettid() as u32, Text::of_c(name)) }
}

/// What a name of something shared is waited for by.
fn name_sync(address: *const c_void, name: &str) {
    let text = match name {
        "" => Text::of(WAIT),
        name => Text::of(ShortText::<ROOM>::of(format_args!("wait for {name}")).as_bytes()),
    };
    let text = ptr::from_ref(text).cast_mut();
    if let Some(name) = known(&SYNCS, address.addr(), || AtomicPtr::new(text)) {
        // Meets `sync_prepare`. Another thing may have been at this address.
        name.store(text, Release);
    }
}

const WAIT: &[u8] = b"wait";

/// The domain of waiting for something shared.
fn waiting() -> &'static Domain {
    static WAITING: Once<&Domain> = Once::new();
    WAITING.get_or_make(|| Domain::of(SYSTEM, "sync"))
}

unsafe extern "C" fn sync_create(
    address: *const c_void,
    kind: *const c_char,
    name: *const c_char,
    _attribute: c_int,
) {
    // SAFETY: the client's text.
    if ompt::is_on() && unsafe { Text::of_c(kind) }.name().starts_with(OPENMP_KIND) {
        known(&SYNCS, address.addr(), || AtomicPtr::new(ptr::null_mut()));
        return;
    }
    // SAFETY: the client's texts, or null.
    let of = |text: *const c_char| unsafe { text.as_ref().map(|_| Text::of_c(text).name()) };
    let name = of(name).filter(|&name| name != Text::of(b"").name());
    name_sync(address, name.or_else(|| of(kind)).unwrap_or(""));
}

unsafe extern "C" fn sync_rename(address: *const c_void, name: *const c_char) {
    // SAFETY: the client's text.
    name_sync(address, unsafe { Text::of_c(name) }.name());
}

unsafe extern "C" fn sync_prepare(address: *const c_void) {
    let unnamed = || AtomicPtr::new(ptr::from_ref(Text::of(WAIT)).cast_mut());
    let name = known(&SYNCS, address.addr(), unnamed);
    let Some(name) = name.map(|name| name.load(Acquire)) else {
        return pfp::c::count_refusal();
    };
    // SAFETY: a text, never freed, or null for what is told twice. Acquire meets `name_sync`.
    if let Some(text) = unsafe { name.as_ref() }
        && let Some(named) = named(waiting(), text, Kind::Region)
    {
        stack::push(address.addr(), |open| named.begin(open, 0));
    }
}

unsafe extern "C" fn sync_done(address: *const c_void) {
    stack::pop(address.addr());
}
