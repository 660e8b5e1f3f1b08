//! Points for the names in annotations. Each pair of a domain and a name gets one point, which is
//! never freed.
//!
//! ```text
//! bytes --> Text --+
//!                  +--> Named: a point
//! label --> Domain-+
//! ```
//!
//! Programs generate names as they run, so the number of names is limited. All further names share
//! one point of their domain, [`OTHERS`].

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

/// Maximum number of names.
const TEXTS: usize = 4096;
/// Maximum number of points for names. The table has room for as many again, for the [`OTHERS`] of
/// each domain.
const POINTS: usize = 4096;
/// Maximum number of domains. All further domains are counted as one, `(other domains)`.
const DOMAINS: usize = 256;
/// Maximum length of a name in bytes. The middle of a longer name is replaced by [`GAP`].
const LONGEST: usize = 256;
/// Size in bytes of a buffer for a name and a few more words. Each byte of the name may have been
/// replaced by U+FFFD, which has three bytes.
pub(crate) const ROOM: usize = 4 * LONGEST;
const HEAD: usize = 160;
/// Replacement for the middle of a name that is too long.
const GAP: &[u8] = "…".as_bytes();
/// Name of the point that the further names of a domain share.
const OTHERS: &CStr = c"(other names)";
/// Environment variable, set by `pfp-top run --fold-digits`: each run of digits in a name becomes
/// one `#`.
const FOLD: &CStr = c"PFP_FOLD_DIGITS";

/// A name as the viewer shows it.
pub(crate) struct Text {
    hash: u64,
    name: &'static str,
    /// The bytes of the name, which need not be UTF-8, followed by NUL.
    bytes: &'static [u8],
}

static ALL_TEXTS: Table<Text, { 2 * TEXTS }> = Table::new();

impl Text {
    /// The name in a C string; null is the empty name.
    ///
    /// # Safety
    ///
    /// `string` is null or ends with NUL.
    #[inline]
    pub(crate) unsafe fn of_c(string: *const c_char) -> &'static Self {
        match string.is_null() {
            true => Self::of(b""),
            // SAFETY: not null, so the caller passes a string that ends with NUL.
            false => Self::of(unsafe { CStr::from_ptr(string) }.to_bytes()),
        }
    }

    /// The name in a string of wide characters; null is the empty name.
    ///
    /// # Safety
    ///
    /// `string` is null or ends with NUL.
    pub(crate) unsafe fn of_wide(string: *const libc::wchar_t) -> &'static Self {
        let mut bytes = [0; 4 * LONGEST];
        let mut len = 0;
        let mut at = string;
        // SAFETY: `at` does not pass the NUL with which the caller's string ends.
        while let Some(&character) = unsafe { at.as_ref() }.filter(|&&character| character != 0) {
            let character = char::from_u32(character as u32).unwrap_or(char::REPLACEMENT_CHARACTER);
            let Some(room) = bytes.get_mut(len..len + character.len_utf8()) else { break };
            len += character.encode_utf8(room).len();
            // SAFETY: the character at `at` is not NUL, so another one follows.
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

    /// Whether a C string equals this text.
    ///
    /// # Safety
    ///
    /// `string` ends with NUL.
    #[inline]
    unsafe fn is_c(&self, string: *const c_char) -> bool {
        // SAFETY: both strings end with NUL.
        unsafe { libc::strcmp(string, self.bytes.as_ptr().cast()) == 0 }
    }
}

/// Creates the text and the domain that all further names and domains share.
pub(crate) fn prepare() {
    Text::others();
    Domain::others();
}

fn folds_digits() -> bool {
    static FOLDS: Once<bool> = Once::new();
    *FOLDS
        .get_or_make(|| c::environment(FOLD).is_some_and(|value| value != "0" && !value.is_empty()))
}

/// Writes the shortened name to `room` and returns its length.
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

/// Namespace of names: a system such as `nvtx`, and a domain within it.
pub(crate) struct Domain {
    /// `system:name`, or the system alone. Points have it in place of a source file.
    label: &'static str,
}

