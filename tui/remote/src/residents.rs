//! Finds instrumented processes of other users and in containers through `/proc`, and their rooms.
//! A room is a user within a file system: the processes in it see the same files with the same
//! rights.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Result, anyhow};

use pfp_read::source::Refusal;
use pfp_read::source::discovery::foreign;
use pfp_read::source::namespaces::{effective_user, id_inside, namespace_of, words_of};

/// Variables that determine where the programs of a room announce themselves.
pub(super) const VARIABLES: [&str; 2] = ["PFP_DIR", "XDG_RUNTIME_DIR"];
/// Number of digits in a container's short id.
const SHORT: usize = 12;

/// The identity of a room. Two processes with equal keys are in the same room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RoomKey {
    user: u32,
    files: FileSystem,
    /// Inodes of the user namespace and the pid namespace.
    spaces: [u64; 2],
    pub(super) variables: [Option<OsString>; 2],
}

/// A file system: the inode of the mount namespace, and the root within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileSystem {
    space: u64,
    root: (u64, u64),
}

/// A way into a room: the id of a process in it.
#[derive(Clone, Debug)]
pub(super) struct RoomEntrance {
    pub(super) key: RoomKey,
    /// A process that was in the room when the room was found.
    pub(super) pid: u32,
}

impl RoomEntrance {
    /// A process that is in the room now.
    ///
    /// # Errors
    ///
    /// If no process is left there.
    pub(super) fn resident(&self) -> Result<u32> {
        let is_there = |pid: u32| {
            let (user, files, status) = room_of(pid)?;
            let (key, _) = resident(pid, user, files, &status)?;
            Some(key == self.key)
        };
        if is_there(self.pid) == Some(true) {
            return Ok(self.pid);
        }
        let mut all = residents().into_iter();
        let found = all.find_map(|(key, resident)| (key == self.key).then_some(resident.pid));
        found.ok_or_else(|| {
            anyhow!("expected an instrumented process to enter by, found that they have ended")
        })
    }
}

/// An instrumented process of another room.
pub(super) struct Resident {
    pub(super) pid: u32,
    /// The id of the process in its own pid namespace.
    pub(super) inside: u32,
}

/// The instrumented processes that this process may inspect, and that belong to another user or see
/// another file system: the processes of other rooms.
pub(super) fn residents() -> Vec<(RoomKey, Resident)> {
    let own = own_room();
    let mut all = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some((user, files, status)) = room_of(pid)
            && (user, Some(files)) != own
            && !segments_of(pid).is_empty()
        {
            all.extend(resident(pid, user, files, &status));
        }
    }
    all
}

/// The user and the file system of this process.
fn own_room() -> (u32, Option<FileSystem>) {
    (effective_user(), FileSystem::of("self"))
}

/// The user, the file system and the text of the status file of a process. `None` without the right
/// to inspect it.
fn room_of(pid: u32) -> Option<(u32, FileSystem, String)> {
    let files = FileSystem::of(&pid.to_string())?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some((user_of(&status)?, files, status))
}

fn resident(pid: u32, user: u32, files: FileSystem, status: &str) -> Option<(RoomKey, Resident)> {
    let space = |kind: &str| namespace_of(&pid.to_string(), kind);
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let variables = VARIABLES.map(|name| variable_of(&environment, name));
    let key = RoomKey { user, files, spaces: [space("user")?, space("pid")?], variables };
    Some((key, Resident { pid, inside: id_inside(status).unwrap_or(pid) }))
}

/// The room of a process, and related facts.
#[derive(Debug)]
pub struct Whereabouts {
    /// The name of its room. `None` for this room.
    pub room: Option<String>,
    /// The id of the process in its own pid namespace.
    pub inside: u32,
    /// Ids of the segments that the process has mapped; empty if the process is not instrumented.
    pub segments: Vec<String>,
    /// The process's variables that determine where it announces itself.
    pub variables: Vec<(&'static str, Option<OsString>)>,
}

/// Finds the room of this process.
///
/// # Errors
///
/// If the process does not exist, or this user may not inspect it.
pub fn whereabouts(pid: u32) -> Result<Whereabouts, Refusal> {
    let refused = || {
        foreign(pid).unwrap_or_else(|| {
            Refusal::Permission(format!(
                "no permission to inspect process {pid}: it has more privileges, has changed its \
                 user, or is not dumpable (PR_SET_DUMPABLE)"
            ))
        })
    };
    let (user, files, status) = room_of(pid).ok_or_else(refused)?;
    let is_own = (user, Some(files)) == own_room();
    let (key, resident) = resident(pid, user, files, &status).ok_or_else(refused)?;
    Ok(Whereabouts {
        room: (!is_own).then(|| key.name(pid)),
        inside: resident.inside,
        segments: segments_of(pid),
        variables: VARIABLES.into_iter().zip(key.variables).collect(),
    })
}

impl FileSystem {
    /// The file system of a process. `None` without the right to read it.
    pub(super) fn of(process: &str) -> Option<Self> {
        let space = namespace_of(process, "mnt")?;
        let root = fs::metadata(format!("/proc/{process}/root")).ok()?;
        Some(Self { space, root: (root.dev(), root.ino()) })
    }
}

impl RoomKey {
    /// The name of a room: its user, its container, or both.
    pub(super) fn name(&self, pid: u32) -> String {
        if FileSystem::of("self") == Some(self.files) {
            return user_name(self.user);
        }
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        // A container has users of its own.
        let user = |of_container: bool| match self.user {
            0 => String::new(),
            user if of_container => format!("uid{user}."),
            user => format!("{}.", user_name(user)),
        };
        match container_of(&groups) {
            Some(container) => user(true) + &container,
            None => user(false) + &self.place(pid),
        }
    }

