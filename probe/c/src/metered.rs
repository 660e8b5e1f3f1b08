//! Points by name whose regions carry amounts, which are numbers such as bytes. A site holds a
//! pointer to a point of this library, as in [`named`](crate::named).

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

/// Maximum number of points.
const MAX_POINTS: usize = 1 << 14;
/// Maximum number of amounts of a point.
const AMOUNTS: usize = 4;

/// `pfp_metered_site_t` of `pfp.h`.
#[repr(C)]
pub(crate) struct MeteredSite {
    /// The point. Before the site is registered, a stand-in whose word reads as "not registered".
    point: AtomicPtr<MeteredPoint>,
    name: *const c_char,
    file: *const c_char,
    /// Names of the amounts, separated by commas.
    amounts: *const c_char,
    line: c_uint,
}

// Size of the struct in C.
const _: () = assert!(size_of::<MeteredSite>() == 40);

/// `pfp_metered_t` of `pfp.h`.
#[repr(C)]
pub(crate) struct MeteredScope {
    /// 0 if the region is not measured.
    tag: u64,
    amounts: [u64; AMOUNTS],
}

/// A point and its place in the source.
struct PlacedMeteredPoint {
    name: &'static str,
    file: &'static str,
    amounts: &'static str,
    line: c_uint,
    metered: MeteredPoint,
}

static PLACES: Trie<PlacedMeteredPoint> = Trie::new();

/// The point with this name, place and amounts. `None` without a name or amounts, if there are too
/// many points, or if memory runs out.
///
/// # Safety
///
/// Each string is null or ends with a zero byte.
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
    let is_it = |place: &PlacedMeteredPoint| {
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
        Some(PlacedMeteredPoint { name, file, amounts, line, metered })
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
    // SAFETY: a site holds a point or the stand-in of an unregistered site, and a point with
    // amounts begins with a `Point`.
    let word = unsafe { word(point.cast()) };
    if word == probe::c::UNREGISTERED {
        begin_unregistered(scope, site);
    } else {
        // SAFETY: the word is not the stand-in's, so `point` is a point of this library, which is
        // never freed.
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
    // Release pairs with the acquire in `pfp_metered_begin_site`.
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
/// `name`, `file` and `amounts` are null or end with a zero byte.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pfp_point_amounts(
    name: *const c_char,
    file: *const c_char,
    line: c_uint,
    amounts: *const c_char,
) -> Option<&'static Point> {
    // SAFETY: not null, so the caller passes a string that ends with a zero byte.
    let names = (!amounts.is_null()).then(|| unsafe { CStr::from_ptr(amounts) })?.to_bytes();
    if names.iter().filter(|letter| **letter == b',').count() >= AMOUNTS {
        return None;
    }
    // SAFETY: the caller passes null or strings that end with a zero byte.
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
    // SAFETY: not null, so the caller passes `count` readable numbers.
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
        // SAFETY: not null, so the caller passes `count` writable numbers, and `at` is less than
        // `count`.
        unsafe { sums.add(at).write(sum) };
    }
    Status::Ok.code()
}
