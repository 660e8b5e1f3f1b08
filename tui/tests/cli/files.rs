//! Files that users name: whatever they are, reading them needs little memory and time.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

const MIB: u64 = 1 << 20;
/// Limit of the peak memory of a command, in bytes.
const MOST: u64 = 64 * MIB;

/// The result of a program, with its peak memory.
struct Ended {
    status: ExitStatus,
    complaint: String,
    output: String,
    bytes: u64,
}

/// A call of the program with limits, so that it is killed instead of hanging or using all memory.
fn bounded(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pfp-top"));
    command.args(arguments).env("PFP_TOP_CONFIG", "").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY: the closure makes only system calls between fork and exec.
    unsafe {
        command.pre_exec(|| {
            let bytes = libc::rlimit { rlim_cur: 3 << 30, rlim_max: 3 << 30 };
            libc::setrlimit(libc::RLIMIT_AS, &raw const bytes);
            // A shell without job control starts background programs with these signals ignored.
            for signal in [libc::SIGINT, libc::SIGTERM] {
                libc::signal(signal, libc::SIG_DFL);
            }
            libc::alarm(120);
            Ok(())
        });
    }
    command
}

fn end(mut child: Child) -> Ended {
    let (mut output, mut complaint) = (Vec::new(), Vec::new());
    let mut errors = child.stderr.take().unwrap();
    let reader = std::thread::spawn(move || errors.read_to_end(&mut complaint).map(|_| complaint));
    child.stdout.take().unwrap().read_to_end(&mut output).unwrap();
    let complaint = reader.join().unwrap().unwrap();
    let (mut status, mut usage) = (0, std::mem::MaybeUninit::<libc::rusage>::zeroed());
    // SAFETY: the child is ours and is not reaped elsewhere; both pointers are valid for writes,
    // and an rusage may hold any bytes.
    let usage = unsafe {
        assert_eq!(
            libc::wait4(child.id() as i32, &raw mut status, 0, usage.as_mut_ptr()),
            child.id() as i32
        );
        usage.assume_init()
    };
    Ended {
        status: ExitStatus::from_raw(status),
        complaint: String::from_utf8_lossy(&complaint).into_owned(),
        output: String::from_utf8_lossy(&output).into_owned(),
        bytes: usage.ru_maxrss as u64 * 1024,
    }
}

fn fifo(path: &Path) {
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path is NUL-terminated and outlives the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
}

/// A file of gigabytes that occupies almost no disk space.
fn sparse(path: &Path, start: &[u8]) {
    let file = File::create(path).unwrap();
    file.write_all_at(start, 0).unwrap();
    file.set_len(3 << 30).unwrap();
}

/// Files in other formats, each with a text that its error message contains.
fn strange(folder: &Path) -> Vec<(PathBuf, &'static str)> {
    let asset = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets").join(name);
        fs::read(path).unwrap()
    };
    let [zeros, text, blanks, packed, recording, pipe] =
        ["zeros", "text", "blanks", "packed", "recording", "pipe"].map(|name| folder.join(name));
    sparse(&zeros, b"");
    sparse(&text, b"{\"format\":\"pfp-snapshot\",");
    sparse(&blanks, &[b' '; 128]);
    sparse(&packed, &[0x28, 0xb5, 0x2f, 0xfd]);
    sparse(&recording, b"\x89PFPREC\n");
    fifo(&pipe);
    let mut all = vec![
        ("/dev/zero".into(), "a device"),
        ("/dev/tty".into(), ""),
        (folder.to_owned(), "a folder"),
        (pipe, "a pipe"),
        (zeros, "found other data"),
        (text, "at most 512 MiB"),
        (blanks, "at most 512 MiB"),
        (packed, "at most 512 MiB"),
        (recording, "not a recording"),
    ];
    // Copies of segments with invalid lengths.
    let segment = asset("segment-v3.pfp");
    for (name, blocks, used) in [("many", 1_u64 << 29, 1_u64 << 29), ("few", 1 << 29, 3)] {
        let path = folder.join(name);
        let mut bytes = segment.clone();
        let word =
            |bytes: &[u8], at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        let (now, len) = (word(&bytes, 40), word(&bytes, 48));
        bytes[40..48].copy_from_slice(&blocks.to_ne_bytes());
        bytes[48..56].copy_from_slice(&(len + (blocks - now) * (16 << 10)).to_ne_bytes());
        let at = 4096 + std::mem::offset_of!(pfp_shm_layout::header::ProcessCounters, blocks_used);
        bytes[at..at + 8].copy_from_slice(&used.to_ne_bytes());
        sparse(&path, &bytes);
        all.push((path, ""));
    }
    all
}

