//! Processes of other users and in containers: root sees them, pfp-top reads each with the rights
//! of its owner, and shows them to no other user.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pfp_read::files::json;
use pfp_read::snapshot::{PointState, Snapshot};
use pfp_tests::place::{Place, has_counted, pfp_top};
use pfp_tests::screen::{Screen, row};
use pfp_tests::target::{Target, end_with_test, wait_for};
use pfp_tests::{lacks, lacks_namespaces, needs_a_screen, os, skipped};

const STEADY: &str = env!("CARGO_BIN_EXE_steady");
const USER: u32 = 65534;
const OWNER: u32 = 65533;
const STRANGER: u32 = 65532;
/// Namespaces of a container with its own files and processes.
const CONTAINER: [&str; 5] = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
/// Mounts private folders in a container, and then runs the program.
const INSIDE: &str = "mount -t tmpfs none /dev/shm && mount -t tmpfs none /tmp && exec \"$@\"";

/// Copies of the programs that every user can start. The copies put their beacons into the default
/// folder.
struct Machine {
    /// The programs' name.
    name: String,
    folder: PathBuf,
    place: Place,
}

impl Machine {
    /// `None` if this user may not start programs as other users.
    fn new(test: &str) -> Option<Self> {
        if lacks("processes of other users", "setpriv") {
            return None;
        }
        if !works(&mut as_user(USER, "true")) {
            skipped("processes of other users", "this user may not start any");
            return None;
        }
        let name = format!("pfp-{test}-{}", std::process::id());
        // A container hides /tmp, so the folder is elsewhere.
        let folder = Path::new("/var/tmp").join(&name);
        let own = folder.join("run");
        fs::create_dir_all(&own).expect("there is room");
        for (path, mode) in [(&folder, 0o755), (&own, 0o700)] {
            fs::set_permissions(path, Permissions::from_mode(mode)).expect("it was just made");
        }
        chown(&own, Some(USER), Some(USER)).expect("root gives it away");
        os::copy_program(STEADY, &folder.join("steady"));
        os::copy_program(pfp_top(), &folder.join("pfp-top"));
        Some(Self { name, folder, place: Place::new() })
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Starts the program, with `command` in front of it.
    fn start(&self, mut command: Command) -> Target {
        Target::start(clear(&mut command).arg(self.path("steady")).arg(&self.name))
    }

    /// Starts a process of another user.
    fn of_user(&self) -> Target {
        let mut command = as_user(USER, &self.path("steady"));
        let run = self.path("run");
        Target::start(clear(&mut command).arg(&self.name).env("XDG_RUNTIME_DIR", run))
    }

    /// Starts a process in a container, and returns it with its id outside the container. Unless
    /// `is_root`, it belongs to a user who may create containers. `None` if that is not permitted.
    fn in_container(&self, is_root: bool) -> Option<(Target, u32)> {
        if lacks("processes in containers", "unshare") {
            return None;
        }
        let unshare = || match is_root {
            true => Command::new("unshare"),
            false => {
                let mut command = as_user(OWNER, "unshare");
                command.args(["--user", "--map-root-user"]);
                command
            }
        };
        if !works(unshare().args(CONTAINER).arg("true")) {
            skipped("processes in containers", "this machine makes none");
            return None;
        }
        let mut command = unshare();
        command.args(CONTAINER).args(["sh", "-c", INSIDE, "sh"]);
        let target = self.start(command);
        let inside = wait_for("the process inside", || {
            let children = format!("/proc/{0}/task/{0}/children", target.pid());
            let child = fs::read_to_string(children).ok()?.trim().parse().ok()?;
            let name = fs::read_to_string(format!("/proc/{child}/comm")).ok()?;
            (name.trim() == "steady").then_some(child)
        });
        Some((target, inside))
    }

    /// Runs the viewer as root.
    fn by_root(&self, arguments: &[&str]) -> Output {
        let mut command = self.place.command(pfp_top());
        clear(&mut command).args(arguments).output().expect("pfp-top starts")
    }

    /// Runs the viewer as a user without any processes.
    fn by_stranger(&self, arguments: &[&str]) -> Output {
        let mut command = as_user(STRANGER, &self.path("pfp-top"));
        clear(&mut command).args(arguments).output().expect("pfp-top starts")
    }

    /// A snapshot taken by root.
    fn snapshot(&self, which: &[&str]) -> Snapshot {
        let file = self.place.path("snapshot.json");
        let path = file.to_str().expect("it is plain text");
        let output = self.by_root(&[&["snapshot", "--force", "-o", path], which].concat());
        pfp_tests::well(&output);
        json::read(&file).expect("what was written can be read")
    }

    fn state(&self, pid: u32, point: &str) -> PointState {
        let snapshot = self.snapshot(&["-p", &pid.to_string()]);
        snapshot.points.iter().find(|it| it.name == point).expect("it is there").state
    }

    /// The row of a process in root's list, once it appears.
    fn row(&self, pid: u32) -> String {
        let pid = pid.to_string();
        wait_for("the process to be listed", || {
            let list = said(&self.by_root(&["list"]));
            let is_it = |row: &&str| row.split_whitespace().nth(1) == Some(&pid);
            list.lines().find(is_it).map(str::to_owned)
        })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Remove the objects of programs that were killed.
        for beacon in fs::read_dir(self.folder.join("run/pfp")).into_iter().flatten().flatten() {
            let id = beacon.path().with_extension("");
            let id = id.file_name().unwrap_or_default().to_string_lossy();
            let _ = fs::remove_file(format!("/dev/shm/pfp-{id}"));
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn as_user(user: u32, program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={user}"), format!("--regid={user}")]);
    command.args(["--clear-groups", program]);
    command
}

/// Removes the variables that select the folder of beacons.
fn clear(command: &mut Command) -> &mut Command {
    for name in ["PFP_DIR", "XDG_RUNTIME_DIR"] {
        command.env_remove(name);
    }
    command.env("PFP_TOP_CONFIG", "").env("LC_ALL", "C.UTF-8").current_dir("/")
}

fn works(command: &mut Command) -> bool {
    command.current_dir("/").output().is_ok_and(|output| output.status.success())
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|part| String::from_utf8_lossy(part)).concat()
}

#[test]
fn root_watches_every_user_and_container() {
    let Some(machine) = Machine::new("all") else { return };
    let user = machine.of_user();
    let mut all = vec![(user.pid(), Some(user), "@")];
    for is_root in [true, false] {
        if let Some((target, pid)) = machine.in_container(is_root) {
            all.push((pid, Some(target), "(pid 1 in its namespace)"));
        }
    }
    for (pid, _, words) in &all {
        let (row, id) = (machine.row(*pid), pid.to_string());
        assert!(row.contains(&format!("{}@", machine.name)) && row.contains(words), "{row}");
        wait_for("figures", || has_counted(&machine.snapshot(&["-p", &id]), "tick", 3));
        // The viewer that disabled the point restores it when it ends, and `disable` does not.
        let output = machine.by_root(&["disable", "-p", &id, "tick"]);
        pfp_tests::well(&output);
        assert_eq!(machine.state(*pid, "tick"), PointState::Off, "{row}");
        assert_eq!(machine.state(*pid, "round"), PointState::On, "{row}");
    }
    let sum = machine.snapshot(&["--all", "--sum", "--name", &machine.name]);
    assert_eq!(sum.process.members.len(), all.len(), "{:?}", sum.process.members);
    // With `PFP_DIR` set, only the processes of that folder are shown.
    let here = said(&machine.place.pfp_top(&["list"]));
    assert!(!here.contains(&machine.name), "{here}");
    // A process that has ended is no longer listed.
    let (pid, target, _) = &mut all[0];
    *target = None;
    wait_for("its end to show", || {
        !said(&machine.by_root(&["list"])).contains(&format!(" {pid} "))
    });
}

/// The children of all threads of a process.
fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = |thread: fs::DirEntry| {
        let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
    };
    threads.flat_map(children).collect()
}

/// The agents that a viewer has started: the processes that have changed to another user.
fn agents_of(viewer: u32) -> Vec<u32> {
    let ended = |pid: u32| match children(pid) {
        none if none.is_empty() => vec![pid],
        inside => inside,
    };
    children(viewer).into_iter().flat_map(ended).collect()
}

#[test]
fn an_agent_has_only_the_rights_of_the_user_it_reads_for() {
    let Some(machine) = Machine::new("rights") else { return };
    let user = machine.of_user();
    let container = machine.in_container(true);
    let pids = [Some(user.pid()), container.as_ref().map(|(_, pid)| *pid)];
    for (pid, owner) in pids.into_iter().zip([USER, 0]) {
        let Some(pid) = pid else { continue };
        machine.row(pid);
        let mut viewer = machine.place.command(pfp_top());
        clear(&mut viewer).args(["-b", "--json", "-p", &pid.to_string()]);
        let mut viewer = Target::start(&mut viewer);
        wait_for("figures", || !viewer.lines_so_far().is_empty());
        let files = |process: u32| fs::read_link(format!("/proc/{process}/ns/mnt")).ok();
        let agents = agents_of(viewer.pid());
        let agent = agents.iter().find(|it| {
            let status = fs::read_to_string(format!("/proc/{it}/status")).unwrap_or_default();
            files(**it) == files(pid) && status.contains(&format!("Uid:\t{owner}\t{owner}\t"))
        });
        let &agent = agent.unwrap_or_else(|| panic!("none of {agents:?} has become uid {owner}"));
        let status = fs::read_to_string(format!("/proc/{agent}/status")).expect("it runs");
        for line in [
            format!("Gid:\t{owner}\t{owner}\t{owner}\t{owner}"),
            "Groups:\t ".to_owned(),
            "CapInh:\t0000000000000000".to_owned(),
            "CapPrm:\t0000000000000000".to_owned(),
            "CapEff:\t0000000000000000".to_owned(),
            "CapAmb:\t0000000000000000".to_owned(),
            "NoNewPrivs:\t1".to_owned(),
        ] {
            assert!(status.lines().any(|it| it == line), "{line}\n{status}");
        }
        // The agent's executable is the viewer's own: the watched user must not be able to read it.
        let mut theirs = as_user(USER, "cat");
        theirs.arg(format!("/proc/{agent}/exe"));
        assert!(!works(&mut theirs), "{theirs:?}");
        viewer.kill();
        wait_for("the agent to end", || !os::runs(agent));
    }
}

/// Root's screen, which watches the processes selected by these arguments.
fn watch<'a>(machine: &'a Machine, which: &str) -> Screen<'a> {
    let screen = machine.place.screen(120, 30);
    let viewer = pfp_top().display();
    let clear = "env -u PFP_DIR -u XDG_RUNTIME_DIR";
    screen.line(&format!("{clear} {viewer} {which} -i 0.2 --sort name"));
    screen.wait_for("figures", |text| row(text, "tick").is_some());
    screen
}

