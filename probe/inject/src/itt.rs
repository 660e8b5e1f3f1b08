//! ITT: tasks, regions, frames, events, counters, markers, and waits for locks and barriers.
//!
//! Each shared object of a program has its own copy of the ITT client. The copy loads this library
//! at its first call and passes a list of function pointers to be filled. The client's macros read
//! the flags of a domain before they call; [`rest`] clears these flags while all points of the
//! domain are off.

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

use crate::names::{Domain, Named, ROOM, RegionKind, Text, named, paired};
use crate::{get_ready, name_thread, ompt, spans};

const SYSTEM: &str = "itt";
/// Part of the names of domains in which LLVM's OpenMP runtime reports regions, in addition to
/// OMPT.
const OF_OPENMP: &str = "$omp$";
/// Prefix of the kinds under which LLVM's OpenMP runtime reports its locks and barriers, in
/// addition to OMPT.
const OPENMP_KIND: &str = "OMP ";

/// Capacity of each table of objects, which are found by their addresses.
const MAX_OBJECTS: usize = 8192;

/// Fills the function pointers of a client.
///
/// # Safety
///
/// `all` is null or points to the client's `__itt_global`. No other thread uses its function
/// pointers yet.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn __itt_api_init(all: *mut Global, _groups: c_int) {
    // SAFETY: the caller passes null or a valid `__itt_global`.
    let Some(global) = (unsafe { all.as_ref() }) else { return };
    if global.magic != abi::MAGIC {
        return;
    }
    get_ready();
    let mut info = global.functions;
    // SAFETY: the list is valid up to and including an element without a name.
    while let Some(one) = unsafe { info.as_ref() }.filter(|one| !one.name.is_null()) {
        // SAFETY: the name is a string of the client that ends with NUL.
        let name = unsafe { CStr::from_ptr(one.name) };
        // SAFETY: `function` points to a writable function pointer of the client.
        unsafe { *one.function = function(name.to_bytes()).unwrap_or(one.null) };
        // SAFETY: the element at `info` has a name, so another element follows it.
        info = unsafe { info.add(1) };
    }
    if global.version[2] >= abi::LATER {
        // SAFETY: clients of this version have a `Later`, which begins with a `Global`.
        counters::adopt(unsafe { (*all.cast::<abi::Later>()).counters });
    }
}

/// Programs call this to ask whether there is a collector.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn __itt_api_version() -> *const c_char {
    c"pfp".as_ptr()
}

macro_rules! functions {
    ($($name:literal => $function:path;)*) => {
        /// Looks up our function of this name.
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

/// Our counterpart of an object that the program identifies by an address. Entries are never
/// removed.
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

/// Our domain for a client's domain. `None` if the program has switched it off, or if OpenMP
/// reports the same regions to [`ompt`].
///
/// # Safety
///
/// `its` is null or points to a domain that is never freed.
#[inline]
unsafe fn domain(its: *const abi::IttDomain) -> Option<&'static Domain> {
    // SAFETY: the caller passes null or a domain that is never freed.
    let its = unsafe { its.as_ref() }.filter(|its| is_on(its))?;
    let make = || {
        // SAFETY: the name is null or a string of the client that ends with NUL and is never freed.
        let name = unsafe { Text::of_c(its.rest.name) }.name();
        let is_reported_twice = ompt::is_on() && name.contains(OF_OPENMP);
        (!is_reported_twice).then(|| Domain::of(SYSTEM, name))
    };
    // If the table is full, the domain is looked up by name on each call.
    known(&DOMAINS, ptr::from_ref(its).addr(), make).map_or_else(make, |known| *known)
}

/// Whether a domain is on as far as the program is concerned. A domain that rests counts as on,
/// because this library, and not the program, has cleared its flag.
#[inline]
fn is_on(its: &abi::IttDomain) -> bool {
    its.flags.load(Relaxed) != 0 || rest::of(its).is_some_and(|rest| rest.rests())
}

/// The text of a string handle.
///
/// # Safety
///
/// `handle` is null or points to a handle that is never freed.
#[inline]
unsafe fn text(handle: *const abi::StringHandle) -> &'static Text {
    // SAFETY: the caller passes null or a valid handle, whose name ends with NUL.
    let make = || unsafe { handle.as_ref().map_or(Text::of(b""), |it| Text::of_c(it.name)) };
    known(&HANDLES, handle.addr(), make).copied().unwrap_or_else(make)
}

