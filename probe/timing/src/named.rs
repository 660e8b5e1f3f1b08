//! Points whose names are created at run time.

use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use pfp::Point;
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

/// Searches the list from `at` on.
fn find(mut at: *const Named, name: &str) -> Option<&'static Named> {
    // SAFETY: null, or a node of the list. Nodes are never freed, and not changed once published.
    while let Some(named) = unsafe { at.as_ref() } {
        if named.name == name {
            return Some(named);
        }
        at = named.next;
    }
    None
}

/// The point of a name, created by the first call. `None` if there are too many names.
///
/// The list grows by CAS instead of under a lock, which a fork could leave locked in the child.
pub(crate) fn point(name: &str) -> Option<&'static Point> {
    find_or_make(name, |name| Point::at(name, "", 0))
}

/// The point of a name that measures a device's time.
#[cfg(feature = "cuda")]
pub(crate) fn device_point(name: &str) -> Option<&'static Point> {
    find_or_make(name, |name| reading::of_a_device(Point::at(name, "", 0)))
}

fn find_or_make(name: &str, make: fn(&'static str) -> Point) -> Option<&'static Point> {
    // Acquire pairs with the CAS below: the node is filled.
    let mut head = NAMED.load(Acquire);
    if let Some(known) = find(head, name) {
        return Some(&known.point);
    }
    if COUNT.fetch_add(1, Relaxed) >= MAX_POINTS {
        COUNT.fetch_sub(1, Relaxed);
        return None;
    }
    let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
    let new = Box::leak(Box::new(Named { point: make(name), name, next: head }));
    loop {
        new.next = head;
        match NAMED.compare_exchange(head, ptr::from_mut(new), Release, Acquire) {
            Ok(_) => return Some(&new.point),
            Err(found) => head = found,
        }
        if let Some(known) = find(head, name) {
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
        let of = |name: &str| ptr::from_ref(point(name).unwrap()).addr();
        let threads: Vec<_> =
            (0..4).map(|_| std::thread::spawn(move || (of("one"), of("other")))).collect();
        let found: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(found.iter().all(|&pair| pair == found[0]), "{found:?}");
        assert_ne!(found[0].0, found[0].1);
    }
}
