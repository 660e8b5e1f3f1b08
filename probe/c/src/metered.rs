//! Points with amounts. A site leads to a point of the library's own, as one without
//! amounts does.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::ptr;
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Release},
};

use probe::{MeteredPoint, Point};

use crate::named::word;
use crate::status::Status;
use crate::trie::Trie;
use crate::{arena, places};

/// Points that are kept.
const MAX_POINTS: usize = 1 << 14;
/// Amounts of a point.
const AMOUNTS: usize = 4;

/// `pfp_metered_site_t` of `pfp.h`.
#[repr(C)]
pub(crate) struct MeteredSite {
    /// A word that reads as "not registered" stands behind what this points to at
    /// first.
    point: AtomicPtr<MeteredPoint>,
    name: *const c_char,
    file: *const c_char,
    /// Their names, with commas between them.
    amounts: *const c_char,
    line: c_uint,
}

// As C lays them out.
const _: () = assert!(size_of::<MeteredSite>() == 40);

/// `pfp_metered_t` of `pfp.h`.
#[repr(C)]
pub(crate) struct MeteredScope {
    /// 0 if the region is not measured.
    tag: u64,
    amounts: [u64; AMOUNTS],
}

/// A point and its place in the source.
struct Place {
    name: &'static str,
    file: &'static str,
    amounts: &'static str,
    line: c_uint,
    metered: MeteredPoint,
}

static PLACES: Trie<Place> = Trie::new();

/// The point of a name, a place and amounts. `None` without a name or amounts, if there are too
/// many points, or without memory.
///
/// # Safety
///
/// The texts are null or end with a zero byte.
#[inline(never)]
unsafe fn point_at(
    name: *const c_char,
    file: *const c_char,
    line: c_uint,
    amounts: *const c_char,
) -> Option<&'static MeteredPoint> {
    // SAFETY: `text` is not null, and by the caller's promise it ends with a zero byte.
    let of = |text: *const c_char| (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) });
    let [name, amounts] = [of(name)?.to_bytes(), of(amounts)?.to_bytes()];
    let file = of(file).unwrap_or_default().to_bytes();
    let is_it = |place: &Place| {
        place.line == line
            && [place.name, place.file, place.amounts]
                .iter()
                .zip([name, file, amounts])
                .all(|(kept, text)| kept.bytes().eq(places::text(text)))
    };
    let make = || {
        let [(_, name), (_, file), (_, amounts)] =
            [places::keep(name)?, places::keep(file)?, places::keep(amounts)?];
        let mut names = amounts.split(',').map(str::trim);
        let count = names.clone().count().min(AMOUNTS);
        let names = std::array::from_fn::<_, AMOUNTS, _>(|_| names.next().unwrap_or(""));
        let names = arena::keep(names)?;
        let metered = MeteredPoint::at(name, file, line, &names[..count]);
        Some(Place { name, file, amounts, line, metered })
    };
    if amounts.is_empty() {
        return None;
    }
    let hash = places::hash([name, file, amounts], line);
    PLACES.get(hash, MAX_POINTS, is_it, make).map(|place| &place.metered)
}

/// See `pfp.h`, which calls this for a site whose point is on or not registered, with the
/// amounts in the scope and a tag of 0.
///
/// # Safety
///
/// `site` is a site of the header's macros.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pfp_metered_begin_site(
    scope: &mut MeteredScope,
    site: &MeteredSite,
) {
    let point = site.point.load(Acquire);
    // SAFETY: a point with amounts begins as any does.
    let word = unsafe { word(point.cast()) };
    if word == probe::c::UNREGISTERED {
        begin_unregistered(scope, site);
    } else {
        // SAFETY: only points of this library have other words, and those points are never freed.
        scope.tag = probe::c::begin_metered(unsafe { &*point }, scope.amounts);
    }
}

#[cold]
#[inline(never)]
fn begin_unregistered(scope: &mut MeteredScope, site: &MeteredSite) {
    if !probe::c::has_room() {
        return probe::c::miss();
    }
    // SAFETY: the macros of `pfp.h` fill these fields with string literals.
    let metered = unsafe { point_at(site.name, site.file, site.line, site.amounts) };
    let Some(metered) = metered else { return };
    // Meets `Acquire` in `pfp_metered_begin_site`.
    site.point.store(ptr::from_ref(metered).cast_mut(), Release);
    scope.tag = probe::c::begin_metered(metered, scope.amounts);
}

/// See `pfp.h`, which calls this for a point that is on or not registered, with the
/// amounts in the scope and a tag of 0. A point without amounts is not measured.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_metered_begin_point(scope: &mut MeteredScope, point: &'static Point) {
    match probe::c::begin_metered_of(point, scope.amounts) {
        Some(tag) => scope.tag = tag,
        None => probe::c::count_refusal(),
    }
}

/// See `pfp.h`, which calls this for a scope that measures.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfp_metered_end_on(scope: &MeteredScope) {
    probe::c::end_tag(scope.tag);
}

/// See `pfp.h`.
///
/// # Safety
///
/// The texts are null or end with a zero byte.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pfp_point_amounts(
    name: *const c_char,
    file: *const c_char,
    line: c_uint,
    amounts: *const c_char,
) -> Option<&'static Point> {
    // SAFETY: as the caller says.
    let names = (!amounts.is_null()).then(|| unsafe { CStr::from_ptr(amounts) })?.to_bytes();
    if names.iter().filter(|letter| **letter == b',').count() >= AMOUNTS {
        return None;
    }
    // SAFETY: as the caller says.
    unsafe { point_at(name, file, line, amounts) }.map(probe::MeteredPoint::point)
}

/// See `pfp.h`.
///
/// # Safety
///
/// `amounts` is null or valid for reads of `count` numbers.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pfp_end_amounts(
    point: Option<&'static Point>,
    latch: c_int,
    amounts: *const u64,
    count: c_uint,
) -> c_int {
    let Some(point) = point.filter(|_| !amounts.is_null()) else { return Status::Null.code() };
    // SAFETY: as the caller says.
    let amounts = unsafe { std::slice::from_raw_parts(amounts, count as usize) };
    let ended = probe::c::end_with(point, latch != 0, amounts);
    if ended { Status::Ok } else { Status::Handle }.code()
}

/// See `pfp.h`.
///
/// # Safety
///
/// `sums` is null or valid for writes of `count` numbers.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pfp_get_amounts(
    point: Option<&'static Point>,
    sums: *mut u64,
    count: c_uint,
) -> c_int {
    let Some(point) = point.filter(|_| !sums.is_null()) else { return Status::Null.code() };
    let Some(found) = probe::c::amounts(point) else { return Status::Handle.code() };
    for at in 0..count as usize {
        let sum = found.get(at).map_or(0, |sum| u64::try_from(*sum).unwrap_or(u64::MAX));
        // SAFETY: as the caller says.
        unsafe { sums.add(at).write(sum) };
    }
    Status::Ok.code()
}
