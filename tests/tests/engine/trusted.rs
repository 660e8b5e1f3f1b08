//! Whoever starts a set-user-id program chooses nothing of what it does as its owner.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;

use pfp_shm_layout::header::ClockKind;
use pfp_shm_layout::name::Name;
use pfp_shm_layout::reader::Reader;
use pfp_shm_layout::segment::Segment;
use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::Place;
use pfp_tests::skipped;
use pfp_tests::stand_in::StandIn;
use pfp_tests::target::Target;

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");
const NOBODY: u32 = 65534;

/// What the environment made a program do, by variable.
#[derive(Debug, PartialEq, Eq)]
struct Effects {
    dir: bool,
    runtime_dir: bool,
    snapshot: bool,
    memory_mb: bool,
    points: bool,
    lanes: bool,
    clock: bool,
    fence: bool,
    default_and_enable: bool,
    run: bool,
    cuda_library: bool,
    tracing: bool,
}

impl Effects {
    const NONE: Self = Self::all(false);

    const fn all(yes: bool) -> Self {
        Self {
            dir: yes,
            runtime_dir: yes,
            snapshot: yes,
            memory_mb: yes,
            points: yes,
            lanes: yes,
            clock: yes,
            fence: yes,
            default_and_enable: yes,
            run: yes,
            cuda_library: yes,
            tracing: yes,
        }
    }
}

/// The files that a process has mapped, by size.
fn mapped(pid: u32) -> Vec<(String, u64)> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("root may");
    maps.lines()
        .filter_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (from, to) = range.split_once('-')?;
            let address = |hex| u64::from_str_radix(hex, 16).expect("an address");
            Some((rest[rest.find('/')?..].to_owned(), address(to) - address(from)))
        })
        .collect()
}

/// Runs a program with every variable of pfp's, as another user if asked; none if it has
/// not the rights of its owner although `secure` is asked for.
fn effects(
    program: &Path,
    argument: Option<&str>,
    cuda: &Path,
    user: Option<u32>,
) -> Option<Effects> {
    let place = Place::new();
    let of = |name: &str| place.path(name);
    let runtime_dir = of("runtime");
    let mut effects = Effects::NONE;
    // The folder of beacons last, since it goes before the other one.
    for with_dir in [false, true] {
        // A folder that the program's owner would take.
        let _ = fs::create_dir(&runtime_dir);
        let mut command = Command::new(program);
        command.env_clear().args(argument);
        if with_dir {
            command.env("PFP_DIR", of("asked for"));
        }
        command
            .env("XDG_RUNTIME_DIR", &runtime_dir)
            .env("PFP_SNAPSHOT", of("snapshot.json"))
            .env("PFP_MEMORY_MB", "1")
            .env("PFP_POINTS", "200")
            .env("PFP_LANES", "3")
            .env("PFP_CLOCK", "wall")
            .env("PFP_FENCE", "1")
            .env("PFP_DEFAULT", "off")
            .env("PFP_ENABLE", "asked*")
            .env("PFP_RUN", "abcdef")
            .env("PFP_CUDA_LIBRARY", cuda)
            .env("PFP_TRACING", "no=such=filter");
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        let mut target = Target::start(&mut command);
        let said = target.reach("done");
        let is_secure = said.one::<u64>("secure") == 1;
        // C has no spans.
        effects.tracing |= said.all("traced").contains(&vec![0u64]);
        if is_secure != user.is_some() {
            return None;
        }
        let files = mapped(target.pid());
        let segments: Vec<_> =
            files.iter().filter(|(path, _)| path.starts_with("/dev/shm/pfp-")).collect();
        let [(path, _)] = &segments[..] else { panic!("{segments:?}") };
        let hex = path.trim_start_matches("/dev/shm/pfp-");
        let name = Name::from_hex(hex.as_bytes()).expect("it has such a name");
        let (segment, facts) = Segment::open(&name).expect("root may");
        let (geometry, ledger) = (segment.geometry(), segment.ledger());
        effects.memory_mb |= segments[0].1 < 16 << 20;
        effects.points |= geometry.points() == 200;
        effects.lanes |= geometry.lanes() < 8;
        let clock = ClockKind::from_word(ledger.clock_kind.load(Relaxed));
        effects.clock |= clock == ClockKind::Wall;
        effects.run |= ledger.run.load(Relaxed) != 0;
        effects.cuda_library |= files.iter().any(|(path, _)| Path::new(path) == cuda);
        let mut reader = Reader::new(segment, facts);
        let points = &reader.poll().points;
        let on = |name| points.iter().any(|at| at.name == name && at.control.enabled());
        assert!(on("asked for"), "{points:?}");
        effects.default_and_enable |= !on("work");
        effects.fence |= points.iter().any(|at| at.control.fenced());
        effects.runtime_dir |= runtime_dir.join("pfp").exists();
        target.end_well();
        effects.dir |= of("asked for").exists();
        effects.snapshot |= of("snapshot.json").exists();
        let _ = fs::remove_file(of("snapshot.json"));
        let _ = fs::remove_dir_all(runtime_dir.join("pfp"));
    }
    Some(effects)
}

/// Each variable has its effect in a program that its own user starts, or this would show
/// nothing, and none in a set-user-id program.
fn check(name: &str, program: &Path, argument: Option<&str>) {
    let stand_in = StandIn::new(name);
    let cuda = stand_in.path();
    let plain = effects(program, argument, cuda, None).expect("no other rights");
    // C has neither timers for devices nor spans.
    let is_rust = argument.is_some();
    let all = Effects { cuda_library: is_rust, tracing: is_rust, ..Effects::all(true) };
    assert_eq!(plain, all, "{name}");

    // Where another user may start it.
    let open: PathBuf = std::env::temp_dir().join(format!("pfp-{name}-{}", std::process::id()));
    pfp_tests::os::copy_program(program, &open);
    fs::set_permissions(&open, Permissions::from_mode(0o4755)).expect("it is ours");
    let secure = effects(&open, argument, cuda, Some(NOBODY));
    fs::remove_file(&open).expect("it is ours");
    match secure {
        Some(secure) => assert_eq!(secure, Effects::NONE, "{name}"),
        None => skipped("a set-user-id program", "the file system takes no notice of it"),
    }
}

#[test]
fn the_environment_of_a_set_user_id_program_has_no_effect() {
    // SAFETY: takes nothing and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return skipped("a set-user-id program", "not root");
    }
    check("trusted-Rust", Path::new(TARGET), Some("trusted"));
    for link in [Link::Static, Link::Shared] {
        let name = format!("trusted-{link:?}");
        let program = c::compile(Compiler::C, &name, &["trusted.c"], link, [""; 0]);
        check(&name, &program, None);
    }
}
