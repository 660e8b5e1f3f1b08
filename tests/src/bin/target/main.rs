//! The program that is watched: one scenario for each test, chosen by the first
//! argument. Each tells what it did by other means than the probe's.

mod amounts;
mod counts;
mod forks;
mod life;
mod manners;
mod on_cpu;
mod served;
mod signals;
mod snapshots;
mod thousands;
mod threads;

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
        "on-cpu" => on_cpu::run(number(1) as usize),
        "counts" => counts::run(number(1)),
        "short-threads" => threads::short(number(1)),
        "many-threads" => threads::many(number(1) as usize, number(2)),
        "thread-exit" => threads::at_exit(number(1)),
        "signals" => signals::run(number(1)),
        "forks" => forks::run(number(1)),
        "fork-and-live" => forks::and_live(),
        "life" => life::run(),
        "steered" => life::steered(),
        "served" => served::run(),
        "many-points" => life::many_points(),
        "thousands" => thousands::run(number(1) as usize),
        "full-for-a-while" => life::full_for_a_while(),
        "saved" => snapshots::saved(arguments.get(1).expect("argument 1 is a file").as_ref()),
        "ends" => snapshots::ends(arguments.get(1).map_or("alone", String::as_str)),
        "host" => manners::host(),
        "host-without-descriptors" => manners::host_without_descriptors(),
        "manners" => return manners::run(),
        other => panic!("there is no scenario {other:?}"),
    }
    ExitCode::SUCCESS
}
