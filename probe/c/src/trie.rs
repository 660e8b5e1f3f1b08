//! Set of values that are created once and never freed. The number of steps to find one grows only
//! with the logarithm of their count.
//!
//! Each node has four children. The next two bits of the hash choose one of them:
//!
//! ```text
//! root --> hash ..0111 --01--> hash ..1101
//!                      --11--> hash ..0011 --00--> ...
//! ```
//!
//! A node is added by one exchange of a null pointer, and is never removed. So a signal handler may
//! look up and add values at any time. The code here never waits, and allocates only from
//! [`arena`].

use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::arena;

/// Bits of a hash that one node uses.
const BITS: u32 = 2;
const CHILDREN: usize = 1 << BITS;

/// Values by hash.
pub(crate) struct Trie<T: 'static> {
    root: AtomicPtr<Node<T>>,
    count: AtomicUsize,
}

struct Node<T> {
    hash: u64,
    children: [AtomicPtr<Node<T>>; CHILDREN],
    thing: T,
}

impl<T> Trie<T> {
    pub(crate) const fn new() -> Self {
        Self { root: AtomicPtr::new(ptr::null_mut()), count: AtomicUsize::new(0) }
    }

    /// Finds the value with this hash for which `is` returns true, or creates it. `None` if there
    /// are `most` values, or memory runs out. If two threads create a value at once, both get the
    /// first one.
    pub(crate) fn get(
        &self,
        hash: u64,
        most: usize,
        is: impl Fn(&T) -> bool,
        make: impl FnOnce() -> Option<T>,
    ) -> Option<&'static T> {
        let (mut place, mut bits) = (&self.root, hash);
        let mut make = Some(make);
        let mut made: Option<&'static Node<T>> = None;
        loop {
            // Acquire pairs with the release below, so the fields of the node are visible.
            let mut found = place.load(Acquire);
            if found.is_null() {
                if made.is_none() {
                    if self.count.load(Relaxed) >= most {
                        return None;
                    }
                    let children = [const { AtomicPtr::new(ptr::null_mut()) }; CHILDREN];
                    made = Some(arena::keep(Node { hash, children, thing: make.take()?()? })?);
                }
                let new = made?;
                let link = ptr::from_ref(new).cast_mut();
                match place.compare_exchange(ptr::null_mut(), link, Release, Acquire) {
                    Ok(_) => {
                        self.count.fetch_add(1, Relaxed);
                        return Some(&new.thing);
                    }
                    Err(other) => found = other,
                }
            }
            // SAFETY: not null, so it is a node, which is never freed.
            let node: &'static Node<T> = unsafe { &*found };
            if node.hash == hash && is(&node.thing) {
                return Some(&node.thing);
            }
            place = &node.children[bits as usize % CHILDREN];
            bits >>= BITS;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn hash(number: usize, line: u32) -> u64 {
        crate::places::hash([number.to_string().as_bytes(), b"", b""], line)
    }

    /// With a hundred times as many values, a search takes only a few more steps.
    #[test]
    fn steps_grow_with_the_logarithm() {
        static TRIE: Trie<usize> = Trie::new();
        let steps = |from: usize, to: usize| {
            let steps = Cell::new(0);
            for number in from..to {
                let hash = hash(number, 0);
                let is = |_: &usize| {
                    steps.set(steps.get() + 1);
                    false
                };
                assert!(TRIE.get(hash, usize::MAX, is, || Some(number)).is_some());
            }
            steps.get()
        };
        steps(0, 100_000);
        // Values are compared only if their hashes are equal.
        assert_eq!(steps(100_000, 101_000), 0);
        let depth = |hash: u64| {
            let (mut place, mut bits, mut depth) = (&TRIE.root, hash, 0);
            // SAFETY: null, or a node, which is never freed.
            while let Some(node) = unsafe { place.load(Acquire).as_ref() } {
                place = &node.children[bits as usize % CHILDREN];
                bits >>= BITS;
                depth += 1;
            }
            depth
        };
        let deepest = (0..10_000).map(|number| depth(hash(number, 1))).max();
        assert!(deepest.is_some_and(|deepest| deepest < 30), "{deepest:?}");
    }

    /// Values with equal hashes are distinguished, even below the level at which the bits of the
    /// hash end.
    #[test]
    fn values_with_equal_hashes_are_distinguished() {
        static TRIE: Trie<u32> = Trie::new();
        let get = |number, most| TRIE.get(7, most, |found| *found == number, || Some(number));
        for number in 0..100 {
            assert_eq!(get(number, 100), Some(&number));
        }
        assert_eq!(get(100, 100), None);
        assert_eq!(get(50, 100), Some(&50));
    }
}
