"""What is handed out works where nothing of the checkout is: the wheel in a clean environment."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from slacktide.schemas.topics import TOPICS

pytestmark = [pytest.mark.install, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
NOT_COPIED = shutil.ignore_patterns(".venv", ".*_cache", "__pycache__", "site", "dist", ".hypothesis", ".git")
ROOMS = ("agents", "deploy", "schemas", "streams")
TEST = re.compile(r"(^|/)(tests?|conftest|test_\w+|\w+_test)(/|\.py$)")


def run(*command: str | Path, cwd: Path) -> str:
    """Run outside the checkout and without its environment."""
    bare = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run(command, cwd=cwd, env=bare, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


def build(target: str, root: Path, folder: Path) -> Path:
    run(sys.executable, "-m", "hatchling", "build", "-t", target, "-d", folder, cwd=root)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def environment(folder: Path, requirement: str) -> Path:
    """A clean environment with one thing installed, at the versions of the lock file."""
    run(UV, "venv", "--quiet", "--python", sys.executable, folder / "venv", cwd=folder)
    python = folder / "venv/bin/python"
    lock = ROOT / "requirements.lock"
    run(UV, "pip", "install", "--quiet", "--python", python, "--constraint", lock, requirement, cwd=folder)
    return python


@pytest.fixture(scope="module")
def whole(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("whole"), f"slacktide[local,cluster,console] @ {wheel.as_uri()}")


@pytest.fixture(scope="module")
def lean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("lean"), f"slacktide @ {wheel.as_uri()}")


IMPORT_ALL = """
import importlib, pkgutil, slacktide.{room} as room
assert "site-packages" in room.__file__, room.__file__
for each in pkgutil.walk_packages(room.__path__, room.__name__ + "."):
    if not each.name.endswith("__main__"):
        importlib.import_module(each.name)
"""


@pytest.mark.parametrize("room", ROOMS)
def test_every_module_imports_from_elsewhere(whole: Path, tmp_path: Path, room: str) -> None:
    """With all extras and no more: nothing leans on a test's or a linter's package."""
    run(whole, "-I", "-c", IMPORT_ALL.format(room=room), cwd=tmp_path)


def test_the_command_line_answers(whole: Path, tmp_path: Path) -> None:
    helped = run(whole.with_name("slacktide"), "--help", cwd=tmp_path)

    assert all(command in helped for command in ("up", "agent", "stream", "topics", "dead-letter", "demo"))


def test_a_node_agent_needs_no_extra(lean: Path, tmp_path: Path) -> None:
    """What runs on every node is the bare wheel: its dependencies are few."""
    run(lean.with_name("slacktide"), "agent", "--help", cwd=tmp_path)
    run(lean, "-I", "-c", "import slacktide.agents.node.loop", cwd=tmp_path)

    with pytest.raises(AssertionError, match="No module named 'faust'"):
        run(lean, "-I", "-c", "import faust", cwd=tmp_path)


def test_the_wheel_carries_what_users_look_up(wheel: Path) -> None:
    inside = names(wheel)

    assert {f"slacktide/{room}/py.typed" for room in ROOMS} <= inside
    assert {f"slacktide/schemas/jsonschema/{topic.name}.json" for topic in TOPICS} <= inside
    assert {f"slacktide/schemas/examples/{topic.name}/{n}.json" for topic in TOPICS for n in (1, 2, 3)} <= inside
    assert any(name.startswith("slacktide/deploy/") and name.endswith("policy.yaml") for name in inside)


def test_the_wheel_carries_nothing_else(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in names(wheel)}
    rooms = {name.split("/")[1] for name in names(wheel) if name.startswith("slacktide/")}

    assert rooms == set(ROOMS)
    assert all(top == "slacktide" or top.endswith(".dist-info") for top in tops)
    assert not [name for name in names(wheel) if TEST.search(name) or name.endswith((".pyc", ".log"))]


@pytest.mark.parametrize("target", ["wheel", "sdist"])
def test_two_builds_of_one_commit_are_the_same_bytes(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere, later, with other times of files; `make release` sets the date to the commit's."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    copied = tmp_path / "copied"
    shutil.copytree(ROOT, copied, symlinks=True, copy_function=shutil.copy, ignore=NOT_COPIED)

    first, second = (build(target, root, tmp_path / f"of-{root.name}").read_bytes() for root in (ROOT, copied))
    assert first == second


def test_a_wheel_made_from_the_source_archive_is_the_same(wheel: Path, tmp_path: Path) -> None:
    """The links in .src once made it empty."""
    source = build("sdist", ROOT, tmp_path / "sdist")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (root,) = (tmp_path / "unpacked").iterdir()

    assert names(build("wheel", root, tmp_path / "wheel")) == names(wheel)
