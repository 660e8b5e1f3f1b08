//! A process under the id of an earlier process.

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::ptr;

use pfp_tests::script::say;

/// Starts this program under the id of a process that is dead, waits for it, and ends. Prints
/// `refused` if the system does not permit that.
pub(crate) fn as_pid(pid: libc::pid_t) {
    let program = std::env::current_exe().expect("a program knows its path");
    let program = CString::new(program.into_os_string().into_vec()).expect("no zero in it");
    let arguments = [program.as_ptr(), c"life".as_ptr(), ptr::null()];
    // SAFETY: `clone_args` holds plain numbers, for which zero is valid.
    let mut wanted: libc::clone_args = unsafe { std::mem::zeroed() };
    wanted.exit_signal = libc::SIGCHLD as u64;
    wanted.set_tid = (&raw const pid).expose_provenance() as u64;
    wanted.set_tid_size = 1;
    // SAFETY: the structure is initialized and outlives the call. The child has a copy of this
    // process, which has one thread, and calls exec at once.
    let child = unsafe { libc::syscall(libc::SYS_clone3, &raw const wanted, size_of_val(&wanted)) };
    if child == 0 {
        // SAFETY: the path and the arguments are NUL-terminated, and outlive the call.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::execv(program.as_ptr(), arguments.as_ptr());
            libc::_exit(3);
        }
    }
    if child < 0 {
        say("refused", &[&std::io::Error::last_os_error()]);
        pfp_tests::script::pause("done");
        return;
    }
    // SAFETY: the process is our child, and a null pointer skips its status.
    unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
}