#[test]
fn switches_in_another_room_are_restored_when_the_viewer_is_killed() {
    needs_a_screen!();
    let Some(machine) = Machine::new("killed") else { return };
    let user = machine.of_user();
    let container = machine.in_container(true);
    let pids = [Some(user.pid()), container.as_ref().map(|(_, pid)| *pid)];
    for pid in pids.into_iter().flatten() {
        machine.row(pid);
        let screen = watch(&machine, &format!("-p {pid}"));
        let viewer = screen.viewer();
        let agents = [agents_of(viewer), children(viewer)].concat();
        assert!(!agents.is_empty());
        screen.select("tick");
        screen.keys(&["e"]);
        wait_for("it to be off", || machine.state(pid, "tick") == PointState::Off);
        os::signal(viewer, libc::SIGKILL);
        wait_for("it to be put back", || machine.state(pid, "tick") == PointState::On);
        wait_for("the agents to end", || !agents.iter().any(|agent| os::runs(*agent)));
    }
}

/// The user who owns a process may stop its agent, which runs as that user.
#[test]
fn an_agent_stopped_by_its_user_blocks_no_other() {
    needs_a_screen!();
    let Some(machine) = Machine::new("stopped") else { return };
    let user = machine.of_user();
    let Some((_container, inside)) = machine.in_container(true) else { return };
    machine.row(user.pid());
    machine.row(inside);
    let screen = watch(&machine, &format!("--all --name {} --filter tick", machine.name));
    let counts = |text: &str| -> Vec<(u32, String)> {
        let lines = text.lines().filter(|line| line.contains("] tick"));
        let pid = |line: &str| line.split_once('[')?.1.split_once(']')?.0.parse().ok();
        lines.filter_map(|line| Some((pid(line)?, line.to_owned()))).collect()
    };
    screen.wait_for("both", |text| counts(text).len() == 2);
    let is_theirs = |agent: &u32| {
        let status = fs::read_to_string(format!("/proc/{agent}/status")).unwrap_or_default();
        status.contains(&format!("Uid:\t{USER}\t"))
    };
    let agents: Vec<u32> = agents_of(screen.viewer()).into_iter().filter(is_theirs).collect();
    agents.iter().for_each(|agent| os::signal(*agent, libc::SIGSTOP));
    let head = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    let text = screen.wait_for("that it is late", |text| head(text).contains("LATE"));
    let of_container = |text: &str| counts(text).into_iter().find(|(pid, _)| *pid != user.pid());
    let before = of_container(&text);
    screen.wait_for("the other's figures, and who is late", |text| {
        let is_named = |line: &str| line.contains("nobody LATE");
        let now = of_container(text);
        text.lines().any(is_named) && now.is_some() && now != before
    });
    agents.iter().for_each(|agent| os::signal(*agent, libc::SIGCONT));
    screen.wait_for("that it speaks", |text| {
        head(text).ends_with("LIVE") && text.contains("all places answer")
    });
    // The agents of processes beside this test may have ended.
    assert!(agents.iter().any(|agent| os::runs(*agent)));
}

