//! Contexts: a user-level scheduler on two threads moves tasks back and forth with their regions
//! open. Each task has its own figures, wherever it ran, and all figures together equal the
//! threads' CPU time.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use pfp_tests::os::{burn, thread_cpu, tid, wall};
use pfp_tests::watch::total;
use pfp_tests::{figure, own, stolen, watch};

const TASKS: usize = 5;
const STEPS: usize = 40;
/// CPU time of the first task's step. The clock readings after a switch count for no region; a step
/// takes much longer than they do, even on a busy machine.
const STEP: Duration = Duration::from_millis(2);
const NEAR: f64 = 0.01;
/// CPU time that the scheduler burns when no task is ready.
const IDLE: Duration = Duration::from_micros(20);

static WORK: [pfp::Point; TASKS] = [
    pfp::Point::new("task 0"),
    pfp::Point::new("task 1"),
    pfp::Point::new("task 2"),
    pfp::Point::new("task 3"),
    pfp::Point::new("task 4"),
];
/// A region inside each task's own, which is open over several steps.
static INNER: [pfp::Point; TASKS] = [
    pfp::Point::new("inner of task 0"),
    pfp::Point::new("inner of task 1"),
    pfp::Point::new("inner of task 2"),
    pfp::Point::new("inner of task 3"),
    pfp::Point::new("inner of task 4"),
];

fn ticks(time: Duration) -> f64 {
    time.as_secs_f64() * pfp::ticks_per_second()
}

/// `unsure` is the time stolen from the threads that ran the task, plus the error of the clock
/// readings.
fn assert_near(what: &str, found: u64, expected: Duration, unsure: Duration) {
    let off = found as f64 / ticks(expected) - 1.0;
    let said = format!("{what}: {off:+.5} from {expected:?}, {unsure:?} unsure");
    figure(&format!("contexts {said}"));
    assert!(off.abs() < NEAR + unsure.div_duration_f64(expected), "{said}");
}

struct Task {
    number: usize,
    context: pfp::ExecutionContext,
    step: usize,
    /// CPU time of the task by the kernel's account, in its outer region and in the inner one.
    own: Duration,
    inner: Duration,
    /// CPU time that the thread spent on switching to and from the task, and on reading its CPU
    /// time.
    around: Duration,
    began: Duration,
    /// Threads on which the task ran.
    threads: Vec<u32>,
}

impl Task {
    /// Runs the next step, and returns true after the last one. `switched` is the thread's CPU time
    /// when it began to switch to the task.
    fn run(&mut self, switched: Duration) -> bool {
        let (work, inner) = (&WORK[self.number], &INNER[self.number]);
        if !self.threads.contains(&tid()) {
            self.threads.push(tid());
        }
        let before = thread_cpu();
        self.around += before - switched;
        match self.step % 10 {
            _ if self.step == 0 => {
                self.began = wall();
                work.begin();
            }
            3 => inner.begin(),
            7 => inner.end(),
            _ => {}
        }
        burn(STEP + self.number as u32 * STEP / 3);
        let used = thread_cpu() - before;
        if (3..7).contains(&(self.step % 10)) {
            self.inner += used
        } else {
            self.own += used
        }
        self.step += 1;
        if self.step == STEPS {
            work.end();
        }
        self.step == STEPS
    }
}

