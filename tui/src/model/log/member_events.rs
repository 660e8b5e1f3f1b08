//! Events of several processes: which came, which ended and how, whose rows have gone.

use crate::snapshot::{Process, ProcessState, Snapshot};
use crate::text::first_names;

/// Processes that came or went between two snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberEvent {
    /// In words.
    pub text: String,
    /// Whether somebody should look into it, since they died.
    pub is_problem: bool,
}

/// The events since these processes were known.
pub(super) fn of(known: &[Process], snapshot: &Snapshot) -> Vec<MemberEvent> {
    let before = |process: &Process| known.iter().find(|k| k.segment_id == process.segment_id);
    let members = &snapshot.process.members;
    let named = |is: &dyn Fn(&Process) -> bool| {
        let found = members.iter().filter(|process| is(process));
        found.map(Process::to_string).collect::<Vec<_>>()
    };
    let became = |state: ProcessState| {
        named(&|process| {
            let ran = before(process).is_none_or(|old| old.state == ProcessState::Running);
            ran && process.state == state
        })
    };
    let gone = known.iter().filter(|old| !snapshot.knows(old));
    let event = |names: Vec<String>, is_problem: bool, what: [&str; 2]| {
        let text = match names.as_slice() {
            [] => return None,
            [one] => format!("{one} {}", what[0]),
            several => {
                format!("{} processes {}: {}", several.len(), what[1], first_names(several))
            }
        };
        Some(MemberEvent { text, is_problem })
    };
    [
        event(named(&|process| before(process).is_none()), false, ["joined"; 2]),
        event(became(ProcessState::Exited), false, ["ended in order"; 2]),
        event(became(ProcessState::Crashed), true, ["crashed or was killed"; 2]),
        event(
            gone.map(Process::to_string).collect(),
            false,
            ["ended a while ago: its rows are gone", "ended a while ago: their rows are gone"],
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}
