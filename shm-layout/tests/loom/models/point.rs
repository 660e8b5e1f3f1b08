//! Models of the point table.

use std::sync::Arc;

use loom::thread;

use super::{assert_ready, check, make_ready, memory};
use crate::point::{PointEntry, Text};
use crate::sync::{AtomicU64, watch};

const NAME: Text = Text { offset: 8, len: 4 };
const NEW_NAME: Text = Text { offset: 16, len: 4 };
const FILES: [Text; 2] = [Text { offset: 24, len: 4 }, Text { offset: 32, len: 4 }];

/// Two threads register one point, each with its own text: a reader sees a complete entry with the
/// text of the winner, or no entry.
pub(super) fn point_two_registrants() {
    check(|| {
        let (entry, texts) = (Arc::new(PointEntry::new()), [memory(), memory()]);
        watch(&*entry, &["ready", "line", "file"]);
        let others = [0, 1].map(|mine: usize| {
            let (entry, text) = (Arc::clone(&entry), Arc::clone(&texts[mine]));
            thread::spawn(move || {
                make_ready(&text);
                entry.announce(Text::default(), FILES[mine], 3);
            })
        });
        if let Some(picture) = entry.read() {
            assert_eq!(picture.line, 3);
            let whose = FILES.iter().position(|&file| file == picture.file).unwrap();
            assert_ready(&texts[whose]);
        }
        for other in others {
            other.join().unwrap();
        }
    });
}

/// A thread that registers a point again, late, leaves its new name unchanged.
pub(super) fn point_renamed_meanwhile() {
    check(|| {
        let entry = Arc::new(PointEntry::new());
        watch(&*entry, &["ready", "name"]);
        let late = {
            let entry = Arc::clone(&entry);
            thread::spawn(move || entry.announce(NAME, Text::default(), 3))
        };
        entry.announce(NAME, Text::default(), 3);
        entry.rename(NEW_NAME);
        late.join().unwrap();
        assert_eq!(entry.read().unwrap().name, NEW_NAME);
    });
}

/// The text of a new name is written before the name is published.
pub(super) fn point_rename() {
    check(|| {
        let (entry, text) = (Arc::new(PointEntry::new()), memory());
        entry.announce(NAME, Text::default(), 3);
        watch(&*entry, &["name"]);
        let writer = {
            let (entry, text) = (Arc::clone(&entry), Arc::clone(&text));
            thread::spawn(move || {
                make_ready(&text);
                entry.rename(NEW_NAME);
            })
        };
        let name = entry.read().unwrap().name;
        assert!(name == NAME || name == NEW_NAME);
        if name == NEW_NAME {
            assert_ready(&text);
        }
        writer.join().unwrap();
    });
}

/// Two threads create the shared cell of a point: both use one cell, and it is prepared.
pub(super) fn point_shared_cell() {
    check(|| {
        let (entry, cells) = (Arc::new(PointEntry::new()), [memory(), memory()]);
        watch(&*entry, &["shared_cell"]);
        let give = |entry: &PointEntry, cells: &[Arc<AtomicU64>; 2], mine: usize| {
            make_ready(&cells[mine]);
            let offset = entry.set_shared_cell(false, mine as u64 + 1);
            assert_ready(&cells[offset as usize - 1]);
            offset
        };
        let other = {
            let (entry, cells) = (Arc::clone(&entry), cells.clone());
            thread::spawn(move || give(&entry, &cells, 1))
        };
        let mine = give(&entry, &cells, 0);
        assert_eq!(mine, other.join().unwrap());
    });
}

/// A thread that finds the shared cell finds it prepared.
pub(super) fn point_shared_cell_reader() {
    check(|| {
        let (entry, cell) = (Arc::new(PointEntry::new()), memory());
        watch(&*entry, &["shared_cell"]);
        let writer = {
            let (entry, cell) = (Arc::clone(&entry), Arc::clone(&cell));
            thread::spawn(move || {
                make_ready(&cell);
                assert_eq!(entry.set_shared_cell(false, 1), 1);
            })
        };
        if entry.shared_cells()[0] == 1 {
            assert_ready(&cell);
        }
        writer.join().unwrap();
    });
}
