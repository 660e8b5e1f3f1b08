//! A process with little memory: pfp stays within a share of the lowest limit, and so do the
//! segments of crashed processes, whatever sets the limit.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pfp_tests::faults::{self, Group};
use pfp_tests::place::{Place, pfp_top};
use pfp_tests::target::Target;
use pfp_tests::watch::Watch;
use pfp_tests::{figure, size, skipped};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

const MIB: u64 = 1 << 20;
/// Each thread makes 100 rounds over 100 points, with a guard and a region by hand each.
const CALLS_OF_A_THREAD: u64 = 100 * 100 * 2;
/// pfp may use one part in PART of a memory limit.
const PART: u64 = 16;

/// The objects of a test's folder: their lengths, and the bytes that are backed.
fn objects(place: &Place) -> Vec<(u64, u64)> {
    let object = |entry: &pfp_shm_layout::find::Entry| {
        use std::os::unix::fs::MetadataExt;
        let meta = fs::metadata(format!("/dev/shm{}", entry.info.object)).ok()?;
        Some((meta.len(), meta.blocks() * 512))
    };
    place.entries().iter().filter_map(object).collect()
}

/// A program that would use far more than its share: many threads, each with a lane.
fn hungry(place: &Place, threads: u64) -> Command {
    let mut command = place.command(TARGET);
    command.args(["many-points", &threads.to_string()]).env("PFP_LANES", "2000");
    command
}

/// Runs a hungry program to its end, and checks that it stays within `share` bytes.
fn stays_within(what: &str, share: u64, prepare: &dyn Fn(&mut Command)) {
    const THREADS: u64 = 60;
    let place = Place::new();
    let mut command = hungry(&place, THREADS);
    prepare(&mut command);
    let mut target = Target::start(&mut command);
    let measured: u64 = target.reach("done").one("measured");
    let [(len, backed)] = objects(&place)[..] else { panic!("{what}: one segment") };
    assert!(len <= share && len > share / 2, "{what}: {len} bytes, its share is {share}");
    assert!(backed <= share, "{what}: {backed} bytes");
    // Measurements that found no memory are counted as missed.
    let mut watch = Watch::attach(&place, &target);
    let missed = watch.poll().losses.begins_missed;
    assert_eq!(measured + missed, THREADS * CALLS_OF_A_THREAD, "{what}");
    assert!(measured > 0, "{what}");
    target.end_well();

    // If the user sets the memory, that setting replaces the share.
    let mut command = hungry(&place, 1);
    prepare(command.env("PFP_MEMORY_MB", "3"));
    let mut target = Target::start(&mut command);
    target.reach("done");
    let [(len, _)] = objects(&place)[..] else { panic!("{what}: one segment") };
    assert!(len > 3 * MIB && len < 7 * MIB, "{what}: {len} bytes");
    target.end_well();
}

fn limited(what: libc::__rlimit_resource_t, to: u64) -> impl Fn(&mut Command) {
    move |command| {
        let limit = libc::rlimit { rlim_cur: to, rlim_max: to };
        // SAFETY: the closure makes one system call between fork and exec, with an initialized
        // limit.
        unsafe {
            command.pre_exec(move || match libc::setrlimit(what, &raw const limit) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            });
        }
    }
}

#[test]
fn limits_of_the_process_are_kept() {
    // The threads need part of the address space, too.
    stays_within("addresses", 2048 * MIB / PART, &limited(libc::RLIMIT_AS, 2048 * MIB));
    stays_within("files", 8 * MIB, &limited(libc::RLIMIT_FSIZE, 8 * MIB));
}

#[test]
fn only_a_share_of_a_small_dev_shm_is_used() {
    let prepare = |command: &mut Command| {
        // SAFETY: the closure makes only system calls between fork and exec.
        unsafe { command.pre_exec(|| faults::own_shm(0, c"size=32m")) };
    };
    let mut tried = Command::new("true");
    prepare(&mut tried);
    if let Err(why) = tried.status() {
        return skipped("a small /dev/shm", &why.to_string());
    }
    let place = Place::new();
    let mut command = hungry(&place, 120);
    prepare(&mut command);
    let mut target = Target::start(&mut command);
    target.reach("done");
    let shm = format!("/proc/{}/root/dev/shm", target.pid());
    let meta =
        |entry: fs::DirEntry| std::os::unix::fs::MetadataExt::blocks(&entry.metadata().unwrap());
    let backed: u64 = fs::read_dir(shm).unwrap().flatten().map(meta).sum::<u64>() * 512;
    assert!(backed > 0 && backed <= 8 * MIB, "{backed} bytes of 32 MiB");
    target.end_well();
}

/// Each process has its own share. Processes that run at once use one share each, and all crashed
/// ones together use one more.
#[test]
fn each_live_process_has_a_share() {
    const LIMIT: u64 = 8 * MIB;
    let place = Place::new();
    let start = || {
        let mut command = hungry(&place, 60);
        limited(libc::RLIMIT_FSIZE, LIMIT)(&mut command);
        let mut target = Target::start(&mut command);
        target.reach("done");
        target
    };
    start().kill();
    let crashed = objects(&place);
    let live: Vec<Target> = (0..3).map(|_| start()).collect();
    let all = objects(&place);
    assert_eq!((crashed.len(), all.len()), (1, 4));
    assert!(all.iter().all(|&(len, backed)| backed <= LIMIT && len <= LIMIT), "{all:?}");
    let backed: u64 = all.iter().map(|(_, backed)| backed).sum();
    assert!(backed > 2 * LIMIT, "{backed} bytes: less than several shares, which show nothing");
    live.into_iter().for_each(|target| drop(target.end_well()));
}

