//! Memory that is never freed.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hint::black_box;
use std::mem;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;

use pfp::Point;

use super::{all, allocate};

/// A reference to itself, which is never freed.
struct Cycle {
    own: RefCell<Option<Rc<Cycle>>>,
    _payload: [u8; 480],
}

/// Points whose memory is forgotten, is in a cycle of references, is freed by another thread, or is
/// freed at once. Around them is a region that never ends; its memory is forgotten, too.
pub(super) fn leaks() {
    static OPEN: Point = Point::new("open").counting_allocs();
    static KEPT: Point = Point::new("kept").counting_allocs();
    static CYCLE: Point = Point::new("cycle").counting_allocs();
    static HANDED: Point = Point::new("handed").counting_allocs();
    static CHURN: Point = Point::new("churn").counting_allocs();
    static FIRST: Point = Point::new("first");
    // Samples begin with the first region.
    drop(FIRST.measure());
    (0..2000).for_each(|_| mem::forget(black_box(vec![0u8; 1500])));
    let (give, take) = mpsc::channel::<Vec<u8>>();
    let freeing = thread::spawn(move || take.into_iter().for_each(drop));
    mem::forget(OPEN.measure());
    for _ in 0..4000 {
        mem::forget(black_box(vec![0u8; 700]));
        {
            let _region = KEPT.measure();
            mem::forget(black_box(vec![0u8; 1000]));
        }
        {
            let _region = CYCLE.measure();
            let cycle = Rc::new(Cycle { own: RefCell::new(None), _payload: [0; 480] });
            *cycle.own.borrow_mut() = Some(Rc::clone(black_box(&cycle)));
        }
        let handed = {
            let _region = HANDED.measure();
            black_box(vec![0u8; 2000])
        };
        give.send(handed).expect("the other thread takes it");
        let _region = CHURN.measure();
        (0..20).for_each(|_| drop(black_box(vec![0u8; 3000])));
    }
    drop(give);
    freeing.join().expect("it only frees");
}

/// Three points that allocate much. Two free all of it, and one fills a cache that only grows.
pub(super) fn cache() {
    let [parse, render, remember] = all(["parse", "render", "remember"]);
    let mut cache = HashMap::new();
    for number in 0..4000_usize {
        parse.by_hand(|| allocate(number));
        render.by_hand(|| drop(black_box(format!("{number:>2000}").repeat(2))));
        remember.by_hand(|| _ = cache.insert(format!("request {number}"), vec![7_u8; 900]));
    }
    mem::forget(black_box(cache));
}
