//! Models of open regions and edges.

use std::sync::Arc;

use loom::thread;

use super::check;
use crate::calls::{self, CallSums, Edge, OpenRegion, Resumed};
use crate::ring::{POINT_SHIFT, What};
use crate::sync::{AtomicU64, watch};

/// A reader finds the sums of an edge consistent with each other and with the number of records,
/// while the writer adds to the edge.
pub(super) fn edge_is_whole() {
    check(|| {
        let edge = Arc::new(Edge::default());
        watch(&*edge, &["seq", "sums", "sums#1", "sums#2", "sums#3"]);
        let writer = {
            let edge = Arc::clone(&edge);
            thread::spawn(move || {
                for folded in 1..=2 {
                    edge.add(
                        edge.stage(),
                        Some(0),
                        CallSums { count: 1, exclusive: 10, inclusive: 0 },
                        folded,
                    );
                }
            })
        };
        if let Some(seen) = edge.read() {
            assert_eq!((seen.folded, seen.folded * 10), (seen.sums.count, seen.sums.exclusive));
        }
        writer.join().unwrap();
    });
}

/// A reader that sees an edge finds its key.
pub(super) fn edge_has_its_key() {
    check(|| {
        let shared = Arc::new((Edge::default(), AtomicU64::new(0)));
        watch(&shared.0, &["key"]);
        shared.1.watch();
        let writer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.0.set_key(What::new(8, 0, 7, 0).names);
                calls::announce(&shared.1, 1);
            })
        };
        if calls::announced(&shared.1) == 1 {
            assert_eq!(shared.0.key(), What::new(8, 0, 7, 0).names);
        }
        writer.join().unwrap();
    });
}

/// A region that has begun is shown with its own point, not with an earlier point of its depth.
pub(super) fn open_region_has_its_point() {
    check(|| {
        let region = Arc::new(OpenRegion::default());
        region.name(7 << POINT_SHIFT, 1);
        region.begin(100);
        watch(&*region, &["start", "point", "off"]);
        let writer = {
            let region = Arc::clone(&region);
            thread::spawn(move || {
                region.name(8 << POINT_SHIFT, 2);
                region.begin(200);
            })
        };
        let seen = region.seen();
        if seen.start == 200 {
            assert_eq!((seen.point, seen.off), (8, 2));
        }
        writer.join().unwrap();
    });
}

/// A reader that sees a context resume also sees its open regions.
pub(super) fn open_regions_are_shown_again() {
    check(|| {
        let shared = Arc::new((OpenRegion::default(), Resumed::default()));
        watch(&shared.0, &["start"]);
        watch(&shared.1, &["word"]);
        let writer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.0.name(7, 1);
                shared.0.begin(100);
                shared.1.show(300, 1);
            })
        };
        if shared.1.seen() == (300 << 8, 1) {
            assert_eq!(shared.0.seen().start, 100);
        }
        writer.join().unwrap();
    });
}