#[test]
fn an_agent_of_another_room_that_ended_is_started_again() {
    needs_a_screen!();
    let Some(machine) = Machine::new("again") else { return };
    // The agent enters the namespaces of the first process, which ends below. So the next agent has
    // to enter the namespaces of the other process.
    let mut all = vec![machine.of_user(), machine.of_user()];
    all.sort_by_key(Target::pid);
    let pid = all[1].pid();
    all.iter().for_each(|target| drop(machine.row(target.pid())));
    let screen = watch(&machine, &format!("-p {pid}"));
    let viewer = screen.viewer();
    // One of these agents is this test's; the others read processes beside this test.
    let agents = agents_of(viewer);
    all.remove(0);
    agents.iter().for_each(|agent| os::signal(*agent, libc::SIGKILL));
    let head = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    screen.wait_for("that it is lost", |text| head(text).contains("LATE"));
    let text = screen.wait_for("the next agent", |text| head(text).ends_with("LIVE"));
    let count = |text: &str| row(text, "tick").map(|row| row.count().to_owned());
    let before = count(&text);
    screen.wait_for("figures to go on", |text| {
        head(text).ends_with("LIVE") && count(text).is_some() && count(text) != before
    });
    assert!(agents_of(viewer).iter().any(|it| !agents.contains(it)));
}

