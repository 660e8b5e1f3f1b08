//! File modes, and files that other users have planted where a program or the viewer would write:
//! pfp refuses them, changes no file, the program behaves as without them, and `doctor` reports
//! them.

use std::ffi::CString;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::{Place, pfp_top};
use pfp_tests::target::Target;
use pfp_tests::{figure, lacks, size, skipped, together};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");
const NOBODY: u32 = 65534;

fn is_root() -> bool {
    // SAFETY: the call takes no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

fn fifo(path: &Path) {
    let path = CString::new(path.as_os_str().as_bytes()).expect("no zero in it");
    // SAFETY: the path is NUL-terminated and outlives the call.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
}

/// Removes a file, link or folder.
fn clear(path: &Path) {
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_dir() => fs::remove_dir_all(path).expect("it is the test's"),
        Ok(_) => fs::remove_file(path).expect("it is the test's"),
        Err(_) => {}
    }
}

/// All properties of a file that a write could change.
#[derive(Debug, PartialEq)]
struct State {
    content: Vec<u8>,
    kind: u32,
    owner: (u32, u32),
    links: u64,
    inode: u64,
    written: (i64, i64),
}

impl State {
    /// The state of the file itself; a link is not followed.
    fn of(path: &Path) -> Self {
        let meta = fs::symlink_metadata(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let content = match meta.file_type() {
            kind if kind.is_file() => fs::read(path).expect("it can be read"),
            kind if kind.is_symlink() => {
                fs::read_link(path).expect("it can be read").into_os_string().into_encoded_bytes()
            }
            kind if kind.is_dir() => {
                let names = fs::read_dir(path).expect("it can be read");
                let names = names.map(|name| name.expect("it can be read").file_name());
                names.flat_map(std::ffi::OsString::into_encoded_bytes).collect()
            }
            _ => Vec::new(),
        };
        Self {
            content,
            kind: meta.mode(),
            owner: (meta.uid(), meta.gid()),
            links: meta.nlink(),
            inode: meta.ino(),
            written: (meta.mtime(), meta.mtime_nsec()),
        }
    }
}

/// Under every umask the folder is 0700, the beacon and the object 0600 (the beacon with the sticky
/// bit, which makes cleaners leave it alone), and the viewer can read them.
#[test]
fn modes_are_the_same_under_any_umask() {
    let mut users = vec![None];
    if is_root() {
        users.push(Some(NOBODY));
    } else {
        skipped("modes for another user", "not root");
    }
    for user in users {
        for umask in [0, 0o022, 0o077, 0o777] {
            let place = Place::new();
            let folder = place.path("pfp");
            fs::set_permissions(place.folder(), Permissions::from_mode(0o1777))
                .expect("it is ours");
            let mut command = place.command(TARGET);
            command.arg("life").env("PFP_DIR", &folder);
            if let Some(user) = user {
                command.uid(user).gid(user);
            }
            // SAFETY: the closure makes one system call between fork and exec.
            unsafe {
                command.pre_exec(move || {
                    libc::umask(umask);
                    Ok(())
                });
            }
            if user.is_some() && command.output().is_err() {
                return skipped("modes for another user", "it may not start the program");
            }
            let mut target = Target::start(&mut command);
            target.reach("done");
            let mode = |path: &Path| fs::metadata(path).expect("it is there").mode() & 0o7777;
            let beacons: Vec<PathBuf> = fs::read_dir(&folder)
                .expect("it is there")
                .map(|file| file.expect("it can be read").path())
                .collect();
            let [beacon] = &beacons[..] else { panic!("{beacons:?}") };
            let hex = beacon.file_stem().expect("it has a name").to_string_lossy();
            let object = format!("/dev/shm/pfp-{hex}");
            let modes = [mode(&folder), mode(beacon), mode(object.as_ref())];
            assert_eq!(modes, [0o700, 0o1600, 0o600], "umask {umask:o}, user {user:?}");
            let mut list = place.command(pfp_top());
            list.args(["list", "--json"]).env("PFP_DIR", &folder);
            if let Some(user) = user {
                list.uid(user).gid(user);
            }
            if let Ok(listed) = list.output() {
                let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
                assert!(listed.contains("\"running\""), "umask {umask:o}: {listed}");
            }
            target.end_well();
            assert_eq!(fs::read_dir(&folder).expect("it is there").count(), 0);
            assert!(fs::symlink_metadata(&object).is_err());
            fs::set_permissions(place.folder(), Permissions::from_mode(0o700)).expect("it is ours");
        }
    }
}

fn host(place: &Place, folder: &Path) -> Output {
    let output = place.command(TARGET).arg("host").env("PFP_DIR", folder).output();
    output.expect("the target can be started")
}

fn doctor(place: &Place, folder: &Path) -> String {
    let mut command = place.command(pfp_top());
    let output = command.arg("doctor").env("PFP_DIR", folder).output().expect("pfp-top starts");
    assert_eq!(output.status.code(), Some(1), "a problem was found: {output:?}");
    String::from_utf8(output.stdout).expect("it is text")
}

/// Files and folders are planted in place of the folder of beacons. The cases run in parallel,
/// since each has to wait for `doctor`.
#[test]
fn a_planted_folder_is_refused() {
    let base = Place::new();
    let plain = host(&base, base.beacons());
    assert!(plain.status.success() && plain.stderr.is_empty(), "{plain:?}");
    if !is_root() {
        skipped("a folder of another user's", "not root");
    }
    together(0..if is_root() { 11 } else { 9 }, |at| refuse_planted(at, &plain));
}

/// Tests one of the cases, by its number.
fn refuse_planted(at: usize, plain: &Output) {
    let place = Place::new();
    let folder = place.beacons().join("planted");
    let victim_folder = place.beacons().join("victim folder");
    fs::create_dir(&victim_folder).expect("it is ours");
    fs::write(victim_folder.join("kept"), "precious").expect("it is ours");
    let victim = place.beacons().join("victim");
    fs::write(&victim, "precious").expect("it is ours");

    let with_mode = |mode: u32| {
        fs::create_dir(&folder).expect("it is ours");
        fs::set_permissions(&folder, Permissions::from_mode(mode)).expect("it is ours");
    };
    let foreign = |mode: u32| {
        with_mode(mode);
        chown(&folder, Some(NOBODY), Some(NOBODY)).expect("root may");
    };
    type Plant<'a> = (&'a str, &'a str, Box<dyn Fn() + 'a>);
    let plants: [Plant<'_>; 11] = [
        (
            "a link to a folder",
            "found a symbolic link",
            Box::new(|| symlink(&victim_folder, &folder).expect("it is ours")),
        ),
        (
            "a link to a file",
            "found a symbolic link",
            Box::new(|| symlink(&victim, &folder).expect("it is ours")),
        ),
        (
            "a link to nothing",
            "found a symbolic link",
            Box::new(|| symlink(place.beacons().join("nothing"), &folder).expect("it is ours")),
        ),
        (
            "a hard link",
            "found a regular file",
            Box::new(|| fs::hard_link(&victim, &folder).expect("it is ours")),
        ),
        ("a FIFO", "found a FIFO", Box::new(|| fifo(&folder))),
        ("a socket", "found a socket", Box::new(|| drop(UnixListener::bind(&folder)))),
        ("a folder of everybody's", "found mode 0777", Box::new(|| with_mode(0o777))),
        ("a folder like /tmp", "found mode 1777", Box::new(|| with_mode(0o1777))),
        ("a folder of a group's", "found mode 0720", Box::new(|| with_mode(0o720))),
        // Only root can create these.
        ("a folder of another user's", "found one of user 65534", Box::new(|| foreign(0o700))),
        ("the same, open to all", "found one of user 65534", Box::new(|| foreign(0o777))),
    ];
    let (what, why, plant) = &plants[at];
    plant();
    let before = [&folder, &victim_folder, &victim].map(|path| State::of(path));
    assert_eq!(&host(&place, &folder), plain, "{what}");
    let report = doctor(&place, &folder);
    assert!(report.contains("planted: expected") && report.contains(why), "{what}: {report}");
    let after = [&folder, &victim_folder, &victim].map(|path| State::of(path));
    assert_eq!(before, after, "{what}");
    assert!(!place.beacons().join("nothing").exists(), "{what}");
    clear(&folder);
}

