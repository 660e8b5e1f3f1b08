//! Points whose names are created at run time.

use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use pfp::Point;
use pfp::own::{self, heap};
#[cfg(feature = "cuda")]
use pfp::reading;

/// Maximum number of names; further names get no point. Points are never freed, so without the
/// limit, a program that keeps generating names would use more and more memory.
const MAX_POINTS: u32 = 4096;

/// A point and its name, never freed.
struct Named {
    point: Point,
    name: &'static str,
    next: *mut Named,
}

static NAMED: AtomicPtr<Named> = AtomicPtr::new(ptr::null_mut());
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Searches the list from `at` on for the name that `kind` and `name` make together.
fn find(mut at: *const Named, kind: &str, name: &str) -> Option<&'static Named> {
    // SAFETY: null, or a node of the list. Nodes are never freed, and not changed once published.
    while let Some(named) = unsafe { at.as_ref() } {
        if named.name.strip_prefix(kind) == Some(name) {
            return Some(named);
        }
        at = named.next;
    }
    None
}

/// The point of the name that `kind` and `name` make together, created by the first call. `None` if
/// there are too many names, or memory runs out.
///
/// The list grows by CAS instead of under a lock, which a fork could leave locked in the child.
pub(crate) fn point(kind: &str, name: &str) -> Option<&'static Point> {
    find_or_make(kind, name, |name| Point::at(name, "", 0))
}

/// The point of a name that measures a device's time.
#[cfg(feature = "cuda")]
pub(crate) fn device_point(kind: &str, name: &str) -> Option<&'static Point> {
    find_or_make(kind, name, |name| reading::of_a_device(Point::at(name, "", 0)))
}

fn find_or_make(kind: &str, name: &str, make: fn(&'static str) -> Point) -> Option<&'static Point> {
    // Acquire pairs with the CAS below: the node is filled.
    let mut head = NAMED.load(Acquire);
    if let Some(known) = find(head, kind, name) {
        return Some(&known.point);
    }
    let room = own::room::<Named>()?;
    let whole = heap::format(format_args!("{kind}{name}")).ok()?;
    if COUNT.fetch_add(1, Relaxed) >= MAX_POINTS {
        COUNT.fetch_sub(1, Relaxed);
        return None;
    }
    let whole: &'static str = whole.leak();
    let new = Box::leak(Box::write(room, Named { point: make(whole), name: whole, next: head }));
    loop {
        new.next = head;
        match NAMED.compare_exchange(head, ptr::from_mut(new), Release, Acquire) {
            Ok(_) => return Some(&new.point),
            Err(found) => head = found,
        }
        if let Some(known) = find(head, kind, name) {
            // Another thread was faster. The new point is leaked, at most once per thread and name.
            return Some(&known.point);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_point_for_all_threads() {
        let of = |name: &str| ptr::from_ref(point("", name).unwrap()).addr();
        let threads: Vec<_> =
            (0..4).map(|_| std::thread::spawn(move || (of("one"), of("other")))).collect();
        let found: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(found.iter().all(|&pair| pair == found[0]), "{found:?}");
        assert_ne!(found[0].0, found[0].1);
    }
}
