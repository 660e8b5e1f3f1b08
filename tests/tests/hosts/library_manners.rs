//! A library's manners: it starts no thread, leaves no descriptor open, installs no signal handler,
//! and prints nothing, above all where it cannot work.

use std::fs;

use pfp_tests::place::Place;

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

#[test]
fn measuring_leaves_threads_descriptors_and_signal_handlers_unchanged() {
    let place = Place::new();
    for clock in ["rseq", "perf", "cputime", "wall"] {
        let output = place.command(TARGET).arg("manners").env("PFP_CLOCK", clock).output();
        let output = output.expect("the target can be started");
        assert!(output.status.success(), "{clock}: {output:?}");
        assert!(output.stderr.is_empty());
    }
}

/// Whatever path and settings it gets, pfp prints nothing and the host works as without it.
#[test]
fn unusable_paths_and_settings_print_nothing() {
    let place = Place::new();
    let plain = place.command(TARGET).arg("host").output().expect("the target can be started");
    assert!(plain.status.success() && plain.stderr.is_empty(), "{plain:?}");
    let file = place.path("a file");
    fs::write(&file, "not a directory").expect("the directory is ours");
    let file = file.to_str().expect("it is plain text").to_owned();
    for (name, value) in [
        ("PFP_DIR", file.as_str()),
        ("PFP_DIR", "/nowhere/at/all"),
        ("PFP_DIR", "/proc/self/fd"),
        ("PFP_DIR", ""),
        ("PFP_CLOCK", "sundial"),
        ("PFP_POINTS", "many"),
        ("PFP_POINTS", "0"),
        ("PFP_POINTS", "4294967295"),
        ("PFP_LANES", "0"),
        ("PFP_LANES", "4294967295"),
        ("PFP_MEMORY_MB", "0"),
        ("PFP_MEMORY_MB", "4294967295"),
        ("PFP_DEFAULT", "perhaps"),
        ("PFP_SNAPSHOT", "/nowhere/at/all"),
        ("PFP_SNAPSHOT", file.as_str()),
    ] {
        let output = place.command(TARGET).arg("host").env(name, value).output();
        let output = output.expect("the target can be started");
        assert_eq!(output, plain, "{name}={value}");
    }
}

/// The host has only the standard descriptors, without which it could not start.
#[test]
fn a_host_without_free_descriptors_continues() {
    let place = Place::new();
    let plain = place.command(TARGET).arg("host").output().expect("the target can be started");
    let without = place.command(TARGET).args(["host-short-of-descriptors", "0"]).output();
    assert_eq!(without.expect("the target can be started"), plain);
}

/// Limits of a process: descriptors, memory, file size.
#[test]
fn process_limits_print_nothing() {
    let place = Place::new();
    let plain = place.command(TARGET).arg("host").output().expect("the target can be started");
    for (resource, limit) in [
        // Standard input, output and error, and one more.
        (libc::RLIMIT_NOFILE, 4),
        (libc::RLIMIT_FSIZE, 0),
        (libc::RLIMIT_FSIZE, 1 << 20),
        (libc::RLIMIT_AS, 200 << 20),
    ] {
        let mut command = place.command(TARGET);
        command.arg("host");
        limit_to(&mut command, resource, limit);
        let output = command.output().expect("the target can be started");
        assert_eq!(output, plain, "resource {resource} limited to {limit}");
    }
}

fn limit_to(command: &mut std::process::Command, resource: libc::__rlimit_resource_t, limit: u64) {
    use std::os::unix::process::CommandExt;
    const CLOSE_ON_EXEC: libc::c_uint = 4;
    let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    // SAFETY: the closure makes only system calls between fork and exec.
    unsafe {
        command.pre_exec(move || {
            // Descriptors that another test holds open for a moment would count against the limit.
            libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, CLOSE_ON_EXEC);
            let result = libc::setrlimit(resource, &raw const limit);
            if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        });
    }
}
