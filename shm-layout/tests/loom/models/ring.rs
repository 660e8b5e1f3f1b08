//! Models of the ring.

use std::sync::Arc;

use loom::thread;

use super::{check, whole};
use crate::cell::{Cell, Sums};
use crate::control::Control;
use crate::ring::{self, Slot, What, Written};
use crate::sync::{AtomicU64, watch};

/// A reader drains while the writer overtakes it: each record that it obtains is complete and the
/// right one, and those that it misses are counted.
pub(super) fn ring_is_drained() {
    const WRITTEN: u64 = 3;
    check(|| {
        let ring = Arc::new(([Slot::new(), Slot::new()], Written::default()));
        watch(&ring.1, &[""]);
        for slot in &ring.0 {
            watch(slot, &["start", "names"]);
        }
        let writer = {
            let ring = Arc::clone(&ring);
            thread::spawn(move || {
                for n in 0..WRITTEN {
                    ring::reuse();
                    let what = What::new(n as u32 + 200, 0, 0, 0);
                    ring.0[n as usize % 2].fill(n + 100, 1, 1, 1, what);
                    ring.1.publish(n + 1);
                }
            })
        };
        let mut reader = Drain::default();
        reader.drain(&ring.1, &ring.0);
        writer.join().unwrap();
        reader.drain(&ring.1, &ring.0);
        assert_eq!(reader.delivered + reader.lost, WRITTEN);
        // While the writer writes nothing, only the slot that it would fill next is in doubt.
        assert!(reader.delivered >= 1);
    });
}

/// A cell and the ring from which it is folded.
struct Log {
    cell: Cell,
    slots: [Slot; 2],
    written: Written,
    folded: AtomicU64,
}

impl Log {
    /// The point of record `n`.
    const fn point(n: u64) -> u32 {
        if n < 3 { 7 } else { 8 }
    }

    fn new(point: u32) -> Arc<Self> {
        let (cell, slots) = (Cell::new(), [Slot::new(), Slot::new()]);
        cell.prepare(point, Control(1), 1);
        Arc::new(Self { cell, slots, written: Written::default(), folded: AtomicU64::new(0) })
    }

    /// Record `n` has `1 << n` ticks, so a sum shows which records are in it.
    fn write(&self, n: u64) {
        ring::reuse();
        self.slots[n as usize % 2].fill(0, 0, 1 << n, 0, What::new(Self::point(n), 0, 0, 0));
        self.written.publish(n + 1);
    }

    fn fold(&self, n: u64) {
        let staged = self.cell.stage_more();
        let addition = self.slots[n as usize % 2].addition().unwrap();
        let more = Sums::one(addition.exclusive, addition.inclusive);
        if self.cell.is_simple() {
            self.cell.append_simple(staged, &more, n + 1);
        } else {
            self.cell.append(staged, &more, None, n + 1);
        }
        ring::announce_folded(&self.folded, n + 1);
    }

    /// Ticks of the cell plus the ticks of its point's records that it does not include yet.
    fn sum(&self) -> Option<u64> {
        let (mut pending, folded) = (Vec::new(), ring::folded(&self.folded));
        ring::visit(&self.written, &self.slots, folded, |n, addition| {
            if addition.point == self.cell.point() {
                pending.push((n, addition.exclusive));
            }
        })?;
        let picture = whole(&self.cell)?;
        let lacks = pending.iter().filter(|(n, _)| *n >= picture.folded);
        Some(picture.live.exclusive + lacks.map(|(_, ticks)| ticks).sum::<u64>())
    }
}

/// A reader adds the records that are not folded while the writer folds and overwrites them: each
/// record counts once.
pub(super) fn ring_is_folded() {
    check(|| {
        let log = Log::new(7);
        log.write(0);
        watch(&log.cell, &["seq", "exclusive", "exclusive#1", "folded", "folded#1"]);
        log.slots.iter().for_each(|slot| watch(slot, &["exclusive"]));
        watch(&log.written, &[""]);
        log.folded.watch();
        let writer = {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                log.fold(0);
                log.write(1);
                log.fold(1);
                log.write(2);
            })
        };
        if let Some(sum) = log.sum() {
            assert!([0b1, 0b11, 0b111].contains(&sum), "{sum:b}");
        }
        writer.join().unwrap();
        assert_eq!(log.sum(), Some(0b111));
    });
}

/// A record that is being overwritten by another point's record is never read as a mixture of both.
pub(super) fn ring_is_written_over() {
    check(|| {
        let log = Log::new(8);
        (0..3).for_each(|n| log.write(n));
        ring::announce_folded(&log.folded, 2);
        log.slots.iter().for_each(|slot| watch(slot, &["exclusive", "names"]));
        watch(&log.written, &[""]);
        log.folded.watch();
        let writer = {
            let log = Arc::clone(&log);
            thread::spawn(move || {
                ring::announce_folded(&log.folded, 3);
                log.write(3);
                ring::announce_folded(&log.folded, 4);
                log.write(4);
            })
        };
        if let Some(sum) = log.sum() {
            assert!([0, 1 << 3, 1 << 4].contains(&sum), "{sum:b}");
        }
        writer.join().unwrap();
    });
}

/// Cells include all records that are announced as folded, for a reader that does not read the
/// records.
pub(super) fn ring_folded_is_in_cells() {
    check(|| {
        let log = Log::new(7);
        log.write(0);
        watch(&log.cell, &["seq", "folded", "folded#1"]);
        log.folded.watch();
        let writer = {
            let log = Arc::clone(&log);
            thread::spawn(move || log.fold(0))
        };
        let folded = ring::folded(&log.folded);
        if let Some(picture) = whole(&log.cell) {
            assert!(picture.folded >= folded);
        }
        writer.join().unwrap();
    });
}

#[derive(Default)]
struct Drain {
    next: u64,
    delivered: u64,
    lost: u64,
}

impl Drain {
    fn drain(&mut self, written: &Written, slots: &[Slot]) {
        let mut records = Vec::new();
        let drained = ring::drain(written, slots, self.next, &mut records);
        let drained = drained.expect("there is memory");
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
