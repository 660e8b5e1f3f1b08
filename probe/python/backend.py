"""Builds the wheel by maturin, with pfp-top in it: one installation gives both ends."""

import os
import pathlib
import shutil
import subprocess

import maturin
from maturin import *  # noqa: F403: the hooks that need nothing more

HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = HERE / "pfp.data" / "scripts"
# maturin asks for it whatever it is to do.
SCRIPTS.mkdir(parents=True, exist_ok=True)


def _build_viewer():
    cargo = os.environ.get("CARGO", "cargo")
    built = subprocess.run(
        [cargo, "build", "--release", "--locked", "--package", "pfp-top", "--message-format=json"],
        cwd=HERE, check=True, stdout=subprocess.PIPE, text=True,
    )
    # The last executable that is named is the viewer.
    programs = [line.split('"executable":"')[1].split('"')[0]
                for line in built.stdout.splitlines() if '"executable":"' in line]
    shutil.copy2(programs[-1], SCRIPTS / "pfp-top")


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _build_viewer()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _build_viewer()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)
