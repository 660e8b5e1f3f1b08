//! Reads the users and namespaces of processes from `/proc`, and finds the ids that processes of
//! other pid namespaces have in ours.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::str::SplitAsciiWhitespace;

/// A pid namespace, by its inode, and an id in it.
pub(super) type NamespacedPid = (u64, u32);

/// The ids in our /proc of running processes that have other ids in their own pid namespace.
/// Processes whose namespace is unknown or that /proc does not show are left out.
pub(super) fn ids_here(wanted: impl Iterator<Item = NamespacedPid>) -> HashMap<NamespacedPid, u32> {
    let own = namespace_of("self", "pid");
    let wanted: Vec<_> = wanted.filter(|(space, _)| *space != 0 && Some(*space) != own).collect();
    let mut found = HashMap::new();
    if wanted.is_empty() {
        return found;
    }
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let status = fs::read_to_string(process.path().join("status")).unwrap_or_default();
        let Some(inside) = id_inside(&status) else { continue };
        if wanted.iter().any(|(_, pid)| *pid == inside)
            && let Some(space) = namespace_of(&pid.to_string(), "pid")
        {
            found.insert((space, inside), pid);
        }
    }
    found
}

/// Whether a pid namespace is this process's own. 0, an unknown namespace, counts as own.
pub fn is_own(space: u64) -> bool {
    space == 0 || Some(space) == namespace_of("self", "pid")
}

/// The inode of a process's namespace of this kind. `None` without the right to read it.
pub fn namespace_of(process: &str, kind: &str) -> Option<u64> {
    Some(fs::metadata(format!("/proc/{process}/ns/{kind}")).ok()?.ino())
}

/// The words that follow the prefix `line` in the first line of a status file that begins with that
/// prefix.
pub fn words_of<'a>(status: &'a str, line: &str) -> Option<SplitAsciiWhitespace<'a>> {
    Some(status.lines().find_map(|it| it.strip_prefix(line))?.split_ascii_whitespace())
}

/// The effective user of this process.
pub fn effective_user() -> u32 {
    // SAFETY: `geteuid` has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

/// A process's id in its own pid namespace, from the text of its status file. `None` if the process
/// is in the pid namespace of /proc.
pub fn id_inside(status: &str) -> Option<u32> {
    let mut ids = words_of(status, "NSpid:")?;
    ids.next()?;
    ids.next_back()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_id_counts() {
        assert_eq!(id_inside("Name:\tx\nNSpid:\t4711\t12\t1\nThreads:\t1\n"), Some(1));
        assert_eq!(id_inside("Name:\tx\nNSpid:\t4711\nThreads:\t1\n"), None);
        assert_eq!(id_inside("Name:\tx\n"), None);
    }
}
