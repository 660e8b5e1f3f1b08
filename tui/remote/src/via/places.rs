//! Several places as one finder.
//!
//! Processes are named with their places, as in `worker@node1`.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::agent::{AgentProcess, TO_OPEN};
use super::far::{Connecting, Connection};
use super::finder::RemoteFinder;
use super::way::{AgentCommand, Route};
use crate::group::GroupSource;
use pfp_read::source::{
    BadPlace, Candidate, Discovery, Finder, ProcessGroup, Refusal, Refused, Source,
};

/// Time between two searches for processes at a place.
const LOOK: Duration = Duration::from_secs(2);

/// The finder of the processes of several places.
#[derive(Clone)]
pub(crate) struct PlacesFinder(Rc<RefCell<Vec<RemotePlace>>>);

struct RemotePlace {
    via: RemoteFinder,
    /// The last answer of the place.
    found: Discovery,
    /// Moment at which that answer was taken.
    looked: Option<Instant>,
}

impl PlacesFinder {
    /// Starts an agent by each command. If an agent fails to start or is late, it is started again
    /// in the background. That start has no access to the terminal, since a screen may use the
    /// terminal by then.
    ///
    /// # Errors
    ///
    /// If no place can be reached. The error is the first place's.
    pub(crate) fn open(routes: &[Route], keep: bool, in_time: Duration) -> Result<Self> {
        let ways: Vec<AgentCommand> = routes.iter().map(AgentCommand::through).collect();
        let start = Instant::now();
        let agents = open_in_time(&ways, keep, in_time);
        if agents.iter().all(|agent| matches!(agent, Some(Err(_)))) {
            let why = agents.into_iter().flatten().find_map(Result::err);
            return Err(why.unwrap_or_else(|| anyhow!("expected places, found none")));
        }
        let names = names_of(&ways.iter().map(|way| way.name.as_str()).collect::<Vec<_>>());
        let places = ways.into_iter().zip(agents).zip(names).map(|((way, agent), name)| {
            let far = match agent {
                Some(agent) => Connection::of(way, keep, agent),
                None => Connection { down_since: start, ..Connection::opening(way, keep) },
            };
            let mut via = RemoteFinder::of(far, Some(name), true);
            if via.still_opening().is_some() {
                via.until = start;
            }
            RemotePlace { via, found: Discovery::default(), looked: None }
        });
        Ok(Self(Rc::new(RefCell::new(places.collect()))))
    }
}

/// Starts all agents at the same time and waits for them. For a late agent, the start is given up,
/// and the result is `None`. A command that asks for a password turns off the terminal's echo.
/// While the echo is off, all agents get more time.
fn open_in_time(
    ways: &[AgentCommand],
    keep: bool,
    in_time: Duration,
) -> Vec<Option<Result<AgentProcess>>> {
    let had_echo = has_echo();
    let start = Instant::now();
    let opening: Vec<_> = ways.iter().map(|way| Connecting::start(way, keep, true)).collect();
    let mut agents: Vec<Option<Result<AgentProcess>>> = ways.iter().map(|_| None).collect();
    loop {
        for (agent, opening) in agents.iter_mut().zip(&opening) {
            *agent = agent.take().or_else(|| opening.wait(Duration::ZERO));
        }
        let is_asking = || had_echo && !has_echo() && start.elapsed() < TO_OPEN;
        let is_late = start.elapsed() >= in_time && !is_asking();
        if is_late || agents.iter().all(Option::is_some) {
            break;
        }
        thread::sleep(Duration::from_millis(5));
    }
    opening.iter().for_each(Connecting::give_up);
    agents
}

/// Whether the terminal echoes typed text; false without a terminal.
fn has_echo() -> bool {
    let Ok(terminal) = File::open("/dev/tty") else { return false };
    // SAFETY: a `termios` is plain numbers; all zeros is a valid value.
    let mut settings: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: `terminal` is open, and `settings` is valid for the kernel's write.
    let asked = unsafe { libc::tcgetattr(terminal.as_raw_fd(), &raw mut settings) };
    asked == 0 && settings.c_lflag & libc::ECHO != 0
}

impl RemotePlace {
    /// Whether a search for processes is due or pending.
    fn is_due(&self) -> bool {
        self.looked.is_none_or(|looked| looked.elapsed() >= LOOK)
    }

    /// Searches for processes, unless the last answer is recent. A late answer is taken by a later
    /// call.
    fn look(&mut self) {
        if !self.is_due() {
            return;
        }
        match self.via.look() {
            Ok(Some(found)) => {
                (self.found, self.looked) = (found, Some(Instant::now()));
            }
            Ok(None) => {
                if let Some(why) = self.via.still_opening() {
                    self.refuse(why);
                }
            }
            Err(error) => self.refuse(format!("{error:#}")),
        }
    }

