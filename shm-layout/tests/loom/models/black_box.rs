//! Models of boxes.

use std::sync::Arc;

use loom::thread;

use super::check;
use crate::layout::black_box::{BlackBox, BoxFacts};
use crate::layout::ring::Slot;
use crate::sync::watch;

/// A reader finds the facts of one call, while the writer puts a second call in the box.
pub(super) fn box_is_whole() {
    check(|| {
        let black_box: Arc<BlackBox<1>> = BlackBox::blank().into();
        watch(&*black_box, &["state", "facts", "facts#5"]);
        let writer = {
            let black_box = Arc::clone(&black_box);
            thread::spawn(move || {
                for number in 1..=2 {
                    assert!(black_box.claim(2 * (number - 1), 1));
                    let facts = BoxFacts { point: number, span: number, ..BoxFacts::default() };
                    let none = std::iter::empty::<&Slot>;
                    black_box.publish(number, facts, "", std::iter::empty(), none());
                }
            })
        };
        if let Ok(Some(found)) = black_box.read() {
            assert_eq!([found.facts.point, found.facts.span], [found.number; 2]);
        }
        writer.join().unwrap();
    });
}
