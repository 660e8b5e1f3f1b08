//! Counters. Each addition, subtraction and assignment is measured as an amount of a point.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use pfp::own::heap::ShortText;
use pfp::stack;
use pfp::table::{Table, mix};

use super::{Known, MAX_OBJECTS, SYSTEM, abi, domain, is_on, known, rest, text};
use crate::names::{Domain, Named, ROOM, RegionKind, Text, named, paired};

/// Counters by the handles that the program holds.
static COUNTERS: Table<Known<Option<&'static Counter>>, { 2 * MAX_OBJECTS }> = Table::new();

/// A counter of the program. Its address is the program's handle.
struct Counter {
    domain: &'static Domain,
    text: &'static Text,
    kind: c_int,
}

fn counter(domain: &'static Domain, text: &'static Text, kind: c_int) -> Option<&'static Counter> {
    static MADE: Table<Counter, { 2 * MAX_OBJECTS }> = Table::new();
    let address = |part: *const c_void| part.addr() as u64;
    let hash = mix(address(ptr::from_ref(domain).cast()).rotate_left(20)
        ^ address(ptr::from_ref(text).cast()).rotate_left(3)
        ^ kind as u64);
    let is = |it: &Counter| ptr::eq(it.domain, domain) && ptr::eq(it.text, text) && it.kind == kind;
    MADE.get(hash, MAX_OBJECTS, is, || Counter { domain, text, kind })
}

/// # Safety
///
/// Each of `name` and `domain` is null or a string that ends with NUL.
unsafe fn counter_of(
    name: *const c_char,
    domain: *const c_char,
    kind: c_int,
) -> Option<&'static Counter> {
    // SAFETY: each pointer is null or a text that ends with NUL.
    let (name, domain) = unsafe { (Text::of_c(name), domain.as_ref().map(|it| Text::of_c(it))) };
    counter(Domain::of(SYSTEM, domain.map_or("", Text::name)), name, kind)
}

/// Registers the counters that the client created itself, by the addresses that the program holds.
pub(super) fn adopt(mut info: *const abi::CounterInfo) {
    // SAFETY: the client's list consists of valid elements and ends with null.
    while let Some(one) = unsafe { info.as_ref() } {
        // SAFETY: each of the two is null or a string of the client that ends with NUL.
        let made = unsafe { counter_of(one.name, one.domain, one.kind) };
        known(&COUNTERS, info.addr(), || made);
        info = one.next;
    }
}

/// Registers a counter and returns its handle for the program.
fn handle_of(counter: Option<&'static Counter>) -> *const c_void {
    let Some(made) = counter else { return ptr::null() };
    let handle = ptr::from_ref(made);
    known(&COUNTERS, handle.addr(), || Some(made));
    handle.cast()
}

/// # Safety
///
/// Each of `name` and `domain` is null or a string that ends with NUL.
pub(super) unsafe extern "C" fn create(
    name: *const c_char,
    domain: *const c_char,
) -> *const c_void {
    // SAFETY: the client passes null or texts that end with NUL.
    unsafe { create_typed(name, domain, abi::number::U64) }
}

/// # Safety
///
/// Each of `name` and `domain` is null or a string that ends with NUL.
pub(super) unsafe extern "C" fn create_typed(
    name: *const c_char,
    domain: *const c_char,
    kind: c_int,
) -> *const c_void {
    // SAFETY: the client passes null or strings that end with NUL.
    handle_of(unsafe { counter_of(name, domain, kind) })
}

/// # Safety
///
/// `its` is null or a domain that is never freed, and `name` is null or a string that ends with
/// NUL.
pub(super) unsafe extern "C" fn create_in(
    its: *const abi::IttDomain,
    name: *const c_char,
    kind: c_int,
) -> *const c_void {
    // SAFETY: the client passes null or a domain that is never freed, and null or a string that
    // ends with NUL.
    let (domain, name) = unsafe { (domain(its), Text::of_c(name)) };
    handle_of(domain.and_then(|domain| counter(domain, name, kind)))
}

/// Kind of change to a counter. An amount is a non-negative integer, so each kind has its own
/// point.
#[derive(Clone, Copy)]
enum Change {
    Up,
    Down,
    Set,
}

