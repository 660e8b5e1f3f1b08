//! Restrictions that the kernel enforces with a signal: system calls that a service must not make,
//! and a counter that a program must not read.
#![cfg(target_arch = "x86_64")]

use std::os::unix::process::CommandExt;
use std::process::Command;

use pfp_shm_layout::header::ClockKind;
use pfp_tests::c::{Compiler, Link, compile};
use pfp_tests::place::Place;
use pfp_tests::target::Target;
use pfp_tests::watch::{self, Watch};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

/// The system calls that `SystemCallFilter=@system-service` of systemd 252 allows a service.
const OF_A_SERVICE: &[u16] = &[
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25,
    26, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50,
    51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74,
    75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 98,
    99, 100, 102, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119,
    120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 130, 131, 132, 133, 135, 137, 138, 140, 141,
    142, 143, 144, 145, 146, 147, 148, 149, 150, 151, 152, 157, 158, 160, 162, 186, 187, 188, 189,
    190, 191, 192, 193, 194, 195, 196, 197, 198, 199, 200, 201, 202, 203, 204, 205, 206, 207, 208,
    209, 210, 211, 213, 214, 215, 216, 217, 218, 219, 220, 221, 222, 223, 224, 225, 226, 228, 229,
    230, 231, 232, 233, 234, 235, 237, 238, 239, 240, 241, 242, 243, 244, 245, 247, 248, 249, 250,
    251, 252, 253, 254, 255, 256, 257, 258, 259, 260, 261, 262, 263, 264, 265, 266, 267, 268, 269,
    270, 271, 272, 273, 274, 275, 276, 277, 278, 279, 280, 281, 282, 283, 284, 285, 286, 287, 288,
    289, 290, 291, 292, 293, 294, 295, 296, 297, 299, 302, 303, 306, 307, 308, 309, 310, 311, 312,
    314, 315, 316, 318, 319, 322, 323, 324, 325, 326, 327, 328, 332, 333, 334, 424, 425, 426, 427,
    434, 435, 436, 437, 439, 440, 441, 449, 450,
];

/// Makes the kernel kill a program for any system call that is not in [`OF_A_SERVICE`], as systemd
/// does by default.
fn confine(command: &mut Command) {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code: u16, jt: u8, jf: u8, k: u32| libc::sock_filter { code, jt, jf, k };
    // A filter's input begins with the number of the system call.
    let mut program = vec![step(LOAD, 0, 0, 0)];
    for &call in OF_A_SERVICE {
        program.push(step(IF_EQUAL, 0, 1, u32::from(call)));
        program.push(step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW));
    }
    program.push(step(RETURN, 0, 0, libc::SECCOMP_RET_KILL_PROCESS));
    // SAFETY: the closure makes two system calls and allocates nothing; it owns `program`.
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

/// pfp selects a clock source that needs only the allowed system calls, whichever source it tries
/// first.
#[test]
fn a_service_measures_within_its_system_calls() {
    for (clock, tunables) in [("", ""), ("perf", ""), ("", "glibc.pthread.rseq=0")] {
        let place = Place::new();
        let mut command = place.command(TARGET);
        command.arg("life").env("PFP_CLOCK", clock).env("GLIBC_TUNABLES", tunables);
        command.env("PFP_SNAPSHOT", place.path("left.json"));
        confine(&mut command);
        let mut target = Target::start(&mut command);
        target.reach("done");
        let mut watch = Watch::attach(&place, &target);
        let picture = watch.poll();
        assert_eq!(watch::named(picture, "a scope").count, 100, "{clock:?} {tunables:?}");
        let kind = picture.clock.kind;
        assert!(
            matches!(kind, ClockKind::Rseq | ClockKind::Cputime),
            "{clock:?} {tunables:?}: {kind:?}"
        );
        target.end_well();
        assert!(place.path("left.json").exists(), "{clock:?} {tunables:?}");
    }
}

/// All regions are measured with the system's clock.
#[test]
fn a_program_that_may_not_read_the_counter_is_measured() {
    for link in [Link::Static, Link::Shared] {
        let name = format!("no_counter-{link:?}");
        let program = compile(Compiler::C, &name, &["no_counter.c"], link, ["-lpthread"]);
        let place = Place::new();
        let mut target = place.start(&program, &[]);
        let times = target.reach("done").one::<u64>("times");
        let mut watch = Watch::attach(&place, &target);
        let picture = watch.poll();
        assert!(picture.clock.system_clock, "{:?}", picture.clock);
        for name in ["outer", "inner", "by hand"] {
            assert_eq!(watch::named(picture, name).count, times, "{name}, {link:?}");
        }
        let inner = watch::named(picture, "inner");
        let outer = watch::named(picture, "outer");
        assert!(outer.inclusive > inner.inclusive && inner.exclusive > 0, "{outer:?} {inner:?}");
        target.end_well();
    }
}
