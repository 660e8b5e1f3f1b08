//! The ring.

use std::sync::Arc;

use loom::thread;

use super::{check, new_cell, record};
use crate::ring::{self, Slot};
use crate::sync::{AtomicU64, watch};

/// The measuring thread's order: a cell's record, whose fence serves the ring,
/// then the slot.
pub(crate) fn ring_behind_cell() {
    let cell_of_thread = || {
        let (cell, bucket) = (new_cell(), AtomicU64::new(0));
        move || record(&cell, 10, &bucket)
    };
    ring_is_drained(cell_of_thread);
}

/// The order of a writer that fills the ring only.
pub(super) fn ring_alone() {
    ring_is_drained(|| ring::reuse);
}

/// A reader drains while the writer overtakes it: each record it gets is whole
/// and the right one, and those it does not get are counted.
fn ring_is_drained<F: Fn() + Send + 'static>(before_fill: fn() -> F) {
    const WRITTEN: u64 = 3;
    check(move || {
        let ring = Arc::new(([Slot::new(), Slot::new()], AtomicU64::new(0)));
        ring.1.watch();
        for slot in &ring.0 {
            watch(slot, &["start", "what"]);
        }
        let writer = {
            let (ring, before_fill) = (Arc::clone(&ring), before_fill());
            thread::spawn(move || {
                for n in 0..WRITTEN {
                    before_fill();
                    ring.0[n as usize % 2].fill(n + 100, 1, 1, n + 200);
                    ring::publish(&ring.1, n + 1);
                }
            })
        };
        let mut reader = Drain::default();
        reader.drain(&ring.1, &ring.0);
        writer.join().unwrap();
        reader.drain(&ring.1, &ring.0);
        assert_eq!(reader.delivered + reader.lost, WRITTEN);
        // With the writer at rest, only the slot it would fill next is in doubt.
        assert!(reader.delivered >= 1);
    });
}

#[derive(Default)]
struct Drain {
    next: u64,
    delivered: u64,
    lost: u64,
}

impl Drain {
    fn drain(&mut self, position: &AtomicU64, slots: &[Slot]) {
        let mut records = Vec::new();
        let drained = ring::drain(position, slots, self.next, &mut records);
        let numbers = drained.next - records.len() as u64..drained.next;
        assert_eq!(numbers.start - self.next, drained.lost);
        for (n, record) in numbers.zip(&records) {
            assert_eq!((record.start, u64::from(record.point)), (n + 100, n + 200));
        }
        self.next = drained.next;
        self.delivered += records.len() as u64;
        self.lost += drained.lost;
    }
}
