//! The program that is run and killed, and the state that it leaves.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::ptr;
use std::thread;
use std::time::Duration;

use pfp_shm_layout::name::Name;
use pfp_shm_layout::reader::{LaneCalls, Picture, Reader};
use pfp_shm_layout::ring::{Drained, Record};
use pfp_shm_layout::segment::Segment;
use pfp_tests::place::Place;
use pfp_tests::target::end_with_test;
use pfp_tests::witness::Shared;

use super::{LANES, TARGET};

/// A child process with its witness. The test traces its threads, so it must reap each of them.
pub(crate) struct Program {
    child: Child,
    pub(crate) witness: Shared,
}

impl Program {
    pub(crate) fn start(place: &Place, scenario: &[&str], clock: &str) -> Self {
        let witness = Shared::new();
        let mut command: Command = place.command(TARGET);
        command
            .arg(scenario[0])
            .arg(witness.path())
            .args(&scenario[1..])
            .env("PFP_CLOCK", clock)
            .env("PFP_LANES", LANES.to_string())
            .env("PFP_POINTS", "1024")
            .env("PFP_MEMORY_MB", "8")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        Self { child: end_with_test(&mut command).spawn().expect("the target starts"), witness }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process and reaps it. A traced thread that has ended remains until its tracer, the
    /// calling thread, has waited for it, and the process remains as long.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        while let Ok(None) = self.child.try_wait() {
            let threads = fs::read_dir(format!("/proc/{}/task", self.pid()));
            let ids = threads.into_iter().flatten().flatten();
            for id in ids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
                if id != self.pid() as libc::pid_t {
                    // SAFETY: a null pointer skips the status.
                    unsafe { libc::waitpid(id, ptr::null_mut(), libc::__WALL | libc::WNOHANG) };
                }
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The names of the objects that a process has mapped.
pub(crate) fn mapped(pid: u32) -> Vec<Name> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let paths = maps.lines().filter(|line| !line.ends_with("(deleted)"));
    let paths = paths.filter_map(|line| Some(&line[line.find("/dev/shm")? + "/dev/shm".len()..]));
    paths.filter_map(Name::parse).collect()
}

/// Everything that a reader can read from the remaining segment.
pub(crate) struct Left {
    pub(crate) picture: Picture,
    pub(crate) rings: BTreeMap<u32, (Drained, Vec<Record>)>,
    pub(crate) calls: Vec<LaneCalls>,
    pub(crate) overhead: u64,
}

pub(crate) fn read<S: std::borrow::Borrow<Segment>>(reader: &mut Reader<S>) -> Left {
    let picture = reader.poll().clone();
    let mut rings = BTreeMap::new();
    reader.drain(
        |_| 0,
        |lane, drained, records| {
            rings.insert(lane, (drained, records.to_vec()));
        },
    );
    let overhead = picture.clock.overhead_pair;
    Left { picture, rings, calls: reader.calls(), overhead }
}