    /// The name of a room that is not in a container: the name of the folder that is its root or,
    /// in another mount namespace, the namespace's number.
    fn place(&self, pid: u32) -> String {
        let is_here = FileSystem::of("self").is_some_and(|own| own.space == self.files.space);
        let root = fs::read_link(format!("/proc/{pid}/root")).ok().filter(|_| is_here);
        let name = root.as_deref().and_then(Path::file_name);
        let name = name.map(|name| name.to_string_lossy().into_owned());
        name.unwrap_or_else(|| format!("mnt{}", self.files.space))
    }
}

/// Ids of the segments that a process has mapped.
fn segments_of(pid: u32) -> Vec<String> {
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let id = |line: &[u8]| {
        let name = line.rsplit(|byte| *byte == b'/').next()?;
        let digits = name.strip_prefix(b"pfp-")?.get(..32)?;
        let is_id = digits.iter().all(u8::is_ascii_hexdigit);
        is_id.then(|| String::from_utf8_lossy(digits).into_owned())
    };
    let mut ids: Vec<String> = maps.split(|byte| *byte == b'\n').filter_map(id).collect();
    ids.dedup();
    ids
}

/// The effective user of a process, from the text of its status file.
pub(super) fn user_of(status: &str) -> Option<u32> {
    words_of(status, "Uid:")?.nth(1)?.parse().ok()
}

fn variable_of(environment: &[u8], name: &str) -> Option<OsString> {
    let mut all = environment.split(|byte| *byte == 0);
    let value = all.find_map(|it| it.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    Some(OsString::from_vec(value.to_vec()))
}

/// The short id of a container, from the control groups of one of its processes: Docker, podman and
/// Kubernetes put the container's id there, 64 hex digits.
fn container_of(groups: &str) -> Option<String> {
    let mut words = groups.split(|letter: char| !letter.is_ascii_alphanumeric());
    let is_id = |word: &&str| word.len() == 64 && word.bytes().all(|it| it.is_ascii_hexdigit());
    Some(words.rfind(is_id)?[..SHORT].to_owned())
}

fn user_name(user: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(user)).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| format!("uid{user}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_called_by_its_control_group() {
        let id = "3f2a91c0b7de".to_owned() + &"0".repeat(52);
        for groups in [
            format!("0::/system.slice/docker-{id}.scope\n"),
            format!("12:memory:/docker/{id}\n1:name=systemd:/docker/{id}\n"),
            format!("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope\n"),
            format!("0::/user.slice/libpod-{id}.scope/container\n"),
        ] {
            assert_eq!(container_of(&groups).as_deref(), Some("3f2a91c0b7de"), "{groups}");
        }
        assert_eq!(container_of("0::/user.slice/session-1.scope\n"), None);
    }

    #[test]
    fn user_and_environment_in_proc_are_parsed() {
        assert_eq!(user_of("Name:\tx\nUid:\t0\t33\t0\t33\nGid:\t1\t1\t1\t1\n"), Some(33));
        assert_eq!(user_of("Name:\tx\n"), None);
        let environment = b"A=1\0PFP_DIR=/run/x=y\0XPFP_DIR=2\0";
        assert_eq!(variable_of(environment, "PFP_DIR"), Some("/run/x=y".into()));
        assert_eq!(variable_of(environment, "DIR"), None);
        assert_eq!(user_name(0), "root");
        assert_eq!(user_name(u32::MAX - 7), format!("uid{}", u32::MAX - 7));
        assert!(segments_of(std::process::id()).is_empty());
    }
}
