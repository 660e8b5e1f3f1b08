//! The standard descriptors belong to the program, even if it has closed them.

use pfp_tests::c::{Compiler, Link, compile};
use pfp_tests::lacks;
use pfp_tests::place::{Place, pfp_top, text};

/// Whether a line of strace shows a read or write on a standard descriptor, or an open that
/// returned one.
fn is_wrong(line: &str) -> bool {
    let result = line.rsplit_once(" = ").map_or("", |(_, result)| result);
    let opens = [" open", " perf_event_open(", " memfd_create(", " dup", "F_DUPFD"];
    let opens = opens.iter().any(|call| line.contains(call));
    let is_standard = matches!(result.split(' ').next(), Some("0" | "1" | "2"));
    opens && is_standard && !line.contains("O_PATH")
}

#[test]
fn pfp_opens_no_file_on_a_standard_descriptor() {
    if lacks("what numbers files get", "strace") {
        return;
    }
    for (link, functions, clock) in
        [(Link::Static, false, ""), (Link::Shared, false, "perf"), (Link::Static, true, "cputime")]
    {
        let place = Place::new();
        let name = format!("closed-{link:?}-{functions}");
        let flags = functions.then_some("-finstrument-functions").into_iter().chain(["-lpthread"]);
        let program = compile(Compiler::C, &name, &["closed.c"], link, flags);
        let (log, snapshot) = (place.path("calls"), place.path("snapshot.json"));
        let mut command = place.command("strace");
        command.args(["-f", "-o", text(&log), "-e", "trace=%desc,perf_event_open,memfd_create"]);
        command.arg(&program).arg(&snapshot);
        command.env("PFP_CLOCK", clock).env("PFP_ENABLE", "*");
        let status = command.status().expect("it ran just now");
        assert_eq!(status.code(), Some(7), "{link:?}, functions {functions}");
        let log = std::fs::read_to_string(&log).expect("strace has written it");
        let (_, closed) = log.split_once("close(2)").expect("the program closes all three");
        let wrong: Vec<_> = closed.lines().filter(|line| is_wrong(line)).collect();
        assert!(wrong.is_empty(), "{link:?}, functions {functions}: {wrong:#?}");
        assert!(closed.contains("/dev/shm/pfp-"), "{closed}");
    }
}

/// The viewer starts with all three standard descriptors closed. Its Rust runtime opens `/dev/null`
/// under these numbers before anything else.
#[test]
fn the_viewer_opens_no_file_under_a_standard_number() {
    if lacks("what numbers files get", "strace") {
        return;
    }
    let place = Place::new();
    let log = place.path("calls");
    let mut command = place.command("strace");
    command.args(["-f", "-o", text(&log), "-e", "trace=%desc,execve,memfd_create"]);
    command.args(["sh", "-c", "exec \"$0\" list <&- >&- 2>&-"]).arg(pfp_top());
    let _ = command.status().expect("it ran just now");
    let log = std::fs::read_to_string(&log).expect("strace has written it");
    let (_, viewer) = log.rsplit_once(" execve(").expect("the shell becomes the viewer");
    let (_, own) = viewer.split_once("/dev/null").expect("the runtime opens it");
    // The runtime opens `/dev/null` for each number, or once and duplicates the descriptor.
    let is_runtimes = |line: &&str| line.contains("/dev/null") || line.contains(" dup(0)");
    let own = own.lines().skip(1).skip_while(is_runtimes);
    let wrong: Vec<_> = own.filter(|line| is_wrong(line)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