    /// Records why nothing new was found. The processes found before stay listed, since they may
    /// become reachable again.
    fn refuse(&mut self, why: String) {
        self.found.refused = vec![Refused { pid: None, why: Refusal::NoTarget(why) }];
    }
}

impl Finder for PlacesFinder {
    fn discover(&mut self) -> Result<Discovery> {
        let mut places = self.0.borrow_mut();
        let mut all =
            Discovery { via: Some(format!("{} places", places.len())), ..Discovery::default() };
        let mut nothing = Vec::new();
        for place in places.iter_mut().filter(|place| place.is_due()) {
            // If a place cannot be reached, `look` below reports the error.
            let _ = place.via.ask();
        }
        for place in places.iter_mut() {
            place.look();
            // Two commands may lead to the same place: `add` skips known processes.
            all.add(&place.found);
            all.stale += place.found.stale;
            all.unseen += place.found.unseen;
            let name = place.via.place.as_deref().unwrap_or_default();
            nothing.extend(place.found.instead.as_ref().map(|why| format!("{name}: {why}")));
        }
        all.instead = Some(nothing.join("; ")).filter(|why| !why.is_empty());
        Ok(all)
    }

    fn attach(&mut self, candidate: &Candidate) -> Result<Box<dyn Source>> {
        let mut places = self.0.borrow_mut();
        let place = places.iter_mut().find(|place| place.found.has(candidate));
        place
            .ok_or_else(|| anyhow!("{} is at none of the places", candidate.name))?
            .via
            .watch_later(candidate)
    }

    fn ready_for_screen(&mut self) {
        // If the search fails, the screen's own searches report the error.
        let _ = self.discover();
        let now = Instant::now();
        self.0.borrow_mut().iter_mut().for_each(|place| place.via.until = now);
    }

    fn places(&self) -> Vec<String> {
        self.0.borrow().iter().filter_map(|place| place.via.place.clone()).collect()
    }

    fn bad_places(&mut self) -> Vec<BadPlace> {
        self.0.borrow().iter().filter_map(|place| place.via.bad_place()).collect()
    }

    fn attach_group(
        &mut self,
        group: &ProcessGroup,
        interval: Option<Duration>,
    ) -> Result<Box<dyn Source>> {
        Ok(Box::new(GroupSource::new(group.clone(), Box::new(self.clone()), interval)?))
    }
}

/// Names of places: the last word of each command that is not an option, as `node1` in `ssh -p 22
/// node1`. If several have the same name, the preceding words that differ are added, as in `n1.svc`
/// for `ssh n1 sudo -u svc`; if none differ, they are numbered.
fn names_of(commands: &[&str]) -> Vec<String> {
    let is_name = |word: &&str| !word.starts_with('-') && !word.contains('=');
    let words = |command: &str| -> Vec<String> {
        command.split_whitespace().rev().filter(is_name).map(str::to_owned).collect()
    };
    let all: Vec<Vec<String>> = commands.iter().map(|command| words(command)).collect();
    let mut names: Vec<String> = Vec::new();
    for (command, words) in commands.iter().zip(&all) {
        let alike: Vec<_> = all.iter().filter(|it| it.first() == words.first()).collect();
        let differs = |place: usize| alike.iter().any(|it| it.get(place) != words.get(place));
        let own = words.iter().enumerate().filter(|(place, _)| *place == 0 || differs(*place));
        let own: Vec<&str> = own.map(|(_, word)| word.as_str()).rev().collect();
        let name = if own.is_empty() { (*command).to_owned() } else { own.join(".") };
        let numbered = (2..).map(|number| format!("{name}.{number}"));
        let mut free = std::iter::once(name.clone()).chain(numbered);
        names.extend(free.find(|name| !names.contains(name)));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_called_by_their_commands() {
        for (command, name) in [
            ("ssh node1", "node1"),
            ("ssh -p 22 node1 PATH=/opt/bin", "node1"),
            ("docker exec -i web", "web"),
            ("kubectl exec -i pod --", "pod"),
            ("sudo -u svc", "svc"),
            ("env", "env"),
            ("-", "-"),
        ] {
            assert_eq!(names_of(&[command]), [name]);
        }
        for (commands, names) in [
            (
                &["ssh n1 sudo -u svc", "ssh n2 sudo -u svc", "ssh n3"][..],
                &["n1.svc", "n2.svc", "n3"][..],
            ),
            (&["env", "nice env"], &["env", "nice.env"]),
            (&["ssh -p 22 h", "ssh -p 23 h"], &["22.h", "23.h"]),
            (&["A=1 env", "A=2 env", "env.2"], &["env", "env.2", "env.2.2"]),
            (&["-", "-"], &["-", "-.2"]),
        ] {
            assert_eq!(names_of(commands), names);
        }
    }
}
