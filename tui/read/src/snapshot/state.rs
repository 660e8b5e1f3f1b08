//! Whether a process runs, and how it ended.

use std::borrow::Cow;

use pfp_shm_layout::end;
use serde::{Deserialize, Serialize};

/// The state of the watched process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessState {
    /// The process runs, or a signal has stopped it.
    #[default]
    Running,
    /// The process exited by itself, was ended by SIGHUP, SIGINT or SIGTERM, or called exec; the
    /// figures are its last.
    Exited,
    /// The process was killed by a signal that reports a fault or cannot be caught; the figures are
    /// its last.
    Crashed,
    /// The process ended, and the kernel no longer reports how; the figures are its last.
    Ended,
}

impl ProcessState {
    /// The state in a word, for tables and exports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Exited => "exited",
            Self::Crashed => "crashed",
            Self::Ended => "ended",
        }
    }

    /// The state of a dead process. `exited_cleanly` is set if its segment records a clean exit.
    pub fn of_dead(exited_cleanly: bool, end: Option<&End>) -> Self {
        match end {
            Some(End::Signal(libc::SIGHUP | libc::SIGINT | libc::SIGTERM)) => Self::Exited,
            Some(End::Signal(_)) => Self::Crashed,
            Some(End::Status(_) | End::ReplacedBy(_)) => Self::Exited,
            None if exited_cleanly => Self::Exited,
            None => Self::Ended,
        }
    }
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The process exited with this status.
    Status(u8),
    /// This signal killed the process.
    Signal(i32),
    /// The process called `exec`, and the program of this name runs in its place.
    ReplacedBy(String),
}

impl From<end::End> for End {
    fn from(end: end::End) -> Self {
        match end {
            end::End::Status(status) => Self::Status(status),
            end::End::Signal(signal) => Self::Signal(signal),
            end::End::ReplacedBy(name) => Self::ReplacedBy(name),
        }
    }
}

/// The words for a process that exited cleanly.
pub const IN_ORDER: &str = "ended in order";

/// How a process ended, in words that follow its name. `None` while it runs.
pub fn ended(state: ProcessState, end: Option<&End>) -> Option<Cow<'static, str>> {
    Some(match (state, end) {
        (ProcessState::Running, _) => return None,
        (_, Some(End::ReplacedBy(name))) => format!("replaced by {name}").into(),
        (_, Some(End::Status(status @ 1..))) => format!("ended with status {status}").into(),
        (ProcessState::Crashed, Some(End::Signal(signal))) => {
            format!("crashed or was killed: {}", signal_name(*signal)).into()
        }
        (_, Some(End::Signal(signal))) => format!("ended by {}", signal_name(*signal)).into(),
        (ProcessState::Crashed, _) => "crashed or was killed".into(),
        (_, Some(End::Status(0))) | (ProcessState::Exited, None) => IN_ORDER.into(),
        (ProcessState::Ended, None) => "ended, cause unknown".into(),
    })
}

/// The name of a signal, or its number.
pub fn signal_name(signal: i32) -> Cow<'static, str> {
    let name = match signal {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGSYS => "SIGSYS",
        _ => return format!("signal {signal}").into(),
    };
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_has_its_state_and_its_words() {
        use ProcessState::{Crashed, Ended, Exited};
        for (exited_cleanly, end, state, words) in [
            (true, None, Exited, "ended in order"),
            (false, None, Ended, "ended, cause unknown"),
            (false, Some(End::Status(0)), Exited, "ended in order"),
            (true, Some(End::Status(3)), Exited, "ended with status 3"),
            (false, Some(End::Signal(libc::SIGINT)), Exited, "ended by SIGINT"),
            (false, Some(End::Signal(libc::SIGTERM)), Exited, "ended by SIGTERM"),
            (true, Some(End::Signal(libc::SIGSEGV)), Crashed, "crashed or was killed: SIGSEGV"),
            (false, Some(End::Signal(libc::SIGKILL)), Crashed, "crashed or was killed: SIGKILL"),
            (false, Some(End::ReplacedBy("sleep".into())), Exited, "replaced by sleep"),
        ] {
            assert_eq!(ProcessState::of_dead(exited_cleanly, end.as_ref()), state, "{end:?}");
            assert_eq!(ended(state, end.as_ref()).as_deref(), Some(words));
        }
        // Older versions wrote the state `Crashed` without an end.
        assert_eq!(ended(Crashed, None).as_deref(), Some("crashed or was killed"));
        assert_eq!(ended(ProcessState::Running, None), None);
    }
}
