//! The points of names that annotations bring: made once for a domain and a name, and kept.
//!
//! ```text
//! bytes --> Text --+
//!                  +--> Named: a point
//! label --> Domain-+
//! ```
//!
//! Programs make up names as they run, so there is a limit: further names are one point of
//! their domain, [`OTHERS`].

use std::ffi::{CStr, c_char};
use std::ptr;
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Release},
};

use pfp::own::heap;
use pfp::stack::Open;
use pfp::table::{Once, Table, mix};
use pfp::{MeteredPoint, Point, c, past};

/// Names that are kept.
const TEXTS: usize = 4096;
/// Points that are made of them; as many again may be [`OTHERS`] of a domain.
const POINTS: usize = 4096;
/// Domains that are kept. All others are one, `(other domains)`.
const DOMAINS: usize = 256;
/// Bytes of a name that are kept; of a longer one the middle goes.
const LONGEST: usize = 256;
/// Bytes for a name in which every character was replaced, and for a few words beside it.
pub(crate) const ROOM: usize = 4 * LONGEST;
const HEAD: usize = 160;
/// Stands in place of the middle.
const GAP: &[u8] = "…".as_bytes();
/// Name of the point that a domain's further names share when there are too many.
const OTHERS: &CStr = c"(other names)";
/// Set by `pfp-top run --fold-digits`: each run of digits in a name is one `#`.
const FOLD: &CStr = c"PFP_FOLD_DIGITS";

/// A name, as it is shown.
pub(crate) struct Text {
    hash: u64,
    name: &'static str,
    /// The bytes that it was found by, which may be no UTF-8, and a 0.
    bytes: &'static [u8],
}

static ALL_TEXTS: Table<Text, { 2 * TEXTS }> = Table::new();

impl Text {
    /// The name in a string of C; null is an empty one.
    ///
    /// # Safety
    ///
    /// It is null, or ends with 0.
    #[inline]
    pub(crate) unsafe fn of_c(string: *const c_char) -> &'static Self {
        match string.is_null() {
            true => Self::of(b""),
            // SAFETY: as the caller says.
            false => Self::of(unsafe { CStr::from_ptr(string) }.to_bytes()),
        }
    }

    /// The name in a string of wide characters; null is an empty one.
    ///
    /// # Safety
    ///
    /// It is null, or ends with 0.
    pub(crate) unsafe fn of_wide(string: *const libc::wchar_t) -> &'static Self {
        let mut bytes = [0; 4 * LONGEST];
        let mut len = 0;
        let mut at = string;
        // SAFETY: as the caller says: up to the 0.
        while let Some(&character) = unsafe { at.as_ref() }.filter(|&&character| character != 0) {
            let character = char::from_u32(character as u32).unwrap_or(char::REPLACEMENT_CHARACTER);
            let Some(room) = bytes.get_mut(len..len + character.len_utf8()) else { break };
            len += character.encode_utf8(room).len();
            // SAFETY: that was not the last one.
            at = unsafe { at.add(1) };
        }
        Self::of(&bytes[..len])
    }

    #[inline]
    pub(crate) fn of(bytes: &[u8]) -> &'static Self {
        if bytes.len() <= LONGEST && !folds_digits() {
            return Self::kept(bytes);
        }
        let mut room = [0; LONGEST];
        let len = shorten(bytes, folds_digits(), &mut room);
        Self::kept(&room[..len])
    }

    #[inline]
    fn kept(bytes: &[u8]) -> &'static Self {
        let hash = hash_of(bytes);
        let is = |text: &Self| text.hash == hash && text.bytes[..text.bytes.len() - 1] == *bytes;
        ALL_TEXTS
            .try_get(hash, TEXTS, is, || Self::new(hash, bytes))
            .unwrap_or_else(|| Self::others())
    }

    /// `None` if memory runs out.
    fn new(hash: u64, bytes: &[u8]) -> Option<Self> {
        let name: &'static str = match bytes {
            [] => "(no name)",
            bytes => heap::lossy(bytes).ok()?.leak(),
        };
        Some(Self { hash, name, bytes: heap::bytes(&[bytes, b"\0"]).ok()?.leak() })
    }

    fn others() -> &'static Self {
        static OTHER_TEXTS: Once<Text> = Once::new();
        OTHER_TEXTS.get_or_make(|| {
            let name = OTHERS.to_str().unwrap_or_default();
            Self { hash: hash_of(name.as_bytes()), name, bytes: OTHERS.to_bytes_with_nul() }
        })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Whether a string of C is exactly this.
    ///
    /// # Safety
    ///
    /// It ends with 0.
    #[inline]
    unsafe fn is_c(&self, string: *const c_char) -> bool {
        // SAFETY: both end with 0.
        unsafe { libc::strcmp(string, self.bytes.as_ptr().cast()) == 0 }
    }
}

