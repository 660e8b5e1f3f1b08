//! Uses the macros in a package whose manifest gives the crate another name.
#![deny(warnings)]

#[prof::function]
fn plain() {}

#[prof::measure("a name", items = n)]
fn with_amounts(n: u32) -> u32 {
    prof::scope!("scope", items = n);
    prof::function_scope!();
    n
}

#[prof::function]
async fn later() {}

struct Worker;

#[prof::all_functions]
impl Worker {
    fn work() {
        prof::register_thread!();
        prof::finish_frame!();
        prof::finish_frame!();
    }

    #[prof::skip]
    fn left_out() {}
}

// Uses the macros under a name that no manifest has.
mod inside {
    pub(crate) use prof as exported;

    pub(crate) struct Worker;

    #[exported::all_functions(crate = crate::inside::exported)]
    impl Worker {
        pub(crate) fn inner_work() {}

        #[exported::skip]
        pub(crate) fn left_out() {}
    }

    #[exported::function(crate = crate::inside::exported)]
    pub(crate) fn inner() {
        exported::laps!(crate = exported, "first");
        exported::lap!(crate = exported, "second");
        exported::lap!(crate = exported, "third", bytes = 3);
    }
}

fn main() {
    plain();
    Worker::work();
    Worker::left_out();
    inside::inner();
    inside::Worker::inner_work();
    inside::Worker::left_out();
    drop(later());
    prof::laps!();
    prof::lap!("lap", items = with_amounts(1));
    let mut names: Vec<_> = prof::points().map(|point| point.name()).collect();
    names.sort_unstable();
    let expected = [
        "a name",
        "first",
        "frame",
        "inner",
        "inner_work",
        "lap",
        "plain",
        "scope",
        "second",
        "third",
        "with_amounts",
        "work",
    ];
    assert_eq!(names, expected);
}
