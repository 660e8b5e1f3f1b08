//! Moves this process into the room of another process: it takes that process's namespaces, root,
//! user and group, and gives up all capabilities.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use anyhow::{Context as _, Result, anyhow};

use crate::residents::FileSystem;
use pfp_read::source::namespaces::{namespace_of, words_of};

/// Enters the room of another process for good. The calling thread must be the only one. Only new
/// processes run in a joined pid namespace, so if there is one to join, a child returns from this
/// function, and this process waits for the child and exits with the child's status.
///
/// The kernel requires the right to trace that process. Descriptors that are open already stay
/// open.
///
/// # Errors
///
/// If the process has ended, or a step is not permitted; the error names the step.
pub fn enter(pid: u32) -> Result<()> {
    // Processes in the room must not trace this process, or use it to reach this program's
    // executable.
    // SAFETY: `prctl` takes plain numbers here.
    check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) }, "leave no core")?;
    // SAFETY: `pidfd_open` takes plain numbers.
    let process = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    check(process as libc::c_int, "open the process")?;
    // SAFETY: `pidfd_open` has just returned this descriptor, and no other value owns it.
    let process = unsafe { OwnedFd::from_raw_fd(process as libc::c_int) };
    let root = root_of(pid)?;
    let spaces =
        [("user", libc::CLONE_NEWUSER), ("mnt", libc::CLONE_NEWNS), ("pid", libc::CLONE_NEWPID)];
    let others = spaces.map(|(kind, flag)| if is_other(pid, kind) { flag } else { 0 });
    let [user_space, files, pids] = others;
    // SAFETY: the list is empty, so the pointer is not read. Without the right to change groups,
    // the call fails, which is harmless: this process then has only its user's own groups.
    unsafe { libc::setgroups(0, std::ptr::null()) };
    // The user namespace comes first: it gives the right to enter the others.
    join(&process, user_space, "enter its user namespace")?;
    let [user, group] = ids_of(pid)?;
    join(&process, files | pids, "enter its namespaces")?;
    if let Some(root) = root {
        // SAFETY: `root` is open, so its descriptor is valid.
        check(unsafe { libc::fchdir(root.as_raw_fd()) }, "go to its root")?;
        // SAFETY: the path is a NUL-terminated literal.
        check(unsafe { libc::chroot(c".".as_ptr()) }, "take its root")?;
    }
    // SAFETY: the path is a NUL-terminated literal.
    check(unsafe { libc::chdir(c"/".as_ptr()) }, "go to its root")?;
    let is_child = pids != 0;
    if is_child {
        continue_in_child()?;
    }
    // SAFETY: `setresgid` takes plain numbers.
    check(unsafe { libc::setresgid(group, group, group) }, "take its group")?;
    // SAFETY: `setresuid` takes plain numbers.
    check(unsafe { libc::setresuid(user, user, user) }, "take its user")?;
    drop_capabilities()?;
    if is_child {
        // The child ends when its input ends. A signal that kills only the waiting parent must end
        // the child, too. Set this after the change of user, which clears it.
        // SAFETY: `prctl` takes plain numbers here.
        let result = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
        check(result, "end with its parent")?;
    }
    Ok(())
}

fn check(result: libc::c_int, what: &str) -> Result<()> {
    if result >= 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    Err(anyhow!("expected the right to {what}, found: {error}; root has it"))
}

/// Opens the root of a process. `None` if this process has the same root.
fn root_of(pid: u32) -> Result<Option<OwnedFd>> {
    if FileSystem::of("self").is_some_and(|own| FileSystem::of(&pid.to_string()) == Some(own)) {
        return Ok(None);
    }
    let path = CString::new(format!("/proc/{pid}/root"))?;
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: `path` is a NUL-terminated path that outlives the call.
    let root = unsafe { libc::open(path.as_ptr(), flags) };
    check(root, "open its root")?;
    // SAFETY: `open` has just returned this descriptor, and no other value owns it.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(root) }))
}

/// Whether the process is in another namespace of this kind than this process.
fn is_other(pid: u32, kind: &str) -> bool {
    namespace_of(&pid.to_string(), kind) != namespace_of("self", kind)
}

fn join(process: &OwnedFd, spaces: libc::c_int, what: &str) -> Result<()> {
    if spaces == 0 {
        return Ok(());
    }
    // SAFETY: `process` is open, so its descriptor is valid; the other argument is a plain number.
    check(unsafe { libc::setns(process.as_raw_fd(), spaces) }, what)
}

/// The effective user and group of a process, as numbers in this process's user namespace.
fn ids_of(pid: u32) -> Result<[u32; 2]> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("process {pid} has ended"))?;
    let id = |key: &str| words_of(&status, key)?.nth(1)?.parse().ok();
    match (id("Uid:"), id("Gid:")) {
        (Some(user), Some(group)) => Ok([user, group]),
        _ => Err(anyhow!("expected the ids of process {pid} in its status, found none")),
    }
}

/// Continues in a child, which runs in the joined pid namespace.
fn continue_in_child() -> Result<()> {
    // SAFETY: the process has one thread, so no lock is held by a thread that the child lacks.
    let child = unsafe { libc::fork() };
    check(child, "start a process there")?;
    if child == 0 {
        return Ok(());
    }
    let mut status = 0;
    // SAFETY: `status` is a live integer that the kernel may write.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
    // SAFETY: `_exit` takes a plain number. It does not flush buffered output, which the child has
    // written already.
    unsafe { libc::_exit(if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 1 }) }
}

/// Drops all capabilities, so that file permissions limit even user 0.
fn drop_capabilities() -> Result<()> {
    /// The third version of the interface: 64 capabilities.
    const VERSION: u32 = 0x2008_0522;
    let header: [u32; 2] = [VERSION, 0];
    let none = [0u32; 6];
    // SAFETY: version 3 reads a header of two words and two sets of three words, as given.
    let result = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr()) };
    check(result as libc::c_int, "give up its capabilities")?;
    // SAFETY: `prctl` takes plain numbers here.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, "never have them again")
}