/// Makes what all further names come to.
pub(crate) fn prepare() {
    Text::others();
    Domain::others();
}

fn folds_digits() -> bool {
    static FOLDS: Once<bool> = Once::new();
    *FOLDS
        .get_or_make(|| c::environment(FOLD).is_some_and(|value| value != "0" && !value.is_empty()))
}

/// Writes a name as it is kept, and says how long that is.
fn shorten(bytes: &[u8], folds: bool, room: &mut [u8; LONGEST]) -> usize {
    let is_kept = |&at: &usize| {
        let was_digit = at > 0 && bytes[at - 1].is_ascii_digit();
        !(folds && bytes[at].is_ascii_digit() && was_digit)
    };
    let as_kept = |at: usize| match bytes[at] {
        byte if folds && byte.is_ascii_digit() => b'#',
        byte => byte,
    };
    let mut kept = (0..bytes.len()).filter(is_kept);
    let mut len = 0;
    for at in kept.by_ref().take(LONGEST) {
        room[len] = as_kept(at);
        len += 1;
    }
    if kept.next().is_none() {
        return len;
    }
    let tail = LONGEST - HEAD - GAP.len();
    room[HEAD..HEAD + GAP.len()].copy_from_slice(GAP);
    let last = (0..bytes.len()).rev().filter(is_kept).take(tail);
    for (place, at) in room[HEAD + GAP.len()..].iter_mut().rev().zip(last) {
        *place = as_kept(at);
    }
    LONGEST
}

#[inline]
fn hash_of(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word));
    words.fold(bytes.len() as u64, |hash, word| mix(hash.rotate_left(5) ^ word))
}

/// What the names are in: a system, and a domain of it.
pub(crate) struct Domain {
    /// `system:name`, or the system alone. It stands where a point of the program's own has
    /// its file.
    label: &'static str,
}

static ALL_DOMAINS: Table<Domain, { 2 * DOMAINS }> = Table::new();

impl Domain {
    /// A domain of a system; without a name, the system's own.
    pub(crate) fn of(system: &'static str, name: &str) -> &'static Self {
        Self::within(system, ':', name)
    }

    fn within(outer: &'static str, by: char, name: &str) -> &'static Self {
        let mut between = [0; 4];
        let between = if name.is_empty() { "" } else { &*by.encode_utf8(&mut between) };
        let parts = [outer, between, name].map(str::as_bytes);
        let Ok(label) = heap::bytes(&parts) else { return Self::others() };
        let make = || Some(Self { label: heap::lossy(&label).ok()?.leak() });
        let is = |domain: &Self| domain.label.as_bytes() == label;
        let found = ALL_DOMAINS.try_get(hash_of(&label), DOMAINS, is, make);
        found.unwrap_or_else(Self::others)
    }

    fn others() -> &'static Self {
        static REST: Once<Domain> = Once::new();
        REST.get_or_make(|| Self { label: "(other domains)" })
    }

    /// A part of this domain.
    pub(crate) fn part(&'static self, name: &str) -> &'static Self {
        Self::within(self.label, '/', name)
    }
}

/// Whether no point of a domain measures.
#[cold]
pub(crate) fn are_off(domain: &'static Domain) -> bool {
    !ALL_NAMED.iter().any(|named| ptr::eq(named.domain, domain) && named.is_on())
}

/// How a name is measured; one name may be measured in several ways.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Regions of a thread, inside one another.
    Region,
    /// Such regions with an amount, and what that is called.
    Amount(&'static str),
    /// Spans of the wall clock, which no thread has for itself.
    Span,
    /// Such spans with an amount, and what that is called.
    SpanAmount(&'static str),
}

impl Kind {
    #[inline]
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Region => 0,
            Self::Amount(_) => 1,
            Self::Span => 2,
            Self::SpanAmount(_) => 3,
        }
    }
}

/// A point, and what it was made of.
pub(crate) struct Named {
    domain: *const Domain,
    text: *const Text,
    kind: Kind,
    pub(crate) measured: Measured,
}

// SAFETY: the pointers are of statics, and compared only.
unsafe impl Sync for Named {}
// SAFETY: as above.
unsafe impl Send for Named {}

impl Named {
    /// Whether its point measures, or may.
    #[inline]
    pub(crate) fn is_on(&'static self) -> bool {
        pfp::c::may_measure(match &self.measured {
            Measured::Point(point) => point,
            Measured::MeteredPoint(metered) => metered.point(),
        })
    }

