//! Model of the sums of allocations.

use std::sync::Arc;

use loom::thread;

use super::check;
use crate::layout::allocs::{AllocSums, AllocWords};
use crate::sync::watch;

/// A reader finds sums of one moment and their reset epoch, while the writer publishes new ones.
pub(super) fn allocs_are_whole() {
    check(|| {
        let words = Arc::new(AllocWords::default());
        watch(&*words, &["seq", "sums", "sums#1", "sums#8", "sums#9"]);
        let writer = {
            let words = Arc::clone(&words);
            thread::spawn(move || {
                for calls in 1..=2 {
                    let sums = AllocSums { calls, allocs: 10 * calls, ..Default::default() };
                    words.publish(calls as u32, &sums);
                }
            })
        };
        if let Some((epoch, sums)) = words.read() {
            assert_eq!((u64::from(epoch), sums.allocs), (sums.calls, 10 * sums.calls));
        }
        writer.join().unwrap();
    });
}