#[test]
fn root_follows_no_links_that_a_user_planted() {
    let Some(machine) = Machine::new("planted") else { return };
    let user = machine.of_user();
    machine.row(user.pid());
    let secret = machine.place.path("secret");
    fs::write(&secret, "pfp-beacon 1\n").expect("the folder is new");
    let beacons = machine.folder.join("run/pfp");
    let before = fs::read_dir(&beacons).expect("it was announced").count();
    let script = format!(
        "cd {}; for i in 1 2 3; do ln -s {} $(printf %032d $i).beacon; done; ln -s /etc up",
        beacons.display(),
        secret.display()
    );
    assert!(works(as_user(USER, "sh").args(["-c", &script])), "{script}");
    let list = machine.by_root(&["list"]);
    assert!(said(&list).contains(&machine.name), "{}", said(&list));
    assert_eq!(machine.state(user.pid(), "tick"), PointState::On);
    pfp_tests::well(&machine.by_root(&["gc"]));
    assert_eq!(fs::read_to_string(&secret).expect("it is there"), "pfp-beacon 1\n");
    assert_eq!(fs::read_dir(&beacons).expect("it is there").count(), before + 4);
}

#[test]
fn other_users_see_how_many_processes_are_hidden() {
    let Some(machine) = Machine::new("unseen") else { return };
    let user = machine.of_user();
    machine.row(user.pid());
    let list = machine.by_stranger(&["list"]);
    let text = said(&list);
    assert_eq!(list.status.code(), Some(3), "{text}");
    assert!(text.contains("of other users cannot be seen here: `sudo pfp-top`"), "{text}");
    let watched = machine.by_stranger(&["--once", "-p", &user.pid().to_string()]);
    let text = said(&watched);
    assert_eq!(watched.status.code(), Some(4), "{text}");
    assert!(text.contains("sudo pfp-top -p"), "{text}");
}