    /// Begins a region, with an amount if the name has such.
    #[inline]
    pub(crate) fn begin(&'static self, open: &mut Open, amount: u64) {
        match &self.measured {
            Measured::Point(point) => open.measure(point),
            Measured::MeteredPoint(metered) => open.measure_with(metered, [amount]),
        }
    }
}

pub(crate) enum Measured {
    Point(Point),
    MeteredPoint(&'static MeteredPoint),
}

static ALL_NAMED: Table<Named, { 4 * POINTS }> = Table::new();

/// Addresses of a program that stand for a name, such as those of a domain and of a handle.
struct Pair {
    addresses: [usize; 2],
    named: Option<&'static Named>,
}

static PAIRS: Table<Pair, { 4 * POINTS }> = Table::new();

/// The name that two addresses stand for, found once. The mark tells names apart that the same two
/// stand for.
#[inline(always)]
pub(crate) fn paired(
    addresses: [usize; 2],
    mark: u8,
    find: impl Fn() -> Option<&'static Named>,
) -> Option<&'static Named> {
    // In bits that no address has.
    let addresses = [addresses[0] ^ usize::from(mark) << (usize::BITS - 8), addresses[1]];
    let hash = mix(addresses[0] as u64 ^ (addresses[1] as u64).rotate_left(20));
    let is = |pair: &Pair| pair.addresses == addresses;
    let found = PAIRS.get(hash, 2 * POINTS, is, || Pair { addresses, named: find() });
    found.map_or_else(&find, |pair| pair.named)
}

/// The point of a name. None if there is no memory for it, which is counted.
#[inline]
pub(crate) fn named(
    domain: &'static Domain,
    text: &'static Text,
    kind: Kind,
) -> Option<&'static Named> {
    let others = || find(domain, Text::others(), kind, 2 * POINTS);
    let found = find(domain, text, kind, POINTS).or_else(others);
    if found.is_none() {
        c::count_refusal();
    }
    found
}

/// The points of strings that were used last, by where these and their domains are.
static LATEST: [AtomicPtr<Named>; 1024] = [const { AtomicPtr::new(ptr::null_mut()) }; 1024];

/// The point of a name in a string of C; null is an empty one.
///
/// # Safety
///
/// It is null, or ends with 0.
#[inline]
pub(crate) unsafe fn named_by_c(
    domain: &'static Domain,
    string: *const c_char,
    kind: Kind,
) -> Option<&'static Named> {
    let at = mix(string.addr() as u64 ^ (ptr::from_ref(domain).addr() as u64).rotate_left(20));
    let place = &LATEST[at as usize % LATEST.len()];
    // SAFETY: null, or never freed. Meets `Release` below.
    let latest = unsafe { place.load(Acquire).as_ref() };
    if let Some(named) = latest
        && ptr::eq(named.domain, domain)
        && named.kind == kind
        && !string.is_null()
        // Another text may be there by now.
        // SAFETY: as the caller says; the text is never freed.
        && unsafe { (*named.text).is_c(string) }
    {
        return latest;
    }
    // SAFETY: as the caller says.
    let found = named(domain, unsafe { Text::of_c(string) }, kind)?;
    if latest.is_none_or(|latest| !ptr::eq(latest, found)) {
        // Meets `Acquire` above: it is filled.
        place.store(ptr::from_ref(found).cast_mut(), Release);
    }
    Some(found)
}

#[inline]
fn find(
    domain: &'static Domain,
    text: &'static Text,
    kind: Kind,
    most: usize,
) -> Option<&'static Named> {
    let is = |named: &Named| {
        ptr::eq(named.text, text) && ptr::eq(named.domain, domain) && named.kind == kind
    };
    let address = ptr::from_ref(domain).addr() as u64;
    let hash = mix(text.hash ^ address.rotate_left(20) ^ u64::from(kind.number()));
    ALL_NAMED.try_get(hash, most, is, || make(domain, text, kind))
}