/// A fake hierarchy of control groups, made of plain files in a folder.
struct Groups(PathBuf);

impl Groups {
    fn new(list: &str, limits: &[(&str, u64)]) -> Self {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("pfp-groups-{}-{number}", std::process::id()));
        for (file, limit) in limits {
            let file = root.join("groups").join(file);
            fs::create_dir_all(file.parent().expect("it is in a folder")).expect("there is room");
            fs::write(file, format!("{limit}\n")).expect("there is room");
        }
        fs::write(root.join("list"), list).expect("there is room");
        Self(root)
    }

    fn prepare(&self, command: &mut Command) {
        let path = |name| {
            CString::new(self.0.join(name).as_os_str().as_bytes()).expect("there is no zero in it")
        };
        let (groups, list) = (path("groups"), path("list"));
        // SAFETY: the closure makes only system calls between fork and exec.
        unsafe {
            command.pre_exec(move || {
                faults::own_files([(&*groups, c"/sys/fs/cgroup"), (&*list, c"/proc/self/cgroup")])
            })
        };
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Plain files replace the kernel's: both versions of control groups, a limit of a parent group,
/// and the limit at which the kernel slows a group down.
#[test]
fn limits_of_control_groups_are_kept() {
    let v1 = "4:memory:/a/b\n1:name=systemd:/\n0::/\n";
    let cases = [
        ("version 2", "0::/a/b\n", "a/b/memory.max"),
        ("version 2, above", "0::/a/b\n", "a/memory.max"),
        ("version 2, high", "0::/a/b\n", "a/b/memory.high"),
        ("version 1", v1, "memory/a/b/memory.limit_in_bytes"),
        ("version 1 in a container", v1, "memory/memory.limit_in_bytes"),
    ];
    for (what, list, file) in cases {
        let groups = Groups::new(list, &[(file, 64 * MIB)]);
        let mut tried = Command::new("true");
        groups.prepare(&mut tried);
        if let Err(why) = tried.status() {
            // The unit tests of `share` cover this on plain files, without special rights.
            return skipped("control groups that are plain files", &why.to_string());
        }
        stays_within(what, 64 * MIB / PART, &|command| groups.prepare(command));
    }
    let doctor = |command: &mut Command| {
        let output = command.args(["doctor", "--json"]).env("PFP_TOP_CONFIG", "").output();
        String::from_utf8(output.expect("pfp-top starts").stdout).expect("it is text")
    };
    let groups = Groups::new("0::/a\n", &[("a/memory.max", 64 * MIB)]);
    let mut command = Command::new(pfp_top());
    groups.prepare(&mut command);
    let said = doctor(&mut command);
    let expected = "at most 4096 KiB, by the limit of the control group's memory: 64 MiB";
    assert!(said.contains(expected), "{said}");
}

/// With a real control group, the kernel kills a process beyond the limit. Programs that crash
/// again and again leave so little that the next one can start.
#[test]
fn crashed_processes_leave_room_for_the_next_run() {
    const LIMIT: u64 = 64 * MIB;
    let group = match Group::new(LIMIT) {
        Ok(group) => group,
        // If the test may not create a group, it limits the size of files instead, which needs no
        // special rights.
        Err(why) => {
            skipped("a control group", &why.to_string());
            return crashes("ulimit -f", LIMIT / PART, &limited(libc::RLIMIT_FSIZE, LIMIT / PART));
        }
    };
    crashes("a control group", LIMIT / PART, &|command| group.prepare(command));
    figure(&format!("memory_limit: at most {} KiB charged to 64 MiB", group.most() >> 10));
}

fn crashes(what: &str, share: u64, prepare: &dyn Fn(&mut Command)) {
    const THREADS: u64 = 400;
    let place = Place::new();
    for run in 0..size(4, 50) {
        let mut command = hungry(&place, THREADS);
        // Different programs together leave as little as one program.
        let program = place.path(&format!("program-{run}"));
        if run % 2 == 1 {
            pfp_tests::os::copy_program(TARGET, &program);
            let mut other = Command::new(&program);
            other.args(command.get_args());
            for (name, value) in command.get_envs() {
                if let Some(value) = value {
                    other.env(name, value);
                }
            }
            command = other;
        }
        prepare(&mut command);
        let mut target = Target::start(&mut command);
        target.reach("done");
        let live = place.entry(target.pid()).expect("it measures").object_bytes.unwrap_or(0);
        let all: u64 = objects(&place).iter().map(|(_, backed)| backed).sum();
        // How many threads get a ring and how many only cells depends on their timing.
        assert!(live > share / 8 && live <= share, "{what}: {live} bytes in run {run}");
        assert!(all - live <= share, "{what}: {} bytes are left in run {run}", all - live);
        assert!(run == 0 || all > live, "{what}: the last crash is still there in run {run}");
        target.kill();
        remove(&program);
    }
}

fn remove(file: &Path) {
    let _ = fs::remove_file(file);
}
