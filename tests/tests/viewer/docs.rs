//! Runs the shell commands of the README and of docs/ unchanged, and checks that the promised
//! output appears under the promised names.

use std::path::Path;
use std::process::{Command, Stdio};

use pfp_read::files::json::{self, Existing};
use pfp_read::files::recording::Writer;
use pfp_read::snapshot::Snapshot;
use pfp_read::source::Source;
use pfp_read::source::synthetic::Synthetic;
use pfp_tests::c;
use pfp_tests::lacks;
use pfp_tests::place::{Place, pfp_top};
use pfp_tests::target::wait_for;

/// The order matters: later commands need files that earlier ones write.
const PAGES: [&str; 8] = [
    include_str!("../../../README.md"),
    include_str!("../../../docs/manual.md"),
    include_str!("../../../docs/export.md"),
    include_str!("../../../docs/c-and-cpp.md"),
    include_str!("../../../docs/timers.md"),
    include_str!("../../../docs/amounts.md"),
    include_str!("../../../docs/costs.md"),
    include_str!("../../../docs/installing.md"),
];
const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

/// Commands that are not run here, and why.
const NOT_RUN: [(&str, &str); 10] = [
    ("cargo run --release -- demo", "builds all of pfp; viewer.rs watches the demo"),
    (".ci/install", "the same, and installs it"),
    ("cargo test --workspace --release", "is what runs this test"),
    ("cmake -S probe -B build", "builds and installs libpfp; c_packaging.rs does so"),
    ("cc app.c $(pkg-config", "needs what the line before installs; c_packaging.rs links so"),
    ("cc main.c $(pkg-config", "the same; c_packaging.rs runs these lines"),
    (".ci/package", "builds all of pfp; c_packaging.rs makes a package"),
    ("sudo dpkg -i", "installs what the line before has built"),
    ("cargo run --release -p pfp-bench --example growth", "takes minutes of a quiet machine"),
    ("cargo run --release --locked --manifest-path probe/comparison", "the same"),
];
/// Commands that run until they are interrupted; the test interrupts them after SECONDS.
const ENDLESS: [&str; 2] = ["pfp-top -b -n 60 -i 1", "pfp-top record "];
const SECONDS: &str = "3";

/// The commands in all blocks of all pages, in order.
fn lines() -> Vec<&'static str> {
    let (mut lines, mut inside) = (Vec::new(), false);
    for line in PAGES.iter().flat_map(|page| page.lines()) {
        match line {
            "```sh" => inside = true,
            "```" => inside = false,
            line if inside && !line.trim().is_empty() => lines.push(line),
            _ => {}
        }
    }
    lines
}

/// A program with functions for `-finstrument-functions`, which runs for a second or two.
const APP: &str = "#include <unistd.h>\n\
                   static int parse_line(int n) { return n * 3; }\n\
                   static int other(int n) { return n + 1; }\n\
                   int main(void) { int sum = 0;\n\
                   for (int n = 0; n < 1000; n++) {\n\
                   sum += parse_line(other(n)); usleep(1000); }\n\
                   return sum == 1; }\n";

/// A snapshot of a simulated run; each number gives another run.
fn run(number: u32) -> Snapshot {
    let mut source = Synthetic::new();
    source.snapshot_mut().process.segment_id = format!("{number:032x}");
    for _ in 0..5 {
        source.poll().unwrap();
    }
    source.poll().unwrap()
}

/// Writes a recording of six minutes that starts at noon.
fn record(path: &Path) {
    // 2026-11-21 12:00:00 UTC.
    let noon = 1_795_262_400_000_000_000;
    let mut source = Synthetic::new();
    let mut next = |second: u64| {
        let mut snapshot = source.poll().unwrap();
        snapshot.taken_unix_ns = noon + second * 1_000_000_000;
        snapshot
    };
    let first = next(0);
    let mut writer = Writer::create(path, Existing::Replace, 1_000_000_000, &first, &[]).unwrap();
    for second in 1..360 {
        writer.append(&next(second), &[]).unwrap();
    }
}

