//! The user who starts a set-user-id program cannot influence what pfp does in it with its owner's
//! rights.

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
use pfp_tests::python;
use pfp_tests::stand_in::StandIn;
use pfp_tests::target::Target;
use pfp_tests::{skipped, tools};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");
const NOBODY: u32 = 65534;

/// Effects of the environment on a program, by variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    fold_digits: bool,
}

impl Effects {
    const NONE: Self = Self::all(false);
    const ALL: Self = Self::all(true);

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
            fold_digits: yes,
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

/// A program that measures.
struct Program {
    name: &'static str,
    path: PathBuf,
    arguments: Vec<String>,
    /// Variables that an interpreter needs.
    variables: Vec<(&'static str, PathBuf)>,
    /// The effects of all variables when its own user starts the program.
    all: Effects,
}

/// Runs a program with every variable of pfp's, as another user if `user` is set. Returns `None` if
/// the program then did not get its owner's rights.
fn effects(program: &Program, path: &Path, cuda: &Path, user: Option<u32>) -> Option<Effects> {
    let place = Place::new();
    let of = |name: &str| place.path(name);
    let runtime_dir = of("runtime");
    let mut effects = Effects::NONE;
    // The folder of beacons comes last, since it takes precedence over the other folder.
    for with_dir in [false, true] {
        // The owner of the program would accept this folder.
        let _ = fs::create_dir(&runtime_dir);
        let mut command = Command::new(path);
        command.env_clear().args(&program.arguments);
        command.envs(program.variables.iter().map(|(name, value)| (name, value)));
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
            .env("PFP_TRACING", "no=such=filter")
            .env("PFP_FOLD_DIGITS", "1");
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        let mut target = Target::start(&mut command);
        let said = target.reach("done");
        let is_secure = said.one::<u64>("secure") == 1;
        // Programs in C have no spans.
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
        let (geometry, counters) = (segment.geometry(), segment.counters());
        effects.memory_mb |= segments[0].1 < 16 << 20;
        effects.points |= geometry.points() == 200;
        effects.lanes |= geometry.lanes() < 8;
        let clock = ClockKind::from_word(counters.clock_kind.load(Relaxed));
        effects.clock |= clock == ClockKind::Wall;
        effects.run |= counters.run.load(Relaxed) != 0;
        effects.cuda_library |= files.iter().any(|(path, _)| Path::new(path) == cuda);
        let mut reader = Reader::new(segment, facts);
        let points = &reader.poll().points;
        let on = |name| points.iter().any(|at| at.name == name && at.control.enabled());
        assert!(on("asked for"), "{points:?}");
        effects.default_and_enable |= !on("work");
        effects.fold_digits |= points.iter().any(|at| at.name == "step #");
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

/// Each variable has its effect in a program that its own user starts, which shows that the test
/// works, and none in a set-user-id program.
fn check(program: &Program) {
    let name = program.name;
    let stand_in = StandIn::new(name);
    let cuda = stand_in.path();
    let plain = effects(program, &program.path, cuda, None).expect("no other rights");
    assert_eq!(plain, program.all, "{name}");

    // Copy the program to a folder from which another user can start it.
    let open: PathBuf = std::env::temp_dir().join(format!("pfp-{name}-{}", std::process::id()));
    pfp_tests::os::copy_program(&program.path, &open);
    fs::set_permissions(&open, Permissions::from_mode(0o4755)).expect("it is ours");
    let secure = effects(program, &open, cuda, Some(NOBODY));
    fs::remove_file(&open).expect("it is ours");
    match secure {
        Some(secure) => assert_eq!(secure, Effects::NONE, "{name}"),
        None => skipped("a set-user-id program", "the file system takes no notice of it"),
    }
}

/// Whether this test may create set-user-id programs.
fn may_make() -> bool {
    // SAFETY: the call takes no arguments and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        skipped("a set-user-id program", "not root");
    }
    is_root
}

#[test]
fn the_environment_of_a_set_user_id_program_has_no_effect() {
    if !may_make() {
        return;
    }
    // C has no device timers and no spans, and folds digits only in names from other tools.
    let of_c = Effects { cuda_library: false, tracing: false, fold_digits: false, ..Effects::ALL };
    let program =
        |name, path, all| Program { name, path, arguments: vec![], variables: vec![], all };
    let arguments = vec!["trusted".to_owned()];
    let all = Effects { fold_digits: false, ..Effects::ALL };
    check(&Program { arguments, ..program("trusted-Rust", TARGET.into(), all) });
    for (link, name) in [(Link::Static, "trusted-static"), (Link::Shared, "trusted-shared")] {
        check(&program(name, c::compile(Compiler::C, name, &["trusted.c"], link, [""; 0]), of_c));
    }
    let name = "trusted-annotated";
    let flags = ["-DANNOTATED", "-ldl"];
    let path = c::compile(Compiler::C, name, &["trusted.c"], Link::Without, flags);
    let arguments = vec![c::inject().display().to_string()];
    let all = Effects { fold_digits: true, ..of_c };
    check(&Program { arguments, ..program(name, path, all) });
}

/// An interpreter that is set-user-id ignores the variables as well.
#[test]
fn the_environment_of_a_set_user_id_interpreter_has_no_effect() {
    const SCRIPT: &str = "import ctypes, pfp, sys
for name in ['work'] * 10 + ['asked for', 'step 17']:
    with pfp.scope(name):
        pass
print('secure', ctypes.CDLL(None).getauxval(23))
print('done', flush=True)
sys.stdin.readline()";
    if !may_make() {
        return;
    }
    let what = "Python as a set-user-id program";
    let Some(python) = tools::python(what, "python", "tests/python/requirements.txt") else {
        return;
    };
    let folder = Place::new();
    let packages = python::package(&folder);
    check(&Program {
        name: "trusted-Python",
        // The link is resolved, since a copied link would not find the packages of its virtual
        // environment.
        path: fs::canonicalize(python).expect("it is there"),
        arguments: ["-B", "-c", SCRIPT].map(str::to_owned).to_vec(),
        variables: vec![("PYTHONPATH", packages)],
        all: Effects { cuda_library: false, tracing: false, fold_digits: false, ..Effects::ALL },
    });
}
