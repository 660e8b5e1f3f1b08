//! A viewer without a terminal. It finds a program, switches its points, resets them and saves its
//! figures with the code behind the viewer's keys, until it is killed. When it is run instruction
//! by instruction, it does each step once, and stops itself before each.
//!
//! ```text
//! viewing WITNESS PID FOLDER [stepped]
//! ```

use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use pfp_read::files::json::{self, Existing};
use pfp_read::snapshot::Snapshot;
use pfp_read::source::{self, Change, Source};
use pfp_tests::os;
use pfp_tests::stepper::{stop_here, trace_me};
use pfp_tests::witness::{self, NAMES, RUN, SEATS, Witness, point, stage};

pub(crate) fn run(arguments: &[String]) {
    let [path, pid, folder, stepped @ ..] = arguments else {
        panic!("expected a witness, a process and a folder");
    };
    let witness = witness::open(path);
    let pid = pid.parse().expect("the second argument is a process's id");
    let folder = Path::new(folder);
    if !stepped.is_empty() {
        trace_me();
        return once(witness, pid, folder);
    }
    let mut viewer = Viewer::attach(pid);
    let cpu = os::process_cpu(std::process::id()).unwrap_or_default();
    witness.attached_in.store(cpu.as_nanos() as u64, Relaxed);
    witness.attached.fetch_add(1, Release);
    for number in 0_u64.. {
        viewer.switch(witness);
        viewer.reset();
        viewer
            .act(Change::SetAlpha(viewer.id(point::HAND), number.is_multiple_of(2).then_some(0.5)));
        viewer.save(folder, number);
    }
}

/// Does everything once, with a stop before each step.
fn once(witness: &Witness, pid: u32, folder: &Path) {
    let stage = |stage| {
        witness.seats[SEATS - 1].stage.store(stage, Release);
        stop_here();
    };
    stage(RUN);
    stage(stage::ATTACH);
    let mut viewer = Viewer::attach(pid);
    stage(stage::SWITCH);
    viewer.switch(witness);
    stage(stage::RESET);
    viewer.reset();
    stage(stage::SAVE);
    viewer.save(folder, 0);
    stage(RUN);
}

struct Viewer {
    source: Box<dyn Source>,
    snapshot: Snapshot,
}

impl Viewer {
    fn attach(pid: u32) -> Self {
        let found = source::discover().expect("one can look");
        let candidate = found.candidates.iter().find(|candidate| candidate.pid == pid);
        let candidate = candidate.unwrap_or_else(|| panic!("{}", found.nothing_found()));
        let mut source = source::attach(candidate).expect("it runs");
        let snapshot = source.poll().expect("it runs");
        Self { source, snapshot }
    }

    fn id(&self, at: usize) -> u32 {
        let point = self.snapshot.points.iter().find(|point| point.name == NAMES[at]);
        point.expect("the program has come by all its points").id
    }

    fn act(&mut self, change: Change) {
        self.source.act(change).expect("it runs");
    }

    /// Disables a point and enables it again.
    fn switch(&mut self, witness: &Witness) {
        let id = self.id(point::TOGGLED);
        for change in [Change::Disable(id), Change::Enable(id)] {
            let number = witness.switched.load(Acquire) + 1;
            witness.switching.store(number, Release);
            self.act(change);
            witness.switched.store(number, Release);
        }
    }

    fn reset(&mut self) {
        for at in [point::RESET, point::INNER] {
            self.act(Change::Reset(self.id(at)));
        }
    }

    /// Saves over an existing file, then as a new file, and then a copy of the segment.
    fn save(&mut self, folder: &Path, number: u64) {
        let mut snapshot = self.source.poll().expect("it runs");
        self.source.add_records(&mut snapshot);
        json::write(&snapshot, &folder.join("again.json"), Existing::Replace)
            .expect("there is room");
        let new = folder.join(format!("new-{number}.json.zst"));
        json::write(&snapshot, &new, Existing::Keep).expect("there is room");
        if number.is_multiple_of(4) {
            let raw = folder.join(format!("copy-{number}.pfp"));
            let copy = self.source.copy_raw().expect("there is memory");
            copy.write(&raw, Existing::Keep).expect("there is room");
        }
        self.snapshot = snapshot;
    }
}