#[test]
fn the_pages_shell_lines_do_what_they_say() {
    let lines = lines();
    assert!(lines.len() > 35, "{lines:#?}");
    for (line, _) in NOT_RUN {
        assert!(lines.iter().any(|found| found.starts_with(line)), "{line} is on no page");
    }
    const WHAT: &str = "the pages' shell lines";
    if lacks(WHAT, "cc") || lacks(WHAT, "jq") {
        return;
    }
    let place = Place::new();
    let home = place.path("home");
    for folder in [
        "bin",
        ".local/share/bash-completion/completions",
        ".zfunc",
        ".config/fish/completions",
        ".local/share/man/man1",
    ] {
        std::fs::create_dir_all(home.join(folder)).unwrap();
    }
    let program = format!("#!/bin/sh\nexec '{TARGET}' ends alone\n");
    std::fs::write(home.join("program"), program).unwrap();
    c::run(Command::new("chmod").arg("+x").arg(home.join("program")));
    std::os::unix::fs::symlink(pfp_top(), home.join("bin/pfp-top")).unwrap();
    std::fs::write(home.join("app.c"), APP).unwrap();
    for number in 0..4 {
        let side = if number % 2 == 0 { "before" } else { "now" };
        json::write(&run(number), &home.join(format!("{side}-{number}.json")), Existing::Keep)
            .unwrap();
    }
    let target = place.start(TARGET, &["my-app"]);
    let pid = target.pid().to_string();
    let path = format!("{}:{}", home.join("bin").display(), std::env::var("PATH").unwrap());
    let shell = |line: &str, endless: bool| -> Command {
        let mut command = place.command(if endless { "timeout" } else { "bash" });
        if endless {
            command.args(["--preserve-status", "-s", "INT", SECONDS, "bash"]);
        }
        command.args(["-eu", "-o", "pipefail", "-c", line]).current_dir(&home);
        command.env("HOME", &home).env("PATH", &path).env("TZ", "UTC");
        command.env("PFP_LIBRARY", c::library().join("libpfp.so"));
        command.stdin(Stdio::null());
        command
    };
    wait_for("the points", || {
        let output = shell("pfp-top --once --json", false).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ["sort", "parse", "io.write"].iter().all(|name| text.contains(&format!("\"{name}\"")))
    });
    let saved = format!("pfp-top snapshot -p {pid} -o run-4711.json");
    c::run(&mut shell(&saved, false));

    let mut ran = 0;
    for line in &lines {
        if NOT_RUN.iter().any(|(start, _)| line.starts_with(start)) {
            continue;
        }
        // Insert the process that a reader would name.
        let meant =
            line.replace("-p 4711", &format!("-p {pid}")).replace("-p PID", &format!("-p {pid}"));
        let endless = ENDLESS.iter().any(|start| line.starts_with(start));
        let output = shell(&meant, endless).output().expect("a shell starts");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let ended = output.status.code();
        // Shells report this status after Ctrl-C.
        assert!(ended == Some(0) || endless && ended == Some(130), "{line}: {output:?}");
        ran += 1;
        // Each output file exists and is not empty. Output behind a pipe belongs to another
        // program.
        let own = meant.split(" #").next().unwrap().split(" | ").next().unwrap();
        let words: Vec<&str> = own.split_whitespace().collect();
        for pair in words.windows(2).filter(|pair| matches!(pair[0], "-o" | ">")) {
            let name = pair[1].replace("~/", "");
            let size = std::fs::metadata(home.join(&name)).map(|file| file.len());
            assert!(size.as_ref().is_ok_and(|size| *size > 0), "{line}: {name} {size:?}");
        }
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        match *line {
            line if line.starts_with("pfp-top record") => record(&home.join("run.pfprec")),
            line if line.starts_with("pfp-top disable") => {
                assert!(said.contains("disabled 3 of "), "{line}: {said}");
            }
            line if line.starts_with("pfp-top run") => {
                assert!(said.contains("parse_line"), "{line}: {said}{errors}");
            }
            line if line.starts_with("PFP_SNAPSHOT=") => {
                let names = std::fs::read_dir(&home).unwrap().flatten();
                let runs =
                    names.filter(|file| file.file_name().to_string_lossy().starts_with("run-"));
                assert_eq!(runs.count(), 2, "a file for each process");
            }
            line if line.contains("--at 12:03:41") => {
                // There is one snapshot per second from noon on, so this number is the same moment.
                let by_number = line.split(" #").next().unwrap().replace("12:03:41", "'#222'");
                let output = shell(&by_number, false).output().expect("a shell starts");
                assert_eq!(said, String::from_utf8_lossy(&output.stdout), "{line}: {by_number}");
                assert!(said.contains("my_app"), "{line}: {said}");
            }
            _ => {}
        }
    }
    // Two pages show both ways to link with CMake.
    const TWICE: usize = 2;
    assert_eq!(ran, lines.len() - NOT_RUN.len() - TWICE);
    target.end_well();
}