/// Files are planted under the exact names that a program is about to use. These names are random,
/// so the test replaces the source of random numbers to know them.
#[test]
fn files_planted_under_a_programs_names_are_refused() {
    if lacks("names that are known beforehand", "cc") {
        return;
    }
    let preload = c::compile(
        Compiler::C,
        "fixed_random.so",
        &["fixed_random.c"],
        Link::Without,
        ["-shared", "-fPIC"],
    );
    let place = Place::new();
    // The names contain the test's process id, since another run of the test may be in progress.
    let chance = format!("{:08x}", std::process::id());
    let hex = chance.repeat(4);
    // Each victim is in a folder where both kinds of link are possible.
    let shared = PathBuf::from(format!("/dev/shm/pfp-test-victim-{chance}"));
    let victims = [place.beacons().join("victim"), shared];
    let object = PathBuf::from(format!("/dev/shm/pfp-{hex}"));
    let names = [
        (object.clone(), &victims[1]),
        (place.beacons().join(format!("{hex}.beacon")), &victims[0]),
        (place.beacons().join(format!("{hex}.0.new")), &victims[0]),
    ];
    let start = |scenario: &str| {
        let mut command = place.command(TARGET);
        command.arg(scenario).env("LD_PRELOAD", &preload).env("PFP_TEST_CHANCE", &chance);
        command
    };
    // The program uses the expected names.
    let mut target = Target::start(&mut start("life"));
    target.reach("done");
    assert!(object.exists() && names[1].0.exists(), "other names than expected");
    target.end_well();
    let plain = start("host").output().expect("the target can be started");
    assert!(plain.status.success() && plain.stderr.is_empty(), "{plain:?}");

    let mut tried = 0;
    for (name, victim) in &names {
        fs::write(victim, [7; 9000]).expect("it is ours");
        for what in ["link", "dangling link", "hard link", "FIFO", "socket", "folder", "foreign"] {
            match what {
                "link" => symlink(victim, name).expect("it is ours"),
                "dangling link" => {
                    symlink(place.beacons().join("nothing"), name).expect("it is ours");
                }
                "hard link" => fs::hard_link(victim, name).expect("it is ours"),
                "FIFO" => fifo(name),
                "socket" => drop(UnixListener::bind(name).expect("it is ours")),
                "folder" => fs::create_dir(name).expect("it is ours"),
                _ if is_root() => {
                    fs::write(name, "theirs").expect("it is ours");
                    chown(name, Some(NOBODY), Some(NOBODY)).expect("root may");
                }
                _ => {
                    skipped("a file of another user's", "not root");
                    continue;
                }
            }
            let before = [State::of(name), State::of(victim)];
            let output = start("host").output().expect("the target can be started");
            assert_eq!(output, plain, "{what} at {name:?}");
            assert_eq!(before, [State::of(name), State::of(victim)], "{what} at {name:?}");
            assert!(!place.beacons().join("nothing").exists(), "{what} at {name:?}");
            // `doctor` does not report files of other users in /dev/shm, which may be their
            // segments, and ignores an unfinished draft.
            let is_reported =
                !(name.ends_with(format!("{hex}.0.new")) || name == &object && what == "foreign");
            if is_reported && size(u64::from(what == "link" || what == "FIFO"), 1) == 1 {
                let report = doctor(&place, place.beacons());
                let line = format!("{}: ", name.display());
                assert!(report.contains(&line), "{what} at {name:?}: {report}");
            }
            clear(name);
            tried += 1;
        }
        clear(victim);
    }
    figure(&format!("permissions: {tried} things planted under a program's names, refused"));
}

