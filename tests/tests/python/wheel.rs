//! The backend that builds the wheel, run with fake versions of cargo and maturin.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pfp_tests::place::{Place, text};

use crate::{pythons, said};

/// A fake maturin, which only prints its arguments.
const MATURIN: &str = "def build_wheel(folder, settings=None, metadata=None):\n    \
                       print('maturin', folder, settings)\n    return 'pfp.whl'\n\
                       build_editable = build_wheel\n";

fn write(path: &Path, content: &str) {
    std::fs::create_dir_all(path.parent().expect("it has one")).expect("there is room");
    std::fs::write(path, content).expect("there is room");
    let rights = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(path, rights).expect("it is ours");
}

/// Copies the backend into a small source tree. Returns the backend's folder.
fn backend(place: &Place) -> PathBuf {
    let folder = place.path("probe/python");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../probe/python/backend.py");
    let backend = std::fs::read_to_string(source).expect("it is there");
    write(&folder.join("backend.py"), &backend);
    write(&folder.join("maturin.py"), MATURIN);
    write(&place.path("Cargo.toml"), "[workspace.package]\nrust-version = \"1.88\"\n");
    write(&place.path("rustc"), "#!/bin/sh\necho 'rustc 1.90.0 (of today)'\n");
    folder
}

#[test]
fn a_wheel_has_the_viewer_that_was_built_or_named() {
    let Some(pythons) = pythons("the wheel") else { return };
    let place = Place::new();
    let folder = backend(&place);
    let built = place.path("built");
    write(&built, "the viewer that was built");
    let cargo = place.path("cargo");
    write(
        &cargo,
        &format!(
            "#!/bin/sh\necho 'Compiling something' >&2\n\
             echo '{{\"reason\":\"compiler-artifact\",\"executable\":\"{}\",\"fresh\":false}}'\n",
            text(&built)
        ),
    );
    let named = place.path("named");
    write(&named, "another viewer");
    let viewer = folder.join("pfp.data/scripts/pfp-top");
    for (setting, expected) in [
        (None, Some("the viewer that was built")),
        (Some(text(&named)), Some("another viewer")),
        (Some("none"), None),
    ] {
        let settings = setting.map_or("None".to_owned(), |it| format!("{{'viewer': '{it}'}}"));
        let program = format!("import backend; print(backend.build_wheel('out', {settings}))");
        let mut command = Command::new(&pythons.all[0]);
        command.args(["-c", &program]).current_dir(&folder);
        command.env("CARGO", &cargo).env("RUSTC", place.path("rustc"));
        let output = command.output().expect("it starts");
        assert!(output.status.success(), "{}", said(&output));
        assert!(said(&output).contains("maturin out {}\npfp.whl"), "{}", said(&output));
        let found = std::fs::read_to_string(&viewer).ok();
        assert_eq!(found.as_deref(), expected);
    }
}

#[test]
fn a_build_that_fails_says_what_to_do() {
    let Some(pythons) = pythons("the wheel") else { return };
    let place = Place::new();
    let folder = backend(&place);
    let script = |name: &str, lines: &str| {
        write(&place.path(name), &format!("#!/bin/sh\n{lines}\n"));
        place.path(name).to_str().expect("it is plain text").to_owned()
    };
    let fails = |name: &str, words: &str| script(name, &format!("echo '{words}' >&2\nexit 101"));
    let killed = fails("killed", "error: could not compile (signal: 9, SIGKILL: kill)");
    let full = fails("full", "error: No space left on device (os error 28)");
    let broken = fails("broken", "error[E0308]: mismatched types");
    let old = script("old", "echo 'rustc 1.70.0 (of yore)'");
    let good = script("good", "exit 0");
    for (variable, value, viewer, expected) in [
        ("CARGO", "/nowhere/cargo", "", "expected Rust's cargo to build with, found no"),
        ("RUSTC", &*old, "", "expected Rust 1.88 or newer, found 1.70.0; `rustup update`"),
        ("CC", "/nowhere/cc", "", "expected a C compiler to link with, found no '/nowhere/cc'"),
        (
            "CARGO",
            &*killed,
            "",
            "failed with status 101: the compiler ran out of memory; CARGO_BUILD_JOBS=1",
        ),
        ("CARGO", &*full, "", "failed with status 101: the disk is full; CARGO_TARGET_DIR"),
        ("CARGO", &*broken, "", "failed with status 101: see the messages above"),
        ("CARGO", &*good, "/nowhere/viewer", "expected viewer=none or viewer=PATH"),
    ] {
        let settings =
            if viewer.is_empty() { String::new() } else { format!("'viewer': '{viewer}'") };
        let program = format!("import backend; backend.build_wheel('out', {{{settings}}})");
        let mut command = Command::new(&pythons.all[0]);
        command.args(["-c", &program]).current_dir(&folder);
        command.env("CARGO", &good).env("RUSTC", place.path("rustc")).env("CC", "sh");
        let output = command.env(variable, value).output().expect("it starts");
        let said = said(&output);
        assert!(!output.status.success() && said.contains(expected), "{expected}: {said}");
        assert!(!said.contains("Traceback"), "{said}");
        assert!(!expected.contains("101") || said.contains("--package pfp-top"), "{said}");
    }
}
