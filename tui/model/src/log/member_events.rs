//! Events of a group: processes that joined, that ended and how, and processes whose rows were
//! removed.

use std::collections::BTreeSet;

use pfp_read::snapshot::{Process, ProcessState, Snapshot};
use pfp_read::text::first_names;

/// An event of one or more processes of a group between two snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberEvent {
    /// Description of the event.
    pub text: String,
    /// Whether the event needs attention, because processes died.
    pub is_problem: bool,
}

/// The events since a snapshot that had the processes `known`.
pub(super) fn of(known: &[Process], snapshot: &Snapshot) -> Vec<MemberEvent> {
    let before = |process: &Process| known.iter().find(|k| k.segment_id == process.segment_id);
    let members = &snapshot.process.members;
    let named = |is: &dyn Fn(&Process) -> bool| {
        let found = members.iter().filter(|process| is(process));
        found.map(Process::to_string).collect::<Vec<_>>()
    };
    let ran =
        |process: &Process| before(process).is_none_or(|old| old.state == ProcessState::Running);
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
    // Processes that ended in the same way share an event.
    let newly = members.iter().filter(|process| ran(process));
    let ways: BTreeSet<_> = newly.filter_map(|it| Some((it.state as u8, it.ended()?))).collect();
    let ended = ways.into_iter().map(|(state, how)| {
        let names = named(&|it| ran(it) && it.ended().as_ref() == Some(&how));
        event(names, state == ProcessState::Crashed as u8, [&how; 2])
    });
    [event(named(&|process| before(process).is_none()), false, ["joined"; 2])]
        .into_iter()
        .chain(ended)
        .chain([event(
            gone.map(Process::to_string).collect(),
            false,
            [
                "ended a while ago and is no longer listed",
                "ended a while ago and are no longer listed",
            ],
        )])
        .flatten()
        .collect()
}