static ALL_DOMAINS: Table<Domain, { 2 * DOMAINS }> = Table::new();

impl Domain {
    /// A domain of a system. The empty name is the system's default domain.
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

    /// A subdomain of this domain.
    pub(crate) fn part(&'static self, name: &str) -> &'static Self {
        Self::within(self.label, '/', name)
    }
}

/// Whether all points of a domain are switched off.
#[cold]
pub(crate) fn are_off(domain: &'static Domain) -> bool {
    !ALL_NAMED.iter().any(|named| ptr::eq(named.domain, domain) && named.is_on())
}

/// How regions of a name are measured. The same name can be measured in several ways.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RegionKind {
    /// Regions of a thread, which nest.
    Region,
    /// Regions of a thread with an amount, and the label of the amount.
    Amount(&'static str),
    /// Spans of the wall clock, which belong to no thread.
    Span,
    /// Spans of the wall clock with an amount, and the label of the amount.
    SpanAmount(&'static str),
}

impl RegionKind {
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

/// A point, and the key that it was made for.
pub(crate) struct Named {
    domain: *const Domain,
    text: *const Text,
    kind: RegionKind,
    pub(crate) measured: Measured,
}

// SAFETY: the pointers point to values that are never freed or changed.
unsafe impl Sync for Named {}
// SAFETY: the pointers point to values that are never freed or changed.
unsafe impl Send for Named {}

impl Named {
    /// Returns true if the point is on, and also if its state is not known yet.
    #[inline]
    pub(crate) fn is_on(&'static self) -> bool {
        pfp::c::may_measure(match &self.measured {
            Measured::Point(point) => point,
            Measured::MeteredPoint(metered) => metered.point(),
        })
    }

    /// Begins a region, with an amount if the name has one.
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

/// Two addresses in the program that identify a name, such as a domain's and a string handle's.
struct Pair {
    addresses: [usize; 2],
    named: Option<&'static Named>,
}

static PAIRS: Table<Pair, { 4 * POINTS }> = Table::new();

/// The name that two addresses identify, looked up once. `mark` distinguishes several names with
/// the same two addresses.
#[inline(always)]
pub(crate) fn paired(
    addresses: [usize; 2],
    mark: u8,
    find: impl Fn() -> Option<&'static Named>,
) -> Option<&'static Named> {
    // The mark occupies the top byte, which is 0 in every address.
    let addresses = [addresses[0] ^ usize::from(mark) << (usize::BITS - 8), addresses[1]];
    let hash = mix(addresses[0] as u64 ^ (addresses[1] as u64).rotate_left(20));
    let is = |pair: &Pair| pair.addresses == addresses;
    let found = PAIRS.get(hash, 2 * POINTS, is, || Pair { addresses, named: find() });
    found.map_or_else(&find, |pair| pair.named)
}

/// The point of a name. `None` if memory runs out, which counts as a refusal.
#[inline]
pub(crate) fn named(
    domain: &'static Domain,
    text: &'static Text,
    kind: RegionKind,
) -> Option<&'static Named> {
    let others = || find(domain, Text::others(), kind, 2 * POINTS);
    let found = find(domain, text, kind, POINTS).or_else(others);
    if found.is_none() {
        c::count_refusal();
    }
    found
}

/// Cache of the points of recently used strings, indexed by a hash of the addresses of string and
/// domain.
static LATEST: [AtomicPtr<Named>; 1024] = [const { AtomicPtr::new(ptr::null_mut()) }; 1024];

/// The point of the name in a C string; null is the empty name.
///
/// # Safety
///
/// `string` is null or ends with NUL.
#[inline]
pub(crate) unsafe fn named_by_c(
    domain: &'static Domain,
    string: *const c_char,
    kind: RegionKind,
) -> Option<&'static Named> {
    let at = mix(string.addr() as u64 ^ (ptr::from_ref(domain).addr() as u64).rotate_left(20));
    let place = &LATEST[at as usize % LATEST.len()];
    // SAFETY: null, or a name that is never freed. Acquire pairs with the release below.
    let latest = unsafe { place.load(Acquire).as_ref() };
    if let Some(named) = latest
        && ptr::eq(named.domain, domain)
        && named.kind == kind
        && !string.is_null()
        // The program may have written another text to this address.
        // SAFETY: not null, so the caller's string ends with NUL; the text is never freed.
        && unsafe { (*named.text).is_c(string) }
    {
        return latest;
    }
    // SAFETY: the caller passes null or a string that ends with NUL.
    let found = named(domain, unsafe { Text::of_c(string) }, kind)?;
    if latest.is_none_or(|latest| !ptr::eq(latest, found)) {
        // Release pairs with the acquire above.
        place.store(ptr::from_ref(found).cast_mut(), Release);
    }
    Some(found)
}

#[inline]
fn find(
    domain: &'static Domain,
    text: &'static Text,
    kind: RegionKind,
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
fn make(domain: &'static Domain, text: &'static Text, kind: RegionKind) -> Option<Named> {
    let (name, file) = (text.name(), domain.label);
    let measured = match kind {
        RegionKind::Region => Measured::Point(Point::at(name, file, 0)),
        RegionKind::Amount(amount) => with_amount(Point::at(name, file, 0), amount)?,
        RegionKind::SpanAmount(amount) => with_amount(past::wall_point(name, file, 0), amount)?,
        RegionKind::Span => Measured::Point(past::wall_point(name, file, 0)),
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
        // A long name fits after its digits are folded.
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
        // Bytes that are not UTF-8 are a name, too.
        assert_eq!(Text::of(b"\xff\xfe").name(), "\u{fffd}\u{fffd}");
        assert_eq!(Text::of(b"").name(), "(no name)");
        let point = |domain: &str, kind| {
            ptr_of(named(Domain::of("test", domain), Text::of(b"one"), kind).unwrap())
        };
        assert_eq!(point("a", RegionKind::Region), point("a", RegionKind::Region));
        assert_ne!(point("a", RegionKind::Region), point("b", RegionKind::Region));
        assert_ne!(point("a", RegionKind::Region), point("a", RegionKind::Span));
        assert_ne!(point("a", RegionKind::Region), point("a", RegionKind::Amount("bytes")));
        assert_eq!(Domain::of("test", "a").part("io").label, "test:a/io");
        assert_eq!(Domain::of("test", "").label, "test");
    }

    #[test]
    fn a_string_is_looked_up_by_its_current_content() {
        let domain = Domain::of("test", "strings");
        let mut place = *b"first\0";
        let found = |place: &[u8], kind| {
            // SAFETY: the string ends with NUL.
            let named = unsafe { named_by_c(domain, place.as_ptr().cast(), kind) }.unwrap();
            // SAFETY: texts are never freed.
            (ptr_of(named), unsafe { &*named.text }.name())
        };
        let first = found(&place, RegionKind::Region);
        assert_eq!(first.1, "first");
        assert_eq!(found(&place, RegionKind::Region), first);
        assert_ne!(found(&place, RegionKind::Span), first);
        // A shorter and a longer string at the same address, then the first one again.
        for (text, name) in [(b"fir\0t\0", "fir"), (b"other\0", "other"), (b"first\0", "first")] {
            place = *text;
            assert_eq!(found(&place, RegionKind::Region).1, name);
            assert_eq!(found(&place, RegionKind::Region).1, name);
        }
        assert_eq!(found(&place, RegionKind::Region), first);
        // SAFETY: null is the empty name.
        let none = unsafe { named_by_c(domain, ptr::null(), RegionKind::Region) }.unwrap();
        // SAFETY: texts are never freed.
        assert_eq!(unsafe { &*none.text }.name(), "(no name)");
    }

    fn ptr_of<T>(thing: &T) -> *const T {
        thing
    }
}