/// An object that clients read. There is one for each text, and it is never freed.
struct Made<T> {
    text: &'static Text,
    /// The text as a C string, which the object points to.
    _name: CString,
    is: *const T,
}

// SAFETY: `is` points to an object that is never freed, and in which clients write only the flags,
// an atomic word.
unsafe impl<T> Sync for Made<T> {}
// SAFETY: any thread may use the object, which is never freed and in which only an atomic word
// changes.
unsafe impl<T> Send for Made<T> {}

impl<T> Made<T> {
    fn of(
        table: &Table<Self, { 2 * MAX_OBJECTS }>,
        name: *const c_char,
        make: impl FnOnce(*const c_char, &'static Text) -> Option<*const T>,
    ) -> *const T {
        // SAFETY: the client passes null or a string that ends with NUL.
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

unsafe extern "C" fn domain_create(name: *const c_char) -> *const abi::IttDomain {
    static MADE: Table<Made<abi::IttDomain>, { 2 * MAX_OBJECTS }> = Table::new();
    Made::of(&MADE, name, |name, text| rest::make(name, Domain::of(SYSTEM, text.name())))
}

unsafe extern "C" fn string_handle_create(name: *const c_char) -> *const abi::StringHandle {
    static MADE: Table<Made<abi::StringHandle>, { 2 * MAX_OBJECTS }> = Table::new();
    let none = ptr::null();
    Made::of(&MADE, name, |name, _| {
        let handle =
            abi::StringHandle { name, wide_name: none, extra: 0, more: none, next: ptr::null() };
        heap::boxed(handle).ok().map(|handle| Box::into_raw(handle).cast_const())
    })
}

#[inline]
fn begin_task(its: &abi::IttDomain, named: &'static Named) {
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
    its: *const abi::IttDomain,
    _id: Id,
    _parent: Id,
    name: *const abi::StringHandle,
) {
    // SAFETY: the client passes null, or a domain and a handle that are never freed.
    let find = || unsafe { named(domain(its)?, text(name), RegionKind::Region) };
    // Skips a domain that is off, because `paired` would cache the `None` of `find` for ever.
    // SAFETY: the client passes null, or a domain that is never freed.
    if let Some(domain) = unsafe { its.as_ref() }.filter(|its| is_on(its))
        && let Some(named) = paired([its.addr(), name.addr()], RegionKind::Region.number(), find)
    {
        begin_task(domain, named);
    }
}

unsafe extern "C" fn task_begin_function(
    its: *const abi::IttDomain,
    _id: Id,
    _parent: Id,
    function: *const c_void,
) {
    let address = ShortText::<32>::of(format_args!("{function:p}"));
    // SAFETY: the client passes null, or a domain that this library made and never frees.
    if let Some((its, domain)) = unsafe { its.as_ref().zip(domain(its)) }
        && let Some(named) = named(domain, Text::of(address.as_bytes()), RegionKind::Region)
    {
        begin_task(its, named);
    }
}

unsafe extern "C" fn task_end(its: *const abi::IttDomain) {
    if stack::pop(its.addr()).is_some()
        // SAFETY: the client passes null, or a domain that is never freed.
        && let Some(rest) = unsafe { its.as_ref() }.and_then(rest::of)
    {
        rest.task_ends();
    }
}

/// Begins a span of a domain. The client's id identifies the span at its end.
///
/// # Safety
///
/// `its` is null or points to a domain that is never freed.
unsafe fn begin(its: *const abi::IttDomain, id: [u64; 3], text: &'static Text) {
    // SAFETY: the caller passes null, or a domain that is never freed.
    if let Some((known, domain)) = unsafe { its.as_ref().zip(domain(its)) }
        && let Some(named) = named(domain, text, RegionKind::Span)
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
/// `its` is null or points to a domain that is never freed.
unsafe fn end(its: *const abi::IttDomain, id: [u64; 3]) {
    if spans::end(span(its, id))
        // SAFETY: the caller passes null, or a domain that is never freed.
        && let Some(rest) = unsafe { its.as_ref() }.and_then(rest::of)
    {
        rest.span_ends();
    }
}

fn span(its: *const abi::IttDomain, [first, second, third]: [u64; 3]) -> u64 {
    spans::key(&[its.addr() as u64, first, second, third])
}

unsafe extern "C" fn span_begin(
    its: *const abi::IttDomain,
    id: Id,
    _parent: Id,
    name: *const abi::StringHandle,
) {
    // SAFETY: the client passes null, or a domain and a handle that are never freed.
    unsafe { begin(its, id.words, text(name)) }
}

unsafe extern "C" fn span_end(its: *const abi::IttDomain, id: Id) {
    // SAFETY: the client passes null, or a domain that is never freed.
    unsafe { end(its, id.words) }
}

/// Name of every frame: the domain alone distinguishes frames.
const FRAME: &[u8] = b"frame";

/// The words of a frame's id; zeros for a frame without an id.
///
/// # Safety
///
/// `id` is null or points to an id.
unsafe fn id_of(id: *const Id) -> [u64; 3] {
    // SAFETY: the caller passes null or a valid id.
    unsafe { id.as_ref() }.map_or([0; 3], |id| id.words)
}

unsafe extern "C" fn frame_begin(its: *const abi::IttDomain, id: *const Id) {
    // SAFETY: the client passes null or a domain that is never freed, and null or a valid id.
    unsafe { begin(its, id_of(id), Text::of(FRAME)) }
}

unsafe extern "C" fn frame_end(its: *const abi::IttDomain, id: *const Id) {
    // SAFETY: the client passes null or a domain that is never freed, and null or a valid id.
    unsafe { end(its, id_of(id)) }
}

unsafe extern "C" fn frame_submit(
    its: *const abi::IttDomain,
    _id: *const Id,
    begin: u64,
    end: u64,
) {
    const NONE: u64 = u64::MAX;
    let end = if end == NONE { pfp::ticks() } else { end };
    // SAFETY: the client passes null, or a domain that is never freed.
    if let Some((its, domain)) = unsafe { its.as_ref().zip(domain(its)) }
        && begin != NONE
        && let Some(named) = named(domain, Text::of(FRAME), RegionKind::Span)
    {
        rest::calls(its, named);
        spans::record(named, 0, begin, end);
    }
}

unsafe extern "C" fn get_timestamp() -> u64 {
    pfp::ticks()
}

unsafe extern "C" fn marker(
    its: *const abi::IttDomain,
    _id: Id,
    name: *const abi::StringHandle,
    _scope: c_int,
) {
    // SAFETY: the client passes null, or a domain that is never freed.
    if let Some((its, domain)) = unsafe { its.as_ref().zip(domain(its)) }
        // SAFETY: the client passes null, or a handle that is never freed.
        && let Some(named) = named(domain, unsafe { text(name) }, RegionKind::Region)
    {
        rest::calls(its, named);
        stack::mark(|open| named.begin(open, 0));
    }
}

/// Events, indexed by event number minus 1.
static EVENTS: [AtomicPtr<Named>; 1024] = [const { AtomicPtr::new(ptr::null_mut()) }; 1024];

unsafe extern "C" fn event_create(name: *const c_char, _length: c_int) -> c_int {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: the client passes null or a string that ends with NUL.
    let text = unsafe { Text::of_c(name) };
    let Some(named) = named(Domain::of(SYSTEM, ""), text, RegionKind::Span) else { return 0 };
    let is_it = |event: &AtomicPtr<Named>| ptr::eq(event.load(Relaxed), named);
    let number = EVENTS.iter().position(is_it).unwrap_or_else(|| MADE.fetch_add(1, Relaxed));
    let Some(event) = EVENTS.get(number) else { return 0 };
    // Release pairs with the acquire in `event_start`.
    event.store(ptr::from_ref(named).cast_mut(), Release);
    number as c_int + 1
}

unsafe extern "C" fn event_start(number: c_int) -> c_int {
    let Some(event) = EVENTS.get((number as usize).wrapping_sub(1)) else {
        // The table was full when the event was created.
        pfp::c::count_refusal();
        return 0;
    };
    // SAFETY: null, or a name that is never freed. Acquire pairs with the release in
    // `event_create`.
    if let Some(named) = unsafe { event.load(Acquire).as_ref() } {
        spans::begin(event_key(number), named, 0);
    }
    0
}

unsafe extern "C" fn event_end(number: c_int) -> c_int {
    spans::end(event_key(number));
    0
}

/// Key of an event of the calling thread. Each thread has its own span of an event.
fn event_key(number: c_int) -> u64 {
    // SAFETY: `gettid` has no preconditions.
    spans::key(&[0x6576_656e, number as u64, unsafe { libc::gettid() } as u64])
}

unsafe extern "C" fn thread_set_name(name: *const c_char) {
    // SAFETY: the client passes null or a string that ends with NUL; `gettid` has no preconditions.
    unsafe { name_thread(libc::gettid() as u32, Text::of_c(name)) }
}

/// Sets the name of the region that measures waits for the object at this address.
fn name_sync(address: *const c_void, name: &str) {
    let text = match name {
        "" => Text::of(WAIT),
        name => Text::of(ShortText::<ROOM>::of(format_args!("wait for {name}")).as_bytes()),
    };
    let text = ptr::from_ref(text).cast_mut();
    if let Some(name) = known(&SYNCS, address.addr(), || AtomicPtr::new(text)) {
        // Release pairs with the acquire in `sync_prepare`. A store is needed even for a known
        // address, which the program may have reused for another object.
        name.store(text, Release);
    }
}

const WAIT: &[u8] = b"wait";

/// The domain of all waits for locks and barriers.
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
    // SAFETY: the client passes null or a string that ends with NUL.
    if ompt::is_on() && unsafe { Text::of_c(kind) }.name().starts_with(OPENMP_KIND) {
        known(&SYNCS, address.addr(), || AtomicPtr::new(ptr::null_mut()));
        return;
    }
    // SAFETY: each pointer is null or a string that ends with NUL.
    let of = |text: *const c_char| unsafe { text.as_ref().map(|_| Text::of_c(text).name()) };
    let name = of(name).filter(|&name| name != Text::of(b"").name());
    name_sync(address, name.or_else(|| of(kind)).unwrap_or(""));
}

unsafe extern "C" fn sync_rename(address: *const c_void, name: *const c_char) {
    // SAFETY: the client passes null or a string that ends with NUL.
    name_sync(address, unsafe { Text::of_c(name) }.name());
}

unsafe extern "C" fn sync_prepare(address: *const c_void) {
    let unnamed = || AtomicPtr::new(ptr::from_ref(Text::of(WAIT)).cast_mut());
    let name = known(&SYNCS, address.addr(), unnamed);
    let Some(name) = name.map(|name| name.load(Acquire)) else {
        return pfp::c::count_refusal();
    };
    // SAFETY: a text that is never freed, or null if OpenMP also reports this wait to `ompt`.
    // Acquire pairs with the release in `name_sync`.
    if let Some(text) = unsafe { name.as_ref() }
        && let Some(named) = named(waiting(), text, RegionKind::Region)
    {
        stack::push(address.addr(), |open| named.begin(open, 0));
    }
}

unsafe extern "C" fn sync_done(address: *const c_void) {
    stack::pop(address.addr());
}