#[cold]
fn make(domain: &'static Domain, text: &'static Text, kind: Kind) -> Option<Named> {
    let (name, file) = (text.name(), domain.label);
    let measured = match kind {
        Kind::Region => Measured::Point(Point::at(name, file, 0)),
        Kind::Amount(amount) => with_amount(Point::at(name, file, 0), amount)?,
        Kind::SpanAmount(amount) => with_amount(past::wall_point(name, file, 0), amount)?,
        Kind::Span => Measured::Point(past::wall_point(name, file, 0)),
    };
    Some(Named { domain, text, kind, measured })
}

fn with_amount(point: Point, amount: &'static str) -> Option<Measured> {
    let names: &'static [&'static str] = Box::leak(heap::boxed([amount]).ok()?);
    let metered = heap::boxed(past::metered(point, names)).ok()?;
    Some(Measured::MeteredPoint(Box::leak(metered)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(name: &str, folds: bool) -> String {
        let mut room = [0; LONGEST];
        let len = shorten(name.as_bytes(), folds, &mut room);
        String::from_utf8(room[..len].to_vec()).unwrap()
    }

    #[test]
    fn digits_fold_run_by_run() {
        for (name, folded) in [
            ("seq = 17, sizes = [1, 1024]", "seq = #, sizes = [#, #]"),
            ("7", "#"),
            ("x86_64", "x#_#"),
            ("plain", "plain"),
            ("", ""),
        ] {
            assert_eq!(kept(name, true), folded);
            assert_eq!(kept(name, false), name);
        }
        // What is folded is not too long any more.
        assert_eq!(kept(&"12345".repeat(100), true), "#");
    }

    #[test]
    fn a_long_name_loses_its_middle() {
        for len in [LONGEST, LONGEST + 1, 1000, 100_000] {
            let name: String = ('a'..='z').cycle().take(len).collect();
            let kept = kept(&name, false);
            if len == LONGEST {
                assert_eq!(kept, name);
                continue;
            }
            assert_eq!(kept.len(), LONGEST);
            let (head, tail) = kept.split_once('…').unwrap();
            assert!(name.starts_with(head) && name.ends_with(tail) && head.len() == HEAD);
        }
    }

    #[test]
    fn a_name_is_one_text_and_one_point_of_each_kind() {
        let text = |bytes: &[u8]| ptr_of(Text::of(bytes));
        assert_eq!(text(b"one"), text(b"one"));
        assert_ne!(text(b"one"), text(b"other"));
        // What is no UTF-8 is a name all the same.
        assert_eq!(Text::of(b"\xff\xfe").name(), "\u{fffd}\u{fffd}");
        assert_eq!(Text::of(b"").name(), "(no name)");
        let point = |domain: &str, kind| {
            ptr_of(named(Domain::of("test", domain), Text::of(b"one"), kind).unwrap())
        };
        assert_eq!(point("a", Kind::Region), point("a", Kind::Region));
        assert_ne!(point("a", Kind::Region), point("b", Kind::Region));
        assert_ne!(point("a", Kind::Region), point("a", Kind::Span));
        assert_ne!(point("a", Kind::Region), point("a", Kind::Amount("bytes")));
        assert_eq!(Domain::of("test", "a").part("io").label, "test:a/io");
        assert_eq!(Domain::of("test", "").label, "test");
    }

    #[test]
    fn a_string_is_known_by_what_stands_in_it_now() {
        let domain = Domain::of("test", "strings");
        let mut place = *b"first\0";
        let found = |place: &[u8], kind| {
            // SAFETY: it ends with 0.
            let named = unsafe { named_by_c(domain, place.as_ptr().cast(), kind) }.unwrap();
            // SAFETY: a text that is never freed.
            (ptr_of(named), unsafe { &*named.text }.name())
        };
        let first = found(&place, Kind::Region);
        assert_eq!(first.1, "first");
        assert_eq!(found(&place, Kind::Region), first);
        assert_ne!(found(&place, Kind::Span), first);
        // Shorter, longer at the same place, and the first again.
        for (text, name) in [(b"fir\0t\0", "fir"), (b"other\0", "other"), (b"first\0", "first")] {
            place = *text;
            assert_eq!(found(&place, Kind::Region).1, name);
            assert_eq!(found(&place, Kind::Region).1, name);
        }
        assert_eq!(found(&place, Kind::Region), first);
        // SAFETY: null is an empty one.
        let none = unsafe { named_by_c(domain, ptr::null(), Kind::Region) }.unwrap();
        // SAFETY: a text that is never freed.
        assert_eq!(unsafe { &*none.text }.name(), "(no name)");
    }

    fn ptr_of<T>(thing: &T) -> *const T {
        thing
    }
}
