//! The points of the example contain each request.

#[expect(dead_code, reason = "its main is not called")]
#[path = "../examples/server.rs"]
mod server;

use std::time::Duration;

const REQUESTS: usize = 200;

#[test]
fn each_request_is_in_its_points() {
    pfp_tracing::Options::default().lifetimes().init().expect("it is the first");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(server::serve(REQUESTS)).expect("it serves");
    drop(runtime);
    // Two points have this name: one for CPU time, one for wall time.
    let stats = |name: &str| {
        let points = pfp::points().filter(|point| point.name().ends_with(name));
        let mut all: Vec<_> = points.filter_map(pfp::Point::stats).collect();
        all.sort_by_key(|stats| stats.count);
        assert_eq!(all.len(), 2, "{name}: {all:?}");
        (all.remove(0), all.remove(0))
    };
    let of_each = REQUESTS as u64 / 2;
    for (name, polls) in [("::hash", 1), ("::render", 2)] {
        let (lifetimes, entries) = stats(name);
        assert_eq!(lifetimes.count, of_each, "{name}");
        // Each span is also entered once when it is dropped.
        assert!(entries.count >= of_each * (polls + 1), "{name}: {entries:?}");
    }
    // The query waits for 2 ms, but needs little CPU time.
    let (lifetimes, entries) = stats("::query");
    assert!(lifetimes.mean() >= Duration::from_millis(2), "{lifetimes:?}");
    assert!(entries.mean() * 3 < Duration::from_millis(1), "{entries:?}");
}