#[test]
fn files_that_are_no_snapshots_are_refused_in_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let strange = strange(folder.path());
    let good = super::snapshot_file(folder.path());
    for (path, why) in &strange {
        let name = path.to_str().unwrap();
        for arguments in [
            &["open", name][..],
            &["open", "--json", "--baseline", name, &good],
            &["export", "csv", name],
            &["diff", &good, name],
            &["diff", name, &good],
            &["gate", "--max-regress", "p50=5%", "--baseline", name, "--", &good],
        ] {
            let ended = end(bounded(arguments).spawn().unwrap());
            let said = &ended.complaint;
            // A copy that claims to use few blocks can be read.
            let is_copy = name.ends_with("/few");
            assert!(
                ended.status.code().is_some_and(|code| code == 2 || code == 5 || is_copy),
                "{arguments:?}: {:?} {said}",
                ended.status
            );
            assert!(is_copy || said.contains(why), "{arguments:?}: {said}");
            assert!(ended.bytes < MOST, "{arguments:?}: {} MiB", ended.bytes / MIB);
        }
    }
}

#[test]
fn settings_are_a_small_file_or_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let good = super::snapshot_file(folder.path());
    let long = folder.path().join("long");
    fs::write(&long, "#".repeat(1 << 20)).unwrap();
    let names = strange(folder.path()).into_iter().map(|(path, _)| path);
    for path in names.chain([long, "/no/such/file".into()]) {
        let mut command = bounded(&["open", &good, "--csv"]);
        let ended = end(command.env("PFP_TOP_CONFIG", &path).spawn().unwrap());
        let said = &ended.complaint;
        assert!(said.contains(path.to_str().unwrap()), "{}: {said}", path.display());
        assert!(ended.bytes < MOST, "{}: {} MiB", path.display(), ended.bytes / MIB);
        assert!(ended.status.success(), "{}: {:?} {said}", path.display(), ended.status);
    }
}

#[test]
fn files_in_other_options_cannot_block_or_use_much_memory() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    fifo(&pipe);
    let pipe = pipe.to_str().unwrap();
    let [sparse_file, bytes] = ["sparse", "bytes"].map(|name| folder.path().join(name));
    sparse(&sparse_file, b"true agent\n");
    fs::write(&bytes, b"ssh \xff\n").unwrap();
    for arguments in [
        &["run", "--once", "--log", pipe, "true"][..],
        &["run", "--once", "/dev/zero"],
        &["run", "--once", pipe],
        &["record", "--append", "-o", pipe, "-p", "1"],
        &["export", "csv", "-o", pipe, "--force", &super::snapshot_file(folder.path())],
        &["list", "--via-file", pipe],
        &["list", "--via-file", "/dev/zero"],
        &["list", "--via-file", sparse_file.to_str().unwrap()],
        &["--once", "--all", "--sum", "--via-file", bytes.to_str().unwrap()],
    ] {
        let ended = end(bounded(arguments).spawn().unwrap());
        let code = ended.status.code();
        assert!(code.is_some_and(|code| code != 0), "{arguments:?}: {:?}", ended.status);
        assert!(ended.bytes < MOST, "{arguments:?}: {} MiB", ended.bytes / MIB);
    }
}

