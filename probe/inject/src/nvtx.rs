//! NVTX: ranges, marks, domains, categories and names of threads.
//!
//! Each shared object of a program has its own copy of the NVTX client, which loads this library at
//! the copy's first call. Copies of old versions load it from several threads at once, so an
//! initialization writes only to the table that its client passes.

mod abi;

use std::ffi::c_int;
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use abi::{Ascii, Attributes, Callbacks, GetExportTable, NvtxFunction, Wide};

use pfp::stack;
use pfp::table::{Once, Table, mix};

use crate::names::{Domain, Named, RegionKind, Text, named, named_by_c, paired};
use crate::{get_ready, name_thread, spans};

const SYSTEM: &str = "nvtx";
/// Result of a pop without a push.
const NONE: c_int = -1;

/// A domain that we created for the program; null for the default domain.
type DomainHandle = *const Domain;

/// A category that has a name.
struct Category {
    domain: DomainHandle,
    number: u32,
    part: &'static Domain,
}

// SAFETY: `domain` points to a static, and is only compared.
unsafe impl Sync for Category {}
// SAFETY: `domain` points to a static, and is only compared.
unsafe impl Send for Category {}

const CATEGORIES: usize = 512;
static NAMED_CATEGORIES: Table<Category, { 2 * CATEGORIES }> = Table::new();

/// Entry point that the client's loader calls. Returns 1 if the client may use this tool.
///
/// # Safety
///
/// `get` is null or the client's function that returns its export tables.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn InitializeInjectionNvtx2(get: Option<GetExportTable>) -> c_int {
    let Some(get) = get else { return 0 };
    // SAFETY: the caller passes the client's function, which accepts any number and returns null or
    // a table.
    let callbacks = unsafe { get(abi::CALLBACKS).cast::<Callbacks>().as_ref() };
    let Some(callbacks) = callbacks.filter(|it| it.size >= size_of::<Callbacks>()) else {
        return 0;
    };
    let Some(table) = callbacks.table else { return 0 };
    get_ready();
    let set = |module: c_int, functions: &[(usize, NvtxFunction)]| {
        let (mut places, mut count) = (ptr::null(), 0);
        // SAFETY: the client's function writes only to these two variables.
        if unsafe { table(module, &raw mut places, &raw mut count) } == 0 || places.is_null() {
            return;
        }
        for &(number, function) in functions.iter().filter(|(number, _)| *number < count as usize) {
            // SAFETY: `number` is less than the length of the table; each element is null or points
            // to a writable function pointer.
            if let Some(place) = unsafe { (*places.add(number)).as_mut() } {
                *place = Some(function);
            }
        }
    };
    macro_rules! functions {
        ($($number:literal: $function:ident($($kind:ty),*) $(-> $result:ty)?;)*) => {
            [$((
                $number,
                // SAFETY: the signature is the one in NVTX's interface for this number, so the
                // client calls the function with matching arguments.
                unsafe {
                    std::mem::transmute::<
                        unsafe extern "C" fn($($kind),*) $(-> $result)?, NvtxFunction
                    >($function)
                },
            )),*]
        };
    }
    set(
        abi::CORE,
        &functions! {
            1: mark_ex(*const Attributes);
            2: mark_a(Ascii);
            3: mark_w(Wide);
            4: start_ex(*const Attributes) -> u64;
            5: start_a(Ascii) -> u64;
            6: start_w(Wide) -> u64;
            7: end(u64);
            8: push_ex(*const Attributes) -> c_int;
            9: push_a(Ascii) -> c_int;
            10: push_w(Wide) -> c_int;
            11: pop() -> c_int;
            12: name_category_a(u32, Ascii);
            13: name_category_w(u32, Wide);
            14: name_thread_a(u32, Ascii);
            15: name_thread_w(u32, Wide);
        },
    );
    set(
        abi::CORE2,
        &functions! {
            1: domain_mark(DomainHandle, *const Attributes);
            2: domain_start(DomainHandle, *const Attributes) -> u64;
            3: domain_end(DomainHandle, u64);
            4: domain_push(DomainHandle, *const Attributes) -> c_int;
            5: domain_pop(DomainHandle) -> c_int;
            8: domain_name_category_a(DomainHandle, u32, Ascii);
            9: domain_name_category_w(DomainHandle, u32, Wide);
            10: register_a(DomainHandle, Ascii) -> *const Text;
            11: register_w(DomainHandle, Wide) -> *const Text;
            12: create_a(Ascii) -> DomainHandle;
            13: create_w(Wide) -> DomainHandle;
        },
    );
    1
}