/// The segment of a crashed process has no process, so it is not counted.
#[test]
fn segments_without_a_process_are_not_counted_among_the_unseen() {
    let Some(machine) = Machine::new("counted") else { return };
    if lacks_namespaces("segments of a machine of its own", &CONTAINER) {
        return;
    }
    // Two processes of one user, and one of another; each has created its segment before the next
    // line runs. One of the first two crashes.
    let script = format!(
        "mount -t tmpfs none /dev/shm && mount -t tmpfs none /tmp && chmod 1777 /dev/shm /tmp || exit\n\
         mkfifo /tmp/input && exec 3<>/tmp/input\n\
         start() {{\n\
           before=$(ls /dev/shm | wc -l)\n\
           setpriv --reuid $1 --regid $1 --clear-groups {steady} $2 <&3 &\n\
           while [ $(ls /dev/shm | grep -c ^pfp-) -le $before ]; do sleep 0.05; done\n\
         }}\n\
         list() {{\n\
           setpriv --reuid {STRANGER} --regid {STRANGER} --clear-groups {viewer} list\n\
         }}\n\
         start {USER} one; start {OWNER} three; start {USER} two\n\
         list; kill -KILL $!; wait $!; list",
        steady = machine.path("steady"),
        viewer = machine.path("pfp-top"),
    );
    let mut command = Command::new("unshare");
    let output = clear(&mut command).args(CONTAINER).args(["sh", "-c", &script]).output();
    let text = said(&output.expect("unshare starts"));
    let seen = |n: &str| format!("{n} segments of other users cannot be seen here");
    assert!(text.contains(&seen("3")) && text.contains(&seen("2")), "{text}");
}

/// The file at the path of a loaded library may have been replaced, even by a named pipe.
#[test]
fn doctor_waits_for_no_pipe_at_the_path_of_a_library() {
    let place = Place::new();
    let program = place.path("pfp-sleep");
    os::copy_program("/bin/sleep", &program);
    let sleeper = Target::start(Command::new(&program).arg("600"));
    fs::remove_file(&program).expect("it is there");
    let path = std::ffi::CString::new(program.as_os_str().as_encoded_bytes()).expect("no zero");
    // SAFETY: the path is NUL-terminated and outlives the call.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    let mut doctor = place.command(pfp_top());
    doctor.args(["doctor", &sleeper.pid().to_string()]).stdout(std::process::Stdio::null());
    let mut doctor = end_with_test(&mut doctor).spawn().expect("pfp-top starts");
    let status = wait_for("its end", || doctor.try_wait().expect("it is ours"));
    assert_eq!(status.code(), Some(1));
}

