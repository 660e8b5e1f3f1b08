//! How the user names a process: by its id, or by its number in the list.
//!
//! Ids are not enough: the first process of each container has the id 1, and a process may have two
//! segments. A number consists of the first digits of a segment's random id, as many as are needed
//! to be unique, so it stays the same as long as the segment exists.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Candidate, Discovery};

/// Minimum number of digits in the number of a process.
const DIGITS: usize = 4;
/// Number of digits of a whole segment id.
const MAX_DIGITS: usize = 32;

/// A process, as the user names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Which {
    /// The process with this id in the viewer's pid namespace. If there is none, the process with
    /// this id in its own pid namespace.
    Pid(u32),
    /// The process whose segment id begins with these digits.
    Number(String),
}

impl Which {
    /// Whether this names the process; `among` has all that were found.
    pub fn admits(&self, candidate: &Candidate, among: &[Candidate]) -> bool {
        match self {
            Self::Number(digits) => candidate.segment_id.starts_with(digits.as_str()),
            Self::Pid(pid) if among.iter().any(|other| other.visible_pid() == *pid) => {
                candidate.visible_pid() == *pid
            }
            Self::Pid(pid) => candidate.pid == *pid,
        }
    }
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_digit = |digit: char| matches!(digit, '0'..='9' | 'a'..='f');
        let which = match text.strip_prefix('@') {
            Some(digits) => ((1..=MAX_DIGITS).contains(&digits.len())
                && digits.chars().all(is_digit))
            .then(|| Self::Number(digits.to_owned())),
            None => text.parse().ok().map(Self::Pid),
        };
        which.ok_or_else(|| {
            "expected a process id, such as 4711, or a number of `pfp-top list`, such as @3f2a"
                .into()
        })
    }
}

impl fmt::Display for Which {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pid(pid) => write!(out, "pid {pid}"),
            Self::Number(digits) => write!(out, "number @{digits}"),
        }
    }
}

impl Discovery {
    /// The number of a process, for `-p`.
    pub fn number_of(&self, candidate: &Candidate) -> String {
        let id = candidate.segment_id.as_str();
        let mut digits = DIGITS;
        for other in self.candidates.iter().map(|other| other.segment_id.as_str()) {
            // Compare the first digits first: only few ids share them, and there may be thousands
            // of ids.
            if other.get(..digits) == id.get(..digits) && other != id {
                digits = (common(id, other) + 1).clamp(digits, MAX_DIGITS);
            }
        }
        format!("@{}", id.get(..digits).unwrap_or(id))
    }
}

/// The length of the common prefix of two ids.
fn common(one: &str, other: &str) -> usize {
    one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(pid: u32, pid_here: Option<u32>, segment_id: &str) -> Candidate {
        Candidate { pid, pid_here, segment_id: segment_id.into(), ..Candidate::default() }
    }

    #[test]
    fn ids_and_numbers_are_parsed_or_explained() {
        assert_eq!("4711".parse(), Ok(Which::Pid(4711)));
        assert_eq!("@3f2a".parse(), Ok(Which::Number("3f2a".into())));
        let whole = "@0123456789abcdef0123456789abcdef";
        assert_eq!(whole.parse(), Ok(Which::Number(whole[1..].into())));
        for wrong in ["", "@", "@3F2A", "@xyz", "-1", "4711x", "4294967296", &format!("{whole}0")] {
            let found = wrong.parse::<Which>();
            assert!(found.is_err_and(|why| why.contains("@3f2a")), "{wrong}");
        }
    }

    #[test]
    fn numbers_are_unique_and_stable() {
        let ids = ["3f2a0000", "3f2a0010", "77000000"];
        let all: Vec<_> = ids.iter().map(|id| candidate(1, None, id)).collect();
        let both = Discovery { candidates: all[..2].to_vec(), ..Discovery::default() };
        let alone = Discovery { candidates: all[..1].to_vec(), ..Discovery::default() };
        assert_eq!(alone.number_of(&all[0]), "@3f2a");
        assert_eq!(both.number_of(&all[0]), "@3f2a000");
        assert_eq!(both.number_of(&all[1]), "@3f2a001");
        for (at, one) in all.iter().enumerate() {
            let discovery = Discovery { candidates: all.clone(), ..Discovery::default() };
            let number: Which = discovery.number_of(one).parse().unwrap();
            let admitted: Vec<_> = (0..3).filter(|&it| number.admits(&all[it], &all)).collect();
            assert_eq!(admitted, [at]);
        }
    }

    #[test]
    fn an_id_here_goes_before_one_of_another_namespace() {
        let contained = candidate(7, Some(4711), "aa");
        let here = candidate(7, None, "bb");
        let unseen = candidate(1, None, "cc");
        let all = [contained.clone(), here.clone(), unseen.clone()];
        let admitted = |pid, all: &[Candidate]| {
            let which = Which::Pid(pid);
            let ids = all.iter().filter(|it| which.admits(it, all)).map(|it| it.segment_id.clone());
            ids.collect::<Vec<_>>()
        };
        assert_eq!(admitted(4711, &all), ["aa"]);
        assert_eq!(admitted(7, &all), ["bb"]);
        assert_eq!(admitted(7, &[contained, unseen.clone()]), ["aa"]);
        assert_eq!(admitted(1, &[unseen.clone(), here, unseen]), ["cc", "cc"]);
    }
}
