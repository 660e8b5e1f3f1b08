//! The program that most tests watch: one scenario for each test, chosen by the first argument.
//! Each scenario also records its work by means other than the probe.

mod amounts;
mod calls;
mod copies;
mod counts;
mod device;
mod emissions;
mod forks;
mod groups;
mod killed;
mod life;
mod manners;
mod my_app;
mod on_cpu;
#[cfg(target_arch = "x86_64")]
mod overwritten;
mod races;
mod reborn;
mod refused;
mod served;
mod share;
mod snapshots;
mod storm;
mod thousands;
mod threads;
mod timing;
#[cfg(target_arch = "x86_64")]
mod trapped;
mod viewing;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| -> u64 {
        let argument = arguments.get(at).and_then(|argument| argument.parse().ok());
        argument.unwrap_or_else(|| panic!("argument {at} must be a number"))
    };
    match arguments.first().map_or("", String::as_str) {
        "amounts" => amounts::run(arguments.get(1).expect("argument 1 is a file").as_ref()),
        "endless-amounts" => amounts::endless(),
        "calls" => calls::pattern(),
        "open" => calls::endless(),
        "device" => device::run(arguments.get(1).expect("argument 1 is a library").into()),
        "on-cpu" => on_cpu::run(number(1) as usize),
        "counts" => counts::run(number(1)),
        "storm" => storm::run(number(1) as usize),
        "watch" => storm::watch(number(1) as u32, number(2)),
        "locked" => manners::locked(),
        "deadlocked" => manners::deadlocked(),
        "emissions" => emissions::run(number(1) as usize, number(2)),
        "drain" => emissions::drain(number(1) as u32),
        "short-of-room" => emissions::short_of_room(number(1)),
        "short-threads" => threads::short(number(1)),
        "many-threads" => threads::many(number(1) as usize, number(2)),
        "timing" => timing::run(arguments.get(1).expect("argument 1 is a library").into()),
        "thread-exit" => threads::at_exit(number(1)),
        "after-thread-exit" => threads::after_exit(number(1)),
        "copies" => copies::run(&arguments[1], &arguments[2..]),
        "forks" => forks::run(number(1)),
        "forks-while-calibrating" => forks::while_calibrating(number(1)),
        "forks-with-less-room" => forks::with_less_room(),
        "forks-beside-the-environment" => forks::beside_the_environment(number(1)),
        "frames-in-a-copy" => forks::frames_in_a_copy(),
        "fork-and-live" => forks::and_live(),
        "child-ends" => forks::child_ends(arguments.get(1).expect("argument 1 says how")),
        "newcomers" => forks::newcomers(number(1)),
        "signals-after-a-fork" => forks::signals_while_points_are_entered(number(1)),
        "another-program" => forks::another_program(),
        "rank" => groups::rank(&arguments[1], number(2) as u32, number(3), &arguments[4]),
        "team" => groups::team(&arguments[1], number(2) as u32, number(3), number(4) as u32),
        "life" => life::run(),
        "listed" => life::listed(),
        "half-readable" => life::half_readable(arguments.get(1).expect("argument 1 says how")),
        "frames" => life::frames(),
        "spread" => life::spread(),
        "just_ended" => life::just_ended(),
        "steered" => life::steered(),
        "reset" => life::reset(),
        "brief" => life::brief(number(1), number(2)),
        "served" => served::run(),
        "share" => share::run(number(1) as u32),
        "as-pid" => reborn::as_pid(number(1) as libc::pid_t),
        "races" => races::run(number(1)),
        "many-points" => life::many_points(number(1)),
        "latecomers" => life::latecomers(number(1)),
        "switchers" => life::switchers(number(1)),
        "thousands" => thousands::run(number(1) as usize),
        "full-for-a-while" => life::full_for_a_while(),
        "saved" => snapshots::saved(arguments.get(1).expect("argument 1 is a file").as_ref()),
        "ends" => snapshots::ends(arguments.get(1).map_or("alone", String::as_str)),
        "my-app" => my_app::run(),
        "init" => manners::init(),
        "init-in-a-vfork-child" => forks::init_in_a_child(),
        "host" => manners::host(),
        "host-short-of-descriptors" => manners::host_short_of_descriptors(number(1)),
        "stepped" => killed::stepped(
            arguments.get(1).expect("argument 1 is the witness"),
            arguments.get(2).map(String::as_str),
        ),
        "slow-start" => killed::slow_start(arguments.get(1).expect("argument 1 is the witness")),
        "endless" => killed::endless(arguments.get(1).expect("argument 1 is the witness")),
        "watched" => killed::watched(arguments.get(1).expect("argument 1 is the witness")),
        "viewing" => viewing::run(&arguments[1..]),
        "trusted" => manners::trusted(),
        "manners" => return manners::run(),
        #[cfg(target_arch = "x86_64")]
        "overwritten" => overwritten::run(number(1) as usize),
        #[cfg(target_arch = "x86_64")]
        "unwatched" => overwritten::unwatched(),
        #[cfg(target_arch = "x86_64")]
        "trapped" => trapped::run(
            arguments.get(1).map_or("steady", String::as_str),
            number(2),
            arguments.get(3).is_some_and(|when| when == "from-the-start"),
        ),
        "refused" => refused::run(
            arguments.get(1).is_some_and(|how| how == "measured"),
            arguments.get(2).map(std::path::Path::new),
        ),
        other => panic!("there is no scenario {other:?}"),
    }
    ExitCode::SUCCESS
}
