"""A released version as users had it: its wheel, built from what its commit had, in an environment of its own.

A version's packages are kept beside this file, so that a clone without history has them:
``git archive COMMIT agents deploy schemas streams pyproject.toml README.md LICENSE | xz -9``.
"""

import os
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

KEPT = Path(__file__).with_name("released")
LAST = "0.2.0"
"""The version from which users upgrade to this one."""
UV = str(Path(sys.executable).with_name("uv"))


def tree(version: str, folder: Path) -> Path:
    with tarfile.open(KEPT / f"{version}.tar.xz") as archive:
        archive.extractall(folder / version, filter="data")
    return folder / version


def wheel(version: str, folder: Path) -> Path:
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist", cwd=tree(version, folder))
    (built,) = (folder / version / "dist").iterdir()
    return built


def program(version: str, folder: Path) -> tuple[str, ...]:
    venv = folder / "venv"
    _run(UV, "venv", "--quiet", "--python", sys.executable, str(venv), cwd=folder)
    built = str(wheel(version, folder))
    _run(UV, "pip", "install", "--quiet", "--no-deps", "--python", str(venv / "bin/python"), built, cwd=folder)
    # Of a folder that is named here only its packages are found, and not the checkout that an editable install names.
    (site,) = (venv / "lib").glob("python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return (str(venv / "bin/slacktide"),)


def _run(*command: str, cwd: Path) -> None:
    bare = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run(command, cwd=cwd, env=bare, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
