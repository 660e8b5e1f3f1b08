//! Comments and pages name only files, names in code, tests and headings that exist.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Names from other projects, which this tree's code need not contain.
const OTHERS: [&str; 28] = [
    "a_k",
    "arch_prctl",
    "b_k",
    "dlmopen",
    "exclude_hv",
    "exclude_kernel",
    "histogram_count",
    "histogram_sum",
    "libgcc_s",
    "memcmp",
    "no_new_privs",
    "nohup",
    "pfp_alloc_bytes_total",
    "pfp_allocs_total",
    "pfp_exclusive_seconds",
    "pfp_freed_bytes_total",
    "pfp_inclusive_seconds",
    "pfp_off_cpu_seconds",
    "pfp_overhead_seconds",
    "pfp_wait_seconds",
    "pidfd_open",
    "remote_write",
    "setproctitle",
    "shm_open",
    "target_clones",
    "taskgroup",
    "_ns",
    "thread_local",
];
/// The prefixes of names in the headers of ITT and OpenMP.
const OTHERS_BEGIN: [&str; 2] = ["__itt_", "ompt_"];
/// Extensions of the files in this tree.
const ENDS: [&str; 10] = [".rs", ".md", ".c", ".h", ".cpp", ".hpp", ".py", ".toml", ".txt", ".yml"];

/// A file of the tree: its path from the root, and its text.
struct File {
    path: String,
    text: String,
}

/// All files of the tree, except what builds produce.
fn tree() -> (Vec<File>, BTreeSet<String>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the root");
    // CMake and Python mark the folders that they make. Cargo marks only a `target` that was not
    // there before.
    let is_made = |folder: &Path| {
        let made = [".git", "target"].iter().any(|name| folder.ends_with(name));
        let marks = ["CACHEDIR.TAG", "CMakeCache.txt", "pyvenv.cfg"];
        made || marks.iter().any(|mark| folder.join(mark).exists())
    };
    let (mut files, mut paths) = (Vec::new(), BTreeSet::new());
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).expect("it is a folder").flatten() {
            let path = folder.join(entry.file_name());
            let name = path.to_str().expect("names are UTF-8").to_owned();
            if is_made(&entry.path()) {
                continue;
            }
            if entry.path().is_dir() {
                folders.push(path);
            } else if let Ok(text) = fs::read_to_string(entry.path()) {
                files.push(File { path: name.clone(), text });
            }
            paths.insert(name);
        }
    }
    (files, paths)
}

impl File {
    fn ends_with(&self, end: &str) -> bool {
        self.path.ends_with(end)
    }

    /// The file's lines, each as its code and its comment. A page has only comments.
    fn lines(&self) -> impl Iterator<Item = (&str, &str)> {
        let is_page = self.ends_with(".md");
        let has_comments = [".rs", ".c", ".h", ".cpp"].iter().any(|end| self.ends_with(end));
        self.text.lines().map(move |line| {
            let start = line
                .match_indices("//")
                .map(|(at, _)| at)
                .find(|&at| at == 0 || line[..at].ends_with(char::is_whitespace));
            match start {
                _ if is_page => ("", line),
                Some(at) if has_comments => line.split_at(at),
                _ => (line, ""),
            }
        })
    }
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The names between backticks in a line: `name` or `name()`. The line that opens a block of code
/// has none.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let line = if line.contains("```") { "" } else { line };
    let quoted = line.split('`').skip(1).step_by(2);
    quoted.map(|text| text.strip_suffix("()").unwrap_or(text)).filter(|text| {
        text.len() > 2
            && text.chars().all(|c| is_of_name(c) && !c.is_ascii_uppercase())
            && !text.starts_with(|c: char| c.is_ascii_digit())
    })
}

/// The paths of files in a line: words with at least one folder and an extension that this tree
/// has. `NAME` in a path stands for any name.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(is_of_name(c) || ".-/~$*{}<>:%".contains(c)))
        .map(|word| word.trim_end_matches(['.', ':']))
        .filter(|word| word.contains('/') && ENDS.iter().any(|end| word.ends_with(end)))
        .filter(|word| word.chars().all(|c| is_of_name(c) || ".-/".contains(c)))
        .filter(|word| !word.starts_with('/') && !word.contains("NAME"))
}

/// References to things that do not exist.
#[derive(Default)]
struct Stale(Vec<String>);

impl Stale {
    fn judge(self) {
        assert!(self.0.is_empty(), "these are named and not there:\n{}", self.0.join("\n"));
    }

    fn note(&mut self, file: &File, line: usize, what: &str) {
        self.0.push(format!("{}:{}: {what}", file.path, line + 1));
    }
}

