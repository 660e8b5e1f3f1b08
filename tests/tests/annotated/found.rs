//! Tests which library `pfp-top run` sets in programs' environments, and the messages of `run`
//! about that library.

use std::path::PathBuf;
use std::process::{Command, Output};

use pfp_tests::c;
use pfp_tests::place::{Place, pfp_top};

const VARIABLE: &str = "INTEL_LIBITTNOTIFY64";
/// The variables that `pfp-top run` sets by default, one for each annotation system.
const ALL: [&str; 4] =
    ["NVTX_INJECTION64_PATH", VARIABLE, "OMP_TOOL_LIBRARIES", "KOKKOS_TOOLS_LIBS"];

/// A prefix under which the viewer is installed.
struct Prefix {
    place: Place,
    viewer: PathBuf,
    injected: PathBuf,
}

impl Prefix {
    fn new(has_library: bool) -> Self {
        let place = Place::new();
        let folder = |name: &str| {
            let folder = place.path("prefix").join(name);
            std::fs::create_dir_all(&folder).expect("there is room");
            folder
        };
        let (viewer, library) =
            (folder("bin").join("pfp-top"), folder("lib").join("libpfp_inject.so"));
        // `cp` writes the copy in a process of its own. A writable descriptor in this process could
        // be inherited by a child that another test forks, and the copy could not be executed then.
        c::run(Command::new("cp").arg(pfp_top()).arg(&viewer));
        if has_library {
            std::fs::copy(c::inject(), &library).expect("there is room");
        }
        Self { place, viewer, injected: library }
    }

    fn command(&self) -> Command {
        let mut command = self.place.command(&self.viewer);
        for variable in ALL {
            command.env_remove(variable);
        }
        command.env_remove("PFP_INJECT_LIBRARY").env("HOME", "/nonexistent");
        command
    }

    /// The variables that a program below `pfp-top run` sees, and the messages of the viewer.
    fn variables(&self, options: &[&str], set: Option<&str>) -> (String, String) {
        let mut command = self.command();
        command.args(["run", "--once", "--inherit"]).args(options);
        command.args(["--", "sh", "-c", "env | grep -E \"$NAMES\""]);
        let names = format!("^({})=", ALL.join("|"));
        command.env("NAMES", names).envs(set.map(|value| (VARIABLE, value)));
        let Output { stdout, stderr, .. } = command.output().expect("pfp-top starts");
        let [out, err] = [stdout, stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
        (out, err)
    }
}

#[test]
fn the_library_is_found_in_the_viewers_prefix() {
    let prefix = Prefix::new(true);
    let library = prefix.injected.canonicalize().expect("it is there");
    let library = library.to_str().expect("it is plain text");
    let (out, err) = prefix.variables(&["-v"], None);
    for variable in ALL {
        assert!(out.contains(&format!("{variable}={library}\n")), "{variable}: {out}");
    }
    assert!(err.contains(&format!("{} set to {library}", ALL.join(", "))), "{err}");
    let (out, err) = prefix.variables(&["--inject", "itt"], None);
    assert_eq!(out, format!("{VARIABLE}={library}\n"));
    assert!(!err.contains(library), "{err}");
    let (out, err) = prefix.variables(&["--no-inject"], None);
    assert!(out.is_empty() && !err.contains("libpfp_inject"), "{out}{err}");
    let output = prefix.command().arg("doctor").output().expect("pfp-top starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains(&format!("for annotated programs: {library}")), "{said}");
}

#[test]
fn another_tool_is_replaced_only_on_request() {
    let prefix = Prefix::new(true);
    let other = "/usr/lib/libother.so";
    let (out, err) = prefix.variables(&[], Some(other));
    assert!(out.contains(&format!("{VARIABLE}={other}\n")), "{out}");
    assert!(out.contains("KOKKOS_TOOLS_LIBS=") && out.contains("libpfp_inject.so"), "{out}");
    assert!(err.contains(&format!("{VARIABLE} already names {other}; it stays set")), "{err}");
    let (out, err) = prefix.variables(&["--inject", "nvtx,itt"], Some(other));
    assert!(out.is_empty(), "it was not started: {out}");
    let refusal =
        format!("{VARIABLE} already names {other}, and a program can load only one tool: unset");
    assert!(err.contains(&refusal), "{err}");
    let (out, err) = prefix.variables(&["--no-inject"], Some(other));
    assert_eq!(out, format!("{VARIABLE}={other}\n"));
    assert!(!err.contains(other), "{err}");
    // pfp's own library does not count as another tool.
    let own = prefix.injected.to_str().expect("it is plain text");
    let (_, err) = prefix.variables(&["--inject", "itt"], Some(own));
    assert!(!err.contains("already"), "{err}");
}

#[test]
fn a_missing_library_is_reported_with_the_searched_paths() {
    let prefix = Prefix::new(false);
    let installed = ["/usr/local/lib", "/usr/lib64", "/usr/lib"];
    if installed.iter().any(|folder| PathBuf::from(folder).join("libpfp_inject.so").exists()) {
        return pfp_tests::tools::skipped("the library that is missing", "pfp is installed here");
    }
    let (out, err) = prefix.variables(&[], None);
    assert!(out.is_empty(), "{out}");
    assert!(err.contains("libpfp_inject.so was not found, see `pfp-top doctor`"), "{err}");
    let own = prefix.place.path("prefix").join("lib/libpfp_inject.so");
    let named = prefix.place.path("nowhere.so");
    for (variable, place) in [(None, &own), (Some(&named), &named)] {
        let place = place.to_str().expect("it is plain text");
        let mut doctor = prefix.command();
        doctor.arg("doctor").envs(variable.map(|named| ("PFP_INJECT_LIBRARY", named)));
        let output = doctor.output().expect("pfp-top starts");
        let said = String::from_utf8_lossy(&output.stdout);
        let flat = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains("for annotated programs: not found (searched: "), "{said}");
        assert!(flat.contains(place), "{place} in {said}");
    }
    let (out, err) = prefix.variables(&["--inject", "itt"], None);
    assert!(out.is_empty() && err.contains("which was not found (searched: "), "{out}{err}");
    assert!(err.contains(own.to_str().expect("it is plain text")), "{err}");
}
