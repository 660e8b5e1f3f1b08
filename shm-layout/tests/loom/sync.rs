//! The model checker's version of `src/sync.rs`.
//!
//! A word is an ordinary atomic until a model *watches* it; only then are its operations loom's,
//! with every interleaving and every stale value that the memory model allows. A cell has ninety
//! words, and the values of all of them at once are more than the checker can search. The protocols
//! treat each word alike, so a model watches the words that steer the protocol and two or three
//! others, and more models cover the rest. An operation on an unwatched word is no step of the
//! model, and a model must not judge by it.
//!
//! The orderings are looked up when they are used: the ordering under test is replaced by
//! `Relaxed`, and a fence under test is omitted.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, OnceLock};

pub(crate) use std::sync::atomic::Ordering;

/// A named ordering or fence in a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) file: String,
    pub(crate) line: u32,
    pub(crate) name: String,
}

thread_local! {
    // All threads of a model run on the thread that checks it.
    static IN_MODEL: Cell<bool> = const { Cell::new(false) };
    static TURN: RefCell<Option<Arc<loom::sync::atomic::AtomicU64>>> = const { RefCell::new(None) };
    static MUTANT: RefCell<Option<Site>> = const { RefCell::new(None) };
    static USED: RefCell<HashSet<(&'static str, u32)>> = RefCell::default();
    static NAMING: RefCell<Option<Naming>> = const { RefCell::new(None) };
    // Number of stores before a jump, if one is to happen. All other threads of the model only
    // load.
    static STORES_LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The payload of the unwinding that models a jump (longjmp).
struct Jump;

/// Runs `work`, and jumps out of it just before its store number `store`, as a signal handler may.
/// Returns whether `work` reached that store.
pub(crate) fn is_left_before(store: u32, work: impl FnOnce()) -> bool {
    STORES_LEFT.set(Some(store));
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    STORES_LEFT.set(None);
    match done {
        Ok(()) => false,
        Err(left) if left.is::<Jump>() => true,
        Err(other) => panic::resume_unwind(other),
    }
}

fn before_store() {
    match STORES_LEFT.get() {
        None => {}
        Some(0) => {
            STORES_LEFT.set(None);
            panic::resume_unwind(Box::new(Jump));
        }
        Some(left) => STORES_LEFT.set(Some(left - 1)),
    }
}

/// Makes every step of every thread race with every other.
///
/// The checker looks for races between two accesses of one word, and remembers only the last access
/// of each word. So a thread that loads a word and then stores to it, as a single writer does,
/// hides all earlier loads of other threads, and with them most interleavings (loom 0.7.2). A
/// failing compare-and-swap counts as an access that races with any other, but it orders nothing,
/// since it stores nothing.
fn take_turn() {
    let turn = TURN.with_borrow(Clone::clone).expect("watched words belong into a scene");
    let never = turn.compare_exchange(1, 1, Relaxed, Relaxed);
    assert_eq!(never, Err(0));
}

/// Call at the start of each run of a scene.
pub(crate) fn set_scene() {
    TURN.set(Some(Arc::new(loom::sync::atomic::AtomicU64::new(0))));
}

/// Runs `f` as the body of a model.
pub(crate) fn in_model(f: impl FnOnce()) {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            IN_MODEL.set(false);
        }
    }
    let _leave = Leave;
    IN_MODEL.set(true);
    f();
}

/// Weakens a site on this thread until the next call.
pub(crate) fn weaken(site: Option<Site>) {
    MUTANT.with_borrow_mut(|mutant| *mutant = site);
}

/// Whether this thread has executed a site since the last [`forget_used`].
pub(crate) fn was_used(site: &Site) -> bool {
    USED.with_borrow(|used| {
        used.iter().any(|(path, line)| *line == site.line && is_file(path, &site.file))
    })
}

/// Clears the list of executed sites.
pub(crate) fn forget_used() {
    USED.with_borrow_mut(HashSet::clear);
}

fn is_file(path: &str, name: &str) -> bool {
    path.rsplit('/').next() == Some(name)
}

/// Whether the site at this position is the weakened one.
pub(crate) fn is_weak(path: &'static str, line: u32, name: &str) -> bool {
    USED.with_borrow_mut(|used| used.insert((path, line)));
    MUTANT.with_borrow(|mutant| {
        mutant
            .as_ref()
            .is_some_and(|site| site.line == line && site.name == name && is_file(path, &site.file))
    })
}

/// A fence, if the thread runs in a model.
pub(crate) fn fence(order: Ordering) {
    if IN_MODEL.get() {
        loom::sync::atomic::fence(order);
    } else {
        std::sync::atomic::fence(order);
    }
}

macro_rules! ord {
    ($site:literal, $order:ident) => {
        if $crate::sync::is_weak(file!(), line!(), $site) {
            $crate::sync::Ordering::Relaxed
        } else {
            $crate::sync::Ordering::$order
        }
    };
}

