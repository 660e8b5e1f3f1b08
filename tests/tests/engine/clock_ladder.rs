//! Each clock source is used if the better ones are missing, also under a container's seccomp
//! profile. Only the best one, `rseq`, needs the thread's restartable-sequence area.
#![cfg(target_arch = "x86_64")]

use std::os::unix::process::CommandExt;
use std::process::Command;

use pfp_shm_layout::header::ClockKind;
use pfp_tests::place::Place;
use pfp_tests::target::Target;
use pfp_tests::watch::{self, Watch};
use pfp_tests::{figure, os, skipped};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

/// Makes these system calls fail with EPERM, as the seccomp profiles of containers do. If the list
/// is empty, sets no filter, since pfp tries no perf event under any filter.
fn forbid(command: &mut Command, calls: &'static [libc::c_long]) {
    if calls.is_empty() {
        return;
    }
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code: u16, jt: u8, jf: u8, k: u32| libc::sock_filter { code, jt, jf, k };
    // The call's number is the first word of the filter's input.
    let mut program = vec![step(LOAD, 0, 0, 0)];
    for &call in calls {
        program.push(step(IF_EQUAL, 0, 1, call as u32));
        program.push(step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
    }
    program.push(step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW));
    // SAFETY: the closure makes two system calls between fork and exec; the filter was built
    // before.
    unsafe {
        command.pre_exec(move || {
            let filter =
                libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
            let refused = libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter)
                    != 0;
            if refused { Err(std::io::Error::last_os_error()) } else { Ok(()) }
        });
    }
}

const NO_RSEQ: (&str, &str) = ("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
const PERF: libc::c_long = libc::SYS_perf_event_open;
const CLOCK: libc::c_long = libc::SYS_clock_gettime;

/// The clock source that a program chooses if some sources are unavailable.
fn source(rseq: bool, forbidden: &'static [libc::c_long]) -> ClockKind {
    let place = Place::new();
    let mut command = place.command(TARGET);
    command.arg("life");
    if !rseq {
        command.env(NO_RSEQ.0, NO_RSEQ.1);
    }
    forbid(&mut command, forbidden);
    let mut target = Target::start(&mut command);
    target.reach("done");
    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    // Every clock source measures.
    assert_eq!(watch::named(picture, "a scope").count, 100);
    let kind = picture.clock.kind;
    target.end_well();
    kind
}

#[test]
fn each_clock_source_is_used_if_the_better_ones_are_missing() {
    let with_all = source(true, &[]);
    if with_all != ClockKind::Rseq {
        return skipped("the ladder", &format!("this system begins at {with_all:?}"));
    }
    assert_eq!(source(true, &[PERF]), ClockKind::Rseq, "a container's profile");
    match source(false, &[]) {
        ClockKind::Perf => {}
        ClockKind::Cputime => skipped("the source perf", "perf events are forbidden here"),
        other => panic!("without rseq: {other:?}"),
    }
    assert_eq!(source(false, &[PERF]), ClockKind::Cputime, "without rseq, a container's profile");
    // After a switch pfp has to read the CPU time, so `rseq` does not work without that call.
    assert_eq!(source(true, &[CLOCK]), ClockKind::Wall, "no CPU time");
    assert_eq!(source(false, &[PERF, CLOCK]), ClockKind::Wall, "nothing at all");
    figure("clock_ladder: rseq, perf, cputime, wall: each where the one above is missing");
}

/// pfp stops using a clock source that does not report switches.
#[test]
fn a_clock_source_that_reports_no_switches_is_abandoned() {
    let place = Place::new();
    let mut target = place.start(TARGET, &["unwatched"]);
    let given_back = target.reach("done").one::<bool>("given_back");
    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    let kind = picture.clock.kind;
    if !given_back {
        return skipped("a clock source that reports no switches", &format!("{kind:?} is used"));
    }
    assert!(matches!(kind, ClockKind::Perf | ClockKind::Cputime), "{kind:?}");
    let asleep = watch::named(picture, "asleep");
    let ms = |ticks: u64| ticks as f64 * 1e3 / picture.clock.ticks_per_second;
    assert!(asleep.switches > 0 && ms(asleep.off_cpu) > 45.0, "{asleep:?}");
    target.go();
    target.end_well();
}

/// Other code in the process writes to the restartable-sequence area all the time. That costs extra
/// clock readings, but the figures stay correct.
#[test]
fn figures_stay_correct_while_other_code_uses_rseq() {
    let place = Place::new();
    let threads = 2 * os::cpus().len();
    let mut target = place.start(TARGET, &["overwritten", &threads.to_string()]);
    let said = target.reach("done").clone();
    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    assert!(said.one::<bool>("area") || picture.clock.kind != ClockKind::Rseq);
    let ns_per_tick = 1e9 / picture.clock.ticks_per_second;
    let mut worst = 0.0f64;
    for thread in said.all::<f64>("thread") {
        let (tid, cpu_ns, stolen_ns) = (thread[0] as u32, thread[1], thread[2]);
        let all = watch::of_lane(picture, watch::lane(picture, tid));
        let off = all.exclusive as f64 * ns_per_tick / cpu_ns - 1.0;
        // The thread's CPU time includes all extra clock readings, the regions only some of them.
        let room = 0.02 + stolen_ns / cpu_ns;
        assert!(
            off.abs() < room,
            "{off:+.5} from the CPU time of {cpu_ns} ns, {stolen_ns} ns stolen: {all:?}"
        );
        worst = worst.max(off.abs());
        assert!(all.switches > 0, "the competition was real: {all:?}");
    }
    assert_eq!(picture.losses.clock_anomalies, 0);
    figure(&format!(
        "clock_ladder: rseq_cs overwritten all the time: {:?}, CPU time within {:.3} %",
        picture.clock.kind,
        worst * 100.0
    ));
    target.go();
    target.end_well();
}
