//! A model of the header.

use std::sync::Arc;

use loom::thread;

use super::{check, large};
use crate::geometry::Geometry;
use crate::header::{Facts, Header};
use crate::sync::watch;

/// A reader that sees the magic sees the whole header.
pub(super) fn header_magic() {
    check(|| {
        let header = large(Header::new);
        watch(&*header, &["magic", "geometry#5", "pid"]);
        let writer = {
            let header = Arc::clone(&header);
            thread::spawn(move || {
                let facts = Facts { pid: 4, ..Facts::default() };
                header.publish(&Geometry([1; 6]), &facts);
            })
        };
        if let Ok((geometry, facts)) = header.read(4096, None) {
            assert_eq!((geometry, facts.pid), (Geometry([1; 6]), 4));
        }
        writer.join().unwrap();
    });
}
