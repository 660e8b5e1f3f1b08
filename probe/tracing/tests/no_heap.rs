//! When the heap is exhausted, a span is measured or counts as refused. The program continues.

mod apart;
#[allow(dead_code, unreachable_pub, reason = "another package's module")]
#[path = "../../../tests/src/strict.rs"]
mod strict;

use std::sync::OnceLock;

use pfp_tracing::{InitError, Options, PointSubscriber};
use strict::{Strict, refuse_from};
use tracing::field::{FieldSet, Value};
use tracing::metadata::Kind;
use tracing::subscriber::Interest;
use tracing::{Level, Metadata, Subscriber};
use tracing_core::callsite::{Callsite, Identifier};
use tracing_core::span::{Attributes, Record};

#[global_allocator]
static ALLOCATOR: Strict = Strict;

/// A callsite that is created at run time.
#[derive(Default)]
struct Made(OnceLock<Metadata<'static>>);

impl Callsite for Made {
    fn set_interest(&self, _: Interest) {}
    fn metadata(&self) -> &Metadata<'_> {
        self.0.get().expect("it was made with the callsite")
    }
}

fn made(name: &'static str, fields: &'static [&'static str]) -> &'static Metadata<'static> {
    let made: &'static Made = Box::leak(Box::default());
    made.0.get_or_init(|| {
        let fields = FieldSet::new(fields, Identifier(made));
        let (file, line) = (Some(file!()), Some(line!()));
        Metadata::new(name, "no_heap", Level::INFO, file, line, None, fields, Kind::SPAN)
    })
}

/// Makes the calls that `tracing` makes for a span. `tracing` itself may end the program if memory
/// runs out.
fn span(subscriber: &PointSubscriber, metadata: &'static Metadata<'static>) {
    subscriber.register_callsite(metadata);
    let fields = metadata.fields();
    let [Some(first), Some(second)] = [0, 1].map(|at| fields.iter().nth(at)) else { return };
    let values = [(&first, Some(&3 as &dyn Value)), (&second, Some(&"bytes" as &dyn Value))];
    let values = fields.value_set(&values);
    let id = subscriber.new_span(&Attributes::new_root(metadata, &values));
    let other = subscriber.clone_span(&id);
    subscriber.record(&id, &Record::new(&values));
    subscriber.enter(&id);
    subscriber.exit(&id);
    subscriber.try_close(other);
    subscriber.try_close(id);
}

#[test]
fn spans_survive_an_exhausted_heap() {
    let test = "spans_survive_an_exhausted_heap";
    let Some(case) = apart::case(test, &["plain", "kept"], |_, _| ()) else { return };
    let options = || match &*case {
        "plain" => Options::default(),
        _ => Options::default().amounts(["bytes"]).fields("parted{text}").lifetimes(),
    };
    let mut made_here = Err(InitError::NoMemory);
    for n in 0.. {
        if !refuse_from(n, false, || made_here = options().subscriber()) {
            break;
        }
        let is_short = matches!(made_here, Err(InitError::NoMemory));
        assert!(is_short || made_here.is_ok(), "{made_here:?}");
    }
    let subscriber = made_here.expect("there is memory");
    let (mut asked, mut callsites) = (0, 0);
    let spans: [(_, &[_]); 4] = [
        ("plain", &["count", "text"]),
        ("metered", &["bytes", "pfp.amounts"]),
        ("parted", &["bytes", "text"]),
        ("function_scope", &["count", "message"]),
    ];
    for (name, fields) in spans {
        for for_good in [false, true] {
            let refused = (0..).take_while(|&n| {
                let metadata = made(name, fields);
                let is_refused = refuse_from(n, for_good, || span(&subscriber, metadata));
                // Once memory is available again, the callsite is measured.
                span(&subscriber, metadata);
                callsites += 1;
                is_refused
            });
            asked += refused.count();
        }
    }
    assert!(asked > 10, "{asked}");
    let counts = pfp::points().filter_map(pfp::Point::stats).map(|stats| stats.count);
    assert!(counts.sum::<u64>() >= callsites, "{callsites} callsites");
}
