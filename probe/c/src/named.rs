//! Points by name.
//!
//! A site is a static in the caller's program or plugin. The site's point belongs to this library,
//! so the point remains when a plugin is unloaded. All sites with the same name, file and line
//! share one point: an inline function of a header, for example, has a site in every object that
//! includes the header.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU64,
    Ordering::{Acquire, Release},
};
use std::time::Duration;

use probe::Point;

use crate::original::weigh;
use crate::places;
use crate::stats::{self, Stats};
use crate::status::Status;
use crate::text;

/// `pfp_site_t` of `pfp.h`.
#[repr(C)]
pub(crate) struct Site {
    /// The point. Before the site is registered, a stand-in whose word reads as "not registered".
    point: AtomicPtr<Point>,
    name: *const c_char,
    file: *const c_char,
    line: c_uint,
}

// Size of the struct in C.
const _: () = assert!(size_of::<Site>() == 32);

/// `pfp_scope_t` of `pfp.h`.
#[repr(C)]
pub(crate) struct Scope {
    /// 0 if the region is not measured.
    tag: u64,
}

/// The point of a name and place. `None` if `name` is null, there are too many points, or memory
/// runs out.
///
/// # Safety
///
/// `name` and `file` are null or end with a zero byte.
unsafe fn point_at(
    name: *const c_char,
    file: *const c_char,
    line: c_uint,
) -> Option<&'static Point> {
    // SAFETY: not null, so the caller passes a string that ends with a zero byte.
    let of = |text: *const c_char| (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
    places::point(of(name)?.to_bytes(), of(file).unwrap_or_default().to_bytes(), line)
}

impl Site {
    /// The point of the site, looked up or created.
    #[cold]
    #[inline(never)]
    fn resolve(&self) -> Option<&'static Point> {
        // SAFETY: the macros of `pfp.h` put string literals here.
        let point = unsafe { point_at(self.name, self.file, self.line) }?;
        // Release pairs with the acquire in `pfp_scope_begin_site`.
        self.point.store(ptr::from_ref(point).cast_mut(), Release);
        Some(point)
    }
}

/// The word of a point.
///
/// # Safety
///
/// `point` points to a point, or to the stand-in in an unregistered site.
#[inline(always)]
pub(crate) unsafe fn word(point: *const Point) -> u64 {
    // SAFETY: the caller passes a `Point` or the stand-in of an unregistered site. Both begin with
    // the pointer to the word.
    unsafe { probe::c::word(point.cast::<AtomicPtr<AtomicU64>>()) }
}

/// See `pfp.h`, which calls this for a site whose point is on or not registered. For a point that
/// is off, this function works, too, but is slow.
///
/// # Safety
///
/// `scope` is valid for writes, and `site` is a site of the header's macros.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pfp_scope_begin_site(scope: &mut MaybeUninit<Scope>, site: &Site) {
    let point = site.point.load(Acquire);
    // SAFETY: a site of `pfp.h` holds a `Point` or the stand-in of an unregistered site.
    let word = unsafe { word(point) };
    let tag = match word {
        probe::c::UNREGISTERED => begin_unregistered(site),
        // SAFETY: the word is not the stand-in's, so `point` is a point of this library, which is
        // never freed.
        word => probe::c::begin(unsafe { &*point }, word),
    };
    scope.write(Scope { tag });
}

#[cold]
#[inline(never)]
fn begin_unregistered(site: &Site) -> u64 {
    if !probe::c::has_room() {
        probe::c::miss();
        return 0;
    }
    site.resolve().map_or(0, probe::c::begin_if_on)
}

/// See `pfp.h`, which calls this for a point that is on or not registered.
///
/// # Safety
///
/// `scope` is valid for writes, and `point` came from [`pfp_point`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pfp_scope_begin_point(
    scope: &mut MaybeUninit<Scope>,
    point: &'static Point,
) {
    // SAFETY: the point came from `pfp_point`, which returns points that are never freed.
    let word = unsafe { word(point) };
    // If the bit is clear, the point has just been switched off.
    let tag = if word & 1 == 0 { 0 } else { probe::c::begin(point, word) };
    scope.write(Scope { tag });
}

/// See `pfp.h`, which calls this for a scope that measures.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_scope_end_on(scope: &Scope) {
    probe::c::end_tag(scope.tag);
}

/// See `pfp.h`.
///
/// # Safety
///
/// `name` and `file` are null or end with a zero byte.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pfp_point(
    name: *const c_char,
    file: *const c_char,
    line: c_uint,
) -> Option<&'static Point> {
    // SAFETY: the caller passes null or strings that end with a zero byte.
    unsafe { point_at(name, file, line) }
}

fn with(point: Option<&'static Point>, act: impl FnOnce(&'static Point) -> Status) -> c_int {
    point.map_or(Status::Null, act).code()
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_begin(point: Option<&'static Point>) -> c_int {
    with(point, |point| {
        point.begin();
        Status::Ok
    })
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_end(point: Option<&'static Point>, latch: c_int) -> c_int {
    with(point, |point| {
        if latch == 0 {
            point.end();
        } else {
            point.end_latched();
        }
        Status::Ok
    })
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_enable(point: Option<&'static Point>) -> c_int {
    with(point, |point| {
        point.enable();
        Status::Ok
    })
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_disable(point: Option<&'static Point>) -> c_int {
    with(point, |point| {
        point.disable();
        Status::Ok
    })
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_reset(point: Option<&'static Point>) -> c_int {
    with(point, |point| {
        point.reset();
        Status::Ok
    })
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_set_counting_allocs(
    point: Option<&'static Point>,
    counting: c_int,
) -> c_int {
    with(point, |point| {
        point.set_counting_allocs(counting != 0);
        Status::Ok
    })
}

/// The time that `pfp_keep_over` gets.
fn over(ns: u64) -> Option<Duration> {
    (ns > 0).then(|| Duration::from_nanos(ns))
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_keep_over(point: Option<&'static Point>, ns: u64) -> c_int {
    with(point, |point| {
        point.keep_over(over(ns));
        Status::Ok
    })
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_keep_over_cpu(point: Option<&'static Point>, ns: u64) -> c_int {
    with(point, |point| {
        point.keep_over_cpu(over(ns));
        Status::Ok
    })
}

/// See `pfp.h`.
///
/// # Safety
///
/// `why` is null, or a NUL-terminated text.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pfp_keep(why: *const c_char) {
    // SAFETY: the caller's promise.
    if let Ok(why) = unsafe { text::of(why) } {
        probe::keep(why.as_str());
    }
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_alloc(bytes: usize) {
    probe::c::count_alloc(bytes);
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_free(bytes: usize) {
    probe::c::count_free(bytes);
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_set_fenced(point: Option<&'static Point>, fenced: c_int) -> c_int {
    with(point, |point| {
        point.set_fenced(fenced != 0);
        Status::Ok
    })
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_set_alpha(point: Option<&'static Point>, alpha: f64) -> c_int {
    with(point, |point| weigh(point.set_alpha(alpha)))
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_clear_alpha(point: Option<&'static Point>) -> c_int {
    with(point, |point| {
        point.clear_alpha();
        Status::Ok
    })
}

/// See `pfp.h`.
///
/// # Safety
///
/// `to` is null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pfp_get_stats(
    point: Option<&'static Point>,
    to: *mut MaybeUninit<Stats>,
) -> c_int {
    // SAFETY: the caller passes null or a pointer that is valid for writes.
    let to = unsafe { to.as_mut() };
    with(point, |point| stats::fill(point, to))
}