#[test]
fn tasks_keep_their_regions_across_threads() {
    let mut watch = own::watch();
    let queue: Mutex<VecDeque<Task>> = Mutex::new(
        (0..TASKS)
            .map(|number| Task {
                number,
                context: pfp::ExecutionContext::new(),
                step: 0,
                own: Duration::ZERO,
                inner: Duration::ZERO,
                around: Duration::ZERO,
                began: Duration::ZERO,
                threads: Vec::new(),
            })
            .collect(),
    );
    let done: Mutex<Vec<(Task, Duration)>> = Mutex::new(Vec::new());
    let finished = AtomicU64::new(0);
    let scheduler = || {
        pfp::register_thread("scheduler");
        let before = thread_cpu();
        {
            let idle = pfp::ExecutionContext::new();
            let _entered = idle.enter().expect("it is current nowhere");
            pfp::scope!("scheduler");
            while finished.load(Relaxed) < TASKS as u64 {
                let next = queue.lock().expect("nobody panicked").pop_front();
                let Some(mut task) = next else {
                    burn(IDLE);
                    thread::yield_now();
                    continue;
                };
                let before = thread_cpu();
                assert!(pfp::task_switch(&idle, &task.context));
                let last = task.run(before);
                let after = thread_cpu();
                assert!(pfp::task_switch(&task.context, &idle));
                task.around += thread_cpu() - after;
                if last {
                    finished.fetch_add(1, Relaxed);
                    let lasted = wall() - task.began;
                    done.lock().expect("nobody panicked").push((task, lasted));
                } else {
                    queue.lock().expect("nobody panicked").push_back(task);
                }
                // This lets the other thread take its turns.
                thread::yield_now();
            }
        }
        (thread_cpu() - before, stolen::so_far())
    };
    let threads: Vec<(Duration, Duration)> = thread::scope(|scope| {
        let threads = [scope.spawn(scheduler), scope.spawn(scheduler)];
        threads.map(|thread| thread.join().expect("tasks do not panic")).into()
    });

    let stolen: Duration = threads.iter().map(|(_, stolen)| *stolen).sum();
    let picture = watch.poll();
    let mut moved = 0;
    for (task, lasted) in done.into_inner().expect("nobody panicked") {
        let work = total(picture, watch::id(picture, &format!("task {}", task.number)));
        let inner = total(picture, watch::id(picture, &format!("inner of task {}", task.number)));
        assert_eq!((work.count, inner.count), (1, STEPS as u64 / 10), "task {}", task.number);
        let name = |what: &str| format!("task {} {what}", task.number);
        let unsure = stolen + task.around;
        assert_near(&name("own"), work.exclusive, task.own, unsure);
        assert_near(&name("inner"), inner.exclusive, task.inner, unsure);
        assert_near(&name("inclusive"), work.inclusive, task.own + task.inner, unsure);
        // Suspended time counts as off the CPU.
        assert_near(&name("from begin to end"), work.inclusive + work.off_cpu, lasted, unsure);
        moved += usize::from(task.threads.len() > 1);
    }
    assert!(moved > 0, "no task ever moved to the other thread");
    // All time is counted exactly once. Earlier threads may have owned the lanes, with points of
    // their own.
    let cpu: Duration = threads.iter().map(|(cpu, _)| *cpu).sum();
    let tasks = (0..TASKS).flat_map(|n| [format!("task {n}"), format!("inner of task {n}")]);
    let names = tasks.chain([String::from("scheduler")]);
    let exclusive: u64 = names.map(|name| watch::named(picture, &name).exclusive).sum();
    assert_near("all together", exclusive, cpu, stolen);
    figure(&format!("contexts: {moved} of {TASKS} tasks ran on both threads"));
}

#[test]
fn a_context_is_current_on_one_thread_only() {
    let context = pfp::ExecutionContext::new();
    let entered = context.enter().expect("it is current nowhere");
    thread::scope(|scope| {
        scope.spawn(|| {
            let other = pfp::ExecutionContext::new();
            let _other = other.enter().expect("it is current nowhere");
            assert!(context.enter().is_none());
            assert!(!pfp::task_switch(&other, &context));
        });
    });
    drop(entered);
    assert!(thread::spawn(move || context.enter().is_some()).join().expect("it only enters"));
}

/// An interrupt handler of the program itself: its time counts for its own region only, and not as
/// nested time of the region that it interrupts.
#[test]
fn an_interrupts_time_is_not_in_the_interrupted_region() {
    static WORK: pfp::Point = pfp::Point::new("what is interrupted");
    const LONG: Duration = Duration::from_millis(20);
    // The thread's first use of the probe must not fall into a region.
    pfp::register_thread("interrupted");
    let interrupt = pfp::ExecutionContext::new();
    let (before, stolen) = (thread_cpu(), stolen::so_far());
    let handled;
    {
        let _work = WORK.measure();
        burn(LONG);
        {
            let _entered = interrupt.enter().expect("it is current nowhere");
            pfp::scope!("handler");
            let before = thread_cpu();
            burn(2 * LONG);
            handled = thread_cpu() - before;
        }
        burn(LONG);
    }
    let (all, stolen) = (thread_cpu() - before, stolen::since(stolen));
    let [work, handler] = ["what is interrupted", "handler"].map(own::figures);
    assert_eq!((work.count, handler.count), (1, 1));
    assert_near("the handler", handler.exclusive, handled, stolen);
    assert_near("the interrupted", work.exclusive, all - handled, stolen);
    assert_eq!(work.inclusive, work.exclusive);
    assert!(work.off_cpu as f64 >= ticks(handled) * (1.0 - NEAR) - ticks(stolen));
}

/// Two tasks of one thread have regions of one point open. The time that one task adds to the point
/// stays when the other task's region ends, however often they alternate.
#[test]
fn tasks_that_share_a_point_keep_each_others_time() {
    static SHARED: pfp::Point = pfp::Point::new("shared by tasks");
    let (one, other) = (pfp::ExecutionContext::new(), pfp::ExecutionContext::new());
    let mut count = 0;
    for turns in 1..=32 {
        assert!(pfp::task_switch(&other, &one));
        let region = SHARED.measure();
        for _ in 0..turns {
            assert!(pfp::task_switch(&one, &other));
            let inside = SHARED.measure();
            burn(Duration::from_micros(20));
            drop(inside);
            assert!(pfp::task_switch(&other, &one));
        }
        drop(region);
        count += turns + 1;
        // No region is nested.
        let shared = own::figures("shared by tasks");
        assert_eq!((shared.count, shared.inclusive), (count, shared.exclusive), "{turns} turns");
    }
}
