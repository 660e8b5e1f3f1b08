//! Regions in C, measured together with their counterparts in Rust. The worker is a C program,
//! linked with the static or the shared library. Another worker measures annotations for other
//! tools.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use pfp_bench::{Worker, interleave, median};

use crate::cases;

/// Cases in C, each with its counterpart in Rust.
const ROWS: [(&str, &str); 7] = [
    ("PFP_SCOPE", cases::SCOPE),
    ("PFP_METERED", cases::TIMED),
    ("PFP_METERED, eight in turn", cases::TIMED_IN_TURN),
    ("pfp_begin, pfp_end", cases::BY_HAND),
    ("pfpBegin, pfpEnd", cases::BY_NUMBER),
    ("disabled: PFP_SCOPE_OF", cases::OFF),
    ("disabled: pfpBegin, pfpEnd", cases::BY_NUMBER_OFF),
];

/// Cases with annotations for other tools, which libpfp_inject measures. Each may cost up to
/// `BOUND` times as much as `scope!`.
const ANNOTATED: [&str; 3] =
    ["NVTX: push with a text, pop", "NVTX: push with a registered string, pop", "ITT: task"];
const BOUND: f64 = 1.5;

/// File names of the library, each with its own kind of linking.
const LINKS: [&str; 2] = ["libpfp.a", "libpfp.so"];

/// Prints the table. Without a C compiler, prints the reason instead.
pub(crate) fn table(rounds: usize, calls: u64) -> io::Result<()> {
    let programs = match LINKS.map(build) {
        [Ok(with_static), Ok(with_shared)] => [with_static, with_shared],
        [Err(error), _] | [_, Err(error)] => {
            println!("\nC is not measured: {error}");
            return Ok(());
        }
    };
    let mut workers = vec![Worker::spawn(cases::FLOOR)?];
    for (c, rust) in ROWS {
        workers.push(Worker::spawn(rust)?);
        for program in &programs {
            workers.push(Worker::spawn_from(program, c)?);
        }
    }
    let samples = interleave(&mut workers, rounds, |worker| Ok(worker.run(calls, 1)?.ns))?;
    let medians: Vec<f64> = samples.into_iter().map(|mut ns| median(&mut ns)).collect();
    let (floor, rows) = (medians[0], medians[1..].chunks_exact(1 + LINKS.len()));

    println!(
        "\n| in C, beside the same in Rust | ns, Rust | `libpfp.a` | `libpfp.so` | x two rdtsc |"
    );
    println!("|---|---:|---:|---:|---:|");
    for ((name, _), row) in ROWS.iter().zip(rows) {
        let [rust, with_static, with_shared] = [row[0], row[1], row[2]];
        let times = |ns: f64| ns / floor;
        println!(
            "| {name} | {rust:.2} | {with_static:.2} | {with_shared:.2} | {:.2}, {:.2}, {:.2} |",
            times(rust),
            times(with_static),
            times(with_shared)
        );
    }
    Ok(())
}

/// Prints the cost of annotations, compared with `scope!`.
pub(crate) fn annotated(rounds: usize, calls: u64) -> io::Result<()> {
    let program = match build_annotated() {
        Ok(program) => program,
        Err(error) => {
            println!("\nAnnotations are not measured: {error}");
            return Ok(());
        }
    };
    let mut workers = vec![Worker::spawn(cases::SCOPE)?];
    for name in ANNOTATED {
        workers.push(Worker::spawn_from(&program, name)?);
    }
    let samples = interleave(&mut workers, rounds, |worker| Ok(worker.run(calls, 1)?.ns))?;
    let medians: Vec<f64> = samples.into_iter().map(|mut ns| median(&mut ns)).collect();
    println!("\n| annotated for another tool | ns | x `scope!` | bar |");
    println!("|---|---:|---:|---:|");
    for (name, ns) in ANNOTATED.iter().zip(&medians[1..]) {
        println!("| {name} | {ns:.2} | {:.2} | {BOUND} |", ns / medians[0]);
    }
    Ok(())
}

fn build_annotated() -> io::Result<PathBuf> {
    let built = built()?;
    let program = built.join("annotated");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/c/annotated.c");
    run(Command::new("cc")
        .args(["-std=c99", "-D_GNU_SOURCE", "-O2"])
        .arg(format!("-DLIBRARY=\"{}\"", built.join("libpfp_inject.so").display()))
        .arg(source)
        .arg("-o")
        .arg(&program)
        .args(["-lpthread", "-ldl"]))?;
    Ok(program)
}

/// Builds the libraries if needed, and returns their folder.
fn built() -> io::Result<PathBuf> {
    let probe = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libpfp");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(probe).args(["build", "--quiet", "--locked", "--profile", "c"]);
    cargo.args(["-p", "pfp-c", "-p", "pfp-inject", "--target-dir"]).arg(&target);
    run(&mut cargo)?;
    Ok(target.join("c"))
}

/// Builds the worker and links it with the library's file.
fn build(library: &str) -> io::Result<PathBuf> {
    let (probe, built) = (Path::new(env!("CARGO_MANIFEST_DIR")), built()?);
    let program = built.join(format!("region-{library}"));
    // The paths do not come from pkg-config, because that needs an installed library.
    run(Command::new("cc")
        .args(["-std=c99", "-D_GNU_SOURCE", "-O2"])
        .arg(format!("-I{}", probe.join("include").display()))
        .arg(probe.join("benches/c/region.c"))
        .arg("-o")
        .arg(&program)
        .arg(built.join(library))
        .args(["-lpthread", "-ldl", "-lm"])
        .arg(format!("-Wl,-rpath,{}", built.display())))?;
    if library.ends_with(".so") {
        let _ = std::os::unix::fs::symlink(library, built.join("libpfp.so.0"));
    }
    Ok(program)
}

fn run(command: &mut Command) -> io::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command
        .status()
        .map_err(|error| io::Error::other(format!("{name} cannot be started: {error}")))?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{name}: {status}"))) }
}
