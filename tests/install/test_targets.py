"""Every command that a page or a hint names does what it says, at least up to where it fetches something."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.install, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
SETUP = ROOT / "tests/testbed/setup"
CI = {"setup", "test", "lint", "types", "imports"}
"""Targets that `.ci/run` itself runs."""
FETCHERS = ("mvn", "go", "apt-get", "apt-cache", "dpkg-deb", "docker", "pip")
TOOLS = (
    "awk bash basename cat chmod command cut date dirname env expand find git grep gzip head id ls make mkdir mktemp "
    "mv nice rm sed sh sha256sum sort tail tar touch tr uname xargs"
)
AWAY = """#!/bin/sh
echo "$(basename "$0") in $PWD: $*" >>"$FETCHED"
exit 1
"""


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """An environment with an empty cache, in which whatever fetches or builds notes that it was asked, and fails."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in TOOLS.split():
        if found := shutil.which(name):
            (programs / name).symlink_to(found)
    for name in FETCHERS:
        (programs / name).write_text(AWAY)
        (programs / name).chmod(0o755)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "SLACKTIDE", "KUBEB"))}
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "FETCHED": str(tmp_path / "fetched")}
    return kept | cache | {"PATH": str(programs)}


def fetched(environment: dict[str, str]) -> str:
    noted = Path(environment["FETCHED"])
    return noted.read_text() if noted.exists() else ""


NAMES = re.findall(r"^#   tests/testbed/setup ([\w-]+) ", SETUP.read_text(), re.MULTILINE)
"""What the head of the set-up lists."""


@pytest.mark.parametrize("name", NAMES)
def test_each_name_of_the_set_up_gets_as_far_as_its_source(name: str, bare: dict[str, str]) -> None:
    """A name whose files had moved could set nothing up."""
    done = subprocess.run([SETUP, name], env=bare, capture_output=True, text=True, check=False)
    asked = fetched(bare)

    assert done.returncode == 1, done.stdout + done.stderr
    assert "No such file" not in done.stderr
    assert "testbed: " in done.stdout
    for file in re.findall(r"-f (\S+)", asked):
        assert Path(file).is_file(), asked
    for folder in re.findall(r"^go in ([^:]+):", asked, re.MULTILINE):
        assert (Path(folder) / "go.mod").is_file(), asked
    assert asked, done.stdout


def test_the_whole_set_up_says_first_what_it_will_do(bare: dict[str, str]) -> None:
    done = subprocess.run([SETUP, "all"], env=bare, capture_output=True, text=True, check=False)
    told = done.stdout.splitlines()
    planned = [line for line in told if line.startswith("testbed: to do: ")]

    assert told[: len(planned)] == planned
    for part in (
        "install Debian's",
        "fetch kafka",
        "fetch Debian's docker.io",
        "build kubelet",
        "build metrics-server",
    ):
        assert any(part in line for line in planned), planned


def test_a_name_that_is_none_is_answered_with_those_that_are() -> None:
    done = subprocess.run([SETUP, "kafak"], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert all(f"tests/testbed/setup {name} " in done.stderr for name in NAMES)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout as a commit of its own, in this environment."""
    copy = tmp_path_factory.mktemp("targets") / "slacktide"
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, tracked.split("\0")):
        if (ROOT / name).is_symlink() or (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
    (copy / ".venv").mkdir()
    for part in Path(sys.prefix).iterdir():
        (copy / ".venv" / part.name).symlink_to(part)
    (copy / ".venv/.ready").unlink()
    (copy / ".venv/.ready").touch()
    who = ("-c", "user.name=test", "-c", "user.email=test@example.com")
    for command in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "All"]):
        subprocess.run(["git", *command], cwd=copy, check=True)
    return copy


TARGETS = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
HELP = "ARGS=--help"
RUN = {
    "help": ("", 0, "What there is"),
    "demo": (HELP, 0, "--scenario"),
    "test-all": ("", 2, "to do: fetch kafka"),
    "nightly": ("", 2, "to do: fetch kafka"),
    "bench": (HELP, 0, "--only"),
    "soak": ("", 2, "fetch kafka"),
    "mutate": (HELP, 0, "MODULE"),
    "quick": (f"--old-file=lint --old-file=types {HELP}", 0, "usage: pytest"),
    "schemas": ("", 0, ""),
    "chart": ("", 2, "build etcd kube-apiserver kubectl"),
    "lock": (HELP, 0, "uv pip compile"),
    "docs": ("", 0, "Build finished|No issues found"),
    "wheel": ("", 0, r"slacktide-.*\.whl"),
    "release": ("", 0, r"slacktide-.*\.cdx\.json"),
    "clean": ("", 0, ""),
}
"""By target: what it is given, how it ends where nothing can be fetched, and what it prints."""


def test_each_target_is_run_here_or_in_ci() -> None:
    assert {*RUN, *CI} == set(TARGETS)
    ci = (ROOT / ".ci/run").read_text()
    assert [target for target in CI if not re.search(rf"\bmake\b[^#\n]* {target}\b", ci)] == []


@pytest.mark.parametrize("target", RUN)
def test_each_target_of_the_makefile_works(target: str, checkout: Path, bare: dict[str, str]) -> None:
    given, code, printed = RUN[target]
    done = subprocess.run(
        ["make", target, *given.split()], cwd=checkout, env=bare, capture_output=True, text=True, check=False
    )
    text = done.stdout + done.stderr
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=checkout, capture_output=True, text=True, check=True)

    assert (done.returncode, changed.stdout) == (code, ""), text
    assert re.search(printed, text), text
