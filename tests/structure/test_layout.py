"""The house stands as it is drawn: one namespace over flat folders, guarded at every door."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("agents", "deploy", "schemas", "streams")
EACH_ROOM = pytest.mark.parametrize("room", ROOMS)


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


@EACH_ROOM
def test_the_link_that_makes_a_room_importable_is_whole(room: str) -> None:
    """A checkout without symbolic links (or an archive that lost them) breaks every import; this says which."""
    link = ROOT / ".src/slacktide" / room

    assert link.is_symlink(), f"{link} is no symbolic link: ln -sfn ../../{room} .src/slacktide/{room}"
    assert link.resolve() == ROOT / room, f"{link} leads to {link.resolve()}, not to {ROOT / room}"
    assert (link / "__init__.py").is_file()
    assert (link / "py.typed").is_file()


def test_every_link_is_a_room_and_the_namespace_has_no_init() -> None:
    assert sorted(path.name for path in (ROOT / ".src/slacktide").iterdir()) == list(ROOMS)


@EACH_ROOM
def test_a_room_refuses_to_be_imported_by_its_short_name(room: str) -> None:
    """Else a second copy of every class would be loaded, and ``isinstance`` would lie."""
    done = subprocess.run(
        [sys.executable, "-c", f"import {room}"], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert done.returncode != 0
    assert f"import slacktide.{room}, not {room}" in done.stderr


def test_every_package_within_a_room_has_an_init() -> None:
    """A folder without one is a namespace of its own: linters and mypy would pass it by."""
    modules = [path for path in tracked() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in ROOMS]

    assert {path.parent for path in modules if not (path.parent / "__init__.py").is_file()} == set()


PLACES = re.compile(
    r"(?<![\w.~$}])/(?:work|root|home|Users)/\w"  # a path of somebody's machine
    r"|\b(?:pypi|pythonhosted|maven\.apache\.org/maven2|repo1?\.maven|golang\.org|npmjs|deb\.debian)\b(?:\.org|\.com|/)"
    r"|--(?:extra-)?index-url|--find-links",
    re.IGNORECASE,
)

MODULES = {"go.mod", "go.sum"}
"""Go names its modules by where they come from."""


def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
    """Where packages come from is the installing machine's business."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for path in tracked()
        if path != Path(__file__) and path.name not in MODULES
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if PLACES.search(line)
    ]

    assert found == []