/// The viewer and the program itself write files: existing files stay unchanged, and with `--force`
/// a link is replaced, not followed.
#[test]
fn files_are_written_through_no_link() {
    let place = Place::new();
    let mut target = place.start(TARGET, &["life"]);
    target.reach("done");
    let pid = target.pid().to_string();
    let victim = place.beacons().join("victim");
    fs::write(&victim, "precious").expect("it is ours");
    let path = place.beacons().join("planted");
    let shown = path.to_str().expect("it is plain text");
    let commands: [&[&str]; 6] = [
        &["snapshot", "-p", &pid, "-o", shown],
        &["save-raw", "-p", &pid, "-o", shown],
        &["record", "-p", &pid, "-i", "50ms", "-d", "60ms", "-o", shown],
        &["export", "csv", "-p", &pid, "-o", shown],
        &["export", "perfetto", "-p", &pid, "-o", shown],
        // The program writes this file; its output and exit status do not change.
        &[],
    ];
    let mut tried = 0;
    for command in commands {
        for what in ["link", "dangling link", "hard link", "FIFO", "folder"] {
            match what {
                "link" => symlink(&victim, &path).expect("it is ours"),
                "dangling link" => symlink(place.beacons().join("nothing"), &path).expect("ours"),
                "hard link" => fs::hard_link(&victim, &path).expect("it is ours"),
                "FIFO" => fifo(&path),
                _ => fs::create_dir(&path).expect("it is ours"),
            }
            let before = [State::of(&path), State::of(&victim)];
            let run = |force: &[&str]| {
                let viewer = pfp_top().to_str().expect("it is plain text");
                let output = if command.is_empty() {
                    place.command(TARGET).arg("host").env("PFP_SNAPSHOT", &path).output()
                } else {
                    place.command(viewer).args(command).args(force).output()
                };
                output.expect("it can be started")
            };
            let output = run(&[]);
            assert_eq!(output.status.success(), command.is_empty(), "{command:?}: {output:?}");
            assert_eq!(before, [State::of(&path), State::of(&victim)], "{command:?} {what}");
            assert!(!place.beacons().join("nothing").exists(), "{command:?} {what}");
            if !command.is_empty() {
                let output = run(&["--force"]);
                let replaced = fs::symlink_metadata(&path).expect("it is there");
                let may_be = !matches!(what, "FIFO" | "folder");
                assert_eq!(output.status.success(), may_be, "{command:?} {what}: {output:?}");
                if may_be {
                    assert!(replaced.is_file() && replaced.nlink() == 1, "{command:?} {what}");
                } else {
                    let kind = replaced.file_type();
                    assert!(kind.is_fifo() || kind.is_dir(), "{command:?} {what} was replaced");
                }
                assert_eq!(fs::read(&victim).expect("it is ours"), b"precious");
                assert!(!place.beacons().join("nothing").exists(), "{command:?} {what}");
            }
            clear(&path);
            tried += 1;
        }
    }
    // No draft is left either.
    let left: Vec<_> = fs::read_dir(place.beacons()).expect("it is ours").flatten().collect();
    assert_eq!(left.len(), 2, "the victim and the beacon: {left:?}");
    target.end_well();
    figure(&format!("permissions: {tried} times something stood in the place of a file"));
}

