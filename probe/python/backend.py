"""Builds the wheel with maturin, and adds pfp-top, so that one installation provides both.

`pip install ./probe/python -C viewer=PATH` adds a viewer that is already built, and
`-C viewer=none` adds none.
"""

import contextlib
import fcntl
import os
import pathlib
import re
import shutil
import subprocess
import sys

import maturin
from maturin import *  # noqa: F403: the hooks that are not defined below

HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = HERE / "pfp.data" / "scripts"
# maturin requires this folder for every operation.
SCRIPTS.mkdir(parents=True, exist_ok=True)

WORK = HERE / "build"
"""Folder for files that are not part of the wheel."""

HINTS = (
    (r"SIGKILL|signal: 9|out of memory|Cannot allocate memory|LLVM ERROR: out",
     "the compiler ran out of memory; CARGO_BUILD_JOBS=1 in the environment builds one crate at a time"),
    (r"No space left on device|os error 28",
     "the disk is full; CARGO_TARGET_DIR in the environment names another folder to build in"),
    (r"failed to (download|fetch|get)|Could not resolve host|spurious network error",
     "the crates could not be fetched; after `cargo fetch` with a network it builds without one"),
    (r"lock file .* needs to be updated",
     "Cargo.lock does not fit Cargo.toml; take both from the same commit"),
)


def _fail(why):
    # A traceback would take the place of this message in pip's output.
    sys.stdout.flush()
    sys.exit(f"pfp: {why}")


def _check_tools():
    cargo = os.environ.get("CARGO", "cargo")
    if not shutil.which(cargo):
        _fail(f"expected Rust's cargo to build with, found no {cargo!r}; install it from "
              "https://rustup.rs, or name it by CARGO")
    manifest = (HERE.parents[1] / "Cargo.toml").read_text()
    wanted = re.search(r'^rust-version = "([\d.]+)"', manifest, re.M)
    said = subprocess.run([os.environ.get("RUSTC", "rustc"), "--version"],
                          stdout=subprocess.PIPE, text=True, cwd=HERE, check=False).stdout
    found = re.search(r"rustc ([\d.]+)", said)
    number = lambda text: [int(part) for part in text.split(".")]  # noqa: E731
    if wanted and found and number(found[1]) < number(wanted[1]):
        _fail(f"expected Rust {wanted[1]} or newer, found {found[1]}; `rustup update` installs it")
    compiler = os.environ.get("CC", "cc").split()[0]
    if not shutil.which(compiler):
        _fail(f"expected a C compiler to link with, found no {compiler!r}; "
              "`apt-get install gcc` or the like installs one, or name it by CC")
    return cargo


@contextlib.contextmanager
def _alone():
    """Allows one build of this folder at a time, because builds share the files of the wheel."""
    WORK.mkdir(exist_ok=True)
    with open(WORK / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("pfp: another build of this folder runs; waiting for its end", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command):
    """Runs cargo, copies its messages to standard error, and returns all output lines."""
    print("pfp: runs", *command, flush=True)
    words = []
    with subprocess.Popen(command, cwd=HERE, text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as running:
        for line in running.stdout:
            words.append(line)
            if not line.startswith("{"):
                sys.stderr.write(line)
    if running.returncode:
        hints = [hint for pattern, hint in HINTS if re.search(pattern, "".join(words))]
        hint = hints[0] if hints else "see the messages above"
        _fail(f"`{' '.join(command)}` failed with status {running.returncode}: {hint}")
    return words


def _build_viewer(cargo):
    # maturin builds the native half with the same options, so both share their build products in
    # the target folder, and a viewer that was built there already is reused.
    command = [cargo, "build", "--release", "--locked", "--package", "pfp-top",
               "--bin", "pfp-top", "--message-format=json-render-diagnostics"]
    # The last executable in cargo's output is the viewer.
    programs = [line.split('"executable":"')[1].split('"')[0]
                for line in _run(command) if line.startswith("{") and '"executable":"' in line]
    return programs[-1]


def _put_viewer(settings):
    """Copies the viewer to the folder in which maturin looks for it."""
    cargo = _check_tools()
    viewer = (settings or {}).get("viewer")
    place = SCRIPTS / "pfp-top"
    if viewer == "none":
        place.unlink(missing_ok=True)
        return
    if viewer is not None and not os.access(viewer, os.X_OK):
        _fail(f"expected viewer=none or viewer=PATH of a built pfp-top, found {viewer!r}, which "
              "is no program; the path has to be absolute")
    new = WORK / "pfp-top"
    shutil.copy2(viewer or _build_viewer(cargo), new)
    os.replace(new, place)


def _build(build, settings, *arguments):
    # maturin does not know the setting `viewer`.
    others = {key: value for key, value in (settings or {}).items() if key != "viewer"}
    with _alone():
        _put_viewer(settings)
        try:
            return build(*arguments[:1], others, *arguments[1:])
        except (SystemExit, subprocess.CalledProcessError) as error:
            _fail(f"maturin, which builds the native half, failed: {error}; see the messages "
                  "above. With CARGO_BUILD_JOBS=1 in the environment it takes less memory")


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return _build(maturin.build_wheel, config_settings, wheel_directory, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return _build(maturin.build_editable, config_settings, wheel_directory, metadata_directory)
