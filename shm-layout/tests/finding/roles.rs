//! The roles that other processes play in these tests.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use pfp_shm_layout::beacon::{Beacon, Info};
use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::environment::variable;
use pfp_shm_layout::find::{gc, sweep};
use pfp_shm_layout::liveness::Liveness;
use pfp_shm_layout::name::Name;
use pfp_shm_layout::object::{self, NoSpace, Object};

use crate::actors::{hear, tell};
use crate::counting::ALLOCATIONS;
use crate::{NOBODY, PAGE, is_root, only_entry};

/// Number of segments of a process in the role `many`.
pub(crate) const MANY: usize = 10;

/// Not a test: runs the role of a process that `Actor::start` made.
#[test]
fn role() {
    let Some(role) = variable(c"PFP_TEST_ROLE") else {
        return;
    };
    let arguments: Vec<PathBuf> = variable(c"PFP_TEST_ARGUMENTS")
        .unwrap()
        .as_bytes()
        .split(|&b| b == b'|')
        .map(|argument| PathBuf::from(OsStr::from_bytes(argument)))
        .collect();
    match role.to_str().unwrap() {
        "live" => play_live(&arguments),
        "with-children" => play_with_children(&arguments),
        "borrowed-identity" => play_borrowed_identity(&arguments),
        "orderly" => play_orderly(&arguments),
        "unlit" => play_unlit(&arguments),
        "many" => play_many(&arguments),
        "sweeper" => play_sweeper(&arguments),
        "umask" => play_umask(&arguments),
        "open-as-nobody" => play_open_as_nobody(&arguments),
        "write" => play_write(&arguments),
        "full-tmpfs" => play_full_tmpfs(&arguments),
        "file-limit" => play_file_limit(&arguments),
        other => panic!("no role {other}"),
    }
}

fn light(dir: &Directory, change: impl FnOnce(&mut Info)) -> (Object, Box<Beacon>) {
    let mut info = Info::of_this_process(Name::random().unwrap(), "a test").unwrap();
    change(&mut info);
    let beacon = loop {
        match Beacon::lit(dir, &info) {
            // A sweeper has taken the new beacon, not yet locked, for that of a dead process.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                info.object = Name::random().unwrap();
            }
            lit => break lit.unwrap(),
        }
    };
    let name = info.object;
    let object = Object::create_as(name, PAGE).unwrap();
    object.back(0, PAGE).unwrap();
    (object, beacon)
}

fn play_live(arguments: &[PathBuf]) {
    let dir = Directory::create(&arguments[0]).unwrap();
    let (object, _beacon) = light(&dir, |info| {
        if let Some(exe) = arguments.get(1) {
            info.exe = exe.clone();
        }
    });
    tell(object.name());
    hear();
}

fn play_unlit(arguments: &[PathBuf]) {
    let dir = Directory::create(&arguments[0]).unwrap();
    let name = Name::random().unwrap();
    let info = Info::of_this_process(name, "a test").unwrap();
    let _beacon = Beacon::prepare(&dir, &info).unwrap();
    let object = Object::create_as(name, PAGE).unwrap();
    tell(object.name());
    hear();
}

fn play_with_children(arguments: &[PathBuf]) {
    let dir = Directory::create(&arguments[0]).unwrap();
    let (object, beacon) = light(&dir, |_| {});
    tell(object.name());
    let mut held = Some((object, beacon));
    for raw in [false, true] {
        // SAFETY: the only other thread of this process, the harness's, waits,
        // so the child may allocate.
        let child = unsafe {
            if raw {
                libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as i32
            } else {
                libc::fork()
            }
        };
        if child == 0 {
            if let Some((object, beacon)) = held.take() {
                drop(object);
                beacon.extinguish().ok();
            }
            // The child prints its id last, right before it waits: the test continues from here.
            tell(std::process::id());
            loop {
                // SAFETY: waits for a signal, which the test sends; takes no arguments.
                unsafe { libc::pause() };
            }
        }
    }
    hear();
}

fn play_borrowed_identity(arguments: &[PathBuf]) {
    let dir = Directory::create(&arguments[0]).unwrap();
    let heard = hear();
    let (pid, start) = heard.split_once(' ').unwrap();
    let (object, _beacon) = light(&dir, |info| {
        info.process.pid = pid.parse().unwrap();
        info.process.start = start.parse().unwrap();
    });
    tell(object.name());
    hear();
}

fn play_orderly(arguments: &[PathBuf]) {
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    let dir = Directory::create(&arguments[0]).unwrap();
    let (object, beacon) = light(&dir, |_| {});
    drop(dir);
    tell(object.name());
    tell(format!("descriptors kept: {}", descriptors() - before));
    assert_eq!(hear(), "end");
    object::unlink(object.name()).unwrap();
    beacon.extinguish().unwrap();
}

fn play_many(arguments: &[PathBuf]) {
    let dir = Directory::create(&arguments[0]).unwrap();
    let mut all = Vec::new();
    for _ in 0..MANY {
        // Before each segment that stays, another one is made and removed, while sweepers run.
        let (object, beacon) = light(&dir, |_| {});
        object::unlink(object.name()).unwrap();
        beacon.extinguish().unwrap();
        let (object, beacon) = light(&dir, |_| {});
        tell(object.name());
        all.push((object, beacon));
    }
    assert_eq!(hear(), "check");
    for (object, beacon) in &all {
        assert_eq!(object.file_len().unwrap(), PAGE as u64);
        assert_eq!(beacon.info().liveness(&dir).unwrap(), Liveness::Alive);
    }
    tell("all there");
    hear();
}