/// The fallback folder is in /tmp, where another user may create it first.
#[test]
fn a_folder_that_another_user_made_first_is_left_alone() {
    /// A user id without an owner, so that no real user's folder is affected. Each case uses an id
    /// above this one.
    const USER: u32 = 61_234;
    if !is_root() {
        return skipped("a folder that another user made first", "not root");
    }
    let folder = |user: u32| PathBuf::from(format!("/tmp/pfp-{user}"));
    let place = Place::new();
    fs::set_permissions(place.folder(), Permissions::from_mode(0o755)).expect("it is ours");
    let victims = [place.path("file"), place.path("folder")];
    fs::write(&victims[0], "precious").expect("it is ours");
    fs::create_dir(&victims[1]).expect("it is ours");
    fs::set_permissions(&victims[1], Permissions::from_mode(0o777)).expect("it is ours");
    let run = |program: &Path, argument: &str, user: u32| {
        let mut command = Command::new(program);
        command.arg(argument).env_clear().env("PFP_TOP_CONFIG", "").uid(user).gid(user);
        command.current_dir("/").output()
    };
    // Copies a program to a folder from which that user can start it.
    let copied = |program: &Path, name: &str| {
        let open = std::env::temp_dir().join(format!("pfp-test-{name}-{}", std::process::id()));
        pfp_tests::os::copy_program(program, &open);
        fs::set_permissions(&open, Permissions::from_mode(0o755)).expect("it is ours");
        open
    };
    let [target, viewer] =
        [copied(Path::new(TARGET), "target"), copied(Path::new(pfp_top()), "viewer")];
    clear(&folder(USER));
    let plain = run(&target, "host", USER).expect("it can be started");
    assert!(plain.status.success() && plain.stderr.is_empty(), "{plain:?}");
    clear(&folder(USER));
    let cases = ["folder", "open folder", "file", "link to a file", "link to a folder", "FIFO"];
    together((USER + 1..).zip(cases), |(user, what)| {
        let folder = folder(user);
        clear(&folder);
        match what {
            "folder" | "open folder" => fs::create_dir(&folder).expect("it is ours"),
            "file" => fs::write(&folder, "theirs").expect("it is ours"),
            "link to a file" => symlink(&victims[0], &folder).expect("it is ours"),
            "link to a folder" => symlink(&victims[1], &folder).expect("it is ours"),
            _ => fifo(&folder),
        }
        if what == "open folder" {
            fs::set_permissions(&folder, Permissions::from_mode(0o777)).expect("it is ours");
        }
        std::os::unix::fs::lchown(&folder, Some(NOBODY), Some(NOBODY)).expect("root may");
        let before = [&folder, &victims[0], &victims[1]].map(|path| State::of(path));
        assert_eq!(run(&target, "host", user).expect("it can be started"), plain, "{what}");
        // The message names the folder once, and suggests PFP_DIR if the folder is another user's.
        for command in ["doctor", "list"] {
            let output = run(&viewer, command, user).expect("it can be started");
            let printed = [output.stdout, output.stderr].concat();
            let printed = String::from_utf8_lossy(&printed).into_owned();
            let expected = format!("{}: expected", folder.display());
            assert!(
                printed.contains(&expected) && printed.contains("PFP_DIR"),
                "{what}: {printed}"
            );
            let twice = format!("{0}: {0}", folder.display());
            assert!(!printed.contains(&twice), "{command}, {what}: {printed}");
        }
        assert_eq!(before, [&folder, &victims[0], &victims[1]].map(|path| State::of(path)));
        clear(&folder);
    });
    fs::remove_file(target).expect("it is ours");
    fs::remove_file(viewer).expect("it is ours");
}

