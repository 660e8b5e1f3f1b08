//! The kinds of waits by system call and, without the right to read that, by kernel function.

use super::Kind;

/// How the detail of a wait is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    None,
    /// The first argument is a descriptor.
    Descriptor,
    /// The first argument is the address of a futex.
    Futex,
    /// The arguments are the address and the number of `pollfd`s.
    Poll,
}

/// The kind of a wait in a system call.
pub(super) fn of_call(number: i64) -> Option<(Kind, Detail)> {
    use Detail::{Descriptor, Futex, None, Poll};
    Some(match number {
        libc::SYS_futex => (Kind::Futex, Futex),
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => (Kind::Sleep, None),
        libc::SYS_read
        | libc::SYS_pread64
        | libc::SYS_readv
        | libc::SYS_preadv
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_recvmmsg
        | libc::SYS_splice
        | libc::SYS_getdents64
        | libc::SYS_mq_timedreceive => (Kind::Read, Descriptor),
        libc::SYS_write
        | libc::SYS_pwrite64
        | libc::SYS_writev
        | libc::SYS_pwritev
        | libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_sendmmsg
        | libc::SYS_sendfile
        | libc::SYS_ftruncate
        | libc::SYS_fallocate
        | libc::SYS_mq_timedsend => (Kind::Write, Descriptor),
        libc::SYS_accept | libc::SYS_accept4 => (Kind::Accept, Descriptor),
        libc::SYS_connect => (Kind::Connect, Descriptor),
        libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_sync_file_range | libc::SYS_syncfs => {
            (Kind::Sync, Descriptor)
        }
        libc::SYS_msync | libc::SYS_sync => (Kind::Sync, None),
        libc::SYS_flock | libc::SYS_fcntl => (Kind::FileLock, Descriptor),
        libc::SYS_epoll_pwait | SYS_EPOLL_PWAIT2 | libc::SYS_io_uring_enter => {
            (Kind::Poll, Descriptor)
        }
        libc::SYS_ppoll => (Kind::Poll, Poll),
        libc::SYS_pselect6 | libc::SYS_io_getevents => (Kind::Poll, None),
        libc::SYS_wait4 | libc::SYS_waitid => (Kind::Child, None),
        libc::SYS_rt_sigtimedwait | libc::SYS_rt_sigsuspend => (Kind::Signal, None),
        libc::SYS_semtimedop | libc::SYS_semop => (Kind::Semaphore, None),
        number => return of_older_call(number),
    })
}

/// `libc` does not name this number. It is the same on all processors.
const SYS_EPOLL_PWAIT2: i64 = 441;

/// Calls that processors newer than x86-64 do not have.
#[cfg(target_arch = "x86_64")]
fn of_older_call(number: i64) -> Option<(Kind, Detail)> {
    Some(match number {
        libc::SYS_poll => (Kind::Poll, Detail::Poll),
        libc::SYS_select => (Kind::Poll, Detail::None),
        libc::SYS_epoll_wait => (Kind::Poll, Detail::Descriptor),
        libc::SYS_pause => (Kind::Signal, Detail::None),
        _ => return None,
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn of_older_call(_number: i64) -> Option<(Kind, Detail)> {
    None
}

/// The kind of a wait in a function of the kernel. The names differ between versions, so they are
/// compared by their parts. `None` for a function that waits for many things.
pub(super) fn of_kernel_function(name: &str) -> Option<Kind> {
    const PARTS: [(&str, Kind); 24] = [
        ("futex", Kind::Futex),
        ("nanosleep", Kind::Sleep),
        ("ep_poll", Kind::Poll),
        ("poll_schedule", Kind::Poll),
        ("do_select", Kind::Poll),
        ("io_cqring_wait", Kind::Poll),
        ("accept", Kind::Accept),
        ("connect", Kind::Connect),
        ("pipe_read", Kind::Read),
        ("pipe_write", Kind::Write),
        ("wait_for_more_packets", Kind::Read),
        ("sk_wait_data", Kind::Read),
        ("stream_read_generic", Kind::Read),
        ("stream_data_wait", Kind::Read),
        ("sk_stream_wait_memory", Kind::Write),
        ("eventfd_read", Kind::Read),
        ("timerfd_read", Kind::Read),
        ("n_tty_read", Kind::Read),
        ("do_wait", Kind::Child),
        ("sigtimedwait", Kind::Signal),
        ("sigsuspend", Kind::Signal),
        ("signal_stop", Kind::Stopped),
        ("ptrace_stop", Kind::Stopped),
        ("userfault", Kind::PageFault),
    ];
    PARTS.iter().find(|(part, _)| name.contains(part)).map(|(_, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_several_kernels_are_known() {
        for (name, kind) in [
            ("futex_wait_queue", Kind::Futex),
            ("futex_do_wait", Kind::Futex),
            ("hrtimer_nanosleep", Kind::Sleep),
            ("do_nanosleep", Kind::Sleep),
            ("anon_pipe_read", Kind::Read),
            ("pipe_read", Kind::Read),
            ("poll_schedule_timeout.constprop.0", Kind::Poll),
            ("do_wait", Kind::Child),
            ("inet_csk_accept", Kind::Accept),
        ] {
            assert_eq!(of_kernel_function(name), Some(kind), "{name}");
        }
        assert_eq!(of_kernel_function("submit_bio_wait"), None);
        assert_eq!(of_kernel_function(""), None);
    }
}
