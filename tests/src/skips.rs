//! Skipped tests of a whole run, which its last test binary sums up in one line.
//!
//! ```text
//! cargo test --+-- engine --- a skip ---> target/tmp/skipped/PID-START
//!              +-- viewer --- a skip --->       |  (of cargo)
//!              +-- the last one  <--------------+
//! ```
//!
//! All test binaries of a run are children of one cargo process, so a record is named after that
//! process's id and start time. If cargo is configured with a runner, each binary is a child of a
//! runner of its own, and skips are not summed up. Records of runs that are over are removed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

/// The first words of commands that install a tool; any other remedy is advice for a person.
const COMMANDS: [&str; 3] = ["apt-get ", "python3 ", "cargo "];
const PACKAGES: &str = "apt-get install ";

/// Adds a skip to the record of this run.
pub(crate) fn record(why: &str, remedy: &str) {
    let binary = std::env::args().next().unwrap_or_default();
    let test = std::thread::current().name().unwrap_or("?").to_owned();
    let line = [binary, test, why.to_owned(), remedy.to_owned()]
        .map(|field| field.replace(['\t', '\n'], " "))
        .join("\t");
    let Some(file) = file_of(std::os::unix::process::parent_id()) else { return };
    // If the record cannot be written, the last line lacks this skip. The skip itself was printed.
    let _ = add(&file, &line);
}

fn add(file: &PathBuf, line: &str) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    // The line is written in one call, since tests of a run add lines at the same time.
    File::options().append(true).create(true).open(file)?.write_all(format!("{line}\n").as_bytes())
}

/// One line about the skips of this process' run.
#[must_use]
pub fn summary() -> String {
    remove_old();
    taken(std::os::unix::process::parent_id())
}

/// One line about the skips in children of a process. Removes their record.
pub(crate) fn taken(run: u32) -> String {
    let file = file_of(run);
    let records = file.as_ref().and_then(|file| fs::read_to_string(file).ok());
    let _ = file.map(fs::remove_file);
    text(&records.unwrap_or_default())
}

/// The record of the children of a running process.
fn file_of(run: u32) -> Option<PathBuf> {
    Some(folder()?.join(format!("{run}-{}", started(run)?)))
}

/// The folder of the records, in the `target` folder of this binary.
fn folder() -> Option<PathBuf> {
    let binary = std::env::current_exe().ok()?;
    Some(binary.ancestors().nth(3)?.join("tmp/skipped"))
}

/// Start time of a running process, in the kernel's units.
fn started(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The fields are counted after the name, which may contain anything: the state is field 3, the
    // start time field 22.
    stat.rsplit_once(')')?.1.split_whitespace().nth(22 - 3)?.parse().ok()
}

/// Removes the records of runs that are over.
fn remove_old() {
    for entry in folder().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten() {
        let Ok(entry) = entry else { continue };
        let name = entry.file_name().to_string_lossy().into_owned();
        let run = name.split_once('-').and_then(|(run, _)| run.parse().ok());
        if run.and_then(file_of) != Some(entry.path()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The summary line of these records.
fn text(records: &str) -> String {
    let mut tests = BTreeSet::new();
    let mut reasons: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
    let (mut packages, mut commands) = (BTreeSet::new(), BTreeSet::new());
    for line in records.lines() {
        let [binary, test, why, remedy] = line.split('\t').collect::<Vec<_>>()[..] else {
            continue;
        };
        tests.insert((binary, test));
        let package = remedy.strip_prefix(PACKAGES);
        reasons.entry(package.unwrap_or(why)).or_default().insert((binary, test));
        match package {
            Some(package) => packages.extend(package.split(' ')),
            None if COMMANDS.iter().any(|command| remedy.starts_with(command)) => {
                // Debian has a separate package for the module that this command starts.
                packages.extend(remedy.starts_with("python3 -m venv").then_some("python3-venv"));
                commands.insert(remedy.to_owned());
            }
            None => {}
        }
    }
    if tests.is_empty() {
        return "no skipped test was recorded".into();
    }
    let mut reasons: Vec<_> = reasons.into_iter().map(|(why, tests)| (tests.len(), why)).collect();
    reasons.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
    let reasons: Vec<_> = reasons.iter().map(|(tests, why)| format!("{why} ({tests})")).collect();
    let packages: Vec<&str> = packages.into_iter().collect();
    let install = (!packages.is_empty()).then(|| format!("{PACKAGES}{}", packages.join(" ")));
    let all: Vec<String> = install.into_iter().chain(commands).collect();
    let n = tests.len();
    let what = if n == 1 { "1 test was" } else { &format!("{n} tests were") };
    let said = format!("{what} skipped, or tested less: {}", reasons.join(", "));
    match all.as_slice() {
        [] => said,
        all => format!("{said}; this installs what is missing: {}", all.join(" && ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_summed_up_in_one_line_with_one_command() {
        assert_eq!(text(""), "no skipped test was recorded");
        let records = "viewer\ta\ttmux is not installed\tapt-get install tmux\n\
                       viewer\tb\ttmux is not installed\tapt-get install tmux\n\
                       viewer\tb\ttmux is not installed\tapt-get install tmux\n\
                       engine\ta\tvalgrind is not installed\tapt-get install valgrind\n\
                       files\tc\tthere are no readers\tpython3 -m venv x && x/bin/pip install y\n\
                       engine\td\tnot root\t\n\
                       engine\te\tit lets nobody in\tstart it by hand\n";
        assert_eq!(
            text(records),
            "6 tests were skipped, or tested less: tmux (2), it lets nobody in (1), not root (1), \
             there are no readers (1), valgrind (1); this installs what is missing: apt-get \
             install python3-venv tmux valgrind && python3 -m venv x && x/bin/pip install y"
        );
        let one = "engine\td\tnot root\t\n";
        assert_eq!(text(one), "1 test was skipped, or tested less: not root (1)");
    }

    #[test]
    fn records_of_runs_that_are_over_are_not_counted() {
        let folder = folder().expect("a binary below target");
        fs::create_dir_all(&folder).expect("there is room");
        let over = folder.join(format!("{}-0", std::process::id()));
        add(&over, "engine\ta\tnot root\t").expect("there is room");
        // Process 1 runs as long as the machine does.
        let own = file_of(1).expect("there is a process 1");
        add(&own, "engine\ta\tnot root\t").expect("there is room");
        remove_old();
        assert_eq!((over.exists(), own.exists()), (false, true));
        fs::remove_file(own).expect("only this process removes it");
    }
}