#[test]
fn files_that_comments_and_pages_name_exist() {
    let (files, all) = tree();
    let ends_in = |path: &str| {
        let path = path.trim_start_matches("../").trim_start_matches("./");
        all.iter()
            .any(|known| known.strip_suffix(path).is_some_and(|s| s.is_empty() || s.ends_with('/')))
    };
    let mut stale = Stale::default();
    // The changelog names files as they were at the time.
    for file in files.iter().filter(|file| file.path != "CHANGELOG.md") {
        for (at, (_, comment)) in file.lines().enumerate() {
            let missing = paths(comment).filter(|path| !ends_in(path));
            missing.for_each(|path| stale.note(file, at, path));
        }
    }
    stale.judge();
}

#[test]
fn names_in_comments_and_pages_are_in_the_code() {
    let (files, _) = tree();
    let code = files.iter().flat_map(|file| file.lines().map(|(code, _)| code));
    let known: HashSet<&str> = code.flat_map(|code| code.split(|c| !is_of_name(c))).collect();
    let is_others = |name: &&str| {
        OTHERS.contains(name) || OTHERS_BEGIN.iter().any(|start| name.starts_with(start))
    };
    let mut stale = Stale::default();
    for file in files.iter().filter(|file| file.ends_with(".rs") || file.ends_with(".md")) {
        // On a page, only words with an underscore count as names in code.
        let counts = |name: &&str| file.ends_with(".rs") || name.contains('_');
        for (at, (_, comment)) in file.lines().enumerate() {
            let unknown = names(comment).filter(counts).filter(|name| !known.contains(name));
            unknown.filter(|name| !is_others(name)).for_each(|name| stale.note(file, at, name));
        }
    }
    stale.judge();
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(page: &str) -> HashSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|&c| c.is_alphanumeric() || " -_".contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn links_between_pages_lead_to_pages_and_headings() {
    let (files, all) = tree();
    let pages: BTreeMap<&str, HashSet<String>> = files
        .iter()
        .filter(|file| file.ends_with(".md"))
        .map(|file| (file.path.as_str(), anchors(&file.text)))
        .collect();
    let mut stale = Stale::default();
    for file in files.iter().filter(|file| file.ends_with(".md")) {
        let folder = Path::new(&file.path).parent().expect("a file is in a folder");
        for (at, line) in file.text.lines().enumerate() {
            let links = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            for link in links.filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
                let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
                let mut to: Vec<&str> = match path {
                    "" => vec![&file.path],
                    _ => folder.iter().filter_map(|part| part.to_str()).collect(),
                };
                for part in path.split('/').filter(|part| !matches!(*part, "" | ".")) {
                    match part {
                        ".." => drop(to.pop()),
                        part => to.push(part),
                    }
                }
                let to = to.join("/");
                let has_anchor =
                    || pages.get(to.as_str()).is_none_or(|anchors| anchors.contains(anchor));
                if !all.contains(&to) || !anchor.is_empty() && !has_anchor() {
                    stale.note(file, at, link);
                }
            }
        }
    }
    stale.judge();
}

/// Commands such as `cargo test -p pfp-tests --test engine fork::` name tests that exist.
#[test]
fn tests_that_pages_name_exist() {
    let (files, all) = tree();
    let functions: Vec<String> = files
        .iter()
        .filter(|file| file.ends_with(".rs"))
        .flat_map(|file| {
            let names = file.text.lines().filter_map(|line| line.trim_start().strip_prefix("fn "));
            let module =
                file.path.trim_end_matches(".rs").trim_end_matches("/main").replace('/', "::");
            names.map(move |name| {
                format!("{module}::{}", name.split(|c| !is_of_name(c)).next().unwrap_or_default())
            })
        })
        .collect();
    let mut stale = Stale::default();
    for file in files.iter().filter(|file| file.ends_with(".md") && file.path != "CHANGELOG.md") {
        let text = file.text.replace("\\\n", " ");
        for part in text.split("--test ").skip(1) {
            let mut words = part.split(|c: char| !is_of_name(c) && c != ':');
            let target = words.next().unwrap_or_default();
            let is_target = |path: &String| {
                path.ends_with(&format!("tests/{target}/main.rs"))
                    || path.ends_with(&format!("tests/{target}.rs"))
            };
            if !all.iter().any(is_target) {
                stale.note(file, 0, target);
            }
            let filters =
                part.split(['`', '\n', ')']).next().unwrap_or_default().split_whitespace();
            for filter in filters.skip(1).filter(|word| word.contains("::")) {
                let filter = filter.trim_end_matches([':', ',', '.', ';']);
                let is_there = |function: &String| {
                    function.contains(&format!("{target}::")) && function.contains(filter)
                };
                if !functions.iter().any(is_there) {
                    stale.note(file, 0, filter);
                }
            }
        }
    }
    stale.judge();
}
