//! The tables, in Markdown.

use std::fmt::Write;

use crate::row::Row;
use crate::{Figures, Plan, floors};

/// Command that repeats the comparison.
const COMMAND: &str = "cargo run --release --locked --manifest-path probe/comparison/Cargo.toml";

/// Prints the figures of the floors and of the rows' subjects, in that order.
pub(crate) fn print(rows: &[Row], figures: &[Figures], plan: &Plan, machine: &str) {
    let half = grouped(plan.calls * plan.rounds as u64 / 2);
    println!("{machine}\n");
    println!("```sh\n{COMMAND}\n```\n");
    println!(
        "| what | ns | x two rdtsc | off, ns | two threads | memory, first {half} | second {half} |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    let floor = figures[0].ns;
    let mut figures = figures.iter();
    let line = |name: &str, on: &Figures, off: Option<&Figures>| {
        let ratio = on.ns / floor;
        let off = off.map_or("-".to_owned(), |off| format!("{:.2}", off.ns));
        let [first, second] = on.growth.map(bytes);
        println!(
            "| {name} | {:.2} | {ratio:.2} | {off} | {:.2} | {first} | {second} |",
            on.ns, on.two_threads
        );
    };
    for (case, figures) in floors::cases().iter().zip(figures.by_ref()) {
        line(case.name, figures, None);
    }
    for row in rows {
        let on = figures.next().expect("every subject has figures");
        let off = row.off.as_ref().and_then(|_| figures.next());
        line(&named(row), on, off);
    }
    println!(
        "\nMedians of {} interleaved rounds of {} calls on one thread, each case in a process of \
         its own. Two threads: cost of a region on each of two threads, divided by its cost on \
         one; {} rounds of {} calls. No viewer is connected. The times do not include work of the \
         library's own threads. Memory: bytes that became resident. Growth in the second half is \
         records that wait to be read: Tracy's by a viewer, without bound; fastrace's by its \
         reporter, once a second; metrics' by its upkeep, every five seconds.\n",
        plan.rounds,
        grouped(plan.calls),
        plan.pairs,
        grouped(plan.calls_of_pair)
    );
    println!("| what | records | switched off |");
    println!("|---|---|---|");
    for row in rows.iter().filter(|row| !row.switch.is_empty()) {
        println!("| {} | {} | {} |", row.name, row.records, row.switch);
    }
}

/// The name of a row with the versions of its packages.
fn named(row: &Row) -> String {
    let versions: Vec<String> = row
        .packages
        .iter()
        .map(|package| format!("{package} {}", version(package).unwrap_or("of unknown version")))
        .collect();
    format!("{} ({})", row.name, versions.join(", "))
}

/// The version used in the build: the lock file contains one of each package.
fn version(package: &str) -> Option<&'static str> {
    let lock = include_str!("../Cargo.lock");
    let (_, after) = lock.split_once(&format!("name = \"{package}\"\nversion = \""))?;
    after.split('"').next()
}

fn bytes(bytes: i64) -> String {
    let kib = bytes as f64 / 1024.0;
    if kib.abs() < 1024.0 { format!("{kib:.0} KiB") } else { format!("{:.1} MiB", kib / 1024.0) }
}

/// Formats a number with commas between the thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        let _ = write!(text, "{digit}");
    }
    text
}