impl Change {
    /// Label of the amount in the viewer.
    fn amount(self) -> &'static str {
        match self {
            Self::Up => "value",
            Self::Down => "down",
            Self::Set => "set to",
        }
    }

    /// Point of this kind of change. Without an amount, the point only counts calls.
    fn point(
        self,
        domain: &'static Domain,
        text: &'static Text,
        has_amount: bool,
    ) -> Option<&'static Named> {
        let marked = |mark| {
            Text::of(ShortText::<ROOM>::of(format_args!("{}{mark}", text.name())).as_bytes())
        };
        let text = match self {
            Self::Up => text,
            Self::Down => marked(" (down)"),
            Self::Set => marked(" (set)"),
        };
        let kind = if has_amount { RegionKind::Amount(self.amount()) } else { RegionKind::Region };
        named(domain, text, kind)
    }

    /// Measures a change of the counter that these two addresses identify.
    fn measure(
        self,
        addresses: [usize; 2],
        of: impl Fn() -> Option<(&'static Domain, &'static Text)>,
        amount: Option<u64>,
    ) -> Option<&'static Named> {
        // The mark must differ from the numbers of all `RegionKind`s, which are marks, too.
        let mark = self as u8 + if amount.is_some() { 8 } else { 16 };
        let find = || {
            let (domain, text) = of()?;
            self.point(domain, text, amount.is_some())
        };
        let named = paired(addresses, mark, find)?;
        stack::mark(|open| named.begin(open, amount.unwrap_or(0)));
        Some(named)
    }

    /// Measures a change of a counter, unless another tool has made the counter.
    fn of(self, id: *const c_void, amount: impl FnOnce(&Counter) -> Option<u64>) {
        let is = |it: &Known<_>| it.address == id.addr();
        let unknown = || Known { address: id.addr(), is: None };
        // A limit of 0 entries makes this a pure look-up.
        let found = COUNTERS.get(mix(id.addr() as u64), 0, is, unknown);
        if let Some(counter) = found.and_then(|known| known.is) {
            let of = || Some((counter.domain, counter.text));
            self.measure([id.addr(), 0], of, amount(counter));
        }
    }

    /// Measures a change of a counter that is given by domain and handle.
    ///
    /// # Safety
    ///
    /// `its` is null or points to a domain that is never freed, and `name` is null or points to a
    /// handle that is never freed.
    unsafe fn within(
        self,
        its: *const abi::IttDomain,
        name: *const abi::StringHandle,
        amount: u64,
    ) {
        // SAFETY: the caller passes null, or a domain that is never freed.
        if let Some(known) = unsafe { its.as_ref() }.filter(|its| is_on(its)) {
            // SAFETY: null, or a domain and a handle that are never freed.
            let of = || unsafe { Some((domain(its)?, text(name))) };
            if let Some(named) = self.measure([its.addr(), name.addr()], of, Some(amount)) {
                rest::calls(known, named);
            }
        }
    }
}

/// # Safety
///
/// Any `id` is allowed, because it is only compared.
pub(super) unsafe extern "C" fn inc(id: *const c_void) {
    Change::Up.of(id, |_| Some(1));
}

/// # Safety
///
/// Any `id` is allowed, because it is only compared.
pub(super) unsafe extern "C" fn inc_delta(id: *const c_void, delta: u64) {
    Change::Up.of(id, |_| Some(delta));
}

/// # Safety
///
/// Any `id` is allowed, because it is only compared.
pub(super) unsafe extern "C" fn dec(id: *const c_void) {
    Change::Down.of(id, |_| Some(1));
}

/// # Safety
///
/// Any `id` is allowed, because it is only compared.
pub(super) unsafe extern "C" fn dec_delta(id: *const c_void, delta: u64) {
    Change::Down.of(id, |_| Some(delta));
}

/// # Safety
///
/// `value` is null or points to a number of the type for which the counter `id` was created. Any
/// `id` is allowed, because it is only compared.
pub(super) unsafe extern "C" fn set_value(id: *const c_void, value: *const c_void) {
    // SAFETY: the client passes a value of the kind that the counter was made for.
    Change::Set.of(id, |counter| unsafe { abi::number::read(counter.kind, value) });
}

/// # Safety
///
/// `value` is null or points to a number of the type for which the counter `id` was created. Any
/// `id` is allowed, because it is only compared.
pub(super) unsafe extern "C" fn set_value_at(
    id: *const c_void,
    _clock: *const c_void,
    _time: u64,
    value: *const c_void,
) {
    // SAFETY: the client passes a value of the counter's kind.
    unsafe { set_value(id, value) }
}

/// # Safety
///
/// `its` is null or a domain that is never freed, and `name` is null or a handle that is never
/// freed.
pub(super) unsafe extern "C" fn inc_in(its: *const abi::IttDomain, name: *const abi::StringHandle) {
    // SAFETY: each pointer is null, or a domain or handle that is never freed.
    unsafe { Change::Up.within(its, name, 1) }
}

/// # Safety
///
/// `its` is null or a domain that is never freed, and `name` is null or a handle that is never
/// freed.
pub(super) unsafe extern "C" fn inc_delta_in(
    its: *const abi::IttDomain,
    name: *const abi::StringHandle,
    delta: u64,
) {
    // SAFETY: each pointer is null, or a domain or handle that is never freed.
    unsafe { Change::Up.within(its, name, delta) }
}

/// # Safety
///
/// `its` is null or a domain that is never freed, and `name` is null or a handle that is never
/// freed.
pub(super) unsafe extern "C" fn dec_in(its: *const abi::IttDomain, name: *const abi::StringHandle) {
    // SAFETY: each pointer is null, or a domain or handle that is never freed.
    unsafe { Change::Down.within(its, name, 1) }
}

/// # Safety
///
/// `its` is null or a domain that is never freed, and `name` is null or a handle that is never
/// freed.
pub(super) unsafe extern "C" fn dec_delta_in(
    its: *const abi::IttDomain,
    name: *const abi::StringHandle,
    delta: u64,
) {
    // SAFETY: each pointer is null, or a domain or handle that is never freed.
    unsafe { Change::Down.within(its, name, delta) }
}
