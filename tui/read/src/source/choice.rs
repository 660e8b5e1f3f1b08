//! Chooses which process to watch, unless the user has picked one.

use super::{Candidate, Discovery, Which};
use crate::pattern::NamePattern;

/// The process that the user asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The process, by its id or number.
    pub which: Option<Which>,
    /// The pattern that the name must match.
    pub name: Option<String>,
}

impl Wanted {
    /// Whether the user asked for this process; `among` has all that were found.
    pub fn admits(&self, candidate: &Candidate, among: &[Candidate]) -> bool {
        self.which.as_ref().is_none_or(|which| which.admits(candidate, among))
            && self.name.as_ref().is_none_or(|name| NamePattern::means(name, &candidate.name))
    }

    /// Whether every process matches, because the user asked for no particular one.
    pub fn is_any(&self) -> bool {
        *self == Self::default()
    }

    /// The request in words: `pid 17`, `name "db"`.
    pub fn describe(&self) -> String {
        let pid = self.which.as_ref().map(Which::to_string);
        let name = self.name.as_ref().map(|name| format!("name {name:?}"));
        [pid, name].into_iter().flatten().collect::<Vec<_>>().join(" and ")
    }
}

/// The result of [`choose`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// No process matches.
    None,
    /// Exactly one process matches.
    One(Candidate),
    /// Several match, so the user has to choose. Running ones come first, the youngest first.
    Several(Vec<Candidate>),
}

/// Picks the only process that matches, or else the only one that matches and runs. Picks an ended
/// process only if `wanted` names it.
pub fn choose(discovery: &Discovery, wanted: &Wanted) -> Choice {
    let all = &discovery.candidates;
    let mut fitting: Vec<_> = all.iter().filter(|it| wanted.admits(it, all)).cloned().collect();
    fitting.sort_by_key(|c| (!c.runs(), std::cmp::Reverse(c.started_unix_ns)));
    match fitting.as_slice() {
        [] => Choice::None,
        [only] if only.runs() || !wanted.is_any() => Choice::One(only.clone()),
        [first, second, ..] if first.runs() && !second.runs() => Choice::One(first.clone()),
        _ => Choice::Several(fitting),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::ProcessState;

    fn candidate(name: &str, pid: u32, state: ProcessState) -> Candidate {
        Candidate {
            name: name.into(),
            pid,
            state,
            started_unix_ns: u64::from(pid),
            ..Candidate::default()
        }
    }

    fn pids(found: &[(&str, u32, ProcessState)], wanted: &Wanted) -> Vec<u32> {
        let discovery = Discovery {
            candidates: found.iter().map(|&(n, p, s)| candidate(n, p, s)).collect(),
            ..Discovery::default()
        };
        match choose(&discovery, wanted) {
            Choice::None => vec![],
            Choice::One(one) => vec![one.pid],
            Choice::Several(several) => several.iter().map(|c| c.pid).collect(),
        }
    }

    #[test]
    fn one_running_process_is_taken_and_several_are_offered() {
        use ProcessState::{Crashed, Exited, Running};
        let any = Wanted::default();
        assert_eq!(pids(&[], &any), [0; 0]);
        assert_eq!(pids(&[("a", 1, Running)], &any), [1]);
        assert_eq!(pids(&[("a", 1, Crashed), ("a", 2, Running)], &any), [2]);
        assert_eq!(
            pids(&[("a", 1, Running), ("b", 2, Running), ("c", 9, Exited)], &any),
            [2, 1, 9]
        );
    }

    #[test]
    fn the_requested_id_and_name_narrow_the_choice() {
        use ProcessState::{Crashed, Running};
        let found = [("db", 1, Running), ("web", 2, Running), ("db", 3, Crashed)];
        let name = |name: &str| Wanted { name: Some(name.into()), which: None };
        assert_eq!(pids(&found, &name("we")), [2]);
        assert_eq!(pids(&found, &name("db")), [1]);
        let pid = |pid| Wanted { name: None, which: Some(Which::Pid(pid)) };
        assert_eq!(pids(&found, &pid(3)), [3]);
        assert_eq!(pids(&found, &pid(4)), [0; 0]);
    }

    #[test]
    fn a_lone_crashed_process_is_offered_not_taken() {
        let discovery = Discovery {
            candidates: vec![candidate("a", 1, ProcessState::Crashed)],
            ..Discovery::default()
        };
        assert!(matches!(choose(&discovery, &Wanted::default()), Choice::Several(_)));
    }

    /// A program whose /dev/shm is read-only, for instance, runs without a segment.
    #[test]
    fn a_process_that_is_asked_for_and_not_there_leads_to_the_doctor() {
        let wanted = Wanted { which: Some(Which::Pid(std::process::id())), name: None };
        let why = Discovery::default().why_none(&wanted).to_string();
        assert!(why.contains("no instrumented process") && why.contains("pfp-top doctor"), "{why}");
    }
}