/// The domain of a handle; null is the default domain.
///
/// # Safety
///
/// `handle` is null or was returned by `create_a` or `create_w`.
#[inline]
unsafe fn domain(handle: DomainHandle) -> &'static Domain {
    static OWN: Once<&Domain> = Once::new();
    // SAFETY: the caller passes null or a domain that we created, which is never freed.
    unsafe { handle.as_ref() }.unwrap_or_else(|| OWN.get_or_make(|| Domain::of(SYSTEM, "")))
}

/// Name of an event.
#[derive(Clone, Copy)]
enum Name {
    /// Null, or a string that is valid until the call returns.
    Ascii(Ascii),
    Text(&'static Text),
}

impl Name {
    const NONE: Self = Self::Ascii(ptr::null());

    fn wide(name: Wide) -> Self {
        // SAFETY: the program passes null or a wide string that ends with NUL.
        Self::Text(unsafe { Text::of_wide(name) })
    }

    #[inline]
    fn point(self, domain: &'static Domain, kind: RegionKind) -> Option<&'static Named> {
        match self {
            // SAFETY: null, or a string of the program that ends with NUL and is valid during its
            // call.
            Self::Ascii(name) => unsafe { named_by_c(domain, name, kind) },
            Self::Text(text) => {
                let addresses = [ptr::from_ref(domain).addr(), ptr::from_ref(text).addr()];
                paired(addresses, kind.number(), || named(domain, text, kind))
            }
        }
    }
}

/// Reads an event: its name, its domain together with the category, and the payload if it is a
/// non-negative number.
///
/// # Safety
///
/// `handle` is null or a handle that we created. `attributes` is null or points to as many readable
/// bytes as its field `size` states, and the message is of the kind that the attributes state.
#[inline]
unsafe fn event(
    handle: DomainHandle,
    attributes: *const Attributes,
) -> (Name, &'static Domain, Option<u64>) {
    // SAFETY: the caller passes null or a handle that we created.
    let own = unsafe { domain(handle) };
    // SAFETY: not null, so at least the fields up to and including `size` are readable.
    let Some(size) = (!attributes.is_null()).then(|| unsafe { (*attributes).size }) else {
        return (Name::NONE, own, None);
    };
    let has = |end: usize| usize::from(size) >= end;
    let mut name = Name::NONE;
    if has(size_of::<Attributes>()) {
        // SAFETY: `size` covers both fields.
        let (kind, message) = unsafe { ((*attributes).message_kind, (*attributes).message) };
        name = match kind {
            abi::message::ASCII => Name::Ascii(message.cast()),
            abi::message::WIDE => Name::wide(message.cast()),
            abi::message::REGISTERED => {
                // SAFETY: the caller states that the message is registered, so it is null or a text
                // of ours.
                unsafe { message.cast::<Text>().as_ref() }.map_or(Name::NONE, Name::Text)
            }
            _ => Name::NONE,
        };
    }
    let mut amount = None;
    if has(offset_of!(Attributes, message_kind)) {
        // SAFETY: `size` covers both fields.
        let (kind, bytes) = unsafe { ((*attributes).payload_kind, (*attributes).payload) };
        amount = number(kind, bytes);
    }
    let mut domain = own;
    if has(offset_of!(Attributes, color_kind)) {
        // SAFETY: `size` covers the field.
        let category = unsafe { (*attributes).category };
        domain = part(own, category);
    }
    (name, domain, amount)
}

/// Converts a payload to an amount, which is a non-negative integer.
fn number(kind: i32, bytes: [u8; 8]) -> Option<u64> {
    let half = bytes.first_chunk().copied().unwrap_or_default();
    let rounded = |number: f64| (number >= 0.0).then_some(number.round() as u64);
    match kind {
        abi::payload::U64 => Some(u64::from_ne_bytes(bytes)),
        abi::payload::I64 => i64::from_ne_bytes(bytes).try_into().ok(),
        abi::payload::F64 => rounded(f64::from_ne_bytes(bytes)),
        abi::payload::U32 => Some(u32::from_ne_bytes(half).into()),
        abi::payload::I32 => i32::from_ne_bytes(half).try_into().ok(),
        abi::payload::F32 => rounded(f32::from_ne_bytes(half).into()),
        _ => None,
    }
}

/// The part of the domain for a category; the domain itself if the category has no name.
#[inline]
fn part(domain: &'static Domain, category: u32) -> &'static Domain {
    if category == 0 {
        return domain;
    }
    let found = category_of(domain, category, 0, || domain);
    found.map_or(domain, |category| category.part)
}

/// Looks up a category, and creates it if fewer than `most` exist.
fn category_of(
    domain: &'static Domain,
    number: u32,
    most: usize,
    part: impl FnOnce() -> &'static Domain,
) -> Option<&'static Category> {
    let address = ptr::from_ref(domain);
    let hash = mix(address.addr() as u64 ^ u64::from(number).rotate_left(40));
    let is = |it: &Category| it.number == number && ptr::eq(it.domain, address);
    NAMED_CATEGORIES.get(hash, most, is, || Category { domain: address, number, part: part() })
}

fn name_category(domain: &'static Domain, number: u32, name: &'static Text) {
    category_of(domain, number, CATEGORIES, || domain.part(name.name()));
}

/// Label of the amount that a payload becomes.
const AMOUNT: &str = "payload";

/// The point of a range or mark that belongs to one thread.
fn own_point(name: Name, domain: &'static Domain, amount: Option<u64>) -> Option<&'static Named> {
    name.point(
        domain,
        if amount.is_some() { RegionKind::Amount(AMOUNT) } else { RegionKind::Region },
    )
}

fn push(handle: DomainHandle, name: Name, domain: &'static Domain, amount: Option<u64>) -> c_int {
    let Some(named) = own_point(name, domain, amount) else { return NONE };
    stack::push(owner(handle), |open| named.begin(open, amount.unwrap_or(0)))
        .map_or(NONE, |level| level as c_int)
}

/// Key of a domain's ranges on the stack of regions: ranges nest within each domain separately.
fn owner(handle: DomainHandle) -> usize {
    // SAFETY: the program passes null or a handle that we created.
    ptr::from_ref(unsafe { domain(handle) }).addr()
}

fn pop_of(handle: DomainHandle) -> c_int {
    stack::pop(owner(handle)).map_or(NONE, |ended| ended.level as c_int)
}

fn mark(name: Name, domain: &'static Domain, amount: Option<u64>) {
    if let Some(named) = own_point(name, domain, amount) {
        stack::mark(|open| named.begin(open, amount.unwrap_or(0)));
    }
}

fn start(name: Name, domain: &'static Domain, amount: Option<u64>) -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let kind = if amount.is_some() { RegionKind::SpanAmount(AMOUNT) } else { RegionKind::Span };
    let Some(named) = name.point(domain, kind) else { return 0 };
    let id = LAST.fetch_add(1, Relaxed) + 1;
    spans::begin(span(id), named, amount.unwrap_or(0));
    id
}

fn span(id: u64) -> u64 {
    spans::key(&[0x6e76_7478, id])
}

unsafe extern "C" fn mark_ex(attributes: *const Attributes) {
    // SAFETY: the program passes null or attributes of the size that they state.
    unsafe { domain_mark(ptr::null(), attributes) }
}

unsafe extern "C" fn mark_a(name: Ascii) {
    // SAFETY: null is a valid handle.
    mark(Name::Ascii(name), unsafe { domain(ptr::null()) }, None);
}

unsafe extern "C" fn mark_w(name: Wide) {
    // SAFETY: null is a valid handle.
    mark(Name::wide(name), unsafe { domain(ptr::null()) }, None);
}

unsafe extern "C" fn start_ex(attributes: *const Attributes) -> u64 {
    // SAFETY: the program passes null or attributes of the size that they state.
    unsafe { domain_start(ptr::null(), attributes) }
}

unsafe extern "C" fn start_a(name: Ascii) -> u64 {
    // SAFETY: null is a valid handle.
    start(Name::Ascii(name), unsafe { domain(ptr::null()) }, None)
}

unsafe extern "C" fn start_w(name: Wide) -> u64 {
    // SAFETY: null is a valid handle.
    start(Name::wide(name), unsafe { domain(ptr::null()) }, None)
}

unsafe extern "C" fn end(id: u64) {
    spans::end(span(id));
}

unsafe extern "C" fn push_ex(attributes: *const Attributes) -> c_int {
    // SAFETY: the program passes null or attributes of the size that they state.
    unsafe { domain_push(ptr::null(), attributes) }
}

unsafe extern "C" fn push_a(name: Ascii) -> c_int {
    // SAFETY: null is a valid handle.
    push(ptr::null(), Name::Ascii(name), unsafe { domain(ptr::null()) }, None)
}

unsafe extern "C" fn push_w(name: Wide) -> c_int {
    // SAFETY: null is a valid handle.
    push(ptr::null(), Name::wide(name), unsafe { domain(ptr::null()) }, None)
}

unsafe extern "C" fn pop() -> c_int {
    pop_of(ptr::null())
}

unsafe extern "C" fn name_category_a(number: u32, name: Ascii) {
    // SAFETY: the program passes null or a string that ends with NUL.
    unsafe { domain_name_category_a(ptr::null(), number, name) }
}

unsafe extern "C" fn name_category_w(number: u32, name: Wide) {
    // SAFETY: the program passes null or a wide string that ends with NUL.
    unsafe { domain_name_category_w(ptr::null(), number, name) }
}

unsafe extern "C" fn name_thread_a(thread: u32, name: Ascii) {
    // SAFETY: the program passes null or a string that ends with NUL.
    name_thread(thread, unsafe { Text::of_c(name) });
}

unsafe extern "C" fn name_thread_w(thread: u32, name: Wide) {
    // SAFETY: the program passes null or a wide string that ends with NUL.
    name_thread(thread, unsafe { Text::of_wide(name) });
}

unsafe extern "C" fn domain_mark(handle: DomainHandle, attributes: *const Attributes) {
    // SAFETY: the program passes a handle of ours, and null or attributes of the size that they
    // state.
    let (name, domain, amount) = unsafe { event(handle, attributes) };
    mark(name, domain, amount);
}

unsafe extern "C" fn domain_start(handle: DomainHandle, attributes: *const Attributes) -> u64 {
    // SAFETY: the program passes a handle of ours, and null or attributes of the size that they
    // state.
    let (name, domain, amount) = unsafe { event(handle, attributes) };
    start(name, domain, amount)
}

unsafe extern "C" fn domain_end(_: DomainHandle, id: u64) {
    spans::end(span(id));
}

unsafe extern "C" fn domain_push(handle: DomainHandle, attributes: *const Attributes) -> c_int {
    // SAFETY: the program passes a handle of ours, and null or attributes of the size that they
    // state.
    let (name, domain, amount) = unsafe { event(handle, attributes) };
    push(handle, name, domain, amount)
}

unsafe extern "C" fn domain_pop(handle: DomainHandle) -> c_int {
    pop_of(handle)
}

unsafe extern "C" fn domain_name_category_a(handle: DomainHandle, number: u32, name: Ascii) {
    // SAFETY: the program passes a handle of ours, and null or a string that ends with NUL.
    unsafe { name_category(domain(handle), number, Text::of_c(name)) }
}

unsafe extern "C" fn domain_name_category_w(handle: DomainHandle, number: u32, name: Wide) {
    // SAFETY: the program passes a handle of ours, and null or a wide string that ends with NUL.
    unsafe { name_category(domain(handle), number, Text::of_wide(name)) }
}

unsafe extern "C" fn register_a(_: DomainHandle, name: Ascii) -> *const Text {
    // SAFETY: the program passes null or a string that ends with NUL.
    unsafe { Text::of_c(name) }
}

unsafe extern "C" fn register_w(_: DomainHandle, name: Wide) -> *const Text {
    // SAFETY: the program passes null or a wide string that ends with NUL.
    unsafe { Text::of_wide(name) }
}

unsafe extern "C" fn create_a(name: Ascii) -> DomainHandle {
    // SAFETY: the program passes null or a string that ends with NUL.
    Domain::of(SYSTEM, unsafe { Text::of_c(name) }.name())
}

unsafe extern "C" fn create_w(name: Wide) -> DomainHandle {
    // SAFETY: the program passes null or a wide string that ends with NUL.
    Domain::of(SYSTEM, unsafe { Text::of_wide(name) }.name())
}
