//! Kokkos Tools: kernels, regions, fences, copies and sections.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use pfp::stack;
use pfp::table::Once;

use crate::names::{Domain, RegionKind, Text, named, named_by_c};
use crate::{get_ready, spans};

const SYSTEM: &str = "kokkos";

/// `Kokkos_Profiling_SpaceHandle`, which is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Space {
    name: [c_char; 64],
}

/// Switches off the fences that Kokkos by default puts around each kernel.
///
/// # Safety
///
/// `settings` points to at least one writable `bool`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn kokkosp_request_tool_settings(_count: u32, settings: *mut bool) {
    // SAFETY: the caller passes at least one setting; the first is whether Kokkos fences.
    unsafe { *settings = false }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn kokkosp_init_library(
    _sequence: c_int,
    _version: u64,
    _devices: u32,
    _infos: *const c_void,
) {
    get_ready();
}

/// The domain of this name, looked up once.
macro_rules! domain {
    ($name:literal) => {{
        static FOUND: Once<&Domain> = Once::new();
        *FOUND.get_or_make(|| Domain::of(SYSTEM, $name))
    }};
}

/// Begins a region of the calling thread.
///
/// # Safety
///
/// `name` is null or a string that ends with NUL.
unsafe fn begin(domain: &'static Domain, name: *const c_char) {
    // SAFETY: the caller passes null or a string that ends with NUL.
    if let Some(named) = unsafe { named_by_c(domain, name, RegionKind::Region) } {
        stack::push(owner(domain), |open| named.begin(open, 0));
    }
}

fn end(domain: &'static Domain) {
    stack::pop(owner(domain));
}

fn owner(domain: &'static Domain) -> usize {
    std::ptr::from_ref(domain).addr()
}

macro_rules! kernels {
    ($($domain:literal: $begin:ident, $end:ident;)*) => {$(
        /// # Safety
        ///
        /// `name` is null or a string that ends with NUL; `id` points to a writable `u64`.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $begin(name: *const c_char, _device: u32, id: *mut u64) {
            // SAFETY: the caller passes a writable `id`. Every kernel gets 0, because the thread
            // that begins a kernel also ends it.
            unsafe { *id = 0 }
            // SAFETY: the caller passes null or a string that ends with NUL.
            unsafe { begin(domain!($domain), name) }
        }

        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $end(_id: u64) {
            end(domain!($domain));
        }
    )*};
}

kernels! {
    "for": kokkosp_begin_parallel_for, kokkosp_end_parallel_for;
    "reduce": kokkosp_begin_parallel_reduce, kokkosp_end_parallel_reduce;
    "scan": kokkosp_begin_parallel_scan, kokkosp_end_parallel_scan;
    "fence": kokkosp_begin_fence, kokkosp_end_fence;
}

/// # Safety
///
/// `name` is null or a string that ends with NUL.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn kokkosp_push_profile_region(name: *const c_char) {
    // SAFETY: the caller passes null or a string that ends with NUL.
    unsafe { begin(domain!("region"), name) }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn kokkosp_pop_profile_region() {
    end(domain!("region"));
}

/// # Safety
///
/// `to` is null or a string that ends with NUL.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn kokkosp_begin_deep_copy(
    _to_space: Space,
    to: *const c_char,
    _to_data: *const c_void,
    _from_space: Space,
    _from: *const c_char,
    _from_data: *const c_void,
    bytes: u64,
) {
    let domain = domain!("copy");
    // SAFETY: the caller passes null or a string that ends with NUL.
    if let Some(named) = unsafe { named_by_c(domain, to, RegionKind::Amount("bytes")) } {
        stack::push(owner(domain), |open| named.begin(open, bytes));
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn kokkosp_end_deep_copy() {
    end(domain!("copy"));
}

/// # Safety
///
/// `name` is null or a string that ends with NUL.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn kokkosp_profile_event(name: *const c_char) {
    let domain = domain!("event");
    // SAFETY: the caller passes null or a string that ends with NUL.
    if let Some(named) = unsafe { named_by_c(domain, name, RegionKind::Region) } {
        stack::mark(|open| named.begin(open, 0));
    }
}

/// Names of sections, indexed by section number.
static SECTIONS: [Once<&Text>; 1024] = [const { Once::new() }; 1024];

/// # Safety
///
/// `name` is null or a string that ends with NUL; `id` points to a writable `u32`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn kokkosp_create_profile_section(name: *const c_char, id: *mut u32) {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Relaxed);
    if let Some(section) = SECTIONS.get(number as usize) {
        // SAFETY: the caller passes null or a string that ends with NUL.
        let text = unsafe { Text::of_c(name) };
        section.get_or_make(|| text);
    }
    // SAFETY: the caller passes a writable `id`.
    unsafe { *id = number }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn kokkosp_start_profile_section(id: u32) {
    let Some(section_of) = SECTIONS.get(id as usize) else { return pfp::c::count_refusal() };
    if let Some(text) = section_of.get()
        && let Some(named) = named(domain!("section"), text, RegionKind::Span)
    {
        spans::begin(section(id), named, 0);
    }
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn kokkosp_stop_profile_section(id: u32) {
    spans::end(section(id));
}

fn section(id: u32) -> u64 {
    spans::key(&[0x6b6f_6b6b, id.into()])
}