macro_rules! fence_at {
    ($site:literal, $order:ident) => {
        if !$crate::sync::is_weak(file!(), line!(), $site) {
            $crate::sync::fence($crate::sync::Ordering::$order);
        }
    };
}

pub(crate) use {fence_at, ord};

/// The purpose for which words are listed by `Debug`. The position of a word in the listing is its
/// number, and its field's name is its name.
enum Naming {
    /// List the numbers of the words with their names.
    List(usize),
    /// Watch the words with these numbers.
    Watch(usize, Vec<usize>),
}

/// Watches words of a structure in the model that runs, named by their fields:
/// `count` is the first field of that name in the order of declaration,
/// `count#1` the second, and so on; the elements of an array count as fields of
/// its name.
pub(crate) fn watch(words: &dyn fmt::Debug, names: &[&str]) {
    NAMING.set(Some(Naming::List(0)));
    let listing = format!("{words:?}");
    let places = names.iter().map(|name| place_of(&listing, name)).collect();
    NAMING.set(Some(Naming::Watch(0, places)));
    let _ = format!("{words:?}");
    NAMING.set(None);
}

fn place_of(listing: &str, wanted: &str) -> usize {
    let (name, occurrence) = wanted.split_once('#').unwrap_or((wanted, "0"));
    let mut left: usize = occurrence.parse().unwrap();
    let mut field = "";
    for token in listing.split([' ', ',', '[', ']', '{', '}', '(', ')']) {
        if let Some(name) = token.strip_suffix(':') {
            field = name;
        } else if let Some(place) = token.strip_prefix('@')
            && field == name
        {
            if left == 0 {
                return place.parse().unwrap();
            }
            left -= 1;
        }
    }
    panic!("no field {wanted} in {listing}");
}

macro_rules! word {
    ($name:ident, $int:ty) => {
        /// An atomic that a model can watch.
        pub(crate) struct $name {
            plain: std::sync::atomic::$name,
            watched: OnceLock<loom::sync::atomic::$name>,
        }

        impl $name {
            pub(crate) const fn new(value: $int) -> Self {
                Self { plain: std::sync::atomic::$name::new(value), watched: OnceLock::new() }
            }

            pub(crate) fn watch(&self) {
                let start = self.plain.load(SeqCst);
                self.watched.get_or_init(|| loom::sync::atomic::$name::new(start));
            }

            /// The watched word, at this thread's turn.
            fn steps(&self) -> Option<&loom::sync::atomic::$name> {
                let word = self.watched.get()?;
                take_turn();
                Some(word)
            }

            pub(crate) fn load(&self, order: Ordering) -> $int {
                match self.steps() {
                    Some(word) => word.load(order),
                    None => self.plain.load(order),
                }
            }

            pub(crate) fn store(&self, value: $int, order: Ordering) {
                before_store();
                match self.steps() {
                    Some(word) => word.store(value, order),
                    None => self.plain.store(value, order),
                }
            }

            pub(crate) fn swap(&self, value: $int, order: Ordering) -> $int {
                match self.steps() {
                    Some(word) => word.swap(value, order),
                    None => self.plain.swap(value, order),
                }
            }

            pub(crate) fn fetch_add(&self, value: $int, order: Ordering) -> $int {
                match self.steps() {
                    Some(word) => word.fetch_add(value, order),
                    None => self.plain.fetch_add(value, order),
                }
            }

            pub(crate) fn fetch_min(&self, value: $int, order: Ordering) -> $int {
                match self.steps() {
                    Some(word) => word.fetch_min(value, order),
                    None => self.plain.fetch_min(value, order),
                }
            }

            pub(crate) fn fetch_max(&self, value: $int, order: Ordering) -> $int {
                match self.steps() {
                    Some(word) => word.fetch_max(value, order),
                    None => self.plain.fetch_max(value, order),
                }
            }

            pub(crate) fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                f: impl FnMut($int) -> Option<$int>,
            ) -> Result<$int, $int> {
                match self.steps() {
                    Some(word) => word.fetch_update(set, fetch, f),
                    None => self.plain.fetch_update(set, fetch, f),
                }
            }

            pub(crate) fn compare_exchange(
                &self,
                current: $int,
                new: $int,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$int, $int> {
                match self.steps() {
                    Some(word) => word.compare_exchange(current, new, success, failure),
                    None => self.plain.compare_exchange(current, new, success, failure),
                }
            }

            pub(crate) fn compare_exchange_weak(
                &self,
                current: $int,
                new: $int,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$int, $int> {
                self.compare_exchange(current, new, success, failure)
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new(0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                NAMING.with_borrow_mut(|naming| match naming {
                    None => self.plain.fmt(out),
                    Some(Naming::List(place)) => {
                        *place += 1;
                        write!(out, "@{}", *place - 1)
                    }
                    Some(Naming::Watch(place, watched)) => {
                        if watched.contains(place) {
                            self.watch();
                        }
                        *place += 1;
                        Ok(())
                    }
                })
            }
        }
    };
}

word!(AtomicU32, u32);
word!(AtomicU64, u64);
