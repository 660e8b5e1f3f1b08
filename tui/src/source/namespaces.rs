//! What a process in a pid namespace of its own is called here.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// A pid namespace, by its inode, and an id in it.
pub(super) type Inside = (u64, u32);

/// The ids that /proc knows these running processes by, where they have others inside.
/// Those whose namespace cannot be asked for are left out, as are those that /proc does
/// not show.
pub(super) fn ids_here(wanted: impl Iterator<Item = Inside>) -> HashMap<Inside, u32> {
    let own = namespace_of("self");
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
            && let Some(space) = namespace_of(&pid.to_string())
        {
            found.insert((space, inside), pid);
        }
    }
    found
}

/// Whether ids in this pid namespace are those of our /proc; 0 is one that is not known.
pub(super) fn is_own(space: u64) -> bool {
    space == 0 || Some(space) == namespace_of("self")
}

/// The inode of a process's pid namespace.
fn namespace_of(process: &str) -> Option<u64> {
    Some(fs::metadata(format!("/proc/{process}/ns/pid")).ok()?.ino())
}

/// The id that a process has in its own namespace, by its status; none if that is the
/// one that /proc is of.
pub(super) fn id_inside(status: &str) -> Option<u32> {
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    let mut ids = ids.split_ascii_whitespace();
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
