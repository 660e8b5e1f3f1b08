//! Runs a program step by step, and checks the state after each step.

use std::collections::HashSet;
use std::fs;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

use pfp_shm_layout::geometry::RING_SLOTS;
use pfp_shm_layout::name::Name;
use pfp_tests::changes::Changes;
use pfp_tests::place::Place;
use pfp_tests::stepper::{Halt, Stepper};
use pfp_tests::target::wait_for;
use pfp_tests::witness::{FILL, HAND_OVER, LET_GO, RUN, STAGES, stage};

use super::judge::Judge;
use super::program::{Program, mapped};

/// The size of the steps of a stage.
#[derive(Clone, Copy)]
pub(crate) enum Pace {
    /// One instruction at a time until the state has changed this many times; then the rest of the
    /// stage without a stop.
    Instructions(u64),
    /// One system call at a time for this many calls; then the rest of the stage without a stop.
    SystemCalls(u64),
}

/// The totals of a run.
#[derive(Default)]
pub(crate) struct Shown {
    pub(crate) steps: u64,
    pub(crate) states: HashSet<u64>,
    pub(crate) slowest: Duration,
    pub(crate) slowest_cpu: Duration,
}

/// The files and the mapped objects of a program.
fn files(place: &Place, pid: u32) -> (Vec<(String, Vec<u8>)>, Vec<Name>) {
    let entries = fs::read_dir(place.beacons()).expect("the directory is there").flatten();
    let mut all: Vec<_> = entries
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, fs::read(entry.path()).unwrap_or_default())
        })
        .collect();
    all.sort();
    let objects = mapped(pid);
    for object in &objects {
        let names = [".beacon", ".0.new"].map(|ending| format!("{}{ending}", object.hex()));
        let is_named = all.iter().any(|(name, _)| names.contains(name));
        assert!(is_named, "{object} cannot be found: {all:?}");
    }
    (all, objects)
}

/// Runs a program through its stages, each with its size of steps.
pub(crate) fn go_through(
    scenario: &[&str],
    clock: &str,
    pace: impl Fn(u64) -> Pace,
    shown: &mut Shown,
) {
    let place = Place::new();
    let program = Program::start(&place, scenario, clock);
    let mut judge = Judge::new(&place, &program, clock != "wall");
    let mut changes: Option<Changes> = None;
    let mut of_files = None;
    let mut waiting = Vec::new();
    let mut current = (0, Stepper::take(program.pid()));
    loop {
        let (seat, stepper) = &mut current;
        let asked = program.witness.seats[*seat].stage.load(Acquire);
        let mut halt = match asked {
            RUN => stepper.run(),
            FILL => {
                let left = judge.attach().expect("it runs");
                let written = left.rings[&0].0.next;
                let room = RING_SLOTS as u64 - written % RING_SLOTS as u64;
                program.witness.room.store(room.saturating_sub(8), Release);
                stepper.run()
            }
            HAND_OVER => {
                let seat = program.witness.next.load(Acquire) as usize;
                stepper.run_on();
                waiting.push(current);
                let tid = wait_for("the next thread", || {
                    Some(program.witness.seats[seat].tid.load(Acquire)).filter(|tid| *tid != 0)
                });
                current = (seat, Stepper::take(tid as u32));
                Halt::Stop
            }
            LET_GO => {
                current.1.let_go();
                current = waiting.pop().expect("a thread has handed over");
                current.1.wait()
            }
            stage => {
                let pace = pace(stage);
                if stage == stage::FIRST {
                    judge.judge(true);
                }
                let moved = matches!(stage, stage::CREATION | stage::EXIT);
                let must = !moved;
                let mut left = match pace {
                    Pace::Instructions(most) | Pace::SystemCalls(most) => most,
                };
                loop {
                    if left == 0 {
                        break stepper.run();
                    }
                    left -= u64::from(matches!(pace, Pace::SystemCalls(_)));
                    let system =
                        matches!(pace, Pace::SystemCalls(_)) || moved && stepper.calls_system();
                    let halt = match pace {
                        Pace::Instructions(_) => stepper.step(),
                        Pace::SystemCalls(_) => stepper.to_system_call(),
                    };
                    if halt != Halt::Step {
                        break halt;
                    }
                    shown.steps += 1;
                    let mut is_new = false;
                    if moved && system {
                        let now = files(&place, program.pid());
                        if changes.is_none()
                            && let Some(object) = now.1.first()
                        {
                            changes = Changes::of(object);
                        }
                        is_new = of_files.as_ref() != Some(&now);
                        of_files = Some(now);
                    }
                    if changes.is_none()
                        && !moved
                        && let Some(entry) = place.entry(program.pid())
                    {
                        changes = Changes::of(&entry.info.object);
                    }
                    if let Some(changes) = &mut changes {
                        is_new |= !changes.look().is_empty();
                    }
                    if is_new {
                        let files = of_files.as_ref().map_or(0, |(files, _)| files.len() as u64);
                        let state = changes.as_ref().map_or(0, Changes::digest);
                        let state = state ^ files.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                        shown.states.insert(state);
                        judge.judge(must);
                        left -= u64::from(matches!(pace, Pace::Instructions(_)));
                    }
                }
            }
        };
        if halt == Halt::Ended {
            let Some(before) = waiting.pop() else { break };
            current = before;
            halt = current.1.wait();
        }
        assert_eq!(halt, Halt::Stop, "at {}", STAGES.get(asked as usize).unwrap_or(&"a stop"));
    }
    assert!(place.entries().is_empty(), "it has ended in order");
    shown.slowest = shown.slowest.max(judge.slowest);
    shown.slowest_cpu = shown.slowest_cpu.max(judge.slowest_cpu);
}