/// `-` is standard input: a file or a pipe. Reading a pipe stops once its bytes cannot be a
/// snapshot.
#[test]
fn standard_input_is_a_name_like_others() {
    let folder = tempfile::tempdir().unwrap();
    let good = super::snapshot_file(folder.path());
    let text = fs::read(&good).unwrap();
    let expected = end(bounded(&["open", &good, "--csv"]).spawn().unwrap()).output;
    assert!(expected.lines().count() > 2, "{expected}");
    let given = |arguments: &[&str], stdin: Stdio| bounded(arguments).stdin(stdin).spawn().unwrap();
    let piped = |arguments: &[&str], bytes: &[u8]| {
        let mut child = given(arguments, Stdio::piped());
        // The program may have refused the input already.
        let _ = child.stdin.take().unwrap().write_all(bytes);
        end(child)
    };
    let file = || Stdio::from(File::open(&good).unwrap());
    assert_eq!(end(given(&["open", "-", "--csv"], file())).output, expected);
    assert_eq!(piped(&["open", "-", "--csv"], &text).output, expected);
    // Standard input is read once, even if the command line names it twice.
    let same = piped(&["diff", "-", "-"], &text);
    assert!(same.complaint.contains("later"), "{}", same.complaint);
    let endless = end(given(&["open", "-"], File::open("/dev/zero").unwrap().into()));
    assert_eq!(endless.status.code(), Some(2), "{}", endless.complaint);
    assert!(endless.bytes < MOST, "{} MiB", endless.bytes / MIB);
    for bytes in [&b""[..], &[0; 1 << 20], b"\x89PFPREC\n\0\0", &text[..200]] {
        let ended = piped(&["export", "csv", "-"], bytes);
        assert_eq!(ended.status.code(), Some(2), "{}", ended.complaint);
    }
}

/// A command ends on a signal, whatever it waits for.
#[test]
fn a_signal_ends_a_blocked_command() {
    let folder = tempfile::tempdir().unwrap();
    let good = super::snapshot_file(folder.path());
    for signal in [libc::SIGTERM, libc::SIGINT] {
        for arguments in [&["export", "csv", "-"][..], &["open", "-"], &["diff", "-", &good]] {
            let mut child = bounded(arguments).stdin(Stdio::piped()).spawn().unwrap();
            let stdin = child.stdin.take();
            wait_until_it_waits(&child);
            // SAFETY: the child is ours, and not reaped yet.
            unsafe { libc::kill(child.id() as i32, signal) };
            let ended = end(child);
            assert_ne!(ended.status.signal(), Some(libc::SIGALRM), "{arguments:?} hung");
            assert!(!ended.status.success(), "{arguments:?}");
            drop(stdin);
        }
        // The test does not read the output, which exceeds the size of a pipe.
        let good = &good;
        for arguments in
            [&["open", good, "--json", "-n", "1000"][..], &["export", "openmetrics", good]]
        {
            let mut child = bounded(arguments);
            let mut ends = [0; 2];
            // SAFETY: the array has room for two descriptors, and each gets one owner.
            let (reader, writer) = unsafe {
                assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
                libc::fcntl(ends[1], libc::F_SETPIPE_SZ, 4096);
                use std::os::fd::FromRawFd;
                (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
            };
            let mut child = child.stdout(writer).spawn().unwrap();
            wait_until_it_waits(&child);
            // SAFETY: the child is ours, and not reaped yet.
            unsafe { libc::kill(child.id() as i32, signal) };
            let status = child.wait().unwrap();
            assert_ne!(status.signal(), Some(libc::SIGALRM), "{arguments:?} hung");
            drop(reader);
        }
    }
}

/// Waits until a program blocks in a read of its input or a write of its output.
fn wait_until_it_waits(child: &Child) {
    let calls = [format!("{} ", libc::SYS_read), format!("{} 0x1 ", libc::SYS_write)];
    loop {
        let of = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", child.id()));
        let call = of("syscall").unwrap_or_default();
        let has_ended = of("stat").unwrap_or_default().contains(") Z ");
        if has_ended || calls.iter().any(|waits| call.starts_with(waits.as_str())) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
