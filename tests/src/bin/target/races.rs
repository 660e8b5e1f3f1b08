//! Sweepers, which remove the segments of dead processes, race each other while a live process has
//! a segment, too.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::path::Path;

use pfp_shm_layout::beacon::{Beacon, Info};
use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::find;
use pfp_shm_layout::liveness::Liveness;
use pfp_shm_layout::name::Name;
use pfp_shm_layout::object::{self, Object};
use pfp_tests::os;
use pfp_tests::script::{pause, say};

const SWEEPERS: usize = 8;
/// Segments of each process that is killed.
const EACH: usize = 2;
const PROGRAM: &str = "/the/program/of/the/race";

/// A forked child, which takes commands through a pipe.
struct Worker {
    pid: libc::pid_t,
    orders: PipeWriter,
    answers: PipeReader,
}

impl Worker {
    /// Forks a child that runs `work`. This process has only one thread, so the child may call any
    /// function.
    fn start(work: impl FnOnce(PipeReader, PipeWriter)) -> Self {
        let (read_orders, orders) = io::pipe().expect("there are descriptors left");
        let (answers, answer) = io::pipe().expect("there are descriptors left");
        // SAFETY: the process has one thread, so no lock is held at the fork.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "a process can be made");
        if pid == 0 {
            // SAFETY: takes plain numbers.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            drop((orders, answers));
            work(read_orders, answer);
            // SAFETY: ends the process at once, without running exit handlers.
            unsafe { libc::_exit(0) };
        }
        Self { pid, orders, answers }
    }

    fn order(&mut self, what: u8) {
        self.orders.write_all(&[what]).expect("it listens");
    }

    fn answer<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.answers.read_exact(&mut bytes).expect("it answers");
        bytes
    }

    fn kill(&self) {
        os::signal(self.pid as u32, libc::SIGKILL);
    }

    fn wait(&self) {
        // SAFETY: the process is our child, and a null pointer skips its status.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
    }
}

fn light(dir: &Directory) -> (Object, Box<Beacon>) {
    let random = || Name::random().expect("there is chance");
    let mut info = Info::of_this_process(random(), "racing").expect("there is memory");
    info.exe = PROGRAM.into();
    let beacon = loop {
        match Beacon::lit(dir, &info) {
            // The beacon was unfinished and not locked yet, so a sweeper took it for a dead
            // process's and removed it. Try again under another name.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => info.object = random(),
            lit => break lit.expect("a beacon can be lit"),
        }
    };
    let name = info.object;
    let object = Object::create_as(name, 4096).expect("there is room");
    object.back(0, 4096).expect("there is room");
    (object, beacon)
}

/// Lights its beacons and waits to be killed, which may happen at any moment.
fn victim(dir: &Directory, mut orders: PipeReader, mut answer: PipeWriter) {
    let all: Vec<_> = (0..EACH).map(|_| light(dir)).collect();
    answer.write_all(b"!").expect("it is heard");
    let _ = orders.read(&mut [0]);
    drop(all);
}

/// Lights a beacon, reports its name, and exits on command in an orderly way.
fn survivor(dir: &Directory, mut orders: PipeReader, mut answer: PipeWriter) {
    let (object, beacon) = light(dir);
    answer.write_all(&object.name().id().to_be_bytes()).expect("it is heard");
    orders.read_exact(&mut [0]).expect("a command arrives");
    // No sweeper has treated it as dead.
    let lives = beacon.info().liveness(dir).ok() == Some(Liveness::Alive)
        && object.file_len().ok() == Some(4096);
    let ended = object::unlink(object.name()).is_ok() && beacon.extinguish().is_ok();
    answer.write_all(&[u8::from(lives && ended)]).expect("it is heard");
}

/// Sweeps on command, by `gc` if the command is 0 and otherwise by `sweep`. Reports how many
/// segments it removed, and how many it failed to remove.
fn sweeper(dir: &Directory, mut orders: PipeReader, mut answer: PipeWriter) {
    let mut order = [0];
    while orders.read_exact(&mut order).is_ok() {
        let swept =
            if order[0] == 0 { find::gc(dir) } else { find::sweep(dir, Path::new(PROGRAM), 0, 0) };
        let swept = swept.expect("the directory can be read");
        let counts = [swept.removed.len() as u8, swept.failed.len() as u8];
        answer.write_all(&counts).expect("it is heard");
    }
}

pub(crate) fn run(rounds: u64) {
    let dir = Directory::for_this_process().expect("it can be made");
    let mut sweepers: Vec<Worker> = (0..SWEEPERS)
        .map(|_| Worker::start(|orders, answer| sweeper(&dir, orders, answer)))
        .collect();
    let (mut removed, mut failed, mut harmed, mut left) = (0u64, 0, 0u64, 0);
    for round in 0..rounds {
        let mut lives = Worker::start(|orders, answer| survivor(&dir, orders, answer));
        let mut dies = Worker::start(|orders, answer| victim(&dir, orders, answer));
        let id = u128::from_be_bytes(lives.answer());
        dies.answer::<1>();
        // The victims die before the sweeps, or during them.
        let early = round % 2 == 0;
        if early {
            dies.kill();
            dies.wait();
        }
        for (at, sweeper) in sweepers.iter_mut().enumerate() {
            sweeper.order((at as u64 + round / 2) as u8 & 1);
            if !early && at as u64 == round % SWEEPERS as u64 {
                dies.kill();
            }
        }
        let mut of_round = 0;
        for sweeper in &mut sweepers {
            let [some, not] = sweeper.answer();
            of_round += u64::from(some);
            failed += u64::from(not);
        }
        if !early {
            dies.wait();
        }
        let object = Name::from_id(id);
        let beacon = dir.path().join(format!("{}.beacon", object.hex()));
        let there = object::backed_bytes(&object).is_ok_and(|bytes| bytes.is_some());
        harmed += u64::from(!there || File::open(beacon).is_err());
        lives.order(b'e');
        harmed += u64::from(lives.answer() != [1u8]);
        lives.wait();
        of_round += find::gc(&dir).expect("it can be read").removed.len() as u64;
        removed += of_round;
        left += u64::from(!find::find(&dir).expect("it can be read").entries.is_empty());
        if round % 500 == 0 {
            say("at", &[&round]);
        }
    }
    say("dead", &[&(rounds * EACH as u64)]);
    say("removed", &[&removed]);
    say("failed", &[&failed]);
    say("harmed", &[&harmed]);
    say("left", &[&left]);
    pause("done");
    sweepers.iter().for_each(Worker::kill);
    sweepers.iter().for_each(Worker::wait);
}
