//! Uses the macros in a workspace that gives the crate another name.
#![deny(warnings)]

#[live_profiler::function]
fn plain() {}

struct Worker;

#[live_profiler::all_functions]
impl Worker {
    fn work() {
        live_profiler::laps!("first");
        live_profiler::lap!("second", items = 2);
    }
}

fn main() {
    plain();
    Worker::work();
    let mut names: Vec<_> = live_profiler::points().map(|point| point.name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["first", "plain", "second", "work"]);
}
