//! Points whose names are made as the program runs.

use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use pfp::Point;
#[cfg(feature = "cuda")]
use pfp::reading;

/// Names that are kept; further ones get no point. What is kept is never freed, so a
/// program that makes up names for ever must not take memory for ever.
const MAX_POINTS: u32 = 4096;

/// A point and its name, kept for good.
struct Named {
    point: Point,
    name: &'static str,
    next: *mut Named,
}

static NAMED: AtomicPtr<Named> = AtomicPtr::new(ptr::null_mut());
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The names that there are, from this one on.
fn find(mut at: *const Named, name: &str) -> Option<&'static Named> {
    // SAFETY: null, or one of the list's, which are never freed nor changed.
    while let Some(named) = unsafe { at.as_ref() } {
        if named.name == name {
            return Some(named);
        }
        at = named.next;
    }
    None
}

/// The point of a name, the same each time; none if there are too many.
///
/// A list that grows by one exchange, and no lock: a fork may come at any moment.
pub(crate) fn point(name: &str) -> Option<&'static Point> {
    find_or_make(name, |name| Point::at(name, "", 0))
}

/// The same, of a device's time.
#[cfg(feature = "cuda")]
pub(crate) fn device_point(name: &str) -> Option<&'static Point> {
    find_or_make(name, |name| reading::of_a_device(Point::at(name, "", 0)))
}

fn find_or_make(name: &str, make: fn(&'static str) -> Point) -> Option<&'static Point> {
    // Meets the exchange below: what is behind the pointer is there.
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
            // Another thread was faster. What was made is lost, once for a name.
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
