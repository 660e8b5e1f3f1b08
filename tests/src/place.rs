//! A test's folder, which its targets and viewers share.

use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use pfp_read::files::json;
use pfp_read::snapshot::Snapshot;
use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::find::{self, Entry};
use pfp_shm_layout::header::Facts;
use pfp_shm_layout::object;
use pfp_shm_layout::segment::Segment;

use crate::os;
use crate::screen::Screen;
use crate::target::{Target, wait_for};

/// The viewer under test: `PFP_TOP`, or the one built with this test and found beside it.
pub fn pfp_top() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        if let Some(named) = std::env::var_os("PFP_TOP") {
            return named.into();
        }
        // The test's own path ends in TARGET/[TRIPLE/]PROFILE/deps/TEST.
        let test = std::env::current_exe().expect("a test knows its own path");
        test.ancestors().nth(2).expect("tests lie in PROFILE/deps").join("viewer")
    })
}

/// A folder of one test. It has a folder for beacons, the files by which viewers find the segments
/// of targets. Dropping it removes the folder and these segments.
#[derive(Debug)]
pub struct Place {
    folder: PathBuf,
    beacons: PathBuf,
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

impl Place {
    /// Creates a folder that only this user can access.
    ///
    /// A test process that was killed may have left a folder with the next name, since process ids
    /// are reused.
    #[must_use]
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Relaxed);
            let name = format!("pfp-test-{}-{number}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            match DirBuilder::new().mode(0o700).create(&folder) {
                Ok(()) => {
                    let beacons = folder.join("beacons");
                    DirBuilder::new().mode(0o700).create(&beacons).expect("the folder is new");
                    return Self { folder, beacons };
                }
                Err(why) if why.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(why) => panic!("{}: {why}", folder.display()),
            }
        }
    }

    /// The folder itself.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A path in the folder, outside the folder of beacons.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The folder of beacons.
    #[must_use]
    pub fn beacons(&self) -> &Path {
        &self.beacons
    }

    /// The names of the files in the folder of beacons.
    #[must_use]
    pub fn lit(&self) -> Vec<String> {
        let files = std::fs::read_dir(&self.beacons).expect("the folder of beacons");
        files.flatten().map(|file| file.file_name().to_string_lossy().into_owned()).collect()
    }

    /// The folder of beacons, as a `Directory`.
    #[must_use]
    pub fn directory(&self) -> Directory {
        Directory::open(&self.beacons).expect("the directory is as it was made")
    }

    /// The segments found here, the newest first.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        find::find(&self.directory()).expect("the directory can be read").entries
    }

    /// The segment of a process.
    #[must_use]
    pub fn entry(&self, pid: u32) -> Option<Entry> {
        self.entries().into_iter().find(|entry| entry.info.process.pid == pid)
    }

    /// Waits until a process can be watched. A lit beacon is not enough, since the segment is
    /// completed later.
    #[track_caller]
    #[must_use]
    pub fn segment(&self, pid: u32) -> (Segment, Facts) {
        wait_for("the segment to be found and complete", || {
            Segment::open(&self.entry(pid)?.info.object).ok()
        })
    }

    /// A command that uses this folder's beacons, without the tester's own settings.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("PFP_")) {
                command.env_remove(name);
            }
        }
        command.env_remove("NO_COLOR").env_remove("TMUX");
        command.env("PFP_DIR", &self.beacons).env("PFP_TOP_CONFIG", "").current_dir(&self.folder);
        // Assertions expect UTF-8 and untranslated text.
        command.env("LC_ALL", "C.UTF-8");
        os::hear_terminal(&mut command);
        command
    }

    /// Runs the viewer to its end, without a terminal.
    #[must_use]
    pub fn pfp_top(&self, arguments: &[&str]) -> Output {
        self.command(pfp_top()).args(arguments).output().expect("pfp-top starts")
    }

    /// Starts a program with its beacons here.
    #[must_use]
    pub fn start(&self, program: impl AsRef<OsStr>, arguments: &[&str]) -> Target {
        Target::start(self.command(program).args(arguments))
    }

    /// Starts a program with a variable in its environment.
    #[must_use]
    pub fn start_with(
        &self,
        program: impl AsRef<OsStr>,
        arguments: &[&str],
        name: &str,
        value: impl AsRef<OsStr>,
    ) -> Target {
        Target::start(self.command(program).args(arguments).env(name, value))
    }

    /// Starts a program and waits until it can be watched.
    #[track_caller]
    #[must_use]
    pub fn start_watched(&self, program: &str, arguments: &[&str]) -> Target {
        let target = self.start(program, arguments);
        let _ = self.segment(target.pid());
        target
    }

    /// Reads a target's figures independently of the screen: a second viewer writes a snapshot.
    #[track_caller]
    #[must_use]
    pub fn snapshot(&self, target: &Target) -> Snapshot {
        let file = self.path(&format!("oracle-{}.json", target.pid()));
        let (pid, path) = (target.pid().to_string(), file.to_str().expect("it is plain text"));
        let output = self.pfp_top(&["snapshot", "-p", &pid, "-o", path, "--force"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        json::read(&file).expect("what was written can be read")
    }

    /// Starts a shell in a terminal of this size.
    #[must_use]
    pub fn screen(&self, width: u16, height: u16) -> Screen<'_> {
        Screen::new(self, width, height)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Remove the objects of targets that have ended, and then those of targets that a failing
        // test leaves running.
        if let Ok(directory) = Directory::open(&self.beacons) {
            let _ = find::gc(&directory);
            for entry in find::find(&directory).map(|found| found.entries).unwrap_or_default() {
                let _ = object::unlink(&entry.info.object);
            }
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A path as text, for an argument.
#[track_caller]
pub fn text(path: &Path) -> &str {
    path.to_str().expect("it is plain text")
}

/// Number of measurements of all points with this name in a snapshot, by running and ended threads.
#[track_caller]
pub fn count(snapshot: &Snapshot, name: &str) -> u64 {
    let its = |id: u32| snapshot.points.iter().any(|it| it.id == id && it.name == name);
    assert!(snapshot.points.iter().any(|point| point.name == name), "no point {name}");
    let cells = snapshot.cells.iter().filter(|cell| its(cell.point));
    cells.map(|cell| cell.stats.count + cell.retired.count).sum()
}

/// Whether a point exists, and has more measurements than this.
#[must_use]
pub fn has_counted(snapshot: &Snapshot, name: &str, above: u64) -> bool {
    snapshot.points.iter().any(|point| point.name == name) && count(snapshot, name) > above
}