/// When a program ends, it checks whether a viewer waits for its segment, in the folder
/// `collectors`: a planted file there is not followed, written to or removed.
#[test]
fn a_planted_folder_of_collectors_is_left_alone() {
    let (base, place) = (Place::new(), Place::new());
    let plain = host(&base, base.beacons());
    let victims = [place.beacons().join("victim"), place.beacons().join("victim folder")];
    fs::write(&victims[0], "precious").expect("it is ours");
    fs::create_dir(&victims[1]).expect("it is ours");
    fs::write(victims[1].join("kept"), "precious").expect("it is ours");
    let collectors = place.beacons().join("collectors");
    for what in ["file", "link to a file", "link to a folder", "link to nothing", "FIFO", "theirs"]
    {
        match what {
            "file" => fs::write(&collectors, "precious").expect("it is ours"),
            "link to a file" => symlink(&victims[0], &collectors).expect("it is ours"),
            "link to a folder" => symlink(&victims[1], &collectors).expect("it is ours"),
            "link to nothing" => symlink("nothing", &collectors).expect("it is ours"),
            "FIFO" => fifo(&collectors),
            _ if is_root() => {
                fs::create_dir(&collectors).expect("it is ours");
                chown(&collectors, Some(NOBODY), Some(NOBODY)).expect("root may");
            }
            _ => continue,
        }
        let before = [&collectors, &victims[0], &victims[1]].map(|path| State::of(path));
        assert_eq!(host(&place, place.beacons()), plain, "{what}");
        assert_eq!(before, [&collectors, &victims[0], &victims[1]].map(|path| State::of(path)));
        // Viewers do not touch it either.
        for arguments in [&["list", "--json"][..], &["gc"]] {
            let mut command = place.command(pfp_top());
            let output = command.args(arguments).output().expect("pfp-top starts");
            assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"), "{output:?}");
        }
        assert_eq!(before, [&collectors, &victims[0], &victims[1]].map(|path| State::of(path)));
        clear(&collectors);
    }
}
