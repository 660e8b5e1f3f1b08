//! The system's description of the processor.

use std::fs;
use std::path::Path;

/// A cache of a thread, its own or shared with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cache {
    /// Level of the cache; 1 is the nearest.
    pub(super) level: u32,
    /// Size, bytes.
    pub(super) size: u64,
    /// Number of processors that share it.
    pub(super) sharers: usize,
}

/// The name of the processor.
pub(super) fn cpu() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        matches!(key.trim(), "model name" | "Model").then(|| value.trim().to_owned())
    });
    name.unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// The data caches, the nearest first; typical values if the system does not report them.
pub(super) fn caches() -> Vec<Cache> {
    let found = caches_in(Path::new("/sys/devices/system/cpu/cpu0/cache"));
    if !found.is_empty() {
        return found;
    }
    let cache = |level, kib: u64| Cache { level, size: kib << 10, sharers: 1 };
    vec![cache(1, 32), cache(2, 512), cache(3, 8 << 10)]
}

fn caches_in(folder: &Path) -> Vec<Cache> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut caches: Vec<Cache> = entries
        .filter_map(|entry| {
            let folder = entry.ok()?.path();
            let read =
                |name: &str| Some(fs::read_to_string(folder.join(name)).ok()?.trim().to_owned());
            if read("type")? == "Instruction" {
                return None;
            }
            let sharers = read("shared_cpu_list").and_then(|list| count(&list)).unwrap_or(1);
            Some(Cache {
                level: read("level")?.parse().ok()?,
                size: bytes(&read("size")?)?,
                sharers,
            })
        })
        .filter(|cache| cache.size > 0)
        .collect();
    caches.sort_by_key(|cache| cache.level);
    caches
}

/// Parses a size such as `32K` as bytes.
fn bytes(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let shift = match unit {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// The number of processors in a list such as `0-3,8`.
fn count(list: &str) -> Option<usize> {
    list.split(',')
        .map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            Some(last.checked_sub(first)? + 1)
        })
        .sum()
}

/// Bytes of available memory.
pub(super) fn available() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(1 << 20) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_in_sysfs_are_parsed() {
        assert_eq!(
            [bytes("32K"), bytes("1M"), bytes("512"), bytes("1X")],
            [Some(32 << 10), Some(1 << 20), Some(512), None]
        );
        assert_eq!(
            [count("0"), count("0-3,8"), count("3-1"), count("")],
            [Some(1), Some(5), None, None]
        );
        let folder = tempfile::tempdir().unwrap();
        for (index, level, kind, size) in [
            (0, 1, "Data", "32K"),
            (1, 1, "Instruction", "32K"),
            (3, 3, "Unified", "16M"),
            (2, 2, "Unified", "1M"),
        ] {
            let entry = folder.path().join(format!("index{index}"));
            fs::create_dir(&entry).unwrap();
            let level = level.to_string();
            for (name, text) in [
                ("level", level.as_str()),
                ("type", kind),
                ("size", size),
                ("shared_cpu_list", "0-1"),
            ] {
                fs::write(entry.join(name), format!("{text}\n")).unwrap();
            }
        }
        let found = caches_in(folder.path());
        let cache = |level, size| Cache { level, size, sharers: 2 };
        assert_eq!(found, [cache(1, 32 << 10), cache(2, 1 << 20), cache(3, 16 << 20)]);
    }
}
