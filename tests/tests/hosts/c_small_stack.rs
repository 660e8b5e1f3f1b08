//! Signal handlers on small alternate stacks that are the first code to use libpfp.

use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::figure;
use pfp_tests::place::Place;
use pfp_tests::watch::{self, Watch};

/// A region takes less than 512 bytes of stack. If its begin or end needs more, the region counts
/// as missed, and the host's memory below the stack stays as it is.
#[test]
fn a_handler_on_the_smallest_stack_does_not_write_below_it() {
    // With lazy binding, the first call of a function would use the handler's stack to resolve it.
    let flags = ["-Wl,-z,now"];
    let sources = ["small_stack.c"];
    let program = c::compile(Compiler::C, "least_stack", &sources, Link::Static, flags);
    let place = Place::new();
    let mut target = place.start(&program, &["least"]);
    let said = target.reach("done").clone();
    assert_eq!(said.all::<u32>("overwritten"), vec![vec![0]; 5], "by kinds of regions");
    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    let missed = picture.losses.begins_missed;
    figure(&format!("small stack: of 120,000 regions {missed} are missed"));
    // Every 128th end finds its page of records full, and needs more stack to fold the page.
    assert!(missed > 100, "{missed}");
    let point = picture.points.iter().find(|point| point.name == "known").expect("it has measured");
    assert!(watch::total(picture, point.id).count > 100_000);
    target.end_well();
}

/// A handler may have a stack of 16 KiB or less. pfp never overflows it: if there is not enough
/// room to create the segment, the region is counted as missed, and the next region creates it.
#[test]
fn a_handler_that_starts_pfp_does_not_overflow_its_stack() {
    let flags = ["-lpthread", "-ldl"];
    let program = c::compile(Compiler::C, "small_stack", &["small_stack.c"], Link::Shared, flags);
    for (size, measured, missed) in [("small", 2, 1), ("large", 3, 0)] {
        let place = Place::new();
        let mut target = place.start(&program, &[size]);
        let said = target.reach("done").clone();
        let [first, second, third] = ["first", "second", "third"].map(|it| said.one::<u64>(it));
        figure(&format!("{size}: {first} bytes of stack, then {second}, then {third}"));
        // Bounds of the stack that three handlers use. The first region may create the segment, the
        // second may still have to claim the thread's lane, and the third is only a region.
        let of_first = if size == "small" { 4096 } else { 12 << 10 };
        assert!(first < of_first && second < 6144 && third < 2048, "{first} {second} {third}");
        let mut watch = Watch::attach(&place, &target);
        let picture = watch.poll();
        let point = picture.points.iter().find(|point| point.name == "in a handler");
        let point = point.expect("it has measured").id;
        assert_eq!(watch::total(picture, point).count, measured, "{size}");
        assert_eq!(picture.losses.begins_missed, missed, "{size}");
        target.end_well();
    }
}
