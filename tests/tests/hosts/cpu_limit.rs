//! A process with a limit on its CPU time: the time that it is throttled counts as off the CPU.

use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::faults::Group;
use pfp_tests::place::Place;
use pfp_tests::stolen::SWITCH;
use pfp_tests::target::Target;
use pfp_tests::{figure, skipped};

#[test]
fn throttled_time_counts_as_off_the_cpu() {
    let group = match Group::of_cpu(10) {
        Ok(group) => group,
        Err(why) => return skipped("a limit of the CPU", &why.to_string()),
    };
    let program = c::compile(Compiler::C, "limited", &["limited.c"], Link::Static, ["-pthread"]);
    for clock in ["rseq", "cputime"] {
        let place = Place::new();
        let mut command = place.command(program.to_str().expect("plain text"));
        group.prepare(command.env("PFP_CLOCK", clock));
        let mut target = Target::start(&mut command);
        let said = target.reach("done").clone();
        let number = |key: &str| said.one::<f64>(key);
        let (cpu, measured, wall) = (number("cpu_us"), number("measured_us"), number("wall_us"));
        assert!(cpu < 0.3 * wall, "{clock}: {cpu} us of {wall}: it was not limited");
        let error = SWITCH.as_secs_f64() * 1e6 * number("switches");
        // The program does little outside of its regions.
        assert!(measured <= cpu * 1.001 + error, "{clock}: {measured} us of {cpu}");
        assert!(measured >= cpu * 0.97 - error, "{clock}: {measured} us of {cpu}");
        figure(&format!("cpu_limit, {clock}: {measured} us measured, {cpu} us on the CPU"));
        target.end_well();
    }
}