#[test]
fn doctor_says_why_a_process_cannot_be_watched() {
    let Some(machine) = Machine::new("doctor") else { return };
    let check = |output: &Output, code: i32, words: &[&str]| {
        let text = said(output);
        assert_eq!(output.status.code(), Some(code), "{text}");
        for word in words {
            assert!(text.contains(word), "{word:?} is not in: {text}");
        }
    };
    let user = machine.of_user();
    machine.row(user.pid());
    let user = user.pid().to_string();
    check(&machine.by_root(&["doctor", &user]), 0, &["as another user", "65534", &machine.name]);
    let words = ["belongs to uid 65534", &format!("sudo pfp-top doctor {user}")];
    check(&machine.by_stranger(&["doctor", &user]), 1, &words);

    let plain = Target::start(Command::new("sleep").arg("600"));
    check(&machine.by_root(&["doctor", &plain.pid().to_string()]), 1, &["not instrumented"]);

    let named = machine.place.start_watched(STEADY, &["named"]);
    let pid = named.pid().to_string();
    check(&machine.place.pfp_top(&["doctor", &pid]), 0, &["it is instrumented"]);
    check(&machine.by_root(&["doctor", &pid]), 1, &["it was started with PFP_DIR="]);

    if lacks_namespaces("a /dev/shm that is read-only", &["--mount"]) {
        return;
    }
    let mut command = Command::new("unshare");
    let read_only = "mount -t tmpfs -o ro none /dev/shm && mount -t tmpfs none /tmp && exec \"$@\"";
    command.args(["--mount", "sh", "-c", read_only, "sh"]);
    let blocked = machine.start(command);
    let pid = blocked.pid().to_string();
    wait_for("its complaint", || {
        let text = said(&machine.by_root(&["doctor", &pid]));
        text.contains("no segment in /dev/shm").then_some(())
    });
    check(&machine.by_root(&["doctor", &pid]), 1, &["could not measure", "Read-only file system"]);

    check(&machine.by_root(&["doctor", "4194305"]), 1, &["there is no process 4194305"]);
    check(&machine.by_root(&["doctor", "clock"]), 2, &["expected clocks, or a process id"]);
}

impl Machine {
    /// A separate root folder with the program, the viewer and their libraries. No file system is
    /// mounted in it.
    fn root(&self, name: &str) -> PathBuf {
        let root = self.folder.join(name);
        for folder in ["dev/shm", "tmp", "proc", "usr/bin"] {
            fs::create_dir_all(root.join(folder)).expect("there is room");
        }
        for folder in ["dev/shm", "tmp"] {
            let mode = Permissions::from_mode(0o1777);
            fs::set_permissions(root.join(folder), mode).expect("it was just made");
        }
        for (program, called) in [(Path::new(STEADY), "steady"), (pfp_top(), "pfp-top")] {
            os::copy_program(program, &root.join("usr/bin").join(called));
            let libraries = Command::new("ldd").arg(program).output().expect("ldd starts");
            let text = String::from_utf8_lossy(&libraries.stdout).into_owned();
            for library in text.split_whitespace().filter(|word| word.starts_with('/')) {
                let to = root.join(&library[1..]);
                fs::create_dir_all(to.parent().expect("it is in a folder")).expect("there is room");
                // A link is replaced by the file that it points to.
                fs::copy(library, to).expect("there is room");
            }
        }
        root
    }
}

/// Asserts that `doctor` reports that a process can be watched, and names its place.
#[track_caller]
fn can_be_watched(machine: &Machine, pid: u32, place: &str) {
    let output = machine.by_root(&["doctor", &pid.to_string()]);
    let text = said(&output);
    assert!(output.status.success() && text.contains("runs and can be watched"), "{output:?}");
    assert!(text.contains(&format!("in a container: {place}")), "{text}");
}