fn play_sweeper(arguments: &[PathBuf]) {
    let dir = Directory::create(&arguments[0]).unwrap();
    let exe = std::env::current_exe().unwrap();
    let stop = std::thread::spawn(hear);
    let mut removed = 0;
    let mut failed = Vec::new();
    while !stop.is_finished() {
        for swept in [sweep(&dir, &exe, 0, 0).unwrap(), gc(&dir).unwrap()] {
            removed += swept.removed.len();
            failed.extend(swept.failed);
        }
    }
    tell(format!("{removed} {failed:?}"));
}

fn play_umask(arguments: &[PathBuf]) {
    let umask = u32::from_str_radix(arguments[1].to_str().unwrap(), 8).unwrap();
    become_nobody();
    // SAFETY: takes a plain number and cannot fail.
    unsafe { libc::umask(umask) };
    let dir = Directory::create(&arguments[0]).unwrap();
    let (object, beacon) = light(&dir, |_| {});
    assert_eq!(Object::open(object.name()).unwrap().len(), PAGE);
    only_entry(&Directory::open(&arguments[0]).unwrap());
    tell(object.name());
    assert_eq!(hear(), "end");
    object::unlink(object.name()).unwrap();
    beacon.extinguish().unwrap();
}

fn play_open_as_nobody(arguments: &[PathBuf]) {
    become_nobody();
    let name = Name::parse(arguments[0].to_str().unwrap()).unwrap();
    tell(format!("{:?}", Object::open(&name).err().map(|e| e.kind())));
}

fn play_write(arguments: &[PathBuf]) {
    let name = Name::parse(arguments[0].to_str().unwrap()).unwrap();
    let page: usize = arguments[1].to_str().unwrap().parse().unwrap();
    let object = Object::open(&name).unwrap();
    object.unlock(PAGE..2 * PAGE).unwrap();
    tell("writing");
    // SAFETY: the address is inside the mapping. The write may fault, which the test expects.
    unsafe { object.as_ptr().add(page * PAGE).write_volatile(1) };
}

fn play_full_tmpfs(arguments: &[PathBuf]) {
    if !mount_small_shm() {
        tell("no mount namespace of its own (needs root)");
        return;
    }
    let old_kernel = arguments[0] == Path::new("fallocate");
    let object = Object::create(8 << 20).unwrap();
    if old_kernel && !refuse_populate() {
        tell("no seccomp filter");
        return;
    }
    let before = ALLOCATIONS.get();
    let half = object.back(0, 512 << 10);
    let whole = object.back(0, 8 << 20);
    let allocations = ALLOCATIONS.get() - before;
    assert_eq!((half, whole), (Ok(()), Err(NoSpace)));
    assert_eq!(allocations, 0);
    for page in 0..128 {
        // SAFETY: the address is inside the part of the mapping that was backed.
        unsafe { object.as_ptr().add(page * PAGE).write_volatile(1) };
    }
    tell("refused");
}

fn play_file_limit(arguments: &[PathBuf]) {
    let limit = libc::rlimit { rlim_cur: 10, rlim_max: 10 };
    // SAFETY: `limit` is an initialized rlimit that outlives the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) }, 0);
    let dir = Directory::create(&arguments[0]).unwrap();
    let object = Object::create(PAGE).unwrap_err().kind();
    let info = Info::of_this_process(Name::random().unwrap(), "").unwrap();
    let beacon = Beacon::lit(&dir, &info).unwrap_err().kind();
    tell(format!("{object:?} {beacon:?}"));
}

/// Drops root's rights, if the process has them.
fn become_nobody() {
    if is_root() {
        // SAFETY: the call takes plain numbers and changes the user of the whole process.
        assert_eq!(unsafe { libc::setgid(NOBODY) }, 0);
        // SAFETY: the call takes a plain number.
        assert_eq!(unsafe { libc::setuid(NOBODY) }, 0);
    }
}

/// Mounts a /dev/shm of 1 MiB that only this thread sees.
fn mount_small_shm() -> bool {
    let (none, nothing) = (c"none".as_ptr(), std::ptr::null());
    // SAFETY: these are system calls on NUL-terminated strings. The thread has unshared its mount
    // namespace before the mounts, so it alone sees them.
    unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                none,
                c"/".as_ptr(),
                nothing,
                libc::MS_REC | libc::MS_PRIVATE,
                nothing.cast(),
            ) == 0
            && libc::mount(
                none,
                c"/dev/shm".as_ptr(),
                c"tmpfs".as_ptr(),
                0,
                c"size=1m".as_ptr().cast(),
            ) == 0
    }
}

/// Makes madvise(_, _, 23) fail with EINVAL in this thread, as an old kernel does.
fn refuse_populate() -> bool {
    const fn step(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
        libc::sock_filter { code: code as u16, jt, jf, k }
    }
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    // In seccomp_data, the call's number is at offset 0 and its third argument at 16 + 2 * 8.
    let mut steps = [
        step(LOAD, 0, 0, 0),
        step(EQUAL, 0, 3, libc::SYS_madvise as u32),
        step(LOAD, 0, 0, 32),
        step(EQUAL, 0, 1, 23),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EINVAL as u32),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the program outlives the call, and the kernel copies it.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    }
}
