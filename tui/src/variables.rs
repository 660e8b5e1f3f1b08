//! The environment variables that pfp reads. `doctor`, the help and the documentation list them
//! from here.

/// An environment variable.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Name of the variable.
    pub name: &'static str,
    /// Effect of the variable, in a few words.
    pub does: &'static str,
}

/// The prefix of the viewer's own variables.
pub const OF_THE_VIEWER: &str = "PFP_TOP_";
/// The variable for the path of the settings file.
pub const TOP_CONFIG: &str = "PFP_TOP_CONFIG";
/// The variable for the path of libpfp.
pub const LIBRARY: &str = "PFP_LIBRARY";
/// The variable for the path of libpfp_inject.
pub const INJECT_LIBRARY: &str = "PFP_INJECT_LIBRARY";

/// The variable for the path of libpfp_alloc.
pub const ALLOC_LIBRARY: &str = "PFP_ALLOC_LIBRARY";

/// All variables. If a variable sets the default of an option, `does` names the option.
pub const ALL: &[Variable] = &[
    of("PFP_DIR", "folder of beacons, by which viewers find programs"),
    of("PFP_CLOCK", "program: the best clock to try: rseq, perf, cputime, wall"),
    of("PFP_DEFAULT", "program: off starts all points switched off"),
    of("PFP_ENABLE", "program: names of points that start switched on"),
    of("PFP_FENCE", "program: 1 fences all points, for exact times of short regions"),
    of("PFP_ALLOCS", "program: 1 counts what the regions of all points allocate"),
    of("PFP_ALLOC_SAMPLE", "program: bytes between two samples of live memory: 524288"),
    of("PFP_POINTS", "program: maximum number of points"),
    of("PFP_LANES", "program: maximum number of threads"),
    of("PFP_MEMORY_MB", "program: maximum of shared memory, in MiB"),
    of("PFP_SNAPSHOT", "program: file to write its figures to at its end"),
    of("PFP_RUN", "program: the `pfp-top run` that started it (set by `run`)"),
    of("PFP_CUDA_LIBRARY", "program: the CUDA driver that GPU timers load"),
    of(LIBRARY, "run: the libpfp.so to preload"),
    of(ALLOC_LIBRARY, "run --alloc: the libpfp_alloc.so to preload"),
    of(INJECT_LIBRARY, "run: the libpfp_inject.so that programs load"),
    of(
        "PFP_FOLD_DIGITS",
        "program: 1 merges annotations that differ only in numbers (--fold-digits)",
    ),
    of("PFP_TRACING", "program with pfp-tracing: levels and targets of spans: info,hyper=off"),
    of(
        "PFP_SPAN_FIELDS",
        "program with pfp-tracing: fields that are part of points' names: system{name}",
    ),
    of(TOP_CONFIG, "settings file; empty for none"),
    of("PFP_TOP_INTERVAL", "--interval"),
    of("PFP_TOP_TAU", "--tau"),
    of("PFP_TOP_KEEP", "--keep"),
    of("PFP_TOP_SORT", "--sort"),
    of("PFP_TOP_NO_MOUSE", "--no-mouse"),
    of("PFP_TOP_COLUMNS", "--columns"),
    of("PFP_TOP_UNIT", "--unit"),
    of("PFP_TOP_THEME", "--theme"),
    of("PFP_TOP_ASCII", "--ascii"),
];

const fn of(name: &'static str, does: &'static str) -> Variable {
    Variable { name, does }
}

/// Whether pfp reads a variable.
pub fn is_known(name: &str) -> bool {
    ALL.iter().any(|variable| variable.name == name)
}

/// The names of all variables.
pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|variable| variable.name).collect()
}

/// A paragraph for the help. It leaves out variables that set an option: the help of the option
/// names them.
pub fn help() -> String {
    let others = ALL.iter().filter(|variable| !variable.does.starts_with("--"));
    let line = |variable: &Variable| format!("\n  {:<18} {}", variable.name, variable.does);
    format!("Environment:{}", others.map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// The list has exactly the variables that the sources read.
    #[test]
    fn the_list_has_exactly_the_variables_in_the_sources() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut read = BTreeSet::new();
        let mut folders: Vec<_> = [
            "probe/src",
            "probe/c/src",
            "probe/inject/src",
            "probe/tracing/src",
            "shm-layout/src",
            "tui/export/src",
            "tui/model/src",
            "tui/read/src",
            "tui/remote/src",
            "tui/src",
        ]
        .map(|folder| root.join(folder))
        .into();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path != root.join("tui/src/variables.rs") {
                    let text = fs::read_to_string(&path).unwrap_or_default();
                    let quoted = text.split('"').filter(|word| {
                        let plain = |c: char| c.is_ascii_uppercase() || c == '_';
                        word.starts_with("PFP_") && word.len() > 4 && word.chars().all(plain)
                    });
                    read.extend(quoted.map(str::to_owned));
                }
            }
        }
        // Variables of tests only, and a name that is wrong on purpose.
        for other in ["PFP_LANE", "PFP_TEST_FIGURES", "PFP_TEST_SEEDS"] {
            read.remove(other);
        }
        let known: BTreeSet<String> = names().into_iter().map(str::to_owned).collect();
        let unread: Vec<_> = known.difference(&read).collect();
        let unknown: Vec<_> = read.difference(&known).collect();
        assert!(unknown.is_empty(), "not in the list: {unknown:?}");
        // The sources read these variables through a constant of this file, not by a literal name.
        assert!(
            unread.iter().all(|name| [LIBRARY, ALLOC_LIBRARY, INJECT_LIBRARY, TOP_CONFIG]
                .contains(&name.as_str())),
            "{unread:?}"
        );
    }
}