#[test]
fn root_watches_processes_with_another_root_folder() {
    let Some(machine) = Machine::new("chroot") else { return };
    if lacks("processes with another root", "chroot") || lacks("their libraries", "ldd") {
        return;
    }
    let roots = ["one", "two"].map(|name| machine.root(&format!("{}-{name}", machine.name)));
    let targets = roots.each_ref().map(|root| {
        let mut command = Command::new("chroot");
        Target::start(clear(&mut command).arg(root).args(["/usr/bin/steady", &machine.name]))
    });
    for (root, target) in roots.iter().zip(&targets) {
        let place = root.file_name().expect("it has one").to_string_lossy();
        let (row, pid) = (machine.row(target.pid()), target.pid().to_string());
        assert!(row.contains(&format!("{}@{place}", machine.name)), "{row}");
        wait_for("figures", || has_counted(&machine.snapshot(&["-p", &pid]), "tick", 3));
        let output = machine.by_root(&["disable", "-p", &pid, "tick"]);
        pfp_tests::well(&output);
        assert_eq!(machine.state(target.pid(), "tick"), PointState::Off, "{row}");
        can_be_watched(&machine, target.pid(), &place);
    }
    let sum = machine.snapshot(&["--all", "--sum", "--name", &machine.name]);
    assert_eq!(sum.process.members.len(), 2, "{:?}", sum.process.members);
}

/// A podman container, which is removed with the test.
struct Podman<'a>(&'a str);

impl Podman<'_> {
    /// The first words of podman's commands, which use as few features as possible.
    const ALL: [&'static str; 3] = ["podman", "--runtime", "runc"];
}

impl Drop for Podman<'_> {
    fn drop(&mut self) {
        let mut command = Command::new(Self::ALL[0]);
        let _ = command.args(&Self::ALL[1..]).args(["rm", "--force", "--time=0", self.0]).output();
    }
}

#[test]
fn root_watches_a_container_of_podman_from_outside_and_by_a_command() {
    let Some(machine) = Machine::new("podman") else { return };
    let [podman, with @ ..] = Podman::ALL;
    if !works(Command::new(podman).args(with).arg("version")) {
        return skipped("a container of podman", "there is no podman with runc");
    }
    let (root, container) = (machine.root("root"), Podman(&machine.name));
    let run = |more: &[&str]| {
        let mut command = Command::new(podman);
        command.args(with).args(["--cgroup-manager=cgroupfs", "run", "--interactive"]);
        command.args(["--network=none", "--ulimit=nofile=1024:1024", "--ulimit=nproc=512:512"]);
        command.args(["--name", &machine.name]).args(more);
        command
    };
    let tried = run(&["--rm", "--rootfs"]).arg(&root).args(["/usr/bin/pfp-top", "-V"]).output();
    let tried = tried.expect("podman starts");
    if !tried.status.success() {
        return skipped("a container of podman", &said(&tried));
    }
    let mut command = run(&["--rootfs"]);
    command.arg(&root).args(["/usr/bin/steady", &machine.name]);
    let _target = Target::start(clear(&mut command));
    let named = format!("{}@", machine.name);
    let row = wait_for("the process to be listed", || {
        let list = said(&machine.by_root(&["list"]));
        list.lines().find(|row| row.contains(&named)).map(str::to_owned)
    });
    let pid: u32 = row.split_whitespace().nth(1).and_then(|it| it.parse().ok()).expect("an id");
    // The viewer shows podman's own short id.
    let id = Command::new(podman)
        .args(with)
        .args(["inspect", "--format", "{{.Id}}", container.0])
        .output()
        .expect("podman starts");
    let short = String::from_utf8_lossy(&id.stdout).chars().take(12).collect::<String>();
    assert!(row.contains(&format!("{named}{short}")), "{row} {short}");
    wait_for("figures", || has_counted(&machine.snapshot(&["-p", &pid.to_string()]), "tick", 3));
    can_be_watched(&machine, pid, &short);

    let via = format!("{} exec --interactive {}", Podman::ALL.join(" "), container.0);
    let output = machine.by_root(&["list", "--via", &via]);
    let text = said(&output);
    assert!(output.status.success() && text.contains(&machine.name), "{output:?}");
    let output = machine.by_root(&["disable", "--via", &via, "tick"]);
    pfp_tests::well(&output);
    assert_eq!(machine.state(pid, "tick"), PointState::Off);
}
